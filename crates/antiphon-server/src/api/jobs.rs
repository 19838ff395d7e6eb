//! Jobs: submit, look, ask why, and the commands on one.

use std::sync::{Arc, RwLockReadGuard};

use antiphon_kernel::{Job, JobState, State as KernelState, admit, explain, repeated};
use antiphon_types::{Class, Command, CommandId, Direct, JobId, Rejection};
use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;

use super::Shared;
use super::auth::{self, Caller, Role};
use super::model::{
    CheckReport, ClassBody, CommandAccepted, DirectiveBodyIn, JobDetail, JobPage, WhyView,
};
use super::problem::Fault;
use super::{given, gpu_types, observed, render, why as told_why};
use crate::jobfile::{self, Context, Made};
use crate::lessons::Site;

/// Jobs on one page, at most.
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Ended jobs too.
    #[serde(default)]
    all: bool,
    /// Only jobs in this state.
    state: Option<String>,
    /// Only members of the array with this first job.
    array: Option<String>,
    /// Only jobs of this team.
    team: Option<String>,
    /// Only jobs of this class.
    class: Option<String>,
    /// Only jobs whose id, name, user or team has this text in it, in letters of either case.
    q: Option<String>,
    /// Where the page before said to go on.
    cursor: Option<String>,
    /// Jobs on the page; default and most: 1,000.
    limit: Option<usize>,
}

/// Jobs in service order: running ones, the queue, held ones, then ended ones, newest first.
#[utoipa::path(get, path = "/v1/jobs", params(ListQuery), responses((status = 200, body = JobPage)))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<JobPage>, Fault> {
    let Query(query) = query?;
    let filter = Filter::new(query.state, query.array, query.team, query.class, query.q)?;
    // The list moves while it is paged: a place in it misses or repeats a job at worst, a job's own place may be gone.
    let start: usize = match query.cursor.as_deref().map(str::parse) {
        None => 0,
        Some(Ok(start)) => start,
        Some(Err(_)) => return Err(wrong_query("cursor", "use the `next` of the page before")),
    };
    let limit = query.limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    let state = shared.view.state();
    let wanted = |job: &&Job| caller.sees(&state, &job.spec.team) && filter.wants(job);
    let filtered = filter != Filter::default() || caller.role == Role::Member;
    let end = start.saturating_add(limit);
    // One more tells whether there is another page. A filter may pass over any number of jobs.
    let most = if filtered {
        usize::MAX
    } else {
        end.saturating_add(1)
    };
    let order: Vec<&Job> = in_order(&state, query.all, most)
        .into_iter()
        .filter(wanted)
        .collect();
    let page = order.get(start.min(order.len())..end.min(order.len()));
    let page = page.unwrap_or_default();
    let sight = render::Sight::of(&shared, &state);
    // Reasons are looked for only where they are shown.
    let reasons = explain::ruling(&state, page.iter().copied(), sight.now);
    let jobs = page.iter();
    let jobs = jobs.map(|job| render::summary(&sight, job, reasons.get(&job.id)));
    Ok(Json(JobPage {
        jobs: jobs.collect(),
        next: (end < order.len()).then(|| end.to_string()),
    }))
}

/// Which jobs somebody wants to see.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Filter {
    state: Option<String>,
    array: Option<JobId>,
    team: Option<String>,
    class: Option<Class>,
    /// In small letters.
    text: Option<String>,
}

impl Filter {
    /// As it is asked for; an empty text asks for nothing.
    pub(crate) fn new(
        state: Option<String>,
        array: Option<String>,
        team: Option<String>,
        class: Option<String>,
        text: Option<String>,
    ) -> Result<Self, Fault> {
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let state = said(state);
        let known = |name: &String| JobState::NAMES.contains(&name.as_str());
        if !state.as_ref().is_none_or(known) {
            let help = format!("there are: {}", JobState::NAMES.join(", "));
            return Err(wrong_query("state", &help));
        }
        let array = match array.as_deref().map(str::parse) {
            None => None,
            Some(Ok(first)) => Some(first),
            Some(Err(_)) => return Err(wrong_query("array", "give an array's first job: `job-7`")),
        };
        let class = said(class).map(|name| class_named(&name));
        Ok(Self {
            state,
            array,
            team: said(team),
            class: class.transpose()?,
            text: said(text).map(|text| text.to_lowercase()),
        })
    }

