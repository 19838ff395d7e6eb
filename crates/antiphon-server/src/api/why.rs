//! Why a job waits, runs where it runs, or ended; and the same of one that is not submitted yet. Reasons are the kernel's:
//! here they become sentences.

use std::fmt::Display;

use antiphon_kernel::explain::{self, Change};
use antiphon_kernel::forecast::{self, Forecast, Start};
use antiphon_kernel::{
    Active, AttemptRecord, DeadlineRecord, Expectation, Job, JobState, Mode, Source, State, decide,
};
use antiphon_types::{
    Action, Class, GpuAmount, JobId, JobSpec, Millis, Outcome, Score, SlotReason, StopCause,
    TeamSpec, Terms, Timestamp, UsdMicros, WaitReason,
};
use serde::Serialize;
use serde_json::Value;

use super::accept;
use super::model::{
    ChangeView, CheckReport, DeadlineView, ExpectationView, GaveWayView, PlaceView, QuotaView,
    ScoreView, SlotView, StartView, WhyView,
};
use super::render::stopping;

/// How an attempt ends that ends well.
const CLEAN: &str = "exit code 0";

/// Why a job waits, runs where it runs, or ended. The state has to be a copy brought up to now where the job waits: what
/// would start it is tried out.
pub(crate) fn why(
    state: &State,
    job: &Job,
    now: Timestamp,
    forecast: Option<&Forecast>,
) -> WhyView {
    let mut view = WhyView {
        id: job.id.to_string(),
        name: job.spec.name.clone(),
        state: job.state.name().into(),
        sentences: Vec::new(),
        reasons: Vec::new(),
        change: None,
        start: None,
        place: None,
        gave_way: None,
        observed: None,
    };
    match &job.state {
        JobState::Pending { .. } | JobState::Held { .. } => {
            waiting(state, job, now, forecast, &mut view);
        }
        JobState::Starting { active } | JobState::Running { active } => {
            view.sentences.extend(runs(state, job, active, now));
            view.place = Some(place(state, job, active));
        }
        JobState::Stopping {
            active,
            cause,
            phase,
            ..
        } => {
            view.sentences.push(stopping(cause, phase));
            view.place = Some(place(state, job, active));
        }
        JobState::Succeeded { .. } => view.sentences.push("it has finished".into()),
        JobState::Failed { class, detail, .. } => {
            view.sentences
                .push(format!("it failed ({class}): {detail}"));
        }
        JobState::Canceled { .. } => view.sentences.push("it was canceled".into()),
    }
    if let Some(last) = job.attempts.last() {
        view.gave_way = gave_way(last);
        view.sentences.push(ended(state, job, last));
    }
    view.sentences
        .extend(accept::view(job).map(|accept| accept.sentence));
    view
}

fn waiting(
    state: &State,
    job: &Job,
    now: Timestamp,
    forecast: Option<&Forecast>,
    view: &mut WhyView,
) {
    let reasons = explain::reasons(state, job, now);
    view.reasons = reasons.iter().map(data).collect();
    view.sentences = sentences(&reasons);
    // Where others are giving way already there is nothing to change.
    let coming = matches!(reasons.first(), Some(WaitReason::Victims { .. }));
    let change = (!coming)
        .then(|| explain::smallest_change(state, job))
        .flatten();
    view.sentences
        .extend(change_told(&reasons, change.as_ref()));
    view.change = change.as_ref().map(change_view);
    if is_forecast(state, job) {
        let start = forecast.and_then(|forecast| Some((forecast.starts.get(&job.id)?, forecast)));
        view.start = start.map(|(start, forecast)| start_view(start, now.since(forecast.at)));
        let made = forecast.filter(|forecast| forecast.at >= waits_since(job));
        view.sentences.push(match (&view.start, made) {
            (Some(start), _) => format!(
                "{}; forecast {} old",
                start_told(start, now),
                coarse(Millis::from_millis(start.age_ms))
            ),
            (None, Some(_)) => "it starts later than the forecast looks ahead".into(),
            (None, None) => "the next forecast, seconds from now, says when it starts".into(),
        });
    }
    view.sentences.extend(standing(state, job, now));
    view.sentences.push(expected_told(&job.expect));
}

