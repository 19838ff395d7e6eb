//! What a step is spent on.

/// Milliseconds of a step on the slowest pipeline stage, each part what is not hidden behind another.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Parts {
    /// Products of matrices.
    pub matmul: f64,
    /// Attention's scores and values.
    pub attention: f64,
    /// Kernels that only move bytes.
    pub bandwidth: f64,
    /// Waiting for the host to start kernels.
    pub host: f64,
    /// Tensor-parallel collectives.
    pub tensor: f64,
    /// Gathers, scatters and sums between data-parallel ranks.
    pub data: f64,
    /// Blocks of keys and values between context-parallel ranks.
    pub context: f64,
    /// Tokens between expert-parallel ranks.
    pub expert: f64,
    /// Activations between pipeline stages.
    pub pipeline: f64,
    /// Stages that wait for others.
    pub bubble: f64,
    /// The update of the weights on the GPU.
    pub optimizer: f64,
    /// Host memory and drives.
    pub offload: f64,
    /// Generating answers, where the task needs that.
    pub generation: f64,
    /// Passes that only score answers: reference, reward, old policy.
    pub scoring: f64,
    /// New weights for what generates.
    pub refit: f64,
    /// Waiting for the slowest rank.
    pub jitter: f64,
    /// Clipping, logging, the loader's hand-over.
    pub rest: f64,
}

impl Parts {
    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.named().into_iter().map(|(_, value)| value).sum()
    }

    /// Each with its name.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, f64); 17] {
        [
            ("matmul", self.matmul),
            ("attention", self.attention),
            ("bandwidth", self.bandwidth),
            ("host", self.host),
            ("tensor", self.tensor),
            ("data", self.data),
            ("context", self.context),
            ("expert", self.expert),
            ("pipeline", self.pipeline),
            ("bubble", self.bubble),
            ("optimizer", self.optimizer),
            ("offload", self.offload),
            ("generation", self.generation),
            ("scoring", self.scoring),
            ("refit", self.refit),
            ("jitter", self.jitter),
            ("rest", self.rest),
        ]
    }

    /// So many times.
    #[must_use]
    pub const fn times(&self, by: f64) -> Self {
        Self {
            matmul: self.matmul * by,
            attention: self.attention * by,
            bandwidth: self.bandwidth * by,
            host: self.host * by,
            tensor: self.tensor * by,
            data: self.data * by,
            context: self.context * by,
            expert: self.expert * by,
            pipeline: self.pipeline * by,
            bubble: self.bubble * by,
            optimizer: self.optimizer * by,
            offload: self.offload * by,
            generation: self.generation * by,
            scoring: self.scoring * by,
            refit: self.refit * by,
            jitter: self.jitter * by,
            rest: self.rest * by,
        }
    }

    /// The same with a factor on what one GPU does alone and one on what travels between GPUs.
    #[must_use]
    pub fn scaled(&self, alone: f64, between: f64) -> Self {
        let own = self.times(alone);
        let far = self.times(between);
        Self {
            tensor: far.tensor,
            data: far.data,
            context: far.context,
            expert: far.expert,
            pipeline: far.pipeline,
            refit: far.refit,
            ..own
        }
    }

    /// Milliseconds between GPUs.
    #[must_use]
    pub fn communication(&self) -> f64 {
        self.tensor + self.data + self.context + self.expert + self.pipeline + self.refit
    }
}
