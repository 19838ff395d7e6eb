//! The main path: run, give way, resume, be steered, be explained.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

use crate::server::{Server, python, request, root, wait};

const GPUS: &str = "[resources]\ngpus = 8";
const NO_GPUS: &str = "[resources]\ngpus = 0";

/// Submits a job that trains `steps` steps of `step_ms`, and returns its id.
fn train(server: &Server, name: &str, head: &str, steps: u32, step_ms: u32) -> String {
    let trainer = root().join("crates/antiphon/tests/e2e/trainer.py");
    let command = [
        python(),
        trainer.display().to_string(),
        steps.to_string(),
        step_ms.to_string(),
    ];
    let text = format!(
        "name = \"{name}\"\n{head}\n[resources]\ngpus = 8\n[run]\ncommand = {}\n[run.environment]\nPYTHONPATH = \"{}\"\n[checkpoint]\ndir = \"{name}\"\n",
        serde_json::to_string(&command).unwrap(),
        root().join("python").display(),
    );
    let path = server.write(&format!("{name}.toml"), &text);
    server.ok(&["submit", &path]).trim().to_owned()
}

/// The steps that a trainer has written down, each as its line says.
pub(crate) fn journal(server: &Server, name: &str) -> Vec<Value> {
    let text =
        fs::read_to_string(server.dir().join(name).join("journal.jsonl")).unwrap_or_default();
    // The last line may be one that is being written.
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[test]
fn a_job_runs_and_everything_about_it_can_be_read() {
    let server = Server::start();
    let id = server.submit(
        "hello",
        NO_GPUS,
        "echo to stdout; echo to stderr >&2; echo $ANTIPHON_ATTEMPT",
    );
    server.wait_for(&id, "succeeded");
    assert_eq!(
        server.ok(&["logs", "hello"]),
        "to stdout\nto stderr\njob-1.1\n"
    );
    assert!(server.ok(&["why", "hello"]).contains("it has finished"));
    assert!(server.ok(&["jobs", "--all"]).contains("succeeded"));
    let job = server.job("hello");
    assert_eq!(job["attempts"][0]["outcome"], "succeeded");
    let nodes = server.json(&["nodes"]);
    assert_eq!(nodes["nodes"][0]["gpus_free_thousandths"], 8_000);
    assert_eq!(nodes["nodes"][0]["gpus_virtual"], true);
}

#[test]
fn a_gang_gets_ranks_addresses_and_gpus() {
    let cluster = "[[partition]]\nname = \"train\"\nnodes = [{ names = \"n[0-1]\", gpus = 4, gpu_type = \"H100\" }]\n";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cluster.toml");
    fs::write(&file, cluster).unwrap();
    let server = Server::start_with(&["--cluster", file.to_str().unwrap()]);
    let id = server.submit(
        "gang",
        "[resources]\ngpus = 8",
        "echo $ANTIPHON_NODE $PET_NODE_RANK of $PET_NNODES x $PET_NPROC_PER_NODE at $PET_MASTER_ADDR on $CUDA_VISIBLE_DEVICES",
    );
    server.wait_for(&id, "succeeded");
    let first = server.ok(&["logs", "gang", "--task", "trainer.0"]);
    let second = server.ok(&["logs", "gang", "--task", "trainer.1"]);
    assert_eq!(first, "n0 0 of 2 x 4 at 127.0.0.1 on 0,1,2,3\n");
    assert_eq!(second, "n1 1 of 2 x 4 at 127.0.0.1 on 0,1,2,3\n");
}

#[test]
fn a_preempted_trainer_resumes_at_the_same_step_and_loses_nothing() {
    let server = Server::start();
    let low = train(&server, "low", "class = \"best-effort\"", 120, 20);
    wait(
        "some steps",
        || journal(&server, "low").len() > 20,
        || server.ok(&["logs", "low"]),
    );
    let high = server.submit(
        "high",
        &format!("class = \"production\"\n{GPUS}"),
        "sleep 1",
    );
    wait(
        "a reason that names the victim",
        || {
            let why = server.ok(&["why", "high"]);
            why.contains(&format!("waiting for {low} to save and give way"))
                || server.state("high") != "pending"
        },
        || server.ok(&["why", "high"]),
    );
    server.wait_for(&high, "running");
    let why = server.ok(&["why", "low"]);
    assert!(why.contains("waiting for 8 GPUs: 0 free"), "{why}");
    assert!(
        why.contains(&format!("{high} (production) holds 8")),
        "{why}"
    );
    server.wait_for(&low, "succeeded");

    let lines = journal(&server, "low");
    let steps: Vec<u64> = lines
        .iter()
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(
        steps,
        (1..=120).collect::<Vec<_>>(),
        "each step once and in order"
    );
    let attempts: BTreeSet<&str> = lines
        .iter()
        .map(|line| line["attempt"].as_str().unwrap())
        .collect();
    assert_eq!(attempts.len(), 2);
    // The state is what an uninterrupted run gives.
    let sum = (1..=120u64).fold(0, |sum, step| (sum * 31 + step) % 1_000_003);
    assert_eq!(lines.last().unwrap()["sum"], sum);
    let past = &server.job("low")["attempts"][0];
    assert_eq!(past["outcome"], "requeued");
    assert!(past["stopped"].as_str().unwrap().contains(&high));
    let (live, replayed) = server.digests();
    assert_eq!(live, replayed);
}

#[test]
fn a_directive_is_applied_once_and_again_only_where_a_rollback_undid_it() {
    let server = Server::start();
    let id = train(
        &server,
        "steered",
        "[retry]\nbackoff = \"100ms\"",
        10_000,
        10,
    );
    wait(
        "some steps",
        || journal(&server, "steered").len() > 5,
        || server.ok(&["logs", &id]),
    );
    let address = fs::read_to_string(server.state_dir().join("address")).unwrap();
    let bearer = format!(
        "Bearer {}",
        fs::read_to_string(server.state_dir().join("token")).unwrap()
    );
    let direct = |body: &str| {
        let path = format!("/v1/jobs/{id}/directives");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let (status, answer) = request(&address, "POST", &path, &headers, body);
        assert_eq!(status, 200, "{answer}");
    };
    let answer = |index: usize| server.job(&id)["directives"][index]["answer"].clone();
    direct(r#"{"do": "set_weights", "weights": {"a": 0.5}}"#);
    wait(
        "the first directive",
        || answer(0).is_string(),
        || server.ok(&["logs", &id]),
    );
    direct(r#"{"do": "checkpoint"}"#);
    wait(
        "the checkpoint",
        || server.job(&id)["checkpoint"].is_object(),
        || server.ok(&["logs", &id]),
    );
    direct(r#"{"do": "set_weights", "weights": {"b": 0}}"#);
    wait(
        "the third directive",
        || answer(2).is_string(),
        || server.ok(&["logs", &id]),
    );

    // The trainer dies without saving: the second weight is undone with it, the first is in the checkpoint.
    for pid in crate::server::processes_with(&format!(
        "ANTIPHON_TASK_DIR={}",
        server.state_dir().display()
    )) {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    let attempt_2 = || server.ok(&["logs", &id, "--attempt", "2"]);
    wait(
        "a second attempt",
        || server.job(&id)["summary"]["attempts"] == 2,
        || server.ok(&["why", &id]),
    );
    wait(
        "the third directive again",
        || attempt_2().contains("set_weights 3"),
        attempt_2,
    );
    assert!(!attempt_2().contains("set_weights 1"), "{}", attempt_2());
    server.ok(&["cancel", &id]);
    server.wait_for(&id, "canceled");
}

#[test]
fn hold_release_and_cancel_do_what_they_say() {
    let server = Server::start();
    let id = train(&server, "kept", "", 100_000, 10);
    wait(
        "some steps",
        || journal(&server, "kept").len() > 5,
        || server.ok(&["logs", &id]),
    );
    server.ok(&["hold", "kept"]);
    server.wait_for(&id, "held");
    assert!(server.ok(&["why", "kept"]).contains("antiphon release"));
    let steps = journal(&server, "kept").len();
    server.ok(&["release", "kept"]);
    wait(
        "steps after the release",
        || journal(&server, "kept").len() > steps,
        || server.ok(&["why", &id]),
    );
    server.ok(&["cancel", "kept"]);
    server.wait_for(&id, "canceled");
}

#[test]
fn failures_are_tried_again_and_dependents_follow() {
    let server = Server::start();
    let retry = "[retry]\nretries = 2\nbackoff = \"50ms\"";
    let flaky = server.submit(
        "flaky",
        &format!("{retry}\n{NO_GPUS}"),
        "test \"$ANTIPHON_ATTEMPT\" = job-1.3",
    );
    let after = server.submit("after", &format!("after = [\"flaky\"]\n{NO_GPUS}"), "true");
    server.wait_for(&after, "succeeded");
    assert_eq!(server.job(&flaky)["summary"]["attempts"], 3);
    let broken = server.submit(
        "broken",
        &format!("{retry}\n{NO_GPUS}"),
        "echo the cause; exit 7",
    );
    let never = server.submit("never", &format!("after = [\"broken\"]\n{NO_GPUS}"), "true");
    server.wait_for(&never, "failed");
    let why = server.ok(&["why", &broken]);
    assert!(why.contains("exit code 7: the cause"), "{why}");
}

#[test]
fn a_job_that_ends_takes_every_process_of_its_own_with_it() {
    let server = Server::start();
    let id = server.submit(
        "forks",
        NO_GPUS,
        "setsid sleep 600 & setsid sh -c 'sleep 600; :' & sleep 600",
    );
    server.wait_for(&id, "running");
    let marked = || {
        crate::server::processes_with(&format!(
            "ANTIPHON_TASK_DIR={}",
            server.state_dir().display()
        ))
    };
    wait(
        "its processes",
        || marked().len() >= 4,
        || format!("{:?}", marked()),
    );
    server.ok(&["cancel", &id]);
    server.wait_for(&id, "canceled");
    assert!(marked().is_empty(), "{:?}", marked());
}

#[test]
fn a_job_that_waits_is_given_another_class() {
    let server = Server::start();
    server.submit("a", "held = true\n[resources]\ngpus = 1", "true");
    server.ok(&["class", "a", "production"]);
    assert_eq!(server.job("job-1")["summary"]["class"], "production");
    let refused = server.refused(&["class", "a", "urgent"]);
    assert!(
        refused.contains("service, production, standard, best-effort"),
        "{refused}"
    );
    server.ok(&["cancel", "a"]);
    let refused = server.refused(&["class", "job-1", "standard"]);
    assert!(refused.starts_with("exit 3"), "{refused}");
}
