//! The trace of Tiresias (Gu et al., NSDI 2019). Its samples of GPU-time, one column without jobs, are no trace.
//!
//! Source: github.com/SymbioticLab/Tiresias. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `job_id` | | name |
//! | `num_gpu` | GPUs, at least 1 | size of the gang |
//! | `submit_time` | s | submission |
//! | `duration` | s at full speed | [`Work::Time`] |
//! | `iterations`, `model_name`, `interval` | | not used |

use super::table::{Between, Rows, Table, Unit, job};
use super::{Source, TraceError};
use crate::workload::Work;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "tiresias", Between::Comma);
    let id = table.need("job_id")?;
    let gpus = table.need("num_gpu")?;
    let submit = table.need("submit_time")?;
    let duration = table.need("duration")?;
    table.each(|row| {
        let read = || {
            let work = Work::Time(row.time(duration, Unit::Second)?);
            let submitted = row.time(submit, Unit::Second)?;
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
