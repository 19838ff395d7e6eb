//! Reads a scenario, plays the backend and the trainers, and prints what the kernel decided. Holds no expectations.
//!
//! First the cluster and the settings, then inputs with their time, in order. What jobs are like stands in `world/submit`,
//! nodes and teams in `world/cluster`, what can be asked in `world/questions`.
//!
//! ```text
//! partitions: fast 400Gbps $2.00 max=48h, spot 100Gbps $0.40 preemptible
//! shared: licences=4
//! nodes: n[0-3] 8 H100 leaf=l0 partition=fast, d0 0    names, GPUs, type
//! teams: rlhf quota=8 limit=16 budget=100, eval weight=2
//! policy: near_end_ms=10m promote_after_ms.standard=2h  settings by their names
//! gate: on over_ms=20m                             the gate, which is off where nothing is said; `off`
//! 0s   submit a: 16 best-effort attached      a job: GPUs, and what else is to be said about it
//! 5s   a progress 10 of 100 at 2s             a finding: steps done, steps to do, time of one
//! 6s   a outlook 500                          a finding: what its GPU-time counts, in thousandths
//! 6s   a finds shard s1 noise: set_weights s1=0; stop   a finding of a rule with its remedies; `-` for the run as a whole
//! 6s   a answers 1 applied                    the trainer's word on a directive: applied, rejected, failed, expired
//! 6s   approve a shard s1                     also `undo a 1`, `ask a gpus 4`, `ask a samples law`, `a draws s1:law`
//! 6s   class b production                     a job that waits gets another class
//! 7s   a idle 3% for 10m                      a finding; `a works` takes it back
//! 7s   a takes 40GiB                          a finding: what its tensors take of each GPU
//! 70s  a saves 500                            a checkpoint is acknowledged; a `yield`, if one waits, and the processes end
//! 80s  a exits 0                              its processes end by themselves; `a task 1 exits 3`: one of them
//! 81s  a fails hardware                       a class of exit: oom, data, hardware; also `a task 1 fails hardware`
//! 82s  a task 1 is unfit                      the check of its node failed
//! 85s  n1 goes                                its backend no longer offers it; `n1 comes`; `n1 loses GPU 3`
//! 86s  maintain n0+n1 from 2h until 3h        times count from the start of the scenario
//! 87s  notice n1 gpus=2 within 120s spot       all of the node without `gpus`; also `inference`, or nothing
//! 90s  together: hold a, cancel a             inputs that share one commit: nothing is decided between them
//! 95s  why b                                  a question
//! ```

mod cluster;
mod describe;
mod questions;
mod steering;
mod submit;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use antiphon_kernel::{State, admit, apply, check, decide, next_timer};
use antiphon_types::*;
use expect_test::Expect;

use self::cluster::Cluster;
use self::describe::describe;
use self::submit::Trainer;

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
        let (first, rest) = line
            .split_once(char::is_whitespace)
            .expect("a time and an input");
        let rest = rest.trim();
        if world.set_up(first, rest) {
            continue;
        }
        let at = time(first);
        world.wait_until(at);
        world.at = at;
        world.line(rest);
    }
    world.out
}

/// A time of the scenario, which starts at the epoch.
fn time(text: &str) -> Timestamp {
    Timestamp::ZERO.after(text.parse().expect("a time"))
}

