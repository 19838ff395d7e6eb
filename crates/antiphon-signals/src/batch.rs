//! The batch rule: the micro-batch that fits into memory. The global batch stays what it is, by accumulation.
//!
//! Memory is taken as `fixed + per_row x rows`: weights, gradients and optimizer state on one side, activations on the
//! other. Both follow from the peaks seen at two sizes, so that the rule goes straight to the largest size that ends
//! below 85 %. After one size alone, it grows as far as is safe if nothing were fixed; where that is not far enough and
//! the peak is still below 70 %, it first takes a window at half the rows to measure the slope: that costs a little
//! speed and cannot run out of memory. A size that was seen at 90 % or that ran out of memory is never asked for again.

use std::collections::BTreeMap;

use antiphon_types::{DirectiveBody, Remedy, Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;

pub(crate) mod noise_scale;

/// Steps of a window: long sequences and large gradients are in it, too.
const WINDOW_STEPS: u64 = 20;
/// Steps after a change of size that are not looked at: allocators settle.
const SETTLE_STEPS: u64 = 3;
/// Share of memory below which a larger size is looked for.
const LOW: f64 = 0.70;
/// Share of memory from which a smaller one is.
const HIGH: f64 = 0.90;
/// Share of memory that a size is chosen for.
const GOAL: f64 = 0.85;
/// Sizes remembered.
const SIZES_MAX: usize = 16;

/// What one task says of its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct MemoryPeak {
    /// Rows of its micro-batch.
    pub micro_batch: u32,
    /// Largest memory held since the last signal, in bytes.
    pub peak_bytes: f64,
    /// All there is, in bytes.
    pub total_bytes: f64,
}

/// The batch rule of one attempt.
#[derive(Debug)]
pub(crate) struct MicroBatchRule {
    /// Rows of one task and optimizer step, where known: the micro-batch divides them.
    rows_per_step: Option<u32>,
    rows_max: u32,
    /// Highest share of memory seen, by size.
    peaks: BTreeMap<u32, f64>,
    /// Sizes from here on do not fit.
    unfit: u32,
    now: Option<Window>,
    asked: Option<u32>,
    /// Whether the last word was that memory is low or high.
    told: bool,
}

#[derive(Debug, Clone, Copy)]
struct Window {
    rows: u32,
    since: u64,
    peak: f64,
    signals: u64,
}

impl MicroBatchRule {
    /// A rule for micro-batches of up to `rows_max` rows that divide `rows_per_step`, the rows of one task and optimizer
    /// step. Until that is known, it doubles and halves, and the trainer refuses what does not divide its batch.
    #[must_use]
    pub(crate) fn new(rows_per_step: Option<u32>, rows_max: u32) -> Self {
        Self {
            rows_per_step: rows_per_step.filter(|rows| *rows > 0),
            rows_max: rows_max.max(1),
            peaks: BTreeMap::new(),
            unfit: u32::MAX,
            now: None,
            asked: None,
            told: false,
        }
    }

    /// A task says how many rows it has in one optimizer step.
    pub(crate) fn has_per_step(&mut self, rows: u32) {
        self.rows_per_step = Some(rows).filter(|rows| *rows > 0);
    }

    /// Rows of a micro-batch now; nothing where others were asked for and nobody knows what became of that.
    pub(crate) fn rows(&self) -> Option<u32> {
        let rows = self.now?.rows;
        self.asked.is_none_or(|asked| asked == rows).then_some(rows)
    }

    /// An attempt ran out of memory with this many rows.
    pub(crate) fn out_of_memory(&mut self, rows: u32) {
        self.unfit = self.unfit.min(rows.max(2));
    }

    /// Takes a task's peak of a step in. `_at` is when the signal came; windows go by steps alone.
    pub(crate) fn observe(
        &mut self,
        peak: &MemoryPeak,
        step: u64,
        _at: Timestamp,
    ) -> Option<Conclusion> {
        let share = peak.peak_bytes / peak.total_bytes;
        if !(share > 0.0 && share <= 1.5 && peak.total_bytes > 0.0) || peak.micro_batch == 0 {
            return None;
        }
        let fresh = Window {
            rows: peak.micro_batch,
            since: step,
            peak: 0.0,
            signals: 0,
        };
        // Another size, or an earlier step after a rollback, begins a new window.
        let window = self
            .now
            .filter(|window| window.rows == peak.micro_batch && window.since <= step);
        let mut window = window.unwrap_or(fresh);
        if step >= window.since.saturating_add(SETTLE_STEPS) {
            window.peak = window.peak.max(share);
            window.signals += 1;
        }
        let full = step >= window.since.saturating_add(SETTLE_STEPS + WINDOW_STEPS);
        // Memory that is nearly full does not wait for the window's end.
        let urgent = window.peak >= HIGH || window.rows >= self.unfit;
        self.now = Some(window);
        if !(urgent || full && window.signals >= WINDOW_STEPS / 2) {
            return None;
        }
        self.now = Some(Window {
            since: step,
            ..fresh
        });
        self.remember(window);
        self.judge(window, step)
    }

    fn remember(&mut self, window: Window) {
        if window.peak >= HIGH {
            self.unfit = self.unfit.min(window.rows.max(2));
        }
        if self.peaks.len() < SIZES_MAX || self.peaks.contains_key(&window.rows) {
            let seen = self.peaks.entry(window.rows).or_insert(0.0);
            *seen = seen.max(window.peak);
        }
    }

