//! Jobs of one team take turns: a run gives way to a waiting job of its team and class that needs far less, or of which
//! nothing is known and that has had far less. Never across teams: what jobs claim orders their own team alone.
//!
//! Also moves runs up: who runs in a slow shape begins again in a faster one, where that is worth two restarts.
//!
//! With known remainders this is shortest remaining service first, with nothing known least attained service first (Gu et
//! al., "Tiresias", NSDI 2019); the factor between the two keeps jobs from taking turns for ever.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use antiphon_types::{
    Class, GpuAmount, GpuTime, JobId, JobSpec, Millis, Shape, Slot, SlotReason, StopCause,
    Timestamp,
};

use crate::allowance::Allowance;
use crate::capacity::{Capacity, NodeId, id};
use crate::expect::{attained_level, cost, patience, speed_of, weighed};
use crate::jobs::{Active, Job, JobState};
use crate::order::Cycle;
use crate::place::{View, is_too_wide, place_for_trial};
use crate::preempt::Found;
use crate::stake::Stake;
use crate::state::State;
use crate::stop;
use crate::teams::TeamId;

/// Blocked jobs of a class that are looked at in one cycle.
const LOOKS_MAX: u32 = 64;

/// Blocked jobs for which one cycle looks for room: each tries to place it a few times.
const SEARCHES_MAX: usize = 8;

/// Runs that give way to one job at most.
const VICTIMS_MAX: usize = 16;

/// A run that could give way, and what it counts in the order of its team as it stands now.
#[derive(Clone, Copy)]
struct Run<'a> {
    counts: GpuTime,
    stake: &'a Stake,
    job: &'a Job,
    active: &'a Active,
}

impl<'a> Cycle<'a> {
    /// Has runs give way to jobs of their team whose turn it is. `common` is the trial of those for whom nothing is held, if
    /// somebody has made it: it looks the same to all of them.
    pub(crate) fn take_turns(&mut self, class: Class, mut common: Option<Capacity>) {
        let gain = self.state.policy.turn_gain_permille;
        if gain == 0 || !self.state.index.runs_as(class) {
            return;
        }
        let mut blocked = self.blocked(class);
        let mut searches = SEARCHES_MAX;
        let mut runs_of: BTreeMap<TeamId, Vec<Run<'a>>> = BTreeMap::new();
        for _ in 0..LOOKS_MAX {
            let Some(job) = blocked.next(self) else {
                return;
            };
            let coming = self.slots.get(&job.id).map(|slot| slot.why);
            if coming == Some(SlotReason::Preemption) {
                continue;
            }
            let state = self.state;
            let runs = runs_of
                .entry(job.team)
                .or_insert_with(|| runs(state, class, job.team));
            if runs.is_empty() {
                blocked.skip_team(job.team);
                continue;
            }
            let Ok(allowance) = self.barred(job, class) else {
                blocked.skip_team(job.team);
                continue;
            };
            if let Err(again) = self.may_preempt() {
                self.wake(again);
                return;
            }
            let behind = self.behind(runs, bar(state, cost(job)));
            if behind.is_empty() {
                continue;
            }
            if self.might_make_room(&behind, &job.spec) {
                let mut own = None;
                let trial = if coming.is_some() {
                    &mut own
                } else {
                    &mut common
                };
                let trial = trial.get_or_insert_with(|| self.trial(job, class, &|_| false));
                debug_assert_eq!(*trial, self.trial(job, class, &|_| false));
                let found = self.room_by_turns(&behind, trial, job, &job.spec, class, &allowance);
                if let Some(found) = found.filter(|found| !self.is_overdue(found)) {
                    self.clear(job, found, &StopCause::Turn { preemptor: job.id });
                    common = None;
                }
            }
            searches -= 1;
            if searches == 0 {
                return;
            }
        }
    }

