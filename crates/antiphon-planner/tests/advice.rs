//! Advice against the plans that it speaks of, and what is told apart as somebody's experience.

#![expect(
    clippy::unwrap_used,
    reason = "a spec of these tests that cannot be planned fails them"
)]

use antiphon_planner::advice::{Advice, Asked, Breadth, Kind, advise, claim};
use antiphon_planner::plan::{Plan, plan};
use antiphon_planner::profile::frameworks;
use antiphon_planner::run::Machine;
use antiphon_planner::search::Offer;
use antiphon_planner::{catalog, memory, states};
use antiphon_types::training::{
    Batch, Framework, Layout, Length, Lora, LossKernel, Method, Model, Optimizer, Quantization,
    Recompute, Sharding, TrainingSpec,
};

const GIB: f64 = 1_073_741_824.0;

fn machine(gpu: &str) -> Machine {
    Machine::usual(catalog::accelerator(gpu).unwrap())
}

fn spec(model: &str, gpus: u64) -> TrainingSpec {
    TrainingSpec {
        model: Model::Named(model.into()),
        framework: Some(Framework::Transformers),
        batch: Batch {
            sequence_length: Some(4_096),
            micro: Some(1),
            accumulation: Some(8),
            ..Batch::default()
        },
        layout: Layout {
            gpus: Some(gpus),
            ..Layout::default()
        },
        length: Length {
            tokens: Some(50_000_000),
            ..Length::default()
        },
        ..TrainingSpec::default()
    }
}

fn planned(spec: &TrainingSpec, gpu: &str) -> Plan {
    plan(spec, &machine(gpu), frameworks()).unwrap()
}

fn advice(
    spec: &TrainingSpec,
    plan: &Plan,
    breadth: Option<Breadth>,
    offers: &[Offer],
) -> Vec<Advice> {
    advise(&Asked {
        spec,
        plan,
        breadth,
        offers,
        frameworks: frameworks(),
    })
}

fn about<'a>(all: &'a [Advice], what: &str) -> Option<&'a Advice> {
    all.iter().find(|advice| advice.what == what)
}

#[test]
fn a_leaner_loss_saves_what_the_other_plan_needs_less() {
    let spec = spec("Llama-3.1-8B", 8);
    let plan = planned(&spec, "H100");
    let all = advice(&spec, &plan, None, &[]);
    let told = about(&all, "loss kernel").unwrap();
    let mut other = plan.run.clone();
    other.loss = LossKernel::FusedLinear;
    let saved = plan.memory.device - memory::memory(&other, &plan.machine).device;
    assert_eq!(told.effect.memory_bytes, saved);
    let number = format!("saves {:.1} GiB a GPU", saved / GIB);
    assert!(told.sentence.contains(&number), "{}", told.sentence);
    assert_eq!(told.kind, Kind::Computed);
}

#[test]
fn weaker_recomputation_is_offered_where_it_fits_and_stronger_where_memory_is_short() {
    let roomy = TrainingSpec {
        recompute: Some(Recompute::Full),
        ..spec("Llama-3.2-1B", 8)
    };
    let plan = planned(&roomy, "H100");
    let all = advice(&roomy, &plan, None, &[]);
    let told = about(&all, "recomputation").unwrap();
    assert!(
        told.effect.speed > 0.05 && told.effect.memory_bytes < 0.0,
        "{told:?}"
    );

    let short = TrainingSpec {
        recompute: Some(Recompute::None),
        batch: Batch {
            micro: Some(4),
            ..spec("Llama-3.1-8B", 8).batch
        },
        ..spec("Llama-3.1-8B", 8)
    };
    let plan = planned(&short, "H100");
    assert!(!plan.memory.fits);
    let all = advice(&short, &plan, None, &[]);
    let told = about(&all, "recomputation").unwrap();
    assert!(
        told.effect.speed < 0.0 && told.effect.memory_bytes > 0.0,
        "{told:?}"
    );
}

#[test]
fn lora_fits_on_fewer_gpus_at_a_share_of_the_cost() {
    let spec = spec("Llama-3.1-8B", 8);
    let plan = planned(&spec, "H100");
    let all = advice(&spec, &plan, None, &[]);
    let told = about(&all, "LoRA").unwrap();
    assert!(told.effect.cost > 0.0 && told.effect.cost < 1.0, "{told:?}");
    assert!(
        told.sentence.contains("fits on one H100-SXM-80GB at"),
        "{}",
        told.sentence
    );
}

