//! Folds what backends and trainers report and what the signal rules conclude. What no longer fits is late: it changes
//! nothing.

use antiphon_types::{
    Ack, AckBody, AttemptId, Checkpoint, Exit, Finding, NodeSpec, NodeState, Observation, TaskId,
};

use crate::capacity::Free;
use crate::jobs::{JobState, Progress, ShardRecord, StopPhase, TaskPhase};
use crate::state::{Node, State};

pub(super) fn fold(state: &mut State, observation: &Observation) {
    match observation {
        Observation::Inventory { nodes } => take_inventory(state, nodes),
        Observation::TaskStarted { task } => task_started(state, task),
        Observation::TaskEnded { task, exit } => task_ended(state, task, exit),
        Observation::Attached { attempt, .. } => {
            if let Some(active) = state.active_attempt(*attempt) {
                active.attached = true;
            }
        }
        Observation::Checkpointed { checkpoint } => checkpointed(state, checkpoint),
        Observation::Acknowledged { attempt, ack } => acknowledged(state, *attempt, ack),
    }
}

fn take_inventory(state: &mut State, offered: &[NodeSpec]) {
    for spec in offered {
        let held = state.held_on(&spec.name);
        let node = state
            .nodes
            .entry(spec.name.clone())
            .or_insert_with(|| Node {
                spec: spec.clone(),
                state: NodeState::Ready,
                drained: None,
                free: Free::all(spec),
            });
        node.state = node.offered();
        if node.spec == *spec {
            continue;
        }
        let mut free = Free::all(spec);
        let fits = held.iter().all(|task| {
            let fits = free.shortage(task).is_none();
            if fits {
                free.take(task);
            }
            fits
        });
        if fits {
            node.spec = spec.clone();
            node.free = free;
        } else {
            // Tasks hold what the node no longer has. They are not thereby dead: the node keeps its old form and takes
            // no more until they have ended.
            node.state = NodeState::Down {
                evidence: "it shrank below what its tasks hold".into(),
            };
        }
    }
    for (name, node) in &mut state.nodes {
        if !offered.iter().any(|spec| spec.name == *name)
            && !matches!(node.state, NodeState::Down { .. })
        {
            node.state = NodeState::Down {
                evidence: "its backend no longer offers it".into(),
            };
        }
    }
}

fn task_started(state: &mut State, task: &TaskId) {
    let now = state.now;
    let Some(active) = state.active_attempt(task.attempt) else {
        return;
    };
    let Some(phase @ TaskPhase::Launched) = active.tasks.get_mut(task) else {
        return;
    };
    *phase = TaskPhase::Started;
    if active
        .tasks
        .values()
        .any(|phase| matches!(phase, TaskPhase::Launched))
    {
        return;
    }
    active.started.get_or_insert(now);
    let job = state.job_mut(task.attempt.job);
    if let JobState::Starting { active } = &job.state {
        job.state = JobState::Running {
            active: active.clone(),
        };
    }
}

fn task_ended(state: &mut State, task: &TaskId, exit: &Exit) {
    let at = state.now;
    let Some(active) = state.active_attempt(task.attempt) else {
        return;
    };
    if let Some(phase @ (TaskPhase::Launched | TaskPhase::Started)) = active.tasks.get_mut(task) {
        *phase = TaskPhase::Ended {
            exit: exit.clone(),
            at,
        };
    }
}

fn checkpointed(state: &mut State, checkpoint: &Checkpoint) {
    if state.active_attempt(checkpoint.attempt).is_none() {
        return;
    }
    let job = state.job_mut(checkpoint.attempt.job);
    // A lower step than before is legal: the trainer went back.
    if !job.knows(checkpoint) {
        let before = job.checkpoint.replace(checkpoint.clone());
        // Whatever failed before, the job has got further since.
        if before.is_none_or(|before| before.step < checkpoint.step) {
            job.failures = 0;
        }
    }
}

fn acknowledged(state: &mut State, attempt: AttemptId, ack: &Ack) {
    let now = state.now;
    if state.active_attempt(attempt).is_none() {
        return;
    }
    let job = state.job_mut(attempt.job);
    if let Some(directive) = job.directives.iter_mut().find(|d| d.id == ack.directive) {
        directive.ack = Some(ack.body.clone());
    }
    if let JobState::Stopping {
        phase:
            StopPhase::CheckpointWait {
                directive,
                saved_at,
                until,
            },
        ..
    } = &mut job.state
        && *directive == ack.directive
    {
        match ack.body {
            AckBody::Applied { .. } => {
                saved_at.get_or_insert(now);
            }
            // There is nothing more to wait for.
            AckBody::Rejected { .. } | AckBody::Failed { .. } | AckBody::Expired => *until = now,
        }
    }
}

pub(super) fn fold_finding(state: &mut State, finding: &Finding) {
    let at = state.now;
    if state.active_attempt(finding.attempt()).is_none() {
        return;
    }
    let job = state.job_mut(finding.attempt().job);
    match finding {
        Finding::Progress {
            step,
            steps_total,
            step_time,
            ..
        } => {
            let (step, steps_total, step_time) = (*step, *steps_total, *step_time);
            job.progress = Some(Progress {
                attempt: finding.attempt(),
                step,
                steps_total,
                step_time,
                at,
            });
        }
        Finding::ShardNoise {
            shard, evidence, ..
        } => {
            let record = ShardRecord {
                evidence: evidence.clone(),
                directive: None,
            };
            job.shards.entry(shard.clone()).or_insert(record);
        }
    }
}
