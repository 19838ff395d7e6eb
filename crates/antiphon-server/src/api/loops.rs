//! A person's side of the two-way loop: approve what a rule found, take a directive back, see where shards came from.

use std::sync::Arc;

use antiphon_kernel::Job;
use antiphon_types::{Command, DirectiveId, Rule};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};

use super::auth::Caller;
use super::jobs::{find_job, on_job, run};
use super::model::{ApprovalIn, CommandAccepted, ShardsView};
use super::problem::Fault;
use super::{Shared, origins};

/// Acts on a finding that waits for a person's word.
#[utoipa::path(post, path = "/v1/jobs/{job}/approve", request_body = ApprovalIn, responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn approve(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
    headers: HeaderMap,
    body: Result<Json<ApprovalIn>, JsonRejection>,
) -> Result<Json<CommandAccepted>, Fault> {
    let Json(given) = body?;
    let rule = rule_named(&given.rule)?;
    let command = {
        let state = shared.view.state();
        let job = find_job(&state, &caller, &job)?;
        let subject = given.subject.unwrap_or_else(|| only_subject(job, rule));
        Command::Approve {
            job: job.id,
            rule,
            subject,
        }
    };
    run(&shared, &caller, &headers, command).await
}

/// Takes back what a directive changed.
#[utoipa::path(post, path = "/v1/jobs/{job}/directives/{directive}/undo", responses((status = 200, body = CommandAccepted)))]
pub(crate) async fn undo(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path((job, directive)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<CommandAccepted>, Fault> {
    let Ok(number) = directive.trim_start_matches('#').parse() else {
        return Err(Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "AP0501",
            format!("`{directive}` is no directive"),
            "give its number, as `antiphon job JOB` shows it",
        ));
    };
    let directive = DirectiveId(number);
    on_job(&shared, &caller, &headers, &job, |job| Command::Undo {
        job,
        directive,
    })
    .await
}

/// Where a job's shards came from.
#[utoipa::path(get, path = "/v1/jobs/{job}/shards", responses((status = 200, body = ShardsView)))]
pub(crate) async fn shards(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<ShardsView>, Fault> {
    let state = shared.view.state();
    let job = find_job(&state, &caller, &job)?;
    Ok(Json(ShardsView {
        job: job.id.to_string(),
        shards: origins::shown(job),
    }))
}

fn rule_named(name: &str) -> Result<Rule, Fault> {
    let found = Rule::ALL.into_iter().find(|rule| rule.name() == name);
    found.ok_or_else(|| {
        let names = Rule::ALL.map(Rule::name).join(", ");
        Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "AP0501",
            format!("there is no rule `{name}`"),
            format!("there are: {names}"),
        )
    })
}

/// The subject of a rule's only finding that asks for something; the run as a whole where there are none or several.
fn only_subject(job: &Job, rule: Rule) -> String {
    let of_rule = job.steering.findings.get(&rule).into_iter().flatten();
    let mut open = of_rule.filter(|(_, record)| !record.diagnosis.remedies.is_empty());
    match (open.next(), open.next()) {
        (Some((subject, _)), None) => subject.clone(),
        _ => String::new(),
    }
}
