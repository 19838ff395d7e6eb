//! The HTTP API as another client sees it: tokens, idempotency keys, problems, the event stream, the document.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::server::{Server, request, wait};

struct Api<'a> {
    server: &'a Server,
    address: String,
    bearer: String,
}

impl<'a> Api<'a> {
    fn of(server: &'a Server) -> Self {
        let read = |name: &str| {
            fs::read_to_string(server.state_dir().join(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        Self {
            server,
            address: read("address"),
            bearer: format!("Bearer {}", read("token")),
        }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut all = vec![
            ("authorization", self.bearer.as_str()),
            ("content-type", "application/json"),
        ];
        all.extend(headers);
        let (status, text) = request(&self.address, method, path, &all, body);
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    fn job(&self, name: &str) -> String {
        let dir = self.server.dir().display().to_string();
        let script = "sleep 600";
        json!({"name": name, "resources": {"gpus": 1}, "run": {"command": ["sh", "-c", script], "workdir": dir}}).to_string()
    }
}

#[test]
fn nobody_is_answered_without_the_token() {
    let server = Server::start();
    let api = Api::of(&server);
    for path in ["/v1/jobs", "/v1/nodes", "/v1/status", "/v1/events"] {
        for headers in [
            vec![],
            vec![("authorization", "Bearer wrong")],
            vec![("authorization", "Basic x")],
        ] {
            let (status, body) = request(&api.address, "GET", path, &headers, "");
            assert_eq!(status, 401, "{path}");
            let problem: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(problem["code"], "AP0502");
            assert!(problem["help"].as_str().unwrap().contains("token"));
        }
    }
    let (status, _) = request(
        &api.address,
        "POST",
        "/v1/jobs/job-1/signals",
        &[("content-type", "application/json")],
        r#"{"attempt":1,"boot":"b","seq":0}"#,
    );
    assert_eq!(status, 401);
}

#[test]
fn a_command_sent_twice_under_one_key_is_carried_out_once() {
    let server = Server::start();
    let api = Api::of(&server);
    let key = [("idempotency-key", "k-1")];
    let (first, one) = api.send("POST", "/v1/jobs", &key, &api.job("a"));
    let (second, two) = api.send("POST", "/v1/jobs", &key, &api.job("a"));
    assert_eq!((first, second), (201, 200));
    assert_eq!((&one["job"], &one["seq"]), (&two["job"], &two["seq"]));
    assert_eq!(two["repeated"], true);
    let (status, problem) = api.send("POST", "/v1/jobs", &[], &api.job("a"));
    assert_eq!((status, &problem["code"]), (409, &json!("AP0103")));
    // The key is bound to what was sent with it: another command does not pass for the first.
    let (status, problem) = api.send("POST", "/v1/jobs/a/hold", &key, "");
    assert_eq!((status, &problem["code"]), (409, &json!("AP0113")));
    let (status, problem) = api.send("POST", "/v1/jobs", &key, &api.job("b"));
    assert_eq!((status, &problem["code"]), (409, &json!("AP0113")));
    server.ok(&["cancel", "a"]);
    server.wait_for("job-1", "canceled");
}

#[test]
fn wrong_bodies_are_problems_with_code_and_help() {
    let server = Server::start();
    let api = Api::of(&server);
    let cases = [
        ("POST", "/v1/jobs", "not json", 400),
        ("POST", "/v1/jobs", r#"{"name": "a", "nmae": 1}"#, 422),
        (
            "POST",
            "/v1/jobs",
            r#"{"name": "a", "resources": {"gpus": 1}, "run": {"command": ["true"], "workdir": "relative"}}"#,
            422,
        ),
        ("POST", "/v1/jobs/job-1/cancel", "", 404),
        ("POST", "/v1/unpause", "", 409),
        ("GET", "/v1/jobs?limit=many", "", 400),
        ("GET", "/v1/nowhere", "", 404),
        ("GET", "/v1/jobs/%ff", "", 400),
        ("DELETE", "/v1/jobs", "", 405),
        ("POST", "/v1/pause", "null", 422),
        (
            "POST",
            "/v1/jobs/job-1/directives",
            r#"{"do": "explode"}"#,
            422,
        ),
    ];
    for (method, path, body, expected) in cases {
        let (status, problem) = api.send(method, path, &[], body);
        assert_eq!(status, expected, "{path} {body}: {problem}");
        for field in ["code", "detail", "help", "type", "title"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{path}: {problem}"
            );
        }
    }
}

#[test]
fn the_log_streams_from_any_place_on() {
    let server = Server::start();
    let api = Api::of(&server);
    api.send("POST", "/v1/pause", &[], r#"{"reason": "first"}"#);
    let mut stream = TcpStream::connect(api.address.trim()).unwrap();
    write!(
        stream,
        "GET /v1/events?after=0 HTTP/1.1\r\nHost: antiphon\r\nAuthorization: {}\r\n\r\n",
        api.bearer
    )
    .unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut seqs = Vec::new();
    let mut read_until = |text: &str| {
        for line in lines.by_ref() {
            let line = line.unwrap();
            if let Some(id) = line.strip_prefix("id: ") {
                seqs.push(id.parse::<u64>().unwrap());
            }
            if line.contains(text) {
                return;
            }
        }
        panic!("the stream ended before {text}");
    };
    read_until("first");
    // What happens from now on comes as well.
    api.send("POST", "/v1/pause", &[], r#"{"reason": "second"}"#);
    read_until("second");
    assert_eq!(
        seqs,
        (1..=seqs.len() as u64).collect::<Vec<_>>(),
        "every event once, from the first"
    );
}

#[test]
fn the_openapi_document_names_every_path() {
    let server = Server::start();
    let api = Api::of(&server);
    let (status, text) = request(&api.address, "GET", "/v1/openapi.json", &[], "");
    assert_eq!(status, 200);
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    for path in [
        "/v1/jobs",
        "/v1/jobs/{job}/why",
        "/v1/jobs/{job}/signals",
        "/v1/events",
        "/v1/nodes",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn an_attempt_speaks_for_itself_alone_and_only_while_it_is_current() {
    let server = Server::start();
    let api = Api::of(&server);
    let script = "[resources]\ngpus = 1\n[retry]\nbackoff = \"20ms\"";
    let id = server.submit("a", script, "echo $ANTIPHON_JOB_TOKEN; while [ ! -e go-$ANTIPHON_ATTEMPT ]; do sleep 0.05; done; exit 1");
    wait(
        "the token",
        || server.ok(&["logs", &id]).len() > 32,
        String::new,
    );
    let token = format!("Bearer {}", server.ok(&["logs", &id]).trim());
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ];
    let send = |job: &str, attempt: u32| {
        let body = format!(
            r#"{{"attempt": {attempt}, "boot": "b", "seq": 0, "signals": [{{"step": 7, "loss": 1.5}}]}}"#
        );
        request(
            &api.address,
            "POST",
            &format!("/v1/jobs/{job}/signals"),
            &headers,
            &body,
        )
        .0
    };
    assert_eq!(send(&id, 1), 200);
    assert_eq!(server.job(&id)["summary"]["step"], 7);
    assert_eq!(send(&id, 2), 401, "not the token of another attempt");
    let (status, _) = request(&api.address, "GET", "/v1/jobs", &headers, "");
    assert_eq!(status, 401, "not the user's token");
    server.write("go-job-1.1", "");
    wait(
        "a second attempt",
        || server.job(&id)["summary"]["attempts"] == 2,
        String::new,
    );
    assert_eq!(send(&id, 1), 409, "the first has been replaced");
    server.ok(&["cancel", &id]);
    server.wait_for(&id, "canceled");
}
