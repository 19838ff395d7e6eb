//! What people and trainers were promised, kept apart from the kernel's own books and compared with its state after every
//! event.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{Job, JobState};
use antiphon_types::{
    Action, AttemptId, Body, Command, Event, JobId, Maintenance, Millis, NodeName, NodeSpec,
    Observation, StopCause, Timestamp,
};

use super::{Broken, Checked, Storm, must};

/// Preemptions count for so long.
const HOUR: Millis = Millis::from_secs(3_600);

/// What was promised so far, by the log.
#[derive(Debug, Clone, Default)]
pub(super) struct Promises {
    /// When SIGTERM was ordered, and the grace that was promised.
    pub(super) terminated: BTreeMap<AttemptId, (Timestamp, Millis)>,
    /// Jobs that somebody canceled, and jobs that somebody put on hold and nobody has released.
    pub(super) canceled: BTreeSet<JobId>,
    pub(super) on_hold: BTreeSet<JobId>,
    /// How jobs ended that are still known.
    ended: BTreeMap<JobId, JobState>,
    /// How many jobs have been counted as taken in; all of them were seen alive or ended.
    taken_in: u64,
    /// Jobs that have not ended.
    living: BTreeSet<JobId>,
    /// The last checkpoint that was acknowledged.
    saved: BTreeMap<JobId, (AttemptId, u64)>,
    /// The newest attempt of each job, and whether it has been settled.
    launched: BTreeMap<JobId, (AttemptId, bool)>,
    /// Attempts whose stop has begun.
    begun: BTreeSet<AttemptId>,
    /// When each job was preempted.
    preempted: BTreeMap<JobId, Vec<Timestamp>>,
    /// Nodes that take nothing, the windows that are planned, and what is offered.
    pub(super) drained: BTreeSet<NodeName>,
    /// Nodes that are to be given back, and when.
    pub(super) noticed: BTreeMap<NodeName, Timestamp>,
    pub(super) windows: Vec<Maintenance>,
    pub(super) offered: BTreeMap<NodeName, NodeSpec>,
    /// What the last event was about.
    fresh: Fresh,
}

/// What an event may have changed of what is promised.
#[derive(Debug, Clone, Default)]
struct Fresh {
    /// A launch that came while an attempt of its job was not settled.
    twice: Option<AttemptId>,
}

impl Promises {
    pub(super) fn step_saved(&self, job: JobId) -> u64 {
        self.saved.get(&job).map_or(0, |(_, step)| *step)
    }

    /// How often a job was preempted in the hour before.
    pub(super) fn preempted_lately(&self, job: JobId, now: Timestamp) -> usize {
        let times = self.preempted.get(&job).into_iter().flatten();
        times.filter(|at| at.after(HOUR) > now).count()
    }

    /// How often any was.
    pub(super) fn all_preempted_lately(&self, now: Timestamp) -> usize {
        let times = self.preempted.values().flatten();
        times.filter(|at| at.after(HOUR) > now).count()
    }

    /// Whether somebody's end has not been seen.
    pub(super) fn has_living(&self) -> bool {
        !self.living.is_empty()
    }

    /// Takes in what an event promises.
    pub(super) fn note(&mut self, event: &Event) {
        match &event.body {
            Body::Command { command, .. } => self.note_command(command, event.at),
            Body::Observation(Observation::Inventory { nodes, .. }) => {
                let named = nodes.iter().map(|node| (node.name.clone(), node.clone()));
                let before = std::mem::replace(&mut self.offered, named.collect());
                // What comes back after it was given back is anybody's again.
                let back =
                    |name: &NodeName| !before.contains_key(name) && self.offered.contains_key(name);
                self.noticed
                    .retain(|name, by| *by > event.at || !back(name));
            }
            Body::Observation(Observation::Checkpointed { checkpoint }) => {
                let saved = (checkpoint.attempt, checkpoint.step);
                self.saved.insert(checkpoint.attempt.job, saved);
            }
            Body::Decision(decision) => {
                for action in &decision.actions {
                    self.note_action(action, event.at);
                }
            }
            Body::Observation(_) | Body::Finding(_) | Body::Tick | Body::SafeMode { .. } => (),
        }
    }