#[derive(Default)]
struct World {
    state: State,
    at: Timestamp,
    wake_at: Option<Timestamp>,
    cluster: Cluster,
    /// How the processes of each job behave.
    trainers: BTreeMap<JobId, Trainer>,
    /// When the processes of launched attempts start.
    starts: BTreeSet<(Timestamp, AttemptId)>,
    /// When attempts end by themselves.
    ends: BTreeSet<(Timestamp, AttemptId)>,
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
        if self.asks(&words) || self.changes_cluster(text, &words) || self.commands(&words) {
            return;
        }
        match words[..] {
            [job, "holds", gpus] => self.holds(self.id(job), gpus),
            [job, "saves", step] => self.saves(self.id(job), step.parse().unwrap()),
            [job, "progress", step, "of", total] => self.progress(job, step, total, "1s"),
            [job, "progress", step, "of", total, "at", each] => {
                self.progress(job, step, total, each);
            }
            [job, "outlook", weight] => {
                let found = format!("convergence - improving: weigh {weight}");
                self.diagnose(job, &found);
            }
            [job, "finds", ..] => {
                let (_, found) = text.split_once("finds").unwrap();
                self.diagnose(job, found);
            }
            [job, "idle", percent, "for", since] => self.idle(job, percent, since),
            [job, "works"] => self.idle(job, "90%", "0s"),
            [job, "takes", size] => self.measured(job, size),
            [job, "reaches", loss, "at", step] => self.reaches(job, loss, step),
            [job, "noise", shard] => {
                let found = format!("shard {shard} noise: set_weights {shard}=0");
                self.diagnose(job, &found);
            }
            [job, "answers", directive, word] => self.answers(job, directive, word),
            [job, "draws", shard] => self.draws(job, shard),
            [job, "task", task, ref how @ ..] => {
                let task = self.task(job, task);
                let exit = exit(how);
                self.input(Body::Observation(Observation::TaskEnded { task, exit }));
            }
            [job, "late", number, ref how @ ..] => {
                let attempt = AttemptId {
                    job: self.id(job),
                    number: number.parse().unwrap(),
                };
                let exit = exit(how);
                let task = TaskId {
                    attempt,
                    role: "main".into(),
                    index: 0,
                };
                self.input(Body::Observation(Observation::TaskEnded { task, exit }));
            }
            [job, ref how @ ..] => self.end(self.id(job), &exit(how)),
            [] => panic!("a time without an input"),
        }
    }

    /// What a person asks antiphon to do.
    fn commands(&mut self, words: &[&str]) -> bool {
        let command = match *words {
            ["submit", name, ..] => {
                self.submit(name.trim_end_matches(':'), &words[2..]);
                return true;
            }
            ["cancel", job] => Command::Cancel { job: self.id(job) },
            ["hold", job] => Command::Hold { job: self.id(job) },
            ["release", job] => Command::Release { job: self.id(job) },
            ["preempt", job] => Command::Preempt { job: self.id(job) },
            ["class", job, class] => Command::SetClass {
                job: self.id(job),
                class: Class::ALL
                    .into_iter()
                    .find(|known| known.name() == class)
                    .unwrap(),
            },
            ["approve", ..] | ["undo", ..] | ["ask", ..] => self.of_loop(words),
            ["drain", node] => Command::Drain {
                node: node.into(),
                reason: "test".into(),
            },
            ["undrain", node] => Command::Undrain { node: node.into() },
            ["maintain", nodes, "from", from, "until", until] => Command::Maintain(Maintenance {
                nodes: nodes.split('+').map(NodeName::from).collect(),
                from: time(from),
                until: time(until),
                reason: "new cables".into(),
            }),
            ["notice", node, ref words @ ..] => Command::Notice(notice(node, words)),
            ["pause"] => Command::Pause {
                reason: "maintenance".into(),
            },
            ["unpause"] => Command::Unpause,
            ["bug"] => {
                self.input(Body::SafeMode {
                    bug: "1 != 2".into(),
                });
                return true;
            }
            _ => return false,
        };
        self.command(command);
        true
    }

    fn progress(&mut self, job: &str, step: &str, total: &str, each: &str) {
        self.finding(Finding::Progress {
            attempt: self.attempt(self.id(job)),
            step: step.parse().unwrap(),
            steps_total: total.parse().unwrap(),
            step_time: each.parse().unwrap(),
        });
    }

    fn idle(&mut self, job: &str, percent: &str, since: &str) {
        self.finding(Finding::Idle {
            attempt: self.attempt(self.id(job)),
            utilization_percent: percent.trim_end_matches('%').parse().unwrap(),
            since: since.parse().unwrap(),
        });
    }

    fn measured(&mut self, job: &str, size: &str) {
        self.finding(Finding::Measured(Measured {
            attempt: self.attempt(self.id(job)),
            steps: 30,
            step_us: 1_000_000,
            allocated: size.parse().unwrap(),
        }));
    }

    fn reaches(&mut self, job: &str, loss: &str, step: &str) {
        let loss: f64 = loss.parse().unwrap();
        self.finding(Finding::Reached(Reached {
            attempt: self.attempt(self.id(job)),
            step: step.parse().unwrap(),
            value_micro: (loss * 1e6) as i64,
        }));
    }

    fn finding(&mut self, finding: Finding) {
        self.input(Body::Finding(finding));
    }

    /// A job by its name, newest first, or by its id.
    fn id(&self, text: &str) -> JobId {
        let mut jobs = self.state.jobs().values().rev();
        let named = jobs.find(|job| job.spec.name == text);
        named
            .map(|job| job.id)
            .or_else(|| text.parse().ok())
            .unwrap_or_else(|| panic!("no job `{text}` was submitted"))
    }

    fn active(&self, job: JobId) -> &antiphon_kernel::Active {
        let job = self.state.job(job).unwrap();
        let active = job.state.active();
        active.unwrap_or_else(|| panic!("{} does not run", job.id))
    }

    fn attempt(&self, job: JobId) -> AttemptId {
        self.active(job).attempt
    }

    /// A task by its number, or by `role.number`.
    fn task(&self, job: &str, text: &str) -> TaskId {
        let (role, index) = text.split_once('.').unwrap_or(("main", text));
        TaskId {
            attempt: self.attempt(self.id(job)),
            role: role.into(),
            index: index.parse().unwrap(),
        }
    }

    fn is_stubborn(&self, job: JobId) -> bool {
        self.trainers
            .get(&job)
            .is_some_and(|trainer| trainer.stubborn)
    }

    fn tasks(&self, job: JobId) -> Vec<TaskId> {
        self.active(job).tasks().map(|(task, _)| task).collect()
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
            if !self.is_stubborn(attempt.job) {
                self.end(attempt.job, &exit(&["exits", "0"]));
            }
        }
    }

    fn end(&mut self, job: JobId, exit: &Exit) {
        for task in self.tasks(job) {
            self.input(Body::Observation(Observation::TaskEnded {
                task,
                exit: exit.clone(),
            }));
        }
    }

    fn wait_until(&mut self, until: Timestamp) {
        loop {
            if let Some((at, attempt)) = self.next_start(until) {
                self.starts.remove(&(at, attempt));
                self.at = at;
                if is_current(&self.state, attempt) {
                    self.start(attempt);
                    self.decide();
                }
                continue;
            }
            let ends = self.ends.first().copied().filter(|(at, _)| *at < until);
            let wake = self.wake_at.filter(|wake| *wake < until);
            match (ends, wake) {
                (None, None) => return,
                (Some((at, attempt)), wake) if wake.is_none_or(|wake| at <= wake) => {
                    self.ends.pop_first();
                    if is_current(&self.state, attempt) {
                        self.at = at;
                        self.end(attempt.job, &exit(&["exits", "0"]));
                    }
                }
                (_, wake) => {
                    self.wake_at = None;
                    self.at = wake.expect("one of them is there");
                    self.input(Body::Tick);
                }
            }
        }
    }

    /// Logs one input and decides for as long as a cycle says that another has something to decide, as the live server does.
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
            let decided = self.state.seq();
            for action in decision.actions {
                self.print(&describe(&action, self.at));
                self.carry_out(action);
            }
            // What processes did about it is one more input.
            if !decision.again && self.state.seq() == decided {
                let timer = next_timer(&self.state);
                self.wake_at = self.wake_at.into_iter().chain(timer).min();
                return;
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
                let trainer = self.trainers.get(&attempt.job);
                match trainer.and_then(|trainer| trainer.starts) {
                    Some(starts) => {
                        self.starts.insert((self.at.after(starts), attempt));
                    }
                    None => self.start(attempt),
                }
            }
            Action::Terminate { attempt, .. } if !self.is_stubborn(attempt.job) => {
                self.signal(attempt, 15);
            }
            Action::Kill { attempt, .. } => self.signal(attempt, 9),
            Action::Terminate { .. }
            | Action::Yield { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => (),
        }
    }

    /// The next start before a time, if nothing else comes before it.
    fn next_start(&self, until: Timestamp) -> Option<(Timestamp, AttemptId)> {
        let first = self.starts.first().copied()?;
        let ends = self.ends.first().map(|(at, _)| *at);
        let others = ends.into_iter().chain(self.wake_at).chain([until]);
        (Some(first.0) < others.min()).then_some(first)
    }

    /// The backend has given a job's only task these GPUs.
    fn holds(&mut self, job: JobId, gpus: &str) {
        let [task] = self.tasks(job).try_into().expect("a job of one task");
        let gpus = gpus.split(',').map(|gpu| gpu.parse().unwrap()).collect();
        self.log(Body::Observation(Observation::Holds { task, gpus }));
    }

    /// The processes of an attempt run.
    fn start(&mut self, attempt: AttemptId) {
        for task in self.tasks(attempt.job) {
            self.log(Body::Observation(Observation::TaskStarted { task }));
        }
        let trainer = self.trainers.get(&attempt.job).copied();
        // Data jobs of antiphon's own end when the scenario says so.
        let trainer = trainer.unwrap_or_default();
        if trainer.attached {
            self.log(Body::Observation(Observation::Attached {
                attempt,
                step: 0,
            }));
        }
        if let Some(runs) = trainer.runs {
            self.ends.insert((self.at.after(runs), attempt));
        }
    }

    fn signal(&mut self, attempt: AttemptId, signal: i32) {
        for task in self.tasks(attempt.job) {
            let exit = Exit::Signal {
                signal,
                class: None,
                evidence: String::new(),
            };
            self.log(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }

    fn print(&mut self, text: &str) {
        writeln!(self.out, "{:<4} {text}", clock(self.at)).unwrap();
    }
}

/// A time of the scenario as it is printed: in seconds within the first hour.
fn clock(at: Timestamp) -> String {
    let seconds = at.as_millis() / 1_000;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, _, _) => format!("{seconds}s"),
        (hours, minutes, 0) => format!("{hours}h{minutes:02}m"),
        (hours, minutes, seconds) => format!("{hours}h{minutes:02}m{seconds:02}s"),
    }
}

