//! What became of a job: when it came, started and ended, and what it held meanwhile. Reckons nothing.

use antiphon_types::Millis;

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// When it came, after the beginning.
    pub submitted: Millis,
    /// When it first started.
    pub started: Option<Millis>,
    /// When it was done.
    pub ended: Option<Millis>,
    /// GPUs that it held last.
    pub gpus: f64,
    /// How long it takes alone, at its best.
    pub best_ms: f64,
    /// GPU-milliseconds that it held.
    pub held_gpu_ms: f64,
    /// Of these, those in which nothing was done: starts and resumes.
    pub idle_gpu_ms: f64,
    /// Of these, those whose results were lost.
    pub lost_gpu_ms: f64,
    /// How often it was stopped for another.
    pub preemptions: u32,
}
