//! The contract between antiphon and a system that starts processes. One test suite holds every carrier to it.

use std::collections::BTreeMap;

use antiphon_types::{Allocation, AttemptId, Exit, JobSpec, Millis, NodeSpec, TaskId, Timestamp};
use async_trait::async_trait;

use crate::DeviceReading;
use crate::slurm::SlurmError;

/// How long the check of a node may take: the usual ones (a short matrix product, a copy between the GPUs) take seconds, and
/// every launch on several nodes waits for it.
pub const CHECK_LIMIT: Millis = Millis::from_secs(60);

/// Everything a backend needs to start one attempt, whole.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The attempt. Launching it again while it is known does nothing.
    pub attempt: AttemptId,
    /// The job as it was accepted.
    pub spec: JobSpec,
    /// When it was decided: tells the attempt from one of the same number in another history of the log.
    pub launched: Timestamp,
    /// Where each task runs and which GPUs it holds, in rank order.
    pub allocation: Allocation,
    /// Variables of every task that the server knows and the backend does not: `ANTIPHON_URL`, `ANTIPHON_JOB_TOKEN`,
    /// `ANTIPHON_RESUME_FROM` and the like. The backend adds ranks, addresses and GPUs.
    pub environment: BTreeMap<String, String>,
    /// A program and its arguments that look at a node before a command is started there; none where it is empty. A
    /// status other than 0, or no end within [`CHECK_LIMIT`], makes an end as [`Exit::Unfit`].
    pub check: Vec<String>,
}

/// What a backend sees of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskSeen {
    /// Handed over, its command not yet started.
    Starting,
    /// Its command runs.
    Running,
    /// Its supervisor is gone but a process that carries its attempt lives: neither ended nor to be launched again.
    Orphaned,
    /// All its processes are gone.
    Ended(Exit),
}

/// What a backend sees of one attempt. An attempt that it does not know is absent: positively not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The tasks that it knows of.
    pub tasks: BTreeMap<TaskId, TaskSeen>,
    /// The GPUs that a task really has, ascending, where the backend chooses them and the task has begun.
    pub gpus: BTreeMap<TaskId, Vec<u32>>,
}

/// Something in a job that cannot work here, found before it is submitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Preflight {
    /// The command is not there.
    #[error("command `{command}` of role `{role}` is not found{looked}")]
    NoSuchCommand {
        /// The role.
        role: String,
        /// The program.
        command: String,
        /// Where was looked, as ` in ..`.
        looked: String,
    },
    /// The directory to start in is not there.
    #[error("workdir `{dir}` cannot be used: {error}")]
    NoWorkdir {
        /// The directory.
        dir: String,
        /// The operating system's words.
        error: String,
    },
    /// The backend hands out whole GPUs only.
    #[error("role `{role}` asks for a part of a GPU, and Slurm hands out whole ones")]
    SharedGpu {
        /// The role.
        role: String,
    },
    /// The checkpoint directory cannot be written.
    #[error("checkpoint directory `{dir}` cannot be written: {error}")]
    CheckpointDir {
        /// The directory.
        dir: String,
        /// The operating system's words.
        error: String,
    },
    /// The value of a secret cannot be had.
    #[error("secret `{variable}` cannot be read from `{reference}`: {why}")]
    Secret {
        /// The variable that the job would see.
        variable: String,
        /// Where its value should be.
        reference: String,
        /// Why it cannot be read.
        why: String,
    },
}

impl Preflight {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NoSuchCommand { .. } => "AP0301",
            Self::NoWorkdir { .. } => "AP0302",
            Self::CheckpointDir { .. } => "AP0303",
            Self::Secret { .. } => "AP0856",
            Self::SharedGpu { .. } => "AP0805",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NoSuchCommand { .. } => {
                "give the program's full path, or a name that is in the server's PATH".into()
            }
            Self::NoWorkdir { .. } => {
                "set `[run] workdir` to a directory that exists; the default is the job file's own"
                    .into()
            }
            Self::Secret { .. } => {
                "give a file that the server's user can read, or a variable that is set for the server and listed in `secrets` of its `antiphon.toml`".into()
            }
            Self::SharedGpu { .. } => {
                "ask for whole GPUs, or run it on the local backend with `antiphon up`".into()
            }
            Self::CheckpointDir { dir, .. } => {
                format!(
                    "create it with `mkdir -p {dir}`, give the server's user write permission, or set `[checkpoint] dir`"
                )
            }
        }
    }
}

