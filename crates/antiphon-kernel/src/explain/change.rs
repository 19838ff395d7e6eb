//! The smallest change that would start a job now: tried on a copy, so that what is said is so.

use std::fmt;

use antiphon_types::{
    Action, Class, Decision, Event, Exit, GpuAmount, JobId, Millis, NodeName, Observation, Seq,
    Span, TaskId, WaitReason,
};
use serde::{Deserialize, Serialize};

use super::blocked::is_drained;
use super::reasons;
use crate::apply::apply;
use crate::decide::decide;
use crate::jobs::{Job, JobState};
use crate::state::{Mode, State};

/// Changes that are tried for one answer: each copies the state.
const TRIES_MAX: usize = 24;

/// Something that a person could change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Let it run.
    Release,
    /// Let antiphon decide.
    Unpause,
    /// Let it run no longer than this, so that it ends before others need its place.
    TimeLimit {
        /// The limit.
        limit: Millis,
    },
    /// Let it spread further.
    Span {
        /// How far.
        span: Span,
    },
    /// Take any GPU type.
    AnyGpuType,
    /// Ask for fewer GPUs.
    Gpus {
        /// How many.
        gpus: GpuAmount,
    },
    /// Ask for less service: what a quota or budget does not cover.
    Class {
        /// The class.
        class: Class,
    },
    /// Take tasks on a node again.
    Undrain {
        /// The node.
        node: NodeName,
    },
    /// Raise a team's limit.
    TeamLimit {
        /// The team.
        team: String,
        /// The new limit.
        limit: GpuAmount,
    },
    /// End another job.
    End {
        /// The job.
        job: JobId,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release => f.write_str("release it"),
            Self::Unpause => f.write_str("`antiphon unpause`"),
            Self::TimeLimit { limit } => {
                // As it stands in a job file, which takes one unit.
                let seconds = limit.as_millis() / 1_000;
                match seconds {
                    _ if seconds.is_multiple_of(3_600) => {
                        write!(f, "`time_limit = \"{}h\"`", seconds / 3_600)
                    }
                    _ if seconds.is_multiple_of(60) => {
                        write!(f, "`time_limit = \"{}m\"`", seconds / 60)
                    }
                    _ => write!(f, "`time_limit = \"{seconds}s\"`"),
                }
            }
            Self::Span { span } => write!(f, "`span = \"{span}\"`"),
            Self::AnyGpuType => f.write_str("any `gpu_type`"),
            Self::Gpus { gpus } => write!(f, "`gpus = {gpus}`"),
            Self::Class { class } => write!(f, "`class = \"{class}\"`"),
            Self::Undrain { node } => write!(f, "`antiphon drain --undo {node}`"),
            Self::TeamLimit { team, limit } => {
                write!(f, "a limit of {limit} GPUs for team `{team}`")
            }
            Self::End { job } => write!(f, "the end of {job}"),
        }
    }
}

/// The smallest change with which the job starts in the next cycle: what costs nobody anything first, another job's end
/// last. Nothing where no single change does.
#[must_use]
pub fn smallest_change(state: &State, job: &Job) -> Option<Change> {
    let waits = reasons(state, job, state.now);
    if waits.is_empty() || waits.first() == Some(&WaitReason::Turn) {
        return None;
    }
    let candidates = candidates(state, job, &waits);
    candidates
        .into_iter()
        .take(TRIES_MAX)
        .find(|change| starts(&altered(state, job.id, change), job.id))
}

fn candidates(state: &State, job: &Job, waits: &[WaitReason]) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut holders = Vec::new();
    for reason in waits {
        match reason {
            WaitReason::Held => changes.push(Change::Release),
            WaitReason::Paused { .. } => changes.push(Change::Unpause),
            WaitReason::Behind {
                starts_in: Some(left),
                ..
            } if left.as_millis() >= 1_000 => {
                changes.push(Change::TimeLimit {
                    limit: limit_within(*left),
                });
            }
            WaitReason::Maintenance { left, .. } if left.as_millis() >= 1_000 => {
                changes.push(Change::TimeLimit {
                    limit: limit_within(*left),
                });
            }
            WaitReason::TeamLimit {
                team,
                allocated,
                asked,
                gpu_type: None,
                ..
            } => changes.push(Change::TeamLimit {
                team: team.clone(),
                limit: *allocated + *asked,
            }),
            WaitReason::Span { .. } => changes.extend(wider(job)),
            WaitReason::Gpus { holders: held, .. } => holders.extend(held.iter().map(|h| h.job)),
            WaitReason::After { .. }
            | WaitReason::AfterEnd { .. }
            | WaitReason::AfterStart { .. }
            | WaitReason::NotBefore { .. }
            | WaitReason::Throttled { .. }
            | WaitReason::OverBudget { .. }
            | WaitReason::OverQuota { .. }
            | WaitReason::Resource { .. }
            | WaitReason::SafeMode { .. }
            | WaitReason::BackOff { .. }
            | WaitReason::Victims { .. }
            | WaitReason::CpusOrMemory { .. }
            | WaitReason::Behind { .. }
            | WaitReason::Maintenance { .. }
            | WaitReason::TeamLimit { .. }
            | WaitReason::Gate { .. }
            | WaitReason::Turn => (),
        }
    }
    let single = job.spec.roles.len() == 1 && job.spec.roles[0].alternatives.is_empty();
    if single && job.spec.roles[0].shape.gpu_type.is_some() {
        changes.push(Change::AnyGpuType);
    }
    let drained = state.nodes().filter(|node| is_drained(node));
    changes.extend(drained.take(4).map(|node| Change::Undrain {
        node: node.spec.name.clone(),
    }));
    if single {
        changes.extend(fewer(job));
    }
    // The smallest holder whose end is enough.
    holders.reverse();
    changes.extend(holders.into_iter().map(|job| Change::End { job }));
    changes
}

