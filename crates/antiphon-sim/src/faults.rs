//! What goes wrong in a simulation, and what saving and starting again cost: rates, shares and spans, read from a file.
//! Draws nothing and knows no job; what strikes whom and when is drawn in [`crate::world`].
//!
//! Nothing goes wrong by default, saves cost nothing, and trainers save whenever they are asked to stop.

mod check;
mod form;

use std::borrow::Cow;

use antiphon_types::{GpuAmount, Millis, RetrySpec};
use serde::Deserialize;

pub use self::check::BadFault;
use crate::workload::{Work, Workload};
use crate::world::draw::{Lot, Stream};

/// Everything that may go wrong. Times between are means of an exponential distribution, shares are parts of all jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// How jobs save.
    pub checkpoints: Checkpoints,
    /// What is tried after a failed attempt.
    pub retry: Retry,
    /// What jobs ask for beyond what they use.
    pub requests: Requests,
    /// Nodes that fail.
    pub node: Option<Outage>,
    /// Single GPUs that fail; the rest of their node goes on.
    pub gpu: Option<Outage>,
    /// Failures of the software around a job that are gone when it is tried again, by GPU.
    pub software: Option<Glitch>,
    /// Jobs whose own code fails, however often it is tried.
    pub bug: Option<Flaw>,
    /// Jobs whose data cannot be read, however often it is tried.
    pub data: Option<Flaw>,
    /// Jobs that run out of memory as they were submitted.
    pub memory: Option<Memory>,
    /// Nodes that are slow for a while.
    pub straggler: Option<Straggler>,
    /// Nodes of preemptible partitions that are taken away.
    pub spot: Option<Spot>,
    /// Planned times in which nodes take no tasks.
    pub maintenance: Option<Maintenance>,
    /// Jobs that have learned all that they will before they end.
    pub loss: Option<Loss>,
}

/// How jobs save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoints {
    /// How often while they run.
    #[serde(deserialize_with = "form::interval")]
    pub interval: Interval,
    /// How long the training stands still for a save.
    #[serde(deserialize_with = "crate::form::span")]
    pub save: Millis,
    /// Jobs that save at all; the others begin anew.
    pub saving_permille: u32,
    /// Of those, the ones whose code is attached: they save when they are asked to stop, and antiphon knows their checkpoints.
    pub attached_permille: u32,
}

/// How often a job saves while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interval {
    /// Only when it is asked to stop.
    #[default]
    Never,
    /// After so long.
    Every(Millis),
    /// As often as loses least: the square root of twice the save time times the mean time between the failures of its gang
    /// (Young, CACM 1974; Daly, FGCS 2006).
    YoungDaly,
}

/// What is tried after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Failed attempts that are followed by another.
    pub retries_max: u32,
    /// Wait before the first retry; doubles each time.
    #[serde(deserialize_with = "crate::form::span")]
    pub backoff_first: Millis,
    /// The longest wait.
    #[serde(deserialize_with = "crate::form::span")]
    pub backoff_max: Millis,
    /// Steps of each job's out-of-memory ladder.
    pub ladder: u32,
}

/// What jobs ask for beyond what they use. Only jobs whose run time stands in the trace: more GPUs make them no faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// Jobs that ask for more GPUs than they use.
    pub over_permille: u32,
    /// How many times as many, in thousandths.
    pub times_permille: u32,
    /// The most that anybody asks for beyond what is used; all of the cluster's by default.
    pub gpus_max: Option<u32>,
}

/// Hardware that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Mean time between failures of one of them.
    #[serde(deserialize_with = "crate::form::span")]
    pub mtbf: Millis,
    /// How long what runs there hangs until somebody notices.
    #[serde(default, deserialize_with = "crate::form::span")]
    pub noticed_after: Millis,
    /// How long it is away.
    #[serde(deserialize_with = "crate::form::span")]
    pub repair: Millis,
}

/// Failures that are gone when a job is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Glitch {
    /// Mean running time of one GPU between them.
    #[serde(deserialize_with = "crate::form::span")]
    pub mtbf: Millis,
}

/// Jobs that fail at a certain point, however often they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flaw {
    /// How many.
    pub share_permille: u32,
    /// The point lies evenly within this first part of their length.
    #[serde(default = "form::whole")]
    pub within_permille: u32,
}

/// Jobs that run out of memory as they were submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// How many.
    pub share_permille: u32,
    /// It shows evenly within this first part of their length.
    #[serde(default = "form::whole")]
    pub within_permille: u32,
    /// Steps of an out-of-memory ladder after which they fit.
    #[serde(default = "form::one")]
    pub rungs: u32,
    /// Their speed from then on, in thousandths: smaller micro-batches and recomputation cost time.
    #[serde(default = "form::whole")]
    pub speed_permille: u32,
}

