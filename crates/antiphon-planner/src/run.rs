//! A training run with nothing left open: what the spec says, and for the rest what its framework does by default. Every
//! choice made here is told. Computes no bytes and no time.

use antiphon_types::model::{Linear, ModelShape};
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Matmul, Method, Model, Module, Offload, Optimizer,
    Place, Precision, Quantization, Recompute, Rollout, Schedule, Sharding, Task, TrainingSpec,
};

use crate::catalog::{self, Accelerator};
use crate::error::PlanError;
use crate::profile::{Frameworks, Profile, habits};
use crate::typical;

/// The hardware that a run is planned for.
#[derive(Debug, Clone)]
pub struct Machine {
    /// GPU type.
    pub gpu: Accelerator,
    /// GPUs joined by the fast link: a node, or an NVLink domain over several.
    pub domain: u64,
    /// GPUs of a node.
    pub node: u64,
    /// 10^9 bytes a second one way between domains, for each GPU.
    pub inter_gb_s: f64,
    /// Host memory of a node in GiB; 0 where it is not known, and then not checked.
    pub host_gib: f64,
    /// 10^9 bytes a second a node writes to checkpoint storage.
    pub storage_gb_s: f64,
    /// US dollars an hour for each GPU.
    pub usd_h: f64,
}

impl Machine {
    /// The usual nodes of a GPU type: 8 GPUs, one 400 Gb/s port each; price of the catalog.
    #[must_use]
    pub fn usual(gpu: &Accelerator) -> Self {
        let nvl72 = gpu.name.starts_with("GB200") || gpu.name.starts_with("GB300");
        // A Grace Hopper has one GPU beside its processor: 450 GB/s is the link between the two.
        let alone = gpu.name.starts_with("GH200");
        let ampere = gpu.architecture == "Ampere" || gpu.architecture == "Volta";
        Self {
            domain: match (nvl72, alone) {
                (true, _) => 72,
                (false, true) => 1,
                (false, false) => 8,
            },
            node: match (nvl72, alone) {
                (true, _) => 4,
                (false, true) => 1,
                (false, false) => 8,
            },
            inter_gb_s: if ampere { 25.0 } else { 50.0 },
            host_gib: 0.0,
            storage_gb_s: 4.0,
            usd_h: gpu.on_demand_usd_h,
            gpu: gpu.clone(),
        }
    }
}

/// A default that was taken because the spec does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assumption {
    /// What was left open.
    pub what: &'static str,
    /// What was taken.
    pub taken: String,
    /// Why.
    pub why: String,
}

/// Which weights move, with sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Parameters that move; those of experts apart, as they are split over other ranks.
    pub parameters: u64,
    /// Whether all of the model moves.
    pub full: bool,
    /// Linear layers whose input an adapter needs.
    pub adapted: Vec<Linear>,
    /// Width of a low-rank adapter; 0 for others.
    pub rank: u64,
    /// Whether the adapter drops out its input.
    pub dropout: bool,
    /// Whether a magnitude is learned beside (`DoRA`).
    pub dora: bool,
    /// Tokens in front of every layer's keys and values.
    pub prefix: u64,
    /// Tokens in front of the text.
    pub prompt: u64,
    /// What a library calls an adapter that is known by size only.
    pub name: Option<String>,
}

