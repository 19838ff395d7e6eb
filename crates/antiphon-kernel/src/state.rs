//! Everything the kernel knows, as one value: a fold over the log. Changed by `apply` alone, read by everyone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_types::{Class, JobId, NodeName, NodeSpec, NodeState, Policy, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::capacity::Free;
use crate::jobs::Job;

/// Everything the kernel knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    pub(crate) now: Timestamp,
    pub(crate) seq: Seq,
    pub(crate) policy: Policy,
    pub(crate) mode: Mode,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// The id of the newest job.
    pub(crate) jobs_submitted: u64,
    pub(crate) nodes: BTreeMap<NodeName, Node>,
    /// Pending jobs whose dependencies have succeeded, in service order.
    pub(crate) queue: BTreeSet<(Class, JobId)>,
    /// Jobs whose retry is not due yet, by due time.
    pub(crate) backoff: BTreeSet<(Timestamp, JobId)>,
    /// Pending jobs with a dependency that never will succeed.
    pub(crate) dead: BTreeSet<JobId>,
    /// Jobs that hold an allocation.
    pub(crate) active: BTreeSet<JobId>,
    /// Names of jobs that have not ended, by team.
    pub(crate) names: BTreeMap<(String, String), JobId>,
    /// Ended jobs, oldest first.
    pub(crate) ended: VecDeque<JobId>,
    pub(crate) command_ids: BTreeMap<String, CommandRecord>,
    /// The keys of `command_ids`, oldest first.
    pub(crate) command_order: VecDeque<String>,
}

/// Whether the kernel decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// It does.
    #[default]
    Deciding,
    /// An operator stopped it: what people ask of running jobs is still carried out, nothing starts or gives way.
    Paused {
        /// What the operator wrote.
        reason: String,
    },
    /// A bug was caught: as when paused, until an operator has looked.
    Safe {
        /// The assertion's text.
        bug: String,
    },
}

/// A node and what is free on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What its backend says of it.
    pub spec: NodeSpec,
    /// Whether it takes tasks.
    pub state: NodeState,
    /// What the operator who drains it wrote; kept while the node is down, so that it comes back drained.
    pub drained: Option<String>,
    /// What no attempt holds.
    pub free: Free,
}

/// What an idempotency key was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Digest of what was sent under it.
    pub content: String,
    /// Where it stands in the log.
    pub seq: Seq,
    /// The job it made or changed.
    pub job: Option<JobId>,
}

impl Node {
    /// Its state while its backend offers it.
    pub(crate) fn offered(&self) -> NodeState {
        self.drained
            .clone()
            .map_or(NodeState::Ready, |reason| NodeState::Draining { reason })
    }

    /// Says whether an operator drains it. What is down stays down until its backend offers it again.
    pub(crate) fn drain(&mut self, reason: Option<String>) {
        self.drained = reason;
        if !matches!(self.state, NodeState::Down { .. }) {
            self.state = self.offered();
        }
    }
}

impl State {
    /// The time of the last event.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }
    /// The place of the last event.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }
    /// The settings.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }
    /// Whether the kernel decides.
    #[must_use]
    pub const fn mode(&self) -> &Mode {
        &self.mode
    }
    /// Every job that has not been forgotten.
    #[must_use]
    pub const fn jobs(&self) -> &BTreeMap<JobId, Job> {
        &self.jobs
    }
    /// One job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id)
    }
    /// The newest job there is.
    #[must_use]
    pub const fn newest_job(&self) -> Option<JobId> {
        match self.jobs_submitted {
            0 => None,
            newest => Some(JobId(newest)),
        }
    }
    /// Every node ever offered.
    #[must_use]
    pub const fn nodes(&self) -> &BTreeMap<NodeName, Node> {
        &self.nodes
    }
    /// Jobs that hold an allocation, oldest first.
    pub fn active_jobs(&self) -> impl Iterator<Item = &Job> {
        self.active.iter().map(|id| &self.jobs[id])
    }
    /// Whether a job stands in the queue.
    #[must_use]
    pub fn is_queued(&self, id: JobId) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| self.queue.contains(&(job.spec.class, id)))
    }
    /// The pending jobs whose dependencies have succeeded, in service order.
    pub fn queued_jobs(&self) -> impl Iterator<Item = &Job> {
        self.queue.iter().map(|(_, id)| &self.jobs[id])
    }
    /// The newest job of a team with this name that has not ended.
    #[must_use]
    pub fn job_named(&self, team: &str, name: &str) -> Option<&Job> {
        self.names
            .get(&(team.to_owned(), name.to_owned()))
            .map(|id| &self.jobs[id])
    }
}
