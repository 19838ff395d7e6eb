//! Time that one GPU computes: products, attention, and what only moves bytes, for a block, the head and the update of the
//! weights. Knows no other GPU.

use antiphon_types::model::{Attention, Biases, LayerKind, Linear};
use antiphon_types::training::{
    AttentionKernel, LossKernel, Matmul, Module, Place, Quantization, Recompute, Task,
};

use crate::flops;
use crate::kernels::{Kernels, Silicon};
use crate::rates::Rates;
use crate::run::{Machine, Run, recomputes};
use crate::update::update_bytes;

/// Layers that an adapter is on which is known by size only: what most libraries adapt.
const PROJECTED: [Linear; 2] = [Linear::QProj, Linear::VProj];

/// Seconds of one pass, by what rules them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Times {
    /// Products of matrices.
    pub product: f64,
    /// Attention's scores and values.
    pub attention: f64,
    /// Kernels that only move bytes.
    pub bandwidth: f64,
    /// The host, starting kernels; runs beside the others.
    pub host: f64,
}

impl Times {
    /// Seconds of the GPU.
    #[must_use]
    pub const fn gpu(&self) -> f64 {
        self.product + self.attention + self.bandwidth
    }

    /// So many times.
    #[must_use]
    pub const fn times(self, count: f64) -> Self {
        Self {
            product: self.product * count,
            attention: self.attention * count,
            bandwidth: self.bandwidth * count,
            host: self.host * count,
        }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            product: self.product + other.product,
            attention: self.attention + other.attention,
            bandwidth: self.bandwidth + other.bandwidth,
            host: self.host + other.host,
        }
    }
}

/// Forward and backward pass of something, and what of the forward pass runs again before the backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Passes {
    /// Forward.
    pub forward: Times,
    /// Backward, to inputs and weights.
    pub backward: Times,
    /// Forward again.
    pub again: Times,
}

impl Passes {
    /// So many times.
    #[must_use]
    pub const fn times(self, count: f64) -> Self {
        Self {
            forward: self.forward.times(count),
            backward: self.backward.times(count),
            again: self.again.times(count),
        }
    }

    /// Both, one after the other.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            forward: self.forward.and(other.forward),
            backward: self.backward.and(other.backward),
            again: self.again.and(other.again),
        }
    }

    /// Backward with what runs again before it.
    #[must_use]
    pub const fn back(&self) -> Times {
        self.backward.and(self.again)
    }
}

/// What computes a run's blocks.
#[derive(Debug, Clone, Copy)]
pub struct Computer<'a> {
    /// The run.
    pub run: &'a Run,
    /// What its GPU reaches.
    pub rates: Rates,
    /// What its kernels reach.
    pub kernels: &'a Kernels,
    /// Tokens of a micro-batch on one rank, before tensor parallelism.
    pub tokens: f64,
    /// Seconds that the host needs to start one kernel.
    pub start: f64,
    /// Whether sequences that are shorter on average are joined to full length.
    pub packed: bool,
}

impl<'a> Computer<'a> {
    /// For a run on a machine.
    #[must_use]
    pub fn new(run: &'a Run, machine: &Machine, kernels: &'a Kernels, silicon: &Silicon) -> Self {
        let packed = run.packing && matches!(run.task, Task::Ppo | Task::Grpo);
        let sequence = if packed {
            run.sequence
        } else {
            run.mean_sequence
        };
        Self {
            run,
            rates: Rates::new(run, machine, kernels, silicon),
            kernels,
            tokens: (run.micro * (sequence + run.trained.prompt) * run.sequences_a_sample()) as f64
                / run.cp as f64,
            start: kernels.host_us
                * 1e-6
                * if machine.domain > machine.node {
                    kernels.graphed
                } else {
                    1.0
                },
            packed,
        }
    }

    /// A product of `m x k` with `k x n` in the numbers of the run.
    fn product(&self, m: f64, n: f64, k: f64) -> f64 {
        self.multiply(m, n, k, self.rates.low, self.kernels.matmul_half)
    }

    fn multiply(&self, m: f64, n: f64, k: f64, rate: f64, half: f64) -> f64 {
        let filled = 1.0 + half * (1.0 / m.max(1.0) + 1.0 / n.max(1.0) + 1.0 / k.max(1.0));
        let moved = 2.0 * (m * k + k * n + m * n) / self.rates.memory;
        (2.0 * m * n * k / rate * filled).max(moved)
    }

