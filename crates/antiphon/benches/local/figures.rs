//! What several runs say together: medians, spread, and the line that reports them. Throws no run away.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The figures of one run, by name.
pub(crate) type Run = BTreeMap<&'static str, f64>;

/// The figures of all runs.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    runs: Vec<Run>,
}

impl Figures {
    pub(crate) fn push(&mut self, run: Run) {
        self.runs.push(run);
    }

    /// The line of a benchmark: `value` is the median of the figure `main`, every figure stands beside it as the median of
    /// the runs, and the runs follow as they were.
    pub(crate) fn line(&self, common: Value, main: &'static str, unit: &str) -> Value {
        let mut line = match common {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let of = |name: &str| -> Vec<f64> {
            let values = self.runs.iter().filter_map(|run| run.get(name).copied());
            sorted(values.collect())
        };
        let names = self.runs.first().into_iter().flat_map(|run| run.keys());
        for name in names.copied() {
            line.insert(name.into(), round(quantile(&of(name), 0.5)));
        }
        let spread = of(main);
        line.insert("value".into(), round(quantile(&spread, 0.5)));
        line.insert("unit".into(), unit.into());
        let ends = [spread.first(), spread.last()].map(|end| end.copied().map(round));
        line.insert("spread".into(), json!(ends));
        let runs = self.runs.iter().map(|run| {
            let figures = run
                .iter()
                .map(|(name, value)| ((*name).into(), round(*value)));
            Value::Object(figures.collect())
        });
        line.insert("runs".into(), runs.collect());
        Value::Object(line)
    }
}

/// Adds median, 99th percentile and maximum of latencies to a run.
pub(crate) fn add_latencies(run: &mut Run, latencies: Vec<f64>) {
    let latencies = sorted(latencies);
    run.insert("p50_ms", quantile(&latencies, 0.5));
    run.insert("p99_ms", quantile(&latencies, 0.99));
    run.insert("max_ms", quantile(&latencies, 1.0));
}

/// The median of values in any order.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    quantile(&sorted(values), 0.5)
}

/// The nearest rank: a value that was measured, never one between two.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Two decimals: more is noise here.
pub(crate) fn round(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}
