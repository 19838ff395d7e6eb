//! What a job file may hold, key by key. The doc comments are the descriptions in the published JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data::{AugmentFile, DataFile, RulesFile};
use super::estimate::EstimateFile;
use super::train::TrainFile;

/// A job, as a user writes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Unique among the team's jobs that have not ended: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Who is charged. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// `service`, `production`, `standard` (the default) or `best-effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// Which of the team's jobs goes first, the highest; says nothing to other teams. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// When it should have ended: a time like `2026-12-01T08:00:00Z`, or a span from the submit like `+4h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// It does not start before this: a time, or a span from the submit like `+4h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Whether it waits for `antiphon release`. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Names or ids of jobs that have to succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Another name of `after`; both may stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<String>,
    /// Names or ids of jobs that have to end first, however they end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<String>,
    /// Names or ids of jobs that have to run, or to have run, first: Slurm's `after`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_start: Vec<String>,
    /// Many jobs from this file, one an index: `0-99%10` is 100 of them, at most 10 at once; `1,3,5-9`, `0-30:10`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// How long it will run: a span like `6h`, or `{ low, expected, high }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<EstimateFile>,
    /// Whether a later attempt may ask for less `gpu_memory`, where the one before used far less. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrink: Option<bool>,
    /// What the job needs, if it has one role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What the job runs, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Several roles in one gang, by name, instead of `resources` and `run.command`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleFile>,
    /// Where checkpoints go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFile>,
    /// What happens after a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryFile>,
    /// What to try, step by step, each time the job runs out of memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ladder: Vec<RungFile>,
    /// How much it takes of resources that belong to no node, by name: file-system bandwidth, licences.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, u64>,
    /// How far each rule of the two-way loop may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesFile>,
    /// Where the data came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataFile>,
    /// How more data is made, by method.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub augment: BTreeMap<String, AugmentFile>,
    /// What is trained. Without `resources` the planner makes the job's shapes of it; with them it says whether they will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainFile>,
    /// What makes the result an acceptable model: `{ metric = "eval_loss", op = "<=", value = 1.2, from = "probe" }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<AcceptFile>,
}

impl JobFile {
    /// The jobs that have to do something first, as they are named.
    pub fn waits_for(&self) -> impl Iterator<Item = &String> {
        let lists = [
            &self.after,
            &self.after_ok,
            &self.after_any,
            &self.after_start,
        ];
        lists.into_iter().flatten()
    }
}

/// What makes a job's result an acceptable model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptFile {
    /// `loss` or `eval_loss`; else the name under which the trainer reports it.
    pub metric: String,
    /// `<=` or `>=`.
    pub op: String,
    /// The value to reach.
    pub value: f64,
    /// On what it is measured: `probe` (held-out rows, the mean over categories; the default for losses), `probe/CATEGORY`,
    /// `train` (the mean loss of the last 64 steps) or `eval` (what the trainer reports by name; the default for all else).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// How urgent a job is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// Long-lived, answers users.
    Service,
    /// Somebody waits for the result.
    Production,
    /// The default.
    Standard,
    /// Runs on what others leave.
    BestEffort,
}

/// What a role needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// GPUs of the whole role; 0 for a data job, a fraction for a share of one GPU.
    #[serde(default)]
    pub gpus: f64,
    /// The only GPU type that will do, as `antiphon nodes` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Into how many equal tasks the GPUs are split. Default: as few as the free GPUs allow, one a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// `per-node` (the default: torchrun or the like starts the ranks) or `per-gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<ProcessesName>,
    /// CPUs of each task. Default: 8 a GPU, at most its GPUs' part of the node; 1 without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory of each task, like `64GiB`. Default: its GPUs' part of the node; without GPUs none is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Fast local storage of each task, like `2TB`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    /// What each task reads from shared storage a second, like `2GB/s`. Default: none is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bandwidth: Option<String>,
    /// Least memory of each GPU, like `40GB`. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<String>,
    /// The only partition that will do. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The largest span that the role may have: `node`, `nvlink-domain`, `leaf`, `spine` or `cluster` (the default).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<SpanName>,
    /// GPUs that have to share an NVLink domain, in rank order; has to divide the GPUs of the role. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor_parallel: Option<u32>,
    /// How fast the job is in this shape: 1.0 (the default) in its fastest, 0.5 where it takes twice as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Other shapes that would do, in order of preference, each with these same keys: `or = [{ gpus = 16, gpu_type = "A100" }]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "or")]
    pub alternatives: Vec<Self>,
}

/// A smallest level of the network that holds all of a role.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpanName {
    /// One node.
    Node,
    /// GPUs joined by NVLink.
    NvlinkDomain,
    /// Nodes under one leaf switch.
    Leaf,
    /// Leaves under one spine.
    Spine,
    /// Anywhere in one partition.
    Cluster,
}

/// One step of an out-of-memory ladder.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RungFile {
    /// What people read: `micro-batch 1`.
    pub name: String,
    /// Variables for every task, on top of the job's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// GPUs of the first role instead of its own number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<f64>,
}

/// Which processes antiphon starts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessesName {
    /// One a task.
    PerNode,
    /// One a GPU.
    PerGpu,
}

/// What a job runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Where it starts. Default: the directory of the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Variables for every task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Variables for every task whose values are secret: where each is read, `file:/path` or `env:NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Time between SIGTERM and SIGKILL. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
    /// Longest run time of one attempt, like `4h`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// One of several roles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleFile {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the role needs. With `[train]` the planner says it of `trainer`, `rollout`, `critic`, `reference` and `reward`;
    /// else, without it, the role has no GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// Where checkpoints go.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// The directory; the trainer sees it as `ANTIPHON_CHECKPOINT_DIR`.
    pub dir: String,
    /// How many of the newest the Python package keeps when it deletes old ones. Default: it deletes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// How many of the best it keeps beside them, by held-out loss where the trainer gives one. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_best: Option<u32>,
    /// Of how many of the last days it keeps one each. Default: 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_days: Option<u32>,
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryFile {
    /// Failed attempts that are followed by another. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Wait before the first retry; doubles each time. Default: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// The longest wait. Default: `120s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_max: Option<String>,
}
