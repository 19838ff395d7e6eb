//! The noise rule: a shard whose loss stays high and does not fall while the others learn cannot be learned.
//!
//! Loss alone never convicts: a hard shard is also high, but it falls. The rule needs both, twice in a row, after a warm-up.

use std::collections::{BTreeMap, VecDeque};

use antiphon_types::{AttemptId, DirectiveBody, Finding, Remedy, Rule, Verdict};

use crate::conclusion::Conclusion;

/// Samples behind one mean: a mean of fewer says little.
const WINDOW_SAMPLES: u64 = 48;
/// No conviction before this step: every shard is high at first.
const WARM_UP_STEPS: u64 = 60;
/// Nats by which a noise shard lies above the others' median.
const GAP_NATS_MIN: f64 = 1.0;
/// Nats by which the others must have fallen before a shard that has not is suspicious.
const OTHERS_FELL_MIN: f64 = 0.5;
/// A noise shard has fallen by less than this share of what the others have.
const FELL_SHARE_MAX: f64 = 0.1;
/// Full windows in a row that have to agree.
const WINDOWS_IN_ROW: u32 = 2;
/// Shards of one job: bounds memory whatever is sent.
const SHARDS_MAX: usize = 4_096;

#[derive(Debug, Default)]
pub(crate) struct ShardRule {
    shards: BTreeMap<String, Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    /// Recent reports: mean loss and samples.
    recent: VecDeque<(f64, u64)>,
    recent_samples: u64,
    /// Mean of the first full window.
    first: Option<f64>,
    /// Samples since the last judgement.
    unjudged: u64,
    /// Full windows in a row that looked like noise.
    suspicious: u32,
    convicted: bool,
}

/// A shard's recent loss, for people to look at.
#[derive(Debug, Clone, PartialEq)]
pub struct ShardLoss {
    /// The shard.
    pub shard: String,
    /// Mean loss of its recent samples, in nats.
    pub loss: f64,
    /// Samples behind it.
    pub samples: u64,
    /// Whether the noise rule fired.
    pub noise: bool,
}

impl Shard {
    fn mean(&self) -> f64 {
        let sum: f64 = self
            .recent
            .iter()
            .map(|(loss, samples)| loss * *samples as f64)
            .sum();
        sum / self.recent_samples.max(1) as f64
    }

    fn push(&mut self, loss: f64, samples: u64) {
        self.recent.push_back((loss, samples));
        self.recent_samples += samples;
        self.unjudged += samples;
        while let Some((_, oldest)) = self.recent.front().copied()
            && self.recent_samples - oldest >= WINDOW_SAMPLES
        {
            self.recent.pop_front();
            self.recent_samples -= oldest;
        }
        if self.first.is_none() && self.recent_samples >= WINDOW_SAMPLES {
            self.first = Some(self.mean());
        }
    }
}

impl ShardRule {
    pub(crate) fn observe(
        &mut self,
        attempt: AttemptId,
        name: &str,
        step: u64,
        loss: f64,
        samples: u64,
    ) -> Option<Finding> {
        let samples = samples.min(1 << 32);
        if samples == 0 || (self.shards.len() >= SHARDS_MAX && !self.shards.contains_key(name)) {
            return None;
        }
        self.shards
            .entry(name.to_owned())
            .or_default()
            .push(loss, samples);
        let evidence = self.judge(name, step)?;
        let weights = BTreeMap::from([(name.to_owned(), 0)]);
        let conclusion = Conclusion {
            rule: Rule::Shard,
            subject: name.to_owned(),
            verdict: Verdict::Noise,
            evidence,
            step,
            remedies: vec![Remedy::Direct(DirectiveBody::SetWeights { weights })],
        };
        Some(conclusion.of(attempt))
    }

