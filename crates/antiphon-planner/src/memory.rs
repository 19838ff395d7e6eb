//! The most memory that a rank needs: each pipeline stage, each moment of a step, what is alive then. Decides whether a run
//! fits.

use antiphon_types::model::LayerKind;
use antiphon_types::training::{
    LossKernel, Offload, Optimizer, Place, Precision, Recompute, Sharding,
};

use crate::activations::{self, in_flight};
use crate::roles::{self, Part};
use crate::run::{Machine, Run};
use crate::states::{self, Parameters, States};

const GIB: f64 = 1_073_741_824.0;

/// A moment of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The model is read.
    Load,
    /// The loss is computed, all activations are there.
    Loss,
    /// The last layers' gradients are made, nearly all activations are there.
    Backward,
    /// All gradients are there, activations are gone.
    BackwardEnd,
    /// The optimizer updates.
    Step,
    /// Answers are generated.
    Generate,
}

impl Phase {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Loss => "loss",
            Self::Backward => "backward",
            Self::BackwardEnd => "backward-end",
            Self::Step => "optimizer-step",
            Self::Generate => "generate",
        }
    }
}

/// What is alive at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parts {
    /// Weights.
    pub weights: f64,
    /// Gradients.
    pub gradients: f64,
    /// Optimizer states.
    pub optimizer: f64,
    /// Activations, the layer that is computed included.
    pub activations: f64,
    /// Logits, their copy and gradient.
    pub logits: f64,
    /// Gathered weights, buckets, workspaces.
    pub buffers: f64,
}

impl Parts {
    /// All of them.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.logits
            + self.buffers
    }
}

/// The worst moment of one pipeline stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// What is alive then.
    pub parts: Parts,
    /// When that is.
    pub phase: Phase,
}

/// The memory of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Memory {
    /// The fullest stage.
    pub stage: u64,
    /// Its worst moment.
    pub worst: Stage,
    /// Bytes that tensors take then.
    pub allocated: f64,
    /// Bytes that the caching allocator holds.
    pub reserved: f64,
    /// Bytes that the driver shows: context and collectives included.
    pub device: f64,
    /// Bytes of host memory that a node needs.
    pub host: f64,
    /// Bytes of local disk that a node needs.
    pub disk: f64,
    /// Whether the device's bytes leave the margin of 2 % or 1 GiB.
    pub fits: bool,
    /// Bytes that a process can get.
    pub usable: f64,
    /// Bytes of them that have to stay free: 2 % or 1 GiB, on small cards 5 %.
    pub margin: f64,
}

impl Memory {
    /// The same with another share of what tensors were computed to take.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        let more = (factor - 1.0) * self.allocated;
        self.allocated += more;
        self.reserved += more;
        self.device += more;
        self.fits &= more <= 0.0 || self.device + self.margin <= self.usable;
        self
    }
}

/// Computes the memory of a run.
#[must_use]
pub fn memory(run: &Run, machine: &Machine) -> Memory {
    let (mut worst, mut at) = (stage(run, 0), 0);
    let (mut host, mut disk) = away(run, 0);
    // Between the second and the last but one stage nothing grows: embedding and head sit at the ends.
    for index in [1, run.pp.saturating_sub(2), run.pp - 1] {
        if index > 0 && index < run.pp {
            let other = stage(run, index);
            if other.parts.sum() > worst.parts.sum() {
                (worst, at) = (other, index);
            }
            // The fullest host need not be that of the fullest GPU.
            let (on_host, on_disk) = away(run, index);
            (host, disk) = (host.max(on_host), disk.max(on_disk));
        }
    }
    let allocated = worst.parts.sum();
    let reserved = allocated * run.profile.reserved_ratio;
    let device = reserved + context(run, machine);
    let ranks = run.gpus.min(machine.node) as f64;
    let usable = machine.gpu.usable_gib * GIB;
    let margin = margin(usable);
    let host = host * ranks;
    Memory {
        stage: at,
        worst,
        allocated,
        reserved,
        device,
        host,
        disk: disk * ranks,
        margin,
        fits: device + margin <= usable
            && (machine.host_gib == 0.0 || host <= machine.host_gib * GIB),
        usable,
    }
}

/// Bytes of a rank of a stage in host memory and on disk.
fn away(run: &Run, stage: u64) -> (f64, f64) {
    if run.offload == Offload::default() {
        return (0.0, 0.0);
    }
    let states = states::states(run, stage);
    (states.host + host_activations(run, stage), states.disk)
}

