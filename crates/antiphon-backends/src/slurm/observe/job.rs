//! From Slurm's records to jobs: what belongs together becomes one, what stands for many becomes many, and each gets its team,
//! its class and how far it is.

use std::collections::BTreeMap;

use antiphon_types::{Class, Exit, ExitClass, JobSpec, Millis, Outcome, RetrySpec, Role};

use super::cluster::Cluster;
use super::needs;
use crate::observe::{Held, Picture, Run, SeenJob, SeenPhase};
use crate::slurm::jobs::{OnNode, Record, tasks};
use crate::slurm::partitions::time_limit;

/// Waiting tasks of one array that are shown; the others are counted. An order of so many says enough of the rest.
const WAITING_TASKS_MAX: usize = 200;

/// The team of a job without an account: a Slurm without accounting has none.
const NO_ACCOUNT: &str = "default";

/// Longest name that is taken over.
const NAME_MAX: usize = 60;

/// What a Slurm waits for between SIGTERM and SIGKILL unless its site says otherwise.
const KILL_WAIT: Millis = Millis::from_secs(30);

/// Reasons, or how they begin, for which a job waits that room alone would not start.
const KEPT_BACK: [&str; 19] = [
    "BadConstraints",
    "BeginTime",
    "BurstBuffer",
    "Cleaning",
    "DeadLine",
    "Dependency",
    "FedJobLock",
    "Invalid",
    "JobArrayTaskLimit",
    "JobHeld",
    "JobHold",
    "JobLaunchFailure",
    "Licenses",
    "PartitionDown",
    "PartitionInactive",
    "Prolog",
    "Reservation",
    "launch_failed_requeued_held",
    "job_requeued_in_held_state",
];

/// Adds the jobs that a text is about.
pub(super) fn read(cluster: &Cluster<'_>, records: &[Record<'_>], picture: &mut Picture) {
    let mut together: BTreeMap<u64, Vec<&Record<'_>>> = BTreeMap::new();
    for record in records {
        let number = record.number("HetJobId").or(record.number("JobId"));
        if let Some(number) = number {
            together.entry(number).or_default().push(record);
        }
    }
    // Counted once: arrays of thousands of tasks would else be gone through for each of them.
    let mut running: BTreeMap<&str, usize> = BTreeMap::new();
    let active = records.iter().filter(|one| state(one) == State::Active);
    for array in active.filter_map(|one| one.get("ArrayJobId")) {
        *running.entry(array).or_default() += 1;
    }
    let mut beside = 0_u64;
    for (number, mut parts) in together {
        if parts.iter().any(|part| part.unclear) {
            picture.unclear.push(key(parts[0], number));
            continue;
        }
        parts.sort_by_key(|part| part.number::<u32>("HetJobOffset"));
        let Some(job) = job(cluster, number, &parts) else {
            beside += u64::from(is_waiting(parts[0]));
            continue;
        };
        let waits = matches!(job.phase, SeenPhase::Waiting | SeenPhase::KeptBack);
        match parts[0].get("ArrayTaskId").filter(|_| waits) {
            None => picture.jobs.push(job),
            Some(list) => members(job, parts[0], list, &running, picture),
        }
    }
    if !picture.unclear.is_empty() {
        let jobs = picture.unclear.join(", ");
        picture.left_out.push(format!(
            "{jobs}: somebody typed line breaks into a job's name or comment that read like another job"
        ));
    }
    if beside > 0 {
        let jobs = if beside == 1 {
            "1 job waits"
        } else {
            &format!("{beside} jobs wait")
        };
        picture
            .left_out
            .push(format!("{jobs} for partitions that are not looked at"));
    }
}

fn is_waiting(record: &Record<'_>) -> bool {
    state(record) == State::Pending
}

