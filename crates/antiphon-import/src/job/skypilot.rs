//! SkyPilot tasks: resources become shapes, `setup` and `run` what each task does. No cloud is asked, and no file is copied.

use serde_json::Value;

use super::Origin;
use super::error::{JobError, JobProblem};
use super::form::{Gpus, Job, Resources, job_name};
use super::keys::{Fate, Key, becomes, harmless, refused};
use super::quantity::mebibytes;
use super::yaml::{Node, Notes, documents};
use crate::options::plain;
use crate::place::short;
use crate::warning::Warning;

/// What SkyPilot sets, and `setup` in front of `run`.
pub(super) const PRELUDE: &str = include_str!("skypilot.sh");

const CLOUD: &str = "antiphon chooses the nodes among those of its partitions";

const TASK: &[Key] = &[
    becomes("name", "`name`"),
    becomes("resources", "see below"),
    becomes("num_nodes", "`tasks`"),
    becomes("setup", "run in front of `run`, in every attempt"),
    becomes("run", "the command, by `bash` on each node"),
    becomes("envs", "`run.environment`, where it has a value"),
    becomes(
        "secrets",
        "`run.secrets`, from the server's variables of the same names; a value in the file is not taken",
    ),
    becomes("workdir", "`run.workdir`, as it is: nothing is copied"),
    becomes(
        "execution",
        "`serial` tasks wait for each other by `after_ok`",
    ),
    harmless("config", "for SkyPilot's own server"),
    harmless("experimental", "for SkyPilot's own server"),
    refused(
        "file_mounts",
        "nothing is copied: paths of the node are seen as they are",
    ),
    refused(
        "volumes",
        "the job file has no mounts: paths of the node are seen as they are",
    ),
    refused("service", "a job does not answer requests from outside"),
    refused(
        "event_callback",
        "`antiphon submit --wait` ends when the job does",
    ),
    refused("pool", CLOUD),
    refused("inputs", CLOUD),
    refused("outputs", CLOUD),
    refused("api_server", CLOUD),
];

const RESOURCES: &[Key] = &[
    becomes(
        "accelerators",
        "`gpus`, times nodes, and `gpu_type`; several make several shapes",
    ),
    becomes("cpus", "`cpus`; `8+` is 8"),
    becomes("memory", "`memory` in GiB; `64+` is 64"),
    becomes("disk_size", "`scratch`, in GiB"),
    becomes("any_of", "a shape each"),
    becomes("ordered", "a shape each, in order of preference"),
    becomes("use_spot", "`class = \"best-effort\"`"),
    becomes("priority", "`priority`"),
    harmless("job_recovery", "attempts are tried again: `[retry]`"),
    harmless("spot_recovery", "attempts are tried again: `[retry]`"),
    harmless("disk_tier", "local storage is the node's"),
    harmless("autostop", "nodes are not SkyPilot's"),
    harmless("labels", "for people"),
    harmless("_cluster_config_overrides", "for SkyPilot's own server"),
    refused("cloud", CLOUD),
    refused("infra", CLOUD),
    refused("region", CLOUD),
    refused("zone", CLOUD),
    refused("instance_type", "give `accelerators`, `cpus` and `memory`"),
    refused(
        "image_id",
        "the job file has no images: the command runs on the node as it is",
    ),
    refused("ports", "a task sees the node's network"),
    refused("accelerator_args", "there are no TPUs"),
    refused("network_tier", "`span` says how far apart tasks may be"),
    refused("local_disk", "`disk_size` asks for local storage"),
    refused("max_hourly_cost", CLOUD),
];

