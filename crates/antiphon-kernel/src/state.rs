//! Everything the kernel knows, as one value: a fold over the log. Changed by `apply` alone, read by everyone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;

use antiphon_types::{
    Bytes, GpuAmount, GpuTime, JobId, Maintenance, NodeName, NodeSpec, NodeState, NoticeCause,
    PartitionSpec, Policy, Seq, Slot, Timestamp,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::capacity::NodeId;
use crate::gate::Gate;
use crate::history::History;
use crate::index::Index;
use crate::jobs::Job;
use crate::numbers::Numbers;
use crate::place::Demand;
use crate::table::Jobs;
use crate::teams::Teams;

/// Everything the kernel knows: what is stored, and indexes that follow from it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    pub(crate) known: Known,
    pub(crate) index: Index,
}

/// What is stored of the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Known {
    pub(crate) now: Timestamp,
    pub(crate) seq: Seq,
    pub(crate) policy: Policy,
    pub(crate) mode: Mode,
    pub(crate) jobs: Jobs,
    /// The id of the newest job.
    pub(crate) jobs_submitted: u64,
    /// In the order in which they were first offered; none is ever forgotten.
    pub(crate) nodes: Vec<Node>,
    pub(crate) partitions: BTreeMap<String, PartitionSpec>,
    /// Resources that belong to no node, all of each.
    pub(crate) resources: BTreeMap<String, u64>,
    pub(crate) teams: Teams,
    pub(crate) history: History,
    /// GPUs of the tasks really seen: what holes are worth keeping.
    pub(crate) demand: Demand,
    /// What is held back for blocked jobs.
    pub(crate) slots: BTreeMap<JobId, Slot>,
    /// Planned times in which nodes take no tasks.
    pub(crate) maintenance: Vec<Maintenance>,
    /// When attempts were preempted, in the last hour, the oldest first.
    pub(crate) preemptions: VecDeque<Timestamp>,
    /// How the platform does.
    pub(crate) numbers: Numbers,
    /// Whether new best-effort jobs are kept back over that.
    pub(crate) gate: Gate,
    /// Ended jobs, oldest first.
    pub(crate) ended: VecDeque<JobId>,
    pub(crate) command_ids: BTreeMap<String, CommandRecord>,
    /// The keys of `command_ids`, oldest first.
    pub(crate) command_order: VecDeque<String>,
}

impl Deref for State {
    type Target = Known;
    fn deref(&self) -> &Known {
        &self.known
    }
}

impl Serialize for State {
    /// What is stored alone: indexes follow from it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.known.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Known::deserialize(deserializer).map(Self::from)
    }
}

impl From<Known> for State {
    fn from(known: Known) -> Self {
        let index = Index::of(&known);
        Self { known, index }
    }
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

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// What its backend says of it.
    pub spec: NodeSpec,
    /// Whether it takes tasks.
    pub state: NodeState,
    /// What the operator who drains it wrote, or what convicted it; kept while the node is down, so that it comes back
    /// drained.
    pub drained: Option<String>,
    /// Whether it steps in for another, if it is a spare.
    pub stepped_in: bool,
    /// Hardware failures of attempts on it that still count against it.
    pub failures: Vec<NodeFailure>,
    /// What of it is to be given back, until it is taken back.
    pub notices: Vec<NoticeRecord>,
}

/// A node, or some of its GPUs, that is to be given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticeRecord {
    /// Which GPUs; the whole node where none are named.
    pub gpus: Option<Vec<u32>>,
    /// When.
    pub by: Timestamp,
    /// Who wants it.
    pub cause: NoticeCause,
    /// In words.
    pub reason: String,
}

impl NoticeRecord {
    /// Whether it names a GPU.
    pub(crate) fn takes(&self, gpu: u32) -> bool {
        self.gpus.as_ref().is_some_and(|gpus| gpus.contains(&gpu))
    }
}

/// What speaks against a node: a hardware failure of an attempt on it, or a task that was slower than the others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFailure {
    /// Whose job it was: one team's code alone convicts no node.
    pub team: String,
    /// The job.
    pub job: JobId,
    /// When.
    pub at: Timestamp,
    /// Whether a check of the node itself failed: that convicts it alone.
    pub checked: bool,
    /// Whether it did not fail, but was slower than the other nodes of its gang.
    pub slow: bool,
}

