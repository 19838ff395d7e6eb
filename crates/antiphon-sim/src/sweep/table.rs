//! The table of a sweep: one row a run, found again by what the run was, so that a sweep that was stopped goes on where it
//! was. Timings have no column: the same sweep gives the same rows, on any machine and any number of threads.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::Value;

use super::{Point, times};
use crate::cluster::Cluster;
use crate::outcome::Outcome;

/// Columns that say which run it is.
const KEY: [&str; 8] = [
    "trace",
    "cluster",
    "policy",
    "knowledge",
    "load",
    "size",
    "gpus",
    "seed",
];

/// Columns that say what came of it, as `--json` names them.
const FIGURES: [&str; 36] = [
    "rounds_s",
    "start_cost_s",
    "resize_cost_s",
    "jobs",
    "completed",
    "refused",
    "avg_jct_s",
    "p50_jct_s",
    "p99_jct_s",
    "avg_queue_s",
    "p99_queue_s",
    "makespan_s",
    "bound_avg_jct_s",
    "bound_makespan_s",
    "gpu_utilization",
    "gpu_utilization_coming",
    "gpu_utilization_coming_bound",
    "goodput",
    "preemptions",
    "failed",
    "failures",
    "lost_gpu_hours",
    "gpu_hours",
    "cost_usd",
    "deadlines_met",
    "finish_time_fairness_worst",
    "finish_time_unfair_share",
    "forecasts",
    "forecast_closed",
    "forecast_coverage",
    "forecast_width_s",
    "forecast_played_coverage",
    "forecast_played_width_s",
    "events",
    "cycles",
    "digest",
];

/// Columns that say what the run was made from: of the trace's file, of all settings, and which antiphon ran it.
const ORIGIN: [&str; 3] = ["trace_digest", "settings_digest", "version"];

/// How many columns there are.
pub const COLUMNS: usize = KEY.len() + FIGURES.len() + ORIGIN.len();

/// What a run was: two runs with the same key have the same figures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(Vec<String>);

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row(Vec<String>);

/// A table that is not one of a sweep.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It begins with other columns.
    #[error("its first line does not name the columns of a sweep")]
    Header,
    /// A row that no sweep wrote.
    #[error("line {line} has {fields} fields, not {COLUMNS}")]
    Fields {
        /// Where.
        line: usize,
        /// How many there are.
        fields: usize,
    },
    /// It is no CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

/// The first line.
#[must_use]
pub fn header() -> String {
    let all: Vec<&str> = KEY.into_iter().chain(FIGURES).chain(ORIGIN).collect();
    all.join(",") + "\n"
}

impl Key {
    /// Of a run of a trace on a cluster.
    #[must_use]
    pub fn of(
        point: &Point,
        trace: &str,
        cluster: &Cluster,
        trace_digest: &str,
        settings_digest: &str,
    ) -> Self {
        let seed = point.seed.to_string();
        let gpus: u64 = cluster.nodes.iter().map(|node| u64::from(node.gpus)).sum();
        let gpus = gpus.to_string();
        let (load, size) = (times(point.load), times(point.size));
        let knowledge = point.knowledge.name();
        let run = [
            trace,
            &cluster.name,
            &point.policy,
            knowledge,
            &load,
            &size,
            &gpus,
            &seed,
        ];
        let origin = [trace_digest, settings_digest, env!("CARGO_PKG_VERSION")];
        let fields = run.into_iter().chain(origin);
        Self(fields.map(str::to_owned).collect())
    }

    /// The row of this run.
    #[must_use]
    pub fn row(&self, outcome: &Outcome) -> Row {
        let outcome = serde_json::to_value(outcome).expect("figures are plain data");
        let figure = |name: &str| match &outcome[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let (run, origin) = self.0.split_at(KEY.len());
        let fields = run.iter().cloned();
        let fields = fields.chain(FIGURES.into_iter().map(figure));
        Row(fields.chain(origin.iter().cloned()).collect())
    }
}

impl Row {
    /// What the run was.
    #[must_use]
    pub fn key(&self) -> Key {
        let origin = self.0.len() - ORIGIN.len();
        let fields = self.0[..KEY.len()].iter().chain(&self.0[origin..]);
        Key(fields.cloned().collect())
    }

