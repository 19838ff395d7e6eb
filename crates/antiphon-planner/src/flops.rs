//! Floating-point operations of a token, in the conventions that measurements are told in. A product of two numbers and a
//! sum count as two.

use antiphon_types::model::{Attention, LayerKind, Linear, ModelShape};
use antiphon_types::training::Recompute;

use crate::run::{Run, widths};

/// Which operations count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// What the model needs; attention counts the pairs of tokens that a causal mask leaves. MFU is told in it.
    Causal,
    /// The same with all pairs of tokens.
    NonCausal,
    /// What is computed, recomputation included; attention counts all pairs. HFU is told in it.
    Hardware,
}

/// Operations of one token in a forward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forward {
    /// Linear layers of all blocks.
    pub blocks: f64,
    /// The output head.
    pub head: f64,
    /// Scores and their product with the values, of the pairs that a causal mask leaves.
    pub attention: f64,
    /// Adapters.
    pub adapters: f64,
}

/// Operations of a token in a forward pass over sequences of so many tokens.
#[must_use]
pub fn forward(run: &Run, sequence: f64) -> Forward {
    let model = &run.model;
    Forward {
        blocks: 2.0
            * (model.dense_layers() as f64 * linear(model, LayerKind::Dense)
                + model.expert_layers() as f64 * linear(model, LayerKind::Experts)),
        head: 2.0 * (model.hidden * model.vocab) as f64,
        attention: model.layers as f64
            * attention(model, context(model, sequence) + run.trained.prefix as f64),
        adapters: adapters(run),
    }
}

/// Weights of linear layers that a token goes through in one layer.
#[must_use]
pub fn linear(model: &ModelShape, kind: LayerKind) -> f64 {
    let h = model.hidden as f64;
    let matrices = model.mlp.matrices() as f64;
    let feed_forward = match (kind, model.experts) {
        (LayerKind::Experts, Some(experts)) => {
            (experts.count as f64)
                + matrices * (experts.top_k * experts.ffn + experts.shared_ffn) as f64
        }
        _ => matrices * model.ffn as f64,
    };
    attention_linear(model) + h * feed_forward
}

/// Weights of attention's linear layers.
#[must_use]
pub fn attention_linear(model: &ModelShape) -> f64 {
    let h = model.hidden;
    (match model.attention {
        Attention::Grouped {
            heads,
            kv_heads,
            head_dim,
            ..
        } => 2 * h * (heads + kv_heads) * head_dim,
        Attention::Latent {
            heads,
            q_rank,
            kv_rank,
            nope,
            rope,
            value,
        } => {
            let q = heads * (nope + rope);
            let queries = if q_rank == 0 { h * q } else { q_rank * (h + q) };
            queries + h * (kv_rank + rope) + kv_rank * heads * (nope + value) + heads * value * h
        }
    }) as f64
}

/// Operations of a token against so many others, in one layer.
#[must_use]
pub fn attention(model: &ModelShape, context: f64) -> f64 {
    2.0 * context * (model.query_width() + model.output_width()) as f64
}

/// Tokens that one attends to on average over a sequence, its layers and a causal mask.
#[must_use]
pub fn context(model: &ModelShape, sequence: f64) -> f64 {
    let attending = model.attending();
    let window = (attending.window as f64).min(sequence);
    // The first tokens of a sequence see fewer than the window.
    let windowed = window - window * window / (2.0 * sequence.max(1.0));
    (attending.full as f64 * sequence / 2.0 + attending.windowed as f64 * windowed)
        / model.layers as f64
}

fn adapters(run: &Run) -> f64 {
    if run.trained.rank == 0 {
        return 0.0;
    }
    run.trained
        .adapted
        .iter()
        .map(|&target: &Linear| {
            let (input, output, count) = widths(&run.model, target);
            2.0 * (run.trained.rank * (input + output) * count) as f64
        })
        .sum()
}

/// Operations of a token in a training step: forward, and backward to inputs and weights.
#[must_use]
pub fn training(run: &Run, convention: Convention) -> f64 {
    let forward = forward(run, run.mean_sequence as f64);
    // Frozen weights need no gradient of their own.
    let passes = if run.trained.full { 3.0 } else { 2.0 };
    let pairs = match convention {
        Convention::Causal => 1.0,
        Convention::NonCausal | Convention::Hardware => 2.0,
    };
    let model = passes * (forward.blocks + forward.head)
        + 3.0 * (pairs * forward.attention + forward.adapters);
    let again = match convention {
        Convention::Causal | Convention::NonCausal => 0.0,
        Convention::Hardware => {
            recomputed(run) * (forward.blocks + pairs * forward.attention + forward.adapters)
        }
    };
    model + again
}

/// Share of the forward pass through blocks that runs again.
#[must_use]
pub fn recomputed(run: &Run) -> f64 {
    match &run.recompute {
        Recompute::None | Recompute::Modules(_) => 0.0,
        Recompute::Full => 1.0,
        Recompute::Layers { count } => {
            (*count * run.pp) as f64 / run.model.layers.max(*count * run.pp) as f64
        }
        // torchtitan's policy keeps every second product.
        Recompute::PerOperation => 0.5,
    }
}

/// Share of a backward pass, recomputation included, that goes to weights: what a zero-bubble schedule may put off.
#[must_use]
pub fn weight_share(run: &Run) -> f64 {
    if !run.trained.full {
        return 0.0;
    }
    let forward = forward(run, run.mean_sequence as f64);
    let again = recomputed(run) * (forward.blocks + forward.attention);
    forward.blocks / (2.0 * forward.blocks + 2.5 * forward.attention + again)
}
