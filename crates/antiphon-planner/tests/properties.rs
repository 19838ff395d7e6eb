//! What holds for every run, whatever is trained: memory grows with the work and falls with what shares it; parts sum to the
//! whole; no peak is below what has to be there; and every model has an answer in every framework.

#![expect(
    clippy::unwrap_used,
    reason = "a spec of these tests that cannot be planned fails them"
)]

use antiphon_planner::memory::{self, Memory};
use antiphon_planner::profile::frameworks;
use antiphon_planner::run::{Machine, Run, resolve};
use antiphon_planner::{catalog, plan, speed, states};
use antiphon_types::training::{
    Batch, Framework, Layout, Lora, Method, Model, Optimizer, Place, Precision, Quantization,
    Recompute, Sharding, TrainingSpec,
};
use proptest::prelude::*;
use proptest::sample::select;

const GIB: f64 = 1_073_741_824.0;

/// A spec of the layouts that people use, on a machine of the catalog.
fn specs() -> impl Strategy<Value = (TrainingSpec, Machine)> {
    let work = (
        select(catalog::models()),
        select(Framework::ALL.to_vec()),
        select(vec!["A100-80GB", "H100", "B200", "MI300X", "RTX4090"]),
        select(vec![256_u64, 1_000, 4_096, 16_384]),
        1_u64..5,
    );
    let split = (
        select(vec![1_u64, 2, 4, 8]),
        select(vec![1_u64, 2, 4]),
        select(vec![1_u64, 2]),
        select(vec![1_u64, 2, 4, 8]),
        select(vec![1_u64, 2, 8]),
        select(vec![1_u64, 2]),
        select(vec![
            Sharding::None,
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Zero3,
        ]),
    );
    let how = (
        select(vec![
            Method::Full,
            Method::Full,
            Method::Lora(Lora::default()),
        ]),
        select(vec![
            Optimizer::AdamW,
            Optimizer::AdamWFused,
            Optimizer::AdamW8bit,
            Optimizer::Adafactor,
            Optimizer::Lion,
            Optimizer::Muon,
            Optimizer::Sgd,
        ]),
        select(vec![
            Precision::Pure16,
            Precision::Mixed16,
            Precision::Autocast,
        ]),
        select(vec![Recompute::None, Recompute::Full]),
    );
    (work, split, how).prop_map(
        |(
            (model, framework, gpu, sequence, micro),
            (tp, pp, cp, dp, ep, chunks, sharding),
            (method, optimizer, precision, recompute),
        )| {
            let experts = model.shape.experts.map_or(1, |experts| experts.count);
            let split = experts.is_multiple_of(ep) && (tp * cp * dp).is_multiple_of(ep);
            let spec = TrainingSpec {
                model: Model::Shape(Box::new(model.shape.clone())),
                framework: Some(framework),
                method,
                optimizer: Some(optimizer),
                precision: Some(precision),
                recompute: Some(recompute),
                batch: Batch {
                    sequence_length: Some(sequence),
                    micro: Some(micro),
                    accumulation: Some(8),
                    ..Batch::default()
                },
                layout: Layout {
                    gpus: Some(tp * pp * cp * dp),
                    tp: Some(tp),
                    pp: Some(pp),
                    cp: Some(cp),
                    ep: Some(if split { ep } else { 1 }),
                    chunks: Some(if pp > 1 { chunks } else { 1 }),
                    sharding: Some(sharding),
                    ..Layout::default()
                },
                ..TrainingSpec::default()
            };
            (spec, Machine::usual(catalog::accelerator(gpu).unwrap()))
        },
    )
}

fn runs() -> impl Strategy<Value = (Run, Machine)> {
    specs().prop_map(|(spec, machine)| {
        let (run, _) = resolve(&spec, &machine, frameworks()).unwrap();
        (run, machine)
    })
}

fn allocated(run: &Run, machine: &Machine) -> f64 {
    memory::memory(run, machine).allocated
}

/// Rounding of sums of many terms.
const SLACK: f64 = 1.0 + 1e-9;

