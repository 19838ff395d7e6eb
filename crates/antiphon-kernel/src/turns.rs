//! Jobs of one team take turns: a run gives way to a waiting job of its team and class that needs far less, or of which
//! nothing is known and that has had far less. Never across teams: what jobs claim orders their own team alone.
//!
//! Also moves runs up: who runs in a slow shape begins again in a faster one, where that is worth two restarts.
//!
//! With known remainders this is shortest remaining service first, with nothing known least attained service first (Gu et
//! al., "Tiresias", NSDI 2019); the factor between the two keeps jobs from taking turns for ever.

use antiphon_types::{
    Class, GpuAmount, GpuTime, JobId, Millis, Shape, SlotReason, StopCause, Timestamp,
};

use crate::allowance::Allowance;
use crate::expect::{attained_level, cost, patience, speed_of, weighed};
use crate::jobs::{Active, Job, JobState};
use crate::order::Cycle;
use crate::place::place_for_trial;
use crate::preempt::Found;
use crate::state::State;
use crate::stop;

/// Blocked jobs of a class that are looked at in one cycle.
const LOOKS_MAX: u32 = 64;

/// Blocked jobs for which one cycle looks for room: each tries to place it a few times.
const SEARCHES_MAX: u32 = 8;

/// Runs that give way to one job at most.
const VICTIMS_MAX: usize = 16;

/// A run that would give way to a job, and what it counts.
type Behind<'a> = (GpuTime, &'a Job, &'a Active);

impl<'a> Cycle<'a> {
    /// Has runs give way to jobs of their team whose turn it is.
    pub(crate) fn take_turns(&mut self, class: Class) {
        let gain = self.state.policy.turn_gain_permille;
        if gain == 0 || !self.state.index.runs_as(class) {
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
            let Ok(allowance) = self.barred(job, class) else {
                blocked.skip_team(job.team);
                continue;
            };
            if let Err(again) = self.may_preempt() {
                self.wake(again);
                return;
            }
            let behind = self.behind(job, class);
            if behind.is_empty() {
                continue;
            }
            if let Some(found) = self.room_by_turns(&behind, job, class, &allowance) {
                let cause = StopCause::Turn { preemptor: job.id };
                self.clear(job, found, &cause);
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
        let stakes = state.index.stakes.values();
        let slow = stakes.filter(|stake| stake.class == class && stake.speed < 1_000);
        let slow = slow.filter_map(|stake| {
            let job = &state.jobs[&stake.job];
            let active = job.state.active()?;
            let saves = active.attached && job.spec.checkpoint.is_some();
            let left_alone = stake.is_near_end(state.now) || stake.is_moved(state.now);
            (saves && !left_alone).then(|| (cost_now(job, active, state.now), job, active))
        });
        let mut slow: Vec<Behind<'a>> = slow.collect();
        slow.sort_by_key(|(counts, job, _)| (*counts, job.id));
        for (counts, job, active) in slow
            .into_iter()
            .take(usize::try_from(SEARCHES_MAX).expect("few"))
        {
            if self.stopped.contains(&job.id) || self.may_preempt().is_err() {
                continue;
            }
            if let Some(victims) = self.faster_room(counts, job, active, class) {
                let cause = StopCause::Turn { preemptor: job.id };
                for id in std::iter::once(job.id).chain(victims) {
                    stop::begin(state, &state.jobs[&id], cause.clone(), &mut self.actions);
                    self.stopped.insert(id);
                }
            }
        }
    }

    /// Who else has to stop for a run to begin again in a faster shape; nothing where that is not worth it or not possible.
    fn faster_room(
        &mut self,
        counts: GpuTime,
        job: &'a Job,
        active: &'a Active,
        class: Class,
    ) -> Option<Vec<JobId>> {
        let state = self.state;
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
        let bar = GpuTime::from_gpu_millis(
            counts.gpu_millis() / 1_000 * u64::from(state.policy.turn_gain_permille),
        );
        let mut behind = self.behind_bar(job, class, bar);
        behind.retain(|(_, other, _)| other.id != job.id);
        for shape in shapes {
            let mut spec = job.spec.clone();
            spec.roles[0].alternatives.clear();
            spec.roles[0].shape = shape.clone();
            let only = Job {
                spec,
                ..job.clone()
            };
            // Those alone who hold what this shape needs.
            let there: Vec<Behind<'a>> = behind
                .iter()
                .filter(|(_, _, active)| {
                    let on = active
                        .nodes
                        .iter()
                        .map(|node| &state.node_at(*node).spec.gpu_type);
                    shape
                        .gpu_type
                        .as_ref()
                        .is_none_or(|name| on.clone().any(|of| of == name))
                })
                .copied()
                .collect();
            if let Some(found) = self.room_by_turns(&there, &only, class, &allowance) {
                return Some(found.victims);
            }
        }
        None
    }

    /// Whether whoever of a class could get in the way of another gives way to it when its turn comes: all are of one team
    /// and save when they are asked to. Then nothing needs to be held back for those who have not waited too long.
    pub(crate) fn all_take_turns(&self, class: Class) -> bool {
        let queue = &self.state.index.queue;
        self.state.policy.turn_gain_permille > 0
            && queue.lines(class).nth(1).is_none()
            && queue.all_are_checkpointed(class)
    }

    /// Whether a job may be made to wait for its turn still.
    pub(crate) fn is_patient(&self, job: &Job) -> bool {
        let JobState::Pending { since } = job.state else {
            return true;
        };
        self.state.now.since(since) < patience(&self.state.policy, job)
    }

    /// The runs of a job's team that stand far enough behind it to give way, those that count most first. Has another cycle
    /// look again when the next of them may.
    fn behind(&mut self, job: &Job, class: Class) -> Vec<Behind<'a>> {
        self.behind_bar(job, class, bar(self.state, job))
    }

    fn behind_bar(&mut self, job: &Job, class: Class, bar: GpuTime) -> Vec<Behind<'a>> {
        let state = self.state;
        let now = state.now;
        let mut again = None;
        let mut behind: Vec<Behind<'a>> = Vec::new();
        for stake in state
            .index
            .stakes
            .values()
            .filter(|stake| stake.class == class)
        {
            let other = &state.jobs[&stake.job];
            let active = other.state.active().filter(|active| active.attached);
            // Who cannot save loses more than a turn is worth.
            let saves = other.team == job.team && other.spec.checkpoint.is_some();
            let Some(active) = active.filter(|_| saves) else {
                continue;
            };
            if self.stopped.contains(&other.id) {
                continue;
            }
            let counts = cost_now(other, active, now);
            if grows(other, active) {
                if counts < bar {
                    let at = now.after(until(had(other, active, now), bar, stake.gpus));
                    again = earliest(again, Some(at));
                    continue;
                }
            } else if counts < bar + stake.gpus.over(state.policy.restart_cost_ms) {
                // To begin again would cost more than is gained.
                continue;
            }
            if stake.is_near_end(now) || stake.is_moved(now) {
                again = earliest(again, stake.lapses(now));
                continue;
            }
            behind.push((counts, other, active));
        }
        self.wake(again);
        behind.sort_by_key(|(counts, other, _)| (std::cmp::Reverse(*counts), other.id));
        behind
    }

