//! Replays a made-up half year of one million jobs through the whole kernel, and prints how long that took and how much
//! memory it held, as one JSON object. Judges no figure: the bar stands in the page.
//!
//! The load follows Acme's Seren cluster (Hu et al., NSDI 2024): 2,288 GPUs, load 0.95, daily peaks and six rushes, 50 teams,
//! three classes. Preemption is on, every event is encoded as the log holds it and folded, every decision checked.

use std::process::ExitCode;
use std::time::Instant;

use antiphon_sim::cluster::{Cluster, preset};
use antiphon_sim::faults::Faults;
use antiphon_sim::generate::{Load, generate};
use antiphon_sim::simulate::{ANTIPHON, Tables, decider, policy, simulate};
use antiphon_sim::world::{Knowledge, Setting, Spans};
use antiphon_types::Millis;
use clap::Parser;
use mimalloc::MiMalloc;
use serde_json::json;

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// GPUs of a node.
const GPUS: u32 = 8;

/// How much is measured.
#[derive(Debug, Clone, Parser)]
#[command(name = "million", about = "Times the replay of one million jobs")]
struct Size {
    /// Jobs; with fewer the half year is shorter and the load the same
    #[arg(long, default_value_t = 1_000_000)]
    jobs: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What the kernel may know of a job beside its time limit: whether its training loop reports
    #[arg(long)]
    progress: bool,
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
    let whole = Load::million(size.seed);
    let load = Load {
        jobs: size.jobs,
        span: whole.span.map(|span| {
            Millis::from_millis(span.as_millis() * number(size.jobs) / number(whole.jobs))
        }),
        ..whole
    };
    let workload = generate(&load);
    let setting = Setting {
        cluster: seren(load.gpus),
        knowledge: if size.progress {
            Knowledge::Progress
        } else {
            Knowledge::None
        },
        noise: None,
        seed: size.seed,
        policy: policy(),
        faults: Faults::default(),
        spans: Spans::Dropped,
        forecasts: 0,
    };
    let began = clock();
    let decider = decider(ANTIPHON, &setting).expect("our own policy");
    let stopwatch = || u64::try_from((clock() - began).as_nanos()).unwrap_or(u64::MAX);
    let (outcome, finished) = simulate(
        ANTIPHON,
        decider,
        &workload,
        &setting,
        &Tables::None,
        &stopwatch,
        &mut |_| true,
    );
    let wall_s = (clock() - began).as_secs_f64();
    let line = json!({
        "bench": "sim/million",
        "value": wall_s,
        "unit": "s",
        "wall_s": wall_s,
        "peak_rss_bytes": peak_rss_bytes(),
        "jobs": outcome.jobs,
        "completed": outcome.completed,
        "queue_max": finished.tally.queue_max,
        "gpus": load.gpus,
        "gpu_utilization_coming": outcome.gpu_utilization_coming,
        "preemptions": outcome.preemptions,
        "events": outcome.events,
        "cycles": outcome.cycles,
        "cycle_p99_us": outcome.cycle_p99_us,
        "avg_jct_s": outcome.avg_jct_s,
        "seed": size.seed,
        "digest": outcome.digest,
    });
    print(&line.to_string());
    ExitCode::SUCCESS
}

/// A100 nodes with so many GPUs in all, as Kalos has them; a start takes a minute.
fn seren(gpus: u32) -> Cluster {
    let mut cluster = preset("kalos", 0).expect("a preset");
    let count = usize::try_from(gpus / GPUS).expect("few nodes");
    cluster.nodes.truncate(count);
    assert_eq!(cluster.nodes.len(), count, "kalos has more nodes");
    cluster.name = "seren".to_owned();
    cluster
}

fn number(count: usize) -> u64 {
    u64::try_from(count).expect("few jobs")
}

/// The largest memory that this process has had.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[expect(clippy::print_stdout, reason = "a benchmark's line is its output")]
fn print(line: &str) {
    println!("{line}");
}

fn clock() -> Instant {
    Instant::now()
}
