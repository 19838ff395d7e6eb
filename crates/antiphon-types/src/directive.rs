//! What antiphon asks of a job's own code, and the answer. A per-job ordered log; resent from the trainer's cursor after a rollback.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, DirectiveId, JobId, Millis, Rule, Timestamp};

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
    /// What led to it.
    #[serde(default)]
    pub cause: DirectiveCause,
    /// When it was decided.
    pub at: Timestamp,
    /// The trainer's last word on it.
    pub ack: Option<AckBody>,
}

/// What led to a directive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectiveCause {
    /// The attempt is to end.
    #[default]
    Stop,
    /// A person sent it.
    Person,
    /// A rule asked for it.
    Rule {
        /// Which.
        rule: Rule,
        /// Of what.
        subject: String,
    },
    /// A person took another one back.
    Undo {
        /// That one.
        directive: DirectiveId,
    },
    /// A data job has made samples.
    DataJob {
        /// That job.
        job: JobId,
    },
}

/// What the trainer should do at its next step boundary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DirectiveBody {
    /// Draw samples with these weights from now on; shards not named keep theirs.
    SetWeights {
        /// Weight by shard, in parts per million. Only their ratios count.
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
    /// Draw from a shard that is new, or has more to give.
    AddSamples {
        /// The shard.
        shard: String,
        /// What it serves; probes of the same category judge it.
        category: String,
        /// Where its samples lie.
        path: String,
        /// Its weight, in parts per million.
        weight: u32,
    },
    /// Rows of one micro-step on one task; the global batch stays what it is, by accumulation.
    SetMicroBatch {
        /// Rows; 0 gives the number back to the trainer.
        rows: u32,
    },
    /// Save this often.
    SetCheckpointInterval {
        /// Time from save to save; zero gives it back to the trainer.
        interval: Millis,
    },
    /// Recompute activations instead of keeping them.
    SetRecompute {
        /// Whether.
        on: bool,
    },
    /// Keep the optimizer's state in the memory of the host.
    SetOffload {
        /// Whether.
        on: bool,
    },
    /// Save a checkpoint and go on.
    Checkpoint,
    /// Save everything that the step so far consists of, accumulated gradients included, and go on.
    Snapshot,
    /// Snapshot, and go on with so many ranks.
    Resize {
        /// Ranks from then on.
        ranks: u32,
    },
    /// Give one task this part of what it would get of each batch; the others share the rest, the batch stays whole.
    Drain {
        /// Its rank.
        task: u32,
        /// Thousandths of an equal part; 1,000 restores it.
        share_permille: u32,
        /// For so many steps; 0 for as long as nothing else is said.
        steps: u32,
    },
    /// Go back to the newest checkpoint of this step or before.
    Rollback {
        /// The step.
        step: u64,
    },
    /// Collect the samples of a category that the model does worst on.
    GatherHardExamples {
        /// The category.
        category: String,
        /// How many.
        count: u32,
    },
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
            Self::SetWeights { .. }
            | Self::PauseShard { .. }
            | Self::ResumeShard { .. }
            | Self::AddSamples { .. } => DirectiveScope::Data,
            Self::SetMicroBatch { .. }
            | Self::SetCheckpointInterval { .. }
            | Self::SetRecompute { .. }
            | Self::SetOffload { .. }
            | Self::Checkpoint
            | Self::Snapshot
            | Self::Resize { .. }
            | Self::Drain { .. }
            | Self::Rollback { .. }
            | Self::GatherHardExamples { .. }
            | Self::Yield
            | Self::Stop => DirectiveScope::Compute,
        }
    }

    /// Whether the trained model may differ afterwards by more than rounding.
    #[must_use]
    pub const fn changes_training(&self) -> bool {
        match self {
            Self::SetWeights { .. }
            | Self::PauseShard { .. }
            | Self::ResumeShard { .. }
            | Self::AddSamples { .. }
            | Self::Rollback { .. }
            | Self::GatherHardExamples { .. }
            | Self::Stop => true,
            Self::SetMicroBatch { .. }
            | Self::SetCheckpointInterval { .. }
            | Self::SetRecompute { .. }
            | Self::SetOffload { .. }
            | Self::Checkpoint
            | Self::Snapshot
            | Self::Resize { .. }
            | Self::Drain { .. }
            | Self::Yield => false,
        }
    }

    /// The word that the trainer sees.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SetWeights { .. } => "set_weights",
            Self::PauseShard { .. } => "pause_shard",
            Self::ResumeShard { .. } => "resume_shard",
            Self::AddSamples { .. } => "add_samples",
            Self::SetMicroBatch { .. } => "set_micro_batch",
            Self::SetCheckpointInterval { .. } => "set_checkpoint_interval",
            Self::SetRecompute { .. } => "set_recompute",
            Self::SetOffload { .. } => "set_offload",
            Self::Checkpoint => "checkpoint",
            Self::Snapshot => "snapshot",
            Self::Resize { .. } => "resize",
            Self::Drain { .. } => "drain",
            Self::Rollback { .. } => "rollback",
            Self::GatherHardExamples { .. } => "gather_hard_examples",
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
            Self::AddSamples { shard, path, .. } => write!(f, " {shard} from {path}"),
            Self::SetMicroBatch { rows } => write!(f, " {rows}"),
            Self::SetCheckpointInterval { interval } => write!(f, " {interval}"),
            Self::SetRecompute { on } | Self::SetOffload { on } => {
                f.write_str(if *on { " on" } else { " off" })
            }
            Self::Resize { ranks } => write!(f, " to {ranks} ranks"),
            Self::Drain {
                task,
                share_permille,
                steps,
            } => {
                write!(f, " task {task} to {share_permille}/1000")?;
                match steps {
                    0 => Ok(()),
                    1 => f.write_str(" for one step"),
                    _ => write!(f, " for {steps} steps"),
                }
            }
            Self::Rollback { step } => write!(f, " to step {step}"),
            Self::GatherHardExamples { category, count } => write!(f, " {count} of {category}"),
            Self::Checkpoint | Self::Snapshot | Self::Yield | Self::Stop => Ok(()),
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
