//! What becomes of a job whose attempt has ended: finished, tried again, back to the queue, or ended for good.

use antiphon_types::{Action, AttemptId, Exit, ExitClass, Millis, Outcome, StopCause};

use crate::capacity::NodeId;
use crate::jobs::{Active, Job, JobState};
use crate::state::State;

/// Settles every attempt whose tasks have all ended; says whether there was one.
pub(crate) fn ended_attempts(state: &State, actions: &mut Vec<Action>) -> bool {
    let before = actions.len();
    for id in &state.index.stirred {
        let job = &state.jobs[id];
        let Some(active) = job.state.active().filter(|active| active.is_over()) else {
            continue;
        };
        let clean = active.broken.is_none();
        let outcome = outcome(state, job, active, clean);
        actions.push(Action::Settle {
            attempt: active.attempt,
            outcome,
        });
    }
    actions.len() > before
}

/// The nodes that an ended attempt's exit speaks against, and whether a check of the node itself does.
pub(crate) fn failed_nodes(job: &Job, active: &Active) -> Vec<(NodeId, bool)> {
    let stopped = matches!(job.state, JobState::Stopping { .. });
    let Some((position, exit)) = active.broken_by() else {
        return Vec::new();
    };
    let checked = matches!(exit, Exit::Unfit { .. });
    // What ends while it is being stopped says nothing about its node.
    let broke_itself = !stopped || is_broken_gang(job);
    let hardware = classify(exit) == ExitClass::Hardware && broke_itself;
    if checked || hardware {
        vec![(active.nodes[position], checked)]
    } else {
        Vec::new()
    }
}

fn is_broken_gang(job: &Job) -> bool {
    let cause = match &job.state {
        JobState::Stopping { cause, .. } => Some(cause),
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => None,
    };
    matches!(cause, Some(StopCause::GangBroken { .. }))
}

fn outcome(state: &State, job: &Job, active: &Active, clean: bool) -> Outcome {
    let begun = match &job.state {
        JobState::Stopping { cause, .. } => Some(cause),
        JobState::Starting { .. } | JobState::Running { .. } => None,
        JobState::Pending { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => unreachable!("only attempts are settled"),
    };
    // Exit 0 while stopping is what a trainer that gave way returns, and also one that finished just then. Only the
    // reported progress tells them apart; in doubt the job runs again from its checkpoint, which loses nothing. Where
    // nothing had told the processes to end yet, exit 0 is their own.
    let finished = clean && (begun.is_none() || is_finished(job, active.attempt));
    // What a person asked for after the stop had begun decides over the stop's own cause.
    match job.requested.as_ref().or(begun) {
        Some(StopCause::Cancel) => Outcome::Canceled,
        Some(StopCause::Hold) if !finished => Outcome::Held,
        Some(
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Drain { .. }
            | StopCause::Notice { .. }
            | StopCause::Idle { .. }
            | StopCause::Straggler { .. }
            | StopCause::Asked { .. }
            | StopCause::Operator,
        ) if !finished => Outcome::Requeued,
        Some(StopCause::Limit) if !finished => Outcome::Failed {
            class: ExitClass::Limit,
        },
        // However its processes ended, it was antiphon that ended them: as if the job had failed by itself.
        Some(StopCause::Hang) if !finished => retry(state, job, ExitClass::Software),
        _ if clean => Outcome::Succeeded,
        Some(_) | None => after_failure(state, job, active),
    }
}

/// Whether the trainer said that every step is done.
fn is_finished(job: &Job, attempt: AttemptId) -> bool {
    job.progress
        .filter(|progress| progress.attempt == attempt)
        .is_some_and(|progress| {
            let saved = job.checkpoint.as_ref().map_or(0, |saved| saved.step);
            progress.steps_total > 0 && progress.step.max(saved) >= progress.steps_total
        })
}

/// The retry rule of the exit's class.
fn after_failure(state: &State, job: &Job, active: &Active) -> Outcome {
    let Some((_, exit)) = active.broken_by() else {
        return Outcome::Succeeded;
    };
    let class = classify(exit);
    match class {
        // Nothing was started, so nothing failed: the launch check kept an old leader's or a stopping attempt's task out.
        ExitClass::Superseded | ExitClass::Preempted | ExitClass::Done => Outcome::Requeued,
        // The same again would end the same; the next step of its ladder is not the same.
        ExitClass::OutOfMemory if next_rung(job) || job.shrunk.is_some() => Outcome::Retried {
            class,
            not_before: state.now,
        },
        ExitClass::OutOfMemory
        | ExitClass::DataError
        | ExitClass::Unstartable
        | ExitClass::Dependency
        | ExitClass::Limit => Outcome::Failed { class },
        ExitClass::NotLaunched => Outcome::Retried {
            class,
            not_before: state.now.after(backoff(job)),
        },
        // The command never ran: its node failed, not the job.
        ExitClass::Hardware if matches!(exit, Exit::Unfit { .. }) => Outcome::Requeued,
        ExitClass::Hardware | ExitClass::Software => retry(state, job, class),
    }
}

/// Another try, as long as the job has any left.
fn retry(state: &State, job: &Job, class: ExitClass) -> Outcome {
    if job.failures >= job.spec.retry.retries_max {
        return Outcome::Failed { class };
    }
    Outcome::Retried {
        class,
        not_before: state.now.after(backoff(job)),
    }
}

fn next_rung(job: &Job) -> bool {
    usize::try_from(job.rungs).is_ok_and(|taken| taken < job.spec.ladder.len())
}

/// What an exit says about trying again.
pub(crate) const fn classify(exit: &Exit) -> ExitClass {
    match exit {
        Exit::Code {
            class: Some(class), ..
        }
        | Exit::Signal {
            class: Some(class), ..
        } => *class,
        Exit::Code {
            code: 0,
            class: None,
            ..
        } => ExitClass::Done,
        Exit::Code { class: None, .. } | Exit::Signal { class: None, .. } => ExitClass::Software,
        Exit::Unstartable { .. } => ExitClass::Unstartable,
        Exit::Superseded | Exit::Unreachable => ExitClass::Superseded,
        Exit::NotLaunched { .. } => ExitClass::NotLaunched,
        Exit::Lost { .. } | Exit::Unfit { .. } => ExitClass::Hardware,
    }
}

/// The first wait, doubled for each failure before, up to the longest.
fn backoff(job: &Job) -> Millis {
    let first = job.spec.retry.backoff_first.as_millis();
    let doubled = 1u64
        .checked_shl(job.failures)
        .and_then(|factor| first.checked_mul(factor));
    Millis::from_millis(doubled.unwrap_or(u64::MAX)).min(job.spec.retry.backoff_max)
}
