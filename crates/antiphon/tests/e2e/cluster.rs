//! The cluster as its operator describes it: nodes of a file, teams of the configuration, planned maintenance.

use std::fs;

use serde_json::{Value, json};

use crate::server::Server;

const CLUSTER: &str = r#"
[[partition]]
name = "train"
price_per_gpu_hour = "2.50"
nodes = [{ names = "n[0-3]", gpus = 8, gpu_type = "H100", leaf = "per 2", spine = "s0" }]
[shared]
lustre_gbps = 400
"#;

const TEAMS: &str = r#"
[[team]]
name = "research"
quota = 16
[[team]]
name = "rlhf"
parent = "research"
weight = 2
limit = { all = 24, H100 = 24 }
budget = "1000h"
"#;

/// A server over [`CLUSTER`] with these lines in its configuration.
fn server(configuration: &str) -> Server {
    let mut server = Server::start();
    server.interrupt();
    let dir = server.dir().join("config/antiphon");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("cluster.toml"), CLUSTER).unwrap();
    fs::write(
        dir.join("antiphon.toml"),
        format!("cluster = \"cluster.toml\"\n{configuration}"),
    )
    .unwrap();
    server.up();
    server
}

fn read(server: &Server, arguments: &[&str]) -> Value {
    serde_json::from_str(&server.ok(arguments)).unwrap()
}

#[test]
fn teams_of_the_configuration_are_taken_once_and_shown() {
    let mut server = server(TEAMS);
    let teams = read(&server, &["teams", "--json"]);
    let rlhf = &teams["teams"][1];
    assert_eq!(
        teams["teams"][0]["quota_thousandths"],
        json!({ "*": 16_000 })
    );
    assert_eq!(
        (&rlhf["parent"], &rlhf["weight"]),
        (&json!("research"), &json!(2))
    );
    assert_eq!(
        rlhf["limit_thousandths"],
        json!({ "*": 24_000, "H100": 24_000 })
    );
    assert_eq!(rlhf["budget_gpu_ms"], json!({ "*": 3_600_000_000u64 }));
    let table = server.ok(&["teams"]);
    assert!(
        table.contains("rlhf") && table.contains("24, 24 H100"),
        "{table}"
    );

    // A start with the same settings has nothing to say.
    let seq = |server: &Server| read(server, &["audit", "--json"])["events"].clone();
    let before = seq(&server);
    server.interrupt();
    server.up();
    assert_eq!(seq(&server), before);
}

#[test]
fn a_maintenance_is_planned_for_nodes_that_exist() {
    let server = server("");
    let output = server.run(&[
        "drain", "n0", "n1", "--at", "+4h", "--for", "2h", "--reason", "firmware",
    ]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("n0, n1 take no tasks from "), "{said}");
    for (arguments, expected) in [
        (
            ["--at", "soon", "--for", "2h"],
            "error: `--at soon` is no time",
        ),
        (
            ["--at", "+4h", "--for", "2"],
            "error: `--for 2` is no duration",
        ),
    ] {
        let output = server.run(&[&["drain", "n0"], arguments.as_slice()].concat());
        assert_eq!(output.status.code(), Some(2));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(expected), "{said}");
    }
}
