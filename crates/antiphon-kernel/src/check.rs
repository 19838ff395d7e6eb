//! What must always hold. A decision is checked before it is logged, so the log never holds an impossible one; the
//! state's invariants are checked after every event in tests.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Action, Allocation, AttemptId, Class, Decision, GpuAmount, Terms};

use crate::admit::admit_job;
use crate::capacity::Capacity;
use crate::index::Index;
use crate::jobs::{Job, JobState, StopPhase};
use crate::state::State;
use crate::teams::Holdings;

/// Checks a decision against the state that it was made in.
///
/// # Errors
/// What is impossible about it.
pub fn decision(state: &State, decision: &Decision) -> Result<(), String> {
    let mut trial = None;
    let mut launched = BTreeSet::new();
    for action in &decision.actions {
        match action {
            Action::Launch {
                attempt,
                allocation,
                terms,
            } => {
                if !launched.insert(attempt.job) {
                    return Err(format!("{attempt} would be launched twice"));
                }
                let (free, holdings) = trial.get_or_insert_with(|| {
                    (state.index.capacity.clone(), state.index.holdings.clone())
                });
                launch(state, free, holdings, *attempt, allocation, terms)?;
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
                let active = state.job(attempt.job).and_then(|job| job.state.active());
                let over =
                    active.is_some_and(|active| active.attempt == *attempt && active.is_over());
                if !over {
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
            Action::Reserve { job, slot } => {
                if !state.is_queued(*job) {
                    return Err(format!(
                        "nodes would be held for {job}, which does not wait"
                    ));
                }
                let known = |name| state.index.node_ids.contains_key(name);
                if let Some(node) = slot.nodes.iter().find(|name| !known(name)) {
                    return Err(format!("no node {node} to hold for {job}"));
                }
            }
            Action::Remedy {
                job,
                rule,
                subject,
                remedy,
            } => {
                let known = state
                    .job(*job)
                    .and_then(|job| job.steering.finding(*rule, subject));
                let place = usize::try_from(*remedy).expect("few remedies");
                if known.is_none_or(|known| place >= known.diagnosis.remedies.len()) {
                    return Err(format!("{job} has no remedy {remedy} of {rule} {subject}"));
                }
            }
            Action::Augment { job, spec, .. } => admit_job(state, spec)
                .map_err(|no| format!("{job} would get a data job that is refused: {no}"))?,
            Action::Direct { .. }
            | Action::Abandon { .. }
            | Action::Gate(_)
            | Action::Unreserve { .. }
            | Action::PutAside { .. } => (),
        }
    }
    Ok(())
}

fn launch(
    state: &State,
    free: &mut Capacity,
    holdings: &mut Holdings,
    attempt: AttemptId,
    allocation: &Allocation,
    terms: &Terms,
) -> Result<(), String> {
    let job = state
        .job(attempt.job)
        .ok_or_else(|| format!("{attempt} has no job"))?;
    let pending = matches!(job.state, JobState::Pending { .. });
    if !pending || attempt.number != job.launches + 1 {
        return Err(format!(
            "{attempt} cannot be launched: {} is {}",
            job.id,
            job.state.name()
        ));
    }
    is_whole(job, allocation, terms)?;
    let class = terms.class.unwrap_or(job.spec.class);
    let nodes = state.index.nodes_of(allocation);
    let nodes =
        nodes.ok_or_else(|| format!("{attempt} would start on a node that nobody offers"))?;
    for (task, node) in allocation.tasks.iter().zip(&nodes) {
        if !free.is_open(*node) {
            return Err(format!(
                "{attempt} would start on {}, which takes no tasks",
                task.node
            ));
        }
        if let Some(what) = free.shortage(*node, task) {
            return Err(format!("{attempt} would take {what} twice"));
        }
        free.take(*node, task);
        let gpu_type = &state.node_at(*node).spec.gpu_type;
        let urgent = class <= Class::Production;
        let amount = task.gpu_amount();
        if amount.is_zero() {
            continue;
        }
        let teams = &state.teams;
        if let Some(over) = holdings.exceeded(teams, job.team, Some(gpu_type), amount) {
            return Err(format!(
                "{attempt} would take team `{}` over its limit of {}",
                teams.get(over.team).spec.name,
                over.limit
            ));
        }
        holdings.add(teams, job.team, gpu_type, amount, urgent);
    }
    Ok(())
}

/// Whether every role holds exactly what its shape asks for.
fn is_whole(job: &Job, allocation: &Allocation, terms: &Terms) -> Result<(), String> {
    for (index, role) in job.spec.roles.iter().enumerate() {
        let chosen = terms.shapes.get(index).copied().unwrap_or(0);
        let chosen = usize::try_from(chosen).expect("few shapes");
        let shape = role
            .shapes()
            .nth(chosen)
            .ok_or_else(|| format!("{} has no shape {chosen} of role `{}`", job.id, role.name))?;
        let tasks = || {
            allocation
                .tasks
                .iter()
                .filter(|task| task.role == role.name)
        };
        if tasks().next().is_none() {
            return Err(format!(
                "{} would start without role `{}`",
                job.id, role.name
            ));
        }
        if tasks().any(|task| task.sliced) {
            continue;
        }
        let held: GpuAmount = tasks()
            .map(antiphon_types::TaskAllocation::gpu_amount)
            .sum();
        if held != shape.gpus {
            return Err(format!(
                "{} would hold {held} GPUs of {} in role `{}`",
                job.id, shape.gpus, role.name
            ));
        }
    }
    Ok(())
}

/// Checks the state's own books.
///
/// # Errors
/// The first that does not agree.
pub fn invariants(state: &State) -> Result<(), String> {
    // Panics where something is held twice.
    let rebuilt = Index::of(&state.known);
    if rebuilt.capacity != state.index.capacity {
        return Err("the ledger of what is free differs from what its attempts leave".into());
    }
    if rebuilt != state.index {
        return Err(format!(
            "the indexes differ from the state at event {}: {}",
            state.seq,
            rebuilt.difference(&state.index)
        ));
    }
    for job in state.active_jobs() {
        let active = job
            .state
            .active()
            .ok_or_else(|| format!("{} is active without an attempt", job.id))?;
        if active.allocation.tasks.len() != active.phases.len() {
            return Err(format!("{} lost a task", active.attempt));
        }
        is_whole(job, &active.allocation, &active.terms)?;
    }
    for (job, slot) in &state.slots {
        let waits = state.job(*job).is_some_and(|job| {
            matches!(
                job.state,
                JobState::Pending { .. } | JobState::Stopping { .. }
            )
        });
        // A gang that lost a node keeps the others while its retry is not due, and a victim whose preemptor vanished has
        // a claim before it is gone.
        if !waits {
            return Err(format!(
                "{:?} are held for {job}, which does not wait",
                slot.nodes
            ));
        }
    }
    if let Some(job) = state.index.gated.first() {
        let best_effort = |id| state.jobs[id].spec.class == Class::BestEffort;
        if state.gate.shut().is_none() || !state.index.gated.iter().all(best_effort) {
            return Err(format!(
                "the gate keeps {job} back though it is open, or a job that is not best-effort"
            ));
        }
    }
    teams(state)
}

fn teams(state: &State) -> Result<(), String> {
    let mut held: BTreeMap<u32, GpuAmount> = BTreeMap::new();
    for job in state.active_jobs() {
        if let Some(active) = job.state.active() {
            let amount = held.entry(job.team).or_default();
            *amount = *amount + active.allocation.gpu_amount();
        }
    }
    for (id, team) in (0..).zip(state.teams.all()) {
        let held = held.get(&id).copied().unwrap_or_default();
        if team.allocated() != held {
            return Err(format!(
                "the books of team `{}` say {}, its attempts hold {held}",
                team.spec.name,
                team.allocated()
            ));
        }
    }
    Ok(())
}
