//! Which sizes of task are really asked for, and how much a node with so many free GPUs wastes on them. Counts jobs; knows
//! no cluster.

use antiphon_types::GPUS_PER_NODE_MAX;
use serde::{Deserialize, Serialize};

use crate::capacity::at;

/// GPUs on nodes beyond what tasks of the usual sizes fill, by the number of free GPUs of the node.
pub(crate) type Waste = [i64; GPUS_PER_NODE_MAX as usize + 1];

/// Where counts stop to weigh more: 64 x 64 x 64 times this fits a waste and its products.
const COUNT_MAX: i64 = 1 << 40;

/// How many tasks of each size have been seen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Demand {
    /// By GPUs a task; as long as the largest seen asks for.
    counts: Vec<u64>,
}

impl Demand {
    /// Counts one more job with tasks of so many GPUs; larger than a node can be is counted as the largest node.
    pub fn seen(&mut self, gpus_per_task: u32) {
        let size = at(gpus_per_task.min(GPUS_PER_NODE_MAX));
        if self.counts.len() <= size {
            self.counts.resize(size + 1, 0);
        }
        self.counts[size] = self.counts[size].saturating_add(1);
    }

    /// The waste of nodes with 0 to `gpus_max` free GPUs: for each size that is asked for, the GPUs that tasks of this size
    /// leave over, weighted by how often it is. Sizes above `gpus_max` fit no such node whatever is chosen and are left out.
    /// (Weng et al., "Beware of Fragmentation", ATC 2023.)
    pub(crate) fn waste(&self, gpus_max: u32) -> Waste {
        let mut waste = [0; GPUS_PER_NODE_MAX as usize + 1];
        let sizes = (1u32..=gpus_max).zip(self.counts.iter().skip(1));
        for (size, &count) in sizes.filter(|(_, count)| **count > 0) {
            let count = i64::try_from(count).map_or(COUNT_MAX, |count| count.min(COUNT_MAX));
            let mut over = 0u32;
            for wasted in &mut waste[1..=at(gpus_max)] {
                over = if over + 1 == size { 0 } else { over + 1 };
                *wasted += i64::from(over) * count;
            }
        }
        waste
    }
}
