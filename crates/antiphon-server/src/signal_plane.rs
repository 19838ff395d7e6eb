//! Raw signals, in memory only: a bounded window an attempt. Hands findings to the loop; never writes the log itself, and
//! what it shows is not what the kernel decides on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_signals::{Context, Forecast, JobWindow, Latest, Point, ShardLoss, Signal, TaskTime};
use antiphon_types::{AttemptId, Finding, JobId, Millis, Timestamp};

/// Jobs remembered, newest first: bounds memory whatever is sent.
const JOBS_MAX: usize = 10_000;
/// Senders remembered for one attempt: one a task, and those that restarted.
const SENDERS_MAX: usize = 65_536;
/// A sender that was heard within this lives: trainers report every second, and wait up to a minute after failures.
const ALIVE: Millis = Millis::from_secs(60);

/// Earlier attempts of one job whose curves are kept.
const PAST_MAX: usize = 4;
/// Points of a curve of an earlier attempt.
const PAST_POINTS_MAX: usize = 128;
/// Pairs of a time and a step that are kept of an attempt.
const CLOCK_MAX: usize = 512;
/// Shards whose curves are shown.
const SHARDS_SHOWN: usize = 12;
/// The curves of a run as a whole.
const CURVES: [&str; 6] = [
    "loss",
    "grad_norm",
    "step_ms",
    "tokens_per_s",
    "memory_peak_bytes",
    "micro_batch",
];

/// The windows of all attempts that report.
#[derive(Default)]
pub(crate) struct SignalPlane {
    jobs: Mutex<BTreeMap<JobId, Arc<Mutex<Reports>>>>,
    /// Signals taken in, of all attempts.
    taken: AtomicU64,
    /// Signals that senders had to drop.
    dropped: AtomicU64,
}

struct Reports {
    window: JobWindow,
    /// Tokens of earlier attempts that were kept.
    tokens_before: f64,
    /// The last batch of each sender, so that one sent twice counts once.
    senders: BTreeMap<String, u64>,
    /// Signals taken in, each once.
    count: u64,
    dropped: u64,
    /// When the newest batch came.
    heard: Timestamp,
    clock: Clock,
    /// Of earlier attempts, the oldest first.
    past: VecDeque<AttemptCurves>,
}

/// When steps were reported: few enough pairs to draw by, however long an attempt runs.
#[derive(Default)]
struct Clock {
    pairs: Vec<(Timestamp, u64)>,
    /// Steps between two pairs, at least.
    every: u64,
}

impl Clock {
    fn push(&mut self, at: Timestamp, step: u64) {
        let due = |last: &(Timestamp, u64)| step >= last.1 + self.every.max(1);
        if !self.pairs.last().is_none_or(due) {
            return;
        }
        if self.pairs.len() >= CLOCK_MAX {
            let mut even = false;
            self.pairs.retain(|_| {
                even = !even;
                even
            });
            self.every = self.every.max(1) * 2;
        }
        self.pairs.push((at, step));
    }
}

/// The curves of one attempt, and when it made which step.
#[derive(Clone)]
pub(crate) struct AttemptCurves {
    pub(crate) attempt: AttemptId,
    /// Times and steps.
    pub(crate) clock: Vec<(Timestamp, u64)>,
    /// By name.
    pub(crate) curves: Vec<(String, Vec<Point>)>,
}

impl Reports {
    /// What is kept of an attempt once another reports.
    fn into_past(self) -> VecDeque<AttemptCurves> {
        let mut past = self.past;
        let curves = CURVES.into_iter().filter_map(|name| {
            let points = self.window.series(name)?;
            Some((name.to_owned(), thinned(points)))
        });
        let kept = AttemptCurves {
            attempt: self.window.attempt(),
            clock: self.clock.pairs,
            curves: curves.collect(),
        };
        if !kept.clock.is_empty() {
            past.push_back(kept);
        }
        while past.len() > PAST_MAX {
            past.pop_front();
        }
        past
    }

    fn curves(&self) -> AttemptCurves {
        let run = CURVES.iter().map(|name| (*name).to_owned());
        // Those with most samples: what weighs most is looked at first.
        let mut shards = self.window.shards();
        shards.sort_by_key(|shard| std::cmp::Reverse(shard.samples));
        let shards = shards.iter().take(SHARDS_SHOWN);
        let names = run.chain(shards.map(|shard| format!("shard/{}", shard.shard)));
        let curves = names.filter_map(|name| {
            let points = self.window.series(&name)?;
            Some((name, points))
        });
        AttemptCurves {
            attempt: self.window.attempt(),
            clock: self.clock.pairs.clone(),
            curves: curves.collect(),
        }
    }
}

/// Every so many points of a curve.
fn thinned(points: Vec<Point>) -> Vec<Point> {
    let every = points.len().div_ceil(PAST_POINTS_MAX).max(1);
    points.into_iter().step_by(every).collect()
}

