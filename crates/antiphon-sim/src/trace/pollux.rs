//! The workloads of Pollux (Qiao et al., OSDI 2021). How fast a job runs stands in its application's profile, not here.
//!
//! Source: github.com/petuum/adaptdl, branch osdi21-artifact. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `name` | | name |
//! | `time` | s | submission |
//! | `application` | name of a profile | [`Work::Profile`] |
//! | `num_replicas` | GPUs as tuned, at least 1 | size of the gang |
//! | `batch_size` | samples of one step over all GPUs, as tuned | [`Work::Profile`] |

use super::table::{Between, Rows, Table, Unit, job, wrong};
use super::{Source, TraceError};
use crate::workload::Work;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "pollux", Between::Comma);
    let name = table.need("name")?;
    let time = table.need("time")?;
    let application = table.need("application")?;
    let gpus = table.need("num_replicas")?;
    let batch = table.need("batch_size")?;
    table.each(|row| {
        let read = || {
            let batch_size = row.count(batch)?;
            if batch_size == 0 {
                return Err(wrong("batch_size", "0", "at least 1 sample"));
            }
            let work = Work::Profile {
                application: row.name(application)?.to_owned(),
                batch_size,
            };
            let submitted = row.time(time, Unit::Second)?;
            Ok(job(
                row.line,
                row.name(name)?,
                submitted,
                row.gpus(gpus)?,
                work,
            ))
        };
        rows.take(row.line, read())
    })
}
