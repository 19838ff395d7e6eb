//! Where in which file something stands. Reads nothing.

use std::fmt;

/// A line of a file that was read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, as the caller or the config names it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
}

impl Place {
    pub(crate) fn new(file: &str, line: u64) -> Self {
        Self {
            file: file.to_owned(),
            line,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, line {}", self.file, self.line)
    }
}

/// A text short enough to stand in a message.
pub(crate) fn short(text: &str) -> String {
    const SHOWN: usize = 60;
    let line: String = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    if line.chars().count() <= SHOWN {
        return line;
    }
    let begin: String = line.chars().take(SHOWN).collect();
    format!("{begin}...")
}
