//! Placement alone: jobs come one by one and none ever leaves, so that how much of a cluster is allocated in the end depends
//! on nothing but where each was put. (Weng et al., "Beware of Fragmentation", USENIX ATC 2023.) Orders no queue.

mod cluster;
mod fragment;
mod live;
mod offer;

use antiphon_types::GpuAmount;

use crate::figure;
use crate::peer::placement::PeerPlacer;
use crate::trace::NodeRow;
use crate::workload::Workload;

pub(crate) use cluster::{Ask, Cluster, Gpus, Node, WHOLE};
pub(crate) use fragment::Popular;
pub(crate) use offer::below;

/// What is offered to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offered {
    /// GPUs that all jobs together ask for, in thousandths of those that there are.
    pub permille: u32,
    /// How many orders of the jobs are tried.
    pub shuffles: u32,
    /// What the first order is drawn from; each further one has the next seed.
    pub seed: u64,
}

/// Who chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placer {
    /// The kernel as it runs in the server.
    Antiphon,
    /// A published placement policy.
    Peer(PeerPlacer),
}

impl Placer {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Antiphon,
        Self::Peer(PeerPlacer::Random),
        Self::Peer(PeerPlacer::BestFit),
        Self::Peer(PeerPlacer::Packing),
        Self::Peer(PeerPlacer::Fgd),
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Antiphon => "antiphon",
            Self::Peer(peer) => peer.name(),
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PlacementResult {
    /// Allocated GPUs in percent of all, by shuffle.
    pub allocation: Vec<f64>,
    /// Idle GPUs that a job drawn from the popular classes could not use, in percent of all, by shuffle.
    pub fragmented: Vec<f64>,
    /// Jobs offered, over all shuffles.
    pub jobs: u64,
    /// Jobs that found a place.
    pub started: u64,
    /// Events folded into the kernel's state; none for a peer.
    pub events: u64,
    /// Decisions of the kernel; none for a peer.
    pub cycles: u64,
    /// Follows from every job's node and GPUs: the same for the same seed on any machine.
    pub digest: u64,
}

impl PlacementResult {
    /// The mean allocation in percent.
    #[must_use]
    pub fn mean(&self) -> f64 {
        figure::mean(&self.allocation).unwrap_or(0.0)
    }

    /// The standard deviation of the allocation over the shuffles, in percentage points.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: Vec<f64> = self
            .allocation
            .iter()
            .map(|allocated| (allocated - mean) * (allocated - mean))
            .collect();
        figure::mean(&squares).unwrap_or(0.0).sqrt()
    }

    /// The mean share of fragmented GPUs in percent.
    #[must_use]
    pub fn mean_fragmented(&self) -> f64 {
        figure::mean(&self.fragmented).unwrap_or(0.0)
    }
}

/// Offers the jobs of a workload to a cluster, in as many orders as asked for. All policies see the same orders.
///
/// CPUs are counted in thousandths, in the kernel's books as well: what it takes for one CPU is a thousandth there.
///
/// # Panics
/// Where a policy puts a job where it does not fit: a bug.
#[must_use]
pub fn run(
    nodes: &[NodeRow],
    workload: &Workload,
    placer: Placer,
    offered: &Offered,
) -> PlacementResult {
    let empty = Cluster::new(nodes, workload);
    let asks = cluster::asks(&empty, workload);
    let popular = Popular::of(&asks);
    let mut result = PlacementResult::default();
    let mut digest = Fnv::default();
    for shuffle in 0..offered.shuffles {
        let seed = offered.seed + u64::from(shuffle);
        let order = offer::draw(&empty, &asks, offered.permille, seed);
        let mut cluster = empty.clone();
        result.jobs += u64::try_from(order.len()).unwrap_or(u64::MAX);
        let mut note = |place: Option<(usize, Gpus)>| {
            result.started += u64::from(place.is_some());
            let (node, gpus) = place.unwrap_or((usize::MAX, 0));
            digest.add(u64::try_from(node).unwrap_or(u64::MAX));
            digest.add(gpus);
        };
        match placer {
            Placer::Antiphon => {
                let (events, cycles) =
                    live::place(nodes, workload, &mut cluster, &asks, &order, &mut note);
                result.events += events;
                result.cycles += cycles;
            }
            Placer::Peer(peer) => {
                peer.place(&mut cluster, &popular, &asks, &order, seed, &mut note)
            }
        }
        result
            .allocation
            .push(percent(cluster.allocated(), cluster.all()));
        let fragments: f64 = cluster
            .nodes
            .iter()
            .map(|node| popular.fragment(node))
            .sum();
        result
            .fragmented
            .push(100.0 * fragments / figure::thousandths(cluster.all()));
    }
    result.digest = digest.0;
    result
}

fn percent(part: GpuAmount, all: GpuAmount) -> f64 {
    100.0 * figure::thousandths(part) / figure::thousandths(all)
}

/// A digest that needs no crate: FNV-1a over little-endian words. It tells runs apart; it keeps nobody from forging one.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests;
