//! What a server that only observes says beside everything else: the other scheduler's word on each job, what antiphon would
//! do, how old that is, and a refusal for whatever would act.

use std::sync::Arc;

use antiphon_kernel::{Job, JobState, State as KernelState};
use antiphon_types::{Millis, Timestamp, WaitReason};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::auth::Caller;
use super::model::{
    ObservedView, ObservesView, OrderView, ProposalView, WhyView, WouldStartView, WouldStopView,
};
use super::problem::Fault;
use super::{Shared, now};
use crate::observe::{Book, Observed, Word, Would, key};

/// Answers whatever would act.
pub(crate) async fn refused(State(shared): State<Arc<Shared>>) -> Fault {
    refusal(&shared, "this")
}

/// What is not there where the server only observes.
pub(crate) fn refusal(shared: &Shared, what: &str) -> Fault {
    only_observes(shared.source.name(), what)
}

pub(crate) fn only_observes(scheduler: &str, what: &str) -> Fault {
    Fault::new(
        StatusCode::CONFLICT,
        "AP0416",
        format!(
            "this server only observes {scheduler}: {what} is {scheduler}'s alone, and nothing was changed"
        ),
        format!(
            "use {scheduler}'s own commands; a server that drives it is started without `--observe`"
        ),
    )
}

/// Whether a job of this name was seen under this id: `123` or `slurm-123` of `slurm-123:sft-8b`. A name of antiphon's own holds no
/// colon.
pub(crate) fn is_key(name: &str, text: &str) -> bool {
    let Some((seen, _)) = name.split_once(':') else {
        return false;
    };
    let id = seen.split_once('-').map(|(_, id)| id);
    seen == text || id == Some(text)
}

/// What is observed and how old it is.
pub(crate) fn status(shared: &Shared, state: &KernelState) -> Option<ObservesView> {
    let observed = shared.observed()?;
    let book = observed.book();
    let would = book.proposal.jobs.values();
    let count = |wanted: fn(&Would) -> bool| would.clone().filter(|one| wanted(one)).count() as u64;
    let at = now().max(state.now());
    Some(ObservesView {
        scheduler: observed.scheduler().into(),
        seen_ms: book.seen_at.as_millis(),
        age_ms: at.since(book.seen_at).as_millis(),
        took_ms: book.took.as_millis(),
        looks: book.looks,
        error: book.error.clone(),
        left_out: book.left_out.clone(),
        would_start: count(|would| matches!(would, Would::Start { .. })),
        would_stop: count(|would| matches!(would, Would::GiveWay { .. })),
        no_proposal: book.no_proposal.clone(),
    })
}

/// What the other scheduler says of a job, and what antiphon would do with it.
pub(crate) fn view(observed: &Observed, job: &Job) -> ObservedView {
    let book = observed.book();
    let word = book.jobs.get(&job.id);
    let id = word.map(|word| word.key.as_str());
    let id = id.or_else(|| key(observed.scheduler(), &job.spec.name));
    ObservedView {
        id: id.unwrap_or_default().to_owned(),
        reason: word.and_then(|word| word.reason.clone()),
        kept_back: word.is_some_and(|word| word.kept_back),
        priority: word.map_or(0, |word| word.priority),
        place: word.and_then(|word| word.place).map(count),
        place_here: book.proposal.places.get(&job.id).copied().map(count),
        starts_ms: word.and_then(|word| word.starts).map(Timestamp::as_millis),
        partitions: word.map_or_else(Vec::new, |word| word.partitions.clone()),
        not_weighed: word.map_or_else(Vec::new, |word| word.not_weighed.clone()),
        would: would(&book, job),
    }
}

fn count(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(u64::MAX)
}

/// What antiphon would do with a job now, to stand behind "antiphon would".
fn would(book: &Book, job: &Job) -> Option<String> {
    let word = book.jobs.get(&job.id);
    if let Some(refused) = word.and_then(|word| word.refused.as_ref()) {
        return Some(format!("refuse it: {refused}"));
    }
    Some(match book.proposal.jobs.get(&job.id)? {
        Would::Start { on, .. } => match word.and_then(|word| against(book, job, word)) {
            None => format!("start it now on {on}"),
            Some(against) => format!("start it now on {on}, {against}"),
        },
        Would::GiveWay { cause, lost } => {
            let lost = if lost.gpu_millis() < 1_000 {
                String::new()
            } else {
                format!("; {lost} would be done again, since antiphon has seen no checkpoint of it")
            };
            format!("stop it: {cause}{lost}")
        }
        Would::HoldBack { nodes: 1 } => "hold a node back for it".into(),
        Would::HoldBack { nodes } => format!("hold {nodes} nodes back for it"),
    })
}

