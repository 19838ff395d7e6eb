//! The faults stop: everything is offered and reported, processes end when they are done, trainers save when they are
//! asked to. What does not end then never would.

use antiphon_kernel::{JobState, Mode, TaskPhase, is_current};
use antiphon_types::*;

use super::processes::{Truth, code};
use super::{Watch, World};

impl World {
    /// Everything is offered, allowed and answered honestly. Every job has to end.
    pub(crate) fn calm_down(&mut self) {
        self.offer(self.nodes.clone());
        for node in 0..self.nodes.len() {
            let node = self.node(node);
            self.command(Command::Undrain { node }).unwrap();
        }
        let policy = Box::new(Policy::default());
        self.command(Command::SetPolicy { policy }).unwrap();
        // What went wrong before may keep best-effort jobs back, and not for good.
        let gate = GatePolicy::default();
        self.command(Command::SetGate { gate }).unwrap();
        let teams = self.teams.clone();
        self.command(Command::SetTeams { teams }).unwrap();
        if *self.state.mode() != Mode::Deciding {
            self.command(Command::Unpause).unwrap();
        }
        self.release_all();
        // Every job ends within a handful of rounds of its own: a stop and a retry or two each, one behind the other.
        let rounds_max = 100 + 60 * usize::try_from(self.submitted).unwrap();
        for _ in 0..rounds_max {
            if self.jobs_where(|state| !state.is_ended()).is_empty() {
                return self.all_ended();
            }
            self.release_all();
            // What a late report of a failure put aside is repaired.
            for node in self.promises.drained() {
                self.command(Command::Undrain { node }).unwrap();
            }
            if !self.one_calm_round(None) && !self.cancel_what_cannot_start() {
                panic!("stuck: {:#?}", self.unended());
            }
        }
        panic!("no end after {rounds_max} rounds: {:#?}", self.unended());
    }

    /// What nobody would take in any more (its team's limit has fallen since) may wait for ever: gives it up.
    fn cancel_what_cannot_start(&mut self) -> bool {
        let pending = self.jobs_where(|state| matches!(state, JobState::Pending { .. }));
        // Roles are placed one after the other, each where it is best for itself. What fits within a limit of one GPU type in
        // one way alone may not be found.
        let is_tight = |job: &JobId| {
            let spec = &self.state.job(*job).unwrap().spec;
            let chain = self.chain(&spec.team);
            let mut teams = self.state.teams().specs().iter();
            spec.roles.len() > 1
                && teams.any(|team| chain.contains(&team.name) && !team.limit.by_type.is_empty())
        };
        let hopeless = pending.into_iter();
        let hopeless = hopeless.filter(|job| is_tight(job) || !self.is_admissible(*job));
        let hopeless: Vec<JobId> = hopeless.collect();
        for job in &hopeless {
            // One that waited for another of them may have ended with it.
            let _ = self.command(Command::Cancel { job: *job });
        }
        !hopeless.is_empty()
    }

    /// Lets honest processes run until a time, or as far as anything happens.
    pub(crate) fn run_until(&mut self, until: Timestamp) {
        while self.one_calm_round(Some(until)) {}
        self.at = self.at.max(until);
    }

    /// Does what is due now, or moves on to the next time at which something is; says whether there was anything.
    fn one_calm_round(&mut self, until: Option<Timestamp>) -> bool {
        let before = self.state.seq();
        for task in self.tasks(|truth| matches!(truth, Truth::Launched)) {
            self.start(&task);
        }
        self.trainers_speak();
        for report in std::mem::take(&mut self.outbox) {
            self.deliver(report);
        }
        if self.watch == Watch::Everything {
            self.tell_again();
        }
        self.done_ones_end();
        if self.state.seq() > before || !self.outbox.is_empty() {
            return true;
        }
        let ends = self.processes.values().filter(|living| living.runs_whole());
        let next = ends
            .filter_map(|living| living.until)
            .chain(self.wake_at)
            .min();
        let Some(next) = next.filter(|next| until.is_none_or(|until| *next <= until)) else {
            return false;
        };
        self.at = self.at.max(next);
        if self.wake_at.is_some_and(|wake| wake <= self.at) {
            self.input(Body::Tick);
        }
        true
    }