    /// Has runs in a slow shape begin again in a faster one, where that is free or held by a run that stands behind: what is
    /// gained has to be more than beginning again costs.
    pub(crate) fn move_up(&mut self, class: Class) {
        let state = self.state;
        if state.policy.turn_gain_permille == 0 {
            return;
        }
        let slow = state.index.slow(class);
        let slow = slow.filter(|stake| !stake.is_left_alone(state.now));
        let mut slow: Vec<Run<'a>> = slow.filter_map(|stake| Run::of(state, stake)).collect();
        slow.sort_by_key(|run| (run.counts, run.job.id));
        for run in slow.iter().take(SEARCHES_MAX) {
            let job = run.job;
            if self.stopped.contains(&job.id) || self.may_preempt().is_err() {
                continue;
            }
            if let Some(victims) = self.faster_room(run, class) {
                let cause = StopCause::Turn { preemptor: job.id };
                for id in std::iter::once(job.id).chain(victims) {
                    stop::begin(state, &state.jobs[&id], cause.clone(), &mut self.actions);
                    self.stopped.insert(id);
                }
            }
        }
    }

    /// Who else has to stop for a run to begin again in a faster shape; nothing where that is not worth it or not possible.
    fn faster_room(&mut self, run: &Run<'a>, class: Class) -> Option<Vec<JobId>> {
        let state = self.state;
        let Run {
            counts,
            job,
            active,
            ..
        } = *run;
        let [role] = job.spec.roles.as_slice() else {
            return None;
        };
        let speed = speed_of(&job.spec, &active.terms.shapes);
        let rest = counts.gpu_millis() / job.spec.gpus().thousandths().max(1) * 1_000;
        let again = state.policy.restart_cost_ms.as_millis() * 2;
        let worth = |faster: u32| {
            let now = rest * 1_000 / u64::from(speed);
            let then = rest * 1_000 / u64::from(faster.max(1));
            now.saturating_sub(then) > again
        };
        let shapes: Vec<Shape> = role
            .shapes()
            .filter(|shape| shape.speed > speed && worth(shape.speed))
            .cloned()
            .collect();
        if shapes.is_empty() {
            return None;
        }
        let allowance = self.barred(job, class).ok()?;
        let runs = runs(state, class, job.team);
        let mut behind = self.behind(&runs, bar(state, counts));
        behind.retain(|other| other.job.id != job.id);
        for shape in shapes {
            let mut spec = job.spec.clone();
            spec.roles[0].alternatives.clear();
            spec.roles[0].shape = shape.clone();
            // Those alone who hold what this shape needs.
            let there: Vec<Run<'a>> = behind
                .iter()
                .filter(|other| {
                    let nodes = &other.active.nodes;
                    let on = nodes.iter().map(|node| &state.node_at(*node).spec.gpu_type);
                    shape
                        .gpu_type
                        .as_ref()
                        .is_none_or(|name| on.clone().any(|of| of == name))
                })
                .copied()
                .collect();
            if !self.might_make_room(&there, &spec) {
                continue;
            }
            let mut trial = self.trial(job, class, &|_| false);
            let found = self.room_by_turns(&there, &mut trial, job, &spec, class, &allowance);
            if let Some(found) = found {
                return Some(found.victims);
            }
        }
        None
    }

    /// Whether whoever of a class could get in the way of another gives way to it when its turn comes: all are of one team
    /// and save when they are asked to. Then nothing needs to be held back for those who have not waited too long.
    pub(crate) fn all_take_turns(&self, class: Class) -> bool {
        let queue = &self.state.index.queue;
        // Whoever starts in this cycle is out of the way: the next cycle does not see him either.
        self.state.policy.turn_gain_permille > 0
            && queue.are_one_team_that_saves(class, &self.started)
    }

    /// Whether nodes are held back for a job of a class that need not be, since those who could get in its way take turns.
    pub(crate) fn is_needless(&self, job: &Job, slot: &Slot, turns: bool) -> bool {
        turns && slot.why == SlotReason::Blocked && self.is_patient(job)
    }

