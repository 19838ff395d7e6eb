//! From the kernel's state to what the API says: the one place where reasons become sentences.

use std::sync::Arc;

use antiphon_kernel::forecast::Forecast;
use antiphon_kernel::{
    Active, AugmentRun, FindingRecord, FindingStage, Job, JobState, RunStage, State, StopPhase,
    TaskPhase, at_stake, explain, waits_for_approval,
};
use antiphon_signals::TaskTime;
use antiphon_types::{
    AckBody, Allocation, Checkpoint, Directive, GpuTime, Outcome, StopCause, TaskAllocation,
    TaskId, Timestamp, WaitReason,
};

use super::Shared;
use super::accept;
use super::model::{
    ArrayView, AttemptView, CheckpointView, DataJobView, DirectiveView, FindingView, JobDetail,
    JobSummary, RoleView, ShardView, SignalsView, StakeView, StartView, TaskTimeView, TaskView,
};
use super::observed;
use super::plans;
use super::series::convergence;
use super::why::{deadline, expectation, is_forecast, slot, start_view};

/// What a reader looks at: one state at one time, what is reported beside it, and what is forecast.
pub(crate) struct Sight<'a> {
    shared: &'a Shared,
    state: &'a State,
    pub(crate) now: Timestamp,
    forecast: Option<Arc<Forecast>>,
}

impl<'a> Sight<'a> {
    pub(crate) fn of(shared: &'a Shared, state: &'a State) -> Self {
        Self {
            shared,
            state,
            now: shared.view.now().max(state.now()),
            forecast: shared.forecasts.latest(),
        }
    }

    fn start(&self, job: &Job) -> Option<StartView> {
        let forecast = self.forecast.as_ref()?;
        let start = forecast.starts.get(&job.id)?;
        is_forecast(self.state, job).then(|| start_view(start, self.now.since(forecast.at)))
    }
}

/// A job in one line.
pub(crate) fn summary(sight: &Sight<'_>, job: &Job, waits: Option<&WaitReason>) -> JobSummary {
    let state = sight.state;
    let shown = sight.shared.signals.show(job.id);
    let observed = sight.shared.observed();
    let seen = observed.map(|observed| (observed.scheduler(), observed::view(observed, job)));
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
        ends_in_ms: explain::predicted_end(job, sight.now).map(|left| left.as_millis()),
        array: job.array.map(|member| ArrayView {
            first: member.first.to_string(),
            index: member.index,
        }),
        priority: job.spec.priority,
        deadline: deadline(job),
        expected: expectation(&job.expect),
        runs_as: job
            .state
            .active()
            .filter(|active| active.class != job.spec.class)
            .map(|active| active.class.name().into()),
        slot: slot(state, job),
        start: sight.start(job),
        reason: match &seen {
            None => reason(job, waits),
            Some(_) if job.state.is_ended() => reason(job, waits),
            Some((scheduler, seen)) => observed::reason(scheduler, seen, job, waits),
        },
        observed: seen.map(|(_, seen)| seen),
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
            let waits = |phase: &&TaskPhase| matches!(phase, TaskPhase::Launched);
            let (all, waiting) = (
                active.phases.len(),
                active.phases.iter().filter(waits).count(),
            );
            format!("started {} of {all} tasks", all - waiting)
        }
        JobState::Running { .. } => job.idle.map_or_else(String::new, |idle| {
            format!("its GPUs are idle: {} % busy", idle.utilization_percent)
        }),
        JobState::Stopping { cause, phase, .. } => stopping(cause, phase),
        JobState::Succeeded { .. } => String::new(),
        JobState::Failed { class, detail, .. } => format!("{class}: {detail}"),
        JobState::Canceled { .. } => String::new(),
    }
}

/// How far a stop has come.
pub(crate) fn stopping(cause: &StopCause, phase: &StopPhase) -> String {
    let how = match phase {
        StopPhase::CheckpointWait { .. } => "saves a checkpoint to give way",
        StopPhase::Grace { .. } => "was sent SIGTERM",
        StopPhase::Killed => "was sent SIGKILL",
    };
    format!("{how}: {cause}")
}