/// A training run with nothing left open.
#[derive(Debug, Clone)]
pub struct Run {
    /// The model.
    pub model: ModelShape,
    /// What it is trained for.
    pub task: Task,
    /// Which weights move.
    pub trained: Trained,
    /// How frozen weights are stored.
    pub quantization: Option<Quantization>,
    /// What updates the weights.
    pub optimizer: Optimizer,
    /// Whether each gradient is applied and dropped as soon as it is there.
    pub in_backward: bool,
    /// In which numbers weights, gradients and states are kept.
    pub precision: Precision,
    /// In which numbers matrices are multiplied, if not in 16 bits.
    pub matmul: Option<Matmul>,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Tokens of a sequence on average, in the terms that speed is told in.
    pub mean_sequence: u64,
    /// Tokens of an example on average: less than a sequence's where several are joined.
    pub example: u64,
    /// Whether sequences are joined to full length.
    pub packing: bool,
    /// Sequences of one forward pass.
    pub micro: u64,
    /// Forward passes before weights move.
    pub accumulation: u64,
    /// GPUs.
    pub gpus: u64,
    /// Data parallelism.
    pub dp: u64,
    /// What data-parallel ranks share.
    pub sharding: Sharding,
    /// Ranks that share the shards.
    pub shards: u64,
    /// Tensor parallelism.
    pub tp: u64,
    /// Whether what tensor parallelism leaves whole is split by sequence.
    pub sequence_parallel: bool,
    /// Pipeline stages.
    pub pp: u64,
    /// Model chunks of a stage.
    pub chunks: u64,
    /// The order of forward and backward passes.
    pub schedule: Schedule,
    /// Context parallelism.
    pub cp: u64,
    /// Expert parallelism.
    pub ep: u64,
    /// Tensor parallelism of experts.
    pub expert_tp: u64,
    /// Which activations are computed again.
    pub recompute: Recompute,
    /// How attention is computed.
    pub attention: AttentionKernel,
    /// How the loss is computed.
    pub loss: LossKernel,
    /// Whether blocks are compiled.
    pub compile: bool,
    /// What lives in host memory or on disk.
    pub offload: Offload,
    /// How answers are generated.
    pub rollout: Rollout,
    /// Bytes of each GPU that what generates takes, where it shares them: its weights and its cache.
    pub engine_bytes: f64,
    /// What its framework does.
    pub profile: &'static Profile,
}

impl Run {
    /// Tokens that one rank holds of a micro-batch, before tensor parallelism.
    #[must_use]
    pub fn tokens(&self) -> f64 {
        (self.micro * (self.sequence + self.trained.prompt) * self.sequences_a_sample()) as f64
            / self.cp as f64
    }

    /// Sequences in a sample: a pair counts two.
    #[must_use]
    pub const fn sequences_a_sample(&self) -> u64 {
        match self.task {
            Task::Dpo | Task::Orpo | Task::RewardModel => 2,
            Task::Pretrain | Task::Sft | Task::Kto | Task::Ppo | Task::Grpo => 1,
        }
    }

    /// The same with another recomputation, and what goes with it in its framework.
    #[must_use]
    pub fn recomputing(&self, recompute: Recompute) -> Self {
        let mut run = self.clone();
        if run.profile.offloads_checkpoints {
            run.offload.activations = if recompute == Recompute::Full {
                Place::Cpu
            } else {
                Place::Gpu
            };
        }
        run.recompute = recompute;
        run
    }

    /// Sequences before weights move, over all GPUs.
    #[must_use]
    pub const fn global(&self) -> u64 {
        self.micro * self.accumulation * self.dp
    }

    /// Whether given answers are held against a reference model; of generated ones `roles` says so.
    #[must_use]
    pub const fn compares(&self) -> bool {
        match self.task {
            Task::Dpo | Task::Kto => true,
            Task::Pretrain
            | Task::Sft
            | Task::Orpo
            | Task::RewardModel
            | Task::Ppo
            | Task::Grpo => false,
        }
    }
}

