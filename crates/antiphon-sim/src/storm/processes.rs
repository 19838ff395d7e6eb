//! What really runs, and what is reported of it. Knows nothing of what the kernel believes, but for what its trainers and
//! its tasks are told when they ask.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{JobState, is_current, pending_directives};
use antiphon_types::{
    Ack, AckBody, Allocation, AttemptId, Bytes, Checkpoint, Diagnosis, DirectiveBody, DirectiveId,
    Exit, ExitClass, Finding, JobId, JobSpec, Millis, NodeName, Observation, Remedy, Rule, TaskId,
    Timestamp, Verdict,
};

use super::draw::Draw;
use super::server::Input;
use super::{Checked, Fault, Storm};

/// A step of a training.
const STEP: Millis = Millis::from_secs(1);

/// What really runs of an attempt.
#[derive(Debug, Clone)]
pub(super) struct Living {
    pub(super) allocation: Allocation,
    pub(super) team: String,
    pub(super) resources: BTreeMap<String, u64>,
    /// Those that the backend was handed.
    pub(super) tasks: BTreeMap<TaskId, Truth>,
    /// The step it goes on from.
    resume: u64,
    /// When the last of its tasks began to run.
    whole_since: Option<Timestamp>,
    /// A checkpoint that is durable and not acknowledged.
    saving: Option<Checkpoint>,
    /// The directive to yield that it obeys.
    leaving: Option<DirectiveId>,
    behavior: Behavior,
}

/// Where a task really stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Truth {
    /// Handed over; its command does not run yet.
    Launched,
    Running,
    Ended(Exit),
}

/// How a job's processes behave; the same in every attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behavior {
    pub(super) attaches: bool,
    pub(super) stubborn: bool,
    /// Steps in all.
    steps: u64,
}

impl Living {
    pub(super) fn new(
        spec: &JobSpec,
        allocation: &Allocation,
        resume: u64,
        behavior: Behavior,
    ) -> Self {
        Self {
            behavior,
            allocation: allocation.clone(),
            team: spec.team.clone(),
            resources: spec.resources.clone(),
            tasks: BTreeMap::new(),
            resume,
            whole_since: None,
            saving: None,
            leaving: None,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.all(|truth| matches!(truth, Truth::Ended(_)))
    }

    fn runs_whole(&self) -> bool {
        let mut tasks = self.tasks.values();
        self.tasks.len() == self.allocation.tasks.len()
            && tasks.all(|truth| matches!(truth, Truth::Running))
    }

    /// Whether a part of it has ended while another runs.
    fn is_torn(&self) -> bool {
        let mut tasks = self.tasks.values();
        tasks.any(|truth| matches!(truth, Truth::Ended(_)))
    }

    /// The step that it has come to.
    fn step(&self, now: Timestamp) -> u64 {
        let run = self
            .whole_since
            .map_or(0, |since| now.since(since).as_millis() / STEP.as_millis());
        self.resume + run
    }
}

pub(super) fn code(code: i32, class: Option<ExitClass>) -> Exit {
    Exit::Code {
        code,
        class,
        evidence: "its words".into(),
    }
}

pub(super) fn signal(signal: i32) -> Exit {
    Exit::Signal {
        signal,
        class: None,
        evidence: String::new(),
    }
}

impl Storm {
    /// How a job's processes behave.
    pub(super) fn behavior(&self, job: JobId) -> Behavior {
        let mut draw = Draw::of(self.seed.wrapping_mul(1_000_003).wrapping_add(job.0));
        let stubborn = draw.below(12) < self.weights.of(Fault::Stubborn).into();
        Behavior {
            attaches: draw.below(3) > 0,
            stubborn,
            steps: match draw.below(4) {
                0 => draw.between(1, 60),
                3 => draw.between(600, 20_000),
                _ => draw.between(60, 3_600),
            },
        }
    }

    /// Tasks that stand so.
    pub(super) fn tasks(&self, holds: impl Fn(&Truth) -> bool) -> Vec<TaskId> {
        let tasks = self.processes.values().flat_map(|living| &living.tasks);
        tasks
            .filter(|(_, truth)| holds(truth))
            .map(|(task, _)| task.clone())
            .collect()
    }

    /// A task asks whether its attempt is current, and runs if it is.
    pub(super) fn start(&mut self, task: &TaskId) {
        let state = &self.server.state;
        let stopping = state
            .job(task.attempt.job)
            .is_some_and(|job| matches!(job.state, JobState::Stopping { .. }));
        if !is_current(state, task.attempt) || stopping {
            return self.end(task, Exit::Superseded);
        }
        let now = self.now;
        let living = self.living(task.attempt);
        living.tasks.insert(task.clone(), Truth::Running);
        if living.runs_whole() {
            living.whole_since = Some(now);
        }
        self.send(Observation::TaskStarted { task: task.clone() });
    }

    /// Tasks that asked while no server answered.
    pub(super) fn some_get_no_answer(&mut self) {
        for task in self.tasks(|truth| *truth == Truth::Launched) {
            if self.draw.one_in(2) {
                self.end(&task, Exit::Unreachable);
            }
        }
    }

