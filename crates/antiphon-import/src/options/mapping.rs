//! The text of a JSON or YAML file as one value, or where and why it is none.

use serde_json::Value;

use super::plain;
use crate::error::{ImportError, Problem};
use crate::place::{Place, short};

pub(crate) fn json(text: &str, file: &str) -> Result<Value, ImportError> {
    serde_json::from_str(text)
        .map_err(|error| syntax(file, (error.line() as u64).max(1), &error.to_string()))
}

pub(crate) fn yaml(text: &str, file: &str) -> Result<Value, ImportError> {
    let refused = |error: &serde_norway::Error| {
        let message = error.to_string();
        // Of a key that is there twice the parser says where its mapping begins.
        let line = line_of_second(text, &message);
        let line = line.or_else(|| error.location().map(|at| at.line() as u64));
        syntax(file, line.unwrap_or(1), &message)
    };
    let mut value: serde_norway::Value =
        serde_norway::from_str(text).map_err(|error| refused(&error))?;
    value.apply_merge().map_err(|error| refused(&error))?;
    Ok(from_yaml(value))
}

/// The error of a text that its parser refuses; where it does stands in front of what the parser says.
fn syntax(file: &str, line: u64, message: &str) -> ImportError {
    let reason = message.split(" at line ").next().unwrap_or(message);
    Problem::Syntax {
        place: Place::new(file, line),
        reason: short(reason),
    }
    .into()
}

/// The second line with a key, of which the parser only says that it is there twice.
fn line_of_second(text: &str, message: &str) -> Option<u64> {
    let key = message
        .split("duplicate entry with key \"")
        .nth(1)?
        .split('"')
        .next()?;
    let begins = |line: &str| {
        let rest = line
            .trim_start()
            .trim_start_matches(['"', '\''])
            .strip_prefix(key);
        rest.is_some_and(|rest| {
            rest.trim_start_matches(['"', '\''])
                .trim_start()
                .starts_with(':')
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| begins(line));
    lines.map(|(index, _)| index as u64 + 1).nth(1)
}

fn from_yaml(value: serde_norway::Value) -> Value {
    use serde_norway::Value as Yaml;
    match value {
        Yaml::Null => Value::Null,
        Yaml::Bool(flag) => Value::Bool(flag),
        Yaml::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => number
                .as_f64()
                .and_then(serde_json::Number::from_f64)
                .map_or_else(|| Value::String(number.to_string()), Value::Number),
        },
        Yaml::String(text) => Value::String(text),
        Yaml::Sequence(items) => Value::Array(items.into_iter().map(from_yaml).collect()),
        Yaml::Mapping(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| (plain(&from_yaml(key)), from_yaml(value)))
                .collect(),
        ),
        Yaml::Tagged(tagged) => from_yaml(tagged.value),
    }
}
