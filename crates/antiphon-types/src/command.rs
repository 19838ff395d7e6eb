//! What a person asks antiphon to do. Admitted or refused by the kernel before it is logged.

use serde::{Deserialize, Serialize};

use crate::{
    AttemptId, Class, DirectiveBody, DirectiveId, GatePolicy, JobId, JobSpec, Maintenance, Millis,
    NodeName, Notice, Policy, Rule, TeamSpec,
};

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
    /// Give a job that waits another class.
    SetClass {
        /// The job.
        job: JobId,
        /// Its class from now on.
        class: Class,
    },
    /// Send a directive to a job's trainer.
    Direct(Direct),
    /// Act on a finding that waits for a person's word.
    Approve {
        /// The job.
        job: JobId,
        /// The rule that found it.
        rule: Rule,
        /// Of what.
        subject: String,
    },
    /// Take back what a directive changed, and keep its rule from asking for it again.
    Undo {
        /// The job.
        job: JobId,
        /// The directive.
        directive: DirectiveId,
    },
    /// Something that a job's own trainer asks for.
    Ask(Ask),
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
    /// Give a node, or some of its GPUs, back soon: what runs there saves and leaves. `Undrain` takes it back.
    Notice(Notice),
    /// Replace the redlines, and say whether new best-effort jobs are kept back over them.
    SetGate {
        /// The new settings.
        gate: GatePolicy,
    },
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

/// Something that a job's own trainer asks for, inside the job's limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// The attempt that asks.
    pub attempt: AttemptId,
    /// What it asks for.
    pub body: AskBody,
    /// Why, in the trainer's words.
    pub reason: String,
}

/// What a trainer may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskBody {
    /// Another of the job's shapes, with more or fewer GPUs.
    Gpus {
        /// GPUs of the first role.
        gpus: u32,
    },
    /// More time before its time limit.
    Time {
        /// How much more.
        more: Millis,
    },
    /// Fresh samples of a category.
    Samples {
        /// The category.
        category: String,
    },
    /// To be stopped with a checkpoint, and held until its user releases it.
    Pause,
    /// Not to be preempted for a while: something cannot be interrupted.
    Protection {
        /// For how long.
        during: Millis,
    },
}
