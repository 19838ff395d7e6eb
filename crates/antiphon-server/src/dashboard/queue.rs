//! A window on the jobs in service order, with the reason of each that waits and what it costs to stop each that runs.

use std::collections::BTreeMap;

use antiphon_kernel::{Job, explain};
use serde::Serialize;
use serde_json::Value;

use super::page::{Look, json};
use super::sheet::Rows;
use crate::api::jobs::{Filter, in_order};
use crate::api::model::JobSummary;
use crate::api::render::{self, Sight};

/// Which jobs are looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    pub(super) filter: Filter,
    /// Ended jobs too.
    pub(super) all: bool,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// What there is besides the window.
#[derive(Serialize)]
struct Found<'a> {
    /// Jobs that the filter lets pass.
    total: usize,
    offset: usize,
    limit: usize,
    /// Of those, by state.
    states: BTreeMap<&'a str, u64>,
    /// The window, in service order.
    order: Vec<String>,
}

pub(super) fn rows(look: &Look<'_>, window: &Window) -> Rows {
    let shared = look.shared;
    let state = shared.view.state();
    let mut jobs = in_order(&state, window.all, usize::MAX);
    jobs.retain(|job| look.caller.sees(&state, &job.spec.team) && window.filter.wants(job));
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    for job in &jobs {
        *states.entry(job.state.name()).or_default() += 1;
    }
    let first = window.offset.min(jobs.len());
    let behind = first.saturating_add(window.limit).min(jobs.len());
    let shown: &[&Job] = &jobs[first..behind];
    let mut rows = Rows::new();
    let found = Found {
        total: jobs.len(),
        offset: window.offset,
        limit: window.limit,
        states,
        order: shown.iter().map(|job| job.id.to_string()).collect(),
    };
    rows.insert("found".into(), json(&found));
    let sight = Sight::of(shared, &state);
    let reasons = explain::ruling(&state, shown.iter().copied(), sight.now);
    for job in shown {
        let summary = render::summary(&sight, job, reasons.get(&job.id));
        let mut row = steady(&summary, sight.now.as_millis());
        let cost = render::cost_of_stopping(&state, job, sight.now);
        row["cost_of_stopping"] = serde_json::to_value(cost).unwrap_or_default();
        rows.insert(format!("job/{}", job.id), row.to_string());
    }
    rows
}

/// A job in one line, with times in place of spans: a row that says nothing new is not sent again.
pub(super) fn steady(summary: &JobSummary, now_ms: u64) -> Value {
    let mut row = serde_json::to_value(summary).expect("what is shown is plain data");
    let ends_ms = summary
        .ends_in_ms
        .map(|left| (now_ms + left) / 1_000 * 1_000);
    let made_ms = summary
        .start
        .as_ref()
        .map(|start| now_ms - start.age_ms.min(now_ms));
    if let Some(row) = row.as_object_mut() {
        row.remove("ends_in_ms");
        row.insert("ends_ms".into(), ends_ms.into());
        if let Some(start) = row.get_mut("start").and_then(Value::as_object_mut) {
            start.remove("age_ms");
            start.insert(
                "made_ms".into(),
                made_ms.map(|ms| ms / 1_000 * 1_000).into(),
            );
        }
    }
    row
}
