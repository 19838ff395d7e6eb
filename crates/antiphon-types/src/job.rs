//! What a user submits, after the job file has been read and every default filled in. Holds no state of a running job.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, GpuAmount, JobId, Millis};

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// What antiphon may do to the job's data mix.
    pub data: DataSpec,
    /// What is trained, as the user describes it; read by people and by the planner, not by the kernel.
    pub train: BTreeMap<String, String>,
}

/// A group of like tasks in a job: trainer, rollout, reward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    /// Unique within the job.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the role needs.
    pub shape: Shape,
}

/// One acceptable form of a role: how many GPUs, how split into tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// GPUs of the whole role. Zero is legal (data jobs); a fraction means a share of exactly one GPU.
    pub gpus: GpuAmount,
    /// The only GPU type that will do, if it matters.
    pub gpu_type: Option<String>,
    /// Into how many tasks the GPUs are split.
    pub tasks: Tasks,
    /// One process a node (torchrun starts the rest) or one a GPU.
    pub processes: Processes,
    /// CPUs of each task.
    pub cpus: u32,
    /// Memory of each task.
    pub memory: Bytes,
}

/// Into how many tasks a role's GPUs are split; always into equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tasks {
    /// As few as the free GPUs allow: the kernel decides when it places the gang.
    Fewest,
    /// Exactly so many.
    Exactly(u32),
}

/// Which processes antiphon starts for a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetrySpec {
    /// Failed attempts that are followed by another.
    pub retries_max: u32,
    /// Wait before the first retry; doubles each time.
    pub backoff_first: Millis,
    /// The longest wait.
    pub backoff_max: Millis,
}

/// Whether findings become directives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleMode {
    /// Findings are logged and shown; nothing changes in the training.
    #[default]
    Observe,
    /// Findings change the training.
    Auto,
}

/// What antiphon may do to a job's data mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DataSpec {
    /// Whether a bad shard's weight is lowered or only reported.
    pub rules: RuleMode,
}

impl JobSpec {
    /// GPUs of all roles together.
    #[must_use]
    pub fn gpus(&self) -> GpuAmount {
        self.roles.iter().map(|role| role.shape.gpus).sum()
    }
}
