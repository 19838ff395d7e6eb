//! Folds what the two-way loop finds and does: diagnoses, remedies, data jobs and what they made, and what a person or a
//! trainer wants of it.

use std::collections::BTreeMap;

use antiphon_types::{
    Action, Ask, AskBody, AttemptId, Diagnosis, Directive, DirectiveCause, DirectiveId, JobId,
    JobSpec, Remedy, Rule, ShardOrigin, Verdict,
};

use super::command::{cancel, hold, request, submit};
use super::decision::enter_directive;
use crate::augment::{SHARDS_MAX, origin, run};
use crate::direct::issue;
use crate::index::place;
use crate::jobs::{Job, JobState};
use crate::relocate::node_of_rank;
use crate::state::{NodeFailure, State};
use crate::steering::{Avoided, FindingRecord, FindingStage, RunStage};
use crate::{ask, undo};

/// What a job's remaining GPU-time counts where no rule says otherwise.
const WEIGHT: u32 = 1_000;

pub(super) fn diagnosed(state: &mut State, diagnosis: &Diagnosis) {
    let now = state.now;
    let news = state.change(diagnosis.attempt.job, |job| {
        let (rule, subject) = (diagnosis.rule, &diagnosis.subject);
        let Some(record) = job.steering.finding_mut(rule, subject) else {
            // There is nothing to take back.
            if diagnosis.verdict == Verdict::Cleared {
                return false;
            }
            let record = FindingRecord::new(diagnosis.clone(), now, FindingStage::Told);
            job.steering.enter(record);
            return true;
        };
        let other = !record.says(diagnosis);
        if other && matches!(record.taken(), Some(Remedy::Weigh { .. })) {
            job.weight_permille = WEIGHT;
        }
        record.renew(diagnosis, now);
        other
    });
    if news {
        speak_against(state, diagnosis);
    }
}

/// A task that is to leave its node speaks against the node; one team's word alone convicts none.
fn speak_against(state: &mut State, diagnosis: &Diagnosis) {
    let now = state.now;
    let job = state.job_at(diagnosis.attempt.job);
    let Some(active) = job.state.active() else {
        return;
    };
    let ranks = diagnosis.remedies.iter().filter_map(|remedy| match remedy {
        Remedy::Replace { task } => Some(*task),
        Remedy::Direct(_) | Remedy::Weigh { .. } | Remedy::Restart | Remedy::Augment { .. } => None,
    });
    let nodes = ranks.filter_map(|rank| node_of_rank(job, active, rank));
    let nodes: Vec<_> = nodes.map(|name| state.index.node_ids[name]).collect();
    let (team, job) = (job.spec.team.clone(), job.id);
    for node in nodes {
        let failures = &mut state.known.nodes[place(node)].failures;
        failures.retain(|failure| failure.job != job || !failure.slow);
        failures.push(NodeFailure {
            team: team.clone(),
            job,
            at: now,
            checked: false,
            slow: true,
        });
        state.index.suspects.insert(node);
    }
}

pub(super) fn take_remedy(state: &mut State, action: &Action) {
    let Action::Remedy {
        job: id,
        rule,
        subject,
        remedy,
    } = action
    else {
        return;
    };
    let now = state.now;
    let until = now.after(state.policy.suspicion_ms);
    state.change(*id, |job| {
        let record = job.steering.finding_mut(*rule, subject);
        let record = record.unwrap_or_else(|| panic!("{id} has no finding of {rule} {subject}"));
        record.acted = Some(*remedy);
        record.acted_at = Some(now);
        record.stage = FindingStage::Done;
        match record.taken().cloned() {
            Some(Remedy::Weigh { permille }) => job.weight_permille = permille.clamp(500, 2_000),
            Some(Remedy::Replace { task }) => avoid(job, task, Avoid { now, until }),
            Some(Remedy::Direct(_) | Remedy::Restart | Remedy::Augment { .. }) => (),
            None => panic!("the finding of {rule} {subject} on {id} has no remedy {remedy}"),
        }
    });
}

struct Avoid {
    now: antiphon_types::Timestamp,
    until: antiphon_types::Timestamp,
}

