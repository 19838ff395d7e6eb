//! What rules a step, in numbers, and what to do about it.

/// What rules a step, with its milliseconds of the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bottleneck {
    /// Products of matrices, at this share of the data sheet's rate.
    Matmul {
        /// Milliseconds.
        ms: f64,
        /// Share of the data sheet's rate.
        reached: f64,
    },
    /// Attention.
    Attention {
        /// Milliseconds.
        ms: f64,
    },
    /// Memory bandwidth.
    Bandwidth {
        /// Milliseconds.
        ms: f64,
        /// Whether blocks are compiled already.
        compiled: bool,
    },
    /// The host starts kernels too slowly.
    Host {
        /// Milliseconds.
        ms: f64,
    },
    /// Traffic of one kind of parallelism.
    Communication {
        /// Milliseconds.
        ms: f64,
        /// Which.
        dimension: Dimension,
        /// Its ranks.
        ranks: u64,
        /// Of them, how many in one domain.
        inside: u64,
    },
    /// Idle pipeline stages.
    Bubble {
        /// Milliseconds.
        ms: f64,
        /// Stages.
        stages: u64,
        /// Micro-batches of a step.
        micro_batches: u64,
    },
    /// The update of the weights.
    Optimizer {
        /// Milliseconds.
        ms: f64,
    },
    /// Host memory or drives.
    Offload {
        /// Milliseconds.
        ms: f64,
    },
    /// Generating answers.
    Generation {
        /// Milliseconds.
        ms: f64,
    },
    /// The fixed part of a step: so little work is done in it.
    Overhead {
        /// Milliseconds.
        ms: f64,
    },
}

/// A kind of parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Tensor.
    Tensor,
    /// Data.
    Data,
    /// Context.
    Context,
    /// Expert.
    Expert,
    /// Pipeline.
    Pipeline,
}

impl Bottleneck {
    /// Milliseconds of it in a step.
    #[must_use]
    pub const fn ms(&self) -> f64 {
        match *self {
            Self::Matmul { ms, .. }
            | Self::Attention { ms }
            | Self::Bandwidth { ms, .. }
            | Self::Host { ms }
            | Self::Communication { ms, .. }
            | Self::Bubble { ms, .. }
            | Self::Optimizer { ms }
            | Self::Offload { ms }
            | Self::Generation { ms }
            | Self::Overhead { ms } => ms,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn help(&self) -> String {
        match *self {
            Self::Matmul { reached, .. } if reached < 0.5 => format!(
                "products reach {:.0} % of the data sheet: recompute less, or make micro-batches larger so that matrices are",
                100.0 * reached
            ),
            Self::Matmul { reached, .. } => format!(
                "products reach {:.0} % of the data sheet: only lower precision (fp8) or fewer parameters make it faster",
                100.0 * reached
            ),
            Self::Attention { .. } => {
                "use a newer attention kernel, shorter sequences, or do not attend across packed documents".into()
            }
            Self::Bandwidth { compiled: false, .. } => {
                "compile the blocks, or use fused norms, rotary embedding, activation and loss".into()
            }
            Self::Bandwidth { compiled: true, .. } => {
                "recompute less, and use a fused loss; what is left moves with memory bandwidth alone".into()
            }
            Self::Host { .. } => {
                "make micro-batches larger or pack sequences; compile the blocks or capture them in graphs".into()
            }
            Self::Communication {
                dimension,
                ranks,
                inside,
                ..
            } => match dimension {
                Dimension::Tensor if ranks > inside => {
                    format!("keep tensor parallelism within the {inside} GPUs of a fast link, not over {ranks}")
                }
                Dimension::Tensor => "lower tensor parallelism, and recompute or shard instead to fit".into(),
                Dimension::Data => {
                    "make micro-batches larger, accumulate before weights move, or shard within a node only".into()
                }
                Dimension::Context => "lower context parallelism: a rank's sequence is too short to hide the traffic".into(),
                Dimension::Expert if ranks > inside => {
                    format!("keep expert parallelism within the {inside} GPUs of a fast link, not over {ranks}")
                }
                Dimension::Expert => "overlap the exchange of tokens, or send them in 8 bits".into(),
                Dimension::Pipeline => "use fewer chunks a stage, or larger micro-batches".into(),
            },
            Self::Bubble {
                stages,
                micro_batches,
                ..
            } => format!(
                "use more micro-batches than {micro_batches} for {stages} stages, more chunks a stage, or a zero-bubble schedule"
            ),
            Self::Optimizer { .. } => "shard the states, use a fused or 8-bit optimizer, or a larger batch".into(),
            Self::Offload { .. } => "keep on the GPU what fits, or accumulate more micro-batches before weights move".into(),
            Self::Generation { .. } => {
                "cap the length of answers, generate beside training on weights a step old, or give generation more GPUs".into()
            }
            Self::Overhead { .. } => "the step is too small for its fixed part: use a larger batch".into(),
        }
    }
}
