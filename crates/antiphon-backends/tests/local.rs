//! What only real processes can show: descendants that hide, supervisors that die, servers that restart, launch checks.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which the lint only sees by their attribute"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use antiphon_backends::local::{LocalBackend, LocalConfig};
use antiphon_backends::{Backend, BackendError, Launch, Preflight, TaskSeen, supervisor};
use antiphon_types::{
    Bytes, CheckpointSpec, Exit, ExitClass, GpuAmount, KeepSpec, Millis, Processes, Slice,
    Timestamp,
};
use rustix::process::{Pid, Signal, kill_process};

use support::{announced, attempt, launch, look, nodes, task, until};

const SUPERVISOR: &str = env!("CARGO_BIN_EXE_antiphon-supervise-test");

/// A backend over a state directory of its own.
struct Rig {
    root: tempfile::TempDir,
    backend: LocalBackend,
}

impl Rig {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let backend = open(root.path());
        Self { root, backend }
    }

    fn dir(&self) -> PathBuf {
        task_dir(self.root.path())
    }

    fn output(&self) -> String {
        fs::read_to_string(self.backend.output_path(&task(0))).unwrap_or_default()
    }

    /// Launches a single task without GPUs.
    async fn run(&self, script: &str) {
        self.backend.launch(&shell(script)).await.unwrap();
    }

    async fn prints(&self, text: &str) {
        until(text, async || self.output().contains(text).then_some(())).await;
    }

    async fn seen(&self) -> Option<TaskSeen> {
        look(&self.backend, &task(0)).await
    }

    async fn becomes(&self, wanted: TaskSeen) {
        until(&format!("{wanted:?}"), async || {
            (self.seen().await.as_ref() == Some(&wanted)).then_some(())
        })
        .await;
    }

    async fn ends(&self) -> Exit {
        until("the task ends", async || match self.seen().await {
            Some(TaskSeen::Ended(exit)) => Some(exit),
            _ => None,
        })
        .await
    }
}

fn open(root: &Path) -> LocalBackend {
    LocalBackend::new(LocalConfig {
        nodes: Some(nodes()),
        check_give_up: Millis::from_millis(400),
        node_check_limit: Millis::from_millis(600),
        ..LocalConfig::new(root.to_owned(), supervisor::command_at(SUPERVISOR))
    })
    .unwrap()
}

fn task_dir(root: &Path) -> PathBuf {
    root.join("attempts/job-42.3/trainer.0")
}

fn shell(script: &str) -> Launch {
    launch(&["sh", "-c", script], &["n0"], &[])
}

fn pid_in(file: &Path) -> i32 {
    let text = fs::read(file).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let pid = &json["content"]["process"]["pid"];
    pid.as_i64().unwrap().try_into().unwrap()
}

fn kill_9(pid: i32) {
    kill(pid, Signal::KILL);
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn is_alive(pid: i32) -> bool {
    // A zombie runs no more.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Answers as the product does: launch checks with this body, ends with nothing. Hands out the requests as they came.
fn server(answer: &'static str) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (requests, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut request = String::new();
            while !request.ends_with("\r\n\r\n") && reader.read_line(&mut request).unwrap() > 0 {}
            let length = request
                .lines()
                .find_map(|line| {
                    line.to_lowercase()
                        .strip_prefix("content-length: ")?
                        .parse()
                        .ok()
                })
                .unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            request.push_str(&String::from_utf8(body).unwrap());
            if request.contains("/end HTTP/1.1\r\n") {
                write!(
                    stream,
                    "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
                )
                .unwrap();
            } else {
                let length = answer.len();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{answer}").unwrap();
            }
            if requests.send(request).is_err() {
                return;
            }
        }
    });
    (url, received)
}

fn checked(script: &str, url: &str) -> Launch {
    let mut launch = shell(script);
    launch.environment = BTreeMap::from([
        ("ANTIPHON_URL".to_owned(), url.to_owned()),
        ("ANTIPHON_JOB_TOKEN".to_owned(), "secret".to_owned()),
    ]);
    launch
}

