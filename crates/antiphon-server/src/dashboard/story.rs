//! The newest part of the log as people read it, kept at hand: a bounded number of happenings, each with its direction. What is
//! older is in the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use antiphon_kernel::State as KernelState;
use antiphon_types::{JobId, Seq};
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::told;
use crate::api::Shared;
use crate::api::auth::{Caller, Role};
use crate::api::events::Reader;
use crate::api::jobs::find_job;
use crate::api::problem::Fault;

/// Happenings kept at hand.
const KEPT: usize = 50_000;
/// Events of the log that are read when the server starts.
const READ_BACK: u64 = 50_000;
/// Happenings of one answer, at most.
const LIMIT_MAX: usize = 500;

/// Something that happened, in one sentence about a job or a node.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Happening {
    /// Place of its event in the log.
    pub(crate) seq: u64,
    /// Which of that event's.
    pub(crate) index: u32,
    /// When, in milliseconds since the Unix epoch.
    pub(crate) at_ms: u64,
    /// `decided` (antiphon about a job), `told` (a training loop), `asked` (a person) or `seen` (a backend).
    pub(crate) way: &'static str,
    /// What kind: `start`, `stop`, `finding`, ..
    pub(crate) kind: &'static str,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    /// Its name, or the node's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// The sentence, without its subject.
    pub(crate) text: String,
    #[serde(skip)]
    #[schema(ignore)]
    pub(crate) id: Option<JobId>,
    /// Whose job it is; nothing where it is about the cluster.
    #[serde(skip)]
    #[schema(ignore)]
    pub(crate) team: Option<String>,
    /// GPU-milliseconds that have to be spent again, where an attempt ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost_gpu_ms: Option<u64>,
}

impl Happening {
    /// Its row on a page, in the order in which things happened.
    pub(super) fn key(&self) -> String {
        format!("told/{:012}.{:03}", self.seq, self.index)
    }

    /// Whether somebody may see it.
    pub(super) fn is_for(&self, caller: &Caller, state: &KernelState) -> bool {
        let of_job = self.id.is_some() || self.team.is_some();
        match &self.team {
            Some(team) => caller.sees(state, team),
            // Of a job that is forgotten nobody knows any more whose it was.
            None => !of_job || caller.role != Role::Member,
        }
    }
}

#[derive(Default)]
pub(super) struct Story(Mutex<VecDeque<Happening>>);

impl Story {
    fn kept(&self) -> MutexGuard<'_, VecDeque<Happening>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, happenings: Vec<Happening>) {
        let mut kept = self.kept();
        kept.extend(happenings);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }

    /// Looks at what happened since a time, the oldest first. There may be tens of thousands: who looks takes few with them.
    /// Says since when, where not all of it is kept.
    pub(super) fn since<T>(
        &self,
        at_ms: u64,
        look: impl FnOnce(&[&Happening], Option<u64>) -> T,
    ) -> T {
        let kept = self.kept();
        let first = kept.partition_point(|told| told.at_ms < at_ms);
        let happened: Vec<&Happening> = kept.range(first..).collect();
        let cut = first == 0 && kept.len() == KEPT;
        let since_ms = happened.first().filter(|_| cut).map(|told| told.at_ms);
        look(&happened, since_ms)
    }

    /// The newest of what happened to a job, the oldest first.
    pub(super) fn of(&self, job: JobId, most: usize) -> Vec<Happening> {
        let kept = self.kept();
        let of_job = kept.iter().rev().filter(|told| told.id == Some(job));
        let mut newest: Vec<Happening> = of_job.take(most).cloned().collect();
        newest.reverse();
        newest
    }
}

/// Reads along in the log for as long as it is polled.
pub(super) async fn read(shared: &Arc<Shared>) {
    let newest = shared.view.state().seq().0;
    let mut reader = Reader::new(shared.clone(), Seq(newest.saturating_sub(READ_BACK)));
    let told = match shared.observed() {
        None => told::happenings,
        Some(_) => told::observed,
    };
    while let Some(event) = reader.next().await {
        let told = told(&shared.view.state(), &event);
        if !told.is_empty() {
            shared.dashboard.story.add(told);
        }
    }
}

/// How often what happened, by kind, and what was lost by it.
#[derive(Debug, Serialize)]
pub(super) struct Sum<'a> {
    /// Since when, where so much has happened that not all of it is kept at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    kinds: BTreeMap<&'a str, u64>,
    lost_gpu_ms: u64,
}

pub(super) fn summed_up<'a>(happenings: &[&'a Happening], since_ms: Option<u64>) -> Sum<'a> {
    let mut kinds = BTreeMap::new();
    for told in happenings {
        *kinds.entry(told.kind).or_default() += 1;
    }
    Sum {
        since_ms,
        kinds,
        lost_gpu_ms: happenings.iter().filter_map(|told| told.lost_gpu_ms).sum(),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoryQuery {
    /// Only of this job.
    job: Option<String>,
    /// Only in this direction: `decided`, `told`, `asked` or `seen`.
    way: Option<String>,
    /// Only before this event.
    before: Option<u64>,
    /// At most so many; default 100, at most 500.
    limit: Option<usize>,
}

/// What happened, the newest first, as far as it is kept at hand.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoryPage {
    /// The newest first.
    happenings: Vec<Happening>,
    /// Give it as `before` for what was earlier, if anything was.
    before: Option<u64>,
}

/// What happened, in sentences, the newest first. Only the newest part of the log is kept at hand; `/v1/events` has all of it.
#[utoipa::path(get, path = "/v1/story", params(StoryQuery), responses((status = 200, body = StoryPage)))]
pub(crate) async fn story(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    query: Result<Query<StoryQuery>, QueryRejection>,
) -> Result<Json<StoryPage>, Fault> {
    let Query(query) = query?;
    let state = shared.view.state();
    let job = match &query.job {
        Some(job) => Some(find_job(&state, &caller, job)?.id),
        None => None,
    };
    let limit = query.limit.unwrap_or(100).clamp(1, LIMIT_MAX);
    let wanted = |told: &&Happening| {
        query.before.is_none_or(|before| told.seq < before)
            && job.is_none_or(|job| told.id == Some(job))
            && query.way.as_deref().is_none_or(|way| told.way == way)
            && told.is_for(&caller, &state)
    };
    let kept = shared.dashboard.story.kept();
    let mut happenings: Vec<Happening> = Vec::new();
    let mut before = None;
    for told in kept.iter().rev().filter(wanted) {
        // An event is not cut in two: the next page begins before it.
        if happenings.len() >= limit && happenings.last().is_some_and(|last| last.seq != told.seq) {
            before = happenings.last().map(|last| last.seq);
            break;
        }
        happenings.push(told.clone());
    }
    Ok(Json(StoryPage { happenings, before }))
}
