//! The promises of the batch rule, on simulated trainers.

use super::noise_scale::{GradientSquares, NoiseScaleRule};
use super::*;
use crate::draw::Draw;

/// A trainer whose memory is `fixed + per_row x rows`, less up to `wobble` of it from step to step.
struct Trainer {
    draw: Draw,
    fixed: f64,
    per_row: f64,
    wobble: f64,
    rows: u32,
    /// Sizes it has run with, in order.
    sizes: Vec<u32>,
    out_of_memory: u32,
    last_share: f64,
}

impl Trainer {
    fn new(seed: u64, fixed: f64, per_row: f64, rows: u32) -> Self {
        Self {
            draw: Draw::new(seed),
            fixed,
            per_row,
            wobble: 0.03,
            rows,
            sizes: vec![rows],
            out_of_memory: 0,
            last_share: 0.0,
        }
    }

    /// Trains and does what it is told.
    fn train(&mut self, rule: &mut MicroBatchRule, steps: u64) -> Vec<Conclusion> {
        let mut said = Vec::new();
        for step in 1..=steps {
            for _task in 0..4 {
                let share = self.fixed + self.per_row * f64::from(self.rows);
                let share = share * (1.0 - self.wobble * self.draw.unit());
                self.last_share = share;
                if share > 1.0 {
                    self.out_of_memory += 1;
                    rule.out_of_memory(self.rows);
                }
                let peak = MemoryPeak {
                    micro_batch: self.rows,
                    peak_bytes: share.min(1.0) * 80e9,
                    total_bytes: 80e9,
                };
                said.extend(rule.observe(&peak, step, Timestamp::ZERO));
            }
            if let Some(Remedy::Direct(DirectiveBody::SetMicroBatch { rows })) =
                said.last().and_then(|one| one.remedies.first())
                && *rows != self.rows
            {
                self.rows = *rows;
                self.sizes.push(*rows);
            }
        }
        said
    }
}

#[test]
fn memory_ends_between_70_and_90_percent_without_ever_running_out() {
    let mut draw = Draw::new(7);
    let mut worst_changes = 0;
    for seed in 0..300 {
        let fixed = draw.between(0.05, 0.5);
        // Room for 4 to 60 rows; sizes divide 240, so that neighbors are close enough for the band.
        let fits = draw.between(4.0, 60.0);
        let start = [2, 3, 4][draw.index(3) as usize];
        let mut trainer = Trainer::new(seed, fixed, (0.95 - fixed) / fits, start);
        let mut rule = MicroBatchRule::new(Some(240), 240);
        trainer.train(&mut rule, 1_000);
        let end = fixed + trainer.per_row * f64::from(trainer.rows);
        assert_eq!(trainer.out_of_memory, 0, "{seed}: {:?}", trainer.sizes);
        let next = divisors(240).into_iter().find(|rows| *rows > trainer.rows);
        let next = fixed + trainer.per_row * f64::from(next.unwrap());
        // Where the next size would end above the goal, none lies in the band.
        assert!(
            end < 0.9 && (end >= 0.7 || next > 0.85),
            "{seed}: {end:.3} with {:?}",
            trainer.sizes
        );
        worst_changes = worst_changes.max(trainer.sizes.len() - 1);
    }
    println!("changes of size at most: {worst_changes}");
    assert!(worst_changes <= 5);
}

#[test]
fn a_size_that_is_full_shrinks_at_once_and_to_the_size_that_fits() {
    let mut trainer = Trainer::new(1, 0.35, 0.0195, 30);
    let mut rule = MicroBatchRule::new(Some(120), 120);
    let said = trainer.train(&mut rule, 400);
    assert_eq!(said[0].verdict, Verdict::MemoryHigh);
    assert!(said[0].step <= SETTLE_STEPS + 1);
    let end = 0.35 + 0.0195 * f64::from(trainer.rows);
    assert!((0.7..0.9).contains(&end), "{:?}", trainer.sizes);
    assert_eq!(said.last().unwrap().verdict, Verdict::Cleared);
}

#[test]
fn memory_never_swings_between_two_sizes() {
    // 8 rows are 60 %, 16 would be 95 %: nothing lies between, so 8 it is.
    let mut trainer = Trainer::new(2, 0.25, 0.04375, 16);
    let mut rule = MicroBatchRule::new(Some(16), 16);
    trainer.train(&mut rule, 2_000);
    assert_eq!(trainer.sizes, [16, 8]);
}

#[test]
fn after_running_out_of_memory_that_size_is_never_asked_for_again() {
    let mut rule = MicroBatchRule::new(None, 1_024);
    rule.out_of_memory(32);
    let mut trainer = Trainer::new(3, 0.3, 0.01, 32);
    trainer.train(&mut rule, 500);
    assert_eq!(trainer.sizes, [32, 16]);
}

#[test]
fn a_trainer_that_does_not_obey_is_asked_once() {
    let mut rule = MicroBatchRule::new(Some(64), 64);
    let peak = MemoryPeak {
        micro_batch: 4,
        peak_bytes: 20e9,
        total_bytes: 80e9,
    };
    let said = (0..1_000).filter_map(|step| rule.observe(&peak, step, Timestamp::ZERO));
    let said: Vec<Conclusion> = said.collect();
    assert_eq!(said.len(), 1);
    assert_eq!(
        said[0].remedies,
        [direct(DirectiveBody::SetMicroBatch { rows: 8 })]
    );
}

#[test]
fn one_row_that_does_not_fit_leaves_recomputation_and_offload() {
    let mut trainer = Trainer::new(4, 0.5, 0.45, 1);
    let said = trainer.train(&mut MicroBatchRule::new(Some(8), 8), 300);
    assert_eq!(said.len(), 1);
    let recompute = direct(DirectiveBody::SetRecompute { on: true });
    assert_eq!(said[0].remedies[0], recompute);
}

#[test]
fn the_noise_scale_of_known_gradients_is_found_and_told_once() {
    // Each row's gradient is the true one, of square 1, plus noise of total variance 4,000 over 200 numbers.
    let mut draw = Draw::new(11);
    let (mut rule, mut said) = (NoiseScaleRule::default(), Vec::new());
    for step in 0..600 {
        let mut square = |rows: f64| {
            let noise = (4_000.0 / 200.0 / rows).sqrt();
            let numbers = (0..200).map(|_| (1.0_f64 / 200.0).sqrt() + noise * draw.normal());
            numbers.map(|number| number * number).sum::<f64>()
        };
        let squares = GradientSquares {
            small: square(32.0),
            big: square(1_024.0),
            rows_small: 32.0,
            rows_big: 1_024.0,
        };
        said.extend(rule.observe(&squares, step, Timestamp::ZERO));
    }
    let rows = rule.rows().unwrap();
    assert!((3_000.0..5_300.0).contains(&rows), "{rows}");
    assert_eq!(said.len(), 1);
    assert!(said[0].remedies.is_empty() && said[0].verdict == Verdict::NoiseScale);
}
