//! The sample of the Acme trace (Hu et al., NSDI 2024): jobs of the Kalos cluster that completed, without evaluation and
//! debugging. The whole load is made by [`crate::generate`].
//!
//! Source: Acme trace, Shanghai AI Laboratory, github.com/InternLM/AcmeTrace, CC-BY-4.0. Comma-separated, with a header:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `job_id` | | name |
//! | `submit_s` | s | submission |
//! | `duration_s` | s | [`Work::Time`] |
//! | `gpu_num` | GPUs, at least 1 | size of the gang |
//! | `cpu_num` | CPUs of the job | CPUs |
//! | `node_num`, `mem_per_pod_gb` | nodes; GB a node | memory, where both are there |
//! | `type` | `Pretrain` or `Other_or_SFT` | team, in lower case |

use antiphon_types::Bytes;

use super::table::{Between, Rows, Table, Unit, job};
use super::{Source, TraceError};
use crate::workload::Work;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "acme", Between::Comma);
    let id = table.need("job_id")?;
    let submit = table.need("submit_s")?;
    let duration = table.need("duration_s")?;
    let gpus = table.need("gpu_num")?;
    let cpus = table.find("cpu_num");
    let nodes = table.find("node_num");
    let memory = table.find("mem_per_pod_gb");
    let kind = table.find("type");
    table.each(|row| {
        let read = || {
            let work = Work::Time(row.time(duration, Unit::Second)?);
            let submitted = row.time(submit, Unit::Second)?;
            let mut job = job(row.line, row.name(id)?, submitted, row.gpus(gpus)?, work);
            if let Some(cpus) = cpus {
                job.cpu_milli = row.count(cpus)?.checked_mul(1_000);
            }
            if let (Some(nodes), Some(memory)) = (nodes, memory) {
                let gigabytes = row.count(nodes)?.checked_mul(row.count(memory)?);
                let bytes = gigabytes.and_then(|gigabytes| gigabytes.checked_mul(1_000_000_000));
                job.memory = bytes.map(Bytes::new);
            }
            job.team = row.get(kind).to_ascii_lowercase().replace('_', "-");
            Ok(job)
        };
        rows.take(row.line, read())
    })
}
