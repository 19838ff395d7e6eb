//! The contract that every backend keeps: one suite, run over each of them. Tests nothing that only one can do.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which the lint only sees by their attribute"
)]
#![expect(clippy::print_stderr, reason = "tests say what they skipped")]

#[path = "../../../tests/backends/cluster.rs"]
#[expect(dead_code, reason = "what only Slurm does is tested beside this")]
mod cluster;
mod support;

use std::path::Path;
use std::sync::Arc;

use antiphon_backends::fake::{FakeBackend, Manners};
use antiphon_backends::local::{LocalBackend, LocalConfig};
use antiphon_backends::slurm::{SlurmBackend, SlurmConfig};
use antiphon_backends::{Backend, Launch, TaskSeen, supervisor};
use antiphon_types::{Exit, Millis, TaskId};

use cluster::Cluster;
use support::{announced, attempt, launch, look, nodes, task, until};

/// What the tasks of a launch do.
#[derive(Clone, Copy)]
enum Program {
    Succeeds,
    RunsOn,
    IgnoresTerminate,
    /// The first ends with status 3, the others run on.
    FirstFails,
}

impl Program {
    /// As a script. Says that it has started.
    const fn script(self) -> &'static str {
        match self {
            Self::Succeeds => "echo started",
            Self::RunsOn => "echo started; exec sleep 60",
            // Being ignored is inherited.
            Self::IgnoresTerminate => "trap '' TERM; echo started; exec sleep 60",
            Self::FirstFails => {
                "echo started; [ $ANTIPHON_TASK_INDEX = 0 ] && exit 3; exec sleep 60"
            }
        }
    }
}

/// A backend, and what the suite has to know beyond the contract.
trait Carrier {
    fn backend(&self) -> &dyn Backend;
    /// A gang of two tasks.
    fn launch(&self) -> Launch;
    /// Lets a task do what its program does.
    async fn proceed(&self, task: &TaskId);
    /// How often a task's command was started.
    fn starts(&self, task: &TaskId) -> usize;
    /// The same as a server finds it that has just started, with nothing but what lies on disk.
    fn restart(&mut self);
    /// Takes from it what it asks, where that can be done.
    fn go_away(&self) -> bool;
    fn come_back(&self);
}

struct Fake {
    backend: FakeBackend,
    program: Program,
}

impl Fake {
    fn new(program: Program) -> Self {
        let manners = match program {
            Program::Succeeds => Manners::Scripted,
            Program::RunsOn | Program::FirstFails => Manners::Obedient,
            Program::IgnoresTerminate => Manners::Stubborn,
        };
        Self {
            backend: FakeBackend::new(nodes(), manners),
            program,
        }
    }
}

impl Carrier for Fake {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn launch(&self) -> Launch {
        launch(&["anything"], &["n0", "n1"], &[0])
    }

    async fn proceed(&self, task: &TaskId) {
        let code = match self.program {
            Program::Succeeds => 0,
            Program::FirstFails if task.index == 0 => 3,
            Program::RunsOn | Program::IgnoresTerminate | Program::FirstFails => return,
        };
        self.backend.end(
            task,
            Exit::Code {
                code,
                class: None,
                evidence: String::new(),
            },
        );
    }

    fn starts(&self, task: &TaskId) -> usize {
        usize::from(self.backend.launched(task.attempt).is_some())
    }

    /// It is in memory alone, and outlives no server.
    fn restart(&mut self) {}

    fn go_away(&self) -> bool {
        self.backend.fail_lookups(u32::MAX);
        true
    }

    fn come_back(&self) {
        self.backend.fail_lookups(0);
    }
}

struct Local {
    backend: LocalBackend,
    program: Program,
    root: tempfile::TempDir,
}

impl Local {
    fn new(program: Program) -> Self {
        let root = tempfile::tempdir().unwrap();
        Self {
            backend: Self::backend(root.path()),
            program,
            root,
        }
    }

