//! The provenance rule: on which shard's data gradients explode, and what else came from where a bad shard came from.
//! Flags ancestors and siblings and nobody else; changes none of them.
//!
//! A shard is blamed by its own gradient norm where the trainer measures it. The norm of a whole step blames a shard only
//! when the spikes fall on its steps so neatly that chance would do it once in a hundred runs. A loss that is no number blames
//! a shard at once where another's loss at the same step of the same task is one: the weights were sound, its rows are not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use antiphon_types::{DirectiveBody, Remedy, Rule, ShardOrigin, Verdict};

use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::robust::median;
use crate::signal::{Signal, finite};
use crate::stream::Stream;

/// A spike is so many median absolute deviations above the median.
const DEVIATIONS: f64 = 8.0;
/// And so many times the median: norms that hardly vary make small deviations look large.
const TIMES_MIN: f64 = 3.0;
/// Norms that a limit is drawn from.
const NORMS: usize = 64;
/// Norms before a limit is drawn.
const NORMS_MIN: usize = 16;
/// The limit is drawn anew after so many norms.
const DRAWN_EVERY: usize = 16;
/// Spikes of a shard's own norm within [`SPIKE_STEPS`] that convict it: one is chance.
const SPIKES_MIN: usize = 2;
/// Steps in which they have to fall.
const SPIKE_STEPS: u64 = 100;
/// Spikes of whole steps that are remembered.
const SPIKES_KEPT: usize = 16;
/// A spike is put down to shards so many steps later, when slower tasks have said what they drew.
const SETTLE_STEPS: u64 = 8;
/// How likely it may be that some innocent shard was drawn at every spike.
const CHANCE_MAX: f64 = 0.01;
/// Related shards named for one bad one, ancestors first: each is an entry of the log.
const RELATED_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ProvenanceRule {
    /// Norms of whole steps.
    steps: Norms,
    /// Norms of shards, all together: a shard that is wild from its first step has no calm past of its own.
    shards: Norms,
    /// The step being reported, and its largest norm so far.
    now: Option<(u64, f64)>,
    /// Spikes of whole steps that are not put down to shards yet, and those that are.
    unsettled: VecDeque<(u64, f64)>,
    /// By shard: at how many of the spikes it was drawn from.
    blamed: Vec<u32>,
    spikes: u32,
    steps_seen: u64,
    /// By shard: steps of spikes of its own norm.
    own: BTreeMap<usize, VecDeque<u64>>,
    /// Bad shards whose relations are said.
    traced: BTreeSet<usize>,
    /// The task and step of the newest loss of a shard: a task reports its steps in order, so what is of one step stands
    /// together.
    losses_at: Option<(Option<u32>, u64)>,
    /// Whether one of its losses is a number, and a shard whose is not.
    sound: bool,
    broken: Option<usize>,
}

/// Recent norms and what is a spike among them.
#[derive(Debug, Default)]
struct Norms {
    recent: VecDeque<f64>,
    since: usize,
    limit: Option<f64>,
}

impl Norms {
    /// Takes a norm in; whether it is a spike. Spikes stay out of what the next are held against.
    fn spikes(&mut self, norm: f64) -> bool {
        if self.limit.is_some_and(|limit| norm > limit) {
            return true;
        }
        if self.recent.len() == NORMS {
            self.recent.pop_front();
        }
        self.recent.push_back(norm);
        self.since += 1;
        if self.since >= DRAWN_EVERY && self.recent.len() >= NORMS_MIN {
            self.since = 0;
            let middle =
                median(&mut self.recent.iter().copied().collect::<Vec<_>>()).unwrap_or(0.0);
            let away = self.recent.iter().map(|norm| (norm - middle).abs());
            let deviation = median(&mut away.collect::<Vec<_>>()).unwrap_or(0.0);
            let limit = (middle + DEVIATIONS * deviation).max(TIMES_MIN * middle);
            self.limit = (limit > 0.0).then_some(limit);
        }
        false
    }

    fn limit(&self) -> f64 {
        self.limit.unwrap_or(f64::INFINITY)
    }
}

