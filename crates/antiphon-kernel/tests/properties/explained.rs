//! What is said about a waiting job is so: its reasons, and the smallest change that starts it.

use antiphon_kernel::{Job, JobState, State, check, decide, explain};
use antiphon_types::*;
use proptest::prelude::*;

use crate::config;
use crate::plan;
use crate::world::World;

fn waits(job: &Job) -> bool {
    matches!(job.state, JobState::Pending { .. } | JobState::Held { .. })
}

fn launched(state: &State) -> Vec<JobId> {
    let actions = decide(state).actions;
    let launched = actions.into_iter().filter_map(|action| match action {
        Action::Launch { attempt, .. } => Some(attempt.job),
        _ => None,
    });
    launched.collect()
}

proptest! {
    #![proptest_config(config(12))]

    /// Every waiting job has a reason. Once a cycle finds nothing more to start, none of them is `Turn`: that reason is said
    /// only of a job that starts in the cycle that follows at once.
    #[test]
    fn every_waiting_job_has_a_reason_and_its_turn_comes_at_once(
        cluster in plan::cluster(),
        steps in plan::steps(60),
    ) {
        let mut world = World::of(&cluster);
        for step in &steps {
            world.step(step);
            let state = &world.state;
            for job in state.jobs().values() {
                let reasons = explain::reasons(state, job, world.at);
                prop_assert_eq!(reasons.is_empty(), !waits(job), "{} {:?}", job.id, job.state);
                let turn = reasons.contains(&WaitReason::Turn);
                prop_assert!(!turn, "{} does not start: {:?}", job.id, job);
            }
        }
    }

    /// A job that the next cycle starts says so. The reverse holds only at rest: others may start in front of one whose turn it
    /// is, or hold back what it would take.
    #[test]
    fn who_starts_in_the_next_cycle_says_that_it_is_its_turn(
        cluster in plan::cluster(),
        steps in plan::steps(60),
        jobs in proptest::collection::vec(plan::job(), 1..=3),
    ) {
        let mut world = World::of(&cluster);
        for step in &steps {
            world.step(step);
        }
        world.let_pile_up(&jobs);
        let state = &world.state;
        let launched = launched(state);
        for id in &launched {
            let reasons = explain::reasons(state, state.job(*id).unwrap(), world.at);
            prop_assert_eq!(&reasons, &vec![WaitReason::Turn], "{}", id);
        }
    }

    /// The smallest change, made on a copy, starts the job in the cycle that follows, and the copy is one that could be.
    #[test]
    fn the_smallest_change_starts_the_job(
        cluster in plan::cluster(),
        steps in plan::steps(60),
    ) {
        let mut world = World::of(&cluster);
        for step in &steps {
            world.step(step);
        }
        let state = &world.state;
        for job in state.jobs().values().filter(|job| waits(job)) {
            let Some(change) = explain::smallest_change(state, job) else {
                continue;
            };
            let altered = explain::altered(state, job.id, &change);
            check::invariants(&altered).unwrap();
            let decision = decide(&altered);
            check::decision(&altered, &decision).unwrap();
            prop_assert!(launched(&altered).contains(&job.id), "{}: {}", job.id, change);
        }
    }

    /// A job that alone another's end would start is told so, or of something smaller.
    #[test]
    fn where_one_job_keeps_another_some_change_is_named(
        gpus in proptest::collection::vec(1..=8_u32, 1..=3),
        asked in 1..=8_u32,
    ) {
        let nodes = gpus.len();
        let mut world = World::plain(nodes, 8, Vec::new());
        let mut held = Vec::new();
        for gpus in &gpus {
            held.extend(world.submit_plain("a", *gpus, Class::Standard, 3_600));
        }
        let Some(id) = world.submit_plain("b", asked, Class::Standard, 3_600) else {
            return Ok(());
        };
        let job = world.state.job(id).unwrap();
        if !waits(job) {
            return Ok(());
        }
        let ends = |other: &JobId| {
            let altered = explain::altered(&world.state, id, &explain::Change::End { job: *other });
            launched(&altered).contains(&id)
        };
        if held.iter().any(ends) {
            prop_assert!(explain::smallest_change(&world.state, job).is_some());
        }
    }
}