fn avoid(job: &mut Job, task: u32, span: Avoid) {
    let active = job.state.active();
    let node = active
        .and_then(|active| node_of_rank(job, active, task))
        .cloned();
    let avoids = &mut job.steering.avoids;
    avoids.retain(|avoided| avoided.until > span.now);
    avoids.extend(node.map(|node| Avoided {
        node,
        until: span.until,
    }));
}

/// What a new entry of the directive log means for what led to it.
pub(super) fn directed(job: &mut Job, directive: &Directive) {
    match &directive.cause {
        DirectiveCause::Rule { rule, subject } => {
            job.steering.note_directed(directive.at);
            if let Some(record) = job.steering.finding_mut(*rule, subject) {
                record.stage = FindingStage::Directed {
                    directive: directive.id,
                };
            }
        }
        DirectiveCause::DataJob { job: made_by } => delivered(job, *made_by, directive),
        DirectiveCause::Stop | DirectiveCause::Person | DirectiveCause::Undo { .. } => (),
    }
}

/// The samples of a data job enter the stream: their origin is known, and what asked for them waits for the answer.
fn delivered(job: &mut Job, made_by: JobId, directive: &Directive) {
    let runs = &job.steering.runs;
    let Some(index) = runs.iter().position(|run| run.job == made_by) else {
        return;
    };
    let run = &runs[index];
    let (shard, made) = (run.shard.clone(), origin(job, run));
    if job.spec.data.shards.len() < SHARDS_MAX {
        job.spec.data.shards.insert(shard, made);
    }
    job.steering.runs[index].stage = RunStage::Delivered { at: directive.at };
    set_stage_of_run(
        job,
        made_by,
        &FindingStage::Directed {
            directive: directive.id,
        },
    );
}

fn set_stage_of_run(job: &mut Job, made_by: JobId, stage: &FindingStage) {
    let started = FindingStage::Started { job: made_by };
    for record in job
        .steering
        .all_mut()
        .filter(|record| record.stage == started)
    {
        record.stage = stage.clone();
    }
}

/// Takes in a data job that makes data for another.
pub(super) fn augment(state: &mut State, id: JobId, method: &str, of: &str, spec: &JobSpec) {
    let data_job = submit(state, spec);
    state.change(data_job, |job| job.makes_data_for = Some(id));
    let now = state.now;
    state.change(id, |job| {
        let run = run(job, data_job, method, of, spec);
        job.steering.started(run);
        for record in job.steering.all_mut() {
            let asked =
                matches!(record.taken(), Some(Remedy::Augment { of: starving }) if starving == of);
            if asked && record.acted_at == Some(now) && record.stage == FindingStage::Done {
                record.stage = FindingStage::Started { job: data_job };
            }
        }
    });
}

/// What the end of a job means for the job that it made data for.
pub(super) fn made(state: &mut State, id: JobId) {
    let now = state.now;
    let job = state.job_at(id);
    let Some(parent) = job.makes_data_for else {
        return;
    };
    if state
        .job(parent)
        .is_none_or(|parent| parent.state.is_ended())
    {
        return;
    }
    let last = job.attempts.last().map(|record| record.attempt);
    let (stage, failure) = match (&job.state, last) {
        (JobState::Succeeded { .. }, Some(attempt)) => (RunStage::Made { attempt }, None),
        (JobState::Failed { class, detail, .. }, _) => {
            let why = format!("{id} made no samples: {class}, {detail}");
            (RunStage::Failed { at: now }, Some(why))
        }
        (other, _) => {
            let why = format!("{id} made no samples: it is {}", other.name());
            (RunStage::Failed { at: now }, Some(why))
        }
    };
    state.change(parent, |job| {
        if let Some(run) = job.steering.runs.iter_mut().find(|run| run.job == id) {
            run.stage = stage;
        }
        if let Some(why) = failure {
            set_stage_of_run(job, id, &FindingStage::Refused { why });
        }
    });
}

