//! What came of one simulation, in the figures that policies are compared by.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bound::Bounds;
use crate::delay::Delay;
use crate::figure::{mean, part, quantile, sorted};
use crate::world::{Cause, Finished, Record};

/// A run of one policy on one workload. Shares in 0..1; nothing where a figure does not apply.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// The workload.
    pub trace: String,
    /// What the policy may know.
    pub knowledge: String,
    /// Length of a round.
    pub rounds_s: Option<f64>,
    /// What a first start costs.
    pub start_cost_s: f64,
    /// What every later start costs.
    pub resize_cost_s: f64,
    /// Jobs simulated.
    pub jobs: usize,
    /// Jobs done.
    pub completed: usize,
    /// Jobs of the trace that the cluster refused.
    pub refused: usize,
    /// Mean time from submission to end.
    pub avg_jct_s: Option<f64>,
    /// Its median.
    pub p50_jct_s: Option<f64>,
    /// Its 99th percentile.
    pub p99_jct_s: Option<f64>,
    /// Mean time from submission to first start.
    pub avg_queue_s: Option<f64>,
    /// Its 99th percentile.
    pub p99_queue_s: Option<f64>,
    /// From the first submission to the last end.
    pub makespan_s: Option<f64>,
    /// No policy has a smaller mean completion time.
    pub bound_avg_jct_s: Option<f64>,
    /// No policy has a smaller makespan.
    pub bound_makespan_s: Option<f64>,
    /// Held GPU-time over all GPU-time up to the last end.
    pub gpu_utilization: Option<f64>,
    /// The same up to the last submission: how full the cluster is while jobs come.
    pub gpu_utilization_coming: Option<f64>,
    /// The same if every job had started as it came, and nothing had been lost: what comes late is not done by then.
    pub gpu_utilization_coming_bound: Option<f64>,
    /// GPU-time that brought jobs forward over GPU-time held.
    pub goodput: Option<f64>,
    /// Fragmented GPUs as a share of the idle ones (placement alone).
    pub fragmentation: Option<f64>,
    /// Allocated GPUs in percent of all, mean over shuffles (placement alone).
    pub allocation: Option<f64>,
    /// Its standard deviation.
    pub allocation_sd: Option<f64>,
    /// Fragmented GPUs in percent of all (placement alone).
    pub fragmented: Option<f64>,
    /// Attempts stopped for others.
    pub preemptions: u64,
    /// Jobs that were given up, by themselves or by a person.
    pub failed: usize,
    /// Attempts that failed.
    pub failures: u64,
    /// GPU-hours held in which nothing was done, or what was done was lost.
    pub lost_gpu_hours: f64,
    /// The same by cause; causes that took nothing are left out.
    pub lost_gpu_hours_by_cause: BTreeMap<&'static str, f64>,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// What they cost, where prices are known.
    pub cost_usd: Option<f64>,
    /// Share of deadlines met.
    pub deadlines_met: Option<f64>,
    /// The worst ratio of completion time to that under an equal share.
    pub finish_time_fairness_worst: Option<f64>,
    /// Share of jobs whose ratio is above 1.05.
    pub finish_time_unfair_share: Option<f64>,
    /// How long jobs of each class wait.
    pub delays: Vec<Delay>,
    /// Forecasts of starts that were judged.
    pub forecasts: Option<usize>,
    /// The part of them that named an interval.
    pub forecast_closed: Option<f64>,
    /// The part of those intervals in which the start lay; they are made to hold 80 % of starts.
    pub forecast_coverage: Option<f64>,
    /// The median width of those intervals.
    pub forecast_width_s: Option<f64>,
    /// The same coverage of what playing the queue forward alone came to.
    pub forecast_played_coverage: Option<f64>,
    /// The median width of that.
    pub forecast_played_width_s: Option<f64>,
    /// Entries of the log.
    pub events: u64,
    /// Calls of `decide`.
    pub cycles: u64,
    /// 99th percentile of the time of one.
    pub cycle_p99_us: Option<u64>,
    /// Wall clock.
    pub wall_s: Option<f64>,
    /// Largest memory of the process so far.
    pub peak_rss_bytes: Option<u64>,
    /// Digest of the log.
    pub digest: String,
}

/// Above this ratio a job counts as treated unfairly (Zheng et al., NSDI 2023).
const UNFAIR: f64 = 1.05;

/// A deadline of every job, in seconds after the beginning.
pub type Deadlines = [Option<f64>];