const fn waits_since(job: &Job) -> Timestamp {
    match &job.state {
        JobState::Pending { since } | JobState::Held { since } => *since,
        JobState::Starting { .. }
        | JobState::Running { .. }
        | JobState::Stopping { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => job.submitted,
    }
}

/// Whether a forecast says anything about it: it waits for others, not for a person.
pub(crate) fn is_forecast(state: &State, job: &Job) -> bool {
    *state.mode() == Mode::Deciding && matches!(job.state, JobState::Pending { .. })
}

/// The ruling reason, and what else keeps it.
fn sentences(reasons: &[WaitReason]) -> Vec<String> {
    let told = reasons
        .iter()
        .enumerate()
        .map(|(index, reason)| match index {
            0 => reason.to_string(),
            _ => format!("besides, {reason}"),
        });
    told.collect()
}

fn change_told(reasons: &[WaitReason], change: Option<&Change>) -> Option<String> {
    if let Some(change) = change {
        return Some(format!("the smallest change that starts it now: {change}"));
    }
    // Of who waits for a job, a time or a person, it is plain.
    let may_be_more = matches!(
        reasons.first()?,
        WaitReason::Gpus { .. }
            | WaitReason::Span { .. }
            | WaitReason::Behind { .. }
            | WaitReason::CpusOrMemory { .. }
            | WaitReason::TeamLimit { .. }
    );
    may_be_more.then(|| "no single change would start it now".into())
}

fn change_view(change: &Change) -> ChangeView {
    ChangeView {
        sentence: change.to_string(),
        change: data(change),
    }
}

fn data(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// Where it stands in the queue, and why there.
fn standing(state: &State, job: &Job, now: Timestamp) -> Vec<String> {
    let mut sentences = Vec::new();
    if let Some(slot) = state.slots().get(&job.id) {
        let nodes = some_of(&slot.nodes);
        let by = slot.at.map_or_else(String::new, |at| {
            format!(
                ", so that it starts in {} at the latest",
                coarse(at.since(now))
            )
        });
        sentences.push(match slot.why {
            SlotReason::Blocked => format!("{nodes} held back for it{by}"),
            SlotReason::Preemption => format!("{nodes} held for it: others give way there{by}"),
            SlotReason::Claim => format!("{nodes} held for it: it ran there before{by}"),
        });
    }
    if let Some(since) = job.promoted {
        let waits = state.policy().promote_after_ms.of(job.spec.class);
        sentences.push(format!(
            "it stands in front of class {} since {}: it has waited for more than {waits}",
            job.spec.class,
            coarse(now.since(since))
        ));
    } else if job.overdue {
        sentences.push(format!(
            "it has waited for more than {}; an older job of its team stands in front of the class first",
            state.policy().promote_after_ms.of(job.spec.class)
        ));
    }
    sentences.extend(deadline_told(job, now));
    if job.overran {
        sentences.push(format!(
            "it ran longer than it was expected to: it is ordered by the {} it has had instead",
            job.attained
        ));
    }
    if job.rungs > 0 {
        let rung = usize::try_from(job.rungs - 1).ok();
        let name = rung.and_then(|rung| job.spec.ladder.get(rung));
        let name = name.map_or("", |rung| rung.name.as_str());
        sentences.push(format!(
            "it ran out of memory: step {} of its ladder, `{name}`, is next",
            job.rungs
        ));
    }
    let waits = |id: &JobId| {
        let other = state.job(*id).map(|other| &other.state);
        matches!(
            other,
            Some(JobState::Pending { .. } | JobState::Held { .. })
        )
    };
    if let Some(preemptor) = job.gave_way_to.filter(waits) {
        sentences.push(format!(
            "if {preemptor} never starts, its place is offered to this job first"
        ));
    }
    sentences
}

fn deadline_told(job: &Job, now: Timestamp) -> Option<String> {
    let deadline = job.spec.deadline?;
    let left = coarse(deadline.since(now));
    Some(match job.deadline? {
        DeadlineRecord::Admitted => {
            format!("its deadline in {left} counts inside its team's share")
        }
        DeadlineRecord::Ignored { needed, given } if needed > given => format!(
            "its deadline in {left} is ignored: its team's jobs with deadlines up to then need {needed}, and its share gives {given}"
        ),
        DeadlineRecord::Ignored { .. } => {
            format!("its deadline in {left} is ignored: it is expected to run longer than that")
        }
    })
}

/// How long it should run, and where that comes from.
fn expected_told(expect: &Expectation) -> String {
    let source = source_told(expect.source);
    let expected = coarse(expect.expected);
    match (expect.source, expect.high) {
        (Source::Nothing, None) => {
            "nothing says how long it runs: it never goes in front of a job that waits for the same nodes".into()
        }
        (Source::Nothing, Some(limit)) => format!("it runs for {} at most", coarse(limit)),
        (_, Some(high)) if high > expect.expected => format!(
            "it should run for about {expected}, and for at most {} in nine of ten cases, by {source}",
            coarse(high)
        ),
        _ => format!("it should run for about {expected}, by {source}"),
    }
}

const fn source_told(source: Source) -> &'static str {
    match source {
        Source::Progress => "its own reports",
        Source::History => "jobs like it of its team",
        Source::Estimate => "its `estimate`",
        Source::Limit => "its time limit",
        Source::Nothing => "nothing",
    }
}

/// When it starts.
fn start_told(start: &StartView, now: Timestamp) -> String {
    let until = |at: u64| Timestamp::from_millis(at).since(now);
    let expected = until(start.expected_ms);
    let when = if expected < Millis::from_secs(1) {
        "now".to_owned()
    } else {
        format!("in about {}", coarse(expected))
    };
    let earliest = until(start.earliest_ms);
    match start.latest_ms.map(until) {
        Some(latest) if start.learned => format!(
            "it starts {when}, between {} and {}, as eight of ten such forecasts held",
            coarse(earliest),
            coarse(latest)
        ),
        Some(latest) if coarse(latest) == coarse(earliest) => {
            format!("it starts {when} if nothing else comes")
        }
        Some(latest) => format!(
            "it starts {when}, between {} and {}, if nothing else comes",
            coarse(earliest),
            coarse(latest)
        ),
        None if start.learned => {
            format!("it starts {when} at a guess: too many like it wait still")
        }
        None => format!("it starts {when} at a guess: a job in front of it names no end"),
    }
}

/// A span without the digits that a guess does not have.
fn coarse(span: Millis) -> String {
    let minutes = span.as_millis() / 60_000;
    let seconds = span.as_millis() / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m"),
        _ => span.to_string(),
    }
}

