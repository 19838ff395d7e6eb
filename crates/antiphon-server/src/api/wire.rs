//! A directive as trainers read it: flat, with only the fields that its kind has. Weights and shares are plain numbers here.

use std::collections::BTreeMap;

use antiphon_types::{Directive, DirectiveBody, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// One directive.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct DirectiveOut {
    id: u64,
    #[serde(rename = "do")]
    what: &'static str,
    /// For `set_weights`.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<BTreeMap<String, f64>>,
    /// For `pause_shard`, `resume_shard` and `add_samples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    /// For `add_samples` and `gather_hard_examples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    /// For `add_samples`: where the samples lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// For `add_samples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    /// For `set_micro_batch`; 0 gives the number back.
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u32>,
    /// For `set_checkpoint_interval`; 0 gives it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ms: Option<u64>,
    /// For `set_recompute` and `set_offload`.
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<bool>,
    /// For `resize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u32>,
    /// For `drain`: a rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    /// For `drain`: 0 to 1 of an equal part.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    /// For `drain`; 0 for as long as nothing else is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u32>,
    /// For `rollback`.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    /// For `gather_hard_examples`.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    /// For `yield`: SIGTERM follows then, saved or not. In milliseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_ends_ms: Option<u64>,
    not_before_slot: Option<u64>,
    expires_ms: Option<u64>,
    reason: String,
}

impl DirectiveOut {
    /// The directive, not to be carried out before `slot` where one is given.
    pub(super) fn of(directive: &Directive, slot: Option<u64>) -> Self {
        let weight = |ppm: u32| f64::from(ppm) / 1_000_000.0;
        let mut out = Self {
            id: directive.id.0,
            what: directive.body.name(),
            reason: directive.reason.clone(),
            not_before_slot: slot,
            ..Self::default()
        };
        match &directive.body {
            DirectiveBody::SetWeights { weights } => {
                let weights = weights.iter();
                let plain = weights.map(|(shard, ppm)| (shard.clone(), weight(*ppm)));
                out.weights = Some(plain.collect());
            }
            DirectiveBody::PauseShard { shard } | DirectiveBody::ResumeShard { shard } => {
                out.shard = Some(shard.clone());
            }
            DirectiveBody::AddSamples {
                shard,
                category,
                path,
                weight: ppm,
            } => {
                out.shard = Some(shard.clone());
                out.category = Some(category.clone());
                out.path = Some(path.clone());
                out.weight = Some(weight(*ppm));
            }
            DirectiveBody::SetMicroBatch { rows } => out.rows = Some(*rows),
            DirectiveBody::SetCheckpointInterval { interval } => {
                out.interval_ms = Some(interval.as_millis());
            }
            DirectiveBody::SetRecompute { on } | DirectiveBody::SetOffload { on } => {
                out.on = Some(*on);
            }
            DirectiveBody::Resize { ranks } => out.ranks = Some(*ranks),
            DirectiveBody::Drain {
                task,
                share_permille,
                steps,
            } => {
                out.task = Some(*task);
                out.share = Some(f64::from(*share_permille) / 1_000.0);
                out.steps = Some(*steps);
            }
            DirectiveBody::Rollback { step } => out.step = Some(*step),
            DirectiveBody::GatherHardExamples { category, count } => {
                out.category = Some(category.clone());
                out.count = Some(*count);
            }
            DirectiveBody::Checkpoint
            | DirectiveBody::Snapshot
            | DirectiveBody::Yield
            | DirectiveBody::Stop => (),
        }
        out
    }

    /// The same where it begins a stop: with how long the trainer may still save.
    pub(super) fn with_lease(self, ends: Timestamp, now: Timestamp) -> Self {
        let left = ends.since(now);
        Self {
            lease_ends_ms: Some(ends.as_millis()),
            reason: format!("{}; save before the lease ends in {left}", self.reason),
            ..self
        }
    }
}
