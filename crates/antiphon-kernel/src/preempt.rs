//! Makes blocked jobs' rights good: who may ask others to give way, who may be asked, and the stop itself. Nobody is touched
//! before it is proven that it makes room: `search` looks for whom. What that one loses: `Stake::loss`.

mod search;

use std::borrow::Cow;
use std::collections::BTreeSet;

use antiphon_types::{
    Class, GpuAmount, JobId, JobSpec, Millis, Slot, SlotReason, StopCause, Timestamp,
};

pub(crate) use self::search::Found;
use self::search::{Search, place};
use crate::allowance::{Allowance, least};
use crate::capacity::{Capacity, Hold, NodeId};
use crate::index::gone_by;
use crate::jobs::{Job, JobState};
use crate::order::Cycle;
use crate::stake::{Stake, owner_of};
use crate::stop;
use crate::teams::{TeamId, total};

/// Blocked jobs for which one cycle looks for victims: each looks at every node.
const SEARCHES_MAX: u32 = 4;

/// Blocked jobs that are looked at in one cycle.
const LOOKS_MAX: u32 = 64;

/// Attempts that one cycle stops at most: bounds what a wrong setting can do before somebody sees it.
const VICTIMS_MAX: usize = 64;

const HOUR: Millis = Millis::from_secs(3_600);

/// Which protections hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protection {
    All,
    /// Near-end protection has fallen.
    Moved,
    /// The hourly bound has fallen as well, and the one on what others lose. Grace never falls.
    None,
}

/// Why a job may take from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    /// It is of a higher class.
    Priority,
    /// Its team's quota covers it, and others hold more than theirs.
    Reclaim { owner: TeamId },
}

impl Stake {
    /// Strictly lower classes give way, so that two jobs can never preempt each other in turn; and whoever holds more than
    /// its quota gives way to a quota, which then is no longer free to be borrowed.
    fn may_give_way(&self, class: Class, right: Right, borrowed: &[GpuAmount]) -> bool {
        match right {
            Right::Priority => self.class > class,
            Right::Reclaim { owner } => {
                self.owner != owner
                    && self.class >= Class::Standard
                    && !borrowed[place(self.owner)].is_zero()
            }
        }
    }

    /// What a trainer asks for itself holds nobody off who takes back what his quota promises: to borrow gives no right.
    fn is_protected(&self, protection: Protection, right: Right, now: Timestamp) -> bool {
        match protection {
            Protection::All => {
                let asked = right == Right::Priority && self.is_asked_for(now);
                asked || self.is_near_end(now) || self.is_moved(now)
            }
            Protection::Moved => self.is_moved(now),
            Protection::None => false,
        }
    }
}

impl<'a> Cycle<'a> {
    /// Makes room for blocked jobs of a class, in order. Returns the trial that it has looked at, for whoever looks next, if it
    /// still stands.
    pub(crate) fn make_room(&mut self, class: Class) -> Option<Capacity> {
        let below = self.state.index.runs_below(class);
        let reclaims = class < Class::BestEffort && !self.state.teams.specs().is_empty();
        // It looks the same to all for whom nothing is held and nothing yields.
        let mut common: Option<Capacity> = None;
        if below || reclaims {
            self.make_room_in_order(class, below, &mut common);
        }
        common
    }

    fn make_room_in_order(&mut self, class: Class, below: bool, common: &mut Option<Capacity>) {
        let mut blocked = self.blocked(class);
        let mut searches = SEARCHES_MAX;
        for _ in 0..LOOKS_MAX {
            let Some(job) = blocked.next(self) else {
                return;
            };
            let coming = self.slots.get(&job.id).map(|slot| slot.why);
            if coming == Some(SlotReason::Preemption) {
                continue;
            }
            let Ok(allowance) = self.barred(job, class) else {
                blocked.skip_team(job.team);
                continue;
            };
            let rights = self.rights(job, class, below);
            if rights.is_empty() {
                // Without lower classes it is the team that has no right, whatever it asks for.
                if !below {
                    blocked.skip_team(job.team);
                }
                continue;
            }
            if searches == 0 || self.stopped.len() >= VICTIMS_MAX {
                return;
            }
            if let Err(again) = self.may_preempt() {
                self.wake(again);
                return;
            }
            searches -= 1;
            for right in rights {
                let mut own = None;
                let trial = if coming.is_none() && right == Right::Priority {
                    &mut *common
                } else {
                    &mut own
                };
                if self.make_room_for(job, class, right, &allowance, trial) {
                    *common = None;
                    break;
                }
            }
        }
    }