/// One job of one or several records; nothing where it has nothing to do with the nodes that are looked at.
fn job(cluster: &Cluster<'_>, number: u64, parts: &[&Record<'_>]) -> Option<SeenJob> {
    let first = parts[0];
    let asked = first.get("Partition").unwrap_or_default();
    let partitions: Vec<String> = asked
        .split(',')
        .filter(|name| cluster.partitions.contains_key(*name))
        .map(str::to_owned)
        .collect();
    let held: Vec<Vec<OnNode>> = parts.iter().map(|part| on_nodes(cluster, part)).collect();
    let holds = held.iter().any(|part| !part.is_empty());
    // One that runs elsewhere holds nothing here; one that waits for elsewhere never will.
    let lives = parts.iter().any(|part| state(part) == State::Active);
    if !holds && (lives || partitions.is_empty()) {
        return None;
    }
    let phase = phase(parts, &held);
    let running = matches!(phase, SeenPhase::Running(_));
    let group = partitions
        .first()
        .map(|name| cluster.partitions[name].1.clone());
    let group =
        group.or_else(|| Some(cluster.nodes[&held.concat()[0].node].spec.partition.clone()))?;
    let roles = parts
        .iter()
        .zip(&held)
        .enumerate()
        .map(|(place, (part, on))| {
            let shape = if running && !on.is_empty() {
                needs::held(cluster, part, on, &group)
            } else {
                needs::asked(cluster, part, &group)
            };
            Role {
                name: role(parts.len(), place),
                // antiphon starts nothing of it.
                command: vec!["sbatch".into()],
                shape,
                alternatives: Vec::new(),
            }
        });
    let user = first.get("UserId").unwrap_or_default();
    let spec = JobSpec {
        name: name(first.name),
        team: first.get("Account").unwrap_or(NO_ACCOUNT).to_owned(),
        user: user.split('(').next().unwrap_or(user).to_owned(),
        class: class(cluster, first, &partitions),
        roles: roles.collect(),
        retry: RetrySpec::default(),
        grace: KILL_WAIT,
        time_limit: limit(cluster, first, &partitions),
        ..JobSpec::default()
    };
    let waits = matches!(phase, SeenPhase::Waiting | SeenPhase::KeptBack);
    Some(SeenJob {
        key: key(first, number),
        spec,
        submitted: first.time("SubmitTime").unwrap_or_default(),
        reason: first.get("Reason").filter(|_| waits).map(str::to_owned),
        priority: first.number("Priority").unwrap_or(0),
        starts: first.time("StartTime").filter(|_| waits),
        not_weighed: if waits {
            not_weighed(parts)
        } else {
            Vec::new()
        },
        phase,
        partitions,
    })
}

/// Its number; of an array's task the array's, and which.
fn key(record: &Record<'_>, number: u64) -> String {
    let task = record
        .get("ArrayTaskId")
        .and_then(|task| task.parse::<u32>().ok());
    match (record.get("ArrayJobId"), task) {
        (Some(array), Some(task)) => format!("{array}_{task}"),
        _ => number.to_string(),
    }
}

fn role(parts: usize, place: usize) -> String {
    match parts {
        1 => "main".into(),
        _ => format!("part{place}"),
    }
}

/// A name without what no terminal should print.
fn name(text: &str) -> String {
    let plain = text.chars().filter(|c| !c.is_control());
    plain.take(NAME_MAX).collect()
}

/// By its QOS, else its partition, as they are configured; else best-effort where its partition's jobs may be preempted.
fn class(cluster: &Cluster<'_>, record: &Record<'_>, partitions: &[String]) -> Class {
    let classes = &cluster.config.classes;
    let by_qos = record.get("QOS").and_then(|qos| classes.get(qos));
    let by_partition = partitions.iter().find_map(|name| classes.get(name));
    let gives_way = |name: &String| cluster.partitions[name].0.spec.preemptible;
    let usual = if !partitions.is_empty() && partitions.iter().all(gives_way) {
        Class::BestEffort
    } else {
        Class::Standard
    };
    by_qos.or(by_partition).copied().unwrap_or(usual)
}

