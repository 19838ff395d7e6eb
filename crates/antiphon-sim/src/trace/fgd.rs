//! The pods and nodes of Alibaba's GPU trace of 2023 (Weng et al., "Beware of Fragmentation", USENIX ATC 2023).
//!
//! Source: github.com/alibaba/clusterdata, `cluster-trace-gpu-v2023`. Comma-separated, with a header. Pods:
//!
//! | column | unit | used as |
//! | --- | --- | --- |
//! | `name` | | name |
//! | `cpu_milli` | thousandths of a CPU | CPUs |
//! | `memory_mib` | MiB | memory |
//! | `num_gpu` | GPUs; 0 is legal | size |
//! | `gpu_milli` | thousandths of each GPU; below 1,000 it is a share of one | size |
//! | `gpu_spec` | GPU types between `\|`, empty is any | types |
//! | `qos` | `BE` is best effort | class |
//! | `pod_phase` | | end |
//! | `creation_time` | s | submission |
//! | `deletion_time`, `scheduled_time` | s | [`Work::Time`] between them; from creation where it was never scheduled |
//!
//! The `multigpu` variants have the first five columns only: all pods come at once and none ends. Nodes: `sn` name,
//! `cpu_milli`, `memory_mib`, `gpu` GPUs, `model` GPU type.

use std::path::Path;

use antiphon_types::{Bytes, Class, GpuAmount, Millis};

use super::table::{Between, Column, Row, Rows, Table, Unit, job, wrong};
use super::{BadRow, Source, TraceError};
use crate::workload::{End, TraceJob, Work};

/// A node of the node list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// CPUs, in thousandths of a CPU.
    pub cpu_milli: u64,
    /// Memory.
    pub memory: Bytes,
    /// GPUs.
    pub gpus: u32,
    /// Their type; empty where it has none.
    pub gpu_type: String,
}

/// Reads a list of nodes. A node that cannot be understood is an error: with one missing, nothing would be comparable.
///
/// # Errors
/// Where the file cannot be read, lacks a column, holds a bad row or no node.
pub fn fgd_nodes(path: &Path) -> Result<Vec<NodeRow>, TraceError> {
    let source = Source::open(path)?;
    if let Some((line, reason)) = &source.cut {
        return Err(TraceError::CutShort {
            path: path.to_owned(),
            line: *line,
            reason: reason.clone(),
        });
    }
    let table = Table::open(&source, "fgd node", Between::Comma);
    let name = table.need("sn")?;
    let cpu = table.need("cpu_milli")?;
    let memory = table.need("memory_mib")?;
    let gpus = table.need("gpu")?;
    let gpu_type = table.find("model");
    let mut nodes: Vec<NodeRow> = Vec::new();
    let mut names = std::collections::BTreeSet::new();
    table.each(|row| {
        let read = || {
            let gpus = row.gpus_or_none(gpus)?.whole().unwrap_or(0);
            let name = row.name(name)?.to_owned();
            if !names.insert(name.clone()) {
                return Err(format!(
                    "node `{name}` stands in the list twice: expected each once"
                ));
            }
            Ok(NodeRow {
                name,
                cpu_milli: row.count(cpu)?,
                memory: mebibytes(row, memory)?,
                gpus,
                gpu_type: row.get(gpu_type).to_owned(),
            })
        };
        let mut read = read;
        nodes.push(read().map_err(|reason| TraceError::BadRow {
            path: path.to_owned(),
            row: BadRow {
                line: row.line,
                reason,
            },
        })?);
        Ok(())
    })?;
    if nodes.is_empty() {
        return Err(TraceError::Empty {
            path: path.to_owned(),
            bad_total: 0,
            first: None,
        });
    }
    Ok(nodes)
}

struct Columns {
    name: Column,
    cpu: Column,
    memory: Column,
    gpus: Column,
    gpu_milli: Column,
    spec: Option<Column>,
    qos: Option<Column>,
    phase: Option<Column>,
    creation: Option<Column>,
    deletion: Option<Column>,
    scheduled: Option<Column>,
}

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "fgd", Between::Comma);
    let columns = Columns {
        name: table.need("name")?,
        cpu: table.need("cpu_milli")?,
        memory: table.need("memory_mib")?,
        gpus: table.need("num_gpu")?,
        gpu_milli: table.need("gpu_milli")?,
        spec: table.find("gpu_spec"),
        qos: table.find("qos"),
        phase: table.find("pod_phase"),
        creation: table.find("creation_time"),
        deletion: table.find("deletion_time"),
        scheduled: table.find("scheduled_time"),
    };
    table.each(|row| rows.take(row.line, pod(&columns, row)))
}

fn pod(columns: &Columns, row: &Row<'_>) -> Result<TraceJob, String> {
    let time = |column: Option<Column>| match column {
        Some(column) if !row.get(Some(column)).is_empty() => {
            row.time(column, Unit::Second).map(Some)
        }
        _ => Ok(None),
    };
    let submitted = time(columns.creation)?;
    let began = time(columns.scheduled)?.or(submitted);
    let work = match (began, time(columns.deletion)?) {
        (Some(began), Some(ended)) if ended < began => {
            return Err(wrong(
                "deletion_time",
                row.get(columns.deletion),
                "a time after the pod began",
            ));
        }
        (Some(began), Some(ended)) => Work::Time(ended - began),
        _ => Work::Endless,
    };
    let gpus = shape(columns, row)?;
    let submitted = submitted.unwrap_or(Millis::ZERO);
    let mut job = job(row.line, row.name(columns.name)?, submitted, gpus, work);
    job.cpu_milli = Some(row.count(columns.cpu)?);
    job.memory = Some(mebibytes(row, columns.memory)?);
    let types = row.get(columns.spec).split('|').map(str::trim);
    job.gpu_types = types
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    if row.get(columns.qos) == "BE" {
        job.class = Class::BestEffort;
    }
    job.end = match row.get(columns.phase) {
        "Failed" => End::Failed,
        "Running" | "Pending" => End::Running,
        _ => End::Completed,
    };
    Ok(job)
}

fn shape(columns: &Columns, row: &Row<'_>) -> Result<GpuAmount, String> {
    let whole = row.gpus_or_none(columns.gpus)?;
    let milli = row.count(columns.gpu_milli)?;
    match whole.whole() {
        Some(0) => Ok(whole),
        Some(1) if (1..=1_000).contains(&milli) => Ok(GpuAmount::from_thousandths(milli)),
        _ if milli == 1_000 => Ok(whole),
        _ => Err(wrong(
            "gpu_milli",
            row.get(Some(columns.gpu_milli)),
            "1,000 for whole GPUs, or 1 to 999 of a single one",
        )),
    }
}

fn mebibytes(row: &Row<'_>, column: Column) -> Result<Bytes, String> {
    let count = row.count(column)?;
    let bytes = count.checked_mul(1 << 20);
    bytes
        .map(Bytes::new)
        .ok_or_else(|| wrong("memory_mib", &count.to_string(), "less memory"))
}