impl Outcome {
    /// Fills in what follows from what a world came to.
    pub fn take(
        &mut self,
        finished: &Finished,
        deadlines: &Deadlines,
        gpus: f64,
        bounds: Option<Bounds>,
    ) {
        let records: Vec<&Record> = finished.records.iter().flatten().collect();
        self.jobs = records.len();
        self.refused = finished.tally.refused.len();
        let seconds = |ms: antiphon_types::Millis| crate::course::millis(ms) / 1_000.0;
        let jct = |record: &&Record| {
            let ended = record.ended?;
            Some(seconds(ended) - seconds(record.submitted))
        };
        let jcts = sorted(records.iter().filter_map(jct));
        let queue = |record: &&Record| Some(seconds(record.started?) - seconds(record.submitted));
        let queues = sorted(records.iter().filter_map(queue));
        self.completed = jcts.len();
        self.avg_jct_s = mean(&jcts);
        self.p50_jct_s = quantile(&jcts, 0.5);
        self.p99_jct_s = quantile(&jcts, 0.99);
        self.avg_queue_s = mean(&queues);
        self.p99_queue_s = quantile(&queues, 0.99);
        let makespan = records.iter().filter_map(|record| record.ended).max();
        self.makespan_s = makespan.map(seconds);
        self.bound_avg_jct_s = bounds.map(|bounds| bounds.avg_jct_s);
        self.bound_makespan_s = bounds.map(|bounds| bounds.makespan_s);
        let held: f64 = records.iter().map(|record| record.held_gpu_ms).sum();
        let lost: f64 = records.iter().map(|record| record.lost.total()).sum();
        self.gpu_hours = held / 3.6e6;
        self.lost_gpu_hours = lost / 3.6e6;
        self.gpu_utilization = self
            .makespan_s
            .filter(|makespan| *makespan > 0.0)
            .map(|makespan| held / 1_000.0 / (gpus * makespan));
        self.coming(finished, &records, gpus);
        for cause in Cause::ALL {
            let by = |record: &&Record| record.lost.by(cause);
            let gpu_ms: f64 = records.iter().map(by).sum();
            if gpu_ms > 0.0 {
                let hours = gpu_ms / 3.6e6;
                self.lost_gpu_hours_by_cause.insert(cause.name(), hours);
            }
        }
        let failed = |record: &&&Record| record.failed.is_some();
        self.failed = records.iter().filter(failed).count();
        let failures = |record: &&Record| u64::from(record.failures);
        self.failures = records.iter().map(failures).sum();
        self.goodput = (held > 0.0).then(|| 1.0 - lost / held);
        self.preemptions = records
            .iter()
            .map(|record| u64::from(record.preemptions))
            .sum();
        self.fairness(&records, gpus);
        self.deadlines(finished, deadlines);
        if let Some(score) = &finished.forecasts {
            self.forecasts = Some(score.judged);
            self.forecast_closed = Some(score.shown.closed);
            self.forecast_coverage = Some(score.shown.covered);
            self.forecast_width_s = Some(score.shown.width_s);
            self.forecast_played_coverage = Some(score.played.covered);
            self.forecast_played_width_s = Some(score.played.width_s);
        }
        self.events = finished.tally.events;
        self.cycles = finished.tally.cycles;
        let mut cycles = finished.tally.cycle_us.clone();
        cycles.sort_unstable();
        self.cycle_p99_us = cycles
            .get(cycles.len().saturating_sub(1) * 99 / 100)
            .map(|us| u64::from(*us));
        self.digest.clone_from(&finished.digest);
    }

    /// How full the cluster is until the last job has come.
    fn coming(&mut self, finished: &Finished, records: &[&Record], gpus: f64) {
        let ms = crate::course::millis;
        let last = records.iter().map(|record| ms(record.submitted));
        let last = last.fold(0.0, f64::max);
        if last <= 0.0 {
            return;
        }
        let all = gpus * last;
        let possible = |record: &&Record| {
            let left = last - ms(record.submitted);
            record.gpus * record.best_ms.min(left)
        };
        let possible: f64 = records.iter().map(possible).sum();
        self.gpu_utilization_coming = Some(finished.tally.held_coming_gpu_ms / all);
        self.gpu_utilization_coming_bound = Some((possible / all).min(1.0));
    }

    fn fairness(&mut self, records: &[&Record], gpus: f64) {
        let ratios = finish_time_ratios(records.iter().copied(), gpus);
        self.finish_time_fairness_worst = ratios.last().copied();
        let unfair = ratios.len() - ratios.partition_point(|ratio| *ratio <= UNFAIR);
        self.finish_time_unfair_share = (!ratios.is_empty()).then(|| part(unfair, ratios.len()));
    }

    fn deadlines(&mut self, finished: &Finished, deadlines: &Deadlines) {
        let with = finished.records.iter().zip(deadlines);
        let met: Vec<bool> = with
            .filter_map(|(record, deadline)| {
                let ended = record.as_ref()?.ended;
                let deadline = (*deadline)?;
                Some(ended.is_some_and(|at| crate::course::millis(at) / 1_000.0 <= deadline))
            })
            .collect();
        let count = met.iter().filter(|met| **met).count();
        self.deadlines_met = (!met.is_empty()).then(|| part(count, met.len()));
    }
}

/// Finish-time fairness of each job that ended, ascending: completion time over run time alone x the number of jobs that
/// share the cluster, if more than there are GPUs (Mahajan et al., NSDI 2020, as Shockwave's artifact reckons it).
pub fn finish_time_ratios<'a>(
    records: impl Iterator<Item = &'a Record> + Clone,
    gpus: f64,
) -> Vec<f64> {
    let jobs = f64::from(u32::try_from(records.clone().count()).expect("few jobs"));
    let crowd = (jobs / gpus).max(1.0);
    let ratio = |record: &Record| {
        let jct = crate::course::millis(record.ended?) - crate::course::millis(record.submitted);
        (record.best_ms > 0.0).then(|| jct / (record.best_ms * crowd))
    };
    sorted(records.filter_map(ratio))
}
