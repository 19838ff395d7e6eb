//! The one way to change a job: the indexes are taken along. Also ends jobs, tells those that wait for them, and moves
//! what is held back.

use antiphon_types::{JobId, NodeName, Slot, SlotReason};

use crate::index::{Membership, gone_by};
use crate::jobs::{Job, JobState};
use crate::state::State;
use crate::teams::Team;

impl State {
    pub(super) fn job_at(&self, id: JobId) -> &Job {
        self.jobs
            .get(&id)
            .unwrap_or_else(|| panic!("{id} is in no event before this one"))
    }

    /// Changes a job and takes the indexes along.
    pub(super) fn change<R>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> R) -> R {
        let Self { known, index } = self;
        let job = known.jobs.get(&id);
        let job = job.unwrap_or_else(|| panic!("{id} is in no event before this one"));
        let (before, gone) = (Membership::of(known, job), gone_by(job));
        let stood = before.stands_in_queue();
        let now = known.now;
        let job = known.jobs.get_mut(&id).expect("it was there just now");
        let result = change(job);
        // Its wait counts from when nothing but room keeps it: waiting for other jobs or for a time wins no place in front.
        if !stood && job.could_start(now) {
            job.state = JobState::Pending { since: now };
            job.not_before = None;
        }
        let job = &known.jobs[&id];
        let after = Membership::of(known, job);
        index.move_job(job, &before, &after);
        if before.runs() || after.runs() {
            index.stake(known, job);
        }
        if gone_by(job) != gone {
            index.retime(job);
        }
        result
    }

    /// Changes what a job asks for; what it is expected to run changes with it.
    pub(crate) fn respecify(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        self.unreserve(id);
        // No comparison of places shows that, so it leaves its own and takes another.
        self.index.leave(&self.known, &self.known.jobs[&id]);
        self.note(id, change);
        self.index.enter(&self.known, &self.known.jobs[&id]);
        self.expect_anew(id);
    }

    /// Changes what no index follows from.
    pub(super) fn note<R>(&mut self, id: JobId, note: impl FnOnce(&mut Job) -> R) -> R {
        let job = self.known.jobs.get_mut(&id);
        note(job.unwrap_or_else(|| panic!("{id} is in no event before this one")))
    }

    pub(super) fn team_of(&mut self, id: JobId) -> &mut Team {
        let team = self.job_at(id).team;
        self.known.teams.get_mut(team)
    }

    /// Works out anew how long a waiting job should run.
    pub(super) fn expect_anew(&mut self, id: JobId) {
        let job = self.job_at(id);
        let doubt = self.teams.get(job.team).doubt_permille;
        let expect = crate::expect::next_attempt(job, &self.history, doubt);
        self.change(id, |job| job.expect = expect);
    }

    /// Holds nodes back for a job, instead of what was held for it before.
    pub(super) fn reserve(&mut self, job: JobId, slot: &Slot) {
        self.unreserve(job);
        // Whoever held one of these nodes back gives all of its slot up: half a slot starts nobody.
        for node in &slot.nodes {
            if let Some(other) = self.slot_on(node) {
                self.unreserve(other);
            }
        }
        self.known.slots.insert(job, slot.clone());
        self.index.hold_slot(&self.known, job, slot);
    }

    pub(super) fn unreserve(&mut self, job: JobId) {
        if let Some(slot) = self.known.slots.remove(&job) {
            self.index.release_slot(&self.known, &slot);
        }
    }

    /// The job whose slot a node is part of.
    fn slot_on(&self, node: &NodeName) -> Option<JobId> {
        self.index.holder(*self.index.node_ids.get(node)?)
    }

    /// Gives what was held back for a job that no longer waits to the jobs that gave way to it.
    fn hand_back(&mut self, id: JobId) {
        let Some(slot) = self.slots.get(&id).cloned() else {
            return;
        };
        self.unreserve(id);
        if slot.why != SlotReason::Preemption {
            return;
        }
        let victims = self.jobs.values();
        let victims = victims.filter(|job| job.gave_way_to == Some(id));
        let claims: Vec<(JobId, Slot)> = victims
            .filter(|job| !job.state.is_ended())
            .filter_map(|job| {
                // One that is still on its way out holds its nodes itself.
                let held = match job.state.active() {
                    Some(active) => &active.allocation,
                    None => &job.attempts.last()?.allocation,
                };
                let nodes = held.by_node().into_iter().map(|slice| slice.node.clone());
                let nodes = nodes.filter(|node| slot.nodes.contains(node)).collect();
                let claim = Slot {
                    nodes,
                    at: Some(self.now),
                    why: SlotReason::Claim,
                };
                Some((job.id, claim))
            })
            .collect();
        for (victim, claim) in claims {
            let mut nodes = claim.nodes.iter();
            let free = nodes.all(|node| self.slot_on(node).is_none());
            if free && !claim.nodes.is_empty() {
                self.reserve(victim, &claim);
            }
            self.note(victim, |job| job.gave_way_to = None);
        }
    }
}

/// Ends a job for good, and tells those that wait for it.
pub(super) fn end(state: &mut State, id: JobId, how: JobState) {
    let succeeded = matches!(how, JobState::Succeeded { .. });
    super::measure::ended(state, id, &how);
    state.hand_back(id);
    let (dependents, dependencies, array) = state.change(id, |job| {
        let mut dependencies = std::mem::take(&mut job.waiting_for);
        dependencies.append(&mut job.waiting_for_end);
        dependencies.append(&mut job.waiting_for_start);
        let array = job.array.filter(|_| !job.throttled);
        job.state = how;
        job.requested = None;
        (std::mem::take(&mut job.dependents), dependencies, array)
    });
    for dependency in dependencies {
        if let Some(first) = state.known.jobs.get_mut(&dependency) {
            first.dependents.retain(|dependent| *dependent != id);
        }
    }
    state.known.ended.push_back(id);
    super::steer::cancel_data_jobs(state, id);
    super::steer::made(state, id);
    for dependent in dependents {
        state.change(dependent, |waiting| {
            waiting.waiting_for_end.remove(&id);
            let wanted = waiting.waiting_for.remove(&id) && !succeeded;
            // One that waits for the start of a job that ends without one waits for nothing any more.
            let never_started = waiting.waiting_for_start.remove(&id);
            if wanted || never_started {
                waiting.dead_dependency = Some(id);
            }
        });
    }
    if let Some(member) = array {
        let next = state.index.throttled.get(&member.first);
        if let Some(next) = next.and_then(|waiting| waiting.first().copied()) {
            state.change(next, |job| job.throttled = false);
        }
    }
}

/// Tells those that wait for a job's start that it has come.
pub(super) fn has_started(state: &mut State, id: JobId) {
    let dependents = state.job_at(id).dependents.clone();
    let waits = |dependent: &JobId| state.job_at(*dependent).waiting_for_start.contains(&id);
    let told: Vec<JobId> = dependents.into_iter().filter(waits).collect();
    for dependent in &told {
        state.change(*dependent, |waiting| {
            waiting.waiting_for_start.remove(&id);
        });
    }
    // Who waits no more is not to be told again: it may be forgotten before this job starts once more, or ends.
    let is_told_all = |dependent: &JobId| {
        let waiting = state.job_at(*dependent);
        !waiting.waiting_for.contains(&id) && !waiting.waiting_for_end.contains(&id)
    };
    let left: Vec<JobId> = told.into_iter().filter(is_told_all).collect();
    if !left.is_empty() {
        state.note(id, |job| {
            job.dependents.retain(|other| !left.contains(other))
        });
    }
}