    fn living(&mut self, attempt: AttemptId) -> &mut Living {
        let living = self.processes.get_mut(&attempt);
        living.expect("a task's attempt is known")
    }

    pub(super) fn end(&mut self, task: &TaskId, exit: Exit) {
        let living = self.living(task.attempt);
        living
            .tasks
            .insert(task.clone(), Truth::Ended(exit.clone()));
        let task = task.clone();
        self.send(Observation::TaskEnded { task, exit });
    }

    /// Ends what lives of an attempt.
    pub(super) fn end_all(&mut self, attempt: AttemptId, exit: impl Fn(&Truth) -> Exit) {
        let Some(living) = self.processes.get(&attempt) else {
            return;
        };
        let tasks = living.tasks.iter();
        let ends: Vec<(TaskId, Exit)> = tasks
            .filter(|(_, truth)| !matches!(truth, Truth::Ended(_)))
            .map(|(task, truth)| (task.clone(), exit(truth)))
            .collect();
        for (task, exit) in ends {
            self.end(&task, exit);
        }
    }

    /// Everything on a node is gone.
    pub(super) fn die_with(&mut self, node: &NodeName) {
        let mut dead = Vec::new();
        for (attempt, living) in &self.processes {
            for held in living
                .allocation
                .tasks
                .iter()
                .filter(|held| held.node == *node)
            {
                let task = TaskId {
                    attempt: *attempt,
                    role: held.role.clone(),
                    index: held.index,
                };
                let lives = |truth: &Truth| !matches!(truth, Truth::Ended(_));
                if living.tasks.get(&task).is_some_and(lives) {
                    dead.push(task);
                }
            }
        }
        for task in dead {
            let evidence = format!("{node} restarted");
            self.end(&task, Exit::Lost { evidence });
        }
    }

    /// A task ends by itself, in whatever way.
    pub(super) fn fail_some(&mut self) {
        let living = self.tasks(|truth| !matches!(truth, Truth::Ended(_)));
        let Some(task) = self.draw.pick(&living) else {
            return;
        };
        let exit = match self.draw.below(12) {
            0 => code(0, None),
            1 => code(3, Some(ExitClass::OutOfMemory)),
            2 => code(3, Some(ExitClass::DataError)),
            3 => code(3, Some(ExitClass::Hardware)),
            4 => code(3, Some(ExitClass::Software)),
            5 => code(0, Some(ExitClass::Preempted)),
            6 => signal(11),
            7 => Exit::Lost {
                evidence: "no status".into(),
            },
            8 => Exit::Unfit {
                evidence: "a bad link".into(),
            },
            9 => Exit::Unstartable {
                error: "no such file".into(),
            },
            10 => Exit::Unreachable,
            _ => code(1, None),
        };
        self.strike(Fault::FailedTask);
        self.end(&task, exit);
    }

    /// Runs whose work is done end; a gang of which a part has ended soon ends as a whole.
    pub(super) fn done_ones_end(&mut self) {
        let mut over = Vec::new();
        for living in self.processes.values() {
            let done =
                living.whole_since.is_some() && living.step(self.now) >= living.behavior.steps;
            let torn = self.calm && living.is_torn();
            if !done && !torn {
                continue;
            }
            let runs =
                |(task, truth): (&TaskId, &Truth)| (*truth == Truth::Running).then(|| task.clone());
            over.extend(living.tasks.iter().filter_map(runs));
        }
        for task in over {
            self.end(&task, code(0, None));
        }
    }

    /// When the next run has done its work.
    pub(super) fn next_end(&self) -> Option<Timestamp> {
        let ends = self.processes.values().filter_map(|living| {
            let since = living.whole_since.filter(|_| living.runs_whole())?;
            let left = living.behavior.steps.saturating_sub(living.resume);
            Some(since.after(Millis::from_millis(left * STEP.as_millis())))
        });
        ends.min()
    }

    /// Attempts whose trainer can speak.
    pub(super) fn trainers(&self) -> Vec<AttemptId> {
        let speaks = |(attempt, living): (&AttemptId, &Living)| {
            let mut tasks = living.tasks.values();
            let runs = tasks.any(|truth| *truth == Truth::Running);
            (runs && living.behavior.attaches).then_some(*attempt)
        };
        self.processes.iter().filter_map(speaks).collect()
    }

