//! What each training framework does unless it is told otherwise, as data: `catalog/frameworks.toml`. Decides nothing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use antiphon_types::model::Linear;
use antiphon_types::training::{Framework, LossKernel, Optimizer, Precision, Schedule, Sharding};
use serde::Deserialize;

/// The habits of one framework, in the terms that memory and time are computed from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Which one.
    #[serde(skip, default = "usual")]
    pub framework: Framework,
    /// Numbers of weights, gradients and states.
    pub precision: Precision,
    /// What updates the weights.
    pub optimizer: Optimizer,
    /// Whether the scales of 4-bit weights are quantized again.
    pub double_quantization: bool,
    /// What data-parallel ranks share.
    pub sharding: Sharding,
    /// Whether tensor parallelism splits the rest by sequence.
    pub sequence_parallel: bool,
    /// What else it can be told to do.
    pub abilities: Vec<Ability>,
    /// How its data-parallel ranks can share.
    pub shardings: Vec<Sharding>,
    /// Orders of passes through a pipeline that it has.
    pub schedules: Vec<Schedule>,
    /// Whether everything between blocks is computed again.
    pub recompute: bool,
    /// Whether what blocks hand on goes to host memory where all else is computed again.
    pub offloads_checkpoints: bool,
    /// Whether blocks are compiled.
    pub compile: bool,
    /// How the loss is computed.
    pub loss: LossKernel,
    /// Whether sequences are joined.
    pub packing: bool,
    /// What LoRA adapts.
    pub targets: Vec<Linear>,
    /// Bytes of a gradient where weights have 16 bits and a copy in 32.
    pub gradient_bytes: f64,
    /// Whether gradients live in a buffer that is never given back.
    pub gradient_buffer: bool,
    /// Bytes of an adapter's weight.
    pub adapter_bytes: f64,
    /// Bytes a channel that a norm keeps of its input.
    pub norm_input_bytes: f64,
    /// Bytes a channel that a norm keeps for its own weight.
    pub norm_product_bytes: f64,
    /// Copies of queries and keys that the rotary embedding keeps.
    pub rotary_copies: f64,
    /// Whether keys and values are repeated for every query head before attention.
    pub kv_repeated: bool,
    /// Values that a gated feed-forward block keeps for each channel: gate, up, activation, product.
    pub gated_copies: f64,
    /// Values that a plain feed-forward block keeps for each channel: before and after its activation.
    pub plain_copies: f64,
    /// Bytes a logit at the worst moment of a plain loss.
    pub logit_bytes: f64,
    /// Bytes of each value that a quantized matrix product keeps of its input.
    pub quantized_input_bytes: f64,
    /// Whether the head is quantized as the blocks are.
    pub quantized_head: bool,
    /// Whether embedding and head are apart even where the model ties them.
    pub unties_head: bool,
    /// Whether queries, keys and values are one matrix.
    pub fused_qkv: bool,
    /// Bytes of a value that an 8-bit matrix product keeps of its input.
    pub fp8_input_bytes: f64,
    /// Whether low-rank adapters drop out their input unless they are told otherwise.
    pub lora_dropout: bool,
    /// Bytes a channel of queries, keys and values that are kept where only some of the three are adapted.
    pub partial_qkv_bytes: f64,
    /// Bytes of each quantized weight that are there beside it.
    pub quantized_extra_bytes: f64,
    /// GiB that reading the model needs beside what stays.
    pub load_gib: f64,
    /// Whether optimizers that may move to the host apply each gradient as soon as it is there.
    pub paged_in_backward: bool,
    /// Bytes of a moment where the model has experts; 0 for the usual ones.
    pub expert_moment_bytes: f64,
    /// By how much the longest sequence of a batch exceeds the mean, where sequences are padded.
    pub longest_of_mean: f64,
    /// Share of embedding and head whose 8-bit states stay in 32 bits.
    pub embedding_states: f64,
    /// Bytes of each value that a low-rank adapter keeps of its input, beside what is shared.
    pub adapter_input_bytes: f64,
    /// The same for an adapter that is known by size only, for each width of the model.
    pub other_adapter_bytes: f64,
    /// Bytes of a score for each head and pair of tokens, where scores are kept.
    pub score_bytes: f64,
    /// Bytes of dropout masks for each channel of a classic block.
    pub mask_bytes: f64,
    /// Share of a block that is kept where results of costly operations are.
    pub per_operation_share: f64,
    /// Bytes a logit that stay whole when the loss is computed in chunks.
    pub chunked_logit_bytes: f64,
    /// Copies of the tokens that are sent to experts.
    pub dispatch_copies: f64,
    /// By how much the fullest rank's tokens exceed the mean.
    pub imbalance: f64,
    /// Layers that are gathered before they are needed.
    pub prefetch: f64,
    /// Bytes of a layer's gradient before it is shared out.
    pub reduce_bytes: f64,
    /// Whether the optimizer works on all weights at once, with a copy in its number format.
    pub foreach_copies: f64,
    /// GiB beside all that is computed: buffers of the matrix library, of collectives, of kernels.
    pub workspace_gib: f64,
    /// Reserved bytes for each allocated one: fragmentation of the caching allocator.
    pub reserved_ratio: f64,
}