    fn backend(root: &Path) -> LocalBackend {
        let supervisor = supervisor::command_at(env!("CARGO_BIN_EXE_antiphon-supervise-test"));
        let backend = LocalBackend::new(LocalConfig {
            nodes: Some(nodes()),
            ..LocalConfig::new(root.to_owned(), supervisor)
        });
        backend.unwrap()
    }
}

/// What a task has printed.
fn output(root: &Path, task: &TaskId) -> String {
    let path = root.join(format!("attempts/{task}/output.log"));
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Waits until a task has said that it runs.
async fn says_started(root: &Path, task: &TaskId) {
    let started = || output(root, task).contains("started");
    until("the command starts", async || started().then_some(())).await;
}

impl Carrier for Local {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn launch(&self) -> Launch {
        launch(&["sh", "-c", self.program.script()], &["n0", "n1"], &[0])
    }

    async fn proceed(&self, task: &TaskId) {
        says_started(self.root.path(), task).await;
    }

    fn starts(&self, task: &TaskId) -> usize {
        output(self.root.path(), task).matches("started").count()
    }

    fn restart(&mut self) {
        self.backend = Self::backend(self.root.path());
    }

    /// It asks the system it runs on, which does not go away.
    fn go_away(&self) -> bool {
        false
    }

    fn come_back(&self) {}
}

struct Slurm<'a> {
    cluster: &'a Cluster,
    backend: SlurmBackend,
    program: Program,
    root: tempfile::TempDir,
}

impl<'a> Slurm<'a> {
    fn new(cluster: &'a Cluster, program: Program) -> Self {
        let root = tempfile::tempdir().unwrap();
        Self {
            backend: Self::backend(cluster, root.path()),
            cluster,
            program,
            root,
        }
    }

    fn backend(cluster: &Cluster, root: &Path) -> SlurmBackend {
        let supervisor = supervisor::command_at(env!("CARGO_BIN_EXE_antiphon-supervise-test"));
        let backend = SlurmBackend::new(SlurmConfig {
            conf: Some(cluster.conf()),
            partitions: vec!["general".into()],
            poll: Millis::from_millis(300),
            // A controller that hangs is met by some of these tests; on a busy machine one that does not may take seconds.
            command_timeout: Millis::from_secs(6),
            ..SlurmConfig::new(root.to_owned(), supervisor)
        });
        backend.unwrap()
    }
}

impl Carrier for Slurm<'_> {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn launch(&self) -> Launch {
        launch(&["sh", "-c", self.program.script()], &["n1", "n2"], &[0])
    }

    async fn proceed(&self, task: &TaskId) {
        says_started(self.root.path(), task).await;
    }

    fn starts(&self, task: &TaskId) -> usize {
        output(self.root.path(), task).matches("started").count()
    }

    fn restart(&mut self) {
        self.backend = Self::backend(self.cluster, self.root.path());
    }

    fn go_away(&self) -> bool {
        self.cluster.signal("slurmctld", "-STOP");
        true
    }

    fn come_back(&self) {
        self.cluster.signal("slurmctld", "-CONT");
    }
}

