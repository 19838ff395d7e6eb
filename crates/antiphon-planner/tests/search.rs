//! The layout search against a plain walk over all layouts, and what its answer is made into: shapes and an out-of-memory ladder.

#![expect(
    clippy::unwrap_used,
    reason = "a spec of these tests that cannot be planned fails them"
)]

use antiphon_planner::ladder::ladder;
use antiphon_planner::profile::{Ability, frameworks, habits};
use antiphon_planner::roles::Part;
use antiphon_planner::run::{Machine, Run, resolve};
use antiphon_planner::search::{Found, Gang, Limits, Offer, gang, search};
use antiphon_planner::shapes::shapes;
use antiphon_planner::{catalog, memory, speed};
use antiphon_types::training::{
    Batch, Framework, Layout, Length, Lora, LossKernel, Method, Model, Place, Recompute, Rollout,
    Schedule, Sharding, Task, TrainingSpec,
};
use antiphon_types::{Rung, Span};

fn offer(gpu: &str, gpus: u64) -> Offer {
    Offer {
        gpu_type: gpu.into(),
        partition: None,
        machine: Machine::usual(catalog::accelerator(gpu).unwrap()),
        gpus,
    }
}

fn spec(model: &str, framework: Framework, global: u64) -> TrainingSpec {
    TrainingSpec {
        model: Model::Named(model.into()),
        framework: Some(framework),
        batch: Batch {
            sequence_length: Some(4_096),
            global: Some(global),
            ..Batch::default()
        },
        length: Length {
            tokens: Some(200_000_000),
            ..Length::default()
        },
        ..TrainingSpec::default()
    }
}

fn limits(gpus_min: u64, gpus_max: u64) -> Limits {
    Limits {
        gpus_min,
        gpus_max,
        ..Limits::default()
    }
}

fn found(spec: &TrainingSpec, offers: &[Offer], limits: &Limits) -> Found {
    search(spec, offers, limits, frameworks()).unwrap()
}