fn some_of(names: &[impl Display]) -> String {
    const NAMED_MAX: usize = 4;
    let named: Vec<String> = names
        .iter()
        .take(NAMED_MAX)
        .map(ToString::to_string)
        .collect();
    let is = if names.len() == 1 { "is" } else { "are" };
    match names.len().saturating_sub(NAMED_MAX) {
        0 => format!("{} {is}", named.join(", ")),
        more => format!("{} and {more} more {is}", named.join(", ")),
    }
}

/// Why it runs where it runs, in sentences.
fn runs(state: &State, job: &Job, active: &Active, now: Timestamp) -> Vec<String> {
    let mut sentences = vec![format!(
        "it runs as {} on {}",
        active.attempt, active.allocation
    )];
    if !active.terms.score.is_empty() {
        sentences.push(format!("chosen for: {}", score_told(&active.terms)));
    }
    let asked = job.spec.class;
    if active.class != asked {
        sentences.push(format!(
            "it runs as {}: its team's quota or budget did not cover {asked}",
            active.class
        ));
    }
    if let Some(quota) = quota(state, &job.spec.team) {
        let held = GpuAmount::from_thousandths(quota.allocated_thousandths);
        let of = GpuAmount::from_thousandths(quota.quota_thousandths);
        sentences.push(if quota.borrowed {
            format!(
                "its team borrows: `{}` holds {held} GPUs of a quota of {of}, and gives back what others ask for of theirs",
                quota.team
            )
        } else {
            format!(
                "within quota: `{}` holds {held} of its {of} GPUs",
                quota.team
            )
        });
    }
    if let Some(chosen) = active.terms.shapes.iter().find(|chosen| **chosen > 0) {
        sentences.push(format!(
            "it has alternative {chosen} of its shapes: the preferred one was not free, or slower for its price"
        ));
    }
    if let Some(at) = active.terms.ends_at {
        let by = active.terms.ends_by.map_or_else(String::new, |by| {
            format!(", in nine of ten cases within {}", coarse(by.since(now)))
        });
        let overdue = at < now;
        sentences.push(if overdue {
            format!("it should have ended {} ago{by}", coarse(now.since(at)))
        } else {
            format!("it should end in about {}{by}", coarse(at.since(now)))
        });
    }
    if let Some(until) = job.near_end.filter(|until| *until > now) {
        sentences.push(format!(
            "it is near its end: it is left alone for {}",
            coarse(until.since(now))
        ));
    }
    if let Some(idle) = job.idle {
        let what = state.policy().idle_reclaim_after_ms.map_or_else(
            || "warned about only".to_owned(),
            |after| {
                let left = idle.since.after(after).since(now);
                format!("taken back in {}", coarse(left))
            },
        );
        sentences.push(format!(
            "warning: its GPUs have been busy for {} % of the time since {}: {what}",
            idle.utilization_percent,
            coarse(now.since(idle.since))
        ));
    }
    sentences.extend(deadline_told(job, now));
    if job.overran {
        sentences.push("it has run longer than nine of ten like it: what is estimated of it is no longer believed".into());
    }
    sentences
}

