//! `--sweep`: every policy under every knowledge, load, size and seed that is given, one simulation a thread on all cores, a
//! row of one CSV each. What was done is not done again: the same command goes on where it was stopped.
//!
//! Threads take the next run from a counter. Runs are long and need no stealing of work, so a thread pool of others has
//! nothing to add.

mod file;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use antiphon_sim::cluster::Cluster;
use antiphon_sim::faults::Faults;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::simulate::{self, SimulateError, Tables};
use antiphon_sim::sweep::{Grid, Key, Point, at_load, at_size, times};
use antiphon_sim::trace::Trace;
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Noise, Setting, Spans};
use antiphon_types::Policy;
use indicatif::ProgressBar;

use super::watch::{self, Stop};
use super::{faults, files, policies, warnings};
use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::render::say;
use file::SweepFile;

/// Hexadecimal digits of a digest in the table: enough to tell runs apart.
const DIGEST: usize = 16;

/// What all runs share.
struct Ground<'a> {
    args: &'a SimulateArgs,
    /// By load.
    workloads: BTreeMap<u32, Workload>,
    /// By size.
    clusters: BTreeMap<u32, Cluster>,
    /// By name.
    policies: BTreeMap<String, Policy>,
    tables: Tables,
    faults: Faults,
    trace_digest: String,
    /// Of what is no setting: the format, and what lies beside the trace.
    beside: String,
    stop: &'a Stop,
}

/// Runs a sweep over a trace on a cluster.
pub(super) fn run(
    args: &SimulateArgs,
    path: &Path,
    trace: Trace,
    cluster: Cluster,
    stop: &Stop,
) -> Result<ExitCode, Failure> {
    let grid = Grid {
        policies: policies::names(args),
        knowledge: args.knowledge.clone(),
        loads: args.loads.clone(),
        sizes: args.sizes.clone(),
        seeds: args.seeds.clone(),
    };
    let ground = Ground::lay(args, &grid, trace, cluster, stop)?;
    let points = ground.possible(&grid)?;
    let (file, done) = SweepFile::open(path)?;
    let all = points.len();
    let keyed = points.into_iter().map(|point| (ground.key(&point), point));
    let todo: Vec<(Key, Point)> = keyed.filter(|(key, _)| !done.contains(key)).collect();
    let there = all - todo.len();
    say(&format!(
        "sweep of {all} runs, {there} of them in `{}`; Ctrl-C stops it, and the same command goes on from there",
        path.display()
    ));
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    let file = Mutex::new(file);
    ground.all(&todo, threads, &file)?;
    let file = file.into_inner().expect(SOUND);
    let new = file.appended();
    if stop.is_wished() {
        say(&format!(
            "stopped: {} of {all} are in `{}`, {new} of them new; the same command goes on from there",
            there + new,
            path.display()
        ));
        return Ok(Exit::Interrupted.into());
    }
    file.finish()?;
    say(&format!(
        "the whole sweep of {all} is in `{}`, {new} of them new",
        path.display()
    ));
    Ok(ExitCode::SUCCESS)
}

impl<'a> Ground<'a> {
    fn lay(
        args: &'a SimulateArgs,
        grid: &Grid,
        trace: Trace,
        cluster: Cluster,
        stop: &'a Stop,
    ) -> Result<Self, Failure> {
        let given = args.throughputs.as_deref();
        let tables = simulate::tables(&args.trace, &trace.workload, &cluster, given)?;
        let bytes =
            std::fs::read(&args.trace).map_err(|error| files::unread(&args.trace, &error))?;
        let of_policy = |name: &String| Ok((name.clone(), policies::settings_of(name)?));
        let policies = grid.policies.iter().map(of_policy);
        let loads = grid.loads.iter();
        let sizes = grid.sizes.iter();
        Ok(Self {
            args,
            policies: policies.collect::<Result<_, Failure>>()?,
            workloads: loads
                .map(|load| (*load, at_load(&trace.workload, *load).into_owned()))
                .collect(),
            clusters: sizes
                .map(|size| (*size, at_size(&cluster, *size).into_owned()))
                .collect(),
            faults: faults::read(args.faults.as_deref())?,
            trace_digest: digest(&bytes),
            beside: digest(format!("{:?}{tables:?}", trace.format).as_bytes()),
            tables,
            stop,
        })
    }

