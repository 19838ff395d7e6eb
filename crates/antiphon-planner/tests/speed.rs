//! What holds of every planned step, checkpoint and cost, whatever the run.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails where a run can't be settled"
)]

use antiphon_planner::calibrate::{Attempt, Calibration};
use antiphon_planner::checkpoint::{self, Hazards};
use antiphon_planner::flops::{self, Convention};
use antiphon_planner::parts::Parts;
use antiphon_planner::speed::{Speed, speed};
use antiphon_planner::{Machine, Run, baseline, catalog, cost, profile, resolve};
use antiphon_types::training::{
    Framework, Length, Lora, Matmul, Method, Model, Place, Recompute, Rollout, Schedule, Sharding,
    Task, TrainingSpec,
};
use proptest::prelude::*;

const MODELS: [&str; 7] = [
    "meta-llama/Llama-3.2-3B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen3-30B-A3B",
    "deepseek-ai/DeepSeek-V3",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-20b",
];
const GPUS: [&str; 8] = [
    "a100", "h100", "h200", "b200", "GB300", "4090", "L40S", "MI300X",
];

fn machine(gpu: &str) -> Machine {
    Machine::usual(catalog::accelerator(gpu).unwrap())
}

fn settled(spec: &TrainingSpec, machine: &Machine) -> Run {
    resolve(spec, machine, profile::frameworks()).unwrap().0
}

prop_compose! {
    /// A run of any kind that can be settled.
    fn specs()(
        model in 0..MODELS.len(),
        framework in 0..Framework::ALL.len(),
        (tp, pp, cp, replicas) in (0..4_u32, 0..3_u32, 0..3_u32, 0..4_u32),
        ep in 0..4_u32,
        (micro, accumulation) in (1..5_u64, 1..20_u64),
        sequence in 9..16_u32,
        sharding in prop::sample::select(vec![Sharding::None, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3]),
        recompute in prop::sample::select(vec![Recompute::None, Recompute::PerOperation, Recompute::Full]),
        matmul in prop::sample::select(vec![None, None, Some(Matmul::Fp8Tensor), Some(Matmul::Mxfp8), Some(Matmul::Nvfp4)]),
        lora in any::<bool>(),
        task in prop::sample::select(vec![Task::Sft, Task::Pretrain, Task::Dpo, Task::RewardModel, Task::Grpo, Task::Ppo]),
        asynchronous in any::<bool>(),
        schedule in prop::sample::select(vec![
            Schedule::Gpipe, Schedule::OneForwardOneBackward, Schedule::ZeroBubbleH1, Schedule::ZeroBubbleV, Schedule::DualPipe,
            Schedule::DualPipeV,
        ]),
    ) -> TrainingSpec {
        let (tp, pp, cp, dp) = (1 << tp, 1 << pp, 1 << cp, 1_u64 << replicas);
        let mut spec = TrainingSpec {
            model: Model::Named(MODELS[model].into()),
            task,
            method: if lora { Method::Lora(Lora::default()) } else { Method::Full },
            matmul,
            recompute: Some(recompute),
            framework: Some(Framework::ALL[framework]),
            ..TrainingSpec::default()
        };
        spec.batch.sequence_length = Some(1 << sequence);
        spec.batch.micro = Some(micro);
        spec.batch.accumulation = Some(accumulation);
        spec.layout.gpus = Some(tp * pp * cp * dp);
        (spec.layout.tp, spec.layout.pp, spec.layout.cp) = (Some(tp), Some(pp), Some(cp));
        spec.layout.ep = Some((1 << ep).min(dp));
        spec.layout.sharding = Some(sharding);
        spec.layout.schedule = Some(schedule);
        if matches!(task, Task::Grpo | Task::Ppo) {
            spec.rollout = Some(Rollout {
                prompts: Some(micro * accumulation * dp * 2),
                answer_tokens: Some(1 << (sequence - 2)),
                asynchronous,
                gpus: asynchronous.then_some(8),
                ..Rollout::default()
            });
        }
        spec
    }
}

