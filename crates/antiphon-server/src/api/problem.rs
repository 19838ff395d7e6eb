//! Refusals and failures as RFC 9457 problems, with the same code, detail and help as everywhere else.

use std::error::Error;
use std::iter::successors;

use antiphon_backends::Preflight;
use antiphon_types::Rejection;
use axum::Json;
use axum::body::to_bytes;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::model::Problem;
use crate::event_loop::Refused;
use crate::jobfile::JobFileError;
use crate::serve::LateBody;

/// Longest text of the framework's own that is passed on.
const TEXT_BYTES_MAX: usize = 4_096;

/// A problem on its way out.
#[derive(Debug)]
pub(crate) struct Fault(Box<Problem>);

impl Fault {
    pub(crate) fn new(
        status: StatusCode,
        code: &str,
        detail: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self(Box::new(Problem {
            kind: format!("docs/errors/{code}.md"),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: detail.into(),
            help: help.into(),
        }))
    }

    /// The same, about a job.
    pub(crate) fn about(mut self, subject: &str) -> Self {
        if self.0.status >= 500 {
            return self;
        }
        self.0.detail = format!("{subject} is refused: {}", self.0.detail);
        self
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(*self.0)).into_response();
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, problem);
        response
    }
}

/// Makes a problem of whatever the framework refuses in words of its own (paths, methods, bodies), so that every refusal
/// has the one form.
pub(crate) async fn in_one_form(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let ours = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem"));
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let text = to_bytes(response.into_body(), TEXT_BYTES_MAX)
        .await
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let reason = status
        .canonical_reason()
        .unwrap_or("refused")
        .to_lowercase();
    let detail = if text.is_empty() { reason } else { text };
    Fault::new(
        status,
        "AP0501",
        detail,
        "see `/v1/openapi.json` for paths, methods and bodies",
    )
    .into_response()
}

impl From<Rejection> for Fault {
    fn from(rejection: Rejection) -> Self {
        let status = match &rejection {
            Rejection::UnknownJob { .. }
            | Rejection::UnknownNode { .. }
            | Rejection::UnknownDirective { .. } => StatusCode::NOT_FOUND,
            Rejection::WrongState { .. }
            | Rejection::DuplicateName { .. }
            | Rejection::KeyReused { .. }
            | Rejection::CannotUndo { .. }
            | Rejection::CannotApprove { .. }
            | Rejection::AskRefused { .. }
            | Rejection::NotPaused => StatusCode::CONFLICT,
            Rejection::TooWide { .. }
            | Rejection::UnknownDependency { .. }
            | Rejection::DeadDependency { .. }
            | Rejection::OverLimit { .. }
            | Rejection::UnknownGpuType { .. }
            | Rejection::UnevenSplit { .. }
            | Rejection::FractionOfMany { .. }
            | Rejection::TooLarge { .. }
            | Rejection::NoCommand { .. }
            | Rejection::DuplicateRole { .. }
            | Rejection::UnknownTeam { .. }
            | Rejection::NoQuota { .. }
            | Rejection::OverTeamLimit { .. }
            | Rejection::TooWideForSpan { .. }
            | Rejection::UnknownPartition { .. }
            | Rejection::TooMuchOfResource { .. }
            | Rejection::TooLong { .. }
            | Rejection::BadAugment { .. }
            | Rejection::BadTeam { .. }
            | Rejection::BadMaintenance { .. }
            | Rejection::BadNotice { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        };
        Self::new(
            status,
            rejection.code(),
            rejection.to_string(),
            rejection.help(),
        )
    }
}

impl From<Refused> for Fault {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Rejection(rejection) => rejection.into(),
            Refused::Bug(bug) => Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "AP0410",
                format!("a bug was caught and nothing was changed: {bug}"),
                "jobs run on; report the bug with the server's output, then `antiphon unpause`",
            ),
            Refused::Observes { scheduler } => super::observed::only_observes(scheduler, "this"),
            Refused::Stopping => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "AP0505",
                "the server is stopping",
                "send the command again with the same idempotency key once it is back",
            ),
        }
    }
}

impl From<JobFileError> for Fault {
    fn from(error: JobFileError) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.code,
            error.what,
            error.help,
        )
    }
}

impl From<Preflight> for Fault {
    fn from(error: Preflight) -> Self {
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            error.code(),
            error.to_string(),
            error.help(),
        )
    }
}

impl From<JsonRejection> for Fault {
    fn from(error: JsonRejection) -> Self {
        let first: &(dyn Error + 'static) = &error;
        let mut causes = successors(Some(first), |error: &&(dyn Error + 'static)| {
            (*error).source()
        });
        if let Some(late) = causes.find_map(|error| error.downcast_ref::<LateBody>()) {
            let help = "send the same again, whole; nothing was changed";
            return Self::new(
                StatusCode::REQUEST_TIMEOUT,
                "AP0501",
                late.to_string(),
                help,
            );
        }
        let help = "see `/v1/openapi.json` for what the body holds";
        Self::new(error.status(), "AP0501", error.body_text(), help)
    }
}

impl From<QueryRejection> for Fault {
    fn from(error: QueryRejection) -> Self {
        let help = "see `/v1/openapi.json` for the parameters there are";
        Self::new(error.status(), "AP0501", error.body_text(), help)
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::FromRequest as _;
    use axum::http::Request;
    use futures_util::stream;
    use serde_json::Value;

    use super::*;

    #[tokio::test]
    async fn a_body_that_comes_too_slowly_is_no_fault_of_its_form() {
        let parts = stream::iter([Ok("{"), Err(LateBody)]);
        let request = Request::post("/")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from_stream(parts))
            .unwrap();
        let error = Json::<Value>::from_request(request, &()).await.unwrap_err();
        let answer = Fault::from(error).into_response();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