fn with_check(script: &str, check: &str) -> Launch {
    Launch {
        check: ["sh", "-c", check].map(str::to_owned).to_vec(),
        ..shell(script)
    }
}

fn unfit(evidence: &str) -> Exit {
    Exit::Unfit {
        evidence: evidence.into(),
    }
}

#[tokio::test]
async fn codes_signals_and_causes_are_told_apart() {
    let rig = Rig::new();
    rig.run("echo step 7; echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 3")
        .await;
    assert_eq!(
        rig.ends().await,
        Exit::Code {
            code: 3,
            class: Some(ExitClass::OutOfMemory),
            evidence: "torch.OutOfMemoryError: CUDA out of memory.".into()
        }
    );
    let rig = Rig::new();
    rig.run("echo last words; kill -SEGV $$").await;
    assert_eq!(
        rig.ends().await,
        Exit::Signal {
            signal: 11,
            class: None,
            evidence: "last words".into()
        }
    );
    // What was printed stays when the attempt is settled.
    rig.backend.forget(attempt()).await;
    assert_eq!(rig.output(), "last words\n");
}

#[tokio::test]
async fn what_cannot_be_started_says_where_it_was_looked_for() {
    let rig = Rig::new();
    let missing = launch(&["/no/such/trainer"], &["n0"], &[]);
    rig.backend.launch(&missing).await.unwrap();
    assert_eq!(
        rig.ends().await.to_string(),
        "cannot start `/no/such/trainer`: not found: `/no/such/trainer`: No such file or directory (os error 2)"
    );
    let rig = Rig::new();
    let mut elsewhere = launch(&["true"], &["n0"], &[]);
    elsewhere.spec.workdir = "/no/such/dir".into();
    rig.backend.launch(&elsewhere).await.unwrap();
    let said = rig.ends().await.to_string();
    assert!(said.contains("in `/no/such/dir`: No such file"), "{said}");
}

#[tokio::test]
async fn the_end_waits_for_descendants_in_sessions_of_their_own() {
    let rig = Rig::new();
    // As a launcher that crashes leaves its ranks: in other sessions, deaf to SIGTERM, their parent gone.
    rig.run("setsid sh -c 'trap \"\" TERM; echo $$ > $ANTIPHON_TASK_DIR/pid; exec sleep 60' & while [ ! -s $ANTIPHON_TASK_DIR/pid ]; do sleep 0.01; done; exit 1")
        .await;
    let pid = until("the descendant starts", async || {
        let text = fs::read_to_string(rig.dir().join("pid")).ok()?;
        text.trim().parse().ok()
    })
    .await;
    until("the end", async || match rig.seen().await {
        Some(TaskSeen::Ended(exit)) => {
            assert!(matches!(exit, Exit::Code { code: 1, .. }), "{exit}");
            Some(())
        }
        _ => None,
    })
    .await;
    assert!(!is_alive(pid), "the end came before the last process went");
}

#[tokio::test]
async fn a_trainer_that_saves_has_the_whole_grace_after_its_launcher_went() {
    let rig = Rig::new();
    rig.run("(trap 'sleep 2.5; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done) & wait")
        .await;
    rig.prints("ready").await;
    rig.backend.terminate(attempt()).await.unwrap();
    rig.backend.terminate(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Signal { signal: 15, .. }));
    assert!(rig.output().contains("saved"));
}

#[tokio::test]
async fn a_kill_reaches_processes_that_fork_without_end() {
    let rig = Rig::new();
    rig.run("trap '' TERM; echo started; while :; do setsid sleep 60 & sleep 0.01; done")
        .await;
    rig.prints("started").await;
    rig.backend.kill(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Signal { signal: 9, .. }));
    let mark = format!(
        "ANTIPHON_TASK_DIR={}",
        rig.dir().canonicalize().unwrap().display()
    );
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path().join("environ");
        let environment = fs::read(path).unwrap_or_default();
        let marked = environment
            .split(|byte| *byte == 0)
            .any(|entry| entry == mark.as_bytes());
        assert!(!marked, "a process outlived the end");
    }
}

