//! `/metrics` in the form of OpenMetrics, for Prometheus.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;

use super::Shared;
use crate::metrics::in_prometheus_text;

/// What OpenMetrics calls itself.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What Prometheus' own form calls itself.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Counters and readings for Prometheus: OpenMetrics for who asks for it with `Accept`, as Prometheus does, else the older
/// text that `promtool check metrics` reads.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub(crate) async fn metrics(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> impl IntoResponse {
    let now = shared.view.now();
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
    let accept = headers.get_all(header::ACCEPT).iter();
    let mut accept = accept.filter_map(|accept| accept.to_str().ok());
    if accept.any(|accept| accept.contains("application/openmetrics-text")) {
        return ([(header::CONTENT_TYPE, OPEN_METRICS)], text);
    }
    (
        [(header::CONTENT_TYPE, PROMETHEUS)],
        in_prometheus_text(&text),
    )
}
