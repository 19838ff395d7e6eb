//! Takes the samples of the platform's numbers where the log says what they are made of: starts, saves and ends. What people,
//! their code and full clusters do is left out; the raw readings have it in.

use antiphon_types::{AttemptId, Checkpoint, Class, ExitClass, JobId, Millis, Number, Outcome};

use crate::jobs::{AttemptRecord, Job, JobState};
use crate::state::State;

/// A job runs: how long the platform took to start it.
pub(super) fn started(state: &mut State, id: JobId) {
    let now = state.now;
    let job = state.job_at(id);
    let Some(active) = job.state.active() else {
        return;
    };
    let delay = delayed_before(job) + now.since(active.launched);
    let mut last = job.attempts.iter().rev();
    let ran = last.find(|past| !is_failed_start(past));
    let raw = now.since(ran.map_or(job.submitted, |past| past.ended));
    let number = delay_of(job.spec.class);
    took(state, number, delay, Some(raw));
}

/// An attempt was settled: one that never started through the platform's fault is a delay that goes on.
pub(super) fn settled(state: &mut State, id: JobId) {
    let job = state.job_at(id);
    let last = job.attempts.last();
    if last.is_some_and(is_failed_start) {
        let (delay, number) = (delayed_before(job), delay_of(job.spec.class));
        took(state, number, delay, None);
    }
}

/// A checkpoint is durable: how long that took from when it was asked for, else from when its save began.
pub(super) fn saved(state: &mut State, checkpoint: &Checkpoint) {
    let now = state.now;
    let asked = state.job_at(checkpoint.attempt.job).checkpoint_wait();
    let span = asked.map_or(checkpoint.save, |asked| now.since(asked.0));
    // One that was found on a disk was not measured.
    if !span.is_zero() || asked.is_some() {
        took(state, Number::TimeToCheckpoint, span, None);
    }
}

/// An attempt is asked to end: a checkpoint that did not come until then took at least so long.
pub(super) fn waited_in_vain(state: &mut State, attempt: AttemptId) {
    let now = state.now;
    let job = state.job_at(attempt.job);
    let Some((since, directive, _)) = job.checkpoint_wait() else {
        return;
    };
    let mut directives = job.directives.iter();
    let answered = directives.any(|other| other.id == directive && other.ack.is_some());
    let last = job.checkpoint.as_ref();
    let saved = last.is_some_and(|saved| saved.attempt == attempt && saved.at >= since);
    if !answered && !saved {
        took(state, Number::TimeToCheckpoint, now.since(since), None);
    }
}

/// A job ends for good.
pub(super) fn ended(state: &mut State, id: JobId, how: &JobState) {
    let job = state.job_at(id);
    let (completed, counts) = match how {
        JobState::Succeeded { .. } => (true, true),
        JobState::Failed { class, .. } if *class == ExitClass::Dependency => return,
        JobState::Failed { class, .. } => (false, is_platforms(*class)),
        // What waits for another try after the platform's fault, and is given up, was not completed.
        JobState::Canceled { .. } => match job.attempts.last().map(|past| &past.outcome) {
            Some(Outcome::Retried { class, .. }) if is_platforms(*class) => (false, true),
            Some(_) | None => return,
        },
        JobState::Pending { .. }
        | JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Stopping { .. }
        | JobState::Held { .. } => return,
    };
    let known = &mut state.known;
    let policy = known.gate.policy();
    known.numbers.ended(completed, counts, known.now, policy);
}

fn took(state: &mut State, number: Number, span: Millis, raw: Option<Millis>) {
    let known = &mut state.known;
    let policy = known.gate.policy();
    known.numbers.took(number, span, raw, known.now, policy);
}

/// The number that a class's delays belong to.
const fn delay_of(class: Class) -> Number {
    match class {
        Class::Service | Class::Production => Number::DelayProduction,
        Class::Standard | Class::BestEffort => Number::DelayBestEffort,
    }
}

/// What the launches in front of this one, that came to nothing through the platform's fault, have cost: themselves, and the
/// waits until the next try.
fn delayed_before(job: &Job) -> Millis {
    let failed = job.attempts.iter().rev();
    let failed = failed.take_while(|past| is_failed_start(past));
    failed
        .map(|past| {
            let again = match &past.outcome {
                Outcome::Retried { not_before, .. } => not_before.since(past.ended),
                Outcome::Succeeded
                | Outcome::Failed { .. }
                | Outcome::Canceled
                | Outcome::Held
                | Outcome::Requeued => Millis::ZERO,
            };
            past.ended.since(past.launched) + again
        })
        .fold(Millis::ZERO, |sum, span| sum + span)
}

/// Whether an attempt never started, through the platform's fault.
fn is_failed_start(past: &AttemptRecord) -> bool {
    past.started.is_none()
        && match &past.outcome {
            Outcome::Retried { class, .. } | Outcome::Failed { class } => is_platforms(*class),
            // An unfit node, or a server that did not answer.
            Outcome::Requeued => past.stopped.is_none(),
            Outcome::Succeeded | Outcome::Canceled | Outcome::Held => false,
        }
}

/// Whether an end is the platform's fault rather than the job's.
const fn is_platforms(class: ExitClass) -> bool {
    match class {
        ExitClass::Hardware | ExitClass::NotLaunched => true,
        ExitClass::Done
        | ExitClass::Superseded
        | ExitClass::Preempted
        | ExitClass::OutOfMemory
        | ExitClass::DataError
        | ExitClass::Software
        | ExitClass::Unstartable
        | ExitClass::Limit
        | ExitClass::Dependency => false,
    }
}
