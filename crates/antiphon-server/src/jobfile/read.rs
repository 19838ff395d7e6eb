//! From text to a job file, with errors that name the key, the reason and the nearest key that there is.

use std::sync::LazyLock;

use serde_json::Value;

use super::form::JobFile;

/// Something in a job file that its writer can change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct JobFileError {
    /// The stable code.
    pub code: &'static str,
    /// Where in the file, like `resources.gpus`; empty where it is the whole file.
    pub at: String,
    /// What is wrong, and why.
    pub what: String,
    /// What to do.
    pub help: String,
}

impl JobFileError {
    /// A value that cannot be used, with the place in front of the reason.
    pub(super) fn value(at: &str, why: impl std::fmt::Display, help: impl Into<String>) -> Self {
        Self {
            code: "AP0202",
            at: at.into(),
            what: format!("`{at}`: {why}"),
            help: help.into(),
        }
    }

    /// More of something than there may be.
    pub(super) fn over_limit(at: &str, what: &str, asked: usize, max: usize) -> Self {
        Self {
            code: "AP0108",
            at: at.into(),
            what: format!("`{at}`: there are {asked} {what}: the limit is {max}"),
            help: format!("give at most {max}"),
        }
    }
}

/// The form of a job file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// YAML, of which JSON is a part.
    Yaml,
}

/// Brackets inside brackets: a job file needs four.
const DEPTH_MAX: u32 = 64;

/// The JSON Schema of a job file.
#[must_use]
pub fn schema() -> Value {
    schemars::schema_for!(JobFile).to_value()
}

/// Reads a job file.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn read(text: &str, format: Format) -> Result<JobFile, JobFileError> {
    from_value(value_of(text, format)?)
}

/// Reads a text into plain values.
pub(super) fn value_of(text: &str, format: Format) -> Result<Value, JobFileError> {
    let syntax = |what: String| JobFileError {
        code: "AP0205",
        at: String::new(),
        what,
        help: "see `antiphon check --schema` for what a job file may hold".into(),
    };
    match format {
        Format::Toml => {
            let value = toml::from_str(text);
            let value = value.map_err(|error| syntax(error.to_string().trim().to_owned()))?;
            Ok(times_as_texts(value))
        }
        Format::Yaml => yaml(text).map_err(syntax),
    }
}

/// TOML has times of its own (`deadline = 2026-12-01T08:00:00Z`), which come as a table with one marked key. Other forms
/// write them as texts.
fn times_as_texts(value: Value) -> Value {
    const MARK: &str = "$__toml_private_datetime";
    match value {
        Value::Object(mut map) if map.len() == 1 && map.contains_key(MARK) => {
            map.remove(MARK).unwrap_or_default()
        }
        Value::Object(map) => {
            let entries = map.into_iter();
            Value::Object(
                entries
                    .map(|(key, value)| (key, times_as_texts(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.into_iter().map(times_as_texts).collect()),
        plain => plain,
    }
}

/// Reads YAML by way of YAML's own values, which refuse a key that stands twice.
fn yaml(text: &str) -> Result<Value, String> {
    let mut depth = 0u32;
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        // The parser takes time that grows with the square of the depth.
        if depth > DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} deep"));
        }
    }
    let value: serde_norway::Value =
        serde_norway::from_str(text).map_err(|error| error.to_string())?;
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// Reads a job file that is JSON already.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn from_value(value: Value) -> Result<JobFile, JobFileError> {
    // Made once: every submit needs it.
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    unknown_key(&value, &SCHEMA, &SCHEMA, "")?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let at = error.path().to_string();
        let at = if at == "." { String::new() } else { at };
        let inner = in_plain_words(&error.into_inner().to_string());
        let (code, help) = match inner.strip_prefix("missing field `") {
            Some(field) => {
                let field = field.trim_end_matches('`');
                (
                    "AP0203",
                    format!("add `{field} = ..`; see `antiphon check --schema`"),
                )
            }
            None => (
                "AP0202",
                "see `antiphon check --schema` for what stands there".to_owned(),
            ),
        };
        let what = if at.is_empty() {
            inner
        } else {
            format!("`{at}`: {inner}")
        };
        JobFileError {
            code,
            at,
            what,
            help,
        }
    })
}

/// Says what is expected in the words of job files, not of Rust.
fn in_plain_words(text: &str) -> String {
    let words = [
        ("expected f64", "expected a number"),
        (
            "expected u32",
            "expected a whole number that is not negative",
        ),
        ("expected i32", "expected a whole number"),
        (
            "expected u64",
            "expected a whole number that is not negative",
        ),
        ("expected a map", "expected a table"),
        ("expected struct JobFile", "expected a table"),
        ("invalid type: null", "nothing or no number stands there"),
        ("expected a sequence", "expected a list"),
        ("expected internally tagged enum", "expected a table"),
    ];
    words.iter().fold(text.to_owned(), |text, (rust, plain)| {
        text.replace(rust, plain)
    })
}

/// Walks a value beside its schema and names the first key that the schema does not have, with the nearest that it has.
fn unknown_key(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), JobFileError> {
    let schema = resolve(schema, root);
    if let (Value::Array(values), Some(items)) = (value, schema.get("items")) {
        for (index, inner) in values.iter().enumerate() {
            unknown_key(inner, items, root, &format!("{at}[{index}]"))?;
        }
    }
    let Value::Object(map) = value else {
        return Ok(());
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, inner) in map {
        let path = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        if let Some(known) = properties.and_then(|properties| properties.get(key)) {
            unknown_key(inner, known, root, &path)?;
        } else if let Some(Value::Object(_)) = schema.get("additionalProperties") {
            unknown_key(inner, &schema["additionalProperties"], root, &path)?;
        } else if let Some(properties) = properties {
            return Err(no_such_key(key, at, &path, properties.keys()));
        }
    }
    Ok(())
}

/// Follows a reference, and looks through `Option`s.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let meant = root.pointer(name.trim_start_matches('#'));
        return meant.map_or(schema, |meant| resolve(meant, root));
    }
    let options = schema.get("anyOf").and_then(Value::as_array);
    let real =
        options.and_then(|options| options.iter().find(|option| option.get("$ref").is_some()));
    real.map_or(schema, |option| resolve(option, root))
}

fn no_such_key<'a>(
    key: &str,
    at: &str,
    path: &str,
    known: impl Iterator<Item = &'a String>,
) -> JobFileError {
    let known: Vec<&String> = known.collect();
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(key, name), name))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3));
    let place = if at.is_empty() {
        "a job file".to_owned()
    } else if at.ends_with(']') {
        format!("`{at}`")
    } else {
        format!("`[{at}]`")
    };
    let help = nearest.map_or_else(
        || {
            let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            format!("it may hold: {}", names.join(", "))
        },
        |(_, name)| format!("did you mean `{name}`?"),
    );
    JobFileError {
        code: "AP0201",
        at: path.to_owned(),
        what: format!("unknown key `{key}` in {place}"),
        help,
    }
}
