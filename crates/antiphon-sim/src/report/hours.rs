//! Where the GPU-hours of a cluster went, up to the end of a run: into work, into each cause of loss, or nowhere.

use crate::course::millis;
use crate::workload::Workload;
use crate::world::{Cause, Finished, Record};

/// Idle GPUs, as far as waiting jobs asked for so many.
const WANTED: &str = "idle while jobs waited";

/// GPU-hours by where they went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hours {
    /// Held, and not lost.
    pub(super) useful: f64,
    /// Lost, by cause: the same causes in every run.
    pub(super) lost: Vec<(&'static str, f64)>,
    /// Idle, and nobody waited for them.
    pub(super) unwanted: f64,
}

impl Hours {
    /// Of a run on so many GPUs that lasted so long.
    pub(super) fn of(workload: &Workload, finished: &Finished, gpus: f64, length_ms: f64) -> Self {
        let records = || finished.records.iter().flatten();
        let held: f64 = records().map(|record| record.held_gpu_ms).sum();
        let by = |cause: Cause| records().map(|record| record.lost.by(cause)).sum::<f64>();
        let lost = Cause::ALL.map(|cause| (cause.name(), by(cause)));
        let wanted = wanted_gpu_ms(workload, finished, gpus);
        let idle = (gpus * length_ms - held - wanted).max(0.0);
        let hours = |gpu_ms: f64| gpu_ms / 3.6e6;
        let useful = held - lost.iter().map(|(_, gpu_ms)| gpu_ms).sum::<f64>();
        let causes = lost.into_iter().chain([(WANTED, wanted)]);
        Self {
            useful: hours(useful),
            lost: causes
                .map(|(cause, gpu_ms)| (cause, hours(gpu_ms)))
                .collect(),
            unwanted: hours(idle),
        }
    }
}

/// The times in which a job waited, in milliseconds: from its submission or from the end of an attempt to the next start,
/// and to the end of the run where there was none.
pub(super) fn waits(
    record: &Record,
    spans: &[crate::world::Span],
    length_ms: f64,
) -> Vec<(f64, f64)> {
    let mut waits = Vec::with_capacity(spans.len() + 1);
    let mut since = Some(millis(record.submitted));
    for span in spans {
        if let Some(since) = since {
            waits.push((since, millis(span.from)));
        }
        since = span.until.map(millis);
    }
    if let (Some(since), None) = (since, record.ended) {
        waits.push((since, length_ms));
    }
    waits
}

/// GPU-milliseconds that lay idle while jobs waited for at least as many. Gangs that no free GPUs could hold count as well:
/// that is fragmentation, or GPUs kept for them.
fn wanted_gpu_ms(workload: &Workload, finished: &Finished, gpus: f64) -> f64 {
    // At each time, by how much what is free and what is asked for change.
    let mut changes: Vec<(f64, f64, f64)> = Vec::new();
    let jobs = workload.jobs.iter().zip(&finished.records);
    let mut end = 0.0;
    for ((job, record), spans) in jobs.zip(&finished.spans) {
        let Some(record) = record else {
            continue;
        };
        let asked = u32::try_from(job.gpus.thousandths()).map_or(0.0, f64::from) / 1_000.0;
        for span in spans {
            let held = amount(&span.held);
            changes.push((millis(span.from), -held, 0.0));
            end = f64::max(end, millis(span.until.unwrap_or(span.from)));
            if let Some(until) = span.until {
                changes.push((millis(until), held, 0.0));
            }
        }
        for (from, until) in waits(record, spans, f64::INFINITY) {
            changes.push((from, 0.0, asked));
            if until.is_finite() {
                changes.push((until, 0.0, -asked));
            }
        }
    }
    changes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut free, mut asked, mut before, mut sum) = (gpus, 0.0, 0.0, 0.0);
    for (at, freed, more) in changes {
        let at = f64::min(at, end);
        sum += f64::min(free, asked).max(0.0) * (at - before);
        (free, asked, before) = (free + freed, asked + more, at);
    }
    sum
}

/// GPUs held, over all nodes.
pub(super) fn amount(held: &[crate::world::Held]) -> f64 {
    let of = |held: &crate::world::Held| {
        let count = u32::try_from(held.gpus.len()).map_or(0.0, f64::from);
        let share = u32::try_from(held.share_permille).map_or(1.0, f64::from) / 1_000.0;
        count * share
    };
    held.iter().map(of).sum()
}
