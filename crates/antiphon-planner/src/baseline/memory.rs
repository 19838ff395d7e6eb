//! What others would say that a run takes of memory, re-made from what they publish: to compare with, never to plan with.

use antiphon_types::model::Mlp;
use antiphon_types::training::{Framework, Precision, Recompute, Sharding};

use crate::run::Run;

/// What each of them says in bytes, where it says anything of such a run: none knows adapters or quantized weights, and only one
/// knows a pipeline. `last_stage` where it is the last pipeline stage that was measured.
#[must_use]
pub fn memory(run: &Run, last_stage: bool) -> [(&'static str, Option<f64>); 4] {
    let full = run.trained.full && run.quantization.is_none();
    // Megatron's report is of its own runs, of the first stage, and knows neither expert parallelism nor other recomputation
    // than core attention's.
    let reported = matches!(
        run.profile.framework,
        Framework::Megatron | Framework::MegatronBridge
    ) && (run.pp == 1 || !last_stage)
        && matches!(run.recompute, Recompute::None | Recompute::Modules(_))
        && run.ep == 1;
    let parameters = run.model.parameters() as f64;
    let largest = (run.model.vocab * run.model.hidden) as f64;
    [
        (
            "Megatron's report",
            (full && reported).then(|| megatron(run)),
        ),
        (
            "DeepSpeed's estimate",
            (full && run.tp * run.pp == 1)
                .then(|| deepspeed(parameters, largest, run.shards as f64, run.sharding))
                .flatten(),
        ),
        ("cookbook", full.then(|| cookbook(run))),
        (
            "accelerate estimate-memory",
            (full && run.gpus == 1).then(|| accelerate(run)),
        ),
    ]
}

/// `ZeRO` (Rajbhandari 2020, section 3): 16-bit weights and gradients and 12 bytes of states for each parameter, of which each
/// stage shares one more over `n` ranks.
#[must_use]
pub fn zero_paper(parameters: f64, n: f64, sharding: Sharding) -> f64 {
    match sharding {
        Sharding::None => 16.0 * parameters,
        Sharding::Zero1 => (4.0 + 12.0 / n) * parameters,
        Sharding::Zero2 => (2.0 + 14.0 / n) * parameters,
        Sharding::Zero3 => 16.0 / n * parameters,
    }
}

/// `DeepSpeed`'s estimate of what a model's states need (memory requirements page): it counts a gradient in 32 bits beside the
/// 16-bit one, and for stage 3 the largest layer gathered.
#[must_use]
pub fn deepspeed(parameters: f64, largest_layer: f64, n: f64, sharding: Sharding) -> Option<f64> {
    match sharding {
        Sharding::Zero2 => Some((4.0 + 16.0 / n) * parameters),
        Sharding::Zero3 => Some(4.0 * largest_layer + 18.0 / n * parameters),
        Sharding::None | Sharding::Zero1 => None,
    }
}

/// Megatron-LM's report of theoretical memory: 18 bytes a parameter, 6 + 12/D with the distributed optimizer, on the fullest
/// shard; activations of its first stage with sequence parallelism and core attention computed again (Korthikanti 2022).
#[must_use]
pub fn megatron(run: &Run) -> f64 {
    let model = &run.model;
    let [t, p, v] = [run.tp, run.pp, run.chunks].map(|ranks| ranks as f64);
    let (h, s, b) = (
        model.hidden as f64,
        run.sequence as f64 / run.cp as f64,
        run.micro as f64,
    );
    let ends = (model.vocab * model.hidden) as f64;
    let blocks = model.parameters() as f64 - ends * if model.tied { 1.0 } else { 2.0 };
    let untied = if model.tied || run.pp > 1 { 1.0 } else { 2.0 };
    let parameters = (blocks / p + ends * untied) / t;
    let bytes = if run.sharding == Sharding::None {
        18.0
    } else {
        6.0 + 12.0 / (run.dp * run.cp) as f64
    };
    let gated = if model.mlp == Mlp::Gated { 1.5 } else { 1.0 };
    let each = s * b * h * (18.0 + 4.0 * gated * model.ffn as f64 / h);
    let mut activations = each * model.layers as f64 + (8.0 * s * b + s * b * h) * p;
    if run.chunks > 1 {
        activations *= 1.0 + (p - 1.0) / (p * v);
    } else if run.pp > 1 {
        activations *= (run.accumulation as f64 / p).min(1.0);
    }
    if run.pp == 1 {
        activations += 4.0 * s * b * h * (1.0 + model.vocab as f64 / h);
    }
    parameters * bytes + activations / t
}

/// EleutherAI's cookbook ("Transformer Math 101"): mixed precision with Adam, gradients in 32 bits, `ZeRO`, and activations of
/// a classic block for each kind of recomputation.
#[must_use]
pub fn cookbook(run: &Run) -> f64 {
    let model = &run.model;
    let t = run.tp as f64;
    let parameters = model.parameters() as f64 / (run.tp * run.pp) as f64;
    let n = run.shards as f64;
    let (states, gradients, weights) = match run.sharding {
        Sharding::None => (1.0, 1.0, 1.0),
        Sharding::Zero1 => (n, 1.0, 1.0),
        Sharding::Zero2 => (n, n, 1.0),
        Sharding::Zero3 => (n, n, n),
    };
    let (s, b, h) = (run.sequence as f64, run.micro as f64, model.hidden as f64);
    let per_channel = match run.recompute {
        Recompute::Full | Recompute::Layers { .. } => 2.0,
        Recompute::Modules(_) | Recompute::PerOperation => 10.0 + 24.0 / t,
        Recompute::None => 10.0 + 24.0 / t + 5.0 * model.heads() as f64 * s / (h * t),
    };
    parameters * (12.0 / states + 4.0 / gradients + 2.0 / weights)
        + s * b * h * model.layers as f64 * per_channel
}

/// `accelerate estimate-memory`: training with Adam takes four times the weights in the number format that is asked for.
#[must_use]
pub fn accelerate(run: &Run) -> f64 {
    let each = match run.precision {
        Precision::Pure16 | Precision::Mixed16 => 2.0,
        Precision::Autocast | Precision::Full32 => 4.0,
    };
    4.0 * each * run.model.parameters() as f64
}
