//! Nobody waits for ever while others of its class are served.

use antiphon_types::*;
use proptest::prelude::*;

use crate::config;
use crate::world::{Watch, World, honest, spec, team};

/// What the others ask for and how long they run, each in turn and for ever.
#[derive(Debug, Clone)]
struct Stream {
    gpus: Vec<u32>,
    runs_s: Vec<u64>,
    /// In thousandths of its run time, what each says that it will take; nothing where it says nothing but its limit.
    claims: Option<u64>,
    /// Between two of them.
    every_s: u64,
}

const LONGEST_S: u64 = 3_600;
const GRACE: Millis = Millis::from_secs(30);

fn stream() -> impl Strategy<Value = Stream> {
    (
        proptest::collection::vec(1..=12_u32, 1..=4),
        proptest::collection::vec(60..=LONGEST_S, 1..=4),
        proptest::option::of(1..=1_500_u64),
        30..=300_u64,
    )
        .prop_map(|(gpus, runs_s, claims, every_s)| Stream {
            gpus,
            runs_s,
            claims,
            every_s,
        })
}

/// The job that must not starve: GPUs of each of its roles.
fn victim() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        3 => (1..=32_u32).prop_map(|gpus| vec![gpus]),
        1 => proptest::collection::vec(1..=8_u32, 2..=3),
    ]
}

fn submit_next(world: &mut World, stream: &Stream, number: usize) {
    let gpus = stream.gpus[number % stream.gpus.len()];
    let runs_s = stream.runs_s[number % stream.runs_s.len()];
    let of = if number.is_multiple_of(2) { "b" } else { "c" };
    let mut next = spec(of, format!("x{number}x"), gpus, Class::Standard);
    next.time_limit = Some(Millis::from_secs(LONGEST_S));
    next.grace = GRACE;
    next.estimate = stream.claims.map(|claims| {
        let said = Millis::from_secs(runs_s * claims / 1_000);
        Estimate {
            low: said,
            expected: said,
            high: said,
        }
    });
    world.submit(next, honest(runs_s));
}

proptest! {
    #![proptest_config(config(2))]

    /// **The bound.** All jobs are of one class, and none holds anything longer than `L`: its limit and its grace. A job that
    /// is promoted first in its class starts within `2 L` of that, whatever the others ask for and claim.
    ///
    /// Idea of the proof. (1) Those promoted before it have waited longer; each has a slot or is in front of it, and here
    /// there is none. So it is the first that is looked at when slots are given out, and it gets one in that cycle: a slot of
    /// somebody who is not promoted gives way, so neither the bound on slots nor nodes that are held keep it from one.
    /// (2) The slot's time is at most the latest predicted end of those who run, at most `L` from then. Until then others run
    /// on its nodes only if they promise to be gone by that time. (3) If all keep their word it starts at that time. If not,
    /// the slot was missed, and from then on nobody runs there in front of it at all. Whoever runs there then started before,
    /// and is gone within `L`. (4) A slot is given up only for a higher class, for an earlier promoted job, or with its node;
    /// there are none here.
    #[test]
    fn a_promoted_job_starts_within_twice_the_longest_run(
        asked in victim(),
        stream in stream(),
        nodes in 1..=4_usize,
    ) {
        let teams = ["a", "b", "c"].map(|name| team(name, None)).to_vec();
        let mut world = World::plain_watched(nodes, 8, teams, Watch::Decisions);
        let policy = Policy {
            promote_after_ms: PromoteAfter {
                standard: Millis::from_secs(7_200),
                ..PromoteAfter::default()
            },
            ..Policy::default()
        };
        let promote_after = policy.promote_after_ms.standard;
        world.command(Command::SetPolicy { policy: Box::new(policy) }).unwrap();
        let mut number = 0;
        // The cluster is full before the one in question comes, and the others promote nobody before it.
        for _ in 0..8 {
            submit_next(&mut world, &stream, number);
            number += 1;
        }
        let mut long = spec("a", "long".into(), asked[0], Class::Standard);
        long.time_limit = Some(Millis::from_secs(LONGEST_S));
        long.grace = GRACE;
        let role = long.roles[0].clone();
        long.roles = asked.iter().enumerate().map(|(index, gpus)| {
            let mut role = role.clone();
            role.name = format!("role{index}");
            role.shape.gpus = GpuAmount::from_gpus(*gpus);
            role
        }).collect();
        // Those who wait already are promoted before it: let them go first.
        let settled = world.at.after(Millis::from_secs(8 * LONGEST_S));
        world.run_until(settled);
        let Some(id) = world.submit(long, honest(600)) else {
            return Ok(());
        };
        let longest = Millis::from_secs(LONGEST_S) + GRACE;
        let bound = world.at.after(promote_after).after(longest).after(longest);
        while world.state.job(id).unwrap().launches == 0 {
            submit_next(&mut world, &stream, number);
            number += 1;
            let next = world.at.after(Millis::from_secs(stream.every_s));
            world.run_until(next);
            let job = world.state.job(id).unwrap();
            prop_assert!(
                world.at <= bound || job.launches > 0,
                "{:?} {:?} after {:?}",
                job.promoted,
                world.state.slots(),
                world.at.since(bound)
            );
        }
    }
}
