//! What is remembered of one attempt's signals, and which rule gets to see which of them. Decides nothing itself.
//!
//! A signal without a shard and without a probe is about a step of one task: each rule over steps sees it.

use antiphon_types::{AttemptId, Bytes, Finding, Millis, Timestamp, Verdict};

use crate::accept::AcceptRule;
use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::convergence::Forecast;
use crate::measured::MeasuredRule;
use crate::progress::ProgressRule;
use crate::provenance::{self, ProvenanceRule};
use crate::run::RunRules;
use crate::series::{Point, Series};
use crate::shard::{ShardLoss, ShardRule};
use crate::signal::{ProgressSignal, Signal, finite};
use crate::straggler::TaskTime;
use crate::stream::Stream;

/// Tasks of one job: bounds memory whatever is sent.
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
    stream: Stream,
    progress: ProgressRule,
    measured: MeasuredRule,
    accept: Option<AcceptRule>,
    shards: ShardRule,
    run: RunRules,
    provenance: ProvenanceRule,
    curves: Curves,
    findings: Vec<Finding>,
    dropped: u64,
    /// Steps that earlier attempts have done: to do one of them again adds nothing.
    done_before: u64,
    /// Tokens of the others.
    tokens: f64,
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
    tokens_per_s: Series,
    memory_peak_bytes: Series,
    micro_batch: Series,
    shards: Vec<Series>,
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
            stream: Stream::new(),
            progress: ProgressRule::default(),
            measured: MeasuredRule::default(),
            accept: None,
            shards: ShardRule::default(),
            run: RunRules::new(&Context::default()),
            provenance: ProvenanceRule::default(),
            curves: Curves {
                loss: Series::new(POINTS_MAX),
                step_ms: Series::new(POINTS_MAX),
                grad_norm: Series::new(POINTS_MAX),
                tokens_per_s: Series::new(POINTS_MAX),
                memory_peak_bytes: Series::new(POINTS_MAX),
                micro_batch: Series::new(POINTS_MAX),
                shards: Vec::new(),
                probes: Vec::new(),
            },
            findings: Vec::new(),
            dropped: 0,
            done_before: 0,
            tokens: 0.0,
        }
    }

    /// The same windows, told what signals do not say. For windows that have seen nothing yet.
    #[must_use]
    pub fn with_context(mut self, context: Context) -> Self {
        self.run = RunRules::new(&context);
        let accept = context.accept.clone();
        self.accept = accept.map(|accept| AcceptRule::new(self.attempt, accept));
        self.set_context(context);
        self
    }

    /// The same windows, for an attempt before which so many steps were done.
    #[must_use]
    pub const fn after(mut self, steps: u64) -> Self {
        self.done_before = steps;
        self
    }

    /// Steps that this attempt and those before it have done.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done_before.max(self.latest.step)
    }

    /// Tokens of all tasks of this attempt, of steps that no attempt before it had done.
    #[must_use]
    pub const fn tokens(&self) -> f64 {
        self.tokens
    }

    /// Replaces what is known besides the signals; what was observed stays.
    pub fn set_context(&mut self, context: Context) {
        self.context = context;
        self.stream.tell_origins(&self.context);
        self.shards.tell_context(&mut self.stream, &self.context);
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
        self.shards.losses(&self.stream)
    }

    /// What each task takes for a step by itself, as far as tasks report that.
    #[must_use]
    pub fn task_times(&self) -> Vec<TaskTime> {
        self.run.task_times()
    }

    /// Where the loss goes: the steps that remain and the loss at the end, as far as that can be said.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        self.run.forecast()
    }

    /// Signals and findings that were passed over since the start, because a limit of this crate was reached.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A down-sampled curve over steps: `loss`, `step_ms`, `grad_norm`, `tokens_per_s`, `memory_peak_bytes`, `micro_batch` (rows
    /// of a micro-step), `shard/NAME` (its loss) or `probe/CATEGORY`; nothing where no such curve was reported.
    #[must_use]
    pub fn series(&self, name: &str) -> Option<Vec<Point>> {
        let curves = &self.curves;
        let series = match name {
            "loss" => &curves.loss,
            "step_ms" => &curves.step_ms,
            "grad_norm" => &curves.grad_norm,
            "tokens_per_s" => &curves.tokens_per_s,
            "memory_peak_bytes" => &curves.memory_peak_bytes,
            "micro_batch" => &curves.micro_batch,
            _ => match name.split_once('/')? {
                ("shard", shard) => curves.shards.get(self.stream.shard_names.get(shard)?)?,
                ("probe", category) => curves
                    .probes
                    .get(self.stream.category_names.get(category)?)?,
                _ => return None,
            },
        };
        Some(series.points()).filter(|points| !points.is_empty())
    }

    /// Takes in that a sender lives: it sent a batch, with signals in it or without.
    pub fn heard(&mut self, at: Timestamp) {
        self.run.heard(at);
    }

    /// Takes one signal in.
    pub fn observe(&mut self, signal: &Signal<'_>, at: Timestamp) {
        self.latest.at = self.latest.at.max(at);
        self.run.heard(at);
        if signal.task.is_some_and(|task| task >= TASKS_MAX) {
            self.dropped += 1;
            return;
        }
        if signal.stacks == Some(true) {
            // It says nothing of a step: the run stands still.
            self.run.stacks(signal.task.unwrap_or(0));
            return;
        }
        if let Some(entries) = signal.vocabulary.filter(|entries| *entries > 1) {
            self.stream.vocabulary = Some(entries as f64);
        }
        if let Some(step) = signal.step {
            self.latest.step = self.latest.step.max(step);
        }
        if let Some(progress) = signal.progress {
            self.observe_progress(progress, at);
        }
        if !self.shards.has_begun()
            && let Some(step) = signal.step
        {
            let rule = &mut self.shards;
            let said = rule.begin(step, self.done_before, &mut self.stream, &self.context);
            self.conclude(said);
        }
        if let Some(probe_loss) = finite(signal.probe_loss) {
            self.observe_probe(signal, probe_loss, at);
            return;
        }
        if let Some((metric, value)) = signal.metric.as_deref().zip(finite(signal.value)) {
            let step = signal.step.unwrap_or(self.latest.step);
            self.accepts(|rule| rule.eval((step, metric), value, at));
            return;
        }
        if let Some(step) = signal.step
            && self.stream.arrive(signal.task, step)
        {
            self.judge_shards();
        }
        match &signal.shard {
            Some(shard) => self.observe_shard(shard, signal),
            None => self.observe_step(signal, at),
        }
    }

    /// Ends a tick: what the shard rule says of a bad shard names its origin, and what is noise is traced.
    fn judge_shards(&mut self) {
        let mut said = self.shards.judge(&mut self.stream, &self.context);
        let mut related = Vec::new();
        for conclusion in &mut said {
            let bad = matches!(conclusion.verdict, Verdict::Noise | Verdict::Duplicate);
            let index = self.stream.shard_names.get(&conclusion.subject);
            if let (true, Some(index)) = (bad, index) {
                conclusion.evidence += &provenance::origin(&self.context, &conclusion.subject);
                if conclusion.verdict == Verdict::Noise {
                    let (step, context) = (conclusion.step, &self.context);
                    let rule = &mut self.provenance;
                    related.extend(rule.trace(
                        index,
                        "which is noise",
                        step,
                        &self.stream,
                        context,
                    ));
                }
            }
        }
        self.conclude(said);
        self.conclude(related);
    }

    fn observe_progress(&mut self, progress: ProgressSignal, at: Timestamp) {
        self.latest.steps_total = Some(progress.total_steps);
        self.latest.step = self.latest.step.max(progress.step);
        self.stream.steps_total = Some(progress.total_steps).filter(|total| *total > 0);
        self.run.aims(progress);
        let finding = self.progress.observe(self.attempt, progress, at);
        self.find(finding);
        if progress.step >= progress.total_steps {
            self.accepts(|rule| rule.finished(at));
        }
    }

    /// Shows something to the rule of the job's `accept` line, where it has one.
    fn accepts(&mut self, show: impl FnOnce(&mut AcceptRule) -> Option<Finding>) {
        let finding = self.accept.as_mut().and_then(show);
        self.find(finding);
    }

    fn observe_shard(&mut self, shard: &str, signal: &Signal<'_>) {
        let Some(index) = self.stream.shard(shard, &self.context) else {
            self.dropped += 1;
            return;
        };
        self.stream.draw(index, signal);
        let said = self
            .provenance
            .observe_loss(index, signal, &self.stream, &self.context);
        self.conclude(said);
        if signal.grad_norm.is_some() {
            let context = &self.context;
            let said = self
                .provenance
                .observe_shard(index, signal, &self.stream, context);
            self.conclude(said);
        }
        let step = signal.step.unwrap_or(self.latest.step);
        if let Some(loss) = finite(signal.loss) {
            curve(&mut self.curves.shards, index).push(step, loss);
        }
    }

    fn observe_probe(&mut self, signal: &Signal<'_>, probe_loss: f64, at: Timestamp) {
        let category = signal.category.as_deref().unwrap_or_default();
        let step = signal.step.unwrap_or(self.latest.step);
        let Some(index) = self.stream.category(category) else {
            self.dropped += 1;
            return;
        };
        self.stream.probe(index, step, probe_loss);
        self.run.probe(step, probe_loss);
        self.accepts(|rule| rule.probe((step, category), probe_loss, at));
        curve(&mut self.curves.probes, index).push(step, probe_loss);
    }

    /// Shows a step of a task to each rule over steps.
    fn observe_step(&mut self, signal: &Signal<'_>, at: Timestamp) {
        self.note(signal);
        let mut said = Vec::new();
        if signal.grad_norm.is_some() {
            said.extend(
                self.provenance
                    .observe_step(signal, &self.stream, &self.context),
            );
        }
        let step = signal.step.unwrap_or(self.latest.step);
        self.run.step(signal, step, at, &mut said);
        self.conclude(said);
        if signal.task.unwrap_or(0) == 0 {
            self.accepts(|rule| rule.step(step, finite(signal.loss), at));
        }
        if self.context.measured {
            let median_ms = self.progress.median();
            let finding = self.measured.observe(self.attempt, signal, median_ms);
            self.find(finding);
        }
    }

    /// Keeps a step's numbers for people to look at.
    fn note(&mut self, signal: &Signal<'_>) {
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
        if let Some(peak) = finite(signal.memory_peak_bytes) {
            self.curves.memory_peak_bytes.push(step, peak);
        }
        if let Some(rows) = signal.micro_batch.filter(|rows| *rows > 0) {
            self.curves.micro_batch.push(step, f64::from(rows));
        }
        if let Some(step_ms) = finite(signal.step_ms).filter(|ms| *ms > 0.0) {
            newest.step_ms = Some(step_ms);
            self.curves.step_ms.push(step, step_ms);
            self.progress.step_took(step_ms);
            if let Some(tokens) = finite(signal.tokens) {
                let tokens_per_s = tokens * 1_000.0 / step_ms;
                newest.tokens_per_s = Some(tokens_per_s);
                self.curves.tokens_per_s.push(step, tokens_per_s);
            }
        }
        if let Some(tokens) = finite(signal.tokens).filter(|tokens| *tokens > 0.0)
            && step > self.done_before
        {
            self.tokens += tokens;
        }
    }

    /// Takes in that a checkpoint is durable: of which step, how large in bytes, how long training stood still for it.
    pub fn checkpointed(&mut self, step: u64, bytes: u64, save_ms: f64, at: Timestamp) {
        self.latest.at = self.latest.at.max(at);
        self.context.checkpoint_bytes = Some(bytes);
        let blocked = Millis::from_millis(save_ms.clamp(0.0, 1e12) as u64);
        let said = self.run.saved(step, Bytes::new(bytes), blocked, at);
        self.conclude(said);
    }

    /// Takes in that a task gets this part of what it would get of each batch, in thousandths.
    pub fn drained(&mut self, task: u32, share_permille: u32) {
        self.run.drained(task, share_permille);
    }

    /// Rows of a micro-batch now, as far as that is certain: what an attempt ran out of memory with.
    #[must_use]
    pub fn micro_batch(&self) -> Option<u32> {
        self.run.micro_batch()
    }

    /// Takes in how often the trainer saves from now on; zero where that is its own again.
    pub fn saves_every(&mut self, interval: Millis) {
        self.run.saves_every(interval);
    }

    /// Lets time pass: called every few seconds while a sender lives, so that a rule may conclude from silence.
    pub fn tick(&mut self, at: Timestamp) {
        let said = self.run.tick(self.attempt, at);
        self.conclude(said);
        self.accepts(|rule| rule.tick(at));
    }

    /// Whether senders are to write the stacks of their processes into their output: the run stands still, and is likely to be
    /// ended for it.
    #[must_use]
    pub fn wants_stacks(&self, at: Timestamp) -> bool {
        self.run.wants_stacks(at)
    }

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

/// The curve of a numbered thing.
fn curve(curves: &mut Vec<Series>, index: usize) -> &mut Series {
    while curves.len() <= index {
        curves.push(Series::new(POINTS_OF_MANY_MAX));
    }
    &mut curves[index]
}

#[cfg(test)]
mod tests;
