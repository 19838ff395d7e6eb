//! One immutable entry of the log: an accepted input or a decision. Everything antiphon knows is a fold over these.

use serde::{Deserialize, Serialize};

use crate::{Command, CommandId, Decision, Finding, Observation, Seq, Timestamp};

/// The version written with every event; raised when an old reader would misread a new event.
pub const EVENT_VERSION: u32 = 1;

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the log.
    pub seq: Seq,
    /// When it was stamped; never before the entry in front of it.
    pub at: Timestamp,
    /// What happened.
    pub body: Body,
}

/// What an event says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A person asked, and was not refused.
    Command {
        /// Who.
        by: String,
        /// The client's own name for the command, if it gave one.
        id: Option<CommandId>,
        /// What.
        command: Command,
    },
    /// A backend or a trainer reported.
    Observation(Observation),
    /// The signal rules concluded.
    Finding(Finding),
    /// A timer fired; nothing else happened.
    Tick,
    /// The kernel decided.
    Decision(Decision),
    /// An assertion failed: nothing is decided until an operator says so.
    SafeMode {
        /// The assertion's text.
        bug: String,
    },
}

impl Body {
    /// The kind, for tables and for the log's `kind` column.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::Observation(_) => "observation",
            Self::Finding(_) => "finding",
            Self::Tick => "tick",
            Self::Decision(_) => "decision",
            Self::SafeMode { .. } => "safe_mode",
        }
    }
}
