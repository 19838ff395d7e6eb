//! How much of the idle GPUs a job as they usually come could not use: FGD's measure. Chooses nothing.

use std::collections::BTreeMap;

use super::cluster::{Ask, Node};

/// The classes that together make this part of all jobs count as popular: FGD's threshold.
const COVERED_PERCENT: u64 = 95;

/// The popular classes of jobs and how often they come, parts of 1. Memory tells no classes apart, as in FGD.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Popular(Vec<(Ask, f64)>);

impl Popular {
    /// Of the jobs of a workload.
    pub(super) fn of(asks: &[Ask]) -> Self {
        let mut counts: BTreeMap<Ask, u32> = BTreeMap::new();
        for ask in asks {
            *counts.entry(Ask { memory: 0, ..*ask }).or_default() += 1;
        }
        let mut classes: Vec<(Ask, u32)> = counts.into_iter().collect();
        classes.sort_by_key(|(ask, count)| std::cmp::Reverse((*count, *ask)));
        let all = u64::try_from(asks.len()).unwrap_or(u64::MAX);
        let mut covered = 0u32;
        let popular = classes.iter().take_while(|(_, count)| {
            let open = u64::from(covered) * 100 < all * COVERED_PERCENT;
            covered += count;
            open
        });
        let popular: Vec<(Ask, u32)> = popular.copied().collect();
        let total: f64 = popular.iter().map(|(_, count)| f64::from(*count)).sum();
        let part = |(ask, count): (Ask, u32)| (ask, f64::from(count) / total);
        Self(popular.into_iter().map(part).collect())
    }

    /// Thousandths of idle GPUs of a node that a popular job could not use, as expected: all where it does not fit, else those
    /// that are too small for it one by one. A job without GPUs uses none.
    pub(crate) fn fragment(&self, node: &Node) -> f64 {
        let idle = f64::from(node.idle());
        if node.idle() == 0 {
            return 0.0;
        }
        let of = |(ask, part): &(Ask, f64)| {
            if ask.gpus == 0 || !node.holds(ask) {
                return part * idle;
            }
            let small = node.gpus.iter().filter(|free| **free < ask.each);
            part * f64::from(small.sum::<u32>())
        };
        self.0.iter().map(of).sum()
    }
}