    pub(crate) fn wants(&self, job: &Job) -> bool {
        let spec = &job.spec;
        let has = |text: &String| {
            let has = |field: &str| field.to_lowercase().contains(text);
            has(&spec.name) || has(&spec.team) || has(&spec.user) || has(&job.id.to_string())
        };
        let member_of = |first| job.array.is_some_and(|member| member.first == first);
        self.state
            .as_deref()
            .is_none_or(|wanted| wanted == job.state.name())
            && self.array.is_none_or(member_of)
            && self.team.as_ref().is_none_or(|team| *team == spec.team)
            && self.class.is_none_or(|class| class == spec.class)
            && self.text.as_ref().is_none_or(has)
    }
}

/// The first jobs in service order: active ones, the queue, other living ones, then ended ones.
pub(crate) fn in_order(state: &KernelState, ended: bool, most: usize) -> Vec<&Job> {
    let mut order: Vec<&Job> = state.active_jobs().take(most).collect();
    let left = most - order.len();
    if left > 0 && state.queue_length() > 0 {
        let queue = explain::queue(state, left);
        order.extend(queue.into_iter().filter_map(|id| state.job(id)));
    }
    let listed = |job: &&Job| job.state.active().is_some() || state.is_queued(job.id);
    let others = state.jobs().values();
    let others = others.filter(|job| !listed(job) && !job.state.is_ended());
    order.extend(others.take(most - order.len()));
    if ended {
        let ended = state.jobs().values().rev();
        let ended = ended.filter(|job| job.state.is_ended());
        order.extend(ended.take(most - order.len()));
    }
    order
}

fn class_named(name: &str) -> Result<Class, Fault> {
    let found = Class::ALL.into_iter().find(|class| class.name() == name);
    found.ok_or_else(|| {
        let help = format!("there are: {}", Class::ALL.map(Class::name).join(", "));
        wrong_query("class", &help)
    })
}

fn wrong_query(parameter: &str, help: &str) -> Fault {
    let detail = format!("`{parameter}` cannot be read");
    Fault::new(StatusCode::BAD_REQUEST, "AP0501", detail, help)
}

