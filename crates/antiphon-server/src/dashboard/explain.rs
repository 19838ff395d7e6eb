//! Why one decision was made: the state as it was just before, what was decided, and what else there was to choose. The log is
//! replayed to that place, and alternatives are tried on copies by the kernel itself, so nothing is told that it did not weigh.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use antiphon_kernel::{Job, JobState, State, apply, at_stake, decide, explain as kernel, standing};
use antiphon_types::{
    Action, AttemptId, Body, Command, Event, Finding, JobId, NodeName, Seq, StopCause, Terms,
};
use axum::Json;
use axum::extract::{Path, State as Shares};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::page::{Scope, scope};
use super::story::Happening;
use super::{gpus, told};
use crate::api::Shared;
use crate::api::auth::Caller;
use crate::api::events::shown_to;
use crate::api::problem::Fault;
use crate::event_loop::{Refused, caught};
use crate::recovery::{LoadError, load_before};

/// Jobs of the queue that are shown as it was.
const QUEUE_SHOWN: usize = 12;
/// Other places that are tried for one start.
const PLACES_TRIED: usize = 3;
/// Starts of one decision whose other places are tried.
const STARTS_TRIED: usize = 4;
/// Jobs that could have given way instead, at most.
const OTHERS_SHOWN: usize = 12;

/// What an event was, and the state it was made in.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Explanation {
    /// Place of the event in the log.
    seq: u64,
    /// When, in milliseconds since the Unix epoch.
    at_ms: u64,
    /// `command`, `observation`, `finding`, `decision`, `tick` or `safe_mode`.
    kind: &'static str,
    /// What it says, in sentences.
    happenings: Vec<Happening>,
    /// The state before it.
    before: Before,
    /// What was chosen, and from what.
    choices: Vec<Choice>,
    /// The event as it stands in the log.
    #[schema(value_type = Object)]
    event: serde_json::Value,
}

/// A state in a few numbers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Before {
    /// GPUs by type.
    gpus: Vec<TypeBefore>,
    /// Jobs that held GPUs.
    running: usize,
    /// Jobs that waited.
    waiting: usize,
    /// The first of the queue, in service order.
    queue: Vec<Waiting>,
    /// Teams in the order of shares.
    teams: Vec<TeamBefore>,
}

/// The GPUs of one type, in thousandths.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TypeBefore {
    gpu_type: String,
    total: u64,
    busy: u64,
    held: u64,
    idle: u64,
}

/// A job that waited.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waiting {
    job: String,
    name: String,
    team: String,
    class: &'static str,
    gpus_thousandths: u64,
    /// Why it waited.
    reason: String,
    /// Whether this event starts it.
    starts: bool,
}

/// A team's standing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TeamBefore {
    name: String,
    /// 1 goes first.
    place: u32,
    /// Decayed GPU-milliseconds that it follows from.
    share_gpu_ms: u64,
    /// GPUs that it held, in thousandths.
    allocated_thousandths: u64,
}

/// One choice, what was taken first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Choice {
    /// `place` (where a job starts), `victim` (who gives way) or `remedy` (what is done about a finding).
    kind: &'static str,
    /// The job that it is about.
    job: String,
    /// In words: what was chosen between, and by what.
    question: String,
    options: Vec<ChoiceOption>,
    /// What is not among the options, in words.
    note: String,
}

/// One of the things to choose from.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChoiceOption {
    /// What it is.
    what: String,
    /// Whether it was taken.
    chosen: bool,
    /// What it scored: what was looked at, and what it counted.
    score: Vec<Scored>,
    /// What speaks against it, where it could not be chosen.
    #[serde(skip_serializing_if = "String::is_empty")]
    against: String,
}

/// One line of a score.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Scored {
    name: String,
    points: i64,
}

/// The last explanation: who reads one reads it again when the page is drawn anew.
#[derive(Default)]
pub(super) struct Latest(Mutex<Option<(u64, Scope, serde_json::Value)>>);

impl Latest {
    fn of(&self, seq: u64, scope: &Scope) -> Option<serde_json::Value> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest
            .as_ref()
            .filter(|(known, of, _)| *known == seq && of == scope)
            .map(|(_, _, value)| value.clone())
    }

    fn keep(&self, seq: u64, scope: Scope, value: serde_json::Value) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((seq, scope, value));
    }
}

