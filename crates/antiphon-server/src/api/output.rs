//! What a job's processes print, byte for byte. Kept by the backend; nothing of it enters the log.

use std::sync::Arc;

use antiphon_backends::{Backend, BackendError};
use antiphon_kernel::TaskPhase;
use antiphon_types::{AttemptId, TaskId};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Shared;
use super::auth::Caller;
use super::jobs::find_job;
use super::observed;
use super::problem::Fault;
use crate::executor::chain;
use crate::over::Source;

/// What stands where the output of a job would that is simulated.
const OF_SIMULATED: &[u8] = b"A simulated job prints nothing.\n";

/// Bytes of one answer.
const BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// Number of the attempt; default: the newest.
    attempt: Option<u32>,
    /// Task, like `trainer.0`; default: the first.
    task: Option<String>,
    /// First byte.
    #[serde(default)]
    offset: u64,
    /// In place of `offset`: begin so many bytes before the end.
    tail: Option<u64>,
}

/// Output of a task from `offset` on, at most 1 MiB. Headers: `antiphon-attempt`, `antiphon-task`,
/// `antiphon-offset` (where to go on) and `antiphon-ended` (whether no more will come).
#[utoipa::path(get, path = "/v1/jobs/{job}/output", params(OutputQuery), responses((status = 200, content_type = "application/octet-stream", body = String)))]
pub(crate) async fn output(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    query: Result<Query<OutputQuery>, QueryRejection>,
) -> Result<impl IntoResponse, Fault> {
    let Query(query) = query?;
    let (task, ended) = choose(&shared, &caller, &job, &query)?;
    let (offset, bytes) = match &shared.source {
        Source::Drives(backend) => printed(&**backend, &task, &query)
            .await
            .map_err(unreadable)?,
        Source::Observes(_) => return Err(observed::refusal(&shared, "what jobs print")),
        Source::Shows(_) => {
            let from = usize::try_from(query.offset).unwrap_or(usize::MAX);
            (
                query.offset,
                OF_SIMULATED.get(from..).unwrap_or_default().to_vec(),
            )
        }
    };
    let next = offset + u64::try_from(bytes.len()).unwrap_or(0);
    let name = HeaderName::from_static;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (name("antiphon-attempt"), task.attempt.to_string()),
        (
            name("antiphon-task"),
            format!("{}.{}", task.role, task.index),
        ),
        (name("antiphon-offset"), next.to_string()),
        (
            name("antiphon-ended"),
            (ended && bytes.is_empty()).to_string(),
        ),
    ];
    Ok((headers, bytes))
}

/// From where on, and what a task's process has printed there.
async fn printed(
    backend: &dyn Backend,
    task: &TaskId,
    query: &OutputQuery,
) -> Result<(u64, Vec<u8>), BackendError> {
    let offset = match query.tail {
        None => query.offset,
        Some(tail) => end(backend, task).await?.saturating_sub(tail),
    };
    Ok((offset, backend.output(task, offset, BYTES_MAX).await?))
}

fn unreadable(error: BackendError) -> Fault {
    let help = "the output is on the server's machine, under `attempts` in its state directory";
    Fault::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "AP0506",
        chain(&error),
        help,
    )
}

/// Where the output of a task ends now. A backend only knows whether there is a byte at a place, so the end is looked for by
/// halves: some sixty reads of one byte, however long it is.
async fn end(backend: &dyn Backend, task: &TaskId) -> Result<u64, BackendError> {
    let (mut some, mut none) = (0, 1);
    while !backend.output(task, none - 1, 1).await?.is_empty() {
        (some, none) = (none, none.saturating_mul(2));
    }
    while some + 1 < none {
        let middle = some + (none - some) / 2;
        if backend.output(task, middle - 1, 1).await?.is_empty() {
            none = middle;
        } else {
            some = middle;
        }
    }
    Ok(some)
}

/// The task that is asked for, and whether it has ended.
fn choose(
    shared: &Shared,
    caller: &Caller,
    job: &str,
    query: &OutputQuery,
) -> Result<(TaskId, bool), Fault> {
    let state = shared.view.state();
    let job = find_job(&state, caller, job)?;
    if job.launches == 0 {
        let detail = format!(
            "{} has not been launched yet, so there is no output",
            job.id
        );
        let help = format!("`antiphon why {}` says what it waits for", job.id);
        return Err(Fault::new(StatusCode::CONFLICT, "AP0507", detail, help));
    }
    let number = query.attempt.unwrap_or(job.launches);
    let attempt = AttemptId {
        job: job.id,
        number,
    };
    let active = job
        .state
        .active()
        .filter(|active| active.attempt == attempt);
    let past = job.attempts.iter().find(|record| record.attempt == attempt);
    let tasks: Vec<(TaskId, bool)> = if let Some(active) = active {
        let tasks = active.tasks();
        tasks
            .map(|(task, phase)| (task, matches!(phase, TaskPhase::Ended { .. })))
            .collect()
    } else if let Some(past) = past {
        let task = |task: &antiphon_types::TaskAllocation| TaskId {
            attempt,
            role: task.role.clone(),
            index: task.index,
        };
        past.allocation
            .tasks
            .iter()
            .map(|t| (task(t), true))
            .collect()
    } else {
        let detail = format!("there is no {attempt}");
        let help = format!(
            "{} has had {} attempts; `antiphon job {}` lists them",
            job.id, job.launches, job.id
        );
        return Err(Fault::new(StatusCode::NOT_FOUND, "AP0507", detail, help));
    };
    let name = |task: &TaskId| format!("{}.{}", task.role, task.index);
    let names: Vec<String> = tasks.iter().map(|(task, _)| name(task)).collect();
    let wanted = tasks.into_iter().find(|(task, _)| {
        query
            .task
            .as_ref()
            .is_none_or(|wanted| *wanted == name(task))
    });
    wanted.ok_or_else(|| {
        let detail = format!(
            "{attempt} has no task `{}`",
            query.task.as_deref().unwrap_or("")
        );
        Fault::new(
            StatusCode::NOT_FOUND,
            "AP0507",
            detail,
            format!("it has: {}", names.join(", ")),
        )
    })
}