#[test]
fn a_plan_that_does_not_fit_hears_first_what_makes_it_fit() {
    let spec = spec("Llama-3.1-70B", 8);
    let plan = planned(&spec, "A100-80GB");
    assert!(!plan.memory.fits);
    let all = advice(&spec, &plan, None, &[]);
    assert!(all[0].effect.makes_fit, "{all:?}");
    let layout = about(&all, "layout").unwrap();
    assert!(
        layout.sentence.contains("it fits on"),
        "{}",
        layout.sentence
    );
}

#[test]
fn a_larger_micro_batch_is_offered_with_the_same_step() {
    let spec = spec("Llama-3.2-1B", 8);
    let plan = planned(&spec, "H100");
    let all = advice(&spec, &plan, None, &[]);
    let told = about(&all, "larger micro-batch").unwrap();
    assert!(told.effect.speed > 0.02, "{told:?}");
    let (micro, accumulation) = [(2, 4), (4, 2), (8, 1)]
        .into_iter()
        .find(|(micro, accumulation)| {
            told.sentence
                .starts_with(&format!("a micro-batch of {micro}, {accumulation} times"))
        })
        .unwrap();
    assert_eq!(micro * accumulation, plan.run.micro * plan.run.accumulation);
}

#[test]
fn packing_is_offered_where_examples_are_short_and_padded() {
    let with = |mean: u64| TrainingSpec {
        batch: Batch {
            sequence_length: Some(4_096),
            micro: Some(8),
            packing: Some(false),
            mean_length: Some(mean),
            ..spec("Llama-3.1-8B", 8).batch
        },
        method: Method::Lora(Lora::default()),
        ..spec("Llama-3.1-8B", 8)
    };
    let short = with(400);
    let plan = planned(&short, "H100");
    let told = advice(&short, &plan, None, &[]);
    let told = about(&told, "packing").unwrap();
    assert!(told.effect.speed > 0.5, "{told:?}");
    assert!(
        told.sentence.contains("padded to about 8"),
        "{}",
        told.sentence
    );

    let long = with(3_000);
    let plan = planned(&long, "H100");
    assert_eq!(about(&advice(&long, &plan, None, &[]), "packing"), None);
}

#[test]
fn a_quantized_base_is_offered_where_memory_is_short_and_a_whole_one_where_there_is_room() {
    let with = |quantization: Option<Quantization>| TrainingSpec {
        method: Method::Lora(Lora::default()),
        quantization,
        recompute: Some(Recompute::Full),
        ..spec("Llama-3.1-8B", 1)
    };
    let short = with(None);
    let plan = planned(&short, "RTX4090");
    let all = advice(&short, &plan, None, &[]);
    let told = about(&all, "quantized base").unwrap();
    assert!(
        told.sentence.starts_with("QLoRA") && told.effect.memory_bytes > 5.0 * GIB,
        "{told:?}"
    );

    let roomy = with(Some(Quantization::Nf4));
    let plan = planned(&roomy, "H100");
    let all = advice(&roomy, &plan, None, &[]);
    let told = about(&all, "quantized base").unwrap();
    assert!(
        told.sentence.starts_with("LoRA on an unquantized base"),
        "{told:?}"
    );
    assert!(
        told.effect.speed > 0.0 && told.effect.memory_bytes < 0.0,
        "{told:?}"
    );
}

#[test]
fn zero_2_is_offered_where_it_fits_and_is_faster() {
    let spec = TrainingSpec {
        framework: Some(Framework::Deepspeed),
        layout: Layout {
            sharding: Some(Sharding::Zero3),
            ..spec("Llama-3.2-3B", 16).layout
        },
        ..spec("Llama-3.2-3B", 16)
    };
    let mut slow = machine("H100");
    // Weights cross a slow network for each micro-batch.
    slow.inter_gb_s = 3.0;
    let plan = plan(&spec, &slow, frameworks()).unwrap();
    let all = advice(&spec, &plan, None, &[]);
    let told = about(&all, "sharding").unwrap();
    assert!(told.effect.speed > 0.05, "{told:?}");
    assert!(told.sentence.starts_with("ZeRO-2"), "{}", told.sentence);
}

