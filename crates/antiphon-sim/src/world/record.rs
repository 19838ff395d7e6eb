//! What became of a job: when it came, started and ended, and what became of the GPU-time that it held.

use antiphon_types::{ExitClass, Millis};

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// When it came, after the beginning.
    pub submitted: Millis,
    /// When it first started.
    pub started: Option<Millis>,
    /// When it was done.
    pub ended: Option<Millis>,
    /// When it was given up, and why; nothing says that a person ended it.
    pub failed: Option<(Millis, Option<ExitClass>)>,
    /// GPUs that it held last.
    pub gpus: f64,
    /// How long it takes alone, at its best.
    pub best_ms: f64,
    /// GPU-milliseconds that it held.
    pub held_gpu_ms: f64,
    /// Of these, those that brought nothing.
    pub lost: Lost,
    /// How often it was stopped for another.
    pub preemptions: u32,
    /// How often an attempt failed.
    pub failures: u32,
}

/// Why GPU-time brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A first start.
    Start,
    /// Later starts.
    Restart,
    /// The training stood still for a save.
    Saving,
    /// Held and not used: more was asked for than was needed.
    Unused,
    /// A gang waited for its slowest node, or left it without a checkpoint.
    Straggler,
    /// A gang hung until its failure was noticed.
    Hanging,
    /// Stopped for another job without a checkpoint.
    Preemption,
    /// Its node was taken away.
    Spot,
    /// Its node went into maintenance.
    Maintenance,
    /// A node or GPU failed.
    Hardware,
    /// The software around it failed, or its own code.
    Software,
    /// Part of a job that was given up.
    GivenUp,
    /// Spent after it had learned all that it would.
    PastUse,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Start,
        Self::Restart,
        Self::Saving,
        Self::Unused,
        Self::Straggler,
        Self::Hanging,
        Self::Preemption,
        Self::Spot,
        Self::Maintenance,
        Self::Hardware,
        Self::Software,
        Self::GivenUp,
        Self::PastUse,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Restart => "restart",
            Self::Saving => "saving",
            Self::Unused => "unused",
            Self::Straggler => "straggler",
            Self::Hanging => "hanging",
            Self::Preemption => "preemption",
            Self::Spot => "spot",
            Self::Maintenance => "maintenance",
            Self::Hardware => "hardware",
            Self::Software => "software",
            Self::GivenUp => "given_up",
            Self::PastUse => "past_use",
        }
    }
}

/// GPU-milliseconds that brought nothing, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lost([f64; Cause::ALL.len()]);

impl Lost {
    /// What one cause took.
    #[must_use]
    pub const fn by(&self, cause: Cause) -> f64 {
        self.0[cause as usize]
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// What starts took: held, and nothing done yet.
    #[must_use]
    pub const fn idle(&self) -> f64 {
        self.by(Cause::Start) + self.by(Cause::Restart)
    }

    /// Counts more for a cause.
    pub(crate) fn add(&mut self, cause: Cause, gpu_ms: f64) {
        self.0[cause as usize] += gpu_ms;
    }
}

impl Record {
    /// Of a job that has not started.
    pub(crate) fn new(submitted: Millis, best_ms: f64) -> Self {
        Self {
            submitted,
            started: None,
            ended: None,
            failed: None,
            gpus: 0.0,
            best_ms,
            held_gpu_ms: 0.0,
            lost: Lost::default(),
            preemptions: 0,
            failures: 0,
        }
    }
}
