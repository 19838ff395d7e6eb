//! The hands over a backend that fails, forgets and hangs: nothing is launched twice, no look that failed ends anything,
//! and no attempt is left without somebody who sees to it. Time is paused: a wait passes as soon as nothing else can.

use antiphon_backends::fake::{Call, FakeBackend, Manners};
use antiphon_kernel::{State, decide};
use antiphon_store::MemoryLog;
use antiphon_types::{ArraySpec, Command, Outcome, Policy, Processes, Shape, Tasks};

use super::*;
use crate::fixture::*;
use crate::recovery::load;
use crate::tokens::Allowance;

struct Server {
    view: Arc<View>,
    inputs: LoopHandle,
    backend: Arc<FakeBackend>,
    _secrets: tempfile::TempDir,
    log: MemoryLog,
}

/// A server with an executor over this backend.
async fn start(log: MemoryLog, backend: Arc<FakeBackend>) -> Server {
    let state = load(&log).await.unwrap();
    let fresh = state.nodes().next().is_none();
    let running = Running::from(log.clone(), state, decide).await;
    if fresh {
        running.offer_nodes().await;
    }
    let secrets = tempfile::tempdir().unwrap();
    let executor = Executor {
        backend: backend.clone(),
        view: running.view.clone(),
        inputs: running.inputs.clone(),
        tokens: Arc::new(Tokens::open(secrets.path(), "root", Allowance::default()).unwrap()),
        url: "http://127.0.0.1:1".into(),
        ca: None,
    };
    tokio::spawn(executor.run(running.actions));
    Server {
        view: running.view,
        inputs: running.inputs,
        backend,
        _secrets: secrets,
        log,
    }
}

async fn with(manners: Manners) -> Server {
    let backend = FakeBackend::new(nodes(), manners);
    start(MemoryLog::new(), Arc::new(backend)).await
}

impl Server {
    async fn command(&self, command: Command) {
        let by = "someone".into();
        self.inputs.command(by, None, command).await.unwrap();
    }

    async fn until(&self, job: u64, is: &str) {
        until(&self.view, |state| name(state, job) == is).await;
    }

    fn orders(&self) -> Vec<Call> {
        self.backend.calls()
    }
}

fn name(state: &State, job: u64) -> &'static str {
    state
        .job(JobId(job))
        .map_or("absent", |job| job.state.name())
}

