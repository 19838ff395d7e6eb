//! One task of a gang: its times in the window being filled, and what was said of it.

use crate::robust::median;

use super::{STEPS_MIN, WINDOW_MS_MIN};

#[derive(Debug, Default)]
pub(super) struct Task {
    /// Own times of the window being filled and of the next one: reports of different tasks come at different times.
    pub(super) now: Vec<f64>,
    pub(super) next: Vec<f64>,
    pub(super) newest_step: u64,
    pub(super) last_window: u64,
    /// Thousandths of an equal part of the batch that it gets; 0 stands for all of it.
    pub(super) share_permille: u32,
    /// Windows in a row in which it was slow.
    pub(super) slow: u32,
    /// Windows in a row in which it was as fast as the others, since it was accused.
    pub(super) recovered: u32,
    /// Remedies already asked for.
    pub(super) asked: u32,
    pub(super) quiet_until: u64,
    /// Its newest steps, as far as they took a multiple of the usual.
    pub(super) lag: Lag,
    /// The median of the last window that it filled, for people to look at.
    pub(super) own_ms: Option<f64>,
    /// Whether its device has said that it is throttled since the last window was judged.
    pub(super) throttled: bool,
}

/// Steps in a row that took a multiple of the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lag {
    /// The first of them.
    pub(super) since: u64,
    pub(super) steps: u64,
    /// Own time of all of them.
    pub(super) ms: f64,
}

impl Lag {
    /// Takes a step in; whether there are enough by now to be judged, which is every so many steps.
    pub(super) fn take(&mut self, step: u64, own_ms: f64, is_far: bool) -> bool {
        if !is_far {
            *self = Self::default();
            return false;
        }
        if self.steps == 0 {
            self.since = step;
        }
        self.steps += 1;
        self.ms += own_ms;
        self.steps.is_multiple_of(STEPS_MIN) && self.ms >= WINDOW_MS_MIN
    }
}

impl Task {
    /// Half of the fewest steps of a window: lost reports are no reason to judge a task by two or three.
    pub(super) fn is_full(&self) -> bool {
        self.now.len() as u64 >= STEPS_MIN / 2
    }

    pub(super) fn center(&self) -> f64 {
        median(&mut self.now.clone()).unwrap_or(f64::NAN)
    }

    pub(super) fn share(&self) -> f64 {
        match self.share_permille {
            0 => 1.0,
            share => f64::from(share) / 1_000.0,
        }
    }
}