/// Settles everything that a spec leaves open.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn resolve(
    spec: &TrainingSpec,
    machine: &Machine,
    frameworks: &'static Frameworks,
) -> Result<(Run, Vec<Assumption>), PlanError> {
    let mut assumed = Vec::new();
    let mut model = model(
        &spec.model,
        spec.layout.ep.is_some_and(|ep| ep > 1),
        &mut assumed,
    )?;
    let profile = habits(
        frameworks,
        spec.framework.unwrap_or(Framework::Transformers),
        spec.framework_month,
    );
    if spec.framework.is_none() {
        assume(
            &mut assumed,
            "framework",
            "transformers",
            "none is named; it is the most used",
        );
    }
    if profile.unties_head {
        model.tied = false;
    }
    let trained = trained(&spec.method, &model, profile, &mut assumed);
    let layout = layout(spec, machine, profile, &model, &mut assumed)?;
    let batch = batch(spec, &model, layout.dp, layout.pp, profile, &mut assumed)?;

    let optimizer = spec.optimizer.unwrap_or_else(|| {
        assume(
            &mut assumed,
            "optimizer",
            format!("{:?}", profile.optimizer),
            "it is the framework's default",
        );
        profile.optimizer
    });
    let precision = spec.precision.unwrap_or_else(|| {
        assume(
            &mut assumed,
            "precision",
            precision_name(profile.precision),
            "it is the framework's default",
        );
        profile.precision
    });
    let recompute = spec.recompute.clone().unwrap_or_else(|| {
        let taken = if profile.recompute {
            Recompute::Full
        } else {
            Recompute::None
        };
        assume(
            &mut assumed,
            "recompute",
            if profile.recompute { "full" } else { "none" },
            "it is the framework's default",
        );
        taken
    });
    let mut offload = spec.offload;
    if profile.offloads_checkpoints
        && recompute == Recompute::Full
        && offload.activations == Place::Gpu
    {
        assume(
            &mut assumed,
            "checkpoints",
            "in host memory",
            "it is the framework's default",
        );
        offload.activations = Place::Cpu;
    }
    let attention = spec.attention.unwrap_or(AttentionKernel::Flash);
    let loss = spec.loss.unwrap_or_else(|| {
        if profile.loss != LossKernel::Plain {
            assume(
                &mut assumed,
                "loss",
                "fused or chunked",
                "the framework's own kernel",
            );
        }
        profile.loss
    });
    let compile = spec.compile.unwrap_or(profile.compile);
    let (rollout, engine_bytes) = engine(spec, machine, profile, &mut assumed);
    let run = Run {
        task: spec.task,
        quantization: match spec.quantization {
            Some(Quantization::Nf4) if profile.double_quantization => Some(Quantization::Nf4Double),
            other => other,
        },
        matmul: spec.matmul,
        offload,
        rollout,
        engine_bytes,
        model,
        trained,
        in_backward: spec.optimizer_in_backward.unwrap_or(
            optimizer == Optimizer::Lomo
                || (profile.paged_in_backward
                    && matches!(optimizer, Optimizer::PagedAdamW | Optimizer::PagedAdamW8bit)),
        ),
        optimizer,
        precision,
        sequence: batch.sequence,
        mean_sequence: batch.mean,
        example: batch.example,
        packing: batch.packing,
        micro: batch.micro,
        accumulation: batch.accumulation,
        gpus: layout.gpus,
        dp: layout.dp,
        sharding: layout.sharding,
        shards: layout.shards,
        tp: layout.tp,
        sequence_parallel: layout.sequence_parallel,
        pp: layout.pp,
        chunks: layout.chunks,
        schedule: layout.schedule,
        cp: layout.cp,
        ep: layout.ep,
        expert_tp: layout.expert_tp,
        recompute,
        attention,
        loss,
        compile,
        profile,
    };
    Ok((run, assumed))
}

fn assume(
    assumed: &mut Vec<Assumption>,
    what: &'static str,
    taken: impl Into<String>,
    why: impl Into<String>,
) {
    assumed.push(Assumption {
        what,
        taken: taken.into(),
        why: why.into(),
    });
}

const fn precision_name(precision: Precision) -> &'static str {
    match precision {
        Precision::Pure16 => "16 bits for weights, gradients and states",
        Precision::Mixed16 => "16-bit weights with a 32-bit copy",
        Precision::Autocast => "32-bit weights, computed with in 16 bits",
        Precision::Full32 => "32 bits",
    }
}

fn model(
    model: &Model,
    experts: bool,
    assumed: &mut Vec<Assumption>,
) -> Result<ModelShape, PlanError> {
    let name = match model {
        Model::Shape(shape) => return Ok((**shape).clone()),
        Model::Named(name) => name,
    };
    match catalog::model(name) {
        Ok(known) => Ok(known.shape.clone()),
        Err(nearest) => match typical::shape(name, experts) {
            Some(shape) => {
                let billions = shape.parameters() as f64 / 1e9;
                assume(
                    assumed,
                    "model",
                    format!("sizes that are usual for {billions:.1} B parameters"),
                    format!("`{name}` is not in the catalog; give its `config.json`"),
                );
                Ok(shape)
            }
            None => Err(PlanError::UnknownModel {
                name: name.clone(),
                nearest: nearest.into_iter().map(String::from).collect(),
            }),
        },
    }
}

