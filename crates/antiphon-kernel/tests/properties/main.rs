//! What holds whatever happens: random clusters, people, backends and trainers against the kernel. Says nothing of what
//! is decided where several answers are right; the scenarios do.

#![expect(
    clippy::unwrap_used,
    reason = "what does not hold is a failed property"
)]

mod explained;
mod fit;
mod liveness;
mod lying;
mod plan;
mod random;
mod starvation;
mod world;

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;

/// The same cases in every run, unless `PROPTEST_RNG_SEED` says otherwise; `part` of 16 of them, the more where
/// `PROPTEST_CASES` asks for more than 256.
pub(crate) fn config(part: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(7_440),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        cases: (config.cases * part / 16).max(1),
        ..config
    }
}
