//! What each training framework does unless it is told otherwise, as data: `catalog/frameworks.toml`. Decides nothing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use antiphon_types::model::Linear;
use antiphon_types::training::{Framework, LossKernel, Precision, Sharding};
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
    /// What data-parallel ranks share.
    pub sharding: Sharding,
    /// Whether tensor parallelism splits the rest by sequence.
    pub sequence_parallel: bool,
    /// Whether everything between blocks is computed again.
    pub recompute: bool,
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
    /// Whether the optimizer works on all weights at once, with a copy in its number format.
    pub foreach_copies: f64,
    /// GiB beside all that is computed: buffers of the matrix library, of collectives, of kernels.
    pub workspace_gib: f64,
    /// Reserved bytes for each allocated one: fragmentation of the caching allocator.
    pub reserved_ratio: f64,
    /// Share of the measured matrix rate that dense blocks reach.
    pub efficiency: f64,
    /// Where the habits are read.
    pub source: String,
}

const fn usual() -> Framework {
    Framework::Transformers
}

/// What is known of every framework.
pub type Frameworks = BTreeMap<Framework, Profile>;

/// What is compiled in.
#[must_use]
pub fn frameworks() -> &'static Frameworks {
    static FRAMEWORKS: OnceLock<Frameworks> = OnceLock::new();
    FRAMEWORKS.get_or_init(|| {
        parse(include_str!("../catalog/frameworks.toml"))
            .expect("the compiled-in table of frameworks is well formed")
    })
}

/// Reads a table of frameworks: `[defaults]`, and what differs for each.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Frameworks, toml::de::Error> {
    let tables: BTreeMap<String, toml::Table> = toml::from_str(text)?;
    let defaults = tables.get("defaults").cloned().unwrap_or_default();
    Framework::ALL
        .into_iter()
        .map(|framework| {
            let mut table = defaults.clone();
            table.extend(tables.get(framework.name()).cloned().unwrap_or_default());
            let mut profile: Profile = table.try_into()?;
            profile.framework = framework;
            Ok((framework, profile))
        })
        .collect()
}
