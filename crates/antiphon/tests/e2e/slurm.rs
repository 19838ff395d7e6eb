//! The main path over a real Slurm: found, run, given way, resumed, drained, and everything killed on the way. Says `skipped`
//! where `make test-slurm` has not asked for one.

mod observe;

use std::collections::BTreeSet;
use std::fs;
use std::time::SystemTime;

use serde_json::Value;

use crate::cluster_of_slurm::Cluster;
use crate::server::{Server, python, root, wait};
use crate::story::journal;

fn serve(cluster: &Cluster) -> Server {
    let configuration = format!(
        "[backend.slurm]\npartitions = [\"general\"]\nconf = \"{}\"\npoll = \"1s\"\ncommand_timeout = \"10s\"\n",
        cluster.conf().display()
    );
    Server::serve(&configuration, &[])
}

/// A trainer on two nodes: the first task trains, the second is there as long as it is.
fn train(server: &Server, name: &str, head: &str, steps: u32, step_ms: u32) -> String {
    let trainer = root().join("crates/antiphon/tests/e2e/trainer.py");
    let script = format!(
        "done={name}/$ANTIPHON_ATTEMPT.done; if [ $ANTIPHON_TASK_INDEX = 0 ]; then {} {} {steps} {step_ms}; code=$?; \
         touch $done; exit $code; fi; while [ ! -e $done ]; do sleep 0.2; done",
        python(),
        trainer.display(),
    );
    let text = format!(
        "name = \"{name}\"\n{head}\n[resources]\ngpus = 16\nspan = \"leaf\"\n[run]\ncommand = {}\n\
         [run.environment]\nPYTHONPATH = \"{}\"\n[checkpoint]\ndir = \"{name}\"\n",
        serde_json::to_string(&["sh", "-c", &script]).unwrap(),
        root().join("python").display(),
    );
    let path = server.write(&format!("{name}.toml"), &text);
    server.ok(&["submit", &path]).trim().to_owned()
}

fn until_steps(server: &Server, name: &str, steps: usize) {
    wait(
        &format!("{steps} steps"),
        || journal(server, name).len() > steps,
        || {
            format!(
                "{}{}",
                server.ok(&["why", name]),
                server.ok(&["logs", name])
            )
        },
    );
}

/// Each step once and in order, and the state that an uninterrupted run gives.
fn assert_nothing_lost_nothing_twice(server: &Server, name: &str, steps: u64, attempts: usize) {
    let lines = journal(server, name);
    let seen: Vec<u64> = lines
        .iter()
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(
        seen,
        (1..=steps).collect::<Vec<_>>(),
        "{:#}\n{}",
        server.job(name)["attempts"],
        fs::read_to_string(server.log()).unwrap_or_default()
    );
    let sum = (1..=steps).fold(0, |sum, step| (sum * 31 + step) % 1_000_003);
    assert_eq!(lines.last().unwrap()["sum"], sum);
    let by: BTreeSet<&str> = lines
        .iter()
        .map(|line| line["attempt"].as_str().unwrap())
        .collect();
    assert_eq!(by.len(), attempts, "{by:?}");
}