/// What no attempt holds of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFree {
    /// GPUs of which nothing is held.
    pub gpus_whole: u32,
    /// What is free of GPUs that jobs share.
    pub gpus_shared: GpuAmount,
    /// CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
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
        let mut whole = self.notices.iter().filter(|notice| notice.gpus.is_none());
        let noticed = whole.next().map(|notice| &notice.reason);
        let reason = self.drained.as_ref().or(noticed).cloned();
        reason.map_or(NodeState::Ready, |reason| NodeState::Draining { reason })
    }

    /// Whether one of its GPUs is to be given back while it goes on.
    pub(crate) fn gives_back(&self, gpu: u32) -> bool {
        self.notices.iter().any(|notice| notice.takes(gpu))
    }

    /// Forgets what was to be given back of it, if that is past: what comes back then is somebody else's no more.
    pub(crate) fn comes_back(&mut self, now: Timestamp) {
        self.notices.retain(|notice| notice.by > now);
    }

    /// Says whether an operator drains it. What is down stays down until its backend offers it again.
    pub(crate) fn drain(&mut self, reason: Option<String>) {
        self.drained = reason;
        if !matches!(self.state, NodeState::Down { .. }) {
            self.state = self.offered();
        }
    }

    /// Whether it takes tasks, as far as its own state goes.
    pub(crate) fn is_in_service(&self) -> bool {
        self.state == NodeState::Ready && (!self.spec.spare || self.stepped_in)
    }
}

impl Known {
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
    pub const fn jobs(&self) -> &Jobs {
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
    /// The partitions that nodes name and whose features are known.
    #[must_use]
    pub const fn partitions(&self) -> &BTreeMap<String, PartitionSpec> {
        &self.partitions
    }
    /// Resources that belong to no node, all of each.
    #[must_use]
    pub const fn resources(&self) -> &BTreeMap<String, u64> {
        &self.resources
    }
    /// The teams and their books.
    #[must_use]
    pub const fn teams(&self) -> &Teams {
        &self.teams
    }
    /// What is held back for blocked jobs.
    #[must_use]
    pub const fn slots(&self) -> &BTreeMap<JobId, Slot> {
        &self.slots
    }
    /// How the platform does, as of the last event.
    #[must_use]
    pub const fn numbers(&self) -> &Numbers {
        &self.numbers
    }
    /// Whether new best-effort jobs are kept back.
    #[must_use]
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }
    /// Planned times in which nodes take no tasks.
    #[must_use]
    pub fn maintenance(&self) -> &[Maintenance] {
        &self.maintenance
    }
}

impl State {
    /// Every node ever offered, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.index.node_ids.values().map(|id| self.node_at(*id))
    }
    /// The node of this name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.index.node_ids.get(name).map(|id| self.node_at(*id))
    }
    pub(crate) fn node_at(&self, id: NodeId) -> &Node {
        &self.nodes[usize::try_from(id).expect("few nodes")]
    }
    /// Jobs that hold an allocation, oldest first.
    pub fn active_jobs(&self) -> impl Iterator<Item = &Job> {
        self.index.active.iter().map(|id| &self.jobs[id])
    }
    /// Whether a job stands in the queue.
    #[must_use]
    pub fn is_queued(&self, id: JobId) -> bool {
        self.index.queue.holds(id)
    }
    /// How many jobs the gate keeps back.
    #[must_use]
    pub fn kept_back(&self) -> u64 {
        self.index.gated.len() as u64
    }
    /// How many jobs stand in the queue.
    #[must_use]
    pub fn queue_length(&self) -> usize {
        self.index.queue.len()
    }
    /// The job of a team with this name that has not ended.
    #[must_use]
    pub fn job_named(&self, team: &str, name: &str) -> Option<&Job> {
        let id = self.index.named(self.teams.id(team)?, name)?;
        Some(&self.jobs[&id])
    }
    /// What no attempt holds of a node.
    #[must_use]
    pub fn free_on(&self, node: &NodeName) -> Option<NodeFree> {
        let id = *self.index.node_ids.get(node)?;
        let capacity = &self.index.capacity;
        let parts = capacity.parts().iter().filter(|part| part.node == id);
        let room = capacity.room(id);
        Some(NodeFree {
            gpus_whole: capacity.whole_gpus(id).count_ones(),
            gpus_shared: parts.map(|part| part.free).sum(),
            cpus: room.cpus,
            memory: room.memory,
        })
    }
    /// The job that a node is held back for, if it is.
    #[must_use]
    pub fn held_for(&self, node: &NodeName) -> Option<JobId> {
        let id = *self.index.node_ids.get(node)?;
        self.index.capacity.hold_on(id)?.job
    }
    /// GPUs that a team holds, its parts included.
    #[must_use]
    pub fn team_holds(&self, team: &str) -> GpuAmount {
        let id = self.teams.id(team);
        id.map(|id| self.index.holdings.all(id)).unwrap_or_default()
    }
    /// GPU-time that a team has borrowed beyond its quota, and what it has lent of it, its parts included.
    #[must_use]
    pub fn team_debts(&self, team: &str) -> Option<(GpuTime, GpuTime)> {
        let id = self.teams.id(team)?;
        let held = self.index.holdings.all(id);
        Some(self.teams.get(id).debts(held, self.now))
    }
    /// Attempts on a node.
    pub fn tenants(&self, node: &NodeName) -> BTreeSet<JobId> {
        let tenants = self
            .index
            .node_ids
            .get(node)
            .map(|id| self.index.tenants_of(*id));
        let tenants = tenants.into_iter().flatten();
        tenants.map(|tenant| tenant.job).collect()
    }
}
