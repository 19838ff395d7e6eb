//! A recorded log: what came of its jobs, the workload that they were, and whether every decision in it would be made
//! again. Reads events that somebody else has read from a store; changes nothing, and asks no server.

use std::collections::BTreeMap;

use antiphon_kernel::{Job, JobState, State, apply, decide};
use antiphon_store::Entry;
use antiphon_types::{
    Action, Allocation, AttemptId, Body, Command, Decision, EVENT_VERSION, Event, ExitClass, JobId,
    JobSpec, Millis, NodeName, NodeSpec, Observation, Outcome as Became, PartitionSpec, Seq,
    StopCause, Timestamp,
};

use crate::bound::bounds;
use crate::course::{Course, millis};
use crate::figure;
use crate::outcome::Outcome;
use crate::simulate::{Tables, courses};
use crate::workload::{End, TraceJob, Work, Workload};
use crate::world::{Cause, Decider, Finished, Onlooker, Record, Setting, Span, Tally, World, held};

/// What a recorded outcome is called among policies.
pub const RECORDED: &str = "recorded";

/// A log that cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// An event of a later version.
    #[error(
        "event {seq} has version {found}, and {EVENT_VERSION} is the newest that is known here"
    )]
    Newer {
        /// Its place.
        seq: u64,
        /// Its version.
        found: u32,
    },
    /// It is not what it should be.
    #[error("event {seq} cannot be read: {why}")]
    Unreadable {
        /// Its place.
        seq: u64,
        /// What is wrong.
        why: String,
    },
}

/// The first decision that is not the one that is made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Which of the log's decisions, from 1.
    pub number: u64,
    /// Its place in the log.
    pub seq: Seq,
    /// When it was made.
    pub at: Timestamp,
    /// What was recorded.
    pub recorded: Decision,
    /// What is decided now.
    pub now: Decision,
}

/// Jobs that a simulation cannot run, since nobody knows how long they would have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Censored {
    /// They wait, run or are on hold.
    pub living: u64,
    /// Somebody canceled them.
    pub canceled: u64,
    /// They ended without having run.
    pub never_ran: u64,
}

/// What a log tells.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Jobs that ended by themselves, by the time they came.
    pub workload: Workload,
    /// As they were submitted, in the same order. A job in `after` is one of the workload, counted from 1.
    pub specs: Vec<JobSpec>,
    /// What became of them, in the same order.
    pub records: Vec<Option<Record>>,
    /// When they held which of the nodes below, in the same order.
    pub spans: Vec<Vec<Span>>,
    /// Jobs left out.
    pub censored: Censored,
    /// The nodes that were last offered.
    pub nodes: Vec<NodeSpec>,
    /// Their partitions.
    pub partitions: Vec<PartitionSpec>,
    /// What belongs to no node.
    pub resources: BTreeMap<String, u64>,
    /// Events in the log.
    pub events: u64,
    /// Decisions among them.
    pub decisions: u64,
}

/// Reads an entry of the log.
///
/// # Errors
/// Where it is no event that is known here.
pub fn event_of(entry: &Entry) -> Result<Event, ReplayError> {
    let seq = entry.seq;
    if entry.version > EVENT_VERSION {
        let found = entry.version;
        return Err(ReplayError::Newer { seq, found });
    }
    let body = serde_json::from_str(&entry.body).map_err(|error| ReplayError::Unreadable {
        seq,
        why: error.to_string(),
    })?;
    Ok(Event {
        seq: Seq(seq),
        at: Timestamp::from_millis(entry.at_ms),
        body,
    })
}

/// Decides every recorded cycle anew; says how many there are, and the first that differs. A cycle that found nothing to do
/// is in no log.
#[must_use]
pub fn first_difference(events: &[Event]) -> (u64, Option<Difference>) {
    let mut state = State::default();
    let mut number = 0;
    for event in events {
        if let Body::Decision(recorded) = &event.body {
            number += 1;
            let now = decide(&state);
            if now != *recorded {
                let difference = Difference {
                    number,
                    seq: event.seq,
                    at: event.at,
                    recorded: recorded.clone(),
                    now,
                };
                return (number, Some(difference));
            }
        }
        apply(&mut state, event);
    }
    (number, None)
}

