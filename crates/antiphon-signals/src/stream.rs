//! What a run draws from: its shards and categories, and what each of them was like over the last ticks. The hot path of
//! the crate: a signal costs one look-up and a few additions. Judges nothing.
//!
//! A *tick* is a stretch of steps that ends when there are enough of them and the probes have been measured anew, so that
//! training loss and held-out loss are of the same time.

use std::collections::VecDeque;

use antiphon_types::ShardOrigin;

use crate::context::Context;
use crate::names::Names;
use crate::signal::{Signal, finite};

/// Shards of one job: bounds memory whatever is sent.
pub(crate) const SHARDS_MAX: usize = 4_096;
/// Categories of one job.
pub(crate) const CATEGORIES_MAX: usize = 256;
/// Steps of a tick at least: fewer hold too few samples of a small shard.
const TICK_STEPS_MIN: u64 = 20;
/// Steps of a tick at most, and for how long probes are waited for.
const TICK_STEPS_MAX: u64 = 100;
/// A run has about so many ticks: long runs are judged, and told, no more often than short ones.
const TICKS: u64 = 100;
/// Ticks remembered of a shard: one that gets 1 % of 16 samples a step fills a mean in 15.
const TICKS_KEPT: usize = 24;
/// Ticks that a slope, or a category's standing still, is measured over.
pub(crate) const TREND_TICKS: usize = 12;
/// Ticks that an improvement is measured over where the mix follows it: it has to end when the improvement does.
pub(crate) const IMPROVED_TICKS: usize = 6;
/// What a tick counts in a slope for the one before it: losses bend, and it is today's slope that is asked for.
const SLOPE_MEMORY: f64 = 0.7;
/// A mean of fewer samples says little. (At 16 samples a step a shard of 5 % has 16 in 20 steps.)
pub(crate) const SAMPLES_MIN: f64 = 48.0;
/// Standard deviation of a sample's loss in nats until it is measured.
const DEVIATION_START: f64 = 0.7;
/// Standard deviation in nats by which a model wavers from tick to tick, whatever the number of samples.
const WAVER: f64 = 0.03;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) shard_names: Names,
    pub(crate) shards: Vec<Shard>,
    pub(crate) category_names: Names,
    pub(crate) categories: Vec<Category>,
    /// Ticks closed so far.
    pub(crate) ticks: u64,
    pub(crate) steps_total: Option<u64>,
    pub(crate) vocabulary: Option<f64>,
    pub(crate) first_step: Option<u64>,
    tick_step: u64,
    newest_step: u64,
    probe_step: Option<u64>,
    /// Whose steps tell a rollback, and the highest of them: the first task that reported.
    clock: Option<(Option<u32>, u64)>,
    /// Signals since the last tick was closed.
    signals: usize,
    /// Samples drawn before the last rollback.
    drawn_before: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    pub(crate) category: usize,
    category_stated: bool,
    now: Sum,
    /// The last ticks in which it was drawn, oldest first.
    pub(crate) past: VecDeque<Past>,
    /// Its mean loss over its first samples.
    pub(crate) first: Option<f64>,
    first_sum: Sum,
    /// Samples drawn since the start.
    pub(crate) drawn: f64,
    pub(crate) unique: Option<f64>,
    /// Its weight as the trainer has it.
    pub(crate) weight: Option<f64>,
    /// The first weight that the trainer reported: what its owner wanted.
    pub(crate) weight_first: Option<f64>,
    /// Whether the last tick held a loss of it; before the first, whether its owner draws from it.
    pub(crate) heard: bool,
    pub(crate) presence: Presence,
    /// Squared deviations of samples inside ticks, and over how many.
    spread: (f64, f64),
}

/// At which of the last steps a shard was drawn from.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Presence {
    newest: u64,
    /// Bit i stands for i steps before the newest.
    recent: u64,
    /// Steps at which it was drawn from, since the start.
    pub(crate) steps: u64,
}

/// One tick of one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Past {
    pub(crate) tick: u64,
    pub(crate) samples: f64,
    pub(crate) loss: f64,
    /// Loss minus the probe loss of its category over the same steps.
    pub(crate) gap: Option<f64>,
}

/// Running sums over the losses of a tick.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    samples: f64,
    loss: f64,
    square: f64,
    reports: f64,
}

#[derive(Debug, Default)]
pub(crate) struct Category {
    newest: Option<f64>,
    /// The probe loss at the end of each of the last ticks, oldest first.
    pub(crate) probes: VecDeque<f64>,
    pub(crate) first: Option<f64>,
}

/// A mean over samples, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mean {
    pub(crate) value: f64,
    /// Its standard error.
    pub(crate) error: f64,
    pub(crate) samples: f64,
}