/// Milliseconds of the fastest layout that fits, by trying all of them without a thought.
fn fastest_of_all(spec: &TrainingSpec, machine: &Machine, gpus: u64) -> f64 {
    let global = spec.batch.global.unwrap();
    let mut fastest = f64::INFINITY;
    let powers = [1, 2, 4, 8, 16];
    let again = [
        Recompute::None,
        antiphon_planner::plan::milder_first(&catalog::model("Llama-3.1-8B").unwrap().shape)[0]
            .clone(),
        Recompute::Full,
    ];
    for tp in powers {
        for pp in powers {
            for cp in powers {
                if !gpus.is_multiple_of(tp * pp * cp) || tp > machine.domain {
                    continue;
                }
                let dp = gpus / (tp * pp * cp);
                for chunks in [1, 2, 4, 8] {
                    let interleaves =
                        pp > 1 && 32_u64.is_multiple_of(pp * chunks) && 32 > pp * chunks;
                    if !global.is_multiple_of(dp) || (chunks > 1 && !interleaves) {
                        continue;
                    }
                    for sharding in [Sharding::None, Sharding::Zero1] {
                        for micro in [1, 2, 4, 8] {
                            let whole = (global / dp).is_multiple_of(micro);
                            let groups = (global / dp / micro).is_multiple_of(pp);
                            if !whole || (chunks > 1 && !groups) {
                                continue;
                            }
                            for recompute in &again {
                                let spec = TrainingSpec {
                                    layout: Layout {
                                        gpus: Some(gpus),
                                        tp: Some(tp),
                                        sequence_parallel: Some(tp > 1),
                                        pp: Some(pp),
                                        chunks: Some(chunks),
                                        cp: Some(cp),
                                        sharding: Some(sharding),
                                        ..Layout::default()
                                    },
                                    batch: Batch {
                                        micro: Some(micro),
                                        ..spec.batch
                                    },
                                    recompute: Some(recompute.clone()),
                                    ..spec.clone()
                                };
                                let (run, _) = resolve(&spec, machine, frameworks()).unwrap();
                                if memory::memory(&run, machine).fits {
                                    let step = speed::speed(&run, machine).step_ms;
                                    fastest = fastest.min(step);
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    fastest
}

#[test]
fn finds_what_trying_every_layout_finds() {
    let spec = spec("Llama-3.1-8B", Framework::Megatron, 32);
    for gpus in [8, 16, 32] {
        let offers = [offer("H100", gpus)];
        let found = found(&spec, &offers, &limits(gpus, gpus));
        let best = found.choices.first().unwrap().speed.step_ms;
        let all = fastest_of_all(&spec, &offers[0].machine, gpus);
        assert!(
            (best - all).abs() < 1e-6 * all,
            "{gpus} GPUs: {best} ms, of all {all} ms"
        );
    }
}

#[test]
fn proposes_nothing_that_a_framework_cannot_do() {
    for framework in Framework::ALL {
        let profile = habits(frameworks(), framework, None);
        let found = found(
            &spec("Qwen/Qwen3-30B-A3B", framework, 64),
            &[offer("H200", 64)],
            &limits(1, 64),
        );
        for choice in &found.choices {
            let run = &choice.run;
            let held = [
                (run.tp, Ability::Tensor),
                (run.pp, Ability::Pipeline),
                (run.chunks, Ability::Interleaved),
                (run.cp, Ability::Context),
                (run.ep, Ability::Expert),
            ];
            for (ranks, ability) in held {
                assert!(
                    ranks == 1 || profile.can(ability),
                    "{framework:?} {ability:?}"
                );
            }
            assert!(
                run.pp == 1 || profile.schedules.contains(&run.schedule),
                "{framework:?} {:?}",
                run.schedule
            );
            let alone = run.dp * run.cp == 1;
            assert!(
                alone || profile.shardings.contains(&run.sharding),
                "{framework:?}"
            );
            assert!(choice.memory.fits, "{framework:?}");
            assert_eq!(run.global(), 64, "{framework:?}");
            assert_eq!(run.gpus, run.dp * run.tp * run.pp * run.cp, "{framework:?}");
        }
    }
}

/// The fastest layout of so many GPUs by a framework with these orders of passes alone.
fn fastest_with(
    model: &str,
    framework: Framework,
    schedules: Option<&str>,
    gpus: u64,
) -> antiphon_planner::search::Choice {
    let spec = TrainingSpec {
        layout: Layout::default(),
        ..spec(model, framework, 128)
    };
    let known = schedules.map_or_else(frameworks, |schedules| {
        let compiled = include_str!("../catalog/frameworks.toml");
        let mut tables: toml::Table = toml::from_str(compiled).unwrap();
        let names = schedules.split(' ').map(toml::Value::from).collect();
        let table = tables[framework.name()].as_table_mut().unwrap();
        table.insert("schedules".into(), toml::Value::Array(names));
        let parsed = antiphon_planner::profile::parse(&tables.to_string()).unwrap();
        Box::leak(Box::new(parsed))
    });
    let found = search(
        &spec,
        &[offer("A100-80GB", gpus)],
        &limits(gpus, gpus),
        known,
    )
    .unwrap();
    found.choices.into_iter().next().unwrap()
}

#[test]
fn a_pipeline_without_bubbles_is_taken_where_a_framework_has_it() {
    let (model, framework) = ("Llama-3.1-70B", Framework::Torchtitan);
    let plain = fastest_with(model, framework, Some("one-forward-one-backward"), 64);
    let known = fastest_with(model, framework, None, 64);
    assert!(
        known.speed.step_ms <= plain.speed.step_ms,
        "{} after {}",
        known.speed.step_ms,
        plain.speed.step_ms
    );
    let only = fastest_with(model, framework, Some("zero-bubble-v"), 64);
    assert!(only.run.pp == 1 || only.run.schedule == Schedule::ZeroBubbleV);
}

#[test]
fn both_ends_at_once_are_proposed_where_a_table_says_so() {
    let choice = fastest_with(
        "Llama-3.1-405B",
        Framework::Megatron,
        Some("dual-pipe"),
        512,
    );
    assert!(
        choice.run.pp > 1 && choice.run.schedule == Schedule::DualPipe,
        "{}",
        choice.described()
    );
    assert!(
        choice.described().contains("DualPipe"),
        "{}",
        choice.described()
    );
    assert!(choice.run.accumulation >= 2 * choice.run.pp);
}

#[test]
fn both_ends_at_once_hold_each_weight_twice() {
    let run = |schedule| {
        let mut spec = spec("Llama-3.1-8B", Framework::Megatron, 32);
        spec.layout.gpus = Some(8);
        spec.layout.pp = Some(8);
        spec.layout.schedule = Some(schedule);
        run_of(&spec, &offer("H100", 8).machine)
    };
    let weights = |schedule, stage| antiphon_planner::states::states(&run(schedule), stage).weights;
    for stage in 0..8 {
        let both = weights(Schedule::OneForwardOneBackward, stage)
            + weights(Schedule::OneForwardOneBackward, 7 - stage);
        let dual = weights(Schedule::DualPipe, stage);
        assert!((dual - both).abs() < 1.0, "{stage}: {dual} of {both}");
    }
}

#[test]
fn no_choice_is_beaten_by_another() {
    let offers = ["H100", "A100-80GB", "B200", "L40S"].map(|gpu| offer(gpu, 64));
    let found = found(
        &spec("Llama-3.1-8B", Framework::Torchtitan, 64),
        &offers,
        &limits(1, 64),
    );
    assert!(found.choices.len() > 5, "{}", found.choices.len());
    for (at, one) in found.choices.iter().enumerate() {
        for (other_at, other) in found.choices.iter().enumerate() {
            let room = |margin: f64| (margin / 0.1).floor();
            let beaten = at != other_at
                && other.speed.step_ms <= one.speed.step_ms
                && other.usd <= one.usd
                && other.run.gpus <= one.run.gpus
                && room(other.margin()) >= room(one.margin());
            assert!(!beaten, "{at} by {other_at}");
        }
    }
}

#[test]
fn limits_choose_the_cheapest_in_time_and_the_fastest_within_the_budget() {
    let spec = spec("Llama-3.1-8B", Framework::Torchtitan, 64);
    let offers = [offer("H100", 64)];
    let free = found(&spec, &offers, &limits(1, 64));
    let chosen = |limits: Limits| {
        let found = found(&spec, &offers, &limits);
        found.recommended.map(|index| found.choices[index].clone())
    };
    let hours = free.choices[0].hours.unwrap() * 2.5;
    let in_time = chosen(Limits {
        hours: Some(hours),
        ..limits(1, 64)
    })
    .unwrap();
    assert!(in_time.hours.unwrap() <= hours);
    let cheaper = free
        .choices
        .iter()
        .any(|choice| choice.hours.unwrap() <= hours && choice.usd < in_time.usd);
    assert!(!cheaper);

    let cheapest = free.choices.iter().filter_map(|choice| choice.usd);
    let usd = cheapest.fold(f64::INFINITY, f64::min) * 1.1;
    let affordable = chosen(Limits {
        usd: Some(usd),
        ..limits(1, 64)
    })
    .unwrap();
    assert!(affordable.usd.unwrap() <= usd);
    let faster = free
        .choices
        .iter()
        .any(|choice| choice.usd.unwrap() <= usd && choice.hours < affordable.hours);
    assert!(!faster);

    let impossible = found(
        &spec,
        &offers,
        &Limits {
            hours: Some(0.001),
            ..limits(1, 64)
        },
    );
    assert_eq!(impossible.recommended, None);
    assert!(
        impossible.reason.contains("the fastest, takes"),
        "{}",
        impossible.reason
    );
}

#[test]
fn offloads_only_where_nothing_else_fits() {
    let spec = spec("Llama-3.1-8B", Framework::Transformers, 16);
    let placed = |gpu: &str| -> Vec<Place> {
        let found = found(&spec, &[offer(gpu, 1)], &limits(1, 1));
        let choices = found.choices.iter();
        choices.map(|choice| choice.run.offload.optimizer).collect()
    };
    let roomy = placed("B200");
    assert!(!roomy.is_empty() && roomy.iter().all(|place| *place == Place::Gpu));
    let tight = placed("L40S");
    assert!(!tight.is_empty() && tight.iter().all(|place| *place == Place::Cpu));
}

#[test]
fn every_task_and_method_is_searched() {
    let tasks = [
        Task::Pretrain,
        Task::Sft,
        Task::Dpo,
        Task::Orpo,
        Task::Kto,
        Task::RewardModel,
        Task::Ppo,
        Task::Grpo,
    ];
    for task in tasks {
        for method in [Method::Full, Method::Lora(Lora::default())] {
            let spec = TrainingSpec {
                task,
                method,
                ..spec("Llama-3.1-8B", Framework::Verl, 64)
            };
            let found = found(&spec, &[offer("H100", 16)], &limits(1, 16));
            let best = &found.choices[found.recommended.unwrap()];
            assert!(
                best.usd.unwrap() > 0.0 && best.hours.unwrap().is_finite(),
                "{task:?}"
            );
        }
    }
}

#[test]
fn a_count_that_divides_no_node_is_looked_at_where_it_is_asked_for() {
    let spec = spec("Llama-3.2-3B", Framework::Transformers, 48);
    let found = found(&spec, &[offer("H100", 8)], &limits(6, 6));
    assert_eq!(found.choices[found.recommended.unwrap()].run.gpus, 6);
}

/// GRPO of 7B with roles of these sizes on so many H100.
fn roles_of(gang_of: &Gang, task: Task, gpus: (u64, u64)) -> Found {
    let spec = TrainingSpec {
        task,
        rollout: Some(Rollout {
            answers: Some(8),
            prompt_tokens: Some(512),
            ..Rollout::default()
        }),
        ..spec("Qwen2.5-7B", Framework::OpenRlhf, 128)
    };
    let offers = [offer("H100", 64)];
    let limits = limits(gpus.0, gpus.1);
    gang(&spec, gang_of, true, (&offers, &limits), frameworks()).unwrap()
}

#[test]
fn a_gang_shares_the_gpus_out_among_its_roles() {
    let open = Gang {
        trainer: None,
        own: vec![(Part::Rollout, None)],
    };
    let found = roles_of(&open, Task::Grpo, (1, 16));
    let best = &found.choices[found.recommended.unwrap()];
    assert!(best.gpus() <= 16 && best.roles.len() == 1);
    assert_eq!(best.gpus(), best.run.gpus + best.roles[0].gpus);
    assert!(best.roles[0].gpus.is_multiple_of(best.roles[0].tp));
    for choice in &found.choices {
        assert!(
            choice.fits() && choice.gpus() <= 16,
            "{}",
            choice.described()
        );
        assert_eq!(choice.run.global(), 128);
    }
    // Several ways to share the GPUs out stand beside each other.
    let ways: std::collections::BTreeSet<_> = found
        .choices
        .iter()
        .map(|choice| (choice.run.gpus, choice.roles[0].gpus))
        .collect();
    assert!(ways.len() > 3, "{ways:?}");
}

#[test]
fn what_a_gang_states_stays() {
    let stated = Gang {
        trainer: Some(4),
        own: vec![
            (Part::Critic, Some(4)),
            (Part::Reward, Some(1)),
            (Part::Rollout, Some(2)),
        ],
    };
    let found = roles_of(&stated, Task::Ppo, (1, 8));
    let best = &found.choices[found.recommended.unwrap()];
    let sizes: Vec<_> = best
        .roles
        .iter()
        .map(|role| (role.part, role.gpus))
        .collect();
    assert_eq!(best.run.gpus, 4);
    assert_eq!(
        sizes,
        [(Part::Critic, 4), (Part::Reward, 1), (Part::Rollout, 2)]
    );
    // The reference has no role, so it stands beside the policy.
    assert!(antiphon_planner::roles::shared(&best.run).contains(&Part::Reference));
    let tight = Gang {
        own: vec![(Part::Critic, Some(1)), (Part::Rollout, Some(2))],
        ..stated
    };
    let found = roles_of(&tight, Task::Ppo, (1, 8));
    assert_eq!(found.recommended, None);
    assert!(found.reason.contains("critic on 1 GPU"), "{}", found.reason);
}

#[test]
fn says_how_far_the_nearest_layout_is_from_fitting() {
    let found = found(
        &spec("Llama-3.1-405B", Framework::Transformers, 16),
        &[offer("L40S", 8)],
        &limits(8, 8),
    );
    assert_eq!(found.recommended, None);
    assert!(
        found
            .reason
            .starts_with("nothing fits: the nearest is ZeRO-3 over 8")
            && found.reason.contains("GiB of 44.5 on each"),
        "{}",
        found.reason
    );
}

#[test]
fn shapes_are_one_for_each_type_that_is_about_as_fast_with_the_recommended_first() {
    let offers = [offer("H100", 32), offer("A100-80GB", 32)];
    let found = found(
        &spec("Llama-3.1-8B", Framework::Torchtitan, 64),
        &offers,
        &limits(8, 32),
    );
    let shapes = shapes(&found, &offers, &limits(8, 32));
    let recommended = &found.choices[found.recommended.unwrap()];
    assert_eq!(shapes[0].1, found.recommended.unwrap());
    assert_eq!(
        shapes[0].0.gpus.whole().map(u64::from),
        Some(recommended.run.gpus)
    );
    assert!(shapes.iter().any(|(shape, _)| shape.speed == 1_000));
    for (at, (shape, index)) in shapes.iter().enumerate() {
        let choice = &found.choices[*index];
        let within_node = choice.run.gpus <= 8;
        assert_eq!(shape.span == Span::Node, within_node);
        assert_eq!(u64::from(shape.tensor_parallel.max(1)), choice.run.tp);
        let alike = shapes[at + 1..]
            .iter()
            .any(|(other, _)| other.gpu_type == shape.gpu_type);
        assert!(!alike, "{shape:?}");
        assert!(choice.tokens_per_s() >= 0.7 * recommended.tokens_per_s());
    }
}

fn run_of(spec: &TrainingSpec, machine: &Machine) -> Run {
    resolve(spec, machine, frameworks()).unwrap().0
}

fn names(ladder: &[Rung]) -> Vec<&str> {
    ladder.iter().map(|rung| rung.name.as_str()).collect()
}

#[test]
fn the_ladder_goes_from_cheap_to_dear() {
    let offer = offer("H100", 64);
    let spec = TrainingSpec {
        batch: Batch {
            micro: Some(4),
            ..spec("Llama-3.1-8B", Framework::Transformers, 64).batch
        },
        layout: Layout {
            gpus: Some(8),
            ..Layout::default()
        },
        recompute: Some(Recompute::None),
        ..spec("Llama-3.1-8B", Framework::Transformers, 64)
    };
    let steps = ladder(&run_of(&spec, &offer.machine), &offer.machine, 16);
    assert_eq!(
        names(&steps),
        [
            "micro-batch 2",
            "micro-batch 1",
            "recompute full",
            "loss in 8 chunks",
            "offload optimizer",
            "16 GPUs",
        ]
    );
    assert_eq!(steps[1].environment["GRADIENT_ACCUMULATION"], "8");
    assert_eq!(steps[5].environment["GRADIENT_ACCUMULATION"], "4");
    assert_eq!(steps[5].gpus.unwrap().whole(), Some(16));
}

#[test]
fn the_ladder_has_no_step_that_frees_nothing() {
    let offer = offer("H100", 8);
    let spec = TrainingSpec {
        method: Method::Lora(Lora::default()),
        batch: Batch {
            micro: Some(1),
            ..spec("Llama-3.1-8B", Framework::Unsloth, 8).batch
        },
        layout: Layout {
            gpus: Some(1),
            ..Layout::default()
        },
        loss: Some(LossKernel::FusedLinear),
        recompute: Some(Recompute::Full),
        ..spec("Llama-3.1-8B", Framework::Unsloth, 8)
    };
    // Unsloth recomputes and has no logits already, cannot offload, and runs on one GPU.
    let steps = ladder(&run_of(&spec, &offer.machine), &offer.machine, 1);
    assert_eq!(names(&steps), Vec::<&str>::new());
}
