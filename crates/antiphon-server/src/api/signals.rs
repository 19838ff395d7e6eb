//! Both directions in one round trip: signals, checkpoints and answers come up, directives go down. Checkpoints and
//! answers are logged before the reply; raw signals never are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_kernel::pending_directives;
use antiphon_signals::Signal;
use antiphon_types::{
    Ack, AckBody, AttemptId, Bytes, Checkpoint, DirectiveId, JobId, Millis, Observation,
};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::asks::{self, Answer, AskIn};
use super::origins::{OriginIn, told_of_shards};
use super::problem::Fault;
use super::wire::DirectiveOut;
use super::{Shared, auth, now};

/// How often a trainer with nothing urgent to say should ask.
const REPORT_EVERY: Millis = Millis::from_secs(1);
/// Signals of one batch.
const SIGNALS_MAX: usize = 8_192;
/// Longest path that Linux takes.
const PATH_MAX: usize = 4_096;
/// Longest text that a trainer may put into the log.
const TEXT_MAX: usize = 1_000;

/// What a trainer sends.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Batch {
    /// Number of the attempt.
    attempt: u32,
    /// Names one process of the trainer, so that its numbering starts anew after a restart.
    boot: String,
    /// Number of the batch; sent twice, it counts once.
    seq: u64,
    /// The highest directive up to which all are handled.
    #[serde(default)]
    cursor: u64,
    /// In batches until the first is answered.
    #[serde(default)]
    attach: Option<Attach>,
    /// Signals dropped since the last batch because the buffer was full.
    #[serde(default)]
    dropped: u64,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    signals: Vec<Signal>,
    #[serde(default)]
    checkpoints: Vec<CheckpointIn>,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    acks: Vec<AckIn>,
    #[serde(default)]
    asks: Vec<AskIn>,
}

/// A trainer's hello.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct Attach {
    /// The step it starts from.
    step: u64,
    /// Directives handled above the cursor.
    done: Vec<u64>,
    /// Where the shards came from that it draws from.
    #[schema(value_type = Object)]
    shards: BTreeMap<String, OriginIn>,
}

