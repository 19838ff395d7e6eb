//! When made-up jobs come: by the hours of the day, weekends and rushes. Says nothing of which jobs.

use super::{Dice, Rhythm, milliseconds, small};
use crate::trace::rounded;

const HOUR_MS: f64 = 3_600_000.0;

/// When jobs come: hours with unequal rates.
pub(super) struct Clock {
    /// What part of all comes until the end of each hour.
    upto: Vec<f64>,
    span_s: f64,
}

impl Clock {
    /// No load is longer.
    const HOURS_MAX: u64 = 24 * 366 * 10;

    pub(super) fn new(rhythm: &Rhythm, span_s: f64) -> Self {
        let hours = rounded(span_s * 1e3 / HOUR_MS).clamp(1, Self::HOURS_MAX);
        let permille = |number: u32| f64::from(number) / 1e3;
        let rush_h = milliseconds(rhythm.rush) / HOUR_MS;
        let every_h = rushes_every(hours, rhythm.rushes);
        let mut sum = 0.0;
        let mut upto = Vec::new();
        for hour in 0..hours {
            let ahead = (hour + 24 - u64::from(rhythm.peak_hour % 24)) % 24;
            let angle = small(ahead) / 24.0 * std::f64::consts::TAU;
            let mut rate = 1.0 + permille(rhythm.day_permille.min(1_000)) * angle.cos();
            if hour / 24 % 7 >= 5 {
                rate *= permille(rhythm.weekend_permille);
            }
            let rushing = every_h.is_some_and(|every| {
                // In the middle of its part of the span.
                let from_middle = small(hour) % every - every / 2.0;
                from_middle.abs() <= rush_h / 2.0
            });
            if rushing {
                rate *= permille(rhythm.rush_permille);
            }
            sum += rate.max(0.0);
            upto.push(sum);
        }
        if sum > 0.0 {
            for part in &mut upto {
                *part /= sum;
            }
        }
        Self { upto, span_s }
    }

    pub(super) fn draw(&self, dice: &mut Dice) -> f64 {
        let lot = dice.unit();
        let hour = self.upto.partition_point(|upto| *upto <= lot);
        let hour = hour.min(self.upto.len().saturating_sub(1));
        let hours = small(self.upto.len() as u64);
        (small(hour as u64) + dice.unit()) / hours * self.span_s
    }
}

fn rushes_every(hours: u64, rushes: u32) -> Option<f64> {
    (rushes > 0).then(|| small(hours) / f64::from(rushes))
}