    /// A trainer says hello, hears what it is asked, saves, answers, leaves: one thing at a time.
    pub(super) fn speak(&mut self, attempt: AttemptId) -> Checked {
        let state = &self.server.state;
        let Some((job, active)) = state.job(attempt.job).and_then(|job| {
            let active = job.state.active()?;
            (active.attempt == attempt).then_some((job, active))
        }) else {
            return Ok(());
        };
        let living = &self.processes[&attempt];
        if !active.attached {
            let step = living.resume;
            return self.tell(Observation::Attached { attempt, step });
        }
        if let Some(checkpoint) = living.saving.clone() {
            // Sent until it is acknowledged.
            return self.tell(Observation::Checkpointed { checkpoint });
        }
        if let Some(directive) = living.leaving {
            let slot = living.step(self.now) * 16;
            let body = AckBody::Applied { slot };
            let ack = Ack { directive, body };
            self.end_all(attempt, |_| code(0, Some(ExitClass::Preempted)));
            return self.tell(Observation::Acknowledged { attempt, ack });
        }
        let waiting = pending_directives(job, attempt, DirectiveId(0), &BTreeSet::new());
        let Some((directive, body)) = waiting.first().map(|one| (one.id, one.body.clone())) else {
            return Ok(());
        };
        let stubborn = self.behavior(attempt.job).stubborn;
        let body = match body {
            _ if stubborn => AckBody::Rejected {
                reason: "not now".into(),
            },
            DirectiveBody::Yield | DirectiveBody::Stop => {
                self.save(attempt);
                self.living(attempt).leaving = Some(directive);
                return Ok(());
            }
            DirectiveBody::Checkpoint => {
                self.save(attempt);
                AckBody::Applied { slot: 16 }
            }
            DirectiveBody::SetWeights { .. }
            | DirectiveBody::PauseShard { .. }
            | DirectiveBody::ResumeShard { .. }
            | DirectiveBody::AddSamples { .. }
            | DirectiveBody::SetMicroBatch { .. }
            | DirectiveBody::SetCheckpointInterval { .. }
            | DirectiveBody::SetRecompute { .. }
            | DirectiveBody::SetOffload { .. }
            | DirectiveBody::Snapshot
            | DirectiveBody::Resize { .. }
            | DirectiveBody::Drain { .. }
            | DirectiveBody::Rollback { .. }
            | DirectiveBody::GatherHardExamples { .. } => match self.draw.below(4) {
                0 => AckBody::Failed {
                    error: "disk".into(),
                },
                1 => AckBody::Expired,
                _ => AckBody::Applied { slot: 16 },
            },
        };
        let ack = Ack { directive, body };
        self.tell(Observation::Acknowledged { attempt, ack })
    }

    /// A trainer's word goes to the server itself, which answers once it is durable.
    fn tell(&mut self, observation: Observation) -> Checked {
        self.arrived_now(&observation);
        self.turn(vec![Input::Observation(observation)])
    }

    /// The server answered.
    pub(super) fn answer(&mut self, input: &Input) {
        let Input::Observation(Observation::Checkpointed { checkpoint }) = input else {
            return;
        };
        if let Some(living) = self.processes.get_mut(&checkpoint.attempt)
            && living.saving.as_ref() == Some(checkpoint)
        {
            living.saving = None;
        }
    }

    /// A trainer writes a checkpoint.
    pub(super) fn save(&mut self, attempt: AttemptId) {
        let save = Millis::from_millis(self.draw.below(60_000));
        let now = self.now;
        let living = self.living(attempt);
        if living.saving.is_some() || living.whole_since.is_none() {
            return;
        }
        let step = living.step(now);
        living.saving = Some(Checkpoint {
            attempt,
            step,
            path: format!("step-{step}"),
            bytes: Bytes::new(1 << 30),
            save,
            manifest: String::new(),
            at: now,
        });
    }

    /// The signal rules conclude something, also about attempts that are over.
    pub(super) fn find(&mut self) -> Checked {
        let known: Vec<AttemptId> = self.processes.keys().copied().collect();
        let Some(attempt) = self.draw.pick(&known) else {
            return Ok(());
        };
        self.strike(Fault::Finding);
        let finding = match self.draw.below(4) {
            0 => Finding::Progress {
                attempt,
                step: self.processes[&attempt].step(self.now),
                steps_total: self.draw.between(1, 20_000),
                step_time: Millis::from_millis(self.draw.below(10_000)),
            },
            1 | 2 => Finding::Diagnosis(Box::new(self.diagnosis(attempt))),
            _ => Finding::Idle {
                attempt,
                utilization_percent: self.draw.count(0, 100),
                since: Millis::from_secs(self.draw.below(1_000)),
            },
        };
        self.turn(vec![Input::Finding(finding)])
    }

    fn diagnosis(&mut self, attempt: AttemptId) -> Diagnosis {
        let shard = format!("shard-{}", self.draw.below(3));
        let weights = BTreeMap::from([(shard.clone(), 0)]);
        let remedy = match self.draw.below(6) {
            0 => Remedy::Direct(DirectiveBody::SetWeights { weights }),
            1 => Remedy::Direct(DirectiveBody::SetMicroBatch { rows: 8 }),
            2 => Remedy::Weigh {
                permille: self.draw.count(0, 4_000),
            },
            3 => Remedy::Replace {
                task: self.draw.count(0, 8),
            },
            4 => Remedy::Restart,
            _ => Remedy::Augment { of: shard.clone() },
        };
        let verdicts = [Verdict::Noise, Verdict::Slow, Verdict::Cleared];
        Diagnosis {
            attempt,
            rule: self.draw.pick(&Rule::ALL).expect("there are rules"),
            subject: shard,
            verdict: self.draw.pick(&verdicts).expect("there are verdicts"),
            evidence: "numbers".into(),
            step: 100,
            remedies: vec![remedy],
        }
    }
}
