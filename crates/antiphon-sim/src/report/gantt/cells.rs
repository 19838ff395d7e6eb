//! What each row of a picture held in each stretch of time.

use super::super::series::{STRETCHES, Series};
use super::LEVELS;
use super::rows::Rows;
use crate::course::millis;
use crate::world::Finished;

/// A job that held a cell for the most part.
const MOSTLY: f64 = 0.5;

/// What a row held in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Cell {
    /// The part of its GPU-time that was held.
    pub(super) held: f64,
    /// The job that held most of it, where that is the larger part.
    pub(super) job: Option<usize>,
}

/// The GPU-milliseconds of each job in a cell. One that comes again is near the end.
type Shares = Vec<(usize, f64)>;

/// The cells of a run that lasted so long, by row, then by stretch.
pub(super) fn cells(finished: &Finished, rows: &Rows, length_ms: f64) -> Vec<Cell> {
    let grid = Series::new(length_ms);
    let mut shares: Vec<Shares> = vec![Vec::new(); rows.names.len() * STRETCHES];
    for (job, spans) in finished.spans.iter().enumerate() {
        for span in spans {
            let from = millis(span.from);
            let until = span.until.map_or(length_ms, millis);
            let held = span.held.iter().flat_map(|held| rows.held(held));
            for (row, amount) in held {
                for column in grid.stretch(from)..=grid.stretch(until) {
                    let begins = grid.begins(column).max(from);
                    let ends = grid.begins(column + 1).min(until);
                    let gpu_ms = (ends - begins).max(0.0) * amount;
                    if let Some(cell) = shares.get_mut(row * STRETCHES + column) {
                        add(cell, job, gpu_ms);
                    }
                }
            }
        }
    }
    let cell = |(place, shares): (usize, &Shares)| {
        let all = grid.begins(1) * rows.capacity[place / STRETCHES].max(1e-9);
        let most = shares.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Cell {
            held: shares.iter().map(|(_, gpu_ms)| gpu_ms).sum::<f64>() / all,
            job: most
                .filter(|(_, gpu_ms)| *gpu_ms >= MOSTLY * all)
                .map(|(job, _)| *job),
        }
    };
    shares.iter().enumerate().map(cell).collect()
}

fn add(cell: &mut Shares, job: usize, gpu_ms: f64) {
    match cell.iter_mut().rev().find(|(other, _)| *other == job) {
        Some((_, sum)) => *sum += gpu_ms,
        None if gpu_ms > 0.0 => cell.push((job, gpu_ms)),
        None => (),
    }
}

/// What a cell is drawn as.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Idle,
    Shared(usize),
    Job(usize),
}

/// What a cell is drawn as: the job that held most of it, else how much of it was held.
pub(super) fn kind(cell: Cell) -> Kind {
    match cell.job {
        Some(job) => Kind::Job(job),
        None if cell.held < 0.01 => Kind::Idle,
        None if cell.held < 0.25 => Kind::Shared(0),
        None if cell.held < 0.5 => Kind::Shared(1),
        None if cell.held < 0.75 => Kind::Shared(2),
        None => Kind::Shared(LEVELS - 1),
    }
}