/// Nodes on which antiphon would start a job and that are in none of its partitions: it takes partitions that share nodes for one.
fn outside(book: &Book, job: &Job, word: &Word) -> Option<String> {
    let Would::Start { nodes, .. } = book.proposal.jobs.get(&job.id)? else {
        return None;
    };
    let is_in = |node| {
        let of_node = book.partitions.get(node);
        of_node.is_some_and(|of_node| of_node.iter().any(|name| word.partitions.contains(name)))
    };
    let outside: Vec<&str> = nodes
        .iter()
        .filter(|node| !is_in(*node))
        .map(|node| node.0.as_str())
        .collect();
    let (first, others) = outside.split_first()?;
    Some(match others.len() {
        0 => format!("of which {first} is not in its partition"),
        more => format!("of which {first} and {more} more are not in its partition"),
    })
}

/// What speaks against a place, or may.
fn against(book: &Book, job: &Job, word: &Word) -> Option<String> {
    let not_weighed = (!word.not_weighed.is_empty()).then(|| {
        format!(
            "not weighing that it asks for {}",
            word.not_weighed.join(", ")
        )
    });
    let both: Vec<String> = outside(book, job, word)
        .into_iter()
        .chain(not_weighed)
        .collect();
    (!both.is_empty()).then(|| both.join(", "))
}

/// Why a job waits, in one sentence: there and here.
pub(crate) fn reason(
    scheduler: &str,
    seen: &ObservedView,
    job: &Job,
    waits: Option<&WaitReason>,
) -> String {
    let there = seen.reason.as_deref().unwrap_or("no reason yet");
    let there = format!("{scheduler}: {there}");
    match (&job.state, &seen.would) {
        (JobState::Held { .. }, None) => there,
        (JobState::Pending { .. } | JobState::Held { .. }, Some(would)) => {
            format!("{there}; antiphon would {would}")
        }
        (JobState::Pending { .. }, None) => match waits {
            Some(WaitReason::Turn) | None => there,
            Some(waits) => format!("{there}; antiphon: {waits}"),
        },
        (_, would) => would
            .as_ref()
            .map_or_else(String::new, |would| format!("antiphon would {would}")),
    }
}

/// Adds to why a job is where it is what is known where it is only observed.
pub(crate) fn add(
    shared: &Shared,
    state: &KernelState,
    job: &Job,
    now: Timestamp,
    told: &mut WhyView,
) {
    let Some(observed) = shared.observed() else {
        return;
    };
    let scheduler = observed.scheduler();
    let seen = view(observed, job);
    let here = match (&job.state, &seen.would) {
        (_, Some(would)) => Some(format!("antiphon would {would}")),
        (JobState::Running { .. }, None) => Some("antiphon would let it run".into()),
        (JobState::Held { .. }, None) => Some("antiphon would keep it back as well".into()),
        _ => None,
    };
    let starts = matches!(
        observed.book().proposal.jobs.get(&job.id),
        Some(Would::Start { .. })
    );
    match &job.state {
        JobState::Pending { .. } if starts => {
            // What keeps it says the kernel of a cycle that has not been: this one would start it.
            told.sentences
                .drain(..told.reasons.len().min(told.sentences.len()));
            told.change = None;
        }
        JobState::Pending { .. } => {
            if let Some(first) = told.sentences.first_mut() {
                *first = format!("antiphon would let it wait: {first}");
            }
        }
        // Nothing of antiphon's would release it.
        JobState::Held { .. } => {
            let last = told.sentences.pop();
            told.sentences = last.into_iter().collect();
            (told.reasons, told.change) = (Vec::new(), None);
        }
        _ => (),
    }
    let asks = not_weighed(&seen).filter(|_| !starts);
    let front = [there(scheduler, &seen, job, now), here, asks];
    told.sentences.splice(0..0, front.into_iter().flatten());
    told.sentences
        .push(age(&observed.book(), scheduler, now.max(state.now())));
    told.observed = Some(seen);
}

