//! How far a training is worth its GPUs: until its loss gets no lower, or until it grows without end. A curve is data that
//! a job carries; what is done about it is the kernel's, or a person's.

use antiphon_types::{AttemptId, Command, Direct, DirectiveBody, Timestamp};

use super::World;
use super::draw::Lot;
use super::run::{Doing, Goal};
use crate::course::span;
use crate::faults::Loss;

/// From where on a training learns nothing more.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Curve {
    /// After so many milliseconds at its best.
    pub(super) useful_ms: f64,
    pub(super) turn: Turn,
}

/// What its loss does from there on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// It gets no lower: what was learned is good.
    Plateau,
    /// It grows without end: nothing of it is good.
    Divergence,
}

impl Curve {
    pub(super) fn draw(loss: &Loss, best_ms: f64, lot: &mut Lot) -> Option<Self> {
        let (which, where_) = (lot.unit() * 1_000.0, lot.unit());
        let plateau = f64::from(loss.plateau_permille);
        let turn = if which < plateau {
            Turn::Plateau
        } else if which < plateau + f64::from(loss.diverge_permille) {
            Turn::Divergence
        } else {
            return None;
        };
        let first = f64::from(loss.after_permille) / 1_000.0;
        let useful_ms = best_ms * (first + (1.0 - first) * where_);
        Some(Self { useful_ms, turn })
    }

    /// Which part of the work between two points comes too late.
    pub(super) fn late_part(&self, from: f64, to: f64) -> f64 {
        if to <= from {
            return 0.0;
        }
        ((to - from.max(self.useful_ms)) / (to - from)).clamp(0.0, 1.0)
    }
}

impl World<'_> {
    /// When somebody looks at the loss of an attempt that works from now on, and ends the job.
    pub(super) fn looked_at(&self, place: usize, from: Timestamp) -> Option<Timestamp> {
        let after = self.setting.faults.loss.as_ref()?.noticed_after?;
        let run = &self.runs[place];
        let curve = run.fate.curve?;
        // Without a checkpoint nothing would be left of what it has learned.
        if curve.turn == Turn::Plateau && !run.fate.saves {
            return None;
        }
        let until = span(run.until(curve.useful_ms).ceil());
        Some(from.after(until).after(after))
    }

    /// Somebody looks at a loss that has turned, and ends the job: what has learned all that it will is told to save and
    /// stop, what diverged is canceled.
    pub(super) fn looked(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        let Some(curve) = run.fate.curve else {
            return;
        };
        let works = run
            .on_mut(attempt)
            .is_some_and(|on| on.doing == Doing::Work);
        if !works || run.done_at(self.now) < curve.useful_ms {
            return;
        }
        let job = attempt.job;
        match curve.turn {
            Turn::Plateau if run.fate.attached => {
                self.try_command(Command::Direct(Direct {
                    job,
                    body: DirectiveBody::Stop,
                    reason: "its loss gets no lower".into(),
                }));
                let sent = self.state.job(job).and_then(|job| job.directives.last());
                let directive = sent.map(|directive| directive.id);
                self.give_way(attempt, directive, Goal::Job);
            }
            // Its user goes on with the last checkpoint.
            Turn::Plateau => {
                self.has_ended(place);
                self.try_command(Command::Cancel { job });
            }
            Turn::Divergence => self.try_command(Command::Cancel { job }),
        }
    }
}
