//! The job file: what a user writes, in TOML, YAML or JSON, and how it becomes a [`JobSpec`]. Fills in defaults; whether
//! the job fits the cluster is the kernel's question.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use antiphon_types::{
    Bytes, CheckpointSpec, Class, DataSpec, GpuAmount, JobId, JobSpec, Millis, Processes,
    Rejection, RetrySpec, Role, RuleMode, Shape, Tasks,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the role of a job that has only one.
const ROLE: &str = "trainer";
/// Names are parts of paths, of host names and of backends' job names.
const NAME_LENGTH_MAX: usize = 100;

/// A job, as a user writes it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Unique among the team's jobs that have not ended: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Who is charged. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// `service`, `production`, `standard` (the default) or `best-effort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ClassName>,
    /// Names or ids of jobs that have to succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// What the job needs, if it has one role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What the job runs, and how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// Several roles in one gang, by name, instead of `resources` and `run.command`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, RoleFile>,
    /// Where checkpoints go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFile>,
    /// What happens after a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryFile>,
    /// What antiphon may do to the data mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<DataFile>,
    /// What is trained. Shown to people; `resources` decides what the job gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train: Option<TrainFile>,
}

/// How urgent a job is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    /// Long-lived, answers users.
    Service,
    /// Somebody waits for the result.
    Production,
    /// The default.
    Standard,
    /// Runs on what others leave.
    BestEffort,
}

/// What a role needs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// GPUs of the whole role; 0 for a data job, a fraction for a share of one GPU.
    #[serde(default)]
    pub gpus: f64,
    /// The only GPU type that will do, as `antiphon nodes` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Into how many equal tasks the GPUs are split. Default: as few as the free GPUs allow, one a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// `per-node` (the default: torchrun or the like starts the ranks) or `per-gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<ProcessesName>,
    /// CPUs of each task. Default: 1 without GPUs, else none are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory of each task, like `64GiB`. Default: none is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
}

/// Which processes antiphon starts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessesName {
    /// One a task.
    PerNode,
    /// One a GPU.
    PerGpu,
}

/// What a job runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Program and arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Where it starts. Default: the directory of the job file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Variables for every task.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Time between SIGTERM and SIGKILL. Default: `60s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
    /// Longest run time of one attempt, like `4h`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
}

/// One of several roles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RoleFile {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What the role needs.
    #[serde(default)]
    pub resources: Resources,
}

/// Where checkpoints go.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// The directory; the trainer sees it as `ANTIPHON_CHECKPOINT_DIR`.
    pub dir: String,
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryFile {
    /// Failed attempts that are followed by another. Default: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Wait before the first retry; doubles each time. Default: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<String>,
    /// The longest wait. Default: `120s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_max: Option<String>,
}

/// What antiphon may do to the data mix.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// `observe` (the default: findings are shown) or `auto` (a bad shard's weight is lowered).
    #[serde(default)]
    pub rules: RulesName,
}

/// Whether findings become directives.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RulesName {
    /// Findings are logged and shown.
    #[default]
    Observe,
    /// Findings change the training.
    Auto,
}

/// What is trained.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// The model's name or path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `full`, `lora`, `dpo` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The optimizer's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// Tokens of one sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
    /// Tokens to train on, like `200M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<String>,
}

/// Something in a job file that its writer can change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct JobFileError {
    /// The stable code.
    pub code: &'static str,
    /// Where in the file, like `resources.gpus`; empty where it is the whole file.
    pub at: String,
    /// What is wrong, and why.
    pub what: String,
    /// What to do.
    pub help: String,
}

/// The form of a job file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// YAML, of which JSON is a part.
    Yaml,
}

/// The JSON Schema of a job file.
#[must_use]
pub fn schema() -> Value {
    schemars::schema_for!(JobFile).to_value()
}

