//! A world that is honest but unreliable: processes that really run and end, and reports of that which come late, twice,
//! out of order or never. Checks after every event what must always hold.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{
    JobState, Mode, State, StopPhase, admit, apply, check, decide, is_news, pending_directives,
};
use antiphon_types::*;

use crate::fit::fits;
use crate::plan::{ExitPlan, JobPlan, NodePlan, ShapePlan, Step};

const KINDS: [&str; 3] = ["H100", "A100", "L4"];
const CPUS: u32 = 16;
/// Cycles that may follow one input.
const CYCLES_MAX: usize = 50;

pub(crate) struct World {
    pub(crate) state: State,
    nodes: Vec<NodeSpec>,
    /// What the backend said last, and the nodes that an operator drains.
    offered: Vec<NodeSpec>,
    drained: BTreeSet<NodeName>,
    at: Timestamp,
    wake_at: Option<Timestamp>,
    events: Vec<Event>,
    behaviours: BTreeMap<JobId, Behaviour>,
    processes: BTreeMap<AttemptId, Living>,
    /// Reports on their way.
    outbox: Vec<Observation>,
    /// Reports that have arrived.
    arrived: Vec<Observation>,
    /// When SIGTERM was ordered, and the grace that was promised.
    terminated: BTreeMap<AttemptId, (Timestamp, Millis)>,
    /// Jobs that somebody canceled, and jobs that somebody put on hold and nobody has released.
    canceled: BTreeSet<JobId>,
    on_hold: BTreeSet<JobId>,
    ended: BTreeMap<JobId, JobState>,
    submitted: u64,
    /// Whether inputs share a commit, so that nothing is decided between them.
    together: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Behaviour {
    pub(crate) attaches: bool,
    pub(crate) stubborn: bool,
}

/// What really runs of an attempt.
struct Living {
    allocation: Allocation,
    tasks: BTreeMap<TaskId, Truth>,
}

enum Truth {
    Launched,
    Running,
    Ended(Exit),
}

fn pick<T>(items: impl IntoIterator<Item = T>, number: usize) -> Option<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    let len = items.len();
    (len > 0).then(|| items.swap_remove(number % len))
}

fn signal(number: i32) -> Exit {
    Exit::Signal {
        signal: number,
        class: None,
        evidence: String::new(),
    }
}

fn code(code: i32, class: Option<ExitClass>) -> Exit {
    Exit::Code {
        code,
        class,
        evidence: "its words".into(),
    }
}

fn attempt_of(observation: &Observation) -> Option<AttemptId> {
    match observation {
        Observation::Inventory { .. } => None,
        Observation::TaskStarted { task } | Observation::TaskEnded { task, .. } => {
            Some(task.attempt)
        }
        Observation::Attached { attempt, .. } | Observation::Acknowledged { attempt, .. } => {
            Some(*attempt)
        }
        Observation::Checkpointed { checkpoint } => Some(checkpoint.attempt),
    }
}

impl World {
    pub(crate) fn new(cluster: &[NodePlan]) -> Self {
        let node = |(index, plan): (usize, &NodePlan)| NodeSpec {
            name: NodeName(format!("n{index}")),
            gpus: plan.gpus,
            gpu_type: KINDS[plan.kind].into(),
            gpu_memory: Bytes::ZERO,
            gpus_virtual: true,
            cpus: CPUS,
            memory: Bytes::new(1 << 40),
        };
        let nodes: Vec<NodeSpec> = cluster.iter().enumerate().map(node).collect();
        let mut world = Self {
            state: State::default(),
            nodes: nodes.clone(),
            offered: Vec::new(),
            drained: BTreeSet::new(),
            at: Timestamp::from_millis(1_764_430_000_000),
            wake_at: None,
            events: Vec::new(),
            behaviours: BTreeMap::new(),
            processes: BTreeMap::new(),
            outbox: Vec::new(),
            arrived: Vec::new(),
            terminated: BTreeMap::new(),
            canceled: BTreeSet::new(),
            on_hold: BTreeSet::new(),
            ended: BTreeMap::new(),
            submitted: 0,
            together: false,
        };
        world.offer(nodes);
        world
    }