/// The state an event was made in, what was decided, and what else there was to choose.
#[utoipa::path(get, path = "/v1/explain/{seq}", responses((status = 200, body = Explanation)))]
pub(crate) async fn explain(
    Shares(shared): Shares<Arc<Shared>>,
    caller: Caller,
    Path(seq): Path<u64>,
) -> Result<Json<serde_json::Value>, Fault> {
    if let Some(known) = shared.dashboard.explained.of(seq, &scope(&caller)) {
        return Ok(Json(known));
    }
    let newest = shared.view.state().seq().0;
    if seq == 0 || seq > newest {
        return Err(unknown(seq, newest));
    }
    let _turn = shared.forecasts.turn().await?;
    // Beside the threads that answer requests: a replay and four trials are up to seconds of one core.
    let (here, on) = (tokio::runtime::Handle::current(), shared.clone());
    let sees = scope(&caller);
    let explanation = tokio::task::spawn_blocking(move || {
        let (state, event) = here
            .block_on(load_before(&*on.log, seq))
            .map_err(|error| unreadable(seq, &error))?;
        let event = Arc::new(event);
        let (shown, told) = {
            let now = on.view.state();
            let mut told = match on.observed() {
                None => told::happenings(&now, &event),
                Some(_) => told::observed(&now, &event),
            };
            told.retain(|told| told.is_for(&caller, &now));
            let whole = scope(&caller).is_none();
            let shown = whole.then(|| event.clone());
            let shown = shown.or_else(|| shown_to(&caller, &now, &event));
            (shown.ok_or_else(|| unknown(seq, newest))?, told)
        };
        caught(|| explained(&state, &shown, &caller, told))
            .map_err(|bug| Fault::from(Refused::Bug(bug)))
    });
    let explanation = explanation
        .await
        .map_err(|_| Fault::from(Refused::Stopping))??;
    let value = serde_json::to_value(explanation).unwrap_or_default();
    shared.dashboard.explained.keep(seq, sees, value.clone());
    Ok(Json(value))
}

fn unknown(seq: u64, newest: u64) -> Fault {
    Fault::new(
        StatusCode::NOT_FOUND,
        "AP0872",
        format!("there is no event {seq}: the newest is {newest}"),
        "choose one that `/v1/story` or the Explain page lists",
    )
}

fn unreadable(seq: u64, error: &LoadError) -> Fault {
    match error {
        LoadError::TooFar { events } => Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "AP0870",
            format!(
                "event {seq} is too far back: {events} events would have to be replayed to see the state before it"
            ),
            "choose a newer event; the log itself still has this one: `/v1/events?after=N`",
        ),
        other => Fault::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "AP0873",
            format!("the log could not be replayed to event {seq}: {other}"),
            "run `antiphon audit`, which says what is wrong with the log",
        ),
    }
}

fn explained(
    state: &State,
    event: &Event,
    caller: &Caller,
    happenings: Vec<Happening>,
) -> Explanation {
    // The state's time is that of the event before; what was decided was decided at this one's.
    let mut before = state.clone();
    let tick = Event {
        seq: Seq(state.seq().0 + 1),
        at: event.at,
        body: Body::Tick,
    };
    apply(&mut before, &tick);
    let choices = match &event.body {
        Body::Decision(decision) => choices(&before, caller, &decision.actions),
        Body::Finding(Finding::Diagnosis(found)) => vec![remedies(found)],
        Body::Finding(_)
        | Body::Command { .. }
        | Body::Observation(_)
        | Body::Tick
        | Body::SafeMode { .. } => Vec::new(),
    };
    let actions = if let Body::Decision(decision) = &event.body {
        decision.actions.as_slice()
    } else {
        &[]
    };
    let starts: BTreeSet<JobId> = launches(actions).map(|(attempt, ..)| attempt.job).collect();
    Explanation {
        seq: event.seq.0,
        at_ms: event.at.as_millis(),
        kind: event.body.kind(),
        happenings,
        before: as_it_was(&before, caller, &starts),
        choices,
        event: serde_json::to_value(&event.body).unwrap_or_default(),
    }
}

