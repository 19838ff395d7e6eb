//! Reads a scenario, plays the backend and the trainers, and prints what the kernel decided. Holds no expectations.
//!
//! ```text
//! nodes: n0 8 H100, n1 8 H100            nodes with GPUs and their type
//! 0s   submit a: 16 best-effort attached  a job: GPUs, class, and how its processes behave
//! 70s  a saves 500                        the trainer acknowledges a checkpoint; a `yield`, if one waits, and ends
//! 80s  a exits 0                          its processes end by themselves
//! 90s  together: hold a, cancel a         inputs that share one commit: nothing is decided between them
//! ```
//! Behaviours: `attached` (obeys directives), `stubborn` (ignores SIGTERM), `grace=30s`, `retries=1`, `limit=60s`,
//! `after=a+b`, `tasks=2`, `type=A100`, `cpus=4`, `auto`. Without `stubborn`, processes end on SIGTERM at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use antiphon_kernel::{State, admit, apply, check, decide, explain};
use antiphon_types::*;
use expect_test::Expect;

/// Cycles that may follow one input; far more, and the live server takes it for running in circles.
const CYCLES_MAX: usize = 10;

pub(crate) fn check(scenario: &str, expected: Expect) {
    expected.assert_eq(&play(scenario));
}

pub(crate) fn play(scenario: &str) -> String {
    let mut world = World::default();
    for line in scenario
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        if let Some(nodes) = line.strip_prefix("nodes:") {
            let nodes = nodes.split(',').map(node).collect();
            world.input(Body::Observation(Observation::Inventory { nodes }));
            continue;
        }
        let (at, what) = line
            .split_once(char::is_whitespace)
            .expect("a time and an input");
        let at = Timestamp::from_millis(0).after(at.parse().expect("a time"));
        world.wait_until(at);
        world.at = at;
        world.line(what.trim());
    }
    world.out
}

fn node(text: &str) -> NodeSpec {
    let parts: Vec<_> = text.split_whitespace().collect();
    NodeSpec {
        name: parts[0].into(),
        gpus: parts[1].parse().unwrap(),
        gpu_type: parts.get(2).copied().unwrap_or("none").into(),
        gpu_memory: Bytes::ZERO,
        gpus_virtual: true,
        cpus: 64,
        memory: Bytes::new(1 << 40),
    }
}

#[derive(Default)]
struct World {
    state: State,
    at: Timestamp,
    wake_at: Option<Timestamp>,
    attached: BTreeSet<JobId>,
    stubborn: BTreeSet<JobId>,
    out: String,
    /// Whether inputs are only logged, as those in front of the last one of a commit.
    batching: bool,
}

