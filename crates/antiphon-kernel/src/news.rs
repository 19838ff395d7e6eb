//! Whether an observation says anything new. What does not stays out of the log: a quiet job logs nothing, however often
//! its trainer and its backend repeat themselves.

use antiphon_types::{AttemptId, NodeName, NodeSpec, NodeState, Observation, TaskId};

use crate::jobs::{Active, Job, TaskPhase};
use crate::state::State;

/// Whether `apply` would change the state by more than its clock.
#[must_use]
pub fn is_news(state: &State, observation: &Observation) -> bool {
    match observation {
        Observation::Inventory { nodes } => inventory_differs(state, nodes),
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
    current(state, task.attempt)?.1.tasks.get(task)
}

fn inventory_differs(state: &State, offered: &[NodeSpec]) -> bool {
    let is_down = |state: &NodeState| matches!(state, NodeState::Down { .. });
    let known = |spec: &NodeSpec| {
        let node = state.nodes.get(&spec.name);
        node.is_some_and(|node| node.spec == *spec && !is_down(&node.state))
    };
    let still_offered = |name: &NodeName| offered.iter().any(|spec| spec.name == *name);
    let gone = state
        .nodes
        .iter()
        .any(|(name, node)| !is_down(&node.state) && !still_offered(name));
    gone || !offered.iter().all(known)
}
