//! Answers a command before it is logged. A refused command changes nothing; an admitted one always fits when applied.

use antiphon_types::{
    Class, Command, CommandId, DirectiveId, DirectiveScope, GatePolicy, GpuAmount, JobId, JobSpec,
    Maintenance, Millis, NodeName, Notice, Policy, Processes, Rejection, Rule, Shape, StopCause,
    Tasks, TeamSpec,
};

use crate::allowance::least;
use crate::ask;
use crate::augment;
use crate::exist::can_exist;
use crate::jobs::{Job, JobState};
use crate::notices;
use crate::state::{CommandRecord, Mode, State};
use crate::steering::FindingRecord;
use crate::teams::{Team, total};
use crate::undo;

/// Directives that a person may send to one job: far above any use, and bounds the job's directive log.
pub(crate) const DIRECTIVES_MAX: u64 = 10_000;

/// Longest span that a job or a policy may name, ten years: far above any use, far below where a time overflows.
const SPAN_MAX: Millis = Millis::from_secs(10 * 365 * 86_400);

/// Teams: each is looked at in every cycle.
const TEAMS_MAX: u64 = 1_000;

/// The largest weight: keeps products of weights and times within 64 bits.
const WEIGHT_MAX: u64 = 1_000_000;

/// How deep teams may be nested: as deep as their shares are compared.
const DEPTH_MAX: u32 = 3;

/// Jobs of one array.
const MEMBERS_MAX: u64 = 10_000;

/// Answers a command.
///
/// # Errors
/// The first thing that its sender has to change.
pub fn admit(state: &State, command: &Command) -> Result<(), Rejection> {
    match command {
        Command::Submit { spec } => admit_job(state, spec),
        Command::Cancel { job } => allow(state, *job, "canceled", |job| !job.state.is_ended()),
        Command::Hold { job } => allow(state, *job, "put on hold", |job| {
            let held = matches!(job.state, JobState::Held { .. });
            !job.state.is_ended() && !held && !is_canceled(job)
        }),
        Command::Release { job } => allow(state, *job, "released", |job| {
            matches!(job.state, JobState::Held { .. }) || is_being_held(job)
        }),
        Command::Preempt { job } => allow(state, *job, "preempted", |job| {
            is_underway(job) && !is_canceled(job)
        }),
        Command::SetClass { job, class } => set_class(state, *job, *class),
        Command::Direct(direct) => {
            allow(state, direct.job, "sent a directive", is_underway)?;
            let issued = state.jobs[&direct.job].directives_issued;
            limit("number of directives", issued + 1, DIRECTIVES_MAX)
        }
        Command::Approve { job, rule, subject } => approve(state, *job, *rule, subject),
        Command::Undo { job, directive } => undo(state, *job, *directive),
        Command::Ask(asked) => ask::admit(state, asked),
        Command::Drain { node, .. } | Command::Undrain { node } => known_node(state, node),
        Command::SetTeams { teams } => set_teams(teams),
        Command::Maintain(window) => maintain(state, window),
        Command::Notice(notice) => give_back(state, notice),
        Command::Unpause if state.mode == Mode::Deciding => Err(Rejection::NotPaused),
        Command::SetPolicy { policy } => set_policy(policy),
        Command::SetGate { gate } => set_gate(gate),
        Command::Pause { .. } | Command::Unpause => Ok(()),
    }
}

/// Looks whether a command was carried out before under the same key: its record, if so.
///
/// # Errors
/// Where the key was used for another command.
pub fn repeated(state: &State, id: &CommandId) -> Result<Option<CommandRecord>, Rejection> {
    match state.command_ids.get(&id.key) {
        Some(record) if record.content != id.content => {
            let key = id.key.clone();
            Err(Rejection::KeyReused { key })
        }
        found => Ok(found.cloned()),
    }
}

/// What runs keeps the class that it was started with; what waits is asked what it would be asked at its submission.
fn set_class(state: &State, id: JobId, class: Class) -> Result<(), Rejection> {
    allow(state, id, "given another class", |job| {
        matches!(job.state, JobState::Pending { .. } | JobState::Held { .. })
    })?;
    let mut spec = state.jobs[&id].spec.clone();
    spec.class = class;
    of_team(state, &spec)?;
    can_exist(state, &spec)
}

const fn is_underway(job: &Job) -> bool {
    matches!(
        job.state,
        JobState::Starting { .. } | JobState::Running { .. }
    )
}

