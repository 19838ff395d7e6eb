//! Directives to running jobs: entered into the job's log here, handed out from the trainer's cursor.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Action, AttemptId, Directive, DirectiveBody, DirectiveId, DirectiveScope, RuleMode,
    ShardEvidence, Timestamp,
};

use crate::decide::stop_begun;
use crate::jobs::{Job, JobState};
use crate::state::State;

/// A new entry for a job's directive log, `ahead` entries after the next.
pub(crate) fn issue(
    job: &Job,
    body: DirectiveBody,
    reason: String,
    at: Timestamp,
    ahead: u64,
) -> Directive {
    let attempt = match body.scope() {
        DirectiveScope::Data => None,
        DirectiveScope::Compute => job.state.active().map(|active| active.attempt),
    };
    let id = DirectiveId(job.directives_issued + 1 + ahead);
    Directive {
        id,
        body,
        attempt,
        reason,
        at,
        ack: None,
    }
}

/// Lowers the weight of shards with a finding against them, where the job allows it.
pub(crate) fn act_on_findings(state: &State, actions: &mut Vec<Action>) {
    let stopping = stop_begun(actions);
    for id in &state.index.findings {
        let job = &state.jobs[id];
        let JobState::Running { active } = &job.state else {
            continue;
        };
        let acts = job.spec.data.rules == RuleMode::Auto;
        if !acts || !active.attached || stopping.contains(id) {
            continue;
        }
        let unanswered = job
            .shards
            .iter()
            .filter(|(_, record)| record.directive.is_none());
        for (ahead, (shard, record)) in (0..).zip(unanswered) {
            let body = DirectiveBody::SetWeights {
                weights: BTreeMap::from([(shard.clone(), 0)]),
            };
            let directive = issue(job, body, in_words(&record.evidence), state.now, ahead);
            actions.push(Action::Direct {
                job: job.id,
                directive: Box::new(directive),
            });
        }
    }
}

fn in_words(evidence: &ShardEvidence) -> String {
    let nats = |milli: u64| format!("{}.{:02}", milli / 1_000, milli % 1_000 / 10);
    let fell = |milli: i64| {
        let sign = if milli < 0 { "-" } else { "" };
        format!("{sign}{}", nats(milli.unsigned_abs()))
    };
    format!(
        "noise: loss {} nat fell by {} while the other shards reach {} and fell by {} ({} samples, step {})",
        nats(evidence.loss_millinats),
        fell(evidence.fell_millinats),
        nats(evidence.others_loss_millinats),
        fell(evidence.others_fell_millinats),
        evidence.samples,
        evidence.step,
    )
}

/// The directives that a trainer at `cursor` (with `done` above it) still has to hear, in order. A data directive that was
/// acknowledged but lies above the cursor was undone by a rollback and is sent again.
#[must_use]
pub fn pending_directives<'a>(
    job: &'a Job,
    attempt: AttemptId,
    cursor: DirectiveId,
    done: &BTreeSet<DirectiveId>,
) -> Vec<&'a Directive> {
    let waits = |directive: &&Directive| {
        let unheard = directive.id > cursor && !done.contains(&directive.id);
        unheard
            && match directive.body.scope() {
                DirectiveScope::Data => true,
                DirectiveScope::Compute => {
                    directive.attempt == Some(attempt) && directive.ack.is_none()
                }
            }
    };
    job.directives.iter().filter(waits).collect()
}
