//! Directives to running jobs: made here, handed out from the trainer's cursor.

use std::collections::BTreeSet;

use antiphon_types::{
    AckBody, AttemptId, Directive, DirectiveBody, DirectiveCause, DirectiveId, DirectiveScope,
    Timestamp,
};

use crate::jobs::Job;
use crate::steering::Steering;

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

/// The slot before which a directive that is sent again is not to be carried out: the one at which it was before, so that a
/// run that went back repeats itself. What a rule found in the stretch that a rollback undoes is there to change it, and
/// holds at once.
#[must_use]
pub fn replay_slot(job: &Job, directive: &Directive) -> Option<u64> {
    slot_again(&job.directives, &job.steering, directive)
}

fn slot_again(all: &[Directive], steering: &Steering, directive: &Directive) -> Option<u64> {
    if directive.body.scope() != DirectiveScope::Data {
        return None;
    }
    let Some(AckBody::Applied { slot }) = directive.ack else {
        return None;
    };
    let found_at = match &directive.cause {
        DirectiveCause::Rule { rule, subject } => {
            let found = steering.finding(*rule, subject);
            found.map(|record| record.diagnosis.step)
        }
        DirectiveCause::Stop
        | DirectiveCause::Person
        | DirectiveCause::Undo { .. }
        | DirectiveCause::DataJob { .. } => None,
    };
    let corrects = found_at
        .zip(undone(all))
        .is_some_and(|(at, undone)| at > undone.step && slot <= undone.slot);
    (!corrects).then_some(slot)
}

/// What the newest rollback undoes: all after a step, up to a slot.
struct Undone {
    step: u64,
    slot: u64,
}

fn undone(all: &[Directive]) -> Option<Undone> {
    all.iter().rev().find_map(|directive| {
        let DirectiveBody::Rollback { step } = directive.body else {
            return None;
        };
        let slot = match directive.ack {
            // The trainer is on its way back.
            None => u64::MAX,
            Some(AckBody::Applied { slot }) => slot,
            Some(AckBody::Rejected { .. } | AckBody::Failed { .. } | AckBody::Expired) => {
                return None;
            }
        };
        Some(Undone { step, slot })
    })
}

#[cfg(test)]
mod tests {
    use antiphon_types::{Diagnosis, Rule, Verdict};

    use super::*;
    use crate::steering::{FindingRecord, FindingStage};

    fn entry(id: u64, body: DirectiveBody, cause: DirectiveCause, slot: u64) -> Directive {
        Directive {
            id: DirectiveId(id),
            body,
            attempt: None,
            reason: String::new(),
            cause,
            at: Timestamp::ZERO,
            ack: Some(AckBody::Applied { slot }),
        }
    }

    fn pause(id: u64, cause: DirectiveCause, slot: u64) -> Directive {
        let shard = "c".to_owned();
        entry(id, DirectiveBody::PauseShard { shard }, cause, slot)
    }

    /// A rule found something about shard c at step 300.
    fn steering() -> Steering {
        let diagnosis = Diagnosis {
            attempt: "job-1.1".parse().unwrap(),
            rule: Rule::Provenance,
            subject: "c".to_owned(),
            verdict: Verdict::Explosion,
            evidence: String::new(),
            step: 300,
            remedies: Vec::new(),
        };
        let record = FindingRecord::new(diagnosis, Timestamp::ZERO, FindingStage::Done);
        let mut steering = Steering::default();
        steering.enter(record);
        steering
    }

    fn found() -> DirectiveCause {
        DirectiveCause::Rule {
            rule: Rule::Provenance,
            subject: "c".to_owned(),
        }
    }

    fn back(ack: Option<AckBody>) -> Directive {
        let body = DirectiveBody::Rollback { step: 299 };
        Directive {
            ack,
            ..entry(1, body, found(), 0)
        }
    }

    #[test]
    fn what_was_carried_out_is_carried_out_at_the_same_slot_again() {
        let steering = steering();
        let by_person = pause(1, DirectiveCause::Person, 4_000);
        assert_eq!(slot_again(&[], &steering, &by_person), Some(4_000));
        let by_rule = pause(2, found(), 4_900);
        assert_eq!(slot_again(&[], &steering, &by_rule), Some(4_900));
        let new = Directive {
            ack: None,
            ..pause(3, found(), 0)
        };
        assert_eq!(slot_again(&[], &steering, &new), None);
        let went_back = [back(Some(AckBody::Applied { slot: 4_950 }))];
        assert_eq!(slot_again(&went_back, &steering, &by_person), Some(4_000));
    }

    /// Rows that are no numbers were found at step 300, their shard was paused at slot 4,900, and the run went back to before
    /// them: paused at 4,900 once more, they would be met once more.
    #[test]
    fn what_was_found_in_the_stretch_that_a_rollback_undoes_holds_at_once() {
        let steering = steering();
        let again = |ack, slot| slot_again(&[back(ack)], &steering, &pause(2, found(), slot));
        let applied = || Some(AckBody::Applied { slot: 4_950 });
        assert_eq!(again(applied(), 4_900), None);
        assert_eq!(again(None, 4_900), None);
        // Carried out on the new way, it is part of that way.
        assert_eq!(again(applied(), 4_960), Some(4_960));
        let reason = String::new();
        assert_eq!(
            again(Some(AckBody::Rejected { reason }), 4_900),
            Some(4_900)
        );
    }
}