fn trained(
    method: &Method,
    model: &ModelShape,
    profile: &Profile,
    assumed: &mut Vec<Assumption>,
) -> Trained {
    let none = Trained {
        parameters: 0,
        full: false,
        adapted: Vec::new(),
        rank: 0,
        dropout: false,
        dora: false,
        prefix: 0,
        prompt: 0,
        name: None,
    };
    match method {
        Method::Full => Trained {
            parameters: model.parameters(),
            full: true,
            ..none
        },
        Method::Lora(lora) => {
            let targets = if lora.targets.is_empty() {
                assume(
                    assumed,
                    "adapter targets",
                    profile
                        .targets
                        .iter()
                        .map(|target| target.name())
                        .collect::<Vec<_>>()
                        .join(", "),
                    "they are the framework's default",
                );
                profile.targets.clone()
            } else {
                lora.targets.clone()
            };
            let each: u64 = targets
                .iter()
                .map(|&target| low_rank(model, target, lora.rank, lora.dora))
                .sum();
            let whole: u64 = lora.whole.iter().map(|&target| whole(model, target)).sum();
            Trained {
                parameters: each + whole,
                adapted: targets,
                rank: lora.rank,
                dropout: lora.dropout || profile.lora_dropout,
                dora: lora.dora,
                ..none
            }
        }
        Method::PrefixTuning { tokens } => Trained {
            parameters: model.layers * model.cache_width() * tokens,
            prefix: *tokens,
            name: Some("prefix-tuning".into()),
            ..none
        },
        Method::PromptTuning { tokens } => Trained {
            parameters: tokens * model.hidden,
            prompt: *tokens,
            name: Some("prompt-tuning".into()),
            ..none
        },
        Method::PTuning { tokens, hidden } => Trained {
            parameters: tokens * model.hidden
                + 2 * model.hidden * hidden
                + hidden * hidden
                + 2 * hidden
                + model.hidden,
            prompt: *tokens,
            name: Some("p-tuning".into()),
            ..none
        },
        Method::Adapter { name, parameters } => Trained {
            parameters: *parameters,
            name: Some(name.clone()),
            ..none
        },
    }
}

/// Input and output width of a linear layer, with how many the model has of it.
#[must_use]
pub fn widths(model: &ModelShape, linear: Linear) -> (u64, u64, u64) {
    let h = model.hidden;
    let (q, out) = (model.query_width(), model.output_width());
    let kv = model.kv_heads() * (q / model.heads().max(1));
    let ffn = model.experts.map_or(model.ffn, |experts| {
        if experts.shared_ffn > 0 {
            experts.shared_ffn
        } else {
            experts.ffn
        }
    });
    let gated = model.mlp.matrices() == 3;
    match linear {
        Linear::QProj => (h, q, model.layers),
        Linear::KProj | Linear::VProj => (h, kv, model.layers),
        Linear::OProj => (out, h, model.layers),
        Linear::GateProj => (h, ffn, if gated { model.layers } else { 0 }),
        Linear::UpProj => (h, ffn, model.layers),
        Linear::DownProj => (ffn, h, model.layers),
        Linear::LmHead => (h, model.vocab, 1),
        Linear::EmbedTokens => (model.vocab, h, 1),
    }
}

/// Parameters of a low-rank adapter on every layer of one kind (Hu 2021: `r (in + out)` each; `DoRA` adds `out`).
fn low_rank(model: &ModelShape, linear: Linear, rank: u64, dora: bool) -> u64 {
    let (input, output, count) = widths(model, linear);
    let copies = match (linear, model.experts) {
        (Linear::GateProj | Linear::UpProj | Linear::DownProj, Some(experts))
            if experts.shared_ffn == 0 =>
        {
            experts.count
        }
        _ => 1,
    };
    count * copies * (rank * (input + output) + if dora { output } else { 0 })
}

fn whole(model: &ModelShape, linear: Linear) -> u64 {
    let (input, output, count) = widths(model, linear);
    input * output * count
}

struct Settled {
    gpus: u64,
    dp: u64,
    sharding: Sharding,
    shards: u64,
    tp: u64,
    sequence_parallel: bool,
    pp: u64,
    chunks: u64,
    schedule: Schedule,
    cp: u64,
    ep: u64,
    expert_tp: u64,
}

