//! Every route against every kind of caller, and what a member of one team sees of another's jobs. The table names each
//! route: a new one without a row fails.

use std::collections::BTreeSet;

use antiphon_backends::fake::{FakeBackend, Manners};
use antiphon_store::MemoryLog;
use antiphon_types::{AttemptId, Command, JobSpec, Millis, Observation, TeamSpec};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use axum::response::Response;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::fixture::{Running, nodes, spec, submit, task};
use crate::throughput::Throughput;
use crate::tokens::{Allowance, NewToken};

/// A server without sockets: job-1 of team `rlhf` runs, job-2 of team `eval` waits.
struct Server {
    shared: Arc<Shared>,
    app: Router,
    running: Running,
    dir: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        Self::allowing(Allowance::default()).await
    }

    async fn allowing(rate: Allowance) -> Self {
        let log = MemoryLog::new();
        let running = Running::on(log.clone()).await;
        running.offer_nodes().await;
        let team = |name: &str, parent: Option<&str>| TeamSpec {
            name: name.into(),
            parent: parent.map(Into::into),
            ..TeamSpec::default()
        };
        let teams = vec![
            team("rlhf", None),
            team("rlhf-data", Some("rlhf")),
            team("eval", None),
        ];
        running.command(Command::SetTeams { teams }).await.unwrap();
        let of = |name: &str, team: &str, gpus| JobSpec {
            team: team.into(),
            ..spec(name, gpus)
        };
        running
            .command(submit(of("tune", "rlhf", 8)))
            .await
            .unwrap();
        let task = task("job-1.1");
        let started = Observation::TaskStarted { task };
        running.inputs.observe(started).await.unwrap();
        running
            .command(submit(of("judge", "eval", 8)))
            .await
            .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(dir.path(), "root", rate).unwrap();
        let shared = Arc::new(Shared {
            view: running.view.clone(),
            inputs: running.inputs.clone(),
            log: Arc::new(log),
            source: Source::Drives(Arc::new(FakeBackend::new(nodes(), Manners::default()))),
            tokens: Arc::new(tokens),
            signals: SignalPlane::default(),
            forecasts: Arc::default(),
            dashboard: Dashboard::default(),
            state_dir: dir.path().display().to_string(),
            gpus_virtual: true,
            tls: true,
            throughput: Throughput::default(),
            devices: DeviceBook::default(),
            metrics_open: false,
        });
        let app = router(shared.clone());
        Self {
            shared,
            app,
            running,
            dir,
        }
    }

    fn token(&self, name: &str, role: Role, teams: &[&str], expires_in: Option<Millis>) -> String {
        let new = NewToken {
            name: name.into(),
            role,
            teams: teams.iter().map(|&team| team.to_owned()).collect(),
            expires_in,
        };
        self.shared.tokens.people.create(new, "root").unwrap().0
    }

    async fn send(&self, request: Request<Body>) -> Response {
        self.app.clone().oneshot(request).await.unwrap()
    }

    async fn ask(&self, token: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.header("content-type", "application/json");
        let response = self
            .send(request.body(body.to_owned().into()).unwrap())
            .await;
        Answer::of(response).await
    }
}

struct Answer {
    status: u16,
    body: Value,
}

impl Answer {
    async fn of(response: Response) -> Self {
        let status = response.status().as_u16();
        let kind = response.headers().get("content-type").cloned();
        // A stream of events has no end.
        let streams = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event"));
        let body = if streams {
            Value::Null
        } else {
            let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            serde_json::from_slice(&bytes).unwrap_or(Value::Null)
        };
        Self { status, body }
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// 0 where the caller was let in, whatever came of it there; else the status.
    fn refusal(&self) -> u16 {
        match (self.status, self.code()) {
            (401 | 403, _) | (404, "AP0101") => self.status,
            _ => 0,
        }
    }
}

const OK: u16 = 0;
/// What everybody who has a token of a person may look at.
const ALL: [u16; 6] = [OK, OK, OK, OK, OK, 401];
/// What is about a job of team `rlhf`.
const LOOK: [u16; 6] = [OK, OK, 404, OK, OK, 401];
const TOUCH: [u16; 6] = [403, OK, 404, OK, OK, 401];
const OPERATE: [u16; 6] = [403, 403, 403, OK, OK, 401];
const ADMINISTER: [u16; 6] = [403, 403, 403, 403, OK, 401];
const ATTEMPT: [u16; 6] = [401, 401, 401, 401, 401, OK];

/// Method, path, path as it is called, body; then the refusals of a viewer, a member of `rlhf`, a member of `eval`, an operator,
/// an admin, and attempt job-1.1.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    [u16; 6],
);

