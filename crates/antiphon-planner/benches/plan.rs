//! Times a whole plan, and a search over all layouts on 512 GPUs; prints one JSON object a line. Judges no figure but one: what
//! was searched has to come to a recommendation.

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use antiphon_planner::profile::frameworks;
use antiphon_planner::run::Machine;
use antiphon_planner::search::{Found, Limits, Offer, search};
use antiphon_planner::{catalog, plan};
use antiphon_types::training::{
    Batch, Framework, Layout, Length, Lora, Method, Model, TrainingSpec,
};
use clap::Parser;
use serde_json::json;

/// How much is measured.
#[derive(Debug, Clone, Parser)]
#[command(name = "plan", about = "Times plans and searches")]
struct Size {
    /// Plans of each measurement
    #[arg(long, default_value_t = 20_000)]
    plans: u32,
    /// Searches of each measurement
    #[arg(long, default_value_t = 10)]
    searches: u32,
    /// How often each is measured; the median counts
    #[arg(long, default_value_t = 5)]
    runs: u32,
    /// Passed by `cargo bench`; without it nothing runs, so that test runners which look at every target find no test
    #[arg(long, hide = true)]
    bench: bool,
    /// Passed by test runners
    #[arg(long, hide = true)]
    list: bool,
    /// Passed by test runners
    #[arg(long, hide = true)]
    format: Option<String>,
    /// Passed by test runners
    #[arg(long, hide = true)]
    ignored: bool,
}

fn main() -> ExitCode {
    let size = Size::parse();
    if !size.bench {
        return ExitCode::SUCCESS;
    }
    let h100 = catalog::accelerator("H100").expect("the catalog has it");
    let machine = Machine::usual(h100);

    for (name, spec) in [("lora-8b", lora_8b()), ("full-70b", full("Llama-3.1-70B"))] {
        let seconds = median(&size, size.plans, || {
            let plan = plan(black_box(&spec), &machine, frameworks());
            black_box(plan.expect("it can be planned"));
        });
        let line = json!({
            "bench": "planner/plan",
            "us": rounded(seconds * 1e6),
            "of": name,
            "plans": size.plans,
            "runs": size.runs,
        });
        print(&line.to_string());
    }

    let offers = [Offer {
        gpu_type: String::new(),
        partition: None,
        machine,
        gpus: 512,
    }];
    let limits = Limits {
        gpus_min: 512,
        gpus_max: 512,
        ..Limits::default()
    };
    let mut found_all = true;
    for model in ["Llama-3.1-70B", "deepseek-ai/DeepSeek-V3"] {
        let spec = full(model);
        let look = || -> Found {
            search(black_box(&spec), &offers, &limits, frameworks()).expect("it can be searched")
        };
        let seconds = median(&size, size.searches, || {
            black_box(look());
        });
        let found = look();
        found_all &= found.recommended.is_some();
        let line = json!({
            "bench": "planner/search512",
            "ms": rounded(seconds * 1e3),
            "of": model,
            "splits": found.counts.splits,
            "computed": found.counts.computed,
            "choices": found.choices.len(),
            "recommended": found.reason,
            "searches": size.searches,
            "runs": size.runs,
        });
        print(&line.to_string());
    }
    if found_all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn lora_8b() -> TrainingSpec {
    TrainingSpec {
        model: Model::Named("meta-llama/Llama-3.1-8B".into()),
        method: Method::Lora(Lora::default()),
        framework: Some(Framework::Axolotl),
        batch: Batch {
            sequence_length: Some(8_192),
            global: Some(64),
            ..Batch::default()
        },
        layout: Layout {
            gpus: Some(8),
            ..Layout::default()
        },
        ..TrainingSpec::default()
    }
}

fn full(model: &str) -> TrainingSpec {
    TrainingSpec {
        model: Model::Named(model.into()),
        framework: Some(Framework::Megatron),
        batch: Batch {
            sequence_length: Some(8_192),
            global: Some(1_024),
            ..Batch::default()
        },
        layout: Layout {
            gpus: Some(512),
            tp: Some(8),
            pp: Some(8),
            ..Layout::default()
        },
        length: Length {
            tokens: Some(10_000_000_000),
            ..Length::default()
        },
        ..TrainingSpec::default()
    }
}

/// Seconds of one call.
fn median(size: &Size, calls: u32, mut call: impl FnMut()) -> f64 {
    call();
    let mut runs: Vec<f64> = (0..size.runs)
        .map(|_| {
            let began = clock();
            for _ in 0..calls {
                call();
            }
            (clock() - began).as_secs_f64() / f64::from(calls)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn print(line: &str) {
    println!("{line}");
}