/// Whether a hold is on its way: asked for, or stopping the attempt now.
pub(crate) fn is_being_held(job: &Job) -> bool {
    let stopping = matches!(
        job.state,
        JobState::Stopping {
            cause: StopCause::Hold,
            ..
        }
    );
    job.requested == Some(StopCause::Hold) || (stopping && job.requested.is_none())
}

/// Whether its user has canceled it already and its end is only a matter of time.
pub(crate) fn is_canceled(job: &Job) -> bool {
    let under_way = matches!(
        job.state,
        JobState::Stopping {
            cause: StopCause::Cancel,
            ..
        }
    );
    under_way || job.requested == Some(StopCause::Cancel)
}

fn allow(
    state: &State,
    id: JobId,
    verb: &str,
    allowed: impl FnOnce(&Job) -> bool,
) -> Result<(), Rejection> {
    let Some(job) = state.job(id) else {
        return Err(Rejection::UnknownJob {
            job: id,
            newest: state.newest_job(),
        });
    };
    if allowed(job) {
        return Ok(());
    }
    let state = job.state.name().to_owned();
    Err(Rejection::WrongState {
        job: id,
        state,
        verb: verb.to_owned(),
    })
}

/// Checks that there is something to act on.
fn approve(state: &State, id: JobId, rule: Rule, subject: &str) -> Result<(), Rejection> {
    allow(state, id, "acted on", |job| {
        !job.state.is_ended() && !is_canceled(job)
    })?;
    let steering = &state.jobs[&id].steering;
    let helps = |record: &FindingRecord| {
        let remedies = (0..).zip(&record.diagnosis.remedies);
        let mut left = remedies.filter(|(place, _)| record.acted != Some(*place));
        left.next().is_some()
    };
    let found = steering.finding(rule, subject);
    if found.is_some_and(helps) {
        return Ok(());
    }
    let of_rule = || {
        steering
            .all()
            .filter(|record| record.diagnosis.rule == rule)
    };
    let open = of_rule().filter(|record| helps(record));
    let subjects = open.map(|record| record.diagnosis.subject.clone());
    Err(Rejection::CannotApprove {
        job: id,
        rule,
        why: match found {
            Some(record) if record.diagnosis.remedies.is_empty() => {
                format!(
                    "its finding `{}` asks for nothing",
                    record.diagnosis.verdict
                )
            }
            Some(record) => format!(
                "what its finding `{}` asks for has been done",
                record.diagnosis.verdict
            ),
            None => {
                let about = match subject {
                    "" => "the run as a whole".to_owned(),
                    subject => format!("`{subject}`"),
                };
                format!(
                    "it has {} findings of that rule, none about {about}",
                    of_rule().count()
                )
            }
        },
        subjects: subjects.take(5).collect(),
    })
}

/// Checks that a directive can be taken back, and that its inverse reaches whom it is for.
fn undo(state: &State, id: JobId, directive: DirectiveId) -> Result<(), Rejection> {
    allow(state, id, "sent a directive", |job| !job.state.is_ended())?;
    let job = &state.jobs[&id];
    let inverse = undo::inverse(job, directive)?;
    if inverse.scope() == DirectiveScope::Compute {
        allow(state, id, "sent a directive", is_underway)?;
    }
    limit(
        "number of directives",
        job.directives_issued + 1,
        DIRECTIVES_MAX,
    )
}

fn known_node(state: &State, node: &NodeName) -> Result<(), Rejection> {
    if state.node(node).is_some() {
        return Ok(());
    }
    let nodes = state.index.node_ids.keys().take(5).cloned().collect();
    Err(Rejection::UnknownNode {
        node: node.clone(),
        nodes,
    })
}

fn limit(what: &str, asked: u64, max: u64) -> Result<(), Rejection> {
    if asked <= max {
        return Ok(());
    }
    Err(Rejection::OverLimit {
        what: what.to_owned(),
        asked,
        max,
    })
}

fn spans(named: &[(&str, Millis)]) -> Result<(), Rejection> {
    named.iter().try_for_each(|(name, span)| {
        let what = format!("`{name}` in milliseconds");
        limit(&what, span.as_millis(), SPAN_MAX.as_millis())
    })
}

