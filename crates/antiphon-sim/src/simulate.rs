//! One simulation from a workload, a cluster and the name of a policy: finds the tables that go with the trace, works out
//! what each job has to do, runs the world, sums up. Prints nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use antiphon_types::{Millis, Policy};

use crate::bound::bounds;
use crate::cluster::Cluster;
use crate::course::{Course, Elastic, Goodputs, millis};
use crate::delay;
use crate::outcome::Outcome;
use crate::peer;
use crate::profile::Profile;
use crate::throughput::{Placed, Throughputs};
use crate::trace::TraceError;
use crate::workload::{Work, Workload};
use crate::world::{Decider, Finished, Knowledge, Onlooker, Setting, World, gpu_types};

/// The name of antiphon's own policy.
pub const ANTIPHON: &str = "antiphon";

/// Folders above a trace in which its tables are looked for.
const PARENTS: usize = 3;

/// What jobs of a trace make on which GPUs.
#[derive(Debug, Clone)]
pub enum Tables {
    /// Run times stand in the trace.
    None,
    /// Steps a second.
    Throughputs(Box<Throughputs>),
    /// Step times and statistical efficiency, by application.
    Profiles(BTreeMap<String, Profile>),
}

/// A simulation that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// No such policy.
    #[error("there is no policy `{name}`")]
    UnknownPolicy {
        /// What was asked for.
        name: String,
    },
    /// The policy lives from what it may not know.
    #[error("policy `{name}` orders by run times, and none are to be known")]
    NeedsDurations {
        /// The policy.
        name: String,
    },
    /// A table that goes with the trace is missing.
    #[error("no table of throughputs `{table}` in the {searched} folders from `{}` upwards", beside.display())]
    NoTable {
        /// What it is called.
        table: String,
        /// Where the trace lies.
        beside: PathBuf,
        /// How many folders were looked at.
        searched: usize,
    },
    /// It cannot be read.
    #[error(transparent)]
    Table(#[from] TraceError),
}

impl SimulateError {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownPolicy { .. } => "AP0607",
            Self::NeedsDurations { .. } => "AP0608",
            Self::NoTable { .. } => "AP0609",
            Self::Table(error) => error.code(),
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::UnknownPolicy { .. } => format!(
                "give `{ANTIPHON}`, a policy file, or one of: {}",
                peer::NAMES.join(", ")
            ),
            Self::NeedsDurations { .. } => {
                "add `--knowledge durations`, or choose `las`, `fifo` or `antiphon`".into()
            }
            Self::NoTable { .. } => {
                "give the table with `--throughputs FILE`: a JSON file of Gavel's form, or a folder of ElasticFlow's or Pollux's"
                    .into()
            }
            Self::Table(error) => error.help(),
        }
    }
}

/// Finds the tables that a workload needs: the one that is given, or the one of the cluster's comparison in the trace's
/// folder or its parents.
///
/// # Errors
/// Where one is needed and not there, or cannot be read.
pub fn tables(
    trace: &Path,
    workload: &Workload,
    cluster: &Cluster,
    given: Option<&Path>,
) -> Result<Tables, SimulateError> {
    let profiles = workload
        .jobs
        .iter()
        .any(|job| matches!(job.work, Work::Profile { .. }));
    if profiles {
        let folder = match given {
            Some(given) => given.to_owned(),
            None => beside(trace, &["profiles".to_owned()])?,
        };
        return profiles_of(&folder, workload).map_err(SimulateError::from);
    }
    let kinds = || {
        workload.jobs.iter().filter_map(|job| match &job.work {
            Work::Steps(phases) => Some((phases, job.gpus.whole().unwrap_or(1))),
            Work::Time(_) | Work::Endless | Work::Profile { .. } => None,
        })
    };
    if kinds().next().is_none() {
        return Ok(Tables::None);
    }
    if let Some(given) = given {
        return Ok(Tables::Throughputs(Box::new(Throughputs::read(given)?)));
    }
    if let Some(name) = cluster.table {
        let names = [format!("{name}.json.gz"), format!("{name}.json")];
        let table = Throughputs::read(&beside(trace, &names)?)?;
        return Ok(Tables::Throughputs(Box::new(table)));
    }
    // ElasticFlow has one folder a GPU type; the one that knows the trace's models is meant.
    let mut first = None;
    for name in ["throughputs_T4", "throughputs_A100"] {
        let folder = match beside(trace, &[name.to_owned()]) {
            Ok(folder) => folder,
            Err(error) => {
                first.get_or_insert(error);
                continue;
            }
        };
        let table = Throughputs::read(&folder)?;
        let knows = |(phases, gpus): (&Vec<crate::workload::Phase>, u32)| {
            phases.iter().all(|phase| {
                !table.scaling(&phase.kind, "").is_empty()
                    || table
                        .steps_per_s(&phase.kind, gpus, "", Placed::Consolidated)
                        .is_some()
            })
        };
        if kinds().all(knows) {
            return Ok(Tables::Throughputs(Box::new(table)));
        }
    }
    Err(first.unwrap_or(SimulateError::NoTable {
        table: "throughputs_T4".into(),
        beside: trace.to_owned(),
        searched: PARENTS,
    }))
}

