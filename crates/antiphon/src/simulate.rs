//! `antiphon simulate`: runs policies over a recorded workload under virtual time and prints what came of each. What
//! happens in a simulation stands in `antiphon-sim`; here are files, the stopwatch and the table.

mod faults;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use antiphon_sim::cluster::{self, Cluster};
use antiphon_sim::outcome::Outcome;
use antiphon_sim::placement::{self, Offered, Placer};
use antiphon_sim::simulate::{self, ANTIPHON, SimulateError, Tables};
use antiphon_sim::trace::{self, Format, Strict, Trace, TraceError};
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Decider, Finished, Knowledge, Noise, Setting};
use antiphon_types::{Millis, Policy};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::{Exit, SimulateArgs};
use crate::failure::{Failure, causes};
use crate::render::{json, say, table};
use crate::settings::Settings;

/// What a first and what every later start costs on a cluster of one's own.
pub(crate) const START_COST: Millis = Millis::from_secs(60);

/// Bad rows that are shown; the rest is counted.
const BAD_SHOWN: usize = 5;

/// The list of nodes that belongs to FGD's traces.
const FGD_NODES: &str = "openb_node_list_gpu_node.csv.gz";

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    runs: Vec<Outcome>,
}

/// Runs `antiphon simulate`.
pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let strict = if args.strict { Strict::On } else { Strict::Off };
    let trace = trace::read(&args.trace, args.format, strict)?;
    tell_bad_rows(&args.trace, &trace);
    let name = args
        .cluster
        .clone()
        .or_else(|| usual(trace.format).map(str::to_owned));
    let name = name.ok_or_else(|| no_cluster(trace.format))?;
    let policies = if args.policy.is_empty() {
        vec![ANTIPHON.to_owned()]
    } else {
        args.policy.clone()
    };
    let began = Instant::now();
    let stopwatch = move || u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let stop = stopped_by_hand();
    let mut runs = Vec::new();
    if name == "fgd" {
        for policy in &policies {
            runs.push(place(args, policy, &trace.workload, &stopwatch)?);
        }
    } else {
        let cluster = cluster_named(&name, args, &trace.workload)?;
        let tables = simulate::tables(
            &args.trace,
            &trace.workload,
            &cluster,
            args.throughputs.as_deref(),
        )?;
        for policy in &policies {
            let (outcome, finished) = one(
                args,
                policy,
                &trace.workload,
                &cluster,
                &tables,
                &stopwatch,
                &stop,
            )?;
            tell_refused(args, &finished)?;
            if let Some(path) = &args.csv {
                write_jobs(path, policy, policies.len(), &trace.workload, &finished)?;
            }
            runs.push(outcome);
            if stop.load(Ordering::Relaxed) {
                say("stopped: what was done so far follows");
                break;
            }
        }
    }
    if args.json {
        json(&Report { runs });
    } else {
        show(&runs);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one policy.
fn one(
    args: &SimulateArgs,
    name: &str,
    workload: &Workload,
    cluster: &Cluster,
    tables: &Tables,
    stopwatch: &dyn Fn() -> u64,
    stop: &AtomicBool,
) -> Result<(Outcome, Finished), Failure> {
    let file = is_file(name).then(|| Path::new(name));
    let setting = Setting {
        cluster: cluster.clone(),
        knowledge: args.knowledge,
        noise: args.noise.then(Noise::default),
        seed: args.seed,
        policy: match file {
            Some(path) => policy_file(path)?,
            None => simulate::policy(),
        },
        faults: faults::read(args.faults.as_deref())?,
    };
    let decider = match file {
        Some(_) => Decider::Kernel,
        None => simulate::decider(name, &setting)?,
    };
    let bar = bar(name, workload.jobs.len());
    let mut on_progress = |done: usize| {
        bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
        !stop.load(Ordering::Relaxed)
    };
    let (mut outcome, finished) = simulate::simulate(
        name,
        decider,
        workload,
        &setting,
        tables,
        stopwatch,
        &mut on_progress,
    );
    bar.finish_and_clear();
    outcome.peak_rss_bytes = peak_rss_bytes();
    Ok((outcome, finished))
}

/// Places jobs that never leave.
fn place(
    args: &SimulateArgs,
    name: &str,
    workload: &Workload,
    stopwatch: &dyn Fn() -> u64,
) -> Result<Outcome, Failure> {
    let began = stopwatch();
    let placer = Placer::ALL.into_iter().find(|placer| placer.name() == name);
    let placer = placer.ok_or_else(|| {
        let names: Vec<&str> = Placer::ALL.iter().map(|placer| placer.name()).collect();
        let what = format!("there is no placement policy `{name}`");
        Failure::new(Exit::Usage, "AP0607", what).help(format!("give one of: {}", names.join(", ")))
    })?;
    let beside = args.trace.parent().unwrap_or(Path::new("."));
    let nodes = trace::fgd_nodes(&beside.join(FGD_NODES))?;
    let offered = Offered {
        permille: args.offered,
        shuffles: args.shuffles,
        seed: args.seed,
    };
    let result = placement::run(&nodes, workload, placer, &offered);
    let idle = 100.0 - result.mean();
    let nanos = stopwatch().saturating_sub(began);
    Ok(Outcome {
        policy: name.to_owned(),
        trace: workload.name.clone(),
        knowledge: Knowledge::None.name().to_owned(),
        jobs: usize::try_from(result.jobs).unwrap_or(usize::MAX),
        completed: usize::try_from(result.started).unwrap_or(usize::MAX),
        allocation: Some(result.mean()),
        allocation_sd: Some(result.deviation()),
        fragmented: Some(result.mean_fragmented()),
        fragmentation: (idle > 0.0).then(|| result.mean_fragmented() / idle),
        events: result.events,
        cycles: result.cycles,
        wall_s: Some(Duration::from_nanos(nanos).as_secs_f64()),
        peak_rss_bytes: peak_rss_bytes(),
        digest: format!("{:016x}", result.digest),
        ..Outcome::default()
    })
}

/// The preset that published comparisons on traces of a format use.
const fn usual(format: Format) -> Option<&'static str> {
    match format {
        Format::Fgd => Some("fgd"),
        Format::Muri => Some("muri"),
        Format::Gavel => Some("gavel-testbed"),
        Format::Shockwave => Some("shockwave"),
        Format::Pollux => Some("pollux"),
        Format::ElasticFlow => Some("elasticflow"),
        Format::Acme | Format::Load => Some("kalos"),
        Format::Philly
        | Format::Chronus
        | Format::Tiresias
        | Format::Sacct
        | Format::Kubernetes => None,
    }
}

