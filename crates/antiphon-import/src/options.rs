//! The options of a config, flat, by dotted name, each with its place: asked for one by one and typed, so that at the end what nobody
//! asked for is known. Knows no format.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::{ImportError, Problem};
use crate::lines::Lines;
use crate::place::{Place, short};
use crate::warning::{UnknownOption, Warning};

mod known;
mod mapping;

pub(crate) use known::{Known, nearest_of};

use known::matches;
pub(crate) use mapping::{json, yaml};

/// No option of any tool counts further.
const COUNT_MAX: u64 = 1_000_000_000_000_000;

/// Options as they stand in a file or on a command line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    file: String,
    entries: BTreeMap<String, Entry>,
    asked: BTreeSet<String>,
    taken: BTreeSet<String>,
    not_literal: Vec<Warning>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// The name as it is written, where it is asked for by another.
    name: String,
    value: Value,
    place: Place,
    literal: bool,
}

impl Options {
    pub(crate) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            ..Self::default()
        }
    }

    /// A JSON or YAML text whose top is a mapping.
    pub(crate) fn parse(text: &str, file: &str) -> Result<Self, ImportError> {
        let (value, lines) = if text.trim_start().starts_with('{') {
            match json(text, file) {
                Ok(value) => (value, Lines::in_json(text)),
                Err(error) if file.to_ascii_lowercase().ends_with(".json") => return Err(error),
                // A YAML text may begin with a brace as well.
                Err(error) => match yaml(text, file) {
                    Ok(value) => (value, Lines::in_yaml(text)),
                    Err(_) => return Err(error),
                },
            }
        } else {
            (yaml(text, file)?, Lines::in_yaml(text))
        };
        let Value::Object(map) = value else {
            return Err(Problem::Syntax {
                place: Place::new(file, 1),
                reason: "it holds no options: expected `name: value` lines".into(),
            }
            .into());
        };
        let mut options = Self::new(file);
        options.flatten("", map, &lines);
        options.interpolate();
        Ok(options)
    }

    fn flatten(&mut self, prefix: &str, map: serde_json::Map<String, Value>, lines: &Lines) {
        for (key, value) in map {
            let path = if prefix.is_empty() {
                key
            } else {
                format!("{prefix}.{key}")
            };
            match value {
                Value::Object(inner) if !inner.is_empty() => self.flatten(&path, inner, lines),
                value => {
                    let place = Place::new(&self.file, lines.of(&path));
                    self.set(&path, value, place, true);
                }
            }
        }
    }

    /// Values that refer to others of the file (`${data.max_length}`).
    fn interpolate(&mut self) {
        let referring: Vec<(String, String)> = self
            .entries
            .iter()
            .filter_map(|(key, entry)| Some((key.clone(), entry.value.as_str()?.to_owned())))
            .filter(|(_, text)| text.contains("${") || text.contains("{{"))
            .collect();
        for (key, text) in referring {
            let value = self.referred(&text);
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.literal = value.is_some();
                entry.value = value.unwrap_or(Value::String(text));
            }
        }
    }

    /// What `${name}` and `${oc.select:name,default}` stand for.
    fn referred(&self, text: &str) -> Option<Value> {
        let inner = text.strip_prefix("${")?.strip_suffix('}')?;
        let select = inner.strip_prefix("oc.select:");
        let (name, default) = match select.map(|rest| rest.split_once(',').unwrap_or((rest, ""))) {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let plain = |value: &Value| !value.as_str().is_some_and(|text| text.contains("${"));
        let found = self.entries.get(name).map(|entry| entry.value.clone());
        let default = || Some(Value::from(default?.trim_matches('"')));
        found.filter(plain).or_else(default)
    }

    /// Sets an option; what is set later wins, as on a command line.
    pub(crate) fn set(&mut self, name: &str, value: Value, place: Place, literal: bool) {
        let entry = Entry {
            name: name.to_owned(),
            value,
            place,
            literal,
        };
        self.entries.insert(name.to_owned(), entry);
    }

    /// Sets what is not set yet from other options, such as those of a file under those of a command line.
    pub(crate) fn fill(&mut self, other: Self) {
        for (name, entry) in other.entries {
            self.entries.entry(name).or_insert(entry);
        }
    }

    /// Lets an option that has several names be asked for by one.
    pub(crate) fn alias(&mut self, names: &[&str], asked: &str) {
        self.asked
            .extend(names.iter().map(|name| (*name).to_owned()));
        for name in names {
            if let Some(entry) = self.entries.remove(*name) {
                self.entries.entry(asked.to_owned()).or_insert(entry);
            }
        }
    }

    /// Renames all options.
    pub(crate) fn rename(&mut self, new: impl Fn(&str) -> String) {
        let entries = std::mem::take(&mut self.entries);
        for (name, entry) in entries {
            self.entries.entry(new(&name)).or_insert(entry);
        }
    }

    /// Takes options of a value as not stated.
    pub(crate) fn forget(&mut self, value: &str) {
        for entry in self.entries.values_mut() {
            if entry.value.as_str() == Some(value) {
                entry.value = Value::Null;
            }
        }
    }

    /// Takes an option as not stated, where another overrules it.
    pub(crate) fn forget_name(&mut self, name: &str) {
        self.entries.remove(name);
    }

    /// The options below a name, with the name taken away.
    pub(crate) fn take_table(&mut self, name: &str) -> Option<Self> {
        let prefix = format!("{name}.");
        let below: Vec<String> = self
            .entries
            .keys()
            .filter(|key| key.starts_with(&prefix))
            .cloned()
            .collect();
        if below.is_empty() {
            return None;
        }
        let mut table = Self::new(&self.file);
        for key in below {
            if let (Some(entry), Some(rest)) = (self.entries.remove(&key), key.get(prefix.len()..))
            {
                table.entries.insert(rest.to_owned(), entry);
            }
        }
        Some(table)
    }

    /// A copy of the options that begin with a prefix.
    pub(crate) fn only(&mut self, prefix: &str) -> Self {
        let mut table = Self::new(&self.file);
        for (name, entry) in &self.entries {
            if name.starts_with(prefix) {
                self.taken.insert(name.clone());
                table.entries.insert(name.clone(), entry.clone());
            }
        }
        table
    }

    /// Whether anything is set that begins with a name.
    pub(crate) fn under(&self, prefix: &str) -> bool {
        self.entries.keys().any(|key| key.starts_with(prefix))
    }

    /// Whether an option is there and not null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries
            .get(name)
            .is_some_and(|entry| !is_nothing(&entry.value))
    }

    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Where an option stands.
    pub(crate) fn place(&self, name: &str) -> Place {
        let found = self.entries.get(name).or_else(|| {
            let prefix = format!("{name}.");
            let below = self
                .entries
                .iter()
                .find(|(key, _)| key.starts_with(&prefix));
            below.map(|(_, entry)| entry)
        });
        found.map_or_else(|| Place::new(&self.file, 1), |entry| entry.place.clone())
    }

    /// The option as it is written: `name: value`.
    pub(crate) fn written(&self, name: &str) -> String {
        self.entries.get(name).map_or_else(
            || name.to_owned(),
            |entry| format!("{}: {}", entry.name, short(&plain(&entry.value))),
        )
    }

    /// The value of an option, unless it is not there, null, or only known when it runs.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value> {
        self.asked.insert(name.to_owned());
        let entry = self.entries.get(name)?;
        let first = self.taken.insert(name.to_owned());
        if is_nothing(&entry.value) {
            return None;
        }
        if !entry.literal {
            if first {
                self.not_literal.push(Warning::NotLiteral {
                    place: entry.place.clone(),
                    option: entry.name.clone(),
                    text: short(&plain(&entry.value)),
                });
            }
            return None;
        }
        Some(entry.value.clone())
    }

    /// A whole number of at least 1.
    pub(crate) fn count(&mut self, name: &str) -> Result<Option<u64>, ImportError> {
        let expected = "a whole number of at least 1";
        match self.integer(name, expected)? {
            None => Ok(None),
            Some(number) => match u64::try_from(number) {
                Ok(number) if (1..=COUNT_MAX).contains(&number) => Ok(Some(number)),
                _ => Err(self.bad(name, expected)),
            },
        }
    }

    /// A whole number of at least 1, where 0 and below mean that it is not stated.
    pub(crate) fn count_if_positive(&mut self, name: &str) -> Result<Option<u64>, ImportError> {
        match self.integer(name, "a whole number")? {
            Some(number) if number >= 1 => self.count(name),
            _ => Ok(None),
        }
    }

    /// A whole number of any sign.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        expected: &str,
    ) -> Result<Option<i64>, ImportError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let number = match &value {
            Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            Value::String(text) => {
                let text = text.trim().replace('_', "");
                text.parse().ok().or_else(|| whole(text.parse().ok()?))
            }
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.bad(name, expected))
    }

    /// A number.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, ImportError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let number = match &value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.bad(name, "a number")),
        }
    }

    /// Thousandths of a number that is not negative.
    pub(crate) fn permille(&mut self, name: &str) -> Result<Option<u64>, ImportError> {
        match self.number(name)? {
            None => Ok(None),
            Some(number) if (0.0..=1e9).contains(&number) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to 1e12 fits"
                )]
                Ok(Some((number * 1000.0).round() as u64))
            }
            Some(_) => Err(self.bad(name, "a number of at least 0")),
        }
    }

    /// Yes or no.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>, ImportError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        as_flag(&value)
            .map(Some)
            .ok_or_else(|| self.bad(name, "true or false"))
    }

    /// Whether an option is there and not false.
    pub(crate) fn on(&mut self, name: &str) -> Result<bool, ImportError> {
        Ok(self.flag(name)?.unwrap_or(false))
    }

    /// A text; numbers are texts too.
    pub(crate) fn text(&mut self, name: &str) -> Result<Option<String>, ImportError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(_)) => Err(self.bad(name, "a text")),
            Some(Value::Array(items)) if items.len() > 1 => Err(self.bad(name, "one text")),
            Some(value) => Ok(Some(plain(&value))),
        }
    }

    /// Texts, written as a list or in one text with commas or spaces between them.
    pub(crate) fn words(&mut self, name: &str) -> Option<Vec<String>> {
        let value = self.value(name)?;
        let texts: Vec<String> = match &value {
            Value::Array(items) => items.iter().map(plain).collect(),
            value => vec![plain(value)],
        };
        let words = texts.iter().flat_map(|text| {
            text.split([',', ' '])
                .map(|word| word.trim_matches(|c| matches!(c, '[' | ']' | '\'' | '"' | ' ')))
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
        });
        Some(words.collect())
    }

    /// One of the names that a tool knows.
    pub(crate) fn choice<T: Clone>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ImportError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = choices
            .iter()
            .find(|(word, _)| word.eq_ignore_ascii_case(&text));
        if let Some((_, chosen)) = found {
            return Ok(Some(chosen.clone()));
        }
        let words: Vec<String> = choices.iter().map(|(word, _)| (*word).to_owned()).collect();
        let expected = format!("one of {}", crate::error::quoted(&words));
        Err(self
            .bad(name, &expected)
            .suggest(nearest_of(&text, words.iter().map(String::as_str))))
    }

    /// The error of a value that an option cannot have.
    pub(crate) fn bad(&self, name: &str, expected: &str) -> ImportError {
        let entry = self.entries.get(name);
        Problem::Value {
            place: self.place(name),
            option: entry.map_or_else(|| name.to_owned(), |entry| entry.name.clone()),
            found: entry.map_or_else(String::new, |entry| short(&plain(&entry.value))),
            expected: expected.to_owned(),
            nearest: None,
        }
        .into()
    }

    /// The error of two options that exclude each other, or of one that needs another which is not set.
    pub(crate) fn clash(&self, name: &str, other: &str, why: &str) -> ImportError {
        if !self.entries.contains_key(other) && !self.under(&format!("{other}.")) {
            return self.bad(
                name,
                &format!("another value while `{other}` is not set: {why}"),
            );
        }
        Problem::Contradiction {
            place: self.place(name),
            option: self.written(name),
            other: self.written(other),
            other_line: self.place(other).line,
            why: why.to_owned(),
        }
        .into()
    }

    /// The warning of an option that matters and is not followed.
    pub(crate) fn not_understood(&self, name: &str, effect: &str) -> Warning {
        Warning::NotUnderstood {
            place: self.place(name),
            option: self.written(name),
            effect: effect.to_owned(),
        }
    }

    /// What nobody asked for.
    pub(crate) fn finish(mut self, known: &Known, warnings: &mut Vec<Warning>) {
        /// A file with more is of another kind, and nobody reads as many suggestions.
        const COMPARED: usize = 40;
        warnings.append(&mut self.not_literal);
        let mut unknown = Vec::new();
        for (name, entry) in &self.entries {
            let mut matters = known.matters.iter().copied().flatten();
            let effect = matters.find(|(key, _)| matches(name, key.trim_end_matches(">1")));
            let silent = || known.silent().any(|pattern| matches(name, pattern));
            match effect {
                _ if self.taken.contains(name) => (),
                None if silent() => (),
                Some((key, _)) if is_off(&entry.value, key.ends_with(">1")) => (),
                Some((_, effect)) => warnings.push(self.not_understood(name, effect)),
                None => unknown.push(UnknownOption {
                    name: entry.name.clone(),
                    line: entry.place.line,
                    nearest: if unknown.len() < COMPARED {
                        self.nearest(name, known)
                    } else {
                        None
                    },
                }),
            }
        }
        if !unknown.is_empty() {
            unknown.sort_by_key(|option: &UnknownOption| option.line);
            warnings.push(Warning::Unknown {
                file: self.file,
                options: unknown,
            });
        }
    }

    fn nearest(&self, name: &str, known: &Known) -> Option<String> {
        let matters = known.matters.iter().copied().flatten();
        let matters = matters.map(|(key, _)| key.trim_end_matches(">1"));
        let mut names: Vec<&str> = self.asked.iter().map(String::as_str).collect();
        names.extend(matters);
        names.extend(known.silent());
        nearest_of(name, names.into_iter().filter(|name| !name.ends_with('*')))
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => matches!(text.trim(), "" | "null" | "None" | "~"),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

fn is_off(value: &Value, at_one: bool) -> bool {
    is_nothing(value)
        || at_one && plain(value) == "1"
        || as_flag(value) == Some(false)
        || value.as_f64() == Some(0.0)
        || matches!(value.as_str(), Some("none" | "0" | "0.0"))
}

fn as_flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) if number.as_u64() == Some(1) => Some(true),
        Value::Number(number) if number.as_u64() == Some(0) => Some(false),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn whole(number: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "bounded and whole")]
    (number.fract() == 0.0 && number.abs() <= 1e15).then_some(number as i64)
}

/// A value as text, without the quotes of a text.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.len() == 1 => items.first().map(plain).unwrap_or_default(),
        other => other.to_string(),
    }
}
