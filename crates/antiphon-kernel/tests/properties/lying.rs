//! A team that lies gains nothing from the others, over days: not by short estimates, false deadlines, borrowed names or by
//! calling everything production. Deterministic worlds; what one decision does with a lie, the scenarios show.

use antiphon_types::*;

use crate::world::{Watch, World, honest, spec, team};

const HOUR_S: u64 = 3_600;

/// How long is looked at: two days of a cluster that everybody wants more of than there is.
const DAYS: u64 = 2;

/// What team `a` says of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// A twentieth of its run times.
    Short,
    /// Everything has to be done in an hour.
    Deadlines,
    /// Everything is urgent.
    Production,
    /// The names of another team's short jobs.
    Names,
}

/// What each team got.
#[derive(Debug, Clone, Copy)]
struct Got {
    gpu_hours: u64,
    started: usize,
}

/// Two teams of the same weight that ask for the same, more than there is, with and without quotas.
fn play(lie: Lie, quota: Option<u32>) -> [Got; 2] {
    let teams = vec![team("a", quota), team("b", quota)];
    let mut world = World::plain_watched(2, 8, teams, Watch::Decisions);
    let begin = world.at;
    let end = begin.after(Millis::from_secs(DAYS * 24 * HOUR_S));
    let runs = [1, 3, 2, 4].map(|hours| hours * HOUR_S);
    let sizes = [2, 4, 1, 8];
    let mut number = 0;
    // Each team asks for about twice the half of the cluster that is its own.
    while world.at < end {
        for name in ["a", "b"] {
            let runs_s = runs[number % runs.len()];
            let gpus = sizes[number / runs.len() % sizes.len()];
            let mut job = spec(
                name,
                format!("{name}-train-{number}x"),
                gpus,
                Class::Standard,
            );
            job.time_limit = Some(Millis::from_secs(12 * HOUR_S));
            let said = |seconds| {
                let said = Millis::from_secs(seconds);
                Some(Estimate {
                    low: said,
                    expected: said,
                    high: said,
                })
            };
            job.estimate = said(runs_s + 60);
            if name == "a" {
                match lie {
                    Lie::None => (),
                    Lie::Short => job.estimate = said(runs_s / 20),
                    Lie::Deadlines => {
                        job.deadline = Some(world.at.after(Millis::from_secs(HOUR_S)))
                    }
                    Lie::Production => job.class = Class::Production,
                    Lie::Names => job.name = format!("b-eval-{number}x"),
                }
            }
            // What is refused is not asked for again: urgent jobs wider than the quota.
            world.submit(job, honest(runs_s));
        }
        number += 1;
        let next = world.at.after(Millis::from_secs(1_200));
        world.run_until(next);
    }
    ["a", "b"].map(|name| {
        let team = world.state.teams().named(name).unwrap();
        let used: u64 = team
            .accounts
            .values()
            .map(|account| account.week(world.at).gpu_millis())
            .sum();
        let jobs = world.state.jobs().values();
        let started = jobs.filter(|job| job.spec.team == name && job.launches > 0);
        Got {
            gpu_hours: used / 3_600_000,
            started: started.count(),
        }
    })
}

/// The honest team keeps what it had, within a twentieth since jobs are not divisible; where it had more than half, since
/// jobs of the other fitted worse, it keeps at least half of what both have, and most of what it had.
fn gains_nothing(lie: Lie, quota: Option<u32>) {
    let [other, before] = play(Lie::None, quota);
    let [liar, after] = play(lie, quota);
    let half = (liar.gpu_hours + after.gpu_hours) / 2;
    let due = if before.gpu_hours > other.gpu_hours {
        before.gpu_hours.min(half)
    } else {
        before.gpu_hours
    };
    let keeps = after.gpu_hours * 20 >= due * 19 && after.gpu_hours * 20 >= before.gpu_hours * 17;
    // How many jobs start depends on which of them are wide: a tenth either way.
    let starts = after.started * 10 >= before.started * 9;
    assert!(
        keeps && starts,
        "{lie:?} with a quota of {quota:?}: the other team had {before:?} and has {after:?}, the liar had {other:?} and has {liar:?}"
    );
}

#[test]
fn short_estimates_take_nothing_from_others() {
    gains_nothing(Lie::Short, None);
    gains_nothing(Lie::Short, Some(8));
}

#[test]
fn false_deadlines_take_nothing_from_others() {
    gains_nothing(Lie::Deadlines, None);
    gains_nothing(Lie::Deadlines, Some(8));
}

#[test]
fn calling_everything_production_takes_nothing_from_others() {
    gains_nothing(Lie::Production, None);
    gains_nothing(Lie::Production, Some(8));
}

#[test]
fn names_of_others_take_nothing_from_them() {
    gains_nothing(Lie::Names, None);
    gains_nothing(Lie::Names, Some(8));
}
