//! The hang rule: no step for too long while the sender lives means that the processes wait for something that never comes.
//!
//! Too long is max(10 x median step, 10 min), where the job does not set the 10 min itself; before the first step, 30 min
//! from the first signal: models load and kernels compile meanwhile. Only time in which the sender was heard counts. A sender that is silent for more than a
//! minute stops the clock, as a lost connection says nothing about the run; so does a checkpoint being saved, for up to
//! an hour. Times are those at which signals came.
//!
//! Shortly before it speaks, it asks the senders for the stacks of their processes: a restart would take them away.

use std::collections::{BTreeSet, VecDeque};

use antiphon_types::{AttemptId, Millis, Remedy, Rule, Timestamp, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::median;

/// Step times remembered.
const STEPS: usize = 64;
/// Median steps without a new one.
const STEPS_MISSED: f64 = 10.0;
/// At the least: an evaluation or a slow file system takes minutes too.
const WAIT_MIN: Millis = Millis::from_secs(600);
/// Before the first step.
const FIRST_STEP_WAIT: Millis = Millis::from_secs(1_800);
/// A sender that was heard this recently lives.
const SENDER_LIVES: Millis = Millis::from_secs(60);
/// So long before a hang is told its stacks are asked for: a sender that has nothing to say is heard every five seconds.
const STACKS_LEAD: Millis = Millis::from_secs(10);
/// Tasks of which it is remembered: bounds memory whatever is sent.
const STACKS_MAX: usize = 1_024;
/// A save that takes longer than this does not stop the clock any more: it may be what hangs.
const SAVE_MAX: Millis = Millis::from_secs(3_600);

/// The hang rule of one attempt.
#[derive(Debug)]
pub(crate) struct HangRule {
    wait_min: Millis,
    step_ms: VecDeque<f64>,
    step: Option<u64>,
    /// When the sender was last heard.
    heard: Option<Timestamp>,
    /// When the clock last stood at zero, moved ahead by every span that does not count.
    since: Timestamp,
    saving: Option<Timestamp>,
    told: bool,
    /// Tasks whose stacks are in the output since the last step.
    stacks: BTreeSet<u32>,
}

impl HangRule {
    /// The rule with the least time that the job sets for itself.
    pub(crate) fn new(wait_min: Option<Millis>) -> Self {
        Self {
            wait_min: wait_min.unwrap_or(WAIT_MIN),
            step_ms: VecDeque::new(),
            step: None,
            heard: None,
            since: Timestamp::default(),
            saving: None,
            told: false,
            stacks: BTreeSet::new(),
        }
    }

    /// A batch of signals came, whatever is in it. Call it first for each batch.
    pub(crate) fn heard(&mut self, at: Timestamp) {
        match self.heard {
            None => self.since = at,
            Some(last) if at.since(last) > SENDER_LIVES => self.skip(at.since(last), at),
            Some(_) => {}
        }
        self.heard = Some(at.max(self.heard.unwrap_or_default()));
    }

    /// Takes a step in: its number and, where known, its time in milliseconds. A step after a hang clears it.
    pub(crate) fn observe(
        &mut self,
        step: u64,
        step_ms: Option<f64>,
        at: Timestamp,
    ) -> Option<Conclusion> {
        if let Some(ms) = step_ms.filter(|ms| ms.is_finite() && *ms > 0.0) {
            if self.step_ms.len() == STEPS {
                self.step_ms.pop_front();
            }
            self.step_ms.push_back(ms);
        }
        if self.step == Some(step) {
            return None;
        }
        // A lower number is a rollback, and that is no hang either.
        let waited = at.since(self.since);
        self.step = Some(step);
        self.stacks.clear();
        self.progressed(at);
        std::mem::take(&mut self.told).then(|| Conclusion {
            rule: Rule::Hang,
            subject: String::new(),
            verdict: Verdict::Cleared,
            evidence: format!("step {step} came after {waited}"),
            step,
            remedies: Vec::new(),
        })
    }

    /// Something other than a step shows that the run goes on, such as a probe of an evaluation.
    pub(crate) fn progressed(&mut self, at: Timestamp) {
        self.since = self.since.max(at);
    }

    /// A checkpoint is being saved.
    pub(crate) fn saving(&mut self, at: Timestamp) {
        self.saving = self.saving.or(Some(at));
    }

    /// The checkpoint is saved.
    pub(crate) fn saved(&mut self, at: Timestamp) {
        if let Some(began) = self.saving.take() {
            self.skip(at.since(began.max(self.since)).min(SAVE_MAX), at);
        }
    }

    /// A task has written the stacks of its threads into the output of the attempt.
    pub(crate) fn stacks(&mut self, task: u32) {
        if self.stacks.len() < STACKS_MAX {
            self.stacks.insert(task);
        }
    }

    /// Whether a hang is near, or told: then the stacks of every task are worth having.
    pub(crate) fn wants_stacks(&self, at: Timestamp) -> bool {
        let half = |span: Millis| Millis::from_millis(span.as_millis() / 2);
        let waited = self.waited(at);
        if self.heard.is_none() || waited < half(self.wait_min.min(FIRST_STEP_WAIT)) {
            // This is asked for each batch: nearly all of them end here.
            return false;
        }
        let bound = self.bound(self.step_ms());
        self.told || waited >= bound.saturating_sub(STACKS_LEAD.min(half(bound)))
    }

    fn step_ms(&self) -> Option<f64> {
        median(&mut self.step_ms.iter().copied().collect::<Vec<_>>())
    }

    /// The time without a step that counts.
    fn waited(&self, at: Timestamp) -> Millis {
        let saved_for = self.saving.map(|began| at.since(began.max(self.since)));
        let saving = saved_for.unwrap_or(Millis::ZERO).min(SAVE_MAX);
        at.since(self.since).saturating_sub(saving)
    }

    fn bound(&self, step_ms: Option<f64>) -> Millis {
        match (self.step, step_ms) {
            (None, _) => FIRST_STEP_WAIT,
            (Some(_), None) => self.wait_min,
            (Some(_), Some(ms)) => {
                let missed = (STEPS_MISSED * ms).min(1e15) as u64;
                self.wait_min.max(Millis::from_millis(missed))
            }
        }
    }

    /// Judges what time it is; to be called every few seconds. `attempt` is the one that is judged.
    pub(crate) fn tick(&mut self, attempt: AttemptId, at: Timestamp) -> Option<Conclusion> {
        let heard_ago = at.since(self.heard?);
        let (waited, step_ms) = (self.waited(at), self.step_ms());
        let bound = self.bound(step_ms);
        if self.told || heard_ago > SENDER_LIVES || waited < bound {
            return None;
        }
        self.told = true;
        let after = match self.step {
            Some(step) => format!("since step {step}"),
            None => "since its first signal".to_owned(),
        };
        let usual = match step_ms {
            Some(ms) => format!(
                "a step takes {} in the median of {}",
                Millis::from_millis(ms.min(1e15) as u64),
                self.step_ms.len()
            ),
            None => "no step time is known".to_owned(),
        };
        let whose = match (self.stacks.first(), self.stacks.len()) {
            (None, _) => None,
            (Some(task), 1) => Some(format!("task {task}")),
            (Some(_), tasks) => Some(format!("{tasks} tasks")),
        };
        let output = format!(
            "`antiphon logs {} --attempt {}`",
            attempt.job, attempt.number
        );
        let stacks = whose.map_or_else(
            || "no task has left its stacks".to_owned(),
            |whose| format!("the stacks of {whose} are in its output: {output}"),
        );
        Some(Conclusion {
            rule: Rule::Hang,
            subject: String::new(),
            verdict: Verdict::Hung,
            evidence: format!(
                "no step for {waited} {after}, {bound} allowed, while its sender was heard {heard_ago} ago; {usual}; {stacks}"
            ),
            step: self.step.unwrap_or(0),
            remedies: vec![Remedy::Restart],
        })
    }

    /// Takes a span that just ended out of the time that counts.
    fn skip(&mut self, span: Millis, at: Timestamp) {
        self.since = self.since.after(span).min(at.max(self.since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: AttemptId = AttemptId {
        job: antiphon_types::JobId(7),
        number: 3,
    };

    fn s(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// Steps of `step_s` seconds up to `until`, then a sender that is heard and ticked every ten seconds; returns when
    /// the rule spoke.
    fn hung_at(rule: &mut HangRule, until: u64, step_s: u64, end: u64) -> Option<u64> {
        for step in 1..=until / step_s {
            rule.heard(s(step * step_s));
            let cleared = rule.observe(step, Some(step_s as f64 * 1_000.0), s(step * step_s));
            assert!(cleared.is_none() && rule.tick(ATTEMPT, s(step * step_s)).is_none());
        }
        lives(rule, until, end)
    }

    fn lives(rule: &mut HangRule, from: u64, end: u64) -> Option<u64> {
        (from / 10 + 1..=end / 10).map(|tens| tens * 10).find(|at| {
            rule.heard(s(*at));
            rule.tick(ATTEMPT, s(*at)).is_some_and(|said| {
                assert_eq!(said.remedies, [Remedy::Restart]);
                said.verdict == Verdict::Hung
            })
        })
    }

    #[test]
    fn ten_minutes_without_a_step_are_a_hang_and_ten_steps_of_a_slow_run_are() {
        assert_eq!(
            hung_at(&mut HangRule::new(None), 1_000, 2, 9_000),
            Some(1_600)
        );
        assert_eq!(
            hung_at(&mut HangRule::new(None), 3_000, 100, 9_000),
            Some(4_000)
        );
    }

    #[test]
    fn a_job_may_set_the_ten_minutes_but_ten_of_its_steps_it_always_gets() {
        let mut rule = HangRule::new(Some(Millis::from_secs(20)));
        assert_eq!(hung_at(&mut rule, 1_000, 1, 9_000), Some(1_020));
        let mut rule = HangRule::new(Some(Millis::from_secs(20)));
        assert_eq!(hung_at(&mut rule, 1_000, 5, 9_000), Some(1_050));
    }

    #[test]
    fn stacks_are_asked_for_before_a_hang_is_told_and_it_says_whose_there_are() {
        let mut rule = HangRule::new(Some(Millis::from_secs(20)));
        assert_eq!(hung_at(&mut rule, 1_000, 1, 1_000), None);
        rule.heard(s(1_009));
        assert!(!rule.wants_stacks(s(1_009)));
        assert!(rule.wants_stacks(s(1_010)));
        rule.stacks(1);
        rule.stacks(0);
        rule.heard(s(1_020));
        let said = rule.tick(ATTEMPT, s(1_020)).unwrap();
        let stacks = "the stacks of 2 tasks are in its output: `antiphon logs job-7 --attempt 3`";
        assert!(said.evidence.ends_with(stacks), "{}", said.evidence);
        assert!(rule.wants_stacks(s(1_021)), "a task may have been late");
        rule.observe(1_001, None, s(1_030));
        assert!(!rule.wants_stacks(s(1_031)));
        let said = lives(&mut rule, 1_030, 2_000);
        assert_eq!(said, Some(1_050), "without stacks it is told all the same");
    }

    #[test]
    fn a_hang_is_told_once_and_cleared_by_the_next_step() {
        let mut rule = HangRule::new(None);
        assert!(hung_at(&mut rule, 1_000, 2, 9_000).is_some());
        assert_eq!(lives(&mut rule, 1_600, 9_000), None);
        let cleared = rule.observe(501, None, s(9_001)).unwrap();
        assert_eq!(cleared.verdict, Verdict::Cleared);
        assert_eq!(lives(&mut rule, 9_001, 20_000), Some(9_610));
    }

    #[test]
    fn a_silent_sender_is_never_a_hang_and_its_silence_does_not_count_afterwards() {
        let mut rule = HangRule::new(None);
        hung_at(&mut rule, 1_000, 2, 1_000);
        assert!((1_000..90_000).all(|at| rule.tick(ATTEMPT, s(at)).is_none()));
        // It is back, and the step is the old one: ten minutes begin to count now.
        assert_eq!(lives(&mut rule, 90_000, 99_000), Some(90_610));
    }

    #[test]
    fn a_run_that_never_stepped_has_half_an_hour_from_its_first_signal() {
        assert_eq!(lives(&mut HangRule::new(None), 500, 9_000), Some(2_310));
        assert!((0..9_000).all(|at| HangRule::new(None).tick(ATTEMPT, s(at)).is_none()));
    }

    #[test]
    fn saving_stops_the_clock_for_an_hour_at_most_and_a_probe_sets_it_back() {
        let mut rule = HangRule::new(None);
        hung_at(&mut rule, 1_000, 2, 1_000);
        assert_eq!(lives(&mut rule, 1_000, 1_300), None);
        rule.saving(s(1_300));
        assert_eq!(lives(&mut rule, 1_300, 3_000), None);
        rule.saved(s(3_000));
        assert_eq!(lives(&mut rule, 3_000, 9_000), Some(3_300));

        let mut rule = HangRule::new(None);
        hung_at(&mut rule, 1_000, 2, 1_000);
        rule.saving(s(1_000));
        assert_eq!(lives(&mut rule, 1_000, 9_000), Some(1_000 + 3_600 + 600));

        let mut rule = HangRule::new(None);
        hung_at(&mut rule, 1_000, 2, 1_500);
        rule.progressed(s(1_500));
        assert_eq!(lives(&mut rule, 1_500, 9_000), Some(2_100));
    }
}