/// Submits a job file given as JSON.
#[utoipa::path(post, path = "/v1/jobs", request_body = Object, responses((status = 201, body = CommandAccepted)))]
pub(crate) async fn submit(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    headers: HeaderMap,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<(StatusCode, Json<CommandAccepted>), Fault> {
    let Json(value) = body?;
    // A command that was carried out is answered as then, whatever has changed since.
    let id = command_id(&caller, &headers, &value);
    let first = match &id {
        Some(id) => repeated(&shared.view.state(), id)?,
        None => None,
    };
    if let Some(first) = first {
        let accepted = CommandAccepted {
            seq: first.seq.0,
            jobs: made(&shared, first.job),
            job: first.job.map(|job| job.to_string()),
            repeated: true,
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        return Ok((StatusCode::OK, Json(accepted)));
    }
    let Made {
        spec,
        warnings,
        notes,
    } = read(&shared, &caller, value)?;
    let subject = format!("job `{}`", spec.name);
    if let Some(backend) = shared.source.driven() {
        let looked = backend.preflight(&spec).await;
        looked.map_err(|error| Fault::from(error).about(&subject))?;
    }
    let command = Command::Submit {
        spec: Box::new(spec),
    };
    let mut accepted = run_as(&shared, &caller, id, command)
        .await
        .map_err(|fault| fault.about(&subject))?;
    accepted.warnings = warnings;
    accepted.notes = notes;
    accepted.jobs = made(
        &shared,
        accepted.job.as_deref().and_then(|id| id.parse().ok()),
    );
    Ok((StatusCode::CREATED, Json(accepted)))
}

/// How many jobs a submission made, of which this is the first.
fn made(shared: &Shared, first: Option<JobId>) -> u64 {
    let state = shared.view.state();
    let member = |job: &Job| job.array.is_some_and(|member| Some(member.first) == first);
    match first.and_then(|first| state.job(first)) {
        Some(job) if job.array.is_some() => {
            let others = state.jobs().after(job.id);
            1 + others.take_while(|job| member(job)).count() as u64
        }
        Some(_) | None => 1,
    }
}

/// Says what a job file would do if it were submitted now; submits nothing.
#[utoipa::path(post, path = "/v1/check", request_body = Object, responses((status = 200, body = CheckReport)))]
pub(crate) async fn check(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    body: Result<Json<Value>, JsonRejection>,
) -> Result<Json<CheckReport>, Fault> {
    let Json(value) = body?;
    let Made {
        spec,
        warnings,
        notes,
    } = read(&shared, &caller, value)?;
    let subject = format!("job `{}`", spec.name);
    if let Some(backend) = shared.source.driven() {
        let looked = backend.preflight(&spec).await;
        looked.map_err(|error| Fault::from(error).about(&subject))?;
    }
    let correct = shared.forecasts.corrects();
    let report = move |state: KernelState| {
        let command = Command::Submit {
            spec: Box::new(spec.clone()),
        };
        admit(&state, &command)?;
        let mut report = told_why::check(&state, &spec, warnings, correct);
        report.sentences.extend(notes);
        Ok(report)
    };
    let report: Result<CheckReport, Rejection> = shared.forecasts.ask(&shared.view, report).await?;
    report
        .map(Json)
        .map_err(|rejection| Fault::from(rejection).about(&subject))
}

fn read(shared: &Shared, caller: &Caller, value: Value) -> Result<Made, Fault> {
    let file = jobfile::from_value(value)?;
    let state = shared.view.state();
    let team = file.team.as_deref().unwrap_or("default").to_owned();
    if !caller.sees(&state, &team) {
        return Err(auth::not_of_team(caller, &team));
    }
    let seen = |id: &JobId| {
        let job = state.job(*id);
        job.is_some_and(|job| caller.sees(&state, &job.spec.team))
    };
    let find = |name: &str| {
        let by_id = name.parse::<JobId>().ok().filter(seen);
        match by_id.or_else(|| newest_named(&state, &team, name)) {
            Some(job) => vec![job],
            None => members_of(&state, &team, name),
        }
    };
    let mut made = jobfile::to_spec(
        &file,
        &Context {
            user: &caller.name,
            now: shared.view.now(),
            find: &find,
            site: &|| Site::of(&state),
        },
    )?;
    gpu_types::resolve(&state, &mut made.spec);
    Ok(made)
}

fn newest_named(state: &KernelState, team: &str, name: &str) -> Option<JobId> {
    let living = state.job_named(team, name).map(|job| job.id);
    let same = |job: &&Job| job.spec.team == team && job.spec.name == name;
    living.or_else(|| state.jobs().values().rev().find(same).map(|job| job.id))
}

/// The members of a team's newest array of this name.
fn members_of(state: &KernelState, team: &str, name: &str) -> Vec<JobId> {
    let same = |job: &&Job| job.spec.team == team && array_of(job) == Some(name);
    let first = state.jobs().values().rev().find(same).map(|job| job.id);
    let Some(first) = first else {
        return Vec::new();
    };
    let others = state.jobs().after(first);
    let others = others.take_while(|job| job.array.is_some_and(|member| member.first == first));
    std::iter::once(first)
        .chain(others.map(|job| job.id))
        .collect()
}

/// The name under which a member's array was submitted.
fn array_of(job: &Job) -> Option<&str> {
    let _ = job.array.filter(|member| member.first == job.id)?;
    job.spec.name.rsplit_once('[').map(|(name, _)| name)
}

/// Finds a job by its id or its name, among those that the caller may see: to them there are no others.
pub(crate) fn find_job<'a>(
    state: &'a KernelState,
    caller: &Caller,
    text: &str,
) -> Result<&'a Job, Fault> {
    let seen = |job: &&Job| caller.sees(state, &job.spec.team);
    if let Ok(id) = text.parse::<JobId>() {
        let newest = state.newest_job();
        return state
            .job(id)
            .filter(seen)
            .ok_or_else(|| Rejection::UnknownJob { job: id, newest }.into());
    }
    // An array's own name stands for its first member, and another scheduler's id for the job that was seen under it.
    let named = |job: &&Job| {
        let name = &job.spec.name;
        let is = name == text || array_of(job) == Some(text) || observed::is_key(name, text);
        is && seen(job)
    };
    let living = state
        .jobs()
        .values()
        .rev()
        .find(|job| named(job) && !job.state.is_ended());
    living
        .or_else(|| state.jobs().values().rev().find(named))
        .ok_or_else(|| {
            let names = state.jobs().values().filter(seen);
            let names = names.map(|job| job.spec.name.as_str());
            let nearest = names
                .map(|name| (strsim::damerau_levenshtein(text, name), name))
                .min();
            let help = nearest
                .filter(|(distance, _)| *distance <= 3 && *distance < text.chars().count())
                .map_or_else(
                    || "`antiphon jobs --all` lists the jobs there are".to_owned(),
                    |(_, name)| {
                        format!(
                            "did you mean `{name}`? `antiphon jobs --all` lists the jobs there are"
                        )
                    },
                );
            Fault::new(
                StatusCode::NOT_FOUND,
                "AP0101",
                format!("there is no job `{text}`"),
                help,
            )
        })
}

