//! What no attempt holds of one node: GPUs, shares of GPUs, slices, CPUs, memory, storage. Does not know whether the node
//! takes tasks.

use antiphon_types::{Bytes, GpuAmount, TaskAllocation};

use super::floor::{Stand, lowest};
use super::{NodeId, at};

const WHOLE: GpuAmount = GpuAmount::from_gpus(1);

/// What is free of a node. Lost and cut GPUs have their bits here too, so that the books of whoever still holds them agree;
/// [`Stand::offered`] keeps them from being handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    /// GPUs of which nothing is held.
    pub(crate) whole: u64,
    /// MIG slices that nobody holds.
    pub(crate) slices: u64,
    /// CPUs.
    pub(crate) cpus: u32,
    /// Memory.
    pub(crate) memory: Bytes,
    /// Fast local storage.
    pub(crate) scratch: Bytes,
    /// What it can still read from shared storage a second.
    pub(crate) read_bandwidth: Bytes,
}

/// A GPU of which a share is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// The node.
    pub(crate) node: NodeId,
    /// The GPU.
    pub(crate) gpu: u32,
    /// What is left of it, more than nothing unless its shares fill it, and less than the whole.
    pub(crate) free: GpuAmount,
}

impl Room {
    /// Everything of a node.
    pub(super) const fn all(stand: &Stand) -> Self {
        Self {
            whole: lowest(stand.size.gpus),
            slices: stand.slices_offered,
            cpus: stand.size.cpus,
            memory: stand.size.memory,
            scratch: stand.scratch,
            read_bandwidth: stand.read_bandwidth,
        }
    }

    /// How many GPUs could be handed out whole.
    pub(crate) const fn free(&self, stand: &Stand) -> u32 {
        (self.whole & stand.offered).count_ones()
    }
}

/// What a task would hold and is not free, in words; nothing where it fits. `gpus` are those that count as there.
pub(super) fn shortage(
    room: &Room,
    stand: &Stand,
    parts: &[Part],
    node: NodeId,
    task: &TaskAllocation,
    gpus: u64,
) -> Option<String> {
    let free = |gpu: u32| match mask(gpu) {
        // A slice of a lost GPU is offered to nobody, and stays with whoever held it before.
        Some(bit) if task.sliced => {
            room.slices & bit != 0 || gpus == u64::MAX && stand.slices_offered & bit == 0
        }
        Some(bit) if bit & gpus == 0 => false,
        Some(bit) if room.whole & bit != 0 => true,
        Some(_) => part(parts, node, gpu).is_ok_and(|found| parts[found].free >= task.gpu_share),
        None => false,
    };
    if let Some(gpu) = task.gpus.iter().find(|gpu| !free(**gpu)) {
        let what = if task.sliced { "slice" } else { "GPU" };
        return Some(format!("{what} {gpu} of {}", task.node));
    }
    let short = |what: &str, asked: &dyn std::fmt::Display, left: &dyn std::fmt::Display| {
        Some(format!(
            "{what} of {}: {asked} asked, {left} left",
            task.node
        ))
    };
    if room.cpus < task.cpus {
        short("CPUs", &task.cpus, &room.cpus)
    } else if room.memory < task.memory {
        short("memory", &task.memory, &room.memory)
    } else if room.scratch < task.scratch {
        short("scratch", &task.scratch, &room.scratch)
    } else if stand.counts_reads() && room.read_bandwidth < task.read_bandwidth {
        short("read bandwidth", &task.read_bandwidth, &room.read_bandwidth)
    } else {
        None
    }
}

/// Takes what a task holds.
pub(super) fn take(
    room: &mut Room,
    stand: &Stand,
    parts: &mut Vec<Part>,
    node: NodeId,
    task: &TaskAllocation,
) {
    if let Some(what) = shortage(room, stand, parts, node, task, u64::MAX) {
        panic!("{what} is held twice");
    }
    for &gpu in &task.gpus {
        let bit = 1 << gpu;
        if task.sliced {
            room.slices &= !bit;
        } else if room.whole & bit == 0 {
            let found = part(parts, node, gpu).expect("the shortage saw it");
            parts[found].free = parts[found].free - task.gpu_share;
        } else {
            room.whole &= !bit;
            if task.gpu_share < WHOLE {
                let found = part(parts, node, gpu).expect_err("a whole GPU has no shares");
                let free = WHOLE - task.gpu_share;
                parts.insert(found, Part { node, gpu, free });
            }
        }
    }
    room.cpus -= task.cpus;
    room.memory = room.memory - task.memory;
    room.scratch = room.scratch - task.scratch;
    if stand.counts_reads() {
        room.read_bandwidth = room.read_bandwidth - task.read_bandwidth;
    }
}

/// Gives back what a task held.
pub(super) fn give_back(
    room: &mut Room,
    stand: &Stand,
    parts: &mut Vec<Part>,
    node: NodeId,
    task: &TaskAllocation,
) {
    let name = &task.node;
    for &gpu in &task.gpus {
        let bit = mask(gpu).unwrap_or(0);
        if task.sliced {
            assert!(at(gpu) < stand.slices.len(), "{name} has no slice {gpu}");
            assert!(
                room.slices & bit == 0,
                "slice {gpu} of {name} is given back twice"
            );
            // A slice of a lost GPU stays out.
            room.slices |= bit & stand.slices_offered;
            continue;
        }
        assert!(gpu < stand.size.gpus, "{name} has no GPU {gpu}");
        assert!(
            room.whole & bit == 0,
            "GPU {gpu} of {name} is given back twice"
        );
        match part(parts, node, gpu) {
            Ok(found) => {
                let free = parts[found].free + task.gpu_share;
                assert!(
                    free <= WHOLE,
                    "GPU {gpu} of {name} is given back twice: {free} free"
                );
                parts[found].free = free;
                if free == WHOLE {
                    parts.remove(found);
                    room.whole |= bit;
                }
            }
            Err(_) => {
                let share = task.gpu_share;
                assert!(
                    share == WHOLE,
                    "{share} of GPU {gpu} of {name} comes back: it was held whole"
                );
                room.whole |= bit;
            }
        }
    }
    room.cpus += task.cpus;
    room.memory = room.memory + task.memory;
    room.scratch = room.scratch + task.scratch;
    if stand.counts_reads() {
        room.read_bandwidth = room.read_bandwidth + task.read_bandwidth;
    }
    let over = room.cpus > stand.size.cpus
        || room.memory > stand.size.memory
        || room.scratch > stand.scratch
        || room.read_bandwidth > stand.read_bandwidth;
    assert!(!over, "{name} gets back more than it has: {room:?}");
}

/// Where the shares of a GPU stand, or would stand.
fn part(parts: &[Part], node: NodeId, gpu: u32) -> Result<usize, usize> {
    parts.binary_search_by_key(&(node, gpu), |part| (part.node, part.gpu))
}

const fn mask(gpu: u32) -> Option<u64> {
    1u64.checked_shl(gpu)
}
