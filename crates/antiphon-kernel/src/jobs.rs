//! A job as the kernel knows it: what was asked, where it stands, what it has done. Plain data; `apply` alone changes it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Allocation, AttemptId, Checkpoint, Directive, DirectiveId, Exit, ExitClass, GpuTime, JobId,
    JobSpec, Millis, Outcome, ShardEvidence, StopCause, TaskId, Timestamp,
};
use serde::{Deserialize, Serialize};

/// A job and its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What was asked.
    pub spec: JobSpec,
    /// When.
    pub submitted: Timestamp,
    /// Where it stands.
    pub state: JobState,
    /// Launches so far; the next attempt has one more.
    pub launches: u32,
    /// Failed attempts since the last checkpoint that got further, for the retry rule.
    pub failures: u32,
    /// No launch before this.
    pub not_before: Option<Timestamp>,
    /// What a person asked of the running attempt, until the kernel has begun to do it.
    pub requested: Option<StopCause>,
    /// Dependencies that have not succeeded yet.
    pub waiting_for: BTreeSet<JobId>,
    /// Jobs that wait for this one.
    pub dependents: Vec<JobId>,
    /// A dependency that never will succeed.
    pub dead_dependency: Option<JobId>,
    /// The last acknowledged checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The last progress that mattered.
    pub progress: Option<Progress>,
    /// Shards with a finding against them.
    pub shards: BTreeMap<String, ShardRecord>,
    /// The directive log: data directives of all time, compute directives of the current attempt.
    pub directives: Vec<Directive>,
    /// The id of the newest directive.
    pub directives_issued: u64,
    /// Past attempts, oldest first.
    pub attempts: Vec<AttemptRecord>,
}

/// Where a job stands. A variant holds exactly what is true then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// In the queue. Why it waits is computed by [`crate::explain`], never stored.
    Pending {
        /// Since when.
        since: Timestamp,
    },
    /// Launched; not every task's command runs yet.
    Starting {
        /// The launch.
        active: Box<Active>,
    },
    /// Every task's command runs.
    Running {
        /// The launch.
        active: Box<Active>,
    },
    /// On its way to an end; still holds its GPUs.
    Stopping {
        /// The launch.
        active: Box<Active>,
        /// Since when.
        since: Timestamp,
        /// Why.
        cause: StopCause,
        /// How far.
        phase: StopPhase,
    },
    /// Out of the queue until its user releases it.
    Held {
        /// Since when.
        since: Timestamp,
    },
    /// Finished.
    Succeeded {
        /// When.
        at: Timestamp,
    },
    /// Ended for good without finishing.
    Failed {
        /// When.
        at: Timestamp,
        /// Why.
        class: ExitClass,
        /// In words.
        detail: String,
    },
    /// Ended by its user.
    Canceled {
        /// When.
        at: Timestamp,
    },
}

/// A launch that has not been settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Active {
    /// Its id.
    pub attempt: AttemptId,
    /// What it holds.
    pub allocation: Allocation,
    /// When it was launched.
    pub launched: Timestamp,
    /// When the last of its tasks started.
    pub started: Option<Timestamp>,
    /// Whether its trainer said hello, so that directives reach it.
    pub attached: bool,
    /// Its tasks, as in the allocation.
    pub tasks: BTreeMap<TaskId, TaskPhase>,
}

/// Where a task stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskPhase {
    /// Its command does not run yet.
    Launched,
    /// Its command runs.
    Started,
    /// Its processes are gone.
    Ended {
        /// How.
        exit: Exit,
        /// When that was reported.
        at: Timestamp,
    },
}

/// How far a stop has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopPhase {
    /// First clock: from the `yield` directive to its acknowledgement.
    CheckpointWait {
        /// The directive.
        directive: DirectiveId,
        /// When the trainer answered that it has saved and ends by itself.
        saved_at: Option<Timestamp>,
        /// When the wait for that answer ends.
        until: Timestamp,
    },
    /// Second clock: from SIGTERM to SIGKILL.
    Grace {
        /// When SIGKILL follows.
        kill_at: Timestamp,
    },
    /// SIGKILL was sent; the end has yet to be reported.
    Killed,
}

