//! Both directions in one round trip: signals, checkpoints, answers and asks come up, directives go down. What is not a raw
//! signal is logged before the reply; raw signals never are.

mod batch;

use std::collections::BTreeSet;
use std::sync::Arc;

use antiphon_kernel::{AttemptRecord, FindingRecord, Job, pending_directives, replay_slot};
use antiphon_signals::Context;
use antiphon_types::{
    Ack, AckBody, AttemptId, Directive, DirectiveBody, DirectiveId, ExitClass, JobId, JobSpec,
    Millis, Observation, Outcome, Role, Rule, Verdict,
};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use serde::Serialize;
use utoipa::ToSchema;

pub(super) use self::batch::cut;
use self::batch::{Attach, Batch};
use super::asks::{self, Answer};
use super::origins::told_of_shards;
use super::problem::Fault;
use super::wire::DirectiveOut;
use super::{Shared, auth, now};
use crate::signal_plane::Taken;

/// How often a trainer with nothing urgent to say should ask.
const REPORT_EVERY: Millis = Millis::from_secs(1);
/// The same where a rule has just found something: a directive may be there by then.
const REPORT_AFTER_FINDING: Millis = Millis::from_millis(100);

/// Takes a trainer's batch and answers with the directives that wait for it.
#[utoipa::path(post, path = "/v1/jobs/{job}/signals", request_body = Batch, responses((status = 200, body = Reply)))]
pub(crate) async fn signals(
    State(shared): State<Arc<Shared>>,
    Path(job): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Reply>, Fault> {
    let job: JobId = job.parse().map_err(|error: antiphon_types::IdError| {
        Fault::new(
            StatusCode::BAD_REQUEST,
            "AP0501",
            error.to_string(),
            "use ANTIPHON_JOB",
        )
    })?;
    // Nothing is read, let alone inflated, for who may not speak for any attempt of the job.
    auth::of_job(&shared, &headers, job)?;
    let plain = batch::plain(&headers, &body)?;
    let batch = batch::read(&plain)?;
    let attempt = AttemptId {
        job,
        number: batch.attempt,
    };
    auth::attempt(&shared, &headers, attempt)?;
    is_current(&shared, attempt)?;
    let done = batch.attach.as_ref().map_or(&[][..], |attach| &attach.done);
    let done = done.iter().map(|id| DirectiveId(*id)).collect();
    let cursor = DirectiveId(batch.cursor);
    let taken = take(&shared, attempt, batch).await?;
    Ok(Json(reply(&shared, attempt, cursor, &done, taken)))
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

/// What came of a batch.
struct TakenIn {
    answers: Vec<Answer>,
    /// Whether a rule found something, so that a directive may be on its way.
    found: bool,
}

async fn take(shared: &Shared, attempt: AttemptId, batch: Batch<'_>) -> Result<TakenIn, Fault> {
    if let Some(attach) = batch.attach {
        take_hello(shared, attempt, attach).await?;
    }
    for saved in batch.checkpoints {
        let Some(checkpoint) = saved.read(attempt, now()) else {
            continue;
        };
        let (step, bytes, save) = (checkpoint.step, checkpoint.bytes, checkpoint.save);
        let observation = Observation::Checkpointed { checkpoint };
        shared.inputs.observe(observation).await?;
        shared
            .signals
            .checkpointed(attempt, step, bytes.get(), save, now());
    }
    for ack in batch.acks.into_iter().filter_map(batch::AckIn::read) {
        tell_applied(shared, attempt, &ack);
        shared
            .inputs
            .observe(Observation::Acknowledged { attempt, ack })
            .await?;
    }
    // Counted only now: a batch whose checkpoints could not be logged comes again in whole.
    let boot = cut(batch.boot.into_owned());
    let taken = Taken {
        attempt,
        boot: &boot,
        seq: batch.seq,
        dropped: batch.dropped,
        signals: &batch.signals,
        at: now(),
    };
    let known = |rows_before| context(shared, attempt, rows_before);
    let findings = shared.signals.take(&taken, known);
    let found = !findings.is_empty();
    for finding in findings {
        shared.inputs.find(finding).await;
    }
    let answers = asks::answer(shared, attempt, &boot, batch.asks).await?;
    Ok(TakenIn { answers, found })
}

async fn take_hello(shared: &Shared, attempt: AttemptId, attach: Attach) -> Result<(), Fault> {
    let (attached, shards) = {
        let state = shared.view.state();
        let job = state.job(attempt.job);
        let active = job.and_then(|job| job.state.active());
        let known = job.map(|job| &job.spec.data.shards);
        (
            active.is_some_and(|active| active.attached),
            told_of_shards(attempt, &attach.shards, known),
        )
    };
    if !attached {
        let step = attach.step;
        let observation = Observation::Attached { attempt, step };
        shared.inputs.observe(observation).await?;
    }
    if let Some(shards) = shards {
        shared.inputs.observe(shards).await?;
        shared
            .signals
            .set_context(attempt, context(shared, attempt, None));
    }
    Ok(())
}

/// How often the trainer saves, where it was told and has said yes.
fn interval_in_force(job: &Job) -> Option<Millis> {
    let kept = |directive: &Directive| match (&directive.body, &directive.ack) {
        (DirectiveBody::SetCheckpointInterval { interval }, Some(AckBody::Applied { .. })) => {
            Some(*interval)
        }
        _ => None,
    };
    job.directives.iter().rev().find_map(kept)
}

/// What the rules have to know of a job that its signals do not say. `rows_before` is the micro-batch of the attempt before, if
/// it is still known.
fn context(shared: &Shared, attempt: AttemptId, rows_before: Option<u32>) -> Context {
    let state = shared.view.state();
    let Some(job) = state.job(attempt.job) else {
        return Context::default();
    };
    let ran_out = job.attempts.last().is_some_and(|last| {
        let number = AttemptId {
            number: attempt.number.saturating_sub(1),
            ..attempt
        };
        let out_of_memory = ExitClass::OutOfMemory;
        last.attempt == number
            && matches!(last.outcome, Outcome::Retried { class, .. } if class == out_of_memory)
    });
    let nats = |(category, milli): (&String, &u32)| {
        let nats = f64::from(*milli) / 1_000.0;
        (category.clone(), nats)
    };
    let failed = |past: &&AttemptRecord| {
        matches!(
            past.outcome,
            Outcome::Retried { .. } | Outcome::Failed { .. }
        )
    };
    let ran = |past: &AttemptRecord| past.ended.since(past.started.unwrap_or(past.launched));
    let noise = |(shard, record): (&String, &FindingRecord)| {
        let out = record.diagnosis.verdict == Verdict::Noise && !record.undone;
        out.then(|| shard.clone())
    };
    let findings = job.steering.findings.get(&Rule::Shard);
    Context {
        gpus: u32::try_from(job.spec.gpus().thousandths().div_ceil(1_000)).unwrap_or(u32::MAX),
        failures: u32::try_from(job.attempts.iter().filter(failed).count()).unwrap_or(u32::MAX),
        ran: job
            .attempts
            .iter()
            .map(ran)
            .fold(Millis::ZERO, |all, one| all + one),
        quarantined: findings.into_iter().flatten().filter_map(noise).collect(),
        checkpoint_bytes: job.checkpoint.as_ref().map(|saved| saved.bytes.get()),
        shards: job.spec.data.shards.clone(),
        hang_after: job.spec.hang_after,
        rows_out_of_memory: rows_before.filter(|_| ran_out),
        checkpoint_interval: interval_in_force(job),
        category_loss_max: job
            .spec
            .data
            .category_loss_max_milli
            .iter()
            .map(nats)
            .collect(),
        measured: is_measured(&job.spec),
        accept: job.spec.accept.clone(),
    }
}

/// Whether there is something to hold measurements against: a plan, or a request of GPU memory.
fn is_measured(spec: &JobSpec) -> bool {
    let mut shapes = spec.roles.iter().flat_map(Role::shapes);
    !spec.plans.is_empty() || shapes.any(|shape| shape.gpu_memory.get() > 0)
}

/// Tells the rules what a trainer does from now on: a task's time is judged against its share, and saves against the
/// interval that it keeps.
fn tell_applied(shared: &Shared, attempt: AttemptId, ack: &Ack) {
    if !matches!(ack.body, AckBody::Applied { .. }) {
        return;
    }
    let state = shared.view.state();
    let directives = state.job(attempt.job).map(|job| &job.directives[..]);
    let directive = directives
        .unwrap_or_default()
        .iter()
        .find(|directive| directive.id == ack.directive);
    match directive.map(|directive| &directive.body) {
        Some(DirectiveBody::Drain {
            task,
            share_permille,
            steps: 0,
        }) => shared.signals.drained(attempt, *task, *share_permille),
        Some(DirectiveBody::SetCheckpointInterval { interval }) => {
            shared.signals.saves_every(attempt, *interval);
        }
        Some(_) | None => (),
    }
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
    /// Whether the run stands still: write the stacks of your threads into your output, and say so with `stacks`.
    #[serde(skip_serializing_if = "is_false")]
    stacks: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it in so")]
const fn is_false(is: &bool) -> bool {
    !*is
}

fn reply(
    shared: &Shared,
    attempt: AttemptId,
    cursor: DirectiveId,
    done: &BTreeSet<DirectiveId>,
    taken: TakenIn,
) -> Reply {
    let state = shared.view.state();
    let now = now();
    let directives = state.job(attempt.job).map_or_else(Vec::new, |job| {
        let lease = job.checkpoint_wait();
        let out = |directive: &Directive| {
            let out = DirectiveOut::of(directive, replay_slot(job, directive));
            match lease {
                Some((_, id, ends)) if id == directive.id => out.with_lease(ends, now),
                Some(_) | None => out,
            }
        };
        let waiting = pending_directives(job, attempt, cursor, done).into_iter();
        waiting.map(out).collect()
    });
    let again = if taken.found {
        REPORT_AFTER_FINDING
    } else {
        REPORT_EVERY
    };
    Reply {
        directives,
        answers: taken.answers,
        report_every_ms: again.as_millis(),
        stacks: shared.signals.wants_stacks(attempt, now),
    }
}
