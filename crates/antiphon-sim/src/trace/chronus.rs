//! The Philly jobs to which Chronus (Gao et al., SoCC 2021) added models and deadlines.
//!
//! Source: github.com/S-Lab-System-Group/ChronusArtifact. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `job_id` | | name |
//! | `user` | virtual cluster | team |
//! | `num_gpu` | GPUs; 0 is legal | size of the gang |
//! | `submit_time` | min | submission |
//! | `duration` | min | [`Work::Time`] |
//! | `expect_time_list` | min after submission, first of several between `-` | deadline, unless the job is best effort |
//! | `best_effort` | 0 or 1 | class |
//! | `iterations`, `model_name`, `interval`, `expect_value_list`, `job_type` | | not used |
//!
//! A job of 0 GPUs occurs some 200 times a file. It is kept as a job that needs no GPU, which is what the row says.
//! Measured on the three files: `expect_time_list` is larger than `duration` in almost every row and smaller than
//! `submit_time` in most, so it counts from the submission.

use antiphon_types::Class;

use super::table::{Between, Rows, Table, Unit, job, rounded, wrong};
use super::{Source, TraceError};
use crate::workload::Work;
use antiphon_types::Millis;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "chronus", Between::Comma);
    let id = table.need("job_id")?;
    let gpus = table.need("num_gpu")?;
    let submit = table.need("submit_time")?;
    let duration = table.need("duration")?;
    let expected = table.need("expect_time_list")?;
    let user = table.find("user");
    let best_effort = table.find("best_effort");
    table.each(|row| {
        let read = || {
            let work = Work::Time(row.time(duration, Unit::Minute)?);
            let submitted = row.time(submit, Unit::Minute)?;
            let size = row.gpus_or_none(gpus)?;
            let mut job = job(row.line, row.name(id)?, submitted, size, work);
            row.get(user).clone_into(&mut job.team);
            if row.get(best_effort) == "1" {
                job.class = Class::BestEffort;
                return Ok(job);
            }
            let list = row.text(expected)?;
            let first = list.split('-').next().unwrap_or_default();
            let minutes = first.parse::<f64>().ok();
            let minutes = minutes.filter(|minutes| (0.0..1e9).contains(minutes));
            let minutes = minutes.ok_or_else(|| {
                wrong("expect_time_list", list, "minutes like `159` or `159-189`")
            })?;
            job.deadline = Some(submitted + Millis::from_millis(rounded(minutes * 6e4)));
            Ok(job)
        };
        rows.take(row.line, read())
    })
}