impl Drop for Slurm<'_> {
    /// What a test left running must not be in the way of the next.
    fn drop(&mut self) {
        self.cluster
            .command("scancel", &["--full", "--signal=KILL", "--user=root"]);
        self.cluster.command("scancel", &["--user=root"]);
        let gone = || self.cluster.ok("squeue", &["-h"]).is_empty();
        for _ in 0..600 {
            if gone() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// Launches and waits until every task does what it does.
async fn run(carrier: &impl Carrier) {
    carrier.backend().launch(&carrier.launch()).await.unwrap();
    for index in [0, 1] {
        carrier.proceed(&task(index)).await;
    }
}

async fn end_of(carrier: &impl Carrier, task: &TaskId) -> Exit {
    until("the task ends", async || {
        match look(carrier.backend(), task).await {
            Some(TaskSeen::Ended(exit)) => Some(exit),
            Some(TaskSeen::Starting | TaskSeen::Running) => None,
            other => panic!("{task} is {other:?}"),
        }
    })
    .await
}

async fn an_attempt_that_was_never_launched_is_absent(carrier: impl Carrier) {
    let backend = carrier.backend();
    assert_eq!(backend.seen(attempt()).await.unwrap(), None);
    // And orders about it are no error.
    backend.terminate(attempt()).await.unwrap();
    backend.kill(attempt()).await.unwrap();
    backend.forget(attempt()).await;
    assert_eq!(backend.seen(attempt()).await.unwrap(), None);
}

async fn launched_twice_starts_once(carrier: impl Carrier) {
    run(&carrier).await;
    run(&carrier).await;
    assert_eq!(carrier.starts(&task(0)), 1);
    // Also after it has ended.
    carrier.backend().kill(attempt()).await.unwrap();
    end_of(&carrier, &task(0)).await;
    carrier.backend().launch(&carrier.launch()).await.unwrap();
    assert!(matches!(
        end_of(&carrier, &task(0)).await,
        Exit::Signal { signal: 9, .. }
    ));
    assert_eq!(carrier.starts(&task(0)), 1);
}

async fn an_end_is_announced_and_stays(carrier: impl Carrier) {
    run(&carrier).await;
    for index in [0, 1] {
        until("the end is announced", async || {
            let seen = look(carrier.backend(), &task(index)).await;
            if matches!(seen, Some(TaskSeen::Ended(_))) {
                return Some(());
            }
            assert_eq!(announced(carrier.backend()).await, [attempt()]);
            None
        })
        .await;
    }
    for index in [0, 1] {
        let exit = end_of(&carrier, &task(index)).await;
        assert!(matches!(exit, Exit::Code { code: 0, .. }), "{exit}");
    }
    // Late orders change nothing.
    carrier.backend().terminate(attempt()).await.unwrap();
    carrier.backend().kill(attempt()).await.unwrap();
    assert!(matches!(
        end_of(&carrier, &task(0)).await,
        Exit::Code { code: 0, .. }
    ));
}

async fn terminate_ends_what_obeys(carrier: impl Carrier) {
    run(&carrier).await;
    // Twice: a repetition is harmless.
    carrier.backend().terminate(attempt()).await.unwrap();
    carrier.backend().terminate(attempt()).await.unwrap();
    for index in [0, 1] {
        let exit = end_of(&carrier, &task(index)).await;
        assert!(matches!(exit, Exit::Signal { signal: 15, .. }), "{exit}");
    }
}

async fn what_ignores_terminate_runs_until_it_is_killed(carrier: impl Carrier) {
    run(&carrier).await;
    carrier.backend().terminate(attempt()).await.unwrap();
    for _ in 0..20 {
        let seen = look(carrier.backend(), &task(0)).await;
        assert_ne!(seen, None);
        assert!(!matches!(seen, Some(TaskSeen::Ended(_))), "{seen:?}");
    }
    carrier.backend().kill(attempt()).await.unwrap();
    for index in [0, 1] {
        let exit = end_of(&carrier, &task(index)).await;
        assert!(matches!(exit, Exit::Signal { signal: 9, .. }), "{exit}");
    }
}

async fn a_node_of_somebody_else_is_refused_whole(carrier: impl Carrier) {
    let mut launch = carrier.launch();
    Arc::make_mut(&mut launch.allocation.tasks)[1].node = "n9".into();
    let error = carrier.backend().launch(&launch).await.unwrap_err();
    assert_eq!(error.to_string(), "node `n9` is not one of this backend's");
    assert_eq!(carrier.backend().seen(attempt()).await.unwrap(), None);
}

async fn every_node_has_a_name_and_says_what_it_has(carrier: impl Carrier) {
    let nodes = carrier.backend().nodes().await.unwrap();
    assert!(!nodes.is_empty());
    for node in &nodes {
        assert!(!node.name.0.is_empty() && node.cpus > 0, "{node:?}");
    }
    let of_launch = carrier.launch().allocation;
    for task in of_launch.tasks.iter() {
        assert!(nodes.iter().any(|node| node.name == task.node), "{task:?}");
    }
}

async fn one_task_may_end_while_the_others_run(carrier: impl Carrier) {
    run(&carrier).await;
    let exit = end_of(&carrier, &task(0)).await;
    assert!(matches!(exit, Exit::Code { code: 3, .. }), "{exit}");
    for _ in 0..10 {
        let seen = look(carrier.backend(), &task(1)).await;
        assert!(
            matches!(seen, Some(TaskSeen::Starting | TaskSeen::Running)),
            "{seen:?}"
        );
    }
    carrier.backend().kill(attempt()).await.unwrap();
    let exit = end_of(&carrier, &task(1)).await;
    assert!(matches!(exit, Exit::Signal { signal: 9, .. }), "{exit}");
}

async fn another_server_takes_up_what_runs(mut carrier: impl Carrier) {
    run(&carrier).await;
    carrier.restart();
    let seen = look(carrier.backend(), &task(0)).await;
    assert!(
        matches!(seen, Some(TaskSeen::Starting | TaskSeen::Running)),
        "{seen:?}"
    );
    // It does not know that the launch was given before.
    carrier.backend().launch(&carrier.launch()).await.unwrap();
    carrier.backend().terminate(attempt()).await.unwrap();
    for index in [0, 1] {
        let exit = end_of(&carrier, &task(index)).await;
        assert!(matches!(exit, Exit::Signal { signal: 15, .. }), "{exit}");
        assert_eq!(carrier.starts(&task(index)), 1);
    }
}

async fn a_look_that_fails_is_no_end(carrier: impl Carrier) {
    run(&carrier).await;
    if !carrier.go_away() {
        return;
    }
    for _ in 0..3 {
        match carrier.backend().seen(attempt()).await {
            // It says so, or goes by what it knows; absent or ended it does not call them.
            Err(_) => (),
            Ok(seen) => {
                let seen = seen.expect("they are not absent");
                for (task, seen) in seen.tasks {
                    assert!(!matches!(seen, TaskSeen::Ended(_)), "{task} is {seen:?}");
                }
            }
        }
    }
    assert!(carrier.backend().nodes().await.is_err());
    carrier.come_back();
    until("nodes are listed again", async || {
        carrier.backend().nodes().await.ok()
    })
    .await;
    let seen = look(carrier.backend(), &task(0)).await;
    assert!(
        matches!(seen, Some(TaskSeen::Starting | TaskSeen::Running)),
        "{seen:?}"
    );
    carrier.backend().kill(attempt()).await.unwrap();
    end_of(&carrier, &task(0)).await;
    assert_eq!(carrier.starts(&task(0)), 1);
}

macro_rules! contract {
    ($($name:ident($program:ident)),* $(,)?) => {
        mod fake {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Fake::new(super::Program::$program)).await;
            })*
        }
        mod local {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Local::new(super::Program::$program)).await;
            })*
        }
        mod slurm {
            /// One cluster for all of it: it takes seconds to start.
            #[tokio::test]
            async fn the_same_over_a_real_cluster() {
                let Some(cluster) = super::Cluster::start(2, 2) else { return };
                $(
                    eprintln!("slurm: {}", stringify!($name));
                    super::$name(super::Slurm::new(&cluster, super::Program::$program)).await;
                )*
            }
        }
    };
}

contract!(
    an_attempt_that_was_never_launched_is_absent(Succeeds),
    launched_twice_starts_once(RunsOn),
    an_end_is_announced_and_stays(Succeeds),
    terminate_ends_what_obeys(RunsOn),
    what_ignores_terminate_runs_until_it_is_killed(IgnoresTerminate),
    a_node_of_somebody_else_is_refused_whole(RunsOn),
    every_node_has_a_name_and_says_what_it_has(Succeeds),
    one_task_may_end_while_the_others_run(FirstFails),
    another_server_takes_up_what_runs(RunsOn),
    a_look_that_fails_is_no_end(RunsOn),
);
