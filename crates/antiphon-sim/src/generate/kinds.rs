//! What kinds of jobs the two clusters of the Acme trace had: how many, how large, how long, and how they ended.

use super::Cluster;
use crate::trace::rounded;

/// The distributions, and whose they are.
const ACME: &str = include_str!("acme.txt");

/// The largest gang in the trace: one of a hundred Kalos jobs.
const GANG_MAX: u32 = 1_024;

/// A kind of job.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Share of all jobs.
    pub(super) share: f64,
    /// GPUs: least, three quartiles, and where the last quarter points to; none has more than [`GANG_MAX`].
    pub(super) gpus: [u32; 5],
    /// Run times in seconds and the share of jobs that take no longer.
    pub(super) run_s: Vec<(f64, f64)>,
    /// Of its jobs, how many are cancelled and how many fail.
    pub(super) canceled: f64,
    pub(super) failed: f64,
}

/// The kinds of a cluster: shares and quartiles as published. Of all jobs 6.2 % (Kalos) and 7.5 % (Seren) are cancelled and
/// 39.7 % and 42.9 % fail; of the GPU-time 61 % and 66 % go into cancelled and 8 % and 12 % into failed jobs. GPU-time is
/// pretraining's, so its jobs end as the GPU-time does, and the others so that the counts of all come out.
pub(super) fn kinds(cluster: Cluster) -> Vec<Kind> {
    type Row = (&'static str, f64, [u32; 5]);
    let (name, rows, canceled, failed): (_, &[Row], _, _) = match cluster {
        Cluster::Kalos => (
            "kalos",
            &[
                ("evaluation", 0.928, [1, 1, 1, 1, 8]),
                ("pretrain", 0.032, [64, 256, 512, 512, 4_096]),
                ("debug", 0.027, [8, 32, 128, 512, 4_096]),
                ("other", 0.013, [1, 2, 8, 32, 256]),
            ],
            [0.607, 0.044],
            [0.080, 0.408],
        ),
        Cluster::Seren => (
            "seren",
            &[
                ("evaluation", 0.649, [1, 1, 1, 4, 32]),
                ("sft", 0.149, [1, 2, 8, 8, 64]),
                ("other", 0.146, [1, 1, 1, 8, 128]),
                ("mllm", 0.029, [1, 1, 2, 8, 128]),
                ("debug", 0.019, [1, 8, 8, 8, 256]),
                ("pretrain", 0.009, [8, 64, 128, 256, 1_024]),
            ],
            [0.664, 0.070],
            [0.124, 0.432],
        ),
    };
    rows.iter()
        .map(|(kind, share, gpus)| {
            let other = usize::from(*kind != "pretrain");
            Kind {
                name: kind,
                share: *share,
                gpus: *gpus,
                run_s: run_times(name, kind),
                canceled: canceled[other],
                failed: failed[other],
            }
        })
        .collect()
}

/// The points of a distribution.
fn run_times(cluster: &str, kind: &str) -> Vec<(f64, f64)> {
    let mut lines = ACME.lines().map(str::split_whitespace);
    let found = lines.find_map(|mut words| {
        (words.next() == Some(cluster) && words.next() == Some(kind)).then_some(words)
    });
    let points = found.into_iter().flatten();
    let points = points.filter_map(|point| {
        let (value, share) = point.split_once(':')?;
        Some((value.parse().ok()?, share.parse().ok()?))
    });
    points.collect()
}

/// GPUs of a gang: a power of two, between the quartiles by logarithm. Each quarter thins out towards its upper end, the
/// last one more: as published, most jobs have the sizes of the quartiles themselves, and few have more than the third.
pub(super) fn gang(gpus: [u32; 5], lot: f64) -> u32 {
    let [least, first, second, third, last] = gpus.map(|gpus| f64::from(gpus).log2());
    let quarter = lot * 4.0;
    let (low, high, part) = if quarter < 1.0 {
        (least, first, quarter.powi(2))
    } else if quarter < 2.0 {
        (first, second, (quarter - 1.0).powi(2))
    } else if quarter < 3.0 {
        (second, third, (quarter - 2.0).powi(2))
    } else {
        (third, last, (quarter - 3.0).powi(4))
    };
    let exponent = low + (high - low) * part;
    (1_u32 << rounded(exponent).min(20)).min(GANG_MAX)
}

/// The value below which this share of a distribution lies, by logarithm between its points.
pub(super) fn between(points: &[(f64, f64)], share: f64) -> f64 {
    let next = points.partition_point(|(_, upto)| *upto < share);
    let Some(high) = points.get(next).or(points.last()) else {
        return 60.0;
    };
    let Some(low) = next.checked_sub(1).and_then(|before| points.get(before)) else {
        return high.0;
    };
    if high.1 <= low.1 {
        return high.0;
    }
    let part = ((share - low.1) / (high.1 - low.1)).clamp(0.0, 1.0);
    low.0 * (high.0 / low.0).powf(part)
}
