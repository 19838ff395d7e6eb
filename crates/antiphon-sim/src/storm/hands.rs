//! The server's hand and the backend below it: carries orders out late, again after a restart or not at all, looks at what
//! runs, and never takes a failed look for an end.

use antiphon_kernel::{JobState, StopPhase, TaskPhase};
use antiphon_types::{AttemptId, Exit, Observation, TaskId};

use super::processes::{Living, Truth};
use super::{Broken, Checked, Fault, Storm, must};

/// What a hand is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Launch,
    Terminate,
    Kill,
    Look,
    Forget,
}

impl Storm {
    /// Carries one order of one attempt out, the oldest first, unless the backend cannot be reached.
    pub(super) fn carry_one(&mut self) -> Checked {
        if self.outage {
            return Ok(());
        }
        let waiting: Vec<AttemptId> = self.hands.keys().copied().collect();
        let Some(attempt) = self.draw.pick(&waiting) else {
            return Ok(());
        };
        self.carry(attempt)?;
        if !self.calm && self.draw.below(600) < self.weights.of(Fault::CrashBetweenOrders).into() {
            self.strike(Fault::CrashBetweenOrders);
            return self.crash(Vec::new());
        }
        Ok(())
    }

    /// Carries the oldest order of an attempt out.
    pub(super) fn carry(&mut self, attempt: AttemptId) -> Checked {
        let Some(orders) = self.hands.get_mut(&attempt) else {
            return Ok(());
        };
        let order = orders.remove(0);
        if orders.is_empty() {
            self.hands.remove(&attempt);
        }
        match order {
            Order::Launch => self.launch(attempt)?,
            Order::Terminate => self.sigterm(attempt),
            Order::Kill => self.sigkill(attempt)?,
            Order::Look => (),
            Order::Forget => return self.forget(attempt),
        }
        self.look(attempt);
        Ok(())
    }

    /// The launch is made from the committed state: nothing where the attempt is no longer starting.
    fn launch(&mut self, attempt: AttemptId) -> Checked {
        let job = self.server.state.job(attempt.job);
        let Some((job, active)) = job.and_then(|job| match &job.state {
            JobState::Starting { active } if active.attempt == attempt => Some((job, active)),
            _ => None,
        }) else {
            return Ok(());
        };
        // Handed over before, as its name says: doing it again does nothing.
        if self.processes.contains_key(&attempt) {
            return Ok(());
        }
        let resume = job.checkpoint.as_ref().map_or(0, |saved| saved.step);
        let living = Living::new(
            &job.spec,
            &active.allocation,
            resume,
            self.behavior(attempt.job),
        );
        let tasks: Vec<TaskId> = active.tasks().map(|(task, _)| task).collect();
        let acknowledged = self.promises.step_saved(attempt.job);
        must(resume == acknowledged, || {
            format!("{attempt} resumes from step {resume}, {acknowledged} was acknowledged")
        })?;
        self.runs_alone(attempt)?;
        self.fits_what_runs(attempt, &living)?;
        let failed = self.weights.of(Fault::FailedLaunch);
        let handed = if !self.calm && self.draw.below(60) < failed.into() {
            self.strike(Fault::FailedLaunch);
            self.draw.below(u64::try_from(tasks.len()).expect("few"))
        } else {
            u64::MAX
        };
        let mut living = living;
        for (place, task) in (0..).zip(tasks) {
            if place < handed {
                living.tasks.insert(task, Truth::Launched);
            } else {
                let error = "the backend said no".into();
                let exit = Exit::NotLaunched { error };
                self.send(Observation::TaskEnded { task, exit });
            }
        }
        self.attempts += 1;
        self.processes.insert(attempt, living);
        Ok(())
    }

    /// No other attempt of the job lives.
    fn runs_alone(&self, attempt: AttemptId) -> Checked {
        let of_job = self.processes.iter().filter(|(other, living)| {
            other.job == attempt.job && **other != attempt && !living.is_gone()
        });
        of_job
            .map(|(other, _)| other)
            .next()
            .map_or(Ok(()), |other| {
                Err(Broken(format!("{attempt} starts while {other} lives")))
            })
    }

