//! What the kernel wants carried out. Every action is idempotent: carried out twice it does what it does once.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Allocation, AttemptId, Directive, DirectiveId, ExitClass, JobId, NodeName, TaskId, Timestamp,
};

/// One thing to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Start a gang.
    Launch {
        /// The new attempt.
        attempt: AttemptId,
        /// What it holds.
        allocation: Allocation,
    },
    /// Begin a stop with a `yield` directive and wait for its checkpoint.
    Yield {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        cause: StopCause,
        /// The `yield` directive, already in the job's directive log.
        directive: DirectiveId,
        /// When the wait for the checkpoint ends.
        until: Timestamp,
    },
    /// SIGTERM to every process of the attempt.
    Terminate {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        cause: StopCause,
        /// When SIGKILL follows.
        kill_at: Timestamp,
    },
    /// SIGKILL to every process of the attempt.
    Kill {
        /// The attempt.
        attempt: AttemptId,
        /// What gives the right to.
        evidence: String,
    },
    /// Every task has ended: release the allocation and say what becomes of the job.
    Settle {
        /// The attempt.
        attempt: AttemptId,
        /// What becomes of the job.
        outcome: Outcome,
    },
    /// A new entry in a job's directive log.
    Direct {
        /// The job.
        job: JobId,
        /// The entry.
        directive: Box<Directive>,
    },
    /// A job that can never start ends without an attempt.
    Abandon {
        /// The job.
        job: JobId,
        /// The dependency that did not succeed.
        dependency: JobId,
    },
}

/// Everything that one cycle decided.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decision {
    /// In the order to carry them out.
    pub actions: Vec<Action>,
    /// When to decide again if nothing happens before.
    pub wake_at: Option<Timestamp>,
}

/// Why an attempt is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// A job of a higher class needs its GPUs.
    Priority {
        /// That job.
        preemptor: JobId,
    },
    /// Its node is being emptied.
    Drain {
        /// The node.
        node: NodeName,
    },
    /// Its user canceled it.
    Cancel,
    /// Its user put it on hold.
    Hold,
    /// An operator sent it back to the queue.
    Operator,
    /// It ran into its time limit.
    Limit,
    /// A task of the gang failed, and a gang runs whole or not at all.
    GangBroken {
        /// The task that ended first.
        task: TaskId,
    },
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority { preemptor } => write!(f, "for {preemptor} (priority)"),
            Self::Drain { node } => write!(f, "drain of {node}"),
            Self::Cancel => f.write_str("cancel"),
            Self::Hold => f.write_str("hold"),
            Self::Operator => f.write_str("preempted by an operator"),
            Self::Limit => f.write_str("time limit"),
            Self::GangBroken { task } => write!(f, "{task} failed and the gang with it"),
        }
    }
}

/// What becomes of a job whose attempt has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Finished.
    Succeeded,
    /// Ended for good.
    Failed {
        /// Why.
        class: ExitClass,
    },
    /// Ended by its user.
    Canceled,
    /// Waits for its release.
    Held,
    /// Back to its place in the queue; the attempt does not count as failed.
    Requeued,
    /// Tried again.
    Retried {
        /// Why the attempt failed.
        class: ExitClass,
        /// Not before.
        not_before: Timestamp,
    },
}
