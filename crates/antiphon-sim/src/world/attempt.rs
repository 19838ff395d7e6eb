//! An attempt from its launch to its end: what it holds meanwhile, what its training loop says, how it gives way.

use antiphon_types::{
    Ack, AckBody, Allocation, AttemptId, Body, Bytes, Checkpoint, DirectiveId, Exit, ExitClass,
    Finding, JobId, Millis, NodeName, Observation, TaskId, Timestamp,
};

use super::record::Record;
use super::{BEGIN, Happening, Knowledge, World, since, whole};
use crate::course::{Course, Site, span};
use crate::figure;

/// What a trainer has seen before its first word on how long it will take: a step time needs some steps.
const REPORTS_AFTER: Millis = Millis::from_secs(120);

/// A step of a simulated training at its best speed.
const STEP_MS: f64 = 1_000.0;

/// A job as it goes.
pub(super) struct Run {
    pub(super) course: Course,
    pub(super) record: Record,
    /// What it has done, in milliseconds at its best, up to `since` where it runs.
    pub(super) done: f64,
    pub(super) on: Option<On>,
    /// What its loop says that it will do, as a part of what it really does.
    pub(super) claims: f64,
    /// The time of a step as it reports it, as a part of the true one.
    pub(super) step_claims: f64,
    pub(super) id: Option<JobId>,
}

/// An attempt that runs.
#[derive(Clone)]
pub(super) struct On {
    pub(super) attempt: AttemptId,
    pub(super) site: Site,
    pub(super) launched: Timestamp,
    /// When work begins.
    pub(super) since: Timestamp,
    pub(super) gpus: f64,
}

impl World<'_> {
    pub(super) fn launch(&mut self, attempt: AttemptId, allocation: &Allocation) {
        let place = self.place_of(attempt.job);
        let site = self.site(allocation);
        let gpus = figure::gpus(allocation.gpu_amount());
        let cluster = &self.setting.cluster;
        let run = &mut self.runs[place];
        let first = run.record.started.is_none();
        let cost = match cluster.wide {
            Some((above, cost)) if gpus > f64::from(above) => cost,
            _ if first => cluster.start_cost,
            _ => cluster.resize_cost,
        };
        let begins = self.now.after(cost);
        run.record.started.get_or_insert(self.now.since(BEGIN));
        run.record.gpus = gpus;
        let rest = run.course.rest_ms(run.done, site);
        assert!(rest.is_finite(), "{attempt} was placed where it cannot run");
        run.on = Some(On {
            attempt,
            site,
            launched: self.now,
            since: begins,
            gpus,
        });
        self.announce(begins.after(span(rest.ceil())), Happening::Ends(attempt));
        if self.setting.knowledge == Knowledge::Progress {
            let at = begins.after(REPORTS_AFTER);
            self.announce(at, Happening::Reports(attempt));
        }
        for task in &allocation.tasks {
            let task = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            self.event(Body::Observation(Observation::TaskStarted { task }));
        }
        let step = whole(self.runs[place].done / STEP_MS);
        self.event(Body::Observation(Observation::Attached { attempt, step }));
    }

    /// On which GPU type an allocation lies, and whether on more nodes than it needs.
    fn site(&self, allocation: &Allocation) -> Site {
        let mut nodes: Vec<&NodeName> = allocation.tasks.iter().map(|task| &task.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let first = nodes.first().expect("an allocation has tasks");
        Site {
            gpu_type: self.types_of[*first],
            spread: nodes.len() > 1,
        }
    }

    /// A training loop says how far it is.
    pub(super) fn report(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        let run = &self.runs[place];
        let Some(on) = run.on.as_ref().filter(|on| on.attempt == attempt) else {
            return;
        };
        let done = run.done_at(self.now);
        let step = whole(done / STEP_MS);
        let total = whole(run.course.best_ms() / run.claims / STEP_MS).max(step + 1);
        let step_ms = STEP_MS / run.course.rate(done, on.site) * run.step_claims;
        self.event(Body::Finding(Finding::Progress {
            attempt,
            step,
            steps_total: total,
            step_time: span(step_ms).max(Millis::from_millis(1)),
        }));
    }

    /// A training loop saves and ends, as it was asked to.
    pub(super) fn give_way(&mut self, attempt: AttemptId, directive: Option<DirectiveId>) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on.as_ref().is_none_or(|on| on.attempt != attempt) {
            return;
        }
        run.done = run.done_at(self.now);
        run.record.preemptions += 1;
        run.leave(self.now);
        let step = whole(run.done / STEP_MS);
        let checkpoint = Checkpoint {
            attempt,
            step,
            path: format!("step-{step}"),
            bytes: Bytes::ZERO,
            save: Millis::ZERO,
            manifest: String::new(),
            at: self.now,
        };
        self.event(Body::Observation(Observation::Checkpointed { checkpoint }));
        if let Some(directive) = directive {
            let body = AckBody::Applied { slot: step };
            let ack = Ack { directive, body };
            self.event(Body::Observation(Observation::Acknowledged {
                attempt,
                ack,
            }));
        }
        let exit = Exit::Code {
            code: 0,
            class: Some(ExitClass::Preempted),
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
    }

    /// An attempt has done all there was to do, unless it was stopped meanwhile.
    pub(super) fn end(&mut self, attempt: AttemptId) -> bool {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on.as_ref().is_none_or(|on| on.attempt != attempt) {
            return false;
        }
        run.done = run.course.best_ms();
        run.record.ended = Some(self.now.since(BEGIN));
        run.leave(self.now);
        self.to_come -= 1;
        let exit = Exit::Code {
            code: 0,
            class: None,
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
        true
    }

    fn end_tasks(&mut self, attempt: AttemptId, exit: &Exit) {
        let active = self
            .state
            .job(attempt.job)
            .and_then(|job| job.state.active());
        let tasks: Vec<TaskId> = active
            .filter(|active| active.attempt == attempt)
            .map(|active| active.tasks().map(|(task, _)| task).collect())
            .unwrap_or_default();
        for task in tasks {
            let exit = exit.clone();
            self.event(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }
}

impl Run {
    /// What it has done by now.
    pub(super) fn done_at(&self, now: Timestamp) -> f64 {
        match &self.on {
            Some(on) if on.since < now => {
                let elapsed = since(on.since, now);
                self.course.advance(self.done, elapsed, on.site)
            }
            Some(_) | None => self.done,
        }
    }

    /// Writes down what the attempt that ends now has held.
    pub(super) fn leave(&mut self, now: Timestamp) {
        let Some(on) = self.on.take() else {
            return;
        };
        self.record.held_gpu_ms += on.gpus * since(on.launched, now);
        self.record.idle_gpu_ms += on.gpus * since(on.launched, on.since.min(now));
    }
}
