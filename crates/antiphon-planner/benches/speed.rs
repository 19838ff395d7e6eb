//! Times one whole answer about a step, over runs of several kinds; prints one JSON object. Judges nothing.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figure")]

use std::hint::black_box;
use std::time::Instant;

use antiphon_planner::speed::speed;
use antiphon_planner::{Machine, Run, catalog, profile, resolve};
use antiphon_types::training::{Framework, Model, TrainingSpec};

/// Answers that are timed.
const ROUNDS: usize = 20_000;

fn main() {
    // Test runners that look at every target pass no `--bench`.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runs: Vec<(Run, Machine)> = [
        ("meta-llama/Llama-3.1-8B", Framework::Trl, "h100", [8, 1, 1]),
        (
            "meta-llama/Llama-3.1-70B",
            Framework::MegatronBridge,
            "b200",
            [64, 2, 4],
        ),
        (
            "deepseek-ai/DeepSeek-V3",
            Framework::MegatronBridge,
            "GB300",
            [256, 1, 8],
        ),
        ("Qwen/Qwen3-30B-A3B", Framework::Verl, "h100", [32, 1, 1]),
    ]
    .into_iter()
    .map(|(model, framework, gpu, [gpus, tp, pp])| {
        let gpu = catalog::accelerator(gpu).expect("it is in the catalog");
        let machine = Machine::usual(gpu);
        let mut spec = TrainingSpec {
            model: Model::Named(model.into()),
            framework: Some(framework),
            ..TrainingSpec::default()
        };
        (spec.layout.gpus, spec.layout.tp, spec.layout.pp) = (Some(gpus), Some(tp), Some(pp));
        let (run, _) = resolve(&spec, &machine, profile::frameworks()).expect("it can be settled");
        (run, machine)
    })
    .collect();
    let start = Instant::now();
    for round in 0..ROUNDS {
        let (run, machine) = &runs[round % runs.len()];
        black_box(speed(black_box(run), black_box(machine)));
    }
    let us = start.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64;
    println!("{{\"bench\":\"planner/speed\",\"us\":{us:.3}}}");
}
