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
    /// Why new best-effort jobs are kept back, where they are.
    #[serde(default)]
    pub gate: Option<String>,
    /// Jobs by state.
    pub jobs: BTreeMap<String, u64>,
    /// Directory of log, outputs and token.
    pub state_dir: String,
    /// Whom it only observes, where it does.
    #[serde(default)]
    pub observes: Option<ObservesView>,
}

/// What a server that only observes has seen.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ObservesView {
    /// Who runs the cluster: `slurm`.
    pub scheduler: String,
    /// When it was looked at last with an answer, in milliseconds since the Unix epoch.
    pub seen_ms: u64,
    /// How long ago that was.
    pub age_ms: u64,
    /// How long that look took.
    pub took_ms: u64,
    /// Looks that were answered since the server started.
    pub looks: u64,
    /// Why there has been no answer since, where there has been none.
    pub error: Option<String>,
    /// What is there and not shown, in sentences.
    pub left_out: Vec<String>,
    /// Jobs that antiphon would start now.
    pub would_start: u64,
    /// Jobs that it would ask to give way.
    pub would_stop: u64,
    /// Why that is not known, where it is not.
    pub no_proposal: Option<String>,
}

/// What another scheduler says of a job, and what antiphon would do with it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ObservedView {
    /// Its id there: `123`, `20_3` of an array.
    pub id: String,
    /// Why it waits, in that scheduler's words.
    pub reason: Option<String>,
    /// Whether it waits for more than room: a person, a time, another job.
    pub kept_back: bool,
    /// Its priority there.
    pub priority: u64,
    /// Its place there among those that wait for room, from 1.
    pub place: Option<u64>,
    /// Its place in antiphon's order.
    pub place_here: Option<u64>,
    /// When it is to start there, in milliseconds since the Unix epoch.
    pub starts_ms: Option<u64>,
    /// The partitions that it may run in.
    pub partitions: Vec<String>,
    /// What it asks for and antiphon does not weigh.
    pub not_weighed: Vec<String>,
    /// What antiphon would do with it now, to stand behind "antiphon would".
    pub would: Option<String>,
}

/// What antiphon would do now with a cluster that it only observes.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProposalView {
    /// Who runs the cluster: `slurm`.
    pub scheduler: String,
    /// As of when, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Why it is not known, where it is not.
    pub unknown: Option<String>,
    /// Jobs that it would start.
    pub starts: Vec<WouldStartView>,
    /// Jobs that it would ask to give way.
    pub stops: Vec<WouldStopView>,
    /// What it would do with nodes, in sentences behind "antiphon would".
    pub nodes: Vec<String>,
    /// The jobs that wait for room, in antiphon's order, the first thousand.
    pub order: Vec<OrderView>,
}

/// A job that antiphon would start now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WouldStartView {
    /// The job.
    pub job: String,
    /// Its name, with its id there in front.
    pub name: String,
    /// GPUs, in thousandths.
    pub gpus_thousandths: u64,
    /// Where: `n1[0-7]`.
    pub on: String,
    /// What speaks against that place, or may: nodes that its own partition does not have, what it asks for and antiphon does not
    /// weigh.
    pub against: Option<String>,
}

/// A job that antiphon would ask to give way.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WouldStopView {
    /// The job.
    pub job: String,
    /// Its name, with its id there in front.
    pub name: String,
    /// Why.
    pub why: String,
    /// GPU-milliseconds that it would have to do again, as far as antiphon has seen its checkpoints.
    pub unsaved_gpu_ms: u64,
}

/// A job's place in two orders.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct OrderView {
    /// The job.
    pub job: String,
    /// In antiphon's order, from 1.
    pub place_here: u64,
    /// In the other scheduler's, from 1.
    pub place_there: Option<u64>,
}

/// How the platform does.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NumbersView {
    /// `effective_throughput`, `completion_rate`, `time_to_checkpoint`, and `scheduling_delay_` of `production` and `best_effort`.
    pub numbers: Vec<NumberView>,
    /// Whether new best-effort jobs are kept back.
    pub gate: GateView,
}

