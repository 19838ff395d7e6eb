//! Where the value of a secret is read. The log, the API and files of tasks hold this, never the value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A secret of a job: its value is read on the machine on which a task starts, as the last thing before its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// The text of a file, without the line ends behind it.
    File {
        /// Its full path.
        path: String,
    },
    /// A variable of the server's environment that its operator offers to jobs.
    Env {
        /// Its name there.
        name: String,
    },
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => write!(f, "file:{path}"),
            Self::Env { name } => write!(f, "env:{name}"),
        }
    }
}
