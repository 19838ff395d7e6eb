//! What supervisors ask and say. The start question fences: a task whose attempt is no longer current never starts.

use std::sync::Arc;

use antiphon_kernel::JobState;
use antiphon_types::{AttemptId, Observation, TaskId};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use super::problem::Fault;
use super::{Shared, auth};

/// Whether an attempt is current.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(crate) struct Current {
    /// Where not, its command must not be started.
    current: bool,
}

/// Asks whether a task's command may be started.
#[utoipa::path(post, path = "/v1/attempts/{attempt}/tasks/{task}/start", responses((status = 200, body = Current)))]
pub(crate) async fn start(
    State(shared): State<Arc<Shared>>,
    Path((attempt, task)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Current>, Fault> {
    let task = task_id(&attempt, &task)?;
    auth::attempt(&shared, &headers, task.attempt)?;
    let current = {
        let state = shared.view.state();
        state
            .job(task.attempt.job)
            .is_some_and(|job| match &job.state {
                JobState::Starting { active } | JobState::Running { active } => {
                    active.phase(&task).is_some()
                }
                JobState::Stopping { .. }
                | JobState::Pending { .. }
                | JobState::Held { .. }
                | JobState::Succeeded { .. }
                | JobState::Failed { .. }
                | JobState::Canceled { .. } => false,
            })
    };
    if current {
        // The command starts within microseconds of this answer; where it cannot, an end follows that says so.
        let inputs = shared.inputs.clone();
        tokio::spawn(async move { inputs.observe(Observation::TaskStarted { task }).await });
    }
    Ok(Json(Current { current }))
}

/// Hints that a task has ended; the backend is looked at, which alone is evidence.
#[utoipa::path(post, path = "/v1/attempts/{attempt}/tasks/{task}/end", responses((status = 204)))]
pub(crate) async fn end(
    State(shared): State<Arc<Shared>>,
    Path((attempt, task)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<StatusCode, Fault> {
    let task = task_id(&attempt, &task)?;
    auth::attempt(&shared, &headers, task.attempt)?;
    if let Some(backend) = shared.source.driven() {
        backend.hint(task.attempt);
    }
    Ok(StatusCode::NO_CONTENT)
}

fn task_id(attempt: &str, task: &str) -> Result<TaskId, Fault> {
    let parsed: Result<AttemptId, _> = attempt.parse();
    parsed
        .and_then(|attempt| format!("{attempt}/{task}").parse())
        .map_err(|error| {
            let help = "tasks are named like `/v1/attempts/job-42.3/tasks/trainer.0/start`";
            Fault::new(StatusCode::BAD_REQUEST, "AP0501", error.to_string(), help)
        })
}