impl Presence {
    fn mark(&mut self, step: u64) {
        if step > self.newest || self.recent == 0 {
            let on = step.abs_diff(self.newest).min(64) as u32;
            self.recent = self.recent.checked_shl(on).unwrap_or(0);
            self.newest = step;
        }
        let back = self.newest - step;
        if back < 64 && self.recent >> back & 1 == 0 {
            self.recent |= 1 << back;
            self.steps += 1;
        }
    }

    /// Whether it was drawn from at a step; no for one that is too long ago to know.
    pub(crate) const fn at(&self, step: u64) -> bool {
        step <= self.newest
            && self.newest - step < 64
            && self.recent >> (self.newest - step) & 1 == 1
    }
}

impl Sum {
    fn add(&mut self, loss: f64, samples: f64) {
        self.samples += samples;
        self.loss += samples * loss;
        self.square += samples * loss * loss;
        self.reports += 1.0;
    }

    fn mean(&self) -> f64 {
        self.loss / self.samples
    }
}

impl Shard {
    fn close(&mut self, tick: u64, probe: Option<f64>) {
        let sum = std::mem::take(&mut self.now);
        self.heard = sum.samples > 0.0;
        if !self.heard {
            return;
        }
        let loss = sum.mean();
        // Means of n samples deviate by 1/sqrt(n): weighted with n, their squares give the deviation of one sample.
        self.spread.0 += (sum.square - sum.samples * loss * loss).max(0.0);
        self.spread.1 += (sum.reports - 1.0).max(0.0);
        if self.past.len() == TICKS_KEPT {
            self.past.pop_front();
        }
        self.past.push_back(Past {
            tick,
            samples: sum.samples,
            loss,
            gap: probe.map(|probe| loss - probe),
        });
    }

    fn deviation(&self) -> f64 {
        let (squares, degrees) = self.spread;
        if degrees < 8.0 {
            return DEVIATION_START;
        }
        (squares / degrees).sqrt()
    }

    /// Standard error of a mean over so many samples.
    fn error(&self, samples: f64) -> f64 {
        (self.deviation().powi(2) / samples + WAVER * WAVER).sqrt()
    }

    /// The newest ticks' mean of something, over as many samples as a mean needs, or all there are; nothing under `least`.
    fn pooled(&self, least: f64, of: impl Fn(&Past) -> Option<f64>) -> Option<Mean> {
        let (mut sum, mut samples) = (0.0, 0.0);
        let known = self.past.iter().rev();
        for (value, weight) in known.filter_map(|past| Some((of(past)?, past.samples))) {
            sum += weight * value;
            samples += weight;
            if samples >= SAMPLES_MIN {
                break;
            }
        }
        (samples >= least).then(|| Mean {
            value: sum / samples,
            error: self.error(samples),
            samples,
        })
    }

    /// Recent training loss minus probe loss.
    pub(crate) fn gap(&self, least: f64) -> Option<Mean> {
        self.pooled(least, |past| past.gap)
    }

    /// Mean loss of what was drawn last, however little, the present tick included.
    pub(crate) fn recent(&self) -> Option<Mean> {
        let loss = self.loss(f64::MIN_POSITIVE);
        loss.or_else(|| {
            (self.now.samples > 0.0).then(|| Mean {
                value: self.now.mean(),
                error: self.error(self.now.samples),
                samples: self.now.samples,
            })
        })
    }

    pub(crate) fn loss(&self, least: f64) -> Option<Mean> {
        self.pooled(least, |past| Some(past.loss))
    }

    /// Change a tick, with its standard error, of something over the ticks remembered, the newest most: a weighted least
    /// squares line.
    pub(crate) fn slope(&self, of: impl Fn(&Past) -> Option<f64>) -> Option<(f64, f64)> {
        struct Point {
            tick: f64,
            value: f64,
            variance: f64,
            weight: f64,
        }
        let newest = self.past.back()?.tick;
        let points: Vec<Point> = self
            .past
            .iter()
            .rev()
            .take(TREND_TICKS)
            .filter_map(|past| {
                let variance = self.error(past.samples).powi(2);
                Some(Point {
                    tick: past.tick as f64,
                    value: of(past)?,
                    variance,
                    weight: SLOPE_MEMORY.powf((newest - past.tick) as f64) / variance,
                })
            })
            .collect();
        let total: f64 = points.iter().map(|point| point.weight).sum();
        let mean = |of: fn(&Point) -> f64| {
            let sum: f64 = points.iter().map(|point| of(point) * point.weight).sum();
            sum / total
        };
        let (tick_mean, value_mean) = (mean(|point| point.tick), mean(|point| point.value));
        let (mut along, mut wide, mut chance) = (0.0, 0.0, 0.0);
        for point in &points {
            let off = point.tick - tick_mean;
            along += point.weight * off * (point.value - value_mean);
            wide += point.weight * off.powi(2);
            chance += point.variance * (point.weight * off).powi(2);
        }
        (points.len() >= 2).then(|| (along / wide, chance.sqrt() / wide))
    }

