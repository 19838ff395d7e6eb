//! Teams as readers see them: what each may hold, what it holds, and what it has used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_kernel::{Standing, State as KernelState, Team, standing};
use antiphon_types::{Amounts, TeamSpec, Timestamp};
use axum::Json;
use axum::extract::State;

use super::Shared;
use super::model::{TeamList, TeamView};

/// What stands for all GPU types together.
const ALL_TYPES: &str = "*";

/// All teams: those that were set up, and those that jobs which have not ended name.
#[utoipa::path(get, path = "/v1/teams", responses((status = 200, body = TeamList)))]
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Json<TeamList> {
    let teams = teams(&shared.view.state(), shared.view.now());
    Json(TeamList { teams })
}

/// The teams as they were set up last.
pub(crate) fn specs(state: &KernelState) -> &[TeamSpec] {
    state.teams().specs()
}

/// The teams, in the order in which they were set up; behind them those that are known by their jobs alone.
pub(crate) fn teams(state: &KernelState, now: Timestamp) -> Vec<TeamView> {
    let now = now.max(state.now());
    let living = state.jobs().values().filter(|job| !job.state.is_ended());
    let with_jobs: BTreeSet<&str> = living.map(|job| job.spec.team.as_str()).collect();
    let set_up = || specs(state).iter().map(|spec| spec.name.as_str());
    let in_sight = |team: &&Team| {
        let used = team
            .accounts
            .values()
            .any(|account| !account.week(now).is_zero());
        used || with_jobs.contains(team.spec.name.as_str())
    };
    let others = state.teams().all().filter(in_sight);
    let others: BTreeSet<&str> = others.map(|team| team.spec.name.as_str()).collect();
    let others = others
        .into_iter()
        .filter(|name| set_up().all(|other| other != *name));
    let standing = standing(state);
    let named = set_up()
        .chain(others)
        .filter_map(|name| state.teams().named(name));
    named
        .map(|team| team_view(state, team, standing.get(team.spec.name.as_str()), now))
        .collect()
}

fn team_view(
    state: &KernelState,
    team: &Team,
    standing: Option<&Standing>,
    now: Timestamp,
) -> TeamView {
    let spec = &team.spec;
    let used = state.teams().week(&spec.name, now).into_iter();
    let used = used.filter(|(_, used)| !used.is_zero());
    let budget = spec.budget.iter();
    let debts = state.team_debts(&spec.name);
    let (borrowed, lent) = debts.unwrap_or_default();
    TeamView {
        name: spec.name.clone(),
        parent: spec.parent.clone(),
        weight: spec.weight,
        quota_thousandths: thousandths(&spec.quota),
        limit_thousandths: thousandths(&spec.limit),
        allocated_thousandths: state.team_holds(&spec.name).thousandths(),
        own_allocated_thousandths: team.allocated().thousandths(),
        used_gpu_ms: used
            .map(|(gpu_type, used)| (gpu_type, used.gpu_millis()))
            .collect(),
        budget_gpu_ms: budget
            .map(|(gpu_type, time)| (gpu_type.clone(), time.gpu_millis()))
            .collect(),
        budget_free_ms: state
            .teams()
            .free_again(&spec.name, now)
            .map(Timestamp::as_millis),
        borrowed_gpu_ms: borrowed.gpu_millis(),
        lent_gpu_ms: lent.gpu_millis(),
        share_place: standing.map_or(1, |standing| standing.place),
        share_gpu_ms: standing.map_or(0, |standing| standing.counted.gpu_millis()),
    }
}

fn thousandths(amounts: &Amounts) -> BTreeMap<String, u64> {
    let all = amounts.all.map(|all| (ALL_TYPES.to_owned(), all));
    let by_type = amounts.by_type.iter();
    all.into_iter()
        .chain(by_type.map(|(gpu_type, amount)| (gpu_type.clone(), *amount)))
        .map(|(gpu_type, amount)| (gpu_type, amount.thousandths()))
        .collect()
}
