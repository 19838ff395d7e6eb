//! What the two-way loop knows of one job and has done for it: findings and how far each has come, data jobs, what its
//! trainer was granted. Plain data; `apply` alone changes it.

mod finding;

use std::collections::BTreeMap;

use antiphon_types::{
    AttemptId, DirectiveId, DirectiveScope, JobId, Millis, NodeName, Remedy, Rule, RuleMode, Shape,
    Timestamp,
};
use serde::{Deserialize, Serialize};

pub use self::finding::{FindingRecord, FindingStage, waits_for_approval};
pub(crate) use self::finding::{dies_with_attempt, may_be_asked};
use crate::jobs::Job;
use crate::state::Known;

/// Findings kept of one job: bounds its part of the state whatever its trainer reports.
const FINDINGS_MAX: usize = 512;

/// Data jobs kept of one job once their samples are in the stream, newest first.
const RUNS_KEPT_MAX: usize = 64;

pub(crate) const HOUR: Millis = Millis::from_secs(3_600);

/// The two-way loop's side of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Steering {
    /// What the rules found, by rule and subject.
    pub findings: BTreeMap<Rule, BTreeMap<String, FindingRecord>>,
    /// Data jobs that make more data for it, oldest first.
    pub runs: Vec<AugmentRun>,
    /// Data jobs started by each method so far.
    pub runs_by_method: BTreeMap<String, u32>,
    /// Nodes that it goes to only where it would have to wait otherwise.
    pub avoids: Vec<Avoided>,
    /// Until when its trainer has it protected from preemption.
    pub protected: Option<Timestamp>,
    /// The time limit that it was submitted with, once its trainer was granted more.
    pub time_limit_first: Option<Millis>,
    /// The shape that the first role's next attempt starts in, if its trainer asked for another.
    pub(crate) shape_asked: Option<Shape>,
    /// The first role's shapes as they were submitted, once its trainer was given one of them.
    pub(crate) shapes_first: Vec<Shape>,
    /// When rules sent directives, in the last hour.
    directed: Vec<Timestamp>,
    /// When its trainer was granted something, in the last hour.
    granted: Vec<Timestamp>,
    /// For how long it was granted protection, and when, in the last hour.
    protections: Vec<(Timestamp, Millis)>,
}

/// A node that a job was moved away from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Avoided {
    /// Which.
    pub node: NodeName,
    /// Until when.
    pub until: Timestamp,
}

/// A data job that makes more data for another job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AugmentRun {
    /// The data job.
    pub job: JobId,
    /// How it makes data, as the job file names it.
    pub method: String,
    /// The category that it makes data of.
    pub category: String,
    /// What the new shard is called.
    pub shard: String,
    /// Where its samples lie.
    pub path: String,
    /// How far it has come.
    pub stage: RunStage,
}

/// How far a data job has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStage {
    /// It has not ended.
    Running,
    /// Its samples are there; the trainer does not know of them.
    Made {
        /// The attempt that made them.
        attempt: AttemptId,
    },
    /// The trainer was told of its samples.
    Delivered {
        /// When.
        at: Timestamp,
    },
    /// It made none.
    Failed {
        /// When.
        at: Timestamp,
    },
}

/// How far a remedy may go for a job: what the job says, else its team and those that it is part of, else what is usual.
#[must_use]
pub fn mode(known: &Known, job: &Job, rule: Rule, remedy: &Remedy) -> RuleMode {
    let teams = known.teams.chain(job.team);
    let mut of_teams = teams.filter_map(|id| known.teams.get(id).spec.rules.get(&rule));
    let said = job.spec.rules.get(&rule).or_else(|| of_teams.next());
    said.copied().unwrap_or_else(|| remedy.default_mode())
}

impl Steering {
    /// Every finding.
    pub fn all(&self) -> impl Iterator<Item = &FindingRecord> {
        self.findings.values().flat_map(BTreeMap::values)
    }

    /// The finding of a rule about a subject.
    #[must_use]
    pub fn finding(&self, rule: Rule, subject: &str) -> Option<&FindingRecord> {
        self.findings.get(&rule)?.get(subject)
    }