impl World {
    fn line(&mut self, text: &str) {
        if let Some(inputs) = text.strip_prefix("together:") {
            self.batching = true;
            inputs.split(',').for_each(|input| self.line(input.trim()));
            self.batching = false;
            return self.decide();
        }
        let words: Vec<_> = text.split_whitespace().collect();
        match words[..] {
            ["submit", name, ..] => self.submit(name.trim_end_matches(':'), &words[2..]),
            ["cancel", job] => self.command(Command::Cancel { job: self.id(job) }),
            ["hold", job] => self.command(Command::Hold { job: self.id(job) }),
            ["release", job] => self.command(Command::Release { job: self.id(job) }),
            ["preempt", job] => self.command(Command::Preempt { job: self.id(job) }),
            ["drain", node] => {
                self.command(Command::Drain {
                    node: node.into(),
                    reason: "test".into(),
                });
            }
            ["undrain", node] => self.command(Command::Undrain { node: node.into() }),
            ["pause"] => self.command(Command::Pause {
                reason: "maintenance".into(),
            }),
            ["unpause"] => self.command(Command::Unpause),
            ["bug"] => self.input(Body::SafeMode {
                bug: "1 != 2".into(),
            }),
            ["why", job] => {
                let reasons = explain::waiting(&self.state, self.at);
                let id = self.id(job);
                let state = self
                    .state
                    .job(id)
                    .map_or("forgotten", |job| job.state.name());
                let reason = reasons
                    .get(&id)
                    .map_or_else(|| state.to_owned(), ToString::to_string);
                self.print(&format!("why {id}: {reason}"));
            }
            ["state", job] => {
                let job = self.state.job(self.id(job)).unwrap();
                let line = format!("{} is {}", job.id, job.state.name());
                self.print(&line);
            }
            [job, "saves", step] => self.saves(self.id(job), step.parse().unwrap()),
            [job, "progress", step, "of", total] => {
                let attempt = self.attempt(self.id(job));
                let (step, steps_total) = (step.parse().unwrap(), total.parse().unwrap());
                let step_time = Millis::from_secs(1);
                self.input(Body::Finding(Finding::Progress {
                    attempt,
                    step,
                    steps_total,
                    step_time,
                }));
            }
            [job, "exits", code] => {
                let exit = Exit::Code {
                    code: code.parse().unwrap(),
                    class: None,
                    evidence: String::new(),
                };
                self.end(self.id(job), &exit);
            }
            [job, "task", index, "exits", code] => {
                let exit = Exit::Code {
                    code: code.parse().unwrap(),
                    class: None,
                    evidence: String::new(),
                };
                let attempt = self.attempt(self.id(job));
                let task = TaskId {
                    attempt,
                    role: "main".into(),
                    index: index.parse().unwrap(),
                };
                self.input(Body::Observation(Observation::TaskEnded { task, exit }));
            }
            // SIGTERM came from outside antiphon, and its processes saved and exited 0.
            [job, "leaves"] => {
                let exit = Exit::Code {
                    code: 0,
                    class: Some(ExitClass::Preempted),
                    evidence: String::new(),
                };
                self.end(self.id(job), &exit);
            }
            [job, "is", "not", "launched"] => {
                let error = "no files left".into();
                self.end(self.id(job), &Exit::NotLaunched { error });
            }
            [job, "fails", class] => {
                let class = match class {
                    "oom" => ExitClass::OutOfMemory,
                    "data" => ExitClass::DataError,
                    "hardware" => ExitClass::Hardware,
                    other => panic!("unknown class {other}"),
                };
                let exit = Exit::Code {
                    code: 1,
                    class: Some(class),
                    evidence: "its words".into(),
                };
                self.end(self.id(job), &exit);
            }
            [job, "unstartable"] => {
                self.end(
                    self.id(job),
                    &Exit::Unstartable {
                        error: "no such file: `x`".into(),
                    },
                );
            }
            [job, "late", number, "exits", code] => {
                let attempt = AttemptId {
                    job: self.id(job),
                    number: number.parse().unwrap(),
                };
                let exit = Exit::Code {
                    code: code.parse().unwrap(),
                    class: None,
                    evidence: String::new(),
                };
                let task = TaskId {
                    attempt,
                    role: "main".into(),
                    index: 0,
                };
                self.input(Body::Observation(Observation::TaskEnded { task, exit }));
            }
            [job, "noise", shard] => {
                let attempt = self.attempt(self.id(job));
                let evidence = ShardEvidence {
                    loss_millinats: 5_540,
                    fell_millinats: -10,
                    others_loss_millinats: 2_810,
                    others_fell_millinats: 1_900,
                    samples: 120,
                    step: 80,
                };
                let shard = shard.into();
                self.input(Body::Finding(Finding::ShardNoise {
                    attempt,
                    shard,
                    evidence,
                }));
            }
            ["nodes", ..] => {
                let nodes = text
                    .trim_start_matches("nodes")
                    .split(',')
                    .map(node)
                    .collect();
                self.input(Body::Observation(Observation::Inventory { nodes }));
            }
            ref other => panic!("unknown input {other:?}"),
        }
    }

