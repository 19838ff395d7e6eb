//! What the kernel wants carried out. Every action is idempotent: carried out twice it does what it does once.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Allocation, AttemptId, Class, Directive, DirectiveId, ExitClass, GateChange, JobId, JobSpec,
    Millis, NodeName, NoticeCause, Rule, TaskId, Timestamp,
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
        /// On what terms.
        #[serde(default)]
        terms: Terms,
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
    /// Hold nodes back for a blocked job; replaces what was held for it before.
    Reserve {
        /// The job.
        job: JobId,
        /// What is held back.
        slot: Slot,
    },
    /// Hold nothing back for a job any more.
    Unreserve {
        /// The job.
        job: JobId,
    },
    /// Take no new tasks on a node that seems broken.
    PutAside {
        /// The node.
        node: NodeName,
        /// What convicts it.
        evidence: String,
    },
    /// Take what a finding asks for; the actions that it needs follow in the same decision.
    Remedy {
        /// The job.
        job: JobId,
        /// Whose finding.
        rule: Rule,
        /// Of what.
        subject: String,
        /// Which of its remedies, by place.
        remedy: u32,
    },
    /// Start a data job that makes more data for another job.
    Augment {
        /// The job that gets the data.
        job: JobId,
        /// The method, as its job file names it.
        method: String,
        /// Which shard or category starves.
        of: String,
        /// What makes the data.
        spec: Box<JobSpec>,
    },
    /// A job that can never start ends without an attempt.
    Abandon {
        /// The job.
        job: JobId,
        /// The dependency that did not succeed.
        dependency: JobId,
    },
    /// Keep new best-effort jobs back, or let them in again.
    Gate(GateChange),
}

/// On what terms an attempt was launched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// Which of its role's shapes each role has; empty where all have the preferred one.
    pub shapes: Vec<u32>,
    /// When it should end, if anything says so.
    pub ends_at: Option<Timestamp>,
    /// When nine of ten like it have ended: what others may build on.
    pub ends_by: Option<Timestamp>,
    /// As which class it runs, where its team's quota or budget does not cover the one that was asked for.
    pub class: Option<Class>,
    /// Whether its nodes are checked before its tasks start.
    pub check: bool,
    /// What spoke for this place.
    pub score: Vec<Score>,
}

/// One thing that spoke for or against a placement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// What was looked at.
    pub name: Cow<'static, str>,
    /// What it counted.
    pub points: i64,
}

/// What is held back for a blocked job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Slot {
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// When it can start there at the latest, if every running job keeps its word; unknown where one of them gave none.
    pub at: Option<Timestamp>,
    /// Why.
    pub why: SlotReason,
}

/// Why nodes are held back for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SlotReason {
    /// It is among the first blocked jobs of its class.
    #[default]
    Blocked,
    /// Others give way for it.
    Preemption,
    /// It ran there, and lost the place through no fault of its own.
    Claim,
}

/// Everything that one cycle decided.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decision {
    /// In the order to carry them out.
    pub actions: Vec<Action>,
    /// When to decide again if nothing happens before.
    pub wake_at: Option<Timestamp>,
    /// Whether another cycle has something to decide once this one is applied.
    #[serde(default)]
    pub again: bool,
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
    /// A team takes back what its quota promises.
    Reclaim {
        /// The job that needs it.
        preemptor: JobId,
    },
    /// Its GPUs did next to nothing for too long.
    Idle {
        /// For how long.
        since: Millis,
    },
    /// Its node is being emptied.
    Drain {
        /// The node.
        node: NodeName,
    },
    /// Its node, or GPUs of it, are given back soon.
    Notice {
        /// The node.
        node: NodeName,
        /// How many of its GPUs; all of the node without a number.
        gpus: Option<u32>,
        /// Who wants it.
        cause: NoticeCause,
        /// From when the stop began.
        within: Millis,
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
    /// One of its nodes is slower than the others: it goes on without it.
    Straggler {
        /// The node.
        node: NodeName,
    },
    /// It made no step for too long, though its processes live.
    Hang,
    /// Its own trainer asked for another number of GPUs.
    Asked {
        /// How many.
        gpus: u32,
    },
    /// Another job of its team is nearer to its end, or has had less.
    Turn {
        /// That job.
        preemptor: JobId,
    },
}

impl StopCause {
    /// The name that scripts see.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Priority { .. } => "priority",
            Self::Reclaim { .. } => "reclaim",
            Self::Idle { .. } => "idle",
            Self::Drain { .. } => "drain",
            Self::Notice { .. } => "notice",
            Self::Cancel => "cancel",
            Self::Hold => "hold",
            Self::Operator => "operator",
            Self::Limit => "limit",
            Self::GangBroken { .. } => "gang_broken",
            Self::Straggler { .. } => "straggler",
            Self::Hang => "hang",
            Self::Asked { .. } => "asked",
            Self::Turn { .. } => "turn",
        }
    }
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Priority { preemptor } => write!(f, "for {preemptor} (priority)"),
            Self::Reclaim { preemptor } => {
                write!(f, "for {preemptor} (reclaim of its team's quota)")
            }
            Self::Idle { since } => write!(f, "its GPUs were idle for {since}"),
            Self::Drain { node } => write!(f, "drain of {node}"),
            Self::Notice {
                node,
                gpus,
                cause,
                within,
            } => match gpus {
                None => write!(f, "{cause}: {node} is given back in {within}"),
                Some(1) => write!(f, "{cause}: a GPU of {node} is given back in {within}"),
                Some(gpus) => write!(
                    f,
                    "{cause}: {gpus} GPUs of {node} are given back in {within}"
                ),
            },
            Self::Cancel => f.write_str("cancel"),
            Self::Hold => f.write_str("hold"),
            Self::Operator => f.write_str("preempted by an operator"),
            Self::Limit => f.write_str("time limit"),
            Self::Straggler { node } => write!(f, "{node} is slower than its other nodes"),
            Self::Asked { gpus } => write!(f, "its trainer asked for {gpus} GPUs"),
            Self::Hang => f.write_str("it made no step for too long"),
            Self::Turn { preemptor } => {
                write!(f, "for {preemptor} (its turn in their team)")
            }
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