/// Seconds that a change may save at most by rounding alone.
fn not_faster(before: &Speed, after: &Speed) -> bool {
    after.step_ms >= before.step_ms * (1.0 - 1e-9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_parts_of_a_step_sum_to_it_and_none_is_negative(spec in specs(), gpu in 0..GPUS.len()) {
        let machine = machine(GPUS[gpu]);
        let speed = speed(&settled(&spec, &machine), &machine);
        let sum: f64 = speed.parts.named().iter().map(|part| part.1).sum();
        prop_assert!((sum - speed.step_ms).abs() < 1e-6 * speed.step_ms, "{sum} of {}", speed.step_ms);
        for (name, ms) in speed.parts.named() {
            prop_assert!(ms.is_finite() && ms >= 0.0, "{name}: {ms}");
        }
        prop_assert!(speed.bottleneck.ms() <= speed.step_ms);
        prop_assert!(!speed.bottleneck.help().is_empty());
    }

    #[test]
    fn no_step_is_faster_than_its_operations_at_the_data_sheets_rate(spec in specs(), gpu in 0..GPUS.len()) {
        let machine = machine(GPUS[gpu]);
        let speed = speed(&settled(&spec, &machine), &machine);
        prop_assert!(speed.step_ms >= speed.floor_ms, "{} under {}", speed.step_ms, speed.floor_ms);
        prop_assert!(speed.hfu >= speed.mfu);
        let told = speed.tokens / speed.tokens_per_s_per_gpu / speed.step_ms * 1e3;
        let gpus = spec.layout.gpus.unwrap() + spec.rollout.map_or(0, |rollout| rollout.gpus.unwrap_or(0));
        prop_assert!((told / gpus as f64 - 1.0).abs() < 1e-9, "{told} GPUs");
    }

    #[test]
    fn more_of_the_hardware_is_never_slower(spec in specs(), gpu in 0..GPUS.len(), more in 1.1..4.0_f64) {
        let machine = machine(GPUS[gpu]);
        let run = settled(&spec, &machine);
        let before = speed(&run, &machine);
        let change = |change: &dyn Fn(&mut Machine)| {
            let mut better = machine.clone();
            change(&mut better);
            speed(&run, &better)
        };
        for (what, after) in [
            ("memory bandwidth", change(&|m| m.gpu.memory_gb_s *= more)),
            ("links", change(&|m| m.gpu.link_gb_s *= more)),
            ("network", change(&|m| m.inter_gb_s *= more)),
            ("PCIe", change(&|m| m.gpu.pcie_gb_s *= more)),
            ("measured rate", change(&|m| {
                m.gpu.measured_bf16_tflops *= more;
                m.gpu.measured_fp8_tflops *= more;
            })),
        ] {
            // Each kind of traffic hides behind the same work: where that becomes faster, more of several kinds shows.
            prop_assert!(after.step_ms <= before.step_ms * 1.005, "{more} x {what}: {} after {}", after.step_ms, before.step_ms);
        }
    }

    #[test]
    fn more_work_in_a_step_takes_longer_and_has_more_tokens(spec in specs(), gpu in 0..GPUS.len()) {
        let machine = machine(GPUS[gpu]);
        let run = settled(&spec, &machine);
        let before = speed(&run, &machine);
        for (what, larger) in [
            ("accumulation", Run { accumulation: run.accumulation + 1, ..run.clone() }),
            ("micro-batch", Run { micro: run.micro + 1, ..run.clone() }),
        ] {
            // Where answers set the work of a step, a larger batch is fewer updates of the same answers.
            if matches!(run.task, Task::Grpo | Task::Ppo) {
                continue;
            }
            let after = speed(&larger, &machine);
            prop_assert!(after.tokens > before.tokens, "{what}");
            prop_assert!(not_faster(&before, &after), "{what}: {} after {}", after.step_ms, before.step_ms);
        }
        // Where what is kept goes to the host, keeping more may take longer than making it again.
        if run.offload.activations != Place::Gpu {
            return Ok(());
        }
        let recomputed = speed(&Run { recompute: Recompute::Full, ..run.clone() }, &machine);
        let kept = speed(&Run { recompute: Recompute::None, ..run }, &machine);
        prop_assert!(not_faster(&kept, &recomputed));
        prop_assert!(recomputed.recompute_ms > kept.recompute_ms);
    }

    #[test]
    fn checkpoints_are_written_before_the_next_and_within_their_limits(
        spec in specs(), gpu in 0..GPUS.len(), notices in 0.0..1.0_f64,
    ) {
        let machine = machine(GPUS[gpu]);
        let run = settled(&spec, &machine);
        let hazards = Hazards { notices_per_node_hour: notices, ..Hazards::default() };
        let saved = checkpoint::checkpoint(&run, &machine, &hazards);
        prop_assert!(saved.interval_s >= saved.save_s && saved.interval_s >= saved.write_s);
        let most = 60.0 * checkpoint::at_most_minutes(run.gpus) as f64;
        prop_assert!(saved.interval_s <= most.max(saved.write_s).max(saved.save_s));
        prop_assert!(saved.waste > 0.0 && saved.waste < 1.0);
        let calm = checkpoint::checkpoint(&run, &machine, &Hazards::default());
        prop_assert!(calm.waste <= saved.waste);
        prop_assert!(saved.bytes > 0.0 && saved.rank_bytes <= saved.bytes);
    }

    #[test]
    fn a_longer_run_costs_more_and_tokens_cost_the_same(spec in specs(), gpu in 0..GPUS.len(), steps in 100..10_000_u64) {
        let machine = machine(GPUS[gpu]);
        let run = settled(&spec, &machine);
        let speed = speed(&run, &machine);
        let saved = checkpoint::checkpoint(&run, &machine, &Hazards::default());
        let of = |steps| {
            let length = Length { steps: Some(steps), ..Length::default() };
            cost::cost(&run, &machine, &speed, &length, &saved).unwrap()
        };
        let (one, two) = (of(steps), of(2 * steps));
        prop_assert!(two.gpu_hours > one.gpu_hours && two.on_demand_usd >= one.on_demand_usd);
        prop_assert!((two.tokens / one.tokens - 2.0).abs() < 1e-9);
        prop_assert!(two.usd_per_million_tokens <= one.usd_per_million_tokens);
        let tokens = Length { tokens: Some(one.tokens as u64), ..Length::default() };
        let same = cost::cost(&run, &machine, &speed, &tokens, &saved).unwrap();
        prop_assert!((same.steps - one.steps).abs() <= 1.0);
        prop_assert!(cost::cost(&run, &machine, &speed, &Length::default(), &saved).is_none());
    }

    #[test]
    fn calibration_finds_the_factors_that_attempts_were_made_with(
        factor in 0.5..2.0_f64, between in 0.5..2.0_f64, memory in 0.8..1.2_f64, gpu in 0..4_usize,
    ) {
        let machine = machine(GPUS[gpu]);
        // Layouts that differ in their communication, so that both factors can be told apart.
        let (planned, attempts): (Vec<_>, Vec<_>) = [(1, 1), (8, 1), (8, 4), (4, 2), (2, 1)]
            .into_iter()
            .map(|(tp, nodes)| {
                let mut spec = TrainingSpec {
                    model: Model::Named("meta-llama/Llama-3.1-8B".into()),
                    framework: Some(Framework::Torchtitan),
                    ..TrainingSpec::default()
                };
                spec.layout.tp = Some(tp);
                spec.layout.gpus = Some(8 * nodes);
                let planned = speed(&settled(&spec, &machine), &machine);
                let true_factors = Calibration { compute: factor, communication: between, memory };
                let attempt = Attempt {
                    planned_ms: planned.step_ms,
                    communication_ms: planned.parts.communication(),
                    step_ms: true_factors.step_ms(&planned),
                    peak_bytes: Some((1e9, memory * 1e9)),
                };
                (planned, attempt)
            })
            .unzip();
        let found = Calibration::of(&attempts);
        prop_assert!((found.memory - memory).abs() < 1e-9);
        for (planned, attempt) in planned.iter().zip(&attempts) {
            let error = (found.step_ms(planned) / attempt.step_ms - 1.0).abs();
            prop_assert!(error < 0.3, "{error}: {found:?}");
            let applied = found.apply(planned);
            prop_assert!((applied.parts.sum() - applied.step_ms).abs() < 1e-6 * applied.step_ms);
        }
        let none = Calibration::of(&[]);
        prop_assert_eq!(none, Calibration::default());
        prop_assert!((none.step_ms(&planned[0]) - planned[0].step_ms).abs() < 1e-9);
    }
}

#[test]
fn operations_are_those_of_the_published_formula() {
    // Narayanan 2021, with everything computed again: 96 L h^2 (1 + s/6h + V/16Lh) for each token.
    let machine = machine("a100");
    for name in ["GPT-22B", "GPT-175B", "GPT-530B", "GPT-1T"] {
        let spec = TrainingSpec {
            model: Model::Named(name.into()),
            recompute: Some(Recompute::Full),
            ..TrainingSpec::default()
        };
        let run = settled(&spec, &machine);
        let (h, layers, vocab, s) = (
            run.model.hidden as f64,
            run.model.layers as f64,
            run.model.vocab as f64,
            run.sequence as f64,
        );
        let published = 96.0 * layers * h * h * (1.0 + s / (6.0 * h) + vocab / (16.0 * layers * h));
        let ours = flops::training(&run, Convention::Hardware);
        assert!(
            (ours / published - 1.0).abs() < 1e-9,
            "{name}: {ours:e} and {published:e}"
        );
    }
}

#[test]
fn operations_are_those_that_published_rates_were_told_in() {
    // 10^12 operations a second over tokens a second, as the sources print both.
    let machine = machine("h100");
    for (name, sequence, convention, tflops, tokens) in [
        (
            "meta-llama/Llama-3.1-8B",
            8_192,
            Convention::Causal,
            1_933.0,
            37_556.0,
        ),
        (
            "meta-llama/Llama-3.1-70B",
            8_192,
            Convention::Causal,
            2_186.0,
            4_864.0,
        ),
        (
            "meta-llama/Llama-3.1-405B",
            8_192,
            Convention::Causal,
            2_646.0,
            1_048.0,
        ),
        (
            "deepseek-ai/DeepSeek-V3",
            4_096,
            Convention::Causal,
            961.0,
            3_848.0,
        ),
        (
            "mosaicml/MPT-7b",
            2_048,
            Convention::NonCausal,
            459.0,
            10_643.0,
        ),
        (
            "mosaicml/MPT-3b",
            65_536,
            Convention::NonCausal,
            265.0,
            3_262.0,
        ),
    ] {
        let mut spec = TrainingSpec {
            model: Model::Named(name.into()),
            ..TrainingSpec::default()
        };
        spec.batch.sequence_length = Some(sequence);
        let ours = flops::training(&settled(&spec, &machine), convention);
        let published = tflops * 1e12 / tokens;
        assert!(
            (ours / published - 1.0).abs() < 0.02,
            "{name}: {ours:e} and {published:e}"
        );
    }
}

#[test]
fn published_throughput_is_nearer_than_by_rules_of_thumb() {
    /// Model, library, GPU, GPUs, tensor and pipeline parallelism, chunks, micro-batch, sequences of a step, tokens of one,
    /// tokens a second for each GPU.
    type Row = (&'static str, Framework, &'static str, [u64; 7], u64, f64);
    // From mosaicml/llm-foundry, pytorch/torchtitan and NVIDIA-NeMo/Megatron-Bridge, as their pages tell them.
    let rows: [Row; 5] = [
        (
            "mosaicml/MPT-7b",
            Framework::Composer,
            "h100",
            [8, 1, 1, 1, 6, 48, 0],
            2_048,
            10_643.0,
        ),
        (
            "mosaicml/MPT-30b",
            Framework::Composer,
            "h100",
            [128, 1, 1, 1, 8, 1_024, 2],
            2_048,
            2_199.0,
        ),
        (
            "mosaicml/MPT-7b",
            Framework::Composer,
            "a100",
            [8, 1, 1, 1, 6, 96, 0],
            2_048,
            4_641.0,
        ),
        (
            "meta-llama/Llama-3.1-8B",
            Framework::Torchtitan,
            "H100-HBM2e-96GB-500W",
            [8, 1, 1, 1, 2, 16, 1],
            8_192,
            6_667.0,
        ),
        (
            "meta-llama/Llama-3.1-70B",
            Framework::MegatronBridge,
            "GB300",
            [64, 1, 4, 5, 1, 256, 3],
            8_192,
            4_864.0,
        ),
    ];
    let (mut ours, mut thumb, mut roofline) = (0.0, 0.0, 0.0);
    for (model, framework, gpu, [gpus, tp, pp, chunks, micro, global, kind], sequence, measured) in
        rows
    {
        let machine = machine(gpu);
        let mut spec = TrainingSpec {
            model: Model::Named(model.into()),
            task: Task::Pretrain,
            framework: Some(framework),
            recompute: Some(match kind {
                1 => Recompute::PerOperation,
                2 => Recompute::Full,
                _ => Recompute::None,
            }),
            compile: Some(framework == Framework::Torchtitan),
            matmul: (kind == 3).then_some(Matmul::Mxfp8),
            ..TrainingSpec::default()
        };
        spec.batch.sequence_length = Some(sequence);
        spec.batch.micro = Some(micro);
        spec.batch.global = Some(global);
        spec.layout.gpus = Some(gpus);
        (spec.layout.tp, spec.layout.pp, spec.layout.chunks) = (Some(tp), Some(pp), Some(chunks));
        let run = settled(&spec, &machine);
        let planned = speed(&run, &machine).tokens_per_s_per_gpu;
        let error = |told: f64| (told / measured - 1.0).abs();
        assert!(
            error(planned) < 0.2,
            "{model} on {gpu}: {planned} planned, {measured} measured"
        );
        ours += error(planned);
        thumb += error(baseline::rule_of_thumb(&run, &machine));
        roofline += error(baseline::roofline(&run, &machine));
    }
    assert!(
        ours < thumb && ours < roofline,
        "{ours}, by the rule {thumb}, by the roofline {roofline}"
    );
}

#[test]
fn the_parts_of_nothing_are_nothing() {
    assert!(Parts::default().sum().abs() < f64::EPSILON);
}

#[test]
fn the_interval_of_daly_loses_the_least() {
    for (save, between) in [(1.0, 3_600.0), (30.0, 7_200.0), (300.0, 86_400.0)] {
        let best = checkpoint::daly(save, between);
        let lost = |interval: f64| checkpoint::waste(save, interval, 180.0, between);
        for other in [best / 2.0, best * 2.0] {
            assert!(
                lost(best) < lost(other),
                "{save} s, {between} s: {best} s and {other} s"
            );
        }
    }
    // Where saving takes longer than the run lives, it saves as often as it stops.
    assert!((checkpoint::daly(100.0, 40.0) - 40.0).abs() < f64::EPSILON);
}