/// An attempt that ended.
struct Attempt {
    launched: Timestamp,
    started: Timestamp,
    ended: Timestamp,
    allocation: Allocation,
}

/// A job on its way through the log.
struct Run {
    spec: JobSpec,
    record: Record,
    /// What each attempt that ended held, from its launch on.
    held: Vec<Attempt>,
    submitted: Timestamp,
    /// Work that no later attempt has to do again.
    kept: Millis,
    end: Option<End>,
    canceled: bool,
}

/// Reads what became of the jobs of a log.
#[must_use]
pub fn read(name: &str, events: &[Event]) -> Recording {
    let mut recording = Recording::default();
    let mut state = State::default();
    let mut runs: BTreeMap<JobId, Run> = BTreeMap::new();
    for event in events {
        recording.events += 1;
        if let Body::Decision(decision) = &event.body {
            recording.decisions += 1;
            for action in &decision.actions {
                act(&state, &mut runs, action, event.at);
            }
        }
        apply(&mut state, event);
        match &event.body {
            Body::Command {
                command: Command::Submit { .. },
                ..
            } => take_in(&state, &mut runs, event.at),
            Body::Observation(Observation::Inventory {
                nodes,
                partitions,
                resources,
            }) => {
                recording.nodes.clone_from(nodes);
                recording.partitions.clone_from(partitions);
                recording.resources.clone_from(resources);
            }
            Body::Command { .. }
            | Body::Observation(_)
            | Body::Finding(_)
            | Body::Tick
            | Body::Decision(_)
            | Body::SafeMode { .. } => (),
        }
    }
    sum_up(name, &state, runs, &mut recording);
    recording
}

/// Jobs that a submission has made; several where it was an array.
fn take_in(state: &State, runs: &mut BTreeMap<JobId, Run>, at: Timestamp) {
    let before = runs.last_key_value().map_or(0, |(id, _)| id.0);
    let newest = state.newest_job().map_or(0, |id| id.0);
    for id in (before + 1..=newest).map(JobId) {
        let Some(job) = state.job(id) else {
            continue;
        };
        let run = Run {
            spec: job.spec.clone(),
            record: Record::new(Millis::ZERO, 0.0),
            held: Vec::new(),
            submitted: at,
            kept: Millis::ZERO,
            end: None,
            canceled: false,
        };
        runs.insert(id, run);
    }
}

