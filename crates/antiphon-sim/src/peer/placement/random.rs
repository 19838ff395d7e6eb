//! Any node on which a job fits, and for a share any GPU there.

use rand_chacha::ChaCha8Rng;

use crate::placement::{Ask, Cluster, Gpus, below};

pub(super) fn choose(
    cluster: &Cluster,
    ask: &Ask,
    random: &mut ChaCha8Rng,
) -> Option<(usize, Gpus)> {
    let nodes = cluster.nodes.iter().enumerate();
    let fitting: Vec<usize> = nodes
        .filter(|(_, node)| node.holds(ask))
        .map(|(place, _)| place)
        .collect();
    if fitting.is_empty() {
        return None;
    }
    let place = fitting[below(random, fitting.len())];
    let node = &cluster.nodes[place];
    if !ask.is_share() {
        return Some((place, node.tightest(ask)));
    }
    let free = node.gpus.iter().enumerate();
    let gpus: Vec<usize> = free
        .filter(|(_, free)| **free >= ask.each)
        .map(|(gpu, _)| gpu)
        .collect();
    Some((place, 1 << gpus[below(random, gpus.len())]))
}
