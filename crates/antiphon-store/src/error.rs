//! What can go wrong with a log, told apart by what the caller should do next. It retries nothing.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use crate::Fence;

/// Why a log refused or failed. `place` says which log: a directory or a database.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the log open for writing.
    #[error("the log in `{}` is held by {}", dir.display(), holder(*pid))]
    Locked {
        /// The directory of the log.
        dir: PathBuf,
        /// The process that holds it, when it has said so.
        pid: Option<u32>,
    },
    /// A later writer has taken over.
    #[error("fence {held} is stale: `{owner}` holds fence {current}")]
    Stale {
        /// The fence that was shown.
        held: Fence,
        /// The fence that is accepted.
        current: Fence,
        /// Who holds the current fence.
        owner: String,
    },
    /// The entries do not continue the log.
    #[error("event {got} does not continue the log: the next is {expected}")]
    Gap {
        /// The seq that would have continued it.
        expected: u64,
        /// The seq that was given.
        got: u64,
    },
    /// The image holds events that the log does not.
    #[error("an image at event {image} is ahead of the log, which ends at event {last}")]
    ImageAhead {
        /// The seq of the image.
        image: u64,
        /// The last seq of the log.
        last: u64,
    },
    /// There is no image at this seq.
    #[error("there is no image at event {seq}")]
    NoImage {
        /// The seq that was asked for.
        seq: u64,
    },
    /// There is no log to read.
    #[error("there is no log in `{}`", dir.display())]
    Missing {
        /// The directory that was looked into.
        dir: PathBuf,
    },
    /// The log was opened for reading only.
    #[error("the log in `{}` was opened for reading only", dir.display())]
    ReadOnly {
        /// The directory of the log.
        dir: PathBuf,
    },
    /// The system denies access to the log.
    #[error("access to the log in `{}` is denied while trying to {doing}", dir.display())]
    Permission {
        /// The directory of the log.
        dir: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The error of the system.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The disk or the quota under the log is full.
    #[error("the disk or quota under `{}` is full: could not {doing}", dir.display())]
    DiskFull {
        /// The directory of the log.
        dir: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The error of the system.
        source: Box<dyn Error + Send + Sync>,
    },
    /// What is stored is not what was written.
    #[error("the log in `{place}` is damaged: {what}")]
    Corrupt {
        /// Which log.
        place: String,
        /// What is wrong, and where.
        what: String,
    },
    /// A newer antiphon wrote the log.
    #[error(
        "the log in `{place}` has format {found}, and this antiphon knows formats up to {known}"
    )]
    Newer {
        /// Which log.
        place: String,
        /// The format of the log.
        found: u32,
        /// The newest format that this code reads.
        known: u32,
    },
    /// The bytes are not the encoding of the state that was asked for.
    #[error("a state of {bytes} bytes does not decode: {why}")]
    Undecodable {
        /// The size of the encoded state.
        bytes: usize,
        /// What did not fit.
        why: String,
    },
    /// An earlier write failed, so this one was not tried.
    #[error("the log in `{place}` takes no more writes, since one failed: {cause}")]
    Failed {
        /// Which log.
        place: String,
        /// The first failure.
        cause: String,
    },
    /// The storage failed in another way.
    #[error("the log in `{place}` could not {doing}")]
    Io {
        /// Which log.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// The error of the system.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl StoreError {
    /// Says what to do about it, as one sentence.
    pub fn help(&self) -> String {
        match self {
            Self::Locked { pid: Some(pid), .. } => {
                format!("stop process {pid} first, or give this server another state directory")
            }
            Self::Locked { pid: None, .. } => {
                "stop the other server first, or give this one another state directory".into()
            }
            Self::Stale { owner, .. } => {
                format!("stop writing: `{owner}` leads now; acquire again to take over")
            }
            Self::Gap { .. } | Self::ImageAhead { .. } => {
                "read the last event of the log and go on from there".into()
            }
            Self::NoImage { .. } => "list the images, or replay from event 1".into(),
            Self::Missing { .. } => "check the state directory; `antiphon up` creates a log".into(),
            Self::ReadOnly { .. } => "send the change to the server that holds the log".into(),
            Self::Permission { dir, .. } => {
                let dir = dir.display();
                format!("run as the owner of `{dir}`, or make it and its files this user's own")
            }
            Self::DiskFull { dir, .. } => {
                let dir = dir.display();
                format!("free space under `{dir}` and start again: what was acknowledged is kept")
            }
            Self::Corrupt { .. } => "keep a copy of the state directory, see how far the log reads with `antiphon audit`, \
                 then put back a copy from before; jobs are not touched meanwhile"
                .into(),
            Self::Newer { .. } => "run the antiphon that wrote it, or a newer one".into(),
            Self::Undecodable { .. } => "use an older image, or replay from event 1".into(),
            Self::Failed { .. } => {
                "mend the first failure, then start again: the log is read anew from the disk"
                    .into()
            }
            Self::Io { .. } => {
                "look for the cause in what the system says of the disk, then start \
                 again: what was acknowledged is kept"
                    .into()
            }
        }
    }

    /// Sorts an error of the operating system.
    pub(crate) fn from_io(dir: &Path, doing: &'static str, error: io::Error) -> Self {
        let dir = dir.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                dir,
                doing,
                source: error.into(),
            },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Permission {
                    dir,
                    doing,
                    source: error.into(),
                }
            }
            _ => Self::Io {
                place: dir.display().to_string(),
                doing,
                source: error.into(),
            },
        }
    }
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}
