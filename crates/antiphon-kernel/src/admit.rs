//! Answers a command before it is logged. A refused command changes nothing; an admitted one always fits when applied.

use std::collections::BTreeSet;

use antiphon_types::{
    Bytes, Command, CommandId, GpuAmount, JobId, JobSpec, Millis, NodeName, Processes, Rejection,
    Shape, StopCause, Tasks,
};

use crate::capacity::Capacity;
use crate::jobs::{Job, JobState};
use crate::place::place;
use crate::state::{CommandRecord, Mode, State};

/// Directives that a person may send to one job: far above any use, and bounds the job's directive log.
const DIRECTIVES_MAX: u64 = 10_000;

/// Longest span that a job or a policy may name, ten years: far above any use, far below where a time overflows.
const SPAN_MAX: Millis = Millis::from_secs(10 * 365 * 86_400);

/// Answers a command.
///
/// # Errors
/// The first thing that its sender has to change.
pub fn admit(state: &State, command: &Command) -> Result<(), Rejection> {
    match command {
        Command::Submit { spec } => submit(state, spec),
        Command::Cancel { job } => allow(state, *job, "canceled", |job| !job.state.is_ended()),
        Command::Hold { job } => allow(state, *job, "put on hold", |job| {
            let held = matches!(job.state, JobState::Held { .. });
            !job.state.is_ended() && !held && !is_canceled(job)
        }),
        Command::Release { job } => allow(state, *job, "released", |job| {
            matches!(job.state, JobState::Held { .. }) || is_being_held(job)
        }),
        Command::Preempt { job } => allow(state, *job, "preempted", |job| {
            is_underway(job) && !is_canceled(job)
        }),
        Command::Direct(direct) => {
            allow(state, direct.job, "sent a directive", is_underway)?;
            let issued = state.jobs[&direct.job].directives_issued;
            limit("number of directives", issued + 1, DIRECTIVES_MAX)
        }
        Command::Drain { node, .. } | Command::Undrain { node } => known_node(state, node),
        Command::Unpause if state.mode == Mode::Deciding => Err(Rejection::NotPaused),
        Command::SetPolicy { policy } => spans(&[
            ("checkpoint_wait_ms_max", policy.checkpoint_wait_ms_max),
            (
                "checkpoint_wait_ms_default",
                policy.checkpoint_wait_ms_default,
            ),
        ]),
        Command::Pause { .. } | Command::Unpause => Ok(()),
    }
}

/// Looks whether a command was carried out before under the same key: its record, if so.
///
/// # Errors
/// Where the key was used for another command.
pub fn repeated(state: &State, id: &CommandId) -> Result<Option<CommandRecord>, Rejection> {
    match state.command_ids.get(&id.key) {
        Some(record) if record.content != id.content => {
            let key = id.key.clone();
            Err(Rejection::KeyReused { key })
        }
        found => Ok(found.cloned()),
    }
}

const fn is_underway(job: &Job) -> bool {
    matches!(
        job.state,
        JobState::Starting { .. } | JobState::Running { .. }
    )
}

/// Whether a hold is on its way: asked for, or stopping the attempt now.
pub(crate) fn is_being_held(job: &Job) -> bool {
    let stopping = matches!(
        job.state,
        JobState::Stopping {
            cause: StopCause::Hold,
            ..
        }
    );
    job.requested == Some(StopCause::Hold) || (stopping && job.requested.is_none())
}

/// Whether its user has canceled it already and its end is only a matter of time.
fn is_canceled(job: &Job) -> bool {
    let under_way = matches!(
        job.state,
        JobState::Stopping {
            cause: StopCause::Cancel,
            ..
        }
    );
    under_way || job.requested == Some(StopCause::Cancel)
}

fn allow(
    state: &State,
    id: JobId,
    verb: &str,
    allowed: impl FnOnce(&Job) -> bool,
) -> Result<(), Rejection> {
    let Some(job) = state.job(id) else {
        return Err(Rejection::UnknownJob {
            job: id,
            newest: state.newest_job(),
        });
    };
    if allowed(job) {
        return Ok(());
    }
    let state = job.state.name().to_owned();
    Err(Rejection::WrongState {
        job: id,
        state,
        verb: verb.to_owned(),
    })
}

fn known_node(state: &State, node: &NodeName) -> Result<(), Rejection> {
    if state.nodes.contains_key(node) {
        return Ok(());
    }
    let nodes = state.nodes.keys().take(5).cloned().collect();
    Err(Rejection::UnknownNode {
        node: node.clone(),
        nodes,
    })
}

fn limit(what: &str, asked: u64, max: u64) -> Result<(), Rejection> {
    if asked <= max {
        return Ok(());
    }
    Err(Rejection::OverLimit {
        what: what.to_owned(),
        asked,
        max,
    })
}

fn spans(named: &[(&str, Millis)]) -> Result<(), Rejection> {
    named.iter().try_for_each(|(name, span)| {
        let what = format!("`{name}` in milliseconds");
        limit(&what, span.as_millis(), SPAN_MAX.as_millis())
    })
}