fn act(state: &State, runs: &mut BTreeMap<JobId, Run>, action: &Action, at: Timestamp) {
    match action {
        Action::Launch {
            attempt,
            allocation,
            ..
        } => {
            let Some(run) = runs.get_mut(&attempt.job) else {
                return;
            };
            let since = at.since(run.submitted);
            run.record.started.get_or_insert(since);
            run.record.gpus = figure::gpus(allocation.gpu_amount());
        }
        Action::Settle { attempt, outcome } => {
            let run = runs.get_mut(&attempt.job);
            if let (Some(run), Some(job)) = (run, state.job(attempt.job)) {
                settle(run, job, *attempt, outcome, at);
            }
        }
        Action::Yield { .. }
        | Action::Terminate { .. }
        | Action::Kill { .. }
        | Action::Direct { .. }
        | Action::Reserve { .. }
        | Action::Unreserve { .. }
        | Action::PutAside { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => (),
    }
}

fn settle(run: &mut Run, job: &Job, attempt: AttemptId, outcome: &Became, at: Timestamp) {
    let active = job.state.active();
    let Some(active) = active.filter(|active| active.attempt == attempt) else {
        return;
    };
    let gpus = figure::gpus(active.allocation.gpu_amount());
    let held = gpus * millis(at.since(active.launched));
    let started = active.started.unwrap_or(at);
    run.held.push(Attempt {
        launched: active.launched,
        started,
        ended: at,
        allocation: active.allocation.clone(),
    });
    let ran = at.since(started);
    run.record.held_gpu_ms += held;
    let first = attempt.number == 1;
    let start = if first { Cause::Start } else { Cause::Restart };
    let idle = gpus * millis(started.since(active.launched));
    run.record.lost.add(start, idle);
    let saved = job
        .checkpoint
        .as_ref()
        .filter(|saved| saved.attempt == attempt && saved.at >= started)
        .map_or(Millis::ZERO, |saved| saved.at.since(started));
    match outcome {
        Became::Succeeded | Became::Failed { .. } if active.started.is_some() => {
            run.kept = run.kept + ran;
            run.record.ended = Some(at.since(run.submitted));
            run.end = Some(match outcome {
                Became::Succeeded => End::Completed,
                _ => End::Failed,
            });
        }
        Became::Canceled => run.canceled = true,
        _ => {
            run.kept = run.kept + saved;
            let gone = gpus * millis(ran.saturating_sub(saved));
            run.record.lost.add(lost_to(job, outcome), gone);
        }
    }
    if let JobState::Stopping { cause, .. } = &job.state {
        let moved = match cause {
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Idle { .. }
            | StopCause::Drain { .. }
            | StopCause::Notice { .. }
            | StopCause::Straggler { .. }
            | StopCause::Asked { .. }
            | StopCause::Operator => 1,
            StopCause::Cancel
            | StopCause::Hold
            | StopCause::Limit
            | StopCause::Hang
            | StopCause::GangBroken { .. } => 0,
        };
        run.record.preemptions += moved;
    }
}

fn sum_up(name: &str, state: &State, runs: BTreeMap<JobId, Run>, recording: &mut Recording) {
    let ended = |run: &&Run| run.end.is_some();
    let begin = runs.values().filter(ended).map(|run| run.submitted).min();
    let begin = begin.unwrap_or_default();
    let nodes = recording.nodes.iter().enumerate();
    let nodes: BTreeMap<NodeName, usize> = nodes
        .map(|(place, node)| (node.name.clone(), place))
        .collect();
    let mut places: BTreeMap<JobId, u64> = BTreeMap::new();
    for (id, run) in runs {
        let Some(end) = run.end else {
            let living = state.job(id).is_some_and(|job| !job.state.is_ended());
            let canceled = run.canceled
                || state
                    .job(id)
                    .is_some_and(|job| matches!(job.state, JobState::Canceled { .. }));
            let counted = &mut recording.censored;
            match (living, canceled) {
                (true, _) => counted.living += 1,
                (false, true) => counted.canceled += 1,
                (false, false) => counted.never_ran += 1,
            }
            continue;
        };
        let work = run.kept.max(Millis::from_millis(1));
        let submitted = run.submitted.since(begin);
        let place = places.len() + 1;
        places.insert(id, u64::try_from(place).expect("few jobs"));
        recording
            .workload
            .jobs
            .push(trace_job(id, &run, submitted, work, end));
        let after = |at: Option<Millis>| at.map(|at| at + submitted);
        recording.records.push(Some(Record {
            submitted,
            started: after(run.record.started),
            ended: after(run.record.ended),
            best_ms: millis(work),
            ..run.record
        }));
        let spans = run.held.iter().map(|attempt| Span {
            from: attempt.launched.since(begin),
            works_from: attempt.started.since(begin),
            until: Some(attempt.ended.since(begin)),
            held: held(&attempt.allocation, &nodes),
        });
        recording.spans.push(spans.collect());
        recording.specs.push(moved(run.spec, begin, &places));
    }
    recording.workload.name = name.to_owned();
}

fn trace_job(id: JobId, run: &Run, submitted: Millis, work: Millis, end: End) -> TraceJob {
    let spec = &run.spec;
    TraceJob {
        line: id.0,
        name: spec.name.clone(),
        team: spec.team.clone(),
        user: spec.user.clone(),
        submitted,
        gpus: spec.gpus(),
        gpu_types: Vec::new(),
        cpu_milli: None,
        memory: None,
        class: spec.class,
        work: Work::Time(work),
        deadline: spec.deadline.map(|at| at.since(run.submitted) + submitted),
        weight_permille: 1_000,
        limit: spec.time_limit,
        estimate: spec.estimate.map(|estimate| estimate.expected),
        end,
    }
}

/// A job as it is submitted to the simulation: its times count from there, what it waits for is counted in the workload. Who
/// was on hold is not: nobody releases it.
fn moved(mut spec: JobSpec, begin: Timestamp, places: &BTreeMap<JobId, u64>) -> JobSpec {
    let shift = |at: Timestamp| World::begins().after(at.since(begin));
    spec.not_before = spec.not_before.map(shift);
    spec.deadline = spec.deadline.map(shift);
    spec.held = false;
    spec.array = None;
    for list in [&mut spec.after, &mut spec.after_any, &mut spec.after_start] {
        let known = list.iter().filter_map(|id| places.get(id).copied());
        *list = known.map(JobId).collect();
    }
    spec
}

impl Recording {
    /// What was recorded, in the figures that policies are compared by.
    #[must_use]
    pub fn outcome(&self) -> (Outcome, Finished) {
        let finished = Finished {
            forecasts: None,
            records: self.records.clone(),
            spans: self.spans.clone(),
            tally: Tally {
                events: self.events,
                cycles: self.decisions,
                ..Tally::default()
            },
            digest: String::new(),
        };
        let mut outcome = Outcome {
            policy: RECORDED.to_owned(),
            trace: self.workload.name.clone(),
            knowledge: String::new(),
            ..Outcome::default()
        };
        outcome.take(&finished, &self.deadlines(), gpus(&self.nodes), None);
        (outcome, finished)
    }

    fn deadlines(&self) -> Vec<Option<f64>> {
        let jobs = self.workload.jobs.iter();
        jobs.map(|job| job.deadline.map(|at| millis(at) / 1_000.0))
            .collect()
    }

    /// Runs the same jobs under a setting of one's own.
    pub fn simulate(
        &self,
        name: &str,
        setting: &Setting,
        stopwatch: &dyn Fn() -> u64,
        onlooker: &mut dyn Onlooker,
    ) -> (Outcome, Finished) {
        let courses = courses(&self.workload, &setting.cluster, &Tables::None);
        let known: Vec<Option<&Course>> =
            courses.iter().map(|course| course.as_ref().ok()).collect();
        let gpus = gpus(&setting.cluster.nodes);
        let bounds = bounds(&self.workload, &known, gpus);
        drop(known);
        let world = World::new(&self.workload, setting, Decider::Kernel, courses, stopwatch);
        let finished = world.with_specs(&self.specs).run(onlooker);
        let mut outcome = Outcome {
            policy: name.to_owned(),
            trace: self.workload.name.clone(),
            knowledge: setting.knowledge.name().to_owned(),
            start_cost_s: millis(setting.cluster.start_cost) / 1_000.0,
            resize_cost_s: millis(setting.cluster.resize_cost) / 1_000.0,
            ..Outcome::default()
        };
        outcome.take(&finished, &self.deadlines(), gpus, bounds);
        (outcome, finished)
    }
}

fn gpus(nodes: &[NodeSpec]) -> f64 {
    nodes.iter().map(|node| f64::from(node.gpus)).sum()
}

/// What took the work that an attempt had not saved.
const fn lost_to(job: &Job, outcome: &Became) -> Cause {
    match (&job.state, outcome) {
        (
            _,
            Became::Retried {
                class: ExitClass::Hardware,
                ..
            },
        ) => Cause::Hardware,
        (
            JobState::Stopping {
                cause: StopCause::Drain { .. } | StopCause::Notice { .. },
                ..
            },
            _,
        ) => Cause::Maintenance,
        (
            JobState::Stopping {
                cause: StopCause::GangBroken { .. },
                ..
            },
            _,
        ) => Cause::Software,
        (JobState::Stopping { .. }, _) => Cause::Preemption,
        (_, _) => Cause::Software,
    }
}
