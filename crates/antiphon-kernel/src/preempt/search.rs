//! Looks for the whole gangs that have to leave for a job: the set that loses the least of those that provably make room. Who
//! may be asked to leave at all, `preempt` says.

use std::collections::BTreeSet;
use std::ops::Range;

use antiphon_types::{Class, GpuAmount, GpuTime, JobId, NodeName, Shape};

use super::{Protection, Right, VICTIMS_MAX};
use crate::allowance::Allowance;
use crate::capacity::{Capacity, Kind, NodeId};
use crate::jobs::Job;
use crate::order::Cycle;
use crate::place::{View, is_too_wide, kinds_for, place_for_trial, splits, tasks_in_one};
use crate::stake::Stake;
use crate::teams::TeamId;

/// Sets of victims whose proof is tried for one job: the cheapest most often hold.
const PROOFS_MAX: usize = 4;

/// What makes room.
pub(crate) struct Found {
    pub(crate) victims: Vec<JobId>,
    /// Where the job will go.
    pub(crate) slot: Vec<NodeName>,
}

/// Looks for room for one job.
pub(super) struct Search<'s, 'a> {
    pub(super) cycle: &'s Cycle<'a>,
    pub(super) job: &'s Job,
    pub(super) class: Class,
    pub(super) right: Right,
    /// What the job's team may take.
    pub(super) allowance: &'s Allowance,
    /// What each team holds beyond its quota.
    pub(super) borrowed: &'s [GpuAmount],
    /// What will be free without anybody being asked. Whatever is tried on it is undone.
    pub(super) trial: &'s mut Capacity,
}

/// What it costs to clear a node for its part of the job.
struct Price {
    loss: GpuTime,
    /// The node among those of its kind.
    position: u32,
    /// Who leaves, among all victims that were looked at.
    victims: Range<usize>,
}

impl Search<'_, '_> {
    /// Room that is made without anybody leaving, or else by the cheapest of those who may be asked; the protections fall one
    /// after the other.
    pub(super) fn find(&mut self, protections: &[Protection]) -> Option<Found> {
        if let Some(slot) = self.proof() {
            let victims = Vec::new();
            return Some(Found { victims, slot });
        }
        protections.iter().find_map(|protection| {
            if self.is_hopeless(*protection) {
                // Test builds look nevertheless.
                debug_assert!(self.cheapest(*protection).is_none());
                return None;
            }
            self.cheapest(*protection)
        })
    }

    /// Room that is made by the cheapest set of those who may be asked.
    fn cheapest(&mut self, protection: Protection) -> Option<Found> {
        let mut sets = self.sets(protection);
        sets.sort_by_cached_key(|set| (self.loss(set), set.len()));
        // The cheapest first; each has to be proven, since what was counted leaves CPUs and memory out.
        let mut proofs = sets.into_iter().take(PROOFS_MAX);
        proofs.find_map(|set| self.proven(set, protection))
    }

