//! `--html` and `--svg`: runs side by side as a page, and its charts as files. What is drawn stands in `antiphon-sim`.

use std::fs;
use std::path::Path;

use antiphon_sim::cluster::Cluster;
use antiphon_sim::outcome::Outcome;
use antiphon_sim::report::{DRAWN_MAX, Report, Sketch, jobs_csv};
use antiphon_sim::sweep::times;
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Finished, Spans};
use antiphon_types::Millis;

use super::files;
use crate::cli::SimulateArgs;
use crate::failure::Failure;

/// Bytes of job lines that a page carries at most, over all policies.
const JOBS_BYTES_MAX: usize = 2_000_000;

/// Which files a page becomes.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) html: Option<&'a Path>,
    pub(crate) svg: Option<&'a Path>,
}

/// A page as it grows.
pub(crate) struct Page<'a> {
    wanted: Wanted<'a>,
    report: Report,
    jobs_bytes: usize,
}

impl<'a> Page<'a> {
    /// A page without runs, where one is wanted; says at once where it could not be written.
    pub(crate) fn begin(
        wanted: Wanted<'a>,
        title: String,
        about: Vec<(&'static str, String)>,
    ) -> Result<Option<Self>, Failure> {
        if let Some(path) = wanted.html {
            files::try_out(path)?;
        }
        if let Some(folder) = wanted.svg {
            fs::create_dir_all(folder).map_err(|error| files::unwritten(folder, &error))?;
            files::try_out(&folder.join("jct.svg"))?;
        }
        let report = Report {
            title,
            about,
            ..Report::default()
        };
        Ok(
            (wanted.html.is_some() || wanted.svg.is_some()).then_some(Self {
                wanted,
                report,
                jobs_bytes: 0,
            }),
        )
    }

    /// Adds a run.
    pub(crate) fn add(
        &mut self,
        outcome: &Outcome,
        finished: &Finished,
        workload: &Workload,
        cluster: &Cluster,
    ) {
        let sketch = Sketch::of(outcome, finished, workload, &cluster.nodes);
        self.report.sketches.push(sketch);
        if self.jobs_bytes < JOBS_BYTES_MAX {
            let jobs = jobs_csv(workload, finished);
            self.jobs_bytes += jobs.len();
            self.report.jobs.push((outcome.policy.clone(), jobs));
        }
        if self.jobs_bytes >= JOBS_BYTES_MAX {
            self.report.jobs.clear();
        }
    }

    /// Adds a run of which there are figures alone.
    pub(crate) fn add_figures(&mut self, outcome: &Outcome) {
        self.report.sketches.push(Sketch::of_figures(outcome));
    }

    /// Adds what a reader should know.
    pub(crate) fn note(&mut self, note: &str) {
        self.report.notes.push(note.to_owned());
    }

    /// Writes the files.
    pub(crate) fn write(&self) -> Result<(), Failure> {
        if let Some(path) = self.wanted.html {
            files::write(path, &self.report.html())?;
        }
        if let Some(folder) = self.wanted.svg {
            for (name, svg) in self.report.svgs() {
                files::write(&folder.join(name), &svg)?;
            }
        }
        Ok(())
    }
}

/// What was asked for.
pub(super) fn wanted(args: &SimulateArgs) -> Wanted<'_> {
    Wanted {
        html: args.html.as_deref(),
        svg: args.svg.as_deref(),
    }
}

/// Whether the run of this place keeps what is drawn of it.
pub(super) const fn spans(page: Option<&Page<'_>>, place: usize) -> Spans {
    match page {
        Some(_) if place < DRAWN_MAX => Spans::Kept,
        Some(_) | None => Spans::Dropped,
    }
}

/// What all runs of a simulation have in common.
pub(super) fn about(
    args: &SimulateArgs,
    workload: &Workload,
    cluster: &Cluster,
) -> Vec<(&'static str, String)> {
    let gpus: u64 = cluster.nodes.iter().map(|node| u64::from(node.gpus)).sum();
    let rounds = cluster
        .rounds
        .map_or_else(|| "none".to_owned(), |rounds| rounds.to_string());
    let cost = |cost: Millis| {
        if cost.is_zero() {
            "free".to_owned()
        } else {
            cost.to_string()
        }
    };
    let mut about = vec![
        ("trace", workload.name.clone()),
        (
            "cluster",
            format!(
                "{}: {} nodes, {gpus} GPUs",
                cluster.name,
                cluster.nodes.len()
            ),
        ),
        ("jobs", workload.jobs.len().to_string()),
        ("known", args.knowledge().name().to_owned()),
        ("first start", cost(cluster.start_cost)),
        ("later starts", cost(cluster.resize_cost)),
        ("rounds", rounds),
        ("seed", args.seed().to_string()),
        ("antiphon", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let factors = [("load", args.load()), ("size", args.size())];
    let factors = factors.iter().filter(|(_, factor)| *factor != 1_000);
    about.extend(factors.map(|(name, factor)| (*name, format!("{}×", times(*factor)))));
    if args.noise {
        about.push(("noise", "on".to_owned()));
    }
    about
}
