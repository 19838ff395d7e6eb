//! Policies side by side: one after the other on the same workload and cluster.

use antiphon_sim::cluster::Cluster;
use antiphon_sim::faults::Faults;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::simulate::{self, Tables};
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Finished, Noise, Onlooker, Setting, Spans};
use antiphon_types::Policy;

use super::page::{self, Page};
use super::serve::Stage;
use super::watch::{self, Stop};
use super::{Compared, faults, files, jobs, policies, warnings};
use crate::cli::SimulateArgs;
use crate::failure::Failure;
use crate::render::say;

/// Runs one policy after the other.
pub(super) fn side_by_side<'a>(
    args: &'a SimulateArgs,
    workload: &Workload,
    cluster: &Cluster,
    stop: &Stop,
) -> Result<Compared<'a>, Failure> {
    let given = args.throughputs.as_deref();
    let tables = simulate::tables(&args.trace, workload, cluster, given)?;
    let faults = faults::read(args.faults.as_deref())?;
    let names = policies::names(args);
    // A name that means nothing and a file that cannot be written are told before the first run, not after it.
    let policies = names.iter().map(|name| {
        let mut policy = policies::settings_of(name)?;
        if args.serve {
            // People look at what has ended.
            policy.ended_jobs_max = Policy::default().ended_jobs_max;
        }
        let setting = setting(args, cluster, policy, &faults);
        policies::decides(name, &setting)?;
        Ok((name, setting.policy))
    });
    let policies: Vec<(&String, Policy)> = policies.collect::<Result<_, Failure>>()?;
    let csv = args.csv.as_ref().map(|path| jobs::paths(path, &names));
    csv.iter()
        .flatten()
        .try_for_each(|path| files::try_out(path))?;
    let title = format!("{}: {}", workload.name, titled(&names));
    let about = page::about(args, workload, cluster);
    let mut compared = Compared {
        runs: Vec::new(),
        page: Page::begin(page::wanted(args), title.clone(), about)?,
        failure: None,
        stage: None,
    };
    if args.serve {
        compared.stage = Some(Stage::open(args, &title, workload, cluster)?);
    }
    for (place, (name, policy)) in policies.into_iter().enumerate() {
        let setting = Setting {
            spans: page::spans(compared.page.as_ref(), place),
            ..setting(args, cluster, policy, &faults)
        };
        let stage = compared.stage.as_mut();
        let (outcome, finished) = one(name, workload, &setting, &tables, stop, stage)?;
        warnings::refused(args, &finished)?;
        if let Some(page) = &mut compared.page {
            page.add(&outcome, &finished, workload, cluster);
        }
        let path = csv.as_ref().and_then(|paths| paths.get(place));
        let written = path.map_or(Ok(()), |path| jobs::write(path, workload, &finished));
        compared.runs.push(outcome);
        compared.failure = written.err();
        if compared.failure.is_some() {
            break;
        }
        if stop.is_wished() {
            let told = stopped(&compared.runs, names.len());
            say(&told);
            compared.page.iter_mut().for_each(|page| page.note(&told));
            break;
        }
    }
    Ok(compared)
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
fn setting(args: &SimulateArgs, cluster: &Cluster, policy: Policy, faults: &Faults) -> Setting {
    Setting {
        cluster: cluster.clone(),
        knowledge: args.knowledge(),
        noise: args.noise.then(Noise::default),
        seed: args.seed(),
        policy,
        faults: faults.clone(),
        spans: Spans::Dropped,
        forecasts: args.forecasts,
    }
}

/// Runs one policy.
fn one(
    name: &str,
    workload: &Workload,
    setting: &Setting,
    tables: &Tables,
    stop: &Stop,
    stage: Option<&mut Stage>,
) -> Result<(Outcome, Finished), Failure> {
    let decider = policies::decides(name, setting)?;
    let bar = watch::bar(name, workload.jobs.len());
    let goes_on = |done: usize| {
        bar.set_position(u64::try_from(done).unwrap_or(u64::MAX));
        !stop.is_wished()
    };
    let mut onlooker: Box<dyn Onlooker> = match stage {
        Some(stage) => Box::new(stage.shows(goes_on, stop)),
        None => Box::new(goes_on),
    };
    let (mut outcome, finished) = simulate::simulate(
        name,
        decider,
        workload,
        setting,
        tables,
        &watch::stopwatch(),
        &mut *onlooker,
    );
    drop(onlooker);
    bar.finish_and_clear();
    outcome.peak_rss_bytes = watch::peak_rss_bytes();
    Ok((outcome, finished))
}
