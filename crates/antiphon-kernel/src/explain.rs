//! Why a job waits, with numbers: every constraint, the ruling one first, and the smallest change that would start it now.
//! Computed from the state when somebody asks, by the cycle that also decides; never stored.

mod blocked;
mod change;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Class, JobId, JobSpec, Millis, Timestamp, WaitReason};

pub use self::change::{Change, altered, smallest_change};
use crate::apply::submit;
use crate::gate;
use crate::jobs::{Job, JobState};
use crate::order::{Cycle, Verdict};
use crate::state::{Mode, State};

/// Everything that keeps a job from running at `now`, the ruling reason first; nothing for one that runs or has ended.
#[must_use]
pub fn reasons(state: &State, job: &Job, now: Timestamp) -> Vec<WaitReason> {
    reasons_in(&mut None, state, job, now)
}

/// The ruling reason of each of these jobs that waits, with one look at the cluster for all of them.
#[must_use]
pub fn ruling<'a>(
    state: &'a State,
    jobs: impl IntoIterator<Item = &'a Job>,
    now: Timestamp,
) -> BTreeMap<JobId, WaitReason> {
    let mut cycle = None;
    let jobs = jobs.into_iter();
    jobs.filter_map(|job| {
        let reasons = reasons_in(&mut cycle, state, job, now);
        Some((job.id, reasons.into_iter().next()?))
    })
    .collect()
}

/// The first jobs of the queue, in the order in which they are served as things stand.
#[must_use]
pub fn queue(state: &State, max: usize) -> Vec<JobId> {
    let mut cycle = Cycle::new(state, BTreeSet::new());
    let mut queue = Vec::new();
    for class in Class::ALL {
        let mut jobs = cycle.blocked(class);
        while queue.len() < max
            && let Some(job) = jobs.next(&mut cycle)
        {
            queue.push(job.id);
        }
    }
    queue
}

/// A cycle that has started nothing yet serves the next job as well.
fn reasons_in<'a>(
    cycle: &mut Option<Cycle<'a>>,
    state: &'a State,
    job: &'a Job,
    now: Timestamp,
) -> Vec<WaitReason> {
    let mut reasons = Vec::new();
    match job.state {
        JobState::Held { .. } => reasons.push(WaitReason::Held),
        JobState::Pending { .. } => (),
        JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Stopping { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => return Vec::new(),
    }
    reasons.extend(stopped_deciding(state));
    dependencies(job, &mut reasons);
    reasons.extend(throttle(state, job));
    reasons.extend(gate::reason(state, job, now));
    reasons.extend(back_off(job, now));
    if reasons.is_empty() {
        let mut fresh = cycle
            .take()
            .unwrap_or_else(|| Cycle::new(state, BTreeSet::new()));
        reasons.extend(in_queue(&mut fresh, job, now));
        *cycle = Some(fresh).filter(|cycle| cycle.started.is_empty());
    }
    reasons
}

/// The reason that rules.
#[must_use]
pub fn reason(state: &State, job: &Job, now: Timestamp) -> Option<WaitReason> {
    reasons(state, job, now).into_iter().next()
}

/// Why a job would wait if it were submitted now; nothing if it would start at once.
#[must_use]
pub fn would_wait(state: &State, spec: &JobSpec, now: Timestamp) -> Vec<WaitReason> {
    let (state, id) = with(state, spec);
    let mut reasons = reasons(&state, &state.jobs[&id], now);
    reasons.retain(|reason| *reason != WaitReason::Turn);
    reasons
}

/// A copy in which a job has been submitted: what is tried out leaves no trace.
#[must_use]
pub fn with(state: &State, spec: &JobSpec) -> (State, JobId) {
    let mut state = state.clone();
    let id = submit(&mut state, spec);
    (state, id)
}

/// Only an operator or safe mode can keep a job that fits.
fn stopped_deciding(state: &State) -> Option<WaitReason> {
    match &state.mode {
        Mode::Deciding => None,
        Mode::Paused { reason } => Some(WaitReason::Paused {
            reason: reason.clone(),
        }),
        Mode::Safe { bug } => Some(WaitReason::SafeMode { bug: bug.clone() }),
    }
}

fn dependencies(job: &Job, reasons: &mut Vec<WaitReason>) {
    let list = |jobs: &BTreeSet<JobId>| (!jobs.is_empty()).then(|| jobs.iter().copied().collect());
    if let Some(jobs) = list(&job.waiting_for) {
        reasons.push(WaitReason::After { jobs });
    }
    if let Some(jobs) = list(&job.waiting_for_end) {
        reasons.push(WaitReason::AfterEnd { jobs });
    }
    if let Some(jobs) = list(&job.waiting_for_start) {
        reasons.push(WaitReason::AfterStart { jobs });
    }
}

fn throttle(state: &State, job: &Job) -> Option<WaitReason> {
    let member = job.array.filter(|_| job.throttled)?;
    let at_once = state.index.unthrottled.get(&member.first).copied();
    let at_once = at_once.unwrap_or(0);
    Some(WaitReason::Throttled {
        running: at_once,
        at_once,
    })
}

fn back_off(job: &Job, now: Timestamp) -> Option<WaitReason> {
    let until = job.not_before?;
    if job.launches == 0 {
        return Some(WaitReason::NotBefore {
            at: until,
            left: until.since(now),
        });
    }
    let (failures, failures_max) = (job.failures, job.spec.retry.retries_max.saturating_add(1));
    Some(WaitReason::BackOff {
        until,
        left: until.since(now),
        failures,
        failures_max,
    })
}

fn in_queue<'a>(cycle: &mut Cycle<'a>, job: &'a Job, now: Timestamp) -> Vec<WaitReason> {
    let state = cycle.state;
    let mut reasons = Vec::new();
    let mut class = job.spec.class;
    while let Err(verdict) = cycle.barred(job, class) {
        reasons.extend(blocked::of_team(state, cycle, job, &verdict, now));
        // What its team's quota or budget does not cover counts as less, and may start as that.
        class = match verdict {
            Verdict::OverQuota if class < Class::Standard => Class::Standard,
            Verdict::OverBudget if class < Class::BestEffort => Class::BestEffort,
            Verdict::Starts
            | Verdict::Unfit
            | Verdict::Limit(_)
            | Verdict::OverQuota
            | Verdict::OverBudget => return reasons,
        };
    }
    match cycle.try_start(job, class) {
        Verdict::Starts => {
            // What only lowers its class keeps nobody.
            reasons.clear();
            reasons.push(WaitReason::Turn);
            reasons
        }
        Verdict::Unfit | Verdict::Limit(_) | Verdict::OverQuota | Verdict::OverBudget => {
            let mut why = blocked::by_room(state, cycle, job, class, now);
            why.append(&mut reasons);
            why
        }
    }
}

/// How long a running job still takes, as far as anything says so.
#[must_use]
pub fn predicted_end(job: &Job, now: Timestamp) -> Option<Millis> {
    Some(job.state.active()?.terms.ends_at?.since(now))
}
