//! Tasks as processes of this machine, each under a supervisor of its own. Keeps nothing in memory that a restart would
//! miss: the truth is in the task's directory and in `/proc`. Isolates nothing and limits no memory.
//!
//! Server and task share no pipe, no session and no fate: a server that is killed leaves its tasks running, and the
//! next one finds them by pid, start time and boot id.

mod classify;
pub(crate) mod command;
mod discover;
pub(crate) mod environment;
mod nvml;
mod process;
pub(crate) mod secrets;
pub mod supervise;
pub(crate) mod task_dir;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use antiphon_types::{AttemptId, JobSpec, Millis, NodeSpec, TaskAllocation, TaskId, Timestamp};
use async_trait::async_trait;
use rustix::process::Signal;
use tokio::process::Command;

pub(crate) use self::environment::inherited;
use self::nvml::NvmlDevices;
use self::process::{Process, boot_id, marked};
use self::task_dir::{Check, NodeCheck, TaskDir, TaskFile};
use self::watch::{Look, Own, Watch};
use crate::trust::CA_VARIABLE;
use crate::{
    Backend, BackendError, CHECK_LIMIT, DeviceReading, Devices, Launch, Preflight, Seen, TaskSeen,
};

/// How long a task waits for the server to say that its attempt is current.
pub(crate) const CHECK_GIVE_UP: Millis = Millis::from_secs(60);

/// How the local backend is set up.
#[derive(Debug, Clone)]
pub struct LocalConfig {
    /// The state directory. Tasks lie in `attempts` below it.
    pub root: PathBuf,
    /// Program and first arguments of a supervisor; the directory of its task follows as the last argument. What it
    /// starts has to call [`supervise::run`].
    pub supervisor: Vec<String>,
    /// The nodes of a cluster file, which then all lie on this machine; `None` for this machine as it is.
    pub nodes: Option<Vec<NodeSpec>>,
    /// How many virtual GPUs this machine shows if it has no real ones.
    pub virtual_gpus: u32,
    /// Variables of the server's own environment that jobs may have as secrets.
    pub offered: BTreeSet<String>,
    /// What measures this machine's GPUs: the driver, something else in tests.
    pub devices: Arc<dyn Devices>,
    /// How long a task waits for the answer to its launch check: 60 s, less in tests.
    pub check_give_up: Millis,
    /// How long the check of a node may take: [`CHECK_LIMIT`], less in tests.
    pub node_check_limit: Millis,
}

impl LocalConfig {
    /// This machine as it is, with its state under `root`.
    #[must_use]
    pub fn new(root: PathBuf, supervisor: Vec<String>) -> Self {
        Self {
            root,
            supervisor,
            nodes: None,
            virtual_gpus: 0,
            offered: BTreeSet::new(),
            devices: Arc::new(NvmlDevices::default()),
            check_give_up: CHECK_GIVE_UP,
            node_check_limit: CHECK_LIMIT,
        }
    }
}

/// Tasks as processes of this machine.
#[derive(Debug)]
pub struct LocalBackend {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: LocalConfig,
    attempts: PathBuf,
    boot: String,
    /// What [`Backend::nodes`] found last.
    nodes: Mutex<Option<Vec<NodeSpec>>>,
    watch: Mutex<Watch>,
    wake: tokio::sync::Notify,
}

impl LocalBackend {
    /// Opens the state directory, creating it if need be. Starts nothing, and touches no task.
    ///
    /// # Errors
    /// Where the directory cannot be created, or the kernel does not say which boot this is.
    pub fn new(config: LocalConfig) -> Result<Self, BackendError> {
        let attempts = attempts_dir(&config.root)?;
        let boot = boot_id().map_err(failed("read", Path::new("/proc")))?;
        Ok(Self {
            inner: Arc::new(Inner {
                config,
                attempts,
                boot,
                nodes: Mutex::default(),
                watch: Mutex::default(),
                wake: tokio::sync::Notify::new(),
            }),
        })
    }

