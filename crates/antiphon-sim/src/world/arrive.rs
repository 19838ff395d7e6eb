//! How a job comes: what is submitted for it, and whether the cluster takes it at all.

use antiphon_kernel::admit;
use antiphon_types::{Command, Estimate, JobId, JobSpec, Millis, Rung};

use super::draw::{Lot, Stream};
use super::forecasts::Forecasts;
use super::{Knowledge, Refused, World, number, spec_of};
use crate::course::span;
use crate::generate;
use crate::workload::TraceJob;

/// What users reckon for starts beside the run itself.
const START_S: f64 = 120.0;

impl World<'_> {
    pub(super) fn arrive(&mut self, place: usize) {
        if place + 1 == self.runs.len() {
            let held = self.runs.iter().map(|run| run.held_gpu_ms(self.now));
            self.tally.held_coming_gpu_ms = held.sum();
        }
        let job = &self.workload.jobs[place];
        let run = &self.runs[place];
        let mut spec = self.submitted(place).unwrap_or_else(|| self.asked(place));
        if self.setting.knowledge == Knowledge::Durations {
            let expected =
                span(run.course.best_ms() / run.claims.max(1e-6)).max(Millis::from_millis(1));
            // What starts take comes on top, and nobody is blamed for that.
            let more = Millis::from_millis(expected.as_millis() / 20 + 120_000);
            spec.estimate = Some(Estimate {
                low: expected,
                expected,
                high: expected + more,
            });
        }
        if self.setting.knowledge == Knowledge::Limits {
            spec.time_limit = Some(self.limit(place));
        }
        let command = Command::Submit {
            spec: Box::new(spec),
        };
        if let Err(rejection) = admit(&self.state, &command) {
            self.to_come -= 1;
            let reason = rejection.to_string();
            self.refuse(job, reason);
            self.runs[place].course.stretches.clear();
            return;
        }
        self.command(command);
        let id = self.state.newest_job().expect("it was submitted just now");
        assert_eq!(id.0, number(self.places.len()) + 1, "job ids count up");
        self.places.push(place);
        self.runs[place].id = Some(id);
        self.here.insert(place);
        self.forecasts.iter_mut().for_each(Forecasts::job_came);
    }

    /// The limit that a job's user names.
    fn limit(&self, place: usize) -> Millis {
        let run_s = self.runs[place].record.best_ms / 1_000.0;
        let lot = Lot::of(self.setting.seed, Stream::Limit, place).unit();
        let drawn = || generate::limit(run_s + START_S, false, lot);
        self.workload.jobs[place].limit.unwrap_or_else(drawn)
    }

    pub(super) fn refuse(&mut self, job: &TraceJob, reason: String) {
        self.tally.refused.push(Refused {
            line: job.line,
            name: job.name.clone(),
            reason,
        });
    }

    /// The job of a place as its trace has it, with what is tried when it fails.
    fn asked(&self, place: usize) -> JobSpec {
        let (job, run) = (&self.workload.jobs[place], &self.runs[place]);
        let mut spec = spec_of(job, &run.course, &self.gpu_types);
        let faults = &self.setting.faults;
        spec.retry = faults.retry.spec();
        if !run.fate.saves {
            spec.checkpoint = None;
        }
        let rung = |step: u32| Rung {
            name: format!("step {step}"),
            ..Rung::default()
        };
        spec.ladder = (1..=faults.retry.ladder).map(rung).collect();
        spec
    }

    /// The job of a place as it was really submitted.
    fn submitted(&self, place: usize) -> Option<JobSpec> {
        let mut spec = self.specs.get(place)?.clone();
        for list in [&mut spec.after, &mut spec.after_any, &mut spec.after_start] {
            let place = |id: &JobId| usize::try_from(id.0 - 1).ok();
            let known = list.iter().filter_map(|id| self.runs.get(place(id)?)?.id);
            *list = known.collect();
        }
        // A name that was free again when it was used may not be free here.
        if self.state.job_named(&spec.team, &spec.name).is_some() {
            spec.name = format!("{}-{place}", spec.name);
        }
        Some(spec)
    }

    pub(super) fn place_of(&self, job: JobId) -> usize {
        self.places[usize::try_from(job.0 - 1).expect("few jobs")]
    }
}
