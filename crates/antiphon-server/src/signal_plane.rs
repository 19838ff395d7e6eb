//! Raw signals, in memory only: a bounded window an attempt. Hands findings to the loop; never writes the log itself, and
//! what it shows is not what the kernel decides on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_signals::{JobWindow, Latest, ShardLoss, Signal};
use antiphon_types::{AttemptId, Finding, JobId, Timestamp};

/// Jobs remembered, newest first: bounds memory whatever is sent.
const JOBS_MAX: usize = 10_000;
/// Senders remembered for one attempt: one a task, and those that restarted.
const SENDERS_MAX: usize = 65_536;

/// The windows of all attempts that report.
#[derive(Default)]
pub(crate) struct SignalPlane {
    jobs: Mutex<BTreeMap<JobId, Arc<Mutex<Reports>>>>,
}

struct Reports {
    window: JobWindow,
    /// The last batch of each sender, so that one sent twice counts once.
    senders: BTreeMap<String, u64>,
    dropped: u64,
}

/// What is shown of a job's signals.
pub(crate) struct Shown {
    pub(crate) attempt: AttemptId,
    pub(crate) latest: Latest,
    pub(crate) shards: Vec<ShardLoss>,
    pub(crate) dropped: u64,
}

impl SignalPlane {
    /// Takes a batch in, unless it was taken before; returns what it led to.
    pub(crate) fn take(
        &self,
        attempt: AttemptId,
        boot: &str,
        seq: u64,
        dropped: u64,
        signals: &[Signal],
        at: Timestamp,
    ) -> Vec<Finding> {
        let reports = self.of(attempt);
        let mut reports = lock(&reports);
        if reports.window.attempt() != attempt {
            // A newer attempt reports already; these came too late to say anything of it.
            return Vec::new();
        }
        let known = reports.senders.len();
        match reports.senders.get_mut(boot) {
            Some(last) if seq <= *last => return Vec::new(),
            Some(last) => *last = seq,
            None if known < SENDERS_MAX => {
                reports.senders.insert(boot.to_owned(), seq);
            }
            None => return Vec::new(),
        }
        reports.dropped = reports.dropped.saturating_add(dropped);
        for signal in signals {
            reports.window.observe(signal, at);
        }
        reports.window.take_findings()
    }

    pub(crate) fn show(&self, job: JobId) -> Option<Shown> {
        let reports = lock(&self.jobs).get(&job)?.clone();
        let reports = lock(&reports);
        Some(Shown {
            attempt: reports.window.attempt(),
            latest: reports.window.latest().clone(),
            shards: reports.window.shards(),
            dropped: reports.dropped,
        })
    }

    fn of(&self, attempt: AttemptId) -> Arc<Mutex<Reports>> {
        let fresh = || Reports {
            window: JobWindow::new(attempt),
            senders: BTreeMap::new(),
            dropped: 0,
        };
        let mut jobs = lock(&self.jobs);
        if jobs.len() >= JOBS_MAX && !jobs.contains_key(&attempt.job) {
            jobs.pop_first();
        }
        let reports = jobs
            .entry(attempt.job)
            .or_insert_with(|| Arc::new(Mutex::new(fresh())))
            .clone();
        drop(jobs);
        let mut current = lock(&reports);
        if current.window.attempt() < attempt {
            *current = fresh();
        }
        drop(current);
        reports
    }
}

/// A window whose writer panicked holds a half-counted batch, nothing worse.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
