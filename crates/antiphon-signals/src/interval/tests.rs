//! The promises of the checkpoint rule, under simulated failures and disks.

use super::disk::DiskRule;
use super::*;
use crate::draw::Draw;

const HOUR: f64 = 3_600_000.0;

/// Times from failure to failure, in milliseconds.
fn failures(seed: u64, mean_ms: f64, count: usize) -> Vec<f64> {
    let mut draw = Draw::new(seed);
    (0..count).map(|_| mean_ms * draw.exponential()).collect()
}

/// The part of the time that is neither saved work: saves, and work lost to each failure.
fn waste(interval_ms: f64, cost_ms: f64, failures: &[f64]) -> f64 {
    let work_ms = interval_ms - cost_ms;
    let kept: f64 = failures
        .iter()
        .map(|ms| (ms / interval_ms).floor() * work_ms)
        .sum();
    1.0 - kept / failures.iter().sum::<f64>()
}

/// The least waste of any fixed interval up to `most_ms`, tried 3 % apart.
fn least_waste(cost_ms: f64, failures: &[f64], most_ms: f64) -> f64 {
    let tried = std::iter::successors(Some(cost_ms * 1.1), |ms| Some(ms * 1.03));
    let tried = tried.take_while(|ms| *ms <= most_ms).chain([most_ms]);
    tried
        .map(|ms| waste(ms, cost_ms, failures))
        .fold(1.0, f64::min)
}

/// What the rule asks for after saves that cost this much, with this history behind it.
fn told(gpus: u32, cost_ms: f64, failed: u32, ran_ms: f64) -> f64 {
    let mut rule = IntervalRule::new(gpus, failed, millis(ran_ms));
    rule.keeps(Millis::from_secs(36_000));
    let save = Save {
        step: 1,
        bytes: Bytes::new(1),
        blocked: millis(cost_ms),
    };
    assert!(rule.saved(&save, Timestamp::ZERO).is_none());
    let said = rule.saved(&save, Timestamp::from_millis(1_000)).unwrap();
    match said.remedies[..] {
        [Remedy::Direct(DirectiveBody::SetCheckpointInterval { interval })] => {
            interval.as_millis() as f64
        }
        _ => panic!("{said:?}"),
    }
}

#[test]
fn dalys_interval_wastes_within_a_tenth_of_the_best_fixed_one() {
    let mut worst: f64 = 0.0;
    for (seed, cost_s) in [1.0, 5.0, 20.0, 60.0, 180.0, 600.0].into_iter().enumerate() {
        for hours in [0.5, 2.0, 8.0, 24.0, 72.0, 240.0] {
            let (cost_ms, mean_ms) = (cost_s * 1_000.0, hours * HOUR);
            let failures = failures(seed as u64, mean_ms, 20_000);
            let ours = waste(best_ms(cost_ms, mean_ms), cost_ms, &failures);
            let best = least_waste(cost_ms, &failures, 10.0 * mean_ms);
            worst = worst.max(ours / best - 1.0);
        }
    }
    println!(
        "waste over the best fixed interval's, worst of 36 pairs of cost and failure rate: {:.2} %",
        100.0 * worst
    );
    assert!(worst <= 0.10, "{worst}");
}

#[test]
fn the_interval_learned_from_twenty_failures_wastes_within_a_tenth_of_the_best_under_the_caps() {
    let mut worst: f64 = 0.0;
    for (gpus, cap_ms) in [(8, 0.5 * HOUR), (64, HOUR / 6.0), (512, HOUR / 12.0)] {
        for (seed, cost_s) in [1.0, 5.0, 20.0, 40.0].into_iter().enumerate() {
            for hours in [0.5, 2.0, 8.0, 24.0, 72.0] {
                let (cost_ms, mean_ms) = (cost_s * 1_000.0, hours * HOUR);
                let history = failures(100 + seed as u64, mean_ms, 20);
                let interval = told(gpus, cost_ms, 20, history.iter().sum());
                assert!(interval <= cap_ms);
                let failures = failures(seed as u64, mean_ms, 20_000);
                let best = least_waste(cost_ms, &failures, cap_ms);
                worst = worst.max(waste(interval, cost_ms, &failures) / best - 1.0);
            }
        }
    }
    println!(
        "the same with a learned rate and the caps, worst of 60: {:.2} %",
        100.0 * worst
    );
    assert!(worst <= 0.10, "{worst}");
}

