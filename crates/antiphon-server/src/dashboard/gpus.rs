//! What every GPU does: worked on, held back, idle, drained or down. Counted from what attempts hold and how nodes stand.

use std::collections::BTreeMap;

use antiphon_kernel::{Node, State};
use antiphon_types::{GpuAmount, JobId, NodeName, NodeState};
use serde::Serialize;

/// GPUs by what they do, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) total: u64,
    /// Held by attempts.
    pub(super) busy: u64,
    /// Held back for a job that waits.
    pub(super) held: u64,
    pub(super) idle: u64,
    /// Free, on nodes that take no tasks.
    pub(super) drained: u64,
    /// Free, on nodes that are not there, or broken.
    pub(super) down: u64,
}

impl Count {
    pub(super) fn add(&mut self, other: Self) {
        self.total += other.total;
        self.busy += other.busy;
        self.held += other.held;
        self.idle += other.idle;
        self.drained += other.drained;
        self.down += other.down;
    }
}

/// What one task holds of one GPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    pub(super) gpu: u32,
    pub(super) job: JobId,
    pub(super) share: GpuAmount,
}

/// Who holds what, by node.
pub(super) fn holders(state: &State) -> BTreeMap<&NodeName, Vec<Holder>> {
    let mut holders: BTreeMap<&NodeName, Vec<Holder>> = BTreeMap::new();
    for job in state.active_jobs() {
        let Some(active) = job.state.active() else {
            continue;
        };
        for task in active.allocation.tasks.iter() {
            let spec = state.node(&task.node).map(|node| &node.spec);
            let on_node = holders.entry(&task.node).or_default();
            on_node.extend(task.gpus.iter().map(|&index| {
                let slice = spec
                    .filter(|_| task.sliced)
                    .and_then(|spec| spec.slices.get(usize::try_from(index).ok()?));
                Holder {
                    gpu: slice.map_or(index, |slice| slice.gpu),
                    job: job.id,
                    share: slice.map_or(task.gpu_share, |slice| slice.amount),
                }
            }));
        }
    }
    holders
}

/// What the GPUs of a node do.
pub(super) fn count(state: &State, node: &Node, holders: &[Holder]) -> Count {
    let total = GpuAmount::from_gpus(node.spec.gpus).thousandths();
    let busy: u64 = holders
        .iter()
        .map(|holder| holder.share.thousandths())
        .sum();
    let busy = busy.min(total);
    let lost = u64::try_from(node.spec.gpus_lost.len()).unwrap_or(0) * 1_000;
    let lost = lost.min(total - busy);
    let free = total - busy - lost;
    let mut count = Count {
        total,
        busy,
        down: lost,
        ..Count::default()
    };
    match &node.state {
        NodeState::Down { .. } => count.down += free,
        NodeState::Draining { .. } => count.drained = free,
        NodeState::Ready if state.held_for(&node.spec.name).is_some() => count.held = free,
        NodeState::Ready => count.idle = free,
    }
    count
}

/// What all GPUs do, by type.
pub(super) fn by_type(state: &State) -> BTreeMap<&str, Count> {
    let holders = holders(state);
    let mut types: BTreeMap<&str, Count> = BTreeMap::new();
    for node in state.nodes().filter(|node| node.spec.gpus > 0) {
        let of_node = holders.get(&node.spec.name).map_or(&[][..], Vec::as_slice);
        let sum = types.entry(&node.spec.gpu_type).or_default();
        sum.add(count(state, node, of_node));
    }
    types
}