    /// Whether the cluster's hourly bound allows another preemption, and if not, when it does.
    pub(crate) fn may_preempt(&self) -> Result<(), Option<Timestamp>> {
        let bound = usize::try_from(self.state.policy.preemptions_per_hour_cluster_max);
        let past = &self.state.preemptions;
        match past.len().checked_sub(bound.unwrap_or(usize::MAX)) {
            None => Ok(()),
            Some(first) => Err(past.get(first).map(|at| at.after(HOUR))),
        }
    }

    /// Has another cycle look again at a time, if none comes before.
    pub(crate) fn wake(&mut self, at: Option<Timestamp>) {
        let at = at.filter(|at| *at > self.state.now);
        self.wake_at = self.wake_at.into_iter().chain(at).min();
    }

    /// When somebody who is left alone now might give way.
    fn lapses(&self, job: &Job, class: Class, right: Right) -> Option<Timestamp> {
        let borrowed = self.borrowed(right);
        let now = self.state.now;
        let index = &self.state.index;
        let may = |stake: &&Stake| stake.may_give_way(class, right, &borrowed);
        let guarded = index.guarded_stakes().filter(may);
        let lapses = guarded.filter_map(|stake| stake.lapses(now)).min();
        let bound = match right {
            // The bound on what others lose falls with the protections: nobody need be protected.
            Right::Reclaim { .. } if index.all_stakes().any(|stake| may(&stake)) => {
                self.waits_until(job)
            }
            Right::Reclaim { .. } | Right::Priority => None,
        };
        let bound = bound.filter(|at| *at > now);
        lapses.into_iter().chain(bound).min()
    }

    fn rights(&mut self, job: &Job, class: Class, below: bool) -> Vec<Right> {
        let mut rights = Vec::new();
        if below {
            rights.push(Right::Priority);
        }
        let teams = &self.state.teams;
        if class < Class::BestEffort
            && let Some(owner) = teams.quota_owner(job.team)
        {
            let gpu_type = job
                .spec
                .roles
                .first()
                .and_then(|role| role.shape.gpu_type.as_deref());
            let gpus = job.spec.gpus();
            let covered =
                |gpus| self.holdings.covered(teams, job.team, gpu_type, gpus) == Some(true);
            if covered(gpus + self.promised(job, owner, gpu_type)) && !gpus.is_zero() {
                rights.push(Right::Reclaim { owner });
            } else if covered(gpus) {
                self.wake(self.waits_until(job));
            }
        }
        rights
    }

    /// What is on its way to other jobs of a quota's owner, and what stands free for them: nobody else gives way for it twice.
    /// What stands free for one that waits in front is no longer kept from a job whose wait for its quota is over.
    fn promised(&self, job: &Job, owner: TeamId, gpu_type: Option<&str>) -> GpuAmount {
        let state = self.state;
        let of_type = |node: &NodeId| {
            let there = state.node_at(*node).spec.gpu_type.as_str();
            gpu_type.is_none_or(|name| name == there)
        };
        let promised = |(id, slot): (&JobId, &Cow<'_, Slot>)| {
            let other = state.jobs.get(id).filter(|other| other.id != job.id)?;
            if state.teams.quota_owner(other.team) != Some(owner) {
                return None;
            }
            let nodes = slot.nodes.iter().map(|node| state.index.node_ids[node]);
            let nodes = nodes.filter(of_type);
            let most = other.spec.gpus();
            match slot.why {
                SlotReason::Preemption => (nodes.count() > 0).then_some(most),
                SlotReason::Blocked | SlotReason::Claim if self.has_waited(job) => None,
                SlotReason::Blocked | SlotReason::Claim => {
                    let free = nodes.map(|node| self.free.whole_gpus(node).count_ones());
                    Some(GpuAmount::from_gpus(free.sum()).min(most))
                }
            }
        };
        self.slots.iter().filter_map(promised).sum()
    }

