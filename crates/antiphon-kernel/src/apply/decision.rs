//! Folds what the kernel decided. A decision was checked before it was logged, so one that does not fit is a bug and panics.

use antiphon_types::{
    Action, Allocation, AttemptId, Directive, DirectiveScope, ExitClass, GpuTime, JobId, Millis,
    Outcome, Shape, StopCause, Terms,
};

use super::change::end;
use super::observation::{node_changed, spares_step_in};
use super::{gate, limit, measure, steer, time};
use crate::ask;
use crate::expect::speed_of;
use crate::index::by_type;
use crate::jobs::{Active, AttemptRecord, Job, JobState, StopPhase, TaskPhase};
use crate::settle::failed_nodes;
use crate::stake::unsaved;
use crate::state::{NodeFailure, State};

const HOUR: Millis = Millis::from_secs(3_600);

pub(super) fn fold(state: &mut State, action: &Action) {
    match action {
        Action::Launch {
            attempt,
            allocation,
            terms,
        } => launch(state, *attempt, allocation, terms),
        Action::Yield {
            attempt,
            cause,
            directive,
            until,
        } => {
            let phase = StopPhase::CheckpointWait {
                directive: *directive,
                saved_at: None,
                until: *until,
            };
            stopping(state, *attempt, cause.clone(), phase);
        }
        Action::Terminate {
            attempt,
            cause,
            kill_at,
        } => {
            measure::waited_in_vain(state, *attempt);
            stopping(
                state,
                *attempt,
                cause.clone(),
                StopPhase::Grace { kill_at: *kill_at },
            );
        }
        Action::Kill { attempt, .. } => state.change(attempt.job, |job| {
            let JobState::Stopping { phase, .. } = &mut job.state else {
                panic!("{attempt} is killed without having been asked to stop")
            };
            *phase = StopPhase::Killed;
        }),
        Action::Settle { attempt, outcome } => settle(state, *attempt, outcome),
        Action::Direct { job, directive } => enter_directive(state, *job, directive),
        Action::Remedy { .. } => steer::take_remedy(state, action),
        Action::Augment {
            job,
            method,
            of,
            spec,
        } => steer::augment(state, *job, method, of, spec),
        Action::Reserve { job, slot } => state.reserve(*job, slot),
        Action::Unreserve { job } => state.unreserve(*job),
        Action::PutAside { node, evidence } => {
            let id = state.index.node_ids[node];
            let put_aside = &mut state.known.nodes[crate::index::place(id)];
            put_aside.failures.clear();
            state.index.suspects.remove(&id);
            put_aside.drain(Some(evidence.clone()));
            node_changed(state, id);
            spares_step_in(state);
        }
        Action::Gate(change) => gate::fold(state, change),
        Action::Abandon { job, dependency } => {
            let at = state.now;
            let detail = format!("{dependency}, which it waited for, did not succeed");
            end(
                state,
                *job,
                JobState::Failed {
                    at,
                    class: ExitClass::Dependency,
                    detail,
                },
            );
        }
    }
}

fn launch(state: &mut State, attempt: AttemptId, allocation: &Allocation, terms: &Terms) {
    let now = state.now;
    let id = attempt.job;
    state.unreserve(id);
    let nodes = state.index.nodes_of(allocation);
    let nodes = nodes.expect("a launch names nodes that exist");
    // Whoever held one of these nodes back, and is not promised it back in time, gives all of its slot up.
    if !state.slots.is_empty() {
        let tasks = nodes.iter().zip(allocation.tasks.iter());
        let whole = tasks.filter(|(_, task)| !task.sliced);
        let taken = whole.filter_map(|(node, _)| {
            let hold = state.index.capacity.hold_on(*node)?;
            let in_time = matches!((terms.ends_by, hold.at), (Some(end), Some(at)) if end <= at);
            hold.job.filter(|_| !in_time)
        });
        let taken: Vec<JobId> = taken.collect();
        taken.into_iter().for_each(|other| state.unreserve(other));
    }
    let (of, before) = {
        let job = state.job_at(id);
        ((job.spec.class, job.team), job.launches)
    };
    let tasks = allocation.tasks.len();
    let count = u32::try_from(tasks).expect("admission bounds tasks");
    let class = terms.class.unwrap_or(of.0);
    let active = Box::new(Active {
        attempt,
        allocation: allocation.clone(),
        nodes,
        terms: terms.clone(),
        class,
        launched: now,
        started: None,
        attached: false,
        phases: vec![TaskPhase::Launched; tasks],
        unstarted: count,
        living: count,
        broken: None,
    });
    assert_eq!(
        attempt.number,
        before + 1,
        "attempts are numbered in sequence"
    );
    state.change(id, |job| {
        assert!(
            matches!(job.state, JobState::Pending { .. }),
            "{id} is launched twice"
        );
        job.launches = attempt.number;
        job.overdue = false;
        job.delayed = false;
        job.promoted = None;
        job.suspicious = false;
        job.idle = None;
        job.state = JobState::Starting { active };
    });
    time::promote_next(state, of);
    let job = &state.known.jobs[&id];
    let active = job.state.active().expect("it was launched just now");
    let team = job.team;
    let amounts: Vec<_> = by_type(&state.known, active)
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect();
    let holdings = &state.index.holdings;
    state.known.teams.settle_debts(team, holdings, now);
    let job = &state.known.jobs[&id];
    let active = job.state.active().expect("it was launched just now");
    state.index.occupy(&state.known, job, active);
    let books = state.known.teams.get_mut(team);
    books.settle(now);
    for (gpu_type, amount) in amounts {
        let account = books.account(&gpu_type, now);
        account.allocated = account.allocated + amount;
    }
    state.index.used.renew(&state.known, team);
}