/// A time limit that surely ends within a span, for all in one band of run times count alike; in whole minutes, or in
/// seconds.
fn limit_within(left: Millis) -> Millis {
    let seconds = left.as_millis() / 8 * 6 / 1_000;
    let whole = if seconds < 120 { 1 } else { 60 };
    Millis::from_secs((seconds / whole * whole).max(1))
}

fn wider(job: &Job) -> impl Iterator<Item = Change> {
    let span = job.spec.roles.iter().map(|role| role.shape.span).min();
    let spans = Span::ALL.into_iter();
    spans
        .filter(move |wider| span.is_some_and(|span| *wider > span))
        .map(|span| Change::Span { span })
}

/// Fewer GPUs, halving: what parallel training divides into.
fn fewer(job: &Job) -> Vec<Change> {
    let Some(mut gpus) = job.spec.gpus().whole() else {
        return Vec::new();
    };
    let mut changes = Vec::new();
    while gpus.is_multiple_of(2) && gpus > 1 {
        gpus /= 2;
        changes.push(Change::Gpus {
            gpus: GpuAmount::from_gpus(gpus),
        });
    }
    changes
}

/// A copy in which a change has been made.
#[must_use]
pub fn altered(state: &State, id: JobId, change: &Change) -> State {
    let mut copy = state.clone();
    match change {
        Change::Release => copy.release_for_trial(id),
        Change::Unpause => copy.known.mode = Mode::Deciding,
        Change::TimeLimit { limit } => copy.respecify(id, |job| job.spec.time_limit = Some(*limit)),
        Change::Span { span } => copy.respecify(id, |job| {
            for role in &mut job.spec.roles {
                role.shape.span = role.shape.span.max(*span);
            }
        }),
        Change::AnyGpuType => copy.respecify(id, |job| {
            for role in &mut job.spec.roles {
                role.shape.gpu_type = None;
            }
        }),
        Change::Gpus { gpus } => copy.respecify(id, |job| {
            let shape = &mut job.spec.roles[0].shape;
            shape.gpus = *gpus;
            shape.tasks = antiphon_types::Tasks::Fewest;
        }),
        Change::Class { class } => copy.respecify(id, |job| job.spec.class = *class),
        Change::Undrain { node } => {
            let command = antiphon_types::Command::Undrain { node: node.clone() };
            log(&mut copy, command_body(command));
        }
        Change::TeamLimit { team, limit } => {
            let mut specs = copy.teams.specs().to_vec();
            for spec in specs.iter_mut().filter(|spec| spec.name == *team) {
                spec.limit.all = Some(*limit);
            }
            log(
                &mut copy,
                command_body(antiphon_types::Command::SetTeams { teams: specs }),
            );
        }
        Change::End { job } => end(&mut copy, *job),
    }
    copy
}

fn command_body(command: antiphon_types::Command) -> antiphon_types::Body {
    antiphon_types::Body::Command {
        by: String::new(),
        id: None,
        command,
    }
}

fn log(state: &mut State, body: antiphon_types::Body) {
    let event = Event {
        seq: Seq(state.seq.0 + 1),
        at: state.now,
        body,
    };
    apply(state, &event);
}

/// Ends a job's attempt as if it had finished.
fn end(state: &mut State, id: JobId) {
    let tasks: Vec<TaskId> = state.jobs[&id]
        .state
        .active()
        .map(|active| active.tasks().map(|(task, _)| task).collect())
        .unwrap_or_default();
    for task in tasks {
        let exit = Exit::Code {
            code: 0,
            class: None,
            evidence: String::new(),
        };
        let ended = Observation::TaskEnded { task, exit };
        log(state, antiphon_types::Body::Observation(ended));
    }
    let attempt = state.jobs[&id].state.active().map(|active| active.attempt);
    if let Some(attempt) = attempt {
        let settle = Action::Settle {
            attempt,
            outcome: antiphon_types::Outcome::Succeeded,
        };
        let decision = Decision {
            actions: vec![settle],
            wake_at: None,
            again: false,
        };
        log(state, antiphon_types::Body::Decision(decision));
    }
}

/// Whether a job starts in the next cycle.
#[must_use]
pub(crate) fn starts(state: &State, id: JobId) -> bool {
    decide(state).actions.iter().any(|action| match action {
        Action::Launch { attempt, .. } => attempt.job == id,
        Action::Yield { .. }
        | Action::Terminate { .. }
        | Action::Kill { .. }
        | Action::Settle { .. }
        | Action::Direct { .. }
        | Action::Reserve { .. }
        | Action::Unreserve { .. }
        | Action::PutAside { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => false,
    })
}

impl State {
    fn release_for_trial(&mut self, id: JobId) {
        let since = self.now;
        self.respecify(id, |job| job.state = JobState::Pending { since });
    }
}
