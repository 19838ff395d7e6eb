//! One cycle: what to do now, stage by stage, least disruptive first. Same state, same answer, on any machine.

use std::collections::VecDeque;
use std::ops::Bound;

use antiphon_types::{Action, AttemptId, Decision, JobId, StopCause};

use crate::direct;
use crate::jobs::JobState;
use crate::order::{Verdict, walk};
use crate::preempt::{Room, room_for};
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
    let settled = settle::ended_attempts(state, &mut actions);
    let clock = stop::advance(state, &mut actions, &settled);
    // Jobs whose retry is due but that do not fit yet stand in front: nothing wakes for those.
    let not_due = (
        Bound::Excluded((state.now, JobId(u64::MAX))),
        Bound::Unbounded,
    );
    let retry = state.backoff.range(not_due).next().map(|(due, _)| *due);
    let wake_at = clock.into_iter().chain(retry).min();
    if state.mode == Mode::Deciding {
        abandon(state, &mut actions);
        // What a settled attempt held is free only once that is applied: the next cycle, which follows at once, starts jobs.
        if settled.is_empty() {
            start(state, &mut actions);
        }
        let stopping = stop_begun(&actions);
        direct::act_on_findings(state, &stopping, &mut actions);
    }
    Decision { actions, wake_at }
}

/// Ends jobs whose dependency never will succeed, and those that wait for them in turn: a chain falls in one cycle.
fn abandon(state: &State, actions: &mut Vec<Action>) {
    let mut doomed: VecDeque<(JobId, JobId)> = state
        .dead
        .iter()
        .map(|id| {
            let dependency = state.jobs[id].dead_dependency;
            (*id, dependency.expect("a dead job names its dependency"))
        })
        .collect();
    let mut met = state.dead.clone();
    while let Some((job, dependency)) = doomed.pop_front() {
        actions.push(Action::Abandon { job, dependency });
        // A held one learns of it when it is released.
        let waiting = state.jobs[&job].dependents.iter().filter(|id| {
            let pending = matches!(state.jobs[id].state, JobState::Pending { .. });
            pending && met.insert(**id)
        });
        doomed.extend(waiting.map(|id| (*id, job)));
    }
}

/// Starts what fits, in service order, and makes room for what does not.
fn start(state: &State, actions: &mut Vec<Action>) {
    let mut stopped = stop_begun(actions);
    walk(state, |job, verdict, free| {
        match verdict {
            Verdict::Starts(allocation) => {
                let attempt = AttemptId {
                    job: job.id,
                    number: job.launches + 1,
                };
                actions.push(Action::Launch {
                    attempt,
                    allocation,
                });
            }
            Verdict::Blocked => {
                if let Room::Victims(victims) = room_for(state, job, free) {
                    for victim in victims {
                        // One cycle begins at most one stop of an attempt, whoever asks for it.
                        if !stopped.contains(&victim.id) {
                            stopped.push(victim.id);
                            let cause = StopCause::Priority { preemptor: job.id };
                            stop::begin(state, victim, cause, actions);
                        }
                    }
                }
            }
            Verdict::BackOff | Verdict::Behind(_) => (),
        }
    });
}

/// Jobs whose attempt this cycle has begun to stop, or stops further.
fn stop_begun(actions: &[Action]) -> Vec<JobId> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => Some(attempt.job),
            Action::Launch { .. }
            | Action::Kill { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Abandon { .. } => None,
        })
        .collect()
}
