//! Why a plan can't be made. Each says what contradicts what, and what to change.

use thiserror::Error;

/// Why a plan can't be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No model has that name.
    #[error("no model is called `{name}`; the nearest are {}", .nearest.join(", "))]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// What is near.
        nearest: Vec<String>,
    },
    /// No GPU type has that name.
    #[error("no GPU type is called `{name}`; the nearest are {}", .nearest.join(", "))]
    UnknownGpu {
        /// What was asked for.
        name: String,
        /// What is near.
        nearest: Vec<String>,
    },
    /// The degrees of parallelism don't divide the GPUs.
    #[error("{gpus} GPUs can't be split into replicas of {} (tensor {tp} x pipeline {pp} x context {cp})", tp * pp * cp)]
    Layout {
        /// GPUs of the job.
        gpus: u64,
        /// Tensor parallelism.
        tp: u64,
        /// Pipeline stages.
        pp: u64,
        /// Context parallelism.
        cp: u64,
    },
    /// More pipeline stages than layers.
    #[error("{pp} pipeline stages are more than the model's {layers} layers")]
    Stages {
        /// Pipeline stages.
        pp: u64,
        /// Layers.
        layers: u64,
    },
    /// Experts can't be split evenly.
    #[error("{experts} experts can't be split over {ep} ranks")]
    Experts {
        /// Expert parallelism.
        ep: u64,
        /// Experts of a layer.
        experts: u64,
    },
    /// A step without a token.
    #[error("a step has no tokens: {sequence} a sequence, {micro} sequences, {accumulation} times")]
    Empty {
        /// Tokens of a sequence.
        sequence: u64,
        /// Micro-batch.
        micro: u64,
        /// Accumulation.
        accumulation: u64,
    },
}

impl PlanError {
    /// Its code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownModel { .. } => "AP0720",
            Self::UnknownGpu { .. } => "AP0721",
            Self::Layout { .. } => "AP0722",
            Self::Stages { .. } => "AP0723",
            Self::Experts { .. } => "AP0724",
            Self::Empty { .. } => "AP0725",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::UnknownModel { .. } => {
                "give one of these, or its `config.json` with `--model path/to/config.json`".into()
            }
            Self::UnknownGpu { .. } => "give one of these, or a name as the driver tells it".into(),
            Self::Layout { tp, pp, cp, .. } => format!(
                "ask for a multiple of {} GPUs, or lower one of the three",
                tp * pp * cp
            ),
            Self::Stages { layers, .. } => format!("ask for at most {layers} stages"),
            Self::Experts { experts, .. } => format!("ask for a divisor of {experts}"),
            Self::Empty { .. } => "each has to be at least 1".into(),
        }
    }
}