#[tokio::test]
async fn a_script_that_ends_its_own_group_does_not_end_its_supervisor() {
    let rig = Rig::new();
    rig.run("kill -9 0").await;
    assert!(matches!(rig.ends().await, Exit::Signal { signal: 9, .. }));
}

#[tokio::test]
async fn a_task_whose_supervisor_was_killed_is_orphaned_then_lost() {
    let rig = Rig::new();
    rig.run("echo started; sleep 60; true").await;
    rig.prints("started").await;
    rig.becomes(TaskSeen::Running).await;
    let supervisor = pid_in(&rig.dir().join("supervisor.json"));
    kill_9(supervisor);
    until("the loss of the supervisor is announced", async || {
        assert_eq!(announced(&rig.backend).await, [attempt()]);
        (rig.seen().await == Some(TaskSeen::Orphaned)).then_some(())
    })
    .await;
    // Neither ended nor started again.
    rig.run("echo started again").await;
    assert_eq!(rig.seen().await, Some(TaskSeen::Orphaned));

    rig.backend.terminate(attempt()).await.unwrap();
    until("the end is announced", async || {
        assert_eq!(announced(&rig.backend).await, [attempt()]);
        matches!(rig.seen().await, Some(TaskSeen::Ended(Exit::Lost { .. }))).then_some(())
    })
    .await;
    let said = rig.ends().await.to_string();
    assert!(said.contains(&format!("pid {supervisor}")), "{said}");
    assert_eq!(rig.output(), "started\n");
}

/// A machine that shuts down sends SIGTERM to everything; a trainer that saves and exits 0 on it has not finished.
#[tokio::test]
async fn exit_zero_after_sigterm_to_the_supervisor_is_told_apart() {
    let rig = Rig::new();
    rig.run("trap 'exit 0' TERM; echo started; sleep 60 & wait")
        .await;
    rig.prints("started").await;
    let supervisor = pid_in(&rig.dir().join("supervisor.json"));
    kill(supervisor, Signal::TERM);
    let exit = rig.ends().await;
    assert_eq!(exit.to_string(), "exit code 0 after SIGTERM");
}

/// A log that is put back from a backup hands out numbers again. The job that gets one must not be given the end of the
/// job that had it before.
#[tokio::test]
async fn what_another_history_left_under_a_number_is_set_aside() {
    let rig = Rig::new();
    rig.run("echo first").await;
    rig.ends().await;
    rig.backend.forget(attempt()).await;
    let mut again = shell("echo second; sleep 60");
    again.launched = Timestamp::from_millis(2_000);
    rig.backend.launch(&again).await.unwrap();
    rig.prints("second").await;
    assert_eq!(rig.output(), "second\n");
    let aside = rig
        .root
        .path()
        .join("attempts/job-42.3-launched-1000/trainer.0/output.log");
    assert_eq!(fs::read_to_string(aside).unwrap(), "first\n");

    // While the other one lives it is not touched, and the number cannot be had.
    again.launched = Timestamp::from_millis(3_000);
    let refused = rig.backend.launch(&again).await.unwrap_err();
    assert!(
        matches!(
            refused,
            BackendError::Occupied {
                launched: 2_000,
                ..
            }
        ),
        "{refused}"
    );
    assert_eq!(rig.seen().await, Some(TaskSeen::Running));
    rig.backend.kill(attempt()).await.unwrap();
    rig.ends().await;
}