#[test]
fn another_gpu_type_is_named_with_its_price_for_a_token() {
    let spec = TrainingSpec {
        method: Method::Lora(Lora::default()),
        ..spec("Llama-3.1-8B", 1)
    };
    let mut dear = machine("H100");
    dear.usd_h = 12.0;
    let plan = plan(&spec, &dear, frameworks()).unwrap();
    let offers = [Offer {
        gpu_type: String::new(),
        partition: None,
        machine: machine("A100-80GB"),
        gpus: 8,
    }];
    let all = advice(&spec, &plan, None, &offers);
    let told = about(&all, "GPU type").unwrap();
    assert!(told.effect.cost > 0.05, "{told:?}");
    assert!(told.sentence.contains("A100-SXM-80GB"), "{}", told.sentence);
}

#[test]
fn few_examples_of_a_narrow_task_ask_for_a_smaller_model() {
    let spec = TrainingSpec {
        length: Length {
            examples: Some(8_000),
            ..Length::default()
        },
        ..spec("Llama-3.1-70B", 16)
    };
    let plan = planned(&spec, "H100");
    let all = advice(&spec, &plan, Some(Breadth::Narrow), &[]);
    let told = about(&all, "smaller model").unwrap();
    assert!(
        matches!(told.kind, Kind::RuleOfThumb { source } if source.contains("2026 Best Practices"))
    );
    assert!(
        told.sentence.contains("retrieval") && told.sentence.contains("Llama-3.2-3B"),
        "{}",
        told.sentence
    );
    assert!(told.effect.cost > 0.5, "{told:?}");
    let open = advice(&spec, &plan, Some(Breadth::Open), &[]);
    assert_eq!(about(&open, "smaller model"), None);
}

#[test]
fn what_is_shown_is_at_most_eight_and_every_rule_of_thumb_names_its_source() {
    for model in ["Llama-3.2-1B", "Llama-3.1-8B", "Llama-3.1-70B"] {
        for gpus in [1, 8, 16] {
            let spec = TrainingSpec {
                length: Length {
                    examples: Some(8_000),
                    ..Length::default()
                },
                ..spec(model, gpus)
            };
            let plan = planned(&spec, "H100");
            let all = advice(&spec, &plan, Some(Breadth::Narrow), &[]);
            assert!(!all.is_empty() && all.len() <= 8, "{model} on {gpus}");
            for told in &all {
                assert!(
                    told.sentence.chars().any(|c| c.is_ascii_digit()),
                    "{told:?}"
                );
                if let Kind::RuleOfThumb { source } = told.kind {
                    assert!(source.contains('"'), "{told:?}");
                }
            }
        }
    }
}

/// An article benchmarks a 13 B model on 32 A100-80GB, finds Sophia 14 GB a GPU below `AdamW`, and asks schedulers to count on
/// it. Both keep two states; and where a 13 B model fits that GPU at all, `AdamW`'s two states together are less than 14 GB.
#[test]
fn that_sophia_needs_14_gb_less_than_adamw_contradicts_the_states_of_both() {
    let spec = TrainingSpec {
        layout: Layout {
            sharding: Some(Sharding::Zero3),
            ..spec("meta-llama/Llama-2-13b-hf", 32).layout
        },
        ..spec("meta-llama/Llama-2-13b-hf", 32)
    };
    for sharding in [Sharding::Zero1, Sharding::Zero2, Sharding::Zero3] {
        let with = |optimizer: Optimizer| {
            let spec = TrainingSpec {
                optimizer: Some(optimizer),
                layout: Layout {
                    sharding: Some(sharding),
                    ..spec.layout
                },
                ..spec.clone()
            };
            let plan = planned(&spec, "A100-80GB");
            states::states(&plan.run, 0).optimizer
        };
        let (adamw, sophia) = (with(Optimizer::AdamWFused), with(Optimizer::Sophia));
        assert_eq!(adamw, sophia);
        assert!(adamw < 14e9, "{sharding:?}: {adamw}");
    }
    let plan = planned(&spec, "A100-80GB");
    let told = advice(&spec, &plan, None, &[]);
    let told = about(&told, "optimizer").unwrap();
    assert!(told.sentence.contains("does not hold"), "{}", told.sentence);
    assert!((claim(Optimizer::Sophia).unwrap().steps - 0.8).abs() < 1e-9);
}
