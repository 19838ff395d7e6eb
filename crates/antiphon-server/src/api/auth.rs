//! Who speaks: the user by the token file, an attempt by its own token. Nothing is answered to anybody else.

use std::sync::Arc;

use antiphon_types::{AttemptId, JobId};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::Shared;
use super::problem::Fault;

/// Attempts of a job, newest first, whose token is looked for before a body is read.
const ATTEMPTS_HEARD: usize = 16;

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")
}

/// Lets the user pass.
pub(crate) async fn user(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Fault> {
    match bearer(request.headers()) {
        Some(token) if shared.tokens.is_user(token) => Ok(next.run(request).await),
        Some(_) => Err(refused("the token is not this server's")),
        None => Err(refused("no token was sent")),
    }
}

fn refused(what: &str) -> Fault {
    let help = "send `Authorization: Bearer TOKEN` with the token from the file `token` in the server's state directory, or set ANTIPHON_TOKEN or ANTIPHON_STATE_DIR";
    Fault::new(StatusCode::UNAUTHORIZED, "AP0502", what, help)
}

/// Lets the processes of one attempt pass.
pub(crate) fn attempt(shared: &Shared, headers: &HeaderMap, id: AttemptId) -> Result<(), Fault> {
    if bearer(headers).is_some_and(|token| shared.tokens.is_attempt(token, id)) {
        return Ok(());
    }
    let help = "send the ANTIPHON_JOB_TOKEN that the attempt was started with";
    Err(Fault::new(
        StatusCode::UNAUTHORIZED,
        "AP0502",
        format!("the token is not that of {id}"),
        help,
    ))
}

/// Lets pass who carries a token of any attempt of the job: which one is only known once the body is read.
pub(crate) fn of_job(shared: &Shared, headers: &HeaderMap, job: JobId) -> Result<(), Fault> {
    let launches = {
        let state = shared.view.state();
        state.job(job).map_or(0, |job| job.launches)
    };
    let token = bearer(headers).unwrap_or_default();
    // The current attempt is by far the most common; the ones before it have to hear that they are superseded.
    let mine = |number: u32| shared.tokens.is_attempt(token, AttemptId { job, number });
    if (1..=launches).rev().take(ATTEMPTS_HEARD).any(mine) {
        return Ok(());
    }
    let help = "send the ANTIPHON_JOB_TOKEN that the attempt was started with";
    let detail = format!("the token is not that of an attempt of {job}");
    Err(Fault::new(StatusCode::UNAUTHORIZED, "AP0502", detail, help))
}