    /// Samples drawn in the newest ticks.
    pub(crate) fn drawn_lately(&self, ticks: usize, now: u64) -> f64 {
        let recent = self.past.iter().rev();
        let recent = recent.take_while(|past| past.tick + ticks as u64 > now);
        recent.map(|past| past.samples).sum()
    }

    /// How often each of its samples was drawn, if it is known how many there are.
    pub(crate) fn repeats(&self) -> Option<f64> {
        self.unique.map(|unique| self.drawn / unique)
    }

    /// Forgets what was seen, as after a pause: the model has moved on.
    pub(crate) fn forget(&mut self) {
        self.past.clear();
        self.now = Sum::default();
    }
}

impl Category {
    /// Probe loss now.
    pub(crate) fn probe(&self) -> Option<f64> {
        self.newest
    }

    /// By how much the probe loss fell from the older to the newer half of so many ticks; below 0 where it rose.
    pub(crate) fn improved(&self, ticks: usize) -> Option<f64> {
        let half = self.probes.len().min(ticks) / 2;
        let mean = |part: usize| {
            let newest_first = self.probes.iter().rev().skip(part * half).take(half);
            newest_first.sum::<f64>() / half as f64
        };
        (half > 0).then(|| mean(1) - mean(0))
    }
}

impl Stream {
    pub(crate) fn new() -> Self {
        Self {
            shard_names: Names::new(SHARDS_MAX),
            shards: Vec::new(),
            category_names: Names::new(CATEGORIES_MAX),
            categories: Vec::new(),
            ticks: 0,
            steps_total: None,
            vocabulary: None,
            first_step: None,
            tick_step: 0,
            newest_step: 0,
            probe_step: None,
            clock: None,
            signals: 0,
            drawn_before: 0.0,
        }
    }

    /// Number of a shard; nothing where there are too many.
    pub(crate) fn shard(&mut self, name: &str, context: &Context) -> Option<usize> {
        let index = self.shard_names.intern(name)?;
        if index == self.shards.len() {
            self.shards.push(Shard::default());
            let category = self.category("").unwrap_or(0);
            self.shards[index].category = category;
            self.tell_origin(index, context);
        }
        Some(index)
    }

    /// Number of a category; nothing where there are too many.
    pub(crate) fn category(&mut self, name: &str) -> Option<usize> {
        let index = self.category_names.intern(name)?;
        if index == self.categories.len() {
            self.categories.push(Category::default());
        }
        Some(index)
    }

    /// Takes over what is known of the origin of a shard; what its signals say wins.
    fn tell_origin(&mut self, index: usize, context: &Context) {
        let Some(origin) = context.shards.get(self.shard_names.name(index)) else {
            return;
        };
        if !self.shards[index].category_stated
            && !origin.category.is_empty()
            && let Some(category) = self.category(&origin.category)
        {
            self.shards[index].category = category;
        }
        let shard = &mut self.shards[index];
        shard.unique = shard.unique.or(origin.samples.map(|count| count as f64));
    }

    pub(crate) fn tell_origins(&mut self, context: &Context) {
        (0..self.shards.len()).for_each(|index| self.tell_origin(index, context));
    }

    /// Takes over the shards and their weights as the trainer attached with them, before anything was drawn; whether it
    /// gave all weights.
    pub(crate) fn expect(&mut self, context: &Context) -> bool {
        let weighed = |origin: &ShardOrigin| origin.weight_ppm.is_some();
        if context.shards.is_empty() || !context.shards.values().all(weighed) {
            return false;
        }
        for (name, origin) in &context.shards {
            let weight = origin.weight_ppm.map(|ppm| f64::from(ppm) / 1e6);
            if let Some(index) = self.shard(name, context) {
                let shard = &mut self.shards[index];
                (shard.weight, shard.weight_first) = (weight, weight);
                shard.heard = weight > Some(0.0);
            }
        }
        true
    }

