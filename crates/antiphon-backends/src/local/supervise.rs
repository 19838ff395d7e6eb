//! The supervisor of one task: starts its command, ends all its processes when told to, and writes down how it ended
//! when none is left. Decides nothing about the job, and needs the server only to hear that its attempt is current.
//!
//! It is a process of its own because a task has to outlive the server, and a small one (no runtime, one thread)
//! because there is one for every task. As a child subreaper it becomes the parent of every orphan below it. That
//! makes one question exact that `/proc` cannot answer without races: it has no child left if and only if no process
//! of the task is left, in whatever session or process group they hid.
//!
//! On a node that the server cannot reach, orders come as a file, and SIGURG, which does nothing to whoever else gets it,
//! says that there is one.

mod node_check;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use antiphon_types::{Exit, ExitClass};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, setsid, wait};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGURG, SIGUSR1};

use super::classify::{TAIL_BYTES, classify, printable};
use super::command;
use super::process::{Process, boot_id, descendants};
use super::secrets;
use super::task_dir::{self, Check, ProcessFile, Reserve, TaskDir, TaskFile};
use crate::trust;

/// What the supervisor exits with where another one has the task: nothing is wrong, and nothing was started.
pub(crate) const TAKEN: u8 = 75;

/// How long processes that outlive the command have between SIGTERM and SIGKILL, where nobody asked for a stop.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// The longest wait for one answer of the server.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// The longest wait for the server to take the news of the end. It is a hint: the status is on disk by then.
const HINT_WAIT: Duration = Duration::from_secs(2);

/// Of each direction of a connection: both bodies and both heads are a few hundred bytes, and what the client takes by
/// default, 128 KiB, costs a page fault for every 4 KiB of it.
const BUFFER_BYTES: usize = 4 * 1_024;

/// The file in which orders are left for a supervisor that the server cannot signal.
pub(crate) const ORDER_FILE: &str = "order.json";

/// How often a supervisor looks for such an order by itself, where no signal told it to.
const ORDER_EVERY: Duration = Duration::from_secs(5);

/// How many characters say why a command could not be started: a search path is long.
const UNSTARTABLE_CHARS: usize = 1_000;

/// Supervises the task in this directory until none of its processes is left.
///
/// Meant to be the whole of a process: it leaves its session, becomes a child subreaper, takes over the handling of
/// signals and reaps every child.
#[must_use]
pub fn run(task_dir: &Path) -> ExitCode {
    run_placed(task_dir, Placed::default())
}

