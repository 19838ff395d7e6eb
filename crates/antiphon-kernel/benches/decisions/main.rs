//! Counts the gangs that the kernel starts a second on a full cluster with a deep queue, and times its cycles; prints one
//! JSON object a line. Judges no figure: the bars stand in the page.
//!
//! Everything that a start costs is timed: the end of the job that made room (one report a task), its settlement, the
//! decision, its check, the encoding of every event as the log holds it, every `apply`, the reports that the tasks have
//! started. The submission of the job that takes the started one's place in the queue is timed apart: `with_submits_per_s`
//! holds it, `decisions_per_s` does not.

mod load;
mod log;
mod run;

use std::process::ExitCode;

use mimalloc::MiMalloc;

use clap::Parser;
use serde_json::json;

use self::load::Load;
use self::run::{Figures, Run};

/// As the binary has it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// How much is measured. The defaults are the small size.
#[derive(Debug, Clone, Parser)]
#[command(name = "decisions", about = "Counts what the kernel decides a second")]
struct Size {
    /// Cluster sizes in nodes of 8 GPUs
    #[arg(long, value_delimiter = ',', default_values_t = [500, 5_000, 12_500])]
    nodes: Vec<u32>,
    /// Pending jobs, at 5,000 nodes; in proportion at other sizes
    #[arg(long, default_value_t = 100_000)]
    pending: u32,
    /// Also measured with this many pending, at 5,000 nodes, for the table of cost against queue depth
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000])]
    depths: Vec<u32>,
    /// Gangs started before anything is timed, for each node: the cluster is then full of jobs of all ages
    #[arg(long, default_value_t = 1)]
    warm_up: u32,
    /// Gangs started while it is timed
    #[arg(long, default_value_t = 20_000)]
    starts: u32,
    /// Gangs that end together: what one cycle makes good
    #[arg(long, default_value_t = 128)]
    batch: u32,
    /// How often each is measured; the median counts
    #[arg(long, default_value_t = 3)]
    runs: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these, by a part of their name
    #[arg(long, default_value = "")]
    only: String,
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

/// What one line measures.
struct Case {
    bench: &'static str,
    nodes: u32,
    pending: u32,
    sqlite: bool,
    preempt: bool,
}

fn main() -> ExitCode {
    let size = Size::parse();
    if !size.bench {
        return ExitCode::SUCCESS;
    }
    let case = |bench, nodes: u32, pending| Case {
        bench,
        nodes,
        pending,
        sqlite: bench == "kernel/decisions_sqlite",
        preempt: bench == "kernel/decisions_preempt",
    };
    let in_proportion = |nodes: u32| size.pending / 5_000 * nodes;
    let mut cases: Vec<Case> = size
        .nodes
        .iter()
        .map(|nodes| case("kernel/decisions", *nodes, in_proportion(*nodes)))
        .collect();
    for depth in &size.depths {
        cases.push(case("kernel/decisions_depth", 5_000, *depth));
    }
    cases.push(case("kernel/decisions_sqlite", 5_000, size.pending));
    cases.push(case("kernel/decisions_preempt", 5_000, size.pending));
    for case in cases.iter().filter(|case| case.bench.contains(&size.only)) {
        measure(&size, case);
    }
    ExitCode::SUCCESS
}

fn measure(size: &Size, case: &Case) {
    let mut runs: Vec<Figures> = (0..size.runs)
        .map(|number| {
            let load = Load::new(size.seed + u64::from(number), case.nodes, case.preempt);
            let mut run = Run::new(load, case.pending, case.sqlite);
            run.start(case.nodes * size.warm_up, size.batch);
            run.reset();
            run.start(size.starts, size.batch);
            run.figures()
        })
        .collect();
    runs.sort_by(|one, two| one.decisions_per_s.total_cmp(&two.decisions_per_s));
    let median = &runs[runs.len() / 2];
    let spread = [
        runs[0].decisions_per_s.round(),
        runs[runs.len() - 1].decisions_per_s.round(),
    ];
    let line = json!({
        "bench": case.bench,
        "value": median.decisions_per_s.round(),
        "unit": "gangs started a second",
        "nodes": case.nodes,
        "pending": case.pending,
        "decisions_per_s": median.decisions_per_s.round(),
        "with_submits_per_s": median.with_submits_per_s,
        "cycle_p50_us": median.cycle_p50_us,
        "cycle_p99_us": median.cycle_p99_us,
        "cycle_max_us": median.cycle_max_us,
        "state_bytes": median.state_bytes,
        "allocated_percent_mean": median.allocated_percent,
        "tasks_per_gang_mean": median.tasks_per_gang,
        "gpus_per_gang_mean": median.gpus_per_gang,
        "preemptions": median.preemptions,
        "reservations": median.reservations,
        "starts": median.starts,
        "cycles": median.cycles,
        "batch": size.batch,
        "seed": size.seed,
        "spread": spread,
        "shares_of_time": median.shares,
    });
    print(&line.to_string());
}

#[expect(clippy::print_stdout, reason = "a benchmark's lines are its output")]
fn print(line: &str) {
    println!("{line}");
}
