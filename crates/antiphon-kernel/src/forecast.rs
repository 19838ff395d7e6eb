//! When waiting jobs will start: the whole queue played forward on a copy, by the same cycle that decides. Off the loop,
//! every few seconds; `why`, `check` and pages share its result and show its age.

mod foresight;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Action, AttemptId, Body, Event, Exit, JobId, Millis, Observation, Seq, TaskId, Timestamp,
};
use serde::{Deserialize, Serialize};

pub use foresight::{Foresight, Foretold};

use crate::apply::apply;
use crate::decide::decide;
use crate::expect::Source;
use crate::jobs::{Job, JobState};
use crate::state::{Mode, State};

/// Starts that are played forward: what lies further ahead says nothing.
const STARTS_MAX: usize = 2_000;

/// How far ahead is looked: beyond, other jobs will have come.
const HORIZON: Millis = Millis::from_secs(14 * 86_400);

/// How long a run of which nothing is known is taken to last from now on.
const UNKNOWN: Millis = Millis::from_secs(3_600);

/// When waiting jobs will start.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forecast {
    /// When it was made.
    pub at: Timestamp,
    /// By job; one that is not named starts later than anybody looked.
    pub starts: BTreeMap<JobId, Start>,
}

/// When a job will start: if nothing else comes, or as such forecasts have turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// If everybody ends in half the time that is expected; or before one of ten such jobs started.
    pub earliest: Timestamp,
    /// If everybody ends when expected; or when half of such jobs had started.
    pub expected: Timestamp,
    /// If everybody takes as long as nine of ten do, or when nine of ten such jobs had started; nothing where that is not
    /// known or lies too far ahead.
    pub latest: Option<Timestamp>,
    /// Whether this is how such forecasts have turned out: then it counts on those who will come.
    pub learned: bool,
}

/// How long runs take in one play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    Half,
    Expected,
    Long,
}

/// Plays the queue forward.
#[must_use]
pub fn forecast(state: &State) -> Forecast {
    played(state, None)
}

/// When one job will start, those in front of it included; nothing where that lies further ahead than is looked.
#[must_use]
pub fn start_of(state: &State, job: JobId) -> Option<Start> {
    played(state, Some(job)).starts.remove(&job)
}

/// Plays the queue forward, to the start of `last` where one is named.
fn played(state: &State, last: Option<JobId>) -> Forecast {
    let expected = play(state, Pace::Expected, last);
    let early = play(state, Pace::Half, last);
    let late = play(state, Pace::Long, last);
    let starts = expected.into_iter().map(|(job, expected)| {
        // A longer run elsewhere can start a job earlier: the interval holds all three.
        let all = [early.get(&job), late.get(&job), Some(&expected)];
        let earliest = all.into_iter().flatten().min().copied();
        let latest = late.get(&job).copied().map(|late| late.max(expected));
        let start = Start {
            earliest: earliest.unwrap_or(expected),
            expected,
            latest,
            learned: false,
        };
        (job, start)
    });
    Forecast {
        at: state.now,
        starts: starts.collect(),
    }
}