    fn submit(&mut self, name: &str, words: &[&str]) {
        let mut shape = Shape {
            gpus: words[0].parse().unwrap(),
            gpu_type: None,
            tasks: Tasks::Fewest,
            processes: Processes::PerNode,
            cpus: 0,
            memory: Bytes::ZERO,
        };
        let mut spec = JobSpec {
            name: name.into(),
            team: "default".into(),
            user: "someone".into(),
            class: Class::Standard,
            roles: Vec::new(),
            environment: BTreeMap::new(),
            workdir: "/".into(),
            checkpoint: None,
            retry: RetrySpec {
                retries_max: 5,
                backoff_first: Millis::from_secs(10),
                backoff_max: Millis::from_secs(120),
            },
            grace: Millis::from_secs(60),
            time_limit: None,
            after: Vec::new(),
            data: DataSpec::default(),
            train: BTreeMap::new(),
        };
        let (mut attached, mut stubborn) = (false, false);
        for word in &words[1..] {
            match word.split_once('=') {
                None if *word == "attached" => attached = true,
                None if *word == "stubborn" => stubborn = true,
                None if *word == "auto" => spec.data.rules = RuleMode::Auto,
                None if *word == "per-gpu" => shape.processes = Processes::PerGpu,
                None => spec.class = Class::ALL.into_iter().find(|c| c.name() == *word).unwrap(),
                Some(("grace", span)) => spec.grace = span.parse().unwrap(),
                Some(("limit", span)) => spec.time_limit = Some(span.parse().unwrap()),
                Some(("retries", n)) => spec.retry.retries_max = n.parse().unwrap(),
                Some(("tasks", n)) => shape.tasks = Tasks::Exactly(n.parse().unwrap()),
                Some(("cpus", n)) => shape.cpus = n.parse().unwrap(),
                Some(("type", t)) => shape.gpu_type = Some(t.into()),
                Some(("after", jobs)) => {
                    spec.after = jobs.split('+').map(|job| self.id(job)).collect();
                }
                Some((key, _)) => panic!("unknown word {key}"),
            }
        }
        spec.roles = vec![Role {
            name: "main".into(),
            command: vec!["train".into()],
            shape,
        }];
        let id = JobId(
            self.state
                .jobs()
                .keys()
                .next_back()
                .map_or(1, |last| last.0 + 1),
        );
        if attached {
            self.attached.insert(id);
        }
        if stubborn {
            self.stubborn.insert(id);
        }
        self.command(Command::Submit {
            spec: Box::new(spec),
        });
    }

    /// A job by its name, newest first, or by its id.
    fn id(&self, text: &str) -> JobId {
        let named = self
            .state
            .jobs()
            .values()
            .rev()
            .find(|job| job.spec.name == text);
        named
            .map(|job| job.id)
            .or_else(|| text.parse().ok())
            .expect("a job that was submitted")
    }

    fn attempt(&self, job: JobId) -> AttemptId {
        self.state
            .job(job)
            .unwrap()
            .state
            .active()
            .expect("a running job")
            .attempt
    }

    fn command(&mut self, command: Command) {
        match admit(&self.state, &command) {
            Ok(()) => self.input(Body::Command {
                by: "someone".into(),
                id: None,
                command,
            }),
            Err(no) => self.print(&format!("refused [{}]: {no}; {}", no.code(), no.help())),
        }
    }

    fn saves(&mut self, job: JobId, step: u64) {
        let attempt = self.attempt(job);
        let (save, bytes) = (Millis::from_secs(4), Bytes::new(1 << 30));
        let path = format!("step-{step}");
        let manifest = String::new();
        let checkpoint = Checkpoint {
            attempt,
            step,
            path,
            bytes,
            save,
            manifest,
            at: self.at,
        };
        self.input(Body::Observation(Observation::Checkpointed { checkpoint }));
        let job = self.state.job(job).unwrap();
        let waiting = job
            .directives
            .iter()
            .rfind(|d| d.body == DirectiveBody::Yield && d.ack.is_none());
        if let Some(directive) = waiting {
            let ack = Ack {
                directive: directive.id,
                body: AckBody::Applied { slot: step * 16 },
            };
            self.input(Body::Observation(Observation::Acknowledged {
                attempt,
                ack,
            }));
            if !self.stubborn.contains(&attempt.job) {
                let exit = Exit::Code {
                    code: 0,
                    class: None,
                    evidence: String::new(),
                };
                self.end(attempt.job, &exit);
            }
        }
    }

    fn end(&mut self, job: JobId, exit: &Exit) {
        let active = self
            .state
            .job(job)
            .unwrap()
            .state
            .active()
            .expect("a running job");
        for task in active.tasks.keys().cloned().collect::<Vec<_>>() {
            self.input(Body::Observation(Observation::TaskEnded {
                task,
                exit: exit.clone(),
            }));
        }
    }

