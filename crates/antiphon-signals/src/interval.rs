//! The checkpoint rule: how often to save so that saving and lost work together waste least.
//!
//! J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006): with a save that
//! holds training up for `C` and one failure in `M`, work between saves should take
//! `sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C` where `C < 2M`, else `M` (Young 1974 is the first term). The
//! interval told is from save to save: that work and `C`.
//!
//! `C` is the median of the last saves' blocking time. `M` starts from a prior and follows what is seen: after `k`
//! failures in time `t` it is `(w M0 + t) / (w + k)`, a gamma prior of `w` failures in `w M0`. Its weight `w = 1 / (1 + k)`
//! fades, as the rates of real jobs differ by orders of magnitude and a prior that is far off must not be dragged along.
//! `M0` comes from one failure in three days whatever the size (the job's own code; a choice, not a measurement) and one
//! in 30,000 GPU-hours: large public runs report one interruption in 2.5 h on 16,000 GPUs (Llama 3.1 405B), which is one
//! in 40,000, and one in 7.5 h on 1,000 (OPT-175B), one in 7,500.
//!
//! While the loss is volatile the interval is halved, as a rollback is more likely than the failures say. It never
//! exceeds 30 min on one node, 10 min over 8 GPUs and 5 min over 64, and never asks for more than a fifth of the time
//! for saving. It is told when it differs by more than a quarter from what is in force.

use std::collections::VecDeque;

use antiphon_types::{Bytes, DirectiveBody, Millis, Remedy, Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::median;

pub(crate) mod disk;

/// Saves remembered.
const SAVES: usize = 8;
/// Saves before anything is said: the first one is often slower than all others.
const SAVES_MIN: usize = 2;
/// Milliseconds in which a job of any size fails once by itself.
const OWN_FAILURE_MS: f64 = 72.0 * 3_600_000.0;
/// GPU-milliseconds in which hardware and system fail once.
const GPU_FAILURE_MS: f64 = 30_000.0 * 3_600_000.0;
/// Longest interval on up to 8 GPUs, up to 64, and over.
const CAPS: [Millis; 3] = [
    Millis::from_secs(1_800),
    Millis::from_secs(600),
    Millis::from_secs(300),
];
/// Shortest interval in saves: a fifth of the time at most goes into saving.
const SAVES_APART_MIN: f64 = 5.0;
/// And shortest at all.
const INTERVAL_MS_MIN: f64 = 1_000.0;
/// Relative difference to what is in force below which nothing is said.
const DIFFERENCE: f64 = 0.25;
/// Time between two words on it.
const COOL_DOWN: Millis = Millis::from_secs(600);
/// Averages of the loss' moves from step to step: over so many steps, and over so many.
const FAST_STEPS: f64 = 32.0;
const SLOW_STEPS: f64 = 512.0;
/// Recent moves that are larger than usual by this factor are volatile, until they are below the second.
const VOLATILE: (f64, f64) = (2.5, 1.5);

/// A checkpoint that was saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Save {
    /// Its step.
    pub step: u64,
    /// Its size.
    pub bytes: Bytes,
    /// How long training stood still for it.
    pub blocked: Millis,
}

/// The checkpoint rule of one attempt.
#[derive(Debug)]
pub(crate) struct IntervalRule {
    gpus: u32,
    failures: u32,
    /// Time run by earlier attempts.
    ran: Millis,
    began: Option<Timestamp>,
    blocked_ms: VecDeque<f64>,
    saved_at: VecDeque<Timestamp>,
    in_force: Option<Millis>,
    volatility: Volatility,
    told: Option<Timestamp>,
}

impl IntervalRule {
    /// A rule for a job of so many GPUs whose earlier attempts ran for `ran` and failed `failures` times.
    #[must_use]
    pub(crate) fn new(gpus: u32, failures: u32, ran: Millis) -> Self {
        Self {
            gpus,
            failures,
            ran,
            began: None,
            blocked_ms: VecDeque::new(),
            saved_at: VecDeque::new(),
            in_force: None,
            volatility: Volatility::default(),
            told: None,
        }
    }

    /// The interval that the trainer says it keeps. Without it the times between saves tell.
    pub(crate) fn keeps(&mut self, interval: Millis) {
        self.in_force = Some(interval).filter(|interval| !interval.is_zero());
    }

    /// Takes a step's loss in.
    pub(crate) fn observe(&mut self, loss: f64) {
        self.volatility.observe(loss);
    }

