//! What a user is told of jobs that wait, run or are not submitted yet: reasons, the smallest change, the expected start; and
//! arrays, which are told and changed as one.

use serde_json::json;

use crate::server::{Server, wait};

const SLEEP: &str = "sleep 600";

/// A job file's text, with a command that never ends by itself.
fn file(server: &Server, name: &str, top: &str, resources: &str) -> String {
    let text = format!(
        "name = \"{name}\"\n{top}\n[resources]\n{resources}\n[run]\ncommand = [\"sleep\", \"600\"]\ngrace = \"1s\"\ntime_limit = \"1h\"\n"
    );
    server.write(&format!("{name}.toml"), &text)
}

#[test]
fn a_waiting_job_is_told_why_what_would_start_it_and_when_it_starts() {
    let server = Server::start();
    let head = "estimate = \"40m\"\n[resources]\ngpus = 6";
    let first = server.submit("first", head, SLEEP);
    server.wait_for(&first, "running");
    server.submit("second", "estimate = \"10m\"\n[resources]\ngpus = 4", SLEEP);
    let told = || server.json(&["why", "second"]);
    wait(
        "a forecast",
        || told()["start"].is_object(),
        || told().to_string(),
    );
    let why = told();
    assert_eq!(why["reasons"][0]["gpus"]["asked"], 4_000);
    assert_eq!(
        why["change"]["change"],
        json!({ "gpus": { "gpus": 2_000 } })
    );
    let (start, now) = (&why["start"], server.json(&["job", "first"]));
    let at = |key: &str| start[key].as_u64().unwrap();
    assert!(at("earliest_ms") < at("expected_ms") && at("expected_ms") < at("latest_ms"));
    assert!(now["summary"]["ends_in_ms"].as_u64().unwrap() > 2_000_000);
    let text = server.ok(&["why", "second"]);
    for part in [
        "waiting for 4 GPUs: 2 free, best node ",
        " has 2 of 8; job-1 (standard) holds 6 for about ",
        " is held back for it, so that it starts in 59m at the latest",
        "the smallest change that starts it now: `gpus = 2`",
        "it starts in about 39m, between 19m and 59m, if nothing else comes; forecast ",
        "it should run for about 10m, and for at most 15m in nine of ten cases, by its `estimate`",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(server.ok(&["jobs"]).contains("in 39m"));
    let running = server.ok(&["why", "first"]);
    assert!(
        running.contains("chosen for: one node, 2 GPUs left free there"),
        "{running}"
    );

    // The same of a job that is not submitted, which leaves nothing behind.
    let wide = file(&server, "wide", "", "gpus = 8");
    let report = server.json(&["check", &wide]);
    assert_eq!(report["starts_now"], false);
    assert_eq!(report["expected"]["source"], "limit");
    assert!(report["start"]["expected_ms"].as_u64().unwrap() > at("earliest_ms"));
    let text = server.ok(&["check", &wide]);
    assert!(
        text.contains("it would wait: waiting for 8 GPUs: 2 free"),
        "{text}"
    );
    // It might not have ended when the second's place is free, and with the limit that is named it would have.
    let small = file(&server, "small", "deadline = \"+10m\"", "gpus = 1");
    let text = server.ok(&["check", &small]);
    let change = "the smallest change that starts it now: `time_limit = \"44m\"`";
    assert!(text.contains(change), "{text}");
    let limited = std::fs::read_to_string(&small)
        .unwrap()
        .replace("1h", "44m");
    let small = server.write("small.toml", &limited);
    let text = server.ok(&["check", &small]);
    assert!(text.contains("it would start now on "), "{text}");
    assert!(
        text.contains("is ignored: it is expected to run longer than that"),
        "{text}"
    );
    assert_eq!(server.json(&["jobs"])["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_job_that_gave_way_is_told_to_whom_by_which_rule_and_at_what_cost() {
    let server = Server::start();
    let low = "class = \"best-effort\"\n[resources]\ngpus = 8";
    server.submit("low", low, SLEEP);
    server.wait_for("low", "running");
    let high = file(&server, "high", "class = \"production\"", "gpus = 8");
    let text = server.ok(&["check", &high]);
    assert!(
        text.contains(
            "it would make others give way: job-1 is asked to save and stop, and gone in 1m at the latest"
        ),
        "{text}"
    );
    assert_eq!(server.json(&["check", &high])["preempts"], json!(["job-1"]));
    server.ok(&["submit", &high]);
    server.wait_for("high", "running");
    let why = server.json(&["why", "low"]);
    assert_eq!(why["gave_way"]["job"], "job-2");
    assert_eq!(why["gave_way"]["rule"], "priority");
    let text = server.ok(&["why", "low"]);
    assert!(
        text.contains(
            "its last attempt job-1.1 gave way to job-2 of class production: it ran as best-effort"
        ),
        "{text}"
    );
}

#[test]
fn an_array_is_told_by_its_first_job_and_changed_as_one() {
    let server = Server::start();
    let sweep = server.write(
        "sweep.toml",
        "name = \"sweep\"\narray = \"0,2-4%2\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"sh\", \"-c\", \"echo $ANTIPHON_ARRAY_INDEX of $ANTIPHON_ARRAY_JOB; sleep 600\"]\ngrace = \"1s\"\n",
    );
    let output = server.run(&["submit", &sweep]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "job-1\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("array `sweep` (0,2-4%2): 4 jobs, job-1 to job-4; `antiphon jobs --array job-1` lists them"),
        "{said}"
    );
    server.wait_for("job-2", "running");
    wait(
        "the output",
        || server.ok(&["logs", "job-2"]).contains("2 of job-1"),
        || server.ok(&["logs", "job-2"]),
    );
    let third = server.ok(&["why", "job-3"]);
    assert!(
        third.contains("2 jobs of its array run, and at most 2 may at once"),
        "{third}"
    );
    // The name of the array means all of it to those that wait for it.
    let merge = server.write(
        "merge.toml",
        "name = \"merge\"\nafter = [\"sweep\"]\n[run]\ncommand = [\"true\"]\n[resources]\ngpus = 0\n",
    );
    server.ok(&["submit", &merge]);
    assert_eq!(
        server.json(&["job", "merge"])["after"],
        json!(["job-1", "job-2", "job-3", "job-4"])
    );
    let listed = server.json(&["jobs", "--array", "sweep"]);
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 4);
    server.ok(&["hold", "job-3"]);
    server.ok(&["cancel", "--array", "sweep"]);
    for job in ["job-1", "job-2", "job-3", "job-4"] {
        server.wait_for(job, "canceled");
    }
    let refused = server.refused(&["cancel", "--array", "merge"]);
    assert!(refused.contains("is no member of an array"), "{refused}");
}
