//! What is planned for a job's shapes, and what was measured of its attempts: integers, since both are stored and held against
//! each other. Computes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{AttemptId, Bytes, GpuAmount, Millis, Shape, UsdMicros};

/// What the planner says of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShapePlan {
    /// GPUs of the shape.
    pub gpus: GpuAmount,
    /// Their type, as the cluster calls it.
    pub gpu_type: String,
    /// The partition, where the shape names one.
    pub partition: Option<String>,
    /// Whose habits were planned with: `axolotl`, `torchtune`.
    pub framework: String,
    /// How the work is split, in words.
    pub layout: String,
    /// The same as variables for the trainer.
    pub environment: BTreeMap<String, String>,
    /// What attempts on this cluster have taught, already in the numbers below.
    pub learned: Learned,
    /// Microseconds of a step.
    pub step_us: u64,
    /// Of them, those that wait for what travels between GPUs.
    pub communication_us: u64,
    /// Tokens of a step, over all GPUs.
    pub tokens_per_step: u64,
    /// Bytes of the fullest GPU that tensors take at the peak.
    pub allocated: Bytes,
    /// Bytes that the driver shows there.
    pub peak: Bytes,
    /// Bytes of a GPU that a process can get.
    pub usable: Bytes,
    /// How long the whole run takes, where its length is known.
    pub duration: Option<Millis>,
    /// What it costs, where its price is known, too.
    pub cost: Option<UsdMicros>,
}

/// Factors on what formulas say, in thousandths, and what they are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Learned {
    /// Measured attempts on GPUs of this type, with this framework.
    pub attempts: u32,
    /// On what a GPU does alone.
    pub compute_permille: u32,
    /// On what travels between GPUs.
    pub communication_permille: u32,
    /// On memory that tensors take.
    pub memory_permille: u32,
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            attempts: 0,
            compute_permille: 1_000,
            communication_permille: 1_000,
            memory_permille: 1_000,
        }
    }
}

impl ShapePlan {
    /// Whether this is the plan of a shape.
    #[must_use]
    pub fn is_of(&self, shape: &Shape) -> bool {
        self.gpus == shape.gpus
            && shape
                .gpu_type
                .as_ref()
                .is_none_or(|name| *name == self.gpu_type)
            && self.partition == shape.partition
    }
}

/// Where no plan says what lies above what tensors take: a sixteenth for what the allocator holds beside, and a GiB for the
/// driver's context and the buffers of collectives.
const BESIDE_PART: u64 = 16;
const BESIDE: u64 = 1 << 30;
/// What a smaller request leaves above what was used, in percent.
const SPARE_PERCENT: u64 = 10;
/// A request above what was used by more than this is too large, in percent.
const OVER_PERCENT: u64 = 20;

impl Measured {
    /// Memory of a GPU that was used as its driver counts it, where a trainer told what tensors took.
    #[must_use]
    pub fn used(&self, plan: Option<&ShapePlan>) -> Option<Bytes> {
        let allocated = self.allocated.get();
        let beside = match plan {
            Some(plan) => plan.peak.get().saturating_sub(plan.allocated.get()),
            None => allocated / BESIDE_PART + BESIDE,
        };
        (allocated > 0).then(|| Bytes::new(allocated.saturating_add(beside)))
    }

    /// What would do in place of so much, where that is far more than was used: whole GiB, a tenth above it.
    #[must_use]
    pub fn enough(&self, asked: Bytes, plan: Option<&ShapePlan>) -> Option<Bytes> {
        let used = self.used(plan)?.get();
        let over =
            u128::from(asked.get()) * 100 > u128::from(used) * u128::from(100 + OVER_PERCENT);
        let enough = (used / 100 * (100 + SPARE_PERCENT)).div_ceil(1 << 30) << 30;
        (over && enough < asked.get()).then(|| Bytes::new(enough))
    }
}

/// What an attempt was measured to need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The attempt.
    pub attempt: AttemptId,
    /// Steps that were measured.
    pub steps: u64,
    /// Microseconds of the median step.
    pub step_us: u64,
    /// Bytes that tensors took at the peak on the fullest GPU; zero where no trainer said.
    pub allocated: Bytes,
}
