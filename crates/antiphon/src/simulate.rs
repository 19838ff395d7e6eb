//! `antiphon simulate`: runs policies over a recorded workload under virtual time and prints what came of each. What
//! happens in a simulation stands in `antiphon-sim`; here are files, the stopwatch and the table.

mod cluster;
mod failure;
mod jobs;
mod place;
mod policies;
mod table;
mod warnings;
mod watch;

use std::process::ExitCode;

use antiphon_sim::cluster::Cluster;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::simulate::{self, Tables};
use antiphon_sim::trace::{self, Strict};
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Finished, Noise, Setting, Spans};
use antiphon_types::Policy;
use serde::Serialize;

use crate::cli::SimulateArgs;
use crate::failure::Failure;
use crate::render::{json, say};
use watch::Stop;

pub(crate) use cluster::{START_COST, named_cluster};
pub(crate) use policies::policy_file;
pub(crate) use table::show;

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    runs: Vec<Outcome>,
}

/// Runs `antiphon simulate`.
pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let strict = if args.strict { Strict::On } else { Strict::Off };
    let trace = trace::read(&args.trace, args.format, strict)?;
    warnings::bad_rows(&args.trace, &trace);
    let cluster = cluster::name(args, trace.format)?;
    let runs = if cluster == place::FGD {
        let policies = policies::names(args);
        let place = |policy: &String| place::place(args, policy, &trace.workload);
        policies.iter().map(place).collect::<Result<_, _>>()?
    } else {
        let jobs = trace.workload.jobs.len();
        let cluster = cluster::with_flags(&cluster, args, jobs)?;
        side_by_side(args, &trace.workload, &cluster)?
    };
    if args.json {
        json(&Report { runs });
    } else {
        show(&runs);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs one policy after the other.
fn side_by_side(
    args: &SimulateArgs,
    workload: &Workload,
    cluster: &Cluster,
) -> Result<Vec<Outcome>, Failure> {
    let given = args.throughputs.as_deref();
    let tables = simulate::tables(&args.trace, workload, cluster, given)?;
    let names = policies::names(args);
    // A name that means nothing is told before the first run, not after it.
    let policies = names.iter().map(|name| {
        let setting = setting(args, cluster, policies::settings_of(name)?);
        policies::decider(name, &setting)?;
        Ok((name, setting.policy))
    });
    let policies: Vec<(&String, Policy)> = policies.collect::<Result<_, Failure>>()?;
    let stop = Stop::by_hand();
    let mut runs = Vec::new();
    for (name, policy) in policies {
        let setting = setting(args, cluster, policy);
        let (outcome, finished) = one(name, workload, &setting, &tables, &stop)?;
        warnings::refused(args, &finished)?;
        if let Some(path) = &args.csv {
            jobs::write(path, name, names.len(), workload, &finished)?;
        }
        runs.push(outcome);
        if stop.is_wished() {
            say("stopped: what was done so far follows");
            break;
        }
    }
    Ok(runs)
}

/// What a run of a policy fixes.
fn setting(args: &SimulateArgs, cluster: &Cluster, policy: Policy) -> Setting {
    Setting {
        cluster: cluster.clone(),
        knowledge: args.knowledge,
        noise: args.noise.then(Noise::default),
        seed: args.seed,
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
    let decider = policies::decider(name, setting)?;
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
