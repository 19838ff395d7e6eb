//! From a job file to a job: defaults filled in, units read, names looked up.

use std::collections::BTreeMap;

use antiphon_types::{
    CheckpointSpec, Class, JobId, JobSpec, KeepSpec, Millis, RetrySpec, Role, Rung, Timestamp,
};

use super::accept::accept;
use super::array::array;
use super::data::{data, hang_after, rules};
use super::estimate::estimate;
use super::form::{CheckpointFile, ClassName, JobFile, Run, RungFile};
use super::read::JobFileError;
use super::roles;
use super::secrets;
use super::shape::gpu_amount;
use super::time::{span, window};
use super::train::TrainFile;
use crate::lessons::Site;

/// Names are parts of paths, of host names and of backends' job names.
const NAME_LENGTH_MAX: usize = 100;

/// Bytes of a role's arguments and variables: Linux takes 128 KiB for one of them, and all of them are in the log.
const PROCESS_BYTES_MAX: usize = 100_000;

/// Steps of one ladder: each costs an attempt.
const RUNGS_MAX: usize = 16;

/// What a job file cannot say about itself.
pub struct Context<'a> {
    /// The person who submits.
    pub user: &'a str,
    /// When it is submitted: what `+4h` counts from.
    pub now: Timestamp,
    /// Finds a job by name or id; all members of an array by the array's name; none where there is none.
    pub find: &'a dyn Fn(&str) -> Vec<JobId>,
    /// What a plan sees of the cluster; asked only where something is to be planned.
    pub site: &'a dyn Fn() -> Site,
}

/// A job, and what its sender should know though nothing is wrong.
#[derive(Debug)]
pub struct Made {
    /// The job.
    pub spec: JobSpec,
    /// In sentences.
    pub warnings: Vec<String>,
    /// What the planner chose, and why.
    pub notes: Vec<String>,
}

/// Turns a job file into a job. Paths have to be absolute by now: [`absolute`] makes them so.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn to_spec(file: &JobFile, context: &Context<'_>) -> Result<Made, JobFileError> {
    name("name", &file.name)?;
    let team = file.team.as_deref().unwrap_or("default");
    name("team", team)?;
    let run = file.run.clone().unwrap_or_default();
    let workdir = absolute_path("run.workdir", run.workdir.as_deref())?;
    let checkpoint = match &file.checkpoint {
        Some(checkpoint) => Some(CheckpointSpec {
            dir: absolute_path("checkpoint.dir", Some(&checkpoint.dir))?,
            keep: keep(checkpoint)?,
        }),
        None => None,
    };
    environment("run.environment", &run.environment)?;
    let secrets = secrets::secrets(&run.secrets, &run.environment)?;
    let (roles, planned) = roles::roles(file, &run, context.site)?;
    processes_can_take(&roles, &run.environment)?;
    let (deadline, not_before) = window(
        file.deadline.as_deref(),
        file.not_before.as_deref(),
        context.now,
    )?;
    let retry = file.retry.clone().unwrap_or_default();
    let mut warnings = warnings(file, &roles);
    warnings.extend(planned.warnings);
    let ladder = match &file.ladder[..] {
        [] => planned.ladder,
        steps => ladder(steps)?,
    };
    let spec = JobSpec {
        name: file.name.clone(),
        team: team.to_owned(),
        user: context.user.to_owned(),
        class: class(file.class),
        roles,
        environment: run.environment,
        workdir,
        checkpoint,
        retry: RetrySpec {
            retries_max: retry.retries.unwrap_or(5),
            backoff_first: span(
                "retry.backoff",
                retry.backoff.as_deref(),
                Millis::from_secs(10),
            )?,
            backoff_max: span(
                "retry.backoff_max",
                retry.backoff_max.as_deref(),
                Millis::from_secs(120),
            )?,
        },
        grace: span("run.grace", run.grace.as_deref(), Millis::from_secs(60))?,
        time_limit: match run.time_limit.as_deref() {
            Some(_) => Some(span(
                "run.time_limit",
                run.time_limit.as_deref(),
                Millis::ZERO,
            )?),
            None => None,
        },
        after: succeeded_first(file, team, context)?,
        after_any: after("after_any", &file.after_any, (&file.name, team), context)?,
        after_start: after(
            "after_start",
            &file.after_start,
            (&file.name, team),
            context,
        )?,
        data: data(file.data.as_ref(), &file.augment, file.rules.as_ref())?,
        rules: rules(file.rules.as_ref()),
        hang_after: hang_after(file.rules.as_ref())?,
        train: file
            .train
            .as_ref()
            .map(TrainFile::described)
            .unwrap_or_default(),
        priority: file.priority.unwrap_or(0),
        not_before,
        deadline,
        held: file.held.unwrap_or(false),
        array: array(file.array.as_deref())?,
        resources: shared(file)?,
        estimate: estimate(file.estimate.as_ref())?.or(planned.estimate),
        ladder,
        plans: planned.plans,
        shrinks: file.shrink.unwrap_or(false),
        secrets,
        accept: accept(file.accept.as_ref())?,
    };
    Ok(Made {
        spec,
        warnings,
        notes: planned.notes,
    })
}

