//! What happened, as those who count and tell it want it: folded from the log beside the state, event by event. Metrics,
//! reports and notifications are made of the same facts. Decides nothing.

use std::collections::BTreeMap;

use antiphon_kernel::{Active, Job, JobState, State, apply};
use antiphon_types::{
    AckBody, Action, AttemptId, Body, Class, Command, Decision, Event, ExitClass, Finding,
    GateChange, GpuTime, JobId, Millis, Number, Observation, Outcome, Reading, StopCause,
    Timestamp,
};

use crate::throughput::usd_per_hour;

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// An attempt was launched, after so long in the queue.
    Launched {
        /// The attempt.
        attempt: AttemptId,
        /// Its job's class.
        class: Class,
        /// Since it could have been, as far as the job goes.
        queued: Millis,
    },
    /// A running attempt is asked to give way.
    Preempted {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        cause: StopCause,
    },
    /// An attempt is over.
    Settled(Box<Spent>),
    /// A job has ended for good.
    Ended {
        /// The job.
        job: JobId,
        /// As which class it was submitted.
        class: Class,
        /// How.
        how: End,
    },
    /// A directive was issued.
    Directed {
        /// What it asks for.
        name: &'static str,
    },
    /// A trainer has answered one.
    Answered {
        /// What it asked for.
        name: &'static str,
        /// `applied`, `rejected`, `failed` or `expired`.
        answer: &'static str,
    },
    /// The gate was shut or opened.
    Gate(GateChange),
    /// A number went over its redline, or came back.
    Redline {
        /// Which.
        number: Number,
        /// Whether it is over now.
        over: bool,
        /// What it reads.
        value: Option<Reading>,
        /// Its redline.
        redline: Reading,
    },
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// Finished.
    Succeeded,
    /// Without finishing.
    Failed(ExitClass),
    /// By its user.
    Canceled,
}

impl End {
    /// The name as a job's state has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed(_) => "failed",
            Self::Canceled => "canceled",
        }
    }
}

/// Why GPU-time that was held led to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Loss {
    /// Done again after the job gave way.
    Preemption,
    /// Done again after a failure, of the platform or of the job's own.
    Failure,
    /// Done again after the job left a node that was slow.
    Straggler,
    /// Done before the job's user ended or held it, and not saved.
    User,
    /// Held while the attempt started: the hand-over from one job to the next.
    HandOver,
    /// Held while a trainer's device was next to idle.
    Idle,
}

impl Loss {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Preemption,
        Self::Failure,
        Self::Straggler,
        Self::User,
        Self::HandOver,
        Self::Idle,
    ];

    /// The name that scripts see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Preemption => "preemption",
            Self::Failure => "failure",
            Self::Straggler => "straggler",
            Self::User => "user",
            Self::HandOver => "hand_over",
            Self::Idle => "idle",
        }
    }
}

/// What an attempt has held, and what of it led to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Spent {
    /// The attempt.
    pub attempt: AttemptId,
    /// Who is charged.
    pub team: String,
    /// Its job's name.
    pub name: String,
    /// When it was launched.
    pub launched: Timestamp,
    /// When it was settled.
    pub ended: Timestamp,
    /// All it held.
    pub held: GpuTime,
    /// What that cost, as far as its partitions have a price.
    pub usd: f64,
    /// What of it was lost, by cause.
    pub lost: BTreeMap<Loss, GpuTime>,
    /// What became of it: `succeeded`, `failed`, `canceled`, `held`, `requeued` or `retried`.
    pub outcome: &'static str,
}

/// What has to be remembered between events.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Attempts whose devices do next to nothing, since when, and what part of them.
    idle: BTreeMap<AttemptId, (Timestamp, u64)>,
    /// What attempts have lost to that before.
    idled: BTreeMap<AttemptId, GpuTime>,
}

impl Facts {
    /// Folds an event into the state, and says what happened by it.
    ///
    /// # Panics
    /// Where the event does not fit the state, as [`apply`] does.
    pub fn fold(&mut self, state: &mut State, event: &Event) -> Vec<Fact> {
        let mut facts = self.before(state, event);
        let over = Number::ALL.map(|number| state.numbers().over_since(number).is_some());
        apply(state, event);
        facts.extend(crossed(state, over));
        facts.extend(ended(state, event));
        facts
    }

