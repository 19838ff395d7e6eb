//! Where a loss curve goes: the steps that remain and the loss it ends with, each with an 80 % interval.
//!
//! The model is `a + b (t + c)^-p`, which holds an exponential approach as its limit of large `p` and `c`. For each pair
//! of a grid over `p` and `c`, `a` and `b` follow by linear least squares; every pair that bends the right way is a
//! candidate, weighed by its likelihood `exp(-sse / 2 v)`. What is asked for is computed from each candidate, and the
//! weighted quantiles at 10, 50 and 90 % are the answer: no starting point, no random number, nothing that diverges.
//!
//! What is asked for besides is when the *smoothed* loss first reaches its target, and that is noisy: see `LIFTS`.
//!
//! These choices were made on one half of the real curves in `tests/data` and judged on the other (`convergence/tests.rs`):
//! the first quarter of the run is left out, as warm-up and the first plateau follow no power law, and the variance `v`
//! is that of the best candidate's residuals times `TEMPER`, as what is left over is model error and not noise.

use crate::robust::{deviation, median};

/// Part of the run so far that is left out.
const SKIP: f64 = 0.25;
/// Points that a curve is condensed to, evenly over the logarithm of the steps.
const POINTS: usize = 24;
/// Points below which nothing is said.
const POINTS_MIN: usize = 6;
/// Exponents and offsets of the grid: so many, from, to.
const EXPONENTS: (usize, f64, f64) = (16, 0.1, 4.0);
const OFFSETS: (usize, f64, f64) = (16, 0.01, 3.0);
/// Factor on the variance of the residuals.
const TEMPER: f64 = 16.0;
/// Standard deviation of the fit at the least, as a part of the fall so far.
const ERROR_MIN: f64 = 0.004;
/// Part of the whole fall that still counts as the plateau.
const NEAR: f64 = 0.02;
/// Where the run's own noise puts the target, in errors of the smoothed loss: a smoothed loss first touches it when the
/// curve is about one error above, and the loss at the end is off by as much itself. The quantiles at 10, 30, .. 90 % of
/// a normal distribution around 1, of twice the error, as neighbors of a smoothed loss err together.
const LIFTS: [f64; 5] = [-1.56, -0.04, 1.0, 2.04, 3.56];
/// A run without a known end is followed for so many times its steps so far.
const HORIZON: f64 = 20.0;
/// Part of the whole run that a smoothed loss is smoothed over.
pub(super) const SMOOTH: f64 = 0.05;

/// A value and the interval that holds it in eight of ten cases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// One in ten is below.
    pub low: f64,
    /// As many are below as above.
    pub middle: f64,
    /// One in ten is above.
    pub high: f64,
}

/// Where a run goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// Steps until the smoothed loss first reaches the target; 0 where it is there already. The target is the loss at the
    /// run's end and 2 % of the whole fall.
    pub remaining: Estimate,
    /// The loss at the run's end: after all its steps, or where they are not known, after very many.
    pub end: Estimate,
    /// The loss now, by the fit.
    pub now: f64,
}

/// A point of the curve: the step, the mean loss of its stretch, and how many observations are behind it.
pub(super) type Point = (f64, f64, f64);

/// The forecast from a curve in rising order of steps, that began with the loss `start` and has `total` steps in all.
pub(super) fn forecast(points: &[Point], start: f64, total: Option<f64>) -> Option<Forecast> {
    let now = points.last()?.0;
    let end = total.map_or(HORIZON, |total| total / now);
    let condensed = condense(points, now);
    if now <= 0.0 || end < 1.0 || condensed.len() < POINTS_MIN {
        return None;
    }
    let noise = smoothed_noise(points, total.unwrap_or(now));
    let mut candidates = Vec::with_capacity(EXPONENTS.0 * OFFSETS.0);
    for exponent in spread(EXPONENTS) {
        for offset in spread(OFFSETS) {
            candidates.extend(Candidate::fit(&condensed, exponent, offset));
        }
    }
    let best = candidates
        .iter()
        .map(|one| one.sse)
        .min_by(f64::total_cmp)?;
    let fell = start - condensed.last()?.1;
    let free = (condensed.len() as f64 - 4.0).max(1.0);
    let variance = TEMPER * best / free + (ERROR_MIN * fell).powi(2) + f64::MIN_POSITIVE;
    let mut remaining = Vec::with_capacity(LIFTS.len() * candidates.len());
    let (mut ends, mut nows) = (Vec::new(), Vec::new());
    for one in &candidates {
        let weight = (-(one.sse - best) / (2.0 * variance)).exp();
        let last = one.loss(end);
        for lift in LIFTS {
            let goal = last + NEAR * (start - last) + lift * noise;
            let reached = one.reaches(goal).clamp(1.0, end);
            remaining.push(((reached - 1.0) * now, weight));
        }
        ends.push((last, weight));
        nows.push((one.loss(1.0), weight));
    }
    Some(Forecast {
        remaining: quantiles(remaining),
        end: quantiles(ends),
        now: quantiles(nows).middle,
    })
}

