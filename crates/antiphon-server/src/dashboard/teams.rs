//! The teams: what each may hold, holds and has used, hour by hour.

use serde::Serialize;

use super::page::{Look, json};
use super::sheet::Rows;
use crate::api::model::TeamView;
use crate::api::teams;

const HOUR_MS: u64 = 3_600_000;

#[derive(Serialize)]
struct TeamRow<'a> {
    #[serde(rename = "is")]
    team: &'a TeamView,
    /// Its place in the list.
    place: usize,
    /// GPU-milliseconds of each hour of the last seven days, the newest first; the first hour is not over.
    hours: Vec<u64>,
    /// When the newest of these hours began.
    hour_ms: u64,
}

pub(super) fn rows(look: &Look<'_>) -> Rows {
    let state = look.shared.view.state();
    let at = look.shared.view.now().max(state.now());
    let hour_ms = at.as_millis() / HOUR_MS * HOUR_MS;
    let mut rows = Rows::new();
    for (place, team) in teams::teams(&state, at).iter().enumerate() {
        let hours = state.teams().hours(&team.name, at);
        let row = TeamRow {
            team,
            place,
            hours: hours.into_iter().map(|used| used.gpu_millis()).collect(),
            hour_ms,
        };
        rows.insert(format!("team/{}", team.name), json(&row));
    }
    rows
}
