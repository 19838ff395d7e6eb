//! When an attempt held which GPUs: what pictures of a simulation are drawn from. Kept only where a setting asks for it,
//! so that a run of a million jobs without a picture pays nothing.

use std::collections::BTreeMap;

use antiphon_types::{Allocation, Millis, NodeName};

/// Whether a simulation keeps the spans in which attempts held GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Spans {
    /// They are dropped.
    #[default]
    Dropped,
    /// They are kept.
    Kept,
}

/// The time in which one attempt held its GPUs. Times count from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// When it was launched.
    pub from: Millis,
    /// When its work began: what lies before is the cost of the start.
    pub works_from: Millis,
    /// When its GPUs came free; nothing while it holds them.
    pub until: Option<Millis>,
    /// What it held, node by node.
    pub held: Vec<Held>,
}

/// GPUs held on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The node's place in the cluster.
    pub node: usize,
    /// Which of its GPUs.
    pub gpus: Vec<u32>,
    /// How much of each, in thousandths.
    pub share_permille: u64,
}

/// What an allocation holds of the nodes of a cluster.
pub(crate) fn held(allocation: &Allocation, places: &BTreeMap<NodeName, usize>) -> Vec<Held> {
    let with_gpus = allocation.tasks.iter().filter(|task| !task.gpus.is_empty());
    let held = with_gpus.filter_map(|task| {
        Some(Held {
            node: *places.get(&task.node)?,
            gpus: task.gpus.clone(),
            share_permille: task.gpu_share.thousandths(),
        })
    });
    held.collect()
}
