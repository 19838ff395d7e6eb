//! What holds whatever happens: random clusters, people, backends and trainers against the kernel. Says nothing of what
//! is decided where several answers are right; the scenarios do.

#![expect(
    clippy::unwrap_used,
    reason = "what does not hold is a failed property"
)]

mod fit;
mod plan;
mod world;

use antiphon_kernel::explain;
use antiphon_types::{Bytes, GpuAmount, Millis, RetrySpec, Tasks};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::world::{Behaviour, World};

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

    /// Admission bounds every number, so that no sum of them overflows later: a panic then would be safe mode by a user.
    #[test]
    fn no_number_in_a_job_file_breaks_arithmetic(
        cluster in plan::cluster(),
        job in plan::job(),
        numbers in plan::numbers(),
        steps in plan::steps(),
    ) {
        let mut world = World::new(&cluster);
        let mut spec = world.spec(&job);
        let [grace, limit, backoff_first, backoff_max] = numbers.spans.map(Millis::from_millis);
        spec.grace = grace;
        spec.time_limit = numbers.limited.then_some(limit);
        spec.retry = RetrySpec { retries_max: numbers.retries, backoff_first, backoff_max };
        let shape = &mut spec.roles[0].shape;
        shape.gpus = GpuAmount::from_thousandths(numbers.gpus);
        shape.tasks = numbers.tasks.map_or(Tasks::Fewest, Tasks::Exactly);
        shape.cpus = numbers.cpus;
        shape.memory = Bytes::new(numbers.memory);
        world.submit(spec, Behaviour { attaches: job.attaches, stubborn: job.stubborn });
        for step in steps.iter().filter(|step| !matches!(step, plan::Step::Submit(_))) {
            world.step(step);
            // What explains to people adds up the same numbers.
            let _ = explain::waiting(&world.state, world.state.now());
        }
    }
}