fn stopping(state: &mut State, attempt: AttemptId, cause: StopCause, phase: StopPhase) {
    let now = state.now;
    let counts = matches!(
        cause,
        StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Operator
    );
    let preempted = state.change(attempt.job, |job| {
        let (active, since) = match std::mem::replace(&mut job.state, JobState::Held { since: now })
        {
            JobState::Starting { active } | JobState::Running { active } => (active, None),
            JobState::Stopping { active, since, .. } => (active, Some(since)),
            JobState::Pending { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => panic!("{attempt} is stopped and does not run"),
        };
        assert_eq!(active.attempt, attempt, "a stop names the current attempt");
        let preempted = since.is_none() && counts;
        if preempted {
            job.preempted.retain(|at| at.after(HOUR) > now);
            job.preempted.push(now);
        }
        if let StopCause::Priority { preemptor } | StopCause::Reclaim { preemptor } = &cause {
            job.gave_way_to = Some(*preemptor);
        }
        job.state = JobState::Stopping {
            active,
            since: since.unwrap_or(now),
            cause,
            phase,
        };
        // A hold or a preemption is now under way. A cancel that came during another stop still overrules its outcome.
        let overrules = matches!(
            (&job.requested, &job.state),
            (Some(StopCause::Cancel | StopCause::Hold), JobState::Stopping { cause, .. })
                if Some(cause) != job.requested.as_ref()
        );
        if !overrules {
            job.requested = None;
        }
        preempted
    });
    if preempted {
        state.known.preemptions.push_back(now);
    }
}

fn settle(state: &mut State, attempt: AttemptId, outcome: &Outcome) {
    let now = state.now;
    let id = attempt.job;
    let lost = unsaved(state, state.job_at(id));
    let kept = limit(state.policy.attempts_kept_max);
    leave_nodes(state, attempt, outcome, lost);
    let record = state.change(id, |job| {
        let (active, stopped) =
            match std::mem::replace(&mut job.state, JobState::Held { since: now }) {
                JobState::Starting { active } | JobState::Running { active } => (active, None),
                JobState::Stopping { active, cause, .. } => (active, Some(cause)),
                JobState::Pending { .. }
                | JobState::Held { .. }
                | JobState::Succeeded { .. }
                | JobState::Failed { .. }
                | JobState::Canceled { .. } => panic!("{attempt} is settled and does not run"),
            };
        assert_eq!(active.attempt, attempt, "the current attempt is settled");
        assert!(
            active.is_over(),
            "{attempt} is settled while a task may live"
        );
        let exit = active
            .broken_by()
            .map_or_else(|| "exit code 0".to_owned(), |(_, exit)| exit.to_string());
        let lost = match outcome {
            Outcome::Succeeded => GpuTime::ZERO,
            Outcome::Failed { .. }
            | Outcome::Canceled
            | Outcome::Held
            | Outcome::Requeued
            | Outcome::Retried { .. } => lost,
        };
        let run = active
            .started
            .map_or(Millis::ZERO, |started| now.since(started));
        let gpus = active.allocation.gpu_amount();
        let saved = job
            .checkpoint
            .as_ref()
            .filter(|saved| saved.attempt == attempt);
        let speed = speed_of(&job.spec, &active.terms.shapes);
        let kept_until = saved.map_or(Millis::ZERO, |saved| {
            saved
                .at
                .since(active.started.unwrap_or(active.launched))
                .min(run)
        });
        job.attained = job.attained + gpus.over(run);
        let served = kept_until.as_millis() * u64::from(speed) / 1_000;
        job.served = job.served + Millis::from_millis(served);
        job.idle = None;
        job.attempts.push(AttemptRecord {
            attempt,
            class: active.class,
            allocation: active.allocation,
            launched: active.launched,
            started: active.started,
            ended: now,
            stopped,
            exit: exit.clone(),
            outcome: outcome.clone(),
            checkpoint_step: job.checkpoint.as_ref().map(|saved| saved.step),
            lost,
        });
        let excess = job.attempts.len().saturating_sub(kept);
        job.attempts.drain(..excess);
        job.requested = None;
        // Compute directives die with their attempt; the events keep them.
        job.directives
            .retain(|directive| directive.body.scope() == DirectiveScope::Data);
        job.steering.attempt_ended();
        ask::take_shape(job);
        (exit, run)
    });
    measure::settled(state, id);
    conclude(state, id, outcome, record);
}

/// Frees what an attempt holds, and settles the books: nobody pays for time lost to others or to hardware.
fn leave_nodes(state: &mut State, attempt: AttemptId, outcome: &Outcome, lost: GpuTime) {
    let now = state.now;
    let team = state.job_at(attempt.job).team;
    let holdings = &state.index.holdings;
    state.known.teams.settle_debts(team, holdings, now);
    let job = &state.known.jobs[&attempt.job];
    let active = job.state.active().expect("the current attempt is settled");
    state.index.vacate(&state.known, job, active);
    let amounts: Vec<_> = by_type(&state.known, active)
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect();
    let for_others = match &job.state {
        JobState::Stopping { cause, .. } => matches!(
            cause,
            StopCause::Priority { .. }
                | StopCause::Reclaim { .. }
                | StopCause::Turn { .. }
                | StopCause::Drain { .. }
                | StopCause::Notice { .. }
                | StopCause::Operator
        ),
        JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Pending { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => false,
    };
    let hardware = matches!(
        outcome,
        Outcome::Retried {
            class: ExitClass::Hardware,
            ..
        } | Outcome::Failed {
            class: ExitClass::Hardware
        }
    );
    let failures = failed_nodes(job, active);
    let id = job.team;
    let team = state.known.teams.get_mut(id);
    let team_name = team.spec.name.clone();
    team.settle(now);
    let refunded = amounts.first().map(|(name, _)| name.clone());
    for (gpu_type, amount) in amounts {
        let account = team.account(&gpu_type, now);
        account.allocated = account.allocated - amount;
    }
    // A gang of several types is rare: all of its loss comes out of the first.
    if let Some(gpu_type) = refunded.filter(|_| for_others || hardware) {
        team.account(&gpu_type, now).usage.refund(lost);
    }
    state.index.used.renew(&state.known, id);
    for (node, checked) in failures {
        state.index.suspects.insert(node);
        state.known.nodes[crate::index::place(node)]
            .failures
            .push(NodeFailure {
                team: team_name.clone(),
                job: attempt.job,
                at: now,
                checked,
                slow: false,
            });
    }
}

/// What becomes of the job.
fn conclude(state: &mut State, id: JobId, outcome: &Outcome, (exit, run): (String, Millis)) {
    let now = state.now;
    match outcome {
        Outcome::Succeeded => {
            let job = state.job_at(id);
            let whole = job.served.max(run);
            let (team, name, gpus) = (&job.spec.team, &job.spec.name, job.spec.gpus());
            let kept_word = !job.overran;
            let (team, name) = (team.clone(), name.clone());
            state.known.history.add(&team, &name, gpus, whole);
            if kept_word {
                state.team_of(id).believe();
            }
            end(state, id, JobState::Succeeded { at: now });
        }
        Outcome::Canceled => end(state, id, JobState::Canceled { at: now }),
        Outcome::Failed { class } => {
            let failed = JobState::Failed {
                at: now,
                class: *class,
                detail: exit,
            };
            end(state, id, failed);
        }
        Outcome::Held => {
            state.unreserve(id);
            state.expect_anew(id);
        }
        Outcome::Requeued => {
            state.change(id, |job| {
                shrink(job);
                job.state = JobState::Pending { since: now };
            });
            state.expect_anew(id);
        }
        Outcome::Retried { class, not_before } => {
            state.change(id, |job| {
                if *class != ExitClass::OutOfMemory {
                    shrink(job);
                }
                match class {
                    // antiphon's trouble, not the job's.
                    ExitClass::NotLaunched => (),
                    ExitClass::OutOfMemory if job.shrunk.is_some() => unshrink(job),
                    ExitClass::OutOfMemory => climb(job),
                    ExitClass::Hardware => {
                        job.failures += 1;
                        job.suspicious = true;
                    }
                    ExitClass::Done
                    | ExitClass::Superseded
                    | ExitClass::Preempted
                    | ExitClass::DataError
                    | ExitClass::Software
                    | ExitClass::Unstartable
                    | ExitClass::Limit
                    | ExitClass::Dependency => job.failures += 1,
                }
                job.not_before = Some(*not_before);
                job.state = JobState::Pending { since: now };
            });
            state.expect_anew(id);
            if *class == ExitClass::Hardware {
                claim(state, id);
            }
        }
    }
}

/// Asks for less GPU memory from now on, where the last attempt used far less and the job's user allows that.
fn shrink(job: &mut Job) {
    let Some(record) = job.measured.filter(|_| job.spec.shrinks) else {
        return;
    };
    let plan = record.plan_of(&job.spec).cloned();
    let Some(shape) = shape_mut(job, record.shape) else {
        return;
    };
    let asked = shape.gpu_memory;
    if let Some(enough) = record.measured.enough(asked, plan.as_ref()) {
        shape.gpu_memory = enough;
        job.shrunk = Some((record.shape, asked));
    }
}

/// Asks for what the job's user asked for: less was too little, and will not be tried again.
fn unshrink(job: &mut Job) {
    job.spec.shrinks = false;
    if let Some((index, asked)) = job.shrunk.take()
        && let Some(shape) = shape_mut(job, index)
    {
        shape.gpu_memory = asked;
    }
}

/// A shape of the first role.
fn shape_mut(job: &mut Job, index: u32) -> Option<&mut Shape> {
    let role = job.spec.roles.first_mut()?;
    match usize::try_from(index).ok()?.checked_sub(1) {
        None => Some(&mut role.shape),
        Some(other) => role.alternatives.get_mut(other),
    }
}

/// Takes the next step of the job's out-of-memory ladder.
fn climb(job: &mut Job) {
    let step = usize::try_from(job.rungs).expect("few steps");
    let Some(rung) = job.spec.ladder.get(step) else {
        return;
    };
    job.rungs += 1;
    job.spec.environment.extend(rung.environment.clone());
    if let (Some(gpus), Some(role)) = (rung.gpus, job.spec.roles.first_mut()) {
        role.shape.gpus = gpus;
        role.alternatives.clear();
    }
}

/// Keeps the nodes of a gang that lost one for it until it is tried again: a node that is back by then is its own, and
/// for one that is not another may step in.
fn claim(state: &mut State, id: JobId) {
    let job = state.job_at(id);
    let (Some(last), Some(at)) = (job.attempts.last(), job.not_before) else {
        return;
    };
    // Who waits for these nodes waited for the end of this gang, and that was not one.
    let yields = |hold: &crate::capacity::Hold| {
        let slot = hold.job.map(|other| state.slots[&other].why);
        slot == Some(antiphon_types::SlotReason::Blocked) && hold.class >= job.spec.class
    };
    let keeps = |name: &antiphon_types::NodeName| {
        let node = state.index.node_ids[name];
        let hold = state.index.capacity.hold_on(node);
        hold.is_none_or(|hold| hold.job.is_none() || yields(hold))
    };
    let held = last.allocation.by_node();
    let several = held.len() > 1;
    let nodes = held.into_iter().map(|slice| slice.node.clone());
    let nodes: Vec<_> = nodes.filter(keeps).collect();
    if several && !nodes.is_empty() {
        let slot = antiphon_types::Slot {
            nodes,
            at: Some(at),
            why: antiphon_types::SlotReason::Claim,
        };
        state.reserve(id, &slot);
    }
}

pub(super) fn enter_directive(state: &mut State, job: JobId, directive: &Directive) {
    state.change(job, |job| {
        assert_eq!(
            directive.id.0,
            job.directives_issued + 1,
            "directives are numbered in sequence"
        );
        job.directives_issued = directive.id.0;
        steer::directed(job, directive);
        job.directives.push(directive.clone());
    });
}
