//! What really runs, and what is reported of it. Knows nothing of what the kernel believes, but for directives that its
//! trainers hear.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{apply, is_current, pending_directives};
use antiphon_types::*;

use super::{Watch, World, pick};
use crate::plan::ExitPlan;

/// What really runs of an attempt.
pub(super) struct Living {
    pub(super) allocation: Allocation,
    pub(super) team: String,
    pub(super) resources: BTreeMap<String, u64>,
    pub(super) tasks: BTreeMap<TaskId, Truth>,
    /// When it ends by itself, once all of it runs.
    pub(super) until: Option<Timestamp>,
}

pub(super) enum Truth {
    Launched,
    Running,
    Ended(Exit),
}

impl Living {
    pub(super) fn is_gone(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.all(|truth| matches!(truth, Truth::Ended(_)))
    }

    pub(super) fn runs_whole(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.all(|truth| matches!(truth, Truth::Running))
    }
}

pub(super) fn exit_of(plan: &ExitPlan) -> Exit {
    let words = || "its words".to_owned();
    match plan {
        ExitPlan::Done => code(0, None),
        ExitPlan::Code(class) => code(3, *class),
        ExitPlan::Lost => Exit::Lost { evidence: words() },
        ExitPlan::Unfit => Exit::Unfit { evidence: words() },
        ExitPlan::NotLaunched => Exit::NotLaunched { error: words() },
        ExitPlan::Unstartable => Exit::Unstartable { error: words() },
        ExitPlan::Unreachable => Exit::Unreachable,
    }
}

pub(super) fn code(code: i32, class: Option<ExitClass>) -> Exit {
    Exit::Code {
        code,
        class,
        evidence: "its words".into(),
    }
}

fn attempt_of(observation: &Observation) -> Option<AttemptId> {
    match observation {
        Observation::Inventory { .. } => None,
        Observation::Holds { task, .. }
        | Observation::TaskStarted { task }
        | Observation::TaskEnded { task, .. } => Some(task.attempt),
        Observation::Attached { attempt, .. } | Observation::Acknowledged { attempt, .. } => {
            Some(*attempt)
        }
        Observation::Checkpointed { checkpoint } => Some(checkpoint.attempt),
        Observation::Shards { attempt, .. } => Some(*attempt),
    }
}

impl World {
    pub(super) fn tasks(&self, holds: impl Fn(&Truth) -> bool) -> Vec<TaskId> {
        let tasks = self.processes.values().flat_map(|living| &living.tasks);
        tasks
            .filter(|(_, truth)| holds(truth))
            .map(|(task, _)| task.clone())
            .collect()
    }

    /// An attempt whose trainer can speak: it attaches, and a process of it runs.
    pub(super) fn trainer(&self, number: usize) -> Option<AttemptId> {
        let speaks = |(attempt, living): (&AttemptId, &Living)| {
            let runs = living
                .tasks
                .values()
                .any(|truth| matches!(truth, Truth::Running));
            (runs && self.behaviors[&attempt.job].attaches).then_some(*attempt)
        };
        pick(self.processes.iter().filter_map(speaks), number)
    }

    pub(super) fn answer(&mut self, attempt: AttemptId, answer: &AckBody) {
        let Some(job) = self.state.job(attempt.job) else {
            return;
        };
        let waiting = pending_directives(job, attempt, DirectiveId(0), &BTreeSet::new());
        if let Some(directive) = waiting.first() {
            let ack = Ack {
                directive: directive.id,
                body: answer.clone(),
            };
            self.outbox.push(Observation::Acknowledged { attempt, ack });
        }
    }

    pub(super) fn checkpoint(&self, attempt: AttemptId, step: u64, save: Millis) -> Checkpoint {
        Checkpoint {
            attempt,
            step,
            path: format!("step-{step}"),
            bytes: Bytes::new(u64::MAX),
            save,
            manifest: String::new(),
            at: self.at,
        }
    }

    pub(super) fn start(&mut self, task: &TaskId) {
        let living = self.processes.get_mut(&task.attempt).unwrap();
        *living.tasks.get_mut(task).unwrap() = Truth::Running;
        if living.runs_whole() {
            living.until = Some(self.at.after(self.behaviors[&task.attempt.job].runs));
        }
        let task = task.clone();
        if let Some(gpus) = self.chosen(&task) {
            let task = task.clone();
            self.outbox.push(Observation::Holds { task, gpus });
        }
        self.outbox.push(Observation::TaskStarted { task });
    }

