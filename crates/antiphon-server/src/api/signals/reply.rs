//! What a trainer gets back: directives in their flat form, and answers to what it asked for.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::pending_directives;
use antiphon_types::{AttemptId, Directive, DirectiveBody, DirectiveId, Millis};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Shared;

/// How often a trainer with nothing urgent to say should ask.
const REPORT_EVERY: Millis = Millis::from_secs(1);

/// What a trainer gets back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reply {
    /// Directives that wait, in order.
    directives: Vec<DirectiveOut>,
    /// Answers to asks, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answer>,
    /// How soon to ask again, in milliseconds.
    report_every_ms: u64,
}

/// The answer to one ask.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Answer {
    /// Which.
    pub(crate) id: u64,
    /// Whether it is granted.
    pub(crate) granted: bool,
    /// Why not, with numbers; or what comes of it.
    pub(crate) reason: String,
}

/// One directive: what it needs beside its name depends on the name.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct DirectiveOut {
    id: u64,
    #[serde(rename = "do")]
    what: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<BTreeMap<String, f64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u32>,
    not_before_slot: Option<u64>,
    expires_ms: Option<u64>,
    reason: String,
}

/// The directives that wait for a trainer at this cursor, and the answers to what it asked.
pub(crate) fn reply(
    shared: &Shared,
    attempt: AttemptId,
    cursor: DirectiveId,
    done: &BTreeSet<DirectiveId>,
    answers: Vec<Answer>,
) -> Reply {
    let state = shared.view.state();
    let directives = state.job(attempt.job).map_or_else(Vec::new, |job| {
        pending_directives(job, attempt, cursor, done)
            .into_iter()
            .map(flat)
            .collect()
    });
    Reply {
        directives,
        answers,
        report_every_ms: REPORT_EVERY.as_millis(),
    }
}

fn flat(directive: &Directive) -> DirectiveOut {
    let share = |ppm: u32| f64::from(ppm) / 1_000_000.0;
    let out = DirectiveOut {
        id: directive.id.0,
        what: directive.body.name(),
        reason: directive.reason.clone(),
        ..DirectiveOut::default()
    };
    match &directive.body {
        DirectiveBody::SetWeights { weights } => DirectiveOut {
            weights: Some(
                weights
                    .iter()
                    .map(|(shard, ppm)| (shard.clone(), share(*ppm)))
                    .collect(),
            ),
            ..out
        },
        DirectiveBody::PauseShard { shard } | DirectiveBody::ResumeShard { shard } => {
            DirectiveOut {
                shard: Some(shard.clone()),
                ..out
            }
        }
        DirectiveBody::AddSamples {
            shard,
            category,
            path,
            weight,
        } => DirectiveOut {
            shard: Some(shard.clone()),
            category: Some(category.clone()),
            path: Some(path.clone()),
            weight: Some(share(*weight)),
            ..out
        },
        DirectiveBody::SetMicroBatch { rows } => DirectiveOut {
            rows: Some(*rows),
            ..out
        },
        DirectiveBody::SetCheckpointInterval { interval } => DirectiveOut {
            interval_ms: Some(interval.as_millis()),
            ..out
        },
        DirectiveBody::SetRecompute { on } | DirectiveBody::SetOffload { on } => DirectiveOut {
            on: Some(*on),
            ..out
        },
        DirectiveBody::Resize { ranks } => DirectiveOut {
            ranks: Some(*ranks),
            ..out
        },
        DirectiveBody::Drain {
            task,
            share_permille,
            steps,
        } => DirectiveOut {
            task: Some(*task),
            share: Some(f64::from(*share_permille) / 1_000.0),
            steps: Some(*steps),
            ..out
        },
        DirectiveBody::Rollback { step } => DirectiveOut {
            step: Some(*step),
            ..out
        },
        DirectiveBody::GatherHardExamples { category, count } => DirectiveOut {
            category: Some(category.clone()),
            count: Some(*count),
            ..out
        },
        DirectiveBody::Checkpoint
        | DirectiveBody::Snapshot
        | DirectiveBody::Yield
        | DirectiveBody::Stop => out,
    }
}
