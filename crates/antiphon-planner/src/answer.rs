//! The answer to a plan in the form that scripts, the server and the dashboard read: integers in units that their names end
//! with. Computes nothing.

use antiphon_types::training::{Recompute, Sharding};
use serde::Serialize;

use crate::memory::{self, Parts};
use crate::plan::Plan;

/// The whole answer.
#[derive(Debug, Clone, Serialize)]
pub struct Answer {
    /// The model.
    pub model: String,
    /// Its parameters, and those that are trained.
    pub parameters: u64,
    /// Those that are trained.
    pub parameters_trained: u64,
    /// GPU type.
    pub gpu_type: String,
    /// GPUs.
    pub gpus: u64,
    /// Whose habits are assumed.
    pub framework: &'static str,
    /// Memory of the fullest GPU.
    pub memory: MemoryAnswer,
    /// Milliseconds of an optimizer step.
    pub step_ms: f64,
    /// What they are spent on.
    pub step_parts_ms: Vec<Part>,
    /// Tokens a second for each GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Model operations over the data sheet's rate, 0..1.
    pub mfu: f64,
    /// Milliseconds of a step that GPUs wait for each other's data.
    pub communication_ms: f64,
    /// Idle share of a pipeline stage, 0..1.
    pub bubble_fraction: f64,
    /// How the work is split.
    pub parallelism: Parallelism,
    /// Whether it fits, a margin of 2 % or 1 GiB left free.
    pub fits: bool,
    /// What rules the step, and what to do about it.
    pub bottleneck: String,
    /// Which defaults were taken, and why.
    pub reasons: Vec<String>,
}

/// One part of a step.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Milliseconds.
    pub ms: f64,
}

/// Memory of the fullest GPU at its worst moment.
#[derive(Debug, Clone, Serialize)]
pub struct MemoryAnswer {
    /// Weights.
    pub weights_bytes: u64,
    /// Gradients.
    pub gradients_bytes: u64,
    /// Optimizer states.
    pub optimizer_bytes: u64,
    /// Activations.
    pub activations_bytes: u64,
    /// Logits, their copy and gradient.
    pub logits_bytes: u64,
    /// Gathered weights and workspaces.
    pub buffers_bytes: u64,
    /// Fragmentation, context and collectives.
    pub overhead_bytes: u64,
    /// What tensors take.
    pub allocated_bytes: u64,
    /// What the caching allocator holds.
    pub reserved_bytes: u64,
    /// What the driver shows: the sum of the above.
    pub peak_bytes: u64,
    /// What a process can get.
    pub usable_bytes: u64,
    /// When the worst moment is.
    pub phase: &'static str,
    /// On which pipeline stage, from 0.
    pub stage: u64,
    /// Every pipeline stage.
    pub stages: Vec<StageAnswer>,
    /// Host memory of a node.
    pub host_bytes: u64,
    /// Local disk of a node.
    pub disk_bytes: u64,
}

/// One pipeline stage at its worst moment.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct StageAnswer {
    /// What tensors take.
    pub allocated_bytes: u64,
    /// When.
    pub phase: &'static str,
}

/// How the work is split.
#[derive(Debug, Clone, Serialize)]
pub struct Parallelism {
    /// Data parallelism.
    pub dp: u64,
    /// Tensor parallelism.
    pub tp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Context parallelism.
    pub cp: u64,
    /// Expert parallelism.
    pub ep: u64,
    /// What data-parallel ranks share: 0 nothing, 1 states, 2 gradients too, 3 weights too.
    pub zero: u8,
    /// Sequences of a forward pass.
    pub micro_batch: u64,
    /// Forward passes before weights move.
    pub accumulation: u64,
    /// Sequences of a step.
    pub global_batch: u64,
    /// Tokens of the longest sequence.
    pub sequence_length: u64,
    /// What is computed again.
    pub recompute: &'static str,
}

/// Rounds to bytes.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes are positive and far below 2^63"
)]
fn bytes(value: f64) -> u64 {
    value.round() as u64
}

/// The name of a choice of recomputation.
#[must_use]
pub const fn recompute_name(recompute: &Recompute) -> &'static str {
    match recompute {
        Recompute::None => "none",
        Recompute::Full => "full",
        Recompute::Layers { .. } => "layers",
        Recompute::PerOperation => "per-operation",
        Recompute::Modules(_) => "modules",
    }
}

/// The `ZeRO` stage that shares as much.
#[must_use]
pub const fn zero_stage(sharding: Sharding) -> u8 {
    match sharding {
        Sharding::None => 0,
        Sharding::Zero1 => 1,
        Sharding::Zero2 => 2,
        Sharding::Zero3 => 3,
    }
}

impl From<&Plan> for Answer {
    fn from(plan: &Plan) -> Self {
        let (run, speed) = (&plan.run, &plan.speed);
        Self {
            model: run.model.name.clone(),
            parameters: run.model.parameters(),
            parameters_trained: run.trained.parameters,
            gpu_type: plan.machine.gpu.name.clone(),
            gpus: run.gpus,
            framework: run.profile.framework.name(),
            memory: MemoryAnswer::of(plan),
            step_ms: speed.step_ms,
            step_parts_ms: speed
                .parts
                .named()
                .into_iter()
                .filter(|(_, ms)| *ms > 0.0)
                .map(|(name, ms)| Part { name, ms })
                .collect(),
            tokens_per_s_per_gpu: speed.tokens_per_s_per_gpu,
            mfu: speed.mfu,
            communication_ms: speed.parts.communication(),
            bubble_fraction: speed.bubble_fraction,
            parallelism: Parallelism {
                dp: run.dp,
                tp: run.tp,
                pp: run.pp,
                cp: run.cp,
                ep: run.ep,
                zero: zero_stage(run.sharding),
                micro_batch: run.micro,
                accumulation: run.accumulation,
                global_batch: run.global(),
                sequence_length: run.sequence,
                recompute: recompute_name(&run.recompute),
            },
            fits: plan.memory.fits,
            bottleneck: speed.bottleneck.help(),
            reasons: plan.reasons(),
        }
    }
}

impl Plan {
    /// Which defaults were taken, each a sentence.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        self.assumptions
            .iter()
            .map(|assumption| {
                format!(
                    "{}: {} ({})",
                    assumption.what, assumption.taken, assumption.why
                )
            })
            .collect()
    }
}

impl MemoryAnswer {
    fn of(plan: &Plan) -> Self {
        let memory = &plan.memory;
        let Parts {
            weights,
            gradients,
            optimizer,
            activations,
            logits,
            buffers,
        } = memory.worst.parts;
        let parts = [weights, gradients, optimizer, activations, logits, buffers].map(bytes);
        let peak = bytes(memory.device);
        Self {
            weights_bytes: parts[0],
            gradients_bytes: parts[1],
            optimizer_bytes: parts[2],
            activations_bytes: parts[3],
            logits_bytes: parts[4],
            buffers_bytes: parts[5],
            overhead_bytes: peak.saturating_sub(parts.iter().sum()),
            allocated_bytes: parts.iter().sum(),
            reserved_bytes: bytes(memory.reserved),
            peak_bytes: peak,
            usable_bytes: bytes(memory.usable),
            phase: memory.worst.phase.name(),
            stage: memory.stage,
            stages: (0..plan.run.pp)
                .map(|index| {
                    let stage = memory::stage(&plan.run, index);
                    StageAnswer {
                        allocated_bytes: bytes(stage.parts.sum()),
                        phase: stage.phase.name(),
                    }
                })
                .collect(),
            host_bytes: bytes(memory.host),
            disk_bytes: bytes(memory.disk),
        }
    }
}
