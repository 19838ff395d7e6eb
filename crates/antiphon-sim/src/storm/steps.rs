//! One step of a storm: time goes on, what is due happens, and one thing more that is drawn.

use antiphon_types::{Millis, Observation};

use super::processes::Truth;
use super::server::Input;
use super::{Checked, Fault, Storm};

/// Reports that may arrive again.
const ARRIVED_KEPT: usize = 64;

/// What may happen.
#[derive(Debug, Clone, Copy)]
enum Step {
    Submit,
    Start,
    Speak,
    Save,
    Carry,
    Look,
    Wait,
    Again,
    NodeDown,
    NodeRepaired,
    NodeCleared,
    GpuLost,
    Outage,
    OutageEnds,
    FailTask,
    User,
    Operator,
    Settings,
    Finding,
}

impl Storm {
    pub(super) fn step(&mut self) -> Checked {
        self.now = self.now.after(Millis::from_millis(self.draw.below(400)));
        self.due()?;
        let living = self.jobs_where(|state| !state.is_ended()).len();
        let weight = |fault| self.weights.of(fault);
        let launched = !self.processes.is_empty();
        let steps = [
            (if living < self.crowd { 24 } else { 1 }, Step::Submit),
            (if launched { 60 } else { 0 }, Step::Start),
            (if launched { 24 } else { 0 }, Step::Speak),
            (if launched { 8 } else { 0 }, Step::Save),
            (if self.hands.is_empty() { 0 } else { 60 }, Step::Carry),
            (4, Step::Look),
            (24, Step::Wait),
            (weight(Fault::OldReport), Step::Again),
            (weight(Fault::NodeDown), Step::NodeDown),
            (
                if self.machines.is_whole() { 0 } else { 8 },
                Step::NodeRepaired,
            ),
            // Where nobody did, a storm would end with every node put aside and a queue that only grows.
            (
                if self.promises.drained.is_empty() {
                    0
                } else {
                    4
                },
                Step::NodeCleared,
            ),
            (weight(Fault::GpuLost), Step::GpuLost),
            (weight(Fault::Outage), Step::Outage),
            (if self.outage { 12 } else { 0 }, Step::OutageEnds),
            (2 * weight(Fault::FailedTask), Step::FailTask),
            (weight(Fault::User), Step::User),
            (weight(Fault::Operator), Step::Operator),
            (weight(Fault::Settings), Step::Settings),
            (weight(Fault::Finding), Step::Finding),
        ];
        match self.draw.weighted(&steps) {
            Step::Submit => self.submit(),
            Step::Start => self.start_some(),
            Step::Speak => self.speak_some(),
            Step::Save => {
                let trainers = self.trainers();
                if let Some(attempt) = self.draw.pick(&trainers) {
                    self.save(attempt);
                    return self.speak(attempt);
                }
                Ok(())
            }
            Step::Carry => self.carry_one(),
            Step::Look => {
                let known: Vec<_> = self.server.state.active_jobs().collect();
                let known: Vec<_> = known
                    .into_iter()
                    .filter_map(|job| job.state.active().map(|active| active.attempt))
                    .collect();
                if let Some(attempt) = self.draw.pick(&known) {
                    self.look(attempt);
                }
                Ok(())
            }
            Step::Wait => {
                let most = self.draw.weighted(&[(6, 5_000), (3, 60_000), (1, 900_000)]);
                self.wait(most)
            }
            Step::Again => {
                let arrived = std::mem::take(&mut self.arrived);
                let report = self.draw.pick(&arrived);
                self.arrived = arrived;
                match report {
                    Some(report) => {
                        self.strike(Fault::OldReport);
                        self.turn(vec![Input::Observation(report)])
                    }
                    None => Ok(()),
                }
            }
            Step::NodeDown => self.lose_node(),
            Step::NodeRepaired => self.repair_node(),
            Step::NodeCleared => self.clear_node(),
            Step::GpuLost => self.lose_gpu(),
            Step::Outage => {
                self.outage = true;
                self.strike(Fault::Outage);
                Ok(())
            }
            Step::OutageEnds => {
                self.outage = false;
                Ok(())
            }
            Step::FailTask => {
                self.fail_some();
                Ok(())
            }
            Step::User => self.user(),
            Step::Operator => self.operator(),
            Step::Settings => self.settings(),
            Step::Finding => self.find(),
        }
    }

