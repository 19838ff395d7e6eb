//! What a shard looks like at the end of a tick, held against its category's probe, its siblings and its own past. Remembers
//! nothing and convicts nobody.
//!
//! **The gap.** Each shard claims a category, each category has a small clean held-out probe. `gap = training loss of the
//! shard - probe loss of its category`, over the same steps, in nats. Loss alone says nothing: a hard shard is high too, and so
//! is its probe. Where a category has no probe, an older and weaker test is left: far above the others, and not falling while
//! they do.

use crate::robust::median;
use crate::shard::Watched;
use crate::sorted::Sorted;
use crate::stream::{Mean, SAMPLES_MIN, Shard, Stream};

/// A gap of this many nats is suspicious: e times as surprising as the category, for each token.
const GAP_MIN: f64 = 1.0;
/// Where healthy shards differ much, a suspicious gap is wider: so many of their median absolute deviations.
const DEVIATIONS: f64 = 4.0;
/// A shard at half of its category's probe loss is suspicious too: a good model's loss leaves no room for a whole nat.
const HEART_SHARE: f64 = 0.5;
/// Standard errors between what is and what is chance.
const ERRORS: f64 = 2.0;
/// A gap that narrows, and within one standard error of its pace would close in so many ticks, belongs to a hard shard that
/// is being learned.
const CLOSES_TICKS: f64 = 10.0;
/// A shard that fell by this part of what its probe did is learned, if not as well.
const LEARNED_SHARE: f64 = 0.25;
/// Without a probe: nats by which the others must have fallen before one that has not is suspicious.
const OTHERS_FELL_MIN: f64 = 0.5;
/// Without a probe: noise has fallen by less than this share of what the others have.
const FELL_SHARE_MAX: f64 = 0.1;
/// Without a probe: the share of ln(vocabulary), the loss of uniform noise, that learnable text does not stay above.
const UNIFORM_SHARE: f64 = 0.95;
/// A trial needs no more samples than this to fail: the shard has a record.
const TRIAL_SAMPLES_MIN: f64 = 16.0;

/// What all shards together were like in a tick.
pub(crate) struct Tick {
    /// Nats beyond which a gap is suspicious.
    pub(crate) threshold: f64,
    /// Gaps of trusted shards by category.
    gaps: Vec<Sorted>,
    /// Losses of trusted shards, and by how much each fell since its first samples.
    losses: Sorted,
    falls: Sorted,
}

/// What one shard looks like in a tick, with the numbers.
pub(crate) enum Look {
    /// Nothing wrong; on trial with the numbers.
    Fine(String),
    /// Not learnable as what it claims to be.
    Noise(String),
    /// Known by heart.
    Heart(String),
    /// Too little was drawn to say.
    Unknown,
}

impl Tick {
    pub(crate) fn new(stream: &Stream, watched: &[Watched]) -> Self {
        let mut gaps = vec![Vec::new(); stream.categories.len()];
        let (mut losses, mut falls) = (Vec::new(), Vec::new());
        let trusted = stream.shards.iter().zip(watched);
        for (shard, _) in trusted.filter(|(_, watched)| watched.trusted()) {
            if let Some(gap) = shard.gap(SAMPLES_MIN) {
                gaps[shard.category].push(gap.value);
            }
            if let (Some(loss), Some(first)) = (shard.loss(SAMPLES_MIN), shard.first) {
                losses.push(loss.value);
                falls.push(first - loss.value);
            }
        }
        let healthy: Vec<f64> = gaps
            .iter()
            .flatten()
            .copied()
            .filter(|gap| gap.abs() <= GAP_MIN)
            .collect();
        let middle = median(&mut healthy.clone()).unwrap_or(0.0);
        let mut deviations: Vec<f64> = healthy.iter().map(|gap| (gap - middle).abs()).collect();
        // Two shards differ; that says nothing of how much shards differ.
        let deviation = median(&mut deviations).filter(|_| healthy.len() > 2);
        Self {
            threshold: GAP_MIN.max(DEVIATIONS * deviation.unwrap_or(0.0)),
            gaps: gaps.into_iter().map(Sorted::new).collect(),
            losses: Sorted::new(losses),
            falls: Sorted::new(falls),
        }
    }

