//! Folds what backends and trainers report and what the signal rules conclude. What no longer fits is late: it changes
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Ack, AckBody, AttemptId, Checkpoint, Class, Exit, Finding, JobId, Measured, NodeSpec,
    NodeState, Observation, PartitionSpec, SlotReason, TaskId,
};

use super::change::has_started;
use super::{holds, measure, steer};
use crate::capacity::{Capacity, NodeId};
use crate::expect::{by_report, ends, speed_of};
use crate::index::{NEVER, Tenant, by_type, place};
use crate::jobs::{
    Active, IdleRecord, Job, JobState, MeasuredRecord, Progress, StopPhase, TaskPhase,
};
use crate::state::{Node, State};
use crate::table::Jobs;

pub(super) fn fold(state: &mut State, observation: &Observation) {
    match observation {
        Observation::Inventory {
            nodes,
            partitions,
            resources,
        } => take_inventory(state, nodes, partitions, resources),
        Observation::Holds { task, gpus } => holds::fold(state, task, gpus),
        Observation::TaskStarted { task } => task_started(state, task),
        Observation::TaskEnded { task, exit } => task_ended(state, task, exit),
        Observation::Attached { attempt, .. } => {
            if let Some(active) = active_mut(state, *attempt) {
                active.attached = true;
                let State { known, index } = state;
                index.stake(known, &known.jobs[&attempt.job]);
            }
        }
        Observation::Checkpointed { checkpoint } => checkpointed(state, checkpoint),
        Observation::Acknowledged { attempt, ack } => acknowledged(state, *attempt, ack),
        Observation::Shards { attempt, shards } => {
            if is_current(state, *attempt) {
                steer::shards(state, *attempt, shards);
            }
        }
    }
}

/// The launch with this id, if it is the job's current one. A late word about another changes nothing.
fn active_mut(state: &mut State, attempt: AttemptId) -> Option<&mut Active> {
    let job = state.known.jobs.get_mut(&attempt.job)?;
    let active = job.state.active_mut()?;
    (active.attempt == attempt).then_some(active)
}

fn is_current(state: &State, attempt: AttemptId) -> bool {
    let active = state.job(attempt.job).and_then(|job| job.state.active());
    active.is_some_and(|active| active.attempt == attempt)
}

fn take_inventory(
    state: &mut State,
    offered: &[NodeSpec],
    partitions: &[PartitionSpec],
    resources: &BTreeMap<String, u64>,
) {
    let named: BTreeMap<_, _> = offered.iter().map(|spec| (&spec.name, spec)).collect();
    let mut changed = BTreeSet::new();
    for (id, node) in (0..).zip(&mut state.known.nodes) {
        let Some(spec) = named.get(&node.spec.name) else {
            if !matches!(node.state, NodeState::Down { .. }) {
                node.state = NodeState::Down {
                    evidence: "its backend no longer offers it".into(),
                };
            }
            continue;
        };
        if matches!(node.state, NodeState::Down { .. }) {
            node.comes_back(state.known.now);
        }
        node.state = node.offered();
        if node.spec == **spec {
            continue;
        }
        changed.insert(spec.name.clone());
        if still_fits(&state.known.jobs, state.index.tenants_of(id), spec) {
            node.spec = (*spec).clone();
        } else {
            // Tasks hold what the node no longer has. They are not thereby dead: the node keeps its old form and takes
            // no more until they have ended.
            node.state = NodeState::Down {
                evidence: "it shrank below what its tasks hold".into(),
            };
        }
    }
    for spec in offered {
        if state.index.node_ids.contains_key(&spec.name) {
            continue;
        }
        state.known.nodes.push(Node {
            spec: spec.clone(),
            state: NodeState::Ready,
            drained: None,
            stepped_in: false,
            failures: Vec::new(),
            notices: Vec::new(),
        });
    }
    let partitions = partitions.iter();
    state.known.partitions = partitions
        .map(|partition| (partition.name.clone(), partition.clone()))
        .collect();
    state.known.resources.clone_from(resources);
    // A slot on a node that went away or has become another helps nobody.
    let broken: Vec<JobId> = state
        .slots
        .iter()
        .filter(|(_, slot)| {
            let ready = |name| state.node(name).is_some_and(Node::is_in_service);
            !slot.nodes.iter().all(ready) || slot.nodes.iter().any(|node| changed.contains(node))
        })
        .map(|(job, _)| *job)
        .collect();
    for job in broken {
        give_up_slot(state, job);
    }
    state.index.renew_nodes(&state.known);
    spares_step_in(state);
}

