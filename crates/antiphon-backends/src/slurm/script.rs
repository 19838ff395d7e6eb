//! A launch as Slurm is given it: arguments of `sbatch`, and the batch script. Pure: neither files nor Slurm are touched.
//!
//! One attempt is one Slurm job, pinned to the nodes that the kernel chose. Slurm gives every node of a job the same, so
//! nodes that hold different things are *components* of it (a heterogeneous job). Inside, each role is one `srun` for all
//! nodes on which it holds the same; a job of one task needs none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use antiphon_types::{Bytes, Millis, NodeSpec, TaskAllocation};

use super::SlurmConfig;
use super::names::compress;
use super::queue::Label;
use crate::Launch;

/// Between the end of the last thing antiphon does to a job and Slurm's own limit: that one must never be met first.
const MARGIN: Millis = Millis::from_secs(600);
/// The least that a task gets, where nothing says how much: a shell and its few processes.
const MEMORY_MIN: u64 = 64;

/// Nodes that hold the same, and what runs on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Component {
    /// In the order in which the kernel named them.
    nodes: Vec<String>,
    /// Of each node.
    held: Held,
    steps: Vec<Step>,
}

/// What a job or a step holds of each of its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Held {
    gpus: u32,
    cpus: u32,
    memory_mib: u64,
}

/// The tasks of a role on the nodes of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    role: String,
    /// Of each node.
    tasks: u32,
    /// Of each node, all its tasks together.
    held: Held,
}

/// What a node holds of each role, in the order of the roles.
type OnNode<'a> = Vec<(&'a str, u32, Held)>;

/// Groups a launch into components. `node` finds a node of the allocation.
pub(super) fn components<'a>(
    launch: &Launch,
    node: impl Fn(&TaskAllocation) -> &'a NodeSpec,
) -> Vec<Component> {
    let mut order: Vec<&str> = Vec::new();
    let mut on_node: BTreeMap<&str, OnNode<'_>> = BTreeMap::new();
    for task in launch.allocation.tasks.iter() {
        let name = task.node.0.as_str();
        if !order.contains(&name) {
            order.push(name);
        }
        let held = Held {
            gpus: u32::try_from(task.gpus.len()).unwrap_or(u32::MAX),
            cpus: task.cpus.max(1),
            memory_mib: memory(task, node(task)),
        };
        let roles = on_node.entry(name).or_default();
        match roles.iter_mut().find(|(role, ..)| *role == task.role) {
            Some((_, tasks, sum)) => {
                *tasks += 1;
                *sum = sum.and(held);
            }
            None => roles.push((&task.role, 1, held)),
        }
    }
    let mut components: Vec<(&OnNode<'_>, Vec<String>)> = Vec::new();
    for name in order {
        let roles = &on_node[name];
        match components.iter_mut().find(|(like, _)| *like == roles) {
            Some((_, nodes)) => nodes.push(name.to_owned()),
            None => components.push((roles, vec![name.to_owned()])),
        }
    }
    let component = |(roles, nodes): (&OnNode<'_>, Vec<String>)| Component {
        nodes,
        held: roles
            .iter()
            .fold(Held::default(), |sum, (.., held)| sum.and(*held)),
        steps: roles
            .iter()
            .map(|(role, tasks, held)| Step {
                role: (*role).to_owned(),
                tasks: *tasks,
                held: *held,
            })
            .collect(),
    };
    components.into_iter().map(component).collect()
}

impl Held {
    const fn and(self, other: Self) -> Self {
        Self {
            gpus: self.gpus + other.gpus,
            cpus: self.cpus + other.cpus,
            memory_mib: self.memory_mib + other.memory_mib,
        }
    }
}

/// What a task may use of its node's memory. Where the job does not say, its part of the node's GPUs or CPUs decides:
/// asking for nothing would mean all of it to Slurm, and the next job would wait.
fn memory(task: &TaskAllocation, node: &NodeSpec) -> u64 {
    const MIB: u64 = 1 << 20;
    if task.memory > Bytes::ZERO {
        return task.memory.get().div_ceil(MIB).max(1);
    }
    let part = |held: u64, there: u32| {
        let there = u64::from(there.max(1));
        (node.memory.get() / MIB).saturating_mul(held.min(there)) / there
    };
    let held = u64::try_from(task.gpus.len()).unwrap_or(u64::MAX);
    part(held, node.gpus)
        .max(part(u64::from(task.cpus), node.cpus))
        .max(MEMORY_MIN)
}

/// The arguments of `sbatch`, without the script.
pub(super) fn sbatch(
    config: &SlurmConfig,
    launch: &Launch,
    label: &Label,
    components: &[Component],
    place: &Place<'_>,
) -> Vec<String> {
    let mut arguments = Vec::new();
    for (index, component) in components.iter().enumerate() {
        if index > 0 {
            arguments.push(":".to_owned());
        }
        let mut add = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        if index == 0 {
            add("job-name", &job_name(launch));
            add("comment", &label.to_string());
            add("open-mode", "append");
            add("output", &escaped(place.log));
            // The job's own directory need not be on every node yet when the script starts.
            add("chdir", "/");
            add("export", "ALL");
            arguments.push("--parsable".to_owned());
        }
        let mut add = |option: &str, value: &str| arguments.push(format!("--{option}={value}"));
        for (option, value) in [
            ("account", &config.account),
            ("qos", &config.qos),
            ("reservation", &config.reservation),
        ] {
            if let Some(value) = value {
                add(option, value);
            }
        }
        add("partition", place.partition);
        add("time", &time(launch, place.duration_max));
        let nodes = component.nodes.len();
        add("nodes", &nodes.to_string());
        add("nodelist", &compress(&component.nodes));
        add("ntasks", &nodes.to_string());
        add("ntasks-per-node", "1");
        add("cpus-per-task", &component.held.cpus.to_string());
        add("mem", &format!("{}M", component.held.memory_mib));
        if component.held.gpus > 0 {
            add("gres", &gres(place.gres_type, component.held.gpus));
        }
        // Whether to try again is antiphon's to say: it would be the same attempt twice.
        arguments.push("--no-requeue".to_owned());
    }
    arguments
}

/// What of a launch's place `sbatch` has to know.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) partition: &'a str,
    pub(super) duration_max: Option<Millis>,
    /// As `--gres` names it; empty where it has no name.
    pub(super) gres_type: &'a str,
    /// The file that takes what the script itself says.
    pub(super) log: &'a Path,
}