#[tokio::test]
async fn a_task_whose_directory_was_removed_is_not_absent_while_it_lives() {
    let rig = Rig::new();
    rig.run("echo started; sleep 60; true").await;
    rig.prints("started").await;
    rig.becomes(TaskSeen::Running).await;
    fs::remove_dir_all(rig.dir().parent().unwrap()).unwrap();
    assert_eq!(rig.seen().await, Some(TaskSeen::Orphaned));
    rig.backend.kill(attempt()).await.unwrap();
    until("its end", async || {
        (rig.seen().await.is_none()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stopped_supervisor_still_ends_its_task() {
    let rig = Rig::new();
    rig.run("echo started; sleep 60; true").await;
    rig.prints("started").await;
    kill(pid_in(&rig.dir().join("supervisor.json")), Signal::STOP);
    rig.backend.kill(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Signal { signal: 9, .. }));
}

#[tokio::test]
async fn orphans_that_ignore_terminate_are_killed() {
    let rig = Rig::new();
    rig.run("trap '' TERM; echo started; sleep 60 & sleep 60")
        .await;
    rig.prints("started").await;
    rig.becomes(TaskSeen::Running).await;
    kill_9(pid_in(&rig.dir().join("supervisor.json")));
    rig.becomes(TaskSeen::Orphaned).await;
    rig.backend.terminate(attempt()).await.unwrap();
    assert_eq!(rig.seen().await, Some(TaskSeen::Orphaned));
    rig.backend.kill(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Lost { .. }));
}

#[test]
fn a_server_that_restarts_adopts_what_runs_and_reads_what_ended() {
    let root = tempfile::tempdir().unwrap();
    let go_on = root.path().join("go-on");
    let script = format!(
        "echo started; [ $ANTIPHON_TASK_INDEX = 1 ] || exit 5; while [ ! -e {} ]; do sleep 0.01; done",
        go_on.display()
    );
    let gang = launch(&["sh", "-c", &script], &["n0", "n1"], &[]);

    let first = tokio::runtime::Runtime::new().unwrap();
    first.block_on(async {
        let backend = open(root.path());
        backend.launch(&gang).await.unwrap();
        until("it runs", async || {
            (look(&backend, &task(1)).await == Some(TaskSeen::Running)).then_some(())
        })
        .await;
    });
    drop(first);

    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let backend = open(root.path());
        until("the end is read", async || {
            let exit = look(&backend, &task(0)).await;
            matches!(exit, Some(TaskSeen::Ended(Exit::Code { code: 5, .. }))).then_some(())
        })
        .await;
        assert_eq!(look(&backend, &task(1)).await, Some(TaskSeen::Running));
        // The executor repeats what it is not sure of.
        backend.launch(&gang).await.unwrap();
        fs::write(&go_on, "").unwrap();
        until("the end of the adopted task is announced", async || {
            assert_eq!(announced(&backend).await, [attempt()]);
            let exit = look(&backend, &task(1)).await;
            matches!(exit, Some(TaskSeen::Ended(Exit::Code { code: 0, .. }))).then_some(())
        })
        .await;
        let output = fs::read_to_string(backend.output_path(&task(1))).unwrap();
        assert_eq!(output, "started\n");
    });
}