    /// The row as a line of the file.
    ///
    /// # Panics
    /// Never: a line in memory can be written.
    #[must_use]
    pub fn line(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer
            .write_record(&self.0)
            .expect("memory can be written to");
        let line = writer.into_inner().expect("memory can be written to");
        String::from_utf8(line).expect("fields are text")
    }

    /// By what the run was, numbers as numbers.
    fn order(&self, other: &Self) -> Ordering {
        let numbers = |row: &Self| {
            let number = |column: usize| row.0[column].parse::<f64>().unwrap_or(f64::INFINITY);
            [number(4), number(5), number(7)]
        };
        let by_number = || {
            let pairs = numbers(self).into_iter().zip(numbers(other));
            pairs
                .map(|(one, other)| one.total_cmp(&other))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        self.0[..4]
            .cmp(&other.0[..4])
            .then_with(by_number)
            .then_with(|| self.key().cmp(&other.key()))
    }
}

/// The rows of a whole table.
///
/// # Errors
/// Where it is none of a sweep.
pub fn parse(text: &str) -> Result<Vec<Row>, TableError> {
    let rows = text.strip_prefix(&header()).ok_or(TableError::Header)?;
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(rows.as_bytes());
    let mut parsed = Vec::new();
    for (place, record) in reader.records().enumerate() {
        let record = record?;
        if record.len() != COLUMNS {
            return Err(TableError::Fields {
                line: place + 2,
                fields: record.len(),
            });
        }
        parsed.push(Row(record.iter().map(str::to_owned).collect()));
    }
    Ok(parsed)
}

/// The whole table, in an order that follows from its rows alone, each run once.
#[must_use]
pub fn sorted(mut rows: Vec<Row>) -> String {
    rows.sort_by(Row::order);
    let mut seen = BTreeSet::new();
    rows.retain(|row| seen.insert(row.key()));
    rows.iter().fold(header(), |text, row| text + &row.line())
}

#[cfg(test)]
mod tests {
    use super::{FIGURES, KEY, Key, header, parse, sorted};
    use crate::cluster::preset;
    use crate::outcome::Outcome;
    use crate::sweep::Point;
    use crate::world::Knowledge;

    fn point(load: u32, seed: u64) -> Point {
        Point {
            policy: "a,\"b\"".into(),
            knowledge: Knowledge::None,
            load,
            size: 1_000,
            seed,
        }
    }

    fn key(load: u32, seed: u64) -> Key {
        let cluster = preset("muri", 0).unwrap();
        Key::of(&point(load, seed), "trace", &cluster, "t", "s")
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let key = key(1_250, 3);
        let row = key.row(&Outcome {
            avg_jct_s: Some(0.1 + 0.2),
            ..Outcome::default()
        });
        let rows = parse(&(header() + &row.line())).unwrap();
        assert_eq!(rows[0], row);
        assert_eq!(rows[0].key(), key);
    }

    #[test]
    fn rows_stand_by_number_and_each_run_once() {
        let row = |load, seed| key(load, seed).row(&Outcome::default());
        let table = sorted(vec![
            row(10_000, 1),
            row(2_000, 10),
            row(2_000, 9),
            row(2_000, 9),
        ]);
        let loads: Vec<String> = parse(&table)
            .unwrap()
            .iter()
            .map(|row| format!("{} {}", row.0[4], row.0[7]))
            .collect();
        assert_eq!(loads, ["2 9", "2 10", "10 1"]);
    }

    #[test]
    fn another_table_is_none_of_a_sweep() {
        assert!(parse("job,team\n").is_err());
        assert!(parse(&(header() + "a,b\n")).is_err());
    }

    /// A figure that is added to the outcome is a column too, or is left out on purpose.
    #[test]
    fn every_figure_has_a_column() {
        let left_out = [
            // Timings.
            "cycle_p99_us",
            "wall_s",
            "peak_rss_bytes",
            // Placement alone.
            "fragmentation",
            "allocation",
            "allocation_sd",
            "fragmented",
            // Lists, by cause and by class.
            "lost_gpu_hours_by_cause",
            "delays",
        ];
        let outcome = serde_json::to_value(Outcome::default()).unwrap();
        for name in outcome.as_object().unwrap().keys() {
            let name = &name[..];
            assert!(
                KEY.contains(&name) || FIGURES.contains(&name) || left_out.contains(&name),
                "{name} has no column"
            );
        }
    }
}