/// The lines of a score in one.
pub(crate) fn score_told(terms: &Terms) -> String {
    let line = |score: &Score| {
        let Score { name, points } = score;
        let span = name.strip_prefix("span ");
        if let Some(span) = span.and_then(|rest| rest.strip_suffix(", nodes")) {
            return match points {
                1 => "one node".to_owned(),
                _ => format!("{points} nodes, the smallest span that holds it: {span}"),
            };
        }
        match (&**name, u64::try_from(*points)) {
            ("price an hour in micro-dollars", Ok(micros)) => {
                format!("{} an hour", UsdMicros::from_micros(micros))
            }
            ("interconnect in Gbit/s", _) => format!("{points} Gbit/s between its nodes"),
            ("GPUs left free on its nodes", _) => format!("{points} GPUs left free there"),
            _ => format!("{name}: {points}"),
        }
    };
    let lines: Vec<String> = terms.score.iter().map(line).collect();
    lines.join(", ")
}

fn scores(terms: &Terms) -> Vec<ScoreView> {
    let view = |score: &Score| ScoreView {
        name: score.name.to_string(),
        points: score.points,
    };
    terms.score.iter().map(view).collect()
}

fn place(state: &State, job: &Job, active: &Active) -> PlaceView {
    PlaceView {
        attempt: active.attempt.to_string(),
        allocation: active.allocation.to_string(),
        class: active.class.name().into(),
        quota: quota(state, &job.spec.team),
        score: scores(&active.terms),
        ends_at_ms: active.terms.ends_at.map(Timestamp::as_millis),
        ends_by_ms: active.terms.ends_by.map(Timestamp::as_millis),
    }
}

/// What the innermost team with a quota holds of it.
fn quota(state: &State, team: &str) -> Option<QuotaView> {
    let spec = |name: &str| state.teams().named(name).map(|team| &team.spec);
    let parent = |team: &&TeamSpec| team.parent.as_deref().and_then(spec);
    let owner = std::iter::successors(spec(team), parent).find(|team| !team.quota.is_empty())?;
    let of_types = || owner.quota.by_type.values().copied().sum();
    let quota: GpuAmount = owner.quota.all.unwrap_or_else(of_types);
    let allocated = state.team_holds(&owner.name);
    Some(QuotaView {
        team: owner.name.clone(),
        allocated_thousandths: allocated.thousandths(),
        quota_thousandths: quota.thousandths(),
        borrowed: allocated > quota,
    })
}