fn first() -> AttemptId {
    "job-1.1".parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_job_starts_ends_and_is_forgotten() {
    let server = with(Manners::Scripted).await;
    server.command(submit(spec("a", 8))).await;
    settle(|| server.backend.launched(first()).is_some()).await;
    server.backend.start(&task("job-1.1"));
    server.until(1, "running").await;
    server.backend.end(&task("job-1.1"), done());
    server.until(1, "succeeded").await;
    settle(|| server.orders().len() == 2).await;
    assert_eq!(
        server.orders(),
        [Call::Launch(first()), Call::Forget(first())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_launch_carries_the_check_the_chosen_shape_and_the_index() {
    let server = with(Manners::Obedient).await;
    let [node] = nodes().try_into().unwrap();
    let mut second = node.clone();
    second.name = "n1".into();
    let nodes = vec![node, second];
    server.backend.set_nodes(nodes.clone());
    let inventory = Observation::Inventory {
        nodes,
        partitions: Vec::new(),
        resources: BTreeMap::new(),
    };
    server.inputs.observe(inventory).await.unwrap();
    let policy = Policy {
        node_check: vec!["/opt/check".into()],
        ..Policy::default()
    };
    let policy = Box::new(policy);
    server.command(Command::SetPolicy { policy }).await;
    let mut gang = spec("gang", 16);
    let role = &mut gang.roles[0];
    // As one task a node it fits nowhere: no node has 16 GPUs.
    role.shape.tasks = Tasks::Exactly(1);
    role.shape.processes = Processes::PerNode;
    role.alternatives = vec![Shape {
        tasks: Tasks::Exactly(16),
        processes: Processes::PerGpu,
        ..role.shape.clone()
    }];
    server.command(submit(gang)).await;
    settle(|| server.backend.launched(first()).is_some()).await;
    let launch = server.backend.launched(first()).unwrap();
    assert_eq!(launch.check, ["/opt/check"]);
    assert_eq!(launch.spec.roles[0].shape.processes, Processes::PerGpu);
    assert!(!launch.environment.contains_key("ANTIPHON_ARRAY_INDEX"));

    server.command(Command::Cancel { job: JobId(1) }).await;
    server.until(1, "canceled").await;
    let mut array = spec("sweep", 1);
    array.array = Some(ArraySpec {
        indices: vec![3, 7],
        at_once: 0,
    });
    server.command(submit(array)).await;
    let attempt: AttemptId = "job-3.1".parse().unwrap();
    settle(|| server.backend.launched(attempt).is_some()).await;
    let launch = server.backend.launched(attempt).unwrap();
    assert!(launch.check.is_empty(), "one node needs no check");
    assert_eq!(launch.environment["ANTIPHON_ARRAY_INDEX"], "7");
    assert_eq!(launch.environment["ANTIPHON_ARRAY_JOB"], "job-2");
}

#[tokio::test(start_paused = true)]
async fn a_failed_launch_is_reported_and_the_job_tried_again() {
    let server = with(Manners::Obedient).await;
    server.backend.fail_orders(1);
    server.command(submit(spec("a", 8))).await;
    until(&server.view, |state| {
        state.jobs()[&JobId(1)].attempts.len() == 1
    })
    .await;
    let state = server.view.state();
    let record = &state.jobs()[&JobId(1)].attempts[0];
    assert!(matches!(record.outcome, Outcome::Retried { .. }));
    assert!(
        record.exit.starts_with("could not be launched: "),
        "{}",
        record.exit
    );
}

/// Where the look after a failed launch failed too, nobody ever launched or ended the attempt: it held its GPUs for good.
#[tokio::test(start_paused = true)]
async fn a_failed_launch_whose_look_fails_too_is_given_again() {
    let server = with(Manners::Obedient).await;
    server.backend.fail_orders(1);
    server.backend.fail_lookups(2);
    server.command(submit(spec("a", 8))).await;
    server.until(1, "running").await;
    assert_eq!(server.orders(), [Call::Launch(first())]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_look_is_never_an_end() {
    let server = with(Manners::Obedient).await;
    server.command(submit(spec("a", 8))).await;
    server.until(1, "running").await;
    server.backend.fail_lookups(5);
    for _ in 0..5 {
        server.backend.hint(first());
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
    assert!(is_running(&server.view, 1));
    server.backend.end(&task("job-1.1"), done());
    server.until(1, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_neither_ended_nor_launched_again() {
    let server = with(Manners::Obedient).await;
    server.command(submit(spec("a", 8))).await;
    server.until(1, "running").await;
    server.backend.orphan(&task("job-1.1"));
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    assert!(is_running(&server.view, 1));
    assert_eq!(server.orders(), [Call::Launch(first())]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_positively_gone_is_lost() {
    let server = with(Manners::Obedient).await;
    server.command(submit(spec("a", 8))).await;
    server.until(1, "running").await;
    server.backend.vanish(first());
    server.until(1, "pending").await;
    let state = server.view.state();
    let record = &state.jobs()[&JobId(1)].attempts[0];
    assert!(
        record.exit.contains("no longer knows it"),
        "{}",
        record.exit
    );
}

#[tokio::test(start_paused = true)]
async fn an_order_that_fails_is_given_until_it_has_been_given() {
    let server = with(Manners::Obedient).await;
    server.command(submit(spec("a", 8))).await;
    server.until(1, "running").await;
    server.backend.fail_orders(3);
    server.command(Command::Cancel { job: JobId(1) }).await;
    server.until(1, "canceled").await;
    assert!(server.orders().contains(&Call::Terminate(first())));
}

/// While an order failed nobody looked, so an attempt that had ended by itself held its GPUs as long as orders failed.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_ends_while_its_order_fails_is_seen() {
    let server = with(Manners::Scripted).await;
    server.command(submit(spec("a", 8))).await;
    settle(|| server.backend.launched(first()).is_some()).await;
    server.backend.start(&task("job-1.1"));
    server.until(1, "running").await;
    server.backend.fail_orders(u32::MAX);
    server.command(Command::Cancel { job: JobId(1) }).await;
    server.backend.end(&task("job-1.1"), done());
    server.until(1, "canceled").await;
    assert!(!server.orders().contains(&Call::Terminate(first())));
}

/// SIGKILL was given once. What hung in the kernel at that moment was never signaled again.
#[tokio::test(start_paused = true)]
async fn sigkill_is_repeated_until_nothing_is_left() {
    let server = with(Manners::Scripted).await;
    let mut hanging = spec("a", 8);
    hanging.grace = antiphon_types::Millis::ZERO;
    server.command(submit(hanging)).await;
    settle(|| server.backend.launched(first()).is_some()).await;
    server.backend.start(&task("job-1.1"));
    server.until(1, "running").await;
    server.command(Command::Cancel { job: JobId(1) }).await;
    let kills = || {
        let orders = server.orders();
        orders
            .iter()
            .filter(|call| **call == Call::Kill(first()))
            .count()
    };
    for _ in 0..10 {
        tokio::time::advance(LOOK_EVERY).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(kills() >= 3, "{:?}", server.orders());
    assert_eq!(state_of(&server.view, 1), "stopping");
    server.backend.end(&task("job-1.1"), done());
    server.until(1, "canceled").await;
}

/// What a server left when it died between a commit and the acts that follow.
async fn left(commands: &[Command]) -> MemoryLog {
    let log = MemoryLog::new();
    let server = Running::on(log.clone()).await;
    server.offer_nodes().await;
    for command in commands {
        server.command(command.clone()).await.unwrap();
    }
    server.stop().await.unwrap();
    log
}

#[tokio::test(start_paused = true)]
async fn a_launch_that_a_crash_cut_off_is_made_at_the_next_start() {
    let log = left(&[submit(spec("a", 8))]).await;
    let backend = FakeBackend::new(nodes(), Manners::Obedient);
    let server = start(log, Arc::new(backend)).await;
    server.until(1, "running").await;
    assert_eq!(server.orders(), [Call::Launch(first())]);
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_taken_up_and_not_started_again() {
    let old = with(Manners::Scripted).await;
    old.command(submit(spec("a", 8))).await;
    settle(|| old.backend.launched(first()).is_some()).await;
    let (log, backend) = (old.log.clone(), old.backend.clone());
    let token = |backend: &FakeBackend| {
        let launch = backend.launched(first()).unwrap();
        launch.environment["ANTIPHON_JOB_TOKEN"].clone()
    };
    let before = token(&backend);
    // Its command started while no server was there, and nobody was told.
    backend.start(&task("job-1.1"));
    let server = start(log, backend.clone()).await;
    server.until(1, "running").await;
    assert_eq!(token(&backend), before, "the launch that runs is the first");
    backend.end(&task("job-1.1"), done());
    server.until(1, "succeeded").await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_an_attempt_that_never_was_launched_ends_it() {
    let log = left(&[submit(spec("a", 8)), Command::Cancel { job: JobId(1) }]).await;
    let backend = FakeBackend::new(nodes(), Manners::Obedient);
    let server = start(log, Arc::new(backend)).await;
    server.until(1, "canceled").await;
    assert!(!server.orders().contains(&Call::Launch(first())));
}

#[tokio::test(start_paused = true)]
async fn a_sigterm_that_a_crash_cut_off_is_given_at_the_next_start() {
    let old = with(Manners::Scripted).await;
    old.command(submit(spec("a", 8))).await;
    settle(|| old.backend.launched(first()).is_some()).await;
    old.backend.start(&task("job-1.1"));
    old.until(1, "running").await;
    // The log says SIGTERM; the server dies before its hand has given it.
    old.backend.fail_orders(u32::MAX);
    old.command(Command::Cancel { job: JobId(1) }).await;
    let (log, launch) = (old.log.clone(), old.backend.launched(first()).unwrap());
    let backend = FakeBackend::new(nodes(), Manners::Obedient);
    backend.launch(&launch).await.unwrap();
    let server = start(log, Arc::new(backend)).await;
    server.until(1, "canceled").await;
    assert!(server.orders().contains(&Call::Terminate(first())));
}

/// An attempt that was handed over and vanished before it started was never launched again, and held its GPUs for good.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_vanishes_before_it_starts_is_launched_again() {
    let server = with(Manners::Scripted).await;
    server.command(submit(spec("a", 8))).await;
    settle(|| server.backend.launched(first()).is_some()).await;
    server.backend.vanish(first());
    for _ in 0..3 {
        tokio::time::advance(LOOK_EVERY).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert!(server.backend.launched(first()).is_some());
    server.backend.start(&task("job-1.1"));
    server.until(1, "running").await;
}
