//! Why a job waits, with numbers. Computed from the state when somebody asks, by the walk that also decides; never stored.

use std::collections::BTreeMap;

use antiphon_types::{
    BestNode, GpuAmount, Holder, JobId, JobSpec, Millis, NodeSpec, NodeState, TaskAllocation,
    Timestamp, WaitReason,
};

use crate::apply::submit;
use crate::capacity::{Capacity, Free};
use crate::jobs::{Job, JobState, StopPhase};
use crate::order::{Verdict, walk};
use crate::preempt::{Room, room_for, stopping};
use crate::state::{Mode, State};
use crate::stop::waits_until;

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
    let (failures, failures_max) = (job.failures, job.spec.retry.retries_max.saturating_add(1));
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
            let until = stopping(state).map(|(victim, _)| gone_by(victim)).max();
            return victims(jobs, until.unwrap_or(now), now);
        }
        Room::Victims(chosen) => {
            let grace = chosen.iter().map(|victim| victim.spec.grace).max();
            let until = now
                .after(state.policy.checkpoint_wait_ms_max)
                .after(grace.unwrap_or_default());
            return victims(chosen.iter().map(|job| job.id).collect(), until, now);
        }
        Room::None => (),
    }
    // A gang of several types is told by the first that it names: one sentence cannot weigh them all.
    let asked = job.spec.gpus();
    let gpu_type = job
        .spec
        .roles
        .iter()
        .find_map(|role| role.shape.gpu_type.clone());
    let serves = |spec: &NodeSpec| {
        spec.gpus > 0
            && gpu_type
                .as_ref()
                .is_none_or(|wanted| *wanted == spec.gpu_type)
    };
    // A share fits beside others on a GPU; whole GPUs have to be free whole.
    let usable = |free: &Free| match asked.whole() {
        Some(_) => {
            GpuAmount::from_gpus(u32::try_from(free.whole_gpus().count()).unwrap_or(u32::MAX))
        }
        None => free.gpus.iter().copied().max().unwrap_or_default(),
    };
    let nodes = || {
        free.nodes
            .iter()
            .map(|(name, (spec, free))| (*name, *spec, free))
    };
    let serving = || nodes().filter(|(_, spec, _)| serves(spec));
    let all: GpuAmount = serving().map(|(_, _, free)| usable(free)).sum();
    let best = serving().max_by_key(|(name, _, free)| (usable(free), std::cmp::Reverse(*name)));
    let in_one = best.is_some_and(|(_, _, free)| usable(free) >= asked);
    if asked.is_zero() || in_one {
        let cpus = job
            .spec
            .roles
            .iter()
            .map(|role| role.shape.cpus)
            .max()
            .unwrap_or(0);
        let cpus_free = nodes().map(|(_, _, free)| free.cpus).max().unwrap_or(0);
        return WaitReason::CpusOrMemory { cpus, cpus_free };
    }
    let out_of_service = state
        .nodes
        .values()
        .filter(|node| node.state != NodeState::Ready);
    WaitReason::Gpus {
        asked,
        gpu_type: gpu_type.clone(),
        free: all,
        best: best.map(|(node, spec, free)| BestNode {
            node: node.clone(),
            free: usable(free),
            total: spec.gpus,
        }),
        holders: holders(state, &serves, now),
        out_of_service: out_of_service
            .filter(|node| serves(&node.spec))
            .map(|node| node.spec.gpus)
            .sum(),
    }
}

fn victims(jobs: Vec<JobId>, until: Timestamp, now: Timestamp) -> WaitReason {
    let left = until.since(now);
    WaitReason::Victims { jobs, until, left }
}

/// Who holds GPUs on nodes that could serve, largest first.
fn holders(state: &State, serves: &dyn Fn(&NodeSpec) -> bool, now: Timestamp) -> Vec<Holder> {
    let mut holders: Vec<Holder> = state
        .active_jobs()
        .filter_map(|job| {
            let tasks = &job.state.active()?.allocation.tasks;
            let there = tasks
                .iter()
                .filter(|task| serves(&state.nodes[&task.node].spec));
            let gpus: GpuAmount = there.map(TaskAllocation::gpu_amount).sum();
            (!gpus.is_zero()).then(|| Holder {
                job: job.id,
                class: job.spec.class,
                gpus,
                ends_in: predicted_end(job, now),
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
    let current = job.state.active()?.attempt;
    let progress = job
        .progress
        .filter(|progress| progress.attempt == current)?;
    let steps = progress.steps_total.saturating_sub(progress.step);
    let whole = Millis::from_millis(steps.checked_mul(progress.step_time.as_millis())?);
    Some(whole.saturating_sub(now.since(progress.at)))
}

/// When a stopping attempt is gone at the latest.
fn gone_by(job: &Job) -> Timestamp {
    let JobState::Stopping { phase, .. } = &job.state else {
        return Timestamp::ZERO;
    };
    match phase {
        StopPhase::CheckpointWait { .. } => waits_until(phase).after(job.spec.grace),
        StopPhase::Grace { .. } | StopPhase::Killed => waits_until(phase),
    }
}