/// Whether a text is a task, and not a job file of antiphon: there `run` is a table, and no other of these keys exists.
pub(super) fn is_task(text: &str) -> bool {
    let own = ["num_nodes", "setup", "envs", "file_mounts", "secrets"];
    let mut inside_resources = false;
    text.lines().any(|line| {
        let top = line
            .split_once(':')
            .filter(|(key, _)| !key.contains(char::is_whitespace) && !key.is_empty());
        if let Some((key, rest)) = top {
            let rest = rest.split('#').next().unwrap_or_default().trim();
            inside_resources = key == "resources";
            let text = !rest.is_empty() && !rest.starts_with(['{', '[', '&']);
            return own.contains(&key)
                || key == "run" && text
                || inside_resources && rest.contains("accelerators");
        }
        inside_resources && line.trim_start().starts_with("accelerators:")
    })
}

/// What is known of the format.
pub(super) fn tables() -> Vec<(&'static str, Vec<(String, Fate)>)> {
    super::keys::plain(&[("task", TASK), ("`resources`", RESOURCES)])
}

/// The tasks of a file, each a job.
pub(super) fn jobs(text: &str, origin: &Origin<'_>) -> Result<(Vec<Job>, Vec<Warning>), JobError> {
    let documents = documents(text, origin.name)?;
    let mut notes = Notes::new(origin.name);
    let mut jobs: Vec<Job> = Vec::new();
    let mut pipeline: Option<String> = None;
    let mut serial = true;
    for document in &documents {
        let task = document.root();
        if !task.value().is_object() {
            return Err(JobProblem::Syntax {
                place: task.place(),
                reason: "expected `key: value` lines".into(),
            }
            .into());
        }
        notes.check(&task, &[TASK]);
        let name = task.get("name").map(|name| name.text()).transpose()?;
        let head = task.get("run").is_none()
            && task.get("setup").is_none()
            && task.get("resources").is_none();
        if head && documents.len() > 1 && jobs.is_empty() {
            // The first document of a pipeline names it.
            pipeline = name;
            serial = task
                .get("execution")
                .is_none_or(|execution| execution.value() != "parallel");
            continue;
        }
        let fallback = pipeline
            .clone()
            .unwrap_or_else(|| origin.name.split('.').next().unwrap_or_default().to_owned());
        let mut job = self::job(&task, &mut notes, origin)?;
        job.name = job_name(&name.unwrap_or_else(|| format!("{fallback}-{}", jobs.len())));
        if documents.len() == 1 && task.get("name").is_none() {
            job.name = job_name(&fallback);
        }
        if let Some(before) = jobs.last().filter(|_| serial) {
            job.after_ok.push(before.name.clone());
        }
        jobs.push(job);
    }
    if jobs.is_empty() {
        return Err(JobProblem::NoJob {
            file: origin.name.to_owned(),
            there: "it has no task".into(),
        }
        .into());
    }
    Ok((jobs, notes.finish()))
}

fn job(task: &Node<'_>, notes: &mut Notes, origin: &Origin<'_>) -> Result<Job, JobError> {
    let mut job = Job::default();
    let nodes = task
        .get("num_nodes")
        .map(|node| node.count())
        .transpose()?
        .unwrap_or(1)
        .max(1);
    let mut resources = Resources {
        tasks: Some(nodes),
        ..Resources::default()
    };
    if let Some(node) = task.get("resources") {
        resources = shapes(&node, nodes, &mut job, notes, origin)?;
    }
    job.resources = Some(resources);
    if let Some(envs) = task.get("envs") {
        environment(&envs, &mut job, notes)?;
    }
    if let Some(secrets) = task.get("secrets") {
        for name in names_of(&secrets) {
            notes.differs(
                &secrets,
                format!("`{}` is read from the server's variable of that name, where its operator offers it; `run.secrets` may name a file instead", short(&name)),
            );
            job.run.secrets.insert(name.clone(), format!("env:{name}"));
        }
    }
    if let Some(workdir) = task.get("workdir") {
        match workdir.value() {
            Value::String(path) => job.run.workdir = Some(path.clone()),
            _ => notes.not_honored(
                &workdir,
                "nothing is fetched: the job starts in the directory of the submit",
            ),
        }
    }
    let text = |key: &str| task.get(key).map(|node| node.text()).transpose();
    let (setup, run) = (
        text("setup")?.unwrap_or_default(),
        text("run")?.unwrap_or_default(),
    );
    if run.trim().is_empty() {
        return Err(JobProblem::NothingToRun {
            place: task.place(),
            why: "the task has no `run`".into(),
            help: "write what it runs into `run`".into(),
        }
        .into());
    }
    job.run.command = if setup.is_empty() && !run.contains("SKYPILOT_") {
        vec!["bash".into(), "-c".into(), run]
    } else {
        vec![
            "bash".into(),
            "-c".into(),
            PRELUDE.into(),
            "skypilot".into(),
            setup,
            run,
        ]
    };
    Ok(job)
}

