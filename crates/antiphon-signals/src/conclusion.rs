//! What a rule says, before it is known whose run it is about.

use antiphon_types::{AttemptId, Diagnosis, Finding, Remedy, Rule, Verdict};

/// What a rule says of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// Which rule.
    pub rule: Rule,
    /// Of what: a shard, a category, `task 3`; empty for the run as a whole.
    pub subject: String,
    /// What it is.
    pub verdict: Verdict,
    /// The numbers behind it, on one line.
    pub evidence: String,
    /// The step at which the rule fired.
    pub step: u64,
    /// What would help, in this order.
    pub remedies: Vec<Remedy>,
}

impl Conclusion {
    /// The finding about an attempt.
    #[must_use]
    pub fn of(self, attempt: AttemptId) -> Finding {
        Finding::Diagnosis(Box::new(Diagnosis {
            attempt,
            rule: self.rule,
            subject: self.subject,
            verdict: self.verdict,
            evidence: self.evidence,
            step: self.step,
            remedies: self.remedies,
        }))
    }
}