fn beside(trace: &Path, names: &[String]) -> Result<PathBuf, SimulateError> {
    for folder in trace.ancestors().skip(1).take(PARENTS) {
        for name in names {
            let path = folder.join(name);
            if path.exists() {
                return Ok(path);
            }
        }
    }
    Err(SimulateError::NoTable {
        table: names.first().cloned().unwrap_or_default(),
        beside: trace.parent().unwrap_or(trace).to_owned(),
        searched: PARENTS,
    })
}

fn profiles_of(folder: &Path, workload: &Workload) -> Result<Tables, TraceError> {
    let names: BTreeSet<&String> = workload
        .jobs
        .iter()
        .filter_map(|job| match &job.work {
            Work::Profile { application, .. } => Some(application),
            Work::Time(_) | Work::Steps(_) | Work::Endless => None,
        })
        .collect();
    let read = |name: &String| Ok((name.clone(), Profile::read(&folder.join(name))?));
    let profiles: Result<_, TraceError> = names.into_iter().map(read).collect();
    Ok(Tables::Profiles(profiles?))
}

/// What each job of a workload has to do, or why it cannot be done on this cluster.
#[must_use]
pub fn courses(
    workload: &Workload,
    cluster: &Cluster,
    tables: &Tables,
) -> Vec<Result<Course, String>> {
    let types = gpu_types(cluster);
    let widest = cluster
        .nodes
        .iter()
        .map(|node| node.gpus)
        .max()
        .unwrap_or(1);
    let course = |job| match tables {
        Tables::Profiles(profiles) => Course::by_profile(job, &types, widest, profiles),
        Tables::None => Course::of(job, &types, &|_, _, _, _| None),
        Tables::Throughputs(table) => {
            let named = table.gpu_types().next().is_some();
            let speed = |kind: &str, gpus: u32, gpu_type: &str, close: bool| {
                let placed = if close {
                    Placed::Consolidated
                } else {
                    Placed::Spread
                };
                table.steps_per_s(kind, gpus, if named { gpu_type } else { "" }, placed)
            };
            Course::of(job, &types, &speed)
        }
    };
    let told = |course: Result<Course, crate::course::Unknown>| course.map_err(|e| e.to_string());
    workload.jobs.iter().map(|job| told(course(job))).collect()
}

