//! When a run will end, and when that is worth a finding: only where the predicted end moved far enough to change plans.

use std::collections::VecDeque;

use antiphon_types::{AttemptId, Finding, Millis, Timestamp};

use crate::signal::ProgressSignal;

/// Step times remembered: enough for a median that one slow step does not move.
const STEPS: usize = 64;
/// At most one finding a minute, so that a quiet run adds next to nothing to the log.
const INTERVAL: Millis = Millis::from_secs(60);
/// Moves of the predicted end below this are noise.
const MOVE_MS_MIN: f64 = 60_000.0;
/// The same relative to what is left.
const MOVE_SHARE_MIN: f64 = 0.05;

#[derive(Debug, Default)]
pub(crate) struct ProgressRule {
    step_ms: VecDeque<f64>,
    /// The last finding: when, and the end it predicted.
    told: Option<(Timestamp, f64)>,
    finished: bool,
}

impl ProgressRule {
    pub(crate) fn step_took(&mut self, ms: f64) {
        if self.step_ms.len() == STEPS {
            self.step_ms.pop_front();
        }
        self.step_ms.push_back(ms);
    }

    pub(crate) fn observe(
        &mut self,
        attempt: AttemptId,
        progress: ProgressSignal,
        at: Timestamp,
    ) -> Option<Finding> {
        let finished = progress.step >= progress.total_steps;
        // Without a step time there is no end to predict; that a run is finished is worth telling all the same.
        let step_ms = self.median().or(finished.then_some(0.0))?;
        let left = progress.total_steps.saturating_sub(progress.step) as f64 * step_ms;
        let end = at.as_millis() as f64 + left;
        let due = match self.told {
            None => true,
            Some(_) if finished => !self.finished,
            Some((when, told)) => {
                at.since(when) >= INTERVAL
                    && (end - told).abs() > MOVE_MS_MIN.max(MOVE_SHARE_MIN * left)
            }
        };
        if !due {
            return None;
        }
        self.told = Some((at, end));
        self.finished = finished;
        Some(Finding::Progress {
            attempt,
            step: progress.step,
            steps_total: progress.total_steps,
            step_time: Millis::from_millis(step_ms.round().clamp(0.0, 1e12) as u64),
        })
    }

    /// The median of the last steps in milliseconds.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.step_ms.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_with_steps_of(ms: f64) -> ProgressRule {
        let mut rule = ProgressRule::default();
        (0..STEPS).for_each(|_| rule.step_took(ms));
        rule
    }

    fn tell(rule: &mut ProgressRule, step: u64, at_s: u64) -> Option<Finding> {
        let attempt = "job-1.1".parse().unwrap();
        let progress = ProgressSignal {
            step,
            total_steps: 10_000,
            target_loss: None,
        };
        rule.observe(attempt, progress, Timestamp::from_millis(at_s * 1_000))
    }

    #[test]
    fn a_steady_run_is_told_once_and_again_when_it_finishes() {
        let mut rule = rule_with_steps_of(1_000.0);
        let findings = (1..=10_000)
            .filter_map(|step| tell(&mut rule, step, step))
            .count();
        assert_eq!(findings, 2);
    }

    #[test]
    fn a_run_that_slows_down_is_told_again_at_most_once_a_minute() {
        let mut rule = rule_with_steps_of(1_000.0);
        assert!(tell(&mut rule, 100, 100).is_some());
        (0..STEPS).for_each(|_| rule.step_took(2_000.0));
        assert!(tell(&mut rule, 101, 102).is_none());
        assert!(tell(&mut rule, 150, 160).is_some());
        assert!(tell(&mut rule, 151, 162).is_none());
    }

    #[test]
    fn a_run_without_step_times_is_not_predicted() {
        assert!(tell(&mut ProgressRule::default(), 100, 100).is_none());
        assert!(tell(&mut ProgressRule::default(), 10_000, 100).is_some());
    }
}
