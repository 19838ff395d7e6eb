//! Nodes, partitions, where they stand in the network, and what attempts hold of them. Decides nothing.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Bytes, GpuAmount, Millis, NodeName, Timestamp, UsdMicros};

/// GPUs of one node: as many as one machine word tells apart, far more than any node has.
pub const GPUS_PER_NODE_MAX: u32 = 64;

/// A node as its backend describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// Fast local storage that tasks may ask for.
    #[serde(default)]
    pub scratch: Bytes,
    /// What it reads from shared storage a second; zero where nobody said.
    #[serde(default)]
    pub read_bandwidth: Bytes,
    /// The partition that it belongs to; empty where there is only one.
    #[serde(default)]
    pub partition: String,
    /// Where it stands in the network.
    #[serde(default)]
    pub location: Location,
    /// How its GPUs lie to each other.
    #[serde(default)]
    pub layout: GpuLayout,
    /// MIG slices. A GPU that is cut into slices is not handed out whole.
    #[serde(default)]
    pub slices: Vec<Slice>,
    /// GPUs that are broken: the node goes on without them.
    #[serde(default)]
    pub gpus_lost: Vec<u32>,
    /// Whether it steps in only for a node of its partition that is out of service.
    #[serde(default)]
    pub spare: bool,
}

/// Where a node stands in the network, level by level. A level without a name says nothing: the node then shares the
/// level above it with all that have none either.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Location {
    /// The spine switch.
    pub spine: String,
    /// The leaf switch.
    pub leaf: String,
    /// The NVLink domain, where it spans nodes (GB200 NVL72). Without a name the node's own GPUs are one.
    pub nvlink_domain: String,
}

/// How a node's GPUs lie to each other: equal groups in index order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuLayout {
    /// GPUs under one PCIe switch; 0 where nobody said.
    pub gpus_per_switch: u32,
    /// GPUs of one NUMA node; 0 where nobody said.
    pub gpus_per_numa: u32,
}

/// A MIG slice: a part of one GPU that only one job holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// The GPU that it is cut from.
    pub gpu: u32,
    /// Its profile, which jobs name as their GPU type: `1g.10gb`.
    pub profile: String,
    /// What part of the GPU it is.
    pub amount: GpuAmount,
    /// Its memory.
    #[serde(default)]
    pub memory: Bytes,
    /// What `CUDA_VISIBLE_DEVICES` calls it.
    #[serde(default)]
    pub device: String,
}

/// A configured set of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionSpec {
    /// Its name.
    pub name: String,
    /// What a GPU costs an hour.
    pub price_per_gpu_hour: UsdMicros,
    /// What the network carries between two of its nodes, in Gbit/s; 0 where nobody said.
    pub interconnect_gbps: u32,
    /// The longest that an attempt may run there.
    pub duration_max: Option<Millis>,
    /// Whether its nodes may be taken away at short notice.
    pub preemptible: bool,
}

/// A smallest level of the network that holds a placement.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Span {
    /// One node.
    Node,
    /// GPUs joined by NVLink.
    NvlinkDomain,
    /// Nodes under one leaf switch.
    Leaf,
    /// Leaves under one spine.
    Spine,
    /// Anywhere in one partition.
    #[default]
    Cluster,
}

impl Span {
    /// Every span, the smallest first.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::NvlinkDomain,
        Self::Leaf,
        Self::Spine,
        Self::Cluster,
    ];

    /// The name as it stands in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::NvlinkDomain => "nvlink-domain",
            Self::Leaf => "leaf",
            Self::Spine => "spine",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A planned time in which nodes take no tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    /// The nodes.
    pub nodes: Vec<NodeName>,
    /// From then on nothing runs there.
    pub from: Timestamp,
    /// From then on tasks run there again.
    pub until: Timestamp,
    /// What the operator wrote.
    pub reason: String,
}

/// A word that a node, or some of its GPUs, is to be given back soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The node.
    pub node: NodeName,
    /// How many of its GPUs; all of the node without a number.
    pub gpus: Option<u32>,
    /// How long what runs there may stay.
    pub within: Millis,
    /// Who wants it.
    pub cause: NoticeCause,
    /// What the operator wrote.
    pub reason: String,
}

/// Why a node or some of its GPUs are to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoticeCause {
    /// Its owner takes it back: a spot node.
    Spot,
    /// Inference needs it.
    Inference,
    /// Something else.
    #[default]
    Other,
}

impl NoticeCause {
    /// Every cause.
    pub const ALL: [Self; 3] = [Self::Spot, Self::Inference, Self::Other];

    /// The name as people and scripts give it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Inference => "inference",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for NoticeCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Spot => "spot notice",
            Self::Inference => "inference spike",
            Self::Other => "notice",
        })
    }
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
    /// Never empty for a launched attempt. Shared by the decision, the attempt and its record, which hold the same.
    pub tasks: Arc<Vec<TaskAllocation>>,
}

impl From<Vec<TaskAllocation>> for Allocation {
    fn from(tasks: Vec<TaskAllocation>) -> Self {
        let tasks = Arc::new(tasks);
        Self { tasks }
    }
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
    /// Fast local storage.
    #[serde(default)]
    pub scratch: Bytes,
    /// What it reads from shared storage a second.
    #[serde(default)]
    pub read_bandwidth: Bytes,
    /// Whether `gpus` counts the node's MIG slices instead of its GPUs.
    #[serde(default)]
    pub sliced: bool,
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
        for task in self.tasks.iter() {
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
            scratch: Bytes::ZERO,
            read_bandwidth: Bytes::ZERO,
            sliced: false,
        };
        let allocation = Allocation::from(vec![
            task(0, "n0", &[0, 1, 2, 5]),
            task(1, "n1", &[3]),
            task(2, "n2", &[]),
        ]);
        assert_eq!(allocation.to_string(), "n0[0-2,5] n1[3] n2");
        assert_eq!(allocation.gpu_amount(), GpuAmount::from_gpus(5));
    }
}
