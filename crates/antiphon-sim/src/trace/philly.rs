//! The extract of Microsoft's Philly trace (Jeon et al., ATC 2019) that Pollux drew its workloads from.
//!
//! Source: github.com/petuum/adaptdl, branch osdi21-artifact; the original is github.com/msr-fiddle/philly-traces,
//! CC-BY-4.0. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `timestamp` | date and time, local to the cluster | submission |
//! | `duration` | s | [`Work::Time`] |
//! | `num_gpus` | GPUs, at least 1 | size of the gang |
//! | `gpu_time` | GPU-seconds, `duration` x `num_gpus` | not used |
//! | `cluster` | virtual cluster | team |
//!
//! Jobs have no names there: each is called after its line.

use antiphon_types::Millis;

use super::clock::date_time;
use super::table::{Between, Rows, Table, Unit, job, wrong};
use super::{Source, TraceError};
use crate::workload::Work;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "philly", Between::Comma);
    let timestamp = table.need("timestamp")?;
    let duration = table.need("duration")?;
    let gpus = table.need("num_gpus")?;
    let cluster = table.find("cluster");
    table.each(|row| {
        let read = || {
            let text = row.text(timestamp)?;
            let submitted = date_time(text).map(Millis::from_millis);
            let submitted = submitted
                .ok_or_else(|| wrong("timestamp", text, "a time like `2017-10-09 07:01:55`"))?;
            let work = Work::Time(row.time(duration, Unit::Second)?);
            let name = format!("line-{}", row.line);
            let mut job = job(row.line, name, submitted, row.gpus(gpus)?, work);
            row.get(cluster).clone_into(&mut job.team);
            Ok(job)
        };
        rows.take(row.line, read())
    })
}
