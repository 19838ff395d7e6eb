//! What another scheduler's cluster looks like at one moment, for a server that only observes it. A type that can look and
//! can do nothing else: who holds an [`Observe`] has no way to start, stop or change a job.

use antiphon_types::{Bytes, Exit, JobSpec, Millis, NodeSpec, Outcome, PartitionSpec, Timestamp};
use async_trait::async_trait;

use crate::BackendError;

/// A cluster that is looked at.
#[async_trait]
pub trait Observe: Send + Sync {
    /// The scheduler that runs it, as messages and the names of jobs have it: `slurm`.
    fn name(&self) -> &'static str;

    /// How long to rest between two looks, at least.
    fn rest(&self) -> Millis;

    /// Everything that is there now.
    ///
    /// # Errors
    /// Where it cannot be asked, which is never evidence that anything is gone.
    async fn look(&self) -> Result<Picture, BackendError>;
}

/// Everything that one look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    /// Every node, in service or not.
    pub nodes: Vec<SeenNode>,
    /// The partitions that the nodes name.
    pub partitions: Vec<PartitionSpec>,
    /// Every job that holds one of these nodes, waits for them, or has just ended.
    pub jobs: Vec<SeenJob>,
    /// Ids of jobs that are there and of which nothing is known for sure now: what was known before stays.
    pub unclear: Vec<String>,
    /// What is there and not among the jobs, in sentences.
    pub left_out: Vec<String>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenNode {
    /// What it has.
    pub spec: NodeSpec,
    /// The scheduler's own partitions that it is in: where some share nodes, `spec` names them as one.
    pub partitions: Vec<String>,
    /// Whether it takes jobs.
    pub service: Service,
}

/// Whether a node takes jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// It does.
    In,
    /// It takes no new ones, in the scheduler's words.
    Drained(String),
    /// It is not there, in the scheduler's words.
    Down(String),
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenJob {
    /// Its id there: `123`, `20_3` of an array.
    pub key: String,
    /// What it asks for, in antiphon's terms. Its name is the one that its user gave it.
    pub spec: JobSpec,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// How far it is.
    pub phase: SeenPhase,
    /// The partitions that it may run in.
    pub partitions: Vec<String>,
    /// Why the scheduler does not start it, in its words.
    pub reason: Option<String>,
    /// Its priority there: the highest is served first.
    pub priority: u64,
    /// When the scheduler itself means to start it, where it says so.
    pub starts: Option<Timestamp>,
    /// What it asks for and antiphon does not weigh, in words.
    pub not_weighed: Vec<String>,
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeenPhase {
    /// It waits for room.
    Waiting,
    /// It waits for a person, a time or another job: room alone would not start it.
    KeptBack,
    /// It holds nodes.
    Running(Run),
    /// It is over.
    Ended {
        /// Where it ran, if it did.
        run: Option<Run>,
        /// When.
        at: Timestamp,
        /// How.
        exit: Exit,
        /// What that makes of the job.
        outcome: Outcome,
    },
}

/// What a job holds, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Since when.
    pub since: Timestamp,
    /// What it holds, node by node.
    pub held: Vec<Held>,
}

/// What a job holds of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The role.
    pub role: String,
    /// The node.
    pub node: String,
    /// How many GPUs.
    pub gpus: u32,
    /// Which, where the scheduler says so.
    pub indices: Vec<u32>,
    /// CPUs.
    pub cpus: u32,
    /// Memory, where the scheduler counts it.
    pub memory: Bytes,
}