/// Makes a job file's relative paths absolute, as seen from its own directory.
pub fn absolute(file: &mut JobFile, dir: &std::path::Path) {
    let run = file.run.get_or_insert_with(Run::default);
    let workdir = dir.join(run.workdir.as_deref().unwrap_or("."));
    if let Some(checkpoint) = &mut file.checkpoint {
        // An empty path stays one, and is refused: it would quietly mean the workdir.
        if !checkpoint.dir.is_empty() {
            checkpoint.dir = tidy(&workdir.join(&checkpoint.dir));
        }
    }
    if let Some(path) = file.data.as_mut().and_then(|data| data.shards.as_mut()) {
        *path = tidy(&dir.join(&*path));
    }
    if let Some(train) = &mut file.train {
        let model = train
            .model
            .as_mut()
            .filter(|model| model.ends_with(".json"));
        for path in train.config.as_mut().into_iter().chain(model) {
            *path = tidy(&dir.join(&*path));
        }
    }
    run.workdir = Some(tidy(&workdir));
}

/// Drops `.` from a path.
fn tidy(path: &std::path::Path) -> String {
    path.components()
        .collect::<std::path::PathBuf>()
        .to_string_lossy()
        .into_owned()
}

/// What the sender of a job file should know, though nothing is wrong with it.
fn warnings(file: &JobFile, roles: &[Role]) -> Vec<String> {
    let mut warnings = Vec::new();
    let service = matches!(file.class, Some(ClassName::Service));
    let has_gpus = roles.iter().any(|role| !role.shape.gpus.is_zero());
    if file.checkpoint.is_none() && !service && has_gpus {
        let what = "no `[checkpoint] dir`: what the job has done is lost if it is preempted";
        warnings.push(what.to_owned());
    }
    if let Some(run) = &file.run {
        warnings.extend(secrets::warnings(&run.environment));
    }
    warnings
}

const fn class(name: Option<ClassName>) -> Class {
    match name {
        Some(ClassName::Service) => Class::Service,
        Some(ClassName::Production) => Class::Production,
        Some(ClassName::Standard) | None => Class::Standard,
        Some(ClassName::BestEffort) => Class::BestEffort,
    }
}

pub(super) fn name(at: &str, text: &str) -> Result<(), JobFileError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let first = text
        .chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric());
    if first && text.len() <= NAME_LENGTH_MAX && text.chars().all(legal) {
        // A name that reads like an id would make `antiphon job job-7` ambiguous.
        if text.parse::<JobId>().is_err() {
            return Ok(());
        }
    }
    let shown: String = text.chars().take(NAME_LENGTH_MAX).collect();
    Err(JobFileError {
        code: "AP0204",
        at: at.into(),
        what: format!("`{at}`: `{shown}` cannot be a name"),
        help: format!(
            "use at most {NAME_LENGTH_MAX} letters, digits, `-`, `_` and `.`, first a letter or digit, and no job id"
        ),
    })
}

fn environment(at: &str, variables: &BTreeMap<String, String>) -> Result<(), JobFileError> {
    let illegal = |key: &&String| {
        key.is_empty() || key.contains(['=', '\0']) || variables[*key].contains('\0')
    };
    let ours = |key: &&String| key.starts_with("ANTIPHON_");
    if let Some(key) = variables.keys().find(|key| illegal(key) || ours(key)) {
        return Err(JobFileError {
            code: "AP0202",
            at: format!("{at}.{key}"),
            what: format!("`{at}`: `{key}` cannot be set"),
            help: "names hold no `=`, values no NUL, and `ANTIPHON_*` is set by antiphon".into(),
        });
    }
    Ok(())
}

/// Checks that arguments and variables can be handed to a process at all.
fn processes_can_take(
    roles: &[Role],
    environment: &BTreeMap<String, String>,
) -> Result<(), JobFileError> {
    let of_environment: usize = environment
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    for role in roles {
        if let Some(argument) = role.command.iter().find(|argument| argument.contains('\0')) {
            return Err(JobFileError {
                code: "AP0202",
                at: "run.command".into(),
                what: format!("`run.command`: {argument:?} holds a NUL"),
                help: "write data with NULs into a file and give its path".into(),
            });
        }
        let bytes = of_environment + role.command.iter().map(String::len).sum::<usize>();
        if bytes > PROCESS_BYTES_MAX {
            return Err(JobFileError {
                code: "AP0108",
                at: "run".into(),
                what: format!(
                    "command and environment of role `{}` take {bytes} bytes: the limit is {PROCESS_BYTES_MAX}",
                    role.name
                ),
                help: "write what is long into a file and give its path".into(),
            });
        }
    }
    Ok(())
}