    /// Stops whoever has to give way, if that provably makes room; says whether room is coming.
    fn make_room_for(
        &mut self,
        job: &'a Job,
        class: Class,
        right: Right,
        allowance: &Allowance,
        trial: &mut Option<Capacity>,
    ) -> bool {
        let found = self.find_room(job, class, right, allowance, trial);
        if found.is_none() {
            let lapses = self.lapses(job, class, right);
            self.wake(lapses);
        }
        let Some(found) = found else {
            return false;
        };
        if self.is_overdue(&found) {
            return false;
        }
        let cause = match right {
            Right::Priority => StopCause::Priority { preemptor: job.id },
            Right::Reclaim { .. } => StopCause::Reclaim { preemptor: job.id },
        };
        self.clear(job, found, &cause);
        true
    }

    /// Whether room comes from those alone who should have left by now: no time can be named, and a slot without one would be
    /// given up and made anew in every cycle, without end. Room that comes is seen when they are gone.
    pub(crate) fn is_overdue(&self, found: &Found) -> bool {
        found.victims.is_empty() && self.going_by().is_some_and(|at| at <= self.state.now)
    }

    /// Stops those who give way, and holds what they leave back for the job that asked.
    pub(crate) fn clear(&mut self, job: &'a Job, found: Found, cause: &StopCause) {
        let state = self.state;
        let mut until = state.now;
        for id in &found.victims {
            let victim = &state.jobs[id];
            stop::begin(state, victim, cause.clone(), &mut self.actions);
            self.stopped.insert(*id);
            until = until.max(stop::over_by(state, victim));
        }
        let until = if found.victims.is_empty() {
            self.going_by().unwrap_or(until)
        } else {
            until
        };
        let slot = Slot {
            nodes: found.slot,
            at: Some(until),
            why: SlotReason::Preemption,
        };
        self.hold_back(job, slot);
    }

    /// When everybody who stops, or whom this cycle stops, should be gone.
    fn going_by(&self) -> Option<Timestamp> {
        let state = self.state;
        let stopping = state.index.stopping.iter();
        let stopping = stopping.map(|id| gone_by(&state.jobs[id]));
        let stopped = self.stopped.iter();
        let stopped = stopped.map(|id| stop::over_by(state, &state.jobs[id]));
        stopping.chain(stopped).max()
    }

    /// Looks for room, with as many protections as there are for this right. The trial is made where there is none yet, and
    /// left as it was.
    fn find_room(
        &mut self,
        job: &Job,
        class: Class,
        right: Right,
        allowance: &Allowance,
        trial: &mut Option<Capacity>,
    ) -> Option<Found> {
        let protections = match right {
            Right::Reclaim { .. } if self.has_waited(job) => {
                &[Protection::All, Protection::Moved, Protection::None][..]
            }
            Right::Reclaim { .. } | Right::Priority => &[Protection::All],
        };
        let borrowed = self.borrowed(right);
        let weakest = protections.last().copied().unwrap_or(Protection::All);
        let state = self.state;
        let may_leave = || {
            let stakes = state.index.all_stakes().filter(|stake| {
                stake.may_give_way(class, right, &borrowed)
                    && !stake.is_protected(weakest, right, state.now)
            });
            stakes.map(|stake| stake.gpus).sum()
        };
        let may_leave = match right {
            // It is the same for all of a class.
            Right::Priority => {
                let known = *self.may_leave.entry(class).or_insert_with(may_leave);
                debug_assert_eq!(known, may_leave());
                known
            }
            Right::Reclaim { .. } => may_leave(),
        };
        // Counting is cheaper than a search, and most who ask in vain ask for more than there is.
        if self.coming_free() + may_leave < self.asked(&job.spec) {
            return None;
        }
        let yields = |other| self.yields_slot(other, job, class, right);
        let trial = trial.get_or_insert_with(|| self.trial(job, class, &yields));
        let mut search = Search {
            cycle: self,
            job,
            class,
            right,
            allowance,
            borrowed: &borrowed,
            trial,
        };
        search.find(protections)
    }

