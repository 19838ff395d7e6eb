//! The contract that every backend keeps: one suite, run over each of them. Tests nothing that only one can do.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are tests, which the lint only sees by their attribute"
)]

mod support;

use antiphon_backends::fake::{FakeBackend, Manners};
use antiphon_backends::local::{LocalBackend, LocalConfig};
use antiphon_backends::{Backend, Launch, TaskSeen};
use antiphon_types::{Exit, TaskId};

use support::{announced, attempt, launch, look, nodes, task, until};

/// What the tasks of a launch do.
#[derive(Clone, Copy)]
enum Program {
    Succeeds,
    RunsOn,
    IgnoresTerminate,
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
}

struct Fake {
    backend: FakeBackend,
    program: Program,
}

impl Fake {
    fn new(program: Program) -> Self {
        let manners = match program {
            Program::Succeeds => Manners::Scripted,
            Program::RunsOn => Manners::Obedient,
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
        match self.program {
            Program::Succeeds => self.backend.end(
                task,
                Exit::Code {
                    code: 0,
                    class: None,
                    evidence: String::new(),
                },
            ),
            Program::RunsOn | Program::IgnoresTerminate => (),
        }
    }

    fn starts(&self, task: &TaskId) -> usize {
        usize::from(self.backend.launched(task.attempt).is_some())
    }
}

struct Local {
    backend: LocalBackend,
    program: Program,
    _root: tempfile::TempDir,
}

impl Local {
    fn new(program: Program) -> Self {
        let root = tempfile::tempdir().unwrap();
        let supervisor = vec![env!("CARGO_BIN_EXE_antiphon-supervise-test").to_owned()];
        let backend = LocalBackend::new(LocalConfig {
            nodes: Some(nodes()),
            ..LocalConfig::new(root.path().to_owned(), supervisor)
        });
        Self {
            backend: backend.unwrap(),
            program,
            _root: root,
        }
    }

    fn output(&self, task: &TaskId) -> String {
        std::fs::read_to_string(self.backend.output_path(task)).unwrap_or_default()
    }
}

impl Carrier for Local {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn launch(&self) -> Launch {
        let script = match self.program {
            Program::Succeeds => "echo started",
            Program::RunsOn => "echo started; exec sleep 60",
            // Being ignored is inherited.
            Program::IgnoresTerminate => "trap '' TERM; echo started; exec sleep 60",
        };
        launch(&["sh", "-c", script], &["n0", "n1"], &[0])
    }

    async fn proceed(&self, task: &TaskId) {
        until("the command starts", async || {
            self.output(task).contains("started").then_some(())
        })
        .await;
    }

    fn starts(&self, task: &TaskId) -> usize {
        self.output(task).matches("started").count()
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
    launch.allocation.tasks[1].node = "n9".into();
    let error = carrier.backend().launch(&launch).await.unwrap_err();
    assert_eq!(error.to_string(), "node `n9` is not one of this backend's");
    assert_eq!(carrier.backend().seen(attempt()).await.unwrap(), None);
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
    };
}

contract!(
    an_attempt_that_was_never_launched_is_absent(Succeeds),
    launched_twice_starts_once(RunsOn),
    an_end_is_announced_and_stays(Succeeds),
    terminate_ends_what_obeys(RunsOn),
    what_ignores_terminate_runs_until_it_is_killed(IgnoresTerminate),
    a_node_of_somebody_else_is_refused_whole(RunsOn),
);