/// How the last attempt ended.
fn ended(state: &State, job: &Job, last: &AttemptRecord) -> String {
    let stopped = |cause: &StopCause| match cause {
        StopCause::Priority { preemptor } => {
            let class = state.job(*preemptor).map(|by| by.spec.class);
            let class = class.map_or_else(String::new, |class| format!(" of class {class}"));
            format!(
                "gave way to {preemptor}{class}: it ran as {}, and a lower class gives way (priority)",
                last.class
            )
        }
        StopCause::Reclaim { preemptor } => {
            let team = state.job(*preemptor).map(|by| by.spec.team.as_str());
            let team = team.map_or_else(String::new, |team| format!(" of team `{team}`"));
            format!(
                "gave way to {preemptor}{team}, which takes back what its quota promises (reclaim): `{}` had borrowed it",
                job.spec.team
            )
        }
        StopCause::Turn { preemptor } if *preemptor == job.id => {
            "stopped to begin again on faster GPUs (turn)".into()
        }
        StopCause::Turn { preemptor } => format!(
            "gave way to {preemptor} of its own team, which is nearer to its end or has had less (turn)"
        ),
        StopCause::Idle { .. }
        | StopCause::Drain { .. }
        | StopCause::Notice { .. }
        | StopCause::Cancel
        | StopCause::Hold
        | StopCause::Operator
        | StopCause::Limit
        | StopCause::Straggler { .. }
        | StopCause::Hang
        | StopCause::Asked { .. }
        | StopCause::GangBroken { .. } => format!("was stopped: {cause}"),
    };
    let after = match &last.stopped {
        Some(cause) if last.exit == CLEAN => stopped(cause),
        Some(cause) => format!("{}, and ended: {}", stopped(cause), last.exit),
        None => format!("ended: {}", last.exit),
    };
    let kept = match (last.checkpoint_step, &last.outcome) {
        (_, Outcome::Succeeded) => String::new(),
        (Some(step), _) => format!("; the checkpoint of step {step} is kept"),
        (None, _) => "; it had saved no checkpoint".into(),
    };
    let charged = match &last.stopped {
        Some(
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Drain { .. }
            | StopCause::Notice { .. }
            | StopCause::Operator,
        ) => ", not charged to its team",
        Some(
            StopCause::Idle { .. }
            | StopCause::Cancel
            | StopCause::Hold
            | StopCause::Limit
            | StopCause::Straggler { .. }
            | StopCause::Hang
            | StopCause::Asked { .. }
            | StopCause::GangBroken { .. },
        )
        | None => "",
    };
    let lost = if last.lost.gpu_millis() < 1_000 {
        String::new()
    } else {
        format!(", {} to do again{charged}", last.lost)
    };
    format!("its last attempt {} {after}{kept}{lost}", last.attempt)
}

fn gave_way(last: &AttemptRecord) -> Option<GaveWayView> {
    let (job, rule) = match last.stopped.as_ref()? {
        StopCause::Priority { preemptor } => (preemptor, "priority"),
        StopCause::Reclaim { preemptor } => (preemptor, "reclaim"),
        StopCause::Turn { preemptor } => (preemptor, "turn"),
        StopCause::Idle { .. }
        | StopCause::Drain { .. }
        | StopCause::Notice { .. }
        | StopCause::Cancel
        | StopCause::Hold
        | StopCause::Operator
        | StopCause::Limit
        | StopCause::Straggler { .. }
        | StopCause::Hang
        | StopCause::Asked { .. }
        | StopCause::GangBroken { .. } => return None,
    };
    Some(GaveWayView {
        attempt: last.attempt.to_string(),
        job: job.to_string(),
        rule: rule.into(),
        lost_gpu_ms: last.lost.gpu_millis(),
        checkpoint_step: last.checkpoint_step,
    })
}

/// What would become of a job that was submitted now. The state has to be a copy brought up to now.
pub(crate) fn check(
    state: &State,
    spec: &JobSpec,
    warnings: Vec<String>,
    correct: impl Fn(Start, Timestamp) -> Start,
) -> CheckReport {
    let now = state.now();
    let (state, id) = explain::with(state, spec);
    let job = &state.jobs()[&id];
    let decision = decide(&state);
    let launch = decision.actions.iter().find_map(|action| {
        let Action::Launch {
            attempt,
            allocation,
            terms,
        } = action
        else {
            return None;
        };
        (attempt.job == id).then(|| (allocation.to_string(), terms))
    });
    let gone = preempted_for(&state, id, &decision.actions);
    let gone_by = gone.iter().map(|(_, at)| *at).max();
    let preempts: Vec<JobId> = gone.into_iter().map(|(job, _)| job).collect();
    let mut sentences = Vec::new();
    let mut reasons = explain::reasons(&state, job, now);
    reasons.retain(|reason| *reason != WaitReason::Turn);
    let (mut change, mut start) = (None, None);
    if let Some((allocation, terms)) = &launch {
        reasons.clear();
        sentences.push(format!("it would start now on {allocation}"));
        if !terms.score.is_empty() {
            sentences.push(format!("chosen for: {}", score_told(terms)));
        }
        if let Some(class) = terms.class {
            sentences.push(format!(
                "it would run as {class}: its team's quota or budget does not cover {}",
                spec.class
            ));
        }
    } else {
        if let Some(gone_by) = gone_by {
            sentences.push(format!(
                "it would make others give way: {} asked to save and stop, and gone in {} at the latest",
                some_of(&preempts),
                coarse(gone_by.since(now))
            ));
        } else {
            sentences.extend(told_ahead(&reasons));
            let found = explain::smallest_change(&state, job);
            sentences.extend(change_told(&reasons, found.as_ref()));
            change = found.as_ref().map(change_view);
        }
        // By then its place is free: a forecast says no more.
        if gone_by.is_none() && is_forecast(&state, job) {
            start = forecast::start_of(&state, id).map(|start| {
                let start = correct(start, now);
                start_view(&start, Millis::ZERO)
            });
            sentences.push(start.as_ref().map_or_else(
                || "it would start later than the forecast looks ahead".into(),
                |start| start_told(start, now),
            ));
        }
    }
    sentences.extend(deadline_told(job, now));
    sentences.push(expected_told(&job.expect));
    CheckReport {
        starts_now: launch.is_some(),
        score: launch
            .as_ref()
            .map(|(_, terms)| scores(terms))
            .unwrap_or_default(),
        runs_as: launch
            .as_ref()
            .and_then(|(_, terms)| terms.class)
            .map(|class: Class| class.name().into()),
        allocation: launch.map(|(allocation, _)| allocation),
        preempts: preempts.iter().map(ToString::to_string).collect(),
        sentences,
        reasons: reasons.iter().map(data).collect(),
        change,
        start,
        expected: expectation(&job.expect),
        deadline: deadline(job),
        jobs: spec
            .array
            .as_ref()
            .map_or(1, |array| array.indices.len() as u64),
        warnings,
    }
}

