//! Folds what a person asked. Admission has let it pass, so it fits.

use std::collections::BTreeSet;

use antiphon_types::{
    Class, Command, DirectiveCause, JobId, JobSpec, Maintenance, NodeName, Notice, StopCause,
};

use super::change::end;
use super::decision::enter_directive;
use super::observation::{give_up_slot, node_changed, spares_step_in};
use super::steer;
use crate::direct::issue;
use crate::jobs::{ArrayMember, Job, JobState, StopPhase};
use crate::notices::{choose, waits_cut};
use crate::state::{Mode, NoticeRecord, State};
use crate::steering::Steering;

pub(super) fn fold(state: &mut State, command: &Command) -> Option<JobId> {
    match command {
        Command::Submit { spec } => Some(submit(state, spec)),
        Command::Cancel { job } => {
            cancel(state, *job);
            Some(*job)
        }
        Command::Hold { job } => {
            hold(state, *job);
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
        Command::SetClass { job, class } => {
            set_class(state, *job, *class);
            Some(*job)
        }
        Command::Direct(direct) => {
            let directed = state.job_at(direct.job);
            let new = issue(
                directed,
                direct.body.clone(),
                direct.reason.clone(),
                DirectiveCause::Person,
                state.now,
                0,
            );
            enter_directive(state, direct.job, &new);
            Some(direct.job)
        }
        Command::Approve { job, rule, subject } => {
            steer::approve(state, *job, *rule, subject);
            Some(*job)
        }
        Command::Undo { job, directive } => {
            steer::take_back(state, *job, *directive);
            Some(*job)
        }
        Command::Ask(ask) => {
            steer::asked(state, ask);
            Some(ask.attempt.job)
        }
        Command::Drain { node, reason } => {
            drain(state, node, Some(reason.clone()));
            None
        }
        Command::Undrain { node } => {
            undrain(state, node);
            None
        }
        // Safe mode stops more than a pause does, and its bug must stay in sight.
        Command::Pause { .. } if matches!(state.mode, Mode::Safe { .. }) => None,
        Command::Pause { reason } => {
            state.known.mode = Mode::Paused {
                reason: reason.clone(),
            };
            None
        }
        Command::Unpause => {
            state.known.mode = Mode::Deciding;
            None
        }
        Command::SetPolicy { policy } => {
            state.known.policy = (**policy).clone();
            state.index.renew_settings(&state.known);
            // A shorter wait may be over already.
            super::time::pass(state, state.now);
            None
        }
        Command::SetTeams { teams } => {
            let now = state.now;
            let State { known, index } = state;
            known.teams.set_up(teams, &index.holdings, now);
            index.renew_settings(known);
            None
        }
        Command::SetGate { gate } => {
            super::gate::set(state, gate);
            None
        }
        Command::Maintain(window) => {
            maintain(state, window);
            None
        }
        Command::Notice(notice) => {
            give_back(state, notice);
            None
        }
    }
}

/// Takes a job in; all members of an array, the first of which stands for it.
pub(crate) fn submit(state: &mut State, spec: &JobSpec) -> JobId {
    let Some(array) = &spec.array else {
        return submit_one(state, spec, None);
    };
    let first = JobId(state.jobs_submitted + 1);
    let at_once = match array.at_once {
        0 => usize::MAX,
        some => usize::try_from(some).expect("a limit fits"),
    };
    for (place, index) in array.indices.iter().enumerate() {
        let mut member = spec.clone();
        member.array = None;
        member.name = format!("{}[{index}]", spec.name);
        let index = *index;
        let id = submit_one(state, &member, Some(ArrayMember { first, index }));
        if place >= at_once {
            state.change(id, |job| job.throttled = true);
        }
    }
    first
}

fn submit_one(state: &mut State, spec: &JobSpec, array: Option<ArrayMember>) -> JobId {
    let now = state.now;
    state.known.jobs_submitted += 1;
    let id = JobId(state.jobs_submitted);
    let mut job = new_job(state, id, spec, array);
    for dependency in &spec.after {
        // One that was forgotten had ended long ago; admission let only succeeded ones pass.
        let Some(first) = state.known.jobs.get_mut(dependency) else {
            continue;
        };
        match first.state {
            JobState::Succeeded { .. } => (),
            JobState::Failed { .. } | JobState::Canceled { .. } => {
                job.dead_dependency = Some(*dependency);
            }
            JobState::Pending { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Held { .. } => {
                first.dependents.push(id);
                job.waiting_for.insert(*dependency);
            }
        }
    }
    for dependency in &spec.after_any {
        if let Some(first) = state.known.jobs.get_mut(dependency)
            && !first.state.is_ended()
        {
            first.dependents.push(id);
            job.waiting_for_end.insert(*dependency);
        }
    }
    for dependency in &spec.after_start {
        if let Some(first) = state.known.jobs.get_mut(dependency)
            && first.launches == 0
        {
            if first.state.is_ended() {
                job.dead_dependency = Some(*dependency);
                continue;
            }
            first.dependents.push(id);
            job.waiting_for_start.insert(*dependency);
        }
    }
    if spec.held {
        job.state = JobState::Held { since: now };
    }
    let doubt = state.teams.get(job.team).doubt_permille;
    job.expect = crate::expect::next_attempt(&job, &state.history, doubt);
    job.deadline = crate::deadline::judge(state, &job);
    for role in &spec.roles {
        // What is wider than a node takes whole nodes.
        let widest = state.index.capacity.kinds().iter();
        let widest = widest.map(|kind| kind.gpus_max).max().unwrap_or(1);
        state.known.demand.seen(role, widest);
    }
    state.index.enter(&state.known, &job);
    state.known.jobs.insert(id, job);
    id
}

fn new_job(state: &mut State, id: JobId, spec: &JobSpec, array: Option<ArrayMember>) -> Job {
    Job {
        id,
        spec: spec.clone(),
        team: state.known.teams.enter(&spec.team),
        array,
        submitted: state.now,
        state: JobState::Pending { since: state.now },
        launches: 0,
        failures: 0,
        not_before: spec.not_before.filter(|at| *at > state.now),
        requested: None,
        waiting_for: BTreeSet::new(),
        waiting_for_end: BTreeSet::new(),
        waiting_for_start: BTreeSet::new(),
        throttled: false,
        gated: state.gate.keeps_back(spec.class),
        dependents: Vec::new(),
        dead_dependency: None,
        expect: crate::expect::Expectation::default(),
        attained: antiphon_types::GpuTime::ZERO,
        served: antiphon_types::Millis::ZERO,
        overran: false,
        weight_permille: 1_000,
        overdue: false,
        promoted: None,
        deadline: None,
        delayed: false,
        near_end: None,
        preempted: Vec::new(),
        gave_way_to: None,
        rungs: 0,
        suspicious: false,
        idle: None,
        checkpoint: None,
        progress: None,
        measured: None,
        reached: None,
        shrunk: None,
        steering: Steering::default(),
        makes_data_for: None,
        directives: Vec::new(),
        directives_issued: 0,
        attempts: Vec::new(),
    }
}

pub(super) fn hold(state: &mut State, id: JobId) {
    let since = state.now;
    match &state.job_at(id).state {
        JobState::Pending { .. } => {
            state.unreserve(id);
            let of = state.change(id, |job| {
                job.state = JobState::Held { since };
                job.overdue = false;
                job.promoted = None;
                (job.spec.class, job.team)
            });
            super::time::promote_next(state, of);
        }
        JobState::Starting { .. } | JobState::Running { .. } | JobState::Stopping { .. } => {
            request(state, id, StopCause::Hold);
        }
        JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => bug(id, "hold"),
    }
}

/// It stands in another queue from now on: what it had reached in the old one, it leaves there.
fn set_class(state: &mut State, id: JobId, class: Class) {
    let of = (state.job_at(id).spec.class, state.job_at(id).team);
    state.respecify(id, |job| {
        job.spec.class = class;
        job.gated &= class == Class::BestEffort;
        job.overdue = false;
        job.promoted = None;
    });
    super::time::promote_next(state, of);
}

fn release(state: &mut State, id: JobId) {
    let since = state.now;
    match state.job_at(id).state {
        JobState::Held { .. } => state.change(id, |job| {
            job.state = JobState::Pending { since };
            job.not_before = job.spec.not_before.filter(|at| *at > since);
        }),
        // The stop for the hold goes on, and the job goes back to the queue after it.
        JobState::Stopping { .. } => {
            state.change(id, |job| job.requested = Some(StopCause::Operator))
        }
        // The hold was asked for and not begun: there is nothing left to do.
        JobState::Starting { .. } | JobState::Running { .. } => {
            state.change(id, |job| job.requested = None)
        }
        JobState::Pending { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => bug(id, "release"),
    }
}

pub(super) fn cancel(state: &mut State, job: JobId) {
    match state.job_at(job).state {
        JobState::Pending { .. } | JobState::Held { .. } => {
            let at = state.now;
            let of = (state.job_at(job).spec.class, state.job_at(job).team);
            end(state, job, JobState::Canceled { at });
            super::time::promote_next(state, of);
        }
        JobState::Starting { .. } | JobState::Running { .. } | JobState::Stopping { .. } => {
            request(state, job, StopCause::Cancel);
            steer::cancel_data_jobs(state, job);
        }
        JobState::Succeeded { .. } | JobState::Failed { .. } | JobState::Canceled { .. } => {
            bug(job, "cancel")
        }
    }
}

/// Notes what a person asked of an attempt. Several commands may come before the first is acted on: the one that goes
/// furthest stands, whichever came last.
pub(super) fn request(state: &mut State, job: JobId, asked: StopCause) {
    let reach = |cause: &StopCause| match cause {
        StopCause::Cancel => 2,
        StopCause::Hold => 1,
        StopCause::Operator
        | StopCause::Priority { .. }
        | StopCause::Reclaim { .. }
        | StopCause::Turn { .. }
        | StopCause::Idle { .. }
        | StopCause::Drain { .. }
        | StopCause::Notice { .. }
        | StopCause::Limit
        | StopCause::Straggler { .. }
        | StopCause::Hang
        | StopCause::Asked { .. }
        | StopCause::GangBroken { .. } => 0,
    };
    state.change(job, |job| {
        let noted = job.requested.as_ref().map_or(0, reach);
        if reach(&asked) >= noted {
            job.requested = Some(asked);
        }
    });
}

fn drain(state: &mut State, name: &NodeName, reason: Option<String>) {
    let id = *state
        .index
        .node_ids
        .get(name)
        .expect("admission knows the node");
    state.known.nodes[crate::index::place(id)].drain(reason);
    node_changed(state, id);
    spares_step_in(state);
}

/// Takes tasks on a node again: what spoke against it is settled.
fn undrain(state: &mut State, name: &NodeName) {
    let id = state.index.node_ids[name];
    state.known.nodes[crate::index::place(id)].failures.clear();
    state.index.suspects.remove(&id);
    for window in &mut state.known.maintenance {
        window.nodes.retain(|node| node != name);
    }
    state
        .known
        .maintenance
        .retain(|window| !window.nodes.is_empty());
    let node = &mut state.known.nodes[crate::index::place(id)];
    let gave_back = !std::mem::take(&mut node.notices).is_empty();
    drain(state, name, None);
    state.index.plan_maintenance(&state.known, id);
    if gave_back {
        state.index.renew_nodes(&state.known);
    }
}

/// Takes no more tasks on what is to be given back. Who has to leave for it is asked to by the next cycle; who is on its way
/// out already may not take longer than that.
fn give_back(state: &mut State, notice: &Notice) {
    let id = state.index.node_ids[&notice.node];
    let gpus = notice.gpus.map(|gpus| choose(state, id, gpus));
    let Notice { cause, within, .. } = notice;
    let why = Some(&notice.reason).filter(|why| !why.is_empty());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let record = NoticeRecord {
        by: state.now.after(*within),
        cause: *cause,
        reason: format!("{cause} of {within}{why}"),
        gpus,
    };
    let node = &mut state.known.nodes[crate::index::place(id)];
    // The newest word on the whole node is the one that counts.
    node.notices
        .retain(|known| known.gpus.is_some() || record.gpus.is_some());
    node.notices.push(record);
    node.drain(node.drained.clone());
    if let Some(job) = state.index.capacity.hold_on(id).and_then(|hold| hold.job) {
        give_up_slot(state, job);
    }
    node_changed(state, id);
    spares_step_in(state);
    state.index.renew_nodes(&state.known);
    for (job, by) in waits_cut(state, id) {
        state.change(job, |job| {
            if let JobState::Stopping {
                phase: StopPhase::CheckpointWait { until, .. },
                ..
            } = &mut job.state
            {
                *until = by;
            }
        });
    }
}

fn maintain(state: &mut State, window: &Maintenance) {
    let held: Vec<JobId> = window
        .nodes
        .iter()
        .filter_map(|node| {
            state
                .index
                .capacity
                .hold_on(state.index.node_ids[node])?
                .job
        })
        .collect();
    held.into_iter().for_each(|job| state.unreserve(job));
    state.known.maintenance.push(window.clone());
    for node in &window.nodes {
        let id = state.index.node_ids[node];
        state.index.plan_maintenance(&state.known, id);
    }
}

fn bug(job: JobId, command: &str) -> ! {
    panic!("admission let `{command}` of {job} pass in a state that does not allow it")
}