/// A number by which the platform is judged.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NumberView {
    /// For scripts.
    pub name: String,
    /// For people.
    pub title: String,
    /// What it reads over the last hour; nothing where there is no sample.
    pub value: Option<f64>,
    /// `share` (0 to 1), `ms` or `tokens/s per $/h`.
    pub unit: String,
    /// What it should not exceed; of a share, not fall below.
    pub redline: Option<f64>,
    /// Whether it lies on the wrong side of that.
    pub over: bool,
    /// Samples within the last hour.
    pub samples: u64,
    /// What it reads with everything that is left out of it, where something is.
    pub raw: Option<f64>,
    /// What it read in every five minutes of the last day that have samples: when they began, in milliseconds since the Unix
    /// epoch, and the value.
    pub history: Vec<(u64, f64)>,
}

/// Whether new best-effort jobs are kept back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GateView {
    /// Whether they are let in: false while the gate is shut.
    pub open: bool,
    /// Whether it is ever shut.
    pub enabled: bool,
    /// Since when it is shut, in milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
    /// When it opens at the latest.
    pub until_ms: Option<u64>,
    /// Why it is shut.
    pub why: Option<String>,
    /// Jobs that are kept back.
    pub kept_back: u64,
}

/// What GPUs measure of themselves.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeviceList {
    /// Of all nodes whose GPUs can be measured from here.
    pub devices: Vec<DeviceView>,
}

/// A GPU at one moment; nothing where it does not measure something.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeviceView {
    /// Its node.
    pub node: String,
    /// Its number there.
    pub gpu: u32,
    /// The job that holds it.
    pub job: Option<String>,
    /// Part of the last second or so in which a kernel ran on it.
    pub utilization_percent: Option<u32>,
    /// Memory in use.
    pub memory_used_bytes: Option<u64>,
    /// All of its memory.
    pub memory_total_bytes: Option<u64>,
    /// Temperature of the chip in degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power it draws, in milliwatts.
    pub power_mw: Option<u32>,
    /// Why its clocks are held down; empty where they are not.
    pub throttled: Vec<String>,
    /// Memory errors that could not be corrected, since the driver was loaded.
    pub ecc_errors: Option<u64>,
    /// The last error that the driver told by number (XID), if it told one.
    #[serde(default)]
    pub xid: Option<u32>,
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
    /// How long it still runs, as far as anything says so, in milliseconds.
    pub ends_in_ms: Option<u64>,
    /// Which member of an array it is, if it is one.
    pub array: Option<ArrayView>,
    /// Which of its team's jobs goes first, the highest.
    pub priority: i32,
    /// When it should have ended, and whether that counts.
    pub deadline: Option<DeadlineView>,
    /// How long its next attempt should run.
    pub expected: ExpectationView,
    /// As which class it runs, where its team's quota or budget does not cover the one it asks for.
    pub runs_as: Option<String>,
    /// What is held back for it.
    pub slot: Option<SlotView>,
    /// When it should start.
    pub start: Option<StartView>,
    /// In one sentence: why it waits, why it stops, how it ended. Empty where there is nothing to say.
    pub reason: String,
    /// What another scheduler says of it, where this server only observes.
    #[serde(default)]
    pub observed: Option<ObservedView>,
}

/// Which member of an array a job is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ArrayView {
    /// The array's first job, which stands for it.
    pub first: String,
    /// Its index.
    pub index: u32,
}

/// When a job should have ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeadlineView {
    /// In milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Whether it counts; it is ignored where the team's own share cannot meet it.
    pub counts: bool,
    /// GPU-milliseconds that the team's jobs up to this deadline need, where it is ignored.
    pub needed_gpu_ms: Option<u64>,
    /// GPU-milliseconds that the team's share gives until then, where it is ignored.
    pub given_gpu_ms: Option<u64>,
}

/// How long a job should run.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ExpectationView {
    /// Half of all jobs like it end earlier; an assumption where the source is `nothing`.
    pub expected_ms: u64,
    /// Nine of ten end earlier; nothing where nobody may build on it.
    pub high_ms: Option<u64>,
    /// `progress` (its own reports), `history` (jobs like it of its team), `estimate`, `limit` (its time limit) or `nothing`.
    pub source: String,
}

/// What is held back for a job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SlotView {
    /// The nodes.
    pub nodes: Vec<String>,
    /// When it can start there at the latest, if everybody keeps their word.
    pub at_ms: Option<u64>,
    /// `blocked` (it is among the first of its class), `preemption` (others give way for it) or `claim` (it ran there).
    pub why: String,
}