fn limit(cluster: &Cluster<'_>, record: &Record<'_>, partitions: &[String]) -> Option<Millis> {
    let own = record.get("TimeLimit").and_then(time_limit).flatten();
    let of_partition = || {
        let first = partitions.first()?;
        cluster.partitions[first].0.spec.duration_max
    };
    own.or_else(of_partition).filter(|limit| !limit.is_zero())
}

/// What a job asks for that no shape says.
fn not_weighed(parts: &[&Record<'_>]) -> Vec<String> {
    let mut told = Vec::new();
    for part in parts {
        for (key, what) in [
            ("Features", "nodes with the feature"),
            ("ReqNodeList", "the nodes"),
            ("ExcNodeList", "any nodes but"),
            ("Reservation", "the reservation"),
            ("Licenses", "the licenses"),
        ] {
            if let Some(value) = part.get(key) {
                told.push(format!("{what} `{value}`"));
            }
        }
    }
    told.dedup();
    told
}

/// What it holds, or held, of the nodes that are looked at.
fn on_nodes(cluster: &Cluster<'_>, record: &Record<'_>) -> Vec<OnNode> {
    // Of one that has ended Slurm has forgotten which GPUs it had, not how many it asked for.
    let over = !matches!(state(record), State::Active | State::Pending);
    let nothing = record.nodes.iter().all(|on| on.gpus == 0);
    let mut on = if record.nodes.is_empty() || (over && nothing) {
        needs::spread(record)
    } else {
        record.nodes.clone()
    };
    on.retain(|held| cluster.nodes.contains_key(&held.node));
    on
}

/// Slurm's states, as far as they differ here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    /// Holds its nodes, also while it starts, stops or is suspended.
    Active,
    Done,
    Canceled,
    Failed(Option<ExitClass>),
}

fn state(record: &Record<'_>) -> State {
    let words = record.get("JobState").unwrap_or_default();
    let is = |word: &str| words.split([',', '+', ' ']).any(|one| one == word);
    let any = |words: &[&str]| words.iter().any(|word| is(word));
    if any(&[
        "PENDING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "SPECIAL_EXIT",
        "RESV_DEL_HOLD",
    ]) {
        State::Pending
    } else if is("COMPLETING") {
        State::Active
    } else if is("COMPLETED") {
        State::Done
    } else if any(&["CANCELLED", "PREEMPTED", "REVOKED"]) {
        State::Canceled
    } else if any(&["NODE_FAIL", "BOOT_FAIL"]) {
        State::Failed(Some(ExitClass::Hardware))
    } else if is("OUT_OF_MEMORY") {
        State::Failed(Some(ExitClass::OutOfMemory))
    } else if any(&["TIMEOUT", "DEADLINE"]) {
        State::Failed(Some(ExitClass::Limit))
    } else if any(&["FAILED", "LAUNCH_FAILED", "RECONFIG_FAIL"]) {
        State::Failed(None)
    } else {
        // A word that is not known is one of a job that lives: only the known ends are ends.
        State::Active
    }
}

