//! The directory of a task and the files in it, which outlive both server and supervisor. Judges none of them.
//!
//! `ROOT/attempts/job-42.3/trainer.0/` holds, in the order in which they appear:
//!
//! | file | written by | says |
//! | --- | --- | --- |
//! | `task.json` | server | what to start; holds tokens, so only the owner may read it |
//! | `supervisor.log` | supervisor | what went wrong with the supervisor itself; mostly empty |
//! | `lock` | supervisor | held (`flock`) for as long as it lives: two supervisors of one task cannot be |
//! | `exit.reserve` | supervisor | the space that `exit.json` will need, so that a full disk loses no status |
//! | `supervisor.json` | supervisor | who supervises; from here on the command may have been started |
//! | `check.log` | check of the node | its stdout and stderr, where the launch asked for one |
//! | `output.log` | command | stdout and stderr |
//! | `process.json` | supervisor | the command runs |
//! | `exit.json` | supervisor | no process of the task is left, and how the command ended |
//!
//! Every JSON file has a `version` and appears whole, by renaming. Only `exit.json` is synced: it has to survive a
//! crash of the machine, whereas after one no process lives, and what the others say about processes is void. They may
//! then be torn, and are read as saying nothing.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use antiphon_types::{AttemptId, Exit, Millis, SecretRef, TaskId, Timestamp};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::process::Process;

/// The version of every file here. A reader refuses a higher one.
const VERSION: u32 = 1;

/// Larger than any `exit.json`: its texts are cut when they are made, and a character takes six bytes at most.
const RESERVE_BYTES: u64 = 16 * 1_024;

/// The directory of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskDir(PathBuf);

/// `task.json`: everything that the supervisor has to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TaskFile {
    pub(crate) task: TaskId,
    pub(crate) command: Vec<String>,
    /// On top of what the supervisor inherits.
    pub(crate) environment: BTreeMap<String, String>,
    /// Where further variables are read just before the command starts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) secrets: BTreeMap<String, SecretRef>,
    pub(crate) workdir: String,
    #[serde(rename = "grace_ms")]
    pub(crate) grace: Millis,
    /// The port at which the role's ranks meet: a launch that is repeated gives late tasks the same one.
    pub(crate) port: u16,
    /// When the launch was decided. An attempt of the same number with another time belongs to a replaced log.
    #[serde(rename = "launched_ms", default)]
    pub(crate) launched: Timestamp,
    /// Whom to ask before the command is started; nobody where the server has no address.
    pub(crate) check: Option<Check>,
    /// What looks at the node before the command is started; nothing where no check was asked for.
    #[serde(default)]
    pub(crate) node_check: Option<NodeCheck>,
}

/// The launch check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Check {
    /// The server, as `http://127.0.0.1:7440`.
    pub(crate) url: String,
    pub(crate) token: String,
    /// Whom to believe that it is the server, where that is none of the system's authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    #[serde(rename = "give_up_ms")]
    pub(crate) give_up: Millis,
}

/// The check of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeCheck {
    pub(crate) command: Vec<String>,
    #[serde(rename = "limit_ms")]
    pub(crate) limit: Millis,
}

/// `supervisor.json` and `process.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessFile {
    pub(crate) process: Process,
    pub(crate) boot: String,
    /// Of a supervisor that another system has started: the GPUs that it gave the task, as the node counts them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gpus: Vec<u32>,
}

/// What stands in a JSON file: a version, then the content.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    content: T,
}

/// The space that `exit.json` will need, taken while there is some.
#[derive(Debug)]
pub(crate) struct Reserve {
    dir: TaskDir,
    file: File,
}

impl TaskDir {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The directory of `task` where attempts lie in `attempts`.
    pub(crate) fn of(attempts: &Path, task: &TaskId) -> Self {
        Self(
            attempts
                .join(task.attempt.to_string())
                .join(format!("{}.{}", task.role, task.index)),
        )
    }

