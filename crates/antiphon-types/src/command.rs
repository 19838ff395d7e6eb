//! What a person asks antiphon to do. Admitted or refused by the kernel before it is logged.

use serde::{Deserialize, Serialize};

use crate::{DirectiveBody, JobId, JobSpec, Maintenance, NodeName, Policy, TeamSpec};

/// A client's own name for one command, so that sending it again does nothing again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandId {
    /// The client's `Idempotency-Key`.
    pub key: String,
    /// Digest of what was sent under it, so that the key is not taken for another command.
    pub content: String,
}

/// What a person asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Take a job into the queue.
    Submit {
        /// The job.
        spec: Box<JobSpec>,
    },
    /// End a job for good, whatever it is doing.
    Cancel {
        /// The job.
        job: JobId,
    },
    /// Keep a job from running; a running one is checkpointed and stopped first.
    Hold {
        /// The job.
        job: JobId,
    },
    /// Let a held job run again.
    Release {
        /// The job.
        job: JobId,
    },
    /// Checkpoint and stop a running job now; it goes back to its place in the queue.
    Preempt {
        /// The job.
        job: JobId,
    },
    /// Send a directive to a job's trainer.
    Direct(Direct),
    /// Take no new tasks on a node.
    Drain {
        /// The node.
        node: NodeName,
        /// Why, for those who read it later.
        reason: String,
    },
    /// Take tasks on a node again, and forget what was planned for it.
    Undrain {
        /// The node.
        node: NodeName,
    },
    /// Stop deciding; jobs run on, nothing starts or is preempted.
    Pause {
        /// Why, for those who read it later.
        reason: String,
    },
    /// Decide again; also the way out of safe mode.
    Unpause,
    /// Replace the settings.
    SetPolicy {
        /// The new settings.
        policy: Box<Policy>,
    },
    /// Replace the teams. Without any, every name is a team and all have the same claim.
    SetTeams {
        /// The new teams.
        teams: Vec<TeamSpec>,
    },
    /// Plan a time in which nodes take no tasks. `Undrain` of a node takes it out of every plan.
    Maintain(Maintenance),
}

/// A directive that a person sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    /// The job.
    pub job: JobId,
    /// What its trainer should do.
    pub body: DirectiveBody,
    /// Why, for those who read it later.
    pub reason: String,
}