    fn note_action(&mut self, action: &Action, at: Timestamp) {
        match action {
            Action::Launch { attempt, .. } => {
                let before = self.launched.insert(attempt.job, (*attempt, false));
                if before.is_some_and(|(_, settled)| !settled) {
                    self.fresh.twice = Some(*attempt);
                }
            }
            Action::Settle { attempt, .. } => {
                self.terminated.remove(attempt);
                self.begun.remove(attempt);
                self.launched.insert(attempt.job, (*attempt, true));
            }
            Action::Yield { attempt, cause, .. } => self.note_stop(*attempt, cause, at),
            Action::Terminate {
                attempt,
                cause,
                kill_at,
            } => {
                self.note_stop(*attempt, cause, at);
                self.terminated.insert(*attempt, (at, kill_at.since(at)));
            }
            Action::PutAside { node, .. } => {
                self.drained.insert(node.clone());
            }
            Action::Kill { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::Remedy { .. }
            | Action::Augment { .. }
            | Action::Abandon { .. }
            | Action::Gate(_) => (),
        }
    }

    /// A stop that begins; one that moves on to its second clock is counted once.
    fn note_stop(&mut self, attempt: AttemptId, cause: &StopCause, at: Timestamp) {
        let counts = match cause {
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Operator => true,
            StopCause::Idle { .. }
            | StopCause::Drain { .. }
            | StopCause::Notice { .. }
            | StopCause::Cancel
            | StopCause::Hold
            | StopCause::Limit
            | StopCause::Straggler { .. }
            | StopCause::Hang
            | StopCause::Asked { .. }
            | StopCause::GangBroken { .. } => false,
        };
        if self.begun.insert(attempt) && counts {
            let times = self.preempted.entry(attempt.job).or_default();
            times.retain(|time| time.after(HOUR) > at);
            times.push(at);
        }
    }

    fn note_command(&mut self, command: &Command, at: Timestamp) {
        match command {
            Command::Cancel { job } => {
                self.canceled.insert(*job);
            }
            Command::Hold { job } => {
                self.on_hold.insert(*job);
            }
            Command::Release { job } => {
                self.on_hold.remove(job);
            }
            Command::Drain { node, .. } => {
                self.drained.insert(node.clone());
            }
            Command::Undrain { node } => {
                self.drained.remove(node);
                self.noticed.remove(node);
                for window in &mut self.windows {
                    window.nodes.retain(|other| other != node);
                }
            }
            Command::Maintain(window) => self.windows.push(window.clone()),
            Command::Notice(notice) => {
                if notice.gpus.is_none() {
                    let by = at.after(notice.within);
                    self.noticed.insert(notice.node.clone(), by);
                }
            }
            Command::Submit { .. }
            | Command::Preempt { .. }
            | Command::SetClass { .. }
            | Command::Direct(_)
            | Command::Pause { .. }
            | Command::Unpause
            | Command::Approve { .. }
            | Command::Undo { .. }
            | Command::Ask(_)
            | Command::SetPolicy { .. }
            | Command::SetTeams { .. }
            | Command::SetGate { .. } => (),
        }
    }
}

impl Storm {
    /// No job is lost or runs twice, an end is for good, a cancel ends in nothing else, what was acknowledged is kept.
    pub(super) fn check_state(&mut self) -> Checked {
        let state = &self.server.state;
        let promises = &mut self.promises;
        if let Some(attempt) = promises.fresh.twice.take() {
            return Err(Broken(format!(
                "{attempt} is launched while another attempt is not settled"
            )));
        }
        let newest = state.newest_job().map_or(0, |job| job.0);
        must(newest >= promises.taken_in, || {
            format!("job-{} is lost", promises.taken_in)
        })?;
        for number in promises.taken_in + 1..=newest {
            promises.living.insert(JobId(number));
        }
        promises.taken_in = newest;
        let mut over = Vec::new();
        for id in &promises.living {
            let Some(job) = state.job(*id) else {
                // Forgotten in the event that ended it: an ended job alone may be.
                over.push((*id, None));
                continue;
            };
            if job.state.is_ended() {
                let canceled = matches!(job.state, JobState::Canceled { .. });
                let asked = promises.canceled.contains(id);
                // A data job is canceled with the job that it makes data for, or once that one needs no more.
                let with_parent = job.makes_data_for.is_some_and(|parent| {
                    let ended = |parent: &Job| parent.state.is_ended();
                    promises.canceled.contains(&parent) || state.job(parent).is_none_or(ended)
                });
                must(canceled == asked || (canceled && with_parent), || {
                    format!(
                        "{id} is {}; whether it was canceled: {asked}",
                        job.state.name()
                    )
                })?;
                over.push((*id, Some(job.state.clone())));
                continue;
            }
            let kept = job
                .checkpoint
                .as_ref()
                .map(|kept| (kept.attempt, kept.step));
            let saved = promises.saved.get(id).copied();
            must(kept == saved, || {
                format!("{id} would resume from {kept:?}, acknowledged was {saved:?}")
            })?;
        }
        let forgets = state.policy().ended_jobs_max;
        for (id, end) in over {
            promises.living.remove(&id);
            promises.saved.remove(&id);
            promises.launched.remove(&id);
            promises.preempted.remove(&id);
            match end {
                Some(end) => drop(promises.ended.insert(id, end)),
                None => must(
                    state
                        .jobs()
                        .values()
                        .filter(|job| job.state.is_ended())
                        .count()
                        >= usize::try_from(forgets).expect("few"),
                    || format!("{id} is lost"),
                )?,
            }
        }
        let mut forgotten = Vec::new();
        for (id, end) in &promises.ended {
            match state.job(*id) {
                Some(job) => must(job.state == *end, || {
                    format!("{id} had ended, and is {}", job.state.name())
                })?,
                None => forgotten.push(*id),
            }
        }
        for id in forgotten {
            promises.ended.remove(&id);
        }
        Ok(())
    }
}