fn phase(parts: &[&Record<'_>], held: &[Vec<OnNode>]) -> SeenPhase {
    let states: Vec<State> = parts.iter().map(|part| state(part)).collect();
    let run = || run(parts, held);
    // A job of several lives while any of them does.
    if let Some(run) = run().filter(|_| states.contains(&State::Active)) {
        return SeenPhase::Running(run);
    }
    if states.contains(&State::Pending) {
        let kept_back = parts.iter().any(|part| {
            let reason = part.get("Reason").unwrap_or_default();
            KEPT_BACK.iter().any(|begin| reason.starts_with(begin))
        });
        return if kept_back {
            SeenPhase::KeptBack
        } else {
            SeenPhase::Waiting
        };
    }
    let worst = |state: &&State| matches!(state, State::Failed(_));
    let over = states.iter().find(worst).or(states.first());
    let at = parts.iter().filter_map(|part| part.time("EndTime")).max();
    let (exit, outcome) = end(parts, over.copied().unwrap_or(State::Done));
    SeenPhase::Ended {
        run: run(),
        at: at.unwrap_or_default(),
        exit,
        outcome,
    }
}

fn run(parts: &[&Record<'_>], held: &[Vec<OnNode>]) -> Option<Run> {
    let since = parts.iter().filter_map(|part| part.time("StartTime")).min();
    let of_part = |(place, on): (usize, &Vec<OnNode>)| -> Vec<Held> {
        let role = role(parts.len(), place);
        let held = |on: &OnNode| Held {
            role: role.clone(),
            node: on.node.clone(),
            gpus: on.gpus,
            indices: on.indices.clone(),
            cpus: on.cpus,
            memory: on.memory,
        };
        on.iter().map(held).collect()
    };
    let held: Vec<Held> = held.iter().enumerate().flat_map(of_part).collect();
    (!held.is_empty()).then(|| Run {
        since: since.unwrap_or_default(),
        held,
    })
}

/// How it ended: `ExitCode=1:0` is a status and a signal.
fn end(parts: &[&Record<'_>], over: State) -> (Exit, Outcome) {
    let code = |part: &&Record<'_>| {
        let (status, signal) = part.get("ExitCode")?.split_once(':')?;
        Some((status.parse::<i32>().ok()?, signal.parse::<i32>().ok()?))
    };
    let codes = parts.iter().filter_map(code);
    let (status, signal) = codes.max().unwrap_or_default();
    let word = parts[0].get("JobState").unwrap_or_default();
    let evidence = format!("Slurm: {word}");
    let exit = |class: Option<ExitClass>| match (status, signal) {
        (0, 0) => Exit::Signal {
            signal: 15,
            class,
            evidence: evidence.clone(),
        },
        (_, signal @ 1..) => Exit::Signal {
            signal,
            class,
            evidence: evidence.clone(),
        },
        (code, _) => Exit::Code {
            code,
            class,
            evidence: evidence.clone(),
        },
    };
    match over {
        State::Done | State::Pending | State::Active => {
            let exit = Exit::Code {
                code: 0,
                class: None,
                evidence: String::new(),
            };
            (exit, Outcome::Succeeded)
        }
        State::Canceled => (exit(None), Outcome::Canceled),
        State::Failed(Some(ExitClass::Hardware)) => {
            let class = ExitClass::Hardware;
            (Exit::Lost { evidence }, Outcome::Failed { class })
        }
        State::Failed(class) => {
            let ended = exit(class);
            let class = class.unwrap_or(ExitClass::Software);
            (ended, Outcome::Failed { class })
        }
    }
}

/// The tasks of an array that wait, each a job: those that its own limit lets run beside the ones that do, and the others kept
/// back.
fn members(
    job: SeenJob,
    record: &Record<'_>,
    list: &str,
    running: &BTreeMap<&str, usize>,
    picture: &mut Picture,
) {
    let (indices, left) = tasks(list, WAITING_TASKS_MAX);
    let array = record.get("ArrayJobId").unwrap_or_default();
    if left > 0 {
        let told = format!(
            "{left} more tasks of array {array} wait than the {WAITING_TASKS_MAX} that are shown"
        );
        picture.left_out.push(told);
    }
    let at_once = record
        .number::<usize>("ArrayTaskThrottle")
        .filter(|most| *most > 0);
    let running = running.get(array).copied().unwrap_or(0);
    let free = at_once.map_or(usize::MAX, |most| most.saturating_sub(running));
    for (place, index) in indices.into_iter().enumerate() {
        let throttled = place >= free && job.phase == SeenPhase::Waiting;
        picture.jobs.push(SeenJob {
            key: format!("{array}_{index}"),
            phase: if throttled {
                SeenPhase::KeptBack
            } else {
                job.phase.clone()
            },
            reason: if throttled {
                Some("JobArrayTaskLimit".into())
            } else {
                job.reason.clone()
            },
            ..job.clone()
        });
    }
}