    /// The file that holds a task's stdout and stderr. It appears when the command is started, and stays.
    #[must_use]
    pub fn output_path(&self, task: &TaskId) -> PathBuf {
        TaskDir::of(&self.inner.attempts, task).output()
    }
}

#[async_trait]
impl Backend for LocalBackend {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError> {
        self.inner.run(Inner::ask_nodes).await
    }

    async fn devices(&self) -> Vec<DeviceReading> {
        self.inner.run(|inner| inner.read_devices()).await
    }

    async fn preflight(&self, spec: &JobSpec) -> Result<(), Preflight> {
        let spec = spec.clone();
        self.inner
            .run(move |inner| {
                command::preflight(&spec)?;
                secrets::preflight(&spec.secrets, &inner.config.offered)
            })
            .await
    }

    async fn launch(&self, launch: &Launch) -> Result<(), BackendError> {
        let launch = launch.clone();
        let launched = self.inner.run(move |inner| inner.launch(&launch)).await;
        // Whoever waits in `changed` has more to watch now.
        self.inner.wake.notify_one();
        launched
    }

    async fn terminate(&self, attempt: AttemptId) -> Result<(), BackendError> {
        self.inner
            .run(move |inner| inner.stop(attempt, Stop::Terminate))
            .await
    }

    async fn kill(&self, attempt: AttemptId) -> Result<(), BackendError> {
        self.inner
            .run(move |inner| inner.stop(attempt, Stop::Kill))
            .await
    }

    async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError> {
        self.inner
            .run(move |inner| {
                let seen = inner.look(attempt, &Look::new(&inner.attempts))?;
                inner.watch().saw(attempt, seen.clone());
                inner.wake.notify_one();
                Ok(seen)
            })
            .await
    }

    async fn changed(&self) -> Vec<AttemptId> {
        self.inner.wait_for_change().await
    }

    fn hint(&self, attempt: AttemptId) {
        self.inner.changed(attempt);
    }

    async fn output(
        &self,
        task: &TaskId,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError> {
        let path = self.output_path(task);
        self.inner
            .run(move |_| read_from(&path, offset, bytes_max))
            .await
    }

    async fn forget(&self, attempt: AttemptId) {
        self.inner.watch().forget(attempt);
    }
}

/// A piece of a file; nothing where the file is not there yet or ends before it.
pub(crate) fn read_from(path: &Path, offset: u64, bytes_max: u64) -> Result<Vec<u8>, BackendError> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", path)(error)),
    };
    let mut bytes = Vec::new();
    // Past the end there is nothing, also where the offset is one that no file can have.
    if file.metadata().map_err(failed("read", path))?.len() <= offset {
        return Ok(bytes);
    }
    file.seek(SeekFrom::Start(offset))
        .map_err(failed("read", path))?;
    file.take(bytes_max)
        .read_to_end(&mut bytes)
        .map_err(failed("read", path))?;
    Ok(bytes)
}

/// Which of the two ways to end an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Terminate,
    Kill,
}