/// Reads a job file.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn read(text: &str, format: Format) -> Result<JobFile, JobFileError> {
    let syntax = |what: String| JobFileError {
        code: "AP0205",
        at: String::new(),
        what,
        help: "see `antiphon check --schema` for what a job file may hold".into(),
    };
    let value: Value = match format {
        Format::Toml => {
            toml::from_str(text).map_err(|error| syntax(error.to_string().trim().to_owned()))?
        }
        Format::Yaml => serde_norway::from_str(text).map_err(|error| syntax(error.to_string()))?,
    };
    from_value(value)
}

/// Reads a job file that is JSON already.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn from_value(value: Value) -> Result<JobFile, JobFileError> {
    // Made once: every submit needs it.
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    unknown_key(&value, &SCHEMA, &SCHEMA, "")?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let at = error.path().to_string();
        let at = if at == "." { String::new() } else { at };
        let inner = in_plain_words(&error.into_inner().to_string());
        let (code, help) = match inner.strip_prefix("missing field `") {
            Some(field) => {
                let field = field.trim_end_matches('`');
                (
                    "AP0203",
                    format!("add `{field} = ..`; see `antiphon check --schema`"),
                )
            }
            None => (
                "AP0202",
                "see `antiphon check --schema` for what stands there".to_owned(),
            ),
        };
        let what = if at.is_empty() {
            inner
        } else {
            format!("`{at}`: {inner}")
        };
        JobFileError {
            code,
            at,
            what,
            help,
        }
    })
}

/// Says what is expected in the words of job files, not of Rust.
fn in_plain_words(text: &str) -> String {
    let words = [
        ("expected f64", "expected a number"),
        (
            "expected u32",
            "expected a whole number that is not negative",
        ),
        ("expected a map", "expected a table"),
        ("expected a sequence", "expected a list"),
        ("expected internally tagged enum", "expected a table"),
    ];
    words.iter().fold(text.to_owned(), |text, (rust, plain)| {
        text.replace(rust, plain)
    })
}

/// Walks a value beside its schema and names the first key that the schema does not have, with the nearest that it has.
fn unknown_key(value: &Value, schema: &Value, root: &Value, at: &str) -> Result<(), JobFileError> {
    let schema = resolve(schema, root);
    let Value::Object(map) = value else {
        return Ok(());
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, inner) in map {
        let path = if at.is_empty() {
            key.clone()
        } else {
            format!("{at}.{key}")
        };
        if let Some(known) = properties.and_then(|properties| properties.get(key)) {
            unknown_key(inner, known, root, &path)?;
        } else if let Some(Value::Object(_)) = schema.get("additionalProperties") {
            unknown_key(inner, &schema["additionalProperties"], root, &path)?;
        } else if let Some(properties) = properties {
            return Err(no_such_key(key, at, &path, properties.keys()));
        }
    }
    Ok(())
}

/// Follows a reference, and looks through `Option`s.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        return root.pointer(name.trim_start_matches('#')).unwrap_or(schema);
    }
    let options = schema.get("anyOf").and_then(Value::as_array);
    let real =
        options.and_then(|options| options.iter().find(|option| option.get("$ref").is_some()));
    real.map_or(schema, |option| resolve(option, root))
}

