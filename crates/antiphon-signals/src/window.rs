//! What is remembered of one attempt's signals, and which rule gets to see which of them. Decides nothing itself.
//!
//! A signal without a shard and without a probe is about a step of one task: each rule over steps sees it.

use antiphon_types::{AttemptId, Finding, Timestamp};

use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::names::Names;
use crate::progress::ProgressRule;
use crate::series::{Point, Series};
use crate::shard::{ShardLoss, ShardRule};
use crate::signal::{Signal, finite};

/// Shards of one job: bounds memory whatever is sent.
pub(crate) const SHARDS_MAX: usize = 4_096;
/// Categories of one job.
pub(crate) const CATEGORIES_MAX: usize = 256;
/// Tasks of one job.
pub(crate) const TASKS_MAX: u32 = 65_536;
/// Points of a curve of the whole run.
const POINTS_MAX: usize = 512;
/// Points of a curve of one shard or category: there may be thousands.
const POINTS_OF_MANY_MAX: usize = 64;
/// Findings that wait to be taken: more than any honest batch leads to.
const FINDINGS_MAX: usize = 1_024;

/// The windows of one attempt.
#[derive(Debug)]
pub struct JobWindow {
    attempt: AttemptId,
    context: Context,
    latest: Latest,
    progress: ProgressRule,
    shards: ShardRule,
    curves: Curves,
    findings: Vec<Finding>,
    dropped: u64,
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

/// Curves for pictures.
#[derive(Debug)]
struct Curves {
    loss: Series,
    step_ms: Series,
    grad_norm: Series,
    shard_names: Names,
    shards: Vec<Series>,
    category_names: Names,
    probes: Vec<Series>,
}

impl JobWindow {
    /// Empty windows for an attempt.
    #[must_use]
    pub fn new(attempt: AttemptId) -> Self {
        Self {
            attempt,
            context: Context::default(),
            latest: Latest::default(),
            progress: ProgressRule::default(),
            shards: ShardRule::default(),
            curves: Curves {
                loss: Series::new(POINTS_MAX),
                step_ms: Series::new(POINTS_MAX),
                grad_norm: Series::new(POINTS_MAX),
                shard_names: Names::new(SHARDS_MAX),
                shards: Vec::new(),
                category_names: Names::new(CATEGORIES_MAX),
                probes: Vec::new(),
            },
            findings: Vec::new(),
            dropped: 0,
        }
    }

    /// The same windows, told what signals do not say.
    #[must_use]
    pub fn with_context(mut self, context: Context) -> Self {
        self.set_context(context);
        self
    }

    /// Replaces what is known besides the signals; what was observed stays.
    pub fn set_context(&mut self, context: Context) {
        self.context = context;
    }

    /// What is known besides the signals.
    #[must_use]
    pub const fn context(&self) -> &Context {
        &self.context
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

    /// Signals and findings that were passed over since the start, because a limit of this crate was reached.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A down-sampled curve over steps: `loss`, `step_ms`, `grad_norm`, `shard/NAME` (its loss) or `probe/CATEGORY`; nothing
    /// where no such curve was reported.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<Vec<Point>> {
        let curves = &self.curves;
        let series = match name {
            "loss" => &curves.loss,
            "step_ms" => &curves.step_ms,
            "grad_norm" => &curves.grad_norm,
            _ => match name.split_once('/')? {
                ("shard", shard) => curves.shards.get(curves.shard_names.get(shard)?)?,
                ("probe", category) => curves.probes.get(curves.category_names.get(category)?)?,
                _ => return None,
            },
        };
        Some(series.points()).filter(|points| !points.is_empty())
    }

    /// Takes one signal in.
    pub fn observe(&mut self, signal: &Signal<'_>, at: Timestamp) {
        self.latest.at = self.latest.at.max(at);
        if signal.task.is_some_and(|task| task >= TASKS_MAX) {
            self.dropped += 1;
            return;
        }
        if let Some(step) = signal.step {
            self.latest.step = self.latest.step.max(step);
        }
        if let Some(shard) = &signal.shard {
            self.observe_shard(shard, signal);
        } else if let Some(probe_loss) = finite(signal.probe_loss) {
            self.observe_probe(signal, probe_loss);
        } else {
            self.observe_step(signal, at);
        }
        if let Some(progress) = signal.progress {
            self.latest.steps_total = Some(progress.total_steps);
            self.latest.step = self.latest.step.max(progress.step);
            let finding = self.progress.observe(self.attempt, progress, at);
            self.find(finding);
        }
    }

    fn observe_shard(&mut self, shard: &str, signal: &Signal<'_>) {
        let (Some(loss), Some(step)) = (finite(signal.loss), signal.step) else {
            return;
        };
        let curves = &mut self.curves;
        let Some(index) = curves.shard_names.intern(shard) else {
            self.dropped += 1;
            return;
        };
        push(&mut curves.shards, index, step, loss);
        let samples = signal.samples.unwrap_or(1);
        let said = self.shards.observe(shard, step, loss, samples);
        self.conclude(said);
    }

    fn observe_probe(&mut self, signal: &Signal<'_>, probe_loss: f64) {
        let category = signal.category.as_deref().unwrap_or_default();
        let step = signal.step.unwrap_or(self.latest.step);
        let curves = &mut self.curves;
        match curves.category_names.intern(category) {
            Some(index) => push(&mut curves.probes, index, step, probe_loss),
            None => self.dropped += 1,
        }
    }

    fn observe_step(&mut self, signal: &Signal<'_>, _at: Timestamp) {
        let newest = &mut self.latest;
        let step = signal.step.unwrap_or(newest.step);
        if let Some(loss) = finite(signal.loss) {
            newest.loss = Some(loss);
            self.curves.loss.push(step, loss);
        }
        if let Some(norm) = finite(signal.grad_norm) {
            newest.grad_norm = Some(norm);
            self.curves.grad_norm.push(step, norm);
        }
        if let Some(step_ms) = finite(signal.step_ms).filter(|ms| *ms > 0.0) {
            newest.step_ms = Some(step_ms);
            self.curves.step_ms.push(step, step_ms);
            self.progress.step_took(step_ms);
            if let Some(tokens) = finite(signal.tokens) {
                newest.tokens_per_s = Some(tokens * 1_000.0 / step_ms);
            }
        }
    }

    /// Takes in that a checkpoint is durable: of which step, how large in bytes, how long it took to save.
    pub fn checkpointed(&mut self, _step: u64, bytes: u64, _save_ms: f64, at: Timestamp) {
        self.latest.at = self.latest.at.max(at);
        self.context.checkpoint_bytes = Some(bytes);
    }

    /// Lets time pass: called every few seconds while a sender lives, so that a rule may conclude from silence.
    pub fn tick(&mut self, _at: Timestamp) {}

    /// What the rules have concluded since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.findings)
    }

    fn conclude(&mut self, said: impl IntoIterator<Item = Conclusion>) {
        let attempt = self.attempt;
        self.find(said.into_iter().map(|conclusion| conclusion.of(attempt)));
    }

    fn find(&mut self, findings: impl IntoIterator<Item = Finding>) {
        for finding in findings {
            if self.findings.len() < FINDINGS_MAX {
                self.findings.push(finding);
            } else {
                self.dropped += 1;
            }
        }
    }
}

/// Adds to the curve of a numbered thing; numbers come without gaps.
fn push(series: &mut Vec<Series>, index: usize, step: u64, value: f64) {
    if index == series.len() {
        series.push(Series::new(POINTS_OF_MANY_MAX));
    }
    series[index].push(step, value);
}
