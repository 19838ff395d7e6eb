//! What a report keeps of a run: as much as is drawn of it and no more, so that many runs can stand side by side.

use antiphon_types::NodeSpec;

use super::gantt::Gantt;
use super::hours::{Hours, amount, waits};
use super::series::Series;
use crate::course::millis;
use crate::outcome::{Outcome, finish_time_ratios};
use crate::workload::Workload;
use crate::world::Finished;

/// Points of a distribution that are drawn.
const POINTS: usize = 200;

/// A run as it is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Sketch {
    pub(super) outcome: Outcome,
    /// Completion times in seconds, with the percentage of jobs that took at most so long.
    pub(super) jct: Vec<(f64, f64)>,
    /// Finish-time ratios, likewise.
    pub(super) ratios: Vec<(f64, f64)>,
    /// What was drawn from spans, where they were kept.
    pub(super) course: Option<OverTime>,
}

/// What changed over time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OverTime {
    /// Jobs that waited.
    pub(super) waiting: Vec<(f64, f64)>,
    /// GPUs held, in percent of all.
    pub(super) held: Vec<(f64, f64)>,
    pub(super) hours: Hours,
    pub(super) gantt: Gantt,
}

impl Sketch {
    /// Of a run on these nodes.
    #[must_use]
    pub fn of(
        outcome: &Outcome,
        finished: &Finished,
        workload: &Workload,
        nodes: &[NodeSpec],
    ) -> Self {
        let gpus: f64 = nodes.iter().map(|node| f64::from(node.gpus)).sum();
        let records = || finished.records.iter().flatten();
        let jct = records().filter_map(|record| {
            Some((millis(record.ended?) - millis(record.submitted)) / 1_000.0)
        });
        let mut jct: Vec<f64> = jct.collect();
        jct.sort_by(f64::total_cmp);
        let course = (!finished.spans.is_empty() && gpus > 0.0)
            .then(|| OverTime::of(finished, workload, nodes, gpus));
        Self {
            outcome: outcome.clone(),
            jct: distribution(&jct),
            ratios: distribution(&finish_time_ratios(records(), gpus)),
            course,
        }
    }

    /// Of a run of which nothing but its figures is known.
    #[must_use]
    pub fn of_figures(outcome: &Outcome) -> Self {
        Self {
            outcome: outcome.clone(),
            jct: Vec::new(),
            ratios: Vec::new(),
            course: None,
        }
    }
}

impl OverTime {
    fn of(finished: &Finished, workload: &Workload, nodes: &[NodeSpec], gpus: f64) -> Self {
        let length_ms = length_ms(finished);
        let mut waiting = Series::new(length_ms);
        let mut held = Series::new(length_ms);
        for (record, spans) in finished.records.iter().zip(&finished.spans) {
            let Some(record) = record else {
                continue;
            };
            for (from, until) in waits(record, spans, length_ms) {
                waiting.add(from, until, 1.0);
            }
            for span in spans {
                let until = span.until.map_or(length_ms, millis);
                held.add(millis(span.from), until, amount(&span.held));
            }
        }
        Self {
            waiting: waiting.points(1.0),
            held: coarser(&held.points(gpus / 100.0)),
            hours: Hours::of(workload, finished, gpus, length_ms),
            gantt: Gantt::of(workload, finished, nodes, length_ms),
        }
    }
}

/// The mean of every three stretches: what is held moves so much that finer curves hide each other.
fn coarser(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let Some((end, stretches)) = points.split_last() else {
        return Vec::new();
    };
    let mean = |three: &[(f64, f64)]| {
        let sum: f64 = three.iter().map(|point| point.1).sum();
        (
            three[0].0,
            sum / u32::try_from(three.len()).map_or(1.0, f64::from),
        )
    };
    let mut coarse: Vec<(f64, f64)> = stretches.chunks(3).map(mean).collect();
    coarse.extend(coarse.last().map(|last| (end.0, last.1)));
    coarse
}

/// From the beginning to the last thing that is known to have happened.
fn length_ms(finished: &Finished) -> f64 {
    let ends = finished.records.iter().flatten();
    let ends = ends.flat_map(|record| [record.ended, record.started, Some(record.submitted)]);
    let spans = finished.spans.iter().flatten();
    let spans = spans.flat_map(|span| [span.until, Some(span.from)]);
    let last = ends.chain(spans).flatten().max();
    last.map_or(0.0, millis).max(1.0)
}

/// The values at evenly spaced parts of all, each with its percentage.
fn distribution(sorted: &[f64]) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let points = POINTS.min(count);
    let number = |count: usize| u32::try_from(count).map_or(0.0, f64::from);
    let point = |index: usize| {
        // Ranks 1, .., count: the first and the last are always among them.
        let rank = if points == 1 {
            count
        } else {
            1 + index * (count - 1) / (points - 1)
        };
        (sorted[rank - 1], 100.0 * number(rank) / number(count))
    };
    (0..points).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::distribution;

    #[test]
    fn a_distribution_has_its_ends() {
        let values: Vec<f64> = (1..=1_000).map(f64::from).collect();
        let points = distribution(&values);
        assert_eq!(points.first(), Some(&(1.0, 0.1)));
        assert_eq!(points.last(), Some(&(1_000.0, 100.0)));
        assert_eq!(distribution(&[7.0]), [(7.0, 100.0)]);
        assert!(distribution(&[]).is_empty());
    }
}
