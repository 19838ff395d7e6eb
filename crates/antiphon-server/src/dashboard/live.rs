//! A page as a stream of server-sent events: first what changed since what the reader has, then each change.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use antiphon_types::JobId;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::page::Page;
use super::queue::Window;
use super::watched::{Open, TooMany, Watched};
use crate::api::Shared;
use crate::api::auth::Caller;
use crate::api::jobs::{Filter, find_job};
use crate::api::problem::Fault;

/// A reader that hears nothing for longer knows that the connection is lost.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// Jobs of one window, at most.
const LIMIT_MAX: usize = 200;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct LiveQuery {
    /// `now`, `cluster`, `queue`, `job` or `teams`.
    page: String,
    /// For `job`: its id or name.
    job: Option<String>,
    /// For `queue`: ended jobs too.
    #[serde(default)]
    all: bool,
    /// For `queue`: only jobs in this state.
    state: Option<String>,
    /// For `queue`: only jobs of this team.
    team: Option<String>,
    /// For `queue`: only jobs of this class.
    class: Option<String>,
    /// For `queue`: only jobs whose id, name, user or team has this text in it.
    q: Option<String>,
    /// For `queue`: jobs in front of the window.
    #[serde(default)]
    offset: usize,
    /// For `queue`: jobs in the window; default 50, at most 200.
    limit: Option<usize>,
}

/// Streams a page: `data` is `{"all", "rows", "gone"}`. Rows are JSON by key; `all` says that rows not named are gone; `id`
/// is what `Last-Event-ID` takes, to get what changed since.
#[utoipa::path(get, path = "/v1/live", params(LiveQuery), responses((status = 200, content_type = "text/event-stream", body = String)))]
pub(crate) async fn live(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
    query: Result<Query<LiveQuery>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Fault> {
    let Query(query) = query?;
    let page = page(&shared, &caller, query)?;
    let open = Watched::open(&shared, &caller, page)
        .await
        .map_err(too_many)?;
    let boot = shared.dashboard.watched.boot;
    let id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let known = id.and_then(|id| {
        let (of, version) = id.split_once('.')?;
        (of.parse() == Ok(boot)).then(|| version.parse().ok())?
    });
    // Before the first look, so that no change falls between the two.
    let changed = open.subscribe();
    let reader = Reader {
        shared,
        caller,
        open,
        changed,
        known,
        first: true,
        boot,
    };
    let stream = stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(SIGN_OF_LIFE)))
}

struct Reader {
    shared: Arc<Shared>,
    caller: Caller,
    open: Arc<Open>,
    changed: watch::Receiver<u64>,
    /// The version that the reader has.
    known: Option<u64>,
    first: bool,
    boot: u64,
}

impl Reader {
    async fn next(&mut self) -> Option<SseEvent> {
        if !std::mem::take(&mut self.first) {
            self.changed.changed().await.ok()?;
        }
        // A stream that is open outlives the request that was let in: a token that was revoked meanwhile ends it.
        self.shared.tokens.people.by_hash(&self.caller.token).ok()?;
        self.changed.mark_unchanged();
        let (data, version) = {
            let sheet = self.open.sheet();
            (sheet.since(self.known), sheet.version())
        };
        self.known = Some(version);
        let id = format!("{}.{version}", self.boot);
        Some(SseEvent::default().id(id).data(data))
    }
}

fn page(shared: &Shared, caller: &Caller, query: LiveQuery) -> Result<Page, Fault> {
    Ok(match query.page.as_str() {
        "now" => Page::Now,
        "cluster" => Page::Cluster,
        "teams" => Page::Teams,
        "queue" => Page::Queue(Window {
            filter: Filter::new(query.state, None, query.team, query.class, query.q)?,
            all: query.all,
            offset: query.offset,
            limit: query.limit.unwrap_or(50).clamp(1, LIMIT_MAX),
        }),
        "job" => {
            let job = query.job.unwrap_or_default();
            let id: JobId = find_job(&shared.view.state(), caller, &job)?.id;
            Page::Job(id)
        }
        other => {
            return Err(Fault::new(
                StatusCode::BAD_REQUEST,
                "AP0501",
                format!("there is no page `{other}`"),
                "there are: now, cluster, queue, job, teams",
            ));
        }
    })
}

fn too_many(TooMany(most): TooMany) -> Fault {
    Fault::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "AP0871",
        format!(
            "{most} different pages are looked at, which is all that are kept live at one time"
        ),
        "close pages that nobody reads, or try again in two minutes",
    )
}
