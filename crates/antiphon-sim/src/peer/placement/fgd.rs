//! Fragmentation gradient descent: the node whose fragments grow the least.

use std::collections::HashMap;

use crate::placement::{Ask, Gpus, Node, Popular};

/// Fragments of nodes as they were met.
pub(super) struct Fragments<'a> {
    popular: &'a Popular,
    known: HashMap<(u64, u64, Vec<u32>), f64>,
}

impl<'a> Fragments<'a> {
    pub(super) fn of(popular: &'a Popular) -> Self {
        Self {
            popular,
            known: HashMap::new(),
        }
    }

    /// From 0 to 100, and the GPUs: for a share the one with the highest score.
    pub(super) fn score(&mut self, node: &Node, ask: &Ask) -> (i64, Gpus) {
        let before = self.fragment(node);
        let mut after = |gpus: Gpus| {
            let mut taken = node.clone();
            taken.take(ask, gpus);
            squashed(before - self.fragment(&taken))
        };
        if !ask.is_share() {
            let gpus = node.tightest(ask);
            return (after(gpus), gpus);
        }
        let mut best: Option<(i64, Gpus)> = None;
        for (gpu, free) in node.gpus.iter().enumerate() {
            if *free < ask.each {
                continue;
            }
            let score = after(1 << gpu);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, 1 << gpu));
            }
        }
        best.unwrap_or((0, 0))
    }

    fn fragment(&mut self, node: &Node) -> f64 {
        let mut gpus = node.gpus.clone();
        gpus.sort_unstable();
        let key = (node.cpu_milli, node.gpu_type, gpus);
        // Memory tells no classes apart, so it is no part of the key.
        let of = || self.popular.fragment(node);
        *self.known.entry(key).or_insert_with(of)
    }
}

/// A sigmoid of thousandths of GPUs, from 0 to 100 and rounded down: steps of a twenty-fifth of a GPU near zero.
fn squashed(fewer: f64) -> i64 {
    let part = 1.0 / (1.0 + (-fewer / 1_000.0).exp());
    (part * 100.0) as i64
}
