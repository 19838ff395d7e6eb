//! The traces of Shockwave (Zheng et al., NSDI 2023), whose jobs change their batch size while they train.
//!
//! Source: github.com/uw-mad-dash/shockwave. As Gavel's (see [`super::gavel`]), with twelve columns:
//!
//! | column | | unit | used as |
//! | --- | --- | --- | --- |
//! | 1 to 7 | as Gavel's | | |
//! | 8 | mode: `static`, `accordion`, `gns` | | when the batch size changes |
//! | 9, 10 | priority weight; objective, -1 is none | | weight; not used |
//! | 11 | duration | s, all steps at the first batch size on the GPUs asked for | estimate |
//! | 12 | arrival | s | submission |
//!
//! The trace does not say when the batch size changes: the published simulator does, by tables of epochs. An epoch is one
//! pass over the data set, whose size follows from the model. Epochs are counted from 0; a job has as many as its steps make
//! at its first batch size.
//!
//! - `accordion`: the largest batch size of the model outside of critical regimes, which are the first epochs and, for some
//!   models, those after a step of the learning rate. (Shockwave's own plan also keeps the first 30 % of the epochs at the
//!   first batch size; the simulated jobs, which these phases follow, do not.)
//! - `gns`: the batch size doubles at epochs that depend on model, first batch size and GPUs, up to the model's largest.
//!
//! The published simulator changes a batch size at the end of the round in which the epoch is reached, and counts epochs
//! anew from the steps done; phases here change at the epoch itself.

use super::gavel::{Layout, job_of, kind_of};
use super::table::{Between, Column, Row, Rows, Table, Unit, wrong};
use super::{Source, TraceError};
use crate::workload::{Phase, TraceJob, Work};

const TWELVE: Layout = Layout {
    kind: Column::at(0, "job type"),
    steps: Column::at(5, "total steps"),
    gpus: Column::at(6, "scale factor"),
    weight: Some(Column::at(8, "priority weight")),
    arrival: Column::at(11, "arrival"),
};
const MODE: Column = Column::at(7, "mode");
const DURATION: Column = Column::at(10, "duration");

/// No training has more epochs.
const EPOCHS_MAX: f64 = 100_000.0;

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let table = Table::open(source, "shockwave", Between::Tab);
    table.each(|row| {
        let job = match row.len() {
            12 => job_with_phases(row),
            other => Err(format!("there are {other} columns: expected 12")),
        };
        rows.take(row.line, job)
    })
}

fn job_with_phases(row: &Row<'_>) -> Result<TraceJob, String> {
    let mut job = job_of(&TWELVE, row)?;
    job.estimate = Some(row.time(DURATION, Unit::Second)?);
    let mode = match row.text(MODE)? {
        "static" => return Ok(job),
        "accordion" => Mode::Accordion,
        "gns" => Mode::Gns,
        other => return Err(wrong("mode", other, "`static`, `accordion` or `gns`")),
    };
    let job_type = row.name(TWELVE.kind)?;
    let steps = row.real(TWELVE.steps)?;
    let gpus = row.count(TWELVE.gpus)?;
    if let Some(phases) = phases(mode, job_type, gpus, steps) {
        job.work = Work::Steps(phases);
    }
    Ok(job)
}

#[derive(Clone, Copy)]
enum Mode {
    Accordion,
    Gns,
}

/// A model: its name, samples of its data set, its largest batch size.
const MODELS: [(&str, u64, u64); 5] = [
    ("ResNet-18", 50_000, 256),
    ("ResNet-50", 100_000, 128),
    ("Transformer", 10_000, 128),
    ("LM", 59_675, 80),
    ("Recommendation", 117_907, 8_192),
];

