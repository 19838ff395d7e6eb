//! Chance, from one seed. Every draw of a storm goes through here, in one order.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

/// A stream of draws.
pub(super) struct Draw(ChaCha8Rng);

impl Draw {
    pub(super) fn of(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From 0 up to and without `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0.next_u64() % bound.max(1)
    }

    /// From `low` up to and with `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// The same for what counts things of a job or a node.
    pub(super) fn count(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(low.into(), high.into())).expect("between two of its kind")
    }

    /// True one time in so many.
    pub(super) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub(super) fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() {
            return None;
        }
        let place = self.below(u64::try_from(items.len()).expect("few"));
        items.get(usize::try_from(place).expect("few")).cloned()
    }

    /// One of these, by weight; at least one weighs something.
    pub(super) fn weighted<T: Copy>(&mut self, items: &[(u32, T)]) -> T {
        let total: u32 = items.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total.into());
        for (weight, item) in items {
            let weight = u64::from(*weight);
            if left < weight {
                return *item;
            }
            left -= weight;
        }
        items.last().expect("something to draw from").1
    }
}