fn layout(
    spec: &TrainingSpec,
    machine: &Machine,
    profile: &Profile,
    model: &ModelShape,
    assumed: &mut Vec<Assumption>,
) -> Result<Settled, PlanError> {
    let layout = &spec.layout;
    let one = |value: Option<u64>| value.unwrap_or(1).max(1);
    let (tp, pp, cp) = (one(layout.tp), one(layout.pp), one(layout.cp));
    let gpus = layout.gpus.unwrap_or_else(|| {
        let least = tp * pp * cp;
        assume(
            assumed,
            "GPUs",
            least.to_string(),
            "the layout needs so many for one replica",
        );
        least
    });
    if gpus == 0 || !gpus.is_multiple_of(tp * pp * cp) {
        return Err(PlanError::Layout { gpus, tp, pp, cp });
    }
    if pp > model.layers {
        return Err(PlanError::Stages {
            pp,
            layers: model.layers,
        });
    }
    let ep = layout.ep.map_or_else(
        || {
            // NeMo AutoModel always splits experts.
            let Some(experts) = model
                .experts
                .filter(|_| profile.framework == Framework::Automodel && gpus > 1)
            else {
                return 1;
            };
            let ranks = gpus / pp;
            let taken = (1..=ranks.min(experts.count))
                .rev()
                .find(|ranks_each| {
                    ranks.is_multiple_of(*ranks_each) && experts.count.is_multiple_of(*ranks_each)
                })
                .unwrap_or(1);
            assume(
                assumed,
                "expert parallelism",
                taken.to_string(),
                "the framework splits experts over all ranks that it can",
            );
            taken
        },
        |ep| ep.max(1),
    );
    if let Some(experts) = model.experts
        && experts.count % ep != 0
    {
        return Err(PlanError::Experts {
            ep,
            experts: experts.count,
        });
    }
    let dp = gpus / (tp * pp * cp);
    let sharding = layout.sharding.unwrap_or_else(|| {
        if dp * cp > 1 {
            assume(
                assumed,
                "sharding",
                sharding_name(profile.sharding),
                "it is the framework's default",
            );
            profile.sharding
        } else {
            Sharding::None
        }
    });
    let shards = match sharding {
        Sharding::None => 1,
        _ => layout.shard_group.unwrap_or(dp * cp).clamp(1, dp * cp),
    };
    if tp > machine.domain {
        assume(
            assumed,
            "tensor parallelism",
            format!("{tp} over {} GPUs of a fast link", machine.domain),
            "it leaves the NVLink domain, which is slow",
        );
    }
    Ok(Settled {
        gpus,
        dp,
        sharding,
        shards,
        tp,
        sequence_parallel: layout
            .sequence_parallel
            .unwrap_or(tp > 1 && profile.sequence_parallel),
        pp,
        chunks: one(layout.chunks),
        schedule: layout.schedule.unwrap_or(Schedule::OneForwardOneBackward),
        cp,
        ep,
        expert_tp: layout
            .expert_tp
            .unwrap_or(if ep > 1 { 1 } else { tp })
            .max(1),
    })
}

const fn sharding_name(sharding: Sharding) -> &'static str {
    match sharding {
        Sharding::None => "none",
        Sharding::Zero1 => "optimizer states",
        Sharding::Zero2 => "gradients and optimizer states",
        Sharding::Zero3 => "weights, gradients and optimizer states",
    }
}

struct Counted {
    sequence: u64,
    mean: u64,
    example: u64,
    packing: bool,
    micro: u64,
    accumulation: u64,
}

