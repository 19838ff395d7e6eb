//! What the forward pass keeps for the backward pass, by layer and for the loss. Korthikanti 2022 for the classic block; the
//! terms of a modern block one by one, so that adapters, recomputation and parallelism each take away what they do.

use antiphon_types::model::{Attention, LayerKind, Linear, Norm, QkNorm};
use antiphon_types::training::{AttentionKernel, LossKernel, Module, Place, Recompute, Schedule};

use crate::run::{Run, recomputes, widths};

/// Bytes of one micro-batch in one layer of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Layer {
    /// Kept from the forward to the backward pass.
    pub kept: f64,
    /// Kept in host memory instead.
    pub host: f64,
    /// There while the layer is computed again and its gradients are made; 0 where nothing is computed again.
    pub live: f64,
}

/// The terms of a block, in bytes a token.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Terms {
    norms: f64,
    linear_inputs: f64,
    attention: f64,
    core: f64,
    latent: f64,
    feed_forward: f64,
    activation: f64,
    routed: f64,
    routed_activation: f64,
    adapters: f64,
}

impl Terms {
    fn sum(&self) -> f64 {
        self.norms
            + self.linear_inputs
            + self.attention
            + self.core
            + self.latent
            + self.feed_forward
            + self.activation
            + self.routed
            + self.routed_activation
            + self.adapters
    }
}

/// Bytes that one micro-batch needs in one layer.
#[must_use]
pub fn layer(run: &Run, kind: LayerKind) -> Layer {
    let tokens = run.tokens();
    let terms = terms(run, kind);
    let hidden = run.model.hidden as f64 / sequence_split(run);
    // What a block hands to the next one.
    let handed = 2.0 * hidden;
    let whole = terms.sum();
    let (kept, live) = match &run.recompute {
        Recompute::None => (whole, 0.0),
        Recompute::Full => (handed, whole),
        Recompute::Layers { count } => {
            let layers = (run.model.layers as f64 / run.pp as f64).max(1.0);
            let share = (*count as f64 / layers).min(1.0);
            (
                share * handed + (1.0 - share) * whole,
                if share > 0.0 { whole } else { 0.0 },
            )
        }
        // Keeps what flash attention and every second matrix product made.
        Recompute::PerOperation => (whole * run.profile.per_operation_share, whole),
        Recompute::Modules(_) => {
            let mut left = terms;
            if recomputes(&run.recompute, Module::CoreAttn) {
                left.core = 0.0;
            }
            if recomputes(&run.recompute, Module::Mlp) {
                left.feed_forward = 0.0;
                left.activation = 0.0;
            }
            if recomputes(&run.recompute, Module::Moe) {
                left.routed = 0.0;
                left.routed_activation = 0.0;
            }
            if recomputes(&run.recompute, Module::MoeAct) {
                left.routed_activation = 0.0;
            }
            if recomputes(&run.recompute, Module::Layernorm) {
                left.linear_inputs = 0.0;
            }
            if recomputes(&run.recompute, Module::MlaUpProj) {
                left.latent = 0.0;
            }
            (left.sum(), whole - left.sum())
        }
    };
    let offloaded = run.offload.activations != Place::Gpu;
    Layer {
        kept: if offloaded { 0.0 } else { kept * tokens },
        host: if offloaded { kept * tokens } else { 0.0 },
        live: (live + if offloaded { 2.0 * kept } else { 0.0 }) * tokens,
    }
}

/// By how much sequence parallelism divides what tensor parallelism leaves whole.
fn sequence_split(run: &Run) -> f64 {
    if run.sequence_parallel {
        run.tp as f64
    } else {
        1.0
    }
}

/// Whether a linear layer's input is kept as it is: for its own gradient, or for its adapter's, unless that keeps a copy.
fn needs_input(run: &Run, linear: Linear) -> bool {
    let copied = run.trained.dropout || run.profile.adapter_input_bytes > 0.0;
    run.trained.full || (run.trained.adapted.contains(&linear) && !copied)
}

/// Bytes of a value that a matrix product keeps of its input.
const fn kept_bytes(run: &Run) -> f64 {
    match run.matmul {
        None => 2.0,
        Some(_) => run.profile.fp8_input_bytes,
    }
}