    /// Takes in what a signal says of a shard.
    pub(crate) fn draw(&mut self, index: usize, signal: &Signal<'_>) {
        if !self.shards[index].category_stated
            && let Some(name) = &signal.category
            && let Some(category) = self.category(name)
        {
            self.shards[index].category = category;
            self.shards[index].category_stated = true;
        }
        let shard = &mut self.shards[index];
        if let Some(weight) = finite(signal.weight).filter(|weight| *weight >= 0.0) {
            shard.weight_first.get_or_insert(weight);
            shard.weight = Some(weight);
        }
        if let Some(unique) = signal.unique_samples.filter(|count| *count > 0) {
            shard.unique = Some(unique as f64);
        }
        if let Some(step) = signal.step {
            shard.presence.mark(step);
        }
        if let Some(loss) = finite(signal.loss) {
            let samples = signal.samples.unwrap_or(1).min(1 << 32) as f64;
            if samples > 0.0 {
                shard.now.add(loss, samples);
                shard.drawn += samples;
                if shard.first.is_none() {
                    shard.first_sum.add(loss, samples);
                    if shard.first_sum.samples >= SAMPLES_MIN {
                        shard.first = Some(shard.first_sum.mean());
                    }
                }
            }
        }
    }

    pub(crate) fn probe(&mut self, index: usize, step: u64, loss: f64) {
        self.probe_step = Some(self.probe_step.unwrap_or(0).max(step));
        let category = &mut self.categories[index];
        category.newest = Some(loss);
        category.first.get_or_insert(loss);
    }

    /// Lets the clock go on to a step that a task reports; whether that closed a tick.
    pub(crate) fn arrive(&mut self, task: Option<u32>, step: u64) -> bool {
        self.signals += 1;
        // Closing a tick looks at every shard: so many signals have to have come that each bears a part of it.
        let borne = self.signals >= self.shards.len() / 4;
        let clock = self.clock.get_or_insert((task, step));
        if clock.0 == task {
            // A report that was held back for a few steps is no rollback.
            if step.saturating_add(TICK_STEPS_MIN) < clock.1 && borne {
                clock.1 = step;
                self.rewind(step);
            } else {
                clock.1 = clock.1.max(step);
            }
        }
        let first = *self.first_step.get_or_insert(step);
        self.tick_step = self.tick_step.max(first);
        self.newest_step = self.newest_step.max(step);
        let since = step.saturating_sub(self.tick_step);
        let length = self
            .steps_total
            .map_or(TICK_STEPS_MIN, |total| total / TICKS);
        if since < length.clamp(TICK_STEPS_MIN, TICK_STEPS_MAX) || !borne {
            return false;
        }
        let fresh = self.probe_step.is_none_or(|probe| probe > self.tick_step);
        if !fresh && since < TICK_STEPS_MAX {
            return false;
        }
        self.close();
        self.tick_step = step;
        true
    }

    fn close(&mut self) {
        self.ticks += 1;
        self.signals = 0;
        for shard in &mut self.shards {
            let category = &self.categories[shard.category];
            // The loss falls during a tick: it is held against the middle of the probes before and after.
            let before = category.probes.back().copied().or(category.first);
            let probe = before.zip(category.newest);
            let probe = probe.map(|(before, after)| f64::midpoint(before, after));
            shard.close(self.ticks, probe);
        }
        for category in &mut self.categories {
            if let Some(probe) = category.newest {
                if category.probes.len() == TREND_TICKS {
                    category.probes.pop_front();
                }
                category.probes.push_back(probe);
            }
        }
    }

    /// The run went back to an earlier step: what was seen of the steps after it no longer says how the model does.
    fn rewind(&mut self, step: u64) {
        self.shards.iter_mut().for_each(Shard::forget);
        self.categories
            .iter_mut()
            .for_each(|category| category.probes.clear());
        self.signals = 0;
        self.drawn_before = self.shards.iter().map(|shard| shard.drawn).sum();
        self.first_step = Some(step);
        self.newest_step = step;
        self.tick_step = step;
        self.probe_step = self.probe_step.map(|_| step);
    }

    /// Steps seen without a rollback between them.
    pub(crate) fn steps_seen(&self) -> u64 {
        self.newest_step - self.first_step.unwrap_or(self.newest_step)
    }

    /// Samples that the run still draws, if it is known how long it goes on.
    pub(crate) fn samples_left(&self) -> Option<f64> {
        let left = self.steps_total?.saturating_sub(self.newest_step) as f64;
        let drawn: f64 = self.shards.iter().map(|shard| shard.drawn).sum();
        Some(left * (drawn - self.drawn_before) / self.steps_seen().max(1) as f64)
    }

    /// Thousandths of the run that are done.
    pub(crate) fn done_permille(&self) -> Option<u64> {
        let total = self.steps_total.filter(|total| *total > 0)?;
        Some((u128::from(self.newest_step) * 1_000 / u128::from(total)) as u64)
    }

    pub(crate) const fn step(&self) -> u64 {
        self.newest_step
    }
}
