//! Time of one optimizer step with its parts, what rules it, and what follows: tokens a second, MFU and HFU.

use antiphon_types::model::LayerKind;
use antiphon_types::training::{Place, Precision, Sharding, Task};

use crate::communication::{Network, exposed};
use crate::compute::{self, Computer, Passes, Times};
use crate::flops::{self, Convention};
use crate::kernels::{self, Constants, Kernels};
use crate::offload::{self, Offloaded};
use crate::pipeline::{self, Stage};
use crate::rollout;
use crate::run::{Machine, Run};

/// One optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// What they are spent on: the parts sum to the whole.
    pub parts: Parts,
    /// Of the parts, what recomputation takes.
    pub recompute_ms: f64,
    /// Milliseconds that nothing could be faster than: operations over the data sheet's rate.
    pub floor_ms: f64,
    /// Tokens of a step, over all GPUs.
    pub tokens: f64,
    /// Tokens a second for each GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Model operations a second for each GPU in 10^12, attention counted causal.
    pub tflops: f64,
    /// Those over the data sheet's bf16 rate.
    pub mfu: f64,
    /// The same with recomputation, and attention over all pairs.
    pub hfu: f64,
    /// Idle over all time of a pipeline stage.
    pub bubble_fraction: f64,
    /// What rules the step.
    pub bottleneck: Bottleneck,
}

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

    /// The same with a factor on what one GPU does alone and one on what travels between GPUs.
    #[must_use]
    pub fn scaled(&self, alone: f64, between: f64) -> Self {
        let own = scaled(self, alone);
        let far = scaled(self, between);
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

/// The time of one step of a run on a machine.
#[must_use]
pub fn speed(run: &Run, machine: &Machine) -> Speed {
    speed_with(run, machine, kernels::constants())
}

/// The same with other constants than those that are compiled in.
#[must_use]
pub fn speed_with(run: &Run, machine: &Machine, constants: &Constants) -> Speed {
    let kernels = constants.framework(run.profile.framework);
    let silicon = constants.architecture(&machine.gpu.architecture);
    let computer = Computer::new(run, machine, kernels, silicon);
    let planner = Step {
        run,
        kernels,
        network: Network::new(machine, kernels),
        offloaded: offload::offloaded(run, machine, kernels, computer.tokens),
        computer,
    };
    planner.speed(machine)
}

/// Milliseconds of one block, forward and backward, for a micro-batch.
#[must_use]
pub fn block_ms(run: &Run, machine: &Machine, constants: &Constants) -> f64 {
    let kernels = constants.framework(run.profile.framework);
    let silicon = constants.architecture(&machine.gpu.architecture);
    let computer = Computer::new(run, machine, kernels, silicon);
    let step = Step {
        run,
        kernels,
        network: Network::new(machine, kernels),
        offloaded: Offloaded::default(),
        computer,
    };
    let micro = step.micro(step.blocks(), 1.0);
    1e3 * (micro.forward + micro.backward)
}

struct Step<'a> {
    run: &'a Run,
    kernels: &'a Kernels,
    computer: Computer<'a>,
    network: Network,
    offloaded: Offloaded,
}

/// Seconds of one micro-batch on one stage.
#[derive(Default, Clone, Copy)]
struct Micro {
    parts: Parts,
    again: f64,
    forward: f64,
    backward: f64,
    weights: f64,
}

