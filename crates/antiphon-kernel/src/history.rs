//! How long jobs of a kind have run: integer histograms by team, name stem and size. What follows for one job is `expect`.

use std::collections::BTreeMap;

use antiphon_types::{Estimate, GpuAmount, Millis};
use serde::{Deserialize, Serialize};

/// Kinds that are kept: bounds memory whatever names jobs have.
const KINDS_MAX: usize = 10_000;

/// Runs of a kind that say something.
const RUNS_MIN: u32 = 3;

/// Runs after which all counts are halved, so that what was long ago weighs less.
const RUNS_MAX: u32 = 64;

/// Run times by half octave: bucket 2n holds [2^n, 1.5 x 2^n) s, bucket 2n+1 the rest of the octave.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    runs: u32,
    /// The end of the last bucket that a run fell into, for forgetting the kind that has been quiet longest.
    last: u64,
}

impl Histogram {
    fn add(&mut self, time: Millis) {
        let bucket = bucket(time);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.runs += 1;
        if self.runs > RUNS_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.runs = self.counts.iter().sum();
        }
    }

    /// The end of the bucket in which so many of 1,000 runs have ended.
    fn quantile(&self, permille: u32) -> Millis {
        let wanted = (self.runs * permille).div_ceil(1_000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        end_of(found.unwrap_or(0))
    }

    fn estimate(&self) -> Option<Estimate> {
        (self.runs >= RUNS_MIN).then(|| Estimate {
            low: self.quantile(100),
            expected: self.quantile(500),
            high: self.quantile(900),
        })
    }
}

fn bucket(time: Millis) -> usize {
    let seconds = (time.as_millis() / 1_000).max(1);
    let octave = seconds.ilog2();
    let upper = seconds >= (1 << octave) + (1 << octave) / 2;
    usize::try_from(octave * 2 + u32::from(upper && octave > 0)).expect("few buckets")
}

fn end_of(bucket: usize) -> Millis {
    let octave = u32::try_from(bucket / 2).expect("few buckets");
    let seconds = match bucket % 2 {
        0 if octave > 0 => (1u64 << octave) + (1 << octave) / 2,
        _ => 1 << (octave + 1),
    };
    Millis::from_secs(seconds)
}

/// Run times of all kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct History {
    kinds: BTreeMap<(String, String, GpuAmount), Histogram>,
    runs: u64,
}

impl History {
    /// Notes that a job of this name and size ran so long until it succeeded.
    pub(crate) fn add(&mut self, team: &str, name: &str, gpus: GpuAmount, time: Millis) {
        self.runs += 1;
        let kind = (team.to_owned(), stem(name).to_owned(), gpus);
        let histogram = self.kinds.entry(kind).or_default();
        histogram.add(time);
        histogram.last = self.runs;
        if self.kinds.len() > KINDS_MAX {
            self.forget_the_quiet();
        }
    }

    /// Forgets the tenth that has been quiet longest: all at once, so that it is rarely done.
    fn forget_the_quiet(&mut self) {
        let mut ages: Vec<u64> = self.kinds.values().map(|kind| kind.last).collect();
        let (_, youngest, _) = ages.select_nth_unstable(KINDS_MAX / 10);
        let youngest = *youngest;
        self.kinds.retain(|_, kind| kind.last > youngest);
    }

    /// How long jobs like this one ran, if enough did. Only the team's own count: a copied name says nothing.
    pub(crate) fn like(&self, team: &str, name: &str, gpus: GpuAmount) -> Option<Estimate> {
        let kind = (team.to_owned(), stem(name).to_owned(), gpus);
        self.kinds.get(&kind)?.estimate()
    }
}

/// What names of like jobs share: `sft-8b` of `sft-8b-0017`, `eval` of `eval[3]`.
fn stem(name: &str) -> &str {
    let name = name.split('[').next().unwrap_or(name);
    let cut = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '.'));
    if cut.is_empty() { name } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPUS: GpuAmount = GpuAmount::from_gpus(8);

    #[test]
    fn like_jobs_are_told_by_team_stem_and_size() {
        let mut history = History::default();
        for (run, minutes) in (0..).zip([50u64, 60, 70]) {
            let name = format!("sft-8b-{run}");
            history.add("rlhf", &name, GPUS, Millis::from_secs(minutes * 60));
        }
        let found = history.like("rlhf", "sft-8b-99", GPUS).unwrap();
        assert!(found.low <= found.expected && found.expected <= found.high);
        assert!(found.high >= Millis::from_secs(70 * 60));
        assert!(found.low >= Millis::from_secs(50 * 60));
        assert_eq!(history.like("eval", "sft-8b-99", GPUS), None);
        assert_eq!(history.like("rlhf", "dpo-1", GPUS), None);
        let other_size = GpuAmount::from_gpus(16);
        assert_eq!(history.like("rlhf", "sft-8b-99", other_size), None);
    }

    #[test]
    fn two_runs_say_nothing_yet() {
        let mut history = History::default();
        history.add("a", "b", GPUS, Millis::from_secs(60));
        history.add("a", "b", GPUS, Millis::from_secs(60));
        assert_eq!(history.like("a", "b", GPUS), None);
    }

    #[test]
    fn buckets_hold_what_lies_before_their_end() {
        for seconds in [0, 1, 2, 3, 5, 6, 7, 8, 100, 3_600, 1_000_000] {
            let time = Millis::from_secs(seconds);
            let bucket = bucket(time);
            assert!(time < end_of(bucket), "{seconds} s in bucket {bucket}");
            assert!(bucket < 2 || end_of(bucket - 1) <= time, "{seconds} s");
        }
    }

    #[test]
    fn memory_is_bounded_whatever_names_jobs_have() {
        let mut history = History::default();
        for run in 0..KINDS_MAX + 50 {
            let name = format!("{run}x");
            history.add("a", &name, GPUS, Millis::from_secs(60));
        }
        assert!(history.kinds.len() <= KINDS_MAX);
        let newest = format!("{}x", KINDS_MAX + 49);
        let kept = ("a".to_owned(), newest, GPUS);
        assert!(history.kinds.contains_key(&kept), "the newest is kept");
    }
}
