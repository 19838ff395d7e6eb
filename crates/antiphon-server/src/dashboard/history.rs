//! A day of samples: what the GPUs did and how many jobs waited. In memory: a restart of the server begins it anew, and the
//! page says from when on it is.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::gpus::{self, Count};
use crate::api::Shared;

/// Between two samples: a day is 1,440 of them, more than a screen has points.
const EVERY: Duration = Duration::from_secs(60);
const SAMPLES_MAX: usize = 1_440;

#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at_ms: u64,
    pub(super) gpus: Count,
    pub(super) waiting: usize,
    pub(super) running: usize,
}

#[derive(Default)]
pub(super) struct History {
    samples: Mutex<VecDeque<Sample>>,
}

impl History {
    pub(super) fn samples(&self) -> Vec<Sample> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().copied().collect()
    }

    fn push(&self, sample: Sample) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// Takes samples for as long as it is polled.
pub(super) async fn sample(shared: &Shared) {
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        shared.dashboard.history.push(look(shared));
    }
}

/// Takes a sample where one is due by the clock of a simulation.
pub(crate) fn sample_if_due(shared: &Shared) {
    let now_ms = shared.view.now().as_millis();
    let last = shared.dashboard.history.samples.lock();
    let last = last.unwrap_or_else(PoisonError::into_inner).back().copied();
    let every = u64::try_from(EVERY.as_millis()).unwrap_or(u64::MAX);
    if last.is_none_or(|last| last.at_ms + every <= now_ms) {
        shared.dashboard.history.push(look(shared));
    }
}

/// What is so now.
pub(super) fn look(shared: &Shared) -> Sample {
    let state = shared.view.state();
    let mut all = Count::default();
    gpus::by_type(&state)
        .into_values()
        .for_each(|count| all.add(count));
    Sample {
        at_ms: shared.view.now().as_millis(),
        gpus: all,
        waiting: state.queue_length(),
        running: state.active_jobs().count(),
    }
}
