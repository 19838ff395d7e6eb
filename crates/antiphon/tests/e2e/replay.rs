//! The live log, decided anew and run again; and a storm from the command line.

use std::fs;

use serde_json::Value;

use crate::server::Server;

#[test]
fn a_live_log_is_decided_anew_and_run_again() {
    let mut server = Server::start();
    let done = server.submit("done", "[resources]\ngpus = 2", "true");
    let failed = server.submit(
        "failed",
        "[resources]\ngpus = 1\n[retry]\nretries = 0",
        "exit 3",
    );
    let stays = server.submit("stays", "[resources]\ngpus = 1", "sleep 600");
    server.wait_for(&done, "succeeded");
    server.wait_for(&failed, "failed");
    server.wait_for(&stays, "running");

    // Beside the server that writes it.
    let check = server.json(&["replay", "--check"]);
    assert_eq!(check["difference"], Value::Null, "{check}");
    assert!(check["decisions"].as_u64().unwrap() >= 3, "{check}");

    server.ok(&["cancel", &stays]);
    server.wait_for(&stays, "canceled");
    let waits = server.submit("waits", "[resources]\ngpus = 1", "sleep 600");
    server.wait_for(&waits, "running");
    server.kill();

    // Without one, from a copy.
    let copy = server.dir().join("copy");
    fs::create_dir(&copy).unwrap();
    for file in fs::read_dir(server.state_dir()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        if name.to_string_lossy().starts_with("log.db") {
            fs::copy(&path, copy.join(name)).unwrap();
        }
    }
    let log = copy.join("log.db").display().to_string();
    let csv = server.dir().join("jobs.csv").display().to_string();
    let html = server.dir().join("page.html").display().to_string();
    let replay = server.json(&["replay", "--log", &log, "--csv", &csv, "--html", &html]);
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains(">recorded<") && page.contains(">antiphon<"));
    // Both sides have their course over time.
    assert_eq!(page.matches("download=\"gantt.csv\"").count(), 2);
    let [recorded, simulated] = &replay["runs"].as_array().unwrap()[..] else {
        panic!("{replay}");
    };
    assert_eq!(recorded["policy"], "recorded");
    assert_eq!(
        (&recorded["jobs"], &recorded["completed"]),
        (&2.into(), &2.into())
    );
    assert_eq!(
        (&simulated["jobs"], &simulated["completed"]),
        (&2.into(), &2.into())
    );
    assert_eq!(replay["censored"]["living"], 1);
    assert_eq!(replay["censored"]["canceled"], 1);
    let lines = fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 3, "{lines}");
    assert!(lines.contains("job-1,done,"), "{lines}");
    let table = server.ok(&["replay", "--log", &log]);
    assert!(
        table.contains("recorded") && table.contains("antiphon"),
        "{table}"
    );

    let policy = server.write("policy.toml", "[policy]\nreservations_per_class_max = 1\n");
    let other = server.json(&["replay", "--log", &log, "--policy", &policy]);
    assert_eq!(other["runs"][1]["completed"], 2);
    server.up();
}

#[test]
fn a_file_that_is_no_log_is_refused() {
    let server = Server::start();
    let path = server.write("events.json", "{}");
    let said = server.refused(&["replay", "--log", &path]);
    assert!(said.starts_with("exit 2\nerror[AP0623]"), "{said}");
    let said = server.refused(&["replay"]);
    assert!(said.starts_with("exit 3"), "{said}");
    assert!(said.contains("error[AP0622]"), "{said}");
}

#[test]
fn a_storm_is_the_same_each_time() {
    let server = Server::start();
    let arguments = ["storm", "--seeds", "2", "--seed", "5", "--events", "600"];
    let (first, second) = (server.json(&arguments), server.json(&arguments));
    assert_eq!(first["runs"], second["runs"]);
    assert_eq!(first["violations"].as_array().unwrap().len(), 0);
    let alone = server.json(&["storm", "--seed", "6", "--events", "300"]);
    assert_eq!(alone["runs"][0], first["runs"][1]);
}