const JOB: &str = r#"{"name": "new", "team": "rlhf", "resources": {"gpus": 1}, "run": {"command": ["true"], "workdir": "/"}}"#;

const ROWS: &[Row] = &[
    ("GET", "/v1/me", "/v1/me", "", ALL),
    ("GET", "/v1/status", "/v1/status", "", ALL),
    ("GET", "/v1/digest", "/v1/digest", "", ALL),
    ("GET", "/v1/nodes", "/v1/nodes", "", ALL),
    ("GET", "/v1/teams", "/v1/teams", "", ALL),
    ("GET", "/v1/lessons", "/v1/lessons", "", ALL),
    ("GET", "/v1/numbers", "/v1/numbers", "", ALL),
    ("GET", "/v1/devices", "/v1/devices", "", ALL),
    ("GET", "/v1/proposal", "/v1/proposal", "", ALL),
    ("GET", "/metrics", "/metrics", "", ALL),
    ("GET", "/v1/events", "/v1/events?after=0", "", ALL),
    ("GET", "/v1/live", "/v1/live?page=job&job=job-1", "", LOOK),
    ("GET", "/v1/story", "/v1/story", "", ALL),
    ("GET", "/v1/explain/{seq}", "/v1/explain/1", "", ALL),
    ("GET", "/v1/jobs", "/v1/jobs", "", ALL),
    ("GET", "/v1/jobs/{job}", "/v1/jobs/job-1", "", LOOK),
    ("GET", "/v1/jobs/{job}/why", "/v1/jobs/job-1/why", "", LOOK),
    (
        "GET",
        "/v1/jobs/{job}/shards",
        "/v1/jobs/tune/shards",
        "",
        LOOK,
    ),
    (
        "GET",
        "/v1/jobs/{job}/series",
        "/v1/jobs/job-1/series?name=loss",
        "",
        LOOK,
    ),
    (
        "GET",
        "/v1/jobs/{job}/output",
        "/v1/jobs/job-1/output",
        "",
        LOOK,
    ),
    (
        "POST",
        "/v1/check",
        "/v1/check",
        JOB,
        [OK, OK, 403, OK, OK, 401],
    ),
    (
        "POST",
        "/v1/jobs",
        "/v1/jobs",
        JOB,
        [403, OK, 403, OK, OK, 401],
    ),
    (
        "POST",
        "/v1/jobs/{job}/hold",
        "/v1/jobs/job-1/hold",
        "{}",
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/release",
        "/v1/jobs/job-1/release",
        "{}",
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/preempt",
        "/v1/jobs/job-1/preempt",
        "{}",
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/class",
        "/v1/jobs/job-1/class",
        r#"{"class": "standard"}"#,
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/directives",
        "/v1/jobs/job-1/directives",
        r#"{"do": "checkpoint"}"#,
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/directives/{directive}/undo",
        "/v1/jobs/job-1/directives/1/undo",
        "{}",
        TOUCH,
    ),
    (
        "POST",
        "/v1/jobs/{job}/approve",
        "/v1/jobs/job-1/approve",
        r#"{"rule": "shard"}"#,
        TOUCH,
    ),
    (
        "POST",
        "/v1/nodes/{node}/drain",
        "/v1/nodes/n0/drain",
        "{}",
        OPERATE,
    ),
    (
        "POST",
        "/v1/nodes/{node}/undrain",
        "/v1/nodes/n0/undrain",
        "{}",
        OPERATE,
    ),
    (
        "POST",
        "/v1/nodes/{node}/notice",
        "/v1/nodes/n0/notice",
        r#"{"within_ms": 1}"#,
        OPERATE,
    ),
    (
        "POST",
        "/v1/maintenance",
        "/v1/maintenance",
        r#"{"nodes": ["n0"], "from_ms": 1, "until_ms": 2}"#,
        OPERATE,
    ),
    ("POST", "/v1/pause", "/v1/pause", "{}", OPERATE),
    ("POST", "/v1/unpause", "/v1/unpause", "{}", OPERATE),
    ("GET", "/v1/tokens", "/v1/tokens", "", ADMINISTER),
    (
        "POST",
        "/v1/tokens",
        "/v1/tokens",
        r#"{"name": "new", "role": "viewer"}"#,
        ADMINISTER,
    ),
    (
        "POST",
        "/v1/tokens/{name}/revoke",
        "/v1/tokens/nobody/revoke",
        "{}",
        ADMINISTER,
    ),
    (
        "POST",
        "/v1/jobs/{job}/signals",
        "/v1/jobs/job-1/signals",
        r#"{"attempt": 1, "boot": "b", "seq": 0}"#,
        ATTEMPT,
    ),
    (
        "POST",
        "/v1/attempts/{attempt}/tasks/{task}/start",
        "/v1/attempts/job-1.1/tasks/main.0/start",
        "{}",
        ATTEMPT,
    ),
    (
        "POST",
        "/v1/attempts/{attempt}/tasks/{task}/end",
        "/v1/attempts/job-1.1/tasks/main.0/end",
        "{}",
        ATTEMPT,
    ),
    (
        "POST",
        "/v1/jobs/{job}/cancel",
        "/v1/jobs/job-1/cancel",
        "{}",
        TOUCH,
    ),
    (
        "POST",
        "/v1/login",
        "/v1/login",
        r#"{"token": "x"}"#,
        [401; 6],
    ),
    ("POST", "/v1/logout", "/v1/logout", "", [OK; 6]),
    ("GET", "/v1/openapi.json", "/v1/openapi.json", "", [OK; 6]),
    ("GET", "/", "/", "", [OK; 6]),
    ("GET", "/web/{file}", "/web/app.css", "", [OK; 6]),
];

