//! Chooses who gives way to a blocked job of a higher class. Proves that the job fits before anybody is touched.

use antiphon_types::{Allocation, GpuTime};

use crate::capacity::Capacity;
use crate::jobs::{Job, JobState};
use crate::place::place;
use crate::state::State;

/// What can be done for a blocked job.
pub(crate) enum Room<'a> {
    /// It fits once attempts that are stopping already have ended.
    Coming,
    /// It fits once these have given way as well.
    Victims(Vec<&'a Job>),
    /// No set of lower-class attempts makes room.
    None,
}

/// Looks for room for `job` among attempts that are stopping or may be stopped; `free` is what is free now.
pub(crate) fn room_for<'a>(state: &'a State, job: &Job, free: &Capacity<'_>) -> Room<'a> {
    let mut capacity = free.clone();
    for (_, allocation) in stopping(state) {
        capacity.give_back(allocation);
    }
    if place(&capacity, &job.spec).is_some() {
        return Room::Coming;
    }
    let mut candidates: Vec<&Job> = state
        .active_jobs()
        .filter(|victim| may_give_way(victim, job))
        .collect();
    candidates.sort_by_key(|victim| cost(state, victim));

    let mut victims: Vec<(&Job, &Allocation)> = Vec::new();
    for victim in candidates {
        let Some(active) = victim.state.active() else {
            continue;
        };
        capacity.give_back(&active.allocation);
        victims.push((victim, &active.allocation));
        if place(&capacity, &job.spec).is_some() {
            return Room::Victims(spare_the_needless(victims, capacity, job));
        }
    }
    Room::None
}

/// Attempts that are on their way out, with what they still hold.
pub(crate) fn stopping(state: &State) -> impl Iterator<Item = (&Job, &Allocation)> {
    state.active_jobs().filter_map(|job| match &job.state {
        JobState::Stopping { active, .. } => Some((job, &active.allocation)),
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => None,
    })
}

/// Strictly lower classes give way, so that two jobs can never preempt each other in turn.
fn may_give_way(victim: &Job, job: &Job) -> bool {
    let running = matches!(
        victim.state,
        JobState::Starting { .. } | JobState::Running { .. }
    );
    running && victim.spec.class > job.spec.class
}

/// The order in which victims are taken: lowest class, then least GPU-time to spend again, then the younger attempt.
fn cost(state: &State, victim: &Job) -> impl Ord + use<> {
    let launched = victim.state.active().map(|active| active.launched);
    (
        std::cmp::Reverse(victim.spec.class),
        unsaved(state, victim),
        std::cmp::Reverse(launched),
        victim.id,
    )
}

/// GPU-time since the attempt's last acknowledged checkpoint, or since its start: lost if it were killed now.
pub(crate) fn unsaved(state: &State, job: &Job) -> GpuTime {
    let Some(active) = job.state.active() else {
        return GpuTime::ZERO;
    };
    let Some(started) = active.started else {
        return GpuTime::ZERO;
    };
    let saved = job
        .checkpoint
        .as_ref()
        .filter(|saved| saved.attempt == active.attempt);
    let since = saved.map_or(started, |saved| saved.at.max(started));
    active.allocation.gpu_amount().over(state.now.since(since))
}

/// Drops victims without which the job fits as well, the dearest first.
fn spare_the_needless<'a>(
    victims: Vec<(&'a Job, &'a Allocation)>,
    mut capacity: Capacity<'_>,
    job: &Job,
) -> Vec<&'a Job> {
    let mut needed = Vec::new();
    for (victim, allocation) in victims.into_iter().rev() {
        let mut without = capacity.clone();
        without.take(allocation);
        if place(&without, &job.spec).is_some() {
            capacity = without;
        } else {
            needed.push(victim);
        }
    }
    needed.reverse();
    needed
}
