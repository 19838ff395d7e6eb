//! The answer to a plan in the form that scripts, the server and the dashboard read: integers in units that their names end
//! with. Computes nothing.

use antiphon_types::training::{Length, Recompute, Sharding};
use serde::Serialize;

use crate::advice::{Advice, Kind};
use crate::checkpoint::{Checkpoint, Hazards, checkpoint};
use crate::cost::{Cost, cost};
use crate::memory::{self, Parts};
use crate::plan::Plan;
use crate::roles::{self, Role};

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
    /// GPUs of the job: those that train, and those of roles beside.
    pub gpus: u64,
    /// What shares the GPUs that train: the policy alone, but for PPO and GRPO.
    pub shared: Vec<&'static str>,
    /// Roles with GPUs of their own.
    pub roles: Vec<RoleAnswer>,
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
    /// US dollars of the whole run at the machine's price; none where its length is not known.
    pub cost_usd: Option<f64>,
    /// The whole run; none where its length is not known.
    pub run: Option<RunAnswer>,
    /// US dollars for each million tokens, where the price is known.
    pub usd_per_million_tokens: Option<f64>,
    /// Checkpoints of the run.
    pub checkpoint: CheckpointAnswer,
    /// How the work is split.
    pub parallelism: Parallelism,
    /// Whether all of it fits, a margin of 2 % or 1 GiB left free on each GPU.
    pub fits: bool,
    /// What rules the step, and what to do about it.
    pub bottleneck: String,
    /// Which defaults were taken, and why.
    pub reasons: Vec<String>,
    /// What to change, with numbers.
    pub advice: Vec<AdviceAnswer>,
}

/// A role with GPUs of its own.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RoleAnswer {
    /// `critic`, `reference`, `reward` or `rollout`.
    pub name: &'static str,
    /// Its GPUs.
    pub gpus: u64,
    /// Its tensor parallelism.
    pub tp: u64,
    /// What the driver shows on each.
    pub peak_bytes: u64,
    /// What a process can get.
    pub usable_bytes: u64,
    /// Whether it fits.
    pub fits: bool,
}

/// The whole run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct RunAnswer {
    /// Optimizer steps; rounds of generating and training, where a task has them.
    pub steps: f64,
    /// Tokens.
    pub tokens: f64,
    /// Hours, lost time included.
    pub hours: f64,
    /// GPU-hours of it.
    pub gpu_hours: f64,
    /// US dollars at the machine's price.
    pub on_demand_usd: f64,
    /// US dollars at a usual reserved price.
    pub reserved_usd: f64,
    /// US dollars on spot, where a price is known.
    pub spot_usd: Option<f64>,
}

/// Checkpoints of a run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CheckpointAnswer {
    /// Bytes of one, over all GPUs.
    pub bytes: u64,
    /// Milliseconds that training stands still for one.
    pub save_ms: f64,
    /// Seconds between two.
    pub interval_s: f64,
    /// Share of all time that is lost to saving, to steps done again and to restarts, 0..1.
    pub waste: f64,
}

/// One piece of advice.
#[derive(Debug, Clone, Serialize)]
pub struct AdviceAnswer {
    /// `computed`, or `rule of thumb`.
    pub kind: &'static str,
    /// Who says so, of a rule of thumb.
    pub source: Option<&'static str>,
    /// What it is about.
    pub what: &'static str,
    /// All of it.
    pub sentence: String,
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

impl Answer {
    /// The answer to a plan of a run so long.
    #[must_use]
    pub fn of(plan: &Plan, length: &Length, advice: &[Advice]) -> Self {
        let (run, speed) = (&plan.run, &plan.speed);
        let saved = checkpoint(run, &plan.machine, &Hazards::default());
        let whole = cost(run, &plan.machine, speed, length, &saved);
        let usd_h = plan.machine.usd_h;
        Self {
            model: run.model.name.clone(),
            parameters: run.model.parameters(),
            parameters_trained: run.trained.parameters,
            gpu_type: plan.machine.gpu.name.clone(),
            gpus: run.gpus + roles::apart(run),
            shared: roles::shared(run)
                .into_iter()
                .map(roles::Part::name)
                .collect(),
            roles: plan.roles.iter().map(RoleAnswer::from).collect(),
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
            cost_usd: whole.filter(|_| usd_h > 0.0).map(|cost| cost.on_demand_usd),
            run: whole.map(RunAnswer::from),
            usd_per_million_tokens: (usd_h > 0.0)
                .then(|| usd_h / 3_600.0 / speed.tokens_per_s_per_gpu * 1e6),
            checkpoint: CheckpointAnswer::from(saved),
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
            fits: plan.fits(),
            bottleneck: speed.bottleneck.help(),
            reasons: plan.reasons(),
            advice: advice.iter().map(AdviceAnswer::from).collect(),
        }
    }
}

impl From<&Role> for RoleAnswer {
    fn from(role: &Role) -> Self {
        Self {
            name: role.part.name(),
            gpus: role.gpus,
            tp: role.tp,
            peak_bytes: bytes(role.device),
            usable_bytes: bytes(role.usable),
            fits: role.fits,
        }
    }
}

impl From<Cost> for RunAnswer {
    fn from(cost: Cost) -> Self {
        Self {
            steps: cost.steps,
            tokens: cost.tokens,
            hours: cost.hours,
            gpu_hours: cost.gpu_hours,
            on_demand_usd: cost.on_demand_usd,
            reserved_usd: cost.reserved_usd,
            spot_usd: cost.spot_usd,
        }
    }
}

impl From<Checkpoint> for CheckpointAnswer {
    fn from(saved: Checkpoint) -> Self {
        Self {
            bytes: bytes(saved.bytes),
            save_ms: 1e3 * saved.save_s,
            interval_s: saved.interval_s,
            waste: saved.waste,
        }
    }
}

impl From<&Advice> for AdviceAnswer {
    fn from(advice: &Advice) -> Self {
        let (kind, source) = match advice.kind {
            Kind::Computed => ("computed", None),
            Kind::RuleOfThumb { source } => ("rule of thumb", Some(source)),
        };
        Self {
            kind,
            source,
            what: advice.what,
            sentence: advice.sentence.clone(),
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
