//! What a user submits, after the job file has been read and every default filled in. Holds no state of a running job.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Accept, AttemptId, Bytes, GpuAmount, JobId, Millis, Rule, RuleMode, SecretRef, ShapePlan, Span,
    Timestamp,
};

/// How urgent a job is; a lower class gives way to a higher one. The derived order puts the most urgent first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Long-lived, answers users: last to give way.
    Service,
    /// Somebody waits for the result.
    Production,
    /// The default.
    #[default]
    Standard,
    /// Runs on what others leave, gives way first.
    BestEffort,
}

impl Class {
    /// Every class, most urgent first.
    pub const ALL: [Self; 4] = [
        Self::Service,
        Self::Production,
        Self::Standard,
        Self::BestEffort,
    ];

    /// The name as it stands in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Production => "production",
            Self::Standard => "standard",
            Self::BestEffort => "best-effort",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A job as it was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobSpec {
    /// Unique among the team's jobs that have not ended.
    pub name: String,
    /// Who is charged.
    pub team: String,
    /// The person who submitted it.
    pub user: String,
    /// How urgent it is.
    pub class: Class,
    /// Groups of like tasks; they start together or not at all.
    pub roles: Vec<Role>,
    /// Variables for every task, on top of the ones that antiphon sets.
    pub environment: BTreeMap<String, String>,
    /// Where the commands start.
    pub workdir: String,
    /// Where checkpoints go, if the job makes any.
    pub checkpoint: Option<CheckpointSpec>,
    /// What happens after a failed attempt.
    pub retry: RetrySpec,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Millis,
    /// Longest run time of one attempt.
    pub time_limit: Option<Millis>,
    /// Jobs that have to succeed before this one may start.
    pub after: Vec<JobId>,
    /// Jobs that have to end before this one may start, however they end.
    #[serde(default)]
    pub after_any: Vec<JobId>,
    /// Jobs that have to run, or to have run, before this one may start.
    #[serde(default)]
    pub after_start: Vec<JobId>,
    /// What is known of its data, and how more is made.
    #[serde(default)]
    pub data: DataSpec,
    /// How far each rule of the two-way loop may go; what is not named follows its team, then the default of the remedy.
    #[serde(default)]
    pub rules: BTreeMap<Rule, RuleMode>,
    /// No step for so long is a hang, in place of the rule's own least time.
    #[serde(default)]
    pub hang_after: Option<Millis>,
    /// What is trained, as the user describes it; read by people and by the planner, not by the kernel.
    pub train: BTreeMap<String, String>,
    /// Which of the team's jobs goes first, the highest; says nothing to other teams.
    #[serde(default)]
    pub priority: i32,
    /// Not before this.
    #[serde(default)]
    pub not_before: Option<Timestamp>,
    /// When it should have ended.
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    /// Whether it waits for `release` from the start.
    #[serde(default)]
    pub held: bool,
    /// Many jobs from one file.
    #[serde(default)]
    pub array: Option<ArraySpec>,
    /// Resources that belong to no node: file-system bandwidth, licences.
    #[serde(default)]
    pub resources: BTreeMap<String, u64>,
    /// How long it will run, as the planner or its user estimates.
    #[serde(default)]
    pub estimate: Option<Estimate>,
    /// What to try, in this order, each time it runs out of memory.
    #[serde(default)]
    pub ladder: Vec<Rung>,
    /// What the planner says of the shapes of a job that says what it trains.
    #[serde(default)]
    pub plans: Vec<ShapePlan>,
    /// Whether a later attempt may ask for less GPU memory, where far less was used than is asked for.
    #[serde(default)]
    pub shrinks: bool,
    /// Variables for every task whose values are read where it starts, and are nowhere else.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretRef>,
    /// What makes its result an acceptable model, if that is said.
    #[serde(default)]
    pub accept: Option<Accept>,
}

/// Many jobs from one file: one for each index.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArraySpec {
    /// The indices, ascending.
    pub indices: Vec<u32>,
    /// How many of them may run at once; 0 for all.
    pub at_once: u32,
}

/// How long a job will run from its start to its end, with an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Nine of ten end later.
    pub low: Millis,
    /// Half end earlier.
    pub expected: Millis,
    /// Nine of ten end earlier.
    pub high: Millis,
}

/// One step of an out-of-memory ladder: what changes when the job is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rung {
    /// What it is called: `micro-batch 1`, `offload optimizer`.
    pub name: String,
    /// Variables that tell the trainer.
    pub environment: BTreeMap<String, String>,
    /// GPUs of the first role instead of its shape's.
    pub gpus: Option<GpuAmount>,
}

/// A group of like tasks in a job: trainer, rollout, reward.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Role {
    /// Unique within the job.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the role needs.
    pub shape: Shape,
    /// Other shapes that would do.
    #[serde(default)]
    pub alternatives: Vec<Shape>,
}

/// One acceptable form of a role: how many GPUs, how split into tasks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// GPUs of the whole role. Zero is legal (data jobs); a fraction means a share of exactly one GPU.
    pub gpus: GpuAmount,
    /// The only GPU type that will do, if it matters.
    pub gpu_type: Option<String>,
    /// Into how many tasks the GPUs are split.
    pub tasks: Tasks,
    /// One process a node (torchrun starts the rest) or one a GPU.
    pub processes: Processes,
    /// CPUs of each task. Without a number: 8 a GPU, at most the GPU's part of its node; 1 without GPUs.
    pub cpus: Option<u32>,
    /// Memory of each task. Without a number: its GPUs' part of the node; none is counted without GPUs.
    pub memory: Option<Bytes>,
    /// Fast local storage of each task.
    #[serde(default)]
    pub scratch: Bytes,
    /// What each task reads from shared storage a second.
    #[serde(default)]
    pub read_bandwidth: Bytes,
    /// Least memory of each GPU.
    #[serde(default)]
    pub gpu_memory: Bytes,
    /// The only partition that will do, if it matters.
    #[serde(default)]
    pub partition: Option<String>,
    /// The largest span that the role may have.
    #[serde(default)]
    pub span: Span,
    /// GPUs that have to share an NVLink domain, in rank order; 0 where it does not matter.
    #[serde(default)]
    pub tensor_parallel: u32,
    /// How fast the job is in this shape, in thousandths of its fastest.
    #[serde(default = "full_speed")]
    pub speed: u32,
}

