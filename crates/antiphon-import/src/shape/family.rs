//! What the code of an architecture fixes and its `config.json` does not say. As in Transformers 4.57.

use antiphon_types::model::{Biases, Mlp, Norm, QkNorm};

/// An architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) mlp: Mlp,
    pub(super) biases: Biases,
    /// The biases that `attention_bias` and its like ask for.
    pub(super) asked: Biases,
    /// The option that turns all biases on or, where it begins with `no_`, off.
    pub(super) biases_by: &'static str,
    pub(super) head_bias: bool,
    pub(super) norm: Norm,
    pub(super) norms: u64,
    pub(super) qk_norm: QkNorm,
    pub(super) sinks: bool,
    pub(super) router_bias: bool,
    /// Whether the head is the embedding where nothing is stated.
    pub(super) tied: bool,
    /// Learned positions: how many more than the longest sequence.
    pub(super) learned: Option<u64>,
    pub(super) heads: Heads,
    /// Whether a feed-forward block is four times as wide where nothing is stated.
    pub(super) four_times: bool,
    /// With a window: one layer in so many attends to everything, 0 for none. Nothing where a window has to be asked for.
    pub(super) full_every: Option<u64>,
    /// Sizes that a file leaves out where they are those of its class.
    pub(super) defaults: &'static [(&'static str, u64)],
}

/// How an architecture says how many heads of keys it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heads {
    Stated,
    Falcon,
    OneIfMultiQuery,
}

pub(super) const LLAMA: Family = Family {
    mlp: Mlp::Gated,
    biases: Biases::None,
    asked: Biases::Attention,
    biases_by: "",
    head_bias: false,
    norm: Norm::Rms,
    norms: 2,
    qk_norm: QkNorm::None,
    sinks: false,
    router_bias: false,
    tied: false,
    learned: None,
    heads: Heads::Stated,
    four_times: false,
    full_every: None,
    defaults: &[],
};

const QWEN2: Family = Family {
    biases: Biases::Qkv,
    asked: Biases::Qkv,
    ..LLAMA
};

/// `bias` says whether attention has biases; the feed-forward block has none.
const INTERNLM: Family = Family {
    biases: Biases::Attention,
    ..LLAMA
};

/// The router has a bias for each expert, by which it evens them out.
const DEEPSEEK_V3: Family = Family {
    router_bias: true,
    ..LLAMA
};

const GLM4_MOE: Family = Family {
    router_bias: true,
    ..QWEN2
};

const QWEN3: Family = Family {
    qk_norm: QkNorm::Head,
    ..LLAMA
};

/// Every layer has the window, if there is one.
const MISTRAL: Family = Family {
    full_every: Some(0),
    ..LLAMA
};

const GEMMA: Family = Family {
    tied: true,
    defaults: &[("head_dim", 256)],
    ..LLAMA
};

const GEMMA2: Family = Family {
    norms: 4,
    full_every: Some(2),
    defaults: &[
        ("head_dim", 256),
        ("sliding_window", 4096),
        ("max_position_embeddings", 8192),
    ],
    ..GEMMA
};

const GEMMA3: Family = Family {
    norms: 4,
    qk_norm: QkNorm::Head,
    full_every: Some(6),
    defaults: &[
        ("vocab_size", 262_208),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 4),
        ("head_dim", 256),
        ("max_position_embeddings", 131_072),
        ("sliding_window", 4096),
    ],
    ..GEMMA
};

const GPT_2: Family = Family {
    mlp: Mlp::Plain,
    biases: Biases::All,
    norm: Norm::Layer,
    tied: true,
    learned: Some(0),
    four_times: true,
    ..LLAMA
};

const OPT: Family = Family {
    biases_by: "enable_bias",
    // Two rows in front of the first position.
    learned: Some(2),
    ..GPT_2
};

const NEOX: Family = Family {
    tied: false,
    learned: None,
    ..GPT_2
};

const FALCON: Family = Family {
    biases: Biases::None,
    biases_by: "bias",
    tied: true,
    heads: Heads::Falcon,
    ..NEOX
};

const PHI: Family = Family {
    head_bias: true,
    norms: 1,
    ..NEOX
};

