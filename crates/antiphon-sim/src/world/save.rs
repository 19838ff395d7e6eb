//! Checkpoints: those that a training takes while it runs, and the one with which it gives way; and what a stop without one
//! costs. Decides nothing about when jobs are stopped.

use antiphon_types::{
    Ack, AckBody, Action, Allocation, AttemptId, Body, Bytes, Checkpoint, DirectiveId, Exit,
    ExitClass, Millis, NodeName, NoticeCause, Observation, StopCause,
};

use super::record::Cause;
use super::run::{Doing, Goal};
use super::{Happening, World};
use crate::course::{millis, span};
use crate::faults::Interval;

/// Signals that end a process.
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

impl World<'_> {
    /// How often an attempt saves while it runs.
    pub(super) fn interval(&self, allocation: &Allocation, gpus: f64) -> Option<Millis> {
        let faults = &self.setting.faults;
        match faults.checkpoints.interval {
            Interval::Never => None,
            Interval::Every(interval) => Some(interval),
            Interval::YoungDaly => {
                let mut nodes: Vec<&NodeName> = Vec::new();
                nodes.extend(allocation.tasks.iter().map(|task| &task.node));
                nodes.dedup();
                let nodes = f64::from(u32::try_from(nodes.len()).expect("few nodes"));
                let each = |count: f64, mtbf: Option<Millis>| {
                    mtbf.map_or(0.0, |mtbf| count / millis(mtbf))
                };
                let rate = each(nodes, faults.node.map(|node| node.mtbf))
                    + each(gpus, faults.gpu.map(|gpu| gpu.mtbf))
                    + each(gpus, faults.software.map(|software| software.mtbf));
                let square = 2.0 * millis(faults.checkpoints.save) / rate;
                // Where nothing fails there is nothing to save for; a save that costs nothing is still one a minute at most.
                (rate > 0.0).then(|| span(square.sqrt().max(60_000.0)))
            }
        }
    }

    /// It is time to save and go on.
    pub(super) fn saves(&mut self, attempt: AttemptId, turn: u32) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if !run.is_on(attempt, turn) {
            return;
        }
        run.reckon(self.now);
        if let Some(on) = run.on.as_mut() {
            on.doing = Doing::Save;
        }
        self.announce_saved(attempt);
    }

    fn announce_saved(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        if let Some(on) = self.runs[place].on_mut(attempt) {
            on.turn += 1;
            let turn = on.turn;
            let at = self.now.after(self.setting.faults.checkpoints.save);
            self.announce(at, Happening::Saved(attempt, turn));
        }
    }

    /// A checkpoint is durable.
    pub(super) fn saved(&mut self, attempt: AttemptId, turn: u32) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if !run.is_on(attempt, turn) {
            return;
        }
        run.reckon(self.now);
        let Some(on) = run.on.as_mut() else {
            return;
        };
        if let Doing::GiveWay { directive, goal } = on.doing {
            return self.gone(attempt, directive, goal);
        }
        on.doing = Doing::Work;
        on.saves_at = on.interval.map(|interval| self.now.after(interval));
        run.save();
        self.report_saved(attempt);
        self.go_on(place);
    }

    /// Code that is attached says so; antiphon knows nothing of other checkpoints.
    fn report_saved(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        if !self.runs[place].fate.attached {
            return;
        }
        let step = self.step(place);
        let checkpoint = Checkpoint {
            attempt,
            step,
            path: format!("step-{step}"),
            bytes: Bytes::ZERO,
            save: self.setting.faults.checkpoints.save,
            manifest: String::new(),
            at: self.now,
        };
        self.event(Body::Observation(Observation::Checkpointed { checkpoint }));
    }

    /// Carries a stop out, as far as it is one; says whether something followed at once.
    pub(super) fn stop(&mut self, action: &Action) -> bool {
        match action {
            Action::Yield {
                attempt,
                cause,
                directive,
                ..
            } => {
                let cause = self.cause_of(cause);
                self.asked_to_stop(*attempt, cause, Some(*directive))
            }
            Action::Terminate { attempt, cause, .. } => {
                let saves = !matches!(
                    cause,
                    StopCause::Cancel | StopCause::GangBroken { .. } | StopCause::Hang
                );
                let cause = self.cause_of(cause);
                let place = self.place_of(attempt.job);
                let run = &mut self.runs[place];
                let attached = run.fate.attached;
                let doing = run.on_mut(*attempt).map(|on| on.doing);
                match doing {
                    // It saves already, and goes on with that until its grace is over.
                    None | Some(Doing::GiveWay { .. }) => false,
                    Some(Doing::Work | Doing::Save) if saves && attached => {
                        self.asked_to_stop(*attempt, cause, None)
                    }
                    Some(Doing::Work | Doing::Save | Doing::Hang) => {
                        self.cut(*attempt, cause, SIGTERM)
                    }
                }
            }
            Action::Kill { attempt, .. } => {
                let place = self.place_of(attempt.job);
                let on = self.runs[place].on_mut(*attempt);
                let cause = on.and_then(|on| on.stopped_for);
                self.cut(*attempt, cause.unwrap_or(Cause::GivenUp), SIGKILL)
            }
            Action::Launch { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => false,
        }
    }

    /// A training loop saves and ends; one that hangs does not hear it. Says whether it has ended at once.
    fn asked_to_stop(
        &mut self,
        attempt: AttemptId,
        cause: Cause,
        directive: Option<DirectiveId>,
    ) -> bool {
        let place = self.place_of(attempt.job);
        let Some(on) = self.runs[place].on_mut(attempt) else {
            return false;
        };
        on.stopped_for = Some(cause);
        on.doing != Doing::Hang && self.give_way(attempt, directive, Goal::Attempt)
    }

    /// A training loop saves and ends. Says whether it has ended at once.
    pub(super) fn give_way(
        &mut self,
        attempt: AttemptId,
        directive: Option<DirectiveId>,
        goal: Goal,
    ) -> bool {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        run.reckon(self.now);
        if self.setting.faults.checkpoints.save.is_zero() {
            self.gone(attempt, directive, goal);
            return true;
        }
        if let Some(on) = run.on_mut(attempt) {
            on.doing = Doing::GiveWay { directive, goal };
        }
        self.announce_saved(attempt);
        false
    }

    /// A training loop has saved what it has done, and ends.
    fn gone(&mut self, attempt: AttemptId, directive: Option<DirectiveId>, goal: Goal) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        run.save();
        let cause = run.on.as_ref().and_then(|on| on.stopped_for);
        run.record.preemptions += u32::from(cause == Some(Cause::Preemption));
        run.leave(self.now);
        self.report_saved(attempt);
        if let Some(directive) = directive {
            let slot = self.step(place);
            let body = AckBody::Applied { slot };
            let ack = Ack { directive, body };
            self.event(Body::Observation(Observation::Acknowledged {
                attempt,
                ack,
            }));
        }
        let class = match goal {
            Goal::Attempt => Some(ExitClass::Preempted),
            Goal::Job => {
                self.has_ended(place);
                None
            }
        };
        let exit = Exit::Code {
            code: 0,
            class,
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
    }

    /// A signal ends an attempt as it is. Says whether there was one.
    fn cut(&mut self, attempt: AttemptId, cause: Cause, signal: i32) -> bool {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on_mut(attempt).is_none() {
            return false;
        }
        run.leave(self.now);
        run.lose(cause);
        run.record.preemptions += u32::from(cause == Cause::Preemption);
        let exit = Exit::Signal {
            signal,
            class: None,
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
        true
    }

    fn cause_of(&self, cause: &StopCause) -> Cause {
        match cause {
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Idle { .. }
            | StopCause::Hold
            | StopCause::Asked { .. }
            | StopCause::Operator => Cause::Preemption,
            StopCause::Drain { node } => self.emptied_for(node),
            StopCause::Notice { cause, .. } => match cause {
                NoticeCause::Spot => Cause::Spot,
                NoticeCause::Inference | NoticeCause::Other => Cause::Preemption,
            },
            StopCause::Cancel | StopCause::Limit => Cause::GivenUp,
            StopCause::GangBroken { .. } | StopCause::Straggler { .. } | StopCause::Hang => {
                Cause::Hardware
            }
        }
    }
}