    fn wait_until(&mut self, until: Timestamp) {
        while let Some(wake) = self.wake_at.filter(|wake| *wake < until) {
            self.wake_at = None;
            self.at = wake;
            self.input(Body::Tick);
        }
    }

    /// Logs one input and decides until there is nothing more to do, as the live server does.
    fn input(&mut self, body: Body) {
        self.log(body);
        if !self.batching {
            self.decide();
        }
    }

    fn decide(&mut self) {
        for _ in 0..CYCLES_MAX {
            let decision = decide(&self.state);
            assert_eq!(
                decision,
                decide(&self.state),
                "the same state decides the same"
            );
            check::decision(&self.state, &decision).unwrap();
            self.wake_at = decision.wake_at;
            if decision.actions.is_empty() {
                return;
            }
            self.log(Body::Decision(decision.clone()));
            for action in decision.actions {
                self.print(&describe(&action, self.at));
                self.carry_out(action);
            }
        }
        panic!("no end of decisions after {CYCLES_MAX} cycles");
    }

    fn log(&mut self, body: Body) {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.at,
            body,
        };
        apply(&mut self.state, &event);
        check::invariants(&self.state).unwrap();
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Launch { attempt, .. } => {
                let active = self.state.job(attempt.job).unwrap().state.active().unwrap();
                for task in active.tasks.keys().cloned().collect::<Vec<_>>() {
                    self.log(Body::Observation(Observation::TaskStarted { task }));
                }
                if self.attached.contains(&attempt.job) {
                    self.log(Body::Observation(Observation::Attached {
                        attempt,
                        step: 0,
                    }));
                }
            }
            Action::Terminate { attempt, .. } if !self.stubborn.contains(&attempt.job) => {
                self.signal(attempt, 15);
            }
            Action::Kill { attempt, .. } => self.signal(attempt, 9),
            Action::Terminate { .. }
            | Action::Yield { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Abandon { .. } => (),
        }
    }

    fn signal(&mut self, attempt: AttemptId, signal: i32) {
        let active = self.state.job(attempt.job).unwrap().state.active().unwrap();
        for task in active.tasks.keys().cloned().collect::<Vec<_>>() {
            let exit = Exit::Signal {
                signal,
                class: None,
                evidence: String::new(),
            };
            self.log(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }

    fn print(&mut self, text: &str) {
        let at = format!("{}s", self.at.as_millis() / 1_000);
        writeln!(self.out, "{at:<5}{text}").unwrap();
    }
}

fn describe(action: &Action, now: Timestamp) -> String {
    let seconds = |at: Timestamp| at.since(now);
    match action {
        Action::Launch {
            attempt,
            allocation,
        } => format!("launch {attempt} on {allocation}"),
        Action::Yield {
            attempt,
            cause,
            until,
            ..
        } => {
            format!(
                "yield {attempt}: {cause}, at most {} for its checkpoint",
                seconds(*until)
            )
        }
        Action::Terminate {
            attempt,
            cause,
            kill_at,
        } => {
            format!("SIGTERM {attempt}: {cause}, grace {}", seconds(*kill_at))
        }
        Action::Kill { attempt, evidence } => format!("SIGKILL {attempt}: {evidence}"),
        Action::Settle { attempt, outcome } => match outcome {
            Outcome::Succeeded => format!("settle {attempt}: succeeded"),
            Outcome::Failed { class } => format!("settle {attempt}: failed, {class}"),
            Outcome::Canceled => format!("settle {attempt}: canceled"),
            Outcome::Held => format!("settle {attempt}: held"),
            Outcome::Requeued => format!("settle {attempt}: requeued"),
            Outcome::Retried { class, not_before } => {
                format!(
                    "settle {attempt}: retry in {}, {class}",
                    seconds(*not_before)
                )
            }
        },
        Action::Direct { job, directive } => {
            format!(
                "direct {job} #{}: {} ({})",
                directive.id, directive.body, directive.reason
            )
        }
        Action::Abandon { job, dependency } => {
            format!("abandon {job}: {dependency} did not succeed")
        }
    }
}