const MPT: Family = Family {
    biases_by: "no_bias",
    biases: Biases::None,
    tied: true,
    ..NEOX
};

const STARCODER2: Family = Family {
    biases_by: "use_bias",
    tied: true,
    full_every: Some(0),
    ..NEOX
};

/// A norm without a bias, before attention and feed-forward at once.
const COHERE: Family = Family {
    norms: 1,
    tied: true,
    ..LLAMA
};

/// Norms with a bias, biases where asked for.
const STABLELM: Family = Family {
    asked: Biases::Qkv,
    norm: Norm::Layer,
    ..LLAMA
};

const GPT_OSS: Family = Family {
    biases: Biases::All,
    sinks: true,
    router_bias: true,
    full_every: Some(2),
    ..LLAMA
};

const NO_ATTENTION: &str =
    "its layers are no attention over all tokens, and their memory follows other rules";
const ENCODER: &str = "it has an encoder; formulas are for decoder-only transformers";
const UNEVEN: &str = "its layers have different sizes";

/// The architecture of a `model_type`; nothing for one that is not known, an error for one that cannot be counted.
pub(super) fn of(kind: &str) -> Result<Option<Family>, &'static str> {
    Ok(Some(match kind {
        "llama" | "Yi" | "deepseek" | "deepseek_v2" | "internlm2" | "smollm3" | "granite"
        | "granitemoe" | "baichuan" => LLAMA,
        "deepseek_v3" | "kimi_k2" | "dots1" => DEEPSEEK_V3,
        "internlm" => INTERNLM,
        "qwen2" | "qwen2_moe" | "qwen2_vl_text" | "qwen2_5_vl_text" | "qwen2_vl" | "qwen2_5_vl" => {
            QWEN2
        }
        "qwen3" | "qwen3_moe" | "qwen3_vl_text" | "qwen3_vl_moe_text" => QWEN3,
        "mistral" | "mixtral" | "ministral" | "mistral3" | "phi3" | "phi4" | "pixtral_text" => {
            MISTRAL
        }
        "gemma" => GEMMA,
        "gemma2" => GEMMA2,
        "gemma3" | "gemma3_text" => GEMMA3,
        "glm" | "chatglm" => QWEN2,
        "glm4" => Family { norms: 4, ..QWEN2 },
        "glm4_moe" => GLM4_MOE,
        "olmo" => Family {
            norm: Norm::Bare,
            ..LLAMA
        },
        "olmo2" | "olmo3" | "olmoe" => Family {
            qk_norm: QkNorm::Full,
            full_every: Some(4),
            ..LLAMA
        },
        "gpt_oss" => GPT_OSS,
        "gpt2" => GPT_2,
        "gpt_bigcode" => Family {
            heads: Heads::OneIfMultiQuery,
            ..GPT_2
        },
        "opt" => OPT,
        "gpt_neox" => NEOX,
        "falcon" | "RefinedWeb" | "RefinedWebModel" => FALCON,
        "phi" => PHI,
        "mpt" => MPT,
        "starcoder2" => STARCODER2,
        "cohere" | "cohere2" => COHERE,
        "stablelm" => STABLELM,
        "mamba" | "mamba2" | "falcon_mamba" | "rwkv" | "rwkv5" | "rwkv7" | "recurrent_gemma"
        | "jamba" | "zamba" | "zamba2" | "bamba" | "nemotron_h" | "falcon_h1" | "qwen3_next"
        | "granitemoehybrid" | "lfm2" | "minimax" | "kimi_linear" => return Err(NO_ATTENTION),
        "t5" | "mt5" | "umt5" | "bart" | "mbart" | "pegasus" | "whisper" | "led" | "t5gemma"
        | "bert" | "roberta" | "deberta" | "deberta-v2" | "distilbert" | "xlm-roberta"
        | "modernbert" | "electra" | "albert" | "clip" | "siglip" | "vit" => return Err(ENCODER),
        "gemma3n" | "gemma3n_text" | "openelm" | "deci" | "nemotron-nas" | "llama4"
        | "llama4_text" => {
            return Err(UNEVEN);
        }
        _ => return Ok(None),
    }))
}