/// Whether what is held of a node is still there in its new form. A lost GPU is: whoever holds it finds out.
fn still_fits(jobs: &Jobs, tenants: &[Tenant], spec: &NodeSpec) -> bool {
    let mut whole = spec.clone();
    whole.gpus_lost.clear();
    let mut probe = Capacity::build(
        std::slice::from_ref(&whole),
        &BTreeMap::new(),
        &BTreeMap::new(),
    );
    tenants.iter().all(|tenant| {
        let active = jobs[&tenant.job].state.active();
        let task = active.and_then(|active| active.allocation.tasks.get(place(tenant.task)));
        let Some(task) = task else {
            return true;
        };
        let fits = probe.shortage(0, task).is_none();
        if fits {
            probe.take(0, task);
        }
        fits
    })
}

/// Lets the ledger know whether a node takes tasks.
pub(super) fn node_changed(state: &mut State, id: NodeId) {
    if state.node_at(id).is_in_service() {
        state.index.capacity.open(id);
        state.index.plan_maintenance(&state.known, id);
    } else {
        if let Some(job) = state.index.capacity.hold_on(id).and_then(|hold| hold.job) {
            give_up_slot(state, job);
        }
        state.index.capacity.close(id);
    }
}

/// Gives up a slot with a node that is out of service; a gang that has a claim waits for it.
pub(super) fn give_up_slot(state: &mut State, job: JobId) {
    let why = state.slots.get(&job).map(|slot| slot.why);
    if why != Some(SlotReason::Claim) {
        state.unreserve(job);
    }
}

/// Spares step in for the nodes of their partition that are out of service, and step back when those return.
pub(super) fn spares_step_in(state: &mut State) {
    let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
    for node in &state.known.nodes {
        if !node.spec.spare && node.state != NodeState::Ready {
            *missing.entry(&node.spec.partition).or_default() += 1;
        }
    }
    let mut changed = Vec::new();
    for (name, id) in &state.index.node_ids {
        let node = &state.known.nodes[place(*id)];
        if !node.spec.spare || node.state != NodeState::Ready {
            continue;
        }
        let left = missing.entry(&node.spec.partition).or_default();
        let needed = *left > 0;
        *left = left.saturating_sub(1);
        if node.stepped_in != needed {
            changed.push((name.clone(), needed));
        }
    }
    for (name, needed) in changed {
        let id = state.index.node_ids[&name];
        state.known.nodes[place(id)].stepped_in = needed;
        node_changed(state, id);
    }
}

fn task_started(state: &mut State, task: &TaskId) {
    let now = state.now;
    let Some(active) = active_mut(state, task.attempt) else {
        return;
    };
    let Some(position) = active.position(task) else {
        return;
    };
    let phase = &mut active.phases[position];
    if !matches!(phase, TaskPhase::Launched) {
        return;
    }
    *phase = TaskPhase::Started;
    active.unstarted -= 1;
    if active.unstarted > 0 || active.started.is_some() {
        return;
    }
    let id = task.attempt.job;
    state.change(id, |job| {
        if let Some(active) = job.state.active_mut() {
            active.started = Some(now);
        }
        let state = std::mem::replace(&mut job.state, JobState::Held { since: now });
        job.state = match state {
            JobState::Starting { active } => JobState::Running { active },
            other @ (JobState::Pending { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. }) => other,
        };
    });
    measure::started(state, id);
    has_started(state, id);
}