    fn sigterm(&mut self, attempt: AttemptId) {
        let stubborn = self.behavior(attempt.job).stubborn;
        if stubborn {
            return;
        }
        // Some trainers that are asked to go say that they are done.
        let clean = !self.calm && self.draw.one_in(6);
        self.end_all(attempt, |truth| match truth {
            Truth::Launched => Exit::Superseded,
            _ if clean => super::processes::code(0, None),
            _ => super::processes::signal(15),
        });
    }

    fn sigkill(&mut self, attempt: AttemptId) -> Checked {
        let job = self.server.state.job(attempt.job);
        let killed = job.is_some_and(|job| {
            let phase = StopPhase::Killed;
            matches!(&job.state, JobState::Stopping { active, phase: at, .. } if active.attempt == attempt && *at == phase)
        });
        let current = antiphon_kernel::is_current(&self.server.state, attempt);
        must(killed || !current, || {
            format!("SIGKILL to {attempt}, whose log does not say so")
        })?;
        self.end_all(attempt, |truth| match truth {
            Truth::Launched => Exit::Superseded,
            Truth::Running | Truth::Ended(_) => super::processes::signal(9),
        });
        Ok(())
    }

    fn forget(&mut self, attempt: AttemptId) -> Checked {
        let living = self.processes.remove(&attempt);
        let gone = living.is_none_or(|living| living.is_gone());
        must(gone, || {
            format!("{attempt} is forgotten while a task lives")
        })
    }

    /// After a restart nobody gives that order any more.
    pub(super) fn forget_what_is_over(&mut self) -> Checked {
        let state = &self.server.state;
        let over: Vec<AttemptId> = self
            .processes
            .keys()
            .filter(|attempt| !antiphon_kernel::is_current(state, **attempt))
            .copied()
            .collect();
        over.into_iter()
            .try_for_each(|attempt| self.forget(attempt))
    }

    /// Compares what runs with what the log says, and reports the difference.
    pub(super) fn look(&mut self, attempt: AttemptId) {
        if self.outage {
            return;
        }
        let job = self.server.state.job(attempt.job);
        let Some((job, active)) = job.and_then(|job| {
            let active = job.state.active()?;
            (active.attempt == attempt).then_some((job, active))
        }) else {
            return;
        };
        let stopping = matches!(job.state, JobState::Stopping { .. });
        let living = self.processes.get(&attempt);
        let mut found = Vec::new();
        let mut absent = false;
        for (task, phase) in active.tasks() {
            let seen = living.and_then(|living| living.tasks.get(&task));
            match (phase, seen) {
                (TaskPhase::Launched, Some(Truth::Running)) => {
                    found.push(Observation::TaskStarted { task });
                }
                (TaskPhase::Launched | TaskPhase::Started, Some(Truth::Ended(exit))) => {
                    let exit = exit.clone();
                    found.push(Observation::TaskEnded { task, exit });
                }
                (TaskPhase::Started, None) => {
                    let evidence = "nobody knows it any more".into();
                    let exit = Exit::Lost { evidence };
                    found.push(Observation::TaskEnded { task, exit });
                }
                (TaskPhase::Launched, None) if stopping => {
                    let exit = Exit::Superseded;
                    found.push(Observation::TaskEnded { task, exit });
                }
                (TaskPhase::Launched, None) => match living {
                    // It was handed over without this task, and the report of that was lost.
                    Some(_) => {
                        let error = "the backend said no".into();
                        let exit = Exit::NotLaunched { error };
                        found.push(Observation::TaskEnded { task, exit });
                    }
                    None => absent = true,
                },
                (TaskPhase::Ended { .. }, _)
                | (TaskPhase::Launched, Some(Truth::Launched))
                | (TaskPhase::Started, Some(Truth::Launched | Truth::Running)) => (),
            }
        }
        // Positively not there, though it should start.
        if absent && !self.hands.contains_key(&attempt) {
            self.hands.insert(attempt, vec![Order::Launch]);
        }
        found.into_iter().for_each(|report| self.send(report));
    }
}
