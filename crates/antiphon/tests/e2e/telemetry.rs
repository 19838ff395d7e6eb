//! What a collector of OpenTelemetry is sent, over a socket and decoded by the protocol's own definitions; and that nothing
//! is sent where none is named.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::server::{Server, get, wait};

/// A collector that keeps what it is sent.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            spans: Arc::default(),
            services: Arc::default(),
        };
        let (spans, services) = (collector.spans.clone(), collector.services.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                while let Some(sent) = next(&stream) {
                    for of in sent.resource_spans {
                        let resource = of.resource.unwrap();
                        let service = fields(&resource.attributes)["service.name"].clone();
                        services.lock().unwrap().push(service);
                        let made = of.scope_spans.into_iter().flat_map(|scope| scope.spans);
                        spans.lock().unwrap().extend(made);
                    }
                }
            }
        });
        collector
    }

    fn find(&self, wanted: impl Fn(&Span) -> bool) -> Option<Span> {
        let spans = self.spans.lock().unwrap();
        spans.iter().find(|span| wanted(span)).cloned()
    }
}

/// The next request of a connection, answered.
fn next(mut stream: &TcpStream) -> Option<ExportTraceServiceRequest> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    assert_eq!(line, "POST /v1/traces HTTP/1.1\r\n");
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut body = vec![0; headers["content-length"].parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    stream.write_all(answer.as_bytes()).unwrap();
    Some(ExportTraceServiceRequest::decode(&body[..]).unwrap())
}

fn fields(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |field: &KeyValue| {
        let value = field.value.as_ref().and_then(|value| value.value.as_ref());
        let text = match value? {
            Any::StringValue(text) => text.clone(),
            Any::IntValue(number) => number.to_string(),
            other => format!("{other:?}"),
        };
        Some((field.key.clone(), text))
    };
    attributes.iter().filter_map(text).collect()
}

#[test]
fn a_request_and_the_turn_that_it_leads_to_reach_a_collector() {
    let collector = Collector::start();
    let configuration = format!("[telemetry]\notlp = \"{}\"\n", collector.address);
    let mut server = Server::up_with(&configuration);
    server.submit("a", "[resources]\ngpus = 1", "true");
    server.wait_for("job-1", "succeeded");
    server.refused(&["job", "job-99"]);
    // What waits to be sent is sent when the server stops.
    server.interrupt();
    let named = |name: &'static str| {
        let found = || collector.find(|span| span.name == name);
        wait(name, || found().is_some(), String::new);
        found().unwrap()
    };
    let submit = named("POST /v1/jobs");
    let of_submit = fields(&submit.attributes);
    assert_eq!(of_submit["http.route"], "/v1/jobs");
    assert_eq!(of_submit["http.response.status_code"], "201");
    let is_unknown = |span: &Span| {
        let fields = fields(&span.attributes);
        fields.get("http.response.status_code").map(String::as_str) == Some("404")
    };
    wait(
        "the refusal",
        || collector.find(is_unknown).is_some(),
        String::new,
    );
    assert_eq!(
        collector.find(is_unknown).unwrap().name,
        "GET /v1/jobs/{job}"
    );
    // A cycle that launched, the commit that made it durable, and the turn that holds both.
    let launched = |span: &Span| {
        let fields = fields(&span.attributes);
        span.name == "cycle" && fields.get("actions").is_some_and(|actions| actions == "1")
    };
    wait(
        "a cycle",
        || collector.find(launched).is_some(),
        String::new,
    );
    let cycle = collector.find(launched).unwrap();
    let turn = collector.find(|span| span.span_id == cycle.parent_span_id);
    let turn = turn.unwrap();
    assert_eq!(turn.name, "turn");
    let of_turn = |span: &Span| span.name == "commit" && span.parent_span_id == turn.span_id;
    let commit = collector.find(of_turn).unwrap();
    assert_eq!(
        fields(&commit.attributes)["events"],
        fields(&turn.attributes)["events"]
    );
    assert!(turn.start_time_unix_nano <= cycle.start_time_unix_nano);
    assert!(commit.end_time_unix_nano <= turn.end_time_unix_nano);
    let services = collector.services.lock().unwrap();
    assert!(
        services.iter().all(|name| name == "antiphon"),
        "{services:?}"
    );
}

#[test]
fn a_collector_that_is_away_costs_a_warning_and_nothing_else() {
    // Nobody listens there: the port was given back.
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut server = Server::up_with(&format!("[telemetry]\notlp = \"http://{gone}\"\n"));
    server.submit("a", "[resources]\ngpus = 1", "true");
    server.wait_for("job-1", "succeeded");
    server.interrupt();
    let log = std::fs::read_to_string(server.log()).unwrap();
    let told = log.matches("traces do not reach their collector").count();
    assert_eq!(told, 1, "{log}");
}

/// A DCGM exporter that says this, whatever it is asked.
fn exporter(said: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            assert!(lines.take_while(|line| !line.is_empty()).count() > 0);
            let length = said.len();
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all((head + said).as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn what_an_exporter_says_of_a_gpu_is_told_with_the_job_that_holds_it() {
    let address = exporter(
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",Hostname=\"pod-7\"} 97\n\
         DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",Hostname=\"pod-7\"} 84\n\
         DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",Hostname=\"pod-7\"} 48\n",
    );
    let server = Server::up_with(&format!("[dcgm]\nurl = \"http://{address}/{{node}}\"\n"));
    server.submit("a", "[resources]\ngpus = 1", "sleep 600");
    server.wait_for("job-1", "running");
    let read = |name: &str| std::fs::read_to_string(server.state_dir().join(name)).unwrap();
    let (address, token) = (read("address"), read("token"));
    let devices = || get(&address, "/v1/devices", &token)["devices"].clone();
    wait(
        "a reading",
        || devices()[0]["job"] == "job-1",
        || devices().to_string(),
    );
    let device = &devices()[0];
    assert_eq!(device["utilization_percent"], 97);
    assert_eq!(device["temperature_c"], 84);
    assert_eq!(device["xid"], 48);
    server.ok(&["cancel", "job-1"]);
}
