//! What lives as long as the run: weights, gradients and optimizer states of each pipeline stage, and how data-parallel ranks
//! share them. Rajbhandari 2020 (`ZeRO`); Dettmers 2022 (8-bit states), 2023 (NF4). Knows no activations.

use antiphon_types::model::LayerKind;
use antiphon_types::training::{Optimizer, Place, Precision, Quantization, Schedule, Sharding};

use crate::run::Run;

/// Parameters that one rank of a pipeline stage holds, after tensor and expert parallelism, before sharding.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// Matrices of blocks, experts left out.
    pub matrices: f64,
    /// Experts.
    pub experts: f64,
    /// Norms and biases, which every rank holds.
    pub vectors: f64,
    /// The embedding.
    pub embedding: f64,
    /// The output head, or the last stage's copy of a tied embedding.
    pub head: f64,
    /// Layers of the stage.
    pub layers: f64,
}

impl Parameters {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.dense() + self.experts
    }

    /// All but experts.
    #[must_use]
    pub fn dense(&self) -> f64 {
        self.matrices + self.vectors + self.embedding + self.head
    }
}

/// Parameters of a stage; with both ends feeding the pipeline, those of the stage that mirrors it, too.
#[must_use]
pub fn parameters(run: &Run, stage: u64) -> Parameters {
    let own = of_stage(run, stage);
    if run.schedule != Schedule::DualPipe || run.pp == 1 {
        return own;
    }
    let mirrored = of_stage(run, run.pp - 1 - stage);
    Parameters {
        matrices: own.matrices + mirrored.matrices,
        experts: own.experts + mirrored.experts,
        vectors: own.vectors + mirrored.vectors,
        embedding: own.embedding + mirrored.embedding,
        head: own.head + mirrored.head,
        layers: own.layers + mirrored.layers,
    }
}

fn of_stage(run: &Run, stage: u64) -> Parameters {
    let model = &run.model;
    let tp = run.tp as f64;
    let (mut matrices, mut experts, mut vectors) = (0.0, 0.0, 0.0);
    let (first, last) = layers(run, stage);
    let norms = (model.norms_per_layer * model.norm.parameters(model.hidden)) as f64;
    let dense_until = if model.experts.is_some() {
        model.dense_layers()
    } else {
        model.layers
    };
    let dense = (last.min(dense_until)).saturating_sub(first) as f64;
    let sparse = (last - first) as f64 - dense;
    if dense > 0.0 {
        matrices += dense * (model.layer(LayerKind::Dense) as f64 - norms) / tp;
    }
    if sparse > 0.0 {
        let routed = model.routed_experts() as f64;
        let router = model.router() as f64;
        let rest = model.layer(LayerKind::Experts) as f64 - norms - routed - router;
        matrices += sparse * rest / tp;
        vectors += sparse * router;
        experts += sparse * routed / (run.ep * run.expert_tp) as f64;
    }
    vectors += (last - first) as f64 * norms;
    let mut embedding = 0.0;
    let mut head = 0.0;
    if stage == 0 {
        embedding = model.embedding() as f64 / tp;
    }
    if stage + 1 == run.pp {
        vectors += model.norm.parameters(model.hidden) as f64;
        head = if model.tied && run.pp > 1 {
            (model.vocab * model.hidden) as f64 / tp
        } else {
            model.head() as f64 / tp
        };
    }
    Parameters {
        matrices,
        experts,
        vectors,
        embedding,
        head,
        layers: (last - first) as f64,
    }
}

/// The layers of a stage, from and to; the first stages take what does not divide.
#[must_use]
pub const fn layers(run: &Run, stage: u64) -> (u64, u64) {
    let (each, rest) = (run.model.layers / run.pp, run.model.layers % run.pp);
    let first = stage * each + if stage < rest { stage } else { rest };
    let own = each + if stage < rest { 1 } else { 0 };
    (first, first + own)
}

/// Bytes of the long-lived tensors of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct States {
    /// Weights, as they lie between their uses.
    pub weights: f64,
    /// Gradients when all of them are there.
    pub gradients: f64,
    /// Optimizer states and copies of weights.
    pub optimizer: f64,
    /// Bytes in host memory, for this rank.
    pub host: f64,
    /// Bytes on disk, for this rank.
    pub disk: f64,
}

/// Bytes of each trained parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Each {
    /// Its weight.
    pub weight: f64,
    /// Its gradient.
    pub gradient: f64,
    /// A copy that the optimizer updates.
    pub master: f64,
    /// One moment.
    pub moment: f64,
}

/// Bytes of each trained parameter, as precision and framework have it.
#[must_use]
pub fn each(run: &Run) -> Each {
    match run.precision {
        Precision::Pure16 => Each {
            weight: 2.0,
            gradient: 2.0,
            master: 0.0,
            moment: 2.0,
        },
        Precision::Mixed16 => Each {
            weight: 2.0,
            gradient: run.profile.gradient_bytes,
            master: 4.0,
            moment: if run.model.experts.is_some() && run.profile.expert_moment_bytes > 0.0 {
                run.profile.expert_moment_bytes
            } else {
                4.0
            },
        },
        Precision::Autocast | Precision::Full32 => Each {
            weight: 4.0,
            gradient: 4.0,
            master: 0.0,
            moment: 4.0,
        },
    }
}

