//! The first page: is all well, who waits, what do the GPUs do, and what was done in the last hour.

use std::collections::BTreeMap;

use antiphon_kernel::{Mode, State};
use antiphon_types::Class;
use serde::Serialize;

use super::history;
use super::page::{Look, json};
use super::sheet::Rows;
use super::{gpus, story};
use crate::api::model::ProposalView;
use crate::api::observed;
use crate::devices::TypeReading;

const HOUR_MS: u64 = 3_600_000;
/// What happened lately, at most.
const HAPPENINGS_MAX: usize = 60;
/// Jobs of each kind that antiphon would start or stop, at most.
const PROPOSED_MAX: usize = 40;
/// What changes with every look at the queue, or is told by what follows from it.
const MINOR: [&str; 3] = ["reserve", "unreserve", "remedy"];

#[derive(Serialize)]
struct Status<'a> {
    mode: &'a str,
    reason: Option<&'a str>,
    version: &'a str,
    backend: &'a str,
    gpus_virtual: bool,
}

/// What the GPUs measure of themselves, together.
#[derive(Serialize)]
struct Devices {
    /// GPUs that say how busy they are.
    measured: u32,
    mean_percent: u32,
    /// GPUs whose clocks are held down by heat or power.
    held_down: u32,
}

pub(super) fn rows(look: &Look<'_>) -> Rows {
    let shared = look.shared;
    let mut rows = Rows::new();
    {
        let state = shared.view.state();
        let (mode, reason) = match state.mode() {
            Mode::Deciding => ("deciding", None),
            Mode::Paused { reason } => ("paused", Some(reason.as_str())),
            Mode::Safe { bug } => ("safe", Some(bug.as_str())),
        };
        let status = Status {
            mode,
            reason,
            version: env!("CARGO_PKG_VERSION"),
            backend: shared.source.name(),
            gpus_virtual: shared.gpus_virtual,
        };
        rows.insert("status".into(), json(&status));
        for (gpu_type, count) in gpus::by_type(&state) {
            rows.insert(format!("gpus/{gpu_type}"), json(&count));
        }
        let devices = shared.devices.by_type(&state).into_values();
        let devices = devices.fold(TypeReading::default(), TypeReading::with);
        if devices.measured > 0 {
            rows.insert(
                "devices".into(),
                json(&Devices {
                    measured: devices.measured,
                    mean_percent: devices.percent / devices.measured,
                    held_down: devices.throttled,
                }),
            );
        }
        jobs(&state, &mut rows);
        if let Some(seen) = shared.observed() {
            let mut proposal = observed::proposed(seen, &state, look.caller);
            shorten(&mut proposal);
            rows.insert("proposal".into(), json(&proposal));
        }
    }
    for sample in shared.dashboard.history.samples() {
        add_sample(&mut rows, sample);
    }
    let since = shared.view.now().as_millis().saturating_sub(HOUR_MS);
    let state = shared.view.state();
    shared.dashboard.story.since(since, |hour, kept_since| {
        let seen = hour.iter().copied();
        let seen: Vec<_> = seen
            .filter(|told| told.is_for(look.caller, &state))
            .collect();
        rows.insert("hour".into(), json(&story::summed_up(&seen, kept_since)));
        let telling = seen.iter().rev().filter(|told| !MINOR.contains(&told.kind));
        for told in telling.take(HAPPENINGS_MAX) {
            rows.insert(told.key(), json(told));
        }
    });
    drop(state);
    rows
}

/// A page names the first of what antiphon would do; the rest is in the API.
fn shorten(proposal: &mut ProposalView) {
    proposal.starts.truncate(PROPOSED_MAX);
    proposal.stops.truncate(PROPOSED_MAX);
    proposal.order.clear();
}

/// Jobs by class and state; those that have ended by state alone.
fn jobs(state: &State, rows: &mut Rows) {
    let mut classes: BTreeMap<Class, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut ended: BTreeMap<&str, u64> = BTreeMap::new();
    for job in state.jobs().values() {
        let counts = if job.state.is_ended() {
            &mut ended
        } else {
            classes.entry(job.spec.class).or_default()
        };
        *counts.entry(job.state.name()).or_default() += 1;
    }
    for class in Class::ALL {
        let counts = classes.remove(&class).unwrap_or_default();
        rows.insert(format!("class/{}", class.name()), json(&counts));
    }
    rows.insert("ended".into(), json(&ended));
}

fn add_sample(rows: &mut Rows, sample: history::Sample) {
    let gpus = sample.gpus;
    let [busy, held, idle, drained, down] =
        [gpus.busy, gpus.held, gpus.idle, gpus.drained, gpus.down];
    let values = (
        sample.at_ms,
        busy,
        held,
        idle,
        drained,
        down,
        sample.waiting,
        sample.running,
    );
    rows.insert(format!("sample/{}", sample.at_ms), json(&values));
}
