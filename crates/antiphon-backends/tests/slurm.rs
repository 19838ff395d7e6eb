//! What only the Slurm backend can do, over a real Slurm: exact nodes and counts, waits, guests, and daemons that die. Says
//! `skipped` where `make test-slurm` has not asked for one.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which the lint only sees by their attribute"
)]
#![expect(clippy::print_stderr, reason = "tests say what they skipped")]

#[path = "../../../tests/backends/cluster.rs"]
mod cluster;
#[expect(dead_code, reason = "the suite of the contract uses all of it")]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use antiphon_backends::slurm::{Mode, SlurmBackend, SlurmConfig};
use antiphon_backends::{Backend, Launch, TaskSeen, supervisor};
use antiphon_types::{Exit, Millis, Processes, Role, TaskId};

use cluster::Cluster;
use support::{attempt, launch, look, task, until};

struct Bench<'a> {
    cluster: &'a Cluster,
    backend: SlurmBackend,
    root: tempfile::TempDir,
}

impl<'a> Bench<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self::with(cluster, |_| ())
    }

    fn with(cluster: &'a Cluster, set: impl Fn(&mut SlurmConfig)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let backend = open(cluster, root.path(), set);
        Self {
            cluster,
            backend,
            root,
        }
    }

    fn output(&self, task: &TaskId) -> String {
        let path = self.root.path().join(format!("attempts/{task}/output.log"));
        std::fs::read_to_string(path).unwrap_or_default()
    }

    async fn says(&self, task: &TaskId, text: &str) -> String {
        until("a task says something", async || {
            let said = self.output(task);
            said.contains(text).then_some(said)
        })
        .await
    }

    async fn end(&self, task: &TaskId) -> Exit {
        until("a task ends", async || {
            match look(&self.backend, task).await {
                Some(TaskSeen::Ended(exit)) => Some(exit),
                _ => None,
            }
        })
        .await
    }

    /// Jobs of an attempt that Slurm has.
    fn jobs(&self) -> usize {
        let name = format!("--name=job-{}-{}", attempt().job.0, attempt().number);
        self.cluster.ok("squeue", &["-h", &name]).lines().count()
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        let cluster = self.cluster;
        cluster.command("scancel", &["--full", "--signal=KILL", "--user=root"]);
        cluster.command("scancel", &["--user=root"]);
        for _ in 0..600 {
            if cluster.ok("squeue", &["-h"]).is_empty() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

fn open(cluster: &Cluster, root: &Path, set: impl Fn(&mut SlurmConfig)) -> SlurmBackend {
    let supervisor = supervisor::command_at(env!("CARGO_BIN_EXE_antiphon-supervise-test"));
    let mut config = SlurmConfig {
        conf: Some(cluster.conf()),
        partitions: vec!["general".into()],
        poll: Millis::from_millis(300),
        command_timeout: Millis::from_secs(6),
        ..SlurmConfig::new(root.to_owned(), supervisor)
    };
    set(&mut config);
    SlurmBackend::new(config).unwrap()
}

/// A shell on these nodes, on so many GPUs of each.
fn shell(script: &str, nodes: &[&str], gpus: u32) -> Launch {
    let gpus: Vec<u32> = (0..gpus).collect();
    launch(&["sh", "-c", script], nodes, &gpus)
}

/// A job of somebody else, which holds so many GPUs of a node.
fn foreign(cluster: &Cluster, node: &str, gpus: u32) -> String {
    let said = cluster.ok(
        "sbatch",
        &[
            "--parsable",
            "--partition=general",
            &format!("--nodelist={node}"),
            &format!("--gres=gpu:{gpus}"),
            "--output=/dev/null",
            "--wrap=sleep 300",
        ],
    );
    let job = said.trim().to_owned();
    for _ in 0..600 {
        let state = cluster.ok("squeue", &["-h", "-j", &job, "-o", "%T"]);
        if state.trim() == "RUNNING" {
            return job;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("the foreign job does not run");
}

async fn a_gang_runs_on_exactly_its_nodes_and_gpus(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    let script = "echo $ANTIPHON_NODE $SLURMD_NODENAME [$CUDA_VISIBLE_DEVICES] $PET_NODE_RANK/$PET_NNODES \
                  $PET_MASTER_ADDR $PET_MASTER_PORT; exec sleep 60";
    let launch = shell(script, &["n3", "n1"], 3);
    bench.backend.launch(&launch).await.unwrap();
    let mut ports = BTreeSet::new();
    for (index, node) in [(0, "n3"), (1, "n1")] {
        let said = bench.says(&task(index), "]").await;
        let words: Vec<&str> = said.split_whitespace().collect();
        let rank = format!("{index}/2");
        assert_eq!(
            words[..5],
            [node, node, "[0,1,2]", &rank, "127.0.0.1"],
            "{said}"
        );
        ports.insert(words[5].to_owned());
        let seen = bench.backend.seen(attempt()).await.unwrap().unwrap();
        assert_eq!(seen.gpus[&task(index)], [0, 1, 2], "as Slurm counts them");
    }
    assert_eq!(ports.len(), 1, "ranks meet at one port");
    let nodes = cluster.ok("scontrol", &["show", "node", "-d", "-o"]);
    assert_eq!(nodes.matches("GresUsed=gpu:h100:3").count(), 2, "{nodes}");
    assert_eq!(bench.jobs(), 1);
    bench.backend.terminate(attempt()).await.unwrap();
    for index in [0, 1] {
        let exit = bench.end(&task(index)).await;
        assert!(matches!(exit, Exit::Signal { signal: 15, .. }), "{exit}");
    }
}

/// Two nodes that hold different things are two components; tasks on one GPU each share a step, and not a GPU.
async fn roles_that_hold_different_things_start_together(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    let mut launch = shell(
        "echo [$CUDA_VISIBLE_DEVICES] $RANK; exec sleep 60",
        &["n1", "n2"],
        4,
    );
    let mut reward = Role {
        name: "reward".into(),
        ..launch.spec.roles[0].clone()
    };
    reward.shape.processes = Processes::PerGpu;
    launch.spec.roles.push(reward);
    for index in [0, 1] {
        let mut task = launch.allocation.tasks[1].clone();
        task.role = "reward".into();
        task.index = index;
        task.gpus = vec![4 + index];
        Arc::make_mut(&mut launch.allocation.tasks).push(task);
    }
    bench.backend.launch(&launch).await.unwrap();
    let mut on_n2 = BTreeSet::new();
    let mut count = 0;
    for (role, index) in [("trainer", 0), ("trainer", 1), ("reward", 0), ("reward", 1)] {
        let id = TaskId {
            role: role.into(),
            ..task(index)
        };
        let said = bench.says(&id, "]").await;
        let mut seen = bench.backend.seen(attempt()).await.unwrap().unwrap();
        let gpus = seen.gpus.remove(&id).unwrap();
        let wanted = if role == "trainer" { 4 } else { 1 };
        assert_eq!(gpus.len(), wanted, "{said}");
        if role == "reward" {
            assert!(said.trim_end().ends_with(&format!(" {index}")), "{said}");
        }
        if (role, index) != ("trainer", 0) {
            count += gpus.len();
            on_n2.extend(gpus);
        }
    }
    assert_eq!(on_n2.len(), count, "no GPU twice: {on_n2:?}");
    bench.backend.kill(attempt()).await.unwrap();
    let exit = bench.end(&task(0)).await;
    assert!(matches!(exit, Exit::Signal { signal: 9, .. }), "{exit}");
}

async fn one_that_waits_says_why_and_can_be_stopped(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    let job = foreign(cluster, "n1", 8);
    let launch = shell("echo started", &["n1"], 1);
    bench.backend.launch(&launch).await.unwrap();
    let reason = until("Slurm says why", async || bench.backend.waits(attempt())).await;
    assert!(
        ["Resources", "Priority", "None"].contains(&reason.as_str()),
        "{reason}"
    );
    assert_eq!(
        look(&bench.backend, &task(0)).await,
        Some(TaskSeen::Starting)
    );
    bench.backend.terminate(attempt()).await.unwrap();
    let exit = bench.end(&task(0)).await;
    assert!(
        matches!(&exit, Exit::Signal { signal: 15, evidence, .. } if evidence.contains("before")),
        "{exit}"
    );
    assert_eq!(bench.output(&task(0)), "");
    // The job of somebody else is not touched.
    assert_eq!(
        cluster.ok("squeue", &["-h", "-j", &job, "-o", "%T"]).trim(),
        "RUNNING"
    );
}

async fn one_that_is_not_started_in_time_is_taken_back(cluster: &Cluster) {
    let bench = Bench::with(cluster, |config| {
        config.launch_timeout = Millis::from_secs(2);
    });
    let _foreign = foreign(cluster, "n2", 8);
    bench
        .backend
        .launch(&shell("echo started", &["n2"], 1))
        .await
        .unwrap();
    let exit = bench.end(&task(0)).await;
    assert!(matches!(exit, Exit::NotLaunched { .. }), "{exit}");
    assert_eq!(bench.jobs(), 0);
}

async fn a_guest_counts_what_others_hold(cluster: &Cluster) {
    let bench = Bench::with(cluster, |config| config.mode = Mode::Guest);
    bench
        .backend
        .launch(&shell("echo up; exec sleep 60", &["n1"], 2))
        .await
        .unwrap();
    bench.says(&task(0), "up").await;
    let lost = async |node: &str| {
        let nodes = bench.backend.nodes().await.unwrap();
        nodes
            .iter()
            .find(|one| one.name.0 == node)
            .unwrap()
            .gpus_lost
            .len()
    };
    assert_eq!(lost("n1").await, 0, "what is antiphon's own is no loss");
    let job = foreign(cluster, "n1", 3);
    assert_eq!((lost("n1").await, lost("n2").await), (3, 0));
    cluster.ok("scancel", &[&job]);
    until("what others held is free", async || {
        (lost("n1").await == 0).then_some(())
    })
    .await;
    assert!(matches!(
        look(&bench.backend, &task(0)).await,
        Some(TaskSeen::Starting | TaskSeen::Running)
    ));
}

async fn a_node_that_drains_takes_no_more_and_keeps_what_it_has(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    bench
        .backend
        .launch(&shell("echo up; exec sleep 60", &["n1"], 1))
        .await
        .unwrap();
    bench.says(&task(0), "up").await;
    let names = async || -> Vec<String> {
        let nodes = bench.backend.nodes().await.unwrap();
        nodes.into_iter().map(|node| node.name.0).collect()
    };
    cluster.ok(
        "scontrol",
        &["update", "nodename=n1", "state=drain", "reason=cable"],
    );
    assert_eq!(names().await, ["n2", "n3", "n4"]);
    assert!(matches!(
        look(&bench.backend, &task(0)).await,
        Some(TaskSeen::Starting | TaskSeen::Running)
    ));
    bench.backend.kill(attempt()).await.unwrap();
    bench.end(&task(0)).await;
    cluster.ok("scontrol", &["update", "nodename=n1", "state=resume"]);
    until("the node is back", async || {
        (names().await == ["n1", "n2", "n3", "n4"]).then_some(())
    })
    .await;
}

/// A controller that hangs takes a submit and does not answer: whether it acted is not known, and it must be one job.
async fn a_submit_without_an_answer_is_looked_for_by_name(cluster: &Cluster) {
    let bench = Bench::with(cluster, |config| {
        config.command_timeout = Millis::from_secs(3);
    });
    bench.backend.nodes().await.unwrap();
    let launch = shell("echo started; exec sleep 60", &["n1", "n2"], 1);
    cluster.signal("slurmctld", "-STOP");
    let began = Instant::now();
    let error = bench.backend.launch(&launch).await.unwrap_err().to_string();
    assert!(
        error.contains("`sbatch` did not answer in 3000 ms"),
        "{error}"
    );
    assert!(
        began.elapsed().as_secs() < 20,
        "no call hangs as long as Slurm's own"
    );
    // Whether it is there is not known, and so not denied.
    assert!(bench.backend.seen(attempt()).await.is_err());
    cluster.signal("slurmctld", "-CONT");
    until("the launch is taken", async || {
        bench.backend.launch(&launch).await.ok()
    })
    .await;
    for index in [0, 1] {
        bench.says(&task(index), "started").await;
    }
    bench.backend.launch(&launch).await.unwrap();
    // Where Slurm took the first submit after all, one of the two finds the task taken, and ends.
    until("Slurm has it once", async || {
        (bench.jobs() == 1).then_some(())
    })
    .await;
    until("it is seen to run", async || {
        let seen = look(&bench.backend, &task(0)).await;
        (seen == Some(TaskSeen::Running)).then_some(())
    })
    .await;
    bench.backend.kill(attempt()).await.unwrap();
    for index in [0, 1] {
        let exit = bench.end(&task(index)).await;
        assert!(matches!(exit, Exit::Signal { signal: 9, .. }), "{exit}");
        assert_eq!(bench.output(&task(index)).matches("started").count(), 1);
    }
}

async fn a_controller_that_is_killed_costs_no_job(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    let script = "echo started; while [ ! -e $ANTIPHON_GO ]; do sleep 0.2; done; exit 7";
    let mut launch = shell(script, &["n1", "n2"], 2);
    let go = bench.root.path().join("go");
    let at = go.to_string_lossy().into_owned();
    launch.environment.insert("ANTIPHON_GO".into(), at);
    bench.backend.launch(&launch).await.unwrap();
    for index in [0, 1] {
        bench.says(&task(index), "started").await;
    }
    cluster.signal("slurmctld", "-KILL");
    assert!(bench.backend.nodes().await.is_err());
    assert!(matches!(
        look(&bench.backend, &task(0)).await,
        Some(TaskSeen::Starting | TaskSeen::Running)
    ));
    cluster.start_again("slurmctld");
    until("it answers again", async || {
        bench.backend.nodes().await.ok()
    })
    .await;
    std::fs::write(go, "").unwrap();
    for index in [0, 1] {
        let exit = bench.end(&task(index)).await;
        assert!(matches!(exit, Exit::Code { code: 7, .. }), "{exit}");
        assert_eq!(bench.output(&task(index)).matches("started").count(), 1);
    }
}

/// What somebody ends with Slurm's own command has a word of its own: its supervisor heard of it.
async fn one_that_somebody_cancels_ends_by_their_signal(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    bench
        .backend
        .launch(&shell("echo up; exec sleep 60", &["n4"], 1))
        .await
        .unwrap();
    bench.says(&task(0), "up").await;
    cluster.ok("scancel", &["--name=job-42-3"]);
    let exit = bench.end(&task(0)).await;
    assert!(matches!(exit, Exit::Signal { .. }), "{exit}");
}

/// Slurm gives up on a node and calls its job ended; while a process of it lives it is not started a second time.
async fn a_node_daemon_that_is_killed_makes_no_attempt_run_twice(cluster: &Cluster) {
    let bench = Bench::new(cluster);
    bench
        .backend
        .launch(&shell("echo up; exec sleep 600", &["n4"], 1))
        .await
        .unwrap();
    bench.says(&task(0), "up").await;
    cluster.signal("slurmd-n4", "-KILL");
    // Sooner than Slurm finds out by itself, which takes its SlurmdTimeout.
    cluster.ok(
        "scontrol",
        &["update", "nodename=n4", "state=down", "reason=test"],
    );
    let seen = until("Slurm has given the job up", async || {
        look(&bench.backend, &task(0))
            .await
            .filter(|seen| !matches!(seen, TaskSeen::Starting | TaskSeen::Running))
    })
    .await;
    assert_eq!(seen, TaskSeen::Orphaned, "its processes live");
    let nodes = bench.backend.nodes().await.unwrap();
    assert!(nodes.iter().all(|node| node.name.0 != "n4"));
    // Orders reach it although Slurm no longer can.
    bench.backend.kill(attempt()).await.unwrap();
    let exit = bench.end(&task(0)).await;
    assert!(matches!(exit, Exit::Signal { signal: 9, .. }), "{exit}");
    cluster.start_again("slurmd-n4");
    cluster.ok("scontrol", &["update", "nodename=n4", "state=resume"]);
    until("the node is back", async || {
        let nodes = bench.backend.nodes().await.unwrap();
        nodes.iter().any(|node| node.name.0 == "n4").then_some(())
    })
    .await;
}

macro_rules! over_one_cluster {
    ($test:ident: $($name:ident),* $(,)?) => {
        #[tokio::test]
        async fn $test() {
            let Some(cluster) = Cluster::start(4, 2) else { return };
            $(
                eprintln!("{}", stringify!($name));
                $name(&cluster).await;
            )*
        }
    };
}

over_one_cluster!(
    launches_and_waits: a_gang_runs_on_exactly_its_nodes_and_gpus,
    roles_that_hold_different_things_start_together,
    one_that_waits_says_why_and_can_be_stopped,
    one_that_is_not_started_in_time_is_taken_back,
    a_guest_counts_what_others_hold,
);

over_one_cluster!(
    trouble: a_node_that_drains_takes_no_more_and_keeps_what_it_has,
    one_that_somebody_cancels_ends_by_their_signal,
    a_submit_without_an_answer_is_looked_for_by_name,
    a_controller_that_is_killed_costs_no_job,
    a_node_daemon_that_is_killed_makes_no_attempt_run_twice,
);
