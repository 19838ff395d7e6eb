//! Whether a gang of one role fits, counted without the kernel's own placement: a second opinion on preemptions.

use std::collections::BTreeMap;

use antiphon_kernel::{Free, State};
use antiphon_types::{Allocation, GpuAmount, JobSpec, NodeName, NodeState, Processes, Tasks};

/// Whether the job fits on the nodes that take tasks, once `freed` has been given back and `taken` has been taken.
/// Nothing where it has several roles, whose order matters.
pub(crate) fn fits(
    state: &State,
    spec: &JobSpec,
    freed: &[&Allocation],
    taken: &[&Allocation],
) -> Option<bool> {
    let [role] = &spec.roles[..] else {
        return None;
    };
    let mut free: BTreeMap<&NodeName, Free> = BTreeMap::new();
    for (name, node) in state.nodes() {
        let right_type = role
            .shape
            .gpu_type
            .as_ref()
            .is_none_or(|wanted| *wanted == node.spec.gpu_type);
        if node.state == NodeState::Ready && (right_type || role.shape.gpus.is_zero()) {
            free.insert(name, node.free.clone());
        }
    }
    for (allocations, given_back) in [(freed, true), (taken, false)] {
        for task in allocations.iter().flat_map(|held| &held.tasks) {
            let Some(free) = free.get_mut(&task.node) else {
                continue;
            };
            for gpu in &task.gpus {
                let left = &mut free.gpus[*gpu as usize];
                *left = if given_back {
                    *left + task.gpu_share
                } else {
                    *left - task.gpu_share
                };
            }
            if given_back {
                free.cpus += task.cpus;
            } else {
                free.cpus -= task.cpus;
            }
        }
    }
    let shape = &role.shape;
    let splits: Vec<(u32, GpuAmount)> = match (shape.gpus.whole(), shape.tasks) {
        (None, _) => vec![(1, shape.gpus)],
        (Some(gpus), Tasks::Exactly(tasks)) => vec![(tasks, GpuAmount::from_gpus(gpus / tasks))],
        (Some(0), Tasks::Fewest) => vec![(1, GpuAmount::ZERO)],
        (Some(gpus), Tasks::Fewest) if shape.processes == Processes::PerGpu => {
            vec![(gpus, GpuAmount::from_gpus(1))]
        }
        (Some(gpus), Tasks::Fewest) => (1..=gpus)
            .filter(|tasks| gpus % tasks == 0)
            .map(|tasks| (tasks, GpuAmount::from_gpus(gpus / tasks)))
            .collect(),
    };
    let whole = GpuAmount::from_gpus(1);
    Some(splits.into_iter().any(|(tasks, each)| {
        let room = |free: &Free| {
            let unused = free.gpus.iter().filter(|left| **left == whole).count() as u32;
            let by_gpus = match each.whole() {
                Some(0) => tasks,
                Some(each) => unused / each,
                None => u32::from(free.gpus.iter().any(|left| *left >= each)),
            };
            by_gpus.min(free.cpus.checked_div(shape.cpus).unwrap_or(tasks))
        };
        free.values().map(room).sum::<u32>() >= tasks
    }))
}
