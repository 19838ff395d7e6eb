//! The log as a stream of server-sent events, from any place on. A reader that falls behind reads the log itself.

use std::convert::Infallible;
use std::sync::Arc;

use antiphon_types::{Event, Seq};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::Shared;
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
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Fault> {
    let Query(query) = query?;
    let live = shared.view.subscribe();
    let after = query.after.unwrap_or_else(|| shared.view.state().seq().0);
    let reader = Reader {
        shared,
        live,
        last: Seq(after),
        page: Vec::new().into_iter(),
        behind: true,
    };
    let stream = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok(to_sse(&event)), reader))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

struct Reader {
    shared: Arc<Shared>,
    live: broadcast::Receiver<Arc<Event>>,
    last: Seq,
    page: std::vec::IntoIter<Event>,
    /// Whether the log may hold events that the live stream will not bring.
    behind: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Arc<Event>> {
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

fn to_sse(event: &Event) -> SseEvent {
    let data = serde_json::to_string(event).expect("an event is plain data");
    SseEvent::default()
        .id(event.seq.to_string())
        .event(event.body.kind())
        .data(data)
}