impl ProvenanceRule {
    /// Looks at the norm of a shard's own gradient.
    pub(crate) fn observe_shard(
        &mut self,
        index: usize,
        signal: &Signal<'_>,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        let (Some(norm), Some(step)) = (finite(signal.grad_norm), signal.step) else {
            return Vec::new();
        };
        if !self.shards.spikes(norm.abs()) {
            return Vec::new();
        }
        let spikes = self.own.entry(index).or_default();
        if spikes.back() != Some(&step) {
            spikes.push_back(step);
        }
        while spikes
            .front()
            .is_some_and(|first| first.abs_diff(step) > SPIKE_STEPS)
            || spikes.len() > SPIKES_MIN
        {
            spikes.pop_front();
        }
        if spikes.len() < SPIKES_MIN {
            return Vec::new();
        }
        let evidence = format!(
            "gradient norm of its own samples {norm:.2}, {} times in {SPIKE_STEPS} steps over {:.2}, the median of all shards \
             plus {DEVIATIONS} median absolute deviations",
            spikes.len(),
            self.shards.limit()
        );
        self.explode(index, evidence, step, stream, context)
    }

    /// Looks at whether the loss of a shard's own samples is a number.
    pub(crate) fn observe_loss(
        &mut self,
        index: usize,
        signal: &Signal<'_>,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        let Some(step) = signal.step else {
            return Vec::new();
        };
        let at = (signal.task, step);
        if self.losses_at != Some(at) {
            // After a rollback the same step comes again, and then the weights are others.
            (self.losses_at, self.sound, self.broken) = (Some(at), false, None);
        }
        let blamed = if signal.not_finite == Some(true) {
            self.broken = Some(index);
            self.sound.then_some(index)
        } else if finite(signal.loss).is_some() {
            self.sound = true;
            self.broken.filter(|other| *other != index)
        } else {
            None
        };
        let Some(shard) = blamed else {
            return Vec::new();
        };
        let evidence = format!(
            "the loss of its own samples is no number at step {step}, where that of other shards is one"
        );
        self.explode(shard, evidence, step, stream, context)
    }

    /// Looks at the gradient norm of a whole step, which every task may report.
    pub(crate) fn observe_step(
        &mut self,
        signal: &Signal<'_>,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        let (Some(norm), Some(step)) = (finite(signal.grad_norm), signal.step) else {
            return Vec::new();
        };
        let norm = norm.abs();
        match &mut self.now {
            Some((now, largest)) if step <= *now => {
                *largest = largest.max(norm);
                return Vec::new();
            }
            now => {
                let Some((before, largest)) = now.replace((step, norm)) else {
                    return Vec::new();
                };
                self.steps_seen += 1;
                if self.steps.spikes(largest) && self.unsettled.len() < SPIKES_KEPT {
                    self.unsettled.push_back((before, largest));
                }
            }
        }
        let mut said = Vec::new();
        while let Some((spike, norm)) = self.unsettled.front().copied()
            && spike.saturating_add(SETTLE_STEPS) <= step
        {
            self.unsettled.pop_front();
            said.extend(self.settle(spike, norm, stream, context));
        }
        said
    }

    /// Puts a spike down to the shards of its step.
    fn settle(
        &mut self,
        spike: u64,
        norm: f64,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        self.spikes += 1;
        self.blamed.resize(stream.shards.len(), 0);
        for (blamed, shard) in self.blamed.iter_mut().zip(&stream.shards) {
            *blamed += u32::from(shard.presence.at(spike));
        }
        let count = stream.shards.len() as f64;
        let chance = |index: usize| {
            let share = stream.shards[index].presence.steps as f64 / self.steps_seen.max(1) as f64;
            count * share.min(1.0).powf(f64::from(self.spikes))
        };
        let mut suspects = (0..self.blamed.len()).filter(|index| {
            self.blamed[*index] == self.spikes
                && self.spikes as usize >= SPIKES_MIN
                && chance(*index) < CHANCE_MAX
        });
        // Two shards that are always drawn together cannot be told apart: neither is convicted.
        let (Some(suspect), None) = (suspects.next(), suspects.next()) else {
            return Vec::new();
        };
        let presence = stream.shards[suspect].presence;
        let evidence = format!(
            "all {} gradient spikes (the last {norm:.2} at step {spike}, over {:.2}) fell on the {} of {} steps that drew from \
             it: chance {:.4}",
            self.spikes,
            self.steps.limit(),
            presence.steps,
            self.steps_seen,
            chance(suspect)
        );
        self.explode(suspect, evidence, spike, stream, context)
    }

    fn explode(
        &mut self,
        index: usize,
        evidence: String,
        step: u64,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        if self.traced.contains(&index) {
            return Vec::new();
        }
        let shard = stream.shard_names.name(index).to_owned();
        let made = origin(context, &shard);
        let mut said = vec![Conclusion {
            rule: Rule::Provenance,
            subject: shard.clone(),
            verdict: Verdict::Explosion,
            evidence: evidence + &made,
            step,
            remedies: vec![Remedy::Direct(DirectiveBody::PauseShard { shard })],
        }];
        said.extend(self.trace(index, "whose gradients explode", step, stream, context));
        said
    }

    /// Flags what came from where a bad shard came from, once.
    pub(crate) fn trace(
        &mut self,
        index: usize,
        bad: &str,
        step: u64,
        stream: &Stream,
        context: &Context,
    ) -> Vec<Conclusion> {
        if !self.traced.insert(index) {
            return Vec::new();
        }
        let shard = stream.shard_names.name(index);
        let relations = relations(&context.shards, shard);
        let count = relations.len();
        let related = relations.into_iter().take(RELATED_MAX);
        related
            .map(|(subject, how)| Conclusion {
                rule: Rule::Provenance,
                subject,
                verdict: Verdict::Related,
                evidence: format!("{how} {shard}, {bad}; one of {count} related shards"),
                step,
                remedies: Vec::new(),
            })
            .collect()
    }
}