#[test]
fn without_failures_the_prior_speaks_and_the_caps_hold() {
    // 10 s and 8 GPUs: sqrt(2 x 10 s x 70.6 h) is 37 min.
    assert!((told(8, 10_000.0, 0, 0.0) - 1_800_000.0).abs() < 1.0);
    let one_second = told(8, 1_000.0, 0, 0.0);
    assert!((650_000.0..800_000.0).contains(&one_second), "{one_second}");
    assert!(told(16, 60_000.0, 0, 0.0) <= 600_000.0);
    assert!(told(128, 20_000.0, 0, 0.0) <= 300_000.0);
    // A save that takes two minutes is not asked for every five.
    assert!((told(128, 120_000.0, 0, 0.0) - 600_000.0).abs() < 1.0);
}

#[test]
fn a_quarter_more_or_less_is_not_worth_a_word() {
    let ideal = told(8, 1_000.0, 0, 0.0);
    let mut rule = IntervalRule::new(8, 0, Millis::ZERO);
    let save = Save {
        step: 1,
        bytes: Bytes::new(1),
        blocked: Millis::from_secs(1),
    };
    let mut at = 0.0;
    let mut words = Vec::new();
    for factor in [1.2, 1.2, 1.2, 0.85, 0.85, 0.85] {
        at += ideal * factor;
        words.extend(rule.saved(&save, millis_at(at)));
    }
    assert!(words.is_empty(), "{words:?}");
    for _ in 0..8 {
        at += 2.0 * ideal;
        words.extend(rule.saved(&save, millis_at(at)));
    }
    assert!(!words.is_empty());
}

fn millis_at(ms: f64) -> Timestamp {
    Timestamp::from_millis(ms as u64)
}

#[test]
fn a_volatile_loss_halves_the_interval() {
    let mut rule = IntervalRule::new(8, 0, Millis::ZERO);
    let mut draw = Draw::new(5);
    (0..1_000).for_each(|_| rule.observe(2.0 + 0.05 * draw.normal()));
    let calm = rule.wanted(1_000.0, 70.0 * HOUR);
    (0..40).for_each(|_| rule.observe(2.0 + 0.5 * draw.normal()));
    let volatile = rule.wanted(1_000.0, 70.0 * HOUR);
    assert!(volatile.as_millis().abs_diff(calm.as_millis() / 2) <= 1);
    (0..1_000).for_each(|_| rule.observe(2.0 + 0.05 * draw.normal()));
    assert_eq!(rule.wanted(1_000.0, 70.0 * HOUR), calm);
}

#[test]
fn a_disk_that_fills_is_told_before_the_save_that_would_fail() {
    let mut draw = Draw::new(9);
    for _ in 0..500 {
        let bytes = 10.0 * draw.between(0.8, 1.2);
        let other = draw.between(0.0, 2.0) * bytes;
        let mut free = bytes * draw.between(3.0, 30.0);
        let mut rule = DiskRule::new(None);
        let mut told_before = None;
        for save in 0..100_u64 {
            for _ in 0..10 {
                free -= other / 10.0 * draw.between(0.8, 1.2);
                let said = rule.observe(free.max(0.0) * 1e9, save);
                told_before = told_before.or(said.map(|one| (one.verdict, save)));
            }
            if free < bytes {
                let (verdict, at) = told_before.expect("it was told");
                assert!(verdict == Verdict::DiskFull && at <= save);
                // Nor long before: the save before the last one that fits.
                assert!(save <= at + 2, "told {at}, full {save}");
                break;
            }
            free -= bytes;
            rule.saved(Bytes::new((bytes * 1e9) as u64));
            let said = rule.observe(free.max(0.0) * 1e9, save);
            told_before = told_before.or(said.map(|one| (one.verdict, save)));
        }
        assert!(told_before.is_some());
    }
}

#[test]
fn a_disk_whose_old_checkpoints_are_deleted_never_fills() {
    let mut rule = DiskRule::new(Some(Bytes::new(10_000_000_000)));
    for save in 0..100 {
        // Saved first, the oldest deleted then: 15 GB free, 5 GB for a moment.
        for free in [15e9, 15e9] {
            assert!(rule.observe(free, save).is_none());
        }
        rule.saved(Bytes::new(10_000_000_000));
    }
    let said = rule.observe(4e9, 100).unwrap();
    assert_eq!(said.verdict, Verdict::DiskFull);
    assert_eq!(rule.observe(40e9, 102).unwrap().verdict, Verdict::Cleared);
}
