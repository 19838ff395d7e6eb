//! `antiphon simulate`: runs policies over a recorded workload under virtual time and prints what came of each. What
//! happens in a simulation stands in `antiphon-sim`; here are files, the stopwatch and the table.

mod cluster;
mod failure;
mod files;
mod jobs;
mod page;
mod place;
mod policies;
mod sweep;
mod table;
mod warnings;
mod watch;

use std::process::ExitCode;

use antiphon_sim::cluster::Cluster;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::simulate::{self, Tables};
use antiphon_sim::sweep::{at_load, at_size};
use antiphon_sim::trace::{self, Strict};
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Finished, Noise, Setting, Spans};
use antiphon_types::Policy;
use serde::Serialize;

use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::render::{json, say};
use watch::Stop;

pub(crate) use cluster::{START_COST, named_cluster};
pub(crate) use files::{try_out, write};
pub(crate) use page::{Page, Wanted};
pub(crate) use policies::policy_file;
pub(crate) use table::show;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    runs: Vec<Outcome>,
}

/// Runs `antiphon simulate`.
pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    if args.sweep.is_none() {
        at_most_one_each(args)?;
    }
    let stop = Stop::by_hand();
    let strict = if args.strict { Strict::On } else { Strict::Off };
    let trace = trace::read(&args.trace, args.format, strict)?;
    warnings::bad_rows(&args.trace, &trace);
    let cluster = cluster::name(args, trace.format)?;
    let runs = match (&args.sweep, &cluster[..]) {
        (_, place::FGD) if asks_for_time(args) => return Err(not_placement_alone()),
        (_, place::FGD) => place::side_by_side(args, &trace.workload, &stop)?,
        (Some(path), _) => {
            let cluster = cluster::with_flags(&cluster, args, trace.workload.jobs.len())?;
            return sweep::run(args, path, trace, cluster, &stop);
        }
        (None, _) => {
            let cluster = cluster::with_flags(&cluster, args, trace.workload.jobs.len())?;
            let cluster = at_size(&cluster, args.size());
            let workload = at_load(&trace.workload, args.load());
            side_by_side(args, &workload, &cluster, &stop)?
        }
    };
    if args.json {
        json(&Report { runs });
    } else {
        show(&runs);
    }
    Ok(if stop.is_wished() {
        Exit::Interrupted.into()
    } else {
        ExitCode::SUCCESS
    })
}

/// Several values of what only a sweep varies are a mistake without one.
fn at_most_one_each(args: &SimulateArgs) -> Result<(), Failure> {
    let several = [
        ("--knowledge", args.knowledge.len()),
        ("--load", args.loads.len()),
        ("--size", args.sizes.len()),
        ("--seed", args.seeds.len()),
    ];
    let Some((option, count)) = several.into_iter().find(|(_, count)| *count > 1) else {
        return Ok(());
    };
    let what = format!("`{option}` has {count} values");
    Err(Failure::new(Exit::Usage, "AP0615", what)
        .why("only policies stand side by side in one table")
        .help("add `--sweep FILE` to run every combination into one CSV, or give one value"))
}

/// Whether something is asked for that placement alone does not have.
fn asks_for_time(args: &SimulateArgs) -> bool {
    let scaled = (args.load(), args.size()) != (1_000, 1_000);
    scaled || args.sweep.is_some() || args.csv.is_some()
}

fn not_placement_alone() -> Failure {
    let what = "placement alone (cluster `fgd`) has no `--sweep`, `--load`, `--size` and `--csv`";
    Failure::new(Exit::Usage, "AP0615", what)
        .help("`--shuffles N` tries N orders of the jobs, `--offered TIMES` offers more of them")
}

/// Runs one policy after the other.
fn side_by_side(
    args: &SimulateArgs,
    workload: &Workload,
    cluster: &Cluster,
    stop: &Stop,
) -> Result<Vec<Outcome>, Failure> {
    let given = args.throughputs.as_deref();
    let tables = simulate::tables(&args.trace, workload, cluster, given)?;
    let names = policies::names(args);
    // A name that means nothing and a file that cannot be written are told before the first run, not after it.
    let policies = names.iter().map(|name| {
        let setting = setting(args, cluster, policies::settings_of(name)?);
        policies::decides(name, &setting)?;
        Ok((name, setting.policy))
    });
    let policies: Vec<(&String, Policy)> = policies.collect::<Result<_, Failure>>()?;
    let csv = args.csv.as_ref().map(|path| jobs::paths(path, &names));
    csv.iter().flatten().try_for_each(|path| try_out(path))?;
    let title = format!("{}: {}", workload.name, titled(&names));
    let about = page::about(args, workload, cluster);
    let mut page = Page::begin(page::wanted(args), title, about)?;
    let mut runs = Vec::new();
    for (place, (name, policy)) in policies.into_iter().enumerate() {
        let setting = Setting {
            spans: page::spans(page.as_ref(), place),
            ..setting(args, cluster, policy)
        };
        let (outcome, finished) = one(name, workload, &setting, &tables, stop)?;
        warnings::refused(args, &finished)?;
        if let Some(path) = csv.as_ref().and_then(|paths| paths.get(place)) {
            jobs::write(path, workload, &finished)?;
        }
        if let Some(page) = &mut page {
            page.add(&outcome, &finished, workload, cluster);
        }
        runs.push(outcome);
        if stop.is_wished() {
            let told = stopped(&runs, names.len());
            say(&told);
            page.iter_mut().for_each(|page| page.note(&told));
            break;
        }
    }
    page.iter().try_for_each(Page::write)?;
    Ok(runs)
}

/// The policies in a heading.
fn titled(names: &[String]) -> String {
    match names {
        [first, second, .., _] if names.len() > 4 => {
            format!("{first}, {second} and {} others", names.len() - 2)
        }
        names => names.join(", "),
    }
}

/// What is told where a person stopped it.
fn stopped(runs: &[Outcome], policies: usize) -> String {
    let last = runs.last().map_or_else(String::new, |run| {
        let (done, jobs) = (run.completed, run.jobs);
        if done == jobs {
            return String::new();
        }
        let name = &run.policy;
        format!(
            " in `{name}`, whose figures are those of {done} jobs alone, of {jobs} that had come"
        )
    });
    format!(
        "stopped{last}: what is done so far follows, {} of {policies} policies",
        runs.len()
    )
}

/// What a run of a policy fixes.
fn setting(args: &SimulateArgs, cluster: &Cluster, policy: Policy) -> Setting {
    Setting {
        cluster: cluster.clone(),
        knowledge: args.knowledge(),
        noise: args.noise.then(Noise::default),
        seed: args.seed(),
        policy,
        spans: Spans::Dropped,
    }
}

/// Runs one policy.
fn one(
    name: &str,
    workload: &Workload,
    setting: &Setting,
    tables: &Tables,
    stop: &Stop,
) -> Result<(Outcome, Finished), Failure> {
    let decider = policies::decides(name, setting)?;
    let bar = watch::bar(name, workload.jobs.len());
    let mut on_progress = |done: usize| {
        bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
        !stop.is_wished()
    };
    let (mut outcome, finished) = simulate::simulate(
        name,
        decider,
        workload,
        setting,
        tables,
        &watch::stopwatch(),
        &mut on_progress,
    );
    bar.finish_and_clear();
    outcome.peak_rss_bytes = watch::peak_rss_bytes();
    Ok((outcome, finished))
}