/// What the other scheduler says.
fn there(scheduler: &str, seen: &ObservedView, job: &Job, now: Timestamp) -> Option<String> {
    let id = &seen.id;
    let waits = matches!(job.state, JobState::Pending { .. } | JobState::Held { .. });
    if !waits {
        let ended = job.state.is_ended();
        return (!ended).then(|| format!("{scheduler} runs it as {id}"));
    }
    let reason = seen.reason.as_deref().unwrap_or("it gives no reason");
    let mut text = format!("{scheduler} has not started {id}: {reason}");
    if let Some(place) = seen.place {
        text += &format!("; place {place} of those that wait for room there");
        if let Some(here) = seen.place_here {
            text += &format!(", {here} in antiphon's order");
        }
    }
    if let Some(at) = seen.starts_ms {
        let left = Timestamp::from_millis(at).since(now);
        let left = Millis::from_millis(left.as_millis() / 1_000 * 1_000);
        text += &format!("; {scheduler} means to start it in {left}");
    }
    Some(text)
}

fn not_weighed(seen: &ObservedView) -> Option<String> {
    let what = &seen.not_weighed;
    (!what.is_empty()).then(|| {
        format!(
            "it asks for {}, which antiphon does not weigh",
            what.join(", ")
        )
    })
}

fn age(book: &Book, scheduler: &str, now: Timestamp) -> String {
    let age = now.since(book.seen_at);
    let age = Millis::from_millis(age.as_millis() / 1_000 * 1_000);
    match &book.error {
        None => format!("as {scheduler} was {age} ago"),
        Some(error) => {
            format!("as {scheduler} was {age} ago: since then it does not answer ({error})")
        }
    }
}

/// What antiphon would do now, where this server only observes.
#[utoipa::path(get, path = "/v1/proposal", responses((status = 200, body = ProposalView)))]
pub(crate) async fn proposal(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> Result<Json<ProposalView>, Fault> {
    let Some(observed) = shared.observed() else {
        return Err(Fault::new(
            StatusCode::CONFLICT,
            "AP0417",
            "this server does what it decides: there is nothing that it only would do",
            "`antiphon why JOB` says what becomes of a job; `GET /v1/events` what was decided",
        ));
    };
    let state = shared.view.state();
    Ok(Json(proposed(observed, &state, &caller)))
}

/// What antiphon would do, as far as somebody may see it.
pub(crate) fn proposed(observed: &Observed, state: &KernelState, caller: &Caller) -> ProposalView {
    let book = observed.book();
    let mut view = ProposalView {
        scheduler: observed.scheduler().into(),
        at_ms: book.proposal.at.as_millis(),
        unknown: book.no_proposal.clone(),
        starts: Vec::new(),
        stops: Vec::new(),
        order: Vec::new(),
        nodes: book
            .proposal
            .nodes
            .iter()
            .map(|(node, why)| format!("put {node} aside: {why}"))
            .collect(),
    };
    let seen = |id| {
        state
            .job(id)
            .filter(|job| caller.sees(state, &job.spec.team))
    };
    let sees = |id| seen(id).is_some();
    for (id, would) in &book.proposal.jobs {
        let Some(job) = seen(*id) else { continue };
        let (job_id, name) = (id.to_string(), job.spec.name.clone());
        match would {
            Would::Start { on, .. } => view.starts.push(WouldStartView {
                job: job_id,
                name,
                gpus_thousandths: job.spec.gpus().thousandths(),
                on: on.clone(),
                against: book.jobs.get(id).and_then(|word| against(&book, job, word)),
            }),
            Would::GiveWay { cause, lost } => view.stops.push(WouldStopView {
                job: job_id,
                name,
                why: cause.to_string(),
                unsaved_gpu_ms: lost.gpu_millis(),
            }),
            Would::HoldBack { .. } => (),
        }
    }
    let mut places: Vec<_> = book
        .proposal
        .places
        .iter()
        .filter(|(id, _)| sees(**id))
        .collect();
    places.sort_by_key(|(_, place)| **place);
    view.order.extend(
        places
            .into_iter()
            .take(ORDER_MAX)
            .map(|(id, here)| OrderView {
                job: id.to_string(),
                place_here: count(*here),
                place_there: book.jobs.get(id).and_then(|word| word.place).map(count),
            }),
    );
    view
}

/// Jobs whose places are compared in one answer.
const ORDER_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_found_by_its_id_elsewhere() {
        for (name, text, is) in [
            ("slurm-123:sft-8b", "123", true),
            ("slurm-123:sft-8b", "slurm-123", true),
            ("slurm-20_3:sweep", "20_3", true),
            ("slurm-123:sft-8b", "12", false),
            ("slurm-123:7", "7", false),
            ("train-7", "7", false),
        ] {
            assert_eq!(is_key(name, text), is, "{name} {text}");
        }
    }
}
