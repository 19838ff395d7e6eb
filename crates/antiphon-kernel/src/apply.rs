//! Folds one event into the state. Never decides, reads no clock; an event that does not fit is a bug and panics, while
//! an observation that comes late or twice changes nothing.

use std::collections::BTreeSet;

use antiphon_types::{
    Ack, AckBody, Action, AttemptId, Body, Checkpoint, Class, Command, CommandId, Directive,
    DirectiveBody, DirectiveScope, Event, Exit, ExitClass, Finding, JobId, JobSpec, NodeSpec,
    NodeState, Observation, Outcome, StopCause, TaskId,
};

use crate::capacity::Free;
use crate::direct::issue;
use crate::jobs::{
    Active, AttemptRecord, Job, JobState, Progress, ShardRecord, StopPhase, TaskPhase,
};
use crate::preempt::unsaved;
use crate::state::{CommandRecord, Mode, Node, State};

/// Folds one event into the state.
///
/// # Panics
/// Where the event does not follow the last one, or a decision in it does not fit the state.
pub fn apply(state: &mut State, event: &Event) {
    assert_eq!(
        event.seq.0,
        state.seq.0 + 1,
        "events follow each other without a gap"
    );
    assert!(event.at >= state.now, "time never goes back");
    state.seq = event.seq;
    state.now = event.at;
    match &event.body {
        Body::Command { id, command, .. } => {
            let job = apply_command(state, command);
            if let Some(id) = id {
                remember(state, id, job);
            }
        }
        Body::Observation(observation) => observe(state, observation),
        Body::Finding(finding) => conclude(state, finding),
        Body::Tick => (),
        Body::Decision(decision) => {
            for action in &decision.actions {
                act(state, action);
            }
        }
        Body::SafeMode { bug } => state.mode = Mode::Safe { bug: bug.clone() },
    }
    forget_old(state);
}

fn remember(state: &mut State, id: &CommandId, job: Option<JobId>) {
    let record = CommandRecord {
        content: id.content.clone(),
        seq: state.seq,
        job,
    };
    state.command_ids.insert(id.key.clone(), record);
    state.command_order.push_back(id.key.clone());
    while state.command_order.len() > limit(state.policy.command_ids_max)
        && let Some(oldest) = state.command_order.pop_front()
    {
        state.command_ids.remove(&oldest);
    }
}

fn forget_old(state: &mut State) {
    while state.ended.len() > limit(state.policy.ended_jobs_max)
        && let Some(oldest) = state.ended.pop_front()
    {
        state.jobs.remove(&oldest);
    }
}

fn limit(count: u32) -> usize {
    usize::try_from(count).expect("a limit fits")
}

