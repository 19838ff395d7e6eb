//! What was read past. An option that changes what a run needs, or what a job does, is named one by one; unknown ones are summed up
//! in one line.

use std::fmt;

use crate::error::quoted;
use crate::place::Place;

/// Something in a file that is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// An option that matters and is not understood.
    NotUnderstood {
        /// Where.
        place: Place,
        /// The option, with its value.
        option: String,
        /// What it changes, and what the plan does instead.
        effect: String,
    },
    /// A file that the config refers to was not there.
    FileNotRead {
        /// Where it is named.
        place: Place,
        /// The option that names it.
        option: String,
        /// The file.
        path: String,
        /// What is taken in its stead.
        instead: String,
    },
    /// A value that only running the script or the shell would tell.
    NotLiteral {
        /// Where.
        place: Place,
        /// The option.
        option: String,
        /// What stands there.
        text: String,
    },
    /// An option that has no effect beside another.
    Overruled {
        /// Where.
        place: Place,
        /// The option.
        option: String,
        /// By what, and why.
        by: String,
    },
    /// Something that a job file asks for and that antiphon does not do.
    NotHonored {
        /// Where.
        place: Place,
        /// The option, with its value.
        option: String,
        /// What happens instead.
        effect: String,
    },
    /// Something that antiphon does in another way than the system that the file was written for.
    Differs {
        /// Where.
        place: Place,
        /// The option, with its value.
        option: String,
        /// What is different.
        how: String,
    },
    /// No model is named.
    NoModel {
        /// The file.
        file: String,
    },
    /// Options of which nothing is known, all in one.
    Unknown {
        /// The file.
        file: String,
        /// Each, with its line.
        options: Vec<UnknownOption>,
    },
}

/// An option of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOption {
    /// Its name.
    pub name: String,
    /// Its line.
    pub line: u64,
    /// The known option that it looks like.
    pub nearest: Option<String>,
}

impl Warning {
    /// The name that scripts can tell it by.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NotUnderstood { .. } => "not-understood",
            Self::FileNotRead { .. } => "file-not-read",
            Self::NotLiteral { .. } => "not-literal",
            Self::Overruled { .. } => "overruled",
            Self::NotHonored { .. } => "not-honored",
            Self::Differs { .. } => "differs",
            Self::NoModel { .. } => "no-model",
            Self::Unknown { .. } => "unknown-options",
        }
    }

    /// Where it stands, if at one place.
    #[must_use]
    pub const fn place(&self) -> Option<&Place> {
        match self {
            Self::NotUnderstood { place, .. }
            | Self::FileNotRead { place, .. }
            | Self::NotLiteral { place, .. }
            | Self::Overruled { place, .. }
            | Self::NotHonored { place, .. }
            | Self::Differs { place, .. } => Some(place),
            Self::NoModel { .. } | Self::Unknown { .. } => None,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUnderstood {
                place,
                option,
                effect,
            } => write!(f, "{place}: `{option}` is not understood: {effect}"),
            Self::FileNotRead {
                place,
                option,
                path,
                instead,
            } => write!(
                f,
                "{place}: `{option}` names `{path}`, which was not found: {instead}"
            ),
            Self::NotLiteral {
                place,
                option,
                text,
            } => write!(
                f,
                "{place}: `{option}` is `{text}`, which only running it would tell: taken as not stated"
            ),
            Self::Overruled { place, option, by } => {
                write!(f, "{place}: `{option}` has no effect: {by}")
            }
            Self::NotHonored {
                place,
                option,
                effect,
            } => write!(f, "{place}: `{option}` cannot be honored: {effect}"),
            Self::Differs { place, option, how } => {
                write!(f, "{place}: `{option}` works differently: {how}")
            }
            Self::NoModel { file } => {
                write!(f, "`{file}` names no model: name it with `--model`")
            }
            Self::Unknown { file, options } => {
                let names: Vec<_> = options.iter().map(|o| o.name.clone()).collect();
                let verb = if names.len() == 1 { "is" } else { "are" };
                write!(f, "`{file}`: {} {verb} not known here", quoted(&names))?;
                for option in options {
                    if let Some(near) = &option.nearest {
                        write!(
                            f,
                            "; is `{near}` meant by `{}` (line {})?",
                            option.name, option.line
                        )?;
                    }
                }
                Ok(())
            }
        }
    }
}