    /// One block.
    #[must_use]
    pub fn block(&self, kind: LayerKind) -> Passes {
        let run = self.run;
        let frozen = !run.trained.full;
        let linear = self.linear(kind);
        let attention = self.attends();
        let moved = self.element_wise(kind);
        let cast = self.quantizing(kind);
        let copied = self.dequantizing(kind) + self.weight_sized();
        let adapters = self.adapters();
        let kernels = self.started(kind);
        let host = kernels * self.start;

        let forward = Times {
            product: linear + adapters,
            attention,
            bandwidth: moved + cast + copied,
            host,
        };
        // Scores are made again in the backward pass of attention: five products for two.
        let backward = Times {
            product: linear * if frozen { 1.0 } else { 2.0 } + 2.0 * adapters,
            attention: 2.5 * attention,
            bandwidth: 2.0 * moved + cast + copied,
            // The backward pass is started from C++, without modules and hooks.
            host: 1.5 * host,
        };
        Passes {
            forward,
            backward,
            again: self.again(forward, linear, kind),
        }
    }

    /// What of a block's forward pass runs again.
    fn again(&self, forward: Times, linear: f64, kind: LayerKind) -> Times {
        let recompute = &self.run.recompute;
        match recompute {
            Recompute::None => Times::default(),
            Recompute::Full | Recompute::Layers { .. } => {
                forward.times(flops::recomputed(self.run))
            }
            // Attention and every second product are kept.
            Recompute::PerOperation => Times {
                product: forward.product / 2.0,
                attention: 0.0,
                ..forward
            },
            Recompute::Modules(_) => {
                let model = &self.run.model;
                let all = flops::linear(model, kind);
                let attention = flops::attention_linear(model);
                let feed_forward = (all - attention) / all;
                let mut times = Times::default();
                if recomputes(recompute, Module::CoreAttn) {
                    times.attention += forward.attention;
                }
                let whole = match kind {
                    LayerKind::Dense => recomputes(recompute, Module::Mlp),
                    LayerKind::Experts => recomputes(recompute, Module::Moe),
                };
                if whole {
                    times.product += linear * feed_forward;
                    times.bandwidth += forward.bandwidth / 2.0;
                }
                if recomputes(recompute, Module::MoeAct) {
                    times.bandwidth += forward.bandwidth / 6.0;
                }
                if recomputes(recompute, Module::Layernorm) {
                    times.bandwidth += forward.bandwidth / 4.0;
                }
                if recomputes(recompute, Module::MlaUpProj) {
                    times.product += linear * (attention / all) / 3.0;
                }
                times
            }
        }
    }

    /// Products of one block's linear layers, forward.
    fn linear(&self, kind: LayerKind) -> f64 {
        let run = self.run;
        let model = &run.model;
        let (t, h) = (self.tokens, model.hidden as f64);
        let tp = run.tp as f64;
        let attention = match model.attention {
            Attention::Grouped {
                heads,
                kv_heads,
                head_dim,
                ..
            } => {
                let q = (heads * head_dim) as f64;
                // Keys and values are copied where there are fewer heads than ranks.
                let kv = (kv_heads.max(run.tp.min(heads)) * head_dim) as f64;
                self.product(t, (q + 2.0 * kv) / tp, h) + self.product(t, h, q / tp)
            }
            Attention::Latent {
                heads,
                q_rank,
                kv_rank,
                nope,
                rope,
                value,
            } => {
                let q = (heads * (nope + rope)) as f64 / tp;
                let queries = if q_rank == 0 {
                    self.product(t, q, h)
                } else {
                    self.product(t, q_rank as f64, h) + self.product(t, q, q_rank as f64)
                };
                queries
                    + self.product(t, (kv_rank + rope) as f64, h)
                    + self.product(t, (heads * (nope + value)) as f64 / tp, kv_rank as f64)
                    + self.product(t, h, (heads * value) as f64 / tp)
            }
        };
        let ways = model.mlp.matrices() as f64 - 1.0;
        let dense = |width: f64| self.product(t, ways * width, h) + self.product(t, h, width);
        let feed_forward = match (kind, model.experts) {
            (LayerKind::Experts, Some(experts)) => {
                let width = experts.ffn as f64;
                let local = (experts.count / run.ep.max(1)).max(1) as f64;
                // Tokens that all ranks of the expert group send to one expert here.
                let routed = t * experts.top_k as f64 / tp;
                let split = run.expert_tp as f64;
                let each = routed * split / local;
                let half = self.kernels.expert_half;
                let rate = self.rates.low;
                let grouped = local
                    * (self.multiply(each, ways * width / split, h, rate, half)
                        + self.multiply(each, h, width / split, rate, half));
                let shared = if experts.shared_ffn > 0 {
                    dense(experts.shared_ffn as f64 / tp)
                } else {
                    0.0
                };
                let router = self.multiply(
                    t / tp,
                    experts.count as f64,
                    h,
                    self.rates.product,
                    self.kernels.matmul_half,
                );
                grouped + shared + router
            }
            _ => dense(model.ffn as f64 / tp),
        };
        attention + feed_forward
    }

