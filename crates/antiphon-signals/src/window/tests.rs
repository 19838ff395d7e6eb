//! What a window keeps, whatever is sent.

use antiphon_types::{Finding, Millis, Timestamp};

use super::JobWindow;
use crate::rehearsal::{Kind, Rehearsal};
use crate::{Context, ProgressSignal, Signal};

fn window() -> JobWindow {
    JobWindow::new("job-1.1".parse().unwrap())
}

fn at(step: u64) -> Timestamp {
    Timestamp::from_millis(step * 1_000)
}

#[test]
fn names_without_end_fill_no_memory_and_are_counted() {
    let mut window = window();
    for number in 0..6_000_u64 {
        let long = format!("{number}-{}", "é".repeat(5_000));
        let shard = Signal {
            step: Some(1),
            shard: Some(long.clone().into()),
            category: Some(long.clone().into()),
            loss: Some(1.0),
            ..Signal::default()
        };
        window.observe(&shard, at(1));
        let probe = Signal {
            step: Some(1),
            category: Some(long.into()),
            probe_loss: Some(1.0),
            ..Signal::default()
        };
        window.observe(&probe, at(1));
    }
    let task = Signal {
        task: Some(u32::MAX),
        step: Some(1),
        loss: Some(9.0),
        ..Signal::default()
    };
    window.observe(&task, at(1));
    let shards = window.shards();
    assert_eq!(shards.len(), 4_096);
    assert!(shards.iter().all(|shard| shard.shard.len() <= 200));
    assert_eq!(window.latest().loss, None);
    // 6,000 - 4,096 shards, 6,000 - 255 probes of categories (one is the unnamed), one task.
    assert_eq!(window.dropped(), 1_904 + 5_745 + 1);
}

/// A run that hangs has nothing to say: its sender goes on asking, with batches that hold no signals.
#[test]
fn a_sender_that_only_asks_lives_and_its_run_hangs() {
    let context = Context {
        hang_after: Some(Millis::from_secs(20)),
        ..Context::default()
    };
    let mut window = window().with_context(context);
    for step in 1..=30 {
        let signal = Signal {
            task: Some(0),
            step: Some(step),
            step_ms: Some(1_000.0),
            ..Signal::default()
        };
        window.heard(at(step));
        window.observe(&signal, at(step));
        window.tick(at(step));
    }
    assert!(window.take_findings().is_empty());
    let asked = (31..200).find(|second| {
        window.heard(at(*second));
        window.wants_stacks(at(*second))
    });
    assert_eq!(asked, Some(40));
    let left = Signal {
        task: Some(1),
        stacks: Some(true),
        ..Signal::default()
    };
    window.observe(&left, at(41));
    let mut findings = Vec::new();
    let hung = (41..200).find(|second| {
        window.heard(at(*second));
        window.tick(at(*second));
        findings = window.take_findings();
        !findings.is_empty()
    });
    assert_eq!(hung, Some(50), "stacks are no step");
    let said = format!("{findings:?}");
    let where_they_are =
        "the stacks of task 1 are in its output: `antiphon logs job-1 --attempt 1`";
    assert!(said.contains(where_they_are), "{said}");
}

#[test]
fn absurd_numbers_count_as_missing() {
    let mut window = window();
    for step in [0, 1, u64::MAX, 5, u64::MAX / 2] {
        for number in [f64::NAN, f64::INFINITY, -1e300, f64::MAX, 1e17, -0.0] {
            let signal = Signal {
                step: Some(step),
                loss: Some(number),
                grad_norm: Some(number),
                step_ms: Some(number),
                tokens: Some(number),
                weight: Some(number),
                samples: Some(u64::MAX),
                unique_samples: Some(u64::MAX),
                vocabulary: Some(u64::MAX),
                progress: Some(ProgressSignal {
                    step,
                    total_steps: u64::MAX,
                    target_loss: Some(number),
                }),
                ..Signal::default()
            };
            let shard = Some("s".into());
            window.observe(&signal, at(1));
            window.observe(
                &Signal {
                    shard,
                    ..signal.clone()
                },
                at(1),
            );
            let probe_loss = Some(number);
            window.observe(
                &Signal {
                    probe_loss,
                    ..signal
                },
                at(1),
            );
        }
    }
    let latest = window.latest();
    for number in [
        latest.loss,
        latest.grad_norm,
        latest.step_ms,
        latest.tokens_per_s,
    ] {
        assert!(number.is_none_or(f64::is_finite), "{latest:?}");
    }
    assert!(window.shards().iter().all(|shard| shard.loss.is_finite()));
}

