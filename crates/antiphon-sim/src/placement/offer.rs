//! Which jobs come, and in which order. Sees no policy.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::cluster::{Ask, Cluster};

/// Jobs by their place in the workload: all of them shuffled, then further ones drawn from it until the requests reach so much
/// of the cluster; where all of them are more than that, as many are left out at random.
pub(super) fn draw(cluster: &Cluster, asks: &[Ask], permille: u32, seed: u64) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let target = cluster.all().thousandths() * u64::from(permille) / 1_000;
    let mut order: Vec<usize> = (0..asks.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, below(&mut random, last + 1));
    }
    let mut requested: u64 = asks.iter().map(Ask::total).sum();
    while requested > target {
        let left_out = order.remove(below(&mut random, order.len()));
        requested -= asks[left_out].total();
    }
    if requested == 0 {
        return order;
    }
    let mut full = requested == target || order.len() < asks.len();
    while !full {
        let next = below(&mut random, asks.len());
        full = requested + asks[next].total() > target;
        if !full {
            requested += asks[next].total();
            order.push(next);
        }
    }
    order
}

/// A number below `bound`, each as likely as the others but for less than one part in 2^50.
pub(crate) fn below(random: &mut ChaCha8Rng, bound: usize) -> usize {
    let bound = u128::try_from(bound).unwrap_or(1);
    let number = (u128::from(random.next_u64()) * bound) >> 64;
    usize::try_from(number).unwrap_or(0)
}