/// When a waiting job should start, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StartView {
    /// If everybody ends in half the time that is expected; once learned, before one of ten such jobs started.
    pub earliest_ms: u64,
    /// If everybody ends when expected; once learned, when half of such jobs had started.
    pub expected_ms: u64,
    /// If everybody takes as long as nine of ten do, once learned when nine of ten such jobs had started; nothing where that is not known.
    pub latest_ms: Option<u64>,
    /// Whether it follows from how such forecasts turned out; else it holds if nothing else comes.
    #[serde(default)]
    pub learned: bool,
    /// How old the forecast is.
    pub age_ms: u64,
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
    /// What the planner says of its shapes, the preferred one first; nothing where it does not say what it trains.
    #[serde(default)]
    pub plans: Vec<PlanView>,
    /// What its newest attempt was measured to need.
    #[serde(default)]
    pub measured: Option<MeasuredView>,
    /// What makes its result an acceptable model, and how close it has come; nothing where that is not said.
    #[serde(default)]
    pub accept: Option<AcceptView>,
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
    /// What would be lost if it were stopped now, where it runs.
    #[serde(default)]
    pub cost_of_stopping: Option<StakeView>,
    /// The directive log: data directives of all time, compute directives of the current attempt.
    pub directives: Vec<DirectiveView>,
    /// What the rules found, and what became of it.
    #[serde(default)]
    pub findings: Vec<FindingView>,
    /// Data jobs that make more data for it.
    #[serde(default)]
    pub data_jobs: Vec<DataJobView>,
    /// Recent loss by shard.
    pub shards: Vec<ShardView>,
    /// Newest numbers of the training loop.
    pub signals: Option<SignalsView>,
}

/// What makes a job's result an acceptable model, and how close it has come.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptView {
    /// As the job file says it: `eval_loss <= 1.2`.
    pub line: String,
    /// On what it is measured: `probe`, `probe/CATEGORY`, `train` or `eval`.
    pub from: String,
    /// Whether it was met.
    #[schema(inline)]
    pub state: AcceptState,
    /// All of this in a sentence.
    pub sentence: String,
    /// The value to reach.
    pub asked: f64,
    /// What met it first, else the best so far; nothing before anything was measured.
    pub value: Option<f64>,
    /// The step at which that was measured.
    pub step: Option<u64>,
    /// When that was found.
    pub at_ms: Option<u64>,
}

/// Whether a job's `accept` line was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AcceptState {
    /// It was.
    Met,
    /// The job has not ended.
    NotYet,
    /// The job has ended without.
    NotMet,
}

/// What would have to be done again if a job were stopped now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StakeView {
    /// GPU-milliseconds since its last acknowledged checkpoint, or since its start.
    pub unsaved_gpu_ms: u64,
    /// GPU-milliseconds that another start takes.
    pub restart_gpu_ms: u64,
    /// Since when nothing is saved, in milliseconds since the Unix epoch; nothing before it has started.
    pub since_ms: Option<u64>,
    /// Step of the checkpoint that it would go on from.
    pub checkpoint_step: Option<u64>,
    /// Whether it saves a checkpoint when it is asked to stop, so that little of this is lost.
    pub saves: bool,
    /// GPUs it holds, in thousandths: what is unsaved grows by as much.
    pub gpus_thousandths: u64,
}

/// What the planner says of one shape.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanView {
    /// GPUs, in thousandths.
    pub gpus_thousandths: u64,
    /// Their type, as the cluster calls it.
    pub gpu_type: String,
    /// The partition, where the shape names one.
    pub partition: Option<String>,
    /// Whose habits were planned with.
    pub framework: String,
    /// How the work is split, in words.
    pub layout: String,
    /// The same as variables that the trainer finds.
    pub environment: BTreeMap<String, String>,
    /// Microseconds of a step.
    pub step_us: u64,
    /// Of them, those that wait for what travels between GPUs.
    pub communication_us: u64,
    /// Tokens of a step, over all GPUs.
    pub tokens_per_step: u64,
    /// Bytes of the fullest GPU that tensors take at the peak.
    pub allocated_bytes: u64,
    /// Bytes that the driver shows there.
    pub peak_bytes: u64,
    /// Bytes of a GPU that a process can get.
    pub usable_bytes: u64,
    /// How long the whole run takes in milliseconds, where its length is known.
    pub duration_ms: Option<u64>,
    /// What it costs, in millionths of a US dollar.
    pub cost_usd_micros: Option<u64>,
    /// What attempts on this cluster have taught, already in the numbers.
    pub learned: LearnedView,
    /// All this in a sentence.
    pub sentence: String,
}