/// Ancestors of a shard, nearest first, then its siblings; each with how it is related. Cycles and unknown parents are taken
/// as they are.
fn relations(origins: &BTreeMap<String, ShardOrigin>, shard: &str) -> Vec<(String, &'static str)> {
    let mut known: BTreeSet<&str> = BTreeSet::from([shard]);
    let mut found = Vec::new();
    let mut open = VecDeque::from([shard]);
    while let Some(child) = open.pop_front() {
        let how = if child == shard {
            "a parent of"
        } else {
            "an ancestor of"
        };
        for parent in origins.get(child).iter().flat_map(|origin| &origin.parents) {
            if known.insert(parent) {
                found.push((parent.clone(), how));
                open.push_back(parent);
            }
        }
    }
    let Some(bad) = origins.get(shard) else {
        return found;
    };
    for (name, origin) in origins {
        if !known.contains(name.as_str())
            && let Some(how) = sibling(bad, origin)
        {
            found.push((name.clone(), how));
        }
    }
    found
}

fn sibling(one: &ShardOrigin, other: &ShardOrigin) -> Option<&'static str> {
    let said = |text: &str| !text.is_empty();
    if said(&one.source)
        && said(&one.chunk)
        && (&one.source, &one.chunk) == (&other.source, &other.chunk)
    {
        Some("from the same chunk of the same source as")
    } else if said(&one.generator)
        && (&one.generator, one.temperature_milli, &one.code)
            == (&other.generator, other.temperature_milli, &other.code)
    {
        Some("made by the same generator, temperature and code as")
    } else if one.made_by.is_some() && one.made_by == other.made_by {
        Some("made by the same attempt as")
    } else {
        None
    }
}

/// Where a shard came from, to stand behind what is said of it; empty where nothing is known.
pub(crate) fn origin(context: &Context, shard: &str) -> String {
    let Some(origin) = context.shards.get(shard) else {
        return String::new();
    };
    let mut text = String::new();
    let mut add = |what: &str, of: &str| {
        if !of.is_empty() {
            text.push_str(&format!("; {what} {of}"));
        }
    };
    add("source", &origin.source);
    add("chunk", &origin.chunk);
    add("generator", &origin.generator);
    if let Some(milli) = origin.temperature_milli {
        add("temperature", &format!("{}", f64::from(milli) / 1_000.0));
    }
    add("code", &origin.code);
    if let Some(attempt) = origin.made_by {
        add("made by", &attempt.to_string());
    }
    add("from", &origin.parents.join(", "));
    text
}

#[cfg(test)]
mod tests;
