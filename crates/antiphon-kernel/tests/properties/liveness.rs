//! Who has a right to room gets it in time.

use antiphon_types::*;
use proptest::prelude::*;

use crate::config;
use crate::world::{Behavior, World, spec, team};

/// Somebody who borrows or is of a lower class.
#[derive(Debug, Clone)]
struct Holder {
    gpus: u32,
    grace_s: u64,
    attaches: bool,
    stubborn: bool,
    saves: bool,
    /// Whether it says, again and again, that it is nearly done.
    always_nearly_done: bool,
    operator: bool,
}

fn holder() -> impl Strategy<Value = Holder> {
    (
        prop_oneof![2 => 1..=8_u32, 1 => Just(16), 1 => Just(24)],
        0..=300_u64,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(gpus, grace_s, attaches, stubborn, saves, always_nearly_done, operator)| Holder {
                gpus,
                grace_s,
                attaches,
                stubborn,
                saves,
                always_nearly_done,
                operator,
            },
        )
}

/// Fills the cluster with jobs that run for a week.
fn fill(world: &mut World, team: &str, class: Class, holders: &[Holder]) {
    for (number, holder) in holders.iter().enumerate() {
        let mut job = spec(team, format!("x{number}x"), holder.gpus, class);
        job.grace = Millis::from_secs(holder.grace_s);
        let behavior = Behavior {
            attaches: holder.attaches,
            stubborn: holder.stubborn,
            runs: Millis::from_secs(7 * 86_400),
            saves: holder.saves,
        };
        world.submit(job, behavior);
    }
    let soon = world.at.after(Millis::from_secs(60));
    world.run_until(soon);
    for (number, holder) in holders.iter().enumerate() {
        let id = JobId(number as u64 + 1);
        if holder.operator {
            // Moved often enough this hour.
            for _ in 0..2 {
                let _ = world.command(Command::Preempt { job: id });
                let soon = world.at.after(Millis::from_secs(400));
                world.run_until(soon);
            }
        }
        let active = world.state.job(id).and_then(|job| job.state.active());
        let attempt = active.map(|active| active.attempt);
        if let Some(attempt) = attempt.filter(|_| holder.always_nearly_done) {
            world.input(Body::Finding(Finding::Progress {
                attempt,
                step: 99,
                steps_total: 100,
                step_time: Millis::from_secs(299),
            }));
        }
    }
}

proptest! {
    #![proptest_config(config(4))]

    /// A job that its team's quota covers starts within the bound of a reclaim (30 min), the longest wait for a checkpoint and
    /// the longest grace, where only those who borrow are in its way: whatever they say, and however wide their gangs are.
    #[test]
    fn a_quota_is_given_back_in_time(
        holders in proptest::collection::vec(holder(), 1..=12),
        nodes in 1..=4_usize,
        asked in prop_oneof![1..=8_u32, Just(16), Just(24), Just(32)],
        borrower_has_none in any::<bool>(),
    ) {
        let all = u32::try_from(nodes).unwrap() * 8;
        let quota = asked.min(all);
        let other = (!borrower_has_none && all > quota).then(|| (all - quota) / 2);
        let teams = vec![team("owner", Some(quota)), team("borrower", other)];
        let mut world = World::plain(nodes, 8, teams);
        fill(&mut world, "borrower", Class::Standard, &holders);
        let id = world.submit_plain("owner", quota, Class::Standard, 3_600);
        let Some(id) = id else {
            return Ok(());
        };
        let policy = world.state.policy();
        let bound = policy.reclaim_wait_ms_max
            + policy.checkpoint_wait_ms_default
            + Millis::from_secs(300)
            + Millis::from_secs(10);
        let bound = world.at.after(bound);
        world.run_until(bound);
        let job = world.state.job(id).unwrap();
        prop_assert!(job.launches > 0, "{:?} {:#?}", world.state.slots(), world.unended());
    }

    /// Where somebody was stopped for a job of a higher class, that job starts as soon as the last of them is gone, and no
    /// later than their clocks allow.
    #[test]
    fn a_preemptor_always_starts(
        holders in proptest::collection::vec(holder(), 1..=12),
        nodes in 1..=4_usize,
        asked in prop_oneof![1..=8_u32, Just(16), Just(24)],
    ) {
        let mut world = World::plain(nodes, 8, Vec::new());
        fill(&mut world, "a", Class::BestEffort, &holders);
        let id = world.submit_plain("b", asked, Class::Production, 3_600);
        let Some(id) = id else {
            return Ok(());
        };
        let gave_way = |world: &World| {
            world.state.jobs().values().any(|job| job.gave_way_to == Some(id))
        };
        if !gave_way(&world) {
            return Ok(());
        }
        let bound = world.state.policy().checkpoint_wait_ms_default + Millis::from_secs(310);
        let bound = world.at.after(bound);
        world.run_until(bound);
        prop_assert!(world.state.job(id).unwrap().launches > 0, "{:#?}", world.unended());
    }
}
