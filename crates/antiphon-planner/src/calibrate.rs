//! What measured attempts say about plans: at most three factors for a GPU type and a framework, on compute, communication and
//! memory. Few, so that a handful of attempts is enough and a new layout is still planned, not remembered.

use crate::speed::Speed;

/// An attempt: what was planned, and what was measured.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Planned milliseconds of a step.
    pub planned_ms: f64,
    /// Of them, those that wait for what travels between GPUs.
    pub communication_ms: f64,
    /// Measured milliseconds of a step.
    pub step_ms: f64,
    /// Planned and measured bytes at the peak, where both are known.
    pub peak_bytes: Option<(f64, f64)>,
}

/// Factors on what is planned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// On everything that one GPU does alone.
    pub compute: f64,
    /// On what travels between GPUs.
    pub communication: f64,
    /// On bytes.
    pub memory: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            compute: 1.0,
            communication: 1.0,
            memory: 1.0,
        }
    }
}

/// Share of its step that communication has to be in some attempt before it gets a factor of its own.
const TOLD_APART: f64 = 0.15;
/// No factor moves further than this from 1: what is off by more is another kind of error.
const MOST: f64 = 3.0;

impl Calibration {
    /// The factors that bring plans nearest to attempts, as shares of each attempt's step.
    #[must_use]
    pub fn of(attempts: &[Attempt]) -> Self {
        let ratios = attempts
            .iter()
            .filter_map(|attempt| attempt.peak_bytes)
            .map(|(planned, measured)| measured / planned)
            .collect();
        let memory = middle(ratios);
        let both = middle(
            attempts
                .iter()
                .map(|attempt| attempt.step_ms / attempt.planned_ms)
                .collect(),
        );
        let (compute, communication) = apart(attempts).unwrap_or((both, both));
        Self {
            compute,
            communication,
            memory,
        }
    }

    /// Milliseconds of a planned step with these factors.
    #[must_use]
    pub fn step_ms(&self, planned: &Speed) -> f64 {
        self.of_parts(planned.step_ms, planned.parts.communication())
    }

    /// The same from its milliseconds and those of them that wait for what travels.
    #[must_use]
    pub fn of_parts(&self, step_ms: f64, communication_ms: f64) -> f64 {
        self.compute * (step_ms - communication_ms) + self.communication * communication_ms
    }

    /// A planned step with these factors: its parts, and all that follows.
    #[must_use]
    pub fn apply(&self, planned: &Speed) -> Speed {
        let mut speed = *planned;
        let step_ms = self.step_ms(planned);
        let slower = step_ms / planned.step_ms;
        speed.parts = planned.parts.scaled(self.compute, self.communication);
        speed.step_ms = step_ms;
        speed.recompute_ms *= self.compute;
        speed.tokens_per_s_per_gpu /= slower;
        speed.tflops /= slower;
        speed.mfu /= slower;
        speed.hfu /= slower;
        speed.bubble_fraction = speed.parts.bubble / step_ms;
        speed
    }
}

/// Least squares over two factors, where attempts differ enough in their communication to tell both.
fn apart(attempts: &[Attempt]) -> Option<(f64, f64)> {
    let shares: Vec<(f64, f64)> = attempts
        .iter()
        .map(|attempt| {
            let communication = attempt.communication_ms;
            (
                (attempt.planned_ms - communication) / attempt.step_ms,
                communication / attempt.step_ms,
            )
        })
        .collect();
    let share = |&(alone, between): &(f64, f64)| between / (alone + between);
    let most = shares.iter().map(share).fold(0.0, f64::max);
    let least = shares.iter().map(share).fold(1.0, f64::min);
    if attempts.len() < 3 || most < TOLD_APART || most - least < TOLD_APART {
        return None;
    }
    let (mut aa, mut ab, mut bb, mut a, mut b) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (alone, between) in shares {
        aa += alone * alone;
        ab += alone * between;
        bb += between * between;
        a += alone;
        b += between;
    }
    let determinant = aa * bb - ab * ab;
    if determinant <= f64::EPSILON {
        return None;
    }
    let compute = (a * bb - b * ab) / determinant;
    let communication = (b * aa - a * ab) / determinant;
    let sane = |factor: f64| (1.0 / MOST..=MOST).contains(&factor);
    (sane(compute) && sane(communication)).then_some((compute, communication))
}

/// The median, within reason; 1 of nothing.
fn middle(ratios: Vec<f64>) -> f64 {
    if ratios.is_empty() {
        return 1.0;
    }
    crate::score::quantile(ratios, 0.5).clamp(1.0 / MOST, MOST)
}