fn task_ended(state: &mut State, task: &TaskId, exit: &Exit) {
    let at = state.now;
    let Some(active) = active_mut(state, task.attempt) else {
        return;
    };
    let Some(position) = active.position(task) else {
        return;
    };
    if matches!(active.phases[position], TaskPhase::Ended { .. }) {
        return;
    }
    let breaks = !exit.is_clean() && active.broken.is_none();
    let over = active.living == 1;
    if !over && !breaks {
        // Of most tasks of a gang nobody has to take notice.
        return active.end(position, exit, at);
    }
    state.change(task.attempt.job, |job| {
        if let Some(active) = job.state.active_mut() {
            active.end(position, exit, at);
        }
    });
}

fn checkpointed(state: &mut State, checkpoint: &Checkpoint) {
    let id = checkpoint.attempt.job;
    if !is_current(state, checkpoint.attempt) || state.job_at(id).knows(checkpoint) {
        return;
    }
    measure::saved(state, checkpoint);
    state.note(id, |job| {
        // A lower step than before is legal: the trainer went back.
        let before = job.checkpoint.replace(checkpoint.clone());
        // Whatever failed before, the job has got further since.
        if before.is_none_or(|before| before.step < checkpoint.step) {
            job.failures = 0;
        }
    });
    state.index.stake(&state.known, &state.known.jobs[&id]);
    lower_over_budget(state, id);
}

/// A run of a team that has used up its budget keeps its class until it has saved: then it loses nothing by giving way.
fn lower_over_budget(state: &mut State, id: JobId) {
    let State { known, index } = state;
    let job = &known.jobs[&id];
    let Some(active) = job.state.active() else {
        return;
    };
    let over = |(gpu_type, _)| {
        let over = known.teams.overspent(job.team, Some(gpu_type), known.now);
        over.is_some()
    };
    if active.class == Class::BestEffort || !by_type(known, active).any(over) {
        return;
    }
    if active.class <= Class::Production {
        for (gpu_type, amount) in by_type(known, active) {
            let (teams, team) = (&known.teams, job.team);
            index.holdings.remove(teams, team, gpu_type, amount, true);
            index.holdings.add(teams, team, gpu_type, amount, false);
        }
    }
    state.change(id, |job| {
        if let Some(active) = job.state.active_mut() {
            active.class = Class::BestEffort;
        }
    });
}

fn acknowledged(state: &mut State, attempt: AttemptId, ack: &Ack) {
    let now = state.now;
    if !is_current(state, attempt) {
        return;
    }
    state.change(attempt.job, |job| {
        if let Some(directive) = job.directives.iter_mut().find(|d| d.id == ack.directive) {
            directive.ack = Some(ack.body.clone());
        }
        let refused = match &ack.body {
            AckBody::Applied { .. } => None,
            AckBody::Rejected { reason } => Some(reason.as_str()),
            AckBody::Failed { error } => Some(error.as_str()),
            AckBody::Expired => Some("it came too late"),
        };
        job.steering.answered(ack.directive, refused);
        if let JobState::Stopping {
            phase:
                StopPhase::CheckpointWait {
                    directive,
                    saved_at,
                    until,
                },
            ..
        } = &mut job.state
            && *directive == ack.directive
        {
            match ack.body {
                AckBody::Applied { .. } => {
                    saved_at.get_or_insert(now);
                }
                // There is nothing more to wait for.
                AckBody::Rejected { .. } | AckBody::Failed { .. } | AckBody::Expired => {
                    *until = now;
                }
            }
        }
    });
}

