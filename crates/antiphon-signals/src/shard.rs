//! The shard rule: which shards cannot be learned as what they claim to be, and which are known by heart.
//!
//! **The gap.** Each shard claims a category, each category has a small clean held-out probe. `gap = training loss of the
//! shard - probe loss of its category`, over the same steps, in nats. Loss alone never convicts: a hard shard is high too, and
//! so is its probe. The constants below are one frozen setting for all runs. Nothing here raises a weight.
//!
//! Where a category has no probe, the older and weaker test is left: far above the others, and not falling while they do.

use antiphon_types::{DirectiveBody, Remedy, Rule, Verdict};

use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::mix::{self, Mix};
use crate::sorted::{Sorted, median};
use crate::starving::StarvingRule;
use crate::stream::{Mean, SAMPLES_MIN, Shard, Stream};

/// No conviction before so many steps: every gap is wide at first.
pub(crate) const WARM_UP_STEPS: u64 = 60;
/// A gap of this many nats is suspicious: e times as surprising as the category, for each token.
const GAP_MIN: f64 = 1.0;
/// Where healthy shards differ much, a suspicious gap is wider: so many of their median absolute deviations.
const DEVIATIONS: f64 = 4.0;
/// A shard at half of its category's probe loss is suspicious too: a good model's loss leaves no room for a whole nat.
const HEART_SHARE: f64 = 0.5;
/// Ticks in a row that have to agree: once is chance.
const TICKS_IN_ROW: u32 = 2;
/// Standard errors between what is and what is chance.
const ERRORS: f64 = 2.0;
/// A gap that closes within so many ticks at its present pace belongs to a hard shard that is being learned.
const CLOSES_TICKS: f64 = 10.0;
/// After so many ticks a quarantine ends with a trial; each that fails doubles the next.
const TRIAL_AFTER_TICKS: u64 = 20;
/// Doublings of that time at most.
const TRIAL_DOUBLINGS_MAX: u32 = 6;
/// A trial needs no more samples than this to fail: the shard has a record.
const TRIAL_SAMPLES_MIN: f64 = 16.0;
/// The part of the stream that a shard on trial gets.
pub(crate) const TRIAL_SHARE: f64 = 0.01;
/// How often a sample may be repeated over a whole run: beyond four passes data is worth little more.
const REPEATS_MAX: f64 = 4.0;
/// A shard that fell by this part of what its probe did is learned, if not as well.
const LEARNED_SHARE: f64 = 0.25;
/// Without a probe: nats by which the others must have fallen before one that has not is suspicious.
const OTHERS_FELL_MIN: f64 = 0.5;
/// Without a probe: noise has fallen by less than this share of what the others have.
const FELL_SHARE_MAX: f64 = 0.1;
/// Without a probe: the share of ln(vocabulary), the loss of uniform noise, that learnable text does not stay above.
const UNIFORM_SHARE: f64 = 0.95;

/// Shards of one run, and what the rule thinks of them.
#[derive(Debug, Default)]
pub(crate) struct ShardRule {
    watched: Vec<Watched>,
    mix: Mix,
    starving: StarvingRule,
    all_bad: bool,
}

/// What the rule thinks of one shard.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Watched {
    pub(crate) standing: Standing,
    noise_ticks: u32,
    heart_ticks: u32,
    doubt_ticks: u32,
    /// Beyond the threshold in the last tick: never raised.
    pub(crate) suspicious: bool,
    /// Convictions so far.
    times: u32,
}

/// Whether a shard is drawn from.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) enum Standing {
    /// As the mix says.
    #[default]
    Trusted,
    /// It gets this part of the stream until a tick.
    Out {
        verdict: Verdict,
        share: f64,
        until: u64,
    },
    /// It gets [`TRIAL_SHARE`] until it is judged again.
    Trial { verdict: Verdict },
}

/// A shard's recent loss, for people to look at.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardLoss {
    /// The shard.
    pub shard: String,
    /// What it serves; empty where nothing said so.
    pub category: String,
    /// Mean loss of its recent samples, in nats.
    pub loss: f64,
    /// That loss minus the probe loss of its category, in nats, where there is a probe and enough was drawn.
    pub gap: Option<f64>,
    /// Samples behind the loss.
    pub samples: u64,
    /// Its weight as the trainer last said it.
    pub weight: Option<f64>,
    /// Whether it is out of the mix as noise.
    pub noise: bool,
    /// Whether it is held back because it is known by heart.
    pub duplicate: bool,
}