/// A checkpoint that is durable.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CheckpointIn {
    step: u64,
    path: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    save_ms: f64,
    #[serde(default)]
    manifest: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct AckIn {
    directive: u64,
    #[serde(default)]
    applied: Option<Applied>,
    #[serde(default)]
    rejected: Option<Rejected>,
    #[serde(default)]
    failed: Option<Failed>,
    #[serde(default)]
    expired: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Applied {
    slot: u64,
}

#[derive(Debug, Deserialize)]
struct Rejected {
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Failed {
    error: String,
}

/// What a trainer gets back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Reply {
    /// Directives that wait, in order.
    directives: Vec<DirectiveOut>,
    /// What became of the batch's asks, in their order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answer>,
    /// How soon to ask again, in milliseconds.
    report_every_ms: u64,
}

/// Takes a trainer's batch and answers with the directives that wait for it.
#[utoipa::path(post, path = "/v1/jobs/{job}/signals", request_body = Batch, responses((status = 200, body = Reply)))]
pub(crate) async fn signals(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    headers: HeaderMap,
    batch: Result<Json<Batch>, JsonRejection>,
) -> Result<Json<Reply>, Fault> {
    let job: JobId = job.parse().map_err(|error: antiphon_types::IdError| {
        Fault::new(
            StatusCode::BAD_REQUEST,
            "AP0501",
            error.to_string(),
            "use ANTIPHON_JOB",
        )
    })?;
    let Json(batch) = batch?;
    let attempt = AttemptId {
        job,
        number: batch.attempt,
    };
    auth::attempt(&shared, &headers, attempt)?;
    is_current(&shared, attempt)?;
    let done = batch
        .attach
        .as_ref()
        .map(|attach| attach.done.iter().map(|id| DirectiveId(*id)).collect());
    let cursor = DirectiveId(batch.cursor);
    let answers = take(&shared, attempt, batch).await?;
    let mut reply = reply(&shared, attempt, cursor, &done.unwrap_or_default());
    reply.answers = answers;
    Ok(Json(reply))
}

/// A replaced attempt must not train on: it is told so, once and for all.
fn is_current(shared: &Shared, attempt: AttemptId) -> Result<(), Fault> {
    let state = shared.view.state();
    let active = state.job(attempt.job).and_then(|job| job.state.active());
    if active.is_some_and(|active| active.attempt == attempt) {
        return Ok(());
    }
    let detail = format!("{attempt} is not the current attempt of {}", attempt.job);
    let help = "end this process; the current attempt has the work";
    Err(Fault::new(StatusCode::CONFLICT, "AP0503", detail, help))
}

async fn take(shared: &Shared, attempt: AttemptId, batch: Batch) -> Result<Vec<Answer>, Fault> {
    if batch.signals.len() > SIGNALS_MAX {
        let detail = format!(
            "the batch holds {} signals: the limit is {SIGNALS_MAX}",
            batch.signals.len()
        );
        return Err(Fault::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "AP0501",
            detail,
            "send smaller batches",
        ));
    }
    if let Some(attach) = &batch.attach {
        let observation = Observation::Attached {
            attempt,
            step: attach.step,
        };
        let told = {
            let state = shared.view.state();
            let active = state.job(attempt.job).and_then(|job| job.state.active());
            active.is_some_and(|active| active.attached)
        };
        if !told {
            shared.inputs.observe(observation).await?;
        }
        if let Some(shards) = told_of_shards(attempt, &attach.shards) {
            shared.inputs.observe(shards).await?;
        }
    }
    for saved in batch.checkpoints {
        // A path that no later attempt could be given is not a checkpoint to resume from.
        if saved.path.is_empty() || saved.path.len() > PATH_MAX || saved.path.contains('\0') {
            tracing::warn!(%attempt, step = saved.step, "a checkpoint without a usable path is passed over");
            continue;
        }
        let checkpoint = Checkpoint {
            attempt,
            step: saved.step,
            path: saved.path,
            bytes: Bytes::new(saved.bytes),
            save: Millis::from_millis(saved.save_ms.clamp(0.0, 1e12) as u64),
            manifest: cut(saved.manifest.unwrap_or_default()),
            at: now(),
        };
        shared
            .inputs
            .observe(Observation::Checkpointed { checkpoint })
            .await?;
    }
    for ack in batch.acks {
        if let Some(ack) = ack_of(ack) {
            shared
                .inputs
                .observe(Observation::Acknowledged { attempt, ack })
                .await?;
        }
    }
    let boot = cut(batch.boot);
    let findings = shared.signals.take(
        attempt,
        &boot,
        batch.seq,
        batch.dropped,
        &batch.signals,
        now(),
    );
    for finding in findings {
        shared.inputs.find(finding).await;
    }
    asks::answer(shared, attempt, batch.asks).await
}

fn ack_of(ack: AckIn) -> Option<Ack> {
    let body = if let Some(Applied { slot }) = ack.applied {
        AckBody::Applied { slot }
    } else if let Some(Rejected { reason }) = ack.rejected {
        AckBody::Rejected {
            reason: cut(reason),
        }
    } else if let Some(Failed { error }) = ack.failed {
        AckBody::Failed { error: cut(error) }
    } else {
        ack.expired.map(|_| AckBody::Expired)?
    };
    Some(Ack {
        directive: DirectiveId(ack.directive),
        body,
    })
}

fn reply(
    shared: &Shared,
    attempt: AttemptId,
    cursor: DirectiveId,
    done: &BTreeSet<DirectiveId>,
) -> Reply {
    let state = shared.view.state();
    let directives = state.job(attempt.job).map_or_else(Vec::new, |job| {
        pending_directives(job, attempt, cursor, done)
            .into_iter()
            .map(DirectiveOut::of)
            .collect()
    });
    Reply {
        directives,
        answers: Vec::new(),
        report_every_ms: REPORT_EVERY.as_millis(),
    }
}

/// Bounds a text that enters the log.
pub(super) fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}
