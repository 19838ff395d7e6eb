//! Published ways to choose a node for a job (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, and what they compare
//! with), over the books of [`crate::placement`].
//!
//! What the published figures depend on and the paper does not say, as their simulator has it: scores are rounded down to
//! whole numbers; among nodes of the same score the first wins, in an order of the nodes that is drawn anew for each run. Under
//! FGD that rounding puts jobs onto few nodes and is worth two points of allocation.

mod best_fit;
mod fgd;
mod packing;
mod random;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::placement::{Ask, Cluster, Gpus, Node, Popular};

/// A published placement policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerPlacer {
    /// Any node on which it fits.
    Random,
    /// The node that has the least left.
    BestFit,
    /// GPUs in use before free ones, nodes in use before empty ones.
    Packing,
    /// The node on which the fewest idle GPUs become useless (fragmentation gradient descent).
    Fgd,
}

impl PeerPlacer {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Fgd => "fgd",
        }
    }

    /// Puts jobs onto a cluster, and tells where each is.
    pub(crate) fn place(
        self,
        cluster: &mut Cluster,
        popular: &Popular,
        asks: &[Ask],
        order: &[usize],
        seed: u64,
        note: &mut impl FnMut(Option<(usize, Gpus)>),
    ) {
        // Another stream than the one that the order of the jobs came from.
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(1);
        let mut nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
        for last in (1..nodes.len()).rev() {
            nodes.swap(last, crate::placement::below(&mut random, last + 1));
        }
        let mut scores = Scores::of(asks, nodes.len());
        let mut fragments = fgd::Fragments::of(popular);
        for &job in order {
            let ask = &asks[job];
            let found = match self {
                Self::Random => random::choose(cluster, ask, &mut random),
                Self::BestFit => scores.best(cluster, &nodes, job, ask, |node| {
                    (best_fit::score(node, ask), node.tightest(ask))
                }),
                Self::Packing => scores.best(cluster, &nodes, job, ask, |node| {
                    (packing::score(node, ask), node.tightest(ask))
                }),
                Self::Fgd => {
                    scores.best(cluster, &nodes, job, ask, |node| fragments.score(node, ask))
                }
            };
            if let Some((node, gpus)) = found {
                cluster.nodes[node].take(ask, gpus);
                scores.changed[node] += 1;
            }
            note(found);
        }
    }
}

/// Scores of nodes for jobs that ask for the same, kept as long as the node stays as it is.
struct Scores {
    /// By job: its class.
    class: Vec<usize>,
    /// By class and node: at which change of the node it was scored, the score, the GPUs.
    known: Vec<Vec<(u32, i64, Gpus)>>,
    /// By node: how often it has changed, from 1.
    changed: Vec<u32>,
}

impl Scores {
    fn of(asks: &[Ask], nodes: usize) -> Self {
        let mut distinct = asks.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let class = |ask: &Ask| distinct.partition_point(|other| other < ask);
        Self {
            class: asks.iter().map(class).collect(),
            known: vec![Vec::new(); distinct.len()],
            changed: vec![1; nodes],
        }
    }

    /// The node with the highest score, the first of several, and the GPUs there.
    fn best(
        &mut self,
        cluster: &Cluster,
        nodes: &[usize],
        job: usize,
        ask: &Ask,
        mut score: impl FnMut(&Node) -> (i64, Gpus),
    ) -> Option<(usize, Gpus)> {
        let known = &mut self.known[self.class[job]];
        known.resize(cluster.nodes.len(), (0, 0, 0));
        let mut best: Option<(i64, usize, Gpus)> = None;
        for &place in nodes {
            let node = &cluster.nodes[place];
            if !node.holds(ask) {
                continue;
            }
            let entry = &mut known[place];
            if entry.0 != self.changed[place] {
                let (score, gpus) = score(node);
                *entry = (self.changed[place], score, gpus);
            }
            if best.is_none_or(|(score, ..)| entry.1 > score) {
                best = Some((entry.1, place, entry.2));
            }
        }
        best.map(|(_, node, gpus)| (node, gpus))
    }
}