/// The epochs at which the batch size doubles, by model, first batch size and GPUs. Others never double.
const DOUBLES: [(&str, u64, u64, &[u64]); 33] = [
    ("ResNet-18", 16, 1, &[31, 41, 51, 71]),
    ("ResNet-18", 32, 1, &[21, 31, 51]),
    ("ResNet-18", 64, 1, &[11, 31]),
    ("ResNet-18", 128, 1, &[11]),
    ("ResNet-18", 16, 2, &[21, 31, 91, 111]),
    ("ResNet-18", 32, 2, &[11, 21, 41]),
    ("ResNet-18", 64, 2, &[21, 41]),
    ("ResNet-18", 128, 2, &[41]),
    ("ResNet-18", 16, 4, &[11, 21, 81, 91]),
    ("ResNet-18", 32, 4, &[21, 31, 61]),
    ("ResNet-18", 64, 4, &[11, 61]),
    ("ResNet-18", 128, 4, &[11]),
    ("ResNet-50", 64, 1, &[101]),
    ("ResNet-50", 32, 2, &[101, 111]),
    ("ResNet-50", 64, 2, &[81]),
    ("ResNet-50", 32, 4, &[131, 221]),
    ("ResNet-50", 64, 4, &[191]),
    ("LM", 5, 1, &[31, 41, 61, 71]),
    ("LM", 10, 1, &[11, 21, 41]),
    ("LM", 20, 1, &[11, 41]),
    ("LM", 40, 1, &[11]),
    ("LM", 5, 2, &[31, 51, 61, 71]),
    ("LM", 10, 2, &[11, 31, 41]),
    ("LM", 20, 2, &[31, 41]),
    ("LM", 40, 2, &[11]),
    ("LM", 5, 4, &[11, 31, 71, 91]),
    ("LM", 10, 4, &[11, 31, 61]),
    ("LM", 20, 4, &[11, 61]),
    ("LM", 40, 4, &[61]),
    ("Recommendation", 512, 1, &[21, 41, 71, 91]),
    ("Recommendation", 1_024, 1, &[21, 51, 91]),
    ("Recommendation", 2_048, 1, &[21, 41]),
    ("Recommendation", 4_096, 1, &[41]),
];

/// The phases; nothing where the model is not known, which is then trained as it starts.
fn phases(mode: Mode, job_type: &str, gpus: u64, steps: f64) -> Option<Vec<Phase>> {
    let (model, rest) = job_type.split_once(" (batch size ")?;
    let first: u64 = rest.strip_suffix(')')?.parse().ok().filter(|b| *b > 0)?;
    let (model, samples, largest) = MODELS.into_iter().find(|(name, ..)| *name == model)?;
    let steps_per_epoch = |batch: u64| {
        let steps = samples.div_ceil(batch);
        u32::try_from(steps).map_or(f64::MAX, f64::from)
    };
    let epochs = steps / steps_per_epoch(first);
    if epochs > EPOCHS_MAX {
        return None;
    }
    let mut phases: Vec<Phase> = Vec::new();
    let (mut epoch, mut left) = (0, epochs);
    let mut before = None;
    while left > 0.0 {
        let batch = match mode {
            Mode::Accordion if critical(model, first, epoch) => first,
            Mode::Accordion => largest,
            Mode::Gns => doubled(model, first, gpus, epoch).min(largest),
        };
        let batch = batch.max(first);
        let steps = left.min(1.0) * steps_per_epoch(batch);
        match phases.last_mut() {
            Some(last) if before == Some(batch) => last.steps += steps,
            _ => phases.push(Phase {
                kind: kind_of(&format!("{model} (batch size {batch})"), gpus),
                steps,
            }),
        }
        before = Some(batch);
        epoch += 1;
        left -= 1.0;
    }
    (!phases.is_empty()).then_some(phases)
}

/// Whether Accordion keeps the first batch size in this epoch.
fn critical(model: &str, first: u64, epoch: u64) -> bool {
    match model {
        "ResNet-18" => {
            let head = if first == 256 { 20 } else { 10 };
            epoch < head || (150..160).contains(&epoch) || (250..260).contains(&epoch)
        }
        "ResNet-50" => epoch % 30 < 10,
        "LM" => epoch < 10,
        "Recommendation" => match first {
            512 | 1_024 => epoch < 30,
            2_048 => epoch < 40,
            _ => epoch < 10,
        },
        _ => true,
    }
}

/// The batch size that the gradient noise allows in this epoch.
fn doubled(model: &str, first: u64, gpus: u64, epoch: u64) -> u64 {
    let row = DOUBLES
        .iter()
        .find(|row| (row.0, row.1, row.2) == (model, first, gpus));
    let times = row.map_or(0, |row| row.3.iter().filter(|at| **at <= epoch).count());
    first << times.min(8)
}