    /// Those who count most give way first, until there is room; whoever need not after all is spared.
    fn room_by_turns(
        &self,
        behind: &[Behind<'_>],
        job: &Job,
        class: Class,
        allowance: &Allowance,
    ) -> Option<Found> {
        let view = self.view(job, class, allowance);
        let mut trial = self.trial(job, class, &|_| false);
        if let Some(slot) = place_for_trial(&mut trial, &job.spec, &view) {
            let victims = Vec::new();
            return Some(Found { victims, slot });
        }
        let mut leaving: Vec<&Behind<'_>> = Vec::new();
        for run in behind.iter().take(VICTIMS_MAX) {
            let (_, other, active) = run;
            trial.give_back_gang(&active.nodes, &active.allocation);
            trial.give_back_resources(&other.spec.resources);
            leaving.push(run);
            if place_for_trial(&mut trial, &job.spec, &view).is_none() {
                continue;
            }
            // The last one is needed; those before it may have left nothing that is used.
            for index in (0..leaving.len() - 1).rev() {
                let (_, other, active) = leaving[index];
                trial.take_gang(&active.nodes, &active.allocation);
                trial.take_resources(&other.spec.resources);
                if place_for_trial(&mut trial, &job.spec, &view).is_some() {
                    leaving.remove(index);
                } else {
                    trial.give_back_gang(&active.nodes, &active.allocation);
                    trial.give_back_resources(&other.spec.resources);
                }
            }
            let slot = place_for_trial(&mut trial, &job.spec, &view)?;
            let victims: Vec<JobId> = leaving.iter().map(|(_, other, _)| other.id).collect();
            return Some(Found { victims, slot });
        }
        None
    }
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

/// What a run has to count at least, to give way to a job.
fn bar(state: &State, job: &Job) -> GpuTime {
    let own = u128::from(cost(job).gpu_millis());
    let bar = own * u128::from(state.policy.turn_gain_permille) / 1_000;
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