    fn before(&mut self, state: &State, event: &Event) -> Vec<Fact> {
        match &event.body {
            Body::Decision(decision) => self.decided(state, decision, event.at),
            Body::Command { command, .. } => directed(command).into_iter().collect(),
            Body::Observation(Observation::Acknowledged { attempt, ack }) => {
                let directives = state.job(attempt.job).map(|job| job.directives.iter());
                let mut directives = directives.into_iter().flatten();
                let open =
                    directives.find(|known| known.id == ack.directive && known.ack.is_none());
                let answer = match &ack.body {
                    AckBody::Applied { .. } => "applied",
                    AckBody::Rejected { .. } => "rejected",
                    AckBody::Failed { .. } => "failed",
                    AckBody::Expired => "expired",
                };
                let name = open.map(|known| known.body.name());
                name.map(|name| Fact::Answered { name, answer })
                    .into_iter()
                    .collect()
            }
            Body::Finding(Finding::Idle {
                attempt,
                utilization_percent,
                since,
            }) => {
                self.idle_ends(state, *attempt, event.at);
                let at = event.at.as_millis().saturating_sub(since.as_millis());
                let unused = 100_u64.saturating_sub((*utilization_percent).into());
                if !since.is_zero() && active(state, *attempt).is_some() {
                    self.idle
                        .insert(*attempt, (Timestamp::from_millis(at), unused));
                }
                Vec::new()
            }
            Body::Observation(_) | Body::Finding(_) | Body::Tick | Body::SafeMode { .. } => {
                Vec::new()
            }
        }
    }

    fn decided(&mut self, state: &State, decision: &Decision, at: Timestamp) -> Vec<Fact> {
        let mut facts = Vec::new();
        for action in &decision.actions {
            match action {
                Action::Launch { attempt, .. } => facts.extend(launched(state, *attempt, at)),
                Action::Yield { attempt, cause, .. } | Action::Terminate { attempt, cause, .. } => {
                    facts.extend(preempted(state, *attempt, cause));
                }
                Action::Settle { attempt, outcome } => {
                    self.idle_ends(state, *attempt, at);
                    let idled = self.idled.remove(attempt);
                    facts.extend(settled(state, *attempt, outcome, idled, at));
                }
                Action::Direct { directive, .. } => facts.push(Fact::Directed {
                    name: directive.body.name(),
                }),
                Action::Gate(change) => facts.push(Fact::Gate(change.clone())),
                Action::Kill { .. }
                | Action::Reserve { .. }
                | Action::Unreserve { .. }
                | Action::PutAside { .. }
                | Action::Remedy { .. }
                | Action::Augment { .. }
                | Action::Abandon { .. } => (),
            }
        }
        facts
    }

    /// What an attempt has lost to idle devices until now.
    fn idle_ends(&mut self, state: &State, attempt: AttemptId, at: Timestamp) {
        let Some((since, percent)) = self.idle.remove(&attempt) else {
            return;
        };
        if let Some((_, active)) = active(state, attempt) {
            let held = active.allocation.gpu_amount().over(at.since(since));
            let unused = GpuTime::from_gpu_millis(held.gpu_millis() / 100 * percent);
            let sum = self.idled.entry(attempt).or_insert(GpuTime::ZERO);
            *sum = *sum + unused;
        }
    }
}

fn active(state: &State, attempt: AttemptId) -> Option<(&Job, &Active)> {
    let job = state.job(attempt.job)?;
    let active = job.state.active()?;
    (active.attempt == attempt).then_some((job, active))
}

fn launched(state: &State, attempt: AttemptId, at: Timestamp) -> Option<Fact> {
    let job = state.job(attempt.job)?;
    let JobState::Pending { since } = job.state else {
        return None;
    };
    Some(Fact::Launched {
        attempt,
        class: job.spec.class,
        queued: at.since(since),
    })
}

/// A stop that begins now, if others have it done.
fn preempted(state: &State, attempt: AttemptId, cause: &StopCause) -> Option<Fact> {
    let (job, _) = active(state, attempt)?;
    let begins = matches!(
        job.state,
        JobState::Starting { .. } | JobState::Running { .. }
    );
    (begins && loss_by(cause) == Loss::Preemption).then(|| Fact::Preempted {
        attempt,
        cause: cause.clone(),
    })
}

