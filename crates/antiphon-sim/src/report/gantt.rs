//! Which job held which GPUs when: a row a GPU on small clusters, else a row a node or a group of nodes; time in as many
//! columns as a screen shows. A cell that one job held for the most part has that job's color, others are the darker the
//! more of them was held.

mod cells;
mod rows;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use antiphon_types::NodeSpec;

use antiphon_chart::{COLORS, Frame, Scale, Spacing, Unit, cell, shortened, text};

use super::series::{STRETCHES, Series};
use crate::workload::Workload;
use crate::world::Finished;
use cells::{Cell, Kind, cells, kind};
use rows::Rows;

/// Jobs with a path and a title of their own: the largest in the picture. The others have a color alone.
const TITLED_MAX: usize = 400;

/// Width of a column.
const COLUMN: f64 = 3.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 14.0;

/// Levels of gray.
const LEVELS: usize = 4;

/// A picture of who held what.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Gantt {
    /// What a row is.
    pub(super) unit: &'static str,
    rows: Vec<String>,
    /// By row, then by column.
    cells: Vec<Cell>,
    /// By job: what is told of it.
    jobs: BTreeMap<usize, String>,
    length_ms: f64,
}

impl Gantt {
    /// Of a run that lasted so long.
    pub(super) fn of(
        workload: &Workload,
        finished: &Finished,
        nodes: &[NodeSpec],
        length_ms: f64,
    ) -> Self {
        let rows = Rows::of(nodes);
        let cells = cells(finished, &rows, length_ms);
        let seen = cells.iter().filter_map(|cell| cell.job);
        let told = |job: usize| {
            let job = &workload.jobs[job];
            let team = match &job.team[..] {
                "" => String::new(),
                team => format!(", team {team}"),
            };
            format!("{}{team}: {} GPUs", job.name, job.gpus)
        };
        let jobs = seen.map(|job| (job, told(job))).collect();
        Self {
            unit: rows.unit,
            rows: rows.names,
            cells,
            jobs,
            length_ms,
        }
    }

    /// Draws it.
    pub(super) fn svg(&self, title: &str) -> String {
        let columns = u32::try_from(STRETCHES).map_or(0.0, f64::from);
        let width = LEFT + COLUMN * columns + RIGHT;
        let mut frame = Frame::new(width, title, &[]);
        let top = frame.top;
        let high: f64 = match self.rows.len() {
            0..=16 => 14.0,
            17..=32 => 9.0,
            _ => 6.0,
        };
        let line = |row: usize| top + high * u32::try_from(row).map_or(0.0, f64::from);
        let base = line(self.rows.len());
        frame.push(&format!(
            "<rect class=\"ground\" x=\"{LEFT}\" y=\"{top}\" width=\"{:.0}\" height=\"{:.0}\"/>",
            COLUMN * columns,
            base - top
        ));
        let mut free = 0.0;
        for (row, name) in self.rows.iter().enumerate() {
            if !name.is_empty() && line(row) >= free {
                frame.label("end", LEFT - 6.0, line(row) + 9.5, &shortened(name, 14));
                free = line(row) + 13.0;
            }
        }
        let x = Scale {
            spacing: Spacing::Linear,
            unit: Unit::Seconds,
            from: 0.0,
            to: (self.length_ms / 1_000.0).max(1e-3),
            first_px: LEFT,
            last_px: LEFT + COLUMN * columns,
        };
        for mark in x.marks(80.0) {
            let at = x.px(mark);
            frame.push(&format!(
                "<path class=\"grid\" d=\"M{at:.1} {base:.1}v4\"/>"
            ));
            frame.label("middle", at, base + 17.0, &Unit::Seconds.tell(mark));
        }
        for path in self.paths(top, high) {
            frame.push(&path);
        }
        frame.close(base + 22.0)
    }

