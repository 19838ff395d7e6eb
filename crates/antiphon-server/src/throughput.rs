//! Effective throughput: tokens that were trained and are kept, for the price of the GPUs that the training jobs hold. From
//! signals, so in memory only: a restart begins it anew. No number that anything is decided on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use antiphon_kernel::{Active, State};
use antiphon_types::{JobId, Millis, Timestamp};

use crate::signal_plane::SignalPlane;
use crate::view::View;

/// Samples of so long lie together, as in the kernel's numbers.
const SLOT: Millis = Millis::from_secs(300);
/// Slots of the last hour, which are read, and of the last day, which are kept.
const WINDOW: u64 = 12;
const DAY: u64 = 288;

const HOUR_MS: f64 = 3_600_000.0;

/// Tokens and dollars by five minutes.
#[derive(Default)]
pub(crate) struct Throughput(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// By job: tokens kept, as of the last look.
    tokens: BTreeMap<JobId, f64>,
    at: Option<Timestamp>,
    /// Those in which training jobs held GPUs, the oldest first.
    slots: VecDeque<Slot>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    number: u64,
    tokens: f64,
    usd: f64,
    /// Looks at a training job.
    samples: u64,
}

impl Slot {
    /// Tokens a second for a dollar an hour.
    fn rate(&self) -> Option<f64> {
        (self.usd > 0.0).then(|| self.tokens / self.usd / 3_600.0)
    }
}

/// What was read.
pub(crate) struct ThroughputNow {
    /// Of the last hour.
    pub(crate) rate: Option<f64>,
    pub(crate) samples: u64,
    /// Of every five minutes of the last day.
    pub(crate) history: Vec<(Timestamp, f64)>,
}

impl Throughput {
    /// Looks at all training jobs: what they have trained since the last look, and what their GPUs have cost.
    pub(crate) fn look(&self, view: &View, signals: &SignalPlane, now: Timestamp) {
        let trained = signals.tokens();
        let state = view.state();
        let mut counted = self.lock();
        let since = counted
            .at
            .replace(now)
            .map_or(Millis::ZERO, |at| now.since(at));
        let mut slot = Slot {
            number: now.as_millis() / SLOT.as_millis(),
            ..Slot::default()
        };
        for (job, tokens) in &trained {
            let before = counted.tokens.get(job).copied().unwrap_or(0.0);
            slot.tokens += (tokens - before).max(0.0);
            // A job that has trained is charged for all the time that it holds GPUs: starts, saves and waits as well.
            if let Some(active) = state.job(*job).and_then(|job| job.state.active()) {
                let hours = since.as_millis() as f64 / HOUR_MS;
                slot.usd += usd_per_hour(&state, active) * hours;
                slot.samples += 1;
            }
        }
        counted.tokens = trained.into_iter().collect();
        counted.add(slot);
    }

    /// What was counted until now.
    pub(crate) fn read(&self, now: Timestamp) -> ThroughputNow {
        let counted = self.lock();
        let slot = now.as_millis() / SLOT.as_millis();
        let recent = counted.slots.iter().filter(|of| of.number + WINDOW > slot);
        let hour = recent.fold(Slot::default(), |sum, of| Slot {
            tokens: sum.tokens + of.tokens,
            usd: sum.usd + of.usd,
            samples: sum.samples + of.samples,
            ..sum
        });
        let at = |of: &Slot| Timestamp::from_millis(of.number * SLOT.as_millis());
        let history = counted.slots.iter();
        ThroughputNow {
            rate: hour.rate(),
            samples: hour.samples,
            history: history
                .filter_map(|of| Some((at(of), of.rate()?)))
                .collect(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    fn add(&mut self, more: Slot) {
        if more.samples > 0 {
            match self
                .slots
                .back_mut()
                .filter(|last| last.number == more.number)
            {
                Some(last) => {
                    last.tokens += more.tokens;
                    last.usd += more.usd;
                    last.samples += more.samples;
                }
                None => self.slots.push_back(more),
            }
        }
        let old = |first: &Slot| first.number + DAY <= more.number;
        while self.slots.front().is_some_and(old) {
            self.slots.pop_front();
        }
    }
}

/// What an attempt's GPUs cost in an hour, as far as its partitions have a price.
#[must_use]
pub fn usd_per_hour(state: &State, active: &Active) -> f64 {
    let tasks = active.allocation.tasks.iter();
    tasks
        .map(|task| {
            let partition = state.node(&task.node).map(|node| &node.spec.partition);
            let partition = partition.and_then(|name| state.partitions().get(name));
            let price = partition.map_or(0, |partition| partition.price_per_gpu_hour.micros());
            let gpus = task.gpu_amount().thousandths() as f64 / 1_000.0;
            gpus * price as f64 / 1e6
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_reads_tokens_a_second_for_a_dollar_an_hour() {
        let throughput = Throughput::default();
        let add = |number, tokens, usd| {
            throughput.lock().add(Slot {
                number,
                tokens,
                usd,
                samples: 1,
            });
        };
        // 16 GPUs at 2.25 dollars an hour, 36,000 tokens a second, for five minutes.
        add(100, 36_000.0 * 300.0, 3.0);
        let at = |slot: u64| Timestamp::from_millis(slot * SLOT.as_millis());
        let read = throughput.read(at(101));
        assert_eq!(read.rate, Some(1_000.0));
        assert_eq!(read.history, [(at(100), 1_000.0)]);
        // The same time and price with nothing to show for it.
        add(101, 0.0, 3.0);
        assert_eq!(throughput.read(at(101)).rate, Some(500.0));
        assert_eq!(throughput.read(at(113)).rate, None);
        assert_eq!(throughput.read(at(113)).history.len(), 2);
        add(100 + DAY, 0.0, 0.0);
        assert_eq!(throughput.read(at(100 + DAY)).history.len(), 1);
    }
}
