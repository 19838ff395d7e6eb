//! What the signal rules conclude from many signals: rare, rounded to integers, each with its evidence. Raw signals never come this far.

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Millis};

/// A conclusion of the signal rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The predicted end of an attempt moved.
    Progress {
        /// The attempt.
        attempt: AttemptId,
        /// Steps done.
        step: u64,
        /// Steps to do.
        steps_total: u64,
        /// Median time of a step.
        step_time: Millis,
    },
    /// A shard cannot be learned: noise, or not what its name says.
    ShardNoise {
        /// The attempt.
        attempt: AttemptId,
        /// The shard.
        shard: String,
        /// The numbers behind it.
        evidence: ShardEvidence,
    },
    /// A run is worth more or less than its plain length says: near its end, improving fast, flat.
    Outlook {
        /// The attempt.
        attempt: AttemptId,
        /// What its remaining GPU-time counts in the order, in thousandths: 500 goes twice as far in front, 2,000 as far back.
        weight_permille: u32,
        /// The numbers behind it.
        evidence: String,
    },
    /// An attempt's GPUs do next to nothing, or work again.
    Idle {
        /// The attempt.
        attempt: AttemptId,
        /// Its GPUs' mean utilization in percent.
        utilization_percent: u32,
        /// For how long; nothing says that they work again.
        since: Millis,
    },
}

impl Finding {
    /// The attempt whose signals led to it.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        match self {
            Self::Progress { attempt, .. }
            | Self::ShardNoise { attempt, .. }
            | Self::Outlook { attempt, .. }
            | Self::Idle { attempt, .. } => *attempt,
        }
    }
}

/// The numbers behind a finding about a shard. Losses in thousandths of a nat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardEvidence {
    /// The shard's recent mean loss.
    pub loss_millinats: u64,
    /// How far that loss fell since the first window.
    pub fell_millinats: i64,
    /// Median recent loss of the job's other shards.
    pub others_loss_millinats: u64,
    /// How far the others' median fell meanwhile.
    pub others_fell_millinats: i64,
    /// Samples in the recent window.
    pub samples: u64,
    /// The step at which the rule fired.
    pub step: u64,
}