/// Factors on what formulas say, in thousandths, and what they are taken from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LearnedView {
    /// Measured attempts.
    pub attempts: u32,
    /// On what a GPU does alone.
    pub compute_permille: u32,
    /// On what travels between GPUs.
    pub communication_permille: u32,
    /// On memory that tensors take.
    pub memory_permille: u32,
}

/// What an attempt was measured to need.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MeasuredView {
    /// The attempt.
    pub attempt: String,
    /// Steps that were measured.
    pub steps: u64,
    /// Microseconds of the median step.
    pub step_us: u64,
    /// Bytes that tensors took at the peak on the fullest GPU, where its trainer told.
    pub allocated_bytes: Option<u64>,
    /// The place in `plans` of the shape in which it ran.
    pub plan: Option<u32>,
    /// Measured against planned, in a sentence.
    pub sentence: Option<String>,
    /// What it could ask for instead, where it holds far more than it uses.
    pub suggestion: Option<String>,
}

/// What attempts have taught the planner.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LessonList {
    /// One for each GPU type and framework.
    pub lessons: Vec<LessonView>,
}

/// What attempts of one kind have taught the planner.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LessonView {
    /// The GPU type, as the planner's catalog calls it.
    pub gpu_type: String,
    /// The framework.
    pub framework: String,
    /// The factors.
    pub factors: LearnedView,
    /// Median error of a step's time by the formulas alone, as a share.
    pub step_error_before: f64,
    /// The same with the factors.
    pub step_error_after: f64,
    /// Median error of memory by the formulas alone, where trainers told it.
    pub memory_error_before: Option<f64>,
    /// The same with the factors.
    pub memory_error_after: Option<f64>,
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

/// What a rule found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FindingView {
    /// The rule.
    pub rule: String,
    /// Of what; empty for the run as a whole.
    pub subject: String,
    /// What it is.
    pub verdict: String,
    /// The numbers behind it.
    pub evidence: String,
    /// At which step.
    pub step: u64,
    /// When it was said last.
    pub at_ms: u64,
    /// What would help, in this order.
    pub remedies: Vec<String>,
    /// `told`, `waits for approval`, `approved`, `directed #3`, `started job-7`, `done`, `undone`, `refused: ..` or `cleared`.
    pub stage: String,
}

/// A data job that makes more data for another job.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DataJobView {
    /// The data job.
    pub job: String,
    /// How it makes data.
    pub method: String,
    /// What for.
    pub category: String,
    /// The new shard.
    pub shard: String,
    /// `running`, `made`, `delivered` or `failed`.
    pub stage: String,
}

/// Where a job's shards came from.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ShardsView {
    /// The job.
    pub job: String,
    /// Each shard whose origin is known, by id.
    pub shards: Vec<OriginView>,
}

/// Where a shard came from.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct OriginView {
    /// The shard.
    pub id: String,
    /// What it serves.
    pub category: String,
    /// The corpus, book, site or model it was taken from.
    pub source: String,
    /// Which part of that source.
    pub chunk: String,
    /// What made it.
    pub generator: String,
    /// The temperature it was sampled at.
    pub temperature: Option<f64>,
    /// Shards that it was made from.
    pub parents: Vec<String>,
    /// The code that made it.
    pub code: String,
    /// The attempt that made it, where antiphon ran it.
    pub made_by: Option<String>,
    /// Distinct samples in it.
    pub samples: Option<u64>,
    /// Its weight when the stream began.
    pub weight: Option<f64>,
    /// What rules say of it now, like `noise`.
    pub findings: Vec<String>,
}

/// Which finding a person approves.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalIn {
    /// The rule.
    pub rule: String,
    /// Of what. Default: the only finding of that rule about which something can be done.
    #[serde(default)]
    pub subject: Option<String>,
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
    /// Signals taken in from this attempt, each once.
    #[serde(default)]
    pub count: u64,
    /// Signals that the trainer dropped because its buffer was full.
    pub dropped: u64,
    /// Where the loss goes, once that can be said.
    #[serde(default)]
    pub forecast: Option<ConvergenceView>,
    /// What each task takes for a step by itself, as far as tasks report that.
    #[serde(default)]
    pub tasks: Vec<TaskTimeView>,
}