/// Ends the data jobs of a job that needs no more data.
pub(super) fn cancel_data_jobs(state: &mut State, id: JobId) {
    let runs = state.job_at(id).steering.runs.iter();
    let running = runs.filter(|run| run.stage == RunStage::Running);
    let running: Vec<JobId> = running.map(|run| run.job).collect();
    for data_job in running {
        if state.job(data_job).is_some_and(|job| !job.state.is_ended()) {
            cancel(state, data_job);
        }
    }
}

/// Takes in where shards came from. What antiphon made itself it knows better.
pub(super) fn shards(state: &mut State, attempt: AttemptId, told: &BTreeMap<String, ShardOrigin>) {
    state.note(attempt.job, |job| {
        for (name, origin) in told {
            if is_new_shard(job, name, origin) {
                let known = job.spec.data.shards.entry(name.clone()).or_default();
                *known = known.with(origin);
            }
        }
    });
}

/// Whether what is told of a shard is not known, and there is room for it.
pub(crate) fn is_new_shard(job: &Job, name: &str, origin: &ShardOrigin) -> bool {
    let shards = &job.spec.data.shards;
    match shards.get(name) {
        Some(known) => known.made_by.is_none() && known.with(origin) != *known,
        None => shards.len() < SHARDS_MAX,
    }
}

pub(super) fn approve(state: &mut State, id: JobId, rule: Rule, subject: &str) {
    state.change(id, |job| {
        let record = job.steering.finding_mut(rule, subject);
        let record = record.unwrap_or_else(|| panic!("admission knows the finding of {id}"));
        record.stage = FindingStage::Approved;
        record.undone = false;
    });
}

pub(super) fn take_back(state: &mut State, id: JobId, directive: DirectiveId) {
    let job = state.job_at(id);
    let body = undo::inverse(job, directive).expect("admission looked for it");
    let undone = job.directives.iter().find(|entry| entry.id == directive);
    let undone = undone.expect("it was found just now").clone();
    let reason = format!("#{directive} is undone: {}", undone.body);
    let cause = DirectiveCause::Undo { directive };
    let new = issue(job, body, reason, cause, state.now, 0);
    enter_directive(state, id, &new);
    if let DirectiveCause::Rule { rule, subject } = undone.cause {
        state.change(id, |job| {
            if let Some(record) = job.steering.finding_mut(rule, &subject) {
                record.undone = true;
                record.acted = None;
                record.stage = FindingStage::Told;
            }
        });
    }
}

pub(super) fn asked(state: &mut State, ask: &Ask) {
    let now = state.now;
    let id = ask.attempt.job;
    state.note(id, |job| job.steering.note_granted(now));
    match &ask.body {
        AskBody::Gpus { gpus } => state.note(id, |job| {
            job.steering.shape_asked = ask::shape_with(job, *gpus).cloned();
        }),
        AskBody::Time { more } => state.change(id, |job| {
            let limit = job.spec.time_limit;
            let first = &mut job.steering.time_limit_first;
            *first = first.or(limit);
            job.spec.time_limit = limit.map(|limit| limit + *more);
        }),
        AskBody::Samples { category } => wants_samples(state, ask, category),
        AskBody::Pause => return hold(state, id),
        AskBody::Protection { during } => {
            state.change(id, |job| job.steering.protect(now, *during));
        }
    }
    if let Some(cause) = ask::cause_of(&ask.body) {
        request(state, id, cause);
    }
}

/// What a trainer wants more of is a finding of its own, and approved: the job file says how it is made.
fn wants_samples(state: &mut State, ask: &Ask, category: &str) {
    let now = state.now;
    let of = category.to_owned();
    let diagnosis = Diagnosis {
        attempt: ask.attempt,
        rule: Rule::Shard,
        subject: of.clone(),
        verdict: Verdict::Starving,
        evidence: format!("its trainer asks: {}", ask.reason),
        step: 0,
        remedies: vec![Remedy::Augment { of }],
    };
    state.change(ask.attempt.job, |job| {
        match job.steering.finding_mut(Rule::Shard, category) {
            Some(record) => {
                record.diagnosis = diagnosis;
                record.at = now;
                record.acted = None;
                record.stage = FindingStage::Approved;
            }
            None => {
                let record = FindingRecord::new(diagnosis, now, FindingStage::Approved);
                job.steering.enter(record);
            }
        }
    });
}