fn as_it_was(state: &State, caller: &Caller, starts: &BTreeSet<JobId>) -> Before {
    let queue: Vec<_> = kernel::queue(state, QUEUE_SHOWN);
    let queue = queue.into_iter().filter_map(|id| state.job(id));
    let queue: Vec<_> = queue.collect();
    let reasons = kernel::ruling(state, queue.iter().copied(), state.now());
    let mut teams: Vec<TeamBefore> = standing(state)
        .into_iter()
        .map(|(name, standing)| TeamBefore {
            name: name.to_owned(),
            place: standing.place,
            share_gpu_ms: standing.counted.gpu_millis(),
            allocated_thousandths: state.team_holds(name).thousandths(),
        })
        .collect();
    teams.sort_by_key(|team| team.place);
    Before {
        gpus: gpus::by_type(state)
            .into_iter()
            .map(|(gpu_type, count)| TypeBefore {
                gpu_type: gpu_type.to_owned(),
                total: count.total,
                busy: count.busy,
                held: count.held,
                idle: count.idle,
            })
            .collect(),
        running: state.active_jobs().count(),
        waiting: state.queue_length(),
        queue: queue
            .iter()
            .map(|job| Waiting {
                job: job.id.to_string(),
                name: name_of(state, caller, job),
                team: job.spec.team.clone(),
                class: job.spec.class.name(),
                gpus_thousandths: job.spec.gpus().thousandths(),
                reason: reasons
                    .get(&job.id)
                    .map(ToString::to_string)
                    .unwrap_or_default(),
                starts: starts.contains(&job.id),
            })
            .collect(),
        teams,
    }
}

/// What a job is called, to those who may know.
fn name_of(state: &State, caller: &Caller, job: &Job) -> String {
    match caller.sees(state, &job.spec.team) {
        true => job.spec.name.clone(),
        false => String::new(),
    }
}

fn launches(
    actions: &[Action],
) -> impl Iterator<Item = (AttemptId, &antiphon_types::Allocation, &Terms)> {
    actions.iter().filter_map(|action| {
        let Action::Launch {
            attempt,
            allocation,
            terms,
        } = action
        else {
            return None;
        };
        Some((*attempt, allocation, terms))
    })
}

fn choices(state: &State, caller: &Caller, actions: &[Action]) -> Vec<Choice> {
    let starts = launches(actions).take(STARTS_TRIED);
    let mut choices: Vec<Choice> = starts
        .map(|(attempt, allocation, terms)| places(state, attempt.job, allocation, terms))
        .collect();
    let mut preemptors: BTreeSet<JobId> = BTreeSet::new();
    let victims = stops(actions).filter_map(|(_, cause)| preemptor(cause));
    preemptors.extend(victims);
    choices.extend(
        preemptors
            .into_iter()
            .map(|job| victims_for(state, caller, job, actions)),
    );
    choices
}

/// Where a job starts, and where it would have started had these nodes not been there.
fn places(state: &State, job: JobId, taken: &antiphon_types::Allocation, terms: &Terms) -> Choice {
    let scored = |terms: &Terms| {
        let line = |score: &antiphon_types::Score| Scored {
            name: score.name.to_string(),
            points: score.points,
        };
        terms.score.iter().map(line).collect()
    };
    let mut options = vec![ChoiceOption {
        what: taken.to_string(),
        chosen: true,
        score: scored(terms),
        against: String::new(),
    }];
    let mut trial = state.clone();
    let mut nodes: BTreeSet<NodeName> = taken.tasks.iter().map(|task| task.node.clone()).collect();
    let mut exhausted = false;
    for _ in 0..PLACES_TRIED {
        for node in std::mem::take(&mut nodes) {
            let drain = Event {
                seq: Seq(trial.seq().0 + 1),
                at: trial.now(),
                body: Body::Command {
                    by: String::new(),
                    id: None,
                    command: Command::Drain {
                        node,
                        reason: String::new(),
                    },
                },
            };
            apply(&mut trial, &drain);
        }
        let decision = decide(&trial);
        let next = launches(&decision.actions).find(|(attempt, ..)| attempt.job == job);
        let Some((_, allocation, terms)) = next else {
            exhausted = true;
            break;
        };
        options.push(ChoiceOption {
            what: allocation.to_string(),
            chosen: false,
            score: scored(terms),
            against: String::new(),
        });
        nodes = allocation
            .tasks
            .iter()
            .map(|task| task.node.clone())
            .collect();
    }
    Choice {
        kind: "place",
        job: job.to_string(),
        question: "where it starts: the first is what was chosen, each other one what is chosen without the nodes in front of it".into(),
        options,
        note: if exhausted {
            "there was no other place in which it would have started at that moment".into()
        } else {
            String::new()
        },
    }
}

