//! From the kernel's state to what the API says: the one place where reasons become sentences.

use antiphon_kernel::{Active, Job, JobState, State, StopPhase, TaskPhase, explain};
use antiphon_types::{
    AckBody, Checkpoint, Directive, GpuTime, Outcome, StopCause, TaskAllocation, TaskId, Timestamp,
    WaitReason,
};

use super::model::{
    AttemptView, CheckpointView, DirectiveView, JobDetail, JobSummary, RoleView, ShardView,
    SignalsView, TaskView, WhyView,
};
use super::{Shared, now};

/// A job in one line.
pub(crate) fn summary(
    shared: &Shared,
    state: &State,
    job: &Job,
    waits: Option<&WaitReason>,
) -> JobSummary {
    let shown = shared.signals.show(job.id);
    let reported = job.progress.map(|progress| progress.step);
    let saved = job.checkpoint.as_ref().map(|saved| saved.step);
    let step = shown
        .as_ref()
        .map(|shown| shown.latest.step)
        .or_else(|| reported.max(saved));
    JobSummary {
        id: job.id.to_string(),
        name: job.spec.name.clone(),
        team: job.spec.team.clone(),
        user: job.spec.user.clone(),
        class: job.spec.class.name().into(),
        state: job.state.name().into(),
        since_ms: since(job).as_millis(),
        submitted_ms: job.submitted.as_millis(),
        gpus_thousandths: job.spec.gpus().thousandths(),
        allocation: job
            .state
            .active()
            .map(|active| active.allocation.to_string()),
        attempts: job.launches,
        step,
        steps_total: shown
            .as_ref()
            .and_then(|shown| shown.latest.steps_total)
            .or(job.progress.map(|progress| progress.steps_total)),
        loss: shown.as_ref().and_then(|shown| shown.latest.loss),
        ends_in_ms: explain::predicted_end(job, now().max(state.now()))
            .map(|left| left.as_millis()),
        reason: reason(job, waits),
    }
}

fn since(job: &Job) -> Timestamp {
    match &job.state {
        JobState::Pending { since } | JobState::Held { since } => *since,
        JobState::Starting { active } => active.launched,
        JobState::Running { active } => active.started.unwrap_or(active.launched),
        JobState::Stopping { since, .. } => *since,
        JobState::Succeeded { at } | JobState::Failed { at, .. } | JobState::Canceled { at } => *at,
    }
}

/// One sentence on why the job is where it is.
fn reason(job: &Job, waits: Option<&WaitReason>) -> String {
    match &job.state {
        JobState::Pending { .. } | JobState::Held { .. } => {
            waits.map(ToString::to_string).unwrap_or_default()
        }
        JobState::Starting { active } => {
            let waiting = active
                .tasks
                .values()
                .filter(|phase| matches!(phase, TaskPhase::Launched))
                .count();
            format!(
                "started {} of {} tasks",
                active.tasks.len() - waiting,
                active.tasks.len()
            )
        }
        JobState::Running { .. } => String::new(),
        JobState::Stopping { cause, phase, .. } => stopping(cause, phase),
        JobState::Succeeded { .. } => String::new(),
        JobState::Failed { class, detail, .. } => format!("{class}: {detail}"),
        JobState::Canceled { .. } => String::new(),
    }
}

fn stopping(cause: &StopCause, phase: &StopPhase) -> String {
    let how = match phase {
        StopPhase::CheckpointWait { .. } => "saves a checkpoint to give way",
        StopPhase::Grace { .. } => "was sent SIGTERM",
        StopPhase::Killed => "was sent SIGKILL",
    };
    format!("{how}: {cause}")
}

/// How an attempt ends that ends well.
const CLEAN: &str = "exit code 0";

/// Why a job waits, runs where it runs, or ended, in sentences.
pub(crate) fn why(state: &State, job: &Job) -> WhyView {
    let waits = explain::waiting(state, now().max(state.now())).remove(&job.id);
    let mut sentences = Vec::new();
    match &job.state {
        JobState::Pending { .. } | JobState::Held { .. } => {
            sentences.extend(waits.as_ref().map(ToString::to_string));
        }
        JobState::Starting { active } | JobState::Running { active } => {
            sentences.push(runs(job, active));
        }
        JobState::Stopping { cause, phase, .. } => sentences.push(stopping(cause, phase)),
        JobState::Succeeded { .. } => sentences.push("it has finished".into()),
        JobState::Failed { class, detail, .. } => {
            sentences.push(format!("it failed ({class}): {detail}"))
        }
        JobState::Canceled { .. } => sentences.push("it was canceled".into()),
    }
    if let Some(last) = job.attempts.last() {
        let after = match &last.stopped {
            Some(cause) if last.exit == CLEAN => format!("was stopped: {cause}"),
            Some(cause) => format!("was stopped: {cause}, and ended: {}", last.exit),
            None => format!("ended: {}", last.exit),
        };
        let kept = match (last.checkpoint_step, &last.outcome) {
            (_, Outcome::Succeeded) => String::new(),
            (Some(step), _) => format!("; the checkpoint of step {step} is kept"),
            (None, _) => "; it had saved no checkpoint".into(),
        };
        let lost = if last.lost.gpu_millis() < 1_000 {
            String::new()
        } else {
            format!(", {} to do again", last.lost)
        };
        sentences.push(format!(
            "its last attempt {} {after}{kept}{lost}",
            last.attempt
        ));
    }
    WhyView {
        id: job.id.to_string(),
        name: job.spec.name.clone(),
        state: job.state.name().into(),
        sentences,
        reason: waits.and_then(|reason| serde_json::to_value(reason).ok()),
    }
}

