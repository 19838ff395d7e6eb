//! What holds whatever happens: random clusters, people, backends and trainers against the kernel. Says nothing of what
//! is decided where several answers are right; the scenarios do.

#![expect(
    clippy::unwrap_used,
    reason = "what does not hold is a failed property"
)]

mod fit;
mod plan;
mod world;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::world::World;

/// The same cases in every run, unless `PROPTEST_RNG_SEED` and `PROPTEST_CASES` say otherwise.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(7_440),
        fixed @ RngSeed::Fixed(_) => fixed,
    };
    ProptestConfig {
        rng_seed,
        failure_persistence: None,
        ..config
    }
}

proptest! {
    #![proptest_config(config())]

    /// Safety after every event, then liveness: once the faults stop, every job ends.
    #[test]
    fn nothing_breaks_while_the_world_misbehaves_and_all_ends_when_it_stops(
        cluster in plan::cluster(),
        steps in plan::steps(),
    ) {
        let mut world = World::new(&cluster);
        for step in &steps {
            world.step(step);
        }
        world.calm_down();
        world.replay_is_equal();
    }
}
