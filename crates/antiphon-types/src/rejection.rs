//! Why a command is refused: something its sender can change. Each kind has a code, a help line and a page under `docs/errors`.

use serde::{Deserialize, Serialize};

use crate::{GpuAmount, JobId, NodeName};

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Rejection {
    /// No such job.
    #[error("there is no {job}")]
    UnknownJob {
        /// What was asked for.
        job: JobId,
        /// The newest job there is.
        newest: Option<JobId>,
    },
    /// The job's state does not allow it.
    #[error("{job} is {state}: it cannot be {verb}")]
    WrongState {
        /// The job.
        job: JobId,
        /// Its state.
        state: String,
        /// What was asked, as a participle: `released`.
        verb: String,
    },
    /// The name is taken by a job that has not ended.
    #[error("the name `{name}` is taken by {holder} of team `{team}`, which has not ended")]
    DuplicateName {
        /// The name.
        name: String,
        /// The team.
        team: String,
        /// Who has it.
        holder: JobId,
    },
    /// No node set could ever hold it.
    #[error(
        "it asks for {asked} GPUs{of_type}: the whole cluster has {total}, the widest node {widest}"
    )]
    TooWide {
        /// What was asked for.
        asked: GpuAmount,
        /// ` of type X`, or nothing.
        of_type: String,
        /// GPUs of that type there are.
        total: u32,
        /// GPUs of that type in the widest node.
        widest: u32,
    },
    /// No such node.
    #[error("there is no node `{node}`")]
    UnknownNode {
        /// What was asked for.
        node: NodeName,
        /// The nodes there are, at most five.
        nodes: Vec<NodeName>,
    },
    /// A dependency that does not exist.
    #[error("it waits for {job}, which does not exist")]
    UnknownDependency {
        /// The dependency.
        job: JobId,
    },
    /// A dependency that will never succeed.
    #[error("it waits for {job}, which ended as `{state}`")]
    DeadDependency {
        /// The dependency.
        job: JobId,
        /// How it ended.
        state: String,
    },
    /// A number above its limit.
    #[error("{what} is {asked}: the limit is {max}")]
    OverLimit {
        /// Which number.
        what: String,
        /// What was asked for.
        asked: u64,
        /// The limit.
        max: u64,
    },
    /// A GPU type that no node has.
    #[error("no node has GPUs of type `{gpu_type}`")]
    UnknownGpuType {
        /// What was asked for.
        gpu_type: String,
        /// The types there are.
        types: Vec<String>,
    },
    /// GPUs that cannot be split as asked.
    #[error("{gpus} GPUs cannot be split into {tasks} equal tasks")]
    UnevenSplit {
        /// GPUs of the role.
        gpus: GpuAmount,
        /// Tasks asked for.
        tasks: u32,
    },
    /// A fraction that is not a share of exactly one GPU.
    #[error("{gpus} GPUs: a fraction has to lie below 1 and in one task")]
    FractionOfMany {
        /// GPUs of the role.
        gpus: GpuAmount,
    },
    /// More CPUs or memory than any node has.
    #[error(
        "a task asks for {cpus} CPUs and {memory} memory: the largest node has {cpus_max} and {memory_max}"
    )]
    TooLarge {
        /// CPUs of a task.
        cpus: u32,
        /// Memory of a task.
        memory: crate::Bytes,
        /// Most CPUs of one node.
        cpus_max: u32,
        /// Most memory of one node.
        memory_max: crate::Bytes,
    },
    /// The job has no command to run.
    #[error("role `{role}` has no command")]
    NoCommand {
        /// The role.
        role: String,
    },
    /// The same command id was used for another command.
    #[error("idempotency key `{key}` was used before, for another command")]
    KeyReused {
        /// The key.
        key: String,
    },
    /// Deciding goes on already.
    #[error("deciding is not paused")]
    NotPaused,
}

impl Rejection {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownJob { .. } => "AP0101",
            Self::WrongState { .. } => "AP0102",
            Self::DuplicateName { .. } => "AP0103",
            Self::TooWide { .. } => "AP0104",
            Self::UnknownNode { .. } => "AP0105",
            Self::UnknownDependency { .. } | Self::DeadDependency { .. } => "AP0106",
            Self::OverLimit { .. } => "AP0108",
            Self::UnknownGpuType { .. } => "AP0109",
            Self::UnevenSplit { .. } | Self::FractionOfMany { .. } => "AP0110",
            Self::TooLarge { .. } => "AP0111",
            Self::NoCommand { .. } => "AP0112",
            Self::KeyReused { .. } => "AP0113",
            Self::NotPaused => "AP0114",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::UnknownJob {
                newest: Some(newest),
                ..
            } => {
                format!("the newest job is {newest}; `antiphon jobs --all` lists them")
            }
            Self::UnknownJob { newest: None, .. } => "no job has been submitted yet".into(),
            Self::WrongState { job, .. } => format!("`antiphon job {job}` shows what it is doing"),
            Self::DuplicateName { holder, .. } => {
                format!("choose another `name`, or end the first with `antiphon cancel {holder}`")
            }
            Self::TooWide { total: 0, .. } => {
                "this cluster has no such GPUs; `antiphon nodes` shows what there is".into()
            }
            Self::TooWide { total, .. } => {
                format!(
                    "ask for at most {total} in `[resources] gpus`, in tasks that fit the nodes; `antiphon nodes` shows them"
                )
            }
            Self::UnknownNode { nodes, .. } => {
                let names: Vec<_> = nodes.iter().map(|node| format!("`{node}`")).collect();
                format!("there are {}; `antiphon nodes` lists all", names.join(", "))
            }
            Self::UnknownDependency { .. } => {
                "name jobs that were submitted before, or give all files to one `antiphon submit`"
                    .into()
            }
            Self::DeadDependency { job, .. } => {
                format!("submit {job} again first, or take it out of `after`")
            }
            Self::OverLimit { max, .. } => {
                format!(
                    "ask for at most {max}; limits that can be raised stand in `antiphon.toml` under `[policy]`"
                )
            }
            Self::UnknownGpuType { types, .. } if types.is_empty() => "no node has GPUs".into(),
            Self::UnknownGpuType { types, .. } => format!("there are: {}", types.join(", ")),
            Self::UnevenSplit { .. } => {
                "choose `tasks` so that it divides `gpus` (with `per-gpu` equals it), or leave it out".into()
            }
            Self::FractionOfMany { .. } => {
                "ask for whole GPUs, or for less than one, such as `gpus = 0.5`".into()
            }
            Self::TooLarge { .. } => "lower `cpus` or `memory` in `[resources]`".into(),
            Self::NoCommand { .. } => "give `command = [\"python\", \"train.py\"]` in `[run]`, or in `[roles.NAME]` for one of several roles".into(),
            Self::KeyReused { .. } => "send a new `Idempotency-Key` with each new command".into(),
            Self::NotPaused => "`antiphon pause` stops deciding".into(),
        }
    }
}
