//! What a job trains and how, as its user or its training config states it. What is not stated stays unknown: the planner
//! chooses it and says so. Computes nothing.

use serde::{Deserialize, Serialize};

use crate::model::{Linear, ModelShape};

/// A training run to be planned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TrainingSpec {
    /// What is trained.
    pub model: Model,
    /// What it is trained for.
    pub task: Task,
    /// Which weights move.
    pub method: Method,
    /// How frozen weights are stored, where they are not in the training precision.
    pub quantization: Option<Quantization>,
    /// What updates the weights.
    pub optimizer: Option<Optimizer>,
    /// In which numbers weights, gradients and states are kept.
    pub precision: Option<Precision>,
    /// In which numbers matrices are multiplied, if not in 16 bits.
    pub matmul: Option<Matmul>,
    /// How many tokens go through at once.
    pub batch: Batch,
    /// How the work is split over GPUs.
    pub layout: Layout,
    /// Which activations are computed again in the backward pass.
    pub recompute: Option<Recompute>,
    /// How attention is computed.
    pub attention: Option<AttentionKernel>,
    /// How the loss is computed from the last hidden state.
    pub loss: Option<LossKernel>,
    /// Whether blocks are compiled.
    pub compile: Option<bool>,
    /// What lives in host memory or on disk.
    pub offload: Offload,
    /// The library that trains.
    pub framework: Option<Framework>,
    /// Year and month of its release, as 202506: habits change.
    pub framework_month: Option<u32>,
    /// Whether each gradient is applied and dropped as soon as it is there.
    pub optimizer_in_backward: Option<bool>,
    /// How long it trains.
    pub length: Length,
    /// How answers are generated, where the task needs that.
    pub rollout: Option<Rollout>,
}

/// What is trained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// A name of the catalog, or of the hub.
    Named(String),
    /// Its sizes.
    Shape(Box<ModelShape>),
}

impl Default for Model {
    fn default() -> Self {
        Self::Named(String::new())
    }
}

/// What a model is trained for; decides which models are held and which passes a step has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Next token on plain text, continued pre-training included.
    Pretrain,
    /// Next token on answers.
    #[default]
    Sft,
    /// Pairs of answers, against a reference model.
    Dpo,
    /// Pairs of answers, without a reference model.
    Orpo,
    /// Single answers judged good or bad, against a reference model.
    Kto,
    /// A scalar head on pairs of answers.
    RewardModel,
    /// Actor, critic, reference, reward, and generation.
    Ppo,
    /// Actor, reference, and generation in groups.
    Grpo,
}

/// Which weights move.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// All of them.
    #[default]
    Full,
    /// Two narrow matrices beside each target.
    Lora(Lora),
    /// Learned keys and values in front of every layer.
    PrefixTuning {
        /// How many.
        tokens: u64,
    },
    /// Learned embeddings in front of the text.
    PromptTuning {
        /// How many.
        tokens: u64,
    },
    /// Learned embeddings in front of the text, made by a small network.
    PTuning {
        /// How many.
        tokens: u64,
        /// Width of the network.
        hidden: u64,
    },
    /// Another adapter of which only its size is known.
    Adapter {
        /// What its library calls it.
        name: String,
        /// How many parameters it trains.
        parameters: u64,
    },
}

/// The sizes of a low-rank adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lora {
    /// Width of the narrow matrices.
    pub rank: u64,
    /// Which layers have one; none stands for the library's default.
    pub targets: Vec<Linear>,
    /// Whether a magnitude is learned for each column (`DoRA`).
    pub dora: bool,
    /// Whether the adapter's input is dropped out, which keeps a copy of it.
    pub dropout: bool,
    /// Embedding and head are trained whole beside it (`modules_to_save`).
    pub whole: Vec<Linear>,
}

impl Default for Lora {
    fn default() -> Self {
        Self {
            rank: 16,
            targets: Vec::new(),
            dora: false,
            dropout: false,
            whole: Vec::new(),
        }
    }
}

/// How frozen weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantization {
    /// 4 bits in blocks of 64 (NF4 or FP4).
    Nf4,
    /// The same, with the blocks' scales quantized again.
    Nf4Double,
    /// 8 bits a weight, a scale a row.
    Int8,
    /// 4 bits in groups of 64, scale and zero point in 16 bits (HQQ).
    Hqq4,
}

/// What updates the weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Two moments.
    AdamW,
    /// The same in one kernel: no temporary copies.
    AdamWFused,
    /// Two moments in 8 bits.
    AdamW8bit,
    /// Two moments in 4 bits.
    AdamW4bit,
    /// Two moments that may move to host memory.
    PagedAdamW,
    /// Two moments in 8 bits that may move to host memory.
    PagedAdamW8bit,
    /// A sum for each row and column.
    Adafactor,
    /// One moment.
    Lion,
    /// One moment in 8 bits.
    Lion8bit,
    /// A moment and a diagonal of the Hessian.
    Sophia,
    /// Two moments, a running sum and the first weights.
    Prodigy,
    /// One moment, made orthogonal, for matrices of blocks; `AdamW` for the rest.
    Muon,
    /// Two moments of gradients projected to a rank.
    Galore {
        /// The rank.
        rank: u64,
    },
    /// Two moments of randomly projected gradients, to scale the whole ones.
    Apollo {
        /// The rank.
        rank: u64,
    },
    /// Nothing.
    Sgd,
    /// One moment.
    SgdMomentum,
    /// Nothing, and each gradient is applied as soon as it is there.
    Lomo,
}