fn apply_command(state: &mut State, command: &Command) -> Option<JobId> {
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
            let since = state.now;
            let released = state.job_mut(*job);
            assert!(
                matches!(released.state, JobState::Held { .. }),
                "{job} is not held"
            );
            released.state = JobState::Pending { since };
            released.not_before = None;
            state.enter_queue(*job);
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
        shards: std::collections::BTreeMap::new(),
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

fn observe(state: &mut State, observation: &Observation) {
    match observation {
        Observation::Inventory { nodes } => take_inventory(state, nodes),
        Observation::TaskStarted { task } => task_started(state, task),
        Observation::TaskEnded { task, exit } => task_ended(state, task, exit),
        Observation::Attached { attempt, .. } => {
            if let Some(active) = state.active_attempt(*attempt) {
                active.attached = true;
            }
        }
        Observation::Checkpointed { checkpoint } => checkpointed(state, checkpoint),
        Observation::Acknowledged { attempt, ack } => acknowledged(state, *attempt, ack),
    }
}

fn take_inventory(state: &mut State, offered: &[NodeSpec]) {
    for spec in offered {
        let held = state.held_on(&spec.name);
        let node = state
            .nodes
            .entry(spec.name.clone())
            .or_insert_with(|| Node {
                spec: spec.clone(),
                state: NodeState::Ready,
                drained: None,
                free: Free::all(spec),
            });
        node.state = node.offered();
        if node.spec == *spec {
            continue;
        }
        let mut free = Free::all(spec);
        let fits = held.iter().all(|task| {
            task.gpus.iter().all(|gpu| *gpu < spec.gpus)
                && free.cpus >= task.cpus
                && free.memory >= task.memory
                && {
                    free.take(task);
                    true
                }
        });
        if fits {
            node.spec = spec.clone();
            node.free = free;
        } else {
            // Tasks hold what the node no longer has. They are not thereby dead: the node keeps its old form and takes
            // no more until they have ended.
            node.state = NodeState::Down {
                evidence: "it shrank below what its tasks hold".into(),
            };
        }
    }
    for (name, node) in &mut state.nodes {
        if !offered.iter().any(|spec| spec.name == *name)
            && !matches!(node.state, NodeState::Down { .. })
        {
            node.state = NodeState::Down {
                evidence: "its backend no longer offers it".into(),
            };
        }
    }
}

fn task_started(state: &mut State, task: &TaskId) {
    let now = state.now;
    let Some(active) = state.active_attempt(task.attempt) else {
        return;
    };
    let Some(phase @ TaskPhase::Launched) = active.tasks.get_mut(task) else {
        return;
    };
    *phase = TaskPhase::Started;
    if active
        .tasks
        .values()
        .any(|phase| matches!(phase, TaskPhase::Launched))
    {
        return;
    }
    active.started.get_or_insert(now);
    let job = state.job_mut(task.attempt.job);
    if let JobState::Starting { active } = &job.state {
        job.state = JobState::Running {
            active: active.clone(),
        };
    }
}

fn task_ended(state: &mut State, task: &TaskId, exit: &Exit) {
    let at = state.now;
    let Some(active) = state.active_attempt(task.attempt) else {
        return;
    };
    if let Some(phase @ (TaskPhase::Launched | TaskPhase::Started)) = active.tasks.get_mut(task) {
        *phase = TaskPhase::Ended {
            exit: exit.clone(),
            at,
        };
    }
}

fn checkpointed(state: &mut State, checkpoint: &Checkpoint) {
    if state.active_attempt(checkpoint.attempt).is_none() {
        return;
    }
    let job = state.job_mut(checkpoint.attempt.job);
    // A lower step than before is legal: the trainer went back.
    if !job.knows(checkpoint) {
        let before = job.checkpoint.replace(checkpoint.clone());
        // Whatever failed before, the job has got further since.
        if before.is_none_or(|before| before.step < checkpoint.step) {
            job.failures = 0;
        }
    }
}

fn acknowledged(state: &mut State, attempt: AttemptId, ack: &Ack) {
    let now = state.now;
    if state.active_attempt(attempt).is_none() {
        return;
    }
    let job = state.job_mut(attempt.job);
    if let Some(directive) = job.directives.iter_mut().find(|d| d.id == ack.directive) {
        directive.ack = Some(ack.body.clone());
    }
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
            AckBody::Rejected { .. } | AckBody::Failed { .. } | AckBody::Expired => *until = now,
        }
    }
}

fn conclude(state: &mut State, finding: &Finding) {
    let at = state.now;
    if state.active_attempt(finding.attempt()).is_none() {
        return;
    }
    let job = state.job_mut(finding.attempt().job);
    match finding {
        Finding::Progress {
            step,
            steps_total,
            step_time,
            ..
        } => {
            let (step, steps_total, step_time) = (*step, *steps_total, *step_time);
            job.progress = Some(Progress {
                attempt: finding.attempt(),
                step,
                steps_total,
                step_time,
                at,
            });
        }
        Finding::ShardNoise {
            shard, evidence, ..
        } => {
            let record = ShardRecord {
                evidence: evidence.clone(),
                directive: None,
            };
            job.shards.entry(shard.clone()).or_insert(record);
        }
    }
}

