//! The traces of Gavel (Narayanan et al., OSDI 2020). How fast a step is stands in its throughput table.
//!
//! Source: github.com/stanford-futuredata/gavel. Tab-separated, no header, ten columns or, in the older layout, seven:
//!
//! | of ten | of seven | column | unit | used as |
//! | --- | --- | --- | --- | --- |
//! | 1 | 1 | job type: model and batch size | | kind of the steps, with the scale factor |
//! | 2, 3, 4, 5 | 2, 3, 4 | command, folder, step argument, needs data | | not used |
//! | 6 | 5 | total steps | steps of the whole job | [`Work::Steps`] |
//! | 7 | 7 | scale factor | GPUs, at least 1 | size of the gang |
//! | 8 | | priority weight | 1 is ordinary | weight |
//! | 9 | | service-level objective | multiples of an ideal duration that is not given; -1 is none | not used |
//! | 10 | 6 | arrival | s | submission |
//!
//! Jobs have no names there: each is called after its line. The kind is spelled as the tables spell their keys,
//! `('ResNet-18 (batch size 32)', 2)`.

use super::table::{Between, Column, Row, Rows, Table, Unit, job, rounded, wrong};
use super::{Source, TraceError};
use crate::workload::{Phase, TraceJob, Work};

/// Where the columns stand that one of Gavel's layouts has.
pub(super) struct Layout {
    pub(super) kind: Column,
    pub(super) steps: Column,
    pub(super) gpus: Column,
    pub(super) weight: Option<Column>,
    pub(super) arrival: Column,
}

const TEN: Layout = Layout {
    kind: Column::at(0, "job type"),
    steps: Column::at(5, "total steps"),
    gpus: Column::at(6, "scale factor"),
    weight: Some(Column::at(7, "priority weight")),
    arrival: Column::at(9, "arrival"),
};

const SEVEN: Layout = Layout {
    kind: Column::at(0, "job type"),
    steps: Column::at(4, "total steps"),
    gpus: Column::at(6, "scale factor"),
    weight: None,
    arrival: Column::at(5, "arrival"),
};

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "gavel", Between::Tab);
    table.each(|row| {
        let job = match row.len() {
            10 => job_of(&TEN, row),
            7 => job_of(&SEVEN, row),
            other => Err(format!("there are {other} columns: expected 10, or 7")),
        };
        rows.take(row.line, job)
    })
}

/// The job of a row, all of its steps of the kind that it starts with.
pub(super) fn job_of(layout: &Layout, row: &Row<'_>) -> Result<TraceJob, String> {
    let steps = row.real(layout.steps)?;
    if steps < 0.0 {
        return Err(wrong("total steps", row.text(layout.steps)?, "at least 0"));
    }
    let gpus = row.gpus(layout.gpus)?;
    let kind = kind_of(row.name(layout.kind)?, row.count(layout.gpus)?);
    let work = Work::Steps(vec![Phase { kind, steps }]);
    let name = format!("line-{}", row.line);
    let submitted = row.time(layout.arrival, Unit::Second)?;
    let mut job = job(row.line, name, submitted, gpus, work);
    if let Some(weight) = layout.weight {
        let number = row.real(weight)?;
        if !(0.0..=1e6).contains(&number) {
            let seen = row.text(weight)?;
            return Err(wrong(
                "priority weight",
                seen,
                "a weight from 0 to 1,000,000",
            ));
        }
        job.weight_permille = u32::try_from(rounded(number * 1e3)).unwrap_or(u32::MAX);
    }
    Ok(job)
}

/// The key of a throughput table.
pub(super) fn kind_of(job_type: &str, gpus: u64) -> String {
    format!("('{job_type}', {gpus})")
}
