//! Spans of what the server does: a request, a turn of the event loop, a cycle of decisions, a commit. Where they go is the
//! binary's business; where nobody collects them, each costs a look at a flag.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

/// The target of all of them: lines for the operator are filtered apart from it.
pub const SPANS: &str = "antiphon_spans";

/// Answers a request to one of the routes within a span. Names and fields are those of OpenTelemetry's conventions for HTTP;
/// no query and no header is told, since they may hold what is secret.
pub(crate) async fn request(route: &'static str, request: Request, next: Next) -> Response {
    let method = request.method();
    let span = tracing::info_span!(
        target: SPANS,
        "request",
        otel.name = %format_args!("{method} {route}"),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = %method,
        http.route = route,
        http.response.status_code = Empty,
    );
    let response = next.run(request).instrument(span.clone()).await;
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// One turn of the event loop: inputs become events, decisions and one commit.
pub(crate) fn turn(inputs: usize) -> Span {
    tracing::info_span!(target: SPANS, "turn", inputs, events = Empty, seq = Empty)
}

/// One cycle: what the kernel decides, and the check of that.
pub(crate) fn cycle() -> Span {
    tracing::info_span!(target: SPANS, "cycle", actions = Empty)
}

/// One commit of the log, its sync included.
pub(crate) fn commit(events: usize) -> Span {
    tracing::info_span!(target: SPANS, "commit", events)
}
