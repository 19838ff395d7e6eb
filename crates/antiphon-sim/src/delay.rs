//! How long jobs of each class wait for their first start, beside the bars that a cluster is held to.

use antiphon_types::{Class, Millis};
use serde::Serialize;

use crate::course::millis;
use crate::figure::{part, quantile, sorted};
use crate::workload::Workload;
use crate::world::Record;

/// How long jobs of a class wait for their first start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Delay {
    /// The class.
    pub class: &'static str,
    /// Jobs of it that started.
    pub jobs: usize,
    /// Median wait.
    pub p50_s: Option<f64>,
    /// 99th percentile.
    pub p99_s: Option<f64>,
    /// The bar: half a minute where somebody waits for the result, else five.
    pub bar_s: f64,
    /// Share of jobs that wait no longer than the bar.
    pub within_bar: f64,
}

/// The delays of each class that has jobs, the most urgent first.
pub(crate) fn by_class(workload: &Workload, records: &[Option<Record>]) -> Vec<Delay> {
    let of = |class: Class| {
        let jobs = workload.jobs.iter().zip(records);
        let waits = jobs.filter(|(job, _)| job.class == class);
        let waits = waits.filter_map(|(_, record)| {
            let record = record.as_ref()?;
            Some(seconds(record.started?) - seconds(record.submitted))
        });
        let waits = sorted(waits);
        let bar_s = match class {
            Class::Service | Class::Production => 30.0,
            Class::Standard | Class::BestEffort => 300.0,
        };
        let within = waits.partition_point(|wait| *wait <= bar_s);
        (!waits.is_empty()).then(|| Delay {
            class: class.name(),
            jobs: waits.len(),
            p50_s: quantile(&waits, 0.5),
            p99_s: quantile(&waits, 0.99),
            bar_s,
            within_bar: part(within, waits.len()),
        })
    };
    Class::ALL.into_iter().filter_map(of).collect()
}

fn seconds(span: Millis) -> f64 {
    millis(span) / 1_000.0
}
