//! Data jobs that make more data for another job: which method, what they run, when one may start. They run without GPUs, by
//! the rules of every such job.

use antiphon_types::{
    AugmentSpec, JobId, JobSpec, Millis, Rejection, Role, Shape, ShardOrigin, Tasks, Timestamp,
};

use crate::admit::admit_job;
use crate::jobs::Job;
use crate::state::State;
use crate::steering::{AugmentRun, RunStage};

/// How long after a data job of a category has ended the next one may start: samples have to be drawn before they show.
const COOL_DOWN: Millis = Millis::from_secs(600);

/// How long a data job may run: what it makes is of use while its category starves.
const TIME_MAX: Millis = Millis::from_secs(3_600);

/// Methods of one job.
const METHODS_MAX: usize = 64;

/// Runs of one method for one job, and samples of one run: far above any use.
const RUNS_MAX: u32 = 10_000;

/// The longest name of a parent that a data job's own is made from: names have at most 100 letters.
const NAME_MAX: usize = 80;

/// What a new shard weighs, in parts per million: as much as one that no directive has named.
pub(crate) const WEIGHT: u32 = 1_000_000;

/// Shards that stand as the parents of a new one.
const PARENTS_MAX: usize = 64;

/// Shards whose origin is known, of one job.
pub(crate) const SHARDS_MAX: usize = 4_096;

/// Checks what a job says about making more data.
pub(crate) fn check(spec: &JobSpec) -> Result<(), Rejection> {
    let bad = |method: &str, why: String| Rejection::BadAugment {
        method: method.to_owned(),
        why,
    };
    let limit = |what: &str, asked: usize, max: usize| Rejection::OverLimit {
        what: what.to_owned(),
        asked: u64::try_from(asked).unwrap_or(u64::MAX),
        max: u64::try_from(max).unwrap_or(u64::MAX),
    };
    let data = &spec.data;
    if data.shards.len() > SHARDS_MAX {
        return Err(limit("number of shards", data.shards.len(), SHARDS_MAX));
    }
    if data.augment.len() > METHODS_MAX {
        let there = data.augment.len();
        return Err(limit("number of ways to augment", there, METHODS_MAX));
    }
    for (name, method) in &data.augment {
        if method.command.is_empty() {
            return Err(bad(name, "it has no command".into()));
        }
        if method.runs_max > RUNS_MAX {
            let why = format!(
                "it may run {} times: the limit is {RUNS_MAX}",
                method.runs_max
            );
            return Err(bad(name, why));
        }
    }
    Ok(())
}

/// The category of what starves: of the shard with this name, else the category itself.
pub(crate) fn category_of<'a>(job: &'a Job, of: &'a str) -> &'a str {
    let shard = job.spec.data.shards.get(of);
    let named = shard.map(|origin| origin.category.as_str());
    named.filter(|category| !category.is_empty()).unwrap_or(of)
}

/// The data job that would make more of what starves: its method and what it runs.
///
/// # Errors
/// Why none may start now.
pub(crate) fn plan(state: &State, job: &Job, of: &str) -> Result<(String, JobSpec), String> {
    let category = category_of(job, of);
    let (name, method) = method_for(job, category)?;
    if let Some(last) = job
        .steering
        .runs
        .iter()
        .rfind(|run| run.category == category)
    {
        may_follow(state, last)?;
    }
    let spec = spec(job, of, category, name, method);
    // The first to have an unfit name or a cluster without CPUs waits as long as that is so.
    admit_job(state, &spec).map_err(|no| no.to_string())?;
    Ok((name.clone(), spec))
}

/// From when on another data job for what starves may start, as far as time goes.
pub(crate) fn may_start(job: &Job, of: &str) -> Timestamp {
    let category = category_of(job, of);
    let mut runs = job.steering.runs.iter();
    match runs
        .rfind(|run| run.category == category)
        .map(|run| &run.stage)
    {
        Some(RunStage::Delivered { at } | RunStage::Failed { at }) => at.after(COOL_DOWN),
        Some(RunStage::Running | RunStage::Made { .. }) | None => Timestamp::ZERO,
    }
}