fn set_policy(policy: &Policy) -> Result<(), Rejection> {
    spans(&[
        ("checkpoint_wait_ms_max", policy.checkpoint_wait_ms_max),
        (
            "checkpoint_wait_ms_default",
            policy.checkpoint_wait_ms_default,
        ),
        ("promote_after_ms.service", policy.promote_after_ms.service),
        (
            "promote_after_ms.production",
            policy.promote_after_ms.production,
        ),
        (
            "promote_after_ms.standard",
            policy.promote_after_ms.standard,
        ),
        (
            "promote_after_ms.best-effort",
            policy.promote_after_ms.best_effort,
        ),
        ("reclaim_wait_ms_max", policy.reclaim_wait_ms_max),
        ("near_end_ms", policy.near_end_ms),
        ("restart_cost_ms", policy.restart_cost_ms),
        ("usage_half_life_ms", policy.usage_half_life_ms),
        ("suspicion_ms", policy.suspicion_ms),
        ("rule_cool_down_ms", policy.rule_cool_down_ms),
        (
            "protection_per_hour_ms_max",
            policy.protection_per_hour_ms_max,
        ),
        (
            "idle_reclaim_after_ms",
            policy.idle_reclaim_after_ms.unwrap_or_default(),
        ),
    ])?;
    let weight = policy.gpu_weight_permille.values().copied().max();
    limit(
        "weight of a GPU type in thousandths",
        weight.unwrap_or(0).into(),
        WEIGHT_MAX,
    )
}

fn set_gate(gate: &GatePolicy) -> Result<(), Rejection> {
    spans(&[
        ("checkpoint_ms_max", gate.checkpoint_ms_max),
        ("delay_production_ms_max", gate.delay_production_ms_max),
        ("delay_best_effort_ms_max", gate.delay_best_effort_ms_max),
        ("over_ms", gate.over_ms),
        ("shut_ms_max", gate.shut_ms_max),
    ])?;
    let percent = gate.completion_percent_min.into();
    limit("`completion_percent_min`", percent, 100)
}

/// Checks that teams form a tree in which the parts fit into the whole.
fn set_teams(teams: &[TeamSpec]) -> Result<(), Rejection> {
    let bad = |team: &TeamSpec, why: String| Rejection::BadTeam {
        team: team.name.clone(),
        why,
    };
    limit("number of teams", count(teams.len()), TEAMS_MAX)?;
    let named = |name: &str| teams.iter().find(|team| team.name == name);
    for team in teams {
        if team.name.is_empty() {
            return Err(bad(team, "it has no name".into()));
        }
        if teams.iter().filter(|other| other.name == team.name).count() > 1 {
            return Err(bad(team, "the name stands there twice".into()));
        }
        if team.weight == 0 || u64::from(team.weight) > WEIGHT_MAX {
            let why = format!("its weight is {}: give 1 to {WEIGHT_MAX}", team.weight);
            return Err(bad(team, why));
        }
        let mut above = team;
        for depth in 0.. {
            let Some(parent) = &above.parent else {
                break;
            };
            if depth == DEPTH_MAX || *parent == team.name {
                let why = format!("it is part of itself, or nested deeper than {DEPTH_MAX}");
                return Err(bad(team, why));
            }
            let Some(found) = named(parent) else {
                let why = format!("its parent `{parent}` is no team");
                return Err(bad(team, why));
            };
            above = found;
        }
        if let (Some(quota), Some(limit)) = (team.quota.all, team.limit.all)
            && quota > limit
        {
            let why = format!("its quota of {quota} GPUs is above its limit of {limit}");
            return Err(bad(team, why));
        }
        let parts = teams.iter();
        let parts = parts.filter(|part| part.parent.as_ref() == Some(&team.name));
        let promised: GpuAmount = parts.map(|part| total(&part.quota)).sum();
        if !team.quota.is_empty() && promised > total(&team.quota) {
            let quota = total(&team.quota);
            let why = format!("its parts are promised {promised} GPUs, its own quota is {quota}");
            return Err(bad(team, why));
        }
    }
    Ok(())
}

fn maintain(state: &State, window: &Maintenance) -> Result<(), Rejection> {
    let bad = |why: String| Err(Rejection::BadMaintenance { why });
    if window.nodes.is_empty() {
        return bad("it names no nodes".into());
    }
    window
        .nodes
        .iter()
        .try_for_each(|node| known_node(state, node))?;
    if window.from >= window.until {
        return bad("it ends before it starts".into());
    }
    if window.until <= state.now {
        return bad("it lies in the past".into());
    }
    let span = window.until.since(state.now);
    spans(&[("time until its end", span)])
}