/// What one task takes for a step by itself.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskTimeView {
    /// The rank.
    pub task: u32,
    /// Milliseconds of a step, less what it waits for the others: the median of its last window.
    pub own_ms: f64,
    /// Which part of an equal share of the batch it gets, 0 to 1.
    pub share: f64,
}

/// Where a run's loss goes, by its curve so far; each figure with the interval that holds it in eight of ten cases.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConvergenceView {
    /// Steps until the loss is within 2 % of its end: one in ten needs fewer, half, one in ten more.
    pub remaining_steps: [f64; 3],
    /// The loss at the end.
    pub end_loss: [f64; 3],
    /// The loss now, without noise.
    pub loss: f64,
}

/// A curve of a training loop, down-sampled to a fixed number of points.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SeriesView {
    /// Which attempt reports.
    pub attempt: String,
    /// The first step that each point covers.
    pub steps: Vec<u64>,
    /// Smallest values.
    pub min: Vec<f32>,
    /// Means.
    pub mean: Vec<f32>,
    /// Largest values.
    pub max: Vec<f32>,
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
    /// Everything that keeps a waiting job, as data, the ruling reason first.
    #[schema(value_type = Vec<Object>)]
    pub reasons: Vec<serde_json::Value>,
    /// The smallest change that would start a waiting job now.
    pub change: Option<ChangeView>,
    /// When a waiting job should start.
    pub start: Option<StartView>,
    /// Where a running job runs, and what spoke for it.
    pub place: Option<PlaceView>,
    /// Who its last attempt gave way to, by which rule, and what that cost.
    pub gave_way: Option<GaveWayView>,
    /// What another scheduler says of it, where this server only observes.
    #[serde(default)]
    pub observed: Option<ObservedView>,
}

/// A change that would start a job now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChangeView {
    /// In words.
    pub sentence: String,
    /// As data.
    #[schema(value_type = Object)]
    pub change: serde_json::Value,
}

/// Where an attempt runs, and why there.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlaceView {
    /// The attempt.
    pub attempt: String,
    /// What it holds.
    pub allocation: String,
    /// As which class it runs.
    pub class: String,
    /// The team whose quota covers it, and whether it does.
    pub quota: Option<QuotaView>,
    /// What spoke for this place: what was looked at, and what it counted.
    pub score: Vec<ScoreView>,
    /// When it should end, in milliseconds since the Unix epoch.
    pub ends_at_ms: Option<u64>,
    /// When nine of ten like it have ended.
    pub ends_by_ms: Option<u64>,
}

/// What a team holds of its quota.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct QuotaView {
    /// The team.
    pub team: String,
    /// What it holds, its parts included, in thousandths of a GPU.
    pub allocated_thousandths: u64,
    /// What it gets back when it asks.
    pub quota_thousandths: u64,
    /// Whether it holds more than that: the rest is borrowed, and given back when others ask.
    pub borrowed: bool,
}

/// One thing that spoke for or against a place.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ScoreView {
    /// What was looked at.
    pub name: String,
    /// What it counted.
    pub points: i64,
}

/// Who an attempt gave way to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct GaveWayView {
    /// The attempt.
    pub attempt: String,
    /// The job that it gave way to.
    pub job: String,
    /// `priority` or `reclaim`.
    pub rule: String,
    /// GPU-milliseconds that have to be spent again; they are not charged to its team.
    pub lost_gpu_ms: u64,
    /// Step of the checkpoint that is kept.
    pub checkpoint_step: Option<u64>,
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
    /// The partition that it belongs to; empty where there is only one.
    pub partition: String,
    /// The spine switch; empty where nobody said.
    pub spine: String,
    /// The leaf switch; empty where nobody said.
    pub leaf: String,
    /// The NVLink domain, where it spans nodes.
    pub nvlink_domain: String,
    /// Fast local storage that tasks may ask for.
    pub scratch_bytes: u64,
    /// GPUs that are broken: the node goes on without them.
    pub gpus_lost: Vec<u32>,
    /// MIG slices by profile.
    pub slices: BTreeMap<String, u64>,
    /// Whether it steps in only for a node that is out of service.
    pub spare: bool,
    /// Whether a spare has stepped in.
    pub stepped_in: bool,
    /// Hardware failures of attempts on it that still count against it.
    pub failures: Vec<FailureView>,
    /// The job that it is held back for.
    pub held_for: Option<String>,
    /// Planned times in which it takes no tasks.
    pub maintenance: Vec<WindowView>,
    /// What of it is to be given back.
    pub notices: Vec<NoticeView>,
}