/// What is shown of a job's signals.
pub(crate) struct Shown {
    pub(crate) attempt: AttemptId,
    pub(crate) latest: Latest,
    pub(crate) shards: Vec<ShardLoss>,
    pub(crate) tasks: Vec<TaskTime>,
    pub(crate) count: u64,
    pub(crate) dropped: u64,
    pub(crate) forecast: Option<Forecast>,
}

/// A batch as it is counted.
pub(crate) struct Taken<'a> {
    pub(crate) attempt: AttemptId,
    /// Names the sending process.
    pub(crate) boot: &'a str,
    /// Its number among that process's batches.
    pub(crate) seq: u64,
    /// Signals that the sender had to drop before it.
    pub(crate) dropped: u64,
    pub(crate) signals: &'a [Signal<'a>],
    pub(crate) at: Timestamp,
}

impl SignalPlane {
    /// Takes a batch in, unless it was taken before; returns what it led to. `context` is asked for an attempt that is new, with
    /// the micro-batch of the one before.
    pub(crate) fn take(
        &self,
        batch: &Taken<'_>,
        context: impl Fn(Option<u32>) -> Context,
    ) -> Vec<Finding> {
        let reports = self.of(batch.attempt, context);
        let mut reports = lock(&reports);
        if reports.window.attempt() != batch.attempt {
            // A newer attempt reports already; these came too late to say anything of it.
            return Vec::new();
        }
        let known = reports.senders.len();
        match reports.senders.get_mut(batch.boot) {
            Some(last) if batch.seq <= *last => return Vec::new(),
            Some(last) => *last = batch.seq,
            None if known < SENDERS_MAX => {
                reports.senders.insert(batch.boot.to_owned(), batch.seq);
            }
            None => return Vec::new(),
        }
        reports.count += batch.signals.len() as u64;
        self.taken
            .fetch_add(batch.signals.len() as u64, Ordering::Relaxed);
        self.dropped.fetch_add(batch.dropped, Ordering::Relaxed);
        reports.dropped = reports.dropped.saturating_add(batch.dropped);
        reports.heard = reports.heard.max(batch.at);
        // A batch without signals is what a hung run sends.
        reports.window.heard(batch.at);
        for signal in batch.signals {
            reports.window.observe(signal, batch.at);
        }
        let step = reports.window.latest().step;
        reports.clock.push(batch.at, step);
        reports.window.take_findings()
    }

    /// Tells a window what its signals do not say.
    pub(crate) fn set_context(&self, attempt: AttemptId, context: Context) {
        self.with(attempt, |window| window.set_context(context));
    }

    /// Tells a window that a checkpoint is durable.
    pub(crate) fn checkpointed(
        &self,
        attempt: AttemptId,
        step: u64,
        bytes: u64,
        save: Millis,
        at: Timestamp,
    ) {
        self.with(attempt, |window| {
            window.checkpointed(step, bytes, save.as_millis() as f64, at);
        });
    }

    /// Tells a window that a task gets another part of each batch.
    pub(crate) fn drained(&self, attempt: AttemptId, task: u32, share_permille: u32) {
        self.with(attempt, |window| window.drained(task, share_permille));
    }

    /// Tells a window how often its trainer saves from now on; zero where that is the trainer's own again.
    pub(crate) fn saves_every(&self, attempt: AttemptId, interval: Millis) {
        self.with(attempt, |window| window.saves_every(interval));
    }

    /// Whether an attempt stands still, so that the stacks of its processes are wanted.
    pub(crate) fn wants_stacks(&self, attempt: AttemptId, at: Timestamp) -> bool {
        let Some(reports) = lock(&self.jobs).get(&attempt.job).cloned() else {
            return false;
        };
        let reports = lock(&reports);
        reports.window.attempt() == attempt && reports.window.wants_stacks(at)
    }

    fn with(&self, attempt: AttemptId, tell: impl FnOnce(&mut JobWindow)) {
        let Some(reports) = lock(&self.jobs).get(&attempt.job).cloned() else {
            return;
        };
        let mut reports = lock(&reports);
        if reports.window.attempt() == attempt {
            tell(&mut reports.window);
        }
    }

    /// Lets time pass for every attempt whose sender lives: silence of the sender alone says nothing of the run.
    pub(crate) fn tick(&self, at: Timestamp) -> Vec<Finding> {
        let jobs: Vec<_> = lock(&self.jobs).values().cloned().collect();
        let mut findings = Vec::new();
        for reports in jobs {
            let mut reports = lock(&reports);
            if at.since(reports.heard) <= ALIVE {
                reports.window.tick(at);
                findings.append(&mut reports.window.take_findings());
            }
        }
        findings
    }

    /// A down-sampled curve of a job, if it reported one of that name.
    pub(crate) fn series(&self, job: JobId, name: &str) -> Option<(AttemptId, Vec<Point>)> {
        let reports = lock(&self.jobs).get(&job)?.clone();
        let reports = lock(&reports);
        let points = reports.window.series(name)?;
        Some((reports.window.attempt(), points))
    }