#[test]
fn curves_are_kept_by_name() {
    let mut run = Rehearsal::new(1, &[("code", (7.0, 3.0, 90.0))]).shard(
        "a/b",
        "code",
        1.0,
        Kind::Healthy(0.0),
    );
    let mut window = window();
    for step in 1..=2_000 {
        run.step(&mut window, step);
        let whole = Signal {
            task: Some(1),
            step: Some(step),
            loss: Some(3.0),
            ..Signal::default()
        };
        window.observe(&whole, at(step));
    }
    assert_eq!(window.series("loss").unwrap().len(), 500);
    let shard = window.series("shard/a/b").unwrap();
    assert!(shard.len() > 32 && shard[0].mean > shard[shard.len() - 1].mean + 2.0);
    for unknown in ["probe/code", "shard/z", "grad_norm", "nonsense"] {
        assert_eq!(window.series(unknown), None, "{unknown}");
    }
}

#[test]
fn a_silent_trainer_is_told_nothing() {
    let mut window = window();
    let mut run = Rehearsal::new(1, &[("code", (7.0, 3.0, 90.0))]).shard(
        "a",
        "code",
        1.0,
        Kind::Healthy(0.0),
    );
    (1..=100).for_each(|step| run.step(&mut window, step));
    window.take_findings();
    (100..100_000)
        .step_by(5)
        .for_each(|second| window.tick(at(second)));
    assert_eq!(window.take_findings(), []);
}

#[test]
fn after_a_rollback_the_windows_fill_anew() {
    let mut window = window();
    let mut run = Rehearsal::new(
        1,
        &[("code", (7.0, 3.0, 90.0)), ("prose", (7.0, 4.0, 90.0))],
    )
    .shard("a", "code", 0.5, Kind::Healthy(0.0))
    .shard("b", "prose", 0.5, Kind::Healthy(0.0));
    let mut probed = |window: &mut JobWindow, steps: std::ops::RangeInclusive<u64>| {
        for step in steps {
            run.step(window, step);
            if step % 20 == 0 {
                for category in ["code", "prose"] {
                    let probe = Signal {
                        step: Some(step),
                        category: Some(category.into()),
                        probe_loss: Some(3.0 + 4.0 * (-(step as f64) / 90.0).exp()),
                        ..Signal::default()
                    };
                    window.observe(&probe, at(step));
                }
            }
        }
    };
    probed(&mut window, 1..=300);
    assert!(window.shards().iter().all(|shard| shard.gap.is_some()));
    window.take_findings();
    probed(&mut window, 101..=115);
    assert!(window.shards().iter().all(|shard| shard.gap.is_none()));
    probed(&mut window, 116..=300);
    assert!(
        window
            .shards()
            .iter()
            .all(|shard| shard.gap.is_some_and(|gap| gap.abs() < 1.5))
    );
    let convicted = window.take_findings().into_iter().filter(|finding| {
        matches!(finding, Finding::Diagnosis(said) if !said.remedies.is_empty() && !said.subject.is_empty())
    });
    assert_eq!(convicted.collect::<Vec<_>>(), []);
}

#[test]
fn what_a_signal_says_of_a_shard_wins_over_what_was_known() {
    let origin = antiphon_types::ShardOrigin {
        category: "known".to_owned(),
        samples: Some(100),
        ..antiphon_types::ShardOrigin::default()
    };
    let shards = ["a", "b"].map(|name| (name.to_owned(), origin.clone()));
    let mut window = window().with_context(Context {
        shards: shards.into(),
        ..Context::default()
    });
    for (shard, category) in [("a", None), ("b", Some("said".into()))] {
        let signal = Signal {
            step: Some(1),
            shard: Some(shard.into()),
            category,
            loss: Some(1.0),
            ..Signal::default()
        };
        window.observe(&signal, at(1));
    }
    let categories: Vec<String> = window
        .shards()
        .into_iter()
        .map(|shard| shard.category)
        .collect();
    assert_eq!(categories, ["known", "said"]);
}
