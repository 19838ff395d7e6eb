//! A job as the kernel knows it: what was asked, where it stands, what it has done. Plain data; `apply` alone changes it.

use std::collections::BTreeSet;

use antiphon_types::{
    Allocation, AttemptId, Bytes, Checkpoint, Class, Directive, DirectiveId, Exit, ExitClass,
    GpuTime, JobId, JobSpec, Measured, Millis, Outcome, Reached, ShapePlan, StopCause, TaskId,
    Terms, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::capacity::NodeId;
use crate::expect::Expectation;
use crate::steering::Steering;
use crate::teams::TeamId;

/// A job and its history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What was asked, as far as antiphon has not changed it since: out-of-memory ladders do.
    pub spec: JobSpec,
    /// Its team's place in the list of teams.
    pub(crate) team: TeamId,
    /// Which member of an array it is, if it is one.
    pub array: Option<ArrayMember>,
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
    /// Dependencies that have not ended yet, where any end will do.
    pub waiting_for_end: BTreeSet<JobId>,
    /// Dependencies that have not started yet, where a start will do.
    pub waiting_for_start: BTreeSet<JobId>,
    /// Whether as many of its array's jobs as may are in front of it.
    pub throttled: bool,
    /// Whether it came while the gate was shut for jobs like it.
    pub gated: bool,
    /// Jobs that wait for this one.
    pub dependents: Vec<JobId>,
    /// A dependency that never will succeed.
    pub dead_dependency: Option<JobId>,
    /// How long the next attempt should run.
    pub expect: Expectation,
    /// GPU-time of all its attempts.
    pub attained: GpuTime,
    /// Run time whose results are kept: up to the last checkpoint of each attempt.
    pub served: Millis,
    /// Whether an attempt ran longer than nine of ten like it: what it claims is no longer believed.
    pub overran: bool,
    /// What its remaining GPU-time counts in the order, in thousandths.
    pub weight_permille: u32,
    /// Whether it has waited past its class's bound.
    pub overdue: bool,
    /// Since when it stands in front of its class, if it does.
    pub promoted: Option<Timestamp>,
    /// Whether its deadline counts, if it has one.
    pub deadline: Option<DeadlineRecord>,
    /// Whether somebody stayed on nodes that are held for it, longer than it was told.
    pub delayed: bool,
    /// Until when it is left alone because it is near its end; given once.
    pub near_end: Option<Timestamp>,
    /// When it was preempted, in the last hour.
    pub preempted: Vec<Timestamp>,
    /// The job that it last gave way to, while that one has not started.
    pub gave_way_to: Option<JobId>,
    /// Steps of its out-of-memory ladder that were taken.
    pub rungs: u32,
    /// Whether its next nodes are checked first, since the last ones failed.
    pub suspicious: bool,
    /// What is known of idle GPUs of the current attempt.
    pub idle: Option<IdleRecord>,
    /// The last acknowledged checkpoint.
    pub checkpoint: Option<Checkpoint>,
    /// The last progress that mattered.
    pub progress: Option<Progress>,
    /// What its newest measured attempt needs.
    pub measured: Option<MeasuredRecord>,
    /// The best that is known of what its `accept` line asks for; from when the line was first met, that.
    pub reached: Option<ReachedRecord>,
    /// The shape that asks for less GPU memory than its user did, since less was used, and what the user asked for.
    pub shrunk: Option<(u32, Bytes)>,
    /// What the two-way loop knows of it and has done for it.
    pub steering: Steering,
    /// The job that it makes more data for, if it is a data job of antiphon's own.
    pub makes_data_for: Option<JobId>,
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
    /// The node of each task.
    pub(crate) nodes: Vec<NodeId>,
    /// On what terms it was launched; the times move with what it reports.
    pub terms: Terms,
    /// As which class it runs: lower than asked where its team's quota or budget did not cover that.
    pub class: Class,
    /// When it was launched.
    pub launched: Timestamp,
    /// When the last of its tasks started.
    pub started: Option<Timestamp>,
    /// Whether its trainer said hello, so that directives reach it.
    pub attached: bool,
    /// Where each task stands, in the order of the allocation.
    pub phases: Vec<TaskPhase>,
    /// Tasks whose command does not run yet.
    pub(crate) unstarted: u32,
    /// Tasks that have not ended.
    pub(crate) living: u32,
    /// The first task that ended in a way that breaks the gang, by its place in the allocation.
    pub(crate) broken: Option<u32>,
}

/// Which member of an array a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayMember {
    /// The array's first job.
    pub first: JobId,
    /// Its index.
    pub index: u32,
}

/// Whether a deadline counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineRecord {
    /// It is feasible inside the team's share.
    Admitted,
    /// It is not: ignored.
    Ignored {
        /// GPU-time that the team's jobs with deadlines up to this one need.
        needed: GpuTime,
        /// GPU-time that the team's share gives until then.
        given: GpuTime,
    },
}

/// What is known of an attempt's idle GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRecord {
    /// Mean utilization in percent.
    pub utilization_percent: u32,
    /// Since when.
    pub since: Timestamp,
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
    /// As which class it ran.
    pub class: Class,
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
    /// How fast the attempt's shape is, in thousandths of the job's fastest.
    pub speed: u32,
    /// When it was found.
    pub at: Timestamp,
}