fn no_such_key<'a>(
    key: &str,
    at: &str,
    path: &str,
    known: impl Iterator<Item = &'a String>,
) -> JobFileError {
    let known: Vec<&String> = known.collect();
    let nearest = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(key, name), name))
        .min()
        .filter(|(distance, name)| *distance <= 2.max(name.len() / 3));
    let place = if at.is_empty() {
        "a job file".to_owned()
    } else {
        format!("`[{at}]`")
    };
    let help = nearest.map_or_else(
        || {
            let names: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            format!("it may hold: {}", names.join(", "))
        },
        |(_, name)| format!("did you mean `{name}`?"),
    );
    JobFileError {
        code: "AP0201",
        at: path.to_owned(),
        what: format!("unknown key `{key}` in {place}"),
        help,
    }
}

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
    let retry = file.retry.clone().unwrap_or_default();
    Ok(JobSpec {
        name: file.name.clone(),
        team: team.to_owned(),
        user: context.user.to_owned(),
        class: class(file.class),
        roles: roles(file, &run)?,
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
        checkpoint.dir = tidy(&workdir.join(&checkpoint.dir));
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
        let help = "leave it out where there is no limit".into();
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
    Err(JobFileError {
        code: "AP0204",
        at: at.into(),
        what: format!("`{at}`: `{text}` cannot be a name"),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        let context = Context {
            user: "someone",
            find: &|_| None,
        };
        let read = read(text, Format::Toml);
        let spec = read.and_then(|mut file| {
            absolute(&mut file, std::path::Path::new("/home/someone"));
            to_spec(&file, &context)
        });
        let error = spec.expect_err("this file is wrong");
        format!("[{}] {}; {}", error.code, error.what, error.help)
    }

    const GOOD: &str = r#"
        name = "sft-8b"
        class = "best-effort"
        [resources]
        gpus = 8
        [run]
        command = ["torchrun", "train.py"]
        grace = "30s"
        [checkpoint]
        dir = "ckpt"
    "#;

    #[test]
    fn a_job_file_becomes_a_job_with_absolute_paths() {
        let mut file = read(GOOD, Format::Toml).unwrap();
        absolute(&mut file, std::path::Path::new("/home/someone"));
        let spec = to_spec(
            &file,
            &Context {
                user: "someone",
                find: &|_| None,
            },
        )
        .unwrap();
        assert_eq!(spec.class, Class::BestEffort);
        assert_eq!(spec.gpus(), GpuAmount::from_gpus(8));
        assert_eq!(spec.grace, Millis::from_secs(30));
        assert_eq!(spec.workdir, "/home/someone");
        assert_eq!(spec.checkpoint.unwrap().dir, "/home/someone/ckpt");
    }

    #[test]
    fn yaml_reads_like_toml() {
        let yaml = "name: a\nresources: {gpus: 0.5}\nrun: {command: [\"true\"]}\n";
        assert!((read(yaml, Format::Yaml).unwrap().resources.unwrap().gpus - 0.5).abs() < 1e-9);
    }

    #[test]
    fn wrong_files_say_what_where_and_what_to_do() {
        let cases = [
            (
                "name = \"a\"\nclas = \"standard\"",
                "[AP0201] unknown key `clas` in a job file; did you mean `class`?",
            ),
            (
                "name = \"a\"\n[resources]\ngpu = 8",
                "[AP0201] unknown key `gpu` in `[resources]`; did you mean `gpus`?",
            ),
            (
                "name = \"a\"\n[run]\ncommand = [\"x\"]",
                "[AP0203] `[resources]` is missing; add `[resources]` with `gpus = 8`, or `gpus = 0` for a job on CPUs",
            ),
            (
                "name = \"a\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"x\"]\ngrace = \"60\"",
                "[AP0202] `run.grace`: `60` is no duration; give a number with a unit like `500ms`, `90s`, `10min`, `4h` or `2d`",
            ),
            (
                "name = \"a\"\n[resources]\ngpus = -1\n[run]\ncommand = [\"x\"]",
                "[AP0202] `resources.gpus`: -1 is no number of GPUs; give a number like `8`, or a share of one GPU like `0.5`, in thousandths at the finest",
            ),
            (
                "name = \"a b\"",
                "[AP0204] `name`: `a b` cannot be a name; use at most 100 letters, digits, `-`, `_` and `.`, first a letter or digit, and no job id",
            ),
            (
                "name = \"a\"\nafter = [\"a\"]\n[resources]\ngpus = 1\n[run]\ncommand = [\"x\"]",
                "[AP0107] `after`: `a` waits for itself; take it out of `after`",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(error(text), expected);
        }
        assert!(
            error("name = \"a\"\n[resources]\ngpus = \"eight\"")
                .starts_with("[AP0202] `resources.gpus`:")
        );
        assert!(error("name = ").starts_with("[AP0205]"));
        assert!(error("class = \"standard\"").starts_with("[AP0203] missing field `name`"));
    }
}
