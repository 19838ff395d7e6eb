//! Chooses who gives way to a blocked job: the set of whole gangs that loses the least, of those that provably make room.
//! Nobody is touched before that proof. Who may be taken: `may_give_way`; what it loses: `Candidate::of`.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Class, GpuAmount, GpuTime, JobId, Millis, NodeName, Shape, Slot, SlotReason, StopCause,
    Timestamp,
};

use crate::capacity::{Capacity, NodeId};
use crate::index::{Tenant, gone_by};
use crate::jobs::{Active, Job, JobState};
use crate::order::Cycle;
use crate::place::{kinds_for, place, splits};
use crate::state::State;
use crate::stop;
use crate::teams::{TeamId, total};

/// Blocked jobs for which one cycle looks for victims: each looks at every node.
const SEARCHES_MAX: u32 = 4;

/// Blocked jobs that are looked at in one cycle.
const LOOKS_MAX: u32 = 64;

/// Attempts that one cycle stops at most: bounds what a wrong setting can do before somebody sees it.
const VICTIMS_MAX: usize = 64;

/// Sets of victims whose proof is tried for one job: the cheapest most often hold.
const PROOFS_MAX: usize = 4;

const HOUR: Millis = Millis::from_secs(3_600);

/// Somebody who might give way.
pub(crate) struct Candidate<'a> {
    job: &'a Job,
    active: &'a Active,
    gpus: GpuAmount,
    /// GPU-time that would be spent again.
    loss: GpuTime,
    /// Left alone since it is near its end.
    near_end: bool,
    /// Left alone since it was moved often enough this hour.
    moved: bool,
    /// When it is left alone no longer, if it is now and that passes.
    lapses: Option<Timestamp>,
    /// The team whose quota it counts against; its own where nobody has one.
    owner: TeamId,
}

/// Everybody who might give way to somebody, by job.
pub(crate) struct Candidates<'a> {
    by_job: BTreeMap<JobId, Candidate<'a>>,
}

/// Which protections hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Protection {
    All,
    /// Near-end protection has fallen.
    Moved,
    /// The hourly bound has fallen as well. Grace never falls.
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

/// What makes room.
struct Found {
    victims: Vec<JobId>,
    slot: Vec<NodeName>,
}

impl<'a> Candidate<'a> {
    fn of(state: &State, job: &'a Job) -> Option<Self> {
        let (JobState::Starting { active } | JobState::Running { active }) = &job.state else {
            return None;
        };
        let policy = &state.policy;
        let moved: Vec<_> = job
            .preempted
            .iter()
            .map(|at| at.after(HOUR))
            .filter(|until| *until > state.now)
            .collect();
        let bound = usize::try_from(policy.preemptions_per_hour_max).unwrap_or(usize::MAX);
        let near_end = job.near_end.filter(|until| *until > state.now);
        let fewer = moved.len().checked_sub(bound).map(|first| moved.get(first));
        let lapses = match fewer {
            None => near_end,
            Some(until) => until.copied().max(near_end).filter(|_| bound > 0),
        };
        let gpus = active.allocation.gpu_amount();
        let again = unsaved(state, job) + gpus.over(policy.restart_cost_ms);
        Some(Self {
            job,
            active,
            gpus,
            loss: again + gpus.over(nearness(state, active)),
            near_end: near_end.is_some(),
            moved: fewer.is_some(),
            lapses,
            owner: state.teams.quota_owner(job.team).unwrap_or(job.team),
        })
    }

    fn is_protected(&self, protection: Protection) -> bool {
        match protection {
            Protection::All => self.near_end || self.moved,
            Protection::Moved => self.moved,
            Protection::None => false,
        }
    }

    /// The lowest class first, then what loses the least, then the younger.
    fn rank(&self) -> impl Ord + use<> {
        (
            std::cmp::Reverse(self.active.class),
            self.loss,
            std::cmp::Reverse(self.active.launched),
            self.job.id,
        )
    }
}

