//! What antiphon asks of a job's own code, and the answer. A per-job ordered log; resent from the trainer's cursor after a rollback.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, DirectiveId, Timestamp};

/// One entry of a job's directive log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directive {
    /// Its place in the job's directive log.
    pub id: DirectiveId,
    /// What to do.
    pub body: DirectiveBody,
    /// The attempt it is for. Compute directives die with it, data directives outlive it.
    pub attempt: Option<AttemptId>,
    /// Why, with numbers.
    pub reason: String,
    /// When it was decided.
    pub at: Timestamp,
    /// The trainer's last word on it.
    pub ack: Option<AckBody>,
}

/// What the trainer should do at its next step boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectiveBody {
    /// Draw samples with these weights from now on, in parts per million by shard; shards not named keep theirs.
    SetWeights {
        /// Weight by shard, in parts per million of its original weight.
        weights: BTreeMap<String, u32>,
    },
    /// Draw nothing from a shard until it is resumed.
    PauseShard {
        /// The shard.
        shard: String,
    },
    /// Draw from a paused shard again.
    ResumeShard {
        /// The shard.
        shard: String,
    },
    /// Save a checkpoint and go on.
    Checkpoint,
    /// Save a checkpoint, acknowledge it and end; a later attempt goes on from there.
    Yield,
    /// Save a checkpoint and end; the job is complete.
    Stop,
}

/// What a directive changes, and therefore how long it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectiveScope {
    /// The data mix: outlives attempts, and is re-applied after a rollback.
    Data,
    /// This attempt's processes: dies with it.
    Compute,
}

impl DirectiveBody {
    /// What the directive changes.
    #[must_use]
    pub const fn scope(&self) -> DirectiveScope {
        match self {
            Self::SetWeights { .. } | Self::PauseShard { .. } | Self::ResumeShard { .. } => {
                DirectiveScope::Data
            }
            Self::Checkpoint | Self::Yield | Self::Stop => DirectiveScope::Compute,
        }
    }

    /// The word that the trainer sees.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SetWeights { .. } => "set_weights",
            Self::PauseShard { .. } => "pause_shard",
            Self::ResumeShard { .. } => "resume_shard",
            Self::Checkpoint => "checkpoint",
            Self::Yield => "yield",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for DirectiveBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::SetWeights { weights } => {
                for (shard, ppm) in weights {
                    write!(f, " {shard}=")?;
                    let (whole, rest) = (ppm / 1_000_000, ppm % 1_000_000);
                    match rest {
                        0 => write!(f, "{whole}")?,
                        _ => write!(f, "{whole}.{}", format!("{rest:06}").trim_end_matches('0'))?,
                    }
                }
                Ok(())
            }
            Self::PauseShard { shard } | Self::ResumeShard { shard } => write!(f, " {shard}"),
            Self::Checkpoint | Self::Yield | Self::Stop => Ok(()),
        }
    }
}

/// A trainer's answer to one directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Which directive.
    pub directive: DirectiveId,
    /// What became of it.
    pub body: AckBody,
}

/// What became of a directive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckBody {
    /// It holds from this slot on.
    Applied {
        /// The first sample position it shapes.
        slot: u64,
    },
    /// The trainer will not.
    Rejected {
        /// Why.
        reason: String,
    },
    /// The trainer tried and could not.
    Failed {
        /// What went wrong.
        error: String,
    },
    /// It came too late.
    Expired,
}
