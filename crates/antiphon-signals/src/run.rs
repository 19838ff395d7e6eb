//! The rules about a run and its tasks, each given the part of a signal that it looks at. Concludes nothing itself.

use antiphon_types::{AttemptId, Bytes, Millis, Timestamp};

use crate::batch::noise_scale::{GradientSquares, NoiseScaleRule};
use crate::batch::{MemoryPeak, MicroBatchRule};
use crate::bottleneck::{BottleneckRule, StepParts};
use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::convergence::{ConvergenceRule, Forecast, Goal};
use crate::hang::HangRule;
use crate::interval::disk::DiskRule;
use crate::interval::{IntervalRule, Save};
use crate::signal::{ProgressSignal, Signal, finite};
use crate::straggler::{StragglerRule, TaskStep, TaskTime};

/// Rows of a micro-batch that nobody asks for more than.
const ROWS_MAX: u32 = 4_096;

/// Every rule that looks at steps, memory, saves and time.
#[derive(Debug)]
pub(crate) struct RunRules {
    convergence: ConvergenceRule,
    straggler: StragglerRule,
    bottleneck: BottleneckRule,
    batch: MicroBatchRule,
    noise_scale: NoiseScaleRule,
    interval: IntervalRule,
    disk: DiskRule,
    hang: HangRule,
}

impl RunRules {
    pub(crate) fn new(context: &Context) -> Self {
        let mut batch = MicroBatchRule::new(None, ROWS_MAX);
        if let Some(rows) = context.rows_out_of_memory {
            batch.out_of_memory(rows);
        }
        let mut interval = IntervalRule::new(context.gpus, context.failures, context.ran);
        if let Some(kept) = context.checkpoint_interval {
            interval.keeps(kept);
        }
        Self {
            convergence: ConvergenceRule::default(),
            straggler: StragglerRule::default(),
            bottleneck: BottleneckRule::default(),
            batch,
            noise_scale: NoiseScaleRule::default(),
            interval,
            disk: DiskRule::new(context.checkpoint_bytes.map(Bytes::new)),
            hang: HangRule::new(context.hang_after),
        }
    }

    /// A batch or a signal came, whatever is in it.
    pub(crate) fn heard(&mut self, at: Timestamp) {
        self.hang.heard(at);
    }

    /// A task reported a step, or something about itself.
    pub(crate) fn step(
        &mut self,
        signal: &Signal<'_>,
        step: u64,
        at: Timestamp,
        said: &mut Vec<Conclusion>,
    ) {
        let step_ms = finite(signal.step_ms).filter(|ms| *ms > 0.0);
        if signal.step.is_some() {
            said.extend(self.hang.observe(step, step_ms, at));
        }
        match signal.saving {
            Some(true) => self.hang.saving(at),
            Some(false) => self.hang.saved(at),
            None => (),
        }
        if let Some(rows) = signal.rows_per_step {
            self.batch.has_per_step(rows);
        }
        // One task speaks for the gang: the losses of the others are of the same step.
        if signal.task.unwrap_or(0) == 0 {
            let loss = match signal.not_finite {
                Some(true) => Some(f64::NAN),
                _ => finite(signal.loss),
            };
            if let Some(loss) = loss {
                self.interval.observe(loss);
                said.extend(self.convergence.observe(step, loss, at));
            }
        }
        if let (Some(step_ms), Some(task)) = (step_ms, signal.task) {
            let communication_ms = finite(signal.communication_ms);
            said.extend(self.straggler.observe(
                &TaskStep {
                    task,
                    step,
                    step_ms,
                    communication_ms,
                    throttled: signal.throttled == Some(true),
                },
                at,
            ));
            let parts = StepParts {
                step_ms,
                forward_ms: finite(signal.forward_ms),
                backward_ms: finite(signal.backward_ms),
                communication_ms,
                data_wait_ms: finite(signal.data_wait_ms),
                optimizer_ms: finite(signal.optimizer_ms),
            };
            said.extend(self.bottleneck.observe(&parts, step, at));
        }
        if let (Some(peak_bytes), Some(total_bytes), Some(micro_batch)) = (
            finite(signal.memory_peak_bytes),
            finite(signal.memory_total_bytes),
            signal.micro_batch,
        ) {
            let peak = MemoryPeak {
                micro_batch,
                peak_bytes,
                total_bytes,
            };
            said.extend(self.batch.observe(&peak, step, at));
        }
        if let (Some(small), Some(big), Some(rows_small), Some(rows_big)) = (
            finite(signal.gradient_small),
            finite(signal.gradient_big),
            finite(signal.rows_small),
            finite(signal.rows_big),
        ) {
            let squares = GradientSquares {
                small,
                big,
                rows_small,
                rows_big,
            };
            said.extend(self.noise_scale.observe(&squares, step, at));
        }
        if let Some(free_bytes) = finite(signal.disk_free_bytes) {
            said.extend(self.disk.observe(free_bytes, step));
        }
    }

    /// The run said how far it means to go.
    pub(crate) fn aims(&mut self, progress: ProgressSignal) {
        self.convergence.aims(Goal {
            total_steps: Some(progress.total_steps),
            target_loss: finite(progress.target_loss),
        });
    }

    /// The held-out loss of one category.
    pub(crate) fn probe(&mut self, step: u64, loss: f64) {
        self.convergence.probe(step, loss);
    }

    /// Where the loss goes, as far as that can be said.
    pub(crate) fn forecast(&self) -> Option<Forecast> {
        self.convergence.forecast()
    }

    /// A checkpoint is durable.
    pub(crate) fn saved(
        &mut self,
        step: u64,
        bytes: Bytes,
        blocked: Millis,
        at: Timestamp,
    ) -> Option<Conclusion> {
        self.hang.saved(at);
        self.disk.saved(bytes);
        let save = Save {
            step,
            bytes,
            blocked,
        };
        self.interval.saved(&save, at)
    }

    /// A task gets another part of the batch from now on: its time is judged against that.
    pub(crate) fn drained(&mut self, task: u32, share_permille: u32) {
        self.straggler.drained(task, share_permille);
    }

    /// What each task takes for a step by itself.
    pub(crate) fn task_times(&self) -> Vec<TaskTime> {
        self.straggler.times()
    }

    /// Rows of a micro-batch now, as far as that is certain.
    pub(crate) fn micro_batch(&self) -> Option<u32> {
        self.batch.rows()
    }

    /// The trainer saves this often from now on; zero where that is its own again.
    pub(crate) fn saves_every(&mut self, interval: Millis) {
        self.interval.keeps(interval);
    }

    /// A task has left its stacks.
    pub(crate) fn stacks(&mut self, task: u32) {
        self.hang.stacks(task);
    }

    /// Whether those of every task are wanted.
    pub(crate) fn wants_stacks(&self, at: Timestamp) -> bool {
        self.hang.wants_stacks(at)
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, attempt: AttemptId, at: Timestamp) -> Option<Conclusion> {
        self.hang.tick(attempt, at)
    }
}
