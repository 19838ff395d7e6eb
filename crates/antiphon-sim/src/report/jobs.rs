//! What became of each job, as a CSV.

use std::fmt::Write as _;

use antiphon_types::Millis;

use antiphon_chart::cell;

use crate::workload::Workload;
use crate::world::Finished;

/// One line a job; those that were refused have none.
#[must_use]
pub fn jobs_csv(workload: &Workload, finished: &Finished) -> String {
    let mut out = String::from(
        "job,team,gpus,submitted_s,started_s,ended_s,gpu_hours,idle_gpu_hours,lost_gpu_hours,preemptions\n",
    );
    for (job, record) in workload.jobs.iter().zip(&finished.records) {
        let Some(record) = record else {
            continue;
        };
        let _ = writeln!(
            out,
            "{},{},{},{},{},{},{:.4},{:.4},{:.4},{}",
            cell(&job.name),
            cell(&job.team),
            job.gpus,
            seconds(Some(record.submitted)),
            seconds(record.started),
            seconds(record.ended),
            record.held_gpu_ms / 3.6e6,
            record.lost.idle() / 3.6e6,
            (record.lost.total() - record.lost.idle()) / 3.6e6,
            record.preemptions,
        );
    }
    out
}

fn seconds(ms: Option<Millis>) -> String {
    ms.map_or_else(String::new, |ms| {
        let ms = ms.as_millis();
        format!("{}.{:03}", ms / 1_000, ms % 1_000)
    })
}
