//! Directives to running jobs: made here, handed out from the trainer's cursor.

use std::collections::BTreeSet;

use antiphon_types::{
    AttemptId, Directive, DirectiveBody, DirectiveCause, DirectiveId, DirectiveScope, Timestamp,
};

use crate::jobs::Job;

/// A new entry for a job's directive log, `ahead` entries after the next.
pub(crate) fn issue(
    job: &Job,
    body: DirectiveBody,
    reason: String,
    cause: DirectiveCause,
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
        cause,
        at,
        ack: None,
    }
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