    pub(crate) fn look(&self, stream: &Stream, shard: &Shard) -> Look {
        match (
            shard.gap(SAMPLES_MIN),
            stream.categories[shard.category].probe(),
        ) {
            (Some(gap), Some(probe)) if gap.value > self.threshold => {
                self.high(stream, shard, gap, probe)
            }
            (Some(gap), Some(probe)) if gap.value < -self.heart(probe) => {
                self.low(shard, gap, probe)
            }
            (Some(_), Some(_)) => Look::Fine(String::new()),
            // A category with a probe waits for enough samples of it.
            (None, Some(_)) => Look::Unknown,
            (_, None) => self.without_probe(stream, shard),
        }
    }

    /// Nats below the probe beyond which a shard is known by heart.
    pub(crate) fn heart(&self, probe: f64) -> f64 {
        let margin = self.threshold - GAP_MIN;
        margin + GAP_MIN.min(HEART_SHARE * probe.max(0.0))
    }

    fn high(&self, stream: &Stream, shard: &Shard, gap: Mean, probe: f64) -> Look {
        let Some((slope, error)) = shard.slope(|past| past.gap) else {
            return Look::Unknown;
        };
        let closing = slope < 0.0 && gap.value + CLOSES_TICKS * (slope - error) < self.threshold;
        let sure = gap.value - ERRORS * gap.error > self.threshold / 2.0;
        if !sure || closing || self.category_explains(stream, shard, gap.value) {
            return Look::Fine(String::new());
        }
        let seen = numbers(shard, gap, probe, slope, error);
        Look::Noise(format!("{seen}, over {:.2}", self.threshold))
    }

    /// Whether siblings show that the category, or its probe, is what makes the gap: all are as far above the probe, or it
    /// lies between easy and hard ones. A shard that is not learned at all is not explained by that.
    fn category_explains(&self, stream: &Stream, shard: &Shard, gap: f64) -> bool {
        let Some(easiest) = self.gaps[shard.category].lowest_without(gap) else {
            return false;
        };
        let shifted = gap - easiest.max(0.0) <= self.threshold / 2.0;
        let straddled = easiest < -gap / 2.0;
        (shifted || straddled) && (falls(shard) || learned(stream, shard))
    }

    fn low(&self, shard: &Shard, gap: Mean, probe: f64) -> Look {
        let Some((slope, error)) = shard.slope(|past| past.gap) else {
            return Look::Unknown;
        };
        let limit = self.heart(probe);
        let closing = slope > 0.0 && gap.value + CLOSES_TICKS * (slope + error) > -limit;
        let sure = gap.value + ERRORS * gap.error < -limit / 2.0;
        // A probe that lies between easy and hard shards makes the easy ones look learned by heart.
        let hardest = self.gaps[shard.category].highest_without(gap.value);
        let straddled = hardest.is_some_and(|hardest| hardest > -gap.value / 2.0);
        let known = shard.repeats().is_some_and(|repeats| repeats >= 2.0)
            || gap.value < -HEART_SHARE * probe;
        if !sure || closing || (straddled && !known) {
            return Look::Fine(String::new());
        }
        let seen = numbers(shard, gap, probe, slope, error);
        let repeats = shard.repeats().map_or_else(String::new, |repeats| {
            format!("; each of its samples drawn {repeats:.1} times")
        });
        Look::Heart(format!("{seen}, under -{limit:.2}{repeats}"))
    }