fn is_current(state: &State, attempt: AttemptId) -> bool {
    antiphon_kernel::is_current(state, attempt)
}

/// `gpus=2 within 120s spot`.
fn notice(node: &str, words: &[&str]) -> Notice {
    let of = |key: &str| words.iter().find_map(|word| word.strip_prefix(key));
    let at = words.iter().position(|word| *word == "within").unwrap();
    let named = |cause: &NoticeCause| words.contains(&cause.name());
    Notice {
        node: node.into(),
        gpus: of("gpus=").map(|gpus| gpus.parse().unwrap()),
        within: words[at + 1].parse().unwrap(),
        cause: NoticeCause::ALL.into_iter().find(named).unwrap_or_default(),
        reason: String::new(),
    }
}

/// How a process ends.
fn exit(how: &[&str]) -> Exit {
    let code = |code, class: Option<ExitClass>| Exit::Code {
        code,
        class,
        evidence: class.map_or("", |_| "its words").into(),
    };
    match *how {
        ["exits", status] => code(status.parse().unwrap(), None),
        // SIGTERM came from outside antiphon, and it saved and exited 0.
        ["leaves"] => code(0, Some(ExitClass::Preempted)),
        ["fails", "oom"] => code(1, Some(ExitClass::OutOfMemory)),
        ["fails", "data"] => code(1, Some(ExitClass::DataError)),
        ["fails", "hardware"] => code(1, Some(ExitClass::Hardware)),
        ["is", "unfit"] => Exit::Unfit {
            evidence: "ECC errors on GPU 3".into(),
        },
        ["is", "superseded"] => Exit::Superseded,
        ["is", "lost"] => Exit::Lost {
            evidence: "its node was started anew".into(),
        },
        ["is", "not", "launched"] => Exit::NotLaunched {
            error: "no files left".into(),
        },
        ["unstartable"] => Exit::Unstartable {
            error: "no such file: `x`".into(),
        },
        ref other => panic!("unknown input {other:?}"),
    }
}
