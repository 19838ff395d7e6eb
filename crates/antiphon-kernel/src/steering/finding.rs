//! A finding, how far it has come, and what may be done about it now: by mode, cool-down and budget. Does nothing itself.

use antiphon_types::{
    Diagnosis, DirectiveBody, DirectiveId, DirectiveScope, JobId, Remedy, RuleMode, Timestamp,
    Verdict,
};
use serde::{Deserialize, Serialize};

use super::mode;
use crate::augment;
use crate::jobs::Job;
use crate::state::Known;

/// A finding and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FindingRecord {
    /// What the rule says.
    pub diagnosis: Diagnosis,
    /// When it said so last.
    pub at: Timestamp,
    /// How far it has come.
    pub stage: FindingStage,
    /// The remedy that was taken, by place.
    pub acted: Option<u32>,
    /// When one was taken last, of this finding or of one that it took the place of.
    pub acted_at: Option<Timestamp>,
    /// Whether a person has taken back what was done: then the rule asks for nothing here until a person approves.
    pub undone: bool,
}

/// How far a finding has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingStage {
    /// It is known.
    Told,
    /// A person wants it acted on.
    Approved,
    /// A directive waits for the trainer's answer.
    Directed {
        /// Which.
        directive: DirectiveId,
    },
    /// A data job is under way.
    Started {
        /// Which.
        job: JobId,
    },
    /// What it asked for has been done.
    Done,
    /// The trainer, or the data job, could not.
    Refused {
        /// Why.
        why: String,
    },
    /// The rule has taken it back.
    Cleared,
}

/// Whether a finding waits for a person's word.
#[must_use]
pub fn waits_for_approval(known: &Known, job: &Job, record: &FindingRecord) -> bool {
    let waits = |remedy| mode(known, job, record.diagnosis.rule, remedy) == RuleMode::Approve;
    record.stage == FindingStage::Told
        && !record.undone
        && record.diagnosis.remedies.iter().any(waits)
}

impl FindingRecord {
    pub(crate) const fn new(diagnosis: Diagnosis, at: Timestamp, stage: FindingStage) -> Self {
        Self {
            diagnosis,
            at,
            stage,
            acted: None,
            acted_at: None,
            undone: false,
        }
    }

    /// The remedies that may be taken of it, in their order.
    pub(crate) fn allowed<'a>(
        &'a self,
        known: &'a Known,
        job: &'a Job,
    ) -> impl Iterator<Item = (u32, &'a Remedy)> {
        let approved = self.stage == FindingStage::Approved;
        let open = approved || self.stage == FindingStage::Told && !self.undone;
        let rule = self.diagnosis.rule;
        let remedies = (0..).zip(&self.diagnosis.remedies);
        remedies.filter(move |(place, remedy)| {
            open && self.acted != Some(*place)
                && (approved || mode(known, job, rule, remedy) == RuleMode::Auto)
        })
    }

    /// From when on something may be done about it; nothing where nothing is to be done. What a person wants is done at once.
    pub(crate) fn due(&self, known: &Known, job: &Job) -> Option<Timestamp> {
        self.allowed(known, job).next()?;
        if self.stage == FindingStage::Approved {
            return Some(self.at);
        }
        let cool = self
            .acted_at
            .map(|at| at.after(known.policy.rule_cool_down_ms));
        let mut allowed = self.allowed(known, job);
        let bounded = allowed.all(|(_, remedy)| matches!(remedy, Remedy::Direct(_)));
        if bounded && known.policy.rule_directives_per_hour_max == 0 {
            return None;
        }
        let budget = job.steering.budget_from(known).filter(|_| bounded);
        let data = self.allowed(known, job).map(|(_, remedy)| match remedy {
            Remedy::Augment { of } => augment::may_start(job, of),
            Remedy::Direct(_) | Remedy::Weigh { .. } | Remedy::Replace { .. } | Remedy::Restart => {
                Timestamp::ZERO
            }
        });
        let waits = [cool, budget, data.min()].into_iter().flatten().max();
        Some(self.at.max(waits.unwrap_or_default()))
    }

    /// Takes a newer word of the rule in. What it repeats is not done again, unless that died with its attempt or has come
    /// to its end without helping.
    pub(crate) fn renew(&mut self, diagnosis: &Diagnosis, at: Timestamp) {
        let again = match self.taken() {
            None | Some(Remedy::Weigh { .. }) => false,
            Some(Remedy::Direct(body)) => {
                body.scope() == DirectiveScope::Compute
                    && diagnosis.attempt != self.diagnosis.attempt
            }
            Some(Remedy::Replace { .. } | Remedy::Restart) => {
                diagnosis.attempt != self.diagnosis.attempt
            }
            Some(Remedy::Augment { .. }) => match self.stage {
                FindingStage::Directed { .. } | FindingStage::Started { .. } => false,
                FindingStage::Told
                | FindingStage::Approved
                | FindingStage::Done
                | FindingStage::Refused { .. }
                | FindingStage::Cleared => true,
            },
        };
        if again || !self.says(diagnosis) {
            self.acted = None;
            self.stage = if diagnosis.verdict == Verdict::Cleared {
                FindingStage::Cleared
            } else {
                FindingStage::Told
            };
        }
        self.diagnosis = diagnosis.clone();
        self.at = at;
    }

    /// Whether it says the same as before, with whatever numbers.
    pub(crate) fn says(&self, diagnosis: &Diagnosis) -> bool {
        self.diagnosis.verdict == diagnosis.verdict && self.diagnosis.remedies == diagnosis.remedies
    }

    /// The remedy that was taken.
    pub(crate) fn taken(&self) -> Option<&Remedy> {
        let place = usize::try_from(self.acted?).expect("few remedies");
        self.diagnosis.remedies.get(place)
    }
}

/// Whether a remedy is for the attempt alone that it was found on.
pub(crate) const fn dies_with_attempt(remedy: &Remedy) -> bool {
    match remedy {
        Remedy::Direct(body) => matches!(body.scope(), DirectiveScope::Compute),
        Remedy::Replace { .. } | Remedy::Restart => true,
        Remedy::Weigh { .. } | Remedy::Augment { .. } => false,
    }
}

/// Whether a rule may ask for it: `yield` is the kernel's own way to begin a stop.
pub(crate) const fn may_be_asked(body: &DirectiveBody) -> bool {
    !matches!(body, DirectiveBody::Yield)
}
