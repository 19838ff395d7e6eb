//! What the API says, as data: the kernel's words and units in JSON. Clients in Rust use these types; others read
//! `/v1/openapi.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who and what this server is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Version of the binary.
    pub version: String,
    /// Process id of the server.
    pub pid: u32,
    /// The backend that starts processes: `local`.
    pub backend: String,
    /// Whether the GPUs are only counted, not there.
    pub gpus_virtual: bool,
    /// `deciding`, `paused` or `safe`.
    pub mode: String,
    /// Why, where it is not `deciding`.
    pub mode_reason: Option<String>,
    /// Place of the last event in the log.
    pub seq: u64,
    /// Milliseconds since the Unix epoch.
    pub now_ms: u64,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
    /// Directory of log, outputs and token.
    pub state_dir: String,
}

/// What the log stands for at one place.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StateDigest {
    /// Place in the log.
    pub seq: u64,
    /// BLAKE3 digest of the state there; `antiphon audit` prints that of the replayed log.
    pub digest: String,
}

/// A page of jobs.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobPage {
    /// In service order: running ones, then the queue, then the rest, newest first.
    pub jobs: Vec<JobSummary>,
    /// Cursor of the next page, if there is one.
    pub next: Option<String>,
}

/// A job in one line.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// `job-42`.
    pub id: String,
    /// As the user named it.
    pub name: String,
    /// Who is charged.
    pub team: String,
    /// Who submitted it.
    pub user: String,
    /// `service`, `production`, `standard` or `best-effort`.
    pub class: String,
    /// `pending`, `starting`, `running`, `stopping`, `held`, `succeeded`, `failed` or `canceled`.
    pub state: String,
    /// When it entered that state, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// When it was submitted.
    pub submitted_ms: u64,
    /// GPUs it asks for, in thousandths.
    pub gpus_thousandths: u64,
    /// What it holds, like `n0[0-7]`; nothing where it holds nothing.
    pub allocation: Option<String>,
    /// Launches so far.
    pub attempts: u32,
    /// Newest optimizer step, if its trainer reports.
    pub step: Option<u64>,
    /// Steps to do, if its trainer said so.
    pub steps_total: Option<u64>,
    /// Newest loss in nats.
    pub loss: Option<f64>,
    /// How long it still takes by its own reports, in milliseconds.
    pub ends_in_ms: Option<u64>,
    /// In one sentence: why it waits, why it stops, how it ended. Empty where there is nothing to say.
    pub reason: String,
}

/// Everything about a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    /// In one line.
    #[schema(inline)]
    pub summary: JobSummary,
    /// Roles with their commands and GPUs.
    pub roles: Vec<RoleView>,
    /// Where its commands start.
    pub workdir: String,
    /// Where its checkpoints go.
    pub checkpoint_dir: Option<String>,
    /// What is trained, as the user describes it.
    pub train: BTreeMap<String, String>,
    /// Jobs it waits for.
    pub after: Vec<String>,
    /// Time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// The last acknowledged checkpoint.
    pub checkpoint: Option<CheckpointView>,
    /// Whether its trainer is attached now, so that directives reach it.
    pub attached: bool,
    /// Tasks of the current attempt.
    pub tasks: Vec<TaskView>,
    /// Past attempts, oldest first.
    pub attempts: Vec<AttemptView>,
    /// GPU-time in GPU-milliseconds that had to be spent again after preemptions and failures.
    pub lost_gpu_ms: u64,
    /// The directive log: data directives of all time, compute directives of the current attempt.
    pub directives: Vec<DirectiveView>,
    /// Recent loss by shard.
    pub shards: Vec<ShardView>,
    /// Newest numbers of the training loop.
    pub signals: Option<SignalsView>,
}

/// A role of a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RoleView {
    /// Its name.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// GPUs, in thousandths.
    pub gpus_thousandths: u64,
}

/// An acknowledged checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CheckpointView {
    /// Optimizer steps it holds.
    pub step: u64,
    /// Where it lies.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// How long the save took, in milliseconds.
    pub save_ms: u64,
    /// When it was acknowledged.
    pub at_ms: u64,
    /// By which attempt.
    pub attempt: String,
}

/// A task of the current attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    /// `job-42.3/trainer.0`.
    pub id: String,
    /// `launched`, `started` or `ended`.
    pub phase: String,
    /// Where it runs and what it holds.
    pub allocation: String,
    /// How it ended.
    pub exit: Option<String>,
}

