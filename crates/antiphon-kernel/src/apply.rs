//! Folds one event into the state. Never decides, reads no clock; an event that does not fit is a bug and panics, while
//! an observation that comes late or twice changes nothing.

mod command;
mod decision;
mod index;
mod observation;

use antiphon_types::{Body, CommandId, Event, JobId};

pub(crate) use self::command::submit;
use crate::jobs::JobState;
use crate::state::{CommandRecord, Mode, State};

/// Folds one event into the state.
///
/// # Panics
/// Where the event does not follow the last one, or a decision in it does not fit the state.
pub fn apply(state: &mut State, event: &Event) {
    assert_eq!(
        event.seq.0,
        state.seq.0 + 1,
        "events follow each other without a gap"
    );
    assert!(event.at >= state.now, "time never goes back");
    state.seq = event.seq;
    state.now = event.at;
    match &event.body {
        Body::Command { id, command, .. } => {
            let job = command::fold(state, command);
            if let Some(id) = id {
                remember(state, id, job);
            }
        }
        Body::Observation(observation) => observation::fold(state, observation),
        Body::Finding(finding) => observation::fold_finding(state, finding),
        Body::Tick => (),
        Body::Decision(decision) => {
            for action in &decision.actions {
                decision::fold(state, action);
            }
        }
        Body::SafeMode { bug } => state.mode = Mode::Safe { bug: bug.clone() },
    }
    forget_old(state);
}

fn remember(state: &mut State, id: &CommandId, job: Option<JobId>) {
    let record = CommandRecord {
        content: id.content.clone(),
        seq: state.seq,
        job,
    };
    state.command_ids.insert(id.key.clone(), record);
    state.command_order.push_back(id.key.clone());
    while state.command_order.len() > limit(state.policy.command_ids_max)
        && let Some(oldest) = state.command_order.pop_front()
    {
        state.command_ids.remove(&oldest);
    }
}

fn forget_old(state: &mut State) {
    while state.ended.len() > limit(state.policy.ended_jobs_max)
        && let Some(oldest) = state.ended.pop_front()
    {
        state.jobs.remove(&oldest);
    }
}

fn limit(count: u32) -> usize {
    usize::try_from(count).expect("a limit fits")
}

/// Ends a job for good, and tells those that wait for it.
fn end(state: &mut State, id: JobId, how: JobState) {
    state.leave_queue(id);
    let succeeded = matches!(how, JobState::Succeeded { .. });
    let job = state.job_mut(id);
    job.state = how;
    job.requested = None;
    let name = (job.spec.team.clone(), job.spec.name.clone());
    let dependents = std::mem::take(&mut job.dependents);
    let dependencies = std::mem::take(&mut job.waiting_for);
    if state.names.get(&name) == Some(&id) {
        state.names.remove(&name);
    }
    for dependency in dependencies {
        if let Some(first) = state.jobs.get_mut(&dependency) {
            first.dependents.retain(|dependent| *dependent != id);
        }
    }
    state.ended.push_back(id);
    for dependent in dependents {
        let waiting = state.job_mut(dependent);
        waiting.waiting_for.remove(&id);
        if !succeeded {
            waiting.dead_dependency = Some(id);
        }
        state.enter_queue(dependent);
    }
}