/// A node, or some of its GPUs, that is to be given back.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct NoticeView {
    /// Which GPUs; the whole node where none are named.
    pub gpus: Option<Vec<u32>>,
    /// When, in milliseconds since the Unix epoch.
    pub by_ms: u64,
    /// `spot`, `inference` or `other`.
    pub cause: String,
    /// In words.
    pub reason: String,
}

/// A hardware failure of an attempt on a node.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailureView {
    /// The job.
    pub job: String,
    /// Its team: one team's jobs alone convict no node.
    pub team: String,
    /// When.
    pub at_ms: u64,
    /// Whether the check of the node failed, which convicts it alone.
    pub checked: bool,
}

/// A planned time in which a node takes no tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WindowView {
    /// From then on nothing runs there.
    pub from_ms: u64,
    /// From then on tasks run there again.
    pub until_ms: u64,
    /// What the operator wrote.
    pub reason: String,
}

/// All teams.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TeamList {
    /// As they were set up; behind them those that are known by their jobs alone.
    pub teams: Vec<TeamView>,
}

/// A team. Amounts are by GPU type; `*` stands for all types together.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TeamView {
    /// Its name.
    pub name: String,
    /// The team that it is part of.
    pub parent: Option<String>,
    /// Its claim on idle GPUs, beside the teams with the same parent.
    pub weight: u32,
    /// GPUs that it gets back when it asks, in thousandths.
    pub quota_thousandths: BTreeMap<String, u64>,
    /// GPUs that it can never exceed, in thousandths.
    pub limit_thousandths: BTreeMap<String, u64>,
    /// GPUs that its jobs and those of its parts hold now, in thousandths.
    pub allocated_thousandths: u64,
    /// GPUs that its own jobs hold now, in thousandths.
    pub own_allocated_thousandths: u64,
    /// GPU-milliseconds that its jobs and those of its parts used in the last seven days, by GPU type.
    pub used_gpu_ms: BTreeMap<String, u64>,
    /// GPU-milliseconds in seven days that they may use.
    pub budget_gpu_ms: BTreeMap<String, u64>,
    /// When a used-up budget allows something again, in milliseconds since the Unix epoch, if nothing is used meanwhile.
    pub budget_free_ms: Option<u64>,
    /// GPU-milliseconds that it held beyond its quota.
    pub borrowed_gpu_ms: u64,
    /// GPU-milliseconds of its quota that it left to others.
    pub lent_gpu_ms: u64,
    /// Its place in the order of shares: 1 goes first, and teams that used about as much by weight share a place.
    pub share_place: u32,
    /// Decayed GPU-milliseconds that this place follows from, by GPU weight, its parts included.
    pub share_gpu_ms: u64,
}

/// A node, or some of its GPUs, to be given back soon.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoticeBody {
    /// How many of its GPUs; all of the node without a number.
    #[serde(default)]
    pub gpus: Option<u32>,
    /// How long what runs there may stay, in milliseconds.
    pub within_ms: u64,
    /// `spot`, `inference` or `other`.
    #[serde(default)]
    pub cause: Option<String>,
    /// For those who read it later.
    #[serde(default)]
    pub reason: String,
}

/// A time in which nodes are to take no tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MaintenanceBody {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// From then on nothing runs there, in milliseconds since the Unix epoch.
    pub from_ms: u64,
    /// From then on tasks run there again.
    pub until_ms: u64,
    /// For those who read it later.
    #[serde(default)]
    pub reason: String,
}

/// A command that was carried out.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CommandAccepted {
    /// Its place in the log.
    pub seq: u64,
    /// The job that it made or changed.
    pub job: Option<String>,
    /// How many jobs it made: all members of an array; none where it made none.
    pub jobs: u64,
    /// Whether it had been carried out before under the same idempotency key.
    pub repeated: bool,
    /// What the sender should know all the same.
    pub warnings: Vec<String>,
    /// What the planner chose for it.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a job file would do if it were submitted now.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CheckReport {
    /// Whether it would start at once.
    pub starts_now: bool,
    /// Where, if so.
    pub allocation: Option<String>,
    /// What spoke for that place.
    pub score: Vec<ScoreView>,
    /// As which class, where its team's quota or budget does not cover the one it asks for.
    pub runs_as: Option<String>,
    /// Jobs that it would make stop, to start in their place.
    pub preempts: Vec<String>,
    /// In sentences, the ruling one first.
    pub sentences: Vec<String>,
    /// Why it would wait, as data, the ruling reason first.
    #[schema(value_type = Vec<Object>)]
    pub reasons: Vec<serde_json::Value>,
    /// The smallest change with which it would start at once.
    pub change: Option<ChangeView>,
    /// When it should start if it were submitted now.
    pub start: Option<StartView>,
    /// How long it should run.
    pub expected: ExpectationView,
    /// Whether its deadline would count.
    pub deadline: Option<DeadlineView>,
    /// How many jobs it would make.
    pub jobs: u64,
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