/// Everything about a job.
#[utoipa::path(get, path = "/v1/jobs/{job}", responses((status = 200, body = JobDetail)))]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<JobDetail>, Fault> {
    let state = shared.view.state();
    let job = find_job(&state, &caller, &job)?;
    Ok(Json(render::detail(
        &render::Sight::of(&shared, &state),
        job,
    )))
}

/// Why a job waits, runs where it runs, or ended.
#[utoipa::path(get, path = "/v1/jobs/{job}/why", responses((status = 200, body = WhyView)))]
pub(crate) async fn why(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<WhyView>, Fault> {
    let forecast = shared.forecasts.latest();
    let id = {
        let state = shared.view.state();
        let job = find_job(&state, &caller, &job)?;
        let waits = matches!(job.state, JobState::Pending { .. } | JobState::Held { .. });
        if !waits {
            let now = shared.view.now().max(state.now());
            let mut told = told_why::why(&state, job, now, forecast.as_deref());
            if let JobState::Starting { active } = &job.state
                && let Some(backend) = shared.source.driven()
                && let Some(reason) = backend.waits(active.attempt)
            {
                let backend = backend.name();
                told.sentences
                    .push(format!("{backend} has not started it: {reason}"));
            }
            observed::add(&shared, &state, job, now, &mut told);
            return Ok(Json(told));
        }
        job.id
    };
    // What would start it is tried on a copy.
    let beside = shared.clone();
    let told = move |state: KernelState| {
        let job = find_job(&state, &caller, &id.to_string())?;
        let mut told = told_why::why(&state, job, state.now(), forecast.as_deref());
        observed::add(&beside, &state, job, state.now(), &mut told);
        Ok(told)
    };
    let told: Result<WhyView, Fault> = shared.forecasts.ask(&shared.view, told).await?;
    told.map(Json)
}

/// Ends a job for good.
#[utoipa::path(post, path = "/v1/jobs/{job}/cancel", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn cancel(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    on_job(&shared, &caller, &headers, &job, |job| Command::Cancel {
        job,
    })
    .await
}