/// Nodes by name and state.
fn nodes(server: &Server) -> Vec<(String, String)> {
    let nodes = server.json(&["nodes"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let nodes = nodes["nodes"].as_array().unwrap();
    nodes
        .iter()
        .map(|node| (text(&node["name"]), text(&node["state"])))
        .collect()
}

#[test]
fn slurm_carries_a_gang_through_preemption_and_everybodys_death() {
    let Some(cluster) = Cluster::start(8, 4) else {
        return;
    };
    let mut server = serve(&cluster);
    let all = server.json(&["nodes"]);
    let all = all["nodes"].as_array().unwrap();
    assert_eq!(all.len(), 8);
    assert!(all.iter().all(|node| node["gpus"] == 8), "{all:?}");
    assert!(
        all.iter().all(|node| node["gpu_type"] == "H100-SXM-80GB"),
        "{all:?}"
    );

    // It trains on two nodes under one leaf, and gives way to one that wants all.
    let low = train(&server, "low", "class = \"best-effort\"", 600, 40);
    until_steps(&server, "low", 10);
    let on = cluster.ok("squeue", &["-h", "-o", "%j %N"]);
    assert!(
        [
            "job-1-1 n[1-2]",
            "job-1-1 n[3-4]",
            "job-1-1 n[5-6]",
            "job-1-1 n[7-8]"
        ]
        .contains(&on.trim()),
        "{on}"
    );
    let high = server.submit(
        "high",
        "class = \"production\"\n[resources]\ngpus = 64",
        "echo $SLURMD_NODENAME",
    );
    server.wait_for(&high, "succeeded");
    let mut printed: Vec<String> = (0..8)
        .map(|task| server.ok(&["logs", "high", "--task", &format!("trainer.{task}")]))
        .collect();
    printed.sort();
    assert_eq!(printed.concat(), "n1\nn2\nn3\nn4\nn5\nn6\nn7\nn8\n");
    server.wait_for(&low, "running");
    let running = SystemTime::now();
    wait(
        "the controller to write down what runs",
        || cluster.has_saved(running),
        String::new,
    );

    // Server and controller are killed at once; the trainer notices neither.
    let before = journal(&server, "low").len();
    until_steps(&server, "low", before + 5);
    server.kill();
    cluster.signal("slurmctld", "-KILL");
    let before = journal(&server, "low").len();
    cluster.start_again("slurmctld");
    wait(
        "the controller is back",
        || cluster.command("squeue", &["-h"]).status.success(),
        String::new,
    );
    server.up();
    until_steps(&server, "low", before + 5);

    // A node drains in Slurm, and another in antiphon: neither takes more, and what runs there runs on.
    cluster.ok(
        "scontrol",
        &["update", "nodename=n8", "state=drain", "reason=cable"],
    );
    server.ok(&["drain", "n7", "--reason", "fan"]);
    wait(
        "both nodes are out of service",
        || {
            let nodes = nodes(&server);
            let ready = nodes.iter().filter(|(_, state)| state == "ready").count();
            ready == 6
        },
        || format!("{:?}", nodes(&server)),
    );
    cluster.ok("scontrol", &["update", "nodename=n8", "state=resume"]);
    server.wait_for(&low, "succeeded");
    assert_nothing_lost_nothing_twice(&server, "low", 600, 2);
    assert_eq!(server.job("low")["attempts"].as_array().unwrap().len(), 2);
    wait(
        "the node is back",
        || {
            nodes(&server)
                .iter()
                .filter(|(_, state)| state == "ready")
                .count()
                == 7
        },
        || format!("{:?}", nodes(&server)),
    );
    let (live, replayed) = server.digests();
    assert_eq!(live, replayed);
    assert_eq!(
        cluster.ok("squeue", &["-h"]),
        "",
        "nothing is left in Slurm"
    );
}

/// Slurm takes the GPUs of one node from both sockets in turn, where antiphon books them in order.
#[test]
fn slurm_and_the_books_name_the_same_gpus() {
    let Some(cluster) = Cluster::start(1, 1) else {
        return;
    };
    let server = serve(&cluster);
    let script = "echo \"$SLURMD_NODENAME[$CUDA_VISIBLE_DEVICES]\"; exec sleep 600";
    let jobs: Vec<String> = (0..4)
        .map(|number| server.submit(&format!("one-{number}"), "[resources]\ngpus = 1", script))
        .collect();
    let printed = |job: &str| server.ok(&["logs", job]).trim().to_owned();
    let booked = |job: &str| server.job(job)["summary"]["allocation"].clone();
    for job in &jobs {
        wait(
            "the books follow",
            || booked(job) == printed(job).as_str(),
            || format!("{job}: {} is booked, {} is so", booked(job), printed(job)),
        );
    }
    let given: BTreeSet<String> = jobs.iter().map(|job| printed(job)).collect();
    let in_order: BTreeSet<String> = (0..4).map(|gpu| format!("n1[{gpu}]")).collect();
    assert_eq!(given.len(), 4);
    assert_ne!(given, in_order, "Slurm has given what was booked anyway");
    for job in &jobs {
        server.ok(&["cancel", job]);
        server.wait_for(job, "canceled");
    }
    let (live, replayed) = server.digests();
    assert_eq!(live, replayed);
}

/// Submits real training on two nodes: torchrun on each, one rank under it.
fn train_with_torch(server: &Server, torch: &str, name: &str, steps: u32) -> String {
    let trainer = root().join("crates/antiphon/tests/e2e/ddp.py");
    let torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=1"].map(str::to_owned);
    let mut command = vec![torch.to_owned()];
    command.extend(torchrun);
    command.extend([trainer.display().to_string(), steps.to_string()]);
    let text = format!(
        "name = \"{name}\"\nclass = \"best-effort\"\n[resources]\ngpus = 16\nspan = \"leaf\"\n[run]\ncommand = {}\ngrace = \"60s\"\n\
         [run.environment]\nPYTHONPATH = \"{}\"\n[checkpoint]\ndir = \"{name}\"\n",
        serde_json::to_string(&command).unwrap(),
        root().join("python").display(),
    );
    let path = server.write(&format!("{name}.toml"), &text);
    server.ok(&["submit", &path]).trim().to_owned()
}

#[test]
fn slurm_runs_pytorch_on_two_nodes_and_what_gave_way_ends_with_the_same_weights() {
    let Ok(torch) = std::env::var("ANTIPHON_TEST_TORCH") else {
        println!("skipped: ANTIPHON_TEST_TORCH names no Python with PyTorch");
        return;
    };
    let Some(cluster) = Cluster::start(4, 2) else {
        return;
    };
    let server = serve(&cluster);
    let low = train_with_torch(&server, &torch, "low", 150);
    until_steps(&server, "low", 10);
    let high = server.submit(
        "high",
        "class = \"production\"\n[resources]\ngpus = 32",
        "true",
    );
    server.wait_for(&high, "succeeded");
    server.wait_for(&low, "succeeded");
    // The same, and nobody comes in between.
    let calm = train_with_torch(&server, &torch, "calm", 150);
    server.wait_for(&calm, "succeeded");

    let (lines, undisturbed) = (journal(&server, "low"), journal(&server, "calm"));
    let steps: Vec<u64> = lines
        .iter()
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, (1..=150).collect::<Vec<_>>());
    let by: BTreeSet<&str> = lines
        .iter()
        .map(|line| line["attempt"].as_str().unwrap())
        .collect();
    assert_eq!(by.len(), 2, "{by:?}");
    assert!(lines.iter().all(|line| line["world"] == 2));
    let losses = |lines: &[Value]| -> Vec<f64> {
        let loss = |line: &Value| line["loss"].as_f64().unwrap();
        lines.iter().map(loss).collect()
    };
    let losses = (losses(&lines), losses(&undisturbed));
    assert_eq!(losses.0, losses.1);
    assert!(losses.0[149] < losses.0[0] / 2.0, "it has learned nothing");
    let weights = |name: &str| fs::read_to_string(server.dir().join(name).join("weights")).unwrap();
    assert_eq!(weights("low"), weights("calm"));
}

#[test]
fn slurm_says_what_is_wrong_before_anything_starts() {
    let server = Server::start();
    let refused = server.refused(&["serve", "--allow-root"]);
    assert!(refused.starts_with("exit 2\nerror[AP0806]"), "{refused}");
    assert!(refused.contains("--slurm"), "{refused}");
}