impl Step<'_> {
    fn speed(&self, machine: &Machine) -> Speed {
        let run = self.run;
        let (layers, head_layers) = stage_layers(run);
        let blocks = self.blocks();
        let head = self.computer.head();

        // The fullest stage sets the pace; where both are one, it has everything.
        let (pace, average) = if run.pp == 1 {
            let all = self.micro(
                blocks.times(run.model.layers as f64).and(head),
                run.model.layers as f64,
            );
            (all, all)
        } else {
            let middle = self.micro(blocks.times(layers), layers);
            let last = self.micro(blocks.times(head_layers).and(head), head_layers);
            let stages = run.pp as f64;
            let each = run.model.layers as f64 / stages;
            let average = self.micro(blocks.times(each).and(head.times(1.0 / stages)), each);
            let pace = if last.forward + last.backward > middle.forward + middle.backward {
                last
            } else {
                middle
            };
            (pace, average)
        };

        let count = self.micro_batches();
        let mut parts = scaled(&pace.parts, count * 1e3);
        parts.bubble += 1e3
            * pipeline::bubble(
                run.schedule,
                run.pp as f64,
                run.chunks as f64,
                Stage {
                    forward: average.forward,
                    backward: average.backward,
                    weights: average.weights,
                },
            );
        parts.data += 1e3 * self.once_a_step(&pace);
        let updated = compute::updated(run);
        parts.optimizer = 1e3 * self.computer.update(updated);
        parts.offload += 1e3 * self.offloaded.update;
        parts.scoring = 1e3 * count * self.reference(&pace);
        parts.rest = self.kernels.step_ms;
        let mut again = 1e3 * count * pace.again;
        let mut tokens = self.computer.tokens * run.cp as f64 * count * run.dp as f64;
        let mut gpus = run.gpus as f64;
        if matches!(run.task, Task::Ppo | Task::Grpo) {
            let updates = rollout::updates(run) * rollout::trainings(run);
            parts = scaled(&parts, updates);
            again *= updates;
            tokens *= rollout::updates(run);
            self.roll(&mut parts, machine, &pace, count * rollout::updates(run));
            let (generators, apart) = rollout::generators(run);
            if apart {
                gpus += generators;
            }
        }
        parts.jitter = parts.sum() * self.kernels.jitter * gpus.log2();

        let step_ms = parts.sum();
        let per_gpu = tokens / gpus;
        let operations = flops::training(run, Convention::Causal);
        let peak = self.computer.rates.peak;
        let tflops = operations * per_gpu / step_ms / 1e9;
        let hardware = flops::training(run, Convention::Hardware);
        Speed {
            step_ms,
            parts,
            recompute_ms: again,
            floor_ms: operations * per_gpu / self.fastest(machine) * 1e3,
            tokens,
            tokens_per_s_per_gpu: per_gpu / step_ms * 1e3,
            tflops,
            mfu: tflops * 1e12 / peak,
            hfu: hardware * per_gpu / step_ms * 1e3 / peak,
            bubble_fraction: parts.bubble / step_ms,
            bottleneck: self.bottleneck(&parts, tflops * 1e12 / peak * step_ms),
        }
    }

    /// Micro-batches of an update. Answers of a step are joined to full length: fewer of them, not shorter ones.
    fn micro_batches(&self) -> f64 {
        let run = self.run;
        let each = run.accumulation as f64;
        if self.computer.packed {
            (each * run.mean_sequence as f64 / run.sequence as f64).max(1.0)
        } else {
            each
        }
    }

    /// Adds what a step has beside training where answers are generated.
    fn roll(&self, parts: &mut Parts, machine: &Machine, pace: &Micro, count: f64) {
        let run = self.run;
        let stages = run.pp as f64 - 1.0;
        parts.scoring = 1e3 * rollout::scoring_passes(run) * (count + stages) * pace.forward;
        let rolled = rollout::rolled(
            run,
            machine,
            self.kernels,
            &self.network,
            self.computer.rates.product,
        );
        parts.generation = 1e3 * rolled.generation;
        if run.rollout.asynchronous {
            // Both run at once: only what the longer has more is waited for.
            let training = parts.sum() - parts.generation;
            parts.generation = (parts.generation - training).max(0.0);
        }
        parts.refit = 1e3 * rolled.refit;
    }

    /// The data sheet's rate in the run's own numbers.
    fn fastest(&self, machine: &Machine) -> f64 {
        let gpu = &machine.gpu;
        let low = match self.run.matmul {
            None => 0.0,
            Some(antiphon_types::training::Matmul::Nvfp4) => gpu.fp4_tflops.max(gpu.fp8_tflops),
            Some(_) => gpu.fp8_tflops,
        };
        (low * 1e12).max(self.computer.rates.peak)
    }

    /// The average block.
    fn blocks(&self) -> Passes {
        let model = &self.run.model;
        let (dense, experts) = (model.dense_layers() as f64, model.expert_layers() as f64);
        let mut passes = Passes::default();
        if dense > 0.0 {
            passes = passes.and(self.computer.block(LayerKind::Dense).times(dense));
        }
        if experts > 0.0 {
            passes = passes.and(self.computer.block(LayerKind::Experts).times(experts));
        }
        passes.times(1.0 / model.layers as f64)
    }

    /// One micro-batch through so many layers.
    fn micro(&self, passes: Passes, layers: f64) -> Micro {
        let run = self.run;
        let expert_layers = layers * run.model.expert_layers() as f64 / run.model.layers as f64;
        let again = flops::recomputed(run);
        let (forward, backward) = (passes.forward, passes.back());

        let tensor = self.tensor() * layers;
        let expert = self.expert() * expert_layers;
        let (around_f, around_b) =
            self.context(layers, passes.forward.attention, passes.backward.attention);
        let (gather_f, gather_b) = self.sharded(layers, &forward, &backward);
        let moved = if run.pp > 1 { self.hand_over() } else { 0.0 };

        // A gather of weights has to be started by the host, too.
        let starts = if run.sharding == Sharding::Zero3 && run.shards > 1 {
            layers * self.kernels.collective_us * 1e-6
        } else {
            0.0
        };
        let quiet = |times: &Times| times.gpu();
        let busy_f = quiet(&forward) + tensor + expert + around_f + gather_f;
        let busy_b = quiet(&backward)
            + tensor * (1.0 + again)
            + expert * (1.0 + again)
            + around_b
            + gather_b;
        let host_f = (forward.host + starts - busy_f).max(0.0);
        let host_b = (backward.host + 2.0 * starts - busy_b).max(0.0);

        // What is sent to the host hides behind the work of both passes.
        let away = exposed(
            self.offloaded.activations,
            busy_f + busy_b,
            self.kernels.contention,
        ) + if run.offload.parameters == Place::Gpu {
            0.0
        } else {
            exposed(
                self.offloaded.weights,
                busy_f + busy_b,
                self.kernels.contention,
            )
        };
        let parts = Parts {
            matmul: forward.product + backward.product,
            attention: forward.attention + backward.attention,
            bandwidth: forward.bandwidth + backward.bandwidth,
            host: host_f + host_b,
            tensor: tensor * (2.0 + again),
            expert: expert * (2.0 + again),
            context: around_f + around_b,
            data: gather_f + gather_b,
            pipeline: 2.0 * moved,
            offload: away,
            ..Parts::default()
        };
        Micro {
            parts,
            again: passes.again.gpu(),
            forward: busy_f + host_f + moved + away / 2.0,
            backward: busy_b + host_b + moved + away / 2.0,
            weights: (busy_b + host_b) * flops::weight_share(run),
        }
    }

    /// Tensor-parallel traffic of one block in one pass that is not hidden.
    fn tensor(&self) -> f64 {
        let run = self.run;
        if run.tp <= 1 {
            return 0.0;
        }
        let group = self.network.group(run.tp as f64, 1.0);
        let bytes = 2.0 * self.computer.tokens * run.model.hidden as f64;
        // Two sums a pass; split by sequence, each is a gather and a scatter.
        let traffic = if run.sequence_parallel {
            4.0 * self.network.gather(group, bytes)
        } else {
            2.0 * self.network.reduce(group, bytes)
        };
        traffic * (1.0 - self.kernels.overlap_tensor)
    }

    /// Expert-parallel traffic of one block in one pass that is not hidden.
    fn expert(&self) -> f64 {
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
        let tokens = self.computer.tokens / run.tp as f64;
        let bytes = 2.0 * tokens * run.model.hidden as f64;
        let near = self.network.exchange(
            crate::communication::Group {
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
    fn context(&self, layers: f64, forward: f64, backward: f64) -> (f64, f64) {
        let run = self.run;
        if run.cp <= 1 {
            return (0.0, 0.0);
        }
        let stride = run.tp as f64;
        let group = self.network.group(run.cp as f64, stride);
        let kv = run.model.cache_width() as f64 / run.tp as f64;
        let block = 2.0 * self.computer.tokens * kv;
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
    fn sharded(&self, layers: f64, forward: &Times, backward: &Times) -> (f64, f64) {
        let run = self.run;
        let each_micro = match run.sharding {
            Sharding::Zero3 => true,
            Sharding::None | Sharding::Zero1 | Sharding::Zero2 => false,
        };
        if !each_micro || run.shards <= 1 {
            return (0.0, 0.0);
        }
        let (dense, experts) = compute::weights(run);
        let stage = run.model.layers as f64 / run.pp as f64;
        let share = layers / stage;
        let stored = compute::stored_bytes(run);
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
        let (moved, moved_experts) = compute::held(run);
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
        if run.pp > 1 {
            // A pipeline keeps weights gathered and gradients whole until the last micro-batch.
            let count = self.micro_batches();
            return (
                exposed(weights, forward.gpu() * hides, contention) / count,
                exposed(gradients, backward.gpu() * hides, contention) / count,
            );
        }
        (
            exposed(weights, forward.gpu() * hides, contention),
            exposed(weights + gradients, backward.gpu() * hides, contention),
        )
    }

    /// Traffic between data-parallel ranks once a step, as far as the last backward and the first forward pass do not hide it.
    fn once_a_step(&self, pace: &Micro) -> f64 {
        let run = self.run;
        let ranks = (run.dp * run.cp) as f64;
        if ranks <= 1.0 || run.sharding == Sharding::Zero3 {
            return 0.0;
        }
        let (dense, experts) = compute::held(run);
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
                exposed(traffic, pace.backward * hides, contention)
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
                exposed(gradients, pace.backward * hides, contention)
                    + exposed(weights, pace.forward * hides, contention)
            }
        }
    }

    /// Activations to the next stage, for one micro-batch and one direction.
    fn hand_over(&self) -> f64 {
        let run = self.run;
        let split = if run.sequence_parallel { run.tp } else { 1 } as f64;
        let bytes = 2.0 * self.computer.tokens * run.model.hidden as f64 / split;
        let stride = (run.gpus / run.pp) as f64;
        run.chunks as f64 * self.network.send(stride, bytes)
    }

    /// A forward pass of the reference model for one micro-batch.
    fn reference(&self, pace: &Micro) -> f64 {
        match self.run.task {
            Task::Dpo | Task::Kto => pace.forward,
            Task::Pretrain
            | Task::Sft
            | Task::Orpo
            | Task::RewardModel
            | Task::Ppo
            | Task::Grpo => 0.0,
        }
    }

    fn bottleneck(&self, parts: &Parts, useful_ms: f64) -> Bottleneck {
        let run = self.run;
        let inside =
            |ranks: u64, stride: u64| self.network.group(ranks as f64, stride as f64).inside as u64;
        let across =
            |ms: f64, dimension: Dimension, ranks: u64, stride: u64| Bottleneck::Communication {
                ms,
                dimension,
                ranks,
                inside: inside(ranks, stride),
            };
        let candidates = [
            Bottleneck::Matmul {
                ms: parts.matmul,
                reached: (useful_ms / parts.matmul).min(1.0),
            },
            Bottleneck::Attention {
                ms: parts.attention,
            },
            Bottleneck::Bandwidth {
                ms: parts.bandwidth,
                compiled: run.compile,
            },
            Bottleneck::Host { ms: parts.host },
            across(parts.tensor, Dimension::Tensor, run.tp, 1),
            across(parts.data, Dimension::Data, run.dp * run.cp, run.tp),
            across(parts.context, Dimension::Context, run.cp, run.tp),
            across(parts.expert, Dimension::Expert, run.ep, 1),
            across(
                parts.pipeline,
                Dimension::Pipeline,
                run.pp,
                run.gpus / run.pp,
            ),
            Bottleneck::Bubble {
                ms: parts.bubble,
                stages: run.pp,
                micro_batches: run.accumulation,
            },
            Bottleneck::Optimizer {
                ms: parts.optimizer,
            },
            Bottleneck::Offload { ms: parts.offload },
            Bottleneck::Generation {
                ms: parts.generation,
            },
            Bottleneck::Overhead { ms: parts.rest },
        ];
        candidates
            .into_iter()
            .max_by(|a, b| a.ms().total_cmp(&b.ms()))
            .expect("there are candidates")
    }
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

/// Layers of the fullest stage without the head, and of the stage with it.
fn stage_layers(run: &Run) -> (f64, f64) {
    let (layers, stages) = (run.model.layers, run.pp);
    let slots = stages * run.chunks;
    // Where two more would divide, embedding and head stand for a layer each.
    if layers % slots != 0 && (layers + 2) % slots == 0 {
        let each = ((layers + 2) / stages) as f64;
        return (each, each - 1.0);
    }
    let most = layers.div_ceil(stages);
    (most as f64, (layers / stages) as f64)
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

const fn scaled(parts: &Parts, by: f64) -> Parts {
    Parts {
        matmul: parts.matmul * by,
        attention: parts.attention * by,
        bandwidth: parts.bandwidth * by,
        host: parts.host * by,
        tensor: parts.tensor * by,
        data: parts.data * by,
        context: parts.context * by,
        expert: parts.expert * by,
        pipeline: parts.pipeline * by,
        bubble: parts.bubble * by,
        optimizer: parts.optimizer * by,
        offload: parts.offload * by,
        generation: parts.generation * by,
        scoring: parts.scoring * by,
        refit: parts.refit * by,
        jitter: parts.jitter * by,
        rest: parts.rest * by,
    }
}
