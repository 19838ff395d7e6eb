//! A job as it goes: how far it is, what of that is saved, and where its GPU-time goes. Announces nothing.

use antiphon_types::{AttemptId, DirectiveId, JobId, Millis, Timestamp};

use super::fate::Fate;
use super::loss::{Curve, Turn};
use super::record::{Cause, Record};
use super::span::Span;
use super::{BEGIN, since};
use crate::course::{Course, Site};

/// A job as it goes.
pub(super) struct Run {
    pub(super) course: Course,
    pub(super) record: Record,
    /// When it held what; empty unless that is kept.
    pub(super) spans: Vec<Span>,
    /// What it has done, in milliseconds at its best, up to `since` where it runs.
    pub(super) done: f64,
    /// What a later attempt would go on from.
    pub(super) saved: f64,
    /// GPU-milliseconds that brought it from `saved` to `done`.
    unsaved_gpu_ms: f64,
    /// GPU-milliseconds that brought it to `saved`.
    kept_gpu_ms: f64,
    pub(super) on: Option<On>,
    /// What its loop says that it will do, as a part of what it really does.
    pub(super) claims: f64,
    /// The time of a step as it reports it, as a part of the true one.
    pub(super) step_claims: f64,
    pub(super) id: Option<JobId>,
    pub(super) fate: Fate,
    /// When it may be tried again.
    pub(super) not_before: Timestamp,
}

/// An attempt that runs.
#[derive(Clone)]
pub(super) struct On {
    pub(super) attempt: AttemptId,
    pub(super) site: Site,
    pub(super) launched: Timestamp,
    /// When work begins.
    pub(super) begins: Timestamp,
    /// Up to when `done` is reckoned.
    pub(super) since: Timestamp,
    pub(super) gpus: f64,
    pub(super) doing: Doing,
    /// Speed of its slowest node.
    pub(super) speed: f64,
    /// Speed on the step of its out-of-memory ladder that it stands on.
    pub(super) pace: f64,
    /// How often it saves while it runs.
    pub(super) interval: Option<Millis>,
    /// When it saves next.
    pub(super) saves_at: Option<Timestamp>,
    /// What was announced for an earlier turn is void.
    pub(super) turn: u32,
    /// Why it is being stopped, once it is.
    pub(super) stopped_for: Option<Cause>,
}

/// What an attempt's processes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    Work,
    /// They save and go on.
    Save,
    /// They save and end.
    GiveWay {
        directive: Option<DirectiveId>,
        goal: Goal,
    },
    /// They do nothing more: a part of the gang is gone.
    Hang,
}

/// What ends with an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// The attempt alone; another goes on.
    Attempt,
    /// The job: it was told that this is enough.
    Job,
}

impl Run {
    pub(super) fn new(course: Course, record: Record, claims: (f64, f64), fate: Fate) -> Self {
        Self {
            course,
            record,
            spans: Vec::new(),
            done: 0.0,
            saved: 0.0,
            unsaved_gpu_ms: 0.0,
            kept_gpu_ms: 0.0,
            on: None,
            claims: claims.0,
            step_claims: claims.1,
            id: None,
            fate,
            not_before: Timestamp::ZERO,
        }
    }

    /// Whether nothing more will become of it.
    pub(super) const fn is_over(&self) -> bool {
        self.record.ended.is_some() || self.record.failed.is_some()
    }

    /// The attempt that runs, if it is this one.
    pub(super) fn on_mut(&mut self, attempt: AttemptId) -> Option<&mut On> {
        self.on.as_mut().filter(|on| on.attempt == attempt)
    }

    /// Whether this attempt runs, and this is still its turn.
    pub(super) fn is_on(&self, attempt: AttemptId, turn: u32) -> bool {
        let on = self.on.as_ref();
        on.is_some_and(|on| on.attempt == attempt && on.turn == turn)
    }

    /// GPU-milliseconds that it has held by now.
    pub(super) fn held_gpu_ms(&self, now: Timestamp) -> f64 {
        let on = self.on.as_ref();
        let held = on.map_or(0.0, |on| on.gpus * since(on.launched, now));
        self.record.held_gpu_ms + held
    }

    /// What it has done by now.
    pub(super) fn done_at(&self, now: Timestamp) -> f64 {
        match &self.on {
            Some(on) if on.since < now && on.doing == Doing::Work => {
                let elapsed = since(on.since, now) * on.speed * on.pace;
                self.course.advance(self.done, elapsed, on.site)
            }
            Some(_) | None => self.done,
        }
    }

    /// Milliseconds that the attempt works until the job stands at a point.
    pub(super) fn until(&self, point: f64) -> f64 {
        self.on.as_ref().map_or(f64::INFINITY, |on| {
            let rest = self.course.rest_ms(self.done, on.site);
            let ms = rest - self.course.rest_ms(point, on.site);
            ms.max(0.0) / (on.speed * on.pace)
        })
    }

    /// Brings the books up to now.
    pub(super) fn reckon(&mut self, now: Timestamp) {
        let done = self.done_at(now);
        let Some(on) = self.on.as_mut().filter(|on| on.since < now) else {
            return;
        };
        let gpu_ms = on.gpus * since(on.since, now);
        on.since = now;
        let lost = &mut self.record.lost;
        match on.doing {
            Doing::Work => {
                let fate = &mut self.fate;
                fate.glitch_in -= gpu_ms;
                lost.add(Cause::Unused, gpu_ms * (1.0 - fate.used));
                let used = gpu_ms * fate.used;
                lost.add(Cause::Straggler, used * (1.0 - on.speed));
                let worked = used * on.speed;
                let late = fate.curve.map_or(0.0, |it| it.late_part(self.done, done));
                lost.add(Cause::PastUse, worked * late);
                self.unsaved_gpu_ms += worked * (1.0 - late);
                self.done = done;
            }
            Doing::Save | Doing::GiveWay { .. } => lost.add(Cause::Saving, gpu_ms),
            Doing::Hang => lost.add(Cause::Hanging, gpu_ms),
        }
    }

    /// All that is done is saved.
    pub(super) fn save(&mut self) {
        self.saved = self.done;
        self.kept_gpu_ms += std::mem::take(&mut self.unsaved_gpu_ms);
    }

    /// What was done since it saved last is gone.
    pub(super) fn lose(&mut self, cause: Cause) {
        self.done = self.saved;
        let gone = std::mem::take(&mut self.unsaved_gpu_ms);
        self.record.lost.add(cause, gone);
    }

    /// All that it ever did was for nothing.
    pub(super) fn give_up(&mut self) {
        self.save();
        let gone = std::mem::take(&mut self.kept_gpu_ms);
        self.record.lost.add(Cause::GivenUp, gone);
    }

    /// How it turned out once it was done: what diverged is worth nothing.
    pub(super) fn turned_out(&mut self) {
        let diverged = |curve: Curve| curve.turn == Turn::Divergence;
        if self.fate.curve.is_some_and(diverged) {
            self.give_up();
        } else {
            self.save();
        }
    }

    /// Writes down what the attempt that ends now has held.
    pub(super) fn leave(&mut self, now: Timestamp) {
        self.reckon(now);
        let Some(on) = self.on.take() else {
            return;
        };
        let first = on.attempt.number == 1;
        let cause = if first { Cause::Start } else { Cause::Restart };
        let idle = on.gpus * since(on.launched, on.begins.min(now));
        self.record.held_gpu_ms += on.gpus * since(on.launched, now);
        self.record.lost.add(cause, idle);
        if let Some(span) = self.spans.last_mut() {
            span.until = Some(now.since(BEGIN));
        }
    }
}
