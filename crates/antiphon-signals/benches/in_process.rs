//! Counts the signals that the windows of one job take in a second on one core, every rule at work; prints one JSON object a
//! line. Judges no figure but one: the bad shard planted among the others has to be found meanwhile.
//!
//! Every task reports each step once for itself and once for each shard; every 20 steps each category is probed.

use std::process::ExitCode;
use std::time::Instant;

use antiphon_signals::{JobWindow, Signal};
use antiphon_types::{Finding, Timestamp, Verdict};
use clap::Parser;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::json;

/// Steps between probes.
const PROBE_STEPS: u64 = 20;
/// Wobbles of the losses, used in turn; a prime number, so that each signal's turn comes with each.
const WOBBLES: usize = 1_021;
const CATEGORIES: u32 = 4;

/// How much is measured.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "in_process",
    about = "Counts the signals that are taken in a second"
)]
struct Size {
    /// Signals of each measurement
    #[arg(long, default_value_t = 10_000_000)]
    signals: u64,
    #[arg(long, default_value_t = 64)]
    tasks: u32,
    #[arg(long, default_value_t = 20)]
    shards: u32,
    /// How often it is measured; the median counts
    #[arg(long, default_value_t = 3)]
    runs: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    let mut runs: Vec<(f64, usize)> = (0..size.runs)
        .map(|run| measure(&size, size.seed + run))
        .collect();
    runs.sort_by(|one, two| one.0.total_cmp(&two.0));
    let found = runs.iter().all(|(_, found)| *found == 1);
    let line = json!({
        "bench": "signals/in_process",
        "value": runs[runs.len() / 2].0.round(),
        "unit": "signals/s",
        "spread": [runs[0].0.round(), runs[runs.len() - 1].0.round()],
        "tasks": size.tasks,
        "shards": size.shards,
        "signals": size.signals,
        "runs": size.runs,
        "seed": size.seed,
        "planted_shard_found": found,
    });
    print(&line.to_string());
    if found {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Signals a second, and how many shards were convicted.
fn measure(size: &Size, seed: u64) -> (f64, usize) {
    let (mut step_signals, probes) = signals(size);
    let losses: Vec<f64> = step_signals
        .iter()
        .filter_map(|signal| signal.loss)
        .collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut wobble = || f64::from(random.next_u32()) / f64::from(u32::MAX) - 0.5;
    let wobbles: Vec<f64> = (0..WOBBLES).map(|_| 0.5 * wobble()).collect();
    let mut window = JobWindow::new("job-1.1".parse().expect("an attempt"));
    let (mut taken, mut convicted) = (0, Vec::new());
    let began = clock();
    for step in 0.. {
        let at = Timestamp::from_millis(1_000 * step);
        for (signal, loss) in step_signals.iter_mut().zip(&losses) {
            signal.step = Some(step);
            signal.loss = Some(loss + wobbles[taken as usize % WOBBLES]);
            window.observe(signal, at);
            taken += 1;
        }
        if step % PROBE_STEPS == 0 {
            for probe in &probes {
                let step = Some(step);
                window.observe(
                    &Signal {
                        step,
                        ..probe.clone()
                    },
                    at,
                );
            }
        }
        convicted.extend(
            window
                .take_findings()
                .into_iter()
                .filter_map(|finding| match finding {
                    Finding::Diagnosis(said) if said.verdict == Verdict::Noise => {
                        Some(said.subject)
                    }
                    _ => None,
                }),
        );
        if taken >= size.signals {
            break;
        }
    }
    let wall_s = (clock() - began).as_secs_f64();
    convicted.sort();
    // A trial may convict the planted shard again.
    convicted.dedup();
    (taken as f64 / wall_s, convicted.len())
}

/// The signals of a step, and the probes.
fn signals(size: &Size) -> (Vec<Signal<'static>>, Vec<Signal<'static>>) {
    let category = |number: u32| Some(format!("category-{}", number % CATEGORIES).into());
    let mut signals = Vec::new();
    for task in 0..size.tasks {
        signals.push(Signal {
            task: Some(task),
            step_ms: Some(800.0),
            tokens: Some(524_288.0),
            loss: Some(2.0),
            grad_norm: Some(0.8),
            memory_peak_bytes: Some(6.1e10),
            memory_total_bytes: Some(8e10),
            data_wait_ms: Some(14.0),
            ..Signal::default()
        });
        for shard in 0..size.shards {
            // The last shard is noise under the label of its category.
            let noise = shard + 1 == size.shards;
            signals.push(Signal {
                task: Some(task),
                shard: Some(format!("shard-{shard:04}").into()),
                category: category(shard),
                loss: Some(if noise { 7.0 } else { 2.0 }),
                samples: Some(4),
                ..Signal::default()
            });
        }
    }
    let probe = |number| Signal {
        category: category(number),
        probe_loss: Some(2.0),
        ..Signal::default()
    };
    (signals, (0..CATEGORIES).map(probe).collect())
}

fn clock() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "the figures are this program's output")]
fn print(line: &str) {
    println!("{line}");
}
