//! The two clocks of a stop. First: directive to acknowledged checkpoint. Second: SIGTERM to SIGKILL. Code that never
//! attached goes straight to the second. Every SIGKILL names its evidence.

use antiphon_types::{Action, DirectiveBody, JobId, Millis, StopCause, Timestamp};

use crate::direct::issue;
use crate::jobs::{Active, Job, JobState, StopPhase, TaskPhase};
use crate::state::State;

/// How long a directive takes to reach a trainer: it asks once a second, and a second more for a busy machine.
const DELIVERY: Millis = Millis::from_secs(2);

/// How long a trainer that has saved may take to end by itself. A signal at once would only hit it on its way out.
const LEAVE: Millis = Millis::from_secs(10);

/// Begins to stop a job's attempt.
pub(crate) fn begin(state: &State, job: &Job, cause: StopCause, actions: &mut Vec<Action>) {
    let active = job.state.active().expect("only an attempt can be stopped");
    if active.attached && saves_first(&cause) {
        let until = state.now.after(checkpoint_wait(state, job));
        let directive = issue(job, DirectiveBody::Yield, cause.to_string(), state.now, 0);
        let id = directive.id;
        actions.push(Action::Direct {
            job: job.id,
            directive: Box::new(directive),
        });
        actions.push(Action::Yield {
            attempt: active.attempt,
            cause,
            directive: id,
            until,
        });
    } else {
        actions.push(terminate(state, job, active, cause));
    }
}

/// A canceled job's work is not wanted, a broken gang cannot agree on a step: neither waits for a checkpoint.
const fn saves_first(cause: &StopCause) -> bool {
    match cause {
        StopCause::Priority { .. }
        | StopCause::Drain { .. }
        | StopCause::Hold
        | StopCause::Operator
        | StopCause::Limit => true,
        StopCause::Cancel | StopCause::GangBroken { .. } => false,
    }
}

fn terminate(state: &State, job: &Job, active: &Active, cause: StopCause) -> Action {
    Action::Terminate {
        attempt: active.attempt,
        cause,
        kill_at: state.now.after(job.spec.grace),
    }
}

/// One step, and the measured save half as long again; a fixed wait where neither was measured.
fn checkpoint_wait(state: &State, job: &Job) -> Millis {
    let measured = job.checkpoint.as_ref().map(|saved| {
        let step = job
            .progress
            .map_or(Millis::ZERO, |progress| progress.step_time);
        DELIVERY + step + saved.save + Millis::from_millis(saved.save.as_millis() / 2)
    });
    measured
        .unwrap_or(state.policy.checkpoint_wait_ms_default)
        .min(state.policy.checkpoint_wait_ms_max)
}

/// Moves every stop on: what people asked, what broke, whose clock ran out. Says when the next clock does.
pub(crate) fn advance(
    state: &State,
    actions: &mut Vec<Action>,
    settled: &[JobId],
) -> Option<Timestamp> {
    let mut wake_at = None;
    let mut wake =
        |at: Timestamp| wake_at = Some(wake_at.map_or(at, |earlier: Timestamp| earlier.min(at)));
    for job in state.active_jobs().filter(|job| !settled.contains(&job.id)) {
        match &job.state {
            JobState::Starting { active } | JobState::Running { active } => {
                let limit = ends_by(job, active);
                if let Some(cause) = reason_to_stop(state, job, active, limit) {
                    begin(state, job, cause, actions);
                } else if let Some(limit) = limit {
                    wake(limit);
                }
            }
            JobState::Stopping {
                active,
                cause,
                phase,
                ..
            } => match *phase {
                // A cancel overtakes a wait for a checkpoint that nobody wants any more.
                StopPhase::CheckpointWait { .. } if job.requested == Some(StopCause::Cancel) => {
                    actions.push(terminate(state, job, active, StopCause::Cancel));
                }
                StopPhase::CheckpointWait { .. } => {
                    let until = waits_until(phase);
                    if until <= state.now {
                        actions.push(terminate(state, job, active, cause.clone()));
                    } else {
                        wake(until);
                    }
                }
                StopPhase::Grace { kill_at } if kill_at <= state.now => {
                    actions.push(Action::Kill {
                        attempt: active.attempt,
                        evidence: format!("its grace of {} after SIGTERM is over", job.spec.grace),
                    })
                }
                StopPhase::Grace { kill_at } => wake(kill_at),
                StopPhase::Killed => (),
            },
            JobState::Pending { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => unreachable!("only attempts are active"),
        }
    }
    wake_at
}

/// When a stop goes on to its next phase: the answer overtakes the wait for it.
pub(crate) fn waits_until(phase: &StopPhase) -> Timestamp {
    match *phase {
        StopPhase::CheckpointWait {
            saved_at, until, ..
        } => saved_at.map_or(until, |at| at.after(LEAVE)),
        StopPhase::Grace { kill_at } => kill_at,
        StopPhase::Killed => Timestamp::ZERO,
    }
}

fn ends_by(job: &Job, active: &Active) -> Option<Timestamp> {
    Some(active.started?.after(job.spec.time_limit?))
}

fn reason_to_stop(
    state: &State,
    job: &Job,
    active: &Active,
    limit: Option<Timestamp>,
) -> Option<StopCause> {
    if let Some(asked) = &job.requested {
        return Some(asked.clone());
    }
    let others_live = active
        .tasks
        .values()
        .any(|phase| !matches!(phase, TaskPhase::Ended { .. }));
    if let Some((task, _)) = active.broken_by().filter(|_| others_live) {
        return Some(StopCause::GangBroken { task: task.clone() });
    }
    limit
        .filter(|limit| *limit <= state.now)
        .map(|_| StopCause::Limit)
}
