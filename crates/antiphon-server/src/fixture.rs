//! What the tests of the loop, the executor and the recovery share: a small cluster, jobs, a log that can be watched, and
//! a loop that runs. Decides nothing, and waits for what is so, never for a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use antiphon_kernel::{JobState, State, decide};
use antiphon_store::{Entry, Fence, Image, ImageHeader, Log, MemoryLog, StoreError};
use antiphon_types::*;
use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use crate::event_loop::{Accepted, EventLoop, LoopHandle, Refused};
use crate::recovery::{ImageKeeper, load};
use crate::view::View;

/// Far above what any condition of a test takes to come true.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn nodes() -> Vec<NodeSpec> {
    vec![NodeSpec {
        name: "n0".into(),
        gpus: 8,
        gpu_type: "H100".into(),
        gpu_memory: Bytes::ZERO,
        gpus_virtual: true,
        cpus: 64,
        memory: Bytes::new(1 << 40),
        ..NodeSpec::default()
    }]
}

pub(crate) fn spec(name: &str, gpus: u32) -> JobSpec {
    JobSpec {
        name: name.into(),
        team: "default".into(),
        user: "someone".into(),
        class: Class::Standard,
        roles: vec![Role {
            name: "main".into(),
            command: vec!["train".into()],
            shape: Shape {
                gpus: GpuAmount::from_gpus(gpus),
                cpus: Some(0),
                memory: Some(Bytes::ZERO),
                ..Shape::default()
            },
            ..Role::default()
        }],
        workdir: "/".into(),
        retry: RetrySpec {
            retries_max: 5,
            backoff_first: Millis::from_secs(3_600),
            backoff_max: Millis::from_secs(3_600),
        },
        grace: Millis::from_secs(3_600),
        ..JobSpec::default()
    }
}

pub(crate) fn submit(spec: JobSpec) -> Command {
    Command::Submit {
        spec: Box::new(spec),
    }
}

pub(crate) fn task(attempt: &str) -> TaskId {
    TaskId {
        attempt: attempt.parse().unwrap(),
        role: "main".into(),
        index: 0,
    }
}

pub(crate) fn done() -> Exit {
    Exit::Code {
        code: 0,
        class: None,
        evidence: String::new(),
    }
}

/// A log in memory that shows its commits, and makes them wait where a test says so.
#[derive(Clone)]
pub(crate) struct WatchedLog {
    pub(crate) log: MemoryLog,
    /// The kinds of the events of each commit, from when it was asked for.
    pub(crate) asked: Arc<Mutex<Vec<Vec<String>>>>,
    pub(crate) gate: Arc<Semaphore>,
    /// An image that cannot be read.
    pub(crate) damaged: Option<u64>,
}

impl WatchedLog {
    pub(crate) fn new(log: MemoryLog) -> Self {
        Self {
            log,
            asked: Arc::default(),
            gate: Arc::new(Semaphore::new(1_000_000)),
            damaged: None,
        }
    }

    pub(crate) fn commits(&self) -> Vec<Vec<String>> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Log for WatchedLog {
    async fn acquire(&self, owner: &str) -> Result<Fence, StoreError> {
        self.log.acquire(owner).await
    }
    async fn append(&self, fence: Fence, entries: Vec<Entry>) -> Result<(), StoreError> {
        let kinds = entries.iter().map(|entry| entry.kind.clone()).collect();
        self.asked.lock().unwrap().push(kinds);
        self.gate.acquire().await.expect("never closed").forget();
        self.log.append(fence, entries).await
    }
    async fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.log.read(after, limit).await
    }
    async fn last_seq(&self) -> Result<u64, StoreError> {
        self.log.last_seq().await
    }
    async fn put_image(&self, fence: Fence, image: Image) -> Result<(), StoreError> {
        self.log.put_image(fence, image).await
    }
    async fn images(&self) -> Result<Vec<ImageHeader>, StoreError> {
        self.log.images().await
    }
    async fn image(&self, seq: u64) -> Result<Image, StoreError> {
        if self.damaged == Some(seq) {
            let (place, what) = ("memory".into(), "a bit has flipped".into());
            return Err(StoreError::Corrupt { place, what });
        }
        self.log.image(seq).await
    }
}

/// A loop that runs, without an executor.
pub(crate) struct Running {
    pub(crate) view: Arc<View>,
    pub(crate) inputs: LoopHandle,
    pub(crate) actions: mpsc::UnboundedReceiver<Action>,
    pub(crate) ended: JoinHandle<Result<(), StoreError>>,
}

impl Running {
    pub(crate) async fn on(log: impl Log + 'static) -> Self {
        Self::deciding(log, decide).await
    }

    pub(crate) async fn deciding(log: impl Log + 'static, decide: fn(&State) -> Decision) -> Self {
        let state = load(&log).await.unwrap();
        Self::from(log, state, decide).await
    }

    pub(crate) async fn from(
        log: impl Log + 'static,
        state: State,
        decide: fn(&State) -> Decision,
    ) -> Self {
        let log: Arc<dyn Log> = Arc::new(log);
        let fence = log.acquire("test").await.unwrap();
        let images = ImageKeeper::new(log.clone(), fence, state.seq());
        let view = Arc::new(View::new(state.clone()));
        let (sender, actions) = mpsc::unbounded_channel();
        let (mut this, inputs) = EventLoop::new(state, view.clone(), log, fence, images, sender);
        this.decide = decide;
        let ended = tokio::spawn(this.run());
        Self {
            view,
            inputs,
            actions,
            ended,
        }
    }

    pub(crate) async fn command(&self, command: Command) -> Result<Accepted, Refused> {
        self.inputs.command("someone".into(), None, command).await
    }

    pub(crate) async fn offer_nodes(&self) {
        let nodes = nodes();
        let inventory = Observation::Inventory {
            nodes,
            partitions: Vec::new(),
            resources: BTreeMap::new(),
        };
        self.inputs.observe(inventory).await.unwrap();
    }

    /// Starts the cluster and one job on it, whose processes run.
    pub(crate) async fn with_a_running_job(&mut self) {
        self.offer_nodes().await;
        self.command(submit(spec("first", 4))).await.unwrap();
        let task = task("job-1.1");
        self.inputs
            .observe(Observation::TaskStarted { task })
            .await
            .unwrap();
        assert!(matches!(
            self.actions.recv().await,
            Some(Action::Launch { .. })
        ));
    }

    pub(crate) fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.actions.try_recv().ok()).collect()
    }

    /// Lets go of the loop and waits until it has ended and written its last image.
    pub(crate) async fn stop(self) -> Result<(), StoreError> {
        drop(self.inputs);
        self.ended.await.unwrap()
    }
}

pub(crate) fn state_of(view: &View, job: u64) -> String {
    let state = view.state();
    let name = |job: &antiphon_kernel::Job| job.state.name();
    state.job(JobId(job)).map_or("absent", name).to_owned()
}

pub(crate) fn is_running(view: &View, job: u64) -> bool {
    let state = view.state();
    state
        .job(JobId(job))
        .is_some_and(|job| matches!(job.state, JobState::Running { .. }))
}

/// Waits until the committed state is as it should be.
pub(crate) async fn until(view: &View, holds: impl Fn(&State) -> bool) {
    let mut events = view.subscribe();
    let wait = async {
        while !holds(&view.state()) {
            events.recv().await.expect("the view outlives the test");
        }
    };
    let came = tokio::time::timeout(PATIENCE, wait).await;
    assert!(came.is_ok(), "it never came: {:#?}", view.state().jobs());
}

/// Lets every other task run until it waits for something, or until it is so.
pub(crate) async fn settle(holds: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came");
}