#[tokio::test]
async fn every_route_lets_in_whom_it_should_and_nobody_else() {
    for caller in 0..6 {
        // Its own server: what one caller changes does not stand in another's way.
        let server = Server::start().await;
        let attempt: AttemptId = "job-1.1".parse().unwrap();
        let token = match caller {
            0 => server.token("vera", Role::Viewer, &[], None),
            1 => server.token("ann", Role::Member, &["rlhf"], None),
            2 => server.token("ben", Role::Member, &["eval"], None),
            3 => server.token("otto", Role::Operator, &[], None),
            4 => server.token("ada", Role::Admin, &[], None),
            _ => server.shared.tokens.of_attempt(attempt),
        };
        for (method, _, path, body, expected) in ROWS {
            let answer = server.ask(Some(&token), method, path, body).await;
            let told = (caller, method, path, &answer.body);
            assert_eq!(answer.refusal(), expected[caller], "{told:?}");
        }
    }
}

#[tokio::test]
async fn nobody_gets_in_with_what_is_no_token_any_more() {
    let server = Server::start().await;
    let expired = server.token("old", Role::Admin, &[], Some(Millis::ZERO));
    let revoked = server.token("gone", Role::Admin, &[], None);
    server.shared.tokens.people.revoke("gone", "root").unwrap();
    let other: AttemptId = "job-2.1".parse().unwrap();
    let other = server.shared.tokens.of_attempt(other);
    for (method, _, path, body, expected) in ROWS {
        let open = *expected == [OK; 6] || *path == "/v1/login";
        let of_attempt = *expected == ATTEMPT;
        for (token, code) in [
            (None, "AP0502"),
            (Some("wrong"), "AP0502"),
            (Some(other.as_str()), "AP0502"),
            (Some(expired.as_str()), "AP0840"),
            (Some(revoked.as_str()), "AP0841"),
        ] {
            let answer = server.ask(token, method, path, body).await;
            let told = (method, path, token, &answer.body);
            if open {
                // It does not look at the token that is sent along.
                assert!(answer.status < 400 || *path == "/v1/login", "{told:?}");
                continue;
            }
            let code = if of_attempt { "AP0502" } else { code };
            assert_eq!((answer.status, answer.code()), (401, code), "{told:?}");
        }
    }
}

