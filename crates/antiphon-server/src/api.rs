//! The HTTP API: plural nouns, every change a command with an idempotency key, refusals as `application/problem+json`.
//! Reads the view, never the live state.

mod asks;
mod attempts;
mod auth;
mod cluster;
mod events;
mod given;
mod jobs;
mod lessons;
mod loops;
pub mod model;
mod origins;
mod output;
mod plans;
mod problem;
mod render;
mod series;
mod signals;
pub(crate) mod teams;
mod why;
mod wire;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use antiphon_backends::Backend;
use antiphon_store::Log;
use antiphon_types::Timestamp;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::{get, post};
use utoipa::OpenApi;

use crate::event_loop::LoopHandle;
use crate::forecasts::Forecasts;
use crate::signal_plane::SignalPlane;
use crate::tokens::Tokens;
use crate::view::View;
use problem::Fault;

/// Largest body of a request: a batch of 8,192 signals is about 1.5 MB.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 20;

/// What the handlers share.
pub(crate) struct Shared {
    pub(crate) view: Arc<View>,
    pub(crate) inputs: LoopHandle,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) signals: SignalPlane,
    pub(crate) forecasts: Arc<Forecasts>,
    /// The person on whose behalf the server runs.
    pub(crate) user: String,
    pub(crate) state_dir: String,
    pub(crate) gpus_virtual: bool,
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "antiphon",
        description = "The two-way scheduler for LLM post-training."
    ),
    paths(
        cluster::status,
        cluster::digest,
        cluster::nodes,
        cluster::drain,
        cluster::undrain,
        cluster::notice,
        cluster::maintenance,
        teams::list,
        lessons::list,
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
        jobs::direct,
        loops::approve,
        loops::undo,
        loops::shards,
        series::series,
        output::output,
        events::events,
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

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let user = Router::new()
        .route("/v1/status", get(cluster::status))
        .route("/v1/digest", get(cluster::digest))
        .route("/v1/nodes", get(cluster::nodes))
        .route("/v1/nodes/{node}/drain", post(cluster::drain))
        .route("/v1/nodes/{node}/undrain", post(cluster::undrain))
        .route("/v1/nodes/{node}/notice", post(cluster::notice))
        .route("/v1/maintenance", post(cluster::maintenance))
        .route("/v1/teams", get(teams::list))
        .route("/v1/lessons", get(lessons::list))
        .route("/v1/pause", post(cluster::pause))
        .route("/v1/unpause", post(cluster::unpause))
        .route("/v1/jobs", get(jobs::list).post(jobs::submit))
        .route("/v1/check", post(jobs::check))
        .route("/v1/jobs/{job}", get(jobs::show))
        .route("/v1/jobs/{job}/why", get(jobs::why))
        .route("/v1/jobs/{job}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{job}/hold", post(jobs::hold))
        .route("/v1/jobs/{job}/release", post(jobs::release))
        .route("/v1/jobs/{job}/preempt", post(jobs::preempt))
        .route("/v1/jobs/{job}/directives", post(jobs::direct))
        .route("/v1/jobs/{job}/approve", post(loops::approve))
        .route(
            "/v1/jobs/{job}/directives/{directive}/undo",
            post(loops::undo),
        )
        .route("/v1/jobs/{job}/shards", get(loops::shards))
        .route("/v1/jobs/{job}/series", get(series::series))
        .route("/v1/jobs/{job}/output", get(output::output))
        .route("/v1/events", get(events::events))
        .route_layer(middleware::from_fn_with_state(shared.clone(), auth::user));
    let attempts = Router::new()
        .route("/v1/jobs/{job}/signals", post(signals::signals))
        .route(
            "/v1/attempts/{attempt}/tasks/{task}/start",
            post(attempts::start),
        )
        .route(
            "/v1/attempts/{attempt}/tasks/{task}/end",
            post(attempts::end),
        );
    Router::new()
        .route(
            "/v1/openapi.json",
            get(|| async { ([("content-type", "application/json")], openapi()) }),
        )
        .merge(user)
        .merge(attempts)
        .fallback(|| async {
            Fault::new(
                StatusCode::NOT_FOUND,
                "AP0504",
                "there is no such path",
                "see `/v1/openapi.json` for the paths there are",
            )
        })
        .layer(middleware::map_response(problem::in_one_form))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(shared)
}

/// The time as readers see it. The log's own is stamped by the event loop.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = since.map_or(0, |since| since.as_millis());
    Timestamp::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
