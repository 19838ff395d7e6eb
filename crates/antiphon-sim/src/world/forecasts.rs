//! What `why` would have told those who wait, and what came of it: the live server's forecasts under virtual time. Changes
//! nothing of what is decided.

use antiphon_kernel::State;
use antiphon_kernel::forecast::{Foresight, Foretold, Start};
use antiphon_types::Timestamp;

use crate::course::millis;
use crate::figure::{part, quantile, sorted};

/// Forecasts that are made as jobs come.
pub(super) struct Forecasts {
    foresight: Foresight,
    /// Between two of them, in jobs that come.
    every: usize,
    come: usize,
    made: usize,
    judged: Vec<(Foretold, Timestamp)>,
}

/// How well starts were foretold. Widths in seconds, those of intervals with an end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ForecastScore {
    /// Waits that were foretold and have ended.
    pub judged: usize,
    /// Of what was shown.
    pub shown: Intervals,
    /// Of what playing the queue forward alone came to.
    pub played: Intervals,
}

/// How good intervals are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Intervals {
    /// The part that has an end.
    pub closed: f64,
    /// Of these, the part in which the start lay.
    pub covered: f64,
    /// Their median width.
    pub width_s: f64,
}

impl Forecasts {
    /// So many over the time in which jobs come.
    pub(super) fn new(count: u32, jobs: usize) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|count| *count > 0)?;
        Some(Self {
            foresight: Foresight::default(),
            every: (jobs / count).max(1),
            come: 0,
            made: 0,
            judged: Vec::new(),
        })
    }

    /// Notes that a job has come.
    pub(super) const fn job_came(&mut self) {
        self.come += 1;
    }

    /// Makes a forecast if enough jobs have come since the last one, and judges those before.
    pub(super) fn look_if_due(&mut self, state: &State) {
        if self.come / self.every > self.made {
            self.made = self.come / self.every;
            let (_, judged) = self.foresight.look(state);
            self.judged.extend(judged);
        }
    }

    pub(super) fn score(&self) -> ForecastScore {
        ForecastScore {
            judged: self.judged.len(),
            shown: intervals(&self.judged, |foretold| foretold.shown),
            played: intervals(&self.judged, |foretold| foretold.played),
        }
    }
}

fn intervals(judged: &[(Foretold, Timestamp)], of: impl Fn(&Foretold) -> Start) -> Intervals {
    let closed = judged.iter().filter_map(|(foretold, at)| {
        let start = of(foretold);
        Some((start.earliest, start.latest?, *at))
    });
    let closed: Vec<(Timestamp, Timestamp, Timestamp)> = closed.collect();
    if closed.is_empty() {
        return Intervals::default();
    }
    let covered = closed
        .iter()
        .filter(|(low, high, at)| low <= at && at <= high);
    let width = |(low, high, _): &(Timestamp, Timestamp, _)| millis(high.since(*low)) / 1_000.0;
    let widths = sorted(closed.iter().map(width));
    Intervals {
        closed: part(closed.len(), judged.len()),
        covered: part(covered.count(), closed.len()),
        width_s: quantile(&widths, 0.5).unwrap_or_default(),
    }
}
