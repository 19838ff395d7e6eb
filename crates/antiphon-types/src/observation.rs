//! What backends and trainers report is so. May come late, doubled or never; the kernel folds only what still fits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Ack, AttemptId, Checkpoint, Exit, NodeSpec, PartitionSpec, ShardOrigin, TaskId};

/// What a backend or a trainer reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// All nodes that a backend offers. A node not among them is not offered, which says nothing about its tasks.
    Inventory {
        /// The nodes.
        nodes: Vec<NodeSpec>,
        /// The partitions that they name; one that is not among them is known by its name alone.
        #[serde(default)]
        partitions: Vec<PartitionSpec>,
        /// Resources that belong to no node, and how much of each there is.
        #[serde(default)]
        resources: BTreeMap<String, u64>,
    },
    /// Which GPUs of its node a task really has, where the backend chooses them.
    Holds {
        /// The task.
        task: TaskId,
        /// Their indices, ascending.
        gpus: Vec<u32>,
    },
    /// A task's command runs.
    TaskStarted {
        /// The task.
        task: TaskId,
    },
    /// A task's processes are all gone.
    TaskEnded {
        /// The task.
        task: TaskId,
        /// How.
        exit: Exit,
    },
    /// A trainer said hello: directives reach it.
    Attached {
        /// The attempt.
        attempt: AttemptId,
        /// The step it starts from.
        step: u64,
    },
    /// A checkpoint is durable. Logged before it is answered.
    Checkpointed {
        /// The checkpoint, with the attempt that wrote it.
        checkpoint: Checkpoint,
    },
    /// A trainer answered a directive.
    Acknowledged {
        /// The attempt.
        attempt: AttemptId,
        /// The answer.
        ack: Ack,
    },
    /// A trainer said where shards that it draws from came from.
    Shards {
        /// The attempt.
        attempt: AttemptId,
        /// What is new, by shard.
        shards: BTreeMap<String, ShardOrigin>,
    },
}
