//! How long a job will still run, with an interval and where that comes from. Untrusted: what a team named wrongly before
//! is stretched, and a job that ran over is ordered by what it has had instead.

use antiphon_types::{Estimate, GpuAmount, GpuTime, JobSpec, Millis, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::jobs::{Job, Progress};

/// What is assumed of a job of which nothing is known, for the order alone: nobody may build on it.
const UNKNOWN: Millis = Millis::from_secs(3_600);

/// What a run may still take after its last step, to save and to leave: nobody is blamed for that.
const LAST: Millis = Millis::from_secs(60);

/// The shortest run that is ever expected.
const SHORTEST: Millis = Millis::from_secs(1);

/// How far reports of a running job may be off, in thousandths: nine of ten end earlier.
const PROGRESS_HIGH: u64 = 1_250;

/// How long a job will still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Expectation {
    /// Half end earlier.
    pub expected: Millis,
    /// Nine of ten end earlier; nothing where nobody may build on it.
    pub high: Option<Millis>,
    /// Where this comes from.
    pub source: Source,
}

/// Where an expectation comes from, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Its own reports.
    Progress,
    /// Jobs like it of the same team.
    History,
    /// What the planner or its user estimated.
    Estimate,
    /// Its time limit.
    Limit,
    /// Nothing.
    #[default]
    Nothing,
}

/// What to expect of the next attempt of a job.
pub(crate) fn next_attempt(job: &Job, history: &History, doubt_permille: u32) -> Expectation {
    let saved = job.checkpoint.as_ref().map_or(0, |saved| saved.step);
    let reported = job.progress.filter(|_| !job.overran).and_then(|progress| {
        let left = progress.steps_total.checked_sub(saved)?;
        Some(by_progress(left, &progress))
    });
    let spec = &job.spec;
    let whole = || of_spec(spec, history);
    // What earlier attempts have kept need not be run again; a tenth is always left.
    let rest = |time: Millis| {
        time.saturating_sub(job.served)
            .max(Millis::from_millis(time.as_millis() / 10))
    };
    let (estimate, source) = match reported {
        Some(estimate) => (Some(estimate), Source::Progress),
        None => match whole() {
            (Some(estimate), source) => {
                let left = Estimate {
                    low: rest(estimate.low),
                    expected: rest(estimate.expected),
                    high: rest(estimate.high),
                };
                (Some(left), source)
            }
            none => none,
        },
    };
    let Some(estimate) = estimate else {
        return Expectation {
            expected: UNKNOWN,
            high: spec.time_limit,
            source,
        };
    };
    bounded(spec, estimate, source, doubt_permille)
}

/// What a running attempt's own report says about what is left of it.
pub(crate) fn by_report(spec: &JobSpec, progress: &Progress, doubt_permille: u32) -> Expectation {
    let left = progress.steps_total.saturating_sub(progress.step);
    let estimate = by_progress(left, progress);
    let expect = bounded(spec, estimate, Source::Progress, doubt_permille);
    Expectation {
        high: expect.high.map(|high| high.max(LAST)),
        ..expect
    }
}

/// How long a job says at most that an attempt of it runs: what a partition's maximum is held against. Its own word alone,
/// so that a job that was admitted never outgrows every partition by what others like it took.
pub(crate) fn longest_said(spec: &JobSpec) -> Option<Millis> {
    let estimated = || {
        let estimate = spec.estimate?;
        Some(estimate.high.max(estimate.expected))
    };
    spec.time_limit.or_else(estimated)
}

fn by_progress(steps: u64, progress: &Progress) -> Estimate {
    let expected =
        Millis::from_millis(steps.saturating_mul(progress.step_time.as_millis())).min(LONGEST);
    Estimate {
        low: expected,
        expected,
        high: stretched(expected, PROGRESS_HIGH),
    }
}

/// The longest that is ever expected, ten years: keeps sums of times from overflowing.
const LONGEST: Millis = Millis::from_secs(10 * 365 * 86_400);

fn of_spec(spec: &JobSpec, history: &History) -> (Option<Estimate>, Source) {
    if let Some(estimate) = history.like(&spec.team, &spec.name, spec.gpus()) {
        return (Some(estimate), Source::History);
    }
    if let Some(estimate) = spec.estimate {
        return (Some(estimate), Source::Estimate);
    }
    let Some(limit) = spec.time_limit else {
        return (None, Source::Nothing);
    };
    // Users ask for about twice what they need; the limit itself is certain.
    let half = Millis::from_millis(limit.as_millis() / 2);
    let estimate = Estimate {
        low: Millis::ZERO,
        expected: half,
        high: limit,
    };
    (Some(estimate), Source::Limit)
}

fn bounded(spec: &JobSpec, estimate: Estimate, source: Source, doubt_permille: u32) -> Expectation {
    let doubt = match source {
        // What was measured on others, and what will be enforced, needs no doubt.
        Source::History | Source::Limit => 1_000,
        Source::Progress | Source::Estimate | Source::Nothing => u64::from(doubt_permille),
    };
    let cap = spec.time_limit.unwrap_or(LONGEST);
    let expected = stretched(estimate.expected, doubt).min(cap);
    Expectation {
        expected,
        high: Some(
            stretched(estimate.high, doubt)
                .min(cap)
                .max(expected)
                .max(SHORTEST),
        ),
        source,
    }
}

fn stretched(time: Millis, permille: u64) -> Millis {
    let stretched = u128::from(time.as_millis()) * u128::from(permille) / 1_000;
    u64::try_from(stretched)
        .map_or(LONGEST, Millis::from_millis)
        .min(LONGEST)
}

/// What a job costs in the order: expected remaining GPU-time, weighed by findings; what it has had, once it ran over.
pub(crate) fn cost(job: &Job) -> GpuTime {
    let gpus = job.spec.gpus().max(GpuAmount::from_thousandths(1));
    if job.overran {
        return job.attained;
    }
    let plain =
        u128::from(gpus.thousandths()) * u128::from(job.expect.expected.as_millis()) / 1_000;
    let weighed = plain * u128::from(job.weight_permille.clamp(500, 2_000)) / 1_000;
    GpuTime::from_gpu_millis(u64::try_from(weighed).unwrap_or(u64::MAX))
}

/// When an attempt that starts now should have ended, and when nine of ten have.
pub(crate) fn ends(expect: &Expectation, now: Timestamp) -> (Option<Timestamp>, Option<Timestamp>) {
    let at = match expect.source {
        Source::Nothing => None,
        Source::Progress | Source::History | Source::Estimate | Source::Limit => {
            Some(now.after(expect.expected))
        }
    };
    (at, expect.high.map(|high| now.after(high)))
}
