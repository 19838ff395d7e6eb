//! Whether an observation says anything new. What does not stays out of the log: a quiet job logs nothing, however often
//! its trainer and its backend repeat themselves.

use std::collections::BTreeSet;

use antiphon_types::{AttemptId, NodeName, NodeSpec, NodeState, Observation, TaskId};

use crate::apply::{holds_other, is_new_shard};
use crate::jobs::{Active, Job, TaskPhase};
use crate::state::State;

/// Whether `apply` would change the state by more than its clock.
#[must_use]
pub fn is_news(state: &State, observation: &Observation) -> bool {
    match observation {
        Observation::Inventory {
            nodes,
            partitions,
            resources,
        } => {
            let known = state.partitions.values();
            *resources != state.resources
                || partitions.len() != state.partitions.len()
                || !partitions
                    .iter()
                    .all(|one| known.clone().any(|other| other == one))
                || inventory_differs(state, nodes)
        }
        Observation::Holds { task, gpus } => holds_other(state, task, gpus),
        Observation::TaskStarted { task } => {
            matches!(phase(state, task), Some(TaskPhase::Launched))
        }
        Observation::TaskEnded { task, .. } => {
            matches!(
                phase(state, task),
                Some(TaskPhase::Launched | TaskPhase::Started)
            )
        }
        Observation::Attached { attempt, .. } => {
            current(state, *attempt).is_some_and(|(_, active)| !active.attached)
        }
        Observation::Checkpointed { checkpoint } => {
            current(state, checkpoint.attempt).is_some_and(|(job, _)| !job.knows(checkpoint))
        }
        Observation::Shards { attempt, shards } => {
            current(state, *attempt).is_some_and(|(job, _)| {
                let mut told = shards.iter();
                told.any(|(name, origin)| is_new_shard(job, name, origin))
            })
        }
        Observation::Acknowledged { attempt, ack } => {
            current(state, *attempt).is_some_and(|(job, _)| {
                let directive = job
                    .directives
                    .iter()
                    .find(|entry| entry.id == ack.directive);
                directive.is_some_and(|entry| entry.ack.as_ref() != Some(&ack.body))
            })
        }
    }
}

/// Whether an attempt is its job's current one.
#[must_use]
pub fn is_current(state: &State, attempt: AttemptId) -> bool {
    current(state, attempt).is_some()
}

/// The job and its launch, if the attempt is the job's current one.
fn current(state: &State, attempt: AttemptId) -> Option<(&Job, &Active)> {
    let job = state.job(attempt.job)?;
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt)?;
    Some((job, active))
}

fn phase<'a>(state: &'a State, task: &TaskId) -> Option<&'a TaskPhase> {
    current(state, task.attempt)?.1.phase(task)
}

fn inventory_differs(state: &State, offered: &[NodeSpec]) -> bool {
    let is_down = |state: &NodeState| matches!(state, NodeState::Down { .. });
    let known = |spec: &NodeSpec| {
        let node = state.node(&spec.name);
        node.is_some_and(|node| node.spec == *spec && !is_down(&node.state))
    };
    let names: BTreeSet<&NodeName> = offered.iter().map(|spec| &spec.name).collect();
    let gone = state
        .nodes()
        .any(|node| !is_down(&node.state) && !names.contains(&node.spec.name));
    gone || !offered.iter().all(known)
}
