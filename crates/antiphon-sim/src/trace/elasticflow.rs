//! The traces of ElasticFlow (Gu et al., ASPLOS 2023): jobs of ten Microsoft clusters.
//!
//! Source: github.com/microsoft/elasticflow-traces and github.com/pkusys/ElasticFlow. Comma-separated, with a header. The
//! measured columns come alone (`raw/`), or with model, iterations and deadline, which were generated:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `job_id` | | name |
//! | `submission_time` or `submit_time` | s | submission |
//! | `duration` | s on `num_gpu` GPUs | [`Work::Time`] where nothing was generated, else the estimate |
//! | `num_gpu` | GPUs, at least 1 | size of the gang |
//! | `num_iteration` or `iteration` | steps at the global batch size | [`Work::Steps`] |
//! | `model_name`, `batch_size` | a table's file and row | the kind of the steps, `model/batch size` |
//! | `deadline` or `ddl` | s on the clock of the submission | deadline |
//! | `best_effort` | 0 or 1 | class; no deadline then |
//! | `real_iteration`, `real_duration` | | not used |

use antiphon_types::Class;

use super::table::{Between, Column, Row, Rows, Table, Unit, job, wrong};
use super::{Source, TraceError};
use crate::workload::{Phase, TraceJob, Work};

/// What was generated.
struct Generated {
    model: Column,
    batch: Column,
    steps: Column,
    deadline: Option<Column>,
    best_effort: Option<Column>,
}

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "elastic-flow", Between::Comma);
    let id = table.need("job_id")?;
    let submit = table.need_any(&["submission_time", "submit_time"])?;
    let duration = table.need("duration")?;
    let gpus = table.need("num_gpu")?;
    let generated = match table.find("model_name") {
        None => None,
        Some(model) => Some(Generated {
            model,
            batch: table.need("batch_size")?,
            steps: table.need_any(&["num_iteration", "iteration"])?,
            deadline: table.find("deadline").or_else(|| table.find("ddl")),
            best_effort: table.find("best_effort"),
        }),
    };
    table.each(|row| {
        let read = || {
            let time = row.time(duration, Unit::Second)?;
            let submitted = row.time(submit, Unit::Second)?;
            let size = row.gpus(gpus)?;
            let mut job = job(row.line, row.name(id)?, submitted, size, Work::Time(time));
            if let Some(generated) = &generated {
                job.estimate = Some(time);
                add(generated, row, &mut job)?;
            }
            Ok(job)
        };
        rows.take(row.line, read())
    })
}

fn add(generated: &Generated, row: &Row<'_>, job: &mut TraceJob) -> Result<(), String> {
    let batch = row.count(generated.batch)?;
    let steps = row.real(generated.steps)?;
    if steps < 0.0 {
        return Err(wrong(
            "iteration",
            row.text(generated.steps)?,
            "steps, at least 0",
        ));
    }
    let kind = format!("{}/{batch}", row.name(generated.model)?);
    job.work = Work::Steps(vec![Phase { kind, steps }]);
    if row.get(generated.best_effort) == "1" {
        job.class = Class::BestEffort;
    } else if let Some(deadline) = generated.deadline {
        let deadline = row.time(deadline, Unit::Second)?;
        if deadline < job.submitted {
            return Err(format!(
                "`deadline` is {} s before the submission: expected it after",
                (job.submitted - deadline).as_millis() / 1_000
            ));
        }
        job.deadline = Some(deadline);
    }
    Ok(())
}
