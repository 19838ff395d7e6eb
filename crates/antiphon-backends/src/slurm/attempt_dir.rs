//! The directory of an attempt on Slurm, beside the directories of its tasks: what was submitted, and what is ordered. It
//! lies on a file system that the server and all nodes share. Judges none of it.
//!
//! | file | written by | says |
//! | --- | --- | --- |
//! | `attempt.json` | server | which tasks run where, so that a supervisor finds its own; from here on Slurm may have the job |
//! | `slurm.json` | server | Slurm's number of the job |
//! | `slurm.log` | Slurm | what the batch script and `srun` said; mostly empty |
//! | `order.json` | server | SIGTERM or SIGKILL, for supervisors to give |

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use antiphon_types::{AttemptId, Timestamp};
use serde::{Deserialize, Serialize};

use super::queue::{Label, SlurmJobId};
use crate::local::supervise::{ORDER_FILE, Order};
use crate::local::task_dir::{self, TaskDir};

/// `attempt.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AttemptFile {
    /// When the launch was decided: tells histories of the log apart.
    #[serde(rename = "launched_ms")]
    pub(super) launched: Timestamp,
    /// Whether the batch script is the supervisor itself, so that there is no step to signal.
    pub(super) direct: bool,
    pub(super) tasks: Vec<PlacedTask>,
}

/// A task, as its supervisor has to find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PlacedTask {
    pub(super) role: String,
    pub(super) index: u32,
    pub(super) node: String,
    /// Those that the kernel booked; Slurm gives as many, not always these.
    pub(super) gpus: Vec<u32>,
}

/// The directory of one attempt.
#[derive(Debug, Clone)]
pub(super) struct AttemptDir {
    attempts: PathBuf,
    attempt: AttemptId,
    path: PathBuf,
}

impl AttemptDir {
    pub(super) fn of(attempts: &Path, attempt: AttemptId) -> Self {
        Self {
            attempts: attempts.to_owned(),
            attempt,
            path: attempts.join(attempt.to_string()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("slurm.log")
    }

    pub(super) fn task(&self, task: &PlacedTask) -> TaskDir {
        TaskDir::of(
            &self.attempts,
            &antiphon_types::TaskId {
                attempt: self.attempt,
                role: task.role.clone(),
                index: task.index,
            },
        )
    }

    pub(super) fn attempt_file(&self) -> io::Result<Option<AttemptFile>> {
        task_dir::read(&self.path, "attempt.json")
    }

    pub(super) fn write_attempt(&self, file: &AttemptFile) -> io::Result<()> {
        task_dir::write(&self.path, "attempt.json", file)
    }

    /// Slurm has refused the job: it was never there.
    pub(super) fn remove_attempt(&self) -> io::Result<()> {
        fs::remove_file(self.path.join("attempt.json"))
    }

    pub(super) fn job(&self) -> io::Result<Option<SlurmJobId>> {
        Ok(task_dir::read(&self.path, "slurm.json")?.map(SlurmJobId))
    }

    pub(super) fn write_job(&self, job: SlurmJobId) -> io::Result<()> {
        task_dir::write(&self.path, "slurm.json", &job.0)
    }

    pub(super) fn order(&self) -> io::Result<Option<Order>> {
        task_dir::read(&self.path, ORDER_FILE)
    }

    pub(super) fn write_order(&self, order: Order) -> io::Result<()> {
        task_dir::write(&self.path, ORDER_FILE, &order)
    }

    /// The last thing that the batch script or `srun` said.
    pub(super) fn last_words(&self) -> Option<String> {
        const SHOWN: usize = 200;
        let text = fs::read(self.log()).ok()?;
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(line.trim().chars().take(SHOWN).collect())
    }

    /// How Slurm jobs of this attempt are known.
    pub(super) fn label(&self, launched: Timestamp, owner: &str) -> Label {
        Label {
            attempt: self.attempt,
            launched,
            owner: owner.to_owned(),
        }
    }
}
