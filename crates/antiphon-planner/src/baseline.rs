//! How fast others would say that a run is, and what of memory it takes: to compare with, never to plan with.

mod memory;

use crate::flops::{self, Convention};
use crate::pipeline;
use crate::run::{Machine, Run};
use crate::update;

pub use memory::{accelerate, cookbook, deepspeed, megatron, memory, zero_paper};

/// Share of the data sheet's rate that rules of thumb take (EleutherAI/cookbook, and most tables of training times).
const USUAL_MFU: f64 = 0.4;
/// Shares of the data sheet's rates that Calculon takes: products, memory, a link inside a node, the network (Isaev 2023).
const PRODUCT: f64 = 0.75;
const MEMORY: f64 = 0.75;
const LINK: f64 = 0.65;
const NETWORK: f64 = 0.9;

/// Tokens a second for each GPU by `6 N D` operations at 40 % of the data sheet's rate.
#[must_use]
pub fn rule_of_thumb(run: &Run, machine: &Machine) -> f64 {
    peak(machine) * USUAL_MFU / (6.0 * run.model.active_parameters() as f64)
}

/// Tokens a second for each GPU by a roofline with fixed shares: operations, the traffic of each dimension, nothing hidden but
/// that of data-parallel ranks, and the pipeline's bubble.
#[must_use]
pub fn roofline(run: &Run, machine: &Machine) -> f64 {
    let tokens = (run.micro * run.mean_sequence) as f64 / run.cp as f64;
    let split = (run.tp * run.pp) as f64;
    let h = run.model.hidden as f64;
    let layers = run.model.layers as f64 / run.pp as f64;
    let operations = flops::training(run, Convention::Causal)
        + flops::recomputed(run) * flops::forward(run, run.mean_sequence as f64).blocks;
    let compute = operations * tokens / split / (peak(machine) * PRODUCT);
    // A classic block moves about 60 bytes a channel forward, and as much again twice backward.
    let moved =
        180.0 * h * tokens * layers / run.tp as f64 / (machine.gpu.memory_gb_s * 1e9 * MEMORY);
    let link = |ranks: u64| {
        if ranks <= machine.domain {
            machine.gpu.link_gb_s * 1e9 * LINK
        } else {
            machine.inter_gb_s * 1e9 * NETWORK
        }
    };
    let tensor = if run.tp > 1 {
        let ring = (run.tp - 1) as f64 / run.tp as f64;
        8.0 * 2.0 * tokens * h * ring * layers / link(run.tp)
    } else {
        0.0
    };
    let micro = compute + moved + tensor;
    let (dense, experts) = update::held(run);
    let data = if run.dp > 1 {
        (4.0 * (dense + experts) / link(run.dp * run.tp) - micro).max(0.0)
    } else {
        0.0
    };
    let bubble = pipeline::bubble(
        run.schedule,
        run.pp as f64,
        run.chunks as f64,
        pipeline::Stage {
            forward: micro / 3.0,
            backward: micro * 2.0 / 3.0,
            weights: micro / 3.0,
        },
    );
    let step = micro * run.accumulation as f64 + bubble + data;
    tokens * run.accumulation as f64 / split / step
}

fn peak(machine: &Machine) -> f64 {
    machine.gpu.bf16_tflops.max(machine.gpu.fp16_tflops) * 1e12
}