/// The names of variables, in a mapping or a list.
fn names_of(node: &Node<'_>) -> Vec<String> {
    let names: Vec<String> = match node.value() {
        Value::Object(map) => map.keys().cloned().collect(),
        Value::Array(items) => items.iter().map(plain).collect(),
        _ => Vec::new(),
    };
    let legal = |name: &String| {
        !name.is_empty()
            && !name.starts_with("ANTIPHON_")
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    names.into_iter().filter(legal).collect()
}

/// Variables; one without a value is for the command line of SkyPilot.
fn environment(envs: &Node<'_>, job: &mut Job, notes: &mut Notes) -> Result<(), JobError> {
    for name in envs
        .value()
        .as_object()
        .into_iter()
        .flat_map(|map| map.keys())
    {
        let Some(node) = envs.get(name) else {
            notes.not_honored(
                envs,
                format!(
                    "`{}` has no value; set it in `run.environment`",
                    short(name)
                ),
            );
            continue;
        };
        if name.starts_with("ANTIPHON_") || name.is_empty() || name.contains('=') {
            notes.not_honored(&node, "it is no variable that a job may set");
            continue;
        }
        job.run.environment.insert(name.clone(), node.text()?);
    }
    Ok(())
}

/// The shapes that `resources` come to: those of `any_of` or `ordered` over what stands beside them.
fn shapes(
    node: &Node<'_>,
    nodes: u64,
    job: &mut Job,
    notes: &mut Notes,
    origin: &Origin<'_>,
) -> Result<Resources, JobError> {
    notes.check(node, &[RESOURCES]);
    let base = shape(node, nodes, job, notes, origin)?;
    let mut all: Vec<Resources> = Vec::new();
    for list in ["ordered", "any_of"] {
        for choice in node.get(list).map(|list| list.items()).unwrap_or_default() {
            notes.check(&choice, &[RESOURCES]);
            for own in shape(&choice, nodes, job, notes, origin)? {
                let first = base.first().cloned().unwrap_or_default();
                all.push(Resources {
                    gpus: if own.gpus.0 > 0 { own.gpus } else { first.gpus },
                    gpu_type: own.gpu_type.or(first.gpu_type),
                    cpus: own.cpus.or(first.cpus),
                    memory: own.memory.or(first.memory),
                    scratch: own.scratch.or(first.scratch),
                    ..own
                });
            }
        }
    }
    if all.is_empty() {
        all = base;
    }
    // Choices that differ in cloud and region alone are one shape here.
    let mut shapes: Vec<Resources> = Vec::new();
    for shape in all {
        if !shapes.contains(&shape) {
            shapes.push(shape);
        }
    }
    let mut first = shapes.remove(0);
    first.alternatives = shapes.into_iter().take(15).collect();
    Ok(first)
}

/// What one mapping of resources says: a shape for each accelerator that would do.
fn shape(
    node: &Node<'_>,
    nodes: u64,
    job: &mut Job,
    notes: &mut Notes,
    origin: &Origin<'_>,
) -> Result<Vec<Resources>, JobError> {
    let mut resources = Resources {
        tasks: Some(nodes),
        ..Resources::default()
    };
    if let Some(cpus) = node.get("cpus") {
        resources.cpus = at_least(&cpus, notes)?;
    }
    if let Some(memory) = node.get("memory") {
        resources.memory =
            at_least(&memory, notes)?.map(|gib| mebibytes(gib.saturating_mul(1_024)));
    }
    if let Some(disk) = node.get("disk_size") {
        resources.scratch = at_least(&disk, notes)?.map(|gib| mebibytes(gib.saturating_mul(1_024)));
    }
    if let Some(spot) = node.get("use_spot").filter(|spot| spot.value() == true) {
        job.class = Some("best-effort");
        notes.differs(
            &spot,
            "the class is `best-effort`: it runs on what others leave and gives way to them",
        );
    }
    if let Some(priority) = node.get("priority") {
        job.priority = i32::try_from(priority.count()?).ok();
    }
    let Some(accelerators) = node.get("accelerators") else {
        return Ok(vec![resources]);
    };
    let mut shapes = Vec::new();
    for (name, count) in accelerators_of(&accelerators)? {
        if name.to_ascii_lowercase().starts_with("tpu") {
            return Err(JobProblem::CannotHonor {
                place: accelerators.place(),
                option: format!("accelerators: {}", short(&name)),
                why: "antiphon knows GPUs".into(),
                help: "name GPUs, or leave the task to SkyPilot".into(),
            }
            .into());
        }
        let gpu_type = match (origin.gpu_types)(&name).as_slice() {
            [one] => one.clone(),
            _ => name,
        };
        shapes.push(Resources {
            gpus: Gpus(if count < 1_000 && nodes == 1 {
                count
            } else {
                count
                    .div_ceil(1_000)
                    .saturating_mul(1_000)
                    .saturating_mul(nodes)
            }),
            gpu_type: Some(gpu_type).filter(|name| !name.is_empty()),
            ..resources.clone()
        });
    }
    Ok(if shapes.is_empty() {
        vec![resources]
    } else {
        shapes
    })
}

/// `H100:8`, `{H100: 8, A100: 8}`, `[H100:8, A100:8]`: names, and thousandths.
fn accelerators_of(node: &Node<'_>) -> Result<Vec<(String, u64)>, JobError> {
    let expected = "GPUs like `H100:8`";
    let thousandths = |text: &str| {
        let number = text
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|number| (0.001..=1e6).contains(number))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "in range, as just checked"
        )]
        Some((number * 1_000.0).round() as u64)
    };
    let of_text = |text: &str| {
        let (name, count) = text.split_once(':').unwrap_or((text, "1"));
        let count = thousandths(count).ok_or_else(|| node.bad(expected))?;
        Ok((name.trim().to_owned(), count))
    };
    match node.value() {
        Value::String(text) => Ok(vec![of_text(text)?]),
        Value::Array(items) => items.iter().map(|item| of_text(&plain(item))).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(name, count)| {
                // YAML's sets have no values.
                let count = if count.is_null() {
                    "1".into()
                } else {
                    plain(count)
                };
                let (name, inner) = name.split_once(':').unwrap_or((name, &count));
                let count = thousandths(inner).ok_or_else(|| node.bad(expected))?;
                Ok((name.trim().to_owned(), count))
            })
            .collect(),
        _ => Err(node.bad(expected)),
    }
}

/// `8`, `8+`, `64GB`; `4x` (times the CPUs) is not followed.
fn at_least(node: &Node<'_>, notes: &mut Notes) -> Result<Option<u64>, JobError> {
    let text = node.text()?;
    let text = text.trim().trim_end_matches('+');
    if text.ends_with('x') {
        notes.not_honored(node, "give a number");
        return Ok(None);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits
        .trim()
        .parse::<f64>()
        .ok()
        .filter(|number| (0.0..=1e6).contains(number));
    let number = number.ok_or_else(|| node.bad("a number like `8` or `8+`"))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in range, as just checked"
    )]
    Ok(Some(number.ceil() as u64).filter(|number| *number > 0))
}
