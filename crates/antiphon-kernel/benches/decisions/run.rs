//! One run: a cluster filled up, then jobs ending and starting as fast as the kernel can, under virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::{Duration, Instant};

use antiphon_kernel::{State, apply, check, decide};
use antiphon_types::{
    Action, AttemptId, Body, Command, Event, Exit, JobId, Millis, Observation, Seq, TaskId,
    Timestamp,
};
use serde_json::{Value, json};

use crate::load::Load;
use crate::log::EventLog;

/// What a run came to.
pub(crate) struct Figures {
    pub(crate) decisions_per_s: f64,
    pub(crate) with_submits_per_s: f64,
    pub(crate) cycle_p50_us: f64,
    pub(crate) cycle_p99_us: f64,
    pub(crate) cycle_max_us: f64,
    pub(crate) state_bytes: usize,
    pub(crate) allocated_percent: f64,
    pub(crate) tasks_per_gang: f64,
    pub(crate) gpus_per_gang: f64,
    pub(crate) preemptions: u64,
    pub(crate) reservations: u64,
    pub(crate) starts: u64,
    pub(crate) cycles: usize,
    pub(crate) shares: Value,
}

/// What was counted and timed since the last reset.
#[derive(Default)]
struct Counts {
    starts: u64,
    tasks: u64,
    gpus: u64,
    preemptions: u64,
    reservations: u64,
    allocated: Vec<f64>,
    /// One call of `decide`, with the check, the encoding and the folding of what it decided.
    cycles: Vec<Duration>,
    deciding: Duration,
    checking: Duration,
    encoding: Duration,
    folding: Duration,
    committing: Duration,
    /// Encoding and folding new jobs: shown beside, since a start needs none.
    submitting: Duration,
}

/// A run as it goes.
pub(crate) struct Run {
    load: Load,
    state: State,
    log: EventLog,
    now: Timestamp,
    /// How long each job will really run.
    true_times: BTreeMap<JobId, Millis>,
    ends: BinaryHeap<Reverse<(Timestamp, AttemptId)>>,
    counts: Counts,
    gpus: f64,
}

impl Run {
    pub(crate) fn new(load: Load, pending: u32, sqlite: bool) -> Self {
        let gpus = f64::from(load.nodes * 8);
        let mut run = Self {
            load,
            state: State::default(),
            log: EventLog::new(sqlite),
            now: Timestamp::from_millis(1_800_000_000_000),
            true_times: BTreeMap::new(),
            ends: BinaryHeap::new(),
            counts: Counts::default(),
            gpus,
        };
        let nodes = run.load.cluster();
        run.event(Body::Observation(Observation::Inventory {
            nodes,
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        }));
        let teams = run.load.teams();
        run.command(Command::SetTeams { teams });
        let policy = antiphon_types::Policy {
            ended_jobs_max: 1_000,
            preemptions_per_hour_cluster_max: if run.load.preempt { u32::MAX } else { 0 },
            ..antiphon_types::Policy::default()
        };
        let policy = Box::new(policy);
        run.command(Command::SetPolicy { policy });
        for _ in 0..pending {
            let made = run.load.job();
            run.submit(made);
        }
        run.cycle();
        run
    }

    /// Runs until so many gangs have been started.
    pub(crate) fn start(&mut self, starts: u32, batch: u32) {
        let until = self.counts.starts + u64::from(starts);
        while self.counts.starts < until {
            for _ in 0..batch {
                self.end_next();
            }
            self.cycle();
            self.log.commit_timed(&mut self.counts.committing);
            let allocated: u64 = self
                .state
                .teams()
                .all()
                .map(|team| team.allocated().thousandths())
                .sum();
            let allocated = f64::from(u32::try_from(allocated / 1_000).expect("few GPUs"));
            self.counts.allocated.push(allocated / self.gpus * 100.0);
        }
    }

    /// Forgets what was counted and timed so far.
    pub(crate) fn reset(&mut self) {
        self.counts = Counts::default();
    }

    fn end_next(&mut self) {
        while let Some(Reverse((at, attempt))) = self.ends.pop() {
            let job = self.state.job(attempt.job);
            let active = job.and_then(|job| job.state.active());
            let Some(active) = active.filter(|active| active.attempt == attempt) else {
                // It gave way meanwhile.
                continue;
            };
            let tasks: Vec<TaskId> = active.tasks().map(|(task, _)| task).collect();
            self.now = self.now.max(at);
            self.end(tasks);
            return;
        }
    }