fn told_ahead(reasons: &[WaitReason]) -> Vec<String> {
    let mut told = sentences(reasons);
    if let Some(first) = told.first_mut() {
        *first = format!("it would wait: {first}");
    }
    told
}

/// Who would be asked to stop for a job, and by when each is gone at the latest: a checkpoint, then its grace.
fn preempted_for(state: &State, id: JobId, actions: &[Action]) -> Vec<(JobId, Timestamp)> {
    let asked = |cause: &StopCause| matches!(cause, StopCause::Priority { preemptor } | StopCause::Reclaim { preemptor } | StopCause::Turn { preemptor } if *preemptor == id);
    let stops = actions.iter().filter_map(|action| {
        if let Action::Yield {
            attempt,
            cause,
            until,
            ..
        } = action
        {
            let grace = state.job(attempt.job)?.spec.grace;
            asked(cause).then(|| (attempt.job, until.after(grace)))
        } else if let Action::Terminate {
            attempt,
            cause,
            kill_at,
        } = action
        {
            asked(cause).then_some((attempt.job, *kill_at))
        } else {
            None
        }
    });
    stops.collect()
}

/// A start as data.
pub(crate) fn start_view(start: &Start, age: Millis) -> StartView {
    StartView {
        earliest_ms: start.earliest.as_millis(),
        expected_ms: start.expected.as_millis(),
        latest_ms: start.latest.map(Timestamp::as_millis),
        learned: start.learned,
        age_ms: age.as_millis(),
    }
}

/// An expectation as data.
pub(crate) fn expectation(expect: &Expectation) -> ExpectationView {
    let source = match expect.source {
        Source::Progress => "progress",
        Source::History => "history",
        Source::Estimate => "estimate",
        Source::Limit => "limit",
        Source::Nothing => "nothing",
    };
    ExpectationView {
        expected_ms: expect.expected.as_millis(),
        high_ms: expect.high.map(Millis::as_millis),
        source: source.into(),
    }
}

/// A deadline as data.
pub(crate) fn deadline(job: &Job) -> Option<DeadlineView> {
    let at_ms = job.spec.deadline?.as_millis();
    let (needed, given) = match job.deadline? {
        DeadlineRecord::Admitted => (None, None),
        DeadlineRecord::Ignored { needed, given } => (Some(needed), Some(given)),
    };
    Some(DeadlineView {
        at_ms,
        counts: needed.is_none(),
        needed_gpu_ms: needed.map(antiphon_types::GpuTime::gpu_millis),
        given_gpu_ms: given.map(antiphon_types::GpuTime::gpu_millis),
    })
}

/// What is held back for a job, as data.
pub(crate) fn slot(state: &State, job: &Job) -> Option<SlotView> {
    let slot = state.slots().get(&job.id)?;
    let why = match slot.why {
        SlotReason::Blocked => "blocked",
        SlotReason::Preemption => "preemption",
        SlotReason::Claim => "claim",
    };
    Some(SlotView {
        nodes: slot.nodes.iter().map(ToString::to_string).collect(),
        at_ms: slot.at.map(Timestamp::as_millis),
        why: why.into(),
    })
}
