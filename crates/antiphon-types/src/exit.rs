//! How a task's process ended, and what that says about trying again. The classes decide nothing by themselves; the kernel's retry rules do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a task's process ended, as its supervisor saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It returned a status.
    Code {
        /// The status; 0 is success, unless it came after SIGTERM (class `preempted`).
        code: i32,
        /// What its last output says about the cause, if anything known.
        class: Option<ExitClass>,
        /// The line of output that says so, or the last line.
        evidence: String,
    },
    /// A POSIX signal ended it.
    Signal {
        /// The signal's number.
        signal: i32,
        /// What its last output says about the cause, if anything known.
        class: Option<ExitClass>,
        /// The line of output that says so, or the last line.
        evidence: String,
    },
    /// It never started: no such command, not executable, no such directory.
    Unstartable {
        /// The operating system's words, with the path.
        error: String,
    },
    /// The server said that the attempt is no longer current, so the command was not started.
    Superseded,
    /// The server did not answer for 60 s, so the command was not started.
    Unreachable,
    /// It could not be handed to the backend at all: antiphon's trouble, not the job's.
    NotLaunched {
        /// The backend's words.
        error: String,
    },
    /// The check of its node failed, so the command was not started.
    Unfit {
        /// What the check said.
        evidence: String,
    },
    /// Supervisor and processes are gone without a written status (the node restarted, or somebody ended both).
    Lost {
        /// What was found instead.
        evidence: String,
    },
}

/// What an end says about trying again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitClass {
    /// The work is finished.
    Done,
    /// Replaced before it started; a newer attempt has the work.
    Superseded,
    /// Stopped by antiphon, work up to the last acknowledged checkpoint kept.
    Preempted,
    /// Not enough GPU or host memory: the same again would end the same.
    OutOfMemory,
    /// The data could not be read or decoded: the same again would end the same.
    DataError,
    /// The node, a GPU or the network failed: worth trying elsewhere.
    Hardware,
    /// The job's own code failed.
    Software,
    /// The command could not be started at all: the same again would end the same.
    Unstartable,
    /// It ran into its time limit.
    Limit,
    /// A job that it waited for did not succeed; it was never started.
    Dependency,
    /// antiphon could not launch it: tried again, and not counted against the job.
    NotLaunched,
}

impl Exit {
    /// Whether it says that nothing went wrong. Exit 0 after SIGTERM is a trainer that saved and left, not one that finished.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        matches!(
            self,
            Self::Code {
                code: 0,
                class: None,
                ..
            }
        )
    }
}

impl ExitClass {
    /// The class as people read it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Superseded => "superseded",
            Self::Preempted => "preempted",
            Self::OutOfMemory => "out of memory",
            Self::DataError => "data error",
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::Unstartable => "unstartable",
            Self::Limit => "time limit",
            Self::Dependency => "dependency",
            Self::NotLaunched => "not launched",
        }
    }
}

impl fmt::Display for ExitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |f: &mut fmt::Formatter<'_>, evidence: &str| match evidence {
            "" => Ok(()),
            line => write!(f, ": {line}"),
        };
        match self {
            Self::Code {
                code: 0,
                class: None,
                ..
            } => f.write_str("exit code 0"),
            Self::Code { code: 0, .. } => f.write_str("exit code 0 after SIGTERM"),
            Self::Code { code, evidence, .. } => {
                write!(f, "exit code {code}")?;
                said(f, evidence)
            }
            Self::Signal {
                signal, evidence, ..
            } => {
                write!(f, "ended by signal {signal}")?;
                said(f, evidence)
            }
            Self::Unstartable { error } => f.write_str(error),
            Self::Superseded => f.write_str("superseded before it started"),
            Self::Unreachable => f.write_str("the server did not answer the launch check for 60 s"),
            Self::NotLaunched { error } => write!(f, "could not be launched: {error}"),
            Self::Unfit { evidence } => write!(f, "the check of its node failed: {evidence}"),
            Self::Lost { evidence } => write!(f, "lost without a status: {evidence}"),
        }
    }
}
