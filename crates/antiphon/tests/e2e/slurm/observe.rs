//! `antiphon serve --observe` over a real Slurm in which others' jobs come and go: what is shown, what is said, and that only
//! reading commands are ever run.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use serde_json::Value;

use crate::cluster_of_slurm::Cluster;
use crate::server::{Server, get, wait};

/// Every command of Slurm's, those that only read and those that act.
const PROGRAMS: [&str; 10] = [
    "sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun",
    "strigger",
];

/// All that a server that only observes may run.
const READING: [&str; 5] = [
    "scontrol show job -d --all",
    "scontrol show node -d --all",
    "scontrol show partition --all",
    "scontrol show topology",
    "squeue --noheader --all --states=all --format=%A",
];

/// Wrappers of Slurm's commands that write down how they are called.
struct Recorder {
    dir: tempfile::TempDir,
}

impl Recorder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for program in PROGRAMS {
            let found = Command::new("sh")
                .args(["-c", &format!("command -v {program}")])
                .output()
                .unwrap();
            let real = String::from_utf8(found.stdout).unwrap();
            let calls = dir.path().join("calls");
            let script = format!(
                "#!/bin/sh\necho \"{program} $*\" >> {}\nexec {} \"$@\"\n",
                calls.display(),
                real.trim()
            );
            let path = dir.path().join("bin").join(program);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    fn programs(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn calls(&self) -> BTreeSet<String> {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap();
        calls.lines().map(str::to_owned).collect()
    }
}

fn observe(cluster: &Cluster, programs: &Path) -> Server {
    let configuration = format!(
        "[backend.slurm]\nconf = \"{}\"\npoll = \"300ms\"\ncommand_timeout = \"3s\"\nclasses = {{ fast-ib = \"production\" }}\n",
        cluster.conf().display()
    );
    Server::serve_with(programs, &configuration, &["--slurm", "--observe"])
}

/// Submits a job as a person who knows nothing of antiphon, and returns its number.
fn sbatch(cluster: &Cluster, options: &[&str]) -> String {
    let mut all = vec![
        "--parsable",
        "--uid=nobody",
        "--chdir=/",
        "--output=/dev/null",
        "--time=60",
        "--wrap=sleep 600",
    ];
    all.extend(options);
    cluster.ok("sbatch", &all).trim().to_owned()
}

fn status(server: &Server) -> Value {
    let of = |name: &str| fs::read_to_string(server.state_dir().join(name)).unwrap();
    get(&of("address"), "/v1/status", &of("token"))
}

fn proposal(server: &Server) -> Value {
    let of = |name: &str| fs::read_to_string(server.state_dir().join(name)).unwrap();
    get(&of("address"), "/v1/proposal", &of("token"))
}

/// What is seen of a job: its state, where it is, and why it waits.
fn seen(server: &Server, name: &str) -> (String, String, String) {
    let job = &server.job(name)["summary"];
    let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
    (text("state"), text("allocation"), text("reason"))
}

#[test]
fn slurm_is_observed_and_nothing_in_it_is_touched() {
    let Some(cluster) = Cluster::start(2, 2) else {
        return;
    };
    let recorder = Recorder::new();
    let long = sbatch(
        &cluster,
        &["--job-name=long", "--nodelist=n1", "--gres=gpu:8"],
    );
    let half = sbatch(
        &cluster,
        &[
            "--job-name=half run",
            "--nodelist=n2",
            "--gres=gpu:h100:4",
            "--partition=preemptible",
        ],
    );
    let cpus = sbatch(
        &cluster,
        &["--job-name=tokenize", "--nodelist=n2", "--cpus-per-task=2"],
    );
    let running = format!("{long}\n{half}\n{cpus}");
    wait(
        "three jobs to run",
        || {
            cluster
                .ok("squeue", &["-h", "-t", "R", "-o", "%i"])
                .lines()
                .count()
                == 3
        },
        || running.clone(),
    );
    let wide = sbatch(&cluster, &["--job-name=wide", "--nodes=2", "--gres=gpu:8"]);
    let held = sbatch(&cluster, &["--job-name=held", "--hold", "--gres=gpu:1"]);
    let sweep = sbatch(
        &cluster,
        &[
            "--job-name=sweep",
            "--array=1-4%1",
            "--partition=preemptible",
            "--gres=gpu:8",
        ],
    );
    let late = sbatch(
        &cluster,
        &[
            "--job-name=late",
            &format!("--dependency=afterok:{long}"),
            "--gres=gpu:1",
        ],
    );
    let urgent = sbatch(
        &cluster,
        &[
            "--job-name=urgent",
            "--partition=fast-ib",
            "--gres=gpu:8",
            "--hold",
        ],
    );

    let mut server = observe(&cluster, &recorder.programs());

    // Everybody's jobs are there, by Slurm's ids, and where Slurm put them.
    assert_eq!(
        seen(&server, &long),
        ("running".into(), "n1[0-7]".into(), String::new())
    );
    let (state, on, _) = seen(&server, &format!("slurm-{half}"));
    assert_eq!(state, "running");
    assert!(on.starts_with("n2[") && on.contains('-'), "{on}");
    let (state, on, _) = seen(&server, &cpus);
    assert_eq!((state.as_str(), on.as_str()), ("running", "n2"));
    let job = server.job(&half)["summary"].clone();
    assert_eq!(job["class"], "best-effort", "by its partition: {job:#}");
    assert_eq!(
        (&job["user"], &job["team"]),
        (&"nobody".into(), &"default".into())
    );
    assert_eq!(job["name"], format!("slurm-{half}:half run"));
    for (name, why) in [
        (&wide, "Resources"),
        (&held, "JobHeld"),
        (&late, "Dependency"),
        (&format!("{sweep}_1"), ""),
        (&format!("{sweep}_4"), "JobArrayTaskLimit"),
    ] {
        // Slurm finds a reason when it has looked at the job.
        let reason = || seen(&server, name).2;
        wait(
            "the reason",
            || reason().contains(why),
            || format!("{name}: {}", reason()),
        );
    }
    let nodes = server.json(&["nodes"]);
    let free: Vec<u64> = nodes["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["gpus_free_thousandths"].as_u64().unwrap() / 1_000)
        .collect();
    assert_eq!(free, [0, 4], "{nodes:#}");

    // It says why a job waits there and here, and how old that is.
    let why = server.ok(&["why", &wide]);
    for part in [
        "slurm has not started",
        "Resources",
        "antiphon would",
        "as slurm was",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let why = server.ok(&["why", &long]);
    assert!(
        why.contains("slurm runs it as") && why.contains("antiphon would let it run"),
        "{why}"
    );
    let listed = server.run(&["jobs"]);
    let talk = String::from_utf8(listed.stderr).unwrap();
    assert!(talk.contains("antiphon only observes slurm"), "{talk}");
    let listed = String::from_utf8(listed.stdout).unwrap();
    for job in [&long, &half, &cpus, &wide, &held, &late] {
        assert!(listed.contains(&format!("slurm-{job}:")), "{listed}");
    }

    // Released, it is of a class that others give way to: antiphon would ask, and asks nobody.
    cluster.ok("scontrol", &["release", &urgent]);
    let stops = || proposal(&server)["stops"].as_array().unwrap().clone();
    wait(
        "antiphon to want room for it",
        || !stops().is_empty(),
        || format!("{:#}\n{}", proposal(&server), server.ok(&["why", &urgent])),
    );
    let stop = &stops()[0];
    assert_eq!(stop["name"], format!("slurm-{half}:half run"), "{stop:#}");
    assert_eq!(seen(&server, &half).0, "running");

    // What would act is refused, each time with what to do instead.
    let job = server.write(
        "job.toml",
        "name = \"mine\"\n[resources]\ngpus = 1\n[run]\ncommand = [\"true\"]\n",
    );
    for arguments in [
        vec!["submit", job.as_str()],
        vec!["cancel", long.as_str()],
        vec!["hold", wide.as_str()],
        vec!["release", held.as_str()],
        vec!["preempt", half.as_str()],
        vec!["drain", "n1"],
        vec!["pause"],
        vec!["logs", long.as_str()],
    ] {
        let refused = server.refused(&arguments);
        assert!(refused.contains("AP0416"), "{arguments:?}: {refused}");
    }
    // A file may still be checked against the cluster as it is.
    let checked = server.json(&["check", &job]);
    let sentences = checked["sentences"].as_array().unwrap();
    assert!(!sentences.is_empty(), "{checked:#}");

    let since = SystemTime::now();
    // A job that ends leaves, one that starts moves, and a drained node is seen.
    cluster.ok("scancel", &[&cpus]);
    server.wait_for(&cpus, "canceled");
    let reason = "reason=a fan is broken";
    cluster.ok(
        "scontrol",
        &["update", "nodename=n1", "state=drain", reason],
    );
    let drained = || server.ok(&["nodes"]);
    wait(
        "the drain to be seen",
        || drained().contains("a fan is broken"),
        drained,
    );
    cluster.ok("scontrol", &["update", "nodename=n1", "state=resume"]);
    wait(
        "the node to be back",
        || !drained().contains("a fan is broken"),
        drained,
    );

    // The controller dies: what was seen stays, and its age is shown. Nothing is taken for gone.
    wait(
        "the controller to write down what runs",
        || cluster.has_saved(since),
        String::new,
    );
    cluster.signal("slurmctld", "-KILL");
    let away = || status(&server)["observes"]["error"].is_string();
    wait("the silence to be noticed", away, || {
        format!("{:#}", status(&server))
    });
    assert_eq!(seen(&server, &long).0, "running");
    let why = server.ok(&["why", &long]);
    assert!(why.contains("since then it does not answer"), "{why}");
    let talk = String::from_utf8(server.run(&["jobs"]).stderr).unwrap();
    assert!(talk.contains("which does not answer"), "{talk}");
    cluster.start_again("slurmctld");
    wait(
        "it to be seen again",
        || !away(),
        || format!("{:#}", status(&server)),
    );
    assert_eq!(seen(&server, &long).0, "running");
    assert_eq!(
        server.job(&long)["attempts"].as_array().map(Vec::len),
        Some(0)
    );

    // Another start goes on where the last one was: the same jobs under the same ids.
    let before = server.job(&wide)["summary"]["id"].clone();
    server.interrupt();
    server.up();
    assert_eq!(server.job(&wide)["summary"]["id"], before);

    // Only questions were asked of Slurm, the same five again and again.
    let allowed: BTreeSet<String> = READING.map(str::to_owned).into();
    assert_eq!(recorder.calls(), allowed);
    // Nothing was submitted, and nobody's job is missing.
    let there = cluster.ok("squeue", &["-h", "-t", "R,PD", "-o", "%A"]);
    for job in [&long, &half, &wide, &held, &late, &urgent] {
        assert!(there.lines().any(|line| line == job), "{job}: {there}");
    }
}