    /// Attention of one block, forward.
    fn attends(&self) -> f64 {
        let run = self.run;
        let context =
            flops::context(&run.model, run.mean_sequence as f64) + run.trained.prefix as f64;
        let operations = flops::attention(&run.model, context) * self.tokens / run.tp as f64;
        match run.attention {
            AttentionKernel::Flash => operations / self.rates.attention,
            // All pairs are computed, and each score is written and read again: scaled, masked, made a share.
            AttentionKernel::Eager => {
                let pairs = 2.0 * context * self.tokens * run.model.heads() as f64 / run.tp as f64;
                2.0 * operations / self.rates.product + 12.0 * pairs / self.rates.memory
            }
        }
    }

    /// Everything of a block that only moves bytes, forward.
    fn element_wise(&self, kind: LayerKind) -> f64 {
        let run = self.run;
        let model = &run.model;
        let fused = if run.compile { 1.0 } else { self.kernels.fused };
        let mix = |apart: f64, together: f64| apart + fused * (together - apart);
        let (h, tp) = (model.hidden as f64, run.tp as f64);
        let split = if run.sequence_parallel { tp } else { 1.0 };
        // Apart: a norm that goes through 32 bits moves 34 bytes a channel, an addition 6. Together: 4 and 5.
        let norms = model.norms_per_layer as f64 * mix(34.0, 4.0) + mix(12.0, 10.0);
        let rotated = (model.query_width() + model.cache_width() / 2) as f64 / tp;
        let rotary = if model.learned_positions > 0 {
            0.0
        } else {
            rotated * mix(18.0, 4.0)
        };
        let gated = model.mlp.matrices() == 3;
        let activation = if gated { mix(10.0, 6.0) } else { mix(8.0, 4.0) };
        // Fused gates know no biases: split, clamped, weighed and added one after the other. Low precision fuses them with its
        // casts.
        let activation = match (gated && model.biases == Biases::All, run.matmul) {
            (true, None) => activation + 80.0,
            (true, Some(_)) => activation + 24.0,
            (false, _) => activation,
        };
        let feed_forward = match (kind, model.experts) {
            (LayerKind::Experts, Some(experts)) => {
                let top_k = experts.top_k as f64;
                let width = top_k * experts.ffn as f64 + experts.shared_ffn as f64;
                // Tokens are put in order of their expert and back, and weighed.
                (activation * width + top_k * h * mix(16.0, 10.0)) / tp
                    + 4.0 * mix(6.0, 2.0) * experts.count as f64
            }
            _ => activation * model.ffn as f64 / tp,
        };
        self.tokens * (norms * h / split + rotary + feed_forward) / self.rates.memory
    }

    /// Making low-precision inputs of products, forward or backward.
    fn quantizing(&self, kind: LayerKind) -> f64 {
        let run = self.run;
        let Some(numbers) = run.matmul else {
            return 0.0;
        };
        let bytes = match numbers {
            Matmul::Fp8Tensor => self.kernels.quantize_bytes,
            Matmul::Fp8Row => self.kernels.quantize_row_bytes,
            Matmul::Mxfp8 => self.kernels.quantize_block_bytes,
            Matmul::Nvfp4 => self.kernels.quantize_four_bytes,
        };
        let model = &run.model;
        let tp = run.tp as f64;
        let ffn = match (kind, model.experts) {
            (LayerKind::Experts, Some(experts)) => {
                (experts.top_k * experts.ffn + experts.shared_ffn) as f64
            }
            _ => model.ffn as f64,
        };
        let values = 2.0 * model.hidden as f64 + (model.output_width() as f64 + ffn) / tp;
        self.tokens * values * bytes / self.rates.memory
    }

    /// Making 16-bit copies of a block's quantized weights.
    fn dequantizing(&self, kind: LayerKind) -> f64 {
        let Some(quantization) = self.run.quantization else {
            return 0.0;
        };
        let stored = match quantization {
            Quantization::Nf4 | Quantization::Nf4Double | Quantization::Hqq4 => 0.5,
            Quantization::Int8 => 1.0,
        };
        let weights = self.run.model.layer(kind) as f64 / self.run.tp as f64;
        weights * (stored + self.kernels.dequantize_bytes) / self.rates.memory
    }