fn stops(actions: &[Action]) -> impl Iterator<Item = (AttemptId, &StopCause)> {
    actions.iter().filter_map(|action| {
        if let Action::Yield { attempt, cause, .. } | Action::Terminate { attempt, cause, .. } =
            action
        {
            Some((*attempt, cause))
        } else {
            None
        }
    })
}

const fn preemptor(cause: &StopCause) -> Option<JobId> {
    if let StopCause::Priority { preemptor }
    | StopCause::Reclaim { preemptor }
    | StopCause::Turn { preemptor } = cause
    {
        Some(*preemptor)
    } else {
        None
    }
}

/// Who gives way for a job, and what each other running job would have lost.
fn victims_for(state: &State, caller: &Caller, preemptor_id: JobId, actions: &[Action]) -> Choice {
    let gone: BTreeSet<JobId> = stops(actions)
        .filter(|(_, cause)| preemptor(cause) == Some(preemptor_id))
        .map(|(attempt, _)| attempt.job)
        .collect();
    let asking = state.job(preemptor_id).map(|job| job.spec.class);
    let mut options: Vec<(bool, u64, ChoiceOption)> = Vec::new();
    for job in state.active_jobs() {
        let (Some(active), Some(stake)) = (job.state.active(), at_stake(state, job, state.now()))
        else {
            continue;
        };
        let chosen = gone.contains(&job.id);
        let loses = stake.unsaved.gpu_millis() + stake.restart.gpu_millis();
        let against = if matches!(job.state, JobState::Stopping { .. }) {
            "it stops already".to_owned()
        } else if asking.is_some_and(|asking| active.class <= asking) && !chosen {
            format!(
                "it runs as {}, which does not give way to the asking class by priority",
                active.class
            )
        } else if job.near_end.is_some_and(|until| until > state.now()) {
            "it is near its end and left alone".to_owned()
        } else {
            String::new()
        };
        let points = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        options.push((
            !chosen,
            loses,
            ChoiceOption {
                what: format!(
                    "{} `{}` ({}, {} GPUs)",
                    job.id,
                    name_of(state, caller, job),
                    active.class,
                    active.allocation.gpu_amount()
                ),
                chosen,
                score: vec![
                    Scored {
                        name: "GPU-seconds since its last checkpoint".into(),
                        points: points(stake.unsaved.gpu_millis() / 1_000),
                    },
                    Scored {
                        name: "GPU-seconds that another start takes".into(),
                        points: points(stake.restart.gpu_millis() / 1_000),
                    },
                ],
                against,
            },
        ));
    }
    options.sort_by_key(|(not_chosen, loses, option)| {
        (*not_chosen, !option.against.is_empty(), *loses)
    });
    let all = options.len();
    let options: Vec<ChoiceOption> = options
        .into_iter()
        .take(OTHERS_SHOWN.max(gone.len()))
        .map(|(_, _, option)| option)
        .collect();
    let left_out = all - options.len();
    Choice {
        kind: "victim",
        job: preemptor_id.to_string(),
        question: "who gives way for it: the lowest class first, then the set that makes room and loses the least".into(),
        options,
        note: match left_out {
            0 => String::new(),
            left_out => format!("{left_out} more running jobs are left out"),
        },
    }
}

/// What would help against a finding, in the order in which it is tried.
fn remedies(found: &antiphon_types::Diagnosis) -> Choice {
    let options = found.remedies.iter().map(|remedy| ChoiceOption {
        what: remedy.to_string(),
        chosen: false,
        score: Vec::new(),
        against: String::new(),
    });
    Choice {
        kind: "remedy",
        job: found.attempt.job.to_string(),
        question: "what would help, in the order in which it is tried; the directive that follows says what was taken".into(),
        options: options.collect(),
        note: if found.remedies.is_empty() {
            "nothing has to be done about it".into()
        } else {
            String::new()
        },
    }
}
