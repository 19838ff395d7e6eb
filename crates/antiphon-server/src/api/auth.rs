//! Who speaks, and whether they may: people by a token or, from a browser, by the cookie of a login; an attempt by its own
//! token. Nothing is answered to anybody else. Whose jobs a member sees is asked where jobs are looked up.

use std::sync::Arc;
use std::time::Duration;

use antiphon_types::{AttemptId, JobId};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Fault;
use super::{Shared, now};
use crate::tokens::Stranger;
pub(crate) use crate::tokens::{Caller, Role};

/// The cookie of a browser that has logged in.
pub(super) const COOKIE: &str = "antiphon_session";
/// Attempts of a job, newest first, whose token is looked for before a body is read.
const ATTEMPTS_HEARD: usize = 16;

/// What a route asks of its caller. Every route has one: see `routes` in `api.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Nothing: it tells nothing and changes nothing.
    Open,
    /// The token of the attempt that the request is about; the handler asks for it.
    Attempt,
    /// To look. A member sees the jobs of their teams.
    See,
    /// To change a job: a member those of their teams.
    Touch,
    /// To change the cluster or the server.
    Operate,
    /// To say who has which right.
    Administer,
}

impl Right {
    /// Whether a role has it.
    pub(crate) const fn is_of(self, role: Role) -> bool {
        match (self, role) {
            (Self::Open, _) => true,
            (Self::Attempt, _) => false,
            (_, Role::Admin) => true,
            (Self::Administer, _) => false,
            (_, Role::Operator) => true,
            (Self::Operate, _) => false,
            (_, Role::Member) => true,
            (Self::Touch, _) => false,
            (Self::See, Role::Viewer) => true,
        }
    }

    /// The least of the roles that have it.
    fn least(self) -> Role {
        let mut roles = Role::ALL.into_iter();
        roles.find(|role| self.is_of(*role)).unwrap_or(Role::Admin)
    }
}

impl FromRequestParts<Arc<Shared>> for Caller {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Self, Fault> {
        // A handler on a route of `Right::Open` that asks who calls gets no answer, instead of the wrong one.
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| refused("no token was sent"))
    }
}

