//! What a trainer may ask for, inside the limits of its own job. An ask is a claim like any other: it wins nothing from other
//! teams but a bounded protection, and each refusal says why in numbers.

use antiphon_types::{
    Ask, AskBody, GpuAmount, JobSpec, Millis, Rejection, Role, Shape, StopCause, TaskAllocation,
};

use crate::admit::{is_being_held, is_canceled, of_team};
use crate::augment;
use crate::exist::can_exist;
use crate::jobs::{Active, Job, JobState};
use crate::relocate::fits_elsewhere;
use crate::state::State;

/// Answers an ask.
///
/// # Errors
/// Why the job does not get it.
pub(crate) fn admit(state: &State, ask: &Ask) -> Result<(), Rejection> {
    let refuse = |why: String| Rejection::AskRefused {
        job: ask.attempt.job,
        what: what(&ask.body),
        why,
    };
    let Some(job) = state.job(ask.attempt.job) else {
        return Err(Rejection::UnknownJob {
            job: ask.attempt.job,
            newest: state.newest_job(),
        });
    };
    let (JobState::Starting { active } | JobState::Running { active }) = &job.state else {
        return Err(refuse(format!("it is {}", job.state.name())));
    };
    if active.attempt != ask.attempt {
        let why = format!("{} asks, {} runs", ask.attempt, active.attempt);
        return Err(refuse(why));
    }
    if is_canceled(job) || is_being_held(job) {
        return Err(refuse("it is about to be stopped".into()));
    }
    let (grants, most) = (
        job.steering.grants(state.now),
        state.policy.asks_per_hour_max,
    );
    if u32::try_from(grants).unwrap_or(u32::MAX) >= most {
        let why = format!("it was granted {grants} asks in the last hour: the limit is {most}");
        return Err(refuse(why));
    }
    match &ask.body {
        AskBody::Gpus { gpus } => with_gpus(state, job, active, *gpus),
        AskBody::Time { more } => with_time(state, job, *more),
        AskBody::Samples { category } => augment::plan(state, job, category).map(drop),
        AskBody::Pause => Ok(()),
        AskBody::Protection { during } => protected(state, job, *during),
    }
    .map_err(refuse)
}

/// What is asked for, in words.
fn what(body: &AskBody) -> String {
    match body {
        AskBody::Gpus { gpus } => format!("{gpus} GPUs"),
        AskBody::Time { more } => format!("{more} more"),
        AskBody::Samples { category } => format!("samples of `{category}`"),
        AskBody::Pause => "a pause".into(),
        AskBody::Protection { during } => format!("protection for {during}"),
    }
}

/// The shapes of its first role that a job's file names.
fn shapes(job: &Job) -> Vec<&Shape> {
    if !job.steering.shapes_first.is_empty() {
        return job.steering.shapes_first.iter().collect();
    }
    job.spec
        .roles
        .first()
        .into_iter()
        .flat_map(Role::shapes)
        .collect()
}

/// The one of them with so many GPUs.
pub(crate) fn shape_with(job: &Job, gpus: u32) -> Option<&Shape> {
    let asked = GpuAmount::from_gpus(gpus);
    shapes(job).into_iter().find(|shape| shape.gpus == asked)
}

/// The job as it would be in that shape alone.
fn in_shape(spec: &JobSpec, shape: &Shape) -> JobSpec {
    let mut spec = spec.clone();
    if let Some(role) = spec.roles.first_mut() {
        role.shape = shape.clone();
        role.alternatives.clear();
    }
    spec
}

/// Takes the shape that was asked for, and no other: one that asked for more is not started in less because that is cheaper.
pub(crate) fn take_shape(job: &mut Job) {
    let (Some(shape), Some(role)) = (job.steering.shape_asked.take(), job.spec.roles.first_mut())
    else {
        return;
    };
    if job.steering.shapes_first.is_empty() {
        job.steering.shapes_first = role.shapes().cloned().collect();
    }
    role.shape = shape;
    role.alternatives.clear();
}

fn with_gpus(state: &State, job: &Job, active: &Active, gpus: u32) -> Result<(), String> {
    let asked = GpuAmount::from_gpus(gpus);
    let role = job.spec.roles.first();
    let held = role.map(|role| {
        let tasks = active.allocation.tasks.iter();
        let tasks = tasks.filter(|task| task.role == role.name);
        tasks.map(TaskAllocation::gpu_amount).sum()
    });
    if held == Some(asked) {
        return Err(format!("it runs on {gpus} already"));
    }
    let Some(shape) = shape_with(job, gpus) else {
        let shapes = shapes(job).into_iter();
        let named: Vec<String> = shapes.map(|shape| shape.gpus.to_string()).collect();
        return Err(format!("its job file names shapes of {}", named.join(", ")));
    };
    if job.spec.checkpoint.is_none() {
        return Err("it has no checkpoint directory, so it would start from the beginning".into());
    }
    let spec = in_shape(&job.spec, shape);
    of_team(state, &spec).map_err(|no| no.to_string())?;
    can_exist(state, &spec).map_err(|no| no.to_string())?;
    if fits_elsewhere(state, job, active, &spec, None) {
        return Ok(());
    }
    Err(format!(
        "with its own {} there is no room for {gpus} now",
        held.unwrap_or_default()
    ))
}

fn with_time(state: &State, job: &Job, more: Millis) -> Result<(), String> {
    let Some(limit) = job.spec.time_limit else {
        return Err("it has no time limit".into());
    };
    let first = job.steering.time_limit_first.unwrap_or(limit);
    let most = first + first;
    let longer = limit.as_millis().saturating_add(more.as_millis());
    if longer > most.as_millis() {
        return Err(format!(
            "its limit is {limit}, {first} at submit: it may grow to {most}"
        ));
    }
    let mut spec = job.spec.clone();
    spec.time_limit = Some(Millis::from_millis(longer));
    can_exist(state, &spec).map_err(|no| no.to_string())
}

fn protected(state: &State, job: &Job, during: Millis) -> Result<(), String> {
    let most = state.policy.protection_per_hour_ms_max;
    let had = job.steering.protected_for(state.now);
    if during > most.saturating_sub(had) {
        return Err(format!(
            "it was protected for {had} in the last hour: the limit is {most}"
        ));
    }
    Ok(())
}

/// Why an attempt is stopped that its trainer wants in another shape.
pub(crate) fn cause_of(body: &AskBody) -> Option<StopCause> {
    match body {
        AskBody::Gpus { gpus } => Some(StopCause::Asked { gpus: *gpus }),
        AskBody::Pause => Some(StopCause::Hold),
        AskBody::Time { .. } | AskBody::Samples { .. } | AskBody::Protection { .. } => None,
    }
}
