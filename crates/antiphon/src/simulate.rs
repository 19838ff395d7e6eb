//! `antiphon simulate`: runs policies over a recorded workload under virtual time and prints what came of each. What
//! happens in a simulation stands in `antiphon-sim`; here are files, the stopwatch and the table.

mod cluster;
mod compare;
mod failure;
mod faults;
pub(crate) mod files;
mod jobs;
mod page;
mod place;
mod policies;
mod serve;
mod sweep;
mod table;
mod warnings;
mod watch;

use std::process::ExitCode;

use antiphon_sim::outcome::Outcome;
use antiphon_sim::sweep::{at_load, at_size};
use antiphon_sim::trace::{self, Strict};
use serde::Serialize;

use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::render::json;
use serve::Stage;
use watch::Stop;

pub(crate) use cluster::{START_COST, named_cluster};
pub(crate) use files::{try_out, write};
pub(crate) use page::{Page, Wanted};
pub(crate) use policies::policy_file;
pub(crate) use table::show;

/// What came of policies side by side, also where that ended early.
struct Compared<'a> {
    runs: Vec<Outcome>,
    page: Option<Page<'a>>,
    /// What ended it.
    failure: Option<Failure>,
    /// Where it is shown.
    stage: Option<Stage>,
}

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
    let compared = match (&args.sweep, &cluster[..]) {
        (_, place::FGD) if args.serve || asks_for_time(args) => return Err(not_placement_alone()),
        (_, place::FGD) => place::side_by_side(args, &trace.workload, &stop)?,
        (Some(path), _) => {
            let cluster = cluster::with_flags(&cluster, args, trace.workload.jobs.len())?;
            return sweep::run(args, path, trace, cluster, &stop);
        }
        (None, _) => {
            let cluster = cluster::with_flags(&cluster, args, trace.workload.jobs.len())?;
            let cluster = at_size(&cluster, args.size());
            let workload = at_load(&trace.workload, args.load());
            compare::side_by_side(args, &workload, &cluster, &stop)?
        }
    };
    let Compared {
        runs,
        page,
        failure,
        stage,
    } = compared;
    if args.json {
        json(&Report { runs });
    } else if !runs.is_empty() {
        show(&runs);
    }
    // What is printed is not lost where a file cannot be written.
    failure.map_or(Ok(()), Err)?;
    page.iter().try_for_each(Page::write)?;
    stage.map_or(Ok(()), |stage| stage.stay(&stop))?;
    // Who has looked at it ends it by hand: that is no interruption.
    Ok(if stop.is_wished() && !args.serve {
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
    let what = "placement alone (cluster `fgd`) has no `--sweep`, `--serve`, `--load`, `--size` and `--csv`";
    Failure::new(Exit::Usage, "AP0615", what)
        .help("`--shuffles N` tries N orders of the jobs, `--offered TIMES` offers more of them")
}
