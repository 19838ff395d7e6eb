//! From a job file to a job: defaults filled in, units read, names looked up.

use std::collections::BTreeMap;

use antiphon_types::{
    Bytes, CheckpointSpec, Class, DataSpec, GpuAmount, JobId, JobSpec, Millis, Processes,
    Rejection, RetrySpec, Role, RuleMode, Shape, Tasks,
};

use super::form::{ClassName, JobFile, ProcessesName, Resources, RulesName, Run, TrainFile};
use super::read::JobFileError;

/// Name of the role of a job that has only one.
const ROLE: &str = "trainer";
/// Names are parts of paths, of host names and of backends' job names.
const NAME_LENGTH_MAX: usize = 100;

/// Bytes of a role's arguments and variables: Linux takes 128 KiB for one of them, and all of them are in the log.
const PROCESS_BYTES_MAX: usize = 100_000;

/// What a job file cannot say about itself.
pub struct Context<'a> {
    /// The person who submits.
    pub user: &'a str,
    /// Finds a job by name or id.
    pub find: &'a dyn Fn(&str) -> Option<JobId>,
}

/// Turns a job file into a job. Paths have to be absolute by now: [`absolute`] makes them so.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn to_spec(file: &JobFile, context: &Context<'_>) -> Result<JobSpec, JobFileError> {
    name("name", &file.name)?;
    let team = file.team.as_deref().unwrap_or("default");
    name("team", team)?;
    let run = file.run.clone().unwrap_or_default();
    let workdir = absolute_path("run.workdir", run.workdir.as_deref())?;
    let checkpoint = match &file.checkpoint {
        Some(checkpoint) => Some(CheckpointSpec {
            dir: absolute_path("checkpoint.dir", Some(&checkpoint.dir))?,
        }),
        None => None,
    };
    environment(&run.environment)?;
    let roles = roles(file, &run)?;
    processes_can_take(&roles, &run.environment)?;
    let retry = file.retry.clone().unwrap_or_default();
    Ok(JobSpec {
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
        after: after(&file.after, &file.name, context)?,
        data: DataSpec {
            rules: match file
                .data
                .as_ref()
                .map(|data| data.rules)
                .unwrap_or_default()
            {
                RulesName::Observe => RuleMode::Observe,
                RulesName::Auto => RuleMode::Auto,
            },
        },
        train: file.train.as_ref().map(described).unwrap_or_default(),
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
#[must_use]
pub fn warnings(file: &JobFile) -> Vec<String> {
    let mut warnings = Vec::new();
    if file.train.is_some() {
        let what = "`[train]` is shown to people only: `[resources]` decides what the job gets";
        warnings.push(what.to_owned());
    }
    if file.checkpoint.is_none() && !matches!(file.class, Some(ClassName::Service)) {
        let what = "no `[checkpoint] dir`: what the job has done is lost if it is preempted";
        if file
            .resources
            .as_ref()
            .is_some_and(|resources| resources.gpus > 0.0)
        {
            warnings.push(what.to_owned());
        }
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

fn roles(file: &JobFile, run: &Run) -> Result<Vec<Role>, JobFileError> {
    let missing = |what: &str, help: &str| JobFileError {
        code: "AP0203",
        at: String::new(),
        what: what.into(),
        help: help.into(),
    };
    if file.roles.is_empty() {
        if run.command.is_empty() {
            return Err(missing(
                "there is nothing to run: `run.command` is missing",
                "add `[run]` with `command = [\"python\", \"train.py\"]`",
            ));
        }
        let Some(resources) = &file.resources else {
            return Err(missing(
                "`[resources]` is missing",
                "add `[resources]` with `gpus = 8`, or `gpus = 0` for a job on CPUs",
            ));
        };
        let shape = shape("resources", resources)?;
        return Ok(vec![Role {
            name: ROLE.into(),
            command: run.command.clone(),
            shape,
        }]);
    }
    if file.resources.is_some() || !run.command.is_empty() {
        return Err(JobFileError {
            code: "AP0202",
            at: "roles".into(),
            what: "`roles` stands beside `resources` or `run.command`".into(),
            help: "give each role its own `command` and `resources`".into(),
        });
    }
    file.roles
        .iter()
        .map(|(role, spec)| {
            name("roles", role)?;
            if spec.command.is_empty() {
                let rejection = Rejection::NoCommand { role: role.clone() };
                return Err(JobFileError {
                    code: rejection.code(),
                    at: format!("roles.{role}.command"),
                    what: rejection.to_string(),
                    help: rejection.help(),
                });
            }
            let shape = shape(&format!("roles.{role}.resources"), &spec.resources)?;
            Ok(Role {
                name: role.clone(),
                command: spec.command.clone(),
                shape,
            })
        })
        .collect()
}

fn shape(at: &str, resources: &Resources) -> Result<Shape, JobFileError> {
    let gpus = gpu_amount(&format!("{at}.gpus"), resources.gpus)?;
    let memory = match &resources.memory {
        Some(text) => text
            .parse::<Bytes>()
            .map_err(|error| wrong(&format!("{at}.memory"), &error))?,
        None => Bytes::ZERO,
    };
    Ok(Shape {
        gpus,
        gpu_type: resources.gpu_type.clone(),
        tasks: resources.tasks.map_or(Tasks::Fewest, Tasks::Exactly),
        processes: match resources.processes {
            Some(ProcessesName::PerGpu) => Processes::PerGpu,
            Some(ProcessesName::PerNode) | None => Processes::PerNode,
        },
        cpus: resources.cpus.unwrap_or(u32::from(gpus.is_zero())),
        memory,
    })
}

fn gpu_amount(at: &str, gpus: f64) -> Result<GpuAmount, JobFileError> {
    let thousandths = gpus * 1_000.0;
    let whole = thousandths.round();
    if !(0.0..=1e9).contains(&gpus) || (thousandths - whole).abs() > 1e-6 {
        let what = format!("`{at}`: {gpus} is no number of GPUs");
        let help = "give a number like `8`, or a share of one GPU like `0.5`, in thousandths at the finest";
        return Err(JobFileError {
            code: "AP0202",
            at: at.into(),
            what,
            help: help.into(),
        });
    }
    // In range by the check above.
    Ok(GpuAmount::from_thousandths(whole as u64))
}

fn span(at: &str, text: Option<&str>, default: Millis) -> Result<Millis, JobFileError> {
    /// Ten years: bounds sums of times.
    const MAX: Millis = Millis::from_secs(315_360_000);
    let Some(text) = text else { return Ok(default) };
    let span: Millis = text.parse().map_err(|error| wrong(at, &error))?;
    if span > MAX {
        let what = format!("`{at}`: {span} is longer than {MAX}");
        let help = "give a shorter one".into();
        return Err(JobFileError {
            code: "AP0202",
            at: at.into(),
            what,
            help,
        });
    }
    Ok(span)
}

fn wrong(at: &str, error: &antiphon_types::UnitError) -> JobFileError {
    JobFileError {
        code: "AP0202",
        at: at.into(),
        what: format!("`{at}`: `{}` is no {}", error.text, error.what),
        help: format!("give a number with a unit like {}", error.examples),
    }
}

fn name(at: &str, text: &str) -> Result<(), JobFileError> {
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

fn environment(variables: &BTreeMap<String, String>) -> Result<(), JobFileError> {
    let illegal = |key: &&String| {
        key.is_empty() || key.contains(['=', '\0']) || variables[*key].contains('\0')
    };
    let ours = |key: &&String| key.starts_with("ANTIPHON_");
    if let Some(key) = variables.keys().find(|key| illegal(key) || ours(key)) {
        return Err(JobFileError {
            code: "AP0202",
            at: format!("run.environment.{key}"),
            what: format!("`run.environment`: `{key}` cannot be set"),
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

fn after(names: &[String], own: &str, context: &Context<'_>) -> Result<Vec<JobId>, JobFileError> {
    let find = |name: &String| {
        if name == own {
            return Err(JobFileError {
                code: "AP0107",
                at: "after".into(),
                what: format!("`after`: `{own}` waits for itself"),
                help: "take it out of `after`".into(),
            });
        }
        (context.find)(name).ok_or_else(|| JobFileError {
            code: "AP0106",
            at: "after".into(),
            what: format!("`after`: there is no job `{name}`"),
            help: "submit it first, or give both files to one `antiphon submit`".into(),
        })
    };
    names.iter().map(find).collect()
}

fn described(train: &TrainFile) -> BTreeMap<String, String> {
    let pairs = [
        ("model", train.model.clone()),
        ("method", train.method.clone()),
        ("optimizer", train.optimizer.clone()),
        (
            "sequence_length",
            train.sequence_length.map(|tokens| tokens.to_string()),
        ),
        ("tokens", train.tokens.clone()),
    ];
    pairs
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
