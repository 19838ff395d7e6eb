//! What is remembered of one attempt's signals: a bounded window each for progress and for every shard.

use antiphon_types::{AttemptId, Finding, Timestamp};

use crate::progress::ProgressRule;
use crate::shard::{ShardLoss, ShardRule};
use crate::signal::{Signal, finite};

/// The windows of one attempt.
#[derive(Debug)]
pub struct JobWindow {
    attempt: AttemptId,
    latest: Latest,
    progress: ProgressRule,
    shards: ShardRule,
    findings: Vec<Finding>,
}

/// The newest numbers of an attempt, for people to look at.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Latest {
    /// Newest optimizer step.
    pub step: u64,
    /// Steps to do, if the trainer said so.
    pub steps_total: Option<u64>,
    /// Newest loss over all shards, in nats.
    pub loss: Option<f64>,
    /// Newest gradient norm.
    pub grad_norm: Option<f64>,
    /// Newest time of a step in milliseconds.
    pub step_ms: Option<f64>,
    /// Tokens a second, from the newest step.
    pub tokens_per_s: Option<f64>,
    /// When the newest signal came.
    pub at: Timestamp,
}

impl JobWindow {
    /// Empty windows for an attempt.
    #[must_use]
    pub fn new(attempt: AttemptId) -> Self {
        Self {
            attempt,
            latest: Latest::default(),
            progress: ProgressRule::default(),
            shards: ShardRule::default(),
            findings: Vec::new(),
        }
    }

    /// The attempt whose signals these are.
    #[must_use]
    pub const fn attempt(&self) -> AttemptId {
        self.attempt
    }

    /// The newest numbers.
    #[must_use]
    pub const fn latest(&self) -> &Latest {
        &self.latest
    }

    /// Recent mean loss by shard.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardLoss> {
        self.shards.losses()
    }

    /// Takes one signal in.
    pub fn observe(&mut self, signal: &Signal, at: Timestamp) {
        self.latest.at = self.latest.at.max(at);
        if let Some(step) = signal.step {
            self.latest.step = self.latest.step.max(step);
        }
        match &signal.shard {
            Some(shard) => {
                if let (Some(loss), Some(step)) = (finite(signal.loss), signal.step) {
                    let samples = signal.samples.unwrap_or(1);
                    let finding = self
                        .shards
                        .observe(self.attempt, shard, step, loss, samples);
                    self.findings.extend(finding);
                }
            }
            None => self.observe_step(signal),
        }
        if let Some(progress) = signal.progress {
            self.latest.steps_total = Some(progress.total_steps);
            self.latest.step = self.latest.step.max(progress.step);
            let finding = self.progress.observe(self.attempt, progress, at);
            self.findings.extend(finding);
        }
    }

    fn observe_step(&mut self, signal: &Signal) {
        let newest = &mut self.latest;
        newest.loss = finite(signal.loss).or(newest.loss);
        newest.grad_norm = finite(signal.grad_norm).or(newest.grad_norm);
        if let Some(step_ms) = finite(signal.step_ms).filter(|ms| *ms > 0.0) {
            newest.step_ms = Some(step_ms);
            self.progress.step_took(step_ms);
            if let Some(tokens) = finite(signal.tokens) {
                newest.tokens_per_s = Some(tokens * 1_000.0 / step_ms);
            }
        }
    }

    /// What the rules have concluded since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }
}
