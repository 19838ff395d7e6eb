//! The HTTP API: plural nouns, every change a command with an idempotency key, refusals as `application/problem+json`.
//! Reads the view, never the live state.

mod accept;
mod asks;
mod attempts;
pub(crate) mod auth;
mod cluster;
mod devices;
pub(crate) mod events;
mod given;
mod gpu_types;
pub(crate) mod jobs;
mod lessons;
mod loops;
mod metrics;
pub mod model;
mod numbers;
pub(crate) mod observed;
mod origins;
mod output;
mod people;
mod plans;
pub(crate) mod problem;
pub(crate) mod render;
mod series;
mod signals;
pub(crate) mod teams;
pub(crate) mod why;
mod wire;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use antiphon_store::Log;
use antiphon_types::Timestamp;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use axum::{Router, middleware, routing};
use utoipa::OpenApi;

use crate::dashboard::{self, Dashboard};
use crate::devices::DeviceBook;
use crate::event_loop::LoopHandle;
use crate::forecasts::Forecasts;
use crate::observe::Observed;
use crate::over::Source;
use crate::signal_plane::SignalPlane;
use crate::spans;
use crate::throughput::Throughput;
use crate::tokens::Tokens;
use crate::view::View;
use auth::{Right, Role};
use problem::Fault;

/// Largest body of a request: a batch of 8,192 signals is about 1.5 MB.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) view: Arc<View>,
    pub(crate) inputs: LoopHandle,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) source: Source,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) signals: SignalPlane,
    pub(crate) forecasts: Arc<Forecasts>,
    pub(crate) dashboard: Dashboard,
    pub(crate) state_dir: String,
    pub(crate) gpus_virtual: bool,
    /// Whether it speaks TLS.
    pub(crate) tls: bool,
    pub(crate) throughput: Throughput,
    pub(crate) devices: DeviceBook,
    /// Whether `/metrics` is read without a token.
    pub(crate) metrics_open: bool,
}

impl Shared {
    /// What is seen of somebody else's cluster, where this server only observes.
    pub(crate) fn observed(&self) -> Option<&Arc<Observed>> {
        self.source.observed()
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "antiphon",
        description = "The two-way scheduler for LLM post-training."
    ),
    paths(
        people::login,
        people::logout,
        people::me,
        people::list,
        people::create,
        people::revoke,
        cluster::status,
        cluster::digest,
        cluster::nodes,
        cluster::drain,
        cluster::undrain,
        cluster::notice,
        cluster::maintenance,
        teams::list,
        lessons::list,
        numbers::numbers,
        devices::devices,
        metrics::metrics,
        observed::proposal,
        cluster::pause,
        cluster::unpause,
        jobs::list,
        jobs::submit,
        jobs::check,
        jobs::show,
        jobs::why,
        jobs::cancel,
        jobs::hold,
        jobs::release,
        jobs::preempt,
        jobs::set_class,
        jobs::direct,
        loops::approve,
        loops::undo,
        loops::shards,
        series::series,
        output::output,
        events::events,
        dashboard::live::live,
        dashboard::story::story,
        dashboard::explain::explain,
        signals::signals,
        attempts::start,
        attempts::end
    )
)]
struct Document;

/// The OpenAPI 3.1 document.
///
/// # Panics
/// Never: the document is plain data.
#[must_use]
pub fn openapi() -> String {
    Document::openapi()
        .to_pretty_json()
        .expect("a document is plain data")
}

/// A route, and what it asks of its caller.
pub(crate) struct Route {
    pub(crate) right: Right,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    handler: MethodRouter<Arc<Shared>>,
}

fn get<H, T>(right: Right, path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    Route {
        right,
        method: Method::GET,
        path,
        handler: routing::get(handler),
    }
}