    /// Low-rank adapters of one block, forward. Their products are so narrow that moving their inputs rules.
    fn adapters(&self) -> f64 {
        let run = self.run;
        if run.trained.rank == 0 {
            return 0.0;
        }
        let rank = run.trained.rank as f64;
        let tp = run.tp as f64;
        run.trained
            .adapted
            .iter()
            .map(|&target| {
                let (input, output, count) = crate::run::widths(&run.model, target);
                let (input, output) = (input as f64, output as f64);
                let share = count as f64 / run.model.layers as f64;
                let operations = 2.0 * self.tokens * rank * (input + output) / tp;
                let moved = self.tokens * (2.0 * input + 6.0 * output) / tp;
                share * (operations / self.rates.product).max(moved / self.rates.memory)
            })
            .sum()
    }

    /// Adapters that make a matrix of the weight's size in every pass.
    fn weight_sized(&self) -> f64 {
        let run = self.run;
        let Some(name) = run.trained.name.as_deref() else {
            return 0.0;
        };
        let passes = weight_passes(name);
        if passes == 0.0 {
            return 0.0;
        }
        let weights: f64 = PROJECTED
            .iter()
            .map(|&target| {
                let (input, output, count) = crate::run::widths(&run.model, target);
                (input * output * count) as f64 / run.model.layers as f64
            })
            .sum();
        8.0 * weights * passes / self.rates.memory
    }

    /// Kernels that the host starts for one block, forward.
    fn started(&self, kind: LayerKind) -> f64 {
        let run = self.run;
        // A block of modules without a compiler has some 45 operations; compiled, its products, attention and a few between.
        let block = if run.compile { 16.0 } else { 45.0 };
        let latent = match run.model.attention {
            Attention::Grouped { .. } => 0.0,
            Attention::Latent { .. } => self.kernels.latent_kernels,
        };
        let experts = match kind {
            LayerKind::Dense => 0.0,
            LayerKind::Experts => self.kernels.expert_kernels,
        };
        let adapted = match run.trained.name.as_deref() {
            // Keys and values in front, or embeddings: nothing beside layers.
            Some("llama-adapter" | "prefix-tuning" | "prompt-tuning" | "p-tuning") => 0,
            Some(_) => PROJECTED.len(),
            None => run.trained.adapted.len(),
        };
        let adapters = self.kernels.adapter_kernels * adapted as f64;
        let quantized = if run.quantization.is_some() {
            14.0
        } else {
            0.0
        };
        let block = block + latent;
        block + experts + adapters + quantized
    }

    /// The output head and the loss.
    #[must_use]
    pub fn head(&self) -> Passes {
        let run = self.run;
        let model = &run.model;
        let vocab = model.vocab as f64 / run.tp as f64;
        let product = self.multiply(
            self.tokens,
            vocab,
            model.hidden as f64,
            self.rates.product,
            self.kernels.matmul_half,
        );
        let fused = if run.compile { 1.0 } else { self.kernels.fused };
        // Logits are copied to 32 bits, and made a loss and a gradient; or each is touched twice.
        let bytes = match run.loss {
            LossKernel::Plain => 26.0 - 12.0 * fused,
            LossKernel::Chunked { .. } => 20.0 - 8.0 * fused,
            LossKernel::FusedLinear => 10.0,
        };
        let moved = self.tokens * vocab * bytes / self.rates.memory;
        let trained = run.trained.full;
        Passes {
            forward: Times {
                product,
                attention: 0.0,
                bandwidth: moved * 0.5,
                host: 0.0,
            },
            backward: Times {
                product: product * if trained { 2.0 } else { 1.0 },
                attention: 0.0,
                bandwidth: moved * 0.5,
                host: 0.0,
            },
            again: Times::default(),
        }
    }

    /// The update of the weights that this GPU keeps, where it does that itself.
    #[must_use]
    pub fn update(&self, weights: f64) -> f64 {
        if self.run.offload.optimizer != Place::Gpu {
            return 0.0;
        }
        let bytes = weights * update_bytes(self.run);
        bytes * self.kernels.optimizer_passes / self.rates.memory
    }
}

/// How often an adapter sends 32-bit numbers of its weight's size through memory in a pass, where it does. Read from how each
/// is computed, with sizes from the one published comparison of them.
fn weight_passes(name: &str) -> f64 {
    match name {
        // A product, a sum or a rotation of the whole weight.
        "hira" | "randlora" | "psoft" | "lily" | "peanut" | "oft" | "c3a" | "vblora" => 6.0,
        // A transform back from frequencies.
        "fourierft" | "waveft" => 24.0,
        // The weight is kept as its singular vectors.
        "osf" | "frod" => 40.0,
        // Several rounds of block-wise rotations.
        "boft" => 140.0,
        _ => 0.0,
    }
}