    /// Every task of an attempt that has a directory.
    pub(crate) fn all(attempts: &Path, attempt: AttemptId) -> io::Result<Vec<(TaskId, Self)>> {
        let path = attempts.join(attempt.to_string());
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let task = name
                .to_str()
                .and_then(|name| format!("{attempt}/{name}").parse().ok());
            if let Some(task) = task {
                found.push((task, Self(path.join(name))));
            }
        }
        found.sort();
        Ok(found)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn output(&self) -> PathBuf {
        self.0.join("output.log")
    }

    pub(crate) fn check_log(&self) -> PathBuf {
        self.0.join("check.log")
    }

    pub(crate) fn supervisor_log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// Creates it, for its owner alone: outputs and tokens are nobody else's business.
    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
    }

    /// What to start; `None` also where the file is torn.
    pub(crate) fn task(&self) -> io::Result<Option<TaskFile>> {
        match self.read("task.json") {
            Err(error) if is_torn(&error) => Ok(None),
            task => task,
        }
    }

    /// Who supervises, or did. A torn signature is one of another boot, whose name is lost: only a crash of the machine
    /// tears files.
    pub(crate) fn supervisor(&self) -> io::Result<Option<ProcessFile>> {
        match self.read("supervisor.json") {
            Err(error) if is_torn(&error) => Ok(Some(ProcessFile {
                process: Process {
                    pid: 0,
                    start_ticks: 0,
                },
                boot: String::new(),
                gpus: Vec::new(),
            })),
            supervisor => supervisor,
        }
    }

    pub(crate) fn process(&self) -> io::Result<Option<ProcessFile>> {
        self.read("process.json")
    }

    pub(crate) fn exit(&self) -> io::Result<Option<Exit>> {
        self.read("exit.json")
    }

    pub(crate) fn write_task(&self, task: &TaskFile) -> io::Result<()> {
        self.write("task.json", task)
    }

    pub(crate) fn write_supervisor(&self, supervisor: &ProcessFile) -> io::Result<()> {
        self.write("supervisor.json", supervisor)
    }

    pub(crate) fn write_process(&self, process: &ProcessFile) -> io::Result<()> {
        self.write("process.json", process)
    }

    /// Takes the task's lock, which is free again when the file is closed or its holder dies; `None` where another
    /// process holds it.
    pub(crate) fn lock(&self) -> io::Result<Option<File>> {
        let file = owners().create(true).open(self.0.join("lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the space for `exit.json`.
    pub(crate) fn reserve_exit(&self) -> io::Result<Reserve> {
        let file = owners()
            .create(true)
            .truncate(true)
            .open(self.0.join("exit.reserve"))?;
        match fallocate(&file, FallocateFlags::empty(), 0, RESERVE_BYTES) {
            Ok(()) => (),
            // Not every file system can; all can be written to.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                file.write_all_at(&[0; RESERVE_BYTES as usize], 0)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Reserve {
            dir: self.clone(),
            file,
        })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        read(&self.0, name)
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> io::Result<()> {
        write(&self.0, name, content)
    }

    /// Whether a process holds the task's lock. Asks for it, so that a supervisor that starts at this moment finds it
    /// taken: only for tasks that nothing starts any more.
    pub(crate) fn is_locked(&self) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(self.0.join("lock")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads a versioned JSON file; `None` where it is not there.
pub(crate) fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    let text = match fs::read(dir.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(&text)?;
    if version > VERSION {
        return Err(io::Error::other(format!(
            "{name} has version {version}, written by a newer antiphon; this one reads up to {VERSION}"
        )));
    }
    let Versioned { content, .. } = serde_json::from_slice(&text)?;
    Ok(Some(content))
}

/// Writes a versioned JSON file, which appears whole.
pub(crate) fn write<T: Serialize>(dir: &Path, name: &str, content: &T) -> io::Result<()> {
    let temporary = dir.join(format!(".{name}.new"));
    owners()
        .create(true)
        .truncate(true)
        .open(&temporary)?
        .write_all(&to_json(content)?)?;
    fs::rename(temporary, dir.join(name))
}

impl Reserve {
    /// Turns the reserve into `exit.json`, durably.
    pub(crate) fn write_exit(&self, exit: &Exit) -> io::Result<()> {
        let text = to_json(exit)?;
        // In place: the blocks are there already, also on a disk that has filled up since.
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_all()?;
        fs::rename(
            self.dir.0.join("exit.reserve"),
            self.dir.0.join("exit.json"),
        )?;
        File::open(&self.dir.0)?.sync_all()
    }
}

/// Whether a file is not the JSON that it was written as. A newer version is whole, and not meant.
fn is_torn(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}

fn owners() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

fn to_json<T: Serialize>(content: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec_pretty(&Versioned {
        version: VERSION,
        content,
    })?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn dir() -> (tempfile::TempDir, TaskDir) {
        let root = tempfile::tempdir().unwrap();
        let task = "job-42.3/trainer.0".parse().unwrap();
        let dir = TaskDir::of(root.path(), &task);
        dir.create().unwrap();
        (root, dir)
    }

    #[test]
    fn the_space_of_the_exit_is_taken_before_it_is_needed() {
        let (_root, dir) = dir();
        let reserve = dir.reserve_exit().unwrap();
        let before = fs::metadata(dir.path().join("exit.reserve")).unwrap();
        assert!(before.blocks() * 512 >= RESERVE_BYTES);
        let exit = Exit::Signal {
            signal: 9,
            class: None,
            evidence: "\u{1}".repeat(200),
        };
        assert!(to_json(&exit).unwrap().len() as u64 <= RESERVE_BYTES);
        reserve.write_exit(&exit).unwrap();
        let after = fs::metadata(dir.path().join("exit.json")).unwrap();
        assert_eq!(before.ino(), after.ino(), "no new file is needed");
        assert_eq!(dir.exit().unwrap(), Some(exit));
    }

    #[test]
    fn the_lock_has_one_holder_and_is_free_after_it() {
        let (_root, dir) = dir();
        let held = dir.lock().unwrap();
        assert!(held.is_some());
        assert!(dir.lock().unwrap().is_none());
        drop(held);
        assert!(dir.lock().unwrap().is_some());
    }

    #[test]
    fn a_file_of_a_newer_version_is_refused_politely() {
        let (_root, dir) = dir();
        fs::write(
            dir.path().join("exit.json"),
            r#"{"version": 2, "verdict": 1}"#,
        )
        .unwrap();
        let error = dir.exit().unwrap_err().to_string();
        assert!(error.contains("newer antiphon"), "{error}");
    }

    #[test]
    fn a_file_torn_by_a_crash_of_the_machine_says_that_there_was_one() {
        let (_root, dir) = dir();
        for torn in ["", "\0\0\0", "{\"version\": 1, \"con"] {
            fs::write(dir.path().join("supervisor.json"), torn).unwrap();
            fs::write(dir.path().join("task.json"), torn).unwrap();
            assert_eq!(dir.supervisor().unwrap().unwrap().boot, "");
            assert_eq!(dir.task().unwrap(), None);
        }
    }

    #[test]
    fn the_first_version_of_every_file_is_still_read() {
        let (_root, dir) = dir();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write(
            "supervisor.json",
            r#"{"version": 1, "content": {"process": {"pid": 7, "start_ticks": 99}, "boot": "b"}}"#,
        );
        write(
            "exit.json",
            r#"{"version": 1, "content": {"code": {"code": 1, "class": "out-of-memory", "evidence": "e"}}}"#,
        );
        write(
            "task.json",
            r#"{"version": 1, "content": {"task": "job-42.3/trainer.0", "command": ["true"], "environment": {},
                "workdir": "/", "grace_ms": 60000, "port": 40001,
                "check": {"url": "http://127.0.0.1:7440", "token": "t", "give_up_ms": 60000}}}"#,
        );
        assert_eq!(dir.supervisor().unwrap().unwrap().process.pid, 7);
        assert!(matches!(
            dir.exit().unwrap(),
            Some(Exit::Code { code: 1, .. })
        ));
        assert_eq!(
            dir.task().unwrap().unwrap().check.unwrap().give_up,
            Millis::from_secs(60)
        );
    }
}