    /// Time goes on, from timer to timer.
    fn wait(&mut self, most_ms: u64) -> Checked {
        let until = self
            .now
            .after(Millis::from_millis(self.draw.below(most_ms)));
        for _ in 0..1_000 {
            let next = [self.server.wake_at, self.next_end(), self.next_report()];
            let Some(next) = next.into_iter().flatten().min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            self.due()?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// What is due by now: ends, reports, answers that never came, timers.
    fn due(&mut self) -> Checked {
        self.done_ones_end();
        let again = std::mem::take(&mut self.unanswered);
        for input in again {
            self.turn(vec![input])?;
        }
        while self.next_report().is_some_and(|at| at <= self.now) {
            // Reports of one moment may share a commit.
            let batch = self.draw.between(1, 4);
            let mut inputs = Vec::new();
            for _ in 0..batch {
                let Some(entry) = self
                    .wire
                    .first_entry()
                    .filter(|entry| entry.key().0 <= self.now)
                else {
                    break;
                };
                inputs.push(entry.remove());
            }
            inputs.iter().for_each(|report| self.arrived_now(report));
            self.turn(inputs.into_iter().map(Input::Observation).collect())?;
        }
        if self.server.wake_at.is_some_and(|at| at <= self.now) {
            self.turn(Vec::new())?;
        }
        Ok(())
    }

    /// When the next report arrives; none comes through while nobody reaches the backend.
    fn next_report(&self) -> Option<antiphon_types::Timestamp> {
        let first = self.wire.first_key_value().filter(|_| !self.outage);
        first.map(|((at, _), _)| *at)
    }

    pub(super) fn arrived_now(&mut self, report: &Observation) {
        if matches!(
            report,
            Observation::Checkpointed { .. } | Observation::Acknowledged { .. }
        ) {
            // A trainer numbers what it sends: the server knows an old one.
            return;
        }
        self.arrived.push(report.clone());
        if self.arrived.len() > ARRIVED_KEPT {
            self.arrived.remove(0);
        }
    }

    /// A report sets out. It may be lost, take long, or arrive twice.
    pub(super) fn send(&mut self, report: Observation) {
        let weight = |fault| u64::from(self.weights.of(fault));
        let (lost, late, doubled) = (
            weight(Fault::LostReport),
            weight(Fault::LateReport),
            weight(Fault::DoubledReport),
        );
        let mut travels = self.draw.below(2_000);
        let mut times = 1;
        if !self.calm {
            if self.draw.below(40) < lost {
                return self.strike(Fault::LostReport);
            }
            if self.draw.below(30) < late {
                self.strike(Fault::LateReport);
                travels = self.draw.below(3_600_000);
            }
            if self.draw.below(30) < doubled {
                self.strike(Fault::DoubledReport);
                times = 2;
            }
        } else {
            travels = 0;
        }
        for _ in 0..times {
            self.sent += 1;
            let at = self.now.after(Millis::from_millis(travels));
            self.wire.insert((at, self.sent), report.clone());
            travels += self.draw.below(60_000);
        }
    }

    fn start_some(&mut self) -> Checked {
        let launched = self.tasks(|truth| *truth == Truth::Launched);
        let Some(task) = self.draw.pick(&launched) else {
            return Ok(());
        };
        // Most gangs start as one.
        let all = !self.draw.one_in(4);
        for other in launched {
            if other == task || (all && other.attempt == task.attempt) {
                self.start(&other);
            }
        }
        Ok(())
    }

    fn speak_some(&mut self) -> Checked {
        let trainers = self.trainers();
        match self.draw.pick(&trainers) {
            Some(attempt) => self.speak(attempt),
            None => Ok(()),
        }
    }
}
