//! Nodes and what attempts hold of them. Holds no topology yet beyond the node itself, and decides nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Bytes, GpuAmount, NodeName};

/// A node as its backend describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Its given name.
    pub name: NodeName,
    /// How many GPUs it has; indices run from 0.
    pub gpus: u32,
    /// Their product name.
    pub gpu_type: String,
    /// Memory of each GPU.
    pub gpu_memory: Bytes,
    /// Whether the GPUs are only counted, not there: for trying antiphon out and for tests.
    pub gpus_virtual: bool,
    /// CPUs that tasks may ask for.
    pub cpus: u32,
    /// Memory that tasks may ask for.
    pub memory: Bytes,
}

/// Whether a node takes tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// Takes tasks.
    Ready,
    /// Takes no new tasks; the ones it has run on.
    Draining {
        /// What the operator wrote.
        reason: String,
    },
    /// Its backend no longer offers it. Tasks on it are not thereby dead.
    Down {
        /// What says so.
        evidence: String,
    },
}

/// Which GPUs, CPUs and memory an attempt holds, task by task in rank order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allocation {
    /// Never empty for a launched attempt.
    pub tasks: Vec<TaskAllocation>,
}

/// What one task holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAllocation {
    /// The role's name.
    pub role: String,
    /// Which task of the role.
    pub index: u32,
    /// Where it runs.
    pub node: NodeName,
    /// Which GPUs of the node, ascending.
    pub gpus: Vec<u32>,
    /// How much of each of them: a whole GPU unless the job asked for a share.
    pub gpu_share: GpuAmount,
    /// CPUs.
    pub cpus: u32,
    /// Memory.
    pub memory: Bytes,
}

impl TaskAllocation {
    /// GPUs held, shares added up.
    #[must_use]
    pub fn gpu_amount(&self) -> GpuAmount {
        self.gpus.iter().map(|_| self.gpu_share).sum()
    }
}

/// GPUs on one node, for printing: `n0[0-3,6]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSlice<'a> {
    /// The node.
    pub node: &'a NodeName,
    /// Its GPUs, ascending.
    pub gpus: Vec<u32>,
}

impl Allocation {
    /// GPUs held, shares added up.
    #[must_use]
    pub fn gpu_amount(&self) -> GpuAmount {
        self.tasks.iter().map(TaskAllocation::gpu_amount).sum()
    }

    /// The allocation by node, in rank order.
    #[must_use]
    pub fn by_node(&self) -> Vec<NodeSlice<'_>> {
        let mut slices: Vec<NodeSlice<'_>> = Vec::new();
        for task in &self.tasks {
            match slices.iter_mut().find(|slice| *slice.node == task.node) {
                Some(slice) => slice.gpus.extend(&task.gpus),
                None => slices.push(NodeSlice {
                    node: &task.node,
                    gpus: task.gpus.clone(),
                }),
            }
        }
        for slice in &mut slices {
            slice.gpus.sort_unstable();
            slice.gpus.dedup();
        }
        slices
    }
}

impl fmt::Display for NodeSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)?;
        let mut gpus = self.gpus.iter().copied().peekable();
        let mut separator = "[";
        while let Some(first) = gpus.next() {
            let mut last = first;
            while gpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        if self.gpus.is_empty() {
            Ok(())
        } else {
            f.write_str("]")
        }
    }
}

impl fmt::Display for Allocation {
    /// `n0[0-7] n1[0-3]`; nodes without GPUs by name alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slice) in self.by_node().iter().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            slice.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_print_as_node_and_gpu_ranges() {
        let task = |index, node: &str, gpus: &[u32]| TaskAllocation {
            role: "trainer".into(),
            index,
            node: node.into(),
            gpus: gpus.to_vec(),
            gpu_share: GpuAmount::from_gpus(1),
            cpus: 0,
            memory: Bytes::ZERO,
        };
        let allocation = Allocation {
            tasks: vec![
                task(0, "n0", &[0, 1, 2, 5]),
                task(1, "n1", &[3]),
                task(2, "n2", &[]),
            ],
        };
        assert_eq!(allocation.to_string(), "n0[0-2,5] n1[3] n2");
        assert_eq!(allocation.gpu_amount(), GpuAmount::from_gpus(5));
    }
}
