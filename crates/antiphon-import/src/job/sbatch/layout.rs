//! From what a batch script asks for, in Slurm's nodes and tasks, to a shape: how many GPUs, split into how many tasks.

use super::super::error::{JobError, JobProblem};
use super::super::form::{Gpus, Resources};
use super::super::quantity::mebibytes;
use super::script::Uses;
use crate::place::Place;
use crate::warning::Warning;

/// A number, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) place: Place,
    pub(super) written: String,
}

/// What a component asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct Ask {
    /// Fewest and most.
    pub(super) nodes: Option<At<(u64, u64)>>,
    pub(super) tasks: Option<At<u64>>,
    pub(super) tasks_per_node: Option<At<u64>>,
    pub(super) tasks_per_gpu: Option<At<u64>>,
    pub(super) gpus: Option<At<u64>>,
    pub(super) gpus_per_node: Option<At<u64>>,
    pub(super) gpus_per_task: Option<At<u64>>,
    pub(super) gpu_type: Option<String>,
    pub(super) cpus_per_task: Option<u64>,
    pub(super) cpus_per_gpu: Option<u64>,
    /// Mebibytes.
    pub(super) memory: Option<u64>,
    pub(super) memory_per_cpu: Option<u64>,
    pub(super) memory_per_gpu: Option<u64>,
    pub(super) scratch: Option<u64>,
}

/// A shape, and how Slurm's tasks lie in it.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) resources: Resources,
    /// Tasks of antiphon on a node; 0 where antiphon chooses.
    pub(super) tasks_per_node: u64,
    /// Tasks of Slurm in one of antiphon's.
    pub(super) steps_per_task: u64,
    /// Tasks of Slurm on a node, CPUs of one, and GPUs of a node, for variables.
    pub(super) per_node: u64,
    pub(super) cpus: Option<u64>,
    pub(super) gpus_per_node: u64,
}

/// The shape of a component on so many nodes, or on as few as will do.
pub(super) fn layout(
    ask: &Ask,
    nodes: Option<u64>,
    uses: &Uses,
    warnings: &mut Vec<Warning>,
) -> Result<Layout, JobError> {
    let value = |at: &Option<At<u64>>| at.as_ref().map(|at| at.value);
    let counted = nodes.or_else(|| nodes_of(ask));
    let total = gpus(ask, counted)?;
    let ntasks = match (
        value(&ask.tasks),
        value(&ask.tasks_per_node),
        value(&ask.tasks_per_gpu),
    ) {
        (Some(tasks), _, _) => tasks,
        (None, Some(per_node), _) => per_node.saturating_mul(counted.unwrap_or(1)),
        (None, None, Some(per_gpu)) => per_gpu.saturating_mul(total.max(1)),
        (None, None, None) => counted.unwrap_or(1),
    };
    let ntasks = ntasks.max(counted.unwrap_or(1)).max(1);
    let per_gpu = uses.srun.is_some()
        && total > 1
        && ntasks == total
        && counted.is_none_or(|nodes| ntasks > nodes);
    let tasks = match &uses.srun {
        Some(_) if ntasks > 1 || counted.is_some() => Some(ntasks),
        _ => counted,
    };
    if let Some(tasks) = tasks.filter(|tasks| total > 0 && !total.is_multiple_of(*tasks)) {
        let of = [&ask.tasks, &ask.tasks_per_node, &ask.gpus];
        let nodes = ask
            .nodes
            .as_ref()
            .map(|at| (at.place.clone(), at.written.clone()));
        let first = of
            .into_iter()
            .flatten()
            .next()
            .map(|at| (at.place.clone(), at.written.clone()));
        let (place, option) = first
            .or(nodes)
            .unwrap_or_else(|| (Place::new("", 1), "--gpus".into()));
        return Err(JobProblem::CannotHonor {
            place,
            option,
            why: format!("{total} GPUs cannot be split into {tasks} equal tasks"),
            help: "let one task start several processes (`srun torchrun --nproc-per-node ..`), or choose numbers that divide each other".into(),
        }
        .into());
    }
    if let (None, Some(tasks)) = (&uses.srun, tasks.filter(|tasks| *tasks > 1)) {
        let at = ask
            .nodes
            .as_ref()
            .map(|at| (at.place.clone(), at.written.clone()));
        if let Some((place, option)) = at {
            warnings.push(Warning::Differs {
                place,
                option,
                how: format!("the script runs on each of the {tasks} nodes; Slurm runs it on the first, and no `srun` of it starts tasks on all of them"),
            });
        }
    }
    let count = tasks.unwrap_or(1);
    let nodes = counted.unwrap_or(1).max(1);
    let steps_per_task = (ntasks / count).max(1);
    let gpus_of_task = total / count;
    let tasks_per_node = (count / nodes).max(1);
    let cpus = ask
        .cpus_per_task
        .map(|cpus| cpus.saturating_mul(steps_per_task));
    let cpus = cpus.or(ask
        .cpus_per_gpu
        .map(|cpus| cpus.saturating_mul(gpus_of_task))
        .filter(|cpus| *cpus > 0));
    let memory = ask
        .memory
        .map(|memory| memory / tasks_per_node)
        .or_else(|| {
            Some(
                ask.memory_per_cpu?
                    .saturating_mul(cpus.unwrap_or(steps_per_task)),
            )
        })
        .or_else(|| Some(ask.memory_per_gpu?.saturating_mul(gpus_of_task)))
        .filter(|memory| *memory > 0);
    let resources = Resources {
        gpus: Gpus::whole(total),
        gpu_type: ask.gpu_type.clone().filter(|_| total > 0),
        tasks: tasks.filter(|_| !per_gpu),
        processes: per_gpu.then_some("per-gpu"),
        cpus: cpus.map(|cpus| cpus.min(u64::from(u32::MAX))),
        memory: memory.map(mebibytes),
        scratch: ask.scratch.filter(|size| *size > 0).map(mebibytes),
        ..Resources::default()
    };
    Ok(Layout {
        resources,
        tasks_per_node: if counted.is_some() { tasks_per_node } else { 0 },
        steps_per_task,
        per_node: (ntasks / nodes).max(1),
        cpus: ask.cpus_per_task.or(cpus),
        gpus_per_node: total / nodes,
    })
}

