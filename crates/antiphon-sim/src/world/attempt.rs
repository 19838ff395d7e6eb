//! An attempt from its launch to its end: what comes next in it, what its training loop says, and how its tasks end.

use antiphon_types::{
    Allocation, AttemptId, Body, Exit, Finding, Millis, NodeName, Observation, TaskId, Timestamp,
};

use super::fail::Why;
use super::run::{Doing, On};
use super::span::{Span, Spans, held};
use super::{BEGIN, Happening, Knowledge, World, whole};
use crate::course::{Site, span};
use crate::figure;

/// What a trainer has seen before its first word on how long it will take: a step time needs some steps.
const REPORTS_AFTER: Millis = Millis::from_secs(120);

/// A step of a simulated training at its best speed.
const STEP_MS: f64 = 1_000.0;

impl World<'_> {
    pub(super) fn launch(&mut self, attempt: AttemptId, allocation: &Allocation) {
        let place = self.place_of(attempt.job);
        let site = self.site(allocation);
        let gpus = figure::gpus(allocation.gpu_amount());
        let cluster = &self.setting.cluster;
        let interval = self.interval(allocation, gpus);
        let speed = self.slowest(allocation);
        let pace = self.pace(attempt);
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
        if self.setting.spans == Spans::Kept {
            run.spans.push(Span {
                from: self.now.since(BEGIN),
                works_from: begins.since(BEGIN),
                until: None,
                held: held(allocation, &self.node_places),
            });
        }
        let rest = run.course.rest_ms(run.done, site);
        assert!(rest.is_finite(), "{attempt} was placed where it cannot run");
        let interval = interval.filter(|_| run.fate.saves);
        run.on = Some(On {
            attempt,
            site,
            launched: self.now,
            begins,
            since: begins,
            gpus,
            doing: Doing::Work,
            speed,
            pace,
            interval,
            saves_at: interval.map(|interval| begins.after(interval)),
            turn: 0,
            stopped_for: None,
        });
        let attached = run.fate.attached;
        self.go_on(place);
        if self.setting.knowledge == Knowledge::Progress && attached {
            let at = begins.after(REPORTS_AFTER);
            self.announce(at, Happening::Reports(attempt));
        }
        for task in allocation.tasks.iter() {
            let task = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            self.event(Body::Observation(Observation::TaskStarted { task }));
        }
        if attached {
            let step = self.step(place);
            self.event(Body::Observation(Observation::Attached { attempt, step }));
        }
    }

    /// The step that a job's training stands at.
    pub(super) fn step(&self, place: usize) -> u64 {
        whole(self.runs[place].done / STEP_MS)
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
            gpus: allocation.gpu_amount().whole().unwrap_or(0),
            nodes: u32::try_from(nodes.len()).expect("few nodes"),
        }
    }

    /// Announces what comes next for an attempt that works: its end, a save, a failure of its own, whatever is first.
    pub(super) fn go_on(&mut self, place: usize) {
        let run = &mut self.runs[place];
        let Some(on) = run.on.as_mut() else {
            return;
        };
        on.turn += 1;
        let (attempt, turn, from) = (on.attempt, on.turn, on.since.max(self.now));
        let (saves_at, gpus) = (on.saves_at, on.gpus);
        let ends = from.after(span(run.until(f64::INFINITY).ceil()));
        let after = |ms: f64| from.after(span(ms.ceil()));
        let flaw = run
            .fate
            .flaw
            .map(|flaw| (after(run.until(flaw.at)), Why::Flaw));
        let glitch = after(run.fate.glitch_in.max(0.0) / gpus.max(1e-9));
        let glitch = (glitch, Why::Glitch);
        let flaw = flaw.filter(|_| !self.is_past_flaw(place));
        let looked = self.looked_at(place, from);
        let fails = flaw.into_iter().chain([glitch]).min();
        let next = saves_at.filter(|at| *at < ends);
        let fails = fails.filter(|(at, _)| *at < ends && next.is_none_or(|next| *at <= next));
        match (fails, next) {
            (Some((at, why)), _) => self.announce(at, Happening::Fails(attempt, turn, why)),
            (None, Some(at)) => self.announce(at, Happening::Saves(attempt, turn)),
            (None, None) => self.announce(ends, Happening::Ends(attempt, turn)),
        }
        if let Some(at) = looked {
            self.announce(at, Happening::Looked(attempt));
        }
    }

    /// An attempt has done all there was to do; says so unless it was stopped meanwhile.
    pub(super) fn end(&mut self, attempt: AttemptId, turn: u32) -> bool {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if !run.is_on(attempt, turn) {
            return false;
        }
        run.leave(self.now);
        run.done = run.course.best_ms();
        self.has_ended(place);
        let exit = Exit::Code {
            code: 0,
            class: None,
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
        true
    }

    /// A job is done.
    pub(super) fn has_ended(&mut self, place: usize) {
        let run = &mut self.runs[place];
        run.record.ended = Some(self.now.since(BEGIN));
        self.here.remove(&place);
        run.turned_out();
        self.to_come -= 1;
    }

    /// Ends every task of an attempt that has not ended.
    pub(super) fn end_tasks(&mut self, attempt: AttemptId, exit: &Exit) {
        for (task, _) in self.tasks(attempt) {
            let exit = exit.clone();
            self.event(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }

    /// The tasks of an attempt, with their nodes.
    pub(super) fn tasks(&self, attempt: AttemptId) -> Vec<(TaskId, NodeName)> {
        let job = self.state.job(attempt.job);
        let active = job.and_then(|job| job.state.active());
        active
            .filter(|active| active.attempt == attempt)
            .map(|active| {
                let nodes = active.allocation.tasks.iter().map(|task| task.node.clone());
                active.tasks().map(|(task, _)| task).zip(nodes).collect()
            })
            .unwrap_or_default()
    }

    /// A training loop says how far it is.
    pub(super) fn report(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        let run = &self.runs[place];
        let on = run.on.as_ref().filter(|on| on.attempt == attempt);
        let Some(on) = on.filter(|on| on.doing == Doing::Work) else {
            return;
        };
        let done = run.done_at(self.now);
        let step = whole(done / STEP_MS);
        let total = whole(run.course.best_ms() / run.claims / STEP_MS).max(step + 1);
        let rate = run.course.rate(done, on.site) * on.speed * on.pace;
        let step_ms = STEP_MS / rate * run.step_claims;
        self.event(Body::Finding(Finding::Progress {
            attempt,
            step,
            steps_total: total,
            step_time: span(step_ms).max(Millis::from_millis(1)),
        }));
    }

    /// The speed of an attempt's nodes has changed: what was said and announced no longer holds.
    pub(super) fn change_speed(&mut self, place: usize, speed: f64) {
        let now = self.now;
        let run = &mut self.runs[place];
        run.reckon(now);
        let Some(on) = run.on.as_mut() else {
            return;
        };
        on.speed = speed;
        let attempt = on.attempt;
        let works = on.doing == Doing::Work;
        if works {
            self.go_on(place);
        }
        if works && self.setting.knowledge == Knowledge::Progress && self.runs[place].fate.attached
        {
            let at = self.since_of(place).after(REPORTS_AFTER);
            self.announce(at, Happening::Reports(attempt));
        }
    }

    fn since_of(&self, place: usize) -> Timestamp {
        let on = self.runs[place].on.as_ref();
        on.map_or(self.now, |on| on.since.max(self.now))
    }
}
