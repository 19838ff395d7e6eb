//! What the passing of time alone changes: retries that are due, jobs that have waited long, runs that take longer than
//! they should, nodes that go into maintenance. Folded before the event that brings the time.

use antiphon_types::{Class, JobId, Millis, Timestamp};

use crate::jobs::JobState;
use crate::state::State;
use crate::teams::TeamId;

const HOUR: Millis = Millis::from_secs(3_600);

/// The least that a run that takes longer than it should is given more.
const MORE_MIN: Millis = Millis::from_secs(60);

/// Moves the state's time on.
pub(super) fn pass(state: &mut State, now: Timestamp) {
    let before = state.now;
    state.known.now = now;
    super::gate::pass(state);
    state.index.used.pass(&state.known);
    while let Some((_, id)) = due(state.index.backoff.first(), now) {
        state.change(id, |job| job.not_before = None);
    }
    while let Some((at, id)) = due(state.index.promotions.first(), now) {
        let job = state.job_at(id);
        let of = (job.spec.class, job.team);
        let first = !state.index.promoted.contains_key(&of);
        state.change(id, |job| {
            job.overdue = true;
            job.promoted = first.then_some(at);
        });
    }
    while let Some((_, id)) = due(state.index.ends.first(), now) {
        overrun(state, id);
    }
    while state
        .preemptions
        .front()
        .is_some_and(|at| at.after(HOUR) <= now)
    {
        state.known.preemptions.pop_front();
    }
    if !state.maintenance.is_empty() {
        keep_maintenance(state, before);
    }
}

fn due(first: Option<&(Timestamp, JobId)>, now: Timestamp) -> Option<(Timestamp, JobId)> {
    first.copied().filter(|(at, _)| *at <= now)
}

/// Promotes the job of a team and class that has waited longest of those that wait too long, if none stands in front.
pub(super) fn promote_next(state: &mut State, of: (Class, TeamId)) {
    if state.index.promoted.contains_key(&of) {
        return;
    }
    let waiting = state.index.overdue.get(&of);
    if let Some((_, id)) = waiting.and_then(|waiting| waiting.first().copied()) {
        // It stands in front from now on, behind those of other teams who did before.
        let now = state.now;
        state.change(id, |job| job.promoted = Some(now));
    }
}

/// A run that takes longer than it should is expected to take as long again: each time half as likely to be wrong.
fn overrun(state: &mut State, id: JobId) {
    let now = state.now;
    state.change(id, |job| {
        job.overran = true;
        if let JobState::Starting { active } | JobState::Running { active } = &mut job.state {
            let run = now.since(active.started.unwrap_or(active.launched));
            let more = run.max(MORE_MIN);
            active.terms.ends_by = Some(now.after(more));
            active.terms.ends_at = active.terms.ends_by;
        }
    });
    super::observation::slots_wait_longer(state, id);
    state.team_of(id).doubt();
}

/// Opens and closes nodes as planned, and forgets what is over.
fn keep_maintenance(state: &mut State, before: Timestamp) {
    let now = state.now;
    let crossed = |at: Timestamp| before < at && at <= now;
    let touched: Vec<_> = state
        .maintenance
        .iter()
        .filter(|window| crossed(window.from) || crossed(window.until))
        .flat_map(|window| window.nodes.clone())
        .collect();
    state.known.maintenance.retain(|window| window.until > now);
    // A slot on a node that goes out of service helps nobody.
    let slots = state.slots.iter();
    let broken = slots.filter(|(_, slot)| slot.nodes.iter().any(|node| touched.contains(node)));
    let broken: Vec<JobId> = broken.map(|(job, _)| *job).collect();
    broken.into_iter().for_each(|job| state.unreserve(job));
    for node in touched {
        let id = state.index.node_ids[&node];
        state.index.plan_maintenance(&state.known, id);
    }
}
