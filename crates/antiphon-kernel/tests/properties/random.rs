//! Everything that can happen, at random: safety after every event, then liveness.

use antiphon_kernel::explain;
use proptest::prelude::*;

use crate::config;
use crate::plan::{self, Step};
use crate::world::World;

proptest! {
    #![proptest_config(config(16))]

    /// Safety after every event, then liveness: once the faults stop, every job ends.
    #[test]
    fn nothing_breaks_while_the_world_misbehaves_and_all_ends_when_it_stops(
        cluster in plan::cluster(),
        steps in plan::steps(120),
    ) {
        let mut world = World::of(&cluster);
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
        jobs in proptest::collection::vec((plan::job(), plan::numbers()), 1..=3),
        steps in plan::steps(60),
    ) {
        let mut world = World::of(&cluster);
        for (job, numbers) in &jobs {
            let mut spec = world.spec(job);
            numbers.fill(&mut spec, world.at);
            world.submit(spec, World::behavior(job));
        }
        for step in steps.iter().filter(|step| !matches!(step, Step::Submit(_))) {
            world.step(step);
            // What explains to people adds up the same numbers.
            for job in world.state.jobs().values() {
                let _ = explain::reasons(&world.state, job, world.state.now());
            }
        }
    }
}

proptest! {
    #![proptest_config(config(32))]

    /// Liveness where nothing goes wrong: whoever is let in finds a shape that he may have, and ends.
    #[test]
    fn whoever_is_let_in_starts_and_ends(
        cluster in plan::cluster(),
        jobs in proptest::collection::vec(plan::choosy_job(), 1..=3),
    ) {
        let mut world = World::of(&cluster);
        for job in &jobs {
            let spec = world.spec(job);
            world.submit(spec, World::behavior(job));
        }
        world.calm_down();
    }
}

proptest! {
    #![proptest_config(config(8))]

    /// Safety and liveness where nodes and GPUs are given back on the way: nobody starts there, and whoever runs there leaves.
    #[test]
    fn what_is_given_back_is_given_to_nobody_else(
        cluster in plan::cluster(),
        steps in plan::steps_and_notices(80),
    ) {
        let mut world = World::of(&cluster);
        for step in &steps {
            world.step(step);
        }
        world.calm_down();
        world.replay_is_equal();
    }
}
