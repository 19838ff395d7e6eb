//! Tasks as jobs of a Slurm cluster, each attempt one Slurm job on exactly the nodes that the kernel chose. antiphon decides
//! where and when; Slurm starts the processes and keeps others off their GPUs.
//!
//! Server and nodes share the state directory: the supervisor that the local backend uses runs under Slurm too, and how a
//! task ended is what it wrote there. Slurm is asked for what no file says: whether a job waits, and whether one that left
//! no word is over. Keeps nothing in memory that a restart would miss.

mod attempt_dir;
mod command;
mod error;
mod inventory;
mod jobs;
mod look;
pub mod names;
pub mod nodes;
mod observe;
pub mod partitions;
mod queue;
mod read;
mod record;
mod script;
pub mod step;
mod submit;
pub mod topology;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use antiphon_types::{AttemptId, Bytes, JobSpec, Millis, NodeSpec, PartitionSpec, TaskId};
use async_trait::async_trait;
use tokio::sync::{Notify, Semaphore};

pub use self::error::SlurmError;
use self::inventory::Inventory;
pub use self::observe::{ObserverConfig, SlurmObserver};
use self::queue::{Phase, SlurmJobId};
use self::watch::Watch;
use crate::local::supervise::Order;
use crate::local::task_dir::TaskDir;
use crate::local::{CHECK_GIVE_UP, attempts_dir, command as files, read_from, secrets};
use crate::{Backend, BackendError, CHECK_LIMIT, Launch, Preflight, Seen};

/// Submits that go on at once: the controller takes them one after the other anyway, and each is a process here.
const SUBMITS: usize = 4;

/// Whose the partitions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// antiphon's: nobody else submits to them.
    #[default]
    Own,
    /// Everybody's: what the jobs of others hold counts as used, and none of them is touched.
    Guest,
}

/// A GPU type of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuType {
    /// Its product name.
    pub name: String,
    /// Its memory.
    pub memory: Bytes,
}

/// How the Slurm backend is set up.
#[derive(Debug, Clone)]
pub struct SlurmConfig {
    /// The state directory, on a file system that all nodes share. Tasks lie in `attempts` below it.
    pub root: PathBuf,
    /// Program and first arguments of a supervisor, where nodes find it; directory and role follow. What it starts has to
    /// call [`step::run`].
    pub supervisor: Vec<String>,
    /// Slurm's configuration, where it is not the one that its commands find by themselves.
    pub conf: Option<PathBuf>,
    /// The partitions to use; none where Slurm has only one.
    pub partitions: Vec<String>,
    /// Whose they are.
    pub mode: Mode,
    /// The account that is charged.
    pub account: Option<String>,
    /// The quality of service to ask for.
    pub qos: Option<String>,
    /// The reservation to run in.
    pub reservation: Option<String>,
    /// antiphon's names of GPU types, by Slurm's, where `catalog` does not know better.
    pub gpu_types: BTreeMap<String, String>,
    /// What is known of a GPU type by any of its names. Slurm says neither the product nor its memory.
    pub catalog: fn(&str) -> Option<GpuType>,
    /// How long one of Slurm's commands may take.
    pub command_timeout: Millis,
    /// How long a job may wait in Slurm before it is taken back and placed anew.
    pub launch_timeout: Millis,
    /// How often all jobs are looked at, with one command.
    pub poll: Millis,
    /// How long a task waits for the answer to its launch check: 60 s, less in tests.
    pub check_give_up: Millis,
    /// How long the check of a node may take: [`CHECK_LIMIT`], less in tests.
    pub node_check_limit: Millis,
}

impl SlurmConfig {
    /// The only partition that Slurm has, with its state under `root`.
    #[must_use]
    pub const fn new(root: PathBuf, supervisor: Vec<String>) -> Self {
        Self {
            root,
            supervisor,
            conf: None,
            partitions: Vec::new(),
            mode: Mode::Own,
            account: None,
            qos: None,
            reservation: None,
            gpu_types: BTreeMap::new(),
            catalog: |_| None,
            // Above what a busy controller takes, and below the half minute for which a dead one holds its clients.
            command_timeout: Millis::from_secs(15),
            launch_timeout: Millis::from_secs(300),
            poll: Millis::from_secs(5),
            check_give_up: CHECK_GIVE_UP,
            node_check_limit: CHECK_LIMIT,
        }
    }
}

/// Tasks as jobs of a Slurm cluster.
#[derive(Debug)]
pub struct SlurmBackend {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: SlurmConfig,
    attempts: PathBuf,
    /// Which antiphon this is, in the comments of its Slurm jobs.
    owner: String,
    /// What [`Backend::nodes`] found last.
    inventory: Mutex<Option<Arc<Inventory>>>,
    watch: Mutex<Watch>,
    submits: Semaphore,
    /// Somebody waits in `changed`.
    wake: Notify,
    /// A look at all jobs is wanted before its time.
    poke: Notify,
}

