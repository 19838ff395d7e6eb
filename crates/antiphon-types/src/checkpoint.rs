//! A checkpoint that a trainer has acknowledged: durable, and what a later attempt resumes from. Never antiphon's own state image.

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Bytes, Millis, Timestamp};

/// An acknowledged checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// Optimizer steps it holds.
    pub step: u64,
    /// Where it lies, relative to the job's checkpoint directory or absolute.
    pub path: String,
    /// Its size.
    pub bytes: Bytes,
    /// How long the save took.
    pub save: Millis,
    /// Digest of its manifest, as the trainer states it.
    pub manifest: String,
    /// When the acknowledgement entered the log.
    pub at: Timestamp,
}