/// In which numbers weights, gradients and states are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// Weights, gradients and states in 16 bits.
    Pure16,
    /// Weights in 16 bits, with a copy in 32 bits that the optimizer updates.
    Mixed16,
    /// Weights in 32 bits, computed with in 16 bits.
    Autocast,
    /// All in 32 bits.
    Full32,
}

/// In which numbers matrices are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matmul {
    /// 8 bits, a scale a tensor.
    Fp8Tensor,
    /// 8 bits, a scale a row.
    Fp8Row,
    /// 8 bits, a scale for each block of 32 (MX).
    Mxfp8,
    /// 4 bits (`NVFP4`).
    Nvfp4,
}

/// How many tokens go through at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Tokens of the longest sequence.
    pub sequence_length: Option<u64>,
    /// Sequences of one forward pass of a model replica.
    pub micro: Option<u64>,
    /// Forward passes before weights move.
    pub accumulation: Option<u64>,
    /// Sequences before weights move, over all GPUs.
    pub global: Option<u64>,
    /// Whether sequences are joined to full length.
    pub packing: Option<bool>,
    /// Tokens of a sequence on average, where sequences are padded to the longest of a batch.
    pub mean_length: Option<u64>,
}

/// How the work is split over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Layout {
    /// GPUs that train; those of roles that share none with training come on top ([`Rollout`]).
    pub gpus: Option<u64>,
    /// What data-parallel ranks share.
    pub sharding: Option<Sharding>,
    /// Ranks that share the shards, where they are fewer than all (HSDP, subgroups).
    pub shard_group: Option<u64>,
    /// Tensor parallelism.
    pub tp: Option<u64>,
    /// Whether what tensor parallelism leaves whole is split by sequence.
    pub sequence_parallel: Option<bool>,
    /// Pipeline stages.
    pub pp: Option<u64>,
    /// Model chunks a stage.
    pub chunks: Option<u64>,
    /// The order of forward and backward passes.
    pub schedule: Option<Schedule>,
    /// Context parallelism.
    pub cp: Option<u64>,
    /// Expert parallelism.
    pub ep: Option<u64>,
    /// Tensor parallelism of experts, where it differs.
    pub expert_tp: Option<u64>,
}

/// What data-parallel ranks share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharding {
    /// Nothing: every rank has everything.
    None,
    /// Optimizer states (`ZeRO-1`, distributed optimizer).
    Zero1,
    /// Gradients too (`ZeRO-2`, `SHARD_GRAD_OP`).
    Zero2,
    /// Weights too (`ZeRO-3`, FSDP).
    Zero3,
}

/// The order of forward and backward passes over pipeline stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    Gpipe,
    /// One forward, one backward; interleaved where stages have several chunks.
    OneForwardOneBackward,
    /// Weight gradients fill the bubble, memory of 1F1B.
    ZeroBubbleH1,
    /// Weight gradients fill the bubble, twice the memory.
    ZeroBubbleH2,
    /// Two chunks a stage in the form of a V.
    ZeroBubbleV,
    /// Both ends feed the pipeline; weights are held twice.
    DualPipe,
    /// The same cut in half: two chunks a stage in the form of a V, weights held once.
    DualPipeV,
}

/// Which activations are computed again in the backward pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recompute {
    /// None.
    None,
    /// Everything between blocks.
    Full,
    /// Everything in some of the layers.
    Layers {
        /// How many of them in a stage.
        count: u64,
    },
    /// All but the results of costly operations.
    PerOperation,
    /// What some modules made.
    Modules(Vec<Module>),
}

/// A module whose activations may be computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Module {
    /// Scores and their product with the values.
    CoreAttn,
    /// A feed-forward block.
    Mlp,
    /// All of a layer of experts.
    Moe,
    /// The activation inside experts.
    MoeAct,
    /// Norms.
    Layernorm,
    /// The up-projections of latent attention.
    MlaUpProj,
}

/// How attention is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKernel {
    /// The scores of all pairs of tokens are kept.
    Eager,
    /// In blocks, without keeping scores (`FlashAttention`, SDPA, cuDNN).
    Flash,
}

/// How the loss is computed from the last hidden state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKernel {
    /// All logits, and a copy of them in 32 bits.
    Plain,
    /// In chunks of the sequence.
    Chunked {
        /// How many.
        chunks: u64,
    },
    /// Head and cross entropy in one kernel: no logits.
    FusedLinear,
}

/// What lives in host memory or on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Offload {
    /// Optimizer states, and the update.
    pub optimizer: Place,
    /// Weights, gathered layer by layer.
    pub parameters: Place,
    /// What blocks hand on.
    pub activations: Place,
}

