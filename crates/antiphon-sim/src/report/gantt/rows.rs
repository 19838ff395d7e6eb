//! How the GPUs of a cluster become the rows of a picture: one each where they are few, else a node or several a row.

use antiphon_types::NodeSpec;

use super::super::hours::amount;
use crate::world::Held;

/// Up to so many GPUs each has a row; up to so many nodes each has one.
const ROWS_MAX: usize = 64;

/// How GPUs become rows.
pub(super) struct Rows {
    pub(super) unit: &'static str,
    pub(super) names: Vec<String>,
    /// GPUs of each row.
    pub(super) capacity: Vec<f64>,
    /// By node: its first row.
    first: Vec<usize>,
    by_gpu: bool,
}

impl Rows {
    pub(super) fn of(nodes: &[NodeSpec]) -> Self {
        let count = |node: &NodeSpec| usize::try_from(node.gpus).unwrap_or(usize::MAX);
        let gpus: usize = nodes.iter().map(count).sum();
        if gpus <= ROWS_MAX {
            let mut rows = Self {
                unit: "GPU",
                names: Vec::new(),
                capacity: vec![1.0; gpus],
                first: Vec::new(),
                by_gpu: true,
            };
            for node in nodes {
                rows.first.push(rows.names.len());
                let name = |gpu: u32| {
                    if gpu == 0 {
                        node.name.0.clone()
                    } else {
                        String::new()
                    }
                };
                rows.names.extend((0..node.gpus).map(name));
            }
            return rows;
        }
        let group = nodes.len().div_ceil(ROWS_MAX).max(1);
        let named = |nodes: &[NodeSpec]| match nodes {
            [first, .., last] => format!("{}–{}", first.name, last.name),
            [only] => only.name.0.clone(),
            [] => String::new(),
        };
        let capacity =
            |nodes: &[NodeSpec]| nodes.iter().map(|node| f64::from(node.gpus)).sum::<f64>();
        Self {
            unit: if group == 1 { "node" } else { "group of nodes" },
            names: nodes.chunks(group).map(named).collect(),
            capacity: nodes.chunks(group).map(capacity).collect(),
            first: (0..nodes.len()).map(|node| node / group).collect(),
            by_gpu: false,
        }
    }

    /// The rows on which an attempt held something, with how much of each.
    pub(super) fn held(&self, held: &Held) -> Vec<(usize, f64)> {
        let first = self.first[held.node];
        let all = amount(std::slice::from_ref(held));
        if !self.by_gpu {
            return vec![(first, all)];
        }
        let count = u32::try_from(held.gpus.len())
            .map_or(1.0, f64::from)
            .max(1.0);
        let row = |gpu: &u32| Some((first + usize::try_from(*gpu).ok()?, all / count));
        held.gpus.iter().filter_map(row).collect()
    }
}