fn settled(
    state: &State,
    attempt: AttemptId,
    outcome: &Outcome,
    idled: Option<GpuTime>,
    at: Timestamp,
) -> Option<Fact> {
    let (job, active) = active(state, attempt)?;
    let gpus = active.allocation.gpu_amount();
    let span = at.since(active.launched);
    let mut lost = BTreeMap::new();
    let start = active.started.unwrap_or(at).since(active.launched);
    lost.insert(Loss::HandOver, gpus.over(start));
    if !matches!(outcome, Outcome::Succeeded) {
        let cause = match &job.state {
            JobState::Stopping { cause, .. } => loss_by(cause),
            JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Pending { .. }
            | JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => Loss::Failure,
        };
        // The start is counted above.
        let since = active.started.unwrap_or(at);
        let saved = job.checkpoint.as_ref();
        let saved = saved.filter(|saved| saved.attempt == attempt);
        let since = saved.map_or(since, |saved| saved.at.max(since));
        lost.insert(cause, gpus.over(at.since(since)));
    }
    if let Some(idled) = idled {
        let left = gpus.over(span).saturating_sub(lost.values().copied().sum());
        lost.insert(Loss::Idle, idled.min(left));
    }
    lost.retain(|_, time| !time.is_zero());
    Some(Fact::Settled(Box::new(Spent {
        attempt,
        team: job.spec.team.clone(),
        name: job.spec.name.clone(),
        launched: active.launched,
        ended: at,
        held: gpus.over(span),
        usd: usd_per_hour(state, active) * span.as_millis() as f64 / 3_600_000.0,
        lost,
        outcome: match outcome {
            Outcome::Succeeded => "succeeded",
            Outcome::Failed { .. } => "failed",
            Outcome::Canceled => "canceled",
            Outcome::Held => "held",
            Outcome::Requeued => "requeued",
            Outcome::Retried { .. } => "retried",
        },
    })))
}

/// To what a stop for this cause loses what was not saved.
const fn loss_by(cause: &StopCause) -> Loss {
    match cause {
        StopCause::Priority { .. }
        | StopCause::Reclaim { .. }
        | StopCause::Turn { .. }
        | StopCause::Drain { .. }
        | StopCause::Notice { .. }
        | StopCause::Operator
        | StopCause::Asked { .. } => Loss::Preemption,
        StopCause::GangBroken { .. } | StopCause::Hang => Loss::Failure,
        StopCause::Straggler { .. } => Loss::Straggler,
        StopCause::Idle { .. } => Loss::Idle,
        StopCause::Cancel | StopCause::Hold | StopCause::Limit => Loss::User,
    }
}

fn directed(command: &Command) -> Option<Fact> {
    match command {
        Command::Direct(direct) => Some(Fact::Directed {
            name: direct.body.name(),
        }),
        _ => None,
    }
}

/// Numbers that crossed their redline with an event, by which of them were over it before.
fn crossed(state: &State, before: [bool; Number::ALL.len()]) -> Vec<Fact> {
    let Some(policy) = state.gate().policy() else {
        return Vec::new();
    };
    let numbers = Number::ALL.into_iter().zip(before);
    let crossed = numbers.filter_map(|(number, before)| {
        let over = state.numbers().over_since(number).is_some();
        (over != before).then(|| Fact::Redline {
            number,
            over,
            value: state.numbers().samples(number).reading(number),
            redline: policy.redline(number),
        })
    });
    crossed.collect()
}

/// Jobs that this event has ended.
fn ended(state: &State, event: &Event) -> Vec<Fact> {
    let of = |id: JobId| {
        let job = state.job(id)?;
        let (at, how) = match &job.state {
            JobState::Succeeded { at } => (*at, End::Succeeded),
            JobState::Failed { at, class, .. } => (*at, End::Failed(*class)),
            JobState::Canceled { at } => (*at, End::Canceled),
            JobState::Pending { .. }
            | JobState::Starting { .. }
            | JobState::Running { .. }
            | JobState::Stopping { .. }
            | JobState::Held { .. } => return None,
        };
        (at == event.at).then_some(Fact::Ended {
            job: id,
            class: job.spec.class,
            how,
        })
    };
    match &event.body {
        Body::Decision(decision) => {
            let ended = decision.actions.iter().filter_map(|action| match action {
                Action::Settle { attempt, .. } => of(attempt.job),
                Action::Abandon { job, .. } => of(*job),
                _ => None,
            });
            ended.collect()
        }
        Body::Command {
            command: Command::Cancel { job },
            ..
        } => of(*job).into_iter().collect(),
        Body::Command { .. }
        | Body::Observation(_)
        | Body::Finding(_)
        | Body::Tick
        | Body::SafeMode { .. } => Vec::new(),
    }
}