fn layers_of_a_stage(run: &Run) -> u64 {
    run.model.layers / run.pp
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        max_global_rejects: 1_000_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn memory_grows_with_the_micro_batch((run, machine) in runs(), more in 1_u64..4) {
        let larger = Run { micro: run.micro + more, ..run.clone() };
        prop_assert!(allocated(&run, &machine) <= allocated(&larger, &machine) * SLACK);
    }

    #[test]
    fn memory_grows_with_the_sequence((run, machine) in runs(), more in 1_u64..5_000) {
        let longer = Run { sequence: run.sequence + more, ..run.clone() };
        prop_assert!(allocated(&run, &machine) <= allocated(&longer, &machine) * SLACK);
    }

    #[test]
    fn memory_grows_with_the_layers((run, machine) in runs(), more in 1_u64..4) {
        let mut deeper = run.clone();
        deeper.model.layers += more * run.pp;
        if run.trained.full {
            deeper.trained.parameters = deeper.model.parameters();
        }
        prop_assert!(allocated(&run, &machine) <= allocated(&deeper, &machine) * SLACK);
    }

    #[test]
    fn memory_grows_with_the_width_of_blocks((run, machine) in runs(), more in 1_u64..2_000) {
        let mut wider = run.clone();
        wider.model.ffn += more;
        if run.trained.full {
            wider.trained.parameters = wider.model.parameters();
        }
        prop_assert!(allocated(&run, &machine) <= allocated(&wider, &machine) * SLACK);
    }

    #[test]
    fn memory_falls_with_the_ranks_that_share((run, machine) in runs()) {
        prop_assume!(run.shards > 1);
        let more = Run {
            gpus: run.gpus * 2,
            dp: run.dp * 2,
            shards: run.shards * 2,
            ..run.clone()
        };
        prop_assert!(allocated(&more, &machine) <= allocated(&run, &machine) * SLACK);
    }

    #[test]
    fn memory_falls_with_what_is_shared((run, _) in runs()) {
        prop_assume!(run.shards > 1);
        let states = |sharding: Sharding| {
            let run = Run { sharding, ..run.clone() };
            let states = states::states(&run, 0);
            states.weights + states.gradients + states.optimizer
        };
        let [one, two, three] = [Sharding::Zero1, Sharding::Zero2, Sharding::Zero3].map(states);
        prop_assert!(two <= one * SLACK && three <= two * SLACK);
        let all = Run { shards: 1, ..run.clone() };
        let whole = states::states(&all, 0);
        prop_assert!(one <= (whole.weights + whole.gradients + whole.optimizer) * SLACK);
    }

    #[test]
    fn memory_falls_with_tensor_parallelism((run, machine) in runs()) {
        let more = Run {
            gpus: run.gpus * 2,
            tp: run.tp * 2,
            expert_tp: if run.ep > 1 { 1 } else { run.expert_tp * 2 },
            ..run.clone()
        };
        prop_assert!(allocated(&more, &machine) <= allocated(&run, &machine) * SLACK);
    }

    #[test]
    fn memory_falls_with_stronger_recomputation((run, machine) in runs()) {
        // One layer is computed again whole while its neighbors wait: that is worth it from a few layers on.
        prop_assume!(layers_of_a_stage(&run) >= 8);
        let needs = |recompute: Recompute| allocated(&run.recomputing(recompute), &machine);
        let none = needs(Recompute::None);
        for some in plan::milder_first(&run.model) {
            let strength = memory::strength(&some);
            prop_assert!(needs(some) <= none * SLACK, "strength {strength}");
        }
        let per_operation = needs(Recompute::PerOperation);
        prop_assert!(needs(Recompute::Full) <= per_operation * SLACK);
    }

    #[test]
    fn no_stage_and_no_moment_needs_more_than_the_worst((run, machine) in runs()) {
        let Memory { worst, .. } = memory::memory(&run, &machine);
        for index in 0..run.pp {
            for moment in memory::moments(&run, index) {
                prop_assert!(
                    moment.parts.sum() <= worst.parts.sum() * SLACK,
                    "stage {index} at {:?}",
                    moment.phase
                );
            }
        }
    }

    #[test]
    fn parts_sum_to_the_whole((run, machine) in runs()) {
        let needs = memory::memory(&run, &machine);
        let parts = needs.worst.parts;
        prop_assert_eq!(needs.allocated, parts.sum());
        let each = [
            parts.weights,
            parts.gradients,
            parts.optimizer,
            parts.activations,
            parts.logits,
            parts.buffers,
        ];
        prop_assert!(each.iter().all(|part| *part >= 0.0), "{:?}", parts);
        prop_assert!(needs.allocated <= needs.reserved && needs.reserved <= needs.device);
        let speed = speed::speed(&run, &machine);
        prop_assert_eq!(speed.step_ms, speed.parts.sum());
        prop_assert!(speed.parts.named().iter().all(|(_, ms)| *ms >= 0.0), "{:?}", speed.parts);
    }

    /// A table of measurements was once read in the wrong unit; weights, gradients and states gave it away.
    #[test]
    fn no_peak_is_below_weights_gradients_and_states((run, machine) in runs()) {
        let needs = memory::memory(&run, &machine);
        for index in 0..run.pp {
            let states = states::states(&run, index);
            let gradients = if run.in_backward { 0.0 } else { states.gradients };
            let floor = states.weights + gradients + states.optimizer;
            prop_assert!(needs.allocated * SLACK >= floor, "stage {index}");
        }
    }

    #[test]
    fn offloading_never_needs_more_of_a_gpu((run, machine) in runs()) {
        let before = memory::memory(&run, &machine);
        for part in 0..3 {
            let mut offload = run.offload;
            let place = match part {
                0 => &mut offload.optimizer,
                1 => &mut offload.parameters,
                _ => &mut offload.activations,
            };
            // Two layers of what is offloaded are on their way.
            if part == 2 && layers_of_a_stage(&run) < 4 {
                continue;
            }
            *place = Place::Cpu;
            let after = memory::memory(&Run { offload, ..run.clone() }, &machine);
            prop_assert!(after.device <= before.device * SLACK, "part {part}");
            prop_assert!(after.host >= before.host / SLACK, "part {part}");
        }
    }

    #[test]
    fn quantized_weights_are_no_larger((run, _) in runs()) {
        prop_assume!(!run.trained.full);
        let weights = |quantization| {
            let run = Run { quantization, ..run.clone() };
            states::states(&run, 0).weights
        };
        let whole = weights(None);
        let eight = weights(Some(Quantization::Int8));
        let four = weights(Some(Quantization::Nf4));
        let double = weights(Some(Quantization::Nf4Double));
        prop_assert!(double <= four && four <= eight && eight <= whole);
    }

    #[test]
    fn a_plan_fits_where_its_margin_is_left((run, machine) in runs()) {
        let needs = memory::memory(&run, &machine);
        let margin = (0.02 * needs.usable).max(GIB).min(0.05 * needs.usable);
        prop_assert_eq!(needs.fits, needs.device + margin <= needs.usable);
        prop_assert_eq!(needs.usable, machine.gpu.usable_gib * GIB);
    }
}