/// What an attempt has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Its id.
    pub attempt: AttemptId,
    /// What it held.
    pub allocation: Allocation,
    /// When it was launched.
    pub launched: Timestamp,
    /// When its last task started, if it got so far.
    pub started: Option<Timestamp>,
    /// When it was settled.
    pub ended: Timestamp,
    /// Why antiphon stopped it, if it did.
    pub stopped: Option<StopCause>,
    /// How it ended, in words.
    pub exit: String,
    /// What became of the job.
    pub outcome: Outcome,
    /// Step of the last checkpoint acknowledged when it ended.
    pub checkpoint_step: Option<u64>,
    /// GPU-time since that checkpoint (or since the start) that a later attempt has to spend again.
    pub lost: GpuTime,
}

/// Steps done and to do, as the trainer reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Which attempt reported it; what an earlier one did may have to be done again.
    pub attempt: AttemptId,
    /// Steps done.
    pub step: u64,
    /// Steps to do.
    pub steps_total: u64,
    /// Median time of a step.
    pub step_time: Millis,
    /// When it was found.
    pub at: Timestamp,
}

/// What is known against a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The numbers.
    pub evidence: ShardEvidence,
    /// The directive that acts on it, once there is one.
    pub directive: Option<DirectiveId>,
}

impl Job {
    /// Whether this checkpoint is the last one it acknowledged, told again.
    #[must_use]
    pub fn knows(&self, checkpoint: &Checkpoint) -> bool {
        self.checkpoint.as_ref().is_some_and(|known| {
            known.attempt == checkpoint.attempt
                && known.step == checkpoint.step
                && known.path == checkpoint.path
        })
    }
}

impl JobState {
    /// Every state's name.
    pub const NAMES: [&str; 8] = [
        "pending",
        "starting",
        "running",
        "stopping",
        "held",
        "succeeded",
        "failed",
        "canceled",
    ];

    /// The state's name as people and scripts read it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending { .. } => "pending",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Stopping { .. } => "stopping",
            Self::Held { .. } => "held",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Canceled { .. } => "canceled",
        }
    }

    /// The launch that has not been settled, if there is one.
    #[must_use]
    pub fn active(&self) -> Option<&Active> {
        match self {
            Self::Starting { active }
            | Self::Running { active }
            | Self::Stopping { active, .. } => Some(active),
            Self::Pending { .. }
            | Self::Held { .. }
            | Self::Succeeded { .. }
            | Self::Failed { .. }
            | Self::Canceled { .. } => None,
        }
    }

    /// The same, to change.
    pub(crate) fn active_mut(&mut self) -> Option<&mut Active> {
        match self {
            Self::Starting { active }
            | Self::Running { active }
            | Self::Stopping { active, .. } => Some(active),
            Self::Pending { .. }
            | Self::Held { .. }
            | Self::Succeeded { .. }
            | Self::Failed { .. }
            | Self::Canceled { .. } => None,
        }
    }

    /// Whether nothing will happen to the job any more.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        match self {
            Self::Succeeded { .. } | Self::Failed { .. } | Self::Canceled { .. } => true,
            Self::Pending { .. }
            | Self::Starting { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Held { .. } => false,
        }
    }
}

impl Active {
    /// When every task has ended: the exits, in task order.
    #[must_use]
    pub fn ended(&self) -> Option<Vec<(&TaskId, &Exit)>> {
        self.tasks
            .iter()
            .map(|(task, phase)| match phase {
                TaskPhase::Ended { exit, .. } => Some((task, exit)),
                TaskPhase::Launched | TaskPhase::Started => None,
            })
            .collect()
    }

    /// The task that ended first in a way that breaks the gang.
    #[must_use]
    pub fn broken_by(&self) -> Option<(&TaskId, &Exit)> {
        self.tasks
            .iter()
            .filter_map(|(task, phase)| match phase {
                TaskPhase::Ended { exit, .. } if exit.is_clean() => None,
                TaskPhase::Launched | TaskPhase::Started => None,
                TaskPhase::Ended { exit, at } => Some((*at, task, exit)),
            })
            .min_by_key(|(at, task, _)| (*at, *task))
            .map(|(_, task, exit)| (task, exit))
    }
}