/// How many nodes, where it says so or where that follows; none where Slurm would choose.
fn nodes_of(ask: &Ask) -> Option<u64> {
    let value = |at: &Option<At<u64>>| at.as_ref().map(|at| at.value);
    match (value(&ask.tasks), value(&ask.tasks_per_node)) {
        (Some(tasks), Some(per_node)) if per_node > 0 => return Some(tasks.div_ceil(per_node)),
        (None, Some(_)) => return Some(1),
        (Some(1), None) => return Some(1),
        _ => (),
    }
    match (value(&ask.gpus), value(&ask.gpus_per_node)) {
        (Some(gpus), Some(per_node)) if per_node > 0 => Some(gpus.div_ceil(per_node)),
        (None, Some(_)) => Some(1),
        (Some(_), _) => None,
        // Without GPUs and with one task it is one node.
        (None, None) if ask.tasks.is_none() && ask.gpus_per_task.is_none() => Some(1),
        (None, None) => None,
    }
}

/// All GPUs of a component.
fn gpus(ask: &Ask, nodes: Option<u64>) -> Result<u64, JobError> {
    let per_node = ask
        .gpus_per_node
        .as_ref()
        .map(|at| at.value.saturating_mul(nodes.unwrap_or(1)));
    let tasks = match (&ask.tasks, &ask.tasks_per_node) {
        (Some(at), _) => at.value,
        (None, Some(at)) => at.value.saturating_mul(nodes.unwrap_or(1)),
        (None, None) => nodes.unwrap_or(1),
    };
    let per_task = ask
        .gpus_per_task
        .as_ref()
        .map(|at| at.value.saturating_mul(tasks));
    let counts = [
        (ask.gpus.as_ref(), ask.gpus.as_ref().map(|at| at.value)),
        (ask.gpus_per_node.as_ref(), per_node),
        (ask.gpus_per_task.as_ref(), per_task),
    ];
    let mut said: Vec<(&At<u64>, u64)> = counts
        .into_iter()
        .filter_map(|(at, count)| Some((at?, count?)))
        .collect();
    let Some((first, count)) = said.first().map(|(at, count)| (*at, *count)) else {
        let per_gpu = ask.tasks_per_gpu.as_ref().map(|at| at.value);
        return Ok(per_gpu
            .and_then(|per_gpu| tasks.checked_div(per_gpu))
            .unwrap_or(0));
    };
    said.retain(|(_, other)| *other != count);
    if let Some((other, also)) = said.first() {
        return Err(JobProblem::Contradiction {
            place: other.place.clone(),
            option: other.written.clone(),
            other: format!("`{}` (line {})", first.written, first.place.line),
            why: format!("they come to {also} and to {count} GPUs"),
        }
        .into());
    }
    Ok(count)
}