/// Keeps a job from running; a running one saves a checkpoint and stops first.
#[utoipa::path(post, path = "/v1/jobs/{job}/hold", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn hold(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    on_job(&shared, &caller, &headers, &job, |job| Command::Hold {
        job,
    })
    .await
}

/// Lets a held job run again.
#[utoipa::path(post, path = "/v1/jobs/{job}/release", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn release(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    on_job(&shared, &caller, &headers, &job, |job| Command::Release {
        job,
    })
    .await
}

/// Makes a running job save a checkpoint and go back to its place in the queue.
#[utoipa::path(post, path = "/v1/jobs/{job}/preempt", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn preempt(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    on_job(&shared, &caller, &headers, &job, |job| Command::Preempt {
        job,
    })
    .await
}

/// Gives a job that waits another class. One that runs keeps its own until it waits again.
#[utoipa::path(post, path = "/v1/jobs/{job}/class", request_body = ClassBody, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn set_class(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
    body: Result<Json<ClassBody>, JsonRejection>,
) -> Result<Json<CommandAccepted>, Fault> {
    let Json(ClassBody { class }) = body?;
    let class = class_named(&class)?;
    on_job(&shared, &caller, &headers, &job, |job| Command::SetClass {
        job,
        class,
    })
    .await
}

/// Sends a directive to a job's trainer.
#[utoipa::path(post, path = "/v1/jobs/{job}/directives", request_body = DirectiveBodyIn, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn direct(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
    body: Result<Json<DirectiveBodyIn>, JsonRejection>,
) -> Result<Json<CommandAccepted>, Fault> {
    let Json(given) = body?;
    let reason = if given.reason.is_empty() {
        format!("asked by {}", caller.name)
    } else {
        given.reason.clone()
    };
    let body = given::directive(given)?;
    on_job(&shared, &caller, &headers, &job, |job| {
        Command::Direct(Direct { job, body, reason })
    })
    .await
}

pub(crate) async fn on_job(
    shared: &Arc<Shared>,
    caller: &Caller,
    headers: &HeaderMap,
    job: &str,
    command: impl FnOnce(JobId) -> Command,
) -> Result<Json<CommandAccepted>, Fault> {
    let id = {
        let state: RwLockReadGuard<'_, KernelState> = shared.view.state();
        find_job(&state, caller, job)?.id
    };
    run(shared, caller, headers, command(id)).await
}

/// Runs a command under the client's idempotency key, if it gave one.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    caller: &Caller,
    headers: &HeaderMap,
    command: Command,
) -> Result<Json<CommandAccepted>, Fault> {
    let id = command_id(caller, headers, &command);
    run_as(shared, caller, id, command).await.map(Json)
}

async fn run_as(
    shared: &Arc<Shared>,
    caller: &Caller,
    id: Option<CommandId>,
    command: Command,
) -> Result<CommandAccepted, Fault> {
    let accepted = shared
        .inputs
        .command(caller.name.to_string(), id, command)
        .await?;
    Ok(CommandAccepted {
        seq: accepted.seq.0,
        job: accepted.job.map(|job| job.to_string()),
        jobs: 0,
        repeated: accepted.repeated,
        warnings: Vec::new(),
        notes: Vec::new(),
    })
}

/// The client's key, bound to who sent it and to what it was sent with: two people may choose the same.
fn command_id(caller: &Caller, headers: &HeaderMap, content: &impl Serialize) -> Option<CommandId> {
    let key = headers.get("idempotency-key")?.to_str().ok()?;
    let content = serde_json::to_vec(content).ok()?;
    (!key.is_empty() && key.len() <= 200).then(|| CommandId {
        key: format!("{}/{key}", caller.name),
        content: blake3::hash(&content).to_hex()[..16].to_owned(),
    })
}