fn terms(run: &Run, kind: LayerKind) -> Terms {
    let (model, profile) = (&run.model, run.profile);
    let tp = run.tp as f64;
    let h = model.hidden as f64 / sequence_split(run);
    let (q, out) = (
        model.query_width() as f64 / tp,
        model.output_width() as f64 / tp,
    );
    let heads = model.heads() as f64 / tp;
    let head_width = model.query_width() as f64 / model.heads() as f64;
    let kv_heads = (model.kv_heads() as f64 / tp).max(1.0);
    let kv = if profile.kv_repeated {
        q
    } else {
        kv_heads * head_width
    };

    let norms = model.norms_per_layer as f64
        * h
        * (profile.norm_input_bytes
            + if run.trained.full {
                profile.norm_product_bytes
            } else {
                0.0
            });

    let into_attention = [Linear::QProj, Linear::KProj, Linear::VProj]
        .into_iter()
        .any(|linear| needs_input(run, linear));
    let into_mlp = [Linear::GateProj, Linear::UpProj]
        .into_iter()
        .any(|linear| needs_input(run, linear));
    let parallel_block = model.norms_per_layer == 1;
    let mut linear_inputs = 0.0;
    if into_attention {
        linear_inputs += kept_bytes(run) * h;
    }
    if into_mlp && !parallel_block {
        linear_inputs += kept_bytes(run) * h;
    }

    let latent = match model.attention {
        Attention::Latent {
            q_rank,
            kv_rank,
            rope,
            ..
        } => {
            // The compressed vectors stay whole on each rank.
            2.0 * 2.0 * (q_rank + kv_rank + rope) as f64
        }
        Attention::Grouped { .. } => 0.0,
    };
    let value = match model.attention {
        Attention::Latent { .. } => out,
        Attention::Grouped { .. } => kv,
    };
    let key = match model.attention {
        Attention::Latent { .. } => q,
        Attention::Grouped { .. } => kv,
    };
    let qk_norm = match model.attention {
        Attention::Grouped {
            qk_norm: QkNorm::Head | QkNorm::Full,
            ..
        } => 2.0 * (q + kv),
        Attention::Grouped { .. } | Attention::Latent { .. } => 0.0,
    };
    let prefix = 1.0 + run.trained.prefix as f64 / run.sequence as f64;
    let attention =
        2.0 * (q + (key + value) * prefix + out) + 2.0 * profile.rotary_copies * (q + kv) + qk_norm;
    let core = match run.attention {
        AttentionKernel::Flash => 4.0 * heads,
        AttentionKernel::Eager => profile.score_bytes * heads * run.sequence as f64,
    };

    let shared_width = match (kind, model.experts) {
        (LayerKind::Dense, _) | (LayerKind::Experts, None) => model.ffn as f64,
        (LayerKind::Experts, Some(experts)) => experts.shared_ffn as f64,
    } / tp;
    let needs_product = needs_input(run, Linear::DownProj);
    let copies = match model.mlp.matrices() {
        3 => profile.gated_copies,
        _ => profile.plain_copies,
    };
    // The last copy is the input of the projection down.
    let activated = copies - 1.0;
    let product = if needs_product { 1.0 } else { 0.0 };
    let feed_forward = kept_bytes(run) * shared_width * product;
    let activation = 2.0 * shared_width * activated;

    let (routed, routed_activation) = match (kind, model.experts) {
        (LayerKind::Experts, Some(experts)) => {
            let top_k = experts.top_k as f64;
            let width = experts.ffn as f64 / run.expert_tp as f64;
            let whole_h = model.hidden as f64 / if run.sequence_parallel { tp } else { 1.0 };
            let sent = top_k * profile.imbalance;
            (
                // Dispatched and combined tokens, and the router's scores.
                sent * profile.dispatch_copies * 2.0 * whole_h
                    + 4.0 * experts.count as f64 / sequence_split(run)
                    + sent / sequence_split(run) * 2.0 * width * product,
                sent / sequence_split(run) * 2.0 * width * activated,
            )
        }
        (LayerKind::Dense, _) | (LayerKind::Experts, None) => (0.0, 0.0),
    };

    Terms {
        norms: norms + masks(run, h),
        linear_inputs,
        attention,
        core,
        latent,
        feed_forward,
        activation,
        routed,
        routed_activation,
        adapters: adapters(run),
    }
}