/// What all shards together were like in a tick.
struct Tick {
    /// Nats beyond which a gap is suspicious.
    threshold: f64,
    /// Gaps of trusted shards by category.
    gaps: Vec<Sorted>,
    /// Losses of trusted shards, and by how much each fell since its first samples.
    losses: Sorted,
    falls: Sorted,
}

/// What one shard looks like in a tick, with the numbers.
enum Look {
    Fine,
    Noise(String),
    Heart(String),
    Unknown,
}

impl Watched {
    pub(crate) fn trusted(&self) -> bool {
        self.standing == Standing::Trusted
    }

    /// Whether it is so far above its siblings that they should have its part of the stream.
    pub(crate) const fn doubted(&self) -> bool {
        self.doubt_ticks >= TICKS_IN_ROW
    }
}

impl Tick {
    fn new(stream: &Stream, watched: &[Watched]) -> Self {
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
        let middle = median(healthy.clone()).unwrap_or(0.0);
        let deviations = healthy.iter().map(|gap| (gap - middle).abs()).collect();
        // Two shards differ; that says nothing of how much shards differ.
        let deviation = median(deviations).filter(|_| healthy.len() > 2);
        Self {
            threshold: GAP_MIN.max(DEVIATIONS * deviation.unwrap_or(0.0)),
            gaps: gaps.into_iter().map(Sorted::new).collect(),
            losses: Sorted::new(losses),
            falls: Sorted::new(falls),
        }
    }