/// A past attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AttemptView {
    /// `job-42.3`.
    pub id: String,
    /// What it held.
    pub allocation: String,
    /// When it was launched.
    pub launched_ms: u64,
    /// When its last task started.
    pub started_ms: Option<u64>,
    /// When it was settled.
    pub ended_ms: u64,
    /// Why antiphon stopped it.
    pub stopped: Option<String>,
    /// How it ended.
    pub exit: String,
    /// `succeeded`, `failed`, `canceled`, `held`, `requeued` or `retried`.
    pub outcome: String,
    /// Step of the last checkpoint acknowledged by then.
    pub checkpoint_step: Option<u64>,
    /// GPU-time that a later attempt had to spend again, in GPU-milliseconds.
    pub lost_gpu_ms: u64,
}

/// A directive of a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DirectiveView {
    /// Its place in the job's directive log.
    pub id: u64,
    /// What to do, like `set_weights neuro_002=0`.
    #[serde(rename = "do")]
    pub what: String,
    /// Why.
    pub reason: String,
    /// When it was decided.
    pub at_ms: u64,
    /// The trainer's answer: `applied at slot 19216`, `rejected: ..`; nothing while there is none.
    pub answer: Option<String>,
}

/// A shard's recent loss.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShardView {
    /// The shard.
    pub id: String,
    /// Mean loss of its recent samples, in nats.
    pub loss: f64,
    /// Samples behind it.
    pub samples: u64,
    /// What was found against it, if anything.
    pub finding: Option<String>,
}

/// Newest numbers of a training loop.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SignalsView {
    /// Which attempt reports.
    pub attempt: String,
    /// Newest gradient norm.
    pub grad_norm: Option<f64>,
    /// Newest time of a step in milliseconds.
    pub step_ms: Option<f64>,
    /// Tokens a second.
    pub tokens_per_s: Option<f64>,
    /// When the newest signal came.
    pub at_ms: u64,
    /// Signals that the trainer dropped because its buffer was full.
    pub dropped: u64,
}

/// Why a job is where it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WhyView {
    /// The job.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: String,
    /// In sentences, the ruling one first.
    pub sentences: Vec<String>,
    /// The ruling reason as data, for a job that waits.
    #[schema(value_type = Option<Object>)]
    pub reason: Option<serde_json::Value>,
}

/// All nodes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// By name.
    pub nodes: Vec<NodeView>,
}

/// A node and who is on it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// `ready`, `draining` or `down`.
    pub state: String,
    /// Why, where it is not `ready`.
    pub reason: Option<String>,
    /// Product name of its GPUs.
    pub gpu_type: String,
    /// GPUs it has.
    pub gpus: u32,
    /// Whether they are only counted, not there.
    pub gpus_virtual: bool,
    /// Memory of each GPU.
    pub gpu_memory_bytes: u64,
    /// What is free of them, in thousandths.
    pub gpus_free_thousandths: u64,
    /// CPUs it has.
    pub cpus: u32,
    /// CPUs that no task holds.
    pub cpus_free: u32,
    /// Memory it has.
    pub memory_bytes: u64,
    /// Memory that no task holds.
    pub memory_free_bytes: u64,
    /// Jobs with tasks on it.
    pub jobs: Vec<String>,
}

/// A command that was carried out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CommandAccepted {
    /// Its place in the log.
    pub seq: u64,
    /// The job that it made or changed.
    pub job: Option<String>,
    /// Whether it had been carried out before under the same idempotency key.
    pub repeated: bool,
    /// What the sender should know all the same.
    pub warnings: Vec<String>,
}

/// What a job file would do if it were submitted now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    /// Whether it would start at once.
    pub starts_now: bool,
    /// Where, if so.
    pub allocation: Option<String>,
    /// Why it would wait, if not.
    pub reason: Option<String>,
    /// What the sender should know all the same.
    pub warnings: Vec<String>,
}

/// Why, for operators' commands.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ReasonBody {
    /// For those who read it later.
    pub reason: String,
}

/// A directive that a person sends to a job's trainer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectiveBodyIn {
    /// `set_weights`, `pause_shard`, `resume_shard`, `checkpoint` or `stop`.
    #[serde(rename = "do")]
    pub what: String,
    /// For `set_weights`: weight by shard, 1 being its original one.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// For `pause_shard` and `resume_shard`.
    #[serde(default)]
    pub shard: Option<String>,
    /// For those who read it later.
    #[serde(default)]
    pub reason: String,
}

/// A refusal or failure, as `application/problem+json` (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Page about this kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The HTTP status's words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code: `AP0104`.
    pub code: String,
    /// What happened, and why, with numbers.
    pub detail: String,
    /// What to do.
    pub help: String,
}
