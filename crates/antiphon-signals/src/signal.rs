//! One raw signal as trainers send it. Every field may be missing; a number that is not finite, or absurdly large, counts as missing.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};

/// One raw signal, names borrowed from the batch that it came in where they can be. Which fields are set says what it is about: a `shard`'s loss, a `category`'s probe, the run's progress, or
/// a step of a task.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Signal<'a> {
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
    /// Whether the loss was no number: JSON cannot carry one that is not.
    pub not_finite: Option<bool>,
    /// Norm of the gradient before clipping: of the step, or of `shard` where that is given.
    #[serde(alias = "gradient_norm")]
    pub grad_norm: Option<f64>,
    /// Largest memory held by a GPU since the last signal, in bytes.
    pub memory_peak_bytes: Option<f64>,
    /// Memory of that GPU in bytes.
    pub memory_total_bytes: Option<f64>,
    /// Time spent waiting for data in the step, in milliseconds.
    pub data_wait_ms: Option<f64>,
    /// Time spent in the forward pass of the step, in milliseconds.
    pub forward_ms: Option<f64>,
    /// Time spent in the backward pass of the step, in milliseconds.
    pub backward_ms: Option<f64>,
    /// Time spent waiting for communication in the step, in milliseconds.
    pub communication_ms: Option<f64>,
    /// Time spent in the optimizer in the step, in milliseconds.
    pub optimizer_ms: Option<f64>,
    /// Whether the task's device was throttled, by heat or power, since its last signal.
    pub throttled: Option<bool>,
    /// Rows of one micro-step on one task now.
    pub micro_batch: Option<u32>,
    /// Rows of one task and optimizer step: the micro-batch divides them.
    pub rows_per_step: Option<u32>,
    /// Which shard the loss belongs to.
    #[serde(alias = "shard_id", borrow, deserialize_with = "borrowed")]
    pub shard: Option<Cow<'a, str>>,
    /// The category that the shard serves, or that the probe is of.
    #[serde(borrow, deserialize_with = "borrowed")]
    pub category: Option<Cow<'a, str>>,
    /// Samples behind the loss.
    pub samples: Option<u64>,
    /// Distinct samples of the shard.
    pub unique_samples: Option<u64>,
    /// The shard's weight now; only the ratios of weights count.
    pub weight: Option<f64>,
    /// Held-out loss of `category`, in nats.
    pub probe_loss: Option<f64>,
    /// A number that the trainer calls by this name, such as an evaluation's score; an `accept` line may ask for it.
    #[serde(borrow, deserialize_with = "borrowed")]
    pub metric: Option<Cow<'a, str>>,
    /// What `metric` is.
    pub value: Option<f64>,
    /// Entries of the vocabulary.
    pub vocabulary: Option<u64>,
    /// Mean squared norm of the gradient over `rows_small` rows.
    pub gradient_small: Option<f64>,
    /// Mean squared norm of the gradient over `rows_big` rows.
    pub gradient_big: Option<f64>,
    /// Rows behind `gradient_small`.
    pub rows_small: Option<f64>,
    /// Rows behind `gradient_big`.
    pub rows_big: Option<f64>,
    /// Free bytes where checkpoints are written.
    pub disk_free_bytes: Option<f64>,
    /// Whether the run stands still to save a checkpoint.
    pub saving: Option<bool>,
    /// Whether the task has written the stacks of its threads into its output, as it was asked to.
    pub stacks: Option<bool>,
    /// How far the run has come.
    pub progress: Option<ProgressSignal>,
}

/// How far a run has come, in its own words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ProgressSignal {
    /// Steps done.
    pub step: u64,
    /// Steps to do.
    pub total_steps: u64,
    /// The loss that the run is meant to reach, in nats.
    pub target_loss: Option<f64>,
}

/// A name that is copied only where it is escaped in its JSON: by default serde copies what lies inside an `Option`.
fn borrowed<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'a, str>>, D::Error> {
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    let name: Option<Name<'a>> = Option::deserialize(from)?;
    Ok(name.map(|Name(name)| name))
}

/// Far above any loss, norm, time or size that is meant; sums of such numbers stay finite.
const MAGNITUDE_MAX: f64 = 1e18;
/// Bytes of a name; what is longer is cut, so that names cannot fill memory.
const NAME_MAX: usize = 200;

/// The number, if it is one that can be meant.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.abs() <= MAGNITUDE_MAX)
}

/// The name, cut to the length that is kept.
pub(crate) fn cut(name: &str) -> &str {
    if name.len() <= NAME_MAX {
        return name;
    }
    let end = (0..=NAME_MAX).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}