    /// Judges a shard each time it has filled another window.
    fn judge(&mut self, name: &str, step: u64) -> Option<String> {
        let others = self.others(name);
        let shard = self.shards.get_mut(name)?;
        let first = shard.first?;
        if shard.convicted || shard.unjudged < WINDOW_SAMPLES || step < WARM_UP_STEPS {
            return None;
        }
        shard.unjudged = 0;
        let (others_loss, others_fell) = others?;
        let (loss, fell) = (shard.mean(), first - shard.mean());
        let noise = loss - others_loss > GAP_NATS_MIN
            && others_fell > OTHERS_FELL_MIN
            && fell < FELL_SHARE_MAX * others_fell;
        shard.suspicious = if noise { shard.suspicious + 1 } else { 0 };
        if shard.suspicious < WINDOWS_IN_ROW {
            return None;
        }
        shard.convicted = true;
        Some(format!(
            "loss {loss:.2} nat fell by {fell:.2} while the other shards reach {others_loss:.2} and fell by {others_fell:.2} ({} samples)",
            shard.recent_samples,
        ))
    }

    /// Median recent loss and median fall of the other shards; at least two have to have filled a window.
    fn others(&self, name: &str) -> Option<(f64, f64)> {
        let known: Vec<(f64, f64)> = self
            .shards
            .iter()
            .filter(|(other, shard)| *other != name && !shard.convicted)
            .filter_map(|(_, shard)| {
                shard
                    .first
                    .map(|first| (shard.mean(), first - shard.mean()))
            })
            .collect();
        (known.len() >= 2).then(|| {
            (
                median(known.iter().map(|(loss, _)| *loss)),
                median(known.iter().map(|(_, fell)| *fell)),
            )
        })
    }

    pub(crate) fn losses(&self) -> Vec<ShardLoss> {
        self.shards
            .iter()
            .map(|(name, shard)| ShardLoss {
                shard: name.clone(),
                loss: shard.mean(),
                samples: shard.recent_samples,
                noise: shard.convicted,
            })
            .collect()
    }
}

fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds curves for `steps` steps, 4 samples a shard and step, and returns the shards that were convicted.
    fn convicted(steps: u64, curves: &[(&str, &dyn Fn(f64) -> f64)]) -> Vec<String> {
        let mut rule = ShardRule::default();
        let attempt = "job-1.1".parse().unwrap();
        let mut found = Vec::new();
        for step in 1..=steps {
            for (name, curve) in curves {
                // A fixed wobble of +-0.2 nat, as small batches have.
                let wobble = ((step * 7_919) % 41) as f64 / 100.0 - 0.2;
                let loss = curve(step as f64) + wobble;
                if let Some(Finding::Diagnosis(diagnosis)) =
                    rule.observe(attempt, name, step, loss, 4)
                {
                    found.push(diagnosis.subject);
                }
            }
        }
        found
    }

    fn learns(to: f64) -> impl Fn(f64) -> f64 {
        move |step| to + (5.5 - to) * (-step / 60.0).exp()
    }

    #[test]
    fn noise_is_convicted_once_and_alone() {
        let noise = |_: f64| 5.5;
        let found = convicted(
            400,
            &[
                ("a", &learns(2.2)),
                ("b", &learns(2.6)),
                ("c", &learns(3.0)),
                ("n", &noise),
            ],
        );
        assert_eq!(found, ["n"]);
    }

    #[test]
    fn a_hard_shard_that_learns_is_left_alone() {
        let hard = |step: f64| 4.2 + 1.3 * (-step / 200.0).exp();
        let found = convicted(
            400,
            &[("a", &learns(2.2)), ("b", &learns(2.6)), ("h", &hard)],
        );
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn when_nothing_learns_nobody_is_convicted() {
        let stuck = |_: f64| 5.5;
        let low = |_: f64| 2.0;
        assert!(convicted(400, &[("a", &low), ("b", &low), ("n", &stuck)]).is_empty());
    }

    #[test]
    fn nothing_is_convicted_before_the_warm_up_or_without_two_others() {
        let noise = |_: f64| 5.5;
        let fast = |step: f64| 2.0 + 3.5 * (-step / 5.0).exp();
        assert!(convicted(59, &[("a", &fast), ("b", &fast), ("n", &noise)]).is_empty());
        assert!(convicted(400, &[("a", &fast), ("n", &noise)]).is_empty());
    }
}