/// Checks that there is so much of a node to give back.
fn give_back(state: &State, notice: &Notice) -> Result<(), Rejection> {
    known_node(state, &notice.node)?;
    spans(&[("within", notice.within)])?;
    let bad = |why: String| {
        let node = notice.node.clone();
        Err(Rejection::BadNotice { node, why })
    };
    if notice.within.is_zero() {
        return bad("it leaves no time".into());
    }
    let Some(gpus) = notice.gpus else {
        return Ok(());
    };
    let node = state.node_at(state.index.node_ids[&notice.node]);
    if !node.spec.slices.is_empty() {
        return bad("its GPUs are cut into slices, so only all of it can be".into());
    }
    let left = notices::left(node).count();
    if gpus == 0 || usize::try_from(gpus).is_ok_and(|gpus| gpus > left) {
        return bad(format!("{gpus} of its GPUs are asked for, {left} are left"));
    }
    Ok(())
}

/// Answers whether a job may enter the queue.
pub(crate) fn admit_job(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let policy = &state.policy;
    let ahead = |at: Option<antiphon_types::Timestamp>| at.unwrap_or_default().since(state.now);
    let estimate = spec
        .estimate
        .map(|estimate| estimate.high.max(estimate.expected));
    spans(&[
        ("grace", spec.grace),
        ("time_limit", spec.time_limit.unwrap_or_default()),
        ("backoff", spec.retry.backoff_first),
        ("backoff_max", spec.retry.backoff_max),
        ("deadline", ahead(spec.deadline)),
        ("not_before", ahead(spec.not_before)),
        ("estimate", estimate.unwrap_or_default()),
    ])?;
    let members = spec.array.as_ref().map_or(1, |array| array.indices.len());
    limit("number of jobs in the array", count(members), MEMBERS_MAX)?;
    let living = state.jobs.len() - state.ended.len();
    limit(
        "number of jobs that have not ended",
        count(living + members),
        policy.jobs_max.into(),
    )?;
    names(state, spec)?;
    dependencies(state, spec)?;
    let mut tasks = 0;
    let mut gpus = 0;
    for (index, role) in spec.roles.iter().enumerate() {
        // Tasks are known by role and number.
        if spec.roles[..index]
            .iter()
            .any(|other| other.name == role.name)
        {
            return Err(Rejection::DuplicateRole {
                role: role.name.clone(),
            });
        }
        if role.command.is_empty() {
            return Err(Rejection::NoCommand {
                role: role.name.clone(),
            });
        }
        let wanted = role.shapes().map(|shape| shape.gpus.thousandths()).max();
        let rungs = spec.ladder.iter().filter_map(|rung| rung.gpus);
        let wanted = rungs.map(GpuAmount::thousandths).chain(wanted).max();
        gpus += wanted.unwrap_or(0).min(u64::from(u32::MAX) * 1_000);
        limit(
            "number of GPUs",
            gpus.div_ceil(1_000),
            policy.gpus_per_job_max.into(),
        )?;
        let most = role.shapes().map(splits).max_by_key(|tasks| {
            let tasks = tasks.as_ref();
            // A refusal goes before any number.
            tasks.map_or(u64::MAX, |tasks| *tasks)
        });
        tasks += most.unwrap_or(Ok(0))?;
        limit(
            "number of tasks in the gang",
            tasks,
            policy.tasks_per_gang_max.into(),
        )?;
    }
    of_team(state, spec)?;
    augment::check(spec)?;
    can_exist(state, spec)?;
    rungs(state, spec)
}

/// Checks that every step of the out-of-memory ladder could run: else the job would wait for ever once it stands there.
fn rungs(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    for gpus in spec.ladder.iter().filter_map(|rung| rung.gpus) {
        let mut climbed = spec.clone();
        let Some(role) = climbed.roles.first_mut() else {
            continue;
        };
        role.shape.gpus = gpus;
        role.alternatives.clear();
        splits(&role.shape)?;
        of_team(state, &climbed)?;
        can_exist(state, &climbed)?;
    }
    Ok(())
}

/// Checks that the names are free.
fn names(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let taken = |name: String| {
        let holder = state.index.named(state.teams.id(&spec.team)?, &name)?;
        let team = spec.team.clone();
        Some(Rejection::DuplicateName { name, team, holder })
    };
    let indices = spec.array.iter().flat_map(|array| &array.indices);
    let members = indices.map(|index| format!("{}[{index}]", spec.name));
    let one = spec.array.is_none().then(|| spec.name.clone());
    one.into_iter()
        .chain(members)
        .find_map(taken)
        .map_or(Ok(()), Err)
}