/// When each job first starts, if runs take so long.
fn play(state: &State, pace: Pace, last: Option<JobId>) -> BTreeMap<JobId, Timestamp> {
    let mut copy = state.clone();
    copy.known.mode = Mode::Deciding;
    let until = state.now.after(HORIZON);
    let mut starts = BTreeMap::new();
    let mut ends: BTreeSet<(Timestamp, AttemptId)> = state
        .active_jobs()
        .filter_map(|job| {
            let attempt = job.state.active()?.attempt;
            Some((running_until(job, state.now, pace)?, attempt))
        })
        .collect();
    // Not the queue alone: who waits for another's end, or for a time, enters it on the way.
    let mut waiting: BTreeSet<JobId> = state
        .jobs
        .values()
        .filter(|job| matches!(job.state, JobState::Pending { .. }))
        .map(|job| job.id)
        .collect();
    let mut left_of = BTreeMap::new();
    let mut cycles = 0;
    loop {
        cycles += 1;
        let decision = decide(&copy);
        let wake_at = decision.wake_at;
        let quiet = !decision.again;
        if !decision.actions.is_empty() {
            let actions = decision.actions.clone();
            log(&mut copy, Body::Decision(decision));
            for action in actions {
                if let Action::Launch { attempt, .. } = &action {
                    waiting.remove(&attempt.job);
                }
                carry_out(
                    &mut copy,
                    &action,
                    pace,
                    &mut starts,
                    &mut ends,
                    &mut left_of,
                );
            }
        }
        let seen = last.is_some_and(|last| starts.contains_key(&last));
        let enough = seen || starts.len() >= STARTS_MAX || cycles > 4 * STARTS_MAX;
        if enough || waiting.is_empty() {
            return starts;
        }
        if !quiet {
            continue;
        }
        let next = ends.first().map(|(at, _)| *at);
        let Some(next) = next
            .into_iter()
            .chain(wake_at)
            .min()
            .filter(|at| *at <= until)
        else {
            return starts;
        };
        let next = next.max(copy.now);
        move_to(&mut copy, next);
        while let Some((at, attempt)) = ends.first().copied().filter(|(at, _)| *at <= next) {
            ends.remove(&(at, attempt));
            end(&mut copy, attempt);
        }
    }
}

fn running_until(job: &Job, now: Timestamp, pace: Pace) -> Option<Timestamp> {
    let active = job.state.active()?;
    let expected = active.terms.ends_at.map_or(UNKNOWN, |at| at.since(now));
    let long = active.terms.ends_by.map(|at| at.since(now));
    left(expected, long, pace).map(|left| now.after(left))
}

fn left(expected: Millis, long: Option<Millis>, pace: Pace) -> Option<Millis> {
    match pace {
        Pace::Half => Some(Millis::from_millis(expected.as_millis() / 2)),
        Pace::Expected => Some(expected),
        Pace::Long => long.map(|long| long.max(expected)),
    }
}