/// The name under which an attempt stands in `squeue`.
pub(super) fn job_name(launch: &Launch) -> String {
    format!("{}-{}", launch.attempt.job, launch.attempt.number)
}

/// The batch script. `supervisor` is followed by the attempt's directory and the role.
pub(super) fn batch(
    supervisor: &[String],
    directory: &Path,
    gres_type: &str,
    components: &[Component],
) -> String {
    let directory = quote(&directory.to_string_lossy());
    let mut supervisors = String::new();
    for word in supervisor {
        let _ = write!(supervisors, "{} ", quote(word));
    }
    let command = |role: &str| format!("{supervisors}{directory} {}", quote(role));
    let mut script = "#!/bin/sh\n# Written by antiphon.\n".to_owned();
    if let [component] = components
        && let [step] = component.steps.as_slice()
        && component.nodes.len() == 1
        && step.tasks == 1
    {
        let _ = writeln!(script, "exec {}", command(&step.role));
        return script;
    }
    for (index, component) in components.iter().enumerate() {
        for step in &component.steps {
            let Held {
                gpus,
                cpus,
                memory_mib,
            } = step.held;
            let nodes = component.nodes.len();
            let all = u64::from(step.tasks) * u64::try_from(nodes).unwrap_or(u64::MAX);
            let gres = match gpus {
                0 => "none".to_owned(),
                gpus => gres(gres_type, gpus),
            };
            // `--exact`: roles on one node share what the job holds there, and none takes all.
            let _ = write!(
                script,
                "srun --exact --kill-on-bad-exit=0 --wait=0 --input=none --nodes={nodes} --nodelist={} --ntasks={all} \
                 --ntasks-per-node={} --cpus-per-task={} --mem={memory_mib}M --gres={} ",
                quote(&compress(&component.nodes)),
                step.tasks,
                cpus / step.tasks.max(1),
                quote(&gres),
            );
            if components.len() > 1 {
                let _ = write!(script, "--het-group={index} ");
            }
            let _ = writeln!(script, "{} &", command(&step.role));
        }
    }
    script.push_str("wait\n");
    script
}

fn gres(kind: &str, count: u32) -> String {
    match kind {
        "" => format!("gpu:{count}"),
        kind => format!("gpu:{kind}:{count}"),
    }
}

/// Slurm's time limit: later than antiphon's own, which stops a job with its grace, and not above the partition's.
fn time(launch: &Launch, most: Option<Millis>) -> String {
    let own = launch
        .spec
        .time_limit
        .map(|limit| limit + launch.spec.grace + MARGIN);
    let limit = match (own, most) {
        (Some(own), Some(most)) => Some(own.min(most)),
        (own, most) => own.or(most),
    };
    limit.map_or_else(
        || "UNLIMITED".to_owned(),
        |limit| limit.as_millis().div_ceil(60_000).to_string(),
    )
}

/// A word that a shell reads back as it is, whatever is in it.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path in which Slurm replaces nothing: it reads `%j` and the like as its own.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%%")
}

#[cfg(test)]
mod tests;