    pub(crate) fn finding_mut(&mut self, rule: Rule, subject: &str) -> Option<&mut FindingRecord> {
        self.findings.get_mut(&rule)?.get_mut(subject)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut FindingRecord> {
        self.findings.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// Enters a finding that is new. Where there are too many, the oldest gives way that keeps nothing from being done.
    pub(crate) fn enter(&mut self, record: FindingRecord) {
        if self.all().count() >= FINDINGS_MAX {
            let settled = self.all().filter(|known| !known.undone);
            let oldest = settled
                .min_by_key(|known| known.at)
                .map(|known| &known.diagnosis);
            let Some((rule, subject)) = oldest.map(|known| (known.rule, known.subject.clone()))
            else {
                return;
            };
            if let Some(of_rule) = self.findings.get_mut(&rule) {
                of_rule.remove(&subject);
            }
        }
        let of_rule = self.findings.entry(record.diagnosis.rule).or_default();
        of_rule.insert(record.diagnosis.subject.clone(), record);
    }

    /// When something is next to be done for the job.
    pub(crate) fn due(&self, known: &Known, job: &Job) -> Option<Timestamp> {
        let made = |run: &&AugmentRun| matches!(run.stage, RunStage::Made { .. });
        let delivery = self.runs.iter().find(made).map(|_| Timestamp::ZERO);
        let findings = self.all().filter_map(|record| record.due(known, job));
        findings.chain(delivery).min()
    }

    /// Notes that a rule sent a directive.
    pub(crate) fn note_directed(&mut self, now: Timestamp) {
        self.directed.retain(|at| at.after(HOUR) > now);
        self.directed.push(now);
    }

    /// Directives that rules may still send now.
    pub(crate) fn budget(&self, known: &Known) -> u32 {
        let sent = self.directed.iter().filter(|at| at.after(HOUR) > known.now);
        let sent = u32::try_from(sent.count()).unwrap_or(u32::MAX);
        known
            .policy
            .rule_directives_per_hour_max
            .saturating_sub(sent)
    }

    /// From when on rules may send a directive; nothing where they have not sent many.
    fn budget_from(&self, known: &Known) -> Option<Timestamp> {
        let max = usize::try_from(known.policy.rule_directives_per_hour_max).unwrap_or(usize::MAX);
        let first = self.directed.len().checked_sub(max)?;
        self.directed.get(first).map(|at| at.after(HOUR))
    }

    /// Nodes that it is to stay away from.
    pub(crate) fn avoided(&self, now: Timestamp) -> impl Iterator<Item = &NodeName> {
        let avoided = self
            .avoids
            .iter()
            .filter(move |avoided| avoided.until > now);
        avoided.map(|avoided| &avoided.node)
    }

    /// How often its trainer was granted something in the last hour.
    pub(crate) fn grants(&self, now: Timestamp) -> usize {
        self.granted
            .iter()
            .filter(|at| at.after(HOUR) > now)
            .count()
    }

    pub(crate) fn note_granted(&mut self, now: Timestamp) {
        self.granted.retain(|at| at.after(HOUR) > now);
        self.granted.push(now);
    }

    /// For how long its trainer was granted protection in the last hour.
    pub(crate) fn protected_for(&self, now: Timestamp) -> Millis {
        let recent = self
            .protections
            .iter()
            .filter(|(at, _)| at.after(HOUR) > now);
        recent.fold(Millis::ZERO, |sum, (_, during)| sum + *during)
    }

    pub(crate) fn protect(&mut self, now: Timestamp, during: Millis) {
        self.protections.retain(|(at, _)| at.after(HOUR) > now);
        self.protections.push((now, during));
        self.protected = self.protected.max(Some(now.after(during)));
    }

    /// Notes a data job that was started.
    pub(crate) fn started(&mut self, run: AugmentRun) {
        *self.runs_by_method.entry(run.method.clone()).or_default() += 1;
        self.runs.push(run);
        let ended = |run: &AugmentRun| match run.stage {
            RunStage::Delivered { .. } | RunStage::Failed { .. } => true,
            RunStage::Running | RunStage::Made { .. } => false,
        };
        if self.runs.len() > RUNS_KEPT_MAX
            && let Some(oldest) = self.runs.iter().position(ended)
        {
            self.runs.remove(oldest);
        }
    }

    /// What a directive's answer means for the finding that led to it.
    pub(crate) fn answered(&mut self, id: DirectiveId, refused: Option<&str>) {
        let waits = FindingStage::Directed { directive: id };
        for record in self.all_mut().filter(|record| record.stage == waits) {
            record.stage = match refused {
                None => FindingStage::Done,
                Some(why) => FindingStage::Refused {
                    why: why.to_owned(),
                },
            };
        }
    }

    /// Forgets compute directives that nobody answered before their attempt ended.
    pub(crate) fn attempt_ended(&mut self) {
        for record in self.all_mut() {
            let died = match record.taken() {
                Some(Remedy::Direct(body)) => body.scope() == DirectiveScope::Compute,
                Some(
                    Remedy::Weigh { .. }
                    | Remedy::Replace { .. }
                    | Remedy::Restart
                    | Remedy::Augment { .. },
                )
                | None => false,
            };
            if died && matches!(record.stage, FindingStage::Directed { .. }) {
                record.stage = FindingStage::Told;
            }
        }
    }
}