fn no_cluster(format: Format) -> Failure {
    let what = format!("a trace of format `{format}` names no cluster");
    let presets = cluster::PRESETS.join(", ");
    Failure::new(Exit::Usage, "AP0610", what)
        .help(format!("give `--cluster FILE` or one of: {presets}"))
}

/// The cluster of a preset or of a file, with what flags say about it.
fn cluster_named(name: &str, args: &SimulateArgs, workload: &Workload) -> Result<Cluster, Failure> {
    let mut cluster = named_cluster(name, workload.jobs.len())?;
    if let Some(rounds) = args.rounds {
        cluster.rounds = Some(rounds).filter(|rounds| !rounds.is_zero());
    }
    if let Some(cost) = args.start_cost {
        cluster.start_cost = cost;
        cluster.wide = None;
    }
    if let Some(cost) = args.resize_cost {
        cluster.resize_cost = cost;
        cluster.wide = None;
    }
    Ok(cluster)
}

/// The cluster of a preset or of a file.
pub(crate) fn named_cluster(name: &str, jobs: usize) -> Result<Cluster, Failure> {
    Ok(match cluster::preset(name, jobs) {
        Some(preset) => preset,
        None if is_file(name) => {
            let read = crate::cluster_file::read(Path::new(name), None)?;
            Cluster {
                name: name.to_owned(),
                nodes: read.nodes,
                partitions: read.partitions,
                resources: read.resources,
                rounds: None,
                start_cost: START_COST,
                resize_cost: START_COST,
                wide: None,
                table: None,
            }
        }
        None => {
            let presets = cluster::PRESETS.join(", ");
            let what = format!("there is no cluster `{name}`: neither a preset nor a file");
            return Err(Failure::new(Exit::Usage, "AP0610", what)
                .help(format!("give a cluster file or one of: {presets}")));
        }
    })
}