const fn full_speed() -> u32 {
    1_000
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            gpus: GpuAmount::ZERO,
            gpu_type: None,
            tasks: Tasks::Fewest,
            processes: Processes::PerNode,
            cpus: None,
            memory: None,
            scratch: Bytes::ZERO,
            read_bandwidth: Bytes::ZERO,
            gpu_memory: Bytes::ZERO,
            partition: None,
            span: Span::Cluster,
            tensor_parallel: 0,
            speed: full_speed(),
        }
    }
}

impl Role {
    /// Every shape that would do, the preferred one first.
    pub fn shapes(&self) -> impl Iterator<Item = &Shape> {
        std::iter::once(&self.shape).chain(&self.alternatives)
    }
}

/// Into how many tasks a role's GPUs are split; always into equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// As few as the free GPUs allow: the kernel decides when it places the gang.
    Fewest,
    /// Exactly so many.
    Exactly(u32),
}

/// Which processes antiphon starts for a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// One a task; a launcher such as torchrun starts the ranks.
    #[default]
    PerNode,
    /// One a GPU: every task holds exactly one.
    PerGpu,
}

/// Where a job's checkpoints go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// The directory, absolute.
    pub dir: String,
    /// Which of them the trainer's side deletes; none where nothing is said.
    #[serde(default)]
    pub keep: Option<KeepSpec>,
}

/// Which checkpoints stay: whatever one of these numbers keeps, and always the newest acknowledged one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepSpec {
    /// The newest so many.
    pub newest: u32,
    /// The best so many, by held-out loss where it was measured.
    pub best: u32,
    /// One of each of the last so many days.
    pub days: u32,
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RetrySpec {
    /// Failed attempts that are followed by another.
    pub retries_max: u32,
    /// Wait before the first retry; doubles each time.
    pub backoff_first: Millis,
    /// The longest wait.
    pub backoff_max: Millis,
}

/// How a job's data came to be, and how more of it is made.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DataSpec {
    /// The shards that it is known to draw from, by id.
    pub shards: BTreeMap<String, ShardOrigin>,
    /// Commands that make more data, by method.
    pub augment: BTreeMap<String, AugmentSpec>,
    /// Held-out loss above which a category starves, by category, in thousandths of a nat.
    pub category_loss_max_milli: BTreeMap<String, u32>,
}

/// Where a shard came from: what `antiphon provenance` draws and what bad data is traced along.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardOrigin {
    /// What it serves; probes of the same category judge it.
    pub category: String,
    /// The corpus, book, site or model it was taken from.
    pub source: String,
    /// Which part of that source.
    pub chunk: String,
    /// What made it, if it was made: a model's name, a program.
    pub generator: String,
    /// The temperature it was sampled at, in thousandths.
    pub temperature_milli: Option<u32>,
    /// Shards that it was made from.
    pub parents: Vec<String>,
    /// The code that made it: a commit, a digest.
    pub code: String,
    /// The job's attempt that made it, where antiphon ran it.
    pub made_by: Option<AttemptId>,
    /// Distinct samples in it, if known.
    pub samples: Option<u64>,
    /// Its weight when the stream began, in parts per million, if known.
    pub weight_ppm: Option<u32>,
}

impl ShardOrigin {
    /// What is known once more was told: a word replaces what was known, silence does not. Who made it is not told.
    #[must_use]
    pub fn with(&self, told: &Self) -> Self {
        let text =
            |known: &String, told: &String| if told.is_empty() { known } else { told }.clone();
        Self {
            category: text(&self.category, &told.category),
            source: text(&self.source, &told.source),
            chunk: text(&self.chunk, &told.chunk),
            generator: text(&self.generator, &told.generator),
            temperature_milli: told.temperature_milli.or(self.temperature_milli),
            parents: if told.parents.is_empty() {
                &self.parents
            } else {
                &told.parents
            }
            .clone(),
            code: text(&self.code, &told.code),
            made_by: self.made_by,
            samples: told.samples.or(self.samples),
            weight_ppm: told.weight_ppm.or(self.weight_ppm),
        }
    }
}

/// How more data of a kind is made: a job of its own on CPU nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AugmentSpec {
    /// Program and arguments. It finds what to make in `ANTIPHON_AUGMENT_*` and writes to `ANTIPHON_AUGMENT_OUT`.
    pub command: Vec<String>,
    /// Only for these categories; for all where none is named.
    pub categories: Vec<String>,
    /// Sampling temperature, in thousandths.
    pub temperature_milli: u32,
    /// Samples to make each time.
    pub count: u32,
    /// CPUs of the data job.
    pub cpus: u32,
    /// Runs at most so often for one job: bounds what a category that never learns can cost.
    pub runs_max: u32,
}

impl JobSpec {
    /// GPUs of all roles together, in the preferred shape of each.
    #[must_use]
    pub fn gpus(&self) -> GpuAmount {
        self.roles.iter().map(|role| role.shape.gpus).sum()
    }
}