/// Everything about a job.
pub(crate) fn detail(sight: &Sight<'_>, job: &Job) -> JobDetail {
    let waits = explain::reason(sight.state, job, sight.now);
    let shown = sight.shared.signals.show(job.id);
    let active = job.state.active();
    let lost: GpuTime = job.attempts.iter().map(|record| record.lost).sum();
    JobDetail {
        summary: summary(sight, job, waits.as_ref()),
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
        plans: plans::plans(job),
        measured: plans::measured(job),
        accept: accept::view(job),
        after: job.spec.after.iter().map(ToString::to_string).collect(),
        grace_ms: job.spec.grace.as_millis(),
        checkpoint: job.checkpoint.as_ref().map(checkpoint),
        attached: active.is_some_and(|active| active.attached),
        tasks: active.map(tasks).unwrap_or_default(),
        attempts: job.attempts.iter().map(attempt).collect(),
        lost_gpu_ms: lost.gpu_millis(),
        cost_of_stopping: cost_of_stopping(sight.state, job, sight.now),
        directives: job.directives.iter().map(directive).collect(),
        findings: job
            .steering
            .all()
            .map(|record| finding(sight.state, job, record))
            .collect(),
        data_jobs: job.steering.runs.iter().map(data_job).collect(),
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
                        finding: said_of(job, &shard.shard),
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
            count: shown.count,
            dropped: shown.dropped,
            forecast: shown.forecast.as_ref().map(convergence),
            tasks: shown.tasks.iter().map(task_time).collect(),
        }),
    }
}

fn task_time(time: &TaskTime) -> TaskTimeView {
    TaskTimeView {
        task: time.task,
        own_ms: time.own_ms,
        share: time.share,
    }
}

/// What would have to be done again if a job were stopped now.
pub(crate) fn cost_of_stopping(state: &State, job: &Job, now: Timestamp) -> Option<StakeView> {
    let stake = at_stake(state, job, now)?;
    let held = &job.state.active()?.allocation;
    Some(StakeView {
        unsaved_gpu_ms: stake.unsaved.gpu_millis(),
        restart_gpu_ms: stake.restart.gpu_millis(),
        since_ms: stake.since.map(Timestamp::as_millis),
        checkpoint_step: job.checkpoint.as_ref().map(|saved| saved.step),
        saves: stake.saves,
        gpus_thousandths: held.gpu_amount().thousandths(),
    })
}

fn finding(state: &State, job: &Job, record: &FindingRecord) -> FindingView {
    let said = &record.diagnosis;
    let stage = match &record.stage {
        _ if record.undone => "undone".into(),
        FindingStage::Told if waits_for_approval(state, job, record) => "waits for approval".into(),
        FindingStage::Told => "told".into(),
        FindingStage::Approved => "approved".into(),
        FindingStage::Directed { directive } => format!("directed #{directive}"),
        FindingStage::Started { job } => format!("started {job}"),
        FindingStage::Done => "done".into(),
        FindingStage::Refused { why } => format!("refused: {why}"),
        FindingStage::Cleared => "cleared".into(),
    };
    FindingView {
        rule: said.rule.to_string(),
        subject: said.subject.clone(),
        verdict: said.verdict.to_string(),
        evidence: said.evidence.clone(),
        step: said.step,
        at_ms: record.at.as_millis(),
        remedies: said.remedies.iter().map(ToString::to_string).collect(),
        stage,
    }
}

fn data_job(run: &AugmentRun) -> DataJobView {
    let stage = match run.stage {
        RunStage::Running => "running",
        RunStage::Made { .. } => "made",
        RunStage::Delivered { .. } => "delivered",
        RunStage::Failed { .. } => "failed",
    };
    DataJobView {
        job: run.job.to_string(),
        method: run.method.clone(),
        category: run.category.clone(),
        shard: run.shard.clone(),
        stage: stage.into(),
    }
}

/// What rules hold against a shard now.
fn said_of(job: &Job, shard: &str) -> Option<String> {
    let findings = job.steering.all();
    let mut of_shard = findings.filter(|record| {
        record.diagnosis.subject == shard && record.stage != FindingStage::Cleared
    });
    of_shard
        .next()
        .map(|record| record.diagnosis.verdict.to_string())
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
    let view = |((id, phase), held): ((TaskId, &TaskPhase), &TaskAllocation)| {
        let (phase, exit) = match phase {
            TaskPhase::Launched => ("launched", None),
            TaskPhase::Started => ("started", None),
            TaskPhase::Ended { exit, .. } => ("ended", Some(exit.to_string())),
        };
        let one = Allocation::from(vec![held.clone()]);
        TaskView {
            id: id.to_string(),
            phase: phase.into(),
            allocation: one.to_string(),
            exit,
        }
    };
    active
        .tasks()
        .zip(active.allocation.tasks.iter())
        .map(view)
        .collect()
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
