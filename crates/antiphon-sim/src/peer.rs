//! Published policies, re-made from their papers: what antiphon is measured against. Each says what should run; the kernel
//! keeps the books, and its check refuses what does not fit, as it does for antiphon itself.

mod arrange;
mod backfill;
mod edf;
mod gandiva;
mod gavel;
mod hetero;
mod las;
mod lucid;
mod ordered;
pub mod placement;
mod pollux;
mod themis;

use antiphon_kernel::State;
use antiphon_types::{Action, GpuAmount, JobId, Maintenance, NodeSpec, NodeState, Timestamp};

use self::gavel::{Aim, Gavel};
use crate::cluster::Cluster;
use crate::course::{Course, Site};
use crate::workload::TraceJob;

/// A published policy.
pub trait Peer {
    /// What should begin and end now. Asked again once that is done, until nothing is left.
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action>;

    /// When it wants to decide even if nothing happens before.
    fn wake_at(&mut self, _scene: &Scene<'_>) -> Option<Timestamp> {
        None
    }
}

/// What a policy sees.
pub struct Scene<'a> {
    /// The kernel's books.
    pub state: &'a State,
    /// Now.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: &'a Cluster,
    /// Its GPU types.
    pub gpu_types: &'a [String],
    /// The jobs that have come and have not ended, in the order in which they came.
    pub jobs: Vec<Live<'a>>,
}

/// A job that has come and has not ended.
pub struct Live<'a> {
    /// Its place in the workload.
    pub place: usize,
    /// Its id.
    pub id: JobId,
    /// As its trace has it.
    pub job: &'a TraceJob,
    /// When it came.
    pub submitted: Timestamp,
    /// GPU-milliseconds that it has held.
    pub attained_gpu_ms: f64,
    /// What it has done, in milliseconds at its best.
    pub done: f64,
    /// What it has to do, where the policy may know that.
    pub best_ms: Option<f64>,
    /// How fast it is where.
    pub course: &'a Course,
    /// Where it runs, if it does.
    pub site: Option<Site>,
}

impl Live<'_> {
    /// GPUs that it asks for.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.job.gpus.whole().unwrap_or(1)
    }

    /// Its speed close together on a GPU type now, as a part of its best.
    #[must_use]
    pub fn rate_on(&self, gpu_type: usize) -> f64 {
        self.course.rate(self.done, Site::close(gpu_type))
    }

    /// What is left of it, in milliseconds at its best.
    ///
    /// # Panics
    /// Where the policy may not know that: it is refused before it starts.
    #[must_use]
    pub fn left_ms(&self) -> f64 {
        let best_ms = self.best_ms.expect("a policy that may know run times");
        (best_ms - self.done).max(0.0)
    }
}

impl Scene<'_> {
    /// All GPUs of a type.
    #[must_use]
    pub fn gpus_of(&self, gpu_type: usize) -> u32 {
        let name = &self.gpu_types[gpu_type];
        let nodes = self.cluster.nodes.iter();
        let of_type = nodes.filter(|node| node.gpu_type == *name);
        of_type.map(|node| node.gpus).sum()
    }

    /// The GPUs of a node that take tasks, one bit each: none while it is down or in maintenance.
    fn usable(&self, spec: &NodeSpec) -> u64 {
        let node = self.state.node(&spec.name);
        let Some(node) = node.filter(|node| node.state == NodeState::Ready) else {
            return 0;
        };
        let now = |window: &Maintenance| window.from <= self.now && self.now < window.until;
        let mut windows = self.state.maintenance().iter();
        if windows.any(|window| now(window) && window.nodes.contains(&spec.name)) {
            return 0;
        }
        let lost = node.spec.gpus_lost.iter();
        lost.fold(u64::MAX, |usable, gpu| usable & !(1 << gpu))
    }
}

/// A whole number of GPUs.
fn gpus(count: u32) -> GpuAmount {
    GpuAmount::from_gpus(count)
}

/// The names of all published policies.
pub const NAMES: [&str; 17] = [
    "fifo",
    "easy-backfill",
    "srtf",
    "srsf",
    "las",
    "tiresias-tuned",
    "themis",
    "edf",
    "hetero-srtf",
    "gavel-fifo",
    "gavel-las",
    "gavel-las-blind",
    "gavel-makespan",
    "gavel-ftf",
    "gandiva-fair",
    "lucid",
    "pollux-like",
];

/// The published policy of this name.
#[must_use]
pub fn named(name: &str) -> Option<Box<dyn Peer>> {
    Some(match name {
        "fifo" => Box::new(ordered::fifo()),
        "easy-backfill" => Box::new(backfill::EasyBackfill),
        "srtf" => Box::new(ordered::srtf()),
        "srsf" => Box::new(ordered::srsf()),
        "las" => Box::new(las::las()),
        "tiresias-tuned" => Box::new(las::tiresias_tuned()),
        "themis" => Box::new(themis::Themis::default()),
        "edf" => Box::new(edf::Edf::new()),
        "hetero-srtf" => Box::new(hetero::HeteroSrtf),
        "gavel-fifo" => Box::new(Gavel::new(Aim::Fifo)),
        "gavel-las" => Box::new(Gavel::new(Aim::Las)),
        "gavel-las-blind" => Box::new(Gavel::new(Aim::LasBlind)),
        "gavel-makespan" => Box::new(Gavel::new(Aim::Makespan)),
        "gavel-ftf" => Box::new(Gavel::new(Aim::FinishTime)),
        "gandiva-fair" => Box::new(gandiva::GandivaFair::default()),
        "lucid" => Box::new(lucid::Lucid::default()),
        "pollux-like" => Box::new(pollux::Pollux::default()),
        _ => return None,
    })
}

/// Whether a policy has to know true run times.
#[must_use]
pub fn needs_durations(name: &str) -> bool {
    matches!(
        name,
        "srtf" | "srsf" | "themis" | "hetero-srtf" | "gavel-makespan" | "gavel-ftf"
    )
}

/// Whether a policy chooses the numbers of GPUs that jobs hold, where these were measured on several.
#[must_use]
pub fn chooses_sizes(name: &str) -> bool {
    matches!(name, "edf" | "pollux-like")
}
