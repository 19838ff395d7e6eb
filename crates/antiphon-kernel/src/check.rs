//! What must always hold. A decision is checked before it is logged, so the log never holds an impossible one; the
//! state's invariants are checked after every event in tests.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Action, Decision, JobId, NodeName};

use crate::capacity::Free;
use crate::jobs::{JobState, StopPhase};
use crate::state::State;

/// Checks a decision against the state that it was made in.
///
/// # Errors
/// What is impossible about it.
pub fn decision(state: &State, decision: &Decision) -> Result<(), String> {
    let mut free: BTreeMap<&NodeName, Free> = state
        .nodes
        .iter()
        .map(|(name, node)| (name, node.free.clone()))
        .collect();
    let mut launched = BTreeSet::new();
    for action in &decision.actions {
        match action {
            Action::Launch {
                attempt,
                allocation,
            } => {
                let job = state
                    .job(attempt.job)
                    .ok_or_else(|| format!("{attempt} has no job"))?;
                let pending = matches!(job.state, JobState::Pending { .. });
                if !pending || !launched.insert(attempt.job) || attempt.number != job.launches + 1 {
                    return Err(format!(
                        "{attempt} cannot be launched: {} is {}",
                        job.id,
                        job.state.name()
                    ));
                }
                for task in &allocation.tasks {
                    let free = free
                        .get_mut(&task.node)
                        .ok_or_else(|| format!("no node {}", task.node))?;
                    if let Some(what) = free.shortage(task) {
                        return Err(format!("{attempt} would take {what} twice"));
                    }
                    free.take(task);
                }
            }
            Action::Kill { attempt, .. } => {
                let in_grace = state.job(attempt.job).is_some_and(|job| {
                    matches!(job.state, JobState::Stopping { phase: StopPhase::Grace { kill_at }, .. } if kill_at <= state.now)
                });
                if !in_grace {
                    return Err(format!(
                        "{attempt} would be killed before its grace is over"
                    ));
                }
            }
            Action::Settle { attempt, .. } => {
                let job = state.job(attempt.job);
                let active = job
                    .and_then(|job| job.state.active())
                    .filter(|active| active.attempt == *attempt);
                if active.is_none_or(|active| active.ended().is_none()) {
                    return Err(format!("{attempt} would be settled while a task may live"));
                }
            }
            Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => {
                let job = state.job(attempt.job);
                let active = job.and_then(|job| job.state.active());
                if active.is_none_or(|active| active.attempt != *attempt) {
                    return Err(format!("{attempt} would be stopped but is not current"));
                }
            }
            Action::Direct { .. } | Action::Abandon { .. } => (),
        }
    }
    Ok(())
}

/// Checks the state's own books.
///
/// # Errors
/// The first that does not agree.
pub fn invariants(state: &State) -> Result<(), String> {
    let mut free: BTreeMap<&NodeName, Free> = state
        .nodes
        .iter()
        .map(|(name, node)| (name, Free::all(&node.spec)))
        .collect();
    for job in state.active_jobs() {
        let active = job
            .state
            .active()
            .ok_or_else(|| format!("{} is active without an attempt", job.id))?;
        if active.allocation.tasks.len() != active.tasks.len() {
            return Err(format!(
                "{} runs {} tasks of {}",
                active.attempt,
                active.tasks.len(),
                active.allocation.tasks.len()
            ));
        }
        if active.allocation.gpu_amount() != job.spec.gpus() {
            return Err(format!(
                "{} holds {} GPUs of {}",
                active.attempt,
                active.allocation.gpu_amount(),
                job.spec.gpus()
            ));
        }
        for task in &active.allocation.tasks {
            // Panics where something is held twice.
            free.get_mut(&task.node)
                .ok_or_else(|| format!("no node {}", task.node))?
                .take(task);
        }
    }
    for (name, node) in &state.nodes {
        if free[name] != node.free {
            return Err(format!(
                "the ledger of {name} says {:?}, its attempts leave {:?}",
                node.free, free[name]
            ));
        }
    }
    for job in state.jobs.values() {
        let waits = matches!(job.state, JobState::Pending { .. });
        let ready = job.waiting_for.is_empty() && job.dead_dependency.is_none();
        let expect = |what: &str, is: bool, should: bool| {
            if is == should {
                Ok(())
            } else {
                Err(format!(
                    "{} is {}: in {what} {is}",
                    job.id,
                    job.state.name()
                ))
            }
        };
        expect(
            "the queue",
            state.queue.contains(&(job.spec.class, job.id)),
            waits && ready,
        )?;
        let backs_off = waits && ready && job.not_before.is_some();
        let due = job.not_before.unwrap_or_default();
        expect(
            "the back-off",
            state.backoff.contains(&(due, job.id)),
            backs_off,
        )?;
        expect(
            "the active set",
            state.active.contains(&job.id),
            job.state.active().is_some(),
        )?;
        expect(
            "the dead set",
            state.dead.contains(&job.id),
            waits && job.dead_dependency.is_some(),
        )?;
        let named = state
            .names
            .get(&(job.spec.team.clone(), job.spec.name.clone()))
            == Some(&job.id);
        expect("the names", named, !job.state.is_ended())?;
    }
    let indexed = state.queue.len() + state.dead.len() + state.active.len();
    let living = state
        .jobs
        .values()
        .filter(|job| !job.state.is_ended())
        .count();
    if indexed > living || state.backoff.len() > state.queue.len() || state.names.len() != living {
        return Err(format!("{indexed} places in the indexes for {living} jobs"));
    }
    let known = |id: &JobId| state.jobs.contains_key(id);
    if !(state.active.iter().all(known) && state.ended.iter().all(known)) {
        return Err("an index names a job that is forgotten".into());
    }
    Ok(())
}