    /// GPUs that are free, whomever they are held for, or come free since their job stops already.
    pub(crate) fn coming_free(&self) -> GpuAmount {
        let stopping = &self.state.index.stopping;
        let stopped = self.stopped.iter().filter(|id| !stopping.contains(id));
        let going = stopping.iter().chain(stopped);
        let going = going.filter_map(|id| self.state.jobs[id].state.active());
        let going: GpuAmount = going.map(|active| active.allocation.gpu_amount()).sum();
        self.free.free_gpus() + going
    }

    /// GPUs without which a job starts nowhere; none where GPUs are cut up, see [`Capacity::lacks`].
    pub(crate) fn asked(&self, spec: &JobSpec) -> GpuAmount {
        if self.free.is_cut() {
            GpuAmount::ZERO
        } else {
            least(spec)
        }
    }

    /// What will be free for a job once everybody who stops already is gone, with the slots that yield to it.
    pub(crate) fn trial(
        &self,
        job: &Job,
        class: Class,
        yields: &dyn Fn(JobId) -> bool,
    ) -> Capacity {
        let state = self.state;
        let mut trial = self.free.clone();
        // The job starts later: that it would be over before another's turn helps only those who start now.
        let other = |hold: &Hold| hold.job.filter(|other| *other != job.id);
        // Roles take the best place one by one, first where nobody waits: proven from where the job's own nodes are held now,
        // a place might not be found again once others are.
        let own = |hold: &Hold| hold.job == Some(job.id) && job.spec.roles.len() > 1;
        for (node, hold) in self.free.holds() {
            if own(hold) || other(hold).is_some_and(yields) {
                trial.release(*node);
            }
        }
        trial.close_held(|hold| hold.class <= class && other(hold).is_some());
        // What is stopping already comes free without anybody else.
        let going: BTreeSet<&JobId> = state.index.stopping.iter().chain(&self.stopped).collect();
        for id in going {
            if let Some(active) = state.jobs[id].state.active() {
                trial.give_back_gang(&active.nodes, &active.allocation);
                trial.give_back_resources(&state.jobs[id].spec.resources);
            }
        }
        trial
    }

    /// Whether a slot gives way to a quota: what is held back for somebody who would borrow is not his yet. Inside a team the
    /// order is its own, for as long as the owner of a quota may be made to wait.
    fn yields_slot(&self, other: JobId, job: &Job, class: Class, right: Right) -> bool {
        let Right::Reclaim { owner } = right else {
            return false;
        };
        let waits = &self.state.jobs[&other];
        let teams = &self.state.teams;
        let covered = self
            .holdings
            .covered(teams, waits.team, None, waits.spec.gpus());
        waits.spec.class >= class.max(Class::Standard)
            && (teams.quota_owner(waits.team) != Some(owner) || self.has_waited(job))
            && covered != Some(true)
    }

    /// The owner of a quota waits for those who borrow from it, but not for ever.
    fn has_waited(&self, job: &Job) -> bool {
        self.waits_until(job)
            .is_some_and(|until| until <= self.state.now)
    }

    fn waits_until(&self, job: &Job) -> Option<Timestamp> {
        let JobState::Pending { since } = job.state else {
            return None;
        };
        Some(since.after(self.state.policy.reclaim_wait_ms_max))
    }

    /// What each team holds beyond its quota, without what this cycle stops; asked for where a quota is reclaimed alone.
    fn borrowed(&self, right: Right) -> Vec<GpuAmount> {
        let state = self.state;
        if right == Right::Priority {
            return Vec::new();
        }
        let mut stopped = vec![GpuAmount::ZERO; state.teams.len()];
        let going: BTreeSet<&JobId> = state.index.stopping.iter().chain(&self.stopped).collect();
        for job in going.into_iter().map(|id| &state.jobs[id]) {
            if let Some(active) = job.state.active() {
                let stopped = &mut stopped[place(owner_of(state, job))];
                *stopped = *stopped + active.allocation.gpu_amount();
            }
        }
        let beyond = |(team, stopped): (TeamId, GpuAmount)| {
            let quota = total(&state.teams.get(team).spec.quota);
            let held = self.holdings.all(team).saturating_sub(stopped);
            held.saturating_sub(quota)
        };
        (0..).zip(stopped).map(beyond).collect()
    }
}
