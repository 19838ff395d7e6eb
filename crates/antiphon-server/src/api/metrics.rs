//! `/metrics` in the form of OpenMetrics, for Prometheus.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

use super::{Shared, now};

/// What OpenMetrics calls itself.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Counters and readings for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> impl IntoResponse {
    let now = now();
    let throughput = shared.throughput.read(now);
    let state_dir = Path::new(&shared.state_dir);
    let metrics = shared.view.metrics();
    let text = metrics.scrape(
        &shared.view.state(),
        &throughput,
        &shared.devices,
        shared.signals.counts(),
        state_dir,
        now,
    );
    ([(header::CONTENT_TYPE, OPEN_METRICS)], text)
}