/// Lets those pass who have the right, and tells the handler who they are.
pub(crate) async fn admit(
    State((shared, right)): State<(Arc<Shared>, Right)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Response> {
    let caller = caller(&shared, request.method(), request.headers());
    let caller = caller.map_err(IntoResponse::into_response)?;
    caller.spend().map_err(|wait| too_many(&caller, wait))?;
    if !right.is_of(caller.role) {
        return Err(not_allowed(&caller, right).into_response());
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

fn caller(shared: &Shared, method: &Method, headers: &HeaderMap) -> Result<Caller, Fault> {
    if let Some(token) = bearer(headers) {
        return shared.tokens.people.by_token(token).map_err(stranger);
    }
    let Some(session) = session(headers) else {
        return Err(refused("no token was sent"));
    };
    if !method.is_safe() {
        from_own_pages(headers)?;
    }
    shared.tokens.of_session(session).map_err(|why| match why {
        Stranger::Unknown => refused("the browser is not logged in any more"),
        Stranger::Expired { .. } | Stranger::Revoked { .. } => stranger(why),
    })
}

pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .strip_prefix("Bearer ")
}

/// The secret of the browser's session.
pub(super) fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    cookies.find_map(|cookie| {
        let (name, value) = cookie.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

/// Refuses a change that another site's page makes a browser send. The cookie is `SameSite=Strict`; this holds where a
/// browser does not know that, or where another port or a sub-domain counts as the same site.
pub(super) fn from_own_pages(headers: &HeaderMap) -> Result<(), Fault> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let own = match (text("sec-fetch-site"), text("origin"), text("host")) {
        (Some(site), _, _) => site == "same-origin",
        (None, Some(origin), Some(host)) => {
            let rest = origin.split_once("://").map(|(_, rest)| rest);
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
        }
        // Every browser says on a change where it comes from.
        (None, _, _) => false,
    };
    if own {
        return Ok(());
    }
    let help = "use the pages of this server; a program sends `Authorization: Bearer TOKEN` instead of the cookie";
    Err(Fault::new(
        StatusCode::FORBIDDEN,
        "AP0845",
        "a change with the cookie of a login does not come from this server's pages",
        help,
    ))
}

fn refused(what: &str) -> Fault {
    let help = "send `Authorization: Bearer TOKEN` with a token from `antiphon token create`, or the one in the file `token` of the server's state directory; the client takes it from ANTIPHON_TOKEN or ANTIPHON_STATE_DIR";
    Fault::new(StatusCode::UNAUTHORIZED, "AP0502", what, help)
}

/// Why a token is not that of anybody.
pub(super) fn stranger(why: Stranger) -> Fault {
    let help = "ask an admin of this server for a new one: `antiphon token create`";
    let gone = |code, detail: String| Fault::new(StatusCode::UNAUTHORIZED, code, detail, help);
    match why {
        Stranger::Unknown => refused("the token is not this server's"),
        Stranger::Expired { name, at } => gone(
            "AP0840",
            format!("the token `{name}` expired {} ago", now().since(at)),
        ),
        Stranger::Revoked { name, at } => gone(
            "AP0841",
            format!("the token `{name}` was revoked {} ago", now().since(at)),
        ),
    }
}

fn not_allowed(caller: &Caller, right: Right) -> Fault {
    let Caller { name, role, .. } = caller;
    let what = match right {
        Right::Open | Right::Attempt | Right::See => "look at this",
        Right::Touch => "change jobs",
        Right::Operate => "change nodes or the server",
        Right::Administer => "see or change tokens",
    };
    Fault::new(
        StatusCode::FORBIDDEN,
        "AP0842",
        format!("`{name}` may not {what}: the token's role is {role}"),
        match right.least() {
            Role::Admin => "ask an admin of this server".to_owned(),
            least => format!("ask somebody whose role is {least} or more"),
        },
    )
}

/// Refuses a team that the caller may not act for.
pub(super) fn not_of_team(caller: &Caller, team: &str) -> Fault {
    let teams: Vec<String> = caller
        .teams
        .iter()
        .map(|team| format!("`{team}`"))
        .collect();
    Fault::new(
        StatusCode::FORBIDDEN,
        "AP0843",
        format!("`{}` is no member of team `{team}`", caller.name),
        format!("give `team` one of {} in the job file", teams.join(", ")),
    )
}

fn too_many(caller: &Caller, wait: Duration) -> Response {
    // Rounded up: who comes back as soon as it says is not refused again.
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = Fault::new(
        StatusCode::TOO_MANY_REQUESTS,
        "AP0844",
        format!(
            "`{}` sends more requests than its token allows",
            caller.name
        ),
        format!(
            "send again in {seconds} s, and slower; `[limits]` in `antiphon.toml` sets the rate"
        ),
    )
    .into_response();
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    response
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_the_rights_of_the_one_below() {
        let rights = |role: Role| {
            let all = [Right::See, Right::Touch, Right::Operate, Right::Administer];
            all.map(|right| right.is_of(role))
        };
        assert_eq!(rights(Role::Viewer), [true, false, false, false]);
        assert_eq!(rights(Role::Member), [true, true, false, false]);
        assert_eq!(rights(Role::Operator), [true, true, true, false]);
        assert_eq!(rights(Role::Admin), [true, true, true, true]);
        assert!(Role::ALL.iter().all(|role| !Right::Attempt.is_of(*role)));
    }

    #[test]
    fn a_change_with_a_cookie_comes_from_the_servers_own_pages() {
        let sent = |headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, value.parse().unwrap());
            }
            from_own_pages(&map).is_ok()
        };
        let host = ("host", "sched.example:7440");
        assert!(sent(&[host, ("sec-fetch-site", "same-origin")]));
        assert!(sent(&[host, ("origin", "https://sched.example:7440")]));
        assert!(!sent(&[host, ("sec-fetch-site", "same-site")]));
        assert!(!sent(&[host, ("sec-fetch-site", "none")]));
        assert!(!sent(&[host, ("origin", "https://sched.example:8080")]));
        assert!(!sent(&[host, ("origin", "null")]));
        let both = [
            host,
            ("origin", "https://sched.example:7440"),
            ("sec-fetch-site", "cross-site"),
        ];
        assert!(!sent(&both));
        assert!(!sent(&[host]));
    }

    #[test]
    fn the_session_is_found_among_other_cookies() {
        let mut headers = HeaderMap::new();
        headers.append(
            header::COOKIE,
            "theme=dark; antiphon_sessions=x".parse().unwrap(),
        );
        assert_eq!(session(&headers), None);
        headers.append(
            header::COOKIE,
            "a=b;antiphon_session=s3cret".parse().unwrap(),
        );
        assert_eq!(session(&headers), Some("s3cret"));
    }
}
