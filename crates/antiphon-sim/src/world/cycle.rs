//! A cycle of the kernel at one time: it decides until nothing follows, a published policy in its place where one is asked.

use antiphon_kernel::{check, decide, next_timer};
use antiphon_types::{Action, Body, Command, Decision, Millis, Timestamp};

use super::{BEGIN, Decider, Knowledge, World, since};
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
        loop {
            let began = (self.stopwatch)();
            let mut decision = decide(&self.state);
            if !kernel && round && !settles(&decision) {
                self.ask_peer(&mut decision);
            }
            self.tally.cycles += 1;
            if let Err(wrong) = check::decision(&self.state, &decision) {
                panic!("a decision that does not fit at {:?}: {wrong}", self.now);
            }
            if decision.actions.is_empty() {
                self.time_cycle(began);
                break;
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
                break;
            }
        }
        if in_rounds && round && kernel {
            let reason = "until the next round".into();
            self.command(Command::Pause { reason });
        }
        // In rounds nothing is decided between them, and whoever is asked to stop does so at once.
        self.wake_at = if self.to_come == 0 || in_rounds {
            None
        } else {
            next_timer(&self.state)
                .into_iter()
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
        decision.actions.extend(actions);
    }

    /// What a published policy sees.
    fn scene(&self) -> Scene<'_> {
        let known = self.setting.knowledge == Knowledge::Durations;
        let jobs = self.runs.iter().enumerate().filter_map(|(place, run)| {
            let id = run.id?;
            if run.record.ended.is_some() {
                return None;
            }
            let held = run
                .on
                .as_ref()
                .map(|on| on.gpus * since(on.launched, self.now));
            Some(Live {
                place,
                id,
                job: &self.workload.jobs[place],
                submitted: BEGIN.after(run.record.submitted),
                attained_gpu_ms: run.record.held_gpu_ms + held.unwrap_or(0.0),
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
            Action::Yield {
                attempt, directive, ..
            } => {
                self.give_way(*attempt, Some(*directive));
                true
            }
            Action::Terminate { attempt, .. } => {
                self.give_way(*attempt, None);
                true
            }
            Action::Settle { .. } => true,
            Action::Kill { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Abandon { .. } => false,
        }
    }
}

/// Whether a decision settles attempts: what they held is free only after it.
fn settles(decision: &Decision) -> bool {
    let settles = |action: &Action| matches!(action, Action::Settle { .. });
    decision.actions.iter().any(settles)
}
