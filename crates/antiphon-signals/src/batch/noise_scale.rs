//! The noise scale: how large a batch may be before its gradient is more exact than the optimizer has use for. Opt-in.
//!
//! "An Empirical Model of Large-Batch Training" (arXiv 1812.06162), appendix A.1. From the squared
//! norms `g` of the gradients of a small batch of `b` rows and of a big one of `B` rows:
//! `|G|^2 = (B g_B - b g_b) / (B - b)` estimates the true gradient's square without bias, and
//! `S = (g_b - g_B) / (1/b - 1/B)` the sum of the variances of one row's gradient. Both are noisy: each is averaged over
//! the steps on its own, and `S / |G|^2` is the noise scale in rows. A batch well below it loses little by being doubled;
//! the learning rate has to follow, so this is evidence for people and has no remedy.

use antiphon_types::{Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;

/// Part of the average that one observation replaces.
const RATE: f64 = 0.02;
/// Observations before anything is said.
const OBSERVATIONS_MIN: u32 = 100;
/// The noise scale has to be so many global batches.
const BATCHES_MIN: f64 = 2.0;
/// And to have moved by this factor since it was told.
const MOVE: f64 = 2.0;

/// Squared gradient norms of two batch sizes in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GradientSquares {
    /// Of the small batch: one task's, or one micro-batch's.
    pub small: f64,
    /// Of the global batch.
    pub big: f64,
    /// Rows of the small batch.
    pub rows_small: f64,
    /// Rows of the global batch.
    pub rows_big: f64,
}

/// The noise scale of one attempt.
#[derive(Debug, Default)]
pub(crate) struct NoiseScaleRule {
    gradient: f64,
    variance: f64,
    observations: u32,
    told: Option<f64>,
}

impl NoiseScaleRule {
    /// The noise scale in rows, once it means something.
    #[must_use]
    pub(crate) fn rows(&self) -> Option<f64> {
        let known = self.observations >= OBSERVATIONS_MIN;
        (known && self.gradient > 0.0 && self.variance > 0.0).then(|| self.variance / self.gradient)
    }

    /// Takes a step's norms in. `_at` is when the signal came; the averages go by steps alone.
    pub(crate) fn observe(
        &mut self,
        squares: &GradientSquares,
        step: u64,
        _at: Timestamp,
    ) -> Option<Conclusion> {
        let GradientSquares {
            small,
            big,
            rows_small,
            rows_big,
        } = *squares;
        let sane = |number: f64| number.is_finite() && number > 0.0;
        if ![small, big, rows_small, rows_big].into_iter().all(sane) || rows_big <= rows_small {
            return None;
        }
        let gradient = (rows_big * big - rows_small * small) / (rows_big - rows_small);
        let variance = (small - big) / (1.0 / rows_small - 1.0 / rows_big);
        self.observations = self.observations.saturating_add(1);
        // A plain mean first, an exponential one later.
        let rate = RATE.max(1.0 / f64::from(self.observations));
        self.gradient += rate * (gradient - self.gradient);
        self.variance += rate * (variance - self.variance);
        let rows = self.rows()?;
        let moved = self
            .told
            .is_none_or(|told| rows > told * MOVE || rows < told / MOVE);
        if rows < BATCHES_MIN * rows_big || !moved {
            return None;
        }
        self.told = Some(rows);
        Some(Conclusion {
            rule: Rule::Batch,
            subject: "global batch".to_owned(),
            verdict: Verdict::NoiseScale,
            evidence: format!(
                "noise scale {rows:.0} rows against a global batch of {rows_big:.0}, over {} steps: twice the batch \
                 would lose little, with the learning rate raised",
                self.observations
            ),
            step,
            remedies: Vec::new(),
        })
    }
}