    fn judge(&mut self, window: Window, step: u64) -> Option<Conclusion> {
        let rows = window.rows;
        let crowded = window.peak >= HIGH || rows >= self.unfit;
        let wanted = if crowded {
            self.smaller(rows)
        } else if window.peak < LOW {
            self.larger(rows, window.peak)
        } else {
            None
        };
        let (verdict, remedies) = match wanted {
            // It was asked for, and nothing came of it: nobody asks twice.
            Some(wanted) if self.asked == Some(wanted) => return None,
            Some(wanted) => {
                self.asked = Some(wanted);
                self.told = true;
                let verdict = if crowded {
                    Verdict::MemoryHigh
                } else {
                    Verdict::MemoryLow
                };
                (
                    verdict,
                    vec![direct(DirectiveBody::SetMicroBatch { rows: wanted })],
                )
            }
            None if crowded && self.asked != Some(rows) => {
                self.asked = Some(rows);
                self.told = true;
                let recompute = direct(DirectiveBody::SetRecompute { on: true });
                let offload = direct(DirectiveBody::SetOffload { on: true });
                (Verdict::MemoryHigh, vec![recompute, offload])
            }
            None if !crowded && window.peak >= LOW && self.told => {
                self.told = false;
                (Verdict::Cleared, Vec::new())
            }
            None => return None,
        };
        let model = match self.model() {
            Some((fixed, per_row)) => format!(
                "{:.1} % fixed and {:.2} % a row, from {} sizes",
                100.0 * fixed,
                100.0 * per_row,
                self.peaks.len()
            ),
            None => "one size seen so far".to_owned(),
        };
        Some(Conclusion {
            rule: Rule::Batch,
            subject: String::new(),
            verdict,
            evidence: format!(
                "peak {:.1} % of memory with {rows} rows over {} signals; {model}",
                100.0 * window.peak,
                window.signals
            ),
            step,
            remedies,
        })
    }

    /// Shares of memory: what is fixed, and what a row takes, from the two largest sizes that differ.
    fn model(&self) -> Option<(f64, f64)> {
        let mut largest = self.peaks.iter().rev();
        let (more, high) = largest.next()?;
        let (less, low) = largest.next()?;
        let per_row = ((high - low) / f64::from(more - less)).max(0.0);
        Some(((high - per_row * f64::from(*more)).max(0.0), per_row))
    }

    /// The share of memory that `rows` take. Without a slope everything counts as growing with the rows.
    fn predicted(&self, rows: u32) -> f64 {
        match (self.model(), self.peaks.last_key_value()) {
            (Some((fixed, per_row)), _) => fixed + per_row * f64::from(rows),
            (None, Some((seen, peak))) => peak * f64::from(rows) / f64::from(*seen),
            (None, None) => f64::INFINITY,
        }
    }

    fn larger(&self, rows: u32, peak: f64) -> Option<u32> {
        let mut sizes = self.sizes(rows).into_iter().rev();
        let bound = self.unfit.min(self.rows_max.saturating_add(1));
        let fits = |size: &u32| *size > rows && *size < bound && self.predicted(*size) <= GOAL;
        // Without a slope one step of two at most.
        let most = if self.peaks.len() < 2 {
            rows.saturating_mul(2)
        } else {
            u32::MAX
        };
        let found = sizes.find(|size| *size <= most && fits(size));
        let more_to_gain = peak < LOW && rows.saturating_mul(2) < bound;
        found.or_else(|| {
            let measures = self.peaks.len() < 2 && more_to_gain;
            measures.then(|| self.below(rows, rows / 2)).flatten()
        })
    }

    fn smaller(&self, rows: u32) -> Option<u32> {
        let bound = rows.min(self.unfit);
        if self.peaks.len() >= 2 {
            let fits = |size: &u32| *size < bound && self.predicted(*size) <= GOAL;
            if let Some(size) = self.sizes(rows).into_iter().rev().find(fits) {
                return Some(size);
            }
        }
        self.below(rows, bound / 2)
            .or_else(|| self.below(rows, bound - 1))
    }

    /// The largest size up to `most`.
    fn below(&self, rows: u32, most: u32) -> Option<u32> {
        let sizes = self.sizes(rows).into_iter();
        sizes.rev().find(|size| *size <= most && *size < rows)
    }

    /// Every size there may be, in rising order.
    fn sizes(&self, rows: u32) -> Vec<u32> {
        match self.rows_per_step {
            Some(step_rows) => divisors(step_rows),
            None => {
                let halved = (1..32)
                    .map_while(|times| (rows.is_multiple_of(1 << times)).then_some(rows >> times));
                let doubled = (0..31).map_while(|times| rows.checked_mul(1 << times));
                let mut sizes: Vec<u32> = halved.chain(doubled).filter(|size| *size > 0).collect();
                sizes.sort_unstable();
                sizes
            }
        }
    }
}

/// All divisors of a number, in rising order.
fn divisors(number: u32) -> Vec<u32> {
    let small = (1..).take_while(|candidate: &u32| candidate.saturating_mul(*candidate) <= number);
    let small: Vec<u32> = small
        .filter(|candidate| number.is_multiple_of(*candidate))
        .collect();
    let large = small.iter().rev().map(|divisor| number / divisor);
    let mut all: Vec<u32> = small.iter().copied().chain(large).collect();
    all.dedup();
    all
}

fn direct(body: DirectiveBody) -> Remedy {
    Remedy::Direct(body)
}

#[cfg(test)]
mod tests;
