//! How long a job will still run, with an interval and where that comes from. Untrusted: what a team named wrongly before
//! is stretched, and a job that ran over is ordered by what it has had instead.

use antiphon_types::{Estimate, GpuAmount, GpuTime, JobSpec, Millis, Policy, Timestamp};
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::jobs::{Job, Progress};

/// What is assumed of a job of which nothing is known, for the order alone: nobody may build on it.
const UNKNOWN: Millis = Millis::from_secs(3_600);

/// What such a job costs at least: long enough to get somewhere.
const TRIAL: Millis = Millis::from_secs(600);

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
        let rest = by_progress(left, &progress);
        Some(faster(rest, progress.speed))
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

/// How fast a job is in the shapes that its roles have, in thousandths of its fastest: a gang waits for its slowest role.
pub(crate) fn speed_of(spec: &JobSpec, shapes: &[u32]) -> u32 {
    let chosen = |(index, role): (usize, &antiphon_types::Role)| {
        let shape = shapes.get(index).copied().unwrap_or(0);
        let shape = usize::try_from(shape).expect("few shapes");
        role.shapes().nth(shape).map(|shape| shape.speed)
    };
    let speeds = spec.roles.iter().enumerate().filter_map(chosen);
    speeds.min().unwrap_or(1_000).clamp(1, 1_000)
}

/// How fast it is at its slowest.
pub(crate) fn slowest(spec: &JobSpec) -> u32 {
    let shapes = spec.roles.iter().flat_map(antiphon_types::Role::shapes);
    shapes
        .map(|shape| shape.speed)
        .min()
        .unwrap_or(1_000)
        .clamp(1, 1_000)
}

/// A time at full speed, at this one.
pub(crate) fn slower(time: Millis, speed: u32) -> Millis {
    if speed >= 1_000 {
        return time;
    }
    let stretched = u128::from(time.as_millis()) * 1_000 / u128::from(speed);
    u64::try_from(stretched)
        .map_or(LONGEST, Millis::from_millis)
        .min(LONGEST)
}

/// A time at this speed, at full speed.
fn faster(estimate: Estimate, speed: u32) -> Estimate {
    let full = |time| stretched(time, u64::from(speed));
    Estimate {
        low: full(estimate.low),
        expected: full(estimate.expected),
        high: full(estimate.high),
    }
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

/// Like jobs that differ by more than this factor are not alike.
const TELLING: u64 = 16;

/// By what factor an interval is wide.
fn spread(estimate: &Estimate) -> u64 {
    let low = estimate.low.max(SHORTEST).as_millis();
    estimate.high.as_millis().div_ceil(low)
}

fn of_spec(spec: &JobSpec, history: &History) -> (Option<Estimate>, Source) {
    let like = history.like(&spec.team, &spec.name, spec.gpus());
    // Where like jobs took anything from minutes to days, that they are alike says nothing.
    let like = like.filter(|like| spread(like) <= TELLING);
    if let Some(estimate) = like {
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

/// What a job costs in the order: expected remaining GPU-time, weighed by findings; what it has had, where nothing is known
/// or it ran over: of run times that differ by orders of magnitude, the rest is as long as what went before.
pub(crate) fn cost(job: &Job) -> GpuTime {
    let gpus = job.spec.gpus().max(GpuAmount::from_thousandths(1));
    if job.overran || job.expect.source == Source::Nothing {
        return attained_level(job.attained, gpus);
    }
    weighed(job, gpus.over(job.expect.expected), gpus)
}

/// What a job counts of which nothing is known but what it has had, in powers of two: inside of one the first to come goes
/// first, so that long runs end one after the other instead of all at last.
pub(crate) fn attained_level(attained: GpuTime, gpus: GpuAmount) -> GpuTime {
    let least = gpus.over(TRIAL).gpu_millis().max(1);
    let attained = attained.gpu_millis().max(least);
    GpuTime::from_gpu_millis(1 << (attained.ilog2()))
}

/// How many times as long as it runs a job waits for its turn at most, before nodes are held back for it: in a full cluster
/// the longest wait longest.
const PATIENCE: u64 = 16;

/// How long a job waits for its turn at most: its class's bound, or more where it is long itself.
pub(crate) fn patience(policy: &Policy, job: &Job) -> Millis {
    let run = if job.overran || job.expect.source == Source::Nothing {
        let gpus = job.spec.gpus().thousandths().max(1);
        let ran = job.attained.gpu_millis() / gpus * 1_000;
        Millis::from_millis(ran.saturating_mul(8)).max(UNKNOWN)
    } else {
        job.expect.expected
    };
    let long = Millis::from_millis(run.as_millis().saturating_mul(PATIENCE));
    policy.promote_after_ms.of(job.spec.class).max(long)
}

/// GPU-time as it counts in the order: by findings, and less for wide gangs, which cannot have what others leave over.
pub(crate) fn weighed(job: &Job, time: GpuTime, gpus: GpuAmount) -> GpuTime {
    let octaves =
        usize::try_from((gpus.thousandths() / 1_000).max(1).ilog2()).expect("few octaves");
    let wide = WIDE.get(octaves).copied().unwrap_or(WIDE[WIDE.len() - 1]);
    let findings = u128::from(job.weight_permille.clamp(500, 2_000));
    let weighed = u128::from(time.gpu_millis()) * findings * u128::from(wide) / 1_000_000;
    GpuTime::from_gpu_millis(u64::try_from(weighed).unwrap_or(u64::MAX))
}

/// By octave of GPUs: what their time counts, in thousandths: GPUs to the power of -0.2.
const WIDE: [u32; 16] = [
    1_000, 871, 758, 660, 574, 500, 435, 379, 330, 287, 250, 218, 189, 165, 144, 125,
];

/// When an attempt that starts now in these shapes should have ended, and when nine of ten have.
pub(crate) fn ends_in(
    job: &Job,
    shapes: &[u32],
    now: Timestamp,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let speed = speed_of(&job.spec, shapes);
    let cap = job.spec.time_limit.unwrap_or(LONGEST);
    let expect = Expectation {
        expected: slower(job.expect.expected, speed).min(cap),
        high: job.expect.high.map(|high| slower(high, speed).min(cap)),
        source: job.expect.source,
    };
    ends(&expect, now)
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
