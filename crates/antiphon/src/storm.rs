//! `antiphon storm`: runs storms on all cores and says what broke, with the command that breaks it again. What happens in a
//! storm stands in `antiphon-sim`; here are threads, the stopwatch and the words.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use antiphon_sim::storm::{self, EVENTS_PER_SEED, Fault, Report};
use serde::Serialize;

use crate::cli::{Exit, StormArgs};
use crate::failure::Failure;
use crate::render::{json, print, say};

/// Seeds where nobody says.
const SEEDS: u64 = 20;

/// Violations that are told one by one.
const SHOWN: usize = 5;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary<'a> {
    seeds: usize,
    events: u64,
    decisions: u64,
    jobs: u64,
    attempts: u64,
    wall_s: f64,
    faults: BTreeMap<&'static str, u64>,
    runs: Vec<Run<'a>>,
    violations: Vec<Broken<'a>>,
}

#[derive(Serialize)]
struct Run<'a> {
    seed: u64,
    events: u64,
    digest: &'a str,
    /// Faults that were on.
    faults: Vec<&'static str>,
}

#[derive(Serialize)]
struct Broken<'a> {
    seed: u64,
    event: u64,
    what: &'a str,
    rerun: String,
}

/// Runs `antiphon storm`.
pub(crate) fn run(args: &StormArgs) -> Result<ExitCode, Failure> {
    let seeds = args
        .seeds
        .unwrap_or(if args.seed.is_some() { 1 } else { SEEDS });
    let first = args.seed.unwrap_or(1);
    let each = args
        .events
        .map_or(EVENTS_PER_SEED, |events| events.div_ceil(seeds.max(1)));
    say(&format!(
        "{seeds} seeds from {first}, {each} events each before all ends"
    ));
    // What breaks is told below, with its seed.
    std::panic::set_hook(Box::new(|_| ()));
    let began = Instant::now();
    let reports = all(first, seeds, each);
    let wall_s = began.elapsed().as_secs_f64();
    let rerun = |seed: u64| format!("antiphon storm --seed {seed} --events {each}");
    let summary = summary(&reports, wall_s, &rerun);
    if args.json {
        json(&summary);
    } else {
        show(&summary);
    }
    let Some(first) = summary.violations.first() else {
        return Ok(ExitCode::SUCCESS);
    };
    for broken in summary.violations.iter().skip(1).take(SHOWN - 1) {
        say(&format!(
            "seed {} broke at event {}: {}",
            broken.seed, broken.event, broken.what
        ));
    }
    let what = format!("seed {} broke at event {}", first.seed, first.event);
    let others = match summary.violations.len() {
        1 => String::new(),
        count => format!(" ({count} seeds broke)"),
    };
    Err(Failure::new(Exit::Storm, "AP0620", what)
        .why(format!("{}{others}", first.what))
        .help(format!("run it again with `{}`", first.rerun)))
}

/// One seed a thread, on all cores; the reports by seed.
fn all(first: u64, seeds: u64, each: u64) -> Vec<Report> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicU64::new(first);
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first.saturating_add(seeds) {
                        return;
                    }
                    let report = storm::run(seed, each);
                    let mut reports = reports.lock().expect("no thread panics with it");
                    reports.push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().expect("no thread panics with it");
    reports.sort_by_key(|report| report.seed);
    reports
}

fn summary<'a>(reports: &'a [Report], wall_s: f64, rerun: &dyn Fn(u64) -> String) -> Summary<'a> {
    let mut faults: BTreeMap<&'static str, u64> =
        Fault::ALL.iter().map(|fault| (fault.name(), 0)).collect();
    for (fault, times) in reports.iter().flat_map(|report| &report.faults) {
        *faults.entry(fault.name()).or_default() += times;
    }
    let sum = |of: fn(&Report) -> u64| reports.iter().map(of).sum();
    let broken = |report: &'a Report| {
        let violation = report.violation.as_ref()?;
        Some(Broken {
            seed: report.seed,
            event: violation.event,
            what: &violation.what,
            rerun: rerun(report.seed),
        })
    };
    let run = |report: &'a Report| Run {
        seed: report.seed,
        events: report.events,
        digest: &report.digest,
        faults: report.faults.keys().map(|fault| fault.name()).collect(),
    };
    Summary {
        seeds: reports.len(),
        events: sum(|report| report.events),
        decisions: sum(|report| report.decisions),
        jobs: sum(|report| report.jobs),
        attempts: sum(|report| report.attempts),
        wall_s,
        faults,
        runs: reports.iter().map(run).collect(),
        violations: reports.iter().filter_map(broken).collect(),
    }
}

fn show(summary: &Summary<'_>) {
    let mut text = format!(
        "{} events over {} seeds in {:.1} s: {} jobs, {} attempts, {} decisions\n",
        summary.events,
        summary.seeds,
        summary.wall_s,
        summary.jobs,
        summary.attempts,
        summary.decisions,
    );
    let faults = summary.faults.iter();
    let faults: Vec<String> = faults
        .map(|(name, times)| format!("{} {times}", name.replace('_', " ")))
        .collect();
    text += &format!("faults: {}\n", faults.join(", "));
    text += &match summary.violations.len() {
        0 => "no violation\n".to_owned(),
        count => format!("{count} seeds broke\n"),
    };
    print(&text);
}
