//! The rules of the two-way loop, how far each may go, and what it may ask for. What a rule looks at is the signal crate's.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::DirectiveBody;

/// A rule over what training loops report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Shards that cannot be learned, are repeated, or starve; the mix of the others.
    Shard,
    /// Where a bad shard came from, and what else came from there.
    Provenance,
    /// Tasks that are slower than the others of their gang.
    Straggler,
    /// How far a run still has to go: near its end, improving, flat, overfit, diverged.
    Convergence,
    /// The micro-batch that fits into memory.
    Batch,
    /// How often to save, and what to keep.
    Checkpoint,
    /// What a step's time goes into.
    Bottleneck,
    /// No step for too long while the sender lives.
    Hang,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 8] = [
        Self::Shard,
        Self::Provenance,
        Self::Straggler,
        Self::Convergence,
        Self::Batch,
        Self::Checkpoint,
        Self::Bottleneck,
        Self::Hang,
    ];

    /// The name as it stands in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::Provenance => "provenance",
            Self::Straggler => "straggler",
            Self::Convergence => "convergence",
            Self::Batch => "batch",
            Self::Checkpoint => "checkpoint",
            Self::Bottleneck => "bottleneck",
            Self::Hang => "hang",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What becomes of a rule's findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleMode {
    /// They are logged and shown; nothing changes.
    Observe,
    /// Each waits for a person's word.
    Approve,
    /// They are acted on.
    Auto,
}

impl RuleMode {
    /// The name as it stands in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Approve => "approve",
            Self::Auto => "auto",
        }
    }
}

/// What would help, in the words of the rule that asks for it. Whether it is done is the kernel's to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// A directive to the trainer.
    Direct(DirectiveBody),
    /// The run's remaining GPU-time counts so many thousandths in the order: 500 goes twice as far in front, 2,000 as far
    /// back.
    Weigh {
        /// Thousandths, 500 to 2,000.
        permille: u32,
    },
    /// Run on without the node of this task.
    Replace {
        /// Its rank.
        task: u32,
    },
    /// End all processes and start again from the last checkpoint.
    Restart,
    /// Run the job's own generator, and bring what it makes into the stream as a new shard.
    Augment {
        /// Which shard or category starves.
        of: String,
    },
}

impl Remedy {
    /// Whether the trained model may differ afterwards: what a user has to allow first.
    #[must_use]
    pub const fn changes_training(&self) -> bool {
        match self {
            Self::Direct(body) => body.changes_training(),
            Self::Augment { .. } => true,
            Self::Weigh { .. } | Self::Replace { .. } | Self::Restart => false,
        }
    }

    /// How far it goes where neither job nor team says it.
    #[must_use]
    pub const fn default_mode(&self) -> RuleMode {
        if self.changes_training() {
            RuleMode::Observe
        } else {
            RuleMode::Auto
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(body) => body.fmt(f),
            Self::Weigh { permille } => {
                write!(f, "count its remaining GPU-time {permille}/1000")
            }
            Self::Replace { task } => write!(f, "replace the node of task {task}"),
            Self::Restart => f.write_str("restart from the last checkpoint"),
            Self::Augment { of } => write!(f, "augment {of}"),
        }
    }
}
