//! What the tasks of a shape need: how many, how many GPUs each, how many CPUs and how much memory. Knows nothing of what
//! is free.

use antiphon_types::{Bytes, GpuAmount, Processes, Shape, Tasks};

use crate::capacity::Size;

/// CPUs that a GPU gets where the job does not say, if its node has so many.
pub(crate) const CPUS_PER_GPU: u32 = 8;

const WHOLE: u64 = GpuAmount::from_gpus(1).thousandths();

/// The equal splits of a shape on nodes with so many GPUs, those with the fewest tasks first: tasks, and GPUs of each.
pub(crate) fn splits(
    shape: &Shape,
    gpus_max: u32,
) -> impl Iterator<Item = (u32, GpuAmount)> + use<> {
    let whole = shape.gpus.whole();
    let gpus = whole.unwrap_or(0);
    // Without GPUs, and for a share, there is one split: admission let no share of several tasks pass.
    let single = match (whole, shape.tasks) {
        (None, _) => Some((1, shape.gpus)),
        (Some(0), Tasks::Fewest) => Some((1, GpuAmount::ZERO)),
        (Some(0), Tasks::Exactly(tasks)) => Some((tasks, GpuAmount::ZERO)),
        (Some(_), Tasks::Fewest | Tasks::Exactly(_)) => None,
    };
    let exactly = match (shape.tasks, shape.processes) {
        (Tasks::Exactly(tasks), Processes::PerNode | Processes::PerGpu) => Some(tasks),
        (Tasks::Fewest, Processes::PerGpu) => Some(gpus),
        (Tasks::Fewest, Processes::PerNode) => None,
    };
    let sizes = (1..=gpus.min(gpus_max)).rev();
    let even = move |each: u32| {
        let tasks = gpus / each;
        let wanted = tasks * each == gpus && exactly.is_none_or(|exactly| exactly == tasks);
        wanted.then(|| (tasks, GpuAmount::from_gpus(each)))
    };
    single.into_iter().chain(sizes.filter_map(even))
}

/// CPUs and memory of one task with so many GPUs on a node of this size.
pub(crate) fn needs(shape: &Shape, each: GpuAmount, node: &Size) -> (u32, Bytes) {
    let cpus = shape.cpus.unwrap_or_else(|| cpus_by_default(each, node));
    let memory = shape
        .memory
        .unwrap_or_else(|| Bytes::new(memory_by_default(each, node)));
    (cpus, memory)
}

/// Tasks with so many GPUs that an empty node of a kind holds, at least one: the CPUs and the memory of its usual size may give
/// out before GPUs do.
pub(crate) fn tasks_in_one(shape: &Shape, each: GpuAmount, gpus_max: u32, usual: &Size) -> u32 {
    let (cpus, memory) = needs(shape, each, usual);
    let by_gpus = each.whole().and_then(|gpus| gpus_max.checked_div(gpus));
    let by_cpus = usual.cpus.checked_div(cpus);
    let by_memory = usual.memory.get().checked_div(memory.get());
    let by_memory = by_memory.map(|tasks| u32::try_from(tasks).unwrap_or(u32::MAX));
    let least = [by_gpus, by_cpus, by_memory].into_iter().flatten().min();
    least.unwrap_or(1).max(1)
}

fn memory_by_default(each: GpuAmount, node: &Size) -> u64 {
    let whole = u64::from(node.gpus) * WHOLE;
    let (all, part) = (node.memory.get(), each.thousandths());
    match all.checked_mul(part) {
        Some(product) => product.checked_div(whole).unwrap_or(0),
        // Beyond 256 TiB a node the product needs 128 bits, whose division is slow.
        None => {
            let share = (u128::from(all) * u128::from(part)).checked_div(whole.into());
            u64::try_from(share.unwrap_or(0)).unwrap_or(u64::MAX)
        }
    }
}

fn cpus_by_default(each: GpuAmount, node: &Size) -> u32 {
    if each.is_zero() {
        return node.cpus.min(1);
    }
    let usual = u64::from(CPUS_PER_GPU) * each.thousandths() / WHOLE;
    let part = u64::from(node.cpus) * each.thousandths();
    let part = part.checked_div(u64::from(node.gpus) * WHOLE).unwrap_or(0);
    u32::try_from(usual.min(part)).unwrap_or(u32::MAX)
}

/// CPUs and memory that a node must keep for each GPU that is to stay useful: 8 CPUs, or its own CPUs a GPU where it has
/// fewer, and its memory a GPU as far as the job in question counts memory.
pub(crate) fn needs_of_idle(node: &Size) -> (u32, Bytes) {
    let cpus = node
        .cpus
        .checked_div(node.gpus)
        .unwrap_or(0)
        .min(CPUS_PER_GPU);
    let memory = node
        .memory
        .get()
        .checked_div(u64::from(node.gpus))
        .unwrap_or(0);
    (cpus, Bytes::new(memory))
}