impl Inner {
    /// Runs file work off the async threads.
    async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> T + Send + 'static,
    ) -> T {
        let inner = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&inner)).await {
            Ok(done) => done,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down; nobody waits for an answer any more.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// Locks the watch. A panic elsewhere leaves it usable: every change to it is a single step.
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, attempt: AttemptId) {
        self.watch().mark(attempt);
        self.wake.notify_one();
    }

    /// Of this machine as it is: nodes of a cluster file share its GPUs, and none of them is known to be one's.
    fn read_devices(&self) -> Vec<DeviceReading> {
        let known = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let this = match (&self.config.nodes, known.as_deref()) {
            (None, Some([node])) if !node.gpus_virtual => node.name.clone(),
            _ => return Vec::new(),
        };
        drop(known);
        self.config.devices.read(&this)
    }

    fn ask_nodes(self: &Arc<Self>) -> Result<Vec<NodeSpec>, BackendError> {
        let nodes = match &self.config.nodes {
            Some(nodes) => nodes.clone(),
            None => vec![discover::this_machine(self.config.virtual_gpus)?],
        };
        *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = Some(nodes.clone());
        Ok(nodes)
    }

    fn launch(self: &Arc<Self>, launch: &Launch) -> Result<(), BackendError> {
        let known = self
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let nodes = match known {
            Some(nodes) => nodes,
            None => self.ask_nodes()?,
        };
        // Before anything is started: a gang runs whole or not at all.
        for task in launch.allocation.tasks.iter() {
            node_of(task, &nodes)?;
        }
        if let Some(checkpoint) = &launch.spec.checkpoint {
            // Trainers expect it to be there. One that cannot be made is theirs to report: it was there at submit.
            let _ = fs::create_dir_all(&checkpoint.dir);
        }
        self.set_aside_another_history(launch)?;
        let ports = self.ports(launch)?;
        for task in launch.allocation.tasks.iter() {
            let id = TaskId {
                attempt: launch.attempt,
                role: task.role.clone(),
                index: task.index,
            };
            if !self.watch().claim(&id) {
                continue;
            }
            let dir = TaskDir::of(&self.attempts, &id);
            let file = TaskFile {
                command: launch
                    .spec
                    .roles
                    .iter()
                    .find(|role| role.name == task.role)
                    .map(|role| role.command.clone())
                    .unwrap_or_default(),
                environment: environment::of_task(
                    launch,
                    task,
                    node_of(task, &nodes)?,
                    // Every node of this backend is this machine.
                    ("127.0.0.1", ports[&task.role]),
                    dir.path(),
                ),
                secrets: launch.spec.secrets.clone(),
                workdir: launch.spec.workdir.clone(),
                grace: launch.spec.grace,
                port: ports[&task.role],
                launched: launch.launched,
                check: self.check(launch),
                node_check: self.node_check(launch),
                task: id.clone(),
            };
            if let Err(error) = self.hand_over(&id, &dir, &file) {
                self.watch().unclaim(&id);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A log that was put back from a backup hands out numbers again that its lost part had used. What lies under such a
    /// number is another job's: it is moved away, and never taken for this one's.
    fn set_aside_another_history(&self, launch: &Launch) -> Result<(), BackendError> {
        let dir = self.attempts.join(launch.attempt.to_string());
        let tasks = TaskDir::all(&self.attempts, launch.attempt).map_err(failed("read", &dir))?;
        let mut other = None;
        for (_, task) in &tasks {
            let file = task.task().map_err(failed("read", task.path()))?;
            other = other.or(file
                .map(|file| file.launched)
                .filter(|at| *at != launch.launched));
        }
        let Some(launched) = other.map(Timestamp::as_millis) else {
            return Ok(());
        };
        let seen = self.look(launch.attempt, &Look::new(&self.attempts))?;
        let alive = seen.is_some_and(|seen| {
            let ended = |seen: &TaskSeen| matches!(seen, TaskSeen::Ended(_));
            !seen.tasks.values().all(ended)
        });
        if alive {
            let (attempt, dir) = (launch.attempt, dir.display().to_string());
            return Err(BackendError::Occupied {
                attempt,
                launched,
                dir,
            });
        }
        let aside = self
            .attempts
            .join(format!("{}-launched-{launched}", launch.attempt));
        tracing::warn!(attempt = %launch.attempt, aside = %aside.display(), "output of another history of the log is set aside");
        fs::rename(&dir, &aside).map_err(failed("move away", &dir))
    }

    /// The launch check, where the server says how it is reached.
    fn check(&self, launch: &Launch) -> Option<Check> {
        Some(Check {
            url: launch.environment.get("ANTIPHON_URL")?.clone(),
            token: launch
                .environment
                .get("ANTIPHON_JOB_TOKEN")
                .cloned()
                .unwrap_or_default(),
            ca: launch.environment.get(CA_VARIABLE).map(PathBuf::from),
            give_up: self.config.check_give_up,
        })
    }

    /// The check of the node, where the launch asks for one.
    fn node_check(&self, launch: &Launch) -> Option<NodeCheck> {
        (!launch.check.is_empty()).then(|| NodeCheck {
            command: launch.check.clone(),
            limit: self.config.node_check_limit,
        })
    }

    /// The port of each role: the one that an earlier, interrupted launch gave it, or a free one. It is free now and
    /// not held: another program may take it before the role does. The role then fails and is tried again.
    fn ports(&self, launch: &Launch) -> Result<BTreeMap<String, u16>, BackendError> {
        let mut ports = BTreeMap::new();
        for (task, dir) in
            TaskDir::all(&self.attempts, launch.attempt).map_err(failed("read", &self.attempts))?
        {
            let file = dir.task().map_err(failed("read", dir.path()))?;
            ports.extend(file.map(|file| (task.role, file.port)));
        }
        let roles: BTreeSet<&String> = launch.allocation.tasks.iter().map(|t| &t.role).collect();
        for role in roles {
            while !ports.contains_key(role) {
                let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                    .and_then(|listener| listener.local_addr())
                    .map_err(failed("find a free port on", Path::new("127.0.0.1")))?
                    .port();
                // The kernel hands a port out again as soon as it is closed; other attempts may not have opened
                // theirs yet.
                if self.watch().take_port(launch.attempt, port) {
                    ports.insert(role.clone(), port);
                }
            }
        }
        Ok(ports)
    }

    /// Writes the task's file and starts its supervisor, unless one had the task already.
    fn hand_over(
        self: &Arc<Self>,
        id: &TaskId,
        dir: &TaskDir,
        file: &TaskFile,
    ) -> Result<(), BackendError> {
        dir.create().map_err(failed("create", dir.path()))?;
        let had = dir
            .supervisor()
            .and_then(|supervisor| Ok(supervisor.is_some() || dir.exit()?.is_some()))
            .map_err(failed("read", dir.path()))?;
        if had {
            self.watch().unclaim(id);
            return Ok(());
        }
        dir.write_task(file).map_err(failed("write", dir.path()))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(dir.supervisor_log())
            .map_err(failed("create", &dir.supervisor_log()))?;

        let not_started = |source: io::Error| BackendError::Supervisor {
            task: id.clone(),
            source,
        };
        let (program, arguments) = self
            .config
            .supervisor
            .split_first()
            .ok_or_else(|| not_started(io::Error::other("no program is configured")))?;
        // It leaves the server's session itself, as its first act, and is not killed when its handle is dropped.
        let mut child = Command::new(program)
            .args(arguments)
            .arg(dir.path())
            .env_clear()
            .envs(environment::inherited())
            // In the supervisor's environment alone, not in the task's file: the value is on no disk.
            .envs(secrets::handed_over(&file.secrets, &self.config.offered))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(not_started)?;
        let process = child
            .id()
            .and_then(|pid| i32::try_from(pid).ok())
            .and_then(|pid| Process::find(pid).ok().flatten());
        self.watch().own(id, Own::Alive(process));
        tracing::debug!(task = %id, pid = child.id(), "supervisor started");

        // Reaps it, and hears of its end, also of one by SIGKILL, without asking.
        let (inner, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move {
            let own = match child.wait().await {
                Ok(status) => Own::Ended(status),
                Err(error) => {
                    tracing::warn!(task = %id, %error, "cannot wait for the supervisor");
                    return;
                }
            };
            inner.watch().own(&id, own);
            inner.changed(id.attempt);
        });
        Ok(())
    }

    fn look(&self, attempt: AttemptId, look: &Look) -> Result<Option<Seen>, BackendError> {
        let own = self.watch().owned(attempt);
        look.attempt(attempt, &self.boot, &own)
            .map_err(failed("read", &self.attempts.join(attempt.to_string())))
    }

    fn stop(&self, attempt: AttemptId, stop: Stop) -> Result<(), BackendError> {
        let own = self.watch().owned(attempt);
        let mut orphaned = Vec::new();
        for (task, dir) in
            TaskDir::all(&self.attempts, attempt).map_err(failed("read", &self.attempts))?
        {
            let cannot = || failed("signal", dir.path());
            if dir.exit().map_err(cannot())?.is_some() {
                continue;
            }
            let supervisor = match dir.supervisor().map_err(cannot())? {
                Some(supervisor) if supervisor.boot != self.boot => continue,
                Some(supervisor) => supervisor.process,
                // Just started: it has either not begun, and the signal ends it, or it is about to look for one.
                None => match own.get(&task) {
                    Some(Own::Alive(Some(process))) => *process,
                    Some(Own::Claimed | Own::Alive(None) | Own::Ended(_)) | None => continue,
                },
            };
            if supervisor.is_alive().map_err(cannot())? {
                let signal = match stop {
                    Stop::Terminate => Signal::TERM,
                    Stop::Kill => Signal::USR1,
                };
                supervisor.signal(signal).map_err(cannot())?;
                // One that somebody stopped would hear of it when it is continued, that is never.
                supervisor.signal(Signal::CONT).map_err(cannot())?;
            } else {
                orphaned.push(dir);
            }
        }
        if orphaned.is_empty() {
            // The directory may have been removed under its processes.
            let look = Look::new(&self.attempts);
            let strays = look
                .strays(attempt)
                .map_err(failed("read", Path::new("/proc")))?;
            let known = |task: &TaskId| TaskDir::of(&self.attempts, task).path().exists();
            let strays = strays.into_iter().filter(|task| !known(task));
            orphaned.extend(strays.map(|task| TaskDir::of(&self.attempts, &task)));
        }
        self.stop_orphans(&orphaned, stop).map_err(failed(
            "signal the processes of",
            &self.attempts.join(attempt.to_string()),
        ))
    }

    /// Signals processes whose supervisor is gone.
    fn stop_orphans(&self, dirs: &[TaskDir], stop: Stop) -> io::Result<()> {
        /// SIGKILL is repeated against processes that fork meanwhile. What is left after that the kernel cannot end
        /// yet; the attempt stays orphaned, and the order is repeated.
        const KILLS: u32 = 10;
        const PAUSE: Duration = Duration::from_millis(10);
        if dirs.is_empty() {
            return Ok(());
        }
        let (signal, rounds) = match stop {
            Stop::Terminate => (Signal::TERM, 1),
            Stop::Kill => (Signal::KILL, KILLS),
        };
        for round in 0..rounds {
            if round > 0 {
                thread::sleep(PAUSE);
            }
            let marked = marked(&self.attempts)?;
            let left: Vec<&Process> = dirs
                .iter()
                .filter_map(|dir| marked.get(dir.path()))
                .flatten()
                .collect();
            if left.is_empty() {
                break;
            }
            for process in left {
                process.signal(signal)?;
            }
        }
        Ok(())
    }
}

fn node_of<'a>(task: &TaskAllocation, nodes: &'a [NodeSpec]) -> Result<&'a NodeSpec, BackendError> {
    nodes
        .iter()
        .find(|node| node.name == task.node)
        .ok_or_else(|| BackendError::UnknownNode(task.node.to_string()))
}

/// The directory of all attempts below a root, made where it is not there.
pub(crate) fn attempts_dir(root: &Path) -> Result<PathBuf, BackendError> {
    let attempts = root.join("attempts");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&attempts)
        .map_err(failed("create", &attempts))?;
    // Tasks are told by their directory, so it needs one spelling.
    fs::canonicalize(&attempts).map_err(failed("open", &attempts))
}

pub(crate) fn failed(
    verb: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> BackendError + use<> {
    let path = path.display().to_string();
    move |source| BackendError::Io { verb, path, source }
}
