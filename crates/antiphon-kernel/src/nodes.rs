//! Which nodes are put aside: a failed check convicts a node alone, failures of one team's jobs never do, since they may
//! be that team's own.

use std::collections::BTreeSet;

use antiphon_types::Action;

use crate::state::{Node, State};

/// Puts aside the nodes that evidence convicts; says whether there was one.
pub(crate) fn put_aside(state: &State, actions: &mut Vec<Action>) -> bool {
    let before = actions.len();
    for id in &state.index.suspects {
        let node = state.node_at(*id);
        if node.drained.is_none()
            && let Some(evidence) = conviction(state, node)
        {
            actions.push(Action::PutAside {
                node: node.spec.name.clone(),
                evidence,
            });
        }
    }
    actions.len() > before
}

fn conviction(state: &State, node: &Node) -> Option<String> {
    let failures = || {
        node.failures
            .iter()
            .filter(|failure| failure.at.after(state.policy.suspicion_ms) > state.now)
    };
    if let Some(failure) = failures().find(|failure| failure.checked) {
        return Some(format!(
            "put aside: its check failed before {} could start",
            failure.job
        ));
    }
    let teams: BTreeSet<&str> = failures().map(|failure| failure.team.as_str()).collect();
    if teams.len() < 2 {
        return None;
    }
    let told: Vec<String> = failures()
        .map(|failure| format!("{} of `{}`", failure.job, failure.team))
        .collect();
    let what = if failures().any(|failure| failure.slow) {
        "hardware failures or slow tasks"
    } else {
        "hardware failures"
    };
    Some(format!(
        "put aside: {what} of jobs of {} teams within {}: {}",
        teams.len(),
        state.policy.suspicion_ms,
        told.join(", ")
    ))
}
