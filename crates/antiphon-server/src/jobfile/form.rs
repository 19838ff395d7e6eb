//! What a job file may hold, key by key. The doc comments are the descriptions in the published JSON Schema.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Names or ids of jobs that have to succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
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
    /// What antiphon may do to the data mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataFile>,
    /// What is trained. Shown to people; `resources` decides what the job gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainFile>,
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
    /// CPUs of each task. Default: 1 without GPUs, else none are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory of each task, like `64GiB`. Default: none is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
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
    /// What the role needs.
    #[serde(default)]
    pub resources: Resources,
}

/// Where checkpoints go.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// The directory; the trainer sees it as `ANTIPHON_CHECKPOINT_DIR`.
    pub dir: String,
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

/// What antiphon may do to the data mix.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// `observe` (the default: findings are shown) or `auto` (a bad shard's weight is lowered).
    #[serde(default)]
    pub rules: RulesName,
}

/// Whether findings become directives.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RulesName {
    /// Findings are logged and shown.
    #[default]
    Observe,
    /// Findings change the training.
    Auto,
}

/// What is trained.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// The model's name or path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `full`, `lora`, `dpo` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The optimizer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Tokens of one sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
    /// Tokens to train on, like `200M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<String>,
}