impl SlurmBackend {
    /// Opens the state directory, creating it if need be. Asks Slurm nothing, and has to be called in a runtime.
    ///
    /// # Errors
    /// Where the directory cannot be created.
    pub fn new(config: SlurmConfig) -> Result<Self, BackendError> {
        let attempts = attempts_dir(&config.root)?;
        let inner = Arc::new(Inner {
            owner: format!("{:016x}", hash(&attempts.to_string_lossy())),
            config,
            attempts,
            inventory: Mutex::default(),
            watch: Mutex::default(),
            submits: Semaphore::new(SUBMITS),
            wake: Notify::new(),
            poke: Notify::new(),
        });
        tokio::spawn(poll(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// The partitions in use, as Slurm describes them.
    ///
    /// # Errors
    /// Where Slurm cannot be asked.
    pub async fn partitions(&self) -> Result<Vec<PartitionSpec>, BackendError> {
        Ok(self.inner.inventory().await?.partitions.clone())
    }
}

#[async_trait]
impl Backend for SlurmBackend {
    fn name(&self) -> &'static str {
        "slurm"
    }

    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError> {
        let inventory = self.inner.ask_inventory().await?;
        Ok(inventory.offered())
    }

    async fn preflight(&self, spec: &JobSpec) -> Result<(), Preflight> {
        // A part of a GPU cannot be asked for in terms that all Slurms share.
        let shares = |role: &&antiphon_types::Role| {
            let mut shapes = role.shapes();
            shapes.any(|shape| shape.gpus.thousandths() % 1_000 != 0)
        };
        if let Some(role) = spec.roles.iter().find(shares) {
            return Err(Preflight::SharedGpu {
                role: role.name.clone(),
            });
        }
        let spec = spec.clone();
        // A variable would pass through Slurm, which stores it: secrets are read from files alone, on their nodes.
        secrets::preflight(&spec.secrets, &BTreeSet::new())?;
        let found = blocking(move || files::preflight(&spec)).await;
        match found {
            // The nodes may have what this one has not; a task that does not find its command says so.
            Err(Preflight::NoSuchCommand { .. }) => Ok(()),
            found => found,
        }
    }

    async fn launch(&self, launch: &Launch) -> Result<(), BackendError> {
        self.inner.launch(launch).await
    }

    async fn terminate(&self, attempt: AttemptId) -> Result<(), BackendError> {
        self.inner.stop(attempt, Order::Terminate).await
    }

    async fn kill(&self, attempt: AttemptId) -> Result<(), BackendError> {
        self.inner.stop(attempt, Order::Kill).await
    }

    async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError> {
        self.inner.seen(attempt).await
    }

    async fn changed(&self) -> Vec<AttemptId> {
        loop {
            let changed = self.inner.watch().take_changed();
            if !changed.is_empty() {
                return changed;
            }
            self.inner.wake.notified().await;
        }
    }

    fn hint(&self, attempt: AttemptId) {
        self.inner.watch().mark(attempt);
        self.inner.wake.notify_one();
    }

    async fn output(
        &self,
        task: &TaskId,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError> {
        let path = TaskDir::of(&self.inner.attempts, task).output();
        blocking(move || read_from(&path, offset, bytes_max)).await
    }

    async fn forget(&self, attempt: AttemptId) {
        self.inner.watch().forget(attempt);
    }

    fn waits(&self, attempt: AttemptId) -> Option<String> {
        match self.inner.watch().phase(attempt)? {
            Phase::Pending(reason) => Some(reason.clone()),
            Phase::Active | Phase::Over(_) => None,
        }
    }
}

impl Inner {
    /// Locks the watch. A panic elsewhere leaves it usable: every change to it is a single step.
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(
        &self,
        program: &'static str,
        arguments: &[String],
    ) -> Result<String, SlurmError> {
        let limit = Duration::from_millis(self.config.command_timeout.as_millis());
        command::call(program, arguments, self.config.conf.as_deref(), limit).await
    }

    /// The same of a command that reads `input`.
    async fn call_with_input(
        &self,
        program: &'static str,
        arguments: &[String],
        input: String,
    ) -> Result<String, SlurmError> {
        let limit = Duration::from_millis(self.config.command_timeout.as_millis());
        let call = command::Call {
            input: input.into_bytes(),
            ..command::Call::default()
        };
        let conf = self.config.conf.as_deref();
        command::call_with(program, arguments, conf, limit, call).await
    }

    /// Looks at all jobs with one command, and takes back those that are superfluous.
    async fn look_at_all(&self) {
        let began = Instant::now();
        let arguments = ["--noheader", "--all", "--me", "-o", queue::FORMAT].map(str::to_owned);
        let jobs = match self.call("squeue", &arguments).await {
            Ok(text) => queue::parse(&text),
            Err(error) => {
                // Says nothing about any job.
                tracing::warn!(%error, "Slurm's queue could not be looked at; jobs run on");
                return;
            }
        };
        let patience = Duration::from_millis(self.config.launch_timeout.as_millis());
        let superfluous = self.watch().take(began, &jobs, Some(patience));
        self.wake.notify_one();
        for job in superfluous.doubled {
            tracing::info!(slurm_job = %job, "a job that Slurm had twice is taken back once");
            self.cancel_pending(job).await;
        }
        for job in superfluous.late {
            tracing::info!(slurm_job = %job, waited = ?patience, "Slurm does not start a job: it is taken back");
            self.cancel_pending(job).await;
        }
    }

    /// Cancels a job if it waits; one that runs is not touched.
    async fn cancel_pending(&self, job: SlurmJobId) {
        let arguments = ["--state=PENDING".to_owned(), job.to_string()];
        if let Err(error) = self.call("scancel", &arguments).await {
            tracing::warn!(slurm_job = %job, %error, "a waiting job could not be taken back");
        }
        self.poke.notify_one();
    }
}

/// Looks at all jobs again and again, while there are any and somebody is interested.
async fn poll(inner: Weak<Inner>) {
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        if !strong.watch().is_empty() {
            strong.look_at_all().await;
        }
        let pause = Duration::from_millis(strong.config.poll.as_millis());
        // Held no longer than this, so that a backend that was dropped ends soon.
        let poked = tokio::time::timeout(pause, strong.poke.notified())
            .await
            .is_ok();
        drop(strong);
        if poked {
            tokio::time::sleep(pause.min(Duration::from_millis(200))).await;
        }
    }
}

/// Runs file work off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down; nobody waits for an answer any more.
            Err(_) => std::future::pending().await,
        },
    }
}

/// FNV-1a: the same in every release, which comments of running jobs need.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
