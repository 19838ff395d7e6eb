//! One cycle: what to do now, stage by stage, least disruptive first. Same state, same answer, on any machine.

use std::collections::{BTreeSet, VecDeque};

use antiphon_types::{Action, Class, Decision, JobId, Millis, Timestamp};

use crate::gate;
use crate::jobs::JobState;
use crate::nodes;
use crate::order::Cycle;
use crate::remedy;
use crate::settle;
use crate::state::{Mode, State};
use crate::stop;

/// Chooses what to do now.
///
/// # Panics
/// On a bug: an assertion names the values. The caller then goes into safe mode.
#[must_use]
pub fn decide(state: &State) -> Decision {
    let mut actions = Vec::new();
    let mut wake_at = None;
    let mut again = settle::ended_attempts(state, &mut actions);
    stop::advance(state, &mut actions);
    if state.mode == Mode::Deciding {
        again |= nodes::put_aside(state, &mut actions);
        again |= abandon(state, &mut actions);
        // What a settled attempt held is free, a node put aside is closed, and who waited for a job that is given up may
        // start, only once that is applied: the next cycle, which follows at once, starts jobs.
        if !again {
            (wake_at, again) = start(state, &mut actions);
        }
        // Whom it lets in stands in the queue once this is applied.
        again |= gate::advance(state, &mut actions);
        // A data job that is to start stands in the queue once this is applied.
        again |= remedy::act_on_findings(state, &mut actions);
    }
    again |= stop::is_over_at_once(state, &actions);
    Decision {
        actions,
        wake_at: wake_at.into_iter().chain(next_timer(state)).min(),
        again,
    }
}

/// When time alone next changes something. To be asked once a decision is applied: what it has begun has clocks as well.
#[must_use]
pub fn next_timer(state: &State) -> Option<Timestamp> {
    // What came due with the last event is folded by the next one, which has to come later.
    let soon = state.now.after(Millis::from_millis(1));
    let slots = state.slots.values().filter_map(|slot| slot.at);
    slots
        .filter(|at| *at > state.now)
        .chain(state.index.next_timer(state))
        .map(|at| at.max(soon))
        .min()
}

/// Ends jobs whose dependency never will succeed, and those that wait for them in turn: a chain falls in one cycle. Says
/// whether there was one.
fn abandon(state: &State, actions: &mut Vec<Action>) -> bool {
    let mut doomed: VecDeque<(JobId, JobId)> = state
        .index
        .dead
        .iter()
        .map(|id| {
            let dependency = state.jobs[id].dead_dependency;
            (*id, dependency.expect("a dead job names its dependency"))
        })
        .collect();
    let mut met = state.index.dead.clone();
    while let Some((job, dependency)) = doomed.pop_front() {
        actions.push(Action::Abandon { job, dependency });
        // A held one learns of it when it is released; one that waits for any end may start now.
        let waiting = state.jobs[&job].dependents.iter().filter(|id| {
            let dependent = &state.jobs[id];
            let pending = matches!(dependent.state, JobState::Pending { .. });
            let falls =
                dependent.waiting_for.contains(&job) || dependent.waiting_for_start.contains(&job);
            pending && falls && met.insert(**id)
        });
        doomed.extend(waiting.map(|id| (*id, job)));
    }
    !met.is_empty()
}

/// Class by class: starts what fits, holds nodes back for what does not, and makes room. Says when to look again, and
/// whether at once, since this cycle has spent all it may.
fn start(state: &State, actions: &mut Vec<Action>) -> (Option<Timestamp>, bool) {
    // Where nobody waits there is nothing to start, but a run may find a faster place.
    if state.index.queue.len() == 0 && state.slots.is_empty() && !state.index.any_is_slow() {
        return (None, false);
    }
    let mut cycle = Cycle::new(state, stop_begun(actions));
    for class in Class::ALL {
        cycle.start_reserved(class);
        cycle.start_queue(class);
        cycle.backfill(class);
        cycle.reserve(class);
        let trial = cycle.make_room(class);
        cycle.take_turns(class, trial);
        cycle.move_up(class);
    }
    let again = cycle.is_spent() && !cycle.actions.is_empty();
    actions.append(&mut cycle.actions);
    (cycle.wake_at, again)
}

/// Jobs whose attempt this cycle has begun to stop, or stops further.
pub(crate) fn stop_begun(actions: &[Action]) -> BTreeSet<JobId> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => Some(attempt.job),
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
            | Action::Gate(_) => None,
        })
        .collect()
}
