//! What `kubectl get pods,jobs -o json` prints: a `List` of `Pod` and `Job`. Deployments and daemons are read as the pods
//! that they are.
//!
//! Source: <https://kubernetes.io/docs/reference/kubernetes-api/>. Of each item:
//!
//! | field | used as |
//! | --- | --- |
//! | `metadata.namespace`, `metadata.name` | team; name |
//! | `metadata.creationTimestamp` | submission |
//! | `status.startTime` | start |
//! | `status.containerStatuses[].state.terminated.finishedAt`, `status.completionTime` | end |
//! | `spec.containers[].resources` | requests, or limits, of `nvidia.com/gpu` (or another vendor's), `nvidia.com/mig-1g.10gb`, `cpu`, `memory` |
//! | `spec.nodeSelector["nvidia.com/gpu.product"]` | GPU type |
//! | `spec.parallelism`, `spec.completions`, `spec.template` of a `Job` | size of the gang |
//! | `spec.activeDeadlineSeconds` | limit |
//! | `status.phase`, `status.conditions`, `status.reason` | end |
//!
//! - Pods that share an owner that runs to its end (a `Job`, a training operator's job), a pod group of Kueue or a job set
//!   are one job: a gang. Of pods that were started anew, each index counts once. Pods of a `ReplicaSet`, `StatefulSet`,
//!   `DaemonSet` or `Node` are jobs of their own.
//! - A job that has not ended counts as running up to the latest time in the file, and its end says so.
//! - What was deleted is not shown: with `ttlSecondsAfterFinished`, the list holds the last jobs only.
//! - A MIG device counts for the sevenths of a GPU that its profile names.
//! - A bad item's line is the one on which it begins.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Bytes, Millis};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::clock::date_time;
use super::mig::{mig_thousandths, share};
use super::source::line_at;
use super::table::{Rows, job, rounded, wrong};
use super::{Source, TraceError};
use crate::workload::{End, TraceJob, Work};

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Item {
    kind: String,
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    creation_timestamp: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, serde_json::Value>>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Option<Vec<Container>>,
    node_selector: Option<BTreeMap<String, String>>,
    active_deadline_seconds: Option<u64>,
    parallelism: Option<u64>,
    completions: Option<u64>,
    template: Option<Template>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Template {
    spec: Box<Spec>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Container {
    resources: Option<Resources>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    requests: Option<BTreeMap<String, serde_json::Value>>,
    limits: Option<BTreeMap<String, serde_json::Value>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    reason: Option<String>,
    start_time: Option<String>,
    completion_time: Option<String>,
    conditions: Option<Vec<Condition>>,
    container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: Option<String>,
    last_transition_time: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ContainerStatus {
    state: Option<State>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State {
    terminated: Option<Terminated>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    finished_at: Option<String>,
    reason: Option<String>,
}

/// What one item tells.
struct Seen {
    line: u64,
    is_job: bool,
    /// The key of the gang that it belongs to.
    gang: String,
    /// Which of the gang's tasks it is, where it says.
    index: Option<String>,
    team: String,
    submitted: u64,
    start: Option<u64>,
    end: Option<u64>,
    how: End,
    tasks: u64,
    needs: Needs,
    limit: Option<Millis>,
}

/// What one task needs.
#[derive(Clone, Default)]
struct Needs {
    gpu_thousandths: u64,
    cpu_milli: u64,
    memory: u64,
    gpu_type: Option<String>,
}

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let syntax = |reason: String| TraceError::Syntax {
        path: source.path.clone(),
        reason,
    };
    if let Some((line, reason)) = &source.cut {
        return Err(TraceError::CutShort {
            path: source.path.clone(),
            line: *line,
            reason: reason.clone(),
        });
    }
    let list: List<'_> =
        serde_json::from_str(&source.text).map_err(|error| syntax(error.to_string()))?;
    let whole: &RawValue;
    let items = match list.items {
        Some(items) => items,
        None => {
            whole =
                serde_json::from_str(&source.text).map_err(|error| syntax(error.to_string()))?;
            vec![whole]
        }
    };
    let mut seen = Vec::new();
    let (mut line, mut counted) = (1, 0);
    for raw in items {
        let offset = raw.get().as_ptr() as usize - source.text.as_ptr() as usize;
        line += line_at(
            source.text.get(counted..).unwrap_or_default(),
            offset - counted,
        ) - 1;
        counted = offset;
        match serde_json::from_str(raw.get()) {
            Ok(item) => match look(&item, line) {
                Ok(found) => seen.extend(found),
                Err(reason) => rows.refuse(line, reason)?,
            },
            Err(error) => rows.refuse(line, format!("the item cannot be parsed: {error}"))?,
        }
    }
    let latest = seen
        .iter()
        .flat_map(|item| [Some(item.submitted), item.start, item.end])
        .flatten()
        .max();
    let mut gangs: BTreeMap<&str, Vec<&Seen>> = BTreeMap::new();
    for item in &seen {
        gangs.entry(&item.gang).or_default().push(item);
    }
    let mut jobs: Vec<TraceJob> = Vec::new();
    for (name, members) in gangs {
        match together(name, &members, latest.unwrap_or(0)) {
            Ok(job) => jobs.push(job),
            Err((line, reason)) => rows.refuse(line, reason)?,
        }
    }
    jobs.sort_by_key(|job| job.line);
    for job in jobs {
        rows.take(job.line, Ok(job))?;
    }
    Ok(())
}

/// What an item tells; nothing where it is neither pod nor job.
fn look(item: &Item, line: u64) -> Result<Option<Seen>, String> {
    let is_job = match item.kind.as_str() {
        "Pod" => false,
        "Job" => true,
        _ => return Ok(None),
    };
    let metadata = &item.metadata;
    if metadata.name.is_empty() {
        return Err("`metadata.name` is empty: expected a name".into());
    }
    let time = |field: &str, text: Option<&String>| match text {
        None => Ok(None),
        Some(text) => match date_time(text) {
            Some(ms) => Ok(Some(ms)),
            None => Err(wrong(field, text, "a time like `2024-01-31T12:00:00Z`")),
        },
    };
    let submitted = time("creationTimestamp", metadata.creation_timestamp.as_ref())?;
    let submitted = submitted
        .ok_or("`metadata.creationTimestamp` is empty: expected the time of submission")?;
    let status = &item.status;
    let start = time("startTime", status.start_time.as_ref())?;
    let (end, how) = ending(status, is_job)?;
    if let (Some(start), Some(end)) = (start, end)
        && end < start
    {
        return Err(format!("it ends {} ms before it starts", start - end));
    }
    let parallelism = item.spec.parallelism.unwrap_or(1);
    let tasks = if is_job {
        item.spec
            .completions
            .map_or(parallelism, |all| all.min(parallelism))
    } else {
        1
    };
    let template = item.spec.template.as_ref();
    let spec = template.map_or(&item.spec, |template| &template.spec);
    Ok(Some(Seen {
        line,
        is_job,
        gang: gang(metadata, is_job),
        index: index(metadata),
        team: metadata.namespace.clone(),
        submitted,
        start,
        end,
        how,
        tasks,
        needs: needs(spec)?,
        limit: item
            .spec
            .active_deadline_seconds
            .filter(|seconds| *seconds < 1_000_000_000)
            .map(|seconds| Millis::from_millis(seconds * 1_000)),
    }))
}

/// When and how it ended.
fn ending(status: &Status, is_job: bool) -> Result<(Option<u64>, End), String> {
    let read = |field: &str, text: &str| {
        date_time(text).ok_or_else(|| wrong(field, text, "a time like `2024-01-31T12:00:00Z`"))
    };
    if is_job {
        if let Some(text) = &status.completion_time {
            return Ok((Some(read("completionTime", text)?), End::Completed));
        }
        let conditions = status.conditions.iter().flatten();
        let mut failed = conditions.filter(|c| c.kind == "Failed" && c.status == "True");
        return Ok(match failed.next() {
            None => (None, End::Running),
            Some(condition) => {
                let text = condition.last_transition_time.as_ref();
                let at = text
                    .map(|text| read("lastTransitionTime", text))
                    .transpose()?;
                let limit = condition.reason.as_deref() == Some("DeadlineExceeded");
                (at, if limit { End::Limit } else { End::Failed })
            }
        });
    }
    let mut end = None;
    let mut out_of_memory = false;
    for container in status.container_statuses.iter().flatten() {
        let terminated = container
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        if let Some(terminated) = terminated {
            out_of_memory |= terminated.reason.as_deref() == Some("OOMKilled");
            if let Some(text) = &terminated.finished_at {
                end = end.max(Some(read("finishedAt", text)?));
            }
        }
    }
    let how = match (status.phase.as_deref(), status.reason.as_deref()) {
        (Some("Succeeded"), _) => End::Completed,
        (Some("Failed"), Some("DeadlineExceeded")) => End::Limit,
        (Some("Failed"), Some("NodeLost" | "NodeShutdown" | "Terminated")) if !out_of_memory => {
            End::Hardware
        }
        (Some("Failed"), Some("Preempting" | "Evicted")) => End::Canceled,
        (Some("Failed"), _) => End::Failed,
        _ => return Ok((None, End::Running)),
    };
    Ok((end, how))
}

fn gang(metadata: &Metadata, is_job: bool) -> String {
    let namespace = &metadata.namespace;
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
    if let Some(set) = label("jobset.sigs.k8s.io/jobset-name") {
        return format!("{namespace}/{set}");
    }
    if let Some(group) = label("kueue.x-k8s.io/pod-group-name") {
        return format!("{namespace}/{group}");
    }
    let owner = metadata.owner_references.iter().flatten().next();
    let alone = ["ReplicaSet", "StatefulSet", "DaemonSet", "Node", "CronJob"];
    match owner {
        Some(owner)
            if !is_job && !alone.contains(&owner.kind.as_str()) && !owner.name.is_empty() =>
        {
            format!("{namespace}/{}", owner.name)
        }
        _ => format!("{namespace}/{}", metadata.name),
    }
}

fn index(metadata: &Metadata) -> Option<String> {
    const INDEX: &str = "batch.kubernetes.io/job-completion-index";
    let label = |name: &str| metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let annotation = metadata.annotations.as_ref().and_then(|all| all.get(INDEX));
    let own = label(INDEX)
        .or_else(|| label("training.kubeflow.org/replica-index"))
        .cloned()
        .or_else(|| annotation.map(ToString::to_string))?;
    let role = label("training.kubeflow.org/replica-type");
    let set = label("jobset.sigs.k8s.io/job-key");
    let part = |text: Option<&String>| text.cloned().unwrap_or_default();
    Some(format!("{}/{}/{own}", part(set), part(role)))
}

fn needs(spec: &Spec) -> Result<Needs, String> {
    let mut needs = Needs::default();
    for container in spec.containers.iter().flatten() {
        let Some(resources) = &container.resources else {
            continue;
        };
        let mut wanted: BTreeMap<&str, &serde_json::Value> = BTreeMap::new();
        // Where only a limit is named, it is the request.
        for map in [&resources.limits, &resources.requests]
            .into_iter()
            .flatten()
        {
            wanted.extend(map.iter().map(|(name, value)| (name.as_str(), value)));
        }
        for (name, value) in wanted {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            let number = || quantity(&text).ok_or_else(|| wrong(name, &text, "a quantity"));
            let mig = name.split_once("/mig-").map(|(_, profile)| profile);
            if name.ends_with("/gpu") || mig.is_some() {
                let count = rounded(number()?);
                let more = mig_thousandths(mig.unwrap_or(""), count);
                needs.gpu_thousandths = needs.gpu_thousandths.saturating_add(more);
            } else if name == "cpu" {
                needs.cpu_milli = needs.cpu_milli.saturating_add(rounded(number()? * 1e3));
            } else if name == "memory" {
                needs.memory = needs.memory.saturating_add(rounded(number()?));
            }
        }
    }
    let selector = spec.node_selector.as_ref();
    let gpu_type = selector.and_then(|selector| selector.get("nvidia.com/gpu.product"));
    needs.gpu_type = gpu_type.cloned();
    Ok(needs)
}

/// A number like `500m`, `16Gi`, `2`, `1e3`.
fn quantity(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 12] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("", 1.0),
    ];
    let found = SUFFIXES.into_iter().find_map(|(suffix, factor)| {
        let number = text.strip_suffix(suffix)?.parse::<f64>().ok()?;
        Some(number * factor)
    });
    found.filter(|number| number.is_finite() && (0.0..9e15).contains(number))
}

/// One job of all that belongs to it.
fn together(name: &str, members: &[&Seen], latest: u64) -> Result<TraceJob, (u64, String)> {
    let line = members.iter().map(|item| item.line).min().unwrap_or(0);
    let jobs: Vec<&&Seen> = members.iter().filter(|item| item.is_job).collect();
    let pods: Vec<&&Seen> = members.iter().filter(|item| !item.is_job).collect();
    let (parts, times) = if jobs.is_empty() {
        let mut known = BTreeSet::new();
        // The last of several starts of one task comes last in the file.
        let mut last: Vec<&&Seen> = pods
            .iter()
            .rev()
            .filter(|pod| pod.index.as_ref().is_none_or(|index| known.insert(index)))
            .copied()
            .collect();
        last.reverse();
        (last, &pods)
    } else {
        (jobs.clone(), &jobs)
    };
    let mut total = Needs::default();
    for part in &parts {
        let times = |number: u64| number.saturating_mul(part.tasks);
        let add = |sum: &mut u64, number| *sum = sum.saturating_add(times(number));
        add(&mut total.gpu_thousandths, part.needs.gpu_thousandths);
        add(&mut total.cpu_milli, part.needs.cpu_milli);
        add(&mut total.memory, part.needs.memory);
        total.gpu_type = total.gpu_type.or_else(|| part.needs.gpu_type.clone());
    }
    let gpus = share(total.gpu_thousandths).ok_or((line, "more than 1,000,000 GPUs".into()))?;
    let submitted = members.iter().map(|item| item.submitted).min().unwrap_or(0);
    // A job that says nothing of its times is as its pods are.
    let start = times
        .iter()
        .chain(&pods)
        .filter_map(|item| item.start)
        .min();
    let ended = times.iter().all(|item| item.how != End::Running);
    let end = times.iter().filter_map(|item| item.end).max();
    let end = end.or_else(|| pods.iter().filter_map(|item| item.end).max());
    let (end, how) = match end {
        Some(end) if ended => (end, worst(times)),
        _ => (latest, if ended { worst(times) } else { End::Running }),
    };
    let time = start.map_or(0, |start| end.saturating_sub(start));
    let work = Work::Time(Millis::from_millis(time));
    let mut job = job(line, name, Millis::from_millis(submitted), gpus, work);
    job.team = members
        .first()
        .map(|item| item.team.clone())
        .unwrap_or_default();
    job.gpu_types = total.gpu_type.into_iter().collect();
    job.cpu_milli = (total.cpu_milli > 0).then_some(total.cpu_milli);
    job.memory = (total.memory > 0).then(|| Bytes::new(total.memory));
    job.limit = members.iter().find_map(|item| item.limit);
    job.end = how;
    Ok(job)
}

/// How the whole ended: as its first part that did not complete.
fn worst(items: &[&&Seen]) -> End {
    let failed = items
        .iter()
        .map(|item| item.how)
        .find(|how| *how != End::Completed);
    failed.unwrap_or(End::Completed)
}
