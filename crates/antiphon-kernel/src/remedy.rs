//! Which remedies are taken now: the first of each finding that may be and can be, within the budget. What its user or its
//! team has not allowed is only shown.

use antiphon_types::{
    Action, AttemptId, DirectiveBody, DirectiveCause, JobId, Remedy, StopCause, Timestamp,
};

use crate::admit::DIRECTIVES_MAX;
use crate::augment;
use crate::decide::stop_begun;
use crate::direct::issue;
use crate::jobs::{Active, Job, JobState};
use crate::relocate::{fits_elsewhere, node_of_rank};
use crate::state::State;
use crate::steering::{FindingRecord, FindingStage, RunStage, dies_with_attempt, may_be_asked};
use crate::stop;

/// Nodes that one job stays away from at once: bounds how often it is moved.
const AVOIDED_MAX: usize = 4;

/// Acts on findings; says whether a data job is to start.
pub(crate) fn act_on_findings(state: &State, actions: &mut Vec<Action>) -> bool {
    let stopping = stop_begun(actions);
    let mut again = false;
    let due = (Timestamp::ZERO, JobId(0))..=(state.now, JobId(u64::MAX));
    for (_, id) in state.index.findings.range(due) {
        let job = &state.jobs[id];
        let (JobState::Starting { active } | JobState::Running { active }) = &job.state else {
            continue;
        };
        if active.is_over() || job.requested.is_some() || stopping.contains(id) {
            continue;
        }
        let mut hand = Hand {
            state,
            job,
            active,
            ahead: 0,
            budget: job.steering.budget(state),
            actions,
        };
        again |= hand.treat();
    }
    again
}

/// What is done for one job in this cycle.
struct Hand<'a> {
    state: &'a State,
    job: &'a Job,
    active: &'a Active,
    /// Directives that this cycle has issued for it.
    ahead: u64,
    /// Those that rules may still send.
    budget: u32,
    actions: &'a mut Vec<Action>,
}

impl Hand<'_> {
    fn treat(&mut self) -> bool {
        self.deliver();
        let now = self.state.now;
        let due: Vec<&FindingRecord> = self
            .job
            .steering
            .all()
            .filter(|record| record.due(self.state, self.job).is_some_and(|at| at <= now))
            .collect();
        let mut starts = false;
        for record in due {
            let mut allowed = record.allowed(self.state, self.job);
            let Some((place, remedy)) = allowed.find(|(_, remedy)| self.can(record, remedy)) else {
                continue;
            };
            let ends = matches!(remedy, Remedy::Replace { .. } | Remedy::Restart);
            // A stop begins with a directive of its own.
            if ends && self.ahead > 0 {
                return true;
            }
            self.take(record, place, remedy);
            starts |= matches!(remedy, Remedy::Augment { .. });
            if ends || starts {
                // What else there is to do waits for that: two data jobs would have one number.
                return starts;
            }
        }
        starts
    }

    /// Whether the kernel can do it now.
    fn can(&self, record: &FindingRecord, remedy: &Remedy) -> bool {
        let current = record.diagnosis.attempt == self.active.attempt;
        if dies_with_attempt(remedy) && !current {
            return false;
        }
        let runs = matches!(self.job.state, JobState::Running { .. });
        match remedy {
            Remedy::Direct(body) => {
                let approved = record.stage == FindingStage::Approved;
                self.hears() && may_be_asked(body) && (approved || self.budget > 0)
            }
            Remedy::Weigh { .. } => true,
            Remedy::Replace { task } => runs && self.can_replace(*task),
            Remedy::Restart => runs,
            Remedy::Augment { of } => augment::plan(self.state, self.job, of).is_ok(),
        }
    }

    /// Whether a directive reaches the trainer.
    fn hears(&self) -> bool {
        let runs = matches!(self.job.state, JobState::Running { .. });
        let issued = self.job.directives_issued + self.ahead;
        runs && self.active.attached && issued < DIRECTIVES_MAX
    }

    fn can_replace(&self, task: u32) -> bool {
        let avoided = self.job.steering.avoided(self.state.now);
        let Some(node) = node_of_rank(self.job, self.active, task) else {
            return false;
        };
        avoided.count() < AVOIDED_MAX
            && fits_elsewhere(
                self.state,
                self.job,
                self.active,
                &self.job.spec,
                Some(node),
            )
    }

    fn take(&mut self, record: &FindingRecord, place: u32, remedy: &Remedy) {
        let (rule, subject) = (record.diagnosis.rule, &record.diagnosis.subject);
        self.actions.push(Action::Remedy {
            job: self.job.id,
            rule,
            subject: subject.clone(),
            remedy: place,
        });
        let cause = match remedy {
            Remedy::Direct(body) => {
                let cause = DirectiveCause::Rule {
                    rule,
                    subject: subject.clone(),
                };
                let diagnosis = &record.diagnosis;
                let reason = format!("{}: {}", diagnosis.verdict, diagnosis.evidence);
                self.budget = self.budget.saturating_sub(1);
                return self.direct(body.clone(), reason, cause);
            }
            Remedy::Weigh { .. } => return,
            Remedy::Augment { of } => {
                let planned = augment::plan(self.state, self.job, of);
                let (method, spec) = planned.expect("it was planned just now");
                return self.actions.push(Action::Augment {
                    job: self.job.id,
                    method,
                    of: of.clone(),
                    spec: Box::new(spec),
                });
            }
            Remedy::Replace { task } => {
                let node = node_of_rank(self.job, self.active, *task);
                let node = node.expect("it was found just now").clone();
                StopCause::Straggler { node }
            }
            Remedy::Restart => StopCause::Hang,
        };
        stop::begin(self.state, self.job, cause, self.actions);
    }

    /// Tells the trainer of samples that data jobs have made.
    fn deliver(&mut self) {
        for run in &self.job.steering.runs {
            let RunStage::Made { attempt } = run.stage else {
                continue;
            };
            if self.hears() {
                let body = DirectiveBody::AddSamples {
                    shard: run.shard.clone(),
                    category: run.category.clone(),
                    path: run.path.clone(),
                    weight: augment::WEIGHT,
                };
                let cause = DirectiveCause::DataJob { job: run.job };
                self.direct(body, made(attempt, &run.method, &run.category), cause);
            }
        }
    }

    fn direct(&mut self, body: DirectiveBody, reason: String, cause: DirectiveCause) {
        let directive = issue(self.job, body, reason, cause, self.state.now, self.ahead);
        self.ahead += 1;
        self.actions.push(Action::Direct {
            job: self.job.id,
            directive: Box::new(directive),
        });
    }
}

fn made(attempt: AttemptId, method: &str, category: &str) -> String {
    format!("`{method}` of {attempt} made samples of `{category}`")
}
