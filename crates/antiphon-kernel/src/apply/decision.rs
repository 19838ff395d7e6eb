//! Folds what the kernel decided. A decision was checked before it was logged, so one that does not fit is a bug and panics.

use antiphon_types::{
    Action, Allocation, AttemptId, Directive, DirectiveBody, DirectiveScope, ExitClass, GpuTime,
    JobId, Outcome, StopCause, TaskId,
};

use super::{end, limit};
use crate::jobs::{Active, AttemptRecord, JobState, StopPhase, TaskPhase};
use crate::preempt::unsaved;
use crate::state::State;

pub(super) fn fold(state: &mut State, action: &Action) {
    match action {
        Action::Launch {
            attempt,
            allocation,
        } => launch(state, *attempt, allocation),
        Action::Yield {
            attempt,
            cause,
            directive,
            until,
        } => {
            let phase = StopPhase::CheckpointWait {
                directive: *directive,
                saved_at: None,
                until: *until,
            };
            stopping(state, *attempt, cause.clone(), phase);
        }
        Action::Terminate {
            attempt,
            cause,
            kill_at,
        } => {
            stopping(
                state,
                *attempt,
                cause.clone(),
                StopPhase::Grace { kill_at: *kill_at },
            );
        }
        Action::Kill { attempt, .. } => {
            let job = state.job_mut(attempt.job);
            let JobState::Stopping { phase, .. } = &mut job.state else {
                panic!("{attempt} is killed without having been asked to stop")
            };
            *phase = StopPhase::Killed;
        }
        Action::Settle { attempt, outcome } => settle(state, *attempt, outcome),
        Action::Direct { job, directive } => enter_directive(state, *job, directive),
        Action::Abandon { job, dependency } => {
            let at = state.now;
            let detail = format!("{dependency}, which it waited for, did not succeed");
            end(
                state,
                *job,
                JobState::Failed {
                    at,
                    class: ExitClass::Dependency,
                    detail,
                },
            );
        }
    }
}

fn launch(state: &mut State, attempt: AttemptId, allocation: &Allocation) {
    let now = state.now;
    state.leave_queue(attempt.job);
    for task in &allocation.tasks {
        let node = state
            .nodes
            .get_mut(&task.node)
            .expect("a launch names nodes that exist");
        node.free.take(task);
    }
    let job = state.job_mut(attempt.job);
    assert!(
        matches!(job.state, JobState::Pending { .. }),
        "{} is launched twice",
        job.id
    );
    assert_eq!(
        attempt.number,
        job.launches + 1,
        "attempts are numbered in sequence"
    );
    let tasks = allocation
        .tasks
        .iter()
        .map(|task| {
            let id = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            (id, TaskPhase::Launched)
        })
        .collect();
    job.launches = attempt.number;
    job.not_before = None;
    job.state = JobState::Starting {
        active: Box::new(Active {
            attempt,
            allocation: allocation.clone(),
            launched: now,
            started: None,
            attached: false,
            tasks,
        }),
    };
    state.active.insert(attempt.job);
}

fn stopping(state: &mut State, attempt: AttemptId, cause: StopCause, phase: StopPhase) {
    let now = state.now;
    let job = state.job_mut(attempt.job);
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt);
    let active = Box::new(active.expect("a stop names the current attempt").clone());
    let since = match job.state {
        JobState::Stopping { since, .. } => since,
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => now,
    };
    job.state = JobState::Stopping {
        active,
        since,
        cause,
        phase,
    };
    // A hold or a preemption is now under way. A cancel that came during another stop still overrules its outcome.
    let overrules = matches!(
        (&job.requested, &job.state),
        (Some(StopCause::Cancel | StopCause::Hold), JobState::Stopping { cause, .. })
            if Some(cause) != job.requested.as_ref()
    );
    if !overrules {
        job.requested = None;
    }
}

fn settle(state: &mut State, attempt: AttemptId, outcome: &Outcome) {
    let now = state.now;
    let lost = unsaved(state, state.job_at(attempt.job));
    let kept = limit(state.policy.attempts_kept_max);
    let job = state.job_mut(attempt.job);
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt);
    let active = active.expect("the current attempt is settled").clone();
    assert!(
        active.ended().is_some(),
        "{attempt} is settled while a task may live"
    );
    let stopped = match &job.state {
        JobState::Stopping { cause, .. } => Some(cause.clone()),
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => None,
    };
    let exit = active
        .broken_by()
        .map_or_else(|| "exit code 0".to_owned(), |(_, exit)| exit.to_string());
    let lost = match outcome {
        Outcome::Succeeded => GpuTime::ZERO,
        Outcome::Failed { .. }
        | Outcome::Canceled
        | Outcome::Held
        | Outcome::Requeued
        | Outcome::Retried { .. } => lost,
    };
    job.attempts.push(AttemptRecord {
        attempt,
        allocation: active.allocation.clone(),
        launched: active.launched,
        started: active.started,
        ended: now,
        stopped,
        exit: exit.clone(),
        outcome: outcome.clone(),
        checkpoint_step: job.checkpoint.as_ref().map(|saved| saved.step),
        lost,
    });
    let excess = job.attempts.len().saturating_sub(kept);
    job.attempts.drain(..excess);
    job.requested = None;
    // Compute directives die with their attempt; the events keep them.
    job.directives
        .retain(|directive| directive.body.scope() == DirectiveScope::Data);

    state.active.remove(&attempt.job);
    for task in &active.allocation.tasks {
        state
            .nodes
            .get_mut(&task.node)
            .expect("a node is never forgotten")
            .free
            .give_back(task);
    }
    match outcome {
        Outcome::Succeeded => end(state, attempt.job, JobState::Succeeded { at: now }),
        Outcome::Canceled => end(state, attempt.job, JobState::Canceled { at: now }),
        Outcome::Failed { class } => {
            end(
                state,
                attempt.job,
                JobState::Failed {
                    at: now,
                    class: *class,
                    detail: exit,
                },
            );
        }
        Outcome::Held => state.job_mut(attempt.job).state = JobState::Held { since: now },
        Outcome::Requeued => {
            state.job_mut(attempt.job).state = JobState::Pending { since: now };
            state.enter_queue(attempt.job);
        }
        Outcome::Retried { class, not_before } => {
            let job = state.job_mut(attempt.job);
            if *class != ExitClass::NotLaunched {
                job.failures += 1;
            }
            job.not_before = Some(*not_before);
            job.state = JobState::Pending { since: now };
            state.enter_queue(attempt.job);
        }
    }
}

pub(super) fn enter_directive(state: &mut State, job: JobId, directive: &Directive) {
    let job = state.job_mut(job);
    assert_eq!(
        directive.id.0,
        job.directives_issued + 1,
        "directives are numbered in sequence"
    );
    job.directives_issued = directive.id.0;
    if let DirectiveBody::SetWeights { weights } = &directive.body {
        for shard in weights.keys() {
            if let Some(record) = job.shards.get_mut(shard) {
                record.directive.get_or_insert(directive.id);
            }
        }
    }
    job.directives.push(directive.clone());
}