#[test]
fn every_model_has_an_answer_in_every_framework() {
    let machine = Machine::usual(catalog::accelerator("H100").unwrap());
    let methods = [
        (Method::Full, None),
        (Method::Lora(Lora::default()), None),
        (Method::Lora(Lora::default()), Some(Quantization::Nf4)),
    ];
    for known in catalog::models() {
        for framework in Framework::ALL {
            for (method, quantization) in &methods {
                let spec = TrainingSpec {
                    model: Model::Named(known.shape.name.clone()),
                    framework: Some(framework),
                    method: method.clone(),
                    quantization: *quantization,
                    layout: Layout {
                        gpus: Some(8),
                        ..Layout::default()
                    },
                    ..TrainingSpec::default()
                };
                let what = format!("{} in {}", known.shape.name, framework.name());
                let answer = plan(&spec, &machine, frameworks()).unwrap();
                let (needs, speed) = (&answer.memory, &answer.speed);
                let numbers = [
                    needs.allocated,
                    needs.reserved,
                    needs.device,
                    speed.step_ms,
                    speed.floor_ms,
                    speed.tokens_per_s_per_gpu,
                    speed.tflops,
                    speed.mfu,
                    speed.hfu,
                ];
                assert!(
                    numbers
                        .iter()
                        .all(|number| number.is_finite() && *number > 0.0),
                    "{what}: {numbers:?}"
                );
                assert!(
                    speed.mfu < 1.0 && speed.step_ms >= speed.floor_ms,
                    "{what}: {speed:?}"
                );
            }
        }
    }
}