pub(super) fn fold_finding(state: &mut State, finding: &Finding) {
    let at = state.now;
    if !is_current(state, finding.attempt()) {
        return;
    }
    let id = finding.attempt().job;
    match finding {
        Finding::Progress {
            step,
            steps_total,
            step_time,
            ..
        } => {
            let job = state.job_at(id);
            let active = job.state.active().expect("it is current");
            let progress = Progress {
                attempt: finding.attempt(),
                step: *step,
                steps_total: *steps_total,
                step_time: *step_time,
                speed: speed_of(&job.spec, &active.terms.shapes),
                at,
            };
            progressed(state, id, progress);
        }
        Finding::Diagnosis(diagnosis) => steer::diagnosed(state, diagnosis),
        Finding::Measured(measured) => {
            let record = record_of(state.job_at(id), *measured);
            state.change(id, |job| job.measured = Some(record));
        }
        Finding::Reached(reached) => state.change(id, |job| job.reach(*reached, at)),
        Finding::Idle {
            utilization_percent,
            since,
            ..
        } => state.change(id, |job| {
            job.idle = (!since.is_zero()).then(|| IdleRecord {
                utilization_percent: *utilization_percent,
                since: antiphon_types::Timestamp::from_millis(
                    at.as_millis().saturating_sub(since.as_millis()),
                ),
            });
        }),
    }
}

/// What was measured, with the shape in which it runs and the plan of that.
fn record_of(job: &Job, measured: Measured) -> MeasuredRecord {
    let chosen = job
        .state
        .active()
        .and_then(|active| active.terms.shapes.first());
    // Where nothing was chosen, the preferred one was taken.
    let shape = chosen.copied().unwrap_or(0);
    let plan = || {
        let role = job.spec.roles.first()?;
        let shape = role.shapes().nth(usize::try_from(shape).ok()?)?;
        let index = job.spec.plans.iter().position(|plan| plan.is_of(shape))?;
        u32::try_from(index).ok()
    };
    MeasuredRecord {
        shape,
        plan: plan(),
        measured,
    }
}

/// Takes a report of progress in: when the run ends, and whether it is to be left alone until then.
fn progressed(state: &mut State, id: JobId, progress: Progress) {
    let now = state.now;
    let job = state.job_at(id);
    let doubt = state.teams.get(job.team).doubt_permille;
    let expect = by_report(&job.spec, &progress, doubt);
    let near = state.policy.near_end_ms;
    let (ends_at, ends_by) = ends(&expect, now);
    state.change(id, |job| {
        job.progress = Some(progress);
        // Given once, and for a time that its first word names: a job that is always nearly done gains nothing.
        if job.near_end.is_none() && expect.expected <= near {
            let half_more = expect.expected.as_millis() / 2;
            let left = expect.expected + antiphon_types::Millis::from_millis(half_more);
            job.near_end = Some(now.after(left));
        }
        let overran = job.overran;
        if let JobState::Starting { active } | JobState::Running { active } = &mut job.state
            && !overran
        {
            active.terms.ends_at = ends_at;
            active.terms.ends_by = ends_by;
        }
    });
    slots_wait_longer(state, id);
    make_slots_due(state, id);
}

/// Notes for whom nodes are held that this job now leaves later than they were told.
pub(super) fn slots_wait_longer(state: &mut State, id: JobId) {
    let Some(active) = state.job_at(id).state.active() else {
        return;
    };
    let end = active.terms.ends_by.unwrap_or(NEVER);
    let holds = active.nodes.iter();
    let holds = holds.filter_map(|node| state.index.capacity.hold_on(*node));
    let late = holds.filter(|hold| hold.at.is_some_and(|at| at < end));
    let waiting: BTreeSet<JobId> = late.filter_map(|hold| hold.job).collect();
    for job in waiting {
        state.note(job, |job| job.delayed = true);
    }
}

/// Has what is held back on the nodes of a job worked out anew in the next cycle: it was told when they are free.
fn make_slots_due(state: &mut State, id: JobId) {
    let Some(active) = state
        .job_at(id)
        .state
        .active()
        .filter(|_| !state.slots.is_empty())
    else {
        return;
    };
    let holds = active.nodes.iter();
    let holds = holds.filter_map(|node| state.index.capacity.hold_on(*node)?.job);
    let waiting: BTreeSet<JobId> = holds.collect();
    let State { known, index } = state;
    for job in waiting {
        let slot = known
            .slots
            .get_mut(&job)
            .expect("a hold for a job is a slot");
        if slot.why == SlotReason::Blocked {
            slot.at = Some(known.now);
            let slot = slot.clone();
            index.hold_slot(known, job, &slot);
        }
    }
}