/// A class for a job that waits.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClassBody {
    /// `service`, `production`, `standard` or `best-effort`.
    pub class: String,
}

/// A directive that a person sends to a job's trainer.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectiveBodyIn {
    /// `set_weights`, `pause_shard`, `resume_shard`, `add_samples`, `set_micro_batch`, `set_checkpoint_interval`,
    /// `set_recompute`, `set_offload`, `checkpoint`, `snapshot`, `resize`, `drain`, `rollback`, `gather_hard_examples` or `stop`.
    #[serde(rename = "do")]
    pub what: String,
    /// For `set_weights`: weight by shard, 1 being its original one.
    #[serde(default)]
    pub weights: BTreeMap<String, f64>,
    /// For `pause_shard`, `resume_shard` and `add_samples`.
    #[serde(default)]
    pub shard: Option<String>,
    /// For `add_samples` and `gather_hard_examples`.
    #[serde(default)]
    pub category: Option<String>,
    /// For `add_samples`: where the samples lie.
    #[serde(default)]
    pub path: Option<String>,
    /// For `add_samples`; 1 where nothing is said.
    #[serde(default)]
    pub weight: Option<f64>,
    /// For `set_micro_batch`; 0 gives the number back to the trainer.
    #[serde(default)]
    pub rows: Option<u64>,
    /// For `set_checkpoint_interval`; 0 gives it back to the trainer.
    #[serde(default)]
    pub interval_ms: Option<u64>,
    /// For `set_recompute` and `set_offload`.
    #[serde(default)]
    pub on: Option<bool>,
    /// For `resize`.
    #[serde(default)]
    pub ranks: Option<u64>,
    /// For `drain`: a rank.
    #[serde(default)]
    pub task: Option<u64>,
    /// For `drain`: 0 to 1 of an equal part.
    #[serde(default)]
    pub share: Option<f64>,
    /// For `drain`: for so many steps; 0, as where nothing is said, until changed.
    #[serde(default)]
    pub steps: Option<u64>,
    /// For `rollback`.
    #[serde(default)]
    pub step: Option<u64>,
    /// For `gather_hard_examples`.
    #[serde(default)]
    pub count: Option<u64>,
    /// For those who read it later.
    #[serde(default)]
    pub reason: String,
}

/// What a browser logs in with.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// The token.
    pub token: String,
}

/// Who a caller is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerView {
    /// The token's name: what the log calls them.
    pub name: String,
    /// `viewer`, `member`, `operator` or `admin`.
    pub role: String,
    /// Of a member: whose jobs they see and touch.
    pub teams: Vec<String>,
}

/// A token to make.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenBody {
    /// Its name: letters, digits, `-`, `_`, `.` and `@`.
    pub name: String,
    /// `viewer`, `member`, `operator` or `admin`.
    pub role: String,
    /// Of a member: whose jobs they see and touch, together with those of the teams below.
    #[serde(default)]
    pub teams: Vec<String>,
    /// For how long it is good; without it until it is revoked.
    #[serde(default)]
    pub expires_in_ms: Option<u64>,
}

/// A token that was made.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// What its holder sends. Shown this once.
    pub secret: String,
    /// What is kept of it.
    pub token: TokenView,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its name.
    pub name: String,
    /// `viewer`, `member`, `operator` or `admin`.
    pub role: String,
    /// Of a member: whose jobs they see and touch.
    pub teams: Vec<String>,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// When it was made.
    pub made_ms: u64,
    /// By whom.
    pub made_by: String,
    /// Until when it is good.
    pub expires_ms: Option<u64>,
    /// When it was revoked.
    pub revoked_ms: Option<u64>,
    /// By whom.
    pub revoked_by: Option<String>,
}

/// All tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// By name.
    pub tokens: Vec<TokenView>,
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
