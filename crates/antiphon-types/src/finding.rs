//! What the signal rules conclude from many signals: rare, rounded to integers, each with its evidence. Raw signals never come this far.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Measured, Millis, Reached, Remedy, Rule};

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
    /// An attempt's GPUs do next to nothing, or work again.
    Idle {
        /// The attempt.
        attempt: AttemptId,
        /// Its GPUs' mean utilization in percent.
        utilization_percent: u32,
        /// For how long; nothing says that they work again.
        since: Millis,
    },
    /// A rule says what is wrong or what has changed, and what would help.
    Diagnosis(Box<Diagnosis>),
    /// What an attempt needs, once enough of its steps were seen, and again when that has changed.
    Measured(Measured),
    /// How close an attempt has come to what makes its job's result an acceptable model.
    Reached(Reached),
}

impl Finding {
    /// The attempt whose signals led to it.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        match self {
            Self::Progress { attempt, .. } | Self::Idle { attempt, .. } => *attempt,
            Self::Diagnosis(diagnosis) => diagnosis.attempt,
            Self::Measured(measured) => measured.attempt,
            Self::Reached(reached) => reached.attempt,
        }
    }
}

/// What a rule says of one subject. A newer one of the same rule and subject takes its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// The attempt.
    pub attempt: AttemptId,
    /// Whose.
    pub rule: Rule,
    /// Of what: a shard, a category, `task 3`; empty for the run as a whole.
    pub subject: String,
    /// What it is.
    pub verdict: Verdict,
    /// The numbers behind it, in words: what was seen, against what, over how much.
    pub evidence: String,
    /// The step at which the rule fired.
    pub step: u64,
    /// What would help, in this order; empty where there is nothing to do.
    pub remedies: Vec<Remedy>,
}

/// What a rule found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// What was said of this subject before no longer holds.
    Cleared,
    /// A shard cannot be learned: noise, or not what its name says.
    Noise,
    /// A shard is repeated so often that it is learned by heart.
    Duplicate,
    /// A category's loss stays behind the others.
    Starving,
    /// The weights of the mix should move.
    Mix,
    /// No shard looks healthy: nothing is changed.
    AllBad,
    /// Gradients explode on a shard's data.
    Explosion,
    /// A shard comes from where a bad one came from.
    Related,
    /// Tasks of the gang differ in step time by more than a tenth.
    Spread,
    /// A task is slower than the others.
    Slow,
    /// A task's device says that it is throttled, and the task is slower than the others.
    Throttled,
    /// The run still improves fast.
    Improving,
    /// The run is about to reach its end or its plateau.
    NearEnd,
    /// The run has stopped to improve.
    Flat,
    /// The probe loss rises while the training loss falls.
    Overfit,
    /// The loss is not a number, or far above what it was.
    Diverged,
    /// The stated target is out of reach at this rate.
    OffTrack,
    /// Memory is left for a larger micro-batch.
    MemoryLow,
    /// Memory is nearly full.
    MemoryHigh,
    /// A larger global batch would lose nothing.
    NoiseScale,
    /// Another checkpoint interval wastes less.
    Interval,
    /// The disk of the checkpoints will be full.
    DiskFull,
    /// Most of a step goes into communication.
    CommunicationBound,
    /// Most of a step goes into waiting for data.
    DataBound,
    /// Most of a step goes into the optimizer.
    OptimizerBound,
    /// Most of a step goes into computing, as it should.
    ComputeBound,
    /// No step for too long while the sender lives.
    Hung,
}

impl Verdict {
    /// The name as people and scripts see it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cleared => "cleared",
            Self::Noise => "noise",
            Self::Duplicate => "duplicate",
            Self::Starving => "starving",
            Self::Mix => "mix",
            Self::AllBad => "all-bad",
            Self::Explosion => "explosion",
            Self::Related => "related",
            Self::Spread => "spread",
            Self::Slow => "slow",
            Self::Throttled => "throttled",
            Self::Improving => "improving",
            Self::NearEnd => "near-end",
            Self::Flat => "flat",
            Self::Overfit => "overfit",
            Self::Diverged => "diverged",
            Self::OffTrack => "off-track",
            Self::MemoryLow => "memory-low",
            Self::MemoryHigh => "memory-high",
            Self::NoiseScale => "noise-scale",
            Self::Interval => "interval",
            Self::DiskFull => "disk-full",
            Self::CommunicationBound => "communication-bound",
            Self::DataBound => "data-bound",
            Self::OptimizerBound => "optimizer-bound",
            Self::ComputeBound => "compute-bound",
            Self::Hung => "hung",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