    /// Signals taken in since the start, and signals that their senders dropped.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (read(&self.taken), read(&self.dropped))
    }

    /// Tokens that each job has trained, each step counted once.
    pub(crate) fn tokens(&self) -> Vec<(JobId, f64)> {
        let jobs: Vec<_> = lock(&self.jobs)
            .iter()
            .map(|(id, reports)| (*id, reports.clone()))
            .collect();
        let trained = jobs.into_iter().map(|(id, reports)| {
            let reports = lock(&reports);
            (id, reports.tokens_before + reports.window.tokens())
        });
        trained.filter(|(_, tokens)| *tokens > 0.0).collect()
    }

    /// The curves of a job's attempts, the oldest first, as far as they are kept.
    pub(crate) fn curves(&self, job: JobId) -> Vec<AttemptCurves> {
        let Some(reports) = lock(&self.jobs).get(&job).cloned() else {
            return Vec::new();
        };
        let reports = lock(&reports);
        let mut curves: Vec<AttemptCurves> = reports.past.iter().cloned().collect();
        curves.push(reports.curves());
        curves
    }

    pub(crate) fn show(&self, job: JobId) -> Option<Shown> {
        let reports = lock(&self.jobs).get(&job)?.clone();
        let reports = lock(&reports);
        Some(Shown {
            attempt: reports.window.attempt(),
            latest: reports.window.latest().clone(),
            shards: reports.window.shards(),
            tasks: reports.window.task_times(),
            count: reports.count,
            dropped: reports.dropped + reports.window.dropped(),
            forecast: reports.window.forecast(),
        })
    }

    fn of(
        &self,
        attempt: AttemptId,
        context: impl Fn(Option<u32>) -> Context,
    ) -> Arc<Mutex<Reports>> {
        let fresh = |rows_before, (tokens_before, done): (f64, u64)| Reports {
            window: JobWindow::new(attempt)
                .with_context(context(rows_before))
                .after(done),
            tokens_before,
            senders: BTreeMap::new(),
            count: 0,
            dropped: 0,
            heard: Timestamp::default(),
            clock: Clock::default(),
            past: VecDeque::new(),
        };
        let known = lock(&self.jobs).get(&attempt.job).cloned();
        let Some(reports) = known else {
            let made = Arc::new(Mutex::new(fresh(None, (0.0, 0))));
            let mut jobs = lock(&self.jobs);
            if jobs.len() >= JOBS_MAX {
                jobs.pop_first();
            }
            // Another sender of the job may have been faster.
            return jobs.entry(attempt.job).or_insert(made).clone();
        };
        let mut current = lock(&reports);
        if current.window.attempt() < attempt {
            let window = &current.window;
            let tokens = current.tokens_before + window.tokens();
            let next = fresh(window.micro_batch(), (tokens, window.done()));
            let before = std::mem::replace(&mut *current, next);
            current.past = before.into_past();
        }
        drop(current);
        reports
    }
}

/// A window whose writer panicked holds a half-counted batch, nothing worse.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_stays_small_and_keeps_its_beginning() {
        let mut clock = Clock::default();
        for step in 0..100_000_u64 {
            clock.push(Timestamp::from_millis(step * 10), step);
        }
        assert!(clock.pairs.len() <= CLOCK_MAX, "{}", clock.pairs.len());
        assert!(clock.pairs.len() >= CLOCK_MAX / 4, "{}", clock.pairs.len());
        assert_eq!(clock.pairs[0], (Timestamp::from_millis(0), 0));
        let honest = |(at, step): &(Timestamp, u64)| at.as_millis() == step * 10;
        assert!(clock.pairs.iter().all(honest));
    }

    #[test]
    fn curves_of_an_earlier_attempt_are_kept_when_the_next_reports() {
        let plane = SignalPlane::default();
        let attempt = |number| AttemptId {
            job: JobId(7),
            number,
        };
        let report = |number, step, loss| {
            let signal = Signal {
                step: Some(step),
                loss: Some(loss),
                ..Signal::default()
            };
            let batch = Taken {
                attempt: attempt(number),
                boot: "b",
                seq: step,
                dropped: 0,
                signals: &[signal],
                at: Timestamp::from_millis(1_000 * step),
            };
            plane.take(&batch, |_| Context::default());
        };
        report(1, 1, 3.0);
        report(1, 2, 2.0);
        report(2, 3, 1.0);
        let curves = plane.curves(JobId(7));
        let attempts: Vec<u32> = curves.iter().map(|kept| kept.attempt.number).collect();
        assert_eq!(attempts, [1, 2]);
        let loss = |kept: &AttemptCurves| {
            kept.curves[0]
                .1
                .iter()
                .map(|point| point.mean)
                .collect::<Vec<_>>()
        };
        assert_eq!(loss(&curves[0]), [3.0, 2.0]);
        assert_eq!(loss(&curves[1]), [1.0]);
        assert_eq!(curves[0].clock[1], (Timestamp::from_millis(2_000), 2));
    }
}
