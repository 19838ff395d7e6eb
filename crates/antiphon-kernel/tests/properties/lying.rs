//! A team that lies gains nothing from the others, over days: not by short estimates, false deadlines, borrowed names or by
//! calling everything production, nor by trainers that ask for all there is. Deterministic worlds; what one decision does with a lie, the scenarios show.

use antiphon_types::*;

use crate::world::{Watch, World, honest, spec, team};

const HOUR_S: u64 = 3_600;

/// How long is looked at: two days of a cluster that everybody wants more of than there is.
const DAYS: u64 = 2;

/// GPUs of the cluster, on two nodes.
const GPUS: u32 = 16;

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
    /// No lie: its trainers are attached and save, and its jobs come in two shapes.
    Attached,
    /// The same, and every trainer asks for all that can be asked for, again and again.
    Asks,
}

/// What each team got.
#[derive(Debug, Clone, Copy)]
struct Got {
    gpu_hours: u64,
    started: usize,
    /// Asks of team `a` that were granted.
    granted: usize,
}

/// Two teams of the same weight that ask for the same, more than there is, with and without quotas. Where the row of their
/// jobs begins is `turn`.
fn play(lie: Lie, quota: Option<u32>, turn: usize) -> [Got; 2] {
    let teams = vec![team("a", quota), team("b", quota)];
    let mut world = World::plain_watched(2, GPUS / 2, teams, Watch::Decisions);
    let begin = world.at;
    let end = begin.after(Millis::from_secs(DAYS * 24 * HOUR_S));
    let runs = [1, 3, 2, 4].map(|hours| hours * HOUR_S);
    let sizes = [2, 4, 1, 8];
    let mut number = 5 * turn;
    let mut granted = 0;
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
            let mut behavior = honest(runs_s);
            if name == "a" {
                match lie {
                    Lie::None => (),
                    Lie::Short => job.estimate = said(runs_s / 20),
                    Lie::Deadlines => {
                        job.deadline = Some(world.at.after(Millis::from_secs(HOUR_S)))
                    }
                    Lie::Production => job.class = Class::Production,
                    Lie::Names => job.name = format!("b-eval-{number}x"),
                    Lie::Attached | Lie::Asks => {
                        could_ask(&mut job);
                        behavior.attaches = true;
                        behavior.saves = true;
                    }
                }
            }
            // What is refused is not asked for again: urgent jobs wider than the quota.
            world.submit(job, behavior);
        }
        number += 1;
        let next = world.at.after(Millis::from_secs(1_200));
        world.run_until(next);
        if lie == Lie::Asks {
            granted += ask_for_everything(&mut world);
        }
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
            granted,
        }
    })
}

/// A job whose trainer has something to ask for: twice the GPUs, data jobs, time.
fn could_ask(job: &mut JobSpec) {
    let dir = "/checkpoints".into();
    job.checkpoint = Some(CheckpointSpec { dir, keep: None });
    let role = &mut job.roles[0];
    role.shape.speed = 700;
    let gpus = role.shape.gpus + role.shape.gpus;
    role.alternatives = vec![Shape {
        gpus,
        speed: 1_000,
        ..role.shape.clone()
    }];
    let method = AugmentSpec {
        command: vec!["generate".into()],
        count: 100,
        cpus: 4,
        runs_max: 3,
        ..AugmentSpec::default()
    };
    job.data.augment.insert("paraphrase".into(), method);
}

/// Every trainer of team `a` asks for all that there is to ask for; says how much of it was granted.
fn ask_for_everything(world: &mut World) -> usize {
    let jobs = world.state.jobs().values();
    let running = jobs.filter_map(|job| {
        let active = job.state.active().filter(|active| active.attached)?;
        let held = active.allocation.gpu_amount().thousandths() / 1_000;
        let held = u32::try_from(held).unwrap();
        (job.spec.team == "a").then_some((active.attempt, held))
    });
    let running: Vec<(AttemptId, u32)> = running.collect();
    let mut granted = 0;
    for (attempt, held) in running {
        for body in [
            AskBody::Protection {
                during: Millis::from_secs(1_800),
            },
            AskBody::Protection {
                during: Millis::from_secs(600),
            },
            AskBody::Time {
                more: Millis::from_secs(HOUR_S),
            },
            AskBody::Samples {
                category: "law".into(),
            },
            AskBody::Gpus { gpus: held * 2 },
            AskBody::Gpus { gpus: held / 2 },
        ] {
            let reason = "all of it".into();
            let asked = world.command(Command::Ask(Ask {
                attempt,
                body,
                reason,
            }));
            granted += usize::from(asked.is_ok());
        }
    }
    granted
}

/// The honest team keeps what it had, within a twentieth since jobs are not divisible; where it had more than half, since
/// jobs of the other fitted worse, it keeps at least half of what both have, and most of what it had.
fn gains_nothing(lie: Lie, quota: Option<u32>) {
    let [other, before] = play(Lie::None, quota, 0);
    let [liar, after] = play(lie, quota, 0);
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

/// What both teams got in four rows of jobs together.
fn in_all(lie: Lie, quota: Option<u32>) -> [Got; 2] {
    let none = Got {
        gpu_hours: 0,
        started: 0,
        granted: 0,
    };
    let add = |sum: Got, got: Got| Got {
        gpu_hours: sum.gpu_hours + got.gpu_hours,
        started: sum.started + got.started,
        granted: sum.granted + got.granted,
    };
    let rows = (0..4).map(|turn| play(lie, quota, turn));
    rows.fold([none, none], |[a, b], [more, rest]| {
        [add(a, more), add(b, rest)]
    })
}

/// A team whose trainers ask for everything has no more than before, or than its own half. They stop their own jobs for other
/// shapes and put data jobs in between, so all that follows comes in another order, and gangs that fit worse leave gaps that
/// nobody has: of those the other team may bear a quarter of what it had.
fn asks_gain_nothing(quota: Option<u32>) {
    let [other, before] = in_all(Lie::Attached, quota);
    let [liar, after] = in_all(Lie::Asks, quota);
    let own_half = 4 * DAYS * 24 * u64::from(GPUS) / 2;
    let told = format!(
        "with a quota of {quota:?} the other team had {before:?} and has {after:?}, who asks had {other:?} and has {liar:?}"
    );
    assert!(liar.granted > 0, "{told}");
    assert!(liar.gpu_hours <= other.gpu_hours.max(own_half), "{told}");
    assert!(after.gpu_hours * 4 >= before.gpu_hours * 3, "{told}");
    assert!(after.started * 10 >= before.started * 9, "{told}");
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

#[test]
fn trainers_that_ask_for_all_there_is_take_nothing_from_others() {
    asks_gain_nothing(None);
    asks_gain_nothing(Some(8));
}