/// Bytes that have to stay free: 2 % or 1 GiB, on small cards 5 %.
#[must_use]
pub fn margin(usable: f64) -> f64 {
    (0.02 * usable).max(GIB).min(0.05 * usable)
}

/// Bytes of one micro-batch in the largest block, while it is computed.
#[must_use]
pub fn block(run: &Run) -> f64 {
    let kinds = [LayerKind::Dense, LayerKind::Experts];
    let used = kinds.into_iter().filter(|kind| match kind {
        LayerKind::Dense => run.model.dense_layers() > 0 || run.model.experts.is_none(),
        LayerKind::Experts => run.model.experts.is_some(),
    });
    used.map(|kind| {
        let layer = activations::layer(run, kind);
        layer.kept.max(layer.live)
    })
    .fold(0.0, f64::max)
}

/// The driver's context, and buffers of collectives.
pub(crate) fn context(run: &Run, machine: &Machine) -> f64 {
    let context = if machine.gpu.architecture == "Ampere" {
        0.45
    } else {
        0.55
    };
    let collectives = if run.gpus == 1 {
        0.0
    } else {
        // One communicator for each dimension that is used.
        let dimensions = [run.dp * run.cp, run.tp, run.pp, run.ep]
            .iter()
            .filter(|&&n| n > 1)
            .count();
        0.25 * dimensions as f64
    };
    (context + collectives) * GIB
}

fn host_activations(run: &Run, stage: u64) -> f64 {
    if run.offload.activations != Place::Cpu {
        return 0.0;
    }
    let (first, last) = states::layers(run, stage);
    let layer = activations::layer(run, LayerKind::Dense);
    layer.host * (last - first) as f64 * in_flight(run, stage)
}

/// The worst moment of a stage.
#[must_use]
pub fn stage(run: &Run, stage: u64) -> Stage {
    let mut worst = Stage {
        parts: Parts::default(),
        phase: Phase::Load,
    };
    each_moment(run, stage, |phase, parts| {
        if parts.sum() > worst.parts.sum() {
            worst = Stage { parts, phase };
        }
    });
    worst
}

/// Every moment of a step on a stage, in order.
#[must_use]
pub fn moments(run: &Run, stage: u64) -> Vec<Stage> {
    let mut moments = Vec::new();
    each_moment(run, stage, |phase, parts| {
        moments.push(Stage { parts, phase });
    });
    moments
}

fn each_moment(run: &Run, stage: u64, mut consider: impl FnMut(Phase, Parts)) {
    let own = states::parameters(run, stage);
    let states = states::states(run, stage);
    let gathered = gathered(run, &own);
    let (kept, live) = kept(run, stage);
    let reference = reference(run, &own);
    // A critic is as large as the actor and trained as it is; each has its turn.
    let critic = roles::shares(run, Part::Critic);
    let trained = if critic { 2.0 } else { 1.0 };
    let workspace = run.profile.workspace_gib * GIB + dequantized(run);
    let beside = if run.rollout.gives_back == Some(true) {
        0.0
    } else {
        run.engine_bytes
    };
    let base = Parts {
        weights: trained * states.weights + reference + cached_copies(run, &own),
        optimizer: trained * states.optimizer,
        buffers: workspace + beside,
        ..Parts::default()
    };
    let buffered = run.profile.gradient_buffer && run.trained.full;
    let before = if buffered || (run.accumulation > 1 && !run.in_backward) {
        states.gradients
    } else {
        0.0
    };
    let all = if run.in_backward {
        // Each gradient is used and dropped: the largest is what is left.
        largest(run) * states::each(run).gradient
    } else {
        states.gradients
    };
    let last = stage + 1 == run.pp;
    let logits = if last { activations::logits(run) } else { 0.0 };
    let head = if last { own.head_weights(run) } else { 0.0 };
    let head_gradient = if last && run.trained.full && !buffered {
        all.min(head_gradient(run))
    } else {
        0.0
    };

    consider(
        Phase::Load,
        Parts {
            weights: base.weights,
            buffers: base.buffers + run.profile.load_gib * GIB,
            ..Parts::default()
        },
    );
    consider(
        Phase::Loss,
        Parts {
            gradients: before.max(head_gradient * chunked_head(run)),
            activations: kept + handed(run),
            logits,
            buffers: base.buffers + gathered.layer.max(head),
            ..base
        },
    );
    consider(
        Phase::Backward,
        Parts {
            gradients: before.max(head_gradient),
            activations: kept + live,
            buffers: base.buffers + gathered.layer + gathered.gradient,
            ..base
        },
    );
    consider(
        Phase::BackwardEnd,
        Parts {
            gradients: all,
            activations: live.max(handed(run)),
            buffers: base.buffers + gathered.layer + gathered.gradient,
            ..base
        },
    );
    if run.offload.optimizer == Place::Gpu {
        consider(
            Phase::Step,
            Parts {
                gradients: all,
                buffers: base.buffers + update_copies(run, &states),
                ..base
            },
        );
    }
    if run.engine_bytes > 0.0 {
        let away = run.rollout.trained_offload == Some(true);
        let scoring = if run.rollout.scoring_offload == Some(true) {
            0.0
        } else {
            reference
        };
        let stays = if away { 0.0 } else { 1.0 };
        consider(
            Phase::Generate,
            Parts {
                weights: scoring + stays * (base.weights - reference),
                optimizer: stays * base.optimizer,
                buffers: workspace + run.engine_bytes,
                ..Parts::default()
            },
        );
    }
}

