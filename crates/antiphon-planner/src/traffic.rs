//! Traffic of each dimension of parallelism in a step, as far as work does not hide it.

use antiphon_types::training::{Precision, Schedule, Sharding};

use crate::communication::{Group, Network, exposed};
use crate::compute::Times;
use crate::kernels::Kernels;
use crate::run::Run;
use crate::update;

/// What travels for a run.
#[derive(Debug, Clone, Copy)]
pub struct Traffic<'a> {
    /// The run.
    pub run: &'a Run,
    /// What its collectives hide behind.
    pub kernels: &'a Kernels,
    /// What they go over.
    pub network: Network,
    /// Tokens of a micro-batch on one rank, before tensor parallelism.
    pub tokens: f64,
    /// Micro-batches of an update.
    pub micro_batches: f64,
}

impl Traffic<'_> {
    /// Tensor-parallel traffic of one block in one pass that is not hidden.
    #[must_use]
    pub fn tensor(&self) -> f64 {
        let run = self.run;
        if run.tp <= 1 {
            return 0.0;
        }
        let group = self.network.group(run.tp as f64, 1.0);
        let bytes = 2.0 * self.tokens * run.model.hidden as f64;
        // Two sums a pass; split by sequence, each is a gather and a scatter.
        let traffic = if run.sequence_parallel {
            4.0 * self.network.gather(group, bytes)
        } else {
            2.0 * self.network.reduce(group, bytes)
        };
        traffic * (1.0 - self.kernels.overlap_tensor)
    }

    /// Expert-parallel traffic of one block in one pass that is not hidden.
    #[must_use]
    pub fn expert(&self) -> f64 {
        let run = self.run;
        let Some(experts) = run.model.experts else {
            return 0.0;
        };
        if run.ep <= 1 {
            return 0.0;
        }
        let group = self.network.group((run.ep * run.expert_tp) as f64, 1.0);
        // A token goes once to a domain, and from there to its experts.
        let domains = (group.ranks / group.inside).max(1.0);
        let copies = (experts.top_k as f64).min(if domains > 1.0 {
            domains * (1.0 - (1.0 - 1.0 / domains).powf(experts.top_k as f64))
        } else {
            experts.top_k as f64
        });
        let tokens = self.tokens / run.tp as f64;
        let bytes = 2.0 * tokens * run.model.hidden as f64;
        let near = self.network.exchange(
            Group {
                ranks: group.inside,
                inside: group.inside,
            },
            bytes * experts.top_k as f64,
        );
        let far = if domains > 1.0 {
            self.network.exchange(group, bytes * copies)
        } else {
            0.0
        };
        // There and back.
        2.0 * near.max(far) * (1.0 - self.kernels.overlap_expert)
    }

    /// Context-parallel traffic of a stage that attention does not hide, forward and backward.
    #[must_use]
    pub fn context(&self, layers: f64, forward: f64, backward: f64) -> (f64, f64) {
        let run = self.run;
        if run.cp <= 1 {
            return (0.0, 0.0);
        }
        let stride = run.tp as f64;
        let group = self.network.group(run.cp as f64, stride);
        let kv = run.model.cache_width() as f64 / run.tp as f64;
        let block = 2.0 * self.tokens * kv;
        let steps = run.cp as f64 - 1.0;
        let hop = if group.ranks > group.inside {
            self.network.send(f64::INFINITY, block)
        } else {
            self.network.send(0.0, block)
        };
        let traffic = layers * steps * hop;
        let contention = self.kernels.contention;
        (
            exposed(traffic, forward, contention),
            exposed(2.0 * traffic, backward, contention),
        )
    }

    /// Gathers and scatters of each micro-batch where weights are sharded, forward and backward, as far as work does not hide
    /// them.
    #[must_use]
    pub fn sharded(&self, layers: f64, forward: &Times, backward: &Times) -> (f64, f64) {
        let run = self.run;
        let each_micro = match run.sharding {
            Sharding::Zero3 => true,
            Sharding::None | Sharding::Zero1 | Sharding::Zero2 => false,
        };
        if !each_micro || run.shards <= 1 {
            return (0.0, 0.0);
        }
        let (dense, experts) = update::weights(run);
        let stage = run.model.layers as f64 / run.pp as f64;
        let share = layers / stage;
        let stored = update::stored_bytes(run);
        let group = self.network.group(run.shards as f64, run.tp as f64);
        let peers = expert_peers(run).clamp(1.0, run.shards as f64);
        let expert_group = self.network.group(peers, (run.ep * run.expert_tp) as f64);
        let gather = |dense: f64, experts: f64| {
            layers * self.network.gather(group, dense / layers)
                + if experts > 0.0 {
                    layers * self.network.gather(expert_group, experts / layers)
                } else {
                    0.0
                }
        };
        let weights = gather(dense * share * stored, experts * share * stored);
        let (moved, moved_experts) = update::held(run);
        let wide = gradient_bytes(run);
        let mut gradients = gather(moved * share * wide, moved_experts * share * wide);
        let replicas = (run.dp * run.cp) as f64 / run.shards as f64;
        if replicas > 1.0 {
            let across = self.network.group(replicas, (run.tp * run.shards) as f64);
            gradients += self
                .network
                .reduce(across, moved * share * wide / run.shards as f64);
        }
        let hides = self.kernels.overlap_data;
        let contention = self.kernels.contention;
        // Behind attention it is the context-parallel ring that hides.
        let free = |times: &Times| {
            let ring = if run.cp > 1 { times.attention } else { 0.0 };
            (times.gpu() - ring) * hides
        };
        if run.pp > 1 {
            // A pipeline keeps weights gathered and gradients whole until the last micro-batch.
            let count = self.micro_batches;
            return (
                exposed(weights, free(forward), contention) / count,
                exposed(gradients, free(backward), contention) / count,
            );
        }
        (
            exposed(weights, free(forward), contention),
            exposed(weights + gradients, free(backward), contention),
        )
    }

    /// Traffic between data-parallel ranks once a step, as far as the last backward and the first forward pass do not hide it.
    #[must_use]
    pub fn once_a_step(&self, forward: f64, backward: f64) -> f64 {
        let run = self.run;
        let ranks = (run.dp * run.cp) as f64;
        if ranks <= 1.0 || run.sharding == Sharding::Zero3 {
            return 0.0;
        }
        let (dense, experts) = update::held(run);
        let wide = gradient_bytes(run);
        let all = self.network.group(ranks, run.tp as f64);
        let expert_ranks = self
            .network
            .group(expert_peers(run).max(1.0), (run.ep * run.expert_tp) as f64);
        let contention = self.kernels.contention;
        let hides = self.kernels.overlap_data;
        match run.sharding {
            Sharding::None => {
                let traffic = self.network.reduce(all, dense * wide)
                    + self.network.reduce(expert_ranks, experts * wide);
                exposed(traffic, backward * hides, contention)
            }
            Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => {
                let shards = run.shards as f64;
                let inner = self.network.group(shards, run.tp as f64);
                let bucket = self.kernels.bucket_mb * 1e6;
                let scatter = |bytes: f64| {
                    let mut time = self.network.gather_in(inner, bytes, bucket);
                    if ranks > shards {
                        let across = self.network.group(ranks / shards, run.tp as f64 * shards);
                        time += self.network.reduce(across, bytes / shards);
                    }
                    time
                };
                let gradients =
                    scatter(dense * wide) + self.network.gather(expert_ranks, experts * wide);
                let weights = self.network.gather_in(inner, dense * 2.0, bucket)
                    + self.network.gather(expert_ranks, experts * 2.0);
                exposed(gradients, backward * hides, contention)
                    + exposed(weights, forward * hides, contention)
            }
        }
    }

    /// Activations to the next stage, for one micro-batch and one direction.
    #[must_use]
    pub fn hand_over(&self) -> f64 {
        let run = self.run;
        let split = if run.sequence_parallel { run.tp } else { 1 } as f64;
        let bytes = 2.0 * self.tokens * run.model.hidden as f64 / split;
        let stride = (run.gpus / run.pp) as f64;
        // In a V every stage is passed twice.
        let visits = match run.schedule {
            Schedule::ZeroBubbleV | Schedule::DualPipeV => 2.0,
            Schedule::Gpipe
            | Schedule::OneForwardOneBackward
            | Schedule::ZeroBubbleH1
            | Schedule::ZeroBubbleH2
            | Schedule::DualPipe => run.chunks as f64,
        };
        visits * self.network.send(stride, bytes)
    }
}

/// Ranks that hold the same experts.
fn expert_peers(run: &Run) -> f64 {
    (run.tp * run.dp * run.cp) as f64 / (run.ep * run.expert_tp) as f64
}

/// Bytes of a gradient that travels.
fn gradient_bytes(run: &Run) -> f64 {
    if !run.trained.full {
        return run.profile.adapter_bytes;
    }
    match run.precision {
        Precision::Pure16 => 2.0,
        Precision::Mixed16 => run.profile.gradient_bytes,
        Precision::Autocast | Precision::Full32 => 4.0,
    }
}