fn submit(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let policy = &state.policy;
    spans(&[
        ("grace", spec.grace),
        ("time_limit", spec.time_limit.unwrap_or_default()),
        ("backoff", spec.retry.backoff_first),
        ("backoff_max", spec.retry.backoff_max),
    ])?;
    let living = state.jobs.len() - state.ended.len();
    limit(
        "number of jobs that have not ended",
        count(living) + 1,
        policy.jobs_max.into(),
    )?;
    let name = (spec.team.clone(), spec.name.clone());
    if let Some(holder) = state.names.get(&name) {
        let (team, name) = name;
        return Err(Rejection::DuplicateName {
            name,
            team,
            holder: *holder,
        });
    }
    for dependency in &spec.after {
        match state.job(*dependency).map(|job| &job.state) {
            None => return Err(Rejection::UnknownDependency { job: *dependency }),
            Some(ended @ (JobState::Failed { .. } | JobState::Canceled { .. })) => {
                let state = ended.name().to_owned();
                return Err(Rejection::DeadDependency {
                    job: *dependency,
                    state,
                });
            }
            Some(
                JobState::Pending { .. }
                | JobState::Starting { .. }
                | JobState::Running { .. }
                | JobState::Stopping { .. }
                | JobState::Held { .. }
                | JobState::Succeeded { .. },
            ) => (),
        }
    }
    let mut tasks = 0;
    let mut gpus = 0;
    for role in &spec.roles {
        if role.command.is_empty() {
            return Err(Rejection::NoCommand {
                role: role.name.clone(),
            });
        }
        gpus += role
            .shape
            .gpus
            .thousandths()
            .min(u64::from(u32::MAX) * 1_000);
        limit(
            "number of GPUs",
            gpus.div_ceil(1_000),
            policy.gpus_per_job_max.into(),
        )?;
        tasks += splits(&role.shape)?;
        limit(
            "number of tasks in the gang",
            tasks,
            policy.tasks_per_gang_max.into(),
        )?;
    }
    can_exist(state, spec)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).expect("a count fits")
}

/// Checks that the GPUs can be split at all, and returns the largest number of tasks.
fn splits(shape: &Shape) -> Result<u64, Rejection> {
    let Some(gpus) = shape.gpus.whole() else {
        let one_task = matches!(shape.tasks, Tasks::Fewest | Tasks::Exactly(1));
        if shape.gpus > GpuAmount::from_gpus(1) || !one_task {
            return Err(Rejection::FractionOfMany { gpus: shape.gpus });
        }
        return Ok(1);
    };
    match shape.tasks {
        // One process a GPU: another number of tasks contradicts it.
        Tasks::Exactly(tasks) if shape.processes == Processes::PerGpu && tasks != gpus => {
            let gpus = shape.gpus;
            Err(Rejection::UnevenSplit { gpus, tasks })
        }
        Tasks::Exactly(tasks) if tasks == 0 || !gpus.is_multiple_of(tasks) => {
            Err(Rejection::UnevenSplit {
                gpus: shape.gpus,
                tasks,
            })
        }
        Tasks::Exactly(tasks) => Ok(tasks.into()),
        Tasks::Fewest => Ok(u64::from(gpus).max(1)),
    }
}

/// Checks that the gang would fit on the empty cluster.
fn can_exist(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let total = Capacity::total(state);
    if place(&total, spec).is_some() {
        return Ok(());
    }
    let nodes = || total.nodes.values().map(|(spec, _)| *spec);
    for role in &spec.roles {
        let Some(wanted) = role
            .shape
            .gpu_type
            .as_ref()
            .filter(|_| !role.shape.gpus.is_zero())
        else {
            continue;
        };
        if !nodes().any(|node| node.gpu_type == *wanted) {
            let types: BTreeSet<&String> = nodes()
                .filter(|node| node.gpus > 0)
                .map(|node| &node.gpu_type)
                .collect();
            let types = types.into_iter().cloned().collect();
            return Err(Rejection::UnknownGpuType {
                gpu_type: wanted.clone(),
                types,
            });
        }
    }
    let cpus_max = nodes().map(|node| node.cpus).max().unwrap_or(0);
    let memory_max = nodes().map(|node| node.memory).max().unwrap_or(Bytes::ZERO);
    for role in &spec.roles {
        let (cpus, memory) = (role.shape.cpus, role.shape.memory);
        if cpus > cpus_max || memory > memory_max {
            return Err(Rejection::TooLarge {
                cpus,
                memory,
                cpus_max,
                memory_max,
            });
        }
    }
    let one_type = spec
        .roles
        .iter()
        .find_map(|role| role.shape.gpu_type.clone());
    let fitting = || {
        nodes().filter(|node| {
            one_type
                .as_ref()
                .is_none_or(|wanted| *wanted == node.gpu_type)
        })
    };
    Err(Rejection::TooWide {
        asked: spec.gpus(),
        of_type: one_type
            .as_ref()
            .map(|name| format!(" of type {name}"))
            .unwrap_or_default(),
        total: fitting().map(|node| node.gpus).sum(),
        widest: fitting().map(|node| node.gpus).max().unwrap_or(0),
    })
}
