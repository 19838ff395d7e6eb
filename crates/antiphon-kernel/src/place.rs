//! Places a gang: every role whole on the fewest nodes, or nothing. Chooses nodes and GPUs, never which job comes first.

use std::cmp::Reverse;

use antiphon_types::{
    Allocation, GpuAmount, JobSpec, NodeName, NodeSpec, Processes, Role, Shape, TaskAllocation,
    Tasks,
};

use crate::capacity::{Capacity, Free};

/// Where a job would run on what `capacity` has free; nothing if it does not fit whole.
#[must_use]
pub fn place(capacity: &Capacity<'_>, spec: &JobSpec) -> Option<Allocation> {
    let mut trial = capacity.clone();
    let mut allocation = Allocation::default();
    for role in &spec.roles {
        let placed = Allocation {
            tasks: place_role(&trial, role)?,
        };
        trial.take(&placed);
        allocation.tasks.extend(placed.tasks);
    }
    Some(allocation)
}

/// The equal splits of a shape, those with the fewest tasks first: number of tasks and GPUs of each.
fn splits(shape: &Shape) -> Vec<(u32, GpuAmount)> {
    let Some(gpus) = shape.gpus.whole() else {
        // A share of one GPU: admission let no other fraction pass.
        return vec![(1, shape.gpus)];
    };
    let even = |tasks: u32| {
        gpus.is_multiple_of(tasks)
            .then(|| (tasks, GpuAmount::from_gpus(gpus / tasks)))
    };
    match (shape.processes, shape.tasks) {
        (_, Tasks::Exactly(tasks)) => even(tasks).into_iter().collect(),
        (_, Tasks::Fewest) if gpus == 0 => vec![(1, GpuAmount::ZERO)],
        (Processes::PerGpu, Tasks::Fewest) => vec![(gpus, GpuAmount::from_gpus(1))],
        (Processes::PerNode, Tasks::Fewest) => (1..=gpus).filter_map(even).collect(),
    }
}

fn place_role(capacity: &Capacity<'_>, role: &Role) -> Option<Vec<TaskAllocation>> {
    splits(&role.shape)
        .into_iter()
        .find_map(|(tasks, gpus)| pack(capacity, role, tasks, gpus))
}

/// Puts `tasks` equal tasks on the fewest nodes: the widest nodes first, and for the rest the node that it fills best.
fn pack(
    capacity: &Capacity<'_>,
    role: &Role,
    tasks: u32,
    gpus: GpuAmount,
) -> Option<Vec<TaskAllocation>> {
    let mut nodes: Vec<Room<'_>> = capacity
        .nodes
        .iter()
        .filter_map(|(name, (spec, free))| room(name, spec, free, &role.shape, gpus))
        .collect();
    let mut placed = Vec::new();
    let mut left = tasks;
    while left > 0 {
        let fits_rest = nodes
            .iter()
            .filter(|room| room.tasks >= left)
            .min_by_key(|room| room.spare);
        let chosen = fits_rest
            .or_else(|| {
                nodes
                    .iter()
                    .max_by_key(|room| (room.tasks, Reverse(room.name)))
            })?
            .name;
        let position = nodes.iter().position(|room| room.name == chosen)?;
        let room = nodes.swap_remove(position);
        let mut free = room.free.clone();
        for _ in 0..room.tasks.min(left) {
            let index = tasks - left;
            let task = cut(&mut free, room.name, role, index, gpus);
            placed.push(task);
            left -= 1;
        }
    }
    Some(placed)
}

/// A node with room for at least one task.
struct Room<'a> {
    name: &'a NodeName,
    free: &'a Free,
    /// How many tasks fit.
    tasks: u32,
    /// What decides between nodes that would do, smallest first: GPUs free (so that large holes stay whole), CPUs used.
    spare: (GpuAmount, u32, &'a NodeName),
}

fn room<'a>(
    name: &'a NodeName,
    spec: &NodeSpec,
    free: &'a Free,
    shape: &Shape,
    gpus: GpuAmount,
) -> Option<Room<'a>> {
    if !gpus.is_zero()
        && shape
            .gpu_type
            .as_ref()
            .is_some_and(|wanted| *wanted != spec.gpu_type)
    {
        return None;
    }
    let by_gpus = match gpus.whole() {
        Some(0) => u32::MAX,
        Some(count) => u32::try_from(free.whole_gpus().count()).expect("few GPUs") / count,
        None => u32::from(free.gpus.iter().any(|free| *free >= gpus)),
    };
    let by_cpus = free.cpus.checked_div(shape.cpus).unwrap_or(u32::MAX);
    let by_memory = free
        .memory
        .get()
        .checked_div(shape.memory.get())
        .unwrap_or(u64::MAX);
    let tasks = by_gpus
        .min(by_cpus)
        .min(u32::try_from(by_memory).unwrap_or(u32::MAX));
    let gpus_kept = if gpus.is_zero() {
        GpuAmount::from_gpus(spec.gpus)
    } else {
        free.gpu_amount()
    };
    (tasks > 0).then_some(Room {
        name,
        free,
        tasks,
        spare: (gpus_kept, spec.cpus - free.cpus, name),
    })
}

/// Cuts one task out of a node's free GPUs.
fn cut(
    free: &mut Free,
    node: &NodeName,
    role: &Role,
    index: u32,
    gpus: GpuAmount,
) -> TaskAllocation {
    let (indices, gpu_share) = match gpus.whole() {
        Some(count) => {
            let count = usize::try_from(count).expect("few GPUs");
            (
                free.whole_gpus().take(count).collect(),
                GpuAmount::from_gpus(1),
            )
        }
        // A share goes to the GPU that it fills best, so that whole ones stay whole.
        None => {
            let best = (0u32..)
                .zip(&free.gpus)
                .filter(|(_, left)| **left >= gpus)
                .min_by_key(|(_, left)| **left);
            (vec![best.expect("the room was counted").0], gpus)
        }
    };
    let task = TaskAllocation {
        role: role.name.clone(),
        index,
        node: node.clone(),
        gpus: indices,
        gpu_share,
        cpus: role.shape.cpus,
        memory: role.shape.memory,
    };
    free.take(&task);
    task
}