/// A backend could not do what it was told. Says nothing about whether the attempt lives.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A file or directory of the backend's own could not be used.
    #[error("cannot {verb} `{path}`")]
    Io {
        /// What was tried: `write`, `create`.
        verb: &'static str,
        /// On what.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The supervisor could not be started.
    #[error("cannot start the supervisor of {task}")]
    Supervisor {
        /// The task.
        task: TaskId,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The node's GPUs are there but do not answer.
    #[error("cannot ask the GPUs of this node: {error}")]
    Devices {
        /// The driver's words.
        error: String,
    },
    /// Processes of an attempt with the same number live, from a history of the log that was replaced (by a backup, say).
    #[error("processes of another {attempt}, launched at {launched} ms, live: `{dir}`")]
    Occupied {
        /// The attempt.
        attempt: AttemptId,
        /// When that other one was launched, in milliseconds since the Unix epoch.
        launched: u64,
        /// Its directory.
        dir: String,
    },
    /// Slurm could not do it.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// A node that the backend does not have.
    #[error("node `{0}` is not one of this backend's")]
    UnknownNode(String),
}

/// A system that starts processes.
///
/// Every call may be repeated, and may come after a restart of the server in which the backend kept its processes.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The name under which it appears in messages: `local`.
    fn name(&self) -> &'static str;

    /// All nodes that it offers.
    ///
    /// # Errors
    /// Where it cannot be asked; what it offered before then still stands.
    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError>;

    /// What its GPUs measure of themselves; nothing where that cannot be asked from here.
    async fn devices(&self) -> Vec<DeviceReading> {
        Vec::new()
    }

    /// Looks whether a job's commands and directories exist, before it is submitted.
    ///
    /// # Errors
    /// The first thing that cannot work.
    async fn preflight(&self, spec: &JobSpec) -> Result<(), Preflight>;

    /// Starts every task of an attempt. Does nothing for tasks that it knows already.
    ///
    /// # Errors
    /// Where a task could not be handed over; the call is repeated later.
    async fn launch(&self, launch: &Launch) -> Result<(), BackendError>;

    /// SIGTERM to every process of the attempt. An attempt that is gone is no error.
    ///
    /// # Errors
    /// Where the order could not be given; the call is repeated later.
    async fn terminate(&self, attempt: AttemptId) -> Result<(), BackendError>;

    /// SIGKILL to every process of the attempt. An attempt that is gone is no error.
    ///
    /// # Errors
    /// Where the order could not be given; the call is repeated later.
    async fn kill(&self, attempt: AttemptId) -> Result<(), BackendError>;

    /// What it sees of an attempt now; `None` is a positive "absent".
    ///
    /// # Errors
    /// Where it cannot be asked, which is never evidence of an end.
    async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError>;

    /// Waits until something may have changed, and names the attempts to look at.
    async fn changed(&self) -> Vec<AttemptId>;

    /// A word from outside that an attempt may have changed: `changed` should name it soon.
    fn hint(&self, attempt: AttemptId);

    /// Why an attempt that was launched has not started, in the words of the system that is to start it; `None` where it has,
    /// and where there is nothing to wait for.
    fn waits(&self, _attempt: AttemptId) -> Option<String> {
        None
    }

    /// What a task printed, from `offset` on, at most `bytes_max`. Nothing where it has printed no more.
    ///
    /// # Errors
    /// Where the output cannot be read.
    async fn output(
        &self,
        task: &TaskId,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError>;

    /// Forgets an attempt that is settled; its output stays.
    async fn forget(&self, attempt: AttemptId);
}
