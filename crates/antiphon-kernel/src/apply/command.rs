//! Folds what a person asked. Admission has let it pass, so it fits.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Command, JobId, JobSpec, StopCause};

use super::decision::enter_directive;
use super::end;
use crate::direct::issue;
use crate::jobs::{Job, JobState};
use crate::state::{Mode, State};

pub(super) fn fold(state: &mut State, command: &Command) -> Option<JobId> {
    match command {
        Command::Submit { spec } => Some(submit(state, spec)),
        Command::Cancel { job } => {
            cancel(state, *job);
            Some(*job)
        }
        Command::Hold { job } => {
            match &state.job_at(*job).state {
                JobState::Pending { .. } => {
                    state.leave_queue(*job);
                    let since = state.now;
                    state.job_mut(*job).state = JobState::Held { since };
                }
                JobState::Starting { .. }
                | JobState::Running { .. }
                | JobState::Stopping { .. } => request(state, *job, StopCause::Hold),
                JobState::Held { .. }
                | JobState::Succeeded { .. }
                | JobState::Failed { .. }
                | JobState::Canceled { .. } => bug(*job, "hold"),
            }
            Some(*job)
        }
        Command::Release { job } => {
            release(state, *job);
            Some(*job)
        }
        Command::Preempt { job } => {
            request(state, *job, StopCause::Operator);
            Some(*job)
        }
        Command::Direct(direct) => {
            let directed = state.job_at(direct.job);
            let new = issue(
                directed,
                direct.body.clone(),
                direct.reason.clone(),
                state.now,
                0,
            );
            enter_directive(state, direct.job, &new);
            Some(direct.job)
        }
        Command::Drain { node, reason } => {
            let node = state.nodes.get_mut(node).expect("admission knows the node");
            node.drain(Some(reason.clone()));
            None
        }
        Command::Undrain { node } => {
            let node = state.nodes.get_mut(node).expect("admission knows the node");
            node.drain(None);
            None
        }
        // Safe mode stops more than a pause does, and its bug must stay in sight.
        Command::Pause { .. } if matches!(state.mode, Mode::Safe { .. }) => None,
        Command::Pause { reason } => {
            state.mode = Mode::Paused {
                reason: reason.clone(),
            };
            None
        }
        Command::Unpause => {
            state.mode = Mode::Deciding;
            None
        }
        Command::SetPolicy { policy } => {
            state.policy = *policy;
            None
        }
    }
}

/// Takes a job in.
pub(crate) fn submit(state: &mut State, spec: &JobSpec) -> JobId {
    state.jobs_submitted += 1;
    let id = JobId(state.jobs_submitted);
    let mut waiting_for = BTreeSet::new();
    let mut dead_dependency = None;
    for dependency in &spec.after {
        // One that was forgotten had ended long ago; admission let only succeeded ones pass.
        let Some(first) = state.jobs.get_mut(dependency) else {
            continue;
        };
        match first.state {
            JobState::Succeeded { .. } => (),
            JobState::Failed { .. } | JobState::Canceled { .. } => {
                dead_dependency = Some(*dependency)
            }
            JobState::Pending { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Held { .. } => {
                first.dependents.push(id);
                waiting_for.insert(*dependency);
            }
        }
    }
    let job = Job {
        id,
        spec: spec.clone(),
        submitted: state.now,
        state: JobState::Pending { since: state.now },
        launches: 0,
        failures: 0,
        not_before: None,
        requested: None,
        waiting_for,
        dependents: Vec::new(),
        dead_dependency,
        checkpoint: None,
        progress: None,
        shards: BTreeMap::new(),
        directives: Vec::new(),
        directives_issued: 0,
        attempts: Vec::new(),
    };
    state
        .names
        .insert((spec.team.clone(), spec.name.clone()), id);
    state.jobs.insert(id, job);
    state.enter_queue(id);
    id
}

fn release(state: &mut State, id: JobId) {
    let since = state.now;
    let job = state.job_mut(id);
    match job.state {
        JobState::Held { .. } => {
            job.state = JobState::Pending { since };
            job.not_before = None;
            state.enter_queue(id);
        }
        // The stop for the hold goes on, and the job goes back to the queue after it.
        JobState::Stopping { .. } => job.requested = Some(StopCause::Operator),
        // The hold was asked for and not begun: there is nothing left to do.
        JobState::Starting { .. } | JobState::Running { .. } => job.requested = None,
        JobState::Pending { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => bug(id, "release"),
    }
}

fn cancel(state: &mut State, job: JobId) {
    match state.job_at(job).state {
        JobState::Pending { .. } | JobState::Held { .. } => {
            let at = state.now;
            end(state, job, JobState::Canceled { at });
        }
        JobState::Starting { .. } | JobState::Running { .. } | JobState::Stopping { .. } => {
            request(state, job, StopCause::Cancel);
        }
        JobState::Succeeded { .. } | JobState::Failed { .. } | JobState::Canceled { .. } => {
            bug(job, "cancel")
        }
    }
}

/// Notes what a person asked of an attempt. Several commands may come before the first is acted on: the one that goes
/// furthest stands, whichever came last.
fn request(state: &mut State, job: JobId, asked: StopCause) {
    let reach = |cause: &StopCause| match cause {
        StopCause::Cancel => 2,
        StopCause::Hold => 1,
        StopCause::Operator
        | StopCause::Priority { .. }
        | StopCause::Drain { .. }
        | StopCause::Limit
        | StopCause::GangBroken { .. } => 0,
    };
    let job = state.job_mut(job);
    let noted = job.requested.as_ref().map_or(0, reach);
    if reach(&asked) >= noted {
        job.requested = Some(asked);
    }
}

fn bug(job: JobId, command: &str) -> ! {
    panic!("admission let `{command}` of {job} pass in a state that does not allow it")
}
