//! Which weights a rank holds, gathers and updates, and the bytes that go through memory or between GPUs for it.

use antiphon_types::training::{Optimizer, Precision, Quantization, Sharding};

use crate::run::Run;

/// Bytes that the update of one weight moves: weight, gradient and states, read and written.
#[must_use]
pub fn update_bytes(run: &Run) -> f64 {
    let wide = match run.precision {
        Precision::Pure16 => 2.0,
        Precision::Mixed16 | Precision::Autocast | Precision::Full32 => 4.0,
    };
    // Gradient read twice, for clipping too; weight read and written.
    let weights = 4.0 * wide;
    let copy = if run.precision == Precision::Mixed16 {
        2.0
    } else {
        0.0
    };
    let states = match run.optimizer {
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::PagedAdamW => 4.0 * wide,
        Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit => 4.0,
        Optimizer::AdamW4bit => 2.0,
        Optimizer::Adafactor | Optimizer::Sgd | Optimizer::Lomo => 0.0,
        Optimizer::Lion | Optimizer::SgdMomentum => 2.0 * wide,
        Optimizer::Lion8bit => 2.0,
        Optimizer::Sophia => 4.0 * wide,
        Optimizer::Prodigy => 8.0 * wide,
        // Five Newton-Schulz steps go through each matrix in 16 bits several times.
        Optimizer::Muon => 2.0 * wide + 60.0,
        Optimizer::Galore { .. } | Optimizer::Apollo { .. } => 3.0 * wide,
    };
    weights + copy + states
}

/// Weights that move, on one rank: those that all its data-parallel peers share, and those of its experts; before sharding.
#[must_use]
pub fn held(run: &Run) -> (f64, f64) {
    let model = &run.model;
    if !run.trained.full {
        return (
            run.trained.parameters as f64 / (run.tp * run.pp) as f64,
            0.0,
        );
    }
    let (dense, experts) = weights(run);
    let _ = model;
    (dense, experts)
}

/// Weights on one rank, trained or not: shared ones, and those of its experts; before sharding.
#[must_use]
pub fn weights(run: &Run) -> (f64, f64) {
    let model = &run.model;
    let experts = (model.expert_layers() * model.routed_experts()) as f64;
    let dense = model.parameters() as f64 - experts;
    (
        dense / (run.tp * run.pp) as f64,
        experts / (run.ep * run.expert_tp * run.pp) as f64,
    )
}

/// Weights of which this rank does the update.
#[must_use]
pub fn updated(run: &Run) -> f64 {
    let (dense, experts) = held(run);
    if run.sharding == Sharding::None {
        return dense + experts;
    }
    let peers = (run.tp * run.dp * run.cp) as f64 / (run.ep * run.expert_tp) as f64;
    dense / run.shards as f64 + experts / peers.clamp(1.0, run.shards as f64)
}

/// Bytes of a stored weight, as it is gathered or sent to the GPU for a pass.
#[must_use]
pub fn stored_bytes(run: &Run) -> f64 {
    match run.quantization {
        None => 2.0,
        Some(Quantization::Nf4 | Quantization::Hqq4) => 0.5625,
        Some(Quantization::Nf4Double) => 0.516,
        Some(Quantization::Int8) => 1.0,
    }
}