    /// Takes a save in and says when it should have come sooner or later.
    pub(crate) fn saved(&mut self, save: &Save, at: Timestamp) -> Option<Conclusion> {
        let began = *self.began.get_or_insert(at);
        push(&mut self.blocked_ms, save.blocked.as_millis() as f64);
        push(&mut self.saved_at, at);
        if self.blocked_ms.len() < SAVES_MIN {
            return None;
        }
        let cost_ms = median(&mut self.blocked_ms.iter().copied().collect::<Vec<_>>())?.max(1.0);
        let mean_ms = self.failure_ms(at.since(began));
        let wanted = self.wanted(cost_ms, mean_ms);
        let in_force = self.in_force.or_else(|| self.seen())?;
        let (wanted_ms, force_ms) = (wanted.as_millis() as f64, in_force.as_millis() as f64);
        let recently = self.told.is_some_and(|told| at.since(told) < COOL_DOWN);
        if recently || (wanted_ms - force_ms).abs() <= DIFFERENCE * force_ms {
            return None;
        }
        self.told = Some(at);
        let volatile = if self.volatility.high {
            ", halved while the loss is volatile"
        } else {
            ""
        };
        Some(Conclusion {
            rule: Rule::Checkpoint,
            subject: String::new(),
            verdict: Verdict::Interval,
            evidence: format!(
                "{wanted} instead of {in_force}: a save holds training up for {} in the median of {}, and one failure in \
                 {} is expected from {} in {}{volatile}",
                millis(cost_ms),
                self.blocked_ms.len(),
                millis(mean_ms),
                self.failures,
                millis(self.ran.as_millis() as f64 + at.since(began).as_millis() as f64),
            ),
            step: save.step,
            remedies: vec![Remedy::Direct(DirectiveBody::SetCheckpointInterval {
                interval: wanted,
            })],
        })
    }

    /// Milliseconds from failure to failure, by the prior and by what was seen.
    fn failure_ms(&self, running: Millis) -> f64 {
        let gpus = f64::from(self.gpus.max(1));
        let prior = 1.0 / (1.0 / OWN_FAILURE_MS + gpus / GPU_FAILURE_MS);
        let ran = self.ran.as_millis() as f64 + running.as_millis() as f64;
        let failures = f64::from(self.failures);
        let weight = 1.0 / (1.0 + failures);
        (weight * prior + ran) / (weight + failures)
    }

    fn wanted(&self, cost_ms: f64, failure_ms: f64) -> Millis {
        let cap = match self.gpus {
            0..=8 => CAPS[0],
            9..=64 => CAPS[1],
            65.. => CAPS[2],
        };
        let tightened = if self.volatility.high { 0.5 } else { 1.0 };
        let interval = (best_ms(cost_ms, failure_ms) * tightened).min(cap.as_millis() as f64);
        millis(interval.max(SAVES_APART_MIN * cost_ms).max(INTERVAL_MS_MIN))
    }

    /// The median time between saves.
    fn seen(&self) -> Option<Millis> {
        let pairs = self.saved_at.iter().zip(self.saved_at.iter().skip(1));
        let mut apart: Vec<f64> = pairs
            .map(|(earlier, later)| later.since(*earlier).as_millis() as f64)
            .collect();
        median(&mut apart).filter(|ms| *ms >= 1.0).map(millis)
    }
}

/// Daly's interval from save to save, in milliseconds.
#[must_use]
pub(crate) fn best_ms(cost_ms: f64, failure_ms: f64) -> f64 {
    let half = cost_ms / (2.0 * failure_ms);
    if half >= 1.0 {
        return failure_ms + cost_ms;
    }
    (2.0 * cost_ms * failure_ms).sqrt() * (1.0 + half.sqrt() / 3.0 + half / 9.0)
}

/// How much the loss moves from step to step, lately and usually.
#[derive(Debug, Default)]
struct Volatility {
    last: Option<f64>,
    fast: f64,
    slow: f64,
    steps: f64,
    high: bool,
}

impl Volatility {
    fn observe(&mut self, loss: f64) {
        if !loss.is_finite() {
            // As volatile as can be; what follows is measured against what was usual before.
            self.high |= self.steps > 0.0;
            return;
        }
        let Some(last) = self.last.replace(loss) else {
            return;
        };
        self.steps += 1.0;
        let moved = (loss - last).abs();
        self.fast += (moved - self.fast) / self.steps.min(FAST_STEPS);
        self.slow += (moved - self.slow) / self.steps.min(SLOW_STEPS);
        if self.steps > SLOW_STEPS / 2.0 {
            let bound = if self.high { VOLATILE.1 } else { VOLATILE.0 };
            self.high = self.fast > bound * self.slow;
        }
    }
}

fn millis(ms: f64) -> Millis {
    Millis::from_millis(ms.clamp(0.0, 1e15).round() as u64)
}

fn push<T>(window: &mut VecDeque<T>, value: T) {
    if window.len() == SAVES {
        window.pop_front();
    }
    window.push_back(value);
}

#[cfg(test)]
mod tests;