fn absolute_path(at: &str, path: Option<&str>) -> Result<String, JobFileError> {
    match path {
        Some(path) if path.starts_with('/') && !path.contains('\0') => Ok(path.to_owned()),
        other => Err(JobFileError {
            code: "AP0202",
            at: at.into(),
            what: format!("`{at}`: {} is no absolute path", other.unwrap_or("nothing")),
            help:
                "`antiphon submit` completes relative paths; over the API they have to be absolute"
                    .into(),
        }),
    }
}

/// Jobs that have to succeed first, under both names of the key, each once.
fn succeeded_first(
    file: &JobFile,
    team: &str,
    context: &Context<'_>,
) -> Result<Vec<JobId>, JobFileError> {
    let mut jobs = after("after", &file.after, (&file.name, team), context)?;
    for job in after("after_ok", &file.after_ok, (&file.name, team), context)? {
        if !jobs.contains(&job) {
            jobs.push(job);
        }
    }
    Ok(jobs)
}

fn after(
    key: &str,
    names: &[String],
    (own, team): (&str, &str),
    context: &Context<'_>,
) -> Result<Vec<JobId>, JobFileError> {
    let find = |name: &String| {
        if name == own {
            return Err(JobFileError {
                code: "AP0107",
                at: key.into(),
                what: format!("`{key}`: `{own}` waits for itself"),
                help: format!("take it out of `{key}`"),
            });
        }
        let found = (context.find)(name);
        if !found.is_empty() {
            return Ok(found);
        }
        Err(JobFileError {
            code: "AP0106",
            at: key.into(),
            what: match name.parse::<JobId>() {
                Ok(id) => format!("`{key}`: there is no {id}"),
                // A name counts within its team.
                Err(_) => format!("`{key}`: there is no job `{name}` in team `{team}`"),
            },
            help: "submit it first, or give both files to one `antiphon submit`".into(),
        })
    };
    let found: Result<Vec<Vec<JobId>>, JobFileError> = names.iter().map(find).collect();
    Ok(found?.into_iter().flatten().collect())
}

fn shared(file: &JobFile) -> Result<BTreeMap<String, u64>, JobFileError> {
    for resource in file.shared.keys() {
        name("shared", resource)?;
    }
    // None of it is what a job takes that does not name it.
    let asked = file.shared.iter().filter(|(_, amount)| **amount > 0);
    Ok(asked
        .map(|(name, amount)| (name.clone(), *amount))
        .collect())
}

/// Which checkpoints stay. One at least is always kept, so asking for none says something else than is meant.
fn keep(file: &CheckpointFile) -> Result<Option<KeepSpec>, JobFileError> {
    let Some(newest) = file.keep else {
        let alone = [("keep_best", file.keep_best), ("keep_days", file.keep_days)];
        return match alone.into_iter().find(|(_, number)| number.is_some()) {
            None => Ok(None),
            Some((key, _)) => {
                let at = format!("checkpoint.{key}");
                let why = "it stands without `keep`, so nothing is deleted";
                let help = "add `keep = 3`, or take it out";
                Err(JobFileError::value(&at, why, help))
            }
        };
    };
    if newest == 0 {
        let help = "give 1 or more, or leave it out to keep all";
        return Err(JobFileError::value("checkpoint.keep", "0 keeps none", help));
    }
    Ok(Some(KeepSpec {
        newest,
        best: file.keep_best.unwrap_or(1),
        days: file.keep_days.unwrap_or(7),
    }))
}

fn ladder(steps: &[RungFile]) -> Result<Vec<Rung>, JobFileError> {
    if steps.len() > RUNGS_MAX {
        let (there, max) = (steps.len(), RUNGS_MAX);
        return Err(JobFileError::over_limit("ladder", "steps", there, max));
    }
    let rung = |(index, step): (usize, &RungFile)| {
        let at = format!("ladder[{index}]");
        if step.environment.is_empty() && step.gpus.is_none() {
            let why = format!(
                "`{}` changes nothing, so memory would run out again",
                step.name
            );
            let help = "give `environment` that makes the trainer need less, or more `gpus`";
            return Err(JobFileError::value(&at, why, help));
        }
        environment(&format!("{at}.environment"), &step.environment)?;
        let gpus = step
            .gpus
            .map(|gpus| gpu_amount(&format!("{at}.gpus"), gpus));
        Ok(Rung {
            name: step.name.clone(),
            environment: step.environment.clone(),
            gpus: gpus.transpose()?,
        })
    };
    steps.iter().enumerate().map(rung).collect()
}
