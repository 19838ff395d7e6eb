//! How attempts fail: by their own doing, by that of the software around them, or because a part of the gang is gone.

use antiphon_types::{
    AttemptId, Body, Exit, ExitClass, NodeName, Observation, TaskAllocation, TaskId,
};

use super::World;
use super::fate::FlawAt;
use super::record::Cause;
use super::run::Doing;

/// Why an attempt fails by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Its job does not get past this point.
    Flaw,
    /// The software around it failed: tried again, it goes on.
    Glitch,
}

impl World<'_> {
    /// An attempt fails by itself.
    pub(super) fn fails(&mut self, attempt: AttemptId, turn: u32, why: Why) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if !run.is_on(attempt, turn) {
            return;
        }
        run.leave(self.now);
        run.lose(Cause::Software);
        run.record.failures += 1;
        let class = match why {
            Why::Flaw => run.fate.flaw.map(|flaw| flaw.class),
            Why::Glitch => {
                run.fate.glitch_again(&self.setting.faults);
                None
            }
        };
        let class = class.unwrap_or(ExitClass::Software);
        let exit = Exit::Code {
            code: 1,
            class: Some(class),
            evidence: format!("simulated: {class}"),
        };
        self.end_tasks(attempt, &exit);
    }

    /// Whether a job has got past what it fails at: its out-of-memory ladder has brought it there.
    pub(super) fn is_past_flaw(&self, place: usize) -> bool {
        let run = &self.runs[place];
        let job = run.id.and_then(|id| self.state.job(id));
        let taken = job.map_or(0, |job| job.rungs);
        let past = |flaw: FlawAt| flaw.rungs.is_some_and(|rungs| rungs <= taken);
        run.fate.flaw.is_some_and(past)
    }

    /// The speed on the step of its out-of-memory ladder that a job stands on.
    pub(super) fn pace(&self, attempt: AttemptId) -> f64 {
        let memory = self.setting.faults.memory;
        let memory = memory.filter(|_| self.is_past_flaw(self.place_of(attempt.job)));
        memory.map_or(1.0, |memory| f64::from(memory.speed_permille) / 1_000.0)
    }

    /// Attempts with a task on a node, those first that came first.
    pub(super) fn attempts_on(&self, node: &NodeName) -> Vec<AttemptId> {
        let tenants = self.state.tenants(node).into_iter();
        let active = tenants.filter_map(|job| self.state.job(job)?.state.active());
        active.map(|active| active.attempt).collect()
    }

    /// What runs on a node does nothing more, and nobody knows yet.
    pub(super) fn hang(&mut self, attempt: AttemptId) {
        let now = self.now;
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on_mut(attempt).is_none() {
            return;
        }
        run.reckon(now);
        if let Some(on) = run.on.as_mut() {
            on.doing = Doing::Hang;
            on.turn += 1;
        }
    }

    /// Those tasks of an attempt end that a fault has hit, and the gang with them.
    pub(super) fn hit(
        &mut self,
        attempt: AttemptId,
        cause: Cause,
        is_hit: &dyn Fn(&TaskAllocation) -> bool,
        exit: &Exit,
    ) {
        let place = self.place_of(attempt.job);
        let job = self.state.job(attempt.job);
        let Some(active) = job.and_then(|job| job.state.active()) else {
            return;
        };
        let tasks = active.allocation.tasks.iter().zip(active.tasks());
        let hit: Vec<TaskId> = tasks
            .filter(|(task, _)| is_hit(task))
            .map(|(_, (id, _))| id)
            .collect();
        let whole = hit.len() == active.allocation.tasks.len();
        let run = &mut self.runs[place];
        if hit.is_empty() || run.on_mut(attempt).is_none() {
            return;
        }
        self.hang(attempt);
        let run = &mut self.runs[place];
        run.lose(cause);
        run.record.failures += 1;
        if whole {
            run.leave(self.now);
        }
        for task in hit {
            let exit = exit.clone();
            self.event(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }
}
