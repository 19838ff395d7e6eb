//! A cycle of the kernel at one time: it decides until nothing follows, a published policy in its place where one is asked.

use antiphon_kernel::{check, decide, next_timer};
use antiphon_types::{Action, AttemptId, Body, Command, Decision, Millis, Outcome, Timestamp};

use super::{BEGIN, Decider, Knowledge, World};
use crate::peer::{Live, Scene};

impl World<'_> {
    /// Decides until nothing more follows at this time.
    pub(super) fn settle(&mut self) {
        let in_rounds = self.setting.cluster.rounds.is_some();
        let round = std::mem::take(&mut self.round_due) || !in_rounds;
        let kernel = matches!(self.decider, Decider::Kernel);
        if in_rounds && round && kernel {
            self.command(Command::Unpause);
        }
        let wake_at = loop {
            let began = (self.stopwatch)();
            let mut decision = decide(&self.state);
            if !kernel && round && !settles(&decision) {
                self.ask_peer(&mut decision);
            }
            self.tally.cycles += 1;
            if let Err(wrong) = check::decision(&self.state, &decision) {
                panic!("a decision that does not fit at {:?}: {wrong}", self.now);
            }
            let wake_at = decision.wake_at;
            if decision.actions.is_empty() {
                self.time_cycle(began);
                break wake_at;
            }
            let again = decision.again || !kernel;
            let actions = decision.actions.clone();
            self.event(Body::Decision(decision));
            self.time_cycle(began);
            let mut followed = false;
            for action in &actions {
                followed |= self.carry_out(action);
            }
            if !again && !followed {
                break wake_at;
            }
        };
        if in_rounds && round && kernel {
            let reason = "until the next round".into();
            self.command(Command::Pause { reason });
        }
        // In rounds nothing is decided between them, and whoever is asked to stop does so at once.
        self.wake_at = if self.to_come == 0 || in_rounds {
            None
        } else {
            // A published policy that decides in the kernel's place has times of its own.
            let kernels = wake_at.filter(|_| kernel).into_iter();
            kernels
                .chain(next_timer(&self.state))
                .chain(self.peer_wakes_at())
                .min()
        };
    }

    fn time_cycle(&mut self, began: u64) {
        let us = (self.stopwatch)().saturating_sub(began) / 1_000;
        let us = u32::try_from(us).unwrap_or(u32::MAX);
        self.tally.cycle_us.push(us);
    }

    fn peer_wakes_at(&mut self) -> Option<Timestamp> {
        if self.setting.cluster.rounds.is_some() {
            return None;
        }
        let Decider::Peer(mut peer) = std::mem::replace(&mut self.decider, Decider::Kernel) else {
            return None;
        };
        let at = peer.wake_at(&self.scene());
        self.decider = Decider::Peer(peer);
        at.map(|at| at.max(self.now.after(Millis::from_millis(1))))
    }

    fn ask_peer(&mut self, decision: &mut Decision) {
        let Decider::Peer(mut peer) = std::mem::replace(&mut self.decider, Decider::Kernel) else {
            return;
        };
        let actions = peer.decide(&self.scene());
        self.decider = Decider::Peer(peer);
        let actions = actions.into_iter().filter(|action| self.is_due(action));
        decision.actions.extend(actions);
    }

    /// Published policies know nothing of saves that take time, nor of waits before a retry: whoever is saving has been asked
    /// already, and who has to wait is not launched.
    fn is_due(&self, action: &Action) -> bool {
        match action {
            Action::Terminate { attempt, .. } => {
                let on = self.runs[self.place_of(attempt.job)].on.as_ref();
                on.is_none_or(|on| on.stopped_for.is_none())
            }
            Action::Launch { attempt, .. } => {
                self.runs[self.place_of(attempt.job)].not_before <= self.now
            }
            Action::Yield { .. }
            | Action::Kill { .. }
            | Action::Settle { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => true,
        }
    }

    /// What a published policy sees.
    fn scene(&self) -> Scene<'_> {
        let known = self.setting.knowledge == Knowledge::Durations;
        let jobs = self.here.iter().filter_map(|&place| {
            let run = &self.runs[place];
            let id = run.id?;
            if run.is_over() {
                return None;
            }
            Some(Live {
                place,
                id,
                job: &self.workload.jobs[place],
                submitted: BEGIN.after(run.record.submitted),
                attained_gpu_ms: run.held_gpu_ms(self.now),
                done: run.done_at(self.now),
                best_ms: (known || self.setting.cluster.table.is_some())
                    .then_some(run.record.best_ms),
                course: &run.course,
                site: run.on.as_ref().map(|on| on.site),
            })
        });
        Scene {
            state: &self.state,
            now: self.now,
            cluster: &self.setting.cluster,
            gpu_types: &self.gpu_types,
            jobs: jobs.collect(),
        }
    }

    /// Carries an action out; says whether something followed at once.
    fn carry_out(&mut self, action: &Action) -> bool {
        match action {
            Action::Launch {
                attempt,
                allocation,
                ..
            } => {
                self.launch(*attempt, allocation);
                false
            }
            Action::Yield { .. } | Action::Terminate { .. } | Action::Kill { .. } => {
                self.stop(action)
            }
            Action::Settle { attempt, outcome } => {
                self.settled(*attempt, outcome);
                true
            }
            Action::PutAside { .. } => {
                self.look_after(action);
                false
            }
            Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => false,
        }
    }

    /// The kernel has said what becomes of a job whose attempt has ended.
    fn settled(&mut self, attempt: AttemptId, outcome: &Outcome) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        let class = match outcome {
            Outcome::Failed { class } => Some(*class),
            Outcome::Canceled => None,
            Outcome::Retried { not_before, .. } => {
                run.not_before = *not_before;
                return;
            }
            Outcome::Succeeded | Outcome::Held | Outcome::Requeued => return,
        };
        // What somebody ended because it had learned enough was done before it was canceled.
        if !run.is_over() {
            run.record.failed = Some((self.now.since(BEGIN), class));
            self.here.remove(&place);
            run.give_up();
            self.to_come -= 1;
        }
    }
}

/// Whether a decision settles attempts: what they held is free only after it.
fn settles(decision: &Decision) -> bool {
    let settles = |action: &Action| matches!(action, Action::Settle { .. });
    decision.actions.iter().any(settles)
}