#[tokio::test]
async fn a_task_that_nobody_supervises_yet_is_absent_and_launched_again_at_its_port() {
    let rig = Rig::new();
    let mut gang = launch(&["sh", "-c", "echo $PET_MASTER_PORT"], &["n0", "n1"], &[]);
    // A server that died after it had written the file of the first task.
    let other = tempfile::tempdir().unwrap();
    let dead = LocalBackend::new(LocalConfig {
        nodes: Some(nodes()),
        ..LocalConfig::new(other.path().to_owned(), vec!["/no/such/program".into()])
    })
    .unwrap();
    let error = dead.launch(&gang).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot start the supervisor of job-42.3/trainer.0"
    );
    let written = fs::read_to_string(task_dir(other.path()).join("task.json")).unwrap();
    fs::create_dir_all(rig.dir()).unwrap();
    fs::write(rig.dir().join("task.json"), &written).unwrap();
    assert_eq!(rig.seen().await, None);
    rig.backend.terminate(attempt()).await.unwrap();

    let port =
        serde_json::from_str::<serde_json::Value>(&written).unwrap()["content"]["port"].to_string();
    gang.environment.insert("MORE".into(), "1".into());
    rig.backend.launch(&gang).await.unwrap();
    for index in [0, 1] {
        until("the port is printed", async || {
            let output = fs::read_to_string(rig.backend.output_path(&task(index))).ok()?;
            (output.trim() == port).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_second_supervisor_of_a_task_starts_nothing() {
    let rig = Rig::new();
    rig.run("echo started; sleep 60").await;
    rig.prints("started").await;
    let second = Command::new(SUPERVISOR)
        .arg("supervise")
        .arg(rig.dir())
        .status()
        .unwrap();
    assert_eq!(second.code(), Some(75));
    // Nor one that finds the lock free but the task begun.
    kill_9(pid_in(&rig.dir().join("supervisor.json")));
    rig.becomes(TaskSeen::Orphaned).await;
    let third = Command::new(SUPERVISOR)
        .arg("supervise")
        .arg(rig.dir())
        .status()
        .unwrap();
    assert_eq!(third.code(), Some(75));
    rig.backend.kill(attempt()).await.unwrap();
    rig.ends().await;
    assert_eq!(rig.output(), "started\n");
}

#[tokio::test]
async fn a_supervisor_that_cannot_begin_is_an_end_with_its_words() {
    let root = tempfile::tempdir().unwrap();
    let backend = LocalBackend::new(LocalConfig {
        nodes: Some(nodes()),
        ..LocalConfig::new(
            root.path().to_owned(),
            ["sh", "-c", "echo no luck >&2; exit 1"]
                .map(str::to_owned)
                .to_vec(),
        )
    })
    .unwrap();
    backend.launch(&shell("true")).await.unwrap();
    let exit = until("the end", async || match look(&backend, &task(0)).await {
        Some(TaskSeen::Ended(exit)) => Some(exit),
        _ => None,
    })
    .await;
    assert_eq!(
        exit.to_string(),
        "lost without a status: its supervisor ended (exit status: 1) before it started the command: no luck"
    );
}

#[tokio::test]
async fn a_pid_that_belongs_to_somebody_else_now_is_left_alone() {
    let rig = Rig::new();
    let mut innocent = Command::new("sleep").arg("60").spawn().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::create_dir_all(rig.dir()).unwrap();
    let signed = |boot: &str| {
        let file = serde_json::json!({"version": 1, "content": {
            "process": {"pid": innocent.id(), "start_ticks": 1}, "boot": boot}});
        fs::write(rig.dir().join("supervisor.json"), file.to_string()).unwrap();
    };
    signed(boot.trim());
    rig.backend.terminate(attempt()).await.unwrap();
    rig.backend.kill(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Lost { .. }));
    signed("another-boot");
    rig.backend.kill(attempt()).await.unwrap();
    assert_eq!(
        rig.ends().await,
        Exit::Lost {
            evidence: "the machine restarted".into()
        }
    );
    assert!(is_alive(innocent.id().try_into().unwrap()));
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

#[tokio::test]
async fn a_current_attempt_starts_and_posts_its_end() {
    let rig = Rig::new();
    let (url, requests) = server(r#"{"current": true}"#);
    rig.backend
        .launch(&checked("echo started", &url))
        .await
        .unwrap();
    assert!(matches!(rig.ends().await, Exit::Code { code: 0, .. }));
    let requests: Vec<String> = until("both posts", {
        let mut all = Vec::new();
        async move || {
            all.extend(requests.try_iter());
            (all.len() == 2).then(|| all.clone())
        }
    })
    .await;
    let path = "/v1/attempts/job-42.3/tasks/trainer.0";
    assert!(requests[0].starts_with(&format!("POST {path}/start HTTP/1.1\r\n")));
    assert!(requests[0].contains("authorization: Bearer secret\r\n"));
    assert!(requests[0].contains("\"pid\": "), "{}", requests[0]);
    assert!(requests[1].starts_with(&format!("POST {path}/end HTTP/1.1\r\n")));
    assert!(requests[1].ends_with("\r\n\r\n{}"), "{}", requests[1]);

    until("the supervisor has ended", async || {
        let lock = fs::File::open(rig.dir().join("lock")).ok()?;
        lock.try_lock().ok()
    })
    .await;
    let complaints = fs::read_to_string(rig.dir().join("supervisor.log")).unwrap();
    assert_eq!(complaints, "");
}

#[tokio::test]
async fn a_superseded_attempt_never_starts() {
    let rig = Rig::new();
    let (url, _requests) = server(r#"{"current": false}"#);
    rig.backend
        .launch(&checked("echo started", &url))
        .await
        .unwrap();
    assert_eq!(rig.ends().await, Exit::Superseded);
    assert_eq!(rig.output(), "");
}

#[tokio::test]
async fn a_server_that_does_not_answer_costs_the_start_and_nothing_else() {
    // Nobody listens at port 1.
    let rig = Rig::new();
    let unheard = checked("echo started", "http://127.0.0.1:1");
    rig.backend.launch(&unheard).await.unwrap();
    assert_eq!(rig.seen().await, Some(TaskSeen::Starting));
    assert_eq!(rig.ends().await, Exit::Unreachable);
    assert_eq!(rig.output(), "");
    // An answer that is none is no answer either.
    let rig = Rig::new();
    let (url, _requests) = server(r#"{"error": "starting"}"#);
    rig.backend
        .launch(&checked("echo started", &url))
        .await
        .unwrap();
    assert_eq!(rig.ends().await, Exit::Unreachable);
}

#[tokio::test]
async fn a_stop_during_the_launch_check_ends_the_task_unstarted() {
    let rig = Rig::new();
    let unheard = checked("echo started", "http://127.0.0.1:1");
    rig.backend.launch(&unheard).await.unwrap();
    until("it is supervised", async || {
        rig.dir().join("supervisor.json").exists().then_some(())
    })
    .await;
    rig.backend.terminate(attempt()).await.unwrap();
    assert_eq!(
        rig.ends().await.to_string(),
        "ended by signal 15: stopped before its command was started"
    );
    assert_eq!(rig.output(), "");
}

#[tokio::test]
async fn a_gang_of_two_nodes_with_four_gpus_finds_its_ranks() {
    let rig = Rig::new();
    let mut gang = launch(&["env"], &["n0", "n1"], &[0, 1, 2, 3]);
    gang.spec.checkpoint = Some(CheckpointSpec {
        dir: "/ckpt/a".into(),
        keep: Some(KeepSpec {
            newest: 3,
            best: 1,
            days: 7,
        }),
    });
    gang.spec.environment = BTreeMap::from([
        ("MINE".to_owned(), "yes".to_owned()),
        ("PET_NODE_RANK".to_owned(), "7".to_owned()),
    ]);
    rig.backend.launch(&gang).await.unwrap();
    let mut ports = Vec::new();
    for (index, node) in [(0, "n0"), (1, "n1")] {
        until("the end", async || {
            let seen = look(&rig.backend, &task(index)).await;
            matches!(seen, Some(TaskSeen::Ended(_))).then_some(())
        })
        .await;
        let output = fs::read_to_string(rig.backend.output_path(&task(index))).unwrap();
        let found: BTreeMap<&str, &str> = output
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let name = format!("trainer.{index}");
        let rank = index.to_string();
        for (variable, value) in [
            ("MINE", "yes"),
            ("ANTIPHON_JOB", "job-42"),
            ("ANTIPHON_ATTEMPT", "job-42.3"),
            ("ANTIPHON_TASK", &name),
            ("ANTIPHON_ROLE", "trainer"),
            ("ANTIPHON_TASK_INDEX", &rank),
            ("ANTIPHON_NODE", node),
            ("ANTIPHON_GPUS_VIRTUAL", "1"),
            ("ANTIPHON_CHECKPOINT_DIR", "/ckpt/a"),
            ("ANTIPHON_CHECKPOINT_KEEP", "newest=3,best=1,days=7"),
            ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
            ("PET_NNODES", "2"),
            ("PET_NODE_RANK", &rank),
            ("PET_NPROC_PER_NODE", "4"),
            ("PET_MASTER_ADDR", "127.0.0.1"),
            ("PET_RDZV_BACKEND", "static"),
            ("PET_RDZV_ID", "job-42.3"),
        ] {
            assert_eq!(found.get(variable), Some(&value), "{variable}");
        }
        // The launcher says these to its ranks.
        assert!(!found.contains_key("RANK") && !found.contains_key("MASTER_PORT"));
        // What the server was started with is none of the job's business.
        assert!(!found.contains_key("CARGO_PKG_NAME") && found.contains_key("PATH"));
        ports.push(found["PET_MASTER_PORT"].to_owned());
        assert_eq!(
            found["PET_RDZV_ENDPOINT"],
            format!("127.0.0.1:{}", found["PET_MASTER_PORT"])
        );
    }
    assert_eq!(ports[0], ports[1]);
}

#[tokio::test]
async fn a_process_a_gpu_finds_its_rank_and_sees_its_gpu_alone() {
    let rig = Rig::new();
    let mut gang = launch(&["env"], &["n0", "n0"], &[0]);
    Arc::make_mut(&mut gang.allocation.tasks)[1].gpus = vec![3];
    gang.spec.roles[0].shape.processes = Processes::PerGpu;
    rig.backend.launch(&gang).await.unwrap();
    for (index, gpu) in [(0, "0"), (1, "3")] {
        until("the end", async || {
            let seen = look(&rig.backend, &task(index)).await;
            matches!(seen, Some(TaskSeen::Ended(_))).then_some(())
        })
        .await;
        let output = fs::read_to_string(rig.backend.output_path(&task(index))).unwrap();
        for line in [
            format!("CUDA_VISIBLE_DEVICES={gpu}"),
            format!("RANK={index}"),
            "WORLD_SIZE=2".to_owned(),
            "LOCAL_RANK=0".to_owned(),
            "LOCAL_WORLD_SIZE=1".to_owned(),
            "MASTER_ADDR=127.0.0.1".to_owned(),
        ] {
            assert!(output.lines().any(|found| found == line), "{line}");
        }
        assert!(!output.contains("PET_"));
    }
}

#[tokio::test]
async fn a_job_that_cannot_work_here_is_refused_before_it_is_submitted() {
    let rig = Rig::new();
    let spec = shell("true").spec;
    assert_eq!(rig.backend.preflight(&spec).await, Ok(()));

    let mut no_command = spec.clone();
    no_command.roles[0].command = vec!["no-such-trainer".into()];
    no_command.environment.insert("PATH".into(), "/bin".into());
    let refused = rig.backend.preflight(&no_command).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "command `no-such-trainer` of role `trainer` is not found in PATH `/bin`"
    );

    let mut no_workdir = spec.clone();
    no_workdir.workdir = "/etc/hostname".into();
    let refused = rig.backend.preflight(&no_workdir).await.unwrap_err();
    assert!(matches!(refused, Preflight::NoWorkdir { .. }), "{refused}");

    let mut checkpointed = spec;
    let dir = rig.root.path().join("a/b");
    checkpointed.checkpoint = Some(CheckpointSpec {
        dir: dir.display().to_string(),
        keep: None,
    });
    assert_eq!(rig.backend.preflight(&checkpointed).await, Ok(()));
    let left = rig.root.path().join("a");
    assert!(!left.exists(), "looking leaves nothing behind");
    checkpointed.checkpoint = Some(CheckpointSpec {
        dir: "/proc/nowhere".into(),
        keep: None,
    });
    let refused = rig.backend.preflight(&checkpointed).await.unwrap_err();
    assert!(
        matches!(refused, Preflight::CheckpointDir { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn files_with_tokens_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let rig = Rig::new();
    rig.run("true").await;
    rig.ends().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&rig.dir()), 0o700);
    for file in ["task.json", "exit.json", "output.log", "supervisor.json"] {
        assert_eq!(mode(&rig.dir().join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_command_starts_behind_the_check_of_its_node() {
    let rig = Rig::new();
    let check = "echo all well; echo checked on $ANTIPHON_NODE > $ANTIPHON_TASK_DIR/found";
    let launch = with_check("cat $ANTIPHON_TASK_DIR/found; echo ran", check);
    rig.backend.launch(&launch).await.unwrap();
    assert!(rig.ends().await.is_clean());
    assert_eq!(rig.output(), "checked on n0\nran\n");
    let said = fs::read_to_string(rig.dir().join("check.log")).unwrap();
    assert_eq!(said, "all well\n");
}

#[tokio::test]
async fn a_check_that_fails_keeps_the_command_from_starting_and_says_why() {
    let cases = [
        (
            "echo first; echo GPU 3: 812 ECC errors; exit 6",
            "GPU 3: 812 ECC errors",
        ),
        ("exit 6", "sh: exit code 6"),
        ("kill -9 $$", "sh: ended by signal 9"),
    ];
    for (check, evidence) in cases {
        let rig = Rig::new();
        let launch = with_check("echo ran", check);
        rig.backend.launch(&launch).await.unwrap();
        assert_eq!(rig.ends().await, unfit(evidence));
        assert_eq!(rig.output(), "");
    }
}

#[tokio::test]
async fn a_check_that_hangs_is_ended_with_all_that_it_started() {
    let rig = Rig::new();
    let check = "setsid sleep 300 & echo $! > $ANTIPHON_TASK_DIR/pid; echo testing; sleep 300";
    rig.backend
        .launch(&with_check("echo ran", check))
        .await
        .unwrap();
    assert_eq!(rig.ends().await, unfit("sh: not ended after 600ms"));
    let pid = fs::read_to_string(rig.dir().join("pid")).unwrap();
    assert!(!is_alive(pid.trim().parse().unwrap()));
    assert_eq!(rig.output(), "");
}

#[tokio::test]
async fn what_a_check_leaves_behind_does_not_run_beside_the_command() {
    let rig = Rig::new();
    let check = "setsid sleep 300 > /dev/null & echo $! > $ANTIPHON_TASK_DIR/pid";
    rig.backend
        .launch(&with_check("echo ran", check))
        .await
        .unwrap();
    assert!(rig.ends().await.is_clean());
    let pid = fs::read_to_string(rig.dir().join("pid")).unwrap();
    assert!(!is_alive(pid.trim().parse().unwrap()));
    assert_eq!(rig.output(), "ran\n");
}

#[tokio::test]
async fn a_check_that_is_not_there_convicts_no_node() {
    let rig = Rig::new();
    let mut launch = shell("echo ran");
    launch.check = vec!["/no/such/check".into()];
    rig.backend.launch(&launch).await.unwrap();
    let exit = rig.ends().await;
    assert!(
        matches!(&exit, Exit::NotLaunched { error } if error.starts_with("check of the node: cannot start `/no/such/check`")),
        "{exit:?}"
    );
}

#[tokio::test]
async fn a_stop_during_the_check_starts_nothing() {
    let rig = Rig::new();
    let config = LocalConfig {
        nodes: Some(nodes()),
        ..LocalConfig::new(
            rig.root.path().to_owned(),
            supervisor::command_at(SUPERVISOR),
        )
    };
    let backend = LocalBackend::new(config).unwrap();
    let check = "echo > $ANTIPHON_TASK_DIR/begun; sleep 300";
    backend
        .launch(&with_check("echo ran", check))
        .await
        .unwrap();
    until("the check runs", async || {
        rig.dir().join("begun").exists().then_some(())
    })
    .await;
    backend.terminate(attempt()).await.unwrap();
    assert!(matches!(rig.ends().await, Exit::Signal { signal: 15, .. }));
    assert_eq!(rig.output(), "");
}

#[tokio::test]
async fn a_task_on_slices_sees_their_devices_and_no_whole_gpu() {
    let root = tempfile::tempdir().unwrap();
    let slice = |device: &str| Slice {
        gpu: 3,
        profile: "1g.10gb".into(),
        amount: GpuAmount::from_thousandths(142),
        memory: Bytes::ZERO,
        device: device.into(),
    };
    let mut nodes = nodes();
    nodes[0].slices = vec![slice("MIG-a"), slice("MIG-b"), slice("")];
    let config = LocalConfig {
        nodes: Some(nodes),
        ..LocalConfig::new(root.path().to_owned(), supervisor::command_at(SUPERVISOR))
    };
    let backend = LocalBackend::new(config).unwrap();
    let mut launch = launch(
        &["sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]"],
        &["n0"],
        &[1, 2],
    );
    Arc::make_mut(&mut launch.allocation.tasks)[0].sliced = true;
    backend.launch(&launch).await.unwrap();
    let output = backend.output_path(&task(0));
    until("[MIG-b]", async || {
        fs::read_to_string(&output)
            .ok()
            .filter(|text| text == "[MIG-b]\n")
    })
    .await;
}