    fn end(&mut self, tasks: Vec<TaskId>) {
        for task in tasks {
            let exit = Exit::Code {
                code: 0,
                class: None,
                evidence: String::new(),
            };
            self.event(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }

    /// Decides until there is nothing more to do, and carries it out.
    fn cycle(&mut self) {
        loop {
            let began = clock();
            let decision = decide(&self.state);
            let decided = clock();
            check::decision(&self.state, &decision).expect("a decision that fits");
            let checked = clock();
            self.counts.deciding += decided - began;
            self.counts.checking += checked - decided;
            if decision.actions.is_empty() {
                self.counts.cycles.push(clock() - began);
                return;
            }
            let again = decision.again;
            let actions = decision.actions.clone();
            let cloned = clock() - checked;
            self.event(Body::Decision(decision));
            self.counts.cycles.push(clock() - began - cloned);
            for action in &actions {
                self.carry_out(action);
            }
            // Who was asked to stop has ended at once.
            let gave_way =
                |action: &Action| matches!(action, Action::Yield { .. } | Action::Terminate { .. });
            if !again && !actions.iter().any(gave_way) {
                return;
            }
        }
    }

    fn carry_out(&mut self, action: &Action) {
        match action {
            Action::Launch {
                attempt,
                allocation,
                ..
            } => {
                let time = self.true_times[&attempt.job];
                self.ends.push(Reverse((self.now.after(time), *attempt)));
                self.counts.starts += 1;
                self.counts.tasks += u64::try_from(allocation.tasks.len()).expect("few tasks");
                self.counts.gpus += allocation.gpu_amount().thousandths() / 1_000;
                for task in allocation.tasks.iter() {
                    let task = TaskId {
                        attempt: *attempt,
                        role: task.role.clone(),
                        index: task.index,
                    };
                    self.event(Body::Observation(Observation::TaskStarted { task }));
                }
                let made = self
                    .load
                    .job_like(allocation.gpu_amount().thousandths() / 1_000);
                self.submit(made);
            }
            // It ends at once when asked to: what it costs is the kernel's part alone.
            Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => {
                self.counts.preemptions += 1;
                let active = self
                    .state
                    .job(attempt.job)
                    .and_then(|job| job.state.active());
                let tasks: Vec<TaskId> = active
                    .map(|active| active.tasks().map(|(task, _)| task).collect())
                    .unwrap_or_default();
                self.end(tasks);
            }
            Action::Reserve { .. } => self.counts.reservations += 1,
            Action::Settle { attempt, .. } => {
                let ended = self.state.job(attempt.job);
                if ended.is_none_or(|job| job.state.is_ended()) {
                    self.true_times.remove(&attempt.job);
                }
            }
            Action::Kill { .. }
            | Action::Direct { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => (),
        }
    }

    fn submit(&mut self, (spec, time): (antiphon_types::JobSpec, Millis)) {
        let spec = Box::new(spec);
        let (encoded, folded) = (self.counts.encoding, self.counts.folding);
        self.command(Command::Submit { spec });
        let counts = &mut self.counts;
        counts.submitting += counts.encoding - encoded + (counts.folding - folded);
        (counts.encoding, counts.folding) = (encoded, folded);
        let newest = self.state.newest_job().expect("it was submitted just now");
        self.true_times.insert(newest, time);
    }

    fn command(&mut self, command: Command) {
        self.event(Body::Command {
            by: "someone".into(),
            id: None,
            command,
        });
    }

    fn event(&mut self, body: Body) {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.now,
            body,
        };
        let began = clock();
        self.log.encode(&event);
        let encoded = clock();
        apply(&mut self.state, &event);
        self.counts.encoding += encoded - began;
        self.counts.folding += clock() - encoded;
    }

    /// What was counted and timed since the last reset.
    pub(crate) fn figures(&self) -> Figures {
        let counts = &self.counts;
        let whole = counts.deciding
            + counts.checking
            + counts.encoding
            + counts.folding
            + counts.committing;
        let share = |part: Duration| (part.as_secs_f64() / whole.as_secs_f64() * 1_000.0).round();
        let mut cycles: Vec<f64> = counts
            .cycles
            .iter()
            .map(|cycle| cycle.as_secs_f64() * 1e6)
            .collect();
        cycles.sort_by(f64::total_cmp);
        let quantile = |permille: usize| cycles[(cycles.len() - 1) * permille / 1_000].round();
        let starts = number(counts.starts);
        let samples = number(u64::try_from(counts.allocated.len()).expect("few cycles"));
        Figures {
            decisions_per_s: starts / whole.as_secs_f64(),
            with_submits_per_s: (starts / (whole + counts.submitting).as_secs_f64()).round(),
            cycle_p50_us: quantile(500),
            cycle_p99_us: quantile(990),
            cycle_max_us: quantile(1_000),
            state_bytes: postcard::to_stdvec(&self.state)
                .expect("a state is plain data")
                .len(),
            allocated_percent: (counts.allocated.iter().sum::<f64>() / samples * 10.0).round()
                / 10.0,
            tasks_per_gang: (number(counts.tasks) / starts * 100.0).round() / 100.0,
            gpus_per_gang: (number(counts.gpus) / starts * 10.0).round() / 10.0,
            preemptions: counts.preemptions,
            reservations: counts.reservations,
            starts: counts.starts,
            cycles: cycles.len(),
            shares: json!({
                "decide": share(counts.deciding),
                "check": share(counts.checking),
                "encode": share(counts.encoding),
                "apply": share(counts.folding),
                "commit": share(counts.committing),
            }),
        }
    }
}

impl EventLog {
    fn commit_timed(&mut self, spent: &mut Duration) {
        let began = clock();
        self.commit();
        *spent += clock() - began;
    }
}

fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("counts fit"))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark times; the kernel never does"
)]
fn clock() -> Instant {
    Instant::now()
}
