//! The shard rule: which shards cannot be learned as what they claim to be, and which are known by heart.
//!
//! Judged by the gap ([`crate::gap`]). The constants are one frozen setting for all runs; nothing here raises a weight.

use antiphon_types::{DirectiveBody, Remedy, Rule, Verdict};

use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::gap::{Look, Tick};
use crate::mix::{self, Mix};
use crate::starving::{Starved, StarvingRule};
use crate::stream::{SAMPLES_MIN, Shard, Stream};

/// No conviction before so many steps: every gap is wide at first.
pub(crate) const WARM_UP_STEPS: u64 = 60;
/// Ticks in a row that have to agree: once is chance.
const TICKS_IN_ROW: u32 = 2;
/// After so many ticks a quarantine ends with a trial; each that fails doubles the next.
const TRIAL_AFTER_TICKS: u64 = 20;
/// Doublings of that time at most.
const TRIAL_DOUBLINGS_MAX: u32 = 6;
/// The part of the stream that a shard on trial gets.
pub(crate) const TRIAL_SHARE: f64 = 0.01;
/// How often a sample may be repeated over a whole run: beyond four passes data is worth little more.
const REPEATS_MAX: f64 = 4.0;

/// Shards of one run, and what the rule thinks of them.
#[derive(Debug, Default)]
pub(crate) struct ShardRule {
    watched: Vec<Watched>,
    mix: Mix,
    starving: StarvingRule,
    all_bad: bool,
    /// Whether the run is past its first step, or was given a mix to begin with.
    begun: bool,
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
    Trial,
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

impl Watched {
    pub(crate) fn trusted(&self) -> bool {
        self.standing == Standing::Trusted
    }

    /// Whether it is so far above its siblings that they should have its part of the stream.
    pub(crate) const fn doubted(&self) -> bool {
        self.doubt_ticks >= TICKS_IN_ROW
    }
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

    /// Whether it is too late for a mix to begin with, or that was said.
    pub(crate) const fn has_begun(&self) -> bool {
        self.begun
    }

    /// Says the mix that a run begins with, once it is known what it draws from. A run that goes on from an earlier step, or
    /// after earlier attempts, has its mix.
    pub(crate) fn begin(
        &mut self,
        step: u64,
        done_before: u64,
        stream: &mut Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        let first = step <= 1 && done_before == 0;
        self.begun = !first;
        if !first || !stream.expect(context) {
            return Vec::new();
        }
        self.begun = true;
        self.keep_up(stream);
        mix::tell(&mut self.mix, stream, &self.watched, Starved::default())
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
                Standing::Out { until, .. } if stream.ticks >= until => {
                    self.watched[index].standing = Standing::Trial;
                    stream.shards[index].forget();
                }
                Standing::Out { .. } => (),
                Standing::Trial => said.extend(self.retry(index, stream, &tick)),
            }
        }
        said.extend(self.convict(convicted, stream));
        if !self.all_bad {
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
            Look::Fine(_) => {
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
        let pairs = stream.shards.iter().zip(&self.watched);
        let trusted = pairs
            .filter(|(shard, watched)| shard.heard && watched.trusted())
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
        let category = stream.category_names.name(shard.category);
        let others = stream.shards.iter().zip(&self.watched).enumerate();
        let bereft = !others
            .filter(|(other, (with, _))| *other != index && with.category == shard.category)
            .any(|(_, (_, watched))| watched.trusted());
        let share = match verdict {
            // What is known by heart still keeps its category from being forgotten, where nothing else is left to.
            Verdict::Duplicate if bereft && !category.is_empty() => {
                budget(shard, stream).max(mix::FLOOR)
            }
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
        if bereft && !category.is_empty() {
            let augment = Remedy::Augment {
                of: category.to_owned(),
            };
            // Noise goes first of all. A shard that is only worn out makes way for fresh samples, and the mix that is told
            // next takes its weight.
            let place = usize::from(verdict == Verdict::Noise);
            remedies.insert(place, augment);
        }
        let last = if bereft {
            "; no shard of its category is left"
        } else {
            ""
        };
        let next = match self.watched[index].standing {
            Standing::Out { until, .. } => until - stream.ticks,
            Standing::Trusted | Standing::Trial => 0,
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
    fn retry(&mut self, index: usize, stream: &Stream, tick: &Tick) -> Option<Conclusion> {
        let seen = match tick.look_on_trial(stream, &stream.shards[index]) {
            Look::Unknown => return None,
            Look::Noise(seen) => return Some(self.take_out(index, Verdict::Noise, &seen, stream)),
            Look::Heart(seen) => {
                return Some(self.take_out(index, Verdict::Duplicate, &seen, stream));
            }
            Look::Fine(seen) => seen,
        };
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
                    Standing::Trusted | Standing::Trial => None,
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