/// What an attempt was measured to need, and which plan that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuredRecord {
    /// The index of the shape in which it ran, among those of the first role.
    pub shape: u32,
    /// The index of the plan of that shape, where there is one.
    pub plan: Option<u32>,
    /// The numbers.
    pub measured: Measured,
}

/// How close a job has come to what its `accept` line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedRecord {
    /// What was measured, by which attempt at which step.
    pub reached: Reached,
    /// When that was found.
    pub at: Timestamp,
}

impl MeasuredRecord {
    /// The plan of the shape in which it ran.
    #[must_use]
    pub fn plan_of<'a>(&self, spec: &'a JobSpec) -> Option<&'a ShapePlan> {
        spec.plans.get(usize::try_from(self.plan?).ok()?)
    }
}

impl Job {
    /// What met its `accept` line first, if anything has.
    #[must_use]
    pub fn accepted(&self) -> Option<&ReachedRecord> {
        let accept = self.spec.accept.as_ref()?;
        let known = self.reached.as_ref()?;
        accept.is_met(known.reached.value_micro).then_some(known)
    }

    /// Takes in what was measured of its `accept` line. An earlier step than the known one says that the run went back: a
    /// model of steps that never were is no model. Else the best counts, and of those that met the line the first.
    pub(crate) fn reach(&mut self, reached: Reached, at: Timestamp) {
        let Some(accept) = &self.spec.accept else {
            return;
        };
        let news = self.reached.is_none_or(|known| {
            let (value, best) = (reached.value_micro, known.reached.value_micro);
            reached.step < known.reached.step
                || (!accept.is_met(best) && accept.is_better(value, best))
        });
        if news {
            self.reached = Some(ReachedRecord { reached, at });
        }
    }

    /// Whether everything it waits for has come.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.waiting_for.is_empty()
            && self.waiting_for_end.is_empty()
            && self.waiting_for_start.is_empty()
            && self.dead_dependency.is_none()
    }

    /// Whether it has waited past its class's bound and was told wrongly when it starts: nobody runs in front any more.
    pub(crate) const fn is_put_off(&self) -> bool {
        self.promoted.is_some() && self.delayed
    }

    /// Whether the gate keeps it back. A data job belongs to the run that it makes data for, and is none of its own.
    #[must_use]
    pub const fn is_gated(&self) -> bool {
        self.gated && self.makes_data_for.is_none()
    }

    /// Whether it waits for room alone.
    pub(crate) fn could_start(&self, now: Timestamp) -> bool {
        let due = self.not_before.is_none_or(|due| due <= now);
        let pending = matches!(self.state, JobState::Pending { .. });
        pending && due && self.is_ready() && !self.throttled && !self.is_gated()
    }

    /// Since when its trainer is waited for to save and leave, on which directive, and until when it may; nothing where it is
    /// not.
    #[must_use]
    pub fn checkpoint_wait(&self) -> Option<(Timestamp, DirectiveId, Timestamp)> {
        match &self.state {
            JobState::Stopping {
                since,
                phase:
                    StopPhase::CheckpointWait {
                        directive, until, ..
                    },
                ..
            } => Some((*since, *directive, *until)),
            JobState::Stopping { .. }
            | JobState::Pending { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => None,
        }
    }

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
    /// Its tasks with where they stand, in the order of the allocation.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &TaskPhase)> {
        let tasks = self.allocation.tasks.iter().zip(&self.phases);
        tasks.map(|(task, phase)| {
            let id = TaskId {
                attempt: self.attempt,
                role: task.role.clone(),
                index: task.index,
            };
            (id, phase)
        })
    }

    /// Where a task stands in the allocation, if it is one of this attempt's.
    #[must_use]
    pub fn position(&self, task: &TaskId) -> Option<usize> {
        let tasks = &self.allocation.tasks;
        let first = tasks.iter().position(|held| held.role == task.role)?;
        let position = first + usize::try_from(task.index).ok()?;
        let held = tasks.get(position)?;
        (task.attempt == self.attempt && held.role == task.role && held.index == task.index)
            .then_some(position)
    }

    /// Where a task stands, if it is one of this attempt's.
    #[must_use]
    pub fn phase(&self, task: &TaskId) -> Option<&TaskPhase> {
        self.phases.get(self.position(task)?)
    }

    /// Notes the end of a task.
    pub(crate) fn end(&mut self, position: usize, exit: &Exit, at: Timestamp) {
        let phase = &mut self.phases[position];
        if matches!(phase, TaskPhase::Launched) {
            self.unstarted -= 1;
        }
        *phase = TaskPhase::Ended {
            exit: exit.clone(),
            at,
        };
        self.living -= 1;
        if !exit.is_clean() && self.broken.is_none() {
            self.broken = Some(u32::try_from(position).expect("few tasks"));
        }
    }

    /// Whether every task has ended.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.living == 0
    }

    /// The task that ended first in a way that breaks the gang, by its place in the allocation.
    #[must_use]
    pub fn broken_by(&self) -> Option<(usize, &Exit)> {
        let position = usize::try_from(self.broken?).expect("few tasks");
        match &self.phases[position] {
            TaskPhase::Ended { exit, .. } => Some((position, exit)),
            TaskPhase::Launched | TaskPhase::Started => None,
        }
    }

    /// The id of the task at a place in the allocation.
    #[must_use]
    pub fn task_id(&self, position: usize) -> TaskId {
        let task = &self.allocation.tasks[position];
        TaskId {
            attempt: self.attempt,
            role: task.role.clone(),
            index: task.index,
        }
    }
}