/// One pair of exponent and offset with its line; steps are counted in units of now.
struct Candidate {
    a: f64,
    b: f64,
    exponent: f64,
    offset: f64,
    sse: f64,
}

impl Candidate {
    fn fit(points: &[Point], exponent: f64, offset: f64) -> Option<Self> {
        let x = |step: f64| (step + offset).powf(-exponent);
        let (mut weight, mut mean_x, mut mean_y) = (0.0, 0.0, 0.0);
        for (step, loss, behind) in points {
            weight += behind;
            mean_x += behind * x(*step);
            mean_y += behind * loss;
        }
        (mean_x, mean_y) = (mean_x / weight, mean_y / weight);
        let (mut xx, mut xy) = (0.0, 0.0);
        for (step, loss, behind) in points {
            let away = x(*step) - mean_x;
            xx += behind * away * away;
            xy += behind * away * (loss - mean_y);
        }
        let b = xy / xx;
        let a = mean_y - b * mean_x;
        let misses = points.iter().map(|(step, loss, behind)| {
            let miss = a + b * x(*step) - loss;
            behind * miss * miss
        });
        let sse = misses.sum();
        // A loss that rises, or ends below nothing, is no loss of this kind.
        (b > 0.0 && a >= 0.0 && f64::is_finite(sse)).then_some(Self {
            a,
            b,
            exponent,
            offset,
            sse,
        })
    }

    fn loss(&self, step: f64) -> f64 {
        self.a + self.b * (step + self.offset).powf(-self.exponent)
    }

    /// The step at which the loss is `goal`.
    fn reaches(&self, goal: f64) -> f64 {
        if goal <= self.a {
            return f64::INFINITY;
        }
        ((goal - self.a) / self.b).powf(-1.0 / self.exponent) - self.offset
    }
}

/// Means of stretches that are equally long on a logarithmic scale, weighed by the root of what is behind them: steps in
/// units of now.
fn condense(points: &[Point], now: f64) -> Vec<Point> {
    let mut sums = [(0.0, 0.0, 0.0, 0.0); POINTS];
    for (step, loss, behind) in points {
        let at = (step / now / SKIP).ln() / -SKIP.ln();
        if at >= 0.0 {
            let place = ((at * POINTS as f64) as usize).min(POINTS - 1);
            let sum = &mut sums[place];
            sum.0 += behind;
            sum.1 += behind * step / now;
            sum.2 += behind * loss;
            sum.3 += 1.0;
        }
    }
    sums.iter()
        .filter(|sum| sum.0 > 0.0)
        .map(|sum| (sum.1 / sum.0, sum.2 / sum.0, f64::sqrt(sum.3)))
        .collect()
}

/// The standard deviation of the smoothed loss, from how the later half of the points scatters from one to the next.
fn smoothed_noise(points: &[Point], total: f64) -> f64 {
    let later = &points[points.len() / 2..];
    let moves = later.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let mut moves: Vec<f64> = moves.collect();
    let Some(center) = median(&mut moves) else {
        return 0.0;
    };
    let scatter = deviation(moves.iter().copied(), center) / 2_f64.sqrt();
    let apart = (later[later.len() - 1].0 - later[0].0) / (later.len() as f64 - 1.0);
    let smoothed_over = (SMOOTH * total / apart).max(1.0);
    scatter / smoothed_over.sqrt()
}

/// So many values from one to another, evenly over the logarithm.
fn spread((count, from, to): (usize, f64, f64)) -> impl Iterator<Item = f64> {
    (0..count).map(move |place| from * (to / from).powf(place as f64 / (count - 1) as f64))
}

/// The quantiles of values with weights; there is one at least.
fn quantiles(mut values: Vec<(f64, f64)>) -> Estimate {
    values.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: f64 = values.iter().map(|(_, weight)| weight).sum();
    let at = |part: f64| {
        let mut below = 0.0;
        let found = values.iter().find(|(_, weight)| {
            below += weight;
            below >= part * total
        });
        found
            .or(values.last())
            .map_or(f64::NAN, |(value, _)| *value)
    };
    Estimate {
        low: at(0.1),
        middle: at(0.5),
        high: at(0.9),
    }
}