    fn view(&self) -> View<'_> {
        self.cycle.view(self.job, self.class, self.allowance)
    }

    /// The nodes on which the job fits as the trial stands.
    fn proof(&mut self) -> Option<Vec<NodeName>> {
        let view = self.cycle.view(self.job, self.class, self.allowance);
        place_for_trial(self.trial, &self.job.spec, &view)
    }

    /// Whether there would be too few GPUs on each kind of node even with everybody gone who may leave: counting is cheaper than
    /// looking for the cheapest of them.
    fn is_hopeless(&self, protection: Protection) -> bool {
        let leaves = |id: JobId| {
            let stake = self.cycle.state.index.stakes.get(id);
            stake.is_some_and(|stake| self.may_leave(stake, protection))
        };
        let gone = |node: NodeId| {
            let tenants = self.cycle.state.index.tenants_of(node).iter();
            let leaving = tenants.filter(|tenant| leaves(tenant.job));
            leaving.map(|tenant| tenant.gpus).sum()
        };
        is_too_wide(self.trial, &self.job.spec, &self.view(), gone)
    }

    fn may_leave(&self, stake: &Stake, protection: Protection) -> bool {
        stake.may_give_way(self.class, self.right, self.borrowed)
            && !stake.is_protected(protection, self.right, self.cycle.state.now)
            && !self.cycle.stopped.contains(&stake.job)
    }

    fn stake(&self, id: JobId) -> &Stake {
        let stake = self.cycle.state.index.stakes.get(id);
        stake.expect("whoever is asked to leave has something at stake")
    }

    fn loss(&self, victims: &[JobId]) -> GpuTime {
        let state = self.cycle.state;
        victims.iter().map(|id| self.stake(*id).loss(state)).sum()
    }

    /// Candidate sets of victims, one for each part of the network in which the job could go, or one of everybody in turn.
    fn sets(&mut self, protection: Protection) -> Vec<Vec<JobId>> {
        let mut sets = Vec::new();
        if let [role] = self.job.spec.roles.as_slice() {
            for shape in role.shapes() {
                self.sets_of_shape(shape, protection, &mut sets);
            }
        }
        if sets.is_empty() {
            // Several roles, shares, data jobs: everybody in turn until it fits; what is needless is spared later.
            let state = self.cycle.state;
            let all = state.index.all_stakes();
            let mut all: Vec<&Stake> = all
                .filter(|stake| self.may_leave(stake, protection))
                .collect();
            all.sort_by_cached_key(|stake| stake.rank(state));
            let mut set = Vec::new();
            for stake in all.into_iter().take(VICTIMS_MAX) {
                self.free(stake.job);
                set.push(stake.job);
                if self.proof().is_some() {
                    sets.push(set.clone());
                    break;
                }
            }
            set.iter().for_each(|id| self.occupy(*id));
        }
        sets
    }

    fn sets_of_shape(&self, shape: &Shape, protection: Protection, sets: &mut Vec<Vec<JobId>>) {
        let view = self.view();
        let mut there = Vec::new();
        for index in kinds_for(self.trial, &self.job.spec, shape, &view) {
            let kind = &self.trial.kinds()[index];
            let Some((tasks, each)) = splits(shape, kind.gpus_max).next() else {
                continue;
            };
            let Some(gpus) = each.whole().filter(|gpus| *gpus > 0) else {
                continue;
            };
            let Some(usual) = kind.members.first() else {
                continue;
            };
            let usual = self.trial.stand(*usual).size;
            let in_one = tasks_in_one(shape, each, kind.gpus_max, &usual).min(tasks);
            let count = usize::try_from(tasks.div_ceil(in_one)).expect("few tasks");
            let mut victims = Vec::new();
            let mut prices = Vec::new();
            for (position, node) in (0..).zip(&kind.members) {
                let hold = self.trial.hold_on(*node);
                let usable =
                    self.trial.is_open(*node) && hold.is_none_or(|hold| view.may_use(hold));
                if !usable {
                    continue;
                }
                let before = victims.len();
                let need = gpus * in_one;
                if let Some(loss) = self.clear(*node, need, protection, &mut there, &mut victims) {
                    prices.push(Price {
                        loss,
                        position,
                        victims: before..victims.len(),
                    });
                }
            }
            cheapest_in_each(kind, shape, &prices, count, &victims, sets);
        }
    }

    /// Adds to the victims who has to leave a node so that it has so many GPUs free, and says what they lose; nothing where
    /// that cannot be.
    fn clear<'c>(
        &'c self,
        node: NodeId,
        gpus: u32,
        protection: Protection,
        there: &mut Vec<(&'c Stake, u32)>,
        victims: &mut Vec<JobId>,
    ) -> Option<GpuTime> {
        let mut free = self.trial.whole_gpus(node).count_ones();
        if free >= gpus {
            return Some(GpuTime::ZERO);
        }
        let state = self.cycle.state;
        there.clear();
        // In order of jobs, so that the tasks of one stand together.
        for tenant in state.index.tenants_of(node) {
            match there.last_mut() {
                Some((last, held)) if last.job == tenant.job => *held += tenant.gpus,
                Some(_) | None => {
                    let stake = state.index.stakes.get(tenant.job);
                    let stake = stake.filter(|stake| self.may_leave(stake, protection));
                    there.extend(stake.map(|stake| (stake, tenant.gpus)));
                }
            }
        }
        if free + there.iter().map(|(_, held)| held).sum::<u32>() < gpus {
            return None;
        }
        if there.len() > 1 {
            there.sort_by_cached_key(|(stake, _)| stake.rank(state));
        }
        let mut loss = GpuTime::ZERO;
        for (stake, held) in there {
            if free >= gpus {
                break;
            }
            free += *held;
            loss = loss + stake.loss(state);
            victims.push(stake.job);
        }
        Some(loss)
    }

    /// Proves that a set makes room, without those that need not leave; the dearest are spared first.
    fn proven(&mut self, mut set: Vec<JobId>, protection: Protection) -> Option<Found> {
        set.iter().for_each(|id| self.free(*id));
        if self.proof().is_none() {
            set.iter().for_each(|id| self.occupy(*id));
            return None;
        }
        set.sort_by_cached_key(|id| self.stake(*id).rank(self.cycle.state));
        let mut victims = Vec::new();
        for id in set.into_iter().rev() {
            self.occupy(id);
            if self.proof().is_none() {
                self.free(id);
                victims.push(id);
            }
        }
        victims.reverse();
        let slot = self.proof();
        victims.iter().for_each(|id| self.occupy(*id));
        let slot = slot.filter(|_| self.is_within_bounds(&victims, protection))?;
        Some(Found { victims, slot })
    }

    /// Frees what a victim holds.
    fn free(&mut self, id: JobId) {
        let job = &self.cycle.state.jobs[&id];
        if let Some(active) = job.state.active() {
            self.trial.give_back_gang(&active.nodes, &active.allocation);
            self.trial.give_back_resources(&job.spec.resources);
        }
    }

    /// Takes it again.
    fn occupy(&mut self, id: JobId) {
        let job = &self.cycle.state.jobs[&id];
        if let Some(active) = job.state.active() {
            self.trial.take_gang(&active.nodes, &active.allocation);
            self.trial.take_resources(&job.spec.resources);
        }
    }

    /// Whether the victims lose no more than is in proportion to what is asked for. A single one may: gangs are whole. Where
    /// no protection is left, neither is this one: the owner of a quota gets it back whatever the borrowers' gangs are like.
    fn is_within_bounds(&self, victims: &[JobId], protection: Protection) -> bool {
        if victims.len() > VICTIMS_MAX {
            return false;
        }
        let victims = || victims.iter().map(|id| self.stake(*id));
        if let Right::Reclaim { .. } = self.right {
            // No team is brought below its quota by more than the one gang that reaches across it.
            let mut left = self.borrowed.to_vec();
            for stake in victims() {
                let borrowed = &mut left[place(stake.owner)];
                if borrowed.is_zero() {
                    return false;
                }
                *borrowed = borrowed.saturating_sub(stake.gpus);
            }
        }
        let held: GpuAmount = victims().map(|stake| stake.gpus).sum();
        let percent = u64::from(self.cycle.state.policy.collateral_percent_max);
        let asked = self.job.spec.gpus().thousandths();
        let bound = asked + asked * percent / 100;
        victims().count() <= 1 || protection == Protection::None || held.thousandths() <= bound
    }
}

/// The cheapest nodes in each part of the network that has enough of them: whoever has to leave those.
fn cheapest_in_each(
    kind: &Kind,
    shape: &Shape,
    prices: &[Price],
    count: usize,
    victims: &[JobId],
    sets: &mut Vec<Vec<JobId>>,
) {
    for range in kind.ranges(shape.span) {
        let from = prices.partition_point(|price| price.position < range.start);
        let until = prices.partition_point(|price| price.position < range.end);
        if until - from < count || count == 0 {
            continue;
        }
        let mut inside: Vec<&Price> = prices[from..until].iter().collect();
        inside.select_nth_unstable_by_key(count - 1, |price| (price.loss, price.position));
        let chosen = inside.into_iter().take(count);
        let set: BTreeSet<JobId> = chosen
            .flat_map(|price| victims[price.victims.clone()].iter().copied())
            .collect();
        sets.push(set.into_iter().collect());
    }
}

pub(super) fn place(team: TeamId) -> usize {
    usize::try_from(team).expect("few teams")
}