    fn setting(&self, point: &Point) -> Setting {
        Setting {
            cluster: self.clusters[&point.size].clone(),
            knowledge: point.knowledge,
            noise: self.args.noise.then(Noise::default),
            seed: point.seed,
            policy: self.policies[&point.policy].clone(),
            faults: self.faults.clone(),
            spans: Spans::Dropped,
            forecasts: 0,
        }
    }

    /// What says whether a run has been done. All settings are part of it, whatever they are.
    fn key(&self, point: &Point) -> Key {
        let setting = self.setting(point);
        let settings = format!("{setting:?}{}", self.beside);
        let name = |workload: &Workload| workload.name.clone();
        Key::of(
            point,
            &name(&self.workloads[&point.load]),
            &setting.cluster,
            &self.trace_digest,
            &digest(settings.as_bytes()),
        )
    }

    /// The runs of a grid, without those whose policy may not know what it orders by.
    fn possible(&self, grid: &Grid) -> Result<Vec<Point>, Failure> {
        let mut points = Vec::new();
        let mut blind: BTreeMap<(String, &str), String> = BTreeMap::new();
        for point in grid.points() {
            match policies::decides(&point.policy, &self.setting(&point)) {
                Ok(_) => points.push(point),
                Err(error @ SimulateError::NeedsDurations { .. }) => {
                    let which = (point.policy, point.knowledge.name());
                    blind.insert(which, error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
        for ((_, knowledge), why) in &blind {
            say(&format!("left out under `--knowledge {knowledge}`: {why}"));
        }
        Ok(points)
    }

    /// Does all runs; the first failure stops the others.
    fn all(
        &self,
        todo: &[(Key, Point)],
        threads: usize,
        file: &Mutex<SweepFile>,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<Failure>> = Mutex::new(None);
        let broken = AtomicBool::new(false);
        let goes_on = || !self.stop.is_wished() && !broken.load(Ordering::Relaxed);
        let bar = watch::bar_of("sweep", todo.len(), "runs");
        let work = || {
            while goes_on() {
                let Some((key, point)) = todo.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return;
                };
                let outcome = self.one(point, &goes_on);
                let mut file = file.lock().expect(SOUND);
                // What was stopped in its middle is done again.
                if !goes_on() {
                    return;
                }
                let kept = outcome.and_then(|outcome| {
                    file.append(&key.row(&outcome))?;
                    told(&bar, point, &outcome);
                    Ok(())
                });
                if let Err(failure) = kept {
                    broken.store(true, Ordering::Relaxed);
                    failed.lock().expect(SOUND).get_or_insert(failure);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.min(todo.len()) {
                scope.spawn(work);
            }
        });
        bar.finish_and_clear();
        failed.into_inner().expect(SOUND).map_or(Ok(()), Err)
    }

    fn one(&self, point: &Point, goes_on: &dyn Fn() -> bool) -> Result<Outcome, Failure> {
        let setting = self.setting(point);
        let decider = policies::decides(&point.policy, &setting)?;
        let (outcome, finished) = simulate::simulate(
            &point.policy,
            decider,
            &self.workloads[&point.load],
            &setting,
            &self.tables,
            &watch::stopwatch(),
            &mut |_| goes_on(),
        );
        warnings::strict(self.args, &finished)?;
        Ok(outcome)
    }
}

/// Why a lock can be had.
const SOUND: &str = "no thread panics with it";

/// A run that is done: on a terminal the bar moves, elsewhere a line says so.
fn told(bar: &ProgressBar, point: &Point, outcome: &Outcome) {
    bar.inc(1);
    if bar.is_hidden() {
        let jct = outcome.avg_jct_s.map_or_else(
            || "no job done".to_owned(),
            |jct| format!("mean JCT {jct:.0} s"),
        );
        say(&format!(
            "{}: {} load {} size {} seed {}: {jct}",
            point.policy,
            point.knowledge.name(),
            times(point.load),
            times(point.size),
            point.seed
        ));
    }
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = antiphon_sim::digest(bytes);
    digest.truncate(DIGEST);
    digest
}