fn act(state: &mut State, action: &Action) {
    match action {
        Action::Launch {
            attempt,
            allocation,
        } => launch(state, *attempt, allocation),
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
            stopping(
                state,
                *attempt,
                cause.clone(),
                StopPhase::Grace { kill_at: *kill_at },
            );
        }
        Action::Kill { attempt, .. } => {
            let job = state.job_mut(attempt.job);
            let JobState::Stopping { phase, .. } = &mut job.state else {
                panic!("{attempt} is killed without having been asked to stop")
            };
            *phase = StopPhase::Killed;
        }
        Action::Settle { attempt, outcome } => settle(state, *attempt, outcome),
        Action::Direct { job, directive } => enter_directive(state, *job, directive),
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

fn launch(state: &mut State, attempt: AttemptId, allocation: &antiphon_types::Allocation) {
    let now = state.now;
    state.leave_queue(attempt.job);
    for task in &allocation.tasks {
        let node = state
            .nodes
            .get_mut(&task.node)
            .expect("a launch names nodes that exist");
        node.free.take(task);
    }
    let job = state.job_mut(attempt.job);
    assert!(
        matches!(job.state, JobState::Pending { .. }),
        "{} is launched twice",
        job.id
    );
    assert_eq!(
        attempt.number,
        job.launches + 1,
        "attempts are numbered in sequence"
    );
    let tasks = allocation
        .tasks
        .iter()
        .map(|task| {
            let id = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            (id, TaskPhase::Launched)
        })
        .collect();
    job.launches = attempt.number;
    job.not_before = None;
    job.state = JobState::Starting {
        active: Box::new(Active {
            attempt,
            allocation: allocation.clone(),
            launched: now,
            started: None,
            attached: false,
            tasks,
        }),
    };
    state.active.insert(attempt.job);
}

fn stopping(state: &mut State, attempt: AttemptId, cause: StopCause, phase: StopPhase) {
    let now = state.now;
    let job = state.job_mut(attempt.job);
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt);
    let active = Box::new(active.expect("a stop names the current attempt").clone());
    let since = match job.state {
        JobState::Stopping { since, .. } => since,
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => now,
    };
    job.state = JobState::Stopping {
        active,
        since,
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
}

fn settle(state: &mut State, attempt: AttemptId, outcome: &Outcome) {
    let now = state.now;
    let lost = unsaved(state, state.job_at(attempt.job));
    let kept = limit(state.policy.attempts_kept_max);
    let job = state.job_mut(attempt.job);
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt);
    let active = active.expect("the current attempt is settled").clone();
    assert!(
        active.ended().is_some(),
        "{attempt} is settled while a task may live"
    );
    let stopped = match &job.state {
        JobState::Stopping { cause, .. } => Some(cause.clone()),
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => None,
    };
    let exit = active
        .broken_by()
        .map_or_else(|| "exit code 0".to_owned(), |(_, exit)| exit.to_string());
    let lost = match outcome {
        Outcome::Succeeded => antiphon_types::GpuTime::ZERO,
        Outcome::Failed { .. }
        | Outcome::Canceled
        | Outcome::Held
        | Outcome::Requeued
        | Outcome::Retried { .. } => lost,
    };
    job.attempts.push(AttemptRecord {
        attempt,
        allocation: active.allocation.clone(),
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

    state.active.remove(&attempt.job);
    for task in &active.allocation.tasks {
        state
            .nodes
            .get_mut(&task.node)
            .expect("a node is never forgotten")
            .free
            .give_back(task);
    }
    match outcome {
        Outcome::Succeeded => end(state, attempt.job, JobState::Succeeded { at: now }),
        Outcome::Canceled => end(state, attempt.job, JobState::Canceled { at: now }),
        Outcome::Failed { class } => {
            end(
                state,
                attempt.job,
                JobState::Failed {
                    at: now,
                    class: *class,
                    detail: exit,
                },
            );
        }
        Outcome::Held => state.job_mut(attempt.job).state = JobState::Held { since: now },
        Outcome::Requeued => {
            state.job_mut(attempt.job).state = JobState::Pending { since: now };
            state.enter_queue(attempt.job);
        }
        Outcome::Retried { not_before, .. } => {
            let job = state.job_mut(attempt.job);
            job.failures += 1;
            job.not_before = Some(*not_before);
            job.state = JobState::Pending { since: now };
            state.enter_queue(attempt.job);
        }
    }
}

fn enter_directive(state: &mut State, job: JobId, directive: &Directive) {
    let job = state.job_mut(job);
    assert_eq!(
        directive.id.0,
        job.directives_issued + 1,
        "directives are numbered in sequence"
    );
    job.directives_issued = directive.id.0;
    if let DirectiveBody::SetWeights { weights } = &directive.body {
        for shard in weights.keys() {
            if let Some(record) = job.shards.get_mut(shard) {
                record.directive.get_or_insert(directive.id);
            }
        }
    }
    job.directives.push(directive.clone());
}

/// Ends a job for good, and tells those that wait for it.
fn end(state: &mut State, id: JobId, how: JobState) {
    state.leave_queue(id);
    let succeeded = matches!(how, JobState::Succeeded { .. });
    let job = state.job_mut(id);
    job.state = how;
    job.requested = None;
    let name = (job.spec.team.clone(), job.spec.name.clone());
    let dependents = std::mem::take(&mut job.dependents);
    let dependencies = std::mem::take(&mut job.waiting_for);
    if state.names.get(&name) == Some(&id) {
        state.names.remove(&name);
    }
    for dependency in dependencies {
        if let Some(first) = state.jobs.get_mut(&dependency) {
            first.dependents.retain(|dependent| *dependent != id);
        }
    }
    state.ended.push_back(id);
    for dependent in dependents {
        let waiting = state.job_mut(dependent);
        waiting.waiting_for.remove(&id);
        if !succeeded {
            waiting.dead_dependency = Some(id);
        }
        state.enter_queue(dependent);
    }
}

impl State {
    fn job_at(&self, id: JobId) -> &Job {
        self.jobs
            .get(&id)
            .unwrap_or_else(|| panic!("{id} is in no event before this one"))
    }

    fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.jobs
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id} is in no event before this one"))
    }

    /// The launch with this id, if it is the job's current one. A late word about another changes nothing.
    fn active_attempt(&mut self, attempt: AttemptId) -> Option<&mut Active> {
        let active = self.jobs.get_mut(&attempt.job)?.state.active_mut()?;
        (active.attempt == attempt).then_some(active)
    }

    fn held_on(&self, node: &antiphon_types::NodeName) -> Vec<antiphon_types::TaskAllocation> {
        self.active_jobs()
            .filter_map(|job| job.state.active())
            .flat_map(|active| &active.allocation.tasks)
            .filter(|task| task.node == *node)
            .cloned()
            .collect()
    }

    fn queue_key(&self, id: JobId) -> (Class, JobId) {
        (self.job_at(id).spec.class, id)
    }

    /// Puts a pending job where it belongs: in the queue, if nothing has to happen first.
    fn enter_queue(&mut self, id: JobId) {
        let job = self.job_at(id);
        if !matches!(job.state, JobState::Pending { .. }) {
            return;
        }
        if job.dead_dependency.is_some() {
            self.dead.insert(id);
        } else if job.waiting_for.is_empty() {
            if let Some(due) = job.not_before {
                self.backoff.insert((due, id));
            }
            self.queue.insert(self.queue_key(id));
        }
    }

    fn leave_queue(&mut self, id: JobId) {
        let key = self.queue_key(id);
        self.queue.remove(&key);
        self.dead.remove(&id);
        if let Some(due) = self.job_at(id).not_before {
            self.backoff.remove(&(due, id));
        }
    }
}