impl Parameters {
    /// Bytes of the head as it is computed with, where it has to be gathered first.
    fn head_weights(&self, run: &Run) -> f64 {
        if run.sharding == Sharding::Zero3 && run.shards > 1 {
            2.0 * (run.model.vocab * run.model.hidden) as f64 / run.tp as f64
        } else {
            0.0
        }
    }
}

/// The head's gradient is there early when the loss is computed in chunks.
const fn chunked_head(run: &Run) -> f64 {
    match run.loss {
        LossKernel::Plain => 0.0,
        LossKernel::Chunked { .. } | LossKernel::FusedLinear => 1.0,
    }
}

fn head_gradient(run: &Run) -> f64 {
    let bytes = states::each(run).gradient.min(4.0);
    bytes * (run.model.vocab * run.model.hidden) as f64 / run.tp as f64
}

/// The hidden state and its gradient, which pass from layer to layer.
fn handed(run: &Run) -> f64 {
    let split = if run.sequence_parallel {
        run.tp as f64
    } else {
        1.0
    };
    2.0 * 2.0 * run.model.hidden as f64 * run.tokens() / split
}

/// What is kept at the end of the forward pass, and what the layer in work adds.
fn kept(run: &Run, stage: u64) -> (f64, f64) {
    let (first, last) = states::layers(run, stage);
    let dense_until = if run.model.experts.is_some() {
        run.model.dense_layers()
    } else {
        run.model.layers
    };
    let dense = last.min(dense_until).saturating_sub(first) as f64;
    let sparse = (last - first) as f64 - dense;
    let mut kept = 0.0;
    let mut live: f64 = 0.0;
    for (count, kind) in [(dense, LayerKind::Dense), (sparse, LayerKind::Experts)] {
        if count > 0.0 {
            let layer = activations::layer(run, kind);
            kept += count * layer.kept;
            live = live.max(layer.live);
        }
    }
    let flight = in_flight(run, stage);
    let embedded = if stage == 0 && run.model.learned_positions == 0 {
        0.0
    } else {
        handed(run) / 2.0
    };
    // The gradients of a layer's values are there beside the values.
    let gradients = backward_temporaries(run);
    (kept * flight + embedded, live + gradients)
}

/// Gradients of the values of one block while it goes backward.
fn backward_temporaries(run: &Run) -> f64 {
    let tp = run.tp as f64;
    let split = if run.sequence_parallel { tp } else { 1.0 };
    let ffn = run.model.experts.map_or(run.model.ffn as f64, |experts| {
        (experts.ffn * experts.top_k + experts.shared_ffn) as f64
    });
    let widest = (2.0 * ffn / tp).max((run.model.query_width() + 2 * run.model.hidden) as f64 / tp);
    run.tokens() * 2.0 * (widest + 2.0 * run.model.hidden as f64 / split)
}

struct Gathered {
    layer: f64,
    gradient: f64,
}

/// Weights of whole layers that are there because a rank needs them now, and their gradient before it is shared out.
fn gathered(run: &Run, own: &Parameters) -> Gathered {
    if run.shards == 1 || run.sharding != Sharding::Zero3 {
        return Gathered {
            layer: 0.0,
            gradient: 0.0,
        };
    }
    let each = if run.trained.full {
        2.0
    } else {
        states::quantized_bytes(run.quantization)
    };
    let layer = (own.matrices + own.experts) / own.layers.max(1.0);
    Gathered {
        layer: (1.0 + run.profile.prefetch) * layer * each,
        gradient: if run.trained.full {
            layer * run.profile.reduce_bytes
        } else {
            0.0
        },
    }
}