fn post<H, T>(right: Right, path: &'static str, handler: H) -> Route
where
    H: Handler<T, Arc<Shared>>,
    T: 'static,
{
    Route {
        right,
        method: Method::POST,
        path,
        handler: routing::post(handler),
    }
}

async fn document() -> impl IntoResponse {
    ([("content-type", "application/json")], openapi())
}

/// Every route that there is. None is served without a right that it asks for, and a test calls each of them as each role.
pub(crate) fn routes() -> Vec<Route> {
    use Right::{Administer, Attempt, Open, Operate, See, Touch};
    vec![
        get(Open, "/", dashboard::files::index),
        get(Open, "/web/{file}", dashboard::files::file),
        get(Open, "/v1/openapi.json", document),
        post(Open, "/v1/login", people::login),
        post(Open, "/v1/logout", people::logout),
        get(See, "/v1/me", people::me),
        get(See, "/v1/status", cluster::status),
        get(See, "/v1/digest", cluster::digest),
        get(See, "/v1/nodes", cluster::nodes),
        get(See, "/v1/teams", teams::list),
        get(See, "/v1/lessons", lessons::list),
        get(See, "/v1/numbers", numbers::numbers),
        get(See, "/v1/devices", devices::devices),
        get(See, "/v1/proposal", observed::proposal),
        get(See, "/metrics", metrics::metrics),
        get(See, "/v1/events", events::events),
        get(See, "/v1/live", dashboard::live::live),
        get(See, "/v1/story", dashboard::story::story),
        get(See, "/v1/explain/{seq}", dashboard::explain::explain),
        get(See, "/v1/jobs", jobs::list),
        get(See, "/v1/jobs/{job}", jobs::show),
        get(See, "/v1/jobs/{job}/why", jobs::why),
        get(See, "/v1/jobs/{job}/shards", loops::shards),
        get(See, "/v1/jobs/{job}/series", series::series),
        get(See, "/v1/jobs/{job}/output", output::output),
        post(See, "/v1/check", jobs::check),
        post(Touch, "/v1/jobs", jobs::submit),
        post(Touch, "/v1/jobs/{job}/cancel", jobs::cancel),
        post(Touch, "/v1/jobs/{job}/hold", jobs::hold),
        post(Touch, "/v1/jobs/{job}/release", jobs::release),
        post(Touch, "/v1/jobs/{job}/preempt", jobs::preempt),
        post(Touch, "/v1/jobs/{job}/class", jobs::set_class),
        post(Touch, "/v1/jobs/{job}/directives", jobs::direct),
        post(
            Touch,
            "/v1/jobs/{job}/directives/{directive}/undo",
            loops::undo,
        ),
        post(Touch, "/v1/jobs/{job}/approve", loops::approve),
        post(Operate, "/v1/nodes/{node}/drain", cluster::drain),
        post(Operate, "/v1/nodes/{node}/undrain", cluster::undrain),
        post(Operate, "/v1/nodes/{node}/notice", cluster::notice),
        post(Operate, "/v1/maintenance", cluster::maintenance),
        post(Operate, "/v1/pause", cluster::pause),
        post(Operate, "/v1/unpause", cluster::unpause),
        get(Administer, "/v1/tokens", people::list),
        post(Administer, "/v1/tokens", people::create),
        post(Administer, "/v1/tokens/{name}/revoke", people::revoke),
        post(Attempt, "/v1/jobs/{job}/signals", signals::signals),
        post(
            Attempt,
            "/v1/attempts/{attempt}/tasks/{task}/start",
            attempts::start,
        ),
        post(
            Attempt,
            "/v1/attempts/{attempt}/tasks/{task}/end",
            attempts::end,
        ),
    ]
}

/// Which role may call what, as `docs/reference/api.md` shows it.
#[must_use]
pub fn roles_table() -> String {
    let mut table =
        "| call | viewer | member | operator | admin |\n| --- | --- | --- | --- | --- |\n"
            .to_owned();
    for Route {
        right,
        method,
        path,
        ..
    } in routes()
    {
        let may = Role::ALL.map(|role| match right {
            Right::Open => "yes",
            Right::Attempt => "attempt",
            _ if !right.is_of(role) => "-",
            // What is not about a job is the same for all.
            Right::See | Right::Touch if role == Role::Member && is_about_jobs(path) => "own teams",
            Right::See | Right::Touch | Right::Operate | Right::Administer => "yes",
        });
        table += &format!("| `{method} {path}` | {} |\n", may.join(" | "));
    }
    table
}

fn is_about_jobs(path: &str) -> bool {
    let others = [
        "/v1/check",
        "/v1/events",
        "/v1/live",
        "/v1/story",
        "/v1/explain/{seq}",
    ];
    path.starts_with("/v1/jobs") || others.contains(&path)
}

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let mut router = Router::new();
    for Route {
        right,
        path,
        handler,
        ..
    } in routes()
    {
        // What would act is not there at all where there is nothing to act with. Tokens are the server's own business.
        let acts = matches!(right, Right::Touch | Right::Operate | Right::Attempt);
        let handler = match &shared.source {
            Source::Observes(_) if acts => routing::post(observed::refused),
            Source::Shows(_) if acts => routing::post(simulated),
            Source::Drives(_) | Source::Observes(_) | Source::Shows(_) => handler,
        };
        let handler = match right {
            // An operator may let every process of the machine read what Prometheus reads.
            _ if path == "/metrics" && shared.metrics_open => handler,
            Right::Open | Right::Attempt => handler,
            Right::See | Right::Touch | Right::Operate | Right::Administer => {
                let asked = middleware::from_fn_with_state((shared.clone(), right), auth::admit);
                handler.route_layer(asked)
            }
        };
        let within = move |request, next| spans::request(path, request, next);
        router = router.route(path, handler.layer(middleware::from_fn(within)));
    }
    router
        .fallback(|| async {
            Fault::new(
                StatusCode::NOT_FOUND,
                "AP0504",
                "there is no such path",
                "see `/v1/openapi.json` for the paths there are",
            )
        })
        .layer(middleware::map_response(problem::in_one_form))
        .layer(middleware::map_response_with_state(shared.clone(), at))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// Says what time it is where an answer comes from, so that ages told from it need no clock that agrees.
async fn at(State(shared): State<Arc<Shared>>, mut response: Response) -> Response {
    let now = HeaderValue::from(shared.view.now().as_millis());
    response.headers_mut().insert("antiphon-now", now);
    response
}

/// Refuses what would change a simulation: it runs by itself, and nobody waits for an answer in it.
async fn simulated() -> Fault {
    Fault::new(
        StatusCode::CONFLICT,
        "AP0874",
        "this is a simulation, and nothing can be changed in it",
        "change the trace, the cluster file or the policy, and run `antiphon simulate --serve` again",
    )
}

/// The time of this machine's clock. What readers of the state see is the view's.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
