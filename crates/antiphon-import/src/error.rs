//! What makes a config unusable: each with its code, why, and what to do. What can be read past is a [`Warning`].
//!
//! [`Warning`]: crate::Warning

use std::fmt::Write as _;

use crate::format::Format;
use crate::place::Place;

/// A config that cannot be read into a training run, or a model config that cannot be read into sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct ImportError(Box<Problem>);

/// What is wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is of no format that is known.
    #[error("`{file}` is in no known training config format: it begins with `{begins}`")]
    Unrecognized {
        /// The file.
        file: String,
        /// Its first line.
        begins: String,
    },
    /// A format was named that does not exist.
    #[error("there is no training config format `{text}`")]
    UnknownFormat {
        /// The name.
        text: String,
        /// The format whose name is most like it.
        nearest: Format,
    },
    /// It is not in the syntax of its format.
    #[error("{place}: the file cannot be parsed: {reason}")]
    Syntax {
        /// Where reading ended.
        place: Place,
        /// What the parser says.
        reason: String,
    },
    /// It is longer than any config.
    #[error("`{file}` has {bytes} bytes: a training config has at most {limit}")]
    TooLong {
        /// The file.
        file: String,
        /// Its length.
        bytes: usize,
        /// The most that is read.
        limit: usize,
    },
    /// An option has a value that it cannot have.
    #[error("{place}: `{option}` is `{found}`: expected {expected}")]
    Value {
        /// Where.
        place: Place,
        /// The option.
        option: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
        /// What to write instead, where that is known.
        nearest: Option<String>,
    },
    /// Two options exclude each other.
    #[error("{place}: `{option}` does not go together with `{other}` (line {other_line})")]
    Contradiction {
        /// Where the first stands.
        place: Place,
        /// The first, with its value.
        option: String,
        /// The second, with its value.
        other: String,
        /// Where the second stands.
        other_line: u64,
        /// Why not.
        why: String,
    },
    /// A size of a model is not there.
    #[error("`{file}` has no `{key}`, without which a `{family}` model has no size")]
    MissingSize {
        /// The file.
        file: String,
        /// The key.
        key: String,
        /// The architecture that it is read as.
        family: String,
        /// The sizes that are there.
        there: Vec<String>,
    },
    /// A model that is no decoder-only transformer.
    #[error("{place}: `{family}` models cannot be planned")]
    UnknownFamily {
        /// Where it is named.
        place: Place,
        /// The architecture.
        family: String,
        /// What it has that is not counted.
        why: String,
    },
}

impl From<Problem> for ImportError {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl ImportError {
    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> &Problem {
        &self.0
    }

    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        self.0.code()
    }

    /// Why, with numbers; empty where the text says it all.
    #[must_use]
    pub fn why(&self) -> String {
        self.0.why()
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        self.0.help()
    }

    /// Offers a value in place of one that cannot be.
    pub(crate) fn suggest(mut self, value: Option<String>) -> Self {
        if let Problem::Value { nearest, .. } = self.0.as_mut() {
            *nearest = value;
        }
        self
    }
}

impl Problem {
    const fn code(&self) -> &'static str {
        match self {
            Self::Unrecognized { .. } => "AP0701",
            Self::UnknownFormat { .. } => "AP0702",
            Self::Syntax { .. } => "AP0703",
            Self::TooLong { .. } => "AP0704",
            Self::Value { .. } => "AP0705",
            Self::Contradiction { .. } => "AP0706",
            Self::MissingSize { .. } => "AP0707",
            Self::UnknownFamily { .. } => "AP0708",
        }
    }

    fn why(&self) -> String {
        match self {
            Self::Contradiction { why, .. } | Self::UnknownFamily { why, .. } => why.clone(),
            Self::MissingSize { there, .. } if there.is_empty() => "it has no sizes at all".into(),
            Self::MissingSize { there, .. } => format!("it has {}", quoted(there)),
            Self::Unrecognized { .. }
            | Self::UnknownFormat { .. }
            | Self::Syntax { .. }
            | Self::TooLong { .. }
            | Self::Value { .. } => String::new(),
        }
    }

    fn help(&self) -> String {
        match self {
            Self::Unrecognized { .. } => {
                let mut text = String::from("name it with `--format`; by itself antiphon tells");
                for format in Format::ALL {
                    let _ = write!(text, "\n- {format} by {}", format.recognized_by());
                }
                text
            }
            Self::UnknownFormat { nearest, .. } => {
                let names: Vec<_> = Format::ALL.into_iter().map(|f| f.name().into()).collect();
                format!("is `{nearest}` meant? There are {}", quoted(&names))
            }
            Self::Syntax { .. } => {
                "correct the file; the tool that it is written for cannot read it either".into()
            }
            Self::TooLong { .. } => "name the config itself, not the data or a log".into(),
            Self::Value {
                nearest: Some(nearest),
                ..
            } => format!("is `{nearest}` meant?"),
            Self::Value { option, .. } => {
                format!("correct `{option}`, or leave it out to have the tool's default")
            }
            Self::Contradiction { option, other, .. } => {
                format!("take out `{option}` or `{other}`")
            }
            Self::MissingSize { key, .. } => {
                format!("add `{key}`, or name the model instead: `--model NAME`")
            }
            Self::UnknownFamily { .. } => {
                "plan a decoder-only transformer of about its size: `--model NAME`".into()
            }
        }
    }
}

pub(crate) fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut text = String::new();
    for (index, name) in names.iter().take(SHOWN).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}`{}`", crate::place::short(name));
    }
    if names.len() > SHOWN {
        let _ = write!(text, " and {} more", names.len() - SHOWN);
    }
    text
}