/// Bytes of optimizer states for `parameters` of which `embedded` are embedding and head.
#[must_use]
pub fn optimizer_bytes(run: &Run, parameters: f64, embedded: f64, moment: f64) -> f64 {
    let hidden = run.model.hidden as f64;
    match run.optimizer {
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::PagedAdamW | Optimizer::Sophia => {
            2.0 * moment * parameters
        }
        // A scale in 32 bits for each block of 256; embeddings stay in 32 bits.
        Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit => {
            (2.0 + 8.0 / 256.0) * (parameters - embedded)
                + 8.0
                    * embedded
                    * if run.trained.full {
                        run.profile.embedding_states
                    } else {
                        0.0
                    }
                + (2.0 + 8.0 / 256.0)
                    * embedded
                    * if run.trained.full {
                        1.0 - run.profile.embedding_states
                    } else {
                        1.0
                    }
        }
        Optimizer::AdamW4bit => (1.0 + 8.0 / 128.0) * parameters,
        // Rows and columns of matrices about as wide as the model.
        Optimizer::Adafactor => 8.0 * parameters / hidden,
        Optimizer::Lion | Optimizer::SgdMomentum => moment * parameters,
        Optimizer::Lion8bit => (1.0 + 4.0 / 256.0) * parameters,
        Optimizer::Prodigy => 4.0 * moment * parameters,
        Optimizer::Muon => moment * (parameters - embedded) + 2.0 * moment * embedded,
        Optimizer::Galore { rank } => {
            let rank = (rank as f64).min(hidden);
            // Two moments of r x n, and the projector m x r, for matrices of about m = n = hidden.
            (2.0 * moment + 2.0) * (parameters - embedded) * rank / hidden + 2.0 * moment * embedded
        }
        Optimizer::Apollo { rank } => {
            let rank = (rank as f64).min(hidden);
            2.0 * moment * (parameters - embedded) * rank / hidden + 2.0 * moment * embedded
        }
        Optimizer::Sgd | Optimizer::Lomo => 0.0,
    }
}

/// Bytes of a frozen weight in a matrix of a block.
#[must_use]
pub fn quantized_bytes(quantization: Option<Quantization>) -> f64 {
    match quantization {
        None => 2.0,
        Some(Quantization::Nf4) => 0.5 + 4.0 / 64.0,
        Some(Quantization::Nf4Double) => 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0),
        Some(Quantization::Int8) => 1.0,
        Some(Quantization::Hqq4) => 0.5 + 4.0 / 64.0,
    }
}

/// Long-lived tensors of one rank of a stage.
#[must_use]
pub fn states(run: &Run, stage: u64) -> States {
    let own = parameters(run, stage);
    let mut states = if run.trained.full {
        trained_whole(run, &own)
    } else {
        adapted(run, &own, stage)
    };
    // What was moved to the host or to disk does not lie here.
    let mut moved = |bytes: &mut f64, place: Place| match place {
        Place::Gpu => {}
        Place::Cpu => states.host += std::mem::take(bytes),
        Place::Disk => states.disk += std::mem::take(bytes),
    };
    let (mut weights, mut gradients, mut optimizer) =
        (states.weights, states.gradients, states.optimizer);
    if run.sharding == Sharding::Zero3 {
        moved(&mut weights, run.offload.parameters);
        moved(&mut gradients, run.offload.parameters);
    }
    moved(&mut optimizer, run.offload.optimizer);
    if run.offload.optimizer != Place::Gpu {
        // The host updates: gradients go down as they come.
        moved(&mut gradients, run.offload.optimizer);
    }
    States {
        weights,
        gradients,
        optimizer,
        ..states
    }
}

fn trained_whole(run: &Run, own: &Parameters) -> States {
    let each = each(run);
    let dense = own.dense();
    // Experts are copied less often, so fewer ranks share them.
    let expert_copies = (run.dp * run.cp * run.tp / (run.ep * run.expert_tp).max(1)).max(1);
    // Both ends' copies of a stage share their states.
    let both = if run.schedule == Schedule::DualPipe && run.pp > 1 {
        2.0
    } else {
        1.0
    };
    let shards = both * run.shards as f64;
    let expert_shards = both * run.shards.min(expert_copies) as f64;
    let split = |bytes: f64, shared: bool| {
        if shared {
            dense * bytes / shards + own.experts * bytes / expert_shards
        } else {
            (dense + own.experts) * bytes
        }
    };
    let share = run.sharding;
    let embedded = own.embedding + own.head;
    let states = |parameters: f64, embedded: f64| {
        optimizer_bytes(run, parameters, embedded, each.moment) + each.master * parameters
    };
    let optimizer = if share == Sharding::None {
        states(dense + own.experts, embedded)
    } else {
        states(dense / shards, embedded / shards) + states(own.experts / expert_shards, 0.0)
    };
    States {
        weights: split(each.weight, share == Sharding::Zero3),
        gradients: split(
            each.gradient,
            matches!(share, Sharding::Zero2 | Sharding::Zero3),
        ),
        optimizer,
        ..States::default()
    }
}

fn adapted(run: &Run, own: &Parameters, stage: u64) -> States {
    let body = quantized_bytes(run.quantization);
    let head = if run.quantization.is_some() && run.profile.quantized_head {
        body
    } else {
        2.0
    };
    let frozen =
        (own.matrices + own.experts) * body + (own.vectors + own.embedding) * 2.0 + own.head * head;
    let (first, last) = layers(run, stage);
    let share = (last - first) as f64 / run.model.layers as f64;
    let trained = run.trained.parameters as f64 * share / run.tp as f64;
    let weight = run.profile.adapter_bytes;
    let shards = if run.sharding == Sharding::Zero3 {
        run.shards as f64
    } else {
        1.0
    };
    let optimizer_shards = run.shards as f64;
    States {
        weights: (frozen + trained * weight) / shards,
        gradients: trained * weight / shards,
        optimizer: optimizer_bytes(run, trained, 0.0, weight) / optimizer_shards,
        ..States::default()
    }
}
