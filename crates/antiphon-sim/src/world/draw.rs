//! Chance from a seed: one stream for each subject and each job or node, so that one fault turned on or off moves no other
//! and two policies meet the same ones.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// What is drawn for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// What a job asks for.
    Request = 1,
    /// How a job saves, and what is wrong with it.
    Fate = 2,
    /// When the software around a job fails.
    Glitch = 3,
    /// When a node fails.
    Node = 4,
    /// When one of a node's GPUs fails.
    Gpu = 5,
    /// When a node is slow.
    Straggler = 6,
    /// When a node is taken away.
    Spot = 7,
    /// What limit a job's user names.
    Limit = 8,
}

/// Draws of one stream.
#[derive(Debug, Clone)]
pub(crate) struct Lot(ChaCha8Rng);

impl Lot {
    pub(crate) fn of(seed: u64, stream: Stream, place: usize) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream((stream as u64) << 48 | place as u64);
        Self(random)
    }

    /// At least 0, below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 4_294_967_296.0
    }

    /// True so many times of a thousand.
    pub(crate) fn permille(&mut self, share: u32) -> bool {
        self.unit() * 1_000.0 < f64::from(share)
    }

    /// From 0 up to and without `count`.
    pub(crate) fn below(&mut self, count: u32) -> u32 {
        let scaled = u64::from(self.0.next_u32()) * u64::from(count);
        u32::try_from(scaled >> 32).expect("below a number of its kind")
    }

    /// Exponential, of this mean.
    pub(crate) fn wait(&mut self, mean: f64) -> f64 {
        -(1.0 - self.unit()).ln() * mean
    }
}
