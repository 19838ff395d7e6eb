//! Curves of training loops, for pictures. From memory: a restart of the server begins them anew.

use std::sync::Arc;

use antiphon_signals::Forecast;
use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Shared;
use super::auth::Caller;
use super::jobs::find_job;
use super::model::{ConvergenceView, SeriesView};
use super::problem::Fault;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeriesQuery {
    /// `loss`, `step_ms`, `grad_norm`, `tokens_per_s`, `memory_peak_bytes`, `micro_batch`, `shard/NAME` or `probe/CATEGORY`.
    name: String,
}

/// A curve that the job's current or last attempt reported.
#[utoipa::path(get, path = "/v1/jobs/{job}/series", params(SeriesQuery), responses((status = 200, body = SeriesView)))]
pub(crate) async fn series(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    query: Result<Query<SeriesQuery>, QueryRejection>,
) -> Result<Json<SeriesView>, Fault> {
    let Query(SeriesQuery { name }) = query?;
    let id = find_job(&shared.view.state(), &caller, &job)?.id;
    let Some((attempt, points)) = shared.signals.series(id, &name) else {
        let detail = format!("{id} has reported no `{name}` since the server started");
        let help = "there are: loss, step_ms, grad_norm, tokens_per_s, memory_peak_bytes, micro_batch, shard/NAME, probe/CATEGORY";
        return Err(Fault::new(StatusCode::NOT_FOUND, "AP0504", detail, help));
    };
    Ok(Json(SeriesView {
        attempt: attempt.to_string(),
        steps: points.iter().map(|point| point.step).collect(),
        min: points.iter().map(|point| point.min).collect(),
        mean: points.iter().map(|point| point.mean).collect(),
        max: points.iter().map(|point| point.max).collect(),
    }))
}

/// Where a loss goes, as readers see it.
pub(super) fn convergence(forecast: &Forecast) -> ConvergenceView {
    let of = |estimate: &antiphon_signals::Estimate| [estimate.low, estimate.middle, estimate.high];
    ConvergenceView {
        remaining_steps: of(&forecast.remaining),
        end_loss: of(&forecast.end),
        loss: forecast.now,
    }
}