/// Copies in the number format of computing that live beside 32-bit weights which are not sharded.
fn cached_copies(run: &Run, own: &Parameters) -> f64 {
    if run.precision == Precision::Autocast && run.sharding != Sharding::Zero3 && run.trained.full {
        2.0 * own.total()
    } else {
        0.0
    }
}

/// Models beside what is trained that only score: the reference, unless an adapter's base is it, and the reward model.
fn reference(run: &Run, own: &Parameters) -> f64 {
    let reference = run.trained.full && (run.compares() || roles::shares(run, Part::Reference));
    let reward = roles::shares(run, Part::Reward);
    let copies = f64::from(u8::from(reference)) + f64::from(u8::from(reward));
    let shards = if run.sharding == Sharding::Zero3 {
        run.shards as f64
    } else {
        1.0
    };
    copies * 2.0 * own.total() / shards
}

/// The largest matrix of a quantized base, in 16 bits, while it is used.
fn dequantized(run: &Run) -> f64 {
    if run.quantization.is_some() {
        2.0 * largest(run)
    } else {
        0.0
    }
}

fn largest(run: &Run) -> f64 {
    let model = &run.model;
    let head = if run.trained.full {
        model.vocab * model.hidden
    } else {
        0
    };
    (model.ffn * model.hidden).max(head) as f64 / run.tp as f64
}

/// What the optimizer copies when it works on all weights at once.
fn update_copies(run: &Run, states: &States) -> f64 {
    let in_one_kernel = matches!(
        run.optimizer,
        Optimizer::AdamWFused
            | Optimizer::AdamW8bit
            | Optimizer::AdamW4bit
            | Optimizer::PagedAdamW8bit
            | Optimizer::Lion8bit
            | Optimizer::Lomo
            | Optimizer::Sgd
    );
    let moments = states
        .optimizer
        .min(states.gradients.max(states.optimizer / 2.0));
    if in_one_kernel {
        0.0
    } else {
        run.profile.foreach_copies * moments
    }
}

/// Whether the recomputation is stronger than another: used to order what to try.
#[must_use]
pub const fn strength(recompute: &Recompute) -> u8 {
    match recompute {
        Recompute::None => 0,
        Recompute::Modules(_) => 1,
        Recompute::PerOperation => 2,
        Recompute::Layers { .. } => 3,
        Recompute::Full => 4,
    }
}

#[cfg(test)]
mod tests {
    use antiphon_types::training::{Framework, Model, Rollout, Task, TrainingSpec};

    use super::*;
    use crate::{catalog, profile, resolve};

    fn grpo(rollout: Rollout) -> Memory {
        let machine = Machine::usual(catalog::accelerator("h100").unwrap());
        let mut spec = TrainingSpec {
            model: Model::Named("Qwen2.5-7B".into()),
            task: Task::Grpo,
            framework: Some(Framework::Verl),
            rollout: Some(rollout),
            ..TrainingSpec::default()
        };
        spec.layout.gpus = Some(8);
        let (run, _) = resolve(&spec, &machine, profile::frameworks()).unwrap();
        memory(&run, &machine)
    }

    #[test]
    fn an_engine_that_keeps_its_memory_takes_it_from_every_moment() {
        let share = |gives_back| {
            grpo(Rollout {
                memory_permille: Some(300),
                gives_back: Some(gives_back),
                ..Rollout::default()
            })
        };
        let (given_back, kept) = (share(true), share(false));
        let engine = 0.3 * kept.usable;
        let more = kept.allocated - given_back.allocated;
        assert!(more > 0.0 && more <= engine * 1.001, "{more} of {engine}");
        assert_ne!(kept.worst.phase, Phase::Generate);
    }

    #[test]
    fn while_answers_are_made_the_engine_and_what_is_trained_share_a_gpu() {
        let share = |trained_offload| {
            grpo(Rollout {
                memory_permille: Some(900),
                gives_back: Some(true),
                trained_offload: Some(trained_offload),
                ..Rollout::default()
            })
        };
        let (beside, away) = (share(false), share(true));
        assert_eq!(beside.worst.phase, Phase::Generate);
        assert!(!beside.fits && away.allocated < beside.allocated);
    }

    #[test]
    fn engines_on_gpus_of_their_own_take_nothing_here() {
        let own = grpo(Rollout {
            gpus: Some(8),
            memory_permille: Some(900),
            ..Rollout::default()
        });
        assert!(own.worst.parts.buffers < 0.2 * own.usable);
    }
}
