//! What a running attempt has at stake if it is asked to give way, kept in the index: whoever looks for victims reads one table
//! instead of going to every job. Says nothing of who may be asked: `preempt` does.

use std::cmp::Reverse;

use antiphon_types::{Class, GpuAmount, GpuTime, JobId, Millis, Timestamp};

use crate::expect::speed_of;
use crate::index::NEVER;
use crate::jobs::{Active, Job, JobState};
use crate::state::Known;
use crate::teams::TeamId;

const HOUR: Millis = Millis::from_secs(3_600);

/// What would have to be done again if a job were stopped now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtStake {
    /// GPU-time since its last acknowledged checkpoint, or since its start.
    pub unsaved: GpuTime,
    /// GPU-time that another start takes.
    pub restart: GpuTime,
    /// Since when nothing of what it did is saved; nothing before it has started.
    pub since: Option<Timestamp>,
    /// Whether it saves a checkpoint when it is asked to give way, so that little of it is lost then.
    pub saves: bool,
}

/// What a job that holds an allocation would have to do again if it were stopped at `now`.
#[must_use]
pub fn at_stake(known: &Known, job: &Job, now: Timestamp) -> Option<AtStake> {
    let active = job.state.active()?;
    let gpus = active.allocation.gpu_amount();
    let since = unsaved_since(job, active);
    Some(AtStake {
        unsaved: since.map_or(GpuTime::ZERO, |since| gpus.over(now.since(since))),
        restart: gpus.over(known.policy.restart_cost_ms),
        since,
        saves: active.attached && job.spec.checkpoint.is_some(),
    })
}

/// What an attempt that might give way has at stake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stake {
    pub(crate) job: JobId,
    /// As which it runs.
    pub(crate) class: Class,
    /// The team whose quota it counts against.
    pub(crate) owner: TeamId,
    pub(crate) gpus: GpuAmount,
    /// How fast its shape is, in thousandths of the job's fastest.
    pub(crate) speed: u32,
    /// Its team, where it saves when it is asked to: who cannot loses more than a turn is worth.
    saves_for: Option<TeamId>,
    launched: Timestamp,
    /// Since when nothing of what it did is saved; nothing before it has started.
    unsaved_since: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    /// Until when it is left alone since it is near its end.
    near_end: Option<Timestamp>,
    /// Until when its trainer asked for being left alone.
    asked: Option<Timestamp>,
    /// Until when it is left alone since it was moved often enough in an hour.
    moved: Option<Timestamp>,
}

impl Stake {
    /// That of a job which runs and is not on its way out.
    pub(crate) fn of(known: &Known, job: &Job) -> Option<Self> {
        let (JobState::Starting { active } | JobState::Running { active }) = &job.state else {
            return None;
        };
        let bound = usize::try_from(known.policy.preemptions_per_hour_max).unwrap_or(usize::MAX);
        let moved = match job.preempted.len().checked_sub(bound) {
            Some(_) if bound == 0 => Some(NEVER),
            Some(first) => job.preempted.get(first).map(|at| at.after(HOUR)),
            None => None,
        };
        Some(Self {
            job: job.id,
            class: active.class,
            owner: owner_of(known, job),
            gpus: active.allocation.gpu_amount(),
            speed: speed_of(&job.spec, &active.terms.shapes),
            saves_for: (active.attached && job.spec.checkpoint.is_some()).then_some(job.team),
            launched: active.launched,
            unsaved_since: unsaved_since(job, active),
            ends_at: active.terms.ends_at,
            near_end: job.near_end,
            asked: job.steering.protected,
            moved,
        })
    }

    /// As which, and inside which team, it takes turns, if it does.
    pub(crate) fn takes_turns(&self) -> Option<(Class, TeamId)> {
        Some((self.class, self.saves_for?))
    }

    /// As which it runs slower than it could, if it may be moved.
    pub(crate) fn is_slow(&self) -> Option<Class> {
        self.saves_for
            .map(|_| self.class)
            .filter(|_| self.speed < 1_000)
    }

    /// GPU-time that would be spent again.
    pub(crate) fn loss(&self, known: &Known) -> GpuTime {
        let unsaved = self
            .unsaved_since
            .map_or(Millis::ZERO, |since| known.now.since(since));
        let again = self.gpus.over(unsaved) + self.gpus.over(known.policy.restart_cost_ms);
        again + self.gpus.over(self.nearness(known))
    }

    /// How much a run that is nearly done counts as more than it lost: what it would still need is soon free anyway.
    fn nearness(&self, known: &Known) -> Millis {
        let near = known.policy.near_end_ms;
        let near = near + near;
        self.ends_at.map_or(Millis::ZERO, |end| {
            near.saturating_sub(end.since(known.now))
        })
    }

    /// Whether it may be left alone for a while.
    pub(crate) const fn is_guarded(&self) -> bool {
        self.near_end.is_some() || self.asked.is_some() || self.moved.is_some()
    }

    pub(crate) fn is_near_end(&self, now: Timestamp) -> bool {
        self.near_end.is_some_and(|until| until > now)
    }

    pub(crate) fn is_asked_for(&self, now: Timestamp) -> bool {
        self.asked.is_some_and(|until| until > now)
    }

    /// Whether any of the three leaves it alone.
    pub(crate) fn is_left_alone(&self, now: Timestamp) -> bool {
        self.is_near_end(now) || self.is_asked_for(now) || self.is_moved(now)
    }

    pub(crate) fn is_moved(&self, now: Timestamp) -> bool {
        self.moved.is_some_and(|until| until > now)
    }

    /// When it is left alone no longer, if it is now and that passes.
    pub(crate) fn lapses(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.near_end.max(self.asked).max(self.moved);
        until.filter(|until| *until > now && *until != NEVER)
    }

    /// The lowest class first, then what loses the least, then the younger.
    pub(crate) fn rank(&self, known: &Known) -> impl Ord + use<> {
        (
            Reverse(self.class),
            self.loss(known),
            Reverse(self.launched),
            self.job,
        )
    }
}

/// The team whose quota a job counts against; its own where nobody has one.
pub(crate) fn owner_of(known: &Known, job: &Job) -> TeamId {
    known.teams.quota_owner(job.team).unwrap_or(job.team)
}

/// GPU-time since the attempt's last acknowledged checkpoint, or since its start: lost if it were killed now.
pub(crate) fn unsaved(known: &Known, job: &Job) -> GpuTime {
    let Some(active) = job.state.active() else {
        return GpuTime::ZERO;
    };
    let since = unsaved_since(job, active);
    since.map_or(GpuTime::ZERO, |since| {
        active.allocation.gpu_amount().over(known.now.since(since))
    })
}

fn unsaved_since(job: &Job, active: &Active) -> Option<Timestamp> {
    let started = active.started?;
    let saved = job
        .checkpoint
        .as_ref()
        .filter(|saved| saved.attempt == active.attempt);
    Some(saved.map_or(started, |saved| saved.at.max(started)))
}