impl Profile {
    /// Whether it can be told to do something.
    #[must_use]
    pub fn can(&self, ability: Ability) -> bool {
        self.abilities.contains(&ability)
    }
}

/// What a framework can be told to do beside data parallelism and whole recomputation, which all can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ability {
    /// Split matrices.
    Tensor,
    /// Split layers into stages.
    Pipeline,
    /// Give a stage several chunks of layers.
    Interleaved,
    /// Split sequences.
    Context,
    /// Split experts.
    Expert,
    /// Share among fewer ranks than all (HSDP, subgroups).
    Groups,
    /// Compute what some modules made again.
    Modules,
    /// Keep the results of costly operations only.
    PerOperation,
    /// Compute the loss in chunks, or together with the head.
    LeanLoss,
    /// Keep optimizer states in host memory.
    OffloadOptimizer,
    /// Keep weights there, too.
    OffloadParameters,
}

const fn usual() -> Framework {
    Framework::Transformers
}

/// What is known of every framework: its habits by the month in which they changed, the newest last.
pub type Frameworks = BTreeMap<Framework, Vec<(u32, Profile)>>;

/// What is compiled in.
#[must_use]
pub fn frameworks() -> &'static Frameworks {
    static FRAMEWORKS: OnceLock<Frameworks> = OnceLock::new();
    FRAMEWORKS.get_or_init(|| {
        parse(include_str!("../catalog/frameworks.toml"))
            .expect("the compiled-in table of frameworks is well formed")
    })
}

/// The habits of a framework in a month; the newest where it is not known.
#[must_use]
pub fn habits(
    frameworks: &'static Frameworks,
    framework: Framework,
    month: Option<u32>,
) -> &'static Profile {
    let releases = &frameworks[&framework];
    releases
        .iter()
        .find(|(until, _)| month.is_some_and(|month| month < *until))
        .or_else(|| releases.last())
        .map(|(_, profile)| profile)
        .expect("each framework has its newest habits")
}

/// Reads a table of frameworks: `[defaults]`, what differs for each, and under `["NAME < 202506"]` what differed before a
/// month.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Frameworks, toml::de::Error> {
    let tables: BTreeMap<String, toml::Table> = toml::from_str(text)?;
    let defaults = tables.get("defaults").cloned().unwrap_or_default();
    let mut frameworks = Frameworks::new();
    for framework in Framework::ALL {
        let mut newest = defaults.clone();
        newest.extend(tables.get(framework.name()).cloned().unwrap_or_default());
        let mut releases = Vec::new();
        for (name, table) in &tables {
            let until = name
                .split_once(" < ")
                .filter(|(of, _)| *of == framework.name())
                .and_then(|(_, month)| month.parse::<u32>().ok());
            if let Some(until) = until {
                let mut older = newest.clone();
                older.extend(table.clone());
                releases.push((until, older));
            }
        }
        releases.sort_by_key(|(until, _)| *until);
        releases.push((u32::MAX, newest));
        let releases = releases
            .into_iter()
            .map(|(until, table)| {
                let mut profile: Profile = table.try_into()?;
                profile.framework = framework;
                Ok((until, profile))
            })
            .collect::<Result<_, toml::de::Error>>()?;
        frameworks.insert(framework, releases);
    }
    Ok(frameworks)
}
