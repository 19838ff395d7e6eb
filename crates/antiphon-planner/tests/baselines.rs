//! The estimators that people use today, re-made from what they publish, beside this one: where both compute the same states they
//! agree to the byte, and on published measurements (`PLANNER_DATA` names their folder) this one has to be nearer.

#![expect(
    clippy::unwrap_used,
    reason = "a spec of these tests that cannot be planned fails them"
)]

use std::collections::BTreeMap;
use std::path::Path;

use antiphon_planner::baseline::{self, accelerate, cookbook, deepspeed, zero_paper};
use antiphon_planner::memory;
use antiphon_planner::profile::frameworks;
use antiphon_planner::row::{self, Cells, Counter};
use antiphon_planner::run::{Machine, Run, resolve};
use antiphon_planner::score::quantile;
use antiphon_planner::{catalog, plan, states};
use antiphon_types::training::{
    Framework, Layout, Model, Optimizer, Precision, Recompute, Sharding, TrainingSpec,
};

const GIB: f64 = 1_073_741_824.0;

fn run(model: &str, framework: Framework, gpus: u64, sharding: Sharding) -> Run {
    let spec = TrainingSpec {
        model: Model::Named(model.into()),
        framework: Some(framework),
        optimizer: Some(Optimizer::AdamW),
        precision: Some(Precision::Mixed16),
        layout: Layout {
            gpus: Some(gpus),
            sharding: Some(sharding),
            ..Layout::default()
        },
        ..TrainingSpec::default()
    };
    let machine = Machine::usual(catalog::accelerator("H100").unwrap());
    resolve(&spec, &machine, frameworks()).unwrap().0
}

fn states_of(run: &Run) -> f64 {
    let states = states::states(run, 0);
    states.weights + states.gradients + states.optimizer
}

#[track_caller]
fn equal(ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() < 1e-6 * theirs, "{ours} and {theirs}");
}

#[test]
fn states_are_those_of_the_zero_paper() {
    for (model, gpus) in [
        ("Llama-3.2-1B", 2),
        ("Llama-3.1-8B", 8),
        ("Llama-3.1-70B", 64),
    ] {
        for sharding in [
            Sharding::None,
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Zero3,
        ] {
            let run = run(model, Framework::Deepspeed, gpus, sharding);
            let parameters = run.model.parameters() as f64;
            equal(
                states_of(&run),
                zero_paper(parameters, gpus as f64, sharding),
            );
        }
    }
    // Its own example: 7.5 B parameters on 64 GPUs.
    let rounded = |sharding| (zero_paper(7.5e9, 64.0, sharding) / 1e8).round() / 10.0;
    assert_eq!(
        [
            Sharding::None,
            Sharding::Zero1,
            Sharding::Zero2,
            Sharding::Zero3
        ]
        .map(rounded),
        [120.0, 31.4, 16.6, 1.9]
    );
}

#[test]
fn states_are_those_of_megatrons_report() {
    for (sharding, each) in [(Sharding::None, 18.0), (Sharding::Zero1, 6.0 + 12.0 / 8.0)] {
        let run = run("Llama-3.1-8B", Framework::Megatron, 8, sharding);
        equal(states_of(&run), each * run.model.parameters() as f64);
    }
}

#[test]
fn states_stay_below_deepspeeds_estimate_which_counts_gradients_twice() {
    for (gpus, sharding) in [
        (8, Sharding::Zero2),
        (8, Sharding::Zero3),
        (64, Sharding::Zero3),
    ] {
        let run = run("Llama-3.1-8B", Framework::Deepspeed, gpus, sharding);
        let parameters = run.model.parameters() as f64;
        let largest = run.model.head() as f64;
        let theirs = deepspeed(parameters, largest, gpus as f64, sharding).unwrap();
        let ours = states_of(&run);
        assert!(ours < theirs, "{ours} and {theirs}");
        let twice = match sharding {
            Sharding::Zero2 => (2.0 + 2.0 / gpus as f64) * parameters,
            _ => 2.0 / gpus as f64 * parameters + 4.0 * largest,
        };
        equal(ours + twice, theirs);
    }
}

#[test]
fn accelerates_estimate_has_no_activations_and_a_cookbooks_none_of_a_modern_block() {
    let run = run("Llama-3.1-8B", Framework::Transformers, 1, Sharding::None);
    let pure = Run {
        precision: Precision::Pure16,
        ..run.clone()
    };
    // Four times the weights: themselves, gradients and two moments, and nothing else.
    equal(states_of(&pure), accelerate(&pure));
    let mixed = Run {
        recompute: Recompute::Full,
        ..run
    };
    let activations = cookbook(&mixed) - (2.0 + 4.0 + 12.0) * mixed.model.parameters() as f64;
    // What blocks hand on: two bytes a channel, as Korthikanti 2022 has it.
    let handed = 2 * mixed.sequence * mixed.micro * mixed.model.hidden * mixed.model.layers;
    equal(activations, handed as f64);
}

/// Errors of one estimator and of this one on the same rows.
#[derive(Default)]
struct Errors {
    theirs: Vec<f64>,
    ours: Vec<f64>,
}

#[test]
fn measurements_are_nearer_than_with_what_people_use() {
    let Ok(folder) = std::env::var("PLANNER_DATA") else {
        println!("skipped: PLANNER_DATA does not name the folder with measurements.csv");
        return;
    };
    let mut errors: BTreeMap<&str, Errors> = BTreeMap::new();
    let mut reader = csv::Reader::from_path(Path::new(&folder).join("measurements.csv")).unwrap();
    for cells in reader.deserialize::<Cells>() {
        let cells = cells.unwrap();
        if cells["score_memory"] != "yes" || cells["outcome"] != "ok" {
            continue;
        }
        let Ok(measured) = cells["peak_mem_gib"].parse::<f64>() else {
            continue;
        };
        let Ok(row) = row::read(&cells) else { continue };
        let Ok(answer) = plan(&row.spec, &row.machine, frameworks()) else {
            continue;
        };
        let run = &answer.run;
        let worst = if row.last_stage {
            memory::stage(run, run.pp - 1)
        } else {
            answer.memory.worst
        };
        let ours = match row.counter {
            Counter::Allocated => worst.parts.sum(),
            Counter::Reserved => worst.parts.sum() * run.profile.reserved_ratio,
            Counter::Device => answer.memory.device,
        };
        let theirs = baseline::memory(run, row.last_stage);
        for (name, theirs) in theirs {
            if let Some(bytes) = theirs {
                let errors = errors.entry(name).or_default();
                errors.theirs.push((bytes / GIB / measured - 1.0).abs());
                errors.ours.push((ours / GIB / measured - 1.0).abs());
            }
        }
    }
    println!("estimator                  rows   median     p90    ours: median     p90");
    for (name, errors) in &errors {
        let at = |values: &[f64], share: f64| 100.0 * quantile(values.to_vec(), share);
        println!(
            "{name:<26} {:>4} {:>6.1} % {:>5.1} % {:>12.1} % {:>5.1} %",
            errors.ours.len(),
            at(&errors.theirs, 0.5),
            at(&errors.theirs, 0.9),
            at(&errors.ours, 0.5),
            at(&errors.ours, 0.9),
        );
    }
    assert_eq!(errors.len(), 4);
    for (name, errors) in &errors {
        for share in [0.5, 0.9] {
            let (ours, theirs) = (
                quantile(errors.ours.clone(), share),
                quantile(errors.theirs.clone(), share),
            );
            assert!(ours < theirs, "{name} at {share}: {ours} and {theirs}");
        }
    }
}
