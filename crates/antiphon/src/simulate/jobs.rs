//! What became of each job, as a CSV: one file a policy.

use std::path::Path;

use antiphon_sim::workload::Workload;
use antiphon_sim::world::Finished;
use antiphon_types::Millis;

use crate::cli::Exit;
use crate::failure::Failure;

/// One line a job; with several policies one file for each.
pub(super) fn write(
    path: &Path,
    policy: &str,
    policies: usize,
    workload: &Workload,
    finished: &Finished,
) -> Result<(), Failure> {
    let path = if policies == 1 {
        path.to_owned()
    } else {
        let stem = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let name = policy.replace('/', "-");
        path.with_file_name(format!("{}-{name}.csv", stem.unwrap_or_default()))
    };
    let seconds = |ms: Option<Millis>| {
        ms.map_or_else(String::new, |ms| {
            let ms = ms.as_millis();
            format!("{}.{:03}", ms / 1_000, ms % 1_000)
        })
    };
    let mut text = String::from(
        "job,team,gpus,submitted_s,started_s,ended_s,gpu_hours,idle_gpu_hours,lost_gpu_hours,preemptions\n",
    );
    for (job, record) in workload.jobs.iter().zip(&finished.records) {
        let Some(record) = record else {
            continue;
        };
        let quoted = |name: &str| {
            if name.contains([',', '"', '\n']) {
                format!("\"{}\"", name.replace('"', "\"\""))
            } else {
                name.to_owned()
            }
        };
        text += &format!(
            "{},{},{},{},{},{},{:.4},{:.4},{:.4},{}\n",
            quoted(&job.name),
            quoted(&job.team),
            job.gpus,
            seconds(Some(record.submitted)),
            seconds(record.started),
            seconds(record.ended),
            record.held_gpu_ms / 3.6e6,
            record.idle_gpu_ms / 3.6e6,
            record.lost_gpu_ms / 3.6e6,
            record.preemptions,
        );
    }
    std::fs::write(&path, text).map_err(|error| unwritten(&path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("`{}` cannot be written", path.display());
    Failure::new(Exit::Failed, "", what).why(error.to_string())
}