/// Nodes that are slow for a while: a gang runs at the speed of its slowest node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Straggler {
    /// Mean time of one node between them.
    #[serde(deserialize_with = "crate::form::span")]
    pub mtbf: Millis,
    /// How long each lasts.
    #[serde(deserialize_with = "crate::form::span")]
    pub lasts: Millis,
    /// Its speed meanwhile, in thousandths.
    pub speed_permille: u32,
    /// When somebody takes it out of service, with a checkpoint of what runs there; nobody does by default.
    #[serde(default, deserialize_with = "crate::form::maybe_span")]
    pub drained_after: Option<Millis>,
}

/// Nodes of preemptible partitions that are taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spot {
    /// Mean time of one node between them.
    #[serde(deserialize_with = "crate::form::span")]
    pub mtbf: Millis,
    /// How long before it is said.
    #[serde(deserialize_with = "crate::form::span")]
    pub notice: Millis,
    /// How long it is away.
    #[serde(deserialize_with = "crate::form::span")]
    pub away: Millis,
}

/// Planned times in which nodes take no tasks: some after the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Maintenance {
    /// From one window to the next.
    #[serde(deserialize_with = "crate::form::span")]
    pub every: Millis,
    /// Nodes of each.
    pub nodes: u32,
    /// How long each lasts.
    #[serde(deserialize_with = "crate::form::span")]
    pub lasts: Millis,
    /// How long before it is planned.
    #[serde(default, deserialize_with = "crate::form::span")]
    pub notice: Millis,
}

/// Jobs that have learned all that they will before they end: GPU-time after that is spent for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    /// Jobs whose loss gets no lower: what they have is good.
    #[serde(default)]
    pub plateau_permille: u32,
    /// Jobs whose loss grows without end: what they have is worth nothing.
    #[serde(default)]
    pub diverge_permille: u32,
    /// The point lies evenly between this part of their length and its end.
    #[serde(default)]
    pub after_permille: u32,
    /// When somebody looks, and ends them; nobody does by default.
    #[serde(default, deserialize_with = "crate::form::maybe_span")]
    pub noticed_after: Option<Millis>,
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self {
            interval: Interval::Never,
            save: Millis::ZERO,
            saving_permille: 1_000,
            attached_permille: 1_000,
        }
    }
}

/// None are tried again, as in a trace that says nothing of retries.
impl Default for Retry {
    fn default() -> Self {
        Self {
            retries_max: 0,
            backoff_first: Millis::from_secs(10),
            backoff_max: Millis::from_secs(120),
            ladder: 0,
        }
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            over_permille: 0,
            times_permille: 1_000,
            gpus_max: None,
        }
    }
}

impl Retry {
    /// What a job is submitted with.
    pub(crate) fn spec(&self) -> RetrySpec {
        if self.retries_max == 0 {
            return RetrySpec::default();
        }
        RetrySpec {
            retries_max: self.retries_max,
            backoff_first: self.backoff_first,
            backoff_max: self.backoff_max,
        }
    }
}

impl Faults {
    /// The workload as its jobs ask for GPUs, at most so many as there are, and which part of them each uses; nothing where
    /// each uses all.
    #[must_use]
    pub fn requested<'a>(
        &self,
        workload: &'a Workload,
        seed: u64,
        gpus: u32,
    ) -> (Cow<'a, Workload>, Vec<f64>) {
        if self.requests.over_permille == 0 {
            return (Cow::Borrowed(workload), Vec::new());
        }
        let mut asked = workload.clone();
        let mut parts = vec![1.0; asked.jobs.len()];
        let most = self.requests.gpus_max.unwrap_or(gpus).min(gpus);
        for (place, (job, part)) in asked.jobs.iter_mut().zip(&mut parts).enumerate() {
            let timed = matches!(job.work, Work::Time(_));
            let over = Lot::of(seed, Stream::Request, place).permille(self.requests.over_permille);
            let used = job.gpus.whole().filter(|used| timed && over && *used > 0);
            if let Some(used) = used {
                let times = u64::from(self.requests.times_permille);
                let more = u64::from(used) * times / 1_000;
                let more = u32::try_from(more).unwrap_or(u32::MAX).min(most).max(used);
                job.gpus = GpuAmount::from_gpus(more);
                *part = f64::from(used) / f64::from(more);
            }
        }
        (Cow::Owned(asked), parts)
    }
}
