//! YAML and JSON documents of other systems, walked key by key: every mapping is held against the table of its keys, so that nothing is
//! passed over in silence. Knows no format.

use serde_json::{Map, Value};

use super::error::{JobError, JobProblem};
use super::keys::{Fate, Key, find, nearest};
use crate::error::Problem;
use crate::lines::Lines;
use crate::options::{self, plain};
use crate::place::{Place, short};
use crate::warning::{UnknownOption, Warning};

/// One document of a file.
pub(super) struct Document {
    pub(super) value: Value,
    file: String,
    lines: Lines,
    /// Lines of the file in front of it.
    before: u64,
}

/// A value of a document.
#[derive(Clone)]
pub(super) struct Node<'a> {
    document: &'a Document,
    path: String,
    /// The key that it stands under, which may hold dots itself.
    key: String,
    value: &'a Value,
}

/// What was read past in a file.
pub(super) struct Notes {
    file: String,
    pub(super) warnings: Vec<Warning>,
    unknown: Vec<UnknownOption>,
}

/// The documents of a text, without empty ones.
pub(super) fn documents(text: &str, file: &str) -> Result<Vec<Document>, JobError> {
    let mut documents = Vec::new();
    if text.trim_start().starts_with('{') {
        let value = options::json(text, file).or_else(|_| options::yaml(text, file));
        documents.push(Document {
            value: value.map_err(|error| syntax(&error, file, 0))?,
            file: file.to_owned(),
            lines: Lines::in_json_numbered(text),
            before: 0,
        });
        return Ok(documents);
    }
    for (before, part) in parts(text) {
        let value = options::yaml(&part, file).map_err(|error| syntax(&error, file, before))?;
        if !value.is_null() {
            documents.push(Document {
                value,
                file: file.to_owned(),
                lines: Lines::in_yaml_numbered(&part),
                before,
            });
        }
    }
    Ok(documents)
}

/// The texts between lines of `---`, each with how many lines stand in front of it. Inside a block of text such a line is indented.
fn parts(text: &str) -> Vec<(u64, String)> {
    let mut parts = vec![(0, String::new())];
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let bare = line.trim_end();
        if bare == "---" || bare.starts_with("--- ") {
            parts.push((index as u64 + 1, String::new()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.push_str(line);
        }
    }
    parts
}

fn syntax(error: &crate::ImportError, file: &str, before: u64) -> JobError {
    let (line, reason) = match error.problem() {
        Problem::Syntax { place, reason } => (place.line, reason.clone()),
        other => (1, other.to_string()),
    };
    JobProblem::Syntax {
        place: Place::new(file, before + line),
        reason,
    }
    .into()
}

impl Document {
    pub(super) fn root(&self) -> Node<'_> {
        Node {
            document: self,
            path: String::new(),
            key: String::new(),
            value: &self.value,
        }
    }
}

impl<'a> Node<'a> {
    pub(super) fn place(&self) -> Place {
        let line = self.document.lines.of(&self.path);
        Place::new(&self.document.file, self.document.before + line)
    }

    pub(super) const fn value(&self) -> &'a Value {
        self.value
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// `key: value`, short.
    pub(super) fn written(&self) -> String {
        match self.value {
            Value::Object(_) | Value::Array(_) => self.key().to_owned(),
            value => format!("{}: {}", self.key(), short(&plain(value))),
        }
    }

    /// What stands under a key, unless it is nothing.
    pub(super) fn get(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        let path = if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        };
        Some(Node {
            document: self.document,
            path,
            key: key.to_owned(),
            value,
        })
    }

    /// What stands under keys one below the other.
    pub(super) fn at(&self, keys: &[&str]) -> Option<Self> {
        let mut node = self.clone();
        for key in keys {
            node = node.get(key)?;
        }
        Some(node)
    }

    pub(super) fn items(&self) -> Vec<Self> {
        let items = self.value.as_array().map(Vec::as_slice).unwrap_or_default();
        items
            .iter()
            .enumerate()
            .map(|(index, value)| Node {
                document: self.document,
                path: format!("{}[{index}]", self.path),
                key: format!("{}[{index}]", self.key),
                value,
            })
            .collect()
    }

    pub(super) fn entries(&self) -> Vec<(&'a String, Self)> {
        let map: Option<&'a Map<String, Value>> = self.value.as_object();
        let entries = map.into_iter().flatten();
        entries
            .filter_map(|(key, _)| Some((key, self.get(key)?)))
            .collect()
    }

    /// A text; numbers and flags are texts too.
    pub(super) fn text(&self) -> Result<String, JobError> {
        match self.value {
            Value::Object(_) | Value::Array(_) | Value::Null => Err(self.bad("a text")),
            value => Ok(plain(value)),
        }
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, JobError> {
        if !self.value.is_array() {
            return Err(self.bad("a list of texts"));
        }
        self.items().iter().map(Self::text).collect()
    }

    /// A whole number that is not negative.
    pub(super) fn count(&self) -> Result<u64, JobError> {
        let text = self.text()?;
        let number = text.trim().parse::<u64>().ok();
        number
            .filter(|number| *number <= 1_000_000_000)
            .ok_or_else(|| self.bad("a whole number from 0 to 1000000000"))
    }

    pub(super) fn bad(&self, expected: &str) -> JobError {
        JobProblem::Value {
            place: self.place(),
            option: self.key().to_owned(),
            found: short(&plain(self.value)),
            expected: expected.to_owned(),
        }
        .into()
    }

    fn is_off(&self) -> bool {
        match self.value {
            Value::Null | Value::Bool(false) => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(true) | Value::Number(_) => false,
        }
    }
}

impl Notes {
    pub(super) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            warnings: Vec::new(),
            unknown: Vec::new(),
        }
    }

    /// Holds the keys of a mapping against what is known of them.
    pub(super) fn check(&mut self, node: &Node<'_>, tables: &[&[Key]]) {
        for (key, below) in node.entries() {
            match find(tables, key).map(|key| key.fate) {
                Some(Fate::Becomes(_) | Fate::Harmless(_)) => (),
                Some(Fate::Refused(_)) if below.is_off() => (),
                Some(Fate::Refused(effect)) => self.not_honored(&below, effect),
                None => self.unknown.push(UnknownOption {
                    name: below.path.clone(),
                    line: below.place().line,
                    nearest: nearest(tables, key),
                }),
            }
        }
    }

    pub(super) fn not_honored(&mut self, node: &Node<'_>, effect: impl Into<String>) {
        self.warnings.push(Warning::NotHonored {
            place: node.place(),
            option: node.written(),
            effect: effect.into(),
        });
    }

    pub(super) fn differs(&mut self, node: &Node<'_>, how: impl Into<String>) {
        self.warnings.push(Warning::Differs {
            place: node.place(),
            option: node.written(),
            how: how.into(),
        });
    }

    /// All of it, by line.
    pub(super) fn finish(mut self) -> Vec<Warning> {
        self.warnings
            .sort_by_key(|warning| warning.place().map_or(0, |place| place.line));
        if !self.unknown.is_empty() {
            self.unknown.sort_by_key(|option| option.line);
            self.warnings.push(Warning::Unknown {
                file: self.file,
                options: self.unknown,
            });
        }
        self.warnings
    }
}