/// How much a run that is nearly done counts as more than it lost: what it would still need is soon free anyway.
fn nearness(state: &State, active: &Active) -> Millis {
    let near = state.policy.near_end_ms;
    let near = near + near;
    active.terms.ends_at.map_or(Millis::ZERO, |end| {
        near.saturating_sub(end.since(state.now))
    })
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

impl<'a> Cycle<'a> {
    /// Makes room for blocked jobs of a class, in order.
    pub(crate) fn make_room(&mut self, class: Class) {
        let below = self.state.index.runs_below(class);
        let reclaims = class < Class::BestEffort && !self.state.teams.specs().is_empty();
        if !below && !reclaims {
            return;
        }
        let mut blocked = self.blocked(class);
        let mut searches = SEARCHES_MAX;
        for _ in 0..LOOKS_MAX {
            let Some(job) = blocked.next(self) else {
                return;
            };
            let coming = self.slots.get(&job.id);
            if coming.is_some_and(|slot| slot.why == SlotReason::Preemption) {
                continue;
            }
            if self.barred(job, class).is_err() {
                blocked.skip_team(job.team);
                continue;
            }
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
                if self.make_room_for(job, class, right) {
                    break;
                }
            }
        }
    }

    /// Whether the cluster's hourly bound allows another preemption, and if not, when it does.
    fn may_preempt(&self) -> Result<(), Option<Timestamp>> {
        let bound = usize::try_from(self.state.policy.preemptions_per_hour_cluster_max);
        let past = &self.state.preemptions;
        match past.len().checked_sub(bound.unwrap_or(usize::MAX)) {
            None => Ok(()),
            Some(first) => Err(past.get(first).map(|at| at.after(HOUR))),
        }
    }

    /// Has another cycle look again at a time, if none comes before.
    fn wake(&mut self, at: Option<Timestamp>) {
        let at = at.filter(|at| *at > self.state.now);
        self.wake_at = self.wake_at.into_iter().chain(at).min();
    }

    /// When somebody who is left alone now might give way.
    fn lapses(
        &self,
        candidates: &Candidates<'_>,
        job: &Job,
        class: Class,
        right: Right,
    ) -> Option<Timestamp> {
        let protected = candidates.by_job.values().filter(|candidate| {
            candidate.is_protected(Protection::All) && self.may_give_way(candidate, class, right)
        });
        let protected: Vec<_> = protected.collect();
        let bound = match (right, &job.state) {
            (Right::Reclaim { .. }, JobState::Pending { since }) if !protected.is_empty() => {
                Some(since.after(self.state.policy.reclaim_wait_ms_max))
            }
            _ => None,
        };
        let lapses = protected.iter().filter_map(|candidate| candidate.lapses);
        lapses.chain(bound).filter(|at| *at > self.state.now).min()
    }

    fn rights(&self, job: &Job, class: Class, below: bool) -> Vec<Right> {
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
            let covered = self.holdings.covered(teams, job.team, gpu_type, gpus);
            if covered == Some(true) && !gpus.is_zero() {
                rights.push(Right::Reclaim { owner });
            }
        }
        rights
    }

    /// Stops whoever has to give way, if that provably makes room; says whether room is coming.
    fn make_room_for(&mut self, job: &'a Job, class: Class, right: Right) -> bool {
        let state = self.state;
        if self.candidates.is_none() {
            self.candidates = Some(Candidates::of(state));
        }
        let candidates = self.candidates.take().expect("it was put there just now");
        let found = self.find_room(&candidates, job, class, right);
        if found.is_none() {
            let lapses = self.lapses(&candidates, job, class, right);
            self.wake(lapses);
        }
        self.candidates = Some(candidates);
        let Some(found) = found else {
            return false;
        };
        let mut until = state.now;
        for id in &found.victims {
            let victim = &state.jobs[id];
            let cause = match right {
                Right::Priority => StopCause::Priority { preemptor: job.id },
                Right::Reclaim { .. } => StopCause::Reclaim { preemptor: job.id },
            };
            stop::begin(state, victim, cause, &mut self.actions);
            self.stopped.insert(*id);
            until = until.max(stop::over_by(state, victim));
        }
        let coming = state
            .index
            .stopping
            .iter()
            .map(|id| gone_by(&state.jobs[id]));
        let until = if found.victims.is_empty() {
            coming.max().unwrap_or(until)
        } else {
            until
        };
        let slot = Slot {
            nodes: found.slot,
            at: Some(until),
            why: SlotReason::Preemption,
        };
        self.hold_back(job, slot);
        true
    }

    /// Looks for room, with as many protections as there are for this right.
    fn find_room(
        &self,
        candidates: &Candidates<'a>,
        job: &Job,
        class: Class,
        right: Right,
    ) -> Option<Found> {
        let state = self.state;
        let mut trial = self.free.clone();
        // The job starts later: that it would be over before another's turn helps only those who start now.
        for (node, hold) in self.free.holds() {
            let for_other = hold.job.is_some_and(|other| other != job.id);
            if for_other && hold.class <= class {
                trial.close(*node);
            }
        }
        // What is stopping already comes free without anybody else.
        let going: BTreeSet<&JobId> = state.index.stopping.iter().chain(&self.stopped).collect();
        for id in going {
            if let Some(active) = state.jobs[id].state.active() {
                trial.give_back_gang(&active.nodes, &active.allocation);
                trial.give_back_resources(&state.jobs[id].spec.resources);
            }
        }
        if let Some(slot) = self.proof(&mut trial.clone(), job, class) {
            return Some(Found {
                victims: Vec::new(),
                slot,
            });
        }
        let protections = match right {
            Right::Reclaim { .. } if self.has_waited(job) => {
                &[Protection::All, Protection::Moved, Protection::None][..]
            }
            Right::Reclaim { .. } | Right::Priority => &[Protection::All],
        };
        protections.iter().find_map(|protection| {
            let may = |candidate: &Candidate<'_>| {
                !candidate.is_protected(*protection)
                    && !self.stopped.contains(&candidate.job.id)
                    && self.may_give_way(candidate, class, right)
            };
            let eligible: BTreeSet<JobId> = candidates
                .by_job
                .values()
                .filter(|candidate| may(candidate))
                .map(|candidate| candidate.job.id)
                .collect();
            if eligible.is_empty() {
                return None;
            }
            self.cheapest(candidates, &eligible, &trial, job, class, right)
        })
    }

    /// The owner of a quota waits for those who borrow from it, but not for ever.
    fn has_waited(&self, job: &Job) -> bool {
        let JobState::Pending { since } = job.state else {
            return false;
        };
        self.state.now.since(since) >= self.state.policy.reclaim_wait_ms_max
    }

    /// Strictly lower classes give way, so that two jobs can never preempt each other in turn; and whoever holds more than
    /// its quota gives way to a quota, which then is no longer free to be borrowed.
    fn may_give_way(&self, candidate: &Candidate<'_>, class: Class, right: Right) -> bool {
        match right {
            Right::Priority => candidate.active.class > class,
            Right::Reclaim { owner } => {
                candidate.owner != owner
                    && candidate.active.class >= Class::Standard
                    && self.borrowed(candidate.owner) > GpuAmount::ZERO
            }
        }
    }

    /// What a team holds beyond its quota, without what this cycle stops.
    fn borrowed(&self, owner: TeamId) -> GpuAmount {
        let state = self.state;
        let stopped: GpuAmount = self
            .stopped
            .iter()
            .chain(&state.index.stopping)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|id| &state.jobs[id])
            .filter(|job| state.teams.quota_owner(job.team).unwrap_or(job.team) == owner)
            .filter_map(|job| Some(job.state.active()?.allocation.gpu_amount()))
            .sum();
        let quota = total(&state.teams.get(owner).spec.quota);
        let held = self.holdings.all(owner).saturating_sub(stopped);
        held.saturating_sub(quota)
    }

    /// The nodes on which a job fits in a trial; taken there.
    fn proof(&self, trial: &mut Capacity, job: &Job, class: Class) -> Option<Vec<NodeName>> {
        let allowance = self.barred(job, class).ok()?;
        let placed = place(trial, &job.spec, &self.view(job, class, &allowance))?;
        let mut nodes: Vec<NodeName> = placed
            .allocation
            .tasks
            .into_iter()
            .map(|task| task.node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        Some(nodes)
    }

    /// The victims that lose the least, over every place where the job could go.
    fn cheapest(
        &self,
        candidates: &Candidates<'a>,
        eligible: &BTreeSet<JobId>,
        trial: &Capacity,
        job: &Job,
        class: Class,
        right: Right,
    ) -> Option<Found> {
        let mut sets = self.sets(candidates, eligible, trial, job, class);
        sets.sort_by_key(|set| (candidates.loss(set), set.len()));
        // The cheapest first; each has to be proven, since what was counted leaves CPUs and memory out.
        sets.into_iter().take(PROOFS_MAX).find_map(|set| {
            let victims = self.needed(candidates, set, trial, job, class)?;
            let within = self.is_within_bounds(candidates, &victims, job, right);
            let mut freed = trial.clone();
            victims
                .iter()
                .for_each(|id| candidates.free(*id, &mut freed));
            let slot = self.proof(&mut freed, job, class)?;
            within.then_some(Found { victims, slot })
        })
    }

    /// Candidate sets of victims, one for each part of the network in which the job could go, and one of everybody in turn.
    fn sets(
        &self,
        candidates: &Candidates<'a>,
        eligible: &BTreeSet<JobId>,
        trial: &Capacity,
        job: &Job,
        class: Class,
    ) -> Vec<Vec<JobId>> {
        let mut sets = Vec::new();
        if let [role] = job.spec.roles.as_slice() {
            for shape in role.shapes() {
                self.sets_of_shape(candidates, eligible, trial, (job, shape, class), &mut sets);
            }
        }
        if sets.is_empty() {
            // Several roles, shares, data jobs: everybody in turn until it fits; what is needless is spared later.
            let mut all: Vec<&Candidate<'_>> =
                eligible.iter().map(|id| &candidates.by_job[id]).collect();
            all.sort_by_key(|candidate| candidate.rank());
            let mut freed = trial.clone();
            let mut set = Vec::new();
            for candidate in all.into_iter().take(VICTIMS_MAX) {
                candidates.free(candidate.job.id, &mut freed);
                set.push(candidate.job.id);
                if self.proof(&mut freed.clone(), job, class).is_some() {
                    sets.push(set);
                    break;
                }
            }
        }
        sets
    }

    fn sets_of_shape(
        &self,
        candidates: &Candidates<'a>,
        eligible: &BTreeSet<JobId>,
        trial: &Capacity,
        (job, shape, class): (&Job, &Shape, Class),
        sets: &mut Vec<Vec<JobId>>,
    ) {
        let Ok(allowance) = self.barred(job, class) else {
            return;
        };
        let view = self.view(job, class, &allowance);
        for index in kinds_for(trial, &job.spec, shape, &view) {
            let kind = &trial.kinds()[index];
            let Some((tasks, each)) = splits(shape, kind.gpus_max).next() else {
                continue;
            };
            let Some(gpus) = each.whole().filter(|gpus| *gpus > 0) else {
                continue;
            };
            let in_one = (kind.gpus_max / gpus).max(1).min(tasks);
            let count = usize::try_from(tasks.div_ceil(in_one)).expect("few tasks");
            let prices: Vec<(GpuTime, u32, Vec<JobId>)> = (0..)
                .zip(&kind.members)
                .filter_map(|(position, node)| {
                    let hold = trial.hold_on(*node);
                    let usable = trial.is_open(*node) && hold.is_none_or(|hold| view.may_use(hold));
                    let need = gpus * in_one;
                    let victims = usable
                        .then(|| self.victims_on(candidates, eligible, trial, *node, need))??;
                    Some((candidates.loss(&victims), position, victims))
                })
                .collect();
            for range in kind.ranges(shape.span) {
                let inside = prices
                    .iter()
                    .filter(|(_, position, _)| range.contains(position));
                let mut inside: Vec<_> = inside.collect();
                if inside.len() < count {
                    continue;
                }
                inside.sort_unstable_by_key(|(loss, position, _)| (*loss, *position));
                let set: BTreeSet<JobId> = inside
                    .into_iter()
                    .take(count)
                    .flat_map(|(_, _, victims)| victims.iter().copied())
                    .collect();
                sets.push(set.into_iter().collect());
            }
        }
    }

    /// Who has to leave a node so that it has so many GPUs free; nothing where that cannot be.
    fn victims_on(
        &self,
        candidates: &Candidates<'a>,
        eligible: &BTreeSet<JobId>,
        trial: &Capacity,
        node: NodeId,
        gpus: u32,
    ) -> Option<Vec<JobId>> {
        let mut free = trial.whole_gpus(node).count_ones();
        if free >= gpus {
            return Some(Vec::new());
        }
        let tenants = self.state.index.tenants_of(node);
        let mut there: BTreeMap<JobId, u32> = BTreeMap::new();
        for Tenant { job, gpus, .. } in tenants {
            if eligible.contains(job) {
                *there.entry(*job).or_default() += gpus;
            }
        }
        let mut order: Vec<(JobId, u32)> = there.into_iter().collect();
        order.sort_by_key(|(id, _)| candidates.by_job[id].rank());
        let mut victims = Vec::new();
        for (id, held) in order {
            free += held;
            victims.push(id);
            if free >= gpus {
                return Some(victims);
            }
        }
        None
    }

    /// The victims without which the job would not fit, of a set with which it does; the dearest are spared first.
    fn needed(
        &self,
        candidates: &Candidates<'a>,
        mut set: Vec<JobId>,
        trial: &Capacity,
        job: &Job,
        class: Class,
    ) -> Option<Vec<JobId>> {
        let mut freed = trial.clone();
        set.iter().for_each(|id| candidates.free(*id, &mut freed));
        self.proof(&mut freed.clone(), job, class)?;
        set.sort_by_key(|id| candidates.by_job[id].rank());
        let mut needed = Vec::new();
        for id in set.into_iter().rev() {
            let mut without = freed.clone();
            candidates.occupy(id, &mut without);
            if self.proof(&mut without.clone(), job, class).is_some() {
                freed = without;
            } else {
                needed.push(id);
            }
        }
        needed.reverse();
        Some(needed)
    }

    /// Whether the victims lose no more than is in proportion to what is asked for. A single one may: gangs are whole.
    fn is_within_bounds(
        &self,
        candidates: &Candidates<'a>,
        victims: &[JobId],
        job: &Job,
        right: Right,
    ) -> bool {
        if victims.len() > VICTIMS_MAX {
            return false;
        }
        if let Right::Reclaim { .. } = right {
            // No team is brought below its quota by more than the one gang that reaches across it.
            let mut left: BTreeMap<TeamId, GpuAmount> = BTreeMap::new();
            for id in victims {
                let candidate = &candidates.by_job[id];
                let borrowed = left
                    .entry(candidate.owner)
                    .or_insert_with(|| self.borrowed(candidate.owner));
                if borrowed.is_zero() {
                    return false;
                }
                *borrowed = borrowed.saturating_sub(candidate.gpus);
            }
        }
        let held: GpuAmount = victims.iter().map(|id| candidates.by_job[id].gpus).sum();
        let percent = u64::from(self.state.policy.collateral_percent_max);
        let asked = job.spec.gpus().thousandths();
        let bound = asked + asked * percent / 100;
        victims.len() <= 1 || held.thousandths() <= bound
    }
}

impl<'a> Candidates<'a> {
    fn of(state: &'a State) -> Self {
        let jobs = state.active_jobs();
        let by_job = jobs.filter_map(|job| Some((job.id, Candidate::of(state, job)?)));
        Self {
            by_job: by_job.collect(),
        }
    }

    fn loss(&self, victims: &[JobId]) -> GpuTime {
        victims.iter().map(|id| self.by_job[id].loss).sum()
    }

    fn free(&self, id: JobId, capacity: &mut Capacity) {
        let Candidate { job, active, .. } = &self.by_job[&id];
        capacity.give_back_gang(&active.nodes, &active.allocation);
        capacity.give_back_resources(&job.spec.resources);
    }

    fn occupy(&self, id: JobId, capacity: &mut Capacity) {
        let Candidate { job, active, .. } = &self.by_job[&id];
        capacity.take_gang(&active.nodes, &active.allocation);
        capacity.take_resources(&job.spec.resources);
    }
}