    /// One path for each of the jobs that are seen most, one a color for the others, and the levels of gray.
    fn paths(&self, top: f64, high: f64) -> Vec<String> {
        let mut of_job: BTreeMap<usize, (usize, String)> = BTreeMap::new();
        let mut gray = vec![String::new(); LEVELS];
        for row in 0..self.rows.len() {
            let cells = &self.cells[row * STRETCHES..(row + 1) * STRETCHES];
            let y = top + high * u32::try_from(row).map_or(0.0, f64::from);
            let px = |count: usize| COLUMN * u32::try_from(count).map_or(0.0, f64::from);
            let mut column = 0;
            for same in cells.chunk_by(|a, b| kind(*a) == kind(*b)) {
                let piece = format!(
                    "M{} {y}h{}v{}h-{}z",
                    LEFT + px(column),
                    px(same.len()),
                    high - 1.0,
                    px(same.len())
                );
                column += same.len();
                match kind(same[0]) {
                    Kind::Idle => (),
                    Kind::Shared(level) => gray[level].push_str(&piece),
                    Kind::Job(job) => {
                        let (seen, path) = of_job.entry(job).or_default();
                        *seen += same.len();
                        path.push_str(&piece);
                    }
                }
            }
        }
        let mut paths = Vec::new();
        for (level, path) in gray.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let opacity = 0.12 + 0.14 * u32::try_from(level).map_or(0.0, f64::from);
            paths.push(format!(
                "<path class=\"busy\" fill-opacity=\"{opacity:.2}\" d=\"{path}\"><title>several jobs: {} to {} % of its time held</title></path>",
                level * 100 / LEVELS,
                (level + 1) * 100 / LEVELS
            ));
        }
        let mut by_size: Vec<(&usize, &(usize, String))> = of_job.iter().collect();
        by_size.sort_by_key(|(job, (seen, _))| (std::cmp::Reverse(*seen), **job));
        let mut others = vec![String::new(); COLORS - 1];
        for (place, (job, (_, path))) in by_size.into_iter().enumerate() {
            // The last color is gray, which means something else here.
            let color = *job % (COLORS - 1);
            if place >= TITLED_MAX {
                others[color].push_str(path);
                continue;
            }
            let told = self.jobs.get(job).map_or("", |told| &told[..]);
            paths.push(format!(
                "<path class=\"job f{color}\" d=\"{path}\"><title>{}</title></path>",
                text(told)
            ));
        }
        let others = others
            .iter()
            .enumerate()
            .filter(|(_, path)| !path.is_empty());
        paths.extend(
            others.map(|(color, path)| format!("<path class=\"job f{color}\" d=\"{path}\"/>")),
        );
        paths
    }

    /// What is drawn as a table: one line a stretch of a row in which one job, or several, held it.
    pub(super) fn csv(&self) -> String {
        let mut out = String::from("row,from_s,until_s,held_share,mostly\n");
        let grid = Series::new(self.length_ms);
        let mut name = "";
        let mut gpu = 0;
        for (row, given) in self.rows.iter().enumerate() {
            (name, gpu) = if given.is_empty() {
                (name, gpu + 1)
            } else {
                (&given[..], 0)
            };
            let label = if self.unit == "GPU" {
                format!("{name}/{gpu}")
            } else {
                name.to_owned()
            };
            let cells = &self.cells[row * STRETCHES..(row + 1) * STRETCHES];
            for stretch in cells
                .chunk_by(|a, b| kind(*a) == kind(*b))
                .scan(0, |from, same| {
                    let begins = *from;
                    *from += same.len();
                    Some((begins, same))
                })
            {
                let (begins, same) = stretch;
                let held: f64 = same.iter().map(|cell| cell.held).sum();
                if held > 0.0 {
                    let job = same[0].job.and_then(|job| self.jobs.get(&job));
                    let _ = writeln!(
                        out,
                        "{},{:.0},{:.0},{:.3},{}",
                        cell(&label),
                        grid.begins(begins) / 1_000.0,
                        grid.begins(begins + same.len()) / 1_000.0,
                        held / u32::try_from(same.len()).map_or(1.0, f64::from),
                        cell(job.map_or("", |told| &told[..]))
                    );
                }
            }
        }
        out
    }
}
