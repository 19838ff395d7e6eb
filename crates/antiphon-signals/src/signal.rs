//! One raw signal as trainers send it. Every field may be missing; a number that is not finite, or absurdly large, counts as missing.

use serde::Deserialize;

/// One raw signal.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Signal {
    /// Rank of the process that reports.
    pub task: Option<u32>,
    /// Optimizer step.
    pub step: Option<u64>,
    /// Position in the sample stream.
    pub slot: Option<u64>,
    /// Time of the step in milliseconds.
    pub step_ms: Option<f64>,
    /// Tokens of the step.
    pub tokens: Option<f64>,
    /// Mean loss in nats: of the step, or of `shard` where that is given.
    pub loss: Option<f64>,
    /// Norm of the gradient before clipping.
    pub grad_norm: Option<f64>,
    /// Largest memory held by a GPU since the last signal, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Time spent waiting for data in the step, in milliseconds.
    pub data_wait_ms: Option<f64>,
    /// Which shard the loss belongs to.
    pub shard: Option<String>,
    /// Samples behind the loss.
    pub samples: Option<u64>,
    /// How far the run has come.
    pub progress: Option<ProgressSignal>,
}

/// How far a run has come, in its own words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct ProgressSignal {
    /// Steps done.
    pub step: u64,
    /// Steps to do.
    pub total_steps: u64,
}

/// Far above any loss, norm, time or size that is meant; sums of such numbers stay finite.
const MAGNITUDE_MAX: f64 = 1e18;

/// The number, if it is one that can be meant.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.abs() <= MAGNITUDE_MAX)
}