    /// The GPUs that the backend has given a task of every other job: others than were booked.
    fn chosen(&self, task: &TaskId) -> Option<Vec<u32>> {
        let job = task.attempt.job;
        let active = self.state.job(job)?.state.active()?;
        let booked = &active.allocation.tasks[active.position(task)?];
        let node = &self.state.node(&booked.node)?.spec;
        // A backend gives nobody a GPU that is lost or cut.
        if !(node.gpus_lost.is_empty() && node.slices.is_empty()) {
            return None;
        }
        let there = node.gpus;
        let shift = u32::try_from(job.0 % 8).expect("it is below 8");
        let given = booked.gpus.iter().map(|gpu| (gpu + 1 + shift) % there);
        let mut given: Vec<u32> = given.collect();
        given.sort_unstable();
        (job.0.is_multiple_of(2) && !given.is_empty()).then_some(given)
    }

    /// Those that run hold what the books say after a report of that.
    pub(super) fn agree(&mut self) {
        for (attempt, living) in &mut self.processes {
            let active = self
                .state
                .job(attempt.job)
                .and_then(|job| job.state.active());
            if let Some(active) = active.filter(|active| active.attempt == *attempt) {
                living.allocation.clone_from(&active.allocation);
            }
        }
    }

    pub(super) fn end(&mut self, task: &TaskId, exit: Exit) {
        let living = self.processes.get_mut(&task.attempt).unwrap();
        *living.tasks.get_mut(task).unwrap() = Truth::Ended(exit.clone());
        let task = task.clone();
        self.outbox.push(Observation::TaskEnded { task, exit });
    }

    pub(super) fn deliver(&mut self, report: Observation) {
        let stale = attempt_of(&report).is_some_and(|attempt| !is_current(&self.state, attempt));
        if self.watch == Watch::Everything {
            self.arrived.push(report.clone());
        }
        if stale {
            let mut unchanged = self.state.clone();
            let event = |body| Event {
                seq: Seq(self.state.seq().0 + 1),
                at: self.at,
                body,
            };
            apply(&mut unchanged, &event(Body::Tick));
            let mut changed = self.state.clone();
            apply(&mut changed, &event(Body::Observation(report.clone())));
            assert_eq!(changed, unchanged, "a stale attempt changes nothing");
        } else if let Observation::Checkpointed { checkpoint } = &report {
            self.promises.saved(checkpoint);
        }
        self.input(Body::Observation(report));
    }

    /// What the backend and the processes do at once; what they report comes later.
    pub(super) fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Launch {
                attempt,
                allocation,
                ..
            } => {
                let tasks = allocation.tasks.iter().map(|task| TaskId {
                    attempt: *attempt,
                    role: task.role.clone(),
                    index: task.index,
                });
                let spec = &self.state.job(attempt.job).unwrap().spec;
                let living = Living {
                    allocation: allocation.clone(),
                    team: spec.team.clone(),
                    resources: spec.resources.clone(),
                    tasks: tasks.map(|task| (task, Truth::Launched)).collect(),
                    until: None,
                };
                let known = self.processes.insert(*attempt, living);
                assert!(known.is_none(), "{attempt} is launched twice");
                self.launches.push((self.at, *attempt));
            }
            Action::Terminate { attempt, .. } => {
                if !self.behaviors[&attempt.job].stubborn {
                    self.signal(*attempt, 15);
                }
            }
            Action::Kill { attempt, .. } => self.signal(*attempt, 9),
            Action::Settle { attempt, .. } => {
                let living = self.processes.remove(attempt).unwrap();
                assert!(living.is_gone(), "{attempt} is settled while a task lives");
            }
            Action::Augment { job, .. } => {
                // A data job behaves like the job that it makes data for; one decision may have several made.
                let behavior = self.behaviors[job];
                let jobs = self.state.jobs().values();
                let made = jobs.filter(|made| made.makes_data_for == Some(*job));
                for made in made.map(|made| made.id) {
                    self.behaviors.entry(made).or_insert(behavior);
                }
                self.submitted = self.state.newest_job().unwrap().0;
            }
            Action::Yield { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => (),
        }
    }

    fn signal(&mut self, attempt: AttemptId, number: i32) {
        let living = |(task, truth): (&TaskId, &Truth)| match truth {
            Truth::Launched => Some((task.clone(), Exit::Superseded)),
            Truth::Running => {
                let exit = Exit::Signal {
                    signal: number,
                    class: None,
                    evidence: String::new(),
                };
                Some((task.clone(), exit))
            }
            Truth::Ended(_) => None,
        };
        let tasks: Vec<_> = self.processes[&attempt]
            .tasks
            .iter()
            .filter_map(living)
            .collect();
        for (task, exit) in tasks {
            self.end(&task, exit);
        }
    }
}