fn batch(
    spec: &TrainingSpec,
    model: &ModelShape,
    dp: u64,
    pp: u64,
    profile: &Profile,
    assumed: &mut Vec<Assumption>,
) -> Result<Counted, PlanError> {
    let batch = &spec.batch;
    let sequence = batch.sequence_length.unwrap_or_else(|| {
        let taken = match model.max_positions {
            0 => 4_096,
            most => most.min(4_096),
        };
        assume(
            assumed,
            "sequence length",
            taken.to_string(),
            "4,096, or what the model was made for",
        );
        taken
    });
    let (micro, accumulation) = match (batch.micro, batch.accumulation, batch.global) {
        (Some(micro), Some(accumulation), _) => (micro, accumulation),
        (Some(micro), None, Some(global)) => (micro, per(global, micro * dp, assumed)),
        (None, Some(accumulation), Some(global)) => {
            (per(global, accumulation * dp, assumed), accumulation)
        }
        (Some(micro), None, None) => {
            // A pipeline needs some micro-batches in flight.
            let taken = if pp > 1 { 4 * pp } else { 1 };
            if pp > 1 {
                assume(
                    assumed,
                    "micro-batches a step",
                    taken.to_string(),
                    "four for each pipeline stage",
                );
            }
            (micro, taken)
        }
        (None, accumulation, global) => {
            assume(assumed, "micro-batch", "1", "it fits most often");
            let accumulation = match (accumulation, global) {
                (Some(accumulation), _) => accumulation,
                (None, Some(global)) => per(global, dp, assumed),
                (None, None) => 1,
            };
            (1, accumulation)
        }
    };
    if micro == 0 || accumulation == 0 || sequence == 0 {
        return Err(PlanError::Empty {
            sequence,
            micro,
            accumulation,
        });
    }
    let packing = batch.packing.unwrap_or(profile.packing);
    let example = batch.mean_length.unwrap_or(sequence).clamp(1, sequence);
    let generates = matches!(spec.task, Task::Ppo | Task::Grpo);
    // Examples that are said to be joined make full sequences. Tables that give a mean and say nothing of joining tell their
    // speed in it; and a batch of answers counts answers, joined or not.
    let joined = batch.packing == Some(true) && !generates;
    let mean = if joined { sequence } else { example };
    if packing && !generates && spec.length.examples.is_some() && batch.mean_length.is_none() {
        assume(
            assumed,
            "examples",
            "one for each sequence",
            "sequences are packed and how long an example is is not said; where they are shorter, the tokens of the run say more",
        );
    }
    // Padded to the longest of a batch: lengths are spread about log-normally, and the cap is seldom reached.
    let longest = (example as f64 * profile.longest_of_mean) as u64;
    Ok(Counted {
        sequence: if packing {
            sequence
        } else {
            sequence.min(longest.max(1))
        },
        mean,
        example,
        packing,
        micro,
        accumulation,
    })
}

/// How often `each` sequences go into a step; rounded up where they don't divide it.
fn per(global: u64, each: u64, assumed: &mut Vec<Assumption>) -> u64 {
    let times = global.div_ceil(each.max(1)).max(1);
    if times * each != global {
        assume(
            assumed,
            "global batch",
            format!("{} sequences", times * each),
            format!("{global} can't be made of {each} at a time"),
        );
    }
    times
}

/// How answers are generated, and what that takes of each GPU where it shares them with training.
fn engine(
    spec: &TrainingSpec,
    machine: &Machine,
    profile: &Profile,
    assumed: &mut Vec<Assumption>,
) -> (Rollout, f64) {
    let mut rollout = spec.rollout.unwrap_or_default();
    if !matches!(spec.task, Task::Ppo | Task::Grpo) || rollout.gpus.is_some() {
        return (rollout, 0.0);
    }
    let share = rollout.memory_permille.unwrap_or_else(|| {
        assume(
            assumed,
            "generation's memory",
            "half of each GPU",
            "engines take a share, and none is stated",
        );
        500
    });
    if rollout.gives_back.is_none() {
        assume(
            assumed,
            "generation's memory",
            "given back while weights are trained",
            "nothing else is stated",
        );
        rollout.gives_back = Some(true);
    }
    if rollout.trained_offload.is_none() && profile.framework == Framework::NemoRl {
        assume(
            assumed,
            "what is trained",
            "in host memory while answers are made",
            "it is the framework's default",
        );
        rollout.trained_offload = Some(true);
    }
    let usable = machine.gpu.usable_gib * 1_073_741_824.0;
    (rollout, usable * share as f64 / 1e3)
}

/// Whether a module's activations are computed again.
#[must_use]
pub fn recomputes(recompute: &Recompute, module: Module) -> bool {
    match recompute {
        Recompute::Modules(modules) => modules.contains(&module),
        Recompute::None | Recompute::Full | Recompute::Layers { .. } | Recompute::PerOperation => {
            false
        }
    }
}