#[test]
fn every_route_has_a_row_a_right_and_a_place_in_the_document() {
    let of = |method: &str, path: &str| format!("{method} {path}");
    let rows: BTreeSet<String> = ROWS.iter().map(|row| of(row.0, row.1)).collect();
    let served = routes();
    let served: BTreeSet<String> = served
        .iter()
        .map(|route| of(route.method.as_str(), route.path))
        .collect();
    assert_eq!(rows, served);
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let mut documented = BTreeSet::from(["GET /v1/openapi.json".to_owned()]);
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        documented.extend(methods.map(|method| of(&method.to_uppercase(), path)));
    }
    assert!(documented.is_subset(&rows));
    // Pages are for people, not for programs.
    let pages = rows.difference(&documented);
    let pages: Vec<&String> = pages.filter(|row| row.contains(" /v1/")).collect();
    assert!(pages.is_empty(), "not in the document: {pages:?}");
}

#[test]
fn the_reference_says_which_role_may_call_what() {
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/api.md");
    let text = std::fs::read_to_string(reference).unwrap();
    let table = roles_table();
    assert!(
        text.contains(&table),
        "docs/reference/api.md has to hold:\n{table}"
    );
}

#[tokio::test]
async fn a_member_sees_the_jobs_of_their_teams_and_no_others() {
    let server = Server::start().await;
    let ann = server.token("ann", Role::Member, &["rlhf"], None);
    let ben = server.token("ben", Role::Member, &["eval"], None);
    let names = |answer: &Answer| -> Vec<String> {
        let jobs = answer.body["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let list = |token: String| {
        let server = &server;
        async move {
            names(
                &server
                    .ask(Some(&token), "GET", "/v1/jobs?all=true", "")
                    .await,
            )
        }
    };
    assert_eq!(list(ann.clone()).await, ["tune"]);
    assert_eq!(list(ben.clone()).await, ["judge"]);
    // The teams below a member's own are theirs too.
    let job = JOB.replace("\"rlhf\"", "\"rlhf-data\"");
    let made = server.ask(Some(&ann), "POST", "/v1/jobs", &job).await;
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(list(ann.clone()).await, ["tune", "new"]);
    assert_eq!(list(ben.clone()).await, ["judge"]);
    // The name of another team's job is no name, also not of one that is nearly so.
    for name in ["tune", "tune1", "job-1", "new"] {
        let path = format!("/v1/jobs/{name}");
        let answer = server.ask(Some(&ben), "GET", &path, "").await;
        assert_eq!((answer.status, answer.code()), (404, "AP0101"));
        let text = answer.body.to_string();
        let told = ["did you mean `tune", "did you mean `new"];
        assert!(!told.iter().any(|told| text.contains(told)), "{text}");
    }
    // Nor may it be waited for.
    let job = JOB.replace("\"rlhf\"", "\"eval\"");
    let job = job.replace("\"name\"", "\"after\": [\"job-1\"], \"name\"");
    let answer = server.ask(Some(&ben), "POST", "/v1/jobs", &job).await;
    assert!(
        answer.status == 404 || answer.status == 422,
        "{}",
        answer.body
    );
    let team = server.ask(Some(&ben), "POST", "/v1/jobs", JOB).await;
    assert_eq!((team.status, team.code()), (403, "AP0843"));
    assert!(team.body["help"].as_str().unwrap().contains("`eval`"));
}

#[tokio::test]
async fn the_log_says_who_did_what_and_keys_are_each_callers_own() {
    let server = Server::start().await;
    let ann = server.token("ann", Role::Member, &["rlhf"], None);
    let otto = server.token("otto", Role::Operator, &[], None);
    let send = |token: String, body: String| {
        let request = Request::post("/v1/jobs")
            .header("authorization", format!("Bearer {token}"))
            .header("idempotency-key", "k")
            .header("content-type", "application/json");
        let request = request.body(Body::from(body)).unwrap();
        let server = &server;
        async move { Answer::of(server.send(request).await).await }
    };
    let first = send(ann.clone(), JOB.into()).await;
    assert_eq!(first.body["job"], "job-3", "{}", first.body);
    let again = send(ann, JOB.into()).await;
    assert_eq!(
        (&again.body["job"], &again.body["repeated"]),
        (&json!("job-3"), &json!(true))
    );
    let other = send(otto, JOB.replace("\"new\"", "\"other\"")).await;
    assert_eq!(other.body["job"], "job-4", "{}", other.body);
    let user = |id: &str| {
        let state = server.running.view.state();
        state.job(id.parse().unwrap()).unwrap().spec.user.clone()
    };
    assert_eq!(
        (user("job-3").as_str(), user("job-4").as_str()),
        ("ann", "otto")
    );
    let entries = server.shared.log.read(0, 100).await.unwrap();
    let by: Vec<String> = entries
        .iter()
        .filter_map(|entry| match crate::recovery::decode(entry).unwrap().body {
            antiphon_types::Body::Command {
                by, id: Some(_), ..
            } => Some(by),
            _ => None,
        })
        .collect();
    assert_eq!(by, ["ann", "otto"]);
}

#[tokio::test]
async fn pages_show_a_member_the_names_of_their_own_jobs_alone() {
    use futures_util::StreamExt as _;

    let server = Server::start().await;
    let viewer = server.token("vera", Role::Viewer, &[], None);
    let member = server.token("ben", Role::Member, &["eval"], None);
    let page = |token: String, page: &'static str| {
        let server = &server;
        async move {
            let request = Request::get(format!("/v1/live?page={page}"))
                .header("authorization", format!("Bearer {token}"));
            let response = server.send(request.body(Body::empty()).unwrap()).await;
            let mut stream = response.into_body().into_data_stream();
            let first = stream.next().await.unwrap().unwrap();
            String::from_utf8(first.to_vec()).unwrap()
        }
    };
    for name in ["queue", "cluster"] {
        let all = page(viewer.clone(), name).await;
        assert!(all.contains("\"tune\""), "{name}: {all}");
        let own = page(member.clone(), name).await;
        assert!(!own.contains("tune"), "{name}: {own}");
    }
    assert!(page(member.clone(), "queue").await.contains("\"judge\""));
    // That GPUs are held, by which job and which team, is the same for all.
    assert!(page(member.clone(), "cluster").await.contains("\"rlhf\""));
}