fn carry_out(
    state: &mut State,
    action: &Action,
    pace: Pace,
    starts: &mut BTreeMap<JobId, Timestamp>,
    ends: &mut BTreeSet<(Timestamp, AttemptId)>,
    left_of: &mut BTreeMap<JobId, Millis>,
) {
    match action {
        Action::Launch { attempt, .. } => {
            let now = state.now;
            starts.entry(attempt.job).or_insert(now);
            for task in tasks(state, *attempt) {
                log(state, Body::Observation(Observation::TaskStarted { task }));
            }
            // Who saves may be asked to give way again.
            if state.jobs[&attempt.job].spec.checkpoint.is_some() {
                let attempt = *attempt;
                log(
                    state,
                    Body::Observation(Observation::Attached { attempt, step: 0 }),
                );
            }
            let job = &state.jobs[&attempt.job];
            let expect = &job.expect;
            let expected = match expect.source {
                Source::Nothing => UNKNOWN,
                Source::Progress | Source::History | Source::Estimate | Source::Limit => {
                    expect.expected
                }
            };
            let whole = left(expected, expect.high, pace);
            if let Some(left) = left_of.remove(&attempt.job).or(whole) {
                ends.insert((now.after(left), *attempt));
            }
        }
        // Who is asked to stop does so at once: a checkpoint takes seconds, a forecast is about hours.
        Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => {
            let end_of = ends.iter().find(|(_, other)| other == attempt).copied();
            if let Some((at, _)) = end_of {
                ends.remove(&(at, *attempt));
                left_of.insert(attempt.job, at.since(state.now));
            }
            end(state, *attempt);
        }
        Action::Kill { .. }
        | Action::Settle { .. }
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

fn tasks(state: &State, attempt: AttemptId) -> Vec<TaskId> {
    let active = state
        .job(attempt.job)
        .and_then(|job| job.state.active())
        .filter(|active| active.attempt == attempt);
    active
        .map(|active| active.tasks().map(|(task, _)| task).collect())
        .unwrap_or_default()
}

fn end(state: &mut State, attempt: AttemptId) {
    for task in tasks(state, attempt) {
        let exit = Exit::Code {
            code: 0,
            class: None,
            evidence: String::new(),
        };
        log(
            state,
            Body::Observation(Observation::TaskEnded { task, exit }),
        );
    }
}

fn move_to(state: &mut State, at: Timestamp) {
    let event = Event {
        seq: Seq(state.seq.0 + 1),
        at,
        body: Body::Tick,
    };
    apply(state, &event);
}

fn log(state: &mut State, body: Body) {
    let event = Event {
        seq: Seq(state.seq.0 + 1),
        at: state.now,
        body,
    };
    apply(state, &event);
}

#[cfg(test)]
mod tests {
    use antiphon_types::{Command, Estimate, GpuAmount, JobSpec, NodeSpec, Role, Shape};

    use super::*;

    /// A cluster of one node with 8 GPUs, and these jobs.
    fn state(jobs: Vec<JobSpec>) -> State {
        let mut state = State::default();
        let nodes = vec![NodeSpec {
            name: "n0".into(),
            gpus: 8,
            gpu_type: "H100".to_owned(),
            cpus: 64,
            ..NodeSpec::default()
        }];
        let inventory = Observation::Inventory {
            nodes,
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        };
        log(&mut state, Body::Observation(inventory));
        for spec in jobs {
            let command = Command::Submit {
                spec: Box::new(spec),
            };
            let by = String::new();
            log(
                &mut state,
                Body::Command {
                    by,
                    id: None,
                    command,
                },
            );
        }
        state
    }

    fn job(name: &str, gpus: u32, given: Option<u64>) -> JobSpec {
        let minutes = |count: u64| Millis::from_secs(count * 60);
        let estimate = |expected: u64| Estimate {
            low: minutes(expected / 2),
            expected: minutes(expected),
            high: minutes(expected * 2),
        };
        JobSpec {
            name: name.to_owned(),
            team: "t".to_owned(),
            roles: vec![Role {
                name: "main".to_owned(),
                command: vec!["x".to_owned()],
                shape: Shape {
                    gpus: GpuAmount::from_gpus(gpus),
                    ..Shape::default()
                },
                ..Role::default()
            }],
            estimate: given.map(estimate),
            ..JobSpec::default()
        }
    }

    fn minutes(start: &Start) -> (u64, u64, Option<u64>) {
        let of = |at: Timestamp| at.as_millis() / 60_000;
        (of(start.earliest), of(start.expected), start.latest.map(of))
    }

    #[test]
    fn a_start_is_an_interval_over_everybody_in_front() {
        let jobs = vec![
            job("a", 8, Some(20)),
            job("b", 8, Some(30)),
            job("c", 8, Some(40)),
        ];
        let starts = forecast(&state(jobs)).starts;
        assert_eq!(minutes(&starts[&JobId(1)]), (0, 0, Some(0)));
        assert_eq!(minutes(&starts[&JobId(2)]), (10, 20, Some(40)));
        assert_eq!(minutes(&starts[&JobId(3)]), (25, 50, Some(100)));
    }

    #[test]
    fn nobody_knows_how_late_where_a_run_in_front_names_no_end() {
        let mut first = job("a", 8, None);
        first.priority = 1;
        let jobs = vec![first, job("b", 8, Some(30))];
        let starts = forecast(&state(jobs)).starts;
        assert_eq!(starts[&JobId(2)].latest, None);
        assert_eq!(start_of(&state(vec![job("a", 8, None)]), JobId(9)), None);
    }

    #[test]
    fn who_waits_for_anothers_end_is_told_though_the_queue_is_empty() {
        let mut last = job("last", 8, Some(5));
        last.after = vec![JobId(1)];
        let jobs = vec![job("a", 4, Some(20)), last];
        let start = start_of(&state(jobs), JobId(2)).unwrap();
        assert_eq!(minutes(&start), (10, 20, Some(40)));
    }
}
