//! Why a job waits, with numbers. Computed from the state when somebody asks, by the walk that also decides; never stored.

use std::collections::BTreeMap;

use antiphon_types::{BestNode, GpuAmount, Holder, JobId, JobSpec, Millis, Timestamp, WaitReason};

use crate::apply::submit;
use crate::capacity::Capacity;
use crate::jobs::{Job, JobState, StopPhase};
use crate::order::{Verdict, walk};
use crate::preempt::{Room, room_for, stopping};
use crate::state::{Mode, State};

/// Holders that a reason names.
const HOLDERS_MAX: usize = 5;

/// Why each job that waits does so at `now`, the ruling reason of each.
#[must_use]
pub fn waiting(state: &State, now: Timestamp) -> BTreeMap<JobId, WaitReason> {
    let mut reasons = BTreeMap::new();
    walk(state, |job, verdict, free| {
        let reason = match verdict {
            Verdict::Starts(_) => stopped_deciding(state),
            Verdict::BackOff => back_off(job, now),
            Verdict::Behind(front) => Some(WaitReason::Behind {
                job: front,
                class: state.jobs[&front].spec.class,
            }),
            Verdict::Blocked => Some(blocked(state, job, free, now)),
        };
        reasons.extend(reason.map(|reason| (job.id, reason)));
        true
    });
    for job in state.jobs.values() {
        match job.state {
            JobState::Held { .. } => {
                reasons.insert(job.id, WaitReason::Held);
            }
            JobState::Pending { .. } if !job.waiting_for.is_empty() => {
                let jobs = job.waiting_for.iter().copied().collect();
                reasons.insert(job.id, WaitReason::After { jobs });
            }
            JobState::Pending { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => (),
        }
    }
    reasons
}

/// Why a job would wait if it were submitted now; nothing if it would start at once.
#[must_use]
pub fn would_wait(state: &State, spec: &JobSpec, now: Timestamp) -> Option<WaitReason> {
    // On a copy: what is tried out leaves no trace.
    let mut state = state.clone();
    let id = submit(&mut state, spec);
    waiting(&state, now).remove(&id)
}

/// A job that fits and does not start: only an operator or safe mode can keep it.
fn stopped_deciding(state: &State) -> Option<WaitReason> {
    match &state.mode {
        Mode::Deciding => None,
        Mode::Paused { reason } => Some(WaitReason::Paused {
            reason: reason.clone(),
        }),
        Mode::Safe { bug } => Some(WaitReason::SafeMode { bug: bug.clone() }),
    }
}

fn back_off(job: &Job, now: Timestamp) -> Option<WaitReason> {
    let until = job.not_before?;
    let (failures, failures_max) = (job.failures, job.spec.retry.retries_max + 1);
    Some(WaitReason::BackOff {
        until,
        left: until.since(now),
        failures,
        failures_max,
    })
}

fn blocked(state: &State, job: &Job, free: &Capacity<'_>, now: Timestamp) -> WaitReason {
    match room_for(state, job, free) {
        Room::Coming => {
            let jobs = stopping(state).map(|(victim, _)| victim.id).collect();
            let until = stopping(state)
                .map(|(victim, _)| ends_by(state, victim))
                .max();
            return WaitReason::Victims {
                jobs,
                until: until.unwrap_or(now),
            };
        }
        Room::Victims(victims) => {
            let grace = victims
                .iter()
                .map(|victim| victim.spec.grace)
                .max()
                .unwrap_or_default();
            let until = now.after(state.policy.checkpoint_wait_ms_max).after(grace);
            return WaitReason::Victims {
                jobs: victims.iter().map(|job| job.id).collect(),
                until,
            };
        }
        Room::None => (),
    }
    let asked = job.spec.gpus();
    let enough = |free: &GpuAmount| *free >= asked;
    let wanted = job
        .spec
        .roles
        .iter()
        .find_map(|role| role.shape.gpu_type.as_ref());
    // GPUs of another type are no use to it, and no explanation.
    let nodes = || {
        free.nodes
            .iter()
            .map(|(name, (spec, free))| (*name, *spec, free))
            .filter(|(_, spec, _)| {
                asked.is_zero() || wanted.is_none_or(|wanted| *wanted == spec.gpu_type)
            })
    };
    let all: GpuAmount = nodes().map(|(_, _, free)| free.gpu_amount()).sum();
    let widest = job
        .spec
        .roles
        .iter()
        .map(|role| role.shape.cpus)
        .max()
        .unwrap_or(0);
    if asked.is_zero() || (enough(&all) && nodes().any(|(_, _, free)| enough(&free.gpu_amount()))) {
        let cpus_free = nodes().map(|(_, _, free)| free.cpus).max().unwrap_or(0);
        return WaitReason::CpusOrMemory {
            cpus: widest,
            cpus_free,
        };
    }
    let best = nodes()
        .filter(|(_, spec, _)| spec.gpus > 0)
        .max_by_key(|(name, _, free)| (free.gpu_amount(), std::cmp::Reverse(*name)))
        .map(|(node, spec, free)| BestNode {
            node: node.clone(),
            free: free.gpu_amount(),
            total: spec.gpus,
        });
    WaitReason::Gpus {
        asked,
        free: all,
        best,
        holders: holders(state, now),
    }
}

/// Who holds GPUs, largest first.
fn holders(state: &State, now: Timestamp) -> Vec<Holder> {
    let mut holders: Vec<Holder> = state
        .active_jobs()
        .filter_map(|job| {
            let gpus = job.state.active()?.allocation.gpu_amount();
            let (job, class, ends_in) = (job.id, job.spec.class, predicted_end(job, now));
            (!gpus.is_zero()).then_some(Holder {
                job,
                class,
                gpus,
                ends_in,
            })
        })
        .collect();
    holders.sort_by_key(|holder| (std::cmp::Reverse(holder.gpus), holder.job));
    holders.truncate(HOLDERS_MAX);
    holders
}

/// How long a running job still takes, by its own reports.
#[must_use]
pub fn predicted_end(job: &Job, now: Timestamp) -> Option<Millis> {
    let progress = job.progress?;
    job.state.active()?;
    let steps = progress.steps_total.saturating_sub(progress.step);
    let whole = Millis::from_millis(steps.checked_mul(progress.step_time.as_millis())?);
    Some(whole.saturating_sub(now.since(progress.at)))
}

/// When a stopping attempt is killed at the latest.
fn ends_by(state: &State, job: &Job) -> Timestamp {
    match &job.state {
        JobState::Stopping { phase, .. } => match phase {
            StopPhase::CheckpointWait { until, .. } => until.after(job.spec.grace),
            StopPhase::Grace { kill_at } => *kill_at,
            StopPhase::Killed => state.now,
        },
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => state.now,
    }
}