    /// Whether such a slot is left once all have started who do: those who start as less than they are do so after slots of
    /// their class were looked at.
    pub(crate) fn has_needless(&self) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|(id, slot)| {
            let job = self.state.jobs.get(id);
            let job = job.filter(|job| self.state.index.queue.holds(job.id));
            job.is_some_and(|job| self.is_needless(job, slot, self.all_take_turns(job.spec.class)))
        })
    }

    /// Whether a job may be made to wait for its turn still.
    pub(crate) fn is_patient(&self, job: &Job) -> bool {
        let JobState::Pending { since } = job.state else {
            return true;
        };
        self.state.now.since(since) < patience(&self.state.policy, job)
    }

    /// The runs of a team that count enough to give way to a job with this bar, those that count most first. Has another
    /// cycle look again when the next of them may.
    fn behind(&mut self, runs: &[Run<'a>], bar: GpuTime) -> Vec<Run<'a>> {
        let now = self.state.now;
        let restart = self.state.policy.restart_cost_ms;
        let mut again = None;
        let mut behind = Vec::new();
        for run in runs
            .iter()
            .filter(|run| !self.stopped.contains(&run.job.id))
        {
            if grows(run.job, run.active) {
                if run.counts < bar {
                    let had = had(run.job, run.active, now);
                    let at = now.after(until(had, bar, run.stake.gpus));
                    again = earliest(again, Some(at));
                    continue;
                }
            } else if run.counts < bar + run.stake.gpus.over(restart) {
                // To begin again would cost more than is gained.
                continue;
            }
            if run.stake.is_left_alone(now) {
                again = earliest(again, run.stake.lapses(now));
                continue;
            }
            behind.push(*run);
        }
        self.wake(again);
        behind
    }

    /// Whether enough GPUs would come free, wherever they are: counting is cheaper than placing.
    fn might_make_room(&self, behind: &[Run<'a>], spec: &JobSpec) -> bool {
        let behind = behind.iter().take(VICTIMS_MAX);
        self.coming_free() + behind.map(|run| run.stake.gpus).sum() >= self.asked(spec)
    }

    /// Those who count most give way first, until there is room for a job as `spec` describes it; whoever need not after all is
    /// spared. The trial is left as it was.
    fn room_by_turns(
        &self,
        behind: &[Run<'a>],
        trial: &mut Capacity,
        job: &Job,
        spec: &JobSpec,
        class: Class,
        allowance: &Allowance,
    ) -> Option<Found> {
        let view = self.view(job, class, allowance);
        if let Some(slot) = place_for_trial(trial, spec, &view) {
            let victims = Vec::new();
            return Some(Found { victims, slot });
        }
        // Counting is cheaper than a dozen trials, and most who wait for their turn wait in vain.
        if is_too_wide(trial, spec, &view, of_each_node(behind)) {
            // Test builds look nevertheless.
            debug_assert!(Self::room_of_those_behind(behind, trial, spec, &view).is_none());
            return None;
        }
        Self::room_of_those_behind(behind, trial, spec, &view)
    }

    fn room_of_those_behind(
        behind: &[Run<'a>],
        trial: &mut Capacity,
        spec: &JobSpec,
        view: &View<'_>,
    ) -> Option<Found> {
        let mut leaving: Vec<&Run<'a>> = Vec::new();
        let mut slot = None;
        for run in behind.iter().take(VICTIMS_MAX) {
            run.free(trial);
            leaving.push(run);
            if place_for_trial(trial, spec, view).is_none() {
                continue;
            }
            // The last one is needed; those before it may have left nothing that is used.
            for index in (0..leaving.len() - 1).rev() {
                leaving[index].occupy(trial);
                if place_for_trial(trial, spec, view).is_some() {
                    leaving.remove(index);
                } else {
                    leaving[index].free(trial);
                }
            }
            slot = place_for_trial(trial, spec, view);
            break;
        }
        leaving.iter().for_each(|run| run.occupy(trial));
        let victims: Vec<JobId> = leaving.iter().map(|run| run.job.id).collect();
        slot.map(|slot| Found { victims, slot })
    }
}

/// GPUs that those who may give way hold of each node.
fn of_each_node(behind: &[Run<'_>]) -> impl Fn(NodeId) -> u32 + use<> {
    let mut held: BTreeMap<NodeId, u32> = BTreeMap::new();
    for run in behind.iter().take(VICTIMS_MAX) {
        for (node, task) in run
            .active
            .nodes
            .iter()
            .zip(run.active.allocation.tasks.iter())
        {
            *held.entry(*node).or_default() += id(task.gpus.len());
        }
    }
    move |node| held.get(&node).copied().unwrap_or(0)
}

impl<'a> Run<'a> {
    fn of(state: &'a State, stake: &'a Stake) -> Option<Self> {
        let job = &state.jobs[&stake.job];
        let active = job.state.active()?;
        Some(Self {
            counts: cost_now(job, active, state.now),
            stake,
            job,
            active,
        })
    }

    fn free(&self, trial: &mut Capacity) {
        trial.give_back_gang(&self.active.nodes, &self.active.allocation);
        trial.give_back_resources(&self.job.spec.resources);
    }

    fn occupy(&self, trial: &mut Capacity) {
        trial.take_gang(&self.active.nodes, &self.active.allocation);
        trial.take_resources(&self.job.spec.resources);
    }
}

/// The runs of a class and team that take turns, those that count most first.
fn runs(state: &State, class: Class, team: TeamId) -> Vec<Run<'_>> {
    let stakes = state.index.turns(class, team);
    let mut runs: Vec<Run<'_>> = stakes.filter_map(|stake| Run::of(state, stake)).collect();
    runs.sort_by_key(|run| (Reverse(run.counts), run.job.id));
    runs
}

/// What a run counts in the order of its team as it stands now: GPU-time that it still needs, or that it has had where
/// nothing is known of it.
fn cost_now(job: &Job, active: &Active, now: Timestamp) -> GpuTime {
    let gpus = active.allocation.gpu_amount();
    let ends = [active.terms.ends_at, active.terms.ends_by];
    let end = ends.into_iter().flatten().find(|end| *end > now);
    match end.filter(|_| !job.overran) {
        Some(end) => {
            let speed = u64::from(speed_of(&job.spec, &active.terms.shapes));
            let full = end.since(now).as_millis() / 1_000 * speed;
            weighed(job, gpus.over(Millis::from_millis(full)), gpus)
        }
        None => attained_level(had(job, active, now), gpus),
    }
}

/// Whether that grows while the job runs.
fn grows(job: &Job, active: &Active) -> bool {
    job.overran || active.terms.ends_at.is_none()
}

/// GPU-time that a job has had by now.
fn had(job: &Job, active: &Active, now: Timestamp) -> GpuTime {
    let gpus = active.allocation.gpu_amount();
    job.attained + gpus.over(now.since(active.launched))
}

/// What a run has to count at least, to give way to what counts so much.
fn bar(state: &State, counts: GpuTime) -> GpuTime {
    let bar = u128::from(counts.gpu_millis()) * u128::from(state.policy.turn_gain_permille) / 1_000;
    GpuTime::from_gpu_millis(u64::try_from(bar).unwrap_or(u64::MAX))
}

/// How long it takes what a run has had to pass a bar: levels are powers of two.
fn until(had: GpuTime, bar: GpuTime, gpus: GpuAmount) -> Millis {
    let level = bar.gpu_millis().checked_next_power_of_two();
    let missing = level.unwrap_or(u64::MAX).saturating_sub(had.gpu_millis());
    let ms = u128::from(missing) * 1_000 / u128::from(gpus.thousandths().max(1)) + 1;
    Millis::from_millis(u64::try_from(ms).unwrap_or(u64::MAX / 4))
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}
