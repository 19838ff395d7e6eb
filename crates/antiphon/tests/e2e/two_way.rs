//! The two-way loop as a trainer and a person see it: asks and their answers, directives and their undoing, where data came
//! from. What rules conclude is the signal crate's.

use std::fs;

use serde_json::{Value, json};

use crate::server::{Server, request, wait};

/// A job that runs and tells its token.
pub(crate) const SCRIPT: &str = "echo $ANTIPHON_JOB_TOKEN > part.$ANTIPHON_JOB; mv part.$ANTIPHON_JOB token.$ANTIPHON_JOB; sleep 600";

pub(crate) struct Trainer {
    job: String,
    address: String,
    bearer: String,
    seq: u64,
}

impl Trainer {
    /// The trainer of a job that runs [`SCRIPT`].
    pub(crate) fn of(server: &Server, job: &str) -> Self {
        let token = server.dir().join(format!("token.{job}"));
        wait("the job's token", || token.exists(), String::new);
        let read = |path| fs::read_to_string(path).unwrap().trim().to_owned();
        Self {
            job: job.to_owned(),
            address: read(server.state_dir().join("address")),
            bearer: format!("Bearer {}", read(token)),
            seq: 0,
        }
    }

    pub(crate) fn send(&mut self, more: &Value) -> Value {
        let mut batch = json!({"attempt": 1, "boot": "b", "seq": self.seq, "cursor": 0});
        for (key, value) in more.as_object().unwrap() {
            batch[key] = value.clone();
        }
        self.seq += 1;
        let headers = [
            ("authorization", self.bearer.as_str()),
            ("content-type", "application/json"),
        ];
        let path = format!("/v1/jobs/{}/signals", self.job);
        let (status, text) = request(&self.address, "POST", &path, &headers, &batch.to_string());
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

fn start() -> (Server, Trainer) {
    let server = Server::start();
    server.write(
        "shards.yaml",
        "shards:\n- id: neuro_001\n  source: books\n  type: reasoning\n- id: neuro_002\n  parents: [neuro_001]\n  \
         generator: paraphraser\n  temperature: 0.8\n  category: reasoning\n",
    );
    let head = "[data]\nshards = \"shards.yaml\"\n[resources]\ngpus = 1";
    server.submit("a", head, SCRIPT);
    server.wait_for("job-1", "running");
    let mut trainer = Trainer::of(&server, "job-1");
    let shards =
        json!({"neuro_003": {"category": "reasoning", "parents": ["neuro_001"], "weight": 0.25}});
    trainer.send(&json!({"attach": {"step": 0, "shards": shards}}));
    (server, trainer)
}

#[test]
fn asks_are_answered_in_the_reply_with_a_reason() {
    let (server, mut trainer) = start();
    let asks = json!([
        {"ask": "time", "more_ms": 1000},
        {"ask": "protection", "during_ms": 60_000, "reason": "saving"},
        {"ask": "samples"},
        {"ask": "tea"},
    ]);
    let reply = trainer.send(&json!({"asks": asks}));
    let answers = [
        (false, "job-1 does not get 1s more: it has no time limit"),
        (
            true,
            "it is not preempted for 1m00s, unless a quota is taken back",
        ),
        (false, "`samples` needs `category`"),
        (
            false,
            "there is no ask `tea`: there are gpus, time, samples, pause, protection",
        ),
    ];
    for (index, (granted, reason)) in answers.into_iter().enumerate() {
        let answer = &reply["answers"][index];
        assert_eq!(answer["granted"], granted, "{answer}");
        assert_eq!(answer["reason"], reason);
    }
    server.ok(&["cancel", "job-1"]);
}

#[test]
fn a_directive_reaches_the_trainer_and_is_taken_back() {
    let (server, mut trainer) = start();
    server.ok(&["direct", "a", "set_weights", "neuro_002=0.5"]);
    server.ok(&["direct", "a", "drain", "task=3", "share=0.5", "steps=2"]);
    let sent = &trainer.send(&json!({}))["directives"];
    assert_eq!(sent[0]["weights"], json!({"neuro_002": 0.5}));
    assert_eq!(
        (
            &sent[1]["do"],
            &sent[1]["task"],
            &sent[1]["share"],
            &sent[1]["steps"]
        ),
        (&json!("drain"), &json!(3), &json!(0.5), &json!(2))
    );
    server.ok(&["undo", "a", "1"]);
    let sent = &trainer.send(&json!({}))["directives"];
    assert_eq!(sent[2]["weights"], json!({"neuro_002": 1.0}));
    assert!(
        server
            .refused(&["undo", "a", "1"])
            .contains("#3 has undone it")
    );
    // Of this shard the trainer said with which weight it began.
    server.ok(&["direct", "a", "set_weights", "neuro_003=2"]);
    server.ok(&["undo", "a", "#4"]);
    let sent = &trainer.send(&json!({}))["directives"];
    assert_eq!(sent[4]["weights"], json!({"neuro_003": 0.25}));
    let output = server.run(&["undo", "a", "the first"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("give the number in front of the directive in `antiphon job JOB`"),
        "{said}"
    );
    let refused = server.refused(&["approve", "a", "shard"]);
    assert!(refused.contains("AP0126"), "{refused}");
    assert!(
        refused.contains("none about the run as a whole"),
        "{refused}"
    );
    server.ok(&["cancel", "job-1"]);
}

#[test]
fn a_spot_notice_reaches_the_trainer_with_its_reason_and_its_lease() {
    let (server, mut trainer) = start();
    let node = server.json(&["nodes"])["nodes"][0]["name"].clone();
    let node = node.as_str().unwrap();
    let refused = server.refused(&["drain", node, "--within", "60s", "--gpus", "65"]);
    assert!(refused.contains("AP0129"), "{refused}");
    let refused = server.refused(&["drain", node, "--within", "60s", "--cause", "sport"]);
    assert!(
        refused.contains("give one of spot, inference, other"),
        "{refused}"
    );
    server.ok(&["drain", node, "--within", "120s", "--cause", "spot"]);
    assert_eq!(server.ok(&["nodes"]).matches("spot notice").count(), 1);
    let sent = &trainer.send(&json!({}))["directives"][0];
    let reason = sent["reason"].as_str().unwrap();
    let begins =
        format!("spot notice: {node} is given back in 2m00s; save before the lease ends in ");
    assert_eq!(sent["do"], "yield");
    assert!(reason.starts_with(&begins), "{reason}");
    // The default grace of a minute fits behind it.
    let nodes = server.json(&["nodes"]);
    let view = &nodes["nodes"][0];
    assert_eq!(view["state"], "draining");
    assert_eq!(view["notices"][0]["cause"], "spot");
    let by = view["notices"][0]["by_ms"].as_u64().unwrap();
    let lease = sent["lease_ends_ms"].as_u64().unwrap();
    assert_eq!(by - lease, 60_000);
    server.ok(&["drain", node, "--undo"]);
    assert_eq!(server.json(&["nodes"])["nodes"][0]["state"], "ready");
    server.ok(&["cancel", "job-1"]);
}

#[test]
fn a_run_that_hangs_is_asked_for_its_stacks_and_its_finding_says_where_they_are() {
    let server = Server::start();
    let head = "[rules]\nhang = \"observe\"\nhang_after = \"4s\"\n[resources]\ngpus = 1";
    server.submit("a", head, SCRIPT);
    server.wait_for("job-1", "running");
    let mut trainer = Trainer::of(&server, "job-1");
    let steps: Vec<Value> = (1..=3)
        .map(|step| json!({"task": 0, "step": step, "step_ms": 50}))
        .collect();
    let reply = trainer.send(&json!({"attach": {"step": 0}, "signals": steps}));
    assert_eq!(reply.get("stacks"), None);
    let mut reply = json!({});
    wait(
        "stacks to be asked for",
        || {
            reply = trainer.send(&json!({}));
            reply["stacks"] == true
        },
        String::new,
    );
    trainer.send(&json!({"signals": [{"task": 0, "stacks": true}]}));
    let mut found = String::new();
    wait(
        "the hang to be told",
        || {
            trainer.send(&json!({}));
            let job = server.json(&["job", "job-1"]);
            found = job["findings"].to_string();
            found.contains("hung")
        },
        String::new,
    );
    let stacks = "the stacks of task 0 are in its output: `antiphon logs job-1 --attempt 1`";
    assert!(found.contains(stacks), "{found}");
    server.ok(&["cancel", "job-1"]);
}

#[test]
fn provenance_draws_ancestors_and_siblings() {
    let (server, _trainer) = start();
    assert_eq!(
        server.ok(&["provenance", "neuro_002"]),
        "neuro_002  (reasoning; by paraphraser at temperature 0.8)  in job-1\n\
         └─ neuro_001  (reasoning; from books)\n\
         siblings\n  neuro_003  (reasoning)\n"
    );
    let family = server.json(&["provenance", "neuro_001", "--job", "a"]);
    assert_eq!(family["children"][1]["id"], "neuro_003");
    let refused = server.refused(&["provenance", "nobody"]);
    assert!(refused.contains("AP0508"), "{refused}");
    server.ok(&["cancel", "job-1"]);
}

#[test]
fn a_job_says_whether_its_result_is_acceptable_and_at_which_step_it_became_so() {
    let server = Server::start();
    let head =
        "accept = { metric = \"eval_loss\", op = \"<=\", value = 1.2 }\n[resources]\ngpus = 1";
    server.submit("a", head, SCRIPT);
    server.wait_for("job-1", "running");
    let accept = || server.json(&["job", "job-1"])["accept"].clone();
    assert_eq!(
        accept()["sentence"],
        "whether its result is acceptable is not measured yet: asked is eval_loss <= 1.2 on probe"
    );
    let mut trainer = Trainer::of(&server, "job-1");
    trainer.send(&json!({"attach": {"step": 0}}));
    let probe = |step: u64, law: f64, code: f64| {
        json!({"signals": [
            {"task": 0, "step": step, "category": "law", "probe_loss": law},
            {"task": 0, "step": step, "category": "code", "probe_loss": code},
            {"task": 0, "step": step + 1, "step_ms": 50, "loss": 0.5},
        ]})
    };
    let told = |state: &'static str, step: u64| {
        let is = || accept()["state"] == state && accept()["step"] == step;
        wait("the accept line", is, || accept().to_string());
        accept()["sentence"].as_str().unwrap().to_owned()
    };
    trainer.send(&probe(100, 1.0, 1.7));
    assert_eq!(
        told("not-yet", 100),
        "its result is not acceptable yet: best eval_loss 1.35 at step 100, asked is eval_loss <= 1.2 on probe"
    );
    trainer.send(&probe(200, 0.9, 1.4));
    let met =
        "its result is acceptable: eval_loss 1.15 at step 200, asked is eval_loss <= 1.2 on probe";
    assert_eq!(told("met", 200), met);
    server.ok(&["cancel", "job-1"]);
    server.wait_for("job-1", "canceled");
    for command in ["job", "why"] {
        let text = server.ok(&[command, "job-1"]);
        assert!(text.contains(met), "{text}");
    }
    let report = server.json(&["report", "--since", "1h"]);
    assert_eq!(report["acceptable_models"], 1, "{report}");
}