    fn without_probe(&self, stream: &Stream, shard: &Shard) -> Look {
        let (Some(loss), Some(first)) = (shard.loss(SAMPLES_MIN), shard.first) else {
            return Look::Unknown;
        };
        let fell = first - loss.value;
        if self.losses.len() < 3 {
            return Look::Unknown;
        }
        let (Some(others_loss), Some(others_fell)) = (
            self.losses.median_without(loss.value),
            self.falls.median_without(fell),
        ) else {
            return Look::Unknown;
        };
        let left_behind = others_fell > OTHERS_FELL_MIN && fell < FELL_SHARE_MAX * others_fell;
        let uniform = stream
            .vocabulary
            .is_some_and(|entries| loss.value > UNIFORM_SHARE * entries.ln());
        if loss.value - others_loss <= GAP_MIN || !(left_behind || (uniform && !falls(shard))) {
            return Look::Fine(String::new());
        }
        Look::Noise(format!(
            "no probe; loss {:.2} nat fell {fell:.2} since its first samples, the others' median {others_loss:.2} fell \
             {others_fell:.2}; {:.0} samples",
            loss.value, loss.samples
        ))
    }

    /// What a shard looks like that was bad before: less is needed to say that it still is.
    pub(crate) fn look_on_trial(&self, stream: &Stream, shard: &Shard) -> Look {
        let probe = stream.categories[shard.category].probe();
        let against_others = || {
            let others = self.losses.median_without(f64::NAN)?;
            let loss = shard.loss(TRIAL_SAMPLES_MIN)?;
            let value = loss.value - others;
            Some(Mean { value, ..loss })
        };
        let gap = match probe {
            Some(_) => shard.gap(TRIAL_SAMPLES_MIN),
            None => against_others(),
        };
        let Some(gap) = gap else {
            return Look::Unknown;
        };
        let heart = probe.map_or(f64::INFINITY, |probe| self.heart(probe));
        let against = if probe.is_some() {
            "its probe"
        } else {
            "the others"
        };
        let seen = format!(
            "on trial: gap {:+.2} nat to {against} over {:.0} samples",
            gap.value, gap.samples
        );
        if gap.value - gap.error > self.threshold {
            Look::Noise(seen)
        } else if gap.value + gap.error < -heart {
            Look::Heart(seen)
        } else if gap.samples < SAMPLES_MIN {
            Look::Unknown
        } else {
            Look::Fine(seen)
        }
    }

    /// Whether a shard is so far above a healthy sibling that its part of the stream is better spent there.
    pub(crate) fn doubts(&self, shard: &Shard) -> Option<bool> {
        let gap = shard.gap(SAMPLES_MIN)?;
        let easiest = self.gaps[shard.category].lowest_without(gap.value)?;
        let over = self.threshold / 2.0;
        Some(gap.value - easiest.max(0.0) > over && gap.value - ERRORS * gap.error > over / 2.0)
    }
}

fn numbers(shard: &Shard, gap: Mean, probe: f64, slope: f64, error: f64) -> String {
    format!(
        "gap {:+.2} nat (loss {:.2}, probe {probe:.2}, {:.0} samples of {} ticks), moving {slope:+.3} a tick (error {error:.3})",
        gap.value,
        probe + gap.value,
        gap.samples,
        shard.past.len()
    )
}

/// Whether the loss falls by more than chance.
fn falls(shard: &Shard) -> bool {
    let slope = shard.slope(|past| Some(past.loss));
    slope.is_some_and(|(slope, error)| slope + ERRORS * error < 0.0)
}

/// Whether the loss has fallen since the shard's first samples, and by a fair part of what its category's probe has.
fn learned(stream: &Stream, shard: &Shard) -> bool {
    let category = &stream.categories[shard.category];
    let fell = shard.first.zip(shard.loss(SAMPLES_MIN));
    let probe_fell = category.first.zip(category.probe());
    fell.zip(probe_fell)
        .is_some_and(|((first, now), (probe_first, probe_now))| {
            first - now.value > (ERRORS * now.error).max(LEARNED_SHARE * (probe_first - probe_now))
        })
}
