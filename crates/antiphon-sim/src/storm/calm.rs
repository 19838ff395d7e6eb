//! The faults stop: everything is offered and allowed, reports arrive at once, processes end when they are done, trainers
//! save when they are asked to. What does not end then never would.

use antiphon_kernel::{JobState, admit, explain};
use antiphon_types::{AttemptId, Command, GpuAmount, JobId, NodeName, Observation, Policy};

use super::processes::Truth;
use super::server::Input;
use super::{Broken, Checked, Storm, must};

/// Rounds for each job that is left: a stop and a retry or two, one behind the other.
const ROUNDS_PER_JOB: u64 = 80;

impl Storm {
    pub(super) fn calm_down(&mut self) -> Checked {
        self.calm = true;
        self.outage = false;
        self.repair_all()?;
        let policy = Box::new(Policy {
            ended_jobs_max: self.server.state.policy().ended_jobs_max,
            ..Policy::default()
        });
        self.ask(Command::SetPolicy { policy })?;
        self.ask(Command::SetTeams { teams: Vec::new() })?;
        self.ask(Command::Unpause)?;
        let specs = self.machines.specs.clone();
        for node in specs {
            self.ask(Command::Undrain { node: node.name })?;
        }
        let left = self.jobs_where(|state| !state.is_ended()).len();
        let rounds = 200 + ROUNDS_PER_JOB * u64::try_from(left).expect("few");
        for _ in 0..rounds {
            if self.jobs_where(|state| !state.is_ended()).is_empty() {
                return self.all_ended();
            }
            for job in self.jobs_where(|state| matches!(state, JobState::Held { .. })) {
                self.ask(Command::Release { job })?;
            }
            // What a failure put aside is repaired.
            let promises = &self.promises;
            let drained = promises.drained.iter().chain(promises.noticed.keys());
            let drained: Vec<NodeName> = drained.cloned().collect();
            for node in drained {
                self.ask(Command::Undrain { node })?;
            }
            if !self.calm_round()? && !self.cancel_what_cannot_start()? {
                return Err(Broken(format!("stuck: {}", self.unended())));
            }
        }
        Err(Broken(format!(
            "no end after {rounds} rounds: {}",
            self.unended()
        )))
    }

    /// Does what is due now, or moves on to the next time at which something is; says whether there was anything.
    fn calm_round(&mut self) -> Result<bool, Broken> {
        let before = self.server.state.seq();
        for input in std::mem::take(&mut self.unanswered) {
            self.turn(vec![input])?;
        }
        while let Some(attempt) = self.hands.keys().next().copied() {
            self.carry(attempt)?;
        }
        for task in self.tasks(|truth| *truth == Truth::Launched) {
            self.start(&task);
        }
        for attempt in self.trainers() {
            self.speak(attempt)?;
        }
        self.done_ones_end();
        let known: Vec<AttemptId> = self
            .server
            .state
            .active_jobs()
            .filter_map(|job| job.state.active().map(|active| active.attempt))
            .collect();
        known.into_iter().for_each(|attempt| self.look(attempt));
        let reports: Vec<Observation> = std::mem::take(&mut self.wire).into_values().collect();
        for report in reports {
            self.turn(vec![Input::Observation(report)])?;
        }
        if self.server.state.seq() > before || !self.hands.is_empty() {
            return Ok(true);
        }
        let next = self.next_end().into_iter().chain(self.server.wake_at).min();
        let Some(next) = next else {
            return Ok(false);
        };
        self.now = self.now.max(next);
        self.turn(Vec::new())?;
        Ok(true)
    }

    /// What nobody would take in any more (no node has so much) may wait for ever: its user gives it up.
    fn cancel_what_cannot_start(&mut self) -> Result<bool, Broken> {
        let pending = self.jobs_where(|state| matches!(state, JobState::Pending { .. }));
        let hopeless: Vec<JobId> = pending
            .into_iter()
            .filter(|job| !self.is_admissible(*job))
            .collect();
        for job in &hopeless {
            self.ask(Command::Cancel { job: *job })?;
        }
        Ok(!hopeless.is_empty())
    }

    /// What admission would say of a job if it came now, without its dependencies.
    fn is_admissible(&self, id: JobId) -> bool {
        let job = self.server.state.job(id).expect("it waits");
        let mut spec = job.spec.clone();
        spec.name = "another".into();
        spec.after.clear();
        spec.after_any.clear();
        spec.after_start.clear();
        spec.deadline = None;
        spec.array = None;
        let spec = Box::new(spec);
        admit(&self.server.state, &Command::Submit { spec }).is_ok()
    }

    /// Nothing is left: no job, no process, nothing held.
    fn all_ended(&self) -> Checked {
        let state = &self.server.state;
        must(state.active_jobs().count() == 0, || {
            "an ended job is active".into()
        })?;
        must(state.queue_length() == 0, || {
            "an ended job is queued".into()
        })?;
        must(state.slots().is_empty(), || {
            format!("held for nobody: {:?}", state.slots())
        })?;
        must(!self.promises.has_living(), || "a job is lost".into())?;
        for node in state.nodes() {
            let spec = &node.spec;
            let free = state.free_on(&spec.name).expect("it is known");
            let all = free.cpus == spec.cpus
                && free.memory == spec.memory
                && free.gpus_shared == GpuAmount::ZERO;
            must(all, || format!("{} is not free: {free:?}", spec.name))?;
        }
        let lives = self.tasks(|truth| !matches!(truth, Truth::Ended(_)));
        must(lives.is_empty(), || format!("{lives:?} live on"))
    }

    fn unended(&self) -> String {
        let state = &self.server.state;
        let jobs = state.jobs().values().filter(|job| !job.state.is_ended());
        let told = jobs.take(4).map(|job| {
            let why = explain::reasons(state, job, self.now);
            format!("{} is {} {why:?}", job.id, job.state.name())
        });
        told.collect::<Vec<_>>().join("; ")
    }
}
