//! The two clocks of a stop. First: directive to acknowledged checkpoint. Second: SIGTERM to SIGKILL. Code that never
//! attached goes straight to the second. Every SIGKILL names its evidence.

use std::collections::BTreeSet;

use antiphon_types::{Action, DirectiveBody, DirectiveCause, JobId, Millis, StopCause, Timestamp};

use crate::decide::stop_begun;
use crate::direct::issue;
use crate::index::idle_until;
use crate::jobs::{Active, Job, JobState, StopPhase};
use crate::notices::{leaving, time_to_save};
use crate::state::State;

/// How long a directive takes to reach a trainer: it asks once a second, and a second more for a busy machine.
const DELIVERY: Millis = Millis::from_secs(2);

/// How long a trainer that has saved may take to end by itself. A signal at once would only hit it on its way out.
const LEAVE: Millis = Millis::from_secs(10);

/// Begins to stop a job's attempt.
pub(crate) fn begin(state: &State, job: &Job, cause: StopCause, actions: &mut Vec<Action>) {
    let active = job.state.active().expect("only an attempt can be stopped");
    if active.attached && saves_first(&cause) {
        let until = state.now.after(lease(state, job, &cause));
        let directive = issue(
            job,
            DirectiveBody::Yield,
            cause.to_string(),
            DirectiveCause::Stop,
            state.now,
            0,
        );
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

/// A canceled job's work is not wanted, a broken gang cannot agree on a step, a hung one makes none: none of them waits for a
/// checkpoint.
const fn saves_first(cause: &StopCause) -> bool {
    match cause {
        StopCause::Priority { .. }
        | StopCause::Reclaim { .. }
        | StopCause::Turn { .. }
        | StopCause::Idle { .. }
        | StopCause::Drain { .. }
        | StopCause::Notice { .. }
        | StopCause::Hold
        | StopCause::Operator
        | StopCause::Straggler { .. }
        | StopCause::Asked { .. }
        | StopCause::Limit => true,
        StopCause::Cancel | StopCause::GangBroken { .. } | StopCause::Hang => false,
    }
}

fn terminate(state: &State, job: &Job, active: &Active, cause: StopCause) -> Action {
    Action::Terminate {
        attempt: active.attempt,
        cause,
        kill_at: state.now.after(job.spec.grace),
    }
}

/// How long a job may still save: what a save takes, cut to what the cause leaves.
fn lease(state: &State, job: &Job, cause: &StopCause) -> Millis {
    let wait = checkpoint_wait(state, job);
    match cause {
        StopCause::Notice { within, .. } => wait.min(time_to_save(*within, job.spec.grace)),
        StopCause::Priority { .. }
        | StopCause::Reclaim { .. }
        | StopCause::Turn { .. }
        | StopCause::Idle { .. }
        | StopCause::Drain { .. }
        | StopCause::Cancel
        | StopCause::Hold
        | StopCause::Operator
        | StopCause::Limit
        | StopCause::GangBroken { .. }
        | StopCause::Straggler { .. }
        | StopCause::Hang
        | StopCause::Asked { .. } => wait,
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

/// Moves every stop on: what people asked, what broke, whose clock ran out, whose node goes into maintenance or is given back.
pub(crate) fn advance(state: &State, actions: &mut Vec<Action>) {
    let due = state
        .index
        .clocks
        .iter()
        .take_while(|(at, _)| *at <= state.now);
    let mut moved: BTreeSet<JobId> = due.map(|(_, id)| *id).collect();
    moved.extend(&state.index.stirred);
    for id in moved {
        let job = &state.jobs[&id];
        match &job.state {
            JobState::Starting { active } | JobState::Running { active } => {
                if let Some(cause) = reason_to_stop(state, job, active) {
                    begin(state, job, cause, actions);
                }
            }
            JobState::Stopping {
                active,
                cause,
                phase,
                ..
            } if !active.is_over() => go_on(state, job, active, cause, phase, actions),
            JobState::Stopping { .. } => (),
            JobState::Pending { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => unreachable!("only attempts have clocks"),
        }
    }
    let mut begun = stop_begun(actions);
    for (job, cause) in in_maintenance(state).chain(leaving(state)) {
        if begun.insert(job.id) {
            begin(state, job, cause, actions);
        }
    }
}

/// Whether a clock that these actions start has run out already: a grace of nothing. No timer tells of it.
pub(crate) fn is_over_at_once(state: &State, actions: &[Action]) -> bool {
    actions.iter().any(|action| match action {
        Action::Yield { until, .. } => *until <= state.now,
        Action::Terminate { kill_at, .. } => *kill_at <= state.now,
        Action::Launch { .. }
        | Action::Kill { .. }
        | Action::Settle { .. }
        | Action::Direct { .. }
        | Action::Reserve { .. }
        | Action::Unreserve { .. }
        | Action::PutAside { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => false,
    })
}

fn go_on(
    state: &State,
    job: &Job,
    active: &Active,
    cause: &StopCause,
    phase: &StopPhase,
    actions: &mut Vec<Action>,
) {
    match *phase {
        // A cancel overtakes a wait for a checkpoint that nobody wants any more.
        StopPhase::CheckpointWait { .. } if job.requested == Some(StopCause::Cancel) => {
            actions.push(terminate(state, job, active, StopCause::Cancel));
        }
        StopPhase::CheckpointWait { .. } if waits_until(phase) <= state.now => {
            actions.push(terminate(state, job, active, cause.clone()));
        }
        StopPhase::Grace { kill_at } if kill_at <= state.now => actions.push(Action::Kill {
            attempt: active.attempt,
            evidence: format!("its grace of {} after SIGTERM is over", job.spec.grace),
        }),
        StopPhase::CheckpointWait { .. } | StopPhase::Grace { .. } | StopPhase::Killed => (),
    }
}

/// Running jobs on nodes whose maintenance has begun, and why each is stopped. What has ended just then is settled, not stopped.
fn in_maintenance(state: &State) -> impl Iterator<Item = (&Job, StopCause)> {
    let now = state.now;
    let begun = state
        .maintenance
        .iter()
        .filter(move |window| window.from <= now);
    let nodes = begun.flat_map(|window| &window.nodes);
    let mut met = BTreeSet::new();
    nodes
        .flat_map(move |node| {
            let tenants = state.tenants(node).into_iter();
            tenants
                .map(|job| (&state.jobs[&job], node))
                .collect::<Vec<_>>()
        })
        .filter(|(job, _)| {
            matches!(
                &job.state,
                JobState::Starting { active } | JobState::Running { active } if !active.is_over()
            )
        })
        .filter(move |(job, _)| met.insert(job.id))
        .map(|(job, node)| (job, StopCause::Drain { node: node.clone() }))
}

/// When an attempt that begins to stop now is gone at the latest.
pub(crate) fn over_by(state: &State, job: &Job) -> Timestamp {
    let attached = job.state.active().is_some_and(|active| active.attached);
    let wait = if attached {
        checkpoint_wait(state, job)
    } else {
        Millis::ZERO
    };
    state.now.after(wait).after(job.spec.grace)
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

fn reason_to_stop(state: &State, job: &Job, active: &Active) -> Option<StopCause> {
    if active.is_over() {
        return None;
    }
    if let Some(asked) = &job.requested {
        return Some(asked.clone());
    }
    if let Some((position, _)) = active.broken_by() {
        let task = active.task_id(position);
        return Some(StopCause::GangBroken { task });
    }
    let limit = || Some(active.started?.after(job.spec.time_limit?));
    if limit().is_some_and(|limit| limit <= state.now) {
        return Some(StopCause::Limit);
    }
    idle_until(state, job).filter(|until| *until <= state.now)?;
    let since = state.now.since(job.idle?.since);
    Some(StopCause::Idle { since })
}
