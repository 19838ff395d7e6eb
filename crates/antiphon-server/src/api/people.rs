//! People and what they carry: log in and out with a browser, who am I, and the tokens of others.

use std::sync::Arc;

use antiphon_types::Millis;
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::auth::{self, COOKIE, Caller, Role};
use super::model::{CallerView, LoginBody, TokenBody, TokenList, TokenMade, TokenView};
use super::problem::Fault;
use super::{Shared, now};
use crate::tokens::{NewToken, PeopleError, Record, SESSION_LIFE, TokenState};

/// Exchanges a token for a cookie that a browser sends by itself and that scripts cannot read.
#[utoipa::path(post, path = "/v1/login", request_body = LoginBody, responses((status = 200, body = CallerView)))]
pub(crate) async fn login(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Result<Json<LoginBody>, JsonRejection>,
) -> Result<Response, Fault> {
    let Json(body) = body?;
    // Another site must not log a person in as somebody else. Programs, which are no browsers, say nothing of a site.
    if headers.contains_key("sec-fetch-site") || headers.contains_key(header::ORIGIN) {
        auth::from_own_pages(&headers)?;
    }
    let caller = shared.tokens.people.by_token(body.token.trim());
    let caller = caller.map_err(auth::stranger)?;
    let session = shared.tokens.sessions.begin(caller.token);
    let session = session.map_err(|error| failed(&error))?;
    let life = SESSION_LIFE.as_secs();
    let cookie = cookie(&shared, &session, life);
    let view = Json(view_of(&caller));
    Ok(([(header::SET_COOKIE, cookie)], view).into_response())
}

/// Ends the browser's session.
#[utoipa::path(post, path = "/v1/logout", responses((status = 204)))]
pub(crate) async fn logout(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
) -> Result<Response, Fault> {
    if let Some(session) = auth::session(&headers) {
        auth::from_own_pages(&headers)?;
        shared.tokens.sessions.end(session);
    }
    let cookie = cookie(&shared, "", 0);
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

fn cookie(shared: &Shared, session: &str, life_s: u64) -> HeaderValue {
    let secure = if shared.tls { "; Secure" } else { "" };
    let text =
        format!("{COOKIE}={session}; HttpOnly; SameSite=Strict; Path=/; Max-Age={life_s}{secure}");
    HeaderValue::from_str(&text).expect("it is made of plain characters")
}

/// Who the caller is to this server.
#[utoipa::path(get, path = "/v1/me", responses((status = 200, body = CallerView)))]
pub(crate) async fn me(caller: Caller) -> Json<CallerView> {
    Json(view_of(&caller))
}

fn view_of(caller: &Caller) -> CallerView {
    CallerView {
        name: caller.name.to_string(),
        role: caller.role.name().into(),
        teams: caller.teams.to_vec(),
    }
}

/// All tokens, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", responses((status = 200, body = TokenList)))]
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Json<TokenList> {
    let tokens = shared.tokens.people.list();
    let tokens = tokens.iter().map(token_view).collect();
    Json(TokenList { tokens })
}

/// Makes a token. Its secret is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", request_body = TokenBody, responses((status = 201, body = TokenMade)))]
pub(crate) async fn create(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Result<Json<TokenBody>, JsonRejection>,
) -> Result<(StatusCode, Json<TokenMade>), Fault> {
    let Json(body) = body?;
    let new = NewToken {
        role: role_named(&body.role)?,
        name: body.name,
        teams: body.teams,
        expires_in: body.expires_in_ms.map(Millis::from_millis),
    };
    let by = caller.name.clone();
    let made = blocking(move || shared.tokens.people.create(new, &by)).await?;
    let (secret, record) = made?;
    tracing::info!(token = record.name, role = %record.role, by = %caller.name, "token made");
    let token = token_view(&record);
    Ok((StatusCode::CREATED, Json(TokenMade { secret, token })))
}

/// Takes a token back: the next request with it is refused.
#[utoipa::path(post, path = "/v1/tokens/{name}/revoke", responses((status = 200, body = TokenView)))]
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<TokenView>, Fault> {
    let by = caller.name.clone();
    let revoked = blocking(move || shared.tokens.people.revoke(&name, &by)).await??;
    tracing::info!(token = revoked.name, by = %caller.name, "token revoked");
    Ok(Json(token_view(&revoked)))
}

/// Writes to the disk beside the threads that answer requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| failed(&error))
}

fn role_named(name: &str) -> Result<Role, Fault> {
    let found = Role::ALL.into_iter().find(|role| role.name() == name);
    found.ok_or_else(|| {
        Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "AP0846",
            format!("there is no role `{name}`"),
            format!("there are: {}", Role::ALL.map(Role::name).join(", ")),
        )
    })
}

fn token_view(record: &Record) -> TokenView {
    let state = match record.state(now()) {
        TokenState::Valid => "valid",
        TokenState::Expired => "expired",
        TokenState::Revoked => "revoked",
    };
    TokenView {
        name: record.name.clone(),
        role: record.role.name().into(),
        teams: record.teams.clone(),
        state: state.into(),
        made_ms: record.made_ms,
        made_by: record.made_by.clone(),
        expires_ms: record.expires_ms,
        revoked_ms: record.revoked_ms,
        revoked_by: record.revoked_by.clone(),
    }
}

fn failed(error: &dyn std::error::Error) -> Fault {
    Fault::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "AP0848",
        error.to_string(),
        "nothing was changed; see the server's output, and whether its state directory can be written",
    )
}

impl From<PeopleError> for Fault {
    fn from(error: PeopleError) -> Self {
        let (status, code, help) = match &error {
            PeopleError::BadName { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "AP0846",
                "name it after the person or program that carries it: `antiphon token create ann --role member --team rlhf`",
            ),
            PeopleError::BadTeams { .. } => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "AP0846",
                "`--role member --team TEAM` for the jobs of teams; `--role operator` or `--role viewer` for all jobs",
            ),
            PeopleError::NameTaken { .. } => (
                StatusCode::CONFLICT,
                "AP0847",
                "choose another name, or `antiphon token revoke` that one first",
            ),
            PeopleError::Unknown { .. } => (
                StatusCode::NOT_FOUND,
                "AP0849",
                "`antiphon token list` shows the names",
            ),
            PeopleError::TooMany => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "AP0846",
                "make tokens anew under names that are revoked: the old ones are then forgotten",
            ),
            PeopleError::Io(error) => return failed(error),
        };
        Self::new(status, code, error.to_string(), help)
    }
}
