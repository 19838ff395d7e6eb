//! The traces of Muri (Zhao et al., SIGCOMM 2022), derived from Philly. How two jobs would share a GPU is not read.
//!
//! Source: github.com/Rivendile/Muri. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `job_id` | | name |
//! | `num_gpu` | GPUs, at least 1 | size of the gang |
//! | `submit_time` | ms | submission |
//! | `duration` | ms at full speed, `iterations` x `iteration_time` | [`Work::Time`] |
//! | `iterations`, `model_name`, `batch_size`, `interval`, `iteration_time`, `resource_time_0..2`, `priority` | | not used |

use super::table::{Between, Rows, Table, Unit, job};
use super::{Source, TraceError};
use crate::workload::Work;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "muri", Between::Comma);
    let id = table.need("job_id")?;
    let gpus = table.need("num_gpu")?;
    let submit = table.need("submit_time")?;
    let duration = table.need("duration")?;
    table.each(|row| {
        let read = || {
            let work = Work::Time(row.time(duration, Unit::Millisecond)?);
            let submitted = row.time(submit, Unit::Millisecond)?;
            Ok(job(
                row.line,
                row.name(id)?,
                submitted,
                row.gpus(gpus)?,
                work,
            ))
        };
        rows.take(row.line, read())
    })
}
