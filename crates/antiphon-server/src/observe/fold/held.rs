//! What runs hold of the nodes, as the books can hold it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_backends::observe::Run;
use antiphon_types::{Allocation, Bytes, GpuAmount, NodeName, TaskAllocation};

use super::Fold;

/// What jobs hold of one node.
#[derive(Default)]
pub(super) struct OnNode {
    gpus: BTreeSet<u32>,
    cpus: u32,
    memory: Bytes,
}

impl OnNode {
    pub(super) fn take(&mut self, task: &TaskAllocation) {
        self.gpus.extend(&task.gpus);
        self.cpus += task.cpus;
        self.memory = self.memory + task.memory;
    }

    pub(super) fn give_back(&mut self, task: &TaskAllocation) {
        self.gpus.retain(|gpu| !task.gpus.contains(gpu));
        self.cpus = self.cpus.saturating_sub(task.cpus);
        self.memory = self.memory.saturating_sub(task.memory);
    }
}

impl Fold<'_> {
    /// What a run holds: a GPU or CPU that two jobs share there is counted once.
    pub(super) fn allocation(&self, run: &Run) -> Allocation {
        let mut tasks = Vec::new();
        let mut of_role: BTreeMap<&str, u32> = BTreeMap::new();
        let mut taken: BTreeMap<NodeName, OnNode> = BTreeMap::new();
        for held in &run.held {
            let name = NodeName(held.node.clone());
            let Some(node) = self.done.state.node(&name) else {
                continue;
            };
            let none = OnNode::default();
            let others = self.held.get(&name).unwrap_or(&none);
            let own = taken.entry(name.clone()).or_default();
            let lost = &node.spec.gpus_lost;
            let is_free = |gpu: &u32| {
                *gpu < node.spec.gpus
                    && !others.gpus.contains(gpu)
                    && !own.gpus.contains(gpu)
                    && !lost.contains(gpu)
            };
            let wanted = usize::try_from(held.gpus).unwrap_or(usize::MAX);
            let named = held.indices.iter().copied().filter(is_free);
            // From the end, where those that are told by number seldom are.
            let any = (0..node.spec.gpus).rev().filter(is_free);
            let mut gpus: BTreeSet<u32> = named.take(wanted).collect();
            for gpu in any {
                if gpus.len() >= wanted {
                    break;
                }
                gpus.insert(gpu);
            }
            let index = of_role.entry(held.role.as_str()).or_default();
            let task = TaskAllocation {
                role: held.role.clone(),
                index: *index,
                node: name,
                gpus: gpus.into_iter().collect(),
                gpu_share: GpuAmount::from_gpus(1),
                cpus: held
                    .cpus
                    .min(node.spec.cpus.saturating_sub(others.cpus + own.cpus)),
                memory: held
                    .memory
                    .min(node.spec.memory.saturating_sub(others.memory + own.memory)),
                scratch: Bytes::ZERO,
                read_bandwidth: Bytes::ZERO,
                sliced: false,
            };
            *index += 1;
            own.take(&task);
            tasks.push(task);
        }
        tasks.into()
    }
}
