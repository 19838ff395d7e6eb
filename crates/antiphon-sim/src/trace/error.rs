//! What is wrong with a trace as a whole. A bad row is no error unless one asked for it to be.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;

use super::{BadRow, Format, Source};

/// A trace, or a table that goes with it, that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read at all.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It ends early.
    #[error("`{}` is cut short in line {line}: {reason}", path.display())]
    CutShort {
        /// The file.
        path: PathBuf,
        /// The last line that was begun.
        line: u64,
        /// What the decompressor said.
        reason: String,
    },
    /// It is of no format that is known.
    #[error("`{}` is in no known trace format: it begins with `{begins}`", path.display())]
    Unrecognized {
        /// The file.
        path: PathBuf,
        /// Its first line, or what of it fits.
        begins: String,
    },
    /// A column is not there.
    #[error("`{}` has no column `{column}`, which a {format} trace must have", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// What it is read as.
        format: &'static str,
        /// The column.
        column: &'static str,
        /// The columns that are there.
        there: Vec<String>,
    },
    /// A row is bad, and bad rows were not to be left out.
    #[error("`{}`, {row}", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// The row.
        row: BadRow,
    },
    /// No job is left.
    #[error("`{}` holds no job that can be used", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// Rows left out.
        bad_total: u64,
        /// The first of them.
        first: Option<BadRow>,
    },
    /// It is not in the syntax of its format.
    #[error("`{}` cannot be parsed: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column, and what was expected there.
        reason: String,
    },
}

impl TraceError {
    pub(super) fn unknown(source: &Source) -> Self {
        let first = source.text.lines().find(|line| !line.trim().is_empty());
        let begins = first.unwrap_or_default().trim().chars().take(80).collect();
        Self::Unrecognized {
            path: source.path.clone(),
            begins,
        }
    }

    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Unreadable { .. } | Self::CutShort { .. } => "AP0601",
            Self::Unrecognized { .. } => "AP0602",
            Self::MissingColumn { .. } => "AP0603",
            Self::BadRow { .. } => "AP0604",
            Self::Empty { .. } => "AP0605",
            Self::Syntax { .. } => "AP0606",
        }
    }

    /// Why, with numbers; empty where the text says it all.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => source.to_string(),
            Self::MissingColumn { there, .. } => format!("it has {}", quoted(there)),
            Self::Empty {
                bad_total,
                first: Some(first),
                ..
            } => format!("{bad_total} rows are bad, the first: {first}"),
            Self::Empty { first: None, .. } => "there are no rows".into(),
            Self::CutShort { .. }
            | Self::Unrecognized { .. }
            | Self::BadRow { .. }
            | Self::Syntax { .. } => String::new(),
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::Unreadable { .. } => "check the path and its permissions".into(),
            Self::CutShort { .. } => {
                "fetch the file again, or use what is there by leaving `--strict` out".into()
            }
            Self::Unrecognized { .. } => {
                let mut text = String::from("name it with `--format`; by itself antiphon tells");
                for format in Format::ALL {
                    let _ = write!(text, "\n- {format} by {}", format.recognized_by());
                }
                text
            }
            Self::MissingColumn { column, there, .. } => match nearest(column, there) {
                Some(near) => format!("is `{near}` meant? Name it `{column}`"),
                None => format!("add `{column}`, or name another format with `--format`"),
            },
            Self::BadRow { .. } => {
                "correct the row, or leave `--strict` out to go on without it".into()
            }
            Self::Empty { .. } => {
                "check that it is the file you mean; `--format` names another format".into()
            }
            Self::Syntax { .. } => "write the file anew with the command that made it".into(),
        }
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no trace format `{text}`: is `{nearest}` meant?")]
pub struct UnknownFormat {
    /// The name.
    pub text: String,
    /// The format whose name is most like it.
    pub nearest: Format,
}

impl UnknownFormat {
    pub(super) fn new(text: &str) -> Self {
        let distance = |format: &Format| strsim::damerau_levenshtein(format.name(), text);
        let nearest = Format::ALL.into_iter().min_by_key(distance);
        Self {
            text: text.to_owned(),
            nearest: nearest.unwrap_or(Format::Sacct),
        }
    }
}

fn nearest<'a>(name: &str, there: &'a [String]) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-', ' '], "");
    let distance = |other: &str| strsim::damerau_levenshtein(&plain(name), &plain(other));
    let near = there.iter().map(|other| (distance(other), other)).min()?;
    (near.0 <= name.len().div_ceil(2)).then_some(near.1)
}

fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 20;
    let mut text = String::new();
    for (index, name) in names.iter().take(SHOWN).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let name: String = name.chars().take(40).collect();
        let _ = write!(text, "{comma}`{name}`");
    }
    if names.len() > SHOWN {
        let _ = write!(text, " and {} more", names.len() - SHOWN);
    }
    text
}