    /// Trainers say hello, and those who are asked to give way save and leave.
    fn trainers_speak(&mut self) {
        let mut reports = Vec::new();
        let mut leave = Vec::new();
        for (attempt, living) in &self.processes {
            let active = self.state.job(attempt.job).and_then(|job| {
                let active = job.state.active()?;
                (active.attempt == *attempt).then_some((job, active))
            });
            let Some((job, active)) = active else {
                continue;
            };
            let behavior = self.behaviors[&attempt.job];
            if !living.runs_whole() || !behavior.attaches {
                continue;
            }
            if !active.attached {
                let attempt = *attempt;
                reports.push(Observation::Attached { attempt, step: 0 });
            }
            let asked = job.directives.iter().find(|directive| {
                let yields = directive.body == DirectiveBody::Yield;
                yields && directive.attempt == Some(*attempt) && directive.ack.is_none()
            });
            if let Some(directive) = asked.filter(|_| !behavior.stubborn) {
                leave.push((*attempt, directive.id));
            }
        }
        self.outbox.append(&mut reports);
        for (attempt, directive) in leave {
            let save = Millis::from_secs(10);
            if self.behaviors[&attempt.job].saves {
                self.keep_what_is_done(attempt);
                let step = self.promises.step_saved(attempt.job) + 1;
                let checkpoint = self.checkpoint(attempt, step, save);
                self.outbox.push(Observation::Checkpointed { checkpoint });
            }
            let body = AckBody::Applied { slot: 16 };
            let ack = Ack { directive, body };
            self.outbox.push(Observation::Acknowledged { attempt, ack });
            let tasks: Vec<TaskId> = self.processes[&attempt].tasks.keys().cloned().collect();
            for task in tasks {
                self.end(&task, code(0, Some(ExitClass::Preempted)));
            }
        }
    }

    /// What a job has saved need not be run again.
    fn keep_what_is_done(&mut self, attempt: AttemptId) {
        let left = self.processes[&attempt].until.unwrap().since(self.at);
        let behavior = self.behaviors.get_mut(&attempt.job).unwrap();
        behavior.runs = left.max(Millis::from_secs(1));
    }

    /// Every report that was lost is sent again: a backend reports the whole truth it sees.
    fn tell_again(&mut self) {
        for task in self.tasks(|truth| matches!(truth, Truth::Running)) {
            if !self.is_told(&task, false) {
                self.deliver(Observation::TaskStarted { task });
            }
        }
        for task in self.tasks(|truth| matches!(truth, Truth::Ended(_))) {
            if !self.is_told(&task, true)
                && let Some(living) = self.processes.get(&task.attempt)
                && let Some(Truth::Ended(exit)) = living.tasks.get(&task)
            {
                let exit = exit.clone();
                self.deliver(Observation::TaskEnded { task, exit });
            }
        }
    }

    fn is_told(&self, task: &TaskId, ended: bool) -> bool {
        if !is_current(&self.state, task.attempt) {
            return true;
        }
        let active = self.state.job(task.attempt.job).unwrap().state.active();
        match active.unwrap().phase(task).unwrap() {
            TaskPhase::Launched => false,
            TaskPhase::Started => !ended,
            TaskPhase::Ended { .. } => true,
        }
    }

    /// Runs whose time has come end; one task of a gang that ended before ends the others.
    fn done_ones_end(&mut self) {
        let mut over = Vec::new();
        for living in self.processes.values() {
            let due = living.until.is_some_and(|until| until <= self.at);
            let torn = !living.runs_whole() && !living.is_gone();
            for (task, truth) in &living.tasks {
                if (due || torn) && matches!(truth, Truth::Running) {
                    over.push(task.clone());
                }
            }
        }
        for task in over {
            self.end(&task, code(0, None));
        }
    }

    fn all_ended(&self) {
        assert_eq!(self.state.active_jobs().count(), 0);
        assert_eq!(self.state.queue_length(), 0);
        assert!(self.state.slots().is_empty(), "{:?}", self.state.slots());
        for node in self.state.nodes() {
            let spec = &node.spec;
            let free = self.state.free_on(&spec.name).unwrap();
            assert_eq!((free.cpus, free.memory), (spec.cpus, spec.memory));
            assert_eq!(free.gpus_shared, GpuAmount::ZERO);
            assert!(self.state.tenants(&spec.name).is_empty());
        }
        for id in 1..=self.submitted {
            assert!(self.promises.has_ended(JobId(id)), "job-{id} is lost");
        }
    }

    pub(crate) fn unended(&self) -> Vec<String> {
        let jobs = self.state.jobs().values();
        jobs.filter(|job| !job.state.is_ended())
            .map(|job| {
                let why = antiphon_kernel::explain::reasons(&self.state, job, self.at);
                format!("{} {:?} {why:?} {:?}", job.id, job.state, job.spec)
            })
            .collect()
    }
}
