//! The last training losses: what is usual, and what lies far above it.

use std::collections::VecDeque;

use crate::robust::{deviation, median};

/// Losses remembered.
const LOSSES: usize = 64;
/// Losses before anything is far above them.
const LOSSES_MIN: usize = 32;
/// Deviations above their median that make a spike.
const DEVIATIONS: f64 = 8.0;
/// And part of the whole fall.
const FALL: f64 = 0.25;

/// The last training losses that were no spikes.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<f64>);

impl Recent {
    pub(super) fn push(&mut self, loss: f64) {
        if self.0.len() == LOSSES {
            self.0.pop_front();
        }
        self.0.push_back(loss);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Their median.
    pub(super) fn usual(&self) -> Option<f64> {
        median(&mut self.0.iter().copied().collect::<Vec<_>>())
    }

    /// Whether a loss lies far above them, in a run that began with `start`.
    pub(super) fn is_spike(&self, loss: f64, start: Option<f64>) -> bool {
        // Nearly every loss is below another of the last ones, and that is quickly seen.
        if self.len() < LOSSES_MIN || self.0.iter().any(|recent| loss <= *recent) {
            return false;
        }
        let Some(usual) = self.usual() else {
            return false;
        };
        let scatter = deviation(self.0.iter().copied(), usual);
        let fell = start.map_or(0.0, |start| start - usual);
        loss - usual > (DEVIATIONS * scatter).max(FALL * fell)
    }
}