/// Lets jobs hold other numbers of GPUs than they ask for, where the tables say how fast they are then.
fn stretch(
    workload: &Workload,
    tables: &Tables,
    gpus: u32,
    courses: &mut [Result<Course, String>],
) {
    let mut goodputs: BTreeMap<&str, Rc<Goodputs>> = BTreeMap::new();
    for (job, course) in workload.jobs.iter().zip(courses) {
        let Ok(course) = course else { continue };
        course.elastic = match (&job.work, tables) {
            (Work::Profile { application, .. }, Tables::Profiles(profiles)) => {
                profiles.get(application).map(|profile| {
                    let shared = goodputs.entry(application);
                    let shared = shared.or_insert_with(|| Rc::new(Goodputs::of(profile)));
                    Elastic::by_goodput(shared, course, gpus)
                })
            }
            (Work::Steps(phases), Tables::Throughputs(table)) => match &phases[..] {
                [phase] => {
                    let asked = job.gpus.whole().unwrap_or(1);
                    Elastic::by_steps(&table.scaling(&phase.kind, ""), asked, gpus)
                }
                _ => None,
            },
            (Work::Time(_) | Work::Endless | Work::Steps(_) | Work::Profile { .. }, _) => None,
        };
    }
}

/// Who decides under this name.
///
/// # Errors
/// Where there is no such policy, or it needs to know what it may not.
pub fn decider(name: &str, setting: &Setting) -> Result<Decider, SimulateError> {
    if name == ANTIPHON {
        return Ok(Decider::Kernel);
    }
    let peer = peer::named(name).ok_or_else(|| SimulateError::UnknownPolicy {
        name: name.to_owned(),
    })?;
    let known = setting.knowledge == Knowledge::Durations || setting.cluster.table.is_some();
    if peer::needs_durations(name) && !known {
        return Err(SimulateError::NeedsDurations {
            name: name.to_owned(),
        });
    }
    Ok(Decider::Peer(peer))
}

/// Runs one policy on one workload.
///
/// # Errors
/// As [`decider`].
pub fn simulate(
    name: &str,
    decider: Decider,
    workload: &Workload,
    setting: &Setting,
    tables: &Tables,
    stopwatch: &dyn Fn() -> u64,
    onlooker: &mut dyn Onlooker,
) -> (Outcome, Finished) {
    let began = stopwatch();
    let all = setting.cluster.nodes.iter().map(|node| node.gpus).sum();
    let (asked, used) = setting.faults.requested(workload, setting.seed, all);
    let workload = asked.as_ref();
    let mut courses = courses(workload, &setting.cluster, tables);
    let known: Vec<Option<&Course>> = courses.iter().map(|course| course.as_ref().ok()).collect();
    let gpus = f64::from(all);
    let mut bounds = bounds(workload, &known, gpus);
    drop(known);
    if matches!(decider, Decider::Peer(_)) && peer::chooses_sizes(name) {
        stretch(workload, tables, all, &mut courses);
        // The bounds hold for the numbers of GPUs that are asked for.
        let mut known = courses.iter().flatten();
        if known.any(|course| course.elastic.is_some()) {
            bounds = None;
        }
    }
    let world = World::new(workload, setting, decider, courses, stopwatch).with_used(&used);
    let finished = world.run(onlooker);
    let seconds = |span: Millis| millis(span) / 1_000.0;
    let mut outcome = Outcome {
        policy: name.to_owned(),
        trace: workload.name.clone(),
        knowledge: setting.knowledge.name().to_owned(),
        rounds_s: setting.cluster.rounds.map(seconds),
        start_cost_s: seconds(setting.cluster.start_cost),
        resize_cost_s: seconds(setting.cluster.resize_cost),
        ..Outcome::default()
    };
    let deadlines: Vec<Option<f64>> = workload
        .jobs
        .iter()
        .map(|job| job.deadline.map(seconds))
        .collect();
    outcome.take(&finished, &deadlines, gpus, bounds);
    outcome.delays = delay::by_class(workload, &finished.records);
    let nanos = stopwatch().saturating_sub(began);
    outcome.wall_s = Some(millis(Millis::from_millis(nanos / 1_000)) / 1e6);
    (outcome, finished)
}

/// The kernel's settings for a simulation: the defaults, with fewer ended jobs kept, since the records are kept here.
#[must_use]
pub fn policy() -> Policy {
    Policy {
        ended_jobs_max: 1_000,
        jobs_max: 2_000_000,
        ..Policy::default()
    }
}