#[tokio::test]
async fn a_stream_of_events_shows_a_member_their_own_and_ends_with_their_token() {
    use futures_util::StreamExt as _;
    let server = Server::start().await;
    let ben = server.token("ben", Role::Member, &["eval"], None);
    let request = Request::get("/v1/events?after=0")
        .header("authorization", format!("Bearer {ben}"))
        .body(Body::empty())
        .unwrap();
    let mut events = server.send(request).await.into_body().into_data_stream();
    let mut text = String::new();
    while !text.contains("judge") {
        text += std::str::from_utf8(&events.next().await.unwrap().unwrap()).unwrap();
    }
    assert!(text.contains("inventory"), "{text}");
    assert!(
        !text.contains("tune") && !text.contains("job-1.1"),
        "{text}"
    );
    server.shared.tokens.people.revoke("ben", "root").unwrap();
    let job: antiphon_types::JobId = "job-2".parse().unwrap();
    server.running.command(Command::Hold { job }).await.unwrap();
    let mut rest = String::new();
    while let Some(Ok(bytes)) = events.next().await {
        rest += &String::from_utf8_lossy(&bytes);
    }
    assert!(!rest.contains("hold"), "{rest}");
}

#[tokio::test]
async fn a_browser_logs_in_reads_changes_from_our_pages_alone_and_logs_out() {
    let server = Server::start().await;
    let otto = server.token("otto", Role::Operator, &[], None);
    let call = |method: &str, path: &str, headers: &[(&str, &str)], body: String| {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/json");
        server.send(request.body(body.into()).unwrap())
    };
    let login = json!({ "token": otto }).to_string();
    let cross = [("sec-fetch-site", "cross-site")];
    let refused = call("POST", "/v1/login", &cross, login.clone()).await;
    assert_eq!(refused.status(), 403);
    let own = [("sec-fetch-site", "same-origin")];
    let answer = call("POST", "/v1/login", &own, login).await;
    assert_eq!(answer.status(), 200);
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap().to_owned();
    assert!(!cookie.contains(&otto));
    let with = ("cookie", cookie.as_str());
    let me = Answer::of(call("GET", "/v1/me", &[with], String::new()).await).await;
    assert_eq!(
        (&me.body["name"], &me.body["role"]),
        (&json!("otto"), &json!("operator"))
    );
    let pause = || "{}".to_owned();
    let bare = Answer::of(call("POST", "/v1/pause", &[with], pause()).await).await;
    assert_eq!((bare.status, bare.code()), (403, "AP0845"));
    let ours = call("POST", "/v1/pause", &[with, own[0]], pause()).await;
    assert_eq!(ours.status(), 200);
    // The cookie alone, as a program would send it, does not log others out either.
    let out = call("POST", "/v1/logout", &[with, cross[0]], String::new()).await;
    assert_eq!(out.status(), 403);
    let out = call("POST", "/v1/logout", &[with, own[0]], String::new()).await;
    assert_eq!(out.status(), 204);
    let after = call("GET", "/v1/me", &[with], String::new()).await;
    assert_eq!(after.status(), 401);
    // A token that is revoked takes its browsers with it.
    let login = json!({ "token": otto }).to_string();
    let answer = call("POST", "/v1/login", &[], login).await;
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    let with = ("cookie", set.split(';').next().unwrap());
    assert_eq!(
        call("GET", "/v1/me", &[with], String::new()).await.status(),
        200
    );
    server.shared.tokens.people.revoke("otto", "root").unwrap();
    let after = Answer::of(call("GET", "/v1/me", &[with], String::new()).await).await;
    assert_eq!((after.status, after.code()), (401, "AP0841"));
}

#[tokio::test]
async fn a_token_that_sends_too_much_waits_and_others_do_not() {
    let rate = Allowance {
        per_second: 1,
        burst: 3,
    };
    let server = Server::allowing(rate).await;
    let ann = server.token("ann", Role::Viewer, &[], None);
    for _ in 0..3 {
        assert_eq!(
            server.ask(Some(&ann), "GET", "/v1/me", "").await.status,
            200
        );
    }
    let request = Request::get("/v1/me").header("authorization", format!("Bearer {ann}"));
    let response = server.send(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "1");
    assert_eq!(Answer::of(response).await.code(), "AP0844");
    let ben = server.token("ben", Role::Viewer, &[], None);
    assert_eq!(
        server.ask(Some(&ben), "GET", "/v1/me", "").await.status,
        200
    );
    // What a trainer says is not counted: it has one token, and may have much to say.
    let attempt: AttemptId = "job-1.1".parse().unwrap();
    let token = server.shared.tokens.of_attempt(attempt);
    for seq in 0..20 {
        let body = json!({ "attempt": 1, "boot": "b", "seq": seq }).to_string();
        let path = "/v1/jobs/job-1/signals";
        let answer = server.ask(Some(&token), "POST", path, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    drop(server.dir);
}
