//! The log as a stream of server-sent events, from any place on. A reader that falls behind reads the log itself.

use std::convert::Infallible;
use std::sync::Arc;

use antiphon_kernel::State as KernelState;
use antiphon_types::{Action, Body, Command, Decision, Event, JobId, Observation, Seq};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::Shared;
use super::auth::{Caller, Role};
use super::problem::Fault;
use crate::recovery::decode;

/// Events read from the log at once.
const PAGE: usize = 500;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Start behind this place; default: only what comes from now on.
    after: Option<u64>,
}

/// Streams the log: `id` is the place, `event` the kind, `data` the event as JSON.
#[utoipa::path(get, path = "/v1/events", params(EventsQuery), responses((status = 200, content_type = "text/event-stream", body = String)))]
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Fault> {
    let Query(query) = query?;
    let after = query.after.unwrap_or_else(|| shared.view.state().seq().0);
    let reader = Reader::new(shared, Seq(after));
    let reader = ShownTo { caller, reader };
    let stream = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok(to_sse(&event)), reader))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// Events as one person may see them.
struct ShownTo {
    caller: Caller,
    reader: Reader,
}

impl ShownTo {
    /// The next event that the caller may see; none once the caller may see nothing any more.
    async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            let event = self.reader.next().await?;
            let shared = &self.reader.shared;
            // A stream that is open outlives the request that was let in: a token that was revoked meanwhile ends it.
            shared.tokens.people.by_hash(&self.caller.token).ok()?;
            if self.caller.role != Role::Member {
                return Some(event);
            }
            let state = shared.view.state();
            if let Some(shown) = shown_to(&self.caller, &state, &event) {
                return Some(shown);
            }
        }
    }
}

/// The log from any place on, and then what is committed.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    live: broadcast::Receiver<Arc<Event>>,
    last: Seq,
    page: std::vec::IntoIter<Event>,
    /// Whether the log may hold events that the live stream will not bring.
    behind: bool,
}

impl Reader {
    /// Reads everything behind a place.
    pub(crate) fn new(shared: Arc<Shared>, after: Seq) -> Self {
        let live = shared.view.subscribe();
        Self {
            shared,
            live,
            last: after,
            page: Vec::new().into_iter(),
            behind: true,
        }
    }

    /// The next event, when there is one; nothing where the log cannot be read, or the server ends.
    pub(crate) async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            if let Some(event) = self.page.next() {
                self.last = event.seq;
                return Some(Arc::new(event));
            }
            if self.behind {
                let entries = self.shared.log.read(self.last.0, PAGE).await.ok()?;
                self.behind = !entries.is_empty();
                let events: Option<Vec<Event>> =
                    entries.iter().map(|entry| decode(entry).ok()).collect();
                self.page = events?.into_iter();
                continue;
            }
            match self.live.recv().await {
                Ok(event) if event.seq <= self.last => (),
                Ok(event) => {
                    self.last = event.seq;
                    return Some(event);
                }
                Err(RecvError::Lagged(_)) => self.behind = true,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// What a member sees of an event: all of what concerns the cluster, and what concerns the jobs of their teams.
pub(crate) fn shown_to(
    caller: &Caller,
    state: &KernelState,
    event: &Arc<Event>,
) -> Option<Arc<Event>> {
    let job = |job: JobId| {
        let job = state.job(job);
        job.is_some_and(|job| caller.sees(state, &job.spec.team))
    };
    let shown = match &event.body {
        Body::Command { command, .. } => match command {
            Command::Submit { spec } => caller.sees(state, &spec.team),
            Command::Cancel { job: of }
            | Command::Hold { job: of }
            | Command::Release { job: of }
            | Command::Preempt { job: of }
            | Command::SetClass { job: of, .. }
            | Command::Approve { job: of, .. }
            | Command::Undo { job: of, .. } => job(*of),
            Command::Direct(direct) => job(direct.job),
            Command::Ask(ask) => job(ask.attempt.job),
            Command::Drain { .. }
            | Command::Undrain { .. }
            | Command::Pause { .. }
            | Command::Unpause
            | Command::SetPolicy { .. }
            | Command::SetTeams { .. }
            | Command::SetGate { .. }
            | Command::Maintain(_)
            | Command::Notice(_) => true,
        },
        Body::Observation(observation) => match observation {
            Observation::Inventory { .. } => true,
            Observation::Holds { task, .. }
            | Observation::TaskStarted { task }
            | Observation::TaskEnded { task, .. } => job(task.attempt.job),
            Observation::Attached { attempt, .. }
            | Observation::Acknowledged { attempt, .. }
            | Observation::Shards { attempt, .. } => job(attempt.job),
            Observation::Checkpointed { checkpoint } => job(checkpoint.attempt.job),
        },
        Body::Finding(finding) => job(finding.attempt().job),
        Body::Decision(decision) => {
            let about = |action: &Action| match action {
                Action::Launch { attempt, .. }
                | Action::Yield { attempt, .. }
                | Action::Terminate { attempt, .. }
                | Action::Kill { attempt, .. }
                | Action::Settle { attempt, .. } => job(attempt.job),
                Action::Direct { job: of, .. }
                | Action::Reserve { job: of, .. }
                | Action::Unreserve { job: of }
                | Action::Remedy { job: of, .. }
                | Action::Augment { job: of, .. }
                | Action::Abandon { job: of, .. } => job(*of),
                Action::PutAside { .. } | Action::Gate(_) => true,
            };
            let actions = decision.actions.iter().filter(|action| about(action));
            let actions: Vec<Action> = actions.cloned().collect();
            if actions.is_empty() {
                return None;
            }
            return Some(Arc::new(Event {
                seq: event.seq,
                at: event.at,
                body: Body::Decision(Decision {
                    actions,
                    ..decision.clone()
                }),
            }));
        }
        Body::Tick | Body::SafeMode { .. } => true,
    };
    shown.then(|| event.clone())
}

fn to_sse(event: &Event) -> SseEvent {
    let data = serde_json::to_string(event).expect("an event is plain data");
    SseEvent::default()
        .id(event.seq.to_string())
        .event(event.body.kind())
        .data(data)
}
