//! What is free, node by node: the ledger of GPUs, CPUs and memory. A trial is a copy; dropping it is the undo.

use std::collections::BTreeMap;

use antiphon_types::{Allocation, Bytes, GpuAmount, NodeName, NodeSpec, NodeState, TaskAllocation};
use serde::{Deserialize, Serialize};

use crate::state::{Node, State};

const WHOLE: GpuAmount = GpuAmount::from_gpus(1);

/// What no attempt holds of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Free {
    /// By GPU index.
    pub gpus: Vec<GpuAmount>,
    /// CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
}

impl Free {
    /// Everything of a node.
    #[must_use]
    pub fn all(spec: &NodeSpec) -> Self {
        let gpus = (0..spec.gpus).map(|_| WHOLE).collect();
        Self {
            gpus,
            cpus: spec.cpus,
            memory: spec.memory,
        }
    }

    /// Indices of GPUs of which nothing is held.
    pub fn whole_gpus(&self) -> impl Iterator<Item = u32> {
        (0u32..)
            .zip(&self.gpus)
            .filter(|(_, free)| **free == WHOLE)
            .map(|(index, _)| index)
    }

    /// What is free of all GPUs together.
    #[must_use]
    pub fn gpu_amount(&self) -> GpuAmount {
        self.gpus.iter().copied().sum()
    }

    /// What a task would hold and is not free, in words; nothing where it fits.
    pub(crate) fn shortage(&self, task: &TaskAllocation) -> Option<String> {
        let taken = |gpu: &&u32| {
            let index = usize::try_from(**gpu).expect("a GPU index fits");
            self.gpus
                .get(index)
                .is_none_or(|left| *left < task.gpu_share)
        };
        if let Some(gpu) = task.gpus.iter().find(taken) {
            return Some(format!("GPU {gpu} of {}", task.node));
        }
        let full = self.cpus < task.cpus || self.memory < task.memory;
        full.then(|| format!("CPUs or memory of {}", task.node))
    }

    /// Takes what a task holds.
    ///
    /// # Panics
    /// Where something of it is not free: no GPU is ever held twice.
    pub(crate) fn take(&mut self, task: &TaskAllocation) {
        for &gpu in &task.gpus {
            let free = self.gpu_mut(task, gpu);
            assert!(
                *free >= task.gpu_share,
                "GPU {gpu} of {} is held twice",
                task.node
            );
            *free = *free - task.gpu_share;
        }
        self.cpus = self
            .cpus
            .checked_sub(task.cpus)
            .expect("no CPU is held twice");
        self.memory = self.memory - task.memory;
    }

    /// Gives back what a task held.
    ///
    /// # Panics
    /// Where more comes back than the GPU has.
    pub(crate) fn give_back(&mut self, task: &TaskAllocation) {
        for &gpu in &task.gpus {
            let free = self.gpu_mut(task, gpu);
            *free = *free + task.gpu_share;
            assert!(
                *free <= WHOLE,
                "GPU {gpu} of {} is given back twice",
                task.node
            );
        }
        self.cpus += task.cpus;
        self.memory = self.memory + task.memory;
    }

    fn gpu_mut(&mut self, task: &TaskAllocation, gpu: u32) -> &mut GpuAmount {
        let index = usize::try_from(gpu).expect("a GPU index fits");
        assert!(index < self.gpus.len(), "{} has no GPU {gpu}", task.node);
        &mut self.gpus[index]
    }
}

/// A copy of what is free on the nodes that take tasks, to try placements on.
#[derive(Debug, Clone)]
pub struct Capacity<'a> {
    pub(crate) nodes: BTreeMap<&'a NodeName, (&'a NodeSpec, Free)>,
}

impl<'a> Capacity<'a> {
    /// What is free now.
    #[must_use]
    pub fn free(state: &'a State) -> Self {
        Self::of(
            state,
            |node| node.state == NodeState::Ready,
            |node| node.free.clone(),
        )
    }

    /// What would be free if nothing ran, drained nodes included: what can exist at all.
    #[must_use]
    pub fn total(state: &'a State) -> Self {
        let offered = |node: &Node| !matches!(node.state, NodeState::Down { .. });
        Self::of(state, offered, |node| Free::all(&node.spec))
    }

    fn of(
        state: &'a State,
        takes_tasks: impl Fn(&Node) -> bool,
        free: impl Fn(&Node) -> Free,
    ) -> Self {
        let nodes = state
            .nodes
            .iter()
            .filter(|(_, node)| takes_tasks(node))
            .map(|(name, node)| (name, (&node.spec, free(node))))
            .collect();
        Self { nodes }
    }

    /// Takes an allocation out; parts on nodes that take no tasks are not in it.
    pub(crate) fn take(&mut self, allocation: &Allocation) {
        for task in &allocation.tasks {
            if let Some((_, free)) = self.nodes.get_mut(&task.node) {
                free.take(task);
            }
        }
    }

    /// Puts an allocation back; parts on nodes that take no tasks stay out.
    pub(crate) fn give_back(&mut self, allocation: &Allocation) {
        for task in &allocation.tasks {
            if let Some((_, free)) = self.nodes.get_mut(&task.node) {
                free.give_back(task);
            }
        }
    }
}
