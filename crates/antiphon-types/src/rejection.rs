//! Why a command is refused: something its sender can change. Each kind has a code, a help line and a page under `docs/errors`.

use serde::{Deserialize, Serialize};

use crate::{Class, DirectiveId, GpuAmount, JobId, NodeName, Rule, Span};

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
    /// Two roles of one name.
    #[error("two of its roles are called `{role}`")]
    DuplicateRole {
        /// The name.
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
    /// No such team.
    #[error("there is no team `{team}`")]
    UnknownTeam {
        /// What was asked for.
        team: String,
        /// The name that is most like it.
        nearest: Option<String>,
        /// The teams there are, at most five.
        teams: Vec<String>,
    },
    /// A class that its team's quota does not cover.
    #[error("it asks for {asked} GPUs as {class}: the quota of team `{team}` covers {quota}")]
    NoQuota {
        /// The team.
        team: String,
        /// The class.
        class: Class,
        /// What was asked for.
        asked: GpuAmount,
        /// What there is.
        quota: GpuAmount,
    },
    /// More than its team may ever hold.
    #[error("it asks for {asked} GPUs{of_type}: team `{team}` may hold at most {limit}")]
    OverTeamLimit {
        /// The team.
        team: String,
        /// ` of type X`, or nothing.
        of_type: String,
        /// What was asked for.
        asked: GpuAmount,
        /// The limit.
        limit: GpuAmount,
    },
    /// No span of that kind is wide enough.
    #[error("it asks for {asked} GPUs in one {span}: the widest has {widest}")]
    TooWideForSpan {
        /// What was asked for.
        asked: GpuAmount,
        /// Within what.
        span: Span,
        /// GPUs of the widest.
        widest: GpuAmount,
        /// The smallest span that would hold it, if any does.
        enough: Option<Span>,
    },
    /// No such partition.
    #[error("there is no partition `{partition}`")]
    UnknownPartition {
        /// What was asked for.
        partition: String,
        /// The partitions there are.
        partitions: Vec<String>,
    },
    /// No such resource, or never so much of it.
    #[error("it asks for {asked} of `{name}`: there are {total}")]
    TooMuchOfResource {
        /// Which.
        name: String,
        /// What was asked for.
        asked: u64,
        /// What there is.
        total: u64,
        /// The resources there are.
        resources: Vec<String>,
    },
    /// Longer than any partition that would do allows.
    #[error("it may run for {asked}: the partitions that would do allow {max}")]
    TooLong {
        /// What was asked for.
        asked: crate::Millis,
        /// The longest there is.
        max: crate::Millis,
    },
    /// Teams that do not fit together.
    #[error("team `{team}` cannot be set up: {why}")]
    BadTeam {
        /// Which.
        team: String,
        /// What is wrong with it.
        why: String,
    },
    /// No such directive in the job's log.
    #[error("{job} has no directive #{directive}: it was sent {issued}, of which {kept} are kept")]
    UnknownDirective {
        /// The job.
        job: JobId,
        /// What was asked for.
        directive: DirectiveId,
        /// Directives that it was sent.
        issued: u64,
        /// Those that its log still holds.
        kept: u64,
    },
    /// A directive that cannot be taken back.
    #[error("directive #{directive} of {job} cannot be undone: {why}")]
    CannotUndo {
        /// The job.
        job: JobId,
        /// The directive.
        directive: DirectiveId,
        /// Why.
        why: String,
    },
    /// No such finding, or nothing to do about it.
    #[error("rule `{rule}` cannot be approved for {job}: {why}")]
    CannotApprove {
        /// The job.
        job: JobId,
        /// The rule.
        rule: Rule,
        /// Why.
        why: String,
        /// Subjects of that rule's findings for which it could, at most five.
        subjects: Vec<String>,
    },
    /// A trainer asks for what its job may not have.
    #[error("{job} does not get {what}: {why}")]
    AskRefused {
        /// The job.
        job: JobId,
        /// What it asked for.
        what: String,
        /// Why, with numbers.
        why: String,
    },
    /// More data is made in a way that cannot be carried out.
    #[error("augmentation `{method}` cannot be set up: {why}")]
    BadAugment {
        /// Which.
        method: String,
        /// What is wrong with it.
        why: String,
    },
    /// A planned time that is none.
    #[error("the maintenance cannot be planned: {why}")]
    BadMaintenance {
        /// What is wrong with it.
        why: String,
    },
    /// Nothing of a node can be given back in that way.
    #[error("{node} cannot be given back: {why}")]
    BadNotice {
        /// The node.
        node: NodeName,
        /// What is wrong with it.
        why: String,
    },
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
            Self::UnknownTeam { .. } => "AP0115",
            Self::NoQuota { .. } => "AP0116",
            Self::OverTeamLimit { .. } => "AP0117",
            Self::TooWideForSpan { .. } => "AP0118",
            Self::UnknownPartition { .. } => "AP0119",
            Self::TooMuchOfResource { .. } => "AP0120",
            Self::TooLong { .. } => "AP0121",
            Self::BadTeam { .. } => "AP0122",
            Self::BadMaintenance { .. } => "AP0123",
            Self::DuplicateRole { .. } => "AP0124",
            Self::UnknownDirective { .. } | Self::CannotUndo { .. } => "AP0125",
            Self::CannotApprove { .. } => "AP0126",
            Self::AskRefused { .. } => "AP0127",
            Self::BadAugment { .. } => "AP0128",
            Self::BadNotice { .. } => "AP0129",
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
            Self::DuplicateRole { .. } => "give each role a name of its own".into(),
            Self::KeyReused { .. } => "send a new `Idempotency-Key` with each new command".into(),
            Self::NotPaused => "`antiphon pause` stops deciding".into(),
            Self::UnknownTeam {
                nearest: Some(nearest),
                ..
            } => format!("did you mean `{nearest}`? `antiphon teams` lists all"),
            Self::UnknownTeam { teams, .. } => {
                format!("there are: {}; `antiphon teams` lists all", teams.join(", "))
            }
            Self::NoQuota { quota, .. } if quota.is_zero() => {
                "submit it as `class = \"standard\"`, or ask your operator for a quota".into()
            }
            Self::NoQuota { quota, .. } => format!(
                "ask for at most {quota} GPUs, or submit it as `class = \"standard\"`"
            ),
            Self::OverTeamLimit { limit, .. } => format!(
                "ask for at most {limit} in `[resources] gpus`; `antiphon teams` shows limits"
            ),
            Self::TooWideForSpan {
                enough: Some(span),
                ..
            } => format!("give `span = \"{span}\"`, or ask for fewer GPUs"),
            Self::TooWideForSpan { widest, .. } => {
                format!("ask for at most {widest} GPUs; `antiphon nodes` shows where they are")
            }
            Self::UnknownPartition { partitions, .. } => {
                format!("there are: {}", partitions.join(", "))
            }
            Self::TooMuchOfResource {
                total, resources, ..
            } if *total == 0 => match resources.as_slice() {
                [] => "the cluster file names none in `[shared]`".into(),
                _ => format!("there are: {}", resources.join(", ")),
            },
            Self::TooMuchOfResource { name, total, .. } => {
                format!("ask for at most {total} of `{name}`")
            }
            Self::TooLong { max, .. } => {
                format!("give a `time_limit` of at most {max}, or another partition")
            }
            Self::BadTeam { .. } => "correct `[[team]]` in `antiphon.toml`".into(),
            Self::UnknownDirective { job, .. } | Self::CannotUndo { job, .. } => {
                format!("`antiphon job {job}` lists its directives; `antiphon direct {job}` sends another")
            }
            Self::CannotApprove { job, subjects, .. } if subjects.is_empty() => {
                format!("`antiphon job {job}` lists its findings")
            }
            Self::CannotApprove { job, rule, subjects, .. } => {
                let named: Vec<_> = subjects.iter().map(|subject| format!("`{subject}`")).collect();
                format!("`antiphon approve {job} {rule} SUBJECT` does for {}", named.join(", "))
            }
            Self::AskRefused { .. } => {
                "train on as before; what a job may have stands in its job file and under `[policy]` in `antiphon.toml`".into()
            }
            Self::BadAugment { method, .. } => format!("correct `[augment.{method}]` in the job file"),
            Self::BadNotice { node, .. } => {
                format!("`antiphon nodes` shows what {node} has; without `--gpus` all of it is given back")
            }
            Self::BadMaintenance { .. } => {
                "give nodes that exist, and a start before the end, which lies ahead".into()
            }
        }
    }
}