/// Masks of the two dropouts that classic blocks have, a byte a channel.
fn masks(run: &Run, h: f64) -> f64 {
    if run.model.norm == Norm::Layer {
        run.profile.mask_bytes * h
    } else {
        0.0
    }
}

/// What adapters and quantized products keep beside, in bytes a token and layer.
fn adapters(run: &Run) -> f64 {
    let (model, profile) = (&run.model, run.profile);
    let tp = run.tp as f64;
    let mut bytes = 0.0;
    let adapts = |linear| run.trained.adapted.contains(&linear);
    let qkv = [Linear::QProj, Linear::KProj, Linear::VProj];
    for &linear in &run.trained.adapted {
        let (input, _, count) = widths(model, linear);
        if count == 0 || matches!(linear, Linear::LmHead | Linear::EmbedTokens) {
            continue;
        }
        bytes += profile.adapter_input_bytes * input as f64 / tp + 2.0 * run.trained.rank as f64;
        // Where queries, keys and values are one matrix, they share a copy and a mask.
        let shared =
            profile.fused_qkv && qkv[..2].contains(&linear) && qkv[2..].iter().copied().any(adapts);
        if run.trained.dropout && !shared {
            bytes += 3.0 * input as f64 / tp;
        }
    }
    let adapted = qkv.iter().filter(|&&linear| adapts(linear)).count();
    if run.trained.rank > 0 && (1..3).contains(&adapted) {
        let width: u64 = qkv.iter().map(|&linear| widths(model, linear).1).sum();
        bytes += profile.partial_qkv_bytes * width as f64 / tp;
    }
    if run.quantization.is_some() {
        // Queries, keys and values share an input, as gate and up do.
        let inputs = 2.0 * model.hidden as f64 + model.output_width() as f64 + model.ffn as f64;
        bytes += profile.quantized_input_bytes * inputs / tp;
    }
    if let Some(name) = &run.trained.name {
        bytes += profile.other_adapter_bytes * model_width(run) * crate::adapter::kept(name);
    }
    bytes
}

fn model_width(run: &Run) -> f64 {
    run.model.hidden as f64 / run.tp as f64
}

/// Bytes of logits, their copy and their gradient at the worst moment.
#[must_use]
pub fn logits(run: &Run) -> f64 {
    let tokens = run.tokens();
    let vocab = run.model.vocab as f64 / run.tp as f64;
    match run.loss {
        LossKernel::Plain => run.profile.logit_bytes * vocab * tokens,
        LossKernel::Chunked { chunks } => {
            // Logits in 16 bits may stay whole; copy and gradient are of one chunk.
            (run.profile.chunked_logit_bytes + run.profile.logit_bytes / chunks as f64)
                * vocab
                * tokens
        }
        LossKernel::FusedLinear => 2.0 * run.model.hidden as f64 * tokens,
    }
}

/// Micro-batches of which a stage keeps activations at once, in units of the whole stage.
#[must_use]
pub fn in_flight(run: &Run, stage: u64) -> f64 {
    let (p, m, v) = (run.pp as f64, run.accumulation as f64, run.chunks as f64);
    if run.pp == 1 {
        return 1.0;
    }
    let depth = p - stage as f64;
    match run.schedule {
        Schedule::Gpipe => m,
        Schedule::OneForwardOneBackward if run.chunks == 1 => depth.min(m),
        Schedule::OneForwardOneBackward => {
            // Narayanan 2021: (p - rank - 1) * 2 + (v - 1) p warm-up passes of one chunk, and the one that runs.
            let chunks = (2.0 * (depth - 1.0) + (v - 1.0) * p + 1.0).min(m * v);
            chunks / v
        }
        Schedule::ZeroBubbleH1 | Schedule::ZeroBubbleV => p.min(m),
        Schedule::ZeroBubbleH2 => (2.0 * p - 1.0).min(m),
        Schedule::DualPipe => (p + 1.0).min(m),
        // DeepSeek's table: 2 p + 1 of a chunk, of which a stage has two.
        Schedule::DualPipeV => (p + 0.5).min(m),
    }
}
