//! Folds one event into the state. Never decides, reads no clock; an event that does not fit is a bug and panics, while
//! an observation that comes late or twice changes nothing.

mod change;
mod command;
mod decision;
mod gate;
mod holds;
mod measure;
mod observation;
mod steer;
mod time;

use antiphon_types::{Body, CommandId, Event, JobId};

pub(crate) use self::command::submit;
pub(crate) use self::holds::holds_other;
pub(crate) use self::steer::is_new_shard;
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
    state.known.seq = event.seq;
    time::pass(state, event.at);
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
        Body::SafeMode { bug } => state.known.mode = Mode::Safe { bug: bug.clone() },
    }
    forget_old(state);
}

fn remember(state: &mut State, id: &CommandId, job: Option<JobId>) {
    let known = &mut state.known;
    let record = CommandRecord {
        content: id.content.clone(),
        seq: known.seq,
        job,
    };
    known.command_ids.insert(id.key.clone(), record);
    known.command_order.push_back(id.key.clone());
    while known.command_order.len() > limit(known.policy.command_ids_max)
        && let Some(oldest) = known.command_order.pop_front()
    {
        known.command_ids.remove(&oldest);
    }
}

fn forget_old(state: &mut State) {
    let known = &mut state.known;
    while known.ended.len() > limit(known.policy.ended_jobs_max)
        && let Some(oldest) = known.ended.pop_front()
    {
        known.jobs.remove(&oldest);
    }
}

fn limit(count: u32) -> usize {
    usize::try_from(count).expect("a limit fits")
}