fn method_for<'a>(job: &'a Job, category: &str) -> Result<(&'a String, &'a AugmentSpec), String> {
    let methods = &job.spec.data.augment;
    let serves = |(_, method): &(&String, &AugmentSpec)| {
        method.categories.is_empty() || method.categories.iter().any(|named| named == category)
    };
    let started = |name: &str| {
        let count = job.steering.runs_by_method.get(name);
        count.copied().unwrap_or(0)
    };
    let mut serving = methods.iter().filter(serves).peekable();
    if serving.peek().is_none() {
        return Err(format!(
            "none of its {} `[augment.METHOD]` serves `{category}`",
            methods.len()
        ));
    }
    let mut spent = Vec::new();
    for (name, method) in serving {
        if started(name) < method.runs_max {
            return Ok((name, method));
        }
        spent.push(format!("`{name}` has run {} times", started(name)));
    }
    Err(format!("{}, as often as it may", spent.join(" and ")))
}

fn may_follow(state: &State, last: &AugmentRun) -> Result<(), String> {
    match last.stage {
        RunStage::Running | RunStage::Made { .. } => Err(format!(
            "{} makes samples of `{}` already",
            last.job, last.category
        )),
        RunStage::Delivered { at } | RunStage::Failed { at } if at.after(COOL_DOWN) > state.now => {
            Err(format!(
                "{} ended {} ago: the next one starts {COOL_DOWN} after it",
                last.job,
                state.now.since(at)
            ))
        }
        RunStage::Delivered { .. } | RunStage::Failed { .. } => Ok(()),
    }
}

fn spec(job: &Job, of: &str, category: &str, name: &str, method: &AugmentSpec) -> JobSpec {
    let number: u32 = job.steering.runs_by_method.values().sum::<u32>() + 1;
    let out = format!(
        "{}/{}-augment-{number}.jsonl",
        job.spec.workdir.trim_end_matches('/'),
        job.id
    );
    let degrees = method.temperature_milli;
    let mut environment = job.spec.environment.clone();
    environment.extend(
        [
            ("OF", of.to_owned()),
            ("CATEGORY", category.to_owned()),
            ("METHOD", name.to_owned()),
            ("COUNT", method.count.to_string()),
            (
                "TEMPERATURE",
                format!("{}.{:03}", degrees / 1_000, degrees % 1_000),
            ),
            ("OUT", out),
            ("SHARD", format!("{category}-augment-{number}")),
        ]
        .map(|(key, value)| (format!("ANTIPHON_AUGMENT_{key}"), value)),
    );
    let parent: String = job.spec.name.chars().take(NAME_MAX).collect();
    JobSpec {
        name: format!("{parent}-augment-{number}"),
        team: job.spec.team.clone(),
        user: job.spec.user.clone(),
        class: job.spec.class,
        roles: vec![Role {
            name: "data".into(),
            command: method.command.clone(),
            shape: Shape {
                tasks: Tasks::Exactly(1),
                cpus: Some(method.cpus.max(1)),
                ..Shape::default()
            },
            alternatives: Vec::new(),
        }],
        environment,
        secrets: job.spec.secrets.clone(),
        workdir: job.spec.workdir.clone(),
        retry: job.spec.retry,
        grace: job.spec.grace,
        time_limit: Some(TIME_MAX),
        priority: job.spec.priority,
        ..JobSpec::default()
    }
}

/// A data job as its parent remembers it.
pub(crate) fn run(job: &Job, made_by: JobId, method: &str, of: &str, spec: &JobSpec) -> AugmentRun {
    let said = |key: &str| {
        let value = spec.environment.get(&format!("ANTIPHON_AUGMENT_{key}"));
        value.cloned().unwrap_or_default()
    };
    AugmentRun {
        job: made_by,
        method: method.to_owned(),
        category: category_of(job, of).to_owned(),
        shard: said("SHARD"),
        path: said("OUT"),
        stage: RunStage::Running,
    }
}

/// Where the samples of a data job come from: what its parent draws from in that category.
pub(crate) fn origin(job: &Job, run: &AugmentRun) -> ShardOrigin {
    let shards = job.spec.data.shards.iter();
    let parents = shards.filter(|(_, origin)| origin.category == run.category);
    let method = job.spec.data.augment.get(&run.method);
    ShardOrigin {
        category: run.category.clone(),
        generator: run.method.clone(),
        temperature_milli: method.map(|method| method.temperature_milli),
        parents: parents
            .map(|(name, _)| name.clone())
            .take(PARENTS_MAX)
            .collect(),
        made_by: match run.stage {
            RunStage::Made { attempt } => Some(attempt),
            RunStage::Running | RunStage::Delivered { .. } | RunStage::Failed { .. } => None,
        },
        samples: method.map(|method| method.count.into()),
        ..ShardOrigin::default()
    }
}