    fn offer(&mut self, nodes: Vec<NodeSpec>) {
        self.offered = nodes.clone();
        self.input(Body::Observation(Observation::Inventory { nodes }));
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(plan) => {
                let behaviour = Behaviour {
                    attaches: plan.attaches,
                    stubborn: plan.stubborn,
                };
                self.submit(self.spec(plan), behaviour);
            }
            Step::Cancel(job) => self.on_job(*job, |job| Command::Cancel { job }),
            Step::Hold(job) => self.on_job(*job, |job| Command::Hold { job }),
            Step::Release(job) => self.on_job(*job, |job| Command::Release { job }),
            Step::Preempt(job) => self.on_job(*job, |job| Command::Preempt { job }),
            Step::Direct(job) => self.on_job(*job, |job| {
                Command::Direct(Direct {
                    job,
                    body: DirectiveBody::Checkpoint,
                    reason: "asked".into(),
                })
            }),
            Step::Drain(node) => {
                let (node, reason) = (self.node(*node), "asked".into());
                self.command(Command::Drain { node, reason });
            }
            Step::Undrain(node) => {
                let node = self.node(*node);
                self.command(Command::Undrain { node });
            }
            Step::Pause => self.command(Command::Pause {
                reason: "asked".into(),
            }),
            Step::Unpause => self.command(Command::Unpause),
            Step::SafeMode => self.input(Body::SafeMode {
                bug: "1 != 2".into(),
            }),
            Step::Policy { wait_s, kept } => {
                let policy = Policy {
                    checkpoint_wait_ms_max: Millis::from_secs(*wait_s),
                    ended_jobs_max: *kept,
                    command_ids_max: *kept,
                    attempts_kept_max: *kept,
                    ..Policy::default()
                };
                self.command(Command::SetPolicy { policy });
            }
            Step::Inventory(sixteenths) => {
                let offered = |(node, part): (&NodeSpec, &Option<u32>)| {
                    let mut node = node.clone();
                    node.gpus = node.gpus * (*part)? / 16;
                    Some(node)
                };
                let nodes = self.nodes.iter().zip(sixteenths).filter_map(offered);
                let nodes = nodes.collect();
                self.offer(nodes);
            }
            Step::Start(number) => {
                let launched = self.tasks(|truth| matches!(truth, Truth::Launched));
                if let Some(task) = pick(launched, *number) {
                    self.start(&task);
                }
            }
            Step::End(number, exit) => {
                let living = self.tasks(|truth| !matches!(truth, Truth::Ended(_)));
                if let Some(task) = pick(living, *number) {
                    self.end(&task, exit);
                }
            }
            Step::Attach(number) => {
                if let Some(attempt) = self.trainer(*number) {
                    self.outbox.push(Observation::Attached { attempt, step: 0 });
                }
            }
            Step::Save { job, step, save_ms } => {
                if let Some(attempt) = self.trainer(*job) {
                    self.outbox.push(Observation::Checkpointed {
                        checkpoint: Checkpoint {
                            attempt,
                            step: *step,
                            path: format!("step-{step}"),
                            bytes: Bytes::new(u64::MAX),
                            save: Millis::from_millis(*save_ms),
                            manifest: String::new(),
                            at: self.at,
                        },
                    });
                }
            }
            Step::Answer(number, answer) => {
                if let Some(attempt) = self.trainer(*number) {
                    self.answer(attempt, answer);
                }
            }
            Step::Progress { job, step, step_ms } => {
                if let Some(attempt) = self.trainer(*job) {
                    self.input(Body::Finding(Finding::Progress {
                        attempt,
                        step: *step,
                        steps_total: 100,
                        step_time: Millis::from_millis(*step_ms),
                    }));
                }
            }
            Step::Noise { job, shard } => {
                if let Some(attempt) = self.trainer(*job) {
                    self.input(Body::Finding(Finding::ShardNoise {
                        attempt,
                        shard: format!("shard-{shard}"),
                        evidence: ShardEvidence {
                            loss_millinats: u64::MAX,
                            fell_millinats: i64::MIN,
                            others_loss_millinats: 0,
                            others_fell_millinats: i64::MAX,
                            samples: 1,
                            step: 1,
                        },
                    }));
                }
            }
            Step::Deliver(number) => {
                if !self.outbox.is_empty() {
                    let report = self.outbox.remove(number % self.outbox.len());
                    self.deliver(report);
                }
            }
            Step::Double(number) => {
                if let Some(report) = pick(self.outbox.clone(), *number) {
                    self.deliver(report);
                }
            }
            Step::Lose(number) => {
                if !self.outbox.is_empty() {
                    self.outbox.remove(number % self.outbox.len());
                }
            }
            Step::Again(number) => {
                if let Some(report) = pick(self.arrived.clone(), *number) {
                    self.deliver(report);
                }
            }
            Step::Together(steps) => {
                self.together = true;
                steps.iter().for_each(|step| self.step(step));
                self.together = false;
                self.decide();
            }
            Step::Wait(_) if self.together => (),
            Step::Wait(ms) => {
                let until = self.at.after(Millis::from_millis(*ms));
                self.wait_until(until);
            }
        }
    }

    /// The faults stop: everything is offered, allowed and answered honestly. Every job has to end.
    pub(crate) fn calm_down(&mut self) {
        self.offer(self.nodes.clone());
        for node in 0..self.nodes.len() {
            let node = self.node(node);
            self.command(Command::Undrain { node });
        }
        self.command(Command::SetPolicy {
            policy: Policy::default(),
        });
        if *self.state.mode() != Mode::Deciding {
            self.command(Command::Unpause);
        }
        // Every job ends within a handful of rounds of its own: a stop and a retry or two each, one behind the other.
        let rounds_max = 50 + 20 * usize::try_from(self.submitted).unwrap();
        for _ in 0..rounds_max {
            let living = |state: &State| state.jobs().values().any(|job| !job.state.is_ended());
            if !living(&self.state) {
                return self.all_ended();
            }
            let before = self.events.len();
            self.one_calm_round();
            if self.events.len() == before {
                let wake = self.wake_at.take();
                self.at = wake.unwrap_or_else(|| panic!("stuck: {:#?}", self.unended()));
                self.input(Body::Tick);
            }
        }
        panic!("no end after {rounds_max} rounds: {:#?}", self.unended());
    }

    fn one_calm_round(&mut self) {
        for job in self.jobs_where(|state| matches!(state, JobState::Held { .. })) {
            self.command(Command::Release { job });
        }
        for task in self.tasks(|truth| matches!(truth, Truth::Launched)) {
            self.start(&task);
        }
        for report in std::mem::take(&mut self.outbox) {
            self.deliver(report);
        }
        // Every report that was lost is sent again: a backend reports the whole truth it sees.
        for task in self.tasks(|truth| matches!(truth, Truth::Running)) {
            if self.is_told(&task, false) {
                self.end(&task, &ExitPlan::Done);
            } else {
                self.deliver(Observation::TaskStarted { task });
            }
        }
        for task in self.tasks(|truth| matches!(truth, Truth::Ended(_))) {
            if !self.is_told(&task, true)
                && let Some(Truth::Ended(exit)) = self.processes[&task.attempt].tasks.get(&task)
            {
                let exit = exit.clone();
                self.deliver(Observation::TaskEnded { task, exit });
            }
        }
    }

    fn is_told(&self, task: &TaskId, ended: bool) -> bool {
        let active = self
            .state
            .job(task.attempt.job)
            .and_then(|job| job.state.active())
            .filter(|active| active.attempt == task.attempt);
        active.is_none_or(|active| match &active.tasks[task] {
            antiphon_kernel::TaskPhase::Launched => false,
            antiphon_kernel::TaskPhase::Started => !ended,
            antiphon_kernel::TaskPhase::Ended { .. } => true,
        })
    }

    fn all_ended(&self) {
        assert_eq!(self.state.active_jobs().count(), 0);
        assert_eq!(self.state.queued_jobs().count(), 0);
        for (name, node) in self.state.nodes() {
            let all = antiphon_kernel::Free::all(&node.spec);
            assert_eq!(node.free, all, "all of {name} is free again");
        }
        for id in 1..=self.submitted {
            let end = self.ended.get(&JobId(id));
            assert!(end.is_some(), "job-{id} is lost");
        }
    }

    fn unended(&self) -> Vec<String> {
        let jobs = self.state.jobs().values();
        jobs.filter(|job| !job.state.is_ended())
            .map(|job| format!("{job:?}"))
            .collect()
    }

    /// The log alone gives the same state, byte for byte.
    pub(crate) fn replay_is_equal(&self) {
        let mut state = State::default();
        for event in &self.events {
            apply(&mut state, event);
        }
        assert_eq!(
            postcard::to_stdvec(&state).unwrap(),
            postcard::to_stdvec(&self.state).unwrap()
        );
    }

    pub(crate) fn spec(&self, plan: &JobPlan) -> JobSpec {
        let kind = plan.kind.map(|kind| KINDS[kind].to_owned());
        let shape = |plan_of_shape: &ShapePlan| {
            let (gpus, tasks, processes) = match plan_of_shape {
                ShapePlan::Whole(gpus) => (
                    GpuAmount::from_gpus(*gpus),
                    Tasks::Fewest,
                    Processes::PerNode,
                ),
                ShapePlan::Thousandths(part) => (
                    GpuAmount::from_thousandths(*part),
                    Tasks::Fewest,
                    Processes::PerNode,
                ),
                ShapePlan::PerGpu(gpus) => {
                    let gpus = GpuAmount::from_gpus(*gpus);
                    (gpus, Tasks::Fewest, Processes::PerGpu)
                }
                ShapePlan::Tasks { tasks, gpus_each } => (
                    GpuAmount::from_gpus(tasks * gpus_each),
                    Tasks::Exactly(*tasks),
                    Processes::PerNode,
                ),
                ShapePlan::Cpus => (GpuAmount::ZERO, Tasks::Fewest, Processes::PerNode),
            };
            Shape {
                gpus,
                gpu_type: kind.clone(),
                tasks,
                processes,
                cpus: plan.cpus,
                memory: Bytes::ZERO,
            }
        };
        let shapes = std::iter::once(&plan.shape).chain(&plan.second_role);
        let roles = shapes.enumerate().map(|(index, plan)| Role {
            name: format!("role{index}"),
            command: vec!["train".into()],
            shape: shape(plan),
        });
        let living = self.jobs_where(|state| !state.is_ended());
        let after = plan.after.and_then(|number| pick(living, number));
        JobSpec {
            name: format!("job{}", self.submitted),
            team: "default".into(),
            user: "someone".into(),
            class: plan.class,
            roles: roles.collect(),
            environment: BTreeMap::new(),
            workdir: "/".into(),
            checkpoint: None,
            retry: RetrySpec {
                retries_max: plan.retries,
                backoff_first: Millis::from_secs(10),
                backoff_max: Millis::from_secs(120),
            },
            grace: Millis::from_secs(plan.grace_s),
            time_limit: plan.limit_s.map(Millis::from_secs),
            after: after.into_iter().collect(),
            data: DataSpec {
                rules: if plan.auto {
                    RuleMode::Auto
                } else {
                    RuleMode::Observe
                },
            },
            train: BTreeMap::new(),
        }
    }

    pub(crate) fn submit(&mut self, spec: JobSpec, behaviour: Behaviour) {
        let spec = Box::new(spec);
        let id = JobId(self.submitted + 1);
        let command = Command::Submit { spec };
        if admit(&self.state, &command).is_ok() {
            self.submitted += 1;
            self.behaviours.insert(id, behaviour);
        }
        self.command(command);
    }

    fn on_job(&mut self, number: usize, command: impl FnOnce(JobId) -> Command) {
        if let Some(job) = pick(self.jobs_where(|_| true), number) {
            self.command(command(job));
        }
    }

    fn jobs_where(&self, holds: impl Fn(&JobState) -> bool) -> Vec<JobId> {
        let jobs = self.state.jobs().values();
        jobs.filter(|job| holds(&job.state))
            .map(|job| job.id)
            .collect()
    }

    fn node(&self, number: usize) -> NodeName {
        self.nodes[number % self.nodes.len()].name.clone()
    }

    fn tasks(&self, holds: impl Fn(&Truth) -> bool) -> Vec<TaskId> {
        let tasks = self.processes.values().flat_map(|living| &living.tasks);
        tasks
            .filter(|(_, truth)| holds(truth))
            .map(|(task, _)| task.clone())
            .collect()
    }

    /// An attempt whose trainer can speak: it attaches, and a process of it runs.
    fn trainer(&self, number: usize) -> Option<AttemptId> {
        let speaks = |(attempt, living): (&AttemptId, &Living)| {
            let runs = living
                .tasks
                .values()
                .any(|truth| matches!(truth, Truth::Running));
            (runs && self.behaviours[&attempt.job].attaches).then_some(*attempt)
        };
        pick(self.processes.iter().filter_map(speaks), number)
    }

    fn answer(&mut self, attempt: AttemptId, answer: &AckBody) {
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

    fn start(&mut self, task: &TaskId) {
        let truth = self.processes.get_mut(&task.attempt).unwrap();
        *truth.tasks.get_mut(task).unwrap() = Truth::Running;
        let task = task.clone();
        self.outbox.push(Observation::TaskStarted { task });
    }

    fn end(&mut self, task: &TaskId, exit: &ExitPlan) {
        let exit = match exit {
            ExitPlan::Done => code(0, None),
            ExitPlan::Code(class) => code(3, *class),
            ExitPlan::Lost => Exit::Lost {
                evidence: "the node restarted".into(),
            },
            ExitPlan::Unstartable => Exit::Unstartable {
                error: "no such file".into(),
            },
            ExitPlan::Unreachable => Exit::Unreachable,
        };
        self.end_with(task, exit);
    }

    fn end_with(&mut self, task: &TaskId, exit: Exit) {
        let living = self.processes.get_mut(&task.attempt).unwrap();
        *living.tasks.get_mut(task).unwrap() = Truth::Ended(exit.clone());
        let task = task.clone();
        self.outbox.push(Observation::TaskEnded { task, exit });
    }

    fn deliver(&mut self, report: Observation) {
        let current = |attempt: AttemptId| {
            let active = self
                .state
                .job(attempt.job)
                .and_then(|job| job.state.active());
            active.is_some_and(|active| active.attempt == attempt)
        };
        let stale = attempt_of(&report).is_some_and(|attempt| !current(attempt));
        self.arrived.push(report.clone());
        if !stale {
            return self.input(Body::Observation(report));
        }
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
        self.input(Body::Observation(report));
    }

    fn wait_until(&mut self, until: Timestamp) {
        let mut ticks = 0;
        while let Some(wake) = self.wake_at.filter(|wake| *wake <= until) {
            self.at = self.at.max(wake);
            self.input(Body::Tick);
            ticks += 1;
            assert!(ticks < 1_000, "timers without end");
        }
        self.at = until;
    }

    fn command(&mut self, command: Command) {
        if admit(&self.state, &command).is_err() {
            return;
        }
        match &command {
            Command::Cancel { job } => {
                self.canceled.insert(*job);
            }
            Command::Hold { job } => {
                self.on_hold.insert(*job);
            }
            Command::Release { job } => {
                self.on_hold.remove(job);
            }
            Command::Submit { .. }
            | Command::Preempt { .. }
            | Command::Direct(_)
            | Command::Pause { .. }
            | Command::Unpause
            | Command::SetPolicy { .. } => (),
            Command::Drain { node, .. } => {
                self.drained.insert(node.clone());
            }
            Command::Undrain { node } => {
                self.drained.remove(node);
            }
        }
        self.input(Body::Command {
            by: "someone".into(),
            id: Some(CommandId {
                key: format!("key-{}", self.events.len()),
                content: String::new(),
            }),
            command,
        });
    }

    /// Logs one input and decides until there is nothing more to do, unless another is to share its commit.
    fn input(&mut self, body: Body) {
        self.log(body);
        if !self.together {
            self.decide();
        }
    }

    fn decide(&mut self) {
        for _ in 0..CYCLES_MAX {
            let decision = decide(&self.state);
            assert_eq!(decision, decide(&self.state), "same state, same answer");
            check::decision(&self.state, &decision).unwrap();
            self.check_decision(&decision);
            self.wake_at = decision.wake_at;
            if decision.actions.is_empty() {
                return self.check_timer();
            }
            self.log(Body::Decision(decision.clone()));
            for action in decision.actions {
                self.carry_out(&action);
            }
        }
        panic!("no end of decisions");
    }

    fn log(&mut self, body: Body) {
        let text = serde_json::to_string(&body).unwrap();
        assert_eq!(serde_json::from_str::<Body>(&text).unwrap(), body);
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.at,
            body,
        };
        let before = self.state.clone();
        apply(&mut self.state, &event);
        if let Body::Observation(observation) = &event.body {
            // What is said to be no news must change nothing: it would be lost, since it is not logged.
            let mut unmoved = before.clone();
            let tick = Body::Tick;
            apply(
                &mut unmoved,
                &Event {
                    body: tick,
                    ..event.clone()
                },
            );
            let changed = unmoved != self.state;
            assert!(
                is_news(&before, observation) || !changed,
                "{observation:?} is lost"
            );
        }
        self.events.push(event);
        check::invariants(&self.state).unwrap();
        let image = postcard::to_stdvec(&self.state).unwrap();
        assert_eq!(postcard::from_bytes::<State>(&image).unwrap(), self.state);
        self.check_ends();
    }

    /// An end is for good, and a cancel that was accepted ends in nothing else.
    fn check_ends(&mut self) {
        for job in self.state.jobs().values() {
            if let Some(end) = self.ended.get(&job.id) {
                assert_eq!(job.state, *end, "{} had ended", job.id);
            } else if job.state.is_ended() {
                let canceled = matches!(job.state, JobState::Canceled { .. });
                assert_eq!(canceled, self.canceled.contains(&job.id), "{}", job.id);
                self.ended.insert(job.id, job.state.clone());
            }
        }
        for id in (1..=self.submitted).map(JobId) {
            if self.state.job(id).is_none() && id.0 <= self.state.newest_job().map_or(0, |id| id.0)
            {
                // Forgotten within the event that ended it; its end was not seen.
                let at = self.at;
                let unseen = JobState::Canceled { at };
                self.ended.entry(id).or_insert(unseen);
            }
        }
    }

    /// What is promised about actions, checked without the kernel's own books.
    fn check_decision(&self, decision: &Decision) {
        let deciding = *self.state.mode() == Mode::Deciding;
        for action in &decision.actions {
            match action {
                Action::Launch {
                    attempt,
                    allocation,
                } => {
                    assert!(deciding, "{attempt} starts while nothing is decided");
                    self.check_launch(*attempt, allocation);
                }
                Action::Kill { attempt, .. } => {
                    let (at, grace) = self.terminated[attempt];
                    assert!(
                        at.after(grace) <= self.at,
                        "{attempt} is killed within its grace"
                    );
                }
                Action::Yield {
                    attempt,
                    cause,
                    until,
                    ..
                } => {
                    let wait = until.since(self.at);
                    assert!(wait <= self.state.policy().checkpoint_wait_ms_max);
                    self.check_stop(*attempt, cause, decision);
                }
                Action::Terminate {
                    attempt,
                    cause,
                    kill_at,
                } => {
                    let grace = self.state.job(attempt.job).unwrap().spec.grace;
                    assert_eq!(*kill_at, self.at.after(grace));
                    self.check_stop(*attempt, cause, decision);
                }
                Action::Abandon { .. } => assert!(deciding),
                Action::Settle { .. } | Action::Direct { .. } => (),
            }
        }
    }

    fn check_launch(&self, attempt: AttemptId, allocation: &Allocation) {
        let job = self.state.job(attempt.job).unwrap();
        assert!(
            !self.on_hold.contains(&job.id),
            "{attempt} starts while its job is on hold"
        );
        assert!(
            !self.canceled.contains(&job.id),
            "{attempt} starts after its job was canceled"
        );
        assert!(
            job.not_before.is_none_or(|due| due <= self.at),
            "{attempt} starts before its retry is due"
        );
        for earlier in &job.spec.after {
            if let Some(earlier) = self.state.job(*earlier) {
                assert!(matches!(earlier.state, JobState::Succeeded { .. }));
            }
        }
        // A gang is whole: every role has exactly the GPUs it asked for, in equal tasks.
        for role in &job.spec.roles {
            let tasks = || {
                allocation
                    .tasks
                    .iter()
                    .filter(|task| task.role == role.name)
            };
            let held: GpuAmount = tasks().map(TaskAllocation::gpu_amount).sum();
            assert_eq!(held, role.shape.gpus, "{attempt} is not whole");
            let first = tasks().next().unwrap().gpu_amount();
            assert!(tasks().all(|task| task.gpu_amount() == first));
            assert!(tasks().map(|task| task.index).eq(0..tasks().count() as u32));
            if let Tasks::Exactly(count) = role.shape.tasks {
                assert_eq!(tasks().count(), count as usize);
            }
        }
        for task in &allocation.tasks {
            let name = &task.node;
            let offered = self.offered.iter().find(|node| node.name == *name);
            let has = |gpu: &u32| offered.is_some_and(|node| *gpu < node.gpus);
            assert!(
                offered.is_some(),
                "{attempt} on {name}, which is not offered"
            );
            assert!(
                task.gpus.iter().all(has),
                "{attempt} on {name} without a GPU"
            );
            assert!(!self.drained.contains(name), "{attempt} on drained {name}");
        }
        // No process of an earlier attempt lives, and nobody else's process is on these GPUs.
        for (other, living) in &self.processes {
            let ended = living
                .tasks
                .values()
                .all(|truth| matches!(truth, Truth::Ended(_)));
            if ended {
                continue;
            }
            assert_ne!(
                other.job, attempt.job,
                "{attempt} starts while {other} lives"
            );
            for task in &allocation.tasks {
                let held = |gpu: &u32| -> GpuAmount {
                    let tasks = living.allocation.tasks.iter();
                    tasks
                        .filter(|held| held.node == task.node && held.gpus.contains(gpu))
                        .map(|held| held.gpu_share)
                        .sum()
                };
                for gpu in &task.gpus {
                    let both = held(gpu) + task.gpu_share;
                    let fits = both <= GpuAmount::from_gpus(1);
                    assert!(fits, "GPU {gpu} of {} is held twice", task.node);
                }
            }
        }
    }

    /// A stop for another job's sake takes a strictly lower class, and that job then fits.
    fn check_stop(&self, attempt: AttemptId, cause: &StopCause, decision: &Decision) {
        let victim = self.state.job(attempt.job).unwrap();
        let StopCause::Priority { preemptor } = cause else {
            return;
        };
        let begun = matches!(
            victim.state,
            JobState::Starting { .. } | JobState::Running { .. }
        );
        if !begun {
            return;
        }
        assert_eq!(*self.state.mode(), Mode::Deciding);
        let preemptor = self.state.job(*preemptor).unwrap();
        assert!(victim.spec.class > preemptor.spec.class);
        assert!(matches!(preemptor.state, JobState::Pending { .. }));
        let mut coming: Vec<AttemptId> = Vec::new();
        let mut taken = Vec::new();
        for action in &decision.actions {
            match action {
                Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => {
                    coming.push(*attempt);
                }
                Action::Launch { allocation, .. } => taken.push(allocation),
                Action::Kill { .. }
                | Action::Settle { .. }
                | Action::Direct { .. }
                | Action::Abandon { .. } => (),
            }
        }
        let freed: Vec<&Allocation> = self
            .state
            .active_jobs()
            .filter_map(|job| {
                let active = job.state.active()?;
                let stopping = matches!(job.state, JobState::Stopping { .. });
                (stopping || coming.contains(&active.attempt)).then_some(&active.allocation)
            })
            .collect();
        assert_ne!(
            fits(&self.state, &preemptor.spec, &freed, &taken),
            Some(false),
            "{attempt} gives way to {} in vain",
            preemptor.id
        );
        assert_ne!(
            fits(&self.state, &preemptor.spec, &[], &taken),
            Some(true),
            "{attempt} gives way to {}, which fits already",
            preemptor.id
        );
    }

    /// The timer wakes for everything that time alone brings about, and never for what is over.
    fn check_timer(&self) {
        let wake = self.wake_at.unwrap_or(Timestamp::from_millis(u64::MAX));
        assert!(wake > self.at, "a timer that fires at once, and again");
        for job in self.state.queued_jobs() {
            let due = job.not_before.filter(|due| *due > self.at);
            assert!(
                due.is_none_or(|due| wake <= due),
                "nobody wakes for the retry of {}",
                job.id
            );
        }
        for job in self.state.active_jobs() {
            let JobState::Stopping { phase, .. } = &job.state else {
                continue;
            };
            let next = match phase {
                StopPhase::CheckpointWait { until, .. } => *until,
                StopPhase::Grace { kill_at } => *kill_at,
                StopPhase::Killed => continue,
            };
            assert!(wake <= next, "nobody wakes for the clock of {}", job.id);
        }
    }

    /// What the backend and the processes do at once; what they report comes later.
    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Launch {
                attempt,
                allocation,
            } => {
                let tasks = allocation.tasks.iter().map(|task| TaskId {
                    attempt: *attempt,
                    role: task.role.clone(),
                    index: task.index,
                });
                let living = Living {
                    allocation: allocation.clone(),
                    tasks: tasks.map(|task| (task, Truth::Launched)).collect(),
                };
                let known = self.processes.insert(*attempt, living);
                assert!(known.is_none(), "{attempt} is launched twice");
            }
            Action::Terminate { attempt, .. } => {
                let grace = self.state.job(attempt.job).unwrap().spec.grace;
                self.terminated.insert(*attempt, (self.at, grace));
                if !self.behaviours[&attempt.job].stubborn {
                    self.signal(*attempt, 15);
                }
            }
            Action::Kill { attempt, .. } => self.signal(*attempt, 9),
            Action::Yield { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Abandon { .. } => (),
        }
    }

    fn signal(&mut self, attempt: AttemptId, number: i32) {
        let living = |(task, truth): (&TaskId, &Truth)| match truth {
            Truth::Launched => Some((task.clone(), Exit::Superseded)),
            Truth::Running => Some((task.clone(), signal(number))),
            Truth::Ended(_) => None,
        };
        let tasks: Vec<_> = self.processes[&attempt]
            .tasks
            .iter()
            .filter_map(living)
            .collect();
        for (task, exit) in tasks {
            self.end_with(&task, exit);
        }
    }
}