fn is_file(name: &str) -> bool {
    name.contains(['/', '.']) && Path::new(name).exists()
}

/// The settings in a policy file: `[policy]` as in `antiphon.toml`.
pub(crate) fn policy_file(path: &Path) -> Result<Policy, Failure> {
    let wrong = |why: String| {
        let what = format!("the policy file `{}` cannot be used", path.display());
        Failure::new(Exit::Usage, "AP0206", what).why(why).help(
            "write `[policy]` as in `antiphon.toml`: docs/reference/configuration.md has its keys",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let settings = Settings::from_text(&text).map_err(wrong)?;
    let usual = simulate::policy();
    Ok(Policy {
        ended_jobs_max: usual.ended_jobs_max,
        jobs_max: usual.jobs_max,
        ..settings.policy()
    })
}

fn bar(name: &str, jobs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::try_from(jobs).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{msg:16} {wide_bar} {pos}/{len} jobs {eta}") {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

/// Set by Ctrl-C: what is done so far is still printed. A second one ends the program.
fn stopped_by_hand() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let signal = signal_hook::consts::SIGINT;
    // Where it cannot be caught, Ctrl-C ends the program as ever.
    let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop));
    let _ = signal_hook::flag::register(signal, Arc::clone(&stop));
    stop
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

fn tell_bad_rows(path: &Path, trace: &Trace) {
    if trace.bad_total == 0 {
        return;
    }
    let shown = trace.bad.iter().take(BAD_SHOWN);
    for row in shown {
        say(&format!("warning: {}, {row}", path.display()));
    }
    say(&format!(
        "warning: {} bad rows of `{}` were left out; `--strict` stops at the first",
        trace.bad_total,
        path.display()
    ));
}

fn tell_refused(args: &SimulateArgs, finished: &Finished) -> Result<(), Failure> {
    let refused = &finished.tally.refused;
    let Some(first) = refused.first() else {
        return Ok(());
    };
    let told = |job: &antiphon_sim::world::Refused| {
        format!("line {}: job `{}`: {}", job.line, job.name, job.reason)
    };
    if args.strict {
        let what = format!("`{}` holds a job that cannot run", args.trace.display());
        return Err(Failure::new(Exit::Refused, "AP0611", what)
            .why(told(first))
            .help(
                "leave `--strict` out to go on without such jobs, or give a larger `--cluster`",
            ));
    }
    for job in refused.iter().take(BAD_SHOWN) {
        say(&format!("warning: {}, {}", args.trace.display(), told(job)));
    }
    say(&format!(
        "warning: {} jobs cannot run on this cluster and were left out",
        refused.len()
    ));
    Ok(())
}

/// One line a job; with several policies one file for each.
fn write_jobs(
    path: &Path,
    policy: &str,
    policies: usize,
    workload: &Workload,
    finished: &Finished,
) -> Result<(), Failure> {
    let path = if policies == 1 {
        path.to_owned()
    } else {
        let stem = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        let name = policy.replace('/', "-");
        path.with_file_name(format!("{}-{name}.csv", stem.unwrap_or_default()))
    };
    let seconds = |ms: Option<Millis>| {
        ms.map_or_else(String::new, |ms| {
            let ms = ms.as_millis();
            format!("{}.{:03}", ms / 1_000, ms % 1_000)
        })
    };
    let mut text = String::from(
        "job,team,gpus,submitted_s,started_s,ended_s,gpu_hours,idle_gpu_hours,lost_gpu_hours,preemptions\n",
    );
    for (job, record) in workload.jobs.iter().zip(&finished.records) {
        let Some(record) = record else {
            continue;
        };
        let quoted = |name: &str| {
            if name.contains([',', '"', '\n']) {
                format!("\"{}\"", name.replace('"', "\"\""))
            } else {
                name.to_owned()
            }
        };
        text += &format!(
            "{},{},{},{},{},{},{:.4},{:.4},{:.4},{}\n",
            quoted(&job.name),
            quoted(&job.team),
            job.gpus,
            seconds(Some(record.submitted)),
            seconds(record.started),
            seconds(record.ended),
            record.held_gpu_ms / 3.6e6,
            record.lost.idle() / 3.6e6,
            (record.lost.total() - record.lost.idle()) / 3.6e6,
            record.preemptions,
        );
    }
    std::fs::write(&path, text).map_err(|error| unwritten(&path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    let what = format!("`{}` cannot be written", path.display());
    Failure::new(Exit::Failed, "", what).why(error.to_string())
}

/// Policies side by side.
pub(crate) fn show(runs: &[Outcome]) {
    if runs.iter().any(|run| run.allocation.is_some()) {
        let header = [
            "POLICY",
            "OFFERED",
            "PLACED",
            "ALLOCATED %",
            "SD",
            "FRAGMENTED %",
            "WALL S",
        ];
        let number = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.2}"));
        let row = |run: &Outcome| {
            vec![
                run.policy.clone(),
                run.jobs.to_string(),
                run.completed.to_string(),
                number(run.allocation),
                number(run.allocation_sd),
                number(run.fragmented),
                number(run.wall_s),
            ]
        };
        table(&header, runs.iter().map(row).collect(), &[]);
        return;
    }
    let header = [
        "POLICY",
        "DONE",
        "AVG JCT",
        "P50",
        "P99",
        "AVG QUEUE",
        "MAKESPAN",
        "UTIL %",
        "GOODPUT %",
        "PREEMPTED",
        "WALL S",
    ];
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{v:.0} s"));
    let percent =
        |value: Option<f64>| value.map_or_else(|| "-".into(), |v| format!("{:.1}", v * 100.0));
    let mut rows: Vec<Vec<String>> = runs
        .iter()
        .map(|run| {
            vec![
                run.policy.clone(),
                format!("{}/{}", run.completed, run.jobs),
                seconds(run.avg_jct_s),
                seconds(run.p50_jct_s),
                seconds(run.p99_jct_s),
                seconds(run.avg_queue_s),
                seconds(run.makespan_s),
                percent(run.gpu_utilization),
                percent(run.goodput),
                run.preemptions.to_string(),
                run.wall_s
                    .map_or_else(|| "-".into(), |wall| format!("{wall:.2}")),
            ]
        })
        .collect();
    if let Some(run) = runs.first() {
        let mut bound = vec![
            "(bound)".to_owned(),
            String::new(),
            seconds(run.bound_avg_jct_s),
        ];
        bound.extend(std::iter::repeat_n(String::new(), 3));
        bound.push(seconds(run.bound_makespan_s));
        bound.extend(std::iter::repeat_n(String::new(), 4));
        rows.push(bound);
    }
    table(&header, rows, &["P50", "AVG QUEUE", "WALL S"]);
}

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let why = match error.why() {
            empty if empty.is_empty() => causes(&error),
            why => why,
        };
        Self::new(Exit::Refused, error.code(), error.to_string())
            .why(why)
            .help(error.help())
    }
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Table(error) => error.into(),
            error => Self::new(Exit::Refused, error.code(), error.to_string()).help(error.help()),
        }
    }
}
