//! Both directions in one round trip: signals, checkpoints, answers and asks come up, directives go down. What is not a raw
//! signal is logged before the reply; raw signals never are.

mod batch;
mod reply;

use std::collections::BTreeMap;
use std::sync::Arc;

use antiphon_kernel::{AttemptRecord, FindingRecord};
use antiphon_signals::Context;
use antiphon_types::{
    Ack, AckBody, Ask, AttemptId, Command, CommandId, DirectiveBody, DirectiveId, JobId, Millis,
    Observation, Outcome, Rule, Verdict,
};
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use self::batch::{AskIn, Attach, Batch};
use self::reply::{Answer, Reply, reply};
use super::problem::Fault;
use super::{Shared, auth, now};
use crate::signal_plane::Taken;

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
    let answers = take(&shared, attempt, batch).await?;
    Ok(Json(reply(&shared, attempt, cursor, &done, answers)))
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

async fn take(shared: &Shared, attempt: AttemptId, batch: Batch<'_>) -> Result<Vec<Answer>, Fault> {
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
            .checkpointed(attempt, step, bytes.as_u64(), save, now());
    }
    for ack in batch.acks.into_iter().filter_map(batch::AckIn::read) {
        tell_drained(shared, attempt, &ack);
        shared
            .inputs
            .observe(Observation::Acknowledged { attempt, ack })
            .await?;
    }
    // Counted only now: a batch whose checkpoints could not be logged comes again in whole.
    let boot = batch::cut(batch.boot.into_owned(), batch::NAME_MAX);
    let taken = Taken {
        attempt,
        boot: &boot,
        seq: batch.seq,
        dropped: batch.dropped,
        signals: &batch.signals,
        at: now(),
    };
    for finding in shared.signals.take(&taken, || context(shared, attempt)) {
        shared.inputs.find(finding).await;
    }
    let mut answers = Vec::new();
    for ask in batch.asks {
        answers.push(answer(shared, attempt, &boot, ask).await);
    }
    Ok(answers)
}

async fn take_hello(shared: &Shared, attempt: AttemptId, mut attach: Attach) -> Result<(), Fault> {
    let (told, new) = {
        let origins = attach.origins();
        let state = shared.view.state();
        let job = state.job(attempt.job);
        let active = job.and_then(|job| job.state.active());
        let known = job.map(|job| &job.spec.data.shards);
        let new = |(shard, origin): &(String, _)| known.is_none_or(|known| known.get(shard) != Some(origin));
        let new: BTreeMap<_, _> = origins.into_iter().filter(new).collect();
        (active.is_some_and(|active| active.attached), new)
    };
    if !told {
        let step = attach.step;
        let observation = Observation::Attached { attempt, step };
        shared.inputs.observe(observation).await?;
    }
    if !new.is_empty() {
        let observation = Observation::Shards {
            attempt,
            shards: new,
        };
        shared.inputs.observe(observation).await?;
        shared.signals.set_context(attempt, context(shared, attempt));
    }
    Ok(())
}

/// What the rules have to know of a job that its signals do not say.
fn context(shared: &Shared, attempt: AttemptId) -> Context {
    let state = shared.view.state();
    let Some(job) = state.job(attempt.job) else {
        return Context::default();
    };
    let failed = |past: &&AttemptRecord| {
        matches!(past.outcome, Outcome::Retried { .. } | Outcome::Failed { .. })
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
        ran: job.attempts.iter().map(ran).fold(Millis::ZERO, |all, one| all + one),
        quarantined: findings.into_iter().flatten().filter_map(noise).collect(),
        checkpoint_bytes: job.checkpoint.as_ref().map(|saved| saved.bytes.as_u64()),
        shards: job.spec.data.shards.clone(),
        ..Context::default()
    }
}

/// Tells the straggler rule of a smaller share: a task's time is judged against what it has to do.
fn tell_drained(shared: &Shared, attempt: AttemptId, ack: &Ack) {
    if !matches!(ack.body, AckBody::Applied { .. }) {
        return;
    }
    let state = shared.view.state();
    let directives = state.job(attempt.job).map(|job| &job.directives[..]);
    let directive = directives
        .unwrap_or_default()
        .iter()
        .find(|directive| directive.id == ack.directive);
    if let Some(DirectiveBody::Drain {
        task,
        share_permille,
        steps: 0,
    }) = directive.map(|directive| &directive.body)
    {
        shared.signals.drained(attempt, *task, *share_permille);
    }
}

/// Asks the kernel. Sent twice, an ask is granted once: its number is the command's id.
async fn answer(shared: &Shared, attempt: AttemptId, boot: &str, ask: AskIn) -> Answer {
    let id = ask.id;
    let refused = |reason| Answer {
        id,
        granted: false,
        reason,
    };
    let (body, reason) = match ask.read() {
        Ok(read) => read,
        Err(why) => return refused(why),
    };
    let command = CommandId {
        key: format!("ask/{attempt}/{boot}/{id}"),
        content: format!("{body:?}"),
    };
    let ask = Command::Ask(Ask {
        attempt,
        body,
        reason,
    });
    let by = format!("trainer of {attempt}");
    match shared.inputs.command(by, Some(command), ask).await {
        Ok(_) => Answer {
            id,
            granted: true,
            reason: String::new(),
        },
        Err(error) => refused(error.to_string()),
    }
}