fn dependencies(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    for dependency in &spec.after {
        match state.job(*dependency).map(|job| &job.state) {
            None => return Err(Rejection::UnknownDependency { job: *dependency }),
            Some(ended @ (JobState::Failed { .. } | JobState::Canceled { .. })) => {
                let state = ended.name().to_owned();
                return Err(Rejection::DeadDependency {
                    job: *dependency,
                    state,
                });
            }
            Some(
                JobState::Pending { .. }
                | JobState::Starting { .. }
                | JobState::Running { .. }
                | JobState::Stopping { .. }
                | JobState::Held { .. }
                | JobState::Succeeded { .. },
            ) => (),
        }
    }
    for dependency in spec.after_any.iter().chain(&spec.after_start) {
        if state.job(*dependency).is_none() {
            return Err(Rejection::UnknownDependency { job: *dependency });
        }
    }
    Ok(())
}

/// Checks that the team may ask for this at all.
pub(crate) fn of_team(state: &State, spec: &JobSpec) -> Result<(), Rejection> {
    let teams = &state.teams;
    if teams.specs().is_empty() {
        return Ok(());
    }
    let names = || teams.specs().iter().map(|team| team.name.as_str());
    if !names().any(|name| name == spec.team) {
        return Err(Rejection::UnknownTeam {
            team: spec.team.clone(),
            nearest: nearest(&spec.team, names()),
            teams: names().take(5).map(str::to_owned).collect(),
        });
    }
    let team = teams
        .id(&spec.team)
        .expect("teams that were set up have a place");
    let asked = least(spec);
    if spec.class <= antiphon_types::Class::Production && !asked.is_zero() {
        let owner = teams.quota_owner(team);
        let quota = owner.map(|owner| total(&teams.get(owner).spec.quota));
        let quota = quota.unwrap_or_default();
        if asked > quota {
            return Err(Rejection::NoQuota {
                team: spec.team.clone(),
                class: spec.class,
                asked,
                quota,
            });
        }
    }
    for id in teams.chain(team) {
        let Team { spec: of, .. } = teams.get(id);
        if let Some(limit) = of.limit.all.filter(|limit| asked > *limit) {
            return Err(Rejection::OverTeamLimit {
                team: of.name.clone(),
                of_type: String::new(),
                asked,
                limit,
            });
        }
        for role in &spec.roles {
            let of_type = role
                .shape
                .gpu_type
                .as_ref()
                .filter(|_| role.alternatives.is_empty());
            let limit = of_type.and_then(|name| of.limit.by_type.get(name));
            if let (Some(name), Some(limit)) = (of_type, limit)
                && role.shape.gpus > *limit
            {
                return Err(Rejection::OverTeamLimit {
                    team: of.name.clone(),
                    of_type: format!(" of type {name}"),
                    asked: role.shape.gpus,
                    limit: *limit,
                });
            }
        }
    }
    Ok(())
}

/// The name that is most like another: by the letters that they share at both ends.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let shared = |other: &str| {
        let front = name.chars().zip(other.chars());
        let front = front.take_while(|(one, two)| one == two).count();
        let back = name.chars().rev().zip(other.chars().rev());
        let back = back.take_while(|(one, two)| one == two).count();
        (front + back).min(other.len())
    };
    let (likeness, best) = names.map(|other| (shared(other), other)).max()?;
    (likeness * 2 >= name.len().max(best.len())).then(|| best.to_owned())
}

fn count(number: usize) -> u64 {
    u64::try_from(number).expect("a count fits")
}

/// Checks that the GPUs can be split at all, and returns the largest number of tasks.
fn splits(shape: &Shape) -> Result<u64, Rejection> {
    let Some(gpus) = shape.gpus.whole() else {
        let one_task = matches!(shape.tasks, Tasks::Fewest | Tasks::Exactly(1));
        if shape.gpus > GpuAmount::from_gpus(1) || !one_task {
            return Err(Rejection::FractionOfMany { gpus: shape.gpus });
        }
        return Ok(1);
    };
    match shape.tasks {
        // One process a GPU: another number of tasks contradicts it.
        Tasks::Exactly(tasks) if shape.processes == Processes::PerGpu && tasks != gpus => {
            let gpus = shape.gpus;
            Err(Rejection::UnevenSplit { gpus, tasks })
        }
        Tasks::Exactly(tasks) if tasks == 0 || !gpus.is_multiple_of(tasks) => {
            Err(Rejection::UnevenSplit {
                gpus: shape.gpus,
                tasks,
            })
        }
        Tasks::Exactly(tasks) => Ok(tasks.into()),
        Tasks::Fewest => Ok(u64::from(gpus).max(1)),
    }
}
