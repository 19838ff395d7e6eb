//! A loss curve of any length in bounded memory: means of equal stretches, twice as long each time they would be too many.

use super::fit::Point;
use crate::robust::deviation;

/// Stretches kept at most; at least half as many once there were that many.
const STRETCHES_MAX: usize = 256;

/// Part of the steps that a trend is taken over.
const TREND: f64 = 0.25;

/// One series of losses over steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Curve {
    stretches: Vec<Stretch>,
    /// Observations of a full stretch.
    full: u64,
    /// The first loss.
    start: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    steps: f64,
    losses: f64,
    count: u64,
}

impl Curve {
    pub(super) fn push(&mut self, step: u64, loss: f64) {
        self.start.get_or_insert(loss);
        self.full = self.full.max(1);
        match self.stretches.last_mut() {
            Some(last) if last.count < self.full => last.add(step as f64, loss, 1),
            _ => {
                if self.stretches.len() == STRETCHES_MAX {
                    self.halve();
                }
                let mut next = Stretch::default();
                next.add(step as f64, loss, 1);
                self.stretches.push(next);
            }
        }
    }

    fn halve(&mut self) {
        self.full *= 2;
        let pairs = self.stretches.chunks(2).map(|pair| {
            let mut both = pair[0];
            if let Some(second) = pair.get(1) {
                both.steps += second.steps;
                both.losses += second.losses;
                both.count += second.count;
            }
            both
        });
        self.stretches = pairs.collect();
    }

    pub(super) fn start(&self) -> Option<f64> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.stretches.len()
    }

    /// The means, in rising order of steps; an unfinished last stretch counts with the one before it.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut means: Vec<Stretch> = self.stretches.clone();
        if let [.., before, last] = &mut means[..]
            && last.count * 2 < self.full
        {
            before.steps += last.steps;
            before.losses += last.losses;
            before.count += last.count;
            means.pop();
        }
        means.iter().map(Stretch::point).collect()
    }

    /// The mean loss of the observations between two steps, both included as far as stretches are fine enough.
    pub(super) fn mean(&self, from: f64, to: f64) -> Option<f64> {
        let within = self.stretches.iter().map(Stretch::point);
        let within = within.filter(|(step, ..)| *step >= from && *step <= to);
        let (sum, count) = within.fold((0.0, 0.0), |(sum, count), (_, loss, behind)| {
            (sum + loss * behind, count + behind)
        });
        (count > 0.0).then(|| sum / count)
    }
}

impl Stretch {
    fn add(&mut self, step: f64, loss: f64, count: u64) {
        self.steps += step;
        self.losses += loss;
        self.count += count;
    }

    fn point(&self) -> Point {
        let count = self.count as f64;
        (self.steps / count, self.losses / count, count)
    }
}

/// What the last quarter of the steps brought.
pub(super) struct Trend {
    pub(super) fall: f64,
    /// Two standard errors of `fall`.
    pub(super) noise: f64,
    pub(super) whole: f64,
}

impl Trend {
    /// The difference between the halves of the last quarter, doubled: what a straight line falls over all of it.
    pub(super) fn of(curve: &Curve) -> Option<Self> {
        let points = curve.points();
        let begins = points.last()?.0 * (1.0 - TREND);
        let late: Vec<f64> = points
            .iter()
            .filter(|point| point.0 >= begins)
            .map(|point| point.1)
            .collect();
        if late.len() < 4 {
            return None;
        }
        let (early, late) = late.split_at(late.len() / 2);
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        let fall = 2.0 * (mean(early) - mean(late));
        let moves = early.windows(2).chain(late.windows(2));
        let scatter = deviation(moves.map(|pair| pair[1] - pair[0]), 0.0) / 2_f64.sqrt();
        let count = (early.len() + late.len()) as f64;
        let whole = curve.start()? - mean(late);
        Some(Self {
            fall,
            noise: 2.0 * 4.0 * scatter / count.sqrt(),
            whole: whole.max(f64::MIN_POSITIVE),
        })
    }
}