fn runs(job: &Job, active: &Active) -> String {
    let allocation = &active.allocation;
    let nodes = allocation.by_node().len();
    let width = match nodes {
        1 => "one node, the fewest that hold it".to_owned(),
        nodes => format!(
            "{nodes} nodes, the fewest that had room for {} GPUs",
            job.spec.gpus()
        ),
    };
    format!("it runs as {} on {allocation}: {width}", active.attempt)
}

/// Everything about a job.
pub(crate) fn detail(shared: &Shared, state: &State, job: &Job) -> JobDetail {
    let waits = explain::waiting(state, now().max(state.now())).remove(&job.id);
    let shown = shared.signals.show(job.id);
    let active = job.state.active();
    let lost: GpuTime = job.attempts.iter().map(|record| record.lost).sum();
    JobDetail {
        summary: summary(shared, state, job, waits.as_ref()),
        roles: job
            .spec
            .roles
            .iter()
            .map(|role| RoleView {
                name: role.name.clone(),
                command: role.command.clone(),
                gpus_thousandths: role.shape.gpus.thousandths(),
            })
            .collect(),
        workdir: job.spec.workdir.clone(),
        checkpoint_dir: job
            .spec
            .checkpoint
            .as_ref()
            .map(|checkpoint| checkpoint.dir.clone()),
        train: job.spec.train.clone(),
        after: job.spec.after.iter().map(ToString::to_string).collect(),
        grace_ms: job.spec.grace.as_millis(),
        checkpoint: job.checkpoint.as_ref().map(checkpoint),
        attached: active.is_some_and(|active| active.attached),
        tasks: active.map(tasks).unwrap_or_default(),
        attempts: job.attempts.iter().map(attempt).collect(),
        lost_gpu_ms: lost.gpu_millis(),
        directives: job.directives.iter().map(directive).collect(),
        shards: shown
            .as_ref()
            .map(|shown| {
                shown
                    .shards
                    .iter()
                    .map(|shard| ShardView {
                        id: shard.shard.clone(),
                        loss: shard.loss,
                        samples: shard.samples,
                        finding: (shard.noise || job.shards.contains_key(&shard.shard))
                            .then(|| "noise".to_owned()),
                    })
                    .collect()
            })
            .unwrap_or_default(),
        signals: shown.map(|shown| SignalsView {
            attempt: shown.attempt.to_string(),
            grad_norm: shown.latest.grad_norm,
            step_ms: shown.latest.step_ms,
            tokens_per_s: shown.latest.tokens_per_s,
            at_ms: shown.latest.at.as_millis(),
            dropped: shown.dropped,
        }),
    }
}

fn checkpoint(saved: &Checkpoint) -> CheckpointView {
    CheckpointView {
        step: saved.step,
        path: saved.path.clone(),
        bytes: saved.bytes.get(),
        save_ms: saved.save.as_millis(),
        at_ms: saved.at.as_millis(),
        attempt: saved.attempt.to_string(),
    }
}

fn tasks(active: &Active) -> Vec<TaskView> {
    let view = |held: &TaskAllocation| {
        let id = TaskId {
            attempt: active.attempt,
            role: held.role.clone(),
            index: held.index,
        };
        let (phase, exit) = match active.tasks.get(&id) {
            Some(TaskPhase::Launched) | None => ("launched", None),
            Some(TaskPhase::Started) => ("started", None),
            Some(TaskPhase::Ended { exit, .. }) => ("ended", Some(exit.to_string())),
        };
        let one = antiphon_types::Allocation {
            tasks: vec![held.clone()],
        };
        TaskView {
            id: id.to_string(),
            phase: phase.into(),
            allocation: one.to_string(),
            exit,
        }
    };
    active.allocation.tasks.iter().map(view).collect()
}

fn attempt(record: &antiphon_kernel::AttemptRecord) -> AttemptView {
    let outcome = match &record.outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed { .. } => "failed",
        Outcome::Canceled => "canceled",
        Outcome::Held => "held",
        Outcome::Requeued => "requeued",
        Outcome::Retried { .. } => "retried",
    };
    AttemptView {
        id: record.attempt.to_string(),
        allocation: record.allocation.to_string(),
        launched_ms: record.launched.as_millis(),
        started_ms: record.started.map(Timestamp::as_millis),
        ended_ms: record.ended.as_millis(),
        stopped: record.stopped.as_ref().map(ToString::to_string),
        exit: record.exit.clone(),
        outcome: outcome.into(),
        checkpoint_step: record.checkpoint_step,
        lost_gpu_ms: record.lost.gpu_millis(),
    }
}

fn directive(directive: &Directive) -> DirectiveView {
    let answer = directive.ack.as_ref().map(|ack| match ack {
        AckBody::Applied { slot } => format!("applied at slot {slot}"),
        AckBody::Rejected { reason } => format!("rejected: {reason}"),
        AckBody::Failed { error } => format!("failed: {error}"),
        AckBody::Expired => "expired".into(),
    });
    DirectiveView {
        id: directive.id.0,
        what: directive.body.to_string(),
        reason: directive.reason.clone(),
        at_ms: directive.at.as_millis(),
        answer,
    }
}