/// The same for a task that another system has put on this node.
pub(crate) fn run_placed(task_dir: &Path, placed: Placed) -> ExitCode {
    match supervise(TaskDir::new(task_dir.to_owned()), placed) {
        Ok(Supervised::Ended) => ExitCode::SUCCESS,
        Ok(Supervised::Taken) => ExitCode::from(TAKEN),
        Err(error) => {
            note(&format!("cannot supervise: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// What is known of a task only on its node.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// Variables on top of those in `task.json`.
    pub(crate) environment: BTreeMap<String, String>,
    /// The GPUs that the task was given, as the node counts them.
    pub(crate) gpus: Vec<u32>,
    /// Why the node cannot run the task, if so.
    pub(crate) unfit: Option<String>,
    /// The directory in which orders are left, where the server does not signal supervisors.
    pub(crate) orders: Option<PathBuf>,
}

/// What is to become of a task's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
}

enum Supervised {
    Ended,
    /// Another supervisor has the task, or had it.
    Taken,
}

/// The signals that mean something to a supervisor.
struct Signals {
    wake: UnixStream,
    /// SIGTERM has come: every process is to be asked to end.
    terminate: Arc<AtomicBool>,
    /// SIGUSR1 has come: every process is to be killed.
    kill: Arc<AtomicBool>,
    /// Where orders are left that come by no signal.
    orders: Option<PathBuf>,
}

fn supervise(dir: TaskDir, placed: Placed) -> io::Result<Supervised> {
    // Out of the server's session and process group, so that neither its terminal nor its end reaches the task. Fails
    // only where it leads a group already, which is just as good.
    let _ = setsid();
    set_child_subreaper(Some(getpid()))?;
    let signals = Signals::install(placed.orders)?;

    let Some(_lock) = dir.lock()? else {
        return Ok(Supervised::Taken);
    };
    // Under the lock: whoever held it before has either written this or started nothing.
    if dir.supervisor()?.is_some() || dir.exit()?.is_some() {
        return Ok(Supervised::Taken);
    }
    let mut task = dir
        .task()?
        .ok_or_else(|| io::Error::other("task.json is not there"))?;
    task.environment.extend(placed.environment);
    let reserve = dir.reserve_exit()?;
    let boot = boot_id()?;
    dir.write_supervisor(&ProcessFile {
        process: find(getpid().as_raw_nonzero().get())?,
        boot: boot.clone(),
        gpus: placed.gpus,
    })?;

    signals.take_order();
    let unfit = placed.unfit.map(|evidence| Exit::Unfit { evidence });
    let refusal = match refused(&task, &signals).or(unfit) {
        Some(exit) => Some(exit),
        None => node_check::unfit(&task, &dir, &signals)?,
    };
    let exit = match refusal {
        Some(exit) => exit,
        None => match start(&task, &dir.output()) {
            Ok(main) => {
                let running = find(main).and_then(|process| {
                    let boot = boot.clone();
                    dir.write_process(&ProcessFile {
                        process,
                        boot,
                        gpus: Vec::new(),
                    })
                });
                if let Err(error) = running {
                    // Costs only the report of the start; the command runs.
                    note(&format!("cannot write process.json: {error}"));
                }
                let status = attend(main, &task, &signals)?;
                exit_of(status, &dir, signals.terminate.load(Ordering::SeqCst))
            }
            Err(error) => Exit::Unstartable {
                error: printable(&error, UNSTARTABLE_CHARS),
            },
        },
    };
    write_exit(&reserve, &exit)?;
    if let Some(check) = &task.check {
        // Its answer has no body.
        if let Err(error) = post(check, &task, "end", &End {}, HINT_WAIT) {
            note(&format!("the server did not take the end: {error}"));
        }
    }
    Ok(Supervised::Ended)
}

/// Why the command must not be started, if so.
fn refused(task: &TaskFile, signals: &Signals) -> Option<Exit> {
    const PAUSE_FIRST: Duration = Duration::from_millis(50);
    const PAUSE_MAX: Duration = Duration::from_secs(2);

    let Some(check) = &task.check else {
        return signals.stopped_before_the_start();
    };
    let give_up = Instant::now() + Duration::from_millis(check.give_up.as_millis());
    let pid = getpid().as_raw_nonzero().get();
    let mut pause = PAUSE_FIRST;
    loop {
        let left = give_up.saturating_duration_since(Instant::now());
        let wait = ANSWER_WAIT.min(left);
        let answer = post(check, task, "start", &Start { pid }, wait)
            .and_then(|mut body| body.read_json::<Started>());
        if let Some(exit) = signals.stopped_before_the_start() {
            return Some(exit);
        }
        match answer {
            Ok(Started { current: true }) => return None,
            Ok(Started { current: false }) => return Some(Exit::Superseded),
            // Any other answer is one of a server that is starting, or of something else at its port: no evidence.
            Err(error) => note(&format!("no answer to the launch check: {error}")),
        }
        if Instant::now() + pause >= give_up {
            return Some(Exit::Unreachable);
        }
        signals.wait(Some(pause));
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Starts the task's command, with its secrets.
fn start(task: &TaskFile, output: &Path) -> Result<i32, String> {
    let mut environment = task.environment.clone();
    environment.extend(secrets::read(&task.secrets)?);
    spawn(&task.command, &task.workdir, &environment, output)
}

/// Starts a command and says its pid, or why it cannot be started.
fn spawn(
    command: &[String],
    workdir: &str,
    environment: &BTreeMap<String, String>,
    path: &Path,
) -> Result<i32, String> {
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .and_then(|output| Ok((output.try_clone()?, output)));
    let (stdout, stderr) =
        output.map_err(|error| format!("cannot open `{}`: {error}", path.display()))?;
    let (name, arguments) = command.split_first().ok_or("the command is empty")?;
    let search = command::search_path(environment);
    let program = command::resolve(name, workdir, &search)
        .map_err(|missing| format!("cannot start `{name}`: not found{missing}"))?;
    let child = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .envs(environment)
        .current_dir(workdir)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        // Scripts end their helpers with `kill 0`: that must not reach the supervisor.
        .process_group(0)
        .spawn()
        .map_err(|error| {
            let program = program.display();
            format!("cannot start `{program}` in `{workdir}`: {error}")
        })?;
    // The handle is dropped: `attend` reaps whatever child ends, this one too.
    i32::try_from(child.id()).map_err(|_| "the kernel gave a pid that is none".to_owned())
}

/// Waits until neither the command nor any descendant is left, and says how the command ended.
fn attend(main: i32, task: &TaskFile, signals: &Signals) -> io::Result<WaitStatus> {
    /// SIGKILL is repeated against processes that fork faster than they are found, and against ones that the kernel
    /// cannot end yet.
    const KILL_PAUSE_FIRST: Duration = Duration::from_millis(10);
    const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

    let mut ended: Option<WaitStatus> = None;
    let mut asked_at: Option<Instant> = None;
    let mut kill_at: Option<Instant> = None;
    let mut kill_pause = KILL_PAUSE_FIRST;
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == main => {
                    ended = Some(status);
                }
                Ok(Some(_)) | Err(Errno::INTR) => (),
                Ok(None) => break,
                Err(Errno::CHILD) => {
                    return ended.ok_or_else(|| io::Error::other("the command was never reaped"));
                }
                Err(error) => return Err(error.into()),
            }
        }

        // Asked once only: many trainers take a second SIGTERM as "do not even save", and a process that a handler
        // started to save with must not be hit at all.
        if signals.terminate.load(Ordering::SeqCst) && asked_at.is_none() {
            asked_at = Some(Instant::now());
            signal_all(Signal::TERM);
        }
        if ended.is_some() && kill_at.is_none() {
            kill_at = Some(match asked_at {
                // The launcher went first, but a trainer may still save: it has the whole grace.
                Some(at) => at + Duration::from_millis(task.grace.as_millis()),
                None => {
                    asked_at = Some(Instant::now());
                    signal_all(Signal::TERM);
                    Instant::now() + LEFTOVER_GRACE
                }
            });
        }

        let now = Instant::now();
        let killing =
            signals.kill.load(Ordering::SeqCst) || kill_at.is_some_and(|kill_at| kill_at <= now);
        if killing {
            signal_all(Signal::KILL);
            signals.wait(Some(kill_pause));
            kill_pause = KILL_PAUSE_MAX.min(kill_pause * 2);
        } else {
            signals.wait(kill_at.map(|kill_at| kill_at - now));
        }
    }
}

/// Sends a signal to every descendant. What cannot be signaled now is met again by a repetition or by its grace.
fn signal_all(signal: Signal) {
    match descendants(getpid().as_raw_nonzero().get()) {
        Ok(processes) => {
            for process in processes {
                if let Err(error) = process.signal(signal) {
                    note(&format!("cannot signal {}: {error}", process.pid));
                }
            }
        }
        Err(error) => note(&format!("cannot read /proc: {error}")),
    }
}

/// How the command ended. Exit 0 after SIGTERM says that it saved and left, not that it had finished: the signal may have
/// come from a shutdown of the machine, of which the server knows nothing.
fn exit_of(status: WaitStatus, dir: &TaskDir, terminated: bool) -> Exit {
    if status.exit_status() == Some(0) {
        return Exit::Code {
            code: 0,
            class: terminated.then_some(ExitClass::Preempted),
            evidence: String::new(),
        };
    }
    let tail = tail(&dir.output()).unwrap_or_else(|error| {
        note(&format!("cannot read the output: {error}"));
        Vec::new()
    });
    let (class, evidence) = classify(&tail);
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code {
            code,
            class,
            evidence,
        },
        (None, Some(signal)) => Exit::Signal {
            signal,
            class,
            evidence,
        },
        // Waits are made without asking for stops and continuations, so nothing else is reported.
        (None, None) => Exit::Lost {
            evidence: format!("the kernel reported status {status:?}"),
        },
    }
}

fn tail(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    // Bounded: a process may still be writing to a file that somebody else holds open.
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// Writes the status, patiently: without it the end would have to be reported as lost.
fn write_exit(reserve: &Reserve, exit: &Exit) -> io::Result<()> {
    const TRIES: u32 = 5;
    for _ in 1..TRIES {
        match reserve.write_exit(exit) {
            Ok(()) => return Ok(()),
            Err(error) => note(&format!("cannot write exit.json: {error}")),
        }
        thread::sleep(Duration::from_secs(1));
    }
    reserve.write_exit(exit)
}

fn find(pid: i32) -> io::Result<Process> {
    // The command may have ended already. It is a zombie until `attend` reaps it, so its pid is not another's.
    Ok(Process::find(pid)?.unwrap_or(Process {
        pid,
        start_ticks: 0,
    }))
}

/// Writes a line to stderr, which is the task's `supervisor.log`.
fn note(text: &str) {
    // Nowhere to complain where even this fails.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Body of `POST {url}/v1/attempts/{attempt}/tasks/{role}.{index}/start`.
#[derive(Serialize)]
struct Start {
    /// The supervisor's.
    pid: i32,
}

/// Its answer.
#[derive(Deserialize)]
struct Started {
    current: bool,
}

/// Body of `POST .../end`: empty, the server reads the status where it is durable.
#[derive(Serialize)]
struct End {}

fn post<B: Serialize>(
    Check { url, token, ca, .. }: &Check,
    task: &TaskFile,
    what: &str,
    body: &B,
    wait: Duration,
) -> Result<ureq::Body, ureq::Error> {
    let antiphon_types::TaskId {
        attempt,
        role,
        index,
    } = &task.task;
    let url = url.trim_end_matches('/');
    let tls = trust::of_client(ca.as_deref());
    let tls = tls.map_err(|error| ureq::Error::Io(io::Error::other(error.to_string())))?;
    // No proxy and no redirect: the token is for the server alone.
    let agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(wait))
        .proxy(None)
        .max_redirects(0)
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .build()
        .new_agent();
    agent
        .post(format!(
            "{url}/v1/attempts/{attempt}/tasks/{role}.{index}/{what}"
        ))
        .header("authorization", format!("Bearer {token}"))
        .send_json(body)
        .map(ureq::http::Response::into_body)
}

impl Signals {
    /// Handlers, not "ignore": a command would inherit that, and Python, for one, would then never see Ctrl-C.
    fn install(orders: Option<PathBuf>) -> io::Result<Self> {
        let (wake, write) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let terminate = Arc::new(AtomicBool::new(false));
        let kill = Arc::new(AtomicBool::new(false));
        // Flags first: who is woken finds them set.
        signal_hook::flag::register(SIGTERM, Arc::clone(&terminate))?;
        signal_hook::flag::register(SIGUSR1, Arc::clone(&kill))?;
        for signal in [SIGTERM, SIGUSR1, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGURG] {
            signal_hook::low_level::pipe::register(signal, write.try_clone()?)?;
        }
        Ok(Self {
            wake,
            terminate,
            kill,
            orders,
        })
    }

    /// Takes up an order that was left in a file.
    fn take_order(&self) {
        let Some(dir) = &self.orders else { return };
        match task_dir::read::<Order>(dir, ORDER_FILE) {
            Ok(None) => (),
            Ok(Some(Order::Terminate)) => self.terminate.store(true, Ordering::SeqCst),
            Ok(Some(Order::Kill)) => self.kill.store(true, Ordering::SeqCst),
            Err(error) => note(&format!("cannot read an order: {error}")),
        }
    }

    /// Waits until a signal comes, or for so long.
    fn wait(&self, limit: Option<Duration>) {
        let limit = match &self.orders {
            Some(_) => Some(limit.map_or(ORDER_EVERY, |limit| limit.min(ORDER_EVERY))),
            None => limit,
        };
        let limit = limit.map(|limit| Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        // An error means that a signal interrupted the wait, or that the next look comes early.
        let _ = poll(
            &mut [PollFd::new(&self.wake, PollFlags::IN)],
            limit.as_ref(),
        );
        let mut drain = [0; 64];
        while (&self.wake).read(&mut drain).is_ok_and(|bytes| bytes > 0) {}
        self.take_order();
    }

    fn stopped_before_the_start(&self) -> Option<Exit> {
        let signal = if self.kill.load(Ordering::SeqCst) {
            Signal::KILL
        } else if self.terminate.load(Ordering::SeqCst) {
            Signal::TERM
        } else {
            return None;
        };
        Some(Exit::Signal {
            signal: signal.as_raw(),
            class: None,
            evidence: "stopped before its command was started".to_owned(),
        })
    }
}