/// Where something lives between its uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the GPU's memory.
    #[default]
    Gpu,
    /// In host memory.
    Cpu,
    /// On a local drive.
    Disk,
}

/// The library that trains; it decides many defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framework {
    /// Megatron-LM, Megatron-Core.
    Megatron,
    /// Megatron-Bridge, `NeMo`.
    MegatronBridge,
    /// `NeMo` AutoModel.
    Automodel,
    /// `NeMo`-RL.
    NemoRl,
    /// `DeepSpeed` under another trainer.
    Deepspeed,
    /// `DeepSpeed`-Chat.
    DeepspeedChat,
    /// PyTorch's `fully_shard` in torchtitan.
    Torchtitan,
    /// torchtune.
    Torchtune,
    /// Composer, as in llm-foundry.
    Composer,
    /// Transformers' `Trainer`, with PEFT.
    Transformers,
    /// TRL on top of it.
    Trl,
    /// Axolotl.
    Axolotl,
    /// LLaMA-Factory.
    LlamaFactory,
    /// Unsloth.
    Unsloth,
    /// litgpt.
    Litgpt,
    /// FSDP with quantized weights, as in fsdp_qlora.
    FsdpQlora,
    /// InternEvo.
    Internevo,
    /// XTuner.
    Xtuner,
    /// verl.
    Verl,
    /// OpenRLHF.
    OpenRlhf,
}

impl Framework {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::Megatron,
        Self::MegatronBridge,
        Self::Automodel,
        Self::NemoRl,
        Self::Deepspeed,
        Self::DeepspeedChat,
        Self::Torchtitan,
        Self::Torchtune,
        Self::Composer,
        Self::Transformers,
        Self::Trl,
        Self::Axolotl,
        Self::LlamaFactory,
        Self::Unsloth,
        Self::Litgpt,
        Self::FsdpQlora,
        Self::Internevo,
        Self::Xtuner,
        Self::Verl,
        Self::OpenRlhf,
    ];

    /// The name as it stands in catalogs and configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Megatron => "megatron",
            Self::MegatronBridge => "megatron-bridge",
            Self::Automodel => "automodel",
            Self::NemoRl => "nemo-rl",
            Self::Deepspeed => "deepspeed",
            Self::DeepspeedChat => "deepspeed-chat",
            Self::Torchtitan => "torchtitan",
            Self::Torchtune => "torchtune",
            Self::Composer => "composer",
            Self::Transformers => "transformers",
            Self::Trl => "trl",
            Self::Axolotl => "axolotl",
            Self::LlamaFactory => "llama-factory",
            Self::Unsloth => "unsloth",
            Self::Litgpt => "litgpt",
            Self::FsdpQlora => "fsdp-qlora",
            Self::Internevo => "internevo",
            Self::Xtuner => "xtuner",
            Self::Verl => "verl",
            Self::OpenRlhf => "open-rlhf",
        }
    }
}

/// How long a run trains; what is stated first wins: steps, then tokens, then examples times epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Length {
    /// Optimizer steps; where answers are generated, rounds of generating and training.
    pub steps: Option<u64>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Examples in the data; where answers are generated, prompts.
    pub examples: Option<u64>,
    /// Thousandths of a pass over them.
    pub epochs_permille: Option<u64>,
}

/// How answers are generated, and which of the models around that have GPUs of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rollout {
    /// Prompts of a step.
    pub prompts: Option<u64>,
    /// Answers to each.
    pub answers: Option<u64>,
    /// Tokens of a prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens of an answer on average.
    pub answer_tokens: Option<u64>,
    /// Tokens of the longest answer.
    pub answer_tokens_max: Option<u64>,
    /// Tensor parallelism of generation.
    pub tp: Option<u64>,
    /// GPUs that only generate; none where both share theirs.
    pub gpus: Option<u64>,
    /// Whether generation runs beside training, on weights that are a step old.
    pub asynchronous: bool,
    /// Whether answers are held against a reference model.
    pub reference: Option<bool>,
    /// Whether a reward model judges answers; a program that does takes no GPU.
    pub reward: Option<bool>,
    /// GPUs of the critic alone; none where it shares those that train.
    pub critic_gpus: Option<u64>,
    /// GPUs of the reference model alone; none where it shares those that train.
    pub reference_gpus: Option<u64>,
    /// GPUs of the reward model alone; none where it shares those that train.
    pub reward_gpus: Option<u64>,
    /// Share of a GPU's memory that generation may take, in thousandths.
    pub memory_permille: Option<u64>,
    /// Whether generation gives its memory back while weights are trained on the same GPUs.
    pub gives_back: Option<bool>,
    /// Whether what is trained moves to host memory while answers are made.
    pub trained_offload: Option<bool>,
    /// Whether models that only score move to host memory between their uses.
    pub scoring_offload: Option<bool>,
    /// Times that each batch of answers is trained on.
    pub passes: Option<u64>,
}