    fn look(&self, stream: &Stream, shard: &Shard) -> Look {
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
            (Some(_), Some(_)) => Look::Fine,
            // A category with a probe waits for enough samples of it.
            (None, Some(_)) => Look::Unknown,
            (_, None) => self.without_probe(stream, shard),
        }
    }

    /// Nats below the probe beyond which a shard is known by heart.
    fn heart(&self, probe: f64) -> f64 {
        let margin = self.threshold - GAP_MIN;
        margin + GAP_MIN.min(HEART_SHARE * probe.max(0.0))
    }

    fn high(&self, stream: &Stream, shard: &Shard, gap: Mean, probe: f64) -> Look {
        let Some((slope, error)) = shard.slope(|past| past.gap) else {
            return Look::Unknown;
        };
        let closing =
            slope + ERRORS * error < 0.0 && gap.value + CLOSES_TICKS * slope < self.threshold;
        let sure = gap.value - ERRORS * gap.error > self.threshold / 2.0;
        if !sure || closing || self.category_explains(stream, shard, gap.value) {
            return Look::Fine;
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
        let closing = slope - ERRORS * error > 0.0 && gap.value + CLOSES_TICKS * slope > -limit;
        let sure = gap.value + ERRORS * gap.error < -limit / 2.0;
        // A probe that lies between easy and hard shards makes the easy ones look learned by heart.
        let hardest = self.gaps[shard.category].highest_without(gap.value);
        let straddled = hardest.is_some_and(|hardest| hardest > -gap.value / 2.0);
        let known = shard.repeats().is_some_and(|repeats| repeats >= 2.0)
            || gap.value < -HEART_SHARE * probe;
        if !sure || closing || (straddled && !known) {
            return Look::Fine;
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
            return Look::Fine;
        }
        Look::Noise(format!(
            "no probe; loss {:.2} nat fell {fell:.2} since its first samples, the others' median {others_loss:.2} fell \
             {others_fell:.2}; {:.0} samples",
            loss.value, loss.samples
        ))
    }

    /// Whether a shard is so far above a healthy sibling that its part of the stream is better spent there.
    fn doubts(&self, shard: &Shard) -> Option<bool> {
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

impl ShardRule {
    /// Keeps shards out that findings in the log have taken out, until a trial.
    pub(crate) fn tell_context(&mut self, stream: &mut Stream, context: &Context) {
        for name in &context.quarantined {
            let fresh = stream.shard_names.get(name).is_none();
            if let Some(index) = stream.shard(name, context)
                && fresh
            {
                self.keep_up(stream);
                self.watched[index].standing = out(stream, Verdict::Noise, 0.0, 0);
            }
        }
    }

    fn keep_up(&mut self, stream: &Stream) {
        self.watched.resize(stream.shards.len(), Watched::default());
    }

    /// Judges all shards at the end of a tick.
    pub(crate) fn judge(&mut self, stream: &mut Stream, context: &Context) -> Vec<Conclusion> {
        self.keep_up(stream);
        let tick = Tick::new(stream, &self.watched);
        let mut said = Vec::new();
        let mut convicted = Vec::new();
        for index in 0..self.watched.len() {
            match self.watched[index].standing {
                Standing::Trusted => {
                    convicted.extend(
                        self.watch(index, stream, &tick)
                            .map(|(verdict, seen)| (index, verdict, seen)),
                    );
                }
                Standing::Out { verdict, until, .. } if stream.ticks >= until => {
                    self.watched[index].standing = Standing::Trial { verdict };
                    stream.shards[index].forget();
                }
                Standing::Out { .. } => (),
                Standing::Trial { verdict } => {
                    said.extend(self.retry(index, verdict, stream, &tick))
                }
            }
        }
        said.extend(self.convict(convicted, stream));
        if !self.all_bad && stream.steps_seen() >= WARM_UP_STEPS {
            let starving = self.starving.judge(stream, &self.watched, context);
            said.extend(mix::tell(&mut self.mix, stream, &self.watched, starving));
        }
        said
    }

    /// Counts what a trusted shard looks like; says what it is once it has looked so for long enough.
    fn watch(&mut self, index: usize, stream: &Stream, tick: &Tick) -> Option<(Verdict, String)> {
        let (shard, watched) = (&stream.shards[index], &mut self.watched[index]);
        if !shard.heard {
            return None;
        }
        match tick.doubts(shard) {
            Some(true) => watched.doubt_ticks = (watched.doubt_ticks + 1).min(2 * TICKS_IN_ROW),
            Some(false) => watched.doubt_ticks = watched.doubt_ticks.saturating_sub(1),
            None => (),
        }
        let look = tick.look(stream, shard);
        watched.suspicious = matches!(look, Look::Noise(_) | Look::Heart(_));
        let (ticks, verdict, seen) = match look {
            Look::Unknown => return None,
            Look::Fine => {
                (watched.noise_ticks, watched.heart_ticks) = (0, 0);
                return None;
            }
            Look::Noise(seen) => {
                (watched.noise_ticks, watched.heart_ticks) = (watched.noise_ticks + 1, 0);
                (watched.noise_ticks, Verdict::Noise, seen)
            }
            Look::Heart(seen) => {
                (watched.noise_ticks, watched.heart_ticks) = (0, watched.heart_ticks + 1);
                (watched.heart_ticks, Verdict::Duplicate, seen)
            }
        };
        let ripe = ticks >= TICKS_IN_ROW && stream.steps_seen() >= WARM_UP_STEPS;
        ripe.then_some((verdict, seen))
    }

    /// Takes shards out, unless none would be left: then it is the probes or the model that should be looked at.
    fn convict(
        &mut self,
        convicted: Vec<(usize, Verdict, String)>,
        stream: &Stream,
    ) -> Vec<Conclusion> {
        let trusted = self
            .watched
            .iter()
            .filter(|watched| watched.trusted())
            .count();
        if convicted.is_empty() || convicted.len() < trusted {
            let cleared = std::mem::take(&mut self.all_bad) && trusted > 0;
            let evidence = format!(
                "{} of {} shards look healthy",
                trusted - convicted.len(),
                self.watched.len()
            );
            let cleared =
                cleared.then(|| self.say(String::new(), Verdict::Cleared, evidence, stream));
            let taken_out: Vec<Conclusion> = convicted
                .into_iter()
                .map(|(index, verdict, seen)| self.take_out(index, verdict, &seen, stream))
                .collect();
            return cleared.into_iter().chain(taken_out).collect();
        }
        if std::mem::replace(&mut self.all_bad, true) {
            return Vec::new();
        }
        let (index, verdict, seen) = &convicted[0];
        let evidence = format!(
            "all {trusted} shards that are drawn from look bad, {} as {verdict}: {seen}; look at the probes, the labels and the \
             learning rate; the mix stays as it is",
            stream.shard_names.name(*index)
        );
        vec![self.say(String::new(), Verdict::AllBad, evidence, stream)]
    }

    fn take_out(
        &mut self,
        index: usize,
        verdict: Verdict,
        seen: &str,
        stream: &Stream,
    ) -> Conclusion {
        let shard = &stream.shards[index];
        let share = match verdict {
            Verdict::Duplicate => budget(shard, stream),
            _ => 0.0,
        };
        let times = self.watched[index].times;
        self.watched[index] = Watched {
            standing: out(stream, verdict, share, times),
            times: times + 1,
            ..Watched::default()
        };
        let name = stream.shard_names.name(index).to_owned();
        let remedy = if share > 0.0 {
            self.mix.table_with(stream, &self.watched)
        } else if verdict == Verdict::Duplicate {
            DirectiveBody::PauseShard {
                shard: name.clone(),
            }
        } else {
            DirectiveBody::SetWeights {
                weights: [(name.clone(), 0)].into(),
            }
        };
        let mut remedies = vec![Remedy::Direct(remedy)];
        let category = stream.category_names.name(shard.category);
        let left = stream.shards.iter().zip(&self.watched);
        let bereft = !left
            .filter(|(other, _)| other.category == shard.category)
            .any(|(_, watched)| watched.trusted());
        if bereft && !category.is_empty() {
            remedies.push(Remedy::Augment {
                of: category.to_owned(),
            });
        }
        let last = if bereft {
            "; no shard of its category is left"
        } else {
            ""
        };
        let next = match self.watched[index].standing {
            Standing::Out { until, .. } => until - stream.ticks,
            Standing::Trusted | Standing::Trial { .. } => 0,
        };
        let evidence = format!(
            "{seen}; {TICKS_IN_ROW} ticks in a row; {:.1} % of the stream until a trial in {next} ticks{last}",
            100.0 * share
        );
        Conclusion {
            remedies,
            ..self.say(name, verdict, evidence, stream)
        }
    }

    /// A shard on trial goes back in, or out again at once.
    fn retry(
        &mut self,
        index: usize,
        verdict: Verdict,
        stream: &Stream,
        tick: &Tick,
    ) -> Option<Conclusion> {
        let shard = &stream.shards[index];
        let probe = stream.categories[shard.category].probe();
        let (gap, threshold) = match (shard.gap(TRIAL_SAMPLES_MIN), probe) {
            (Some(gap), _) => (gap, tick.threshold),
            (None, Some(_)) => return None,
            (None, None) => {
                let others = tick.losses.median_without(f64::NAN)?;
                let loss = shard.loss(TRIAL_SAMPLES_MIN)?;
                let gap = Mean {
                    value: loss.value - others,
                    ..loss
                };
                (gap, GAP_MIN)
            }
        };
        let low = probe.map_or(f64::INFINITY, |probe| tick.heart(probe));
        let seen = format!(
            "on trial: gap {:+.2} nat over {:.0} samples",
            gap.value, gap.samples
        );
        if gap.value - gap.error > threshold || gap.value + gap.error < -low {
            return Some(self.take_out(index, verdict, &seen, stream));
        }
        if gap.samples < SAMPLES_MIN {
            return None;
        }
        let times = self.watched[index].times;
        self.watched[index] = Watched {
            times,
            ..Watched::default()
        };
        let name = stream.shard_names.name(index).to_owned();
        Some(self.say(name, Verdict::Cleared, seen, stream))
    }

    fn say(
        &self,
        subject: String,
        verdict: Verdict,
        evidence: String,
        stream: &Stream,
    ) -> Conclusion {
        Conclusion {
            rule: Rule::Shard,
            subject,
            verdict,
            evidence,
            step: stream.step(),
            remedies: Vec::new(),
        }
    }

    pub(crate) fn losses(&self, stream: &Stream) -> Vec<ShardLoss> {
        let watched = self
            .watched
            .iter()
            .copied()
            .chain(std::iter::repeat(Watched::default()));
        let shards = stream.shards.iter().enumerate().zip(watched);
        shards
            .filter_map(|((index, shard), watched)| {
                let loss = shard.recent()?;
                let out_as = match watched.standing {
                    Standing::Out { verdict, .. } => Some(verdict),
                    Standing::Trusted | Standing::Trial { .. } => None,
                };
                Some(ShardLoss {
                    shard: stream.shard_names.name(index).to_owned(),
                    category: stream.category_names.name(shard.category).to_owned(),
                    loss: loss.value,
                    gap: shard.gap(SAMPLES_MIN).map(|gap| gap.value),
                    samples: loss.samples as u64,
                    weight: shard.weight,
                    noise: out_as == Some(Verdict::Noise),
                    duplicate: out_as == Some(Verdict::Duplicate),
                })
            })
            .collect()
    }
}

fn out(stream: &Stream, verdict: Verdict, share: f64, times: u32) -> Standing {
    Standing::Out {
        verdict,
        share,
        until: stream.ticks + (TRIAL_AFTER_TICKS << times.min(TRIAL_DOUBLINGS_MAX)),
    }
}

/// The part of the stream at which no sample of a shard is drawn more than [`REPEATS_MAX`] times by the end of the run; none
/// where that cannot be known. A shard known by heart in its first pass holds near copies: it gets no more than the least.
fn budget(shard: &Shard, stream: &Stream) -> f64 {
    let (Some(unique), Some(left)) = (shard.unique, stream.samples_left()) else {
        return 0.0;
    };
    let share = (REPEATS_MAX * unique - shard.drawn).max(0.0) / left.max(1.0);
    let share = share.min(1.0);
    if shard.drawn < unique {
        share.min(mix::FLOOR)
    } else {
        share
    }
}

#[cfg(test)]
mod tests;
