//! Models and accelerators that are known by name, with where each fact comes from. Compiled in; reads no files.

use std::sync::OnceLock;

use antiphon_types::model::{Attention, Biases, Experts, Mlp, ModelShape, Norm, QkNorm, Window};
use serde::{Deserialize, Deserializer};

mod gpu_names;

pub use gpu_names::{gpu_types, offered};

/// A model of the catalog.
#[derive(Debug, Clone)]
pub struct KnownModel {
    /// Its sizes; the name is the hub's.
    pub shape: ModelShape,
    /// What its makers call the family.
    pub family: String,
    /// Whether people train it; the others are there to read measurements with.
    pub target: bool,
    /// Its parameters as counted from the checkpoint or the config.
    pub parameters: u64,
    /// Parameters that a token goes through.
    pub active: u64,
    /// Where its sizes come from.
    pub source: String,
}

/// A GPU type of the catalog; rates are without sparsity.
#[derive(Debug, Clone, Deserialize)]
pub struct Accelerator {
    /// Product name with form and memory.
    pub name: String,
    /// Who makes it.
    pub vendor: String,
    /// Its architecture.
    pub architecture: String,
    /// Memory on the label, in 10^9 bytes or in GiB: makers differ.
    pub memory_gb: f64,
    /// 10^9 bytes a second to its memory.
    pub memory_gb_s: f64,
    /// 10^12 operations a second in bf16; 0 where there is none.
    #[serde(deserialize_with = "blank")]
    pub bf16_tflops: f64,
    /// The same in fp16.
    #[serde(deserialize_with = "blank")]
    pub fp16_tflops: f64,
    /// The same in 8 bits.
    #[serde(deserialize_with = "blank")]
    pub fp8_tflops: f64,
    /// The same in 4 bits.
    #[serde(deserialize_with = "blank")]
    pub fp4_tflops: f64,
    /// The largest rate anyone measured with bf16 matrices.
    #[serde(deserialize_with = "blank")]
    pub measured_bf16_tflops: f64,
    /// The same in 8 bits.
    #[serde(deserialize_with = "blank")]
    pub measured_fp8_tflops: f64,
    /// What joins the GPUs of a node.
    pub link: String,
    /// 10^9 bytes a second one way over that link.
    pub link_gb_s: f64,
    /// 10^9 bytes a second one way to the host.
    pub pcie_gb_s: f64,
    /// Power under full load.
    pub watts: f64,
    /// GiB that a process can get.
    pub usable_gib: f64,
    /// US dollars an hour, from a public catalog; 0 where none lists it.
    #[serde(deserialize_with = "blank")]
    pub on_demand_usd_h: f64,
    /// The same where it may be taken away.
    #[serde(deserialize_with = "blank")]
    pub spot_usd_h: f64,
    /// Where the price comes from.
    pub price_source: String,
    /// Where the rates come from.
    pub source: String,
}

fn blank<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(0.0))
}

#[derive(Deserialize)]
struct ModelRow {
    name: String,
    family: String,
    target: String,
    hidden: u64,
    layers: u64,
    heads: u64,
    kv_heads: Option<u64>,
    head_dim: Option<u64>,
    ffn: u64,
    vocab: u64,
    tied: String,
    mlp: Mlp,
    biases: Biases,
    head_bias: String,
    norm: Norm,
    norms_per_layer: u64,
    qk_norm: QkNorm,
    sinks: String,
    learned_positions: Option<u64>,
    experts: Option<u64>,
    top_k: Option<u64>,
    expert_ffn: Option<u64>,
    shared_ffn: Option<u64>,
    dense_layers: Option<u64>,
    router_bias: String,
    q_rank: Option<u64>,
    kv_rank: Option<u64>,
    nope: Option<u64>,
    rope: Option<u64>,
    value: Option<u64>,
    window: Option<u64>,
    full_every: Option<u64>,
    max_positions: Option<u64>,
    parameters: u64,
    active: u64,
    source: String,
}

impl From<ModelRow> for KnownModel {
    fn from(row: ModelRow) -> Self {
        let yes = |text: &str| text == "yes";
        let attention = match row.kv_rank {
            Some(kv_rank) => Attention::Latent {
                heads: row.heads,
                q_rank: row.q_rank.unwrap_or(0),
                kv_rank,
                nope: row.nope.unwrap_or(0),
                rope: row.rope.unwrap_or(0),
                value: row.value.unwrap_or(0),
            },
            None => Attention::Grouped {
                heads: row.heads,
                kv_heads: row.kv_heads.unwrap_or(row.heads),
                head_dim: row.head_dim.unwrap_or(row.hidden / row.heads),
                qk_norm: row.qk_norm,
                sinks: yes(&row.sinks),
            },
        };
        let experts = row.experts.map(|count| Experts {
            count,
            top_k: row.top_k.unwrap_or(1),
            ffn: row.expert_ffn.unwrap_or(row.ffn),
            shared_ffn: row.shared_ffn.unwrap_or(0),
            dense_layers: row.dense_layers.unwrap_or(0),
            router_bias: yes(&row.router_bias),
        });
        Self {
            shape: ModelShape {
                name: row.name,
                hidden: row.hidden,
                layers: row.layers,
                attention,
                ffn: row.ffn,
                mlp: row.mlp,
                vocab: row.vocab,
                tied: yes(&row.tied),
                biases: row.biases,
                head_bias: yes(&row.head_bias),
                norm: row.norm,
                norms_per_layer: row.norms_per_layer,
                learned_positions: row.learned_positions.unwrap_or(0),
                experts,
                window: row.window.map(|tokens| Window {
                    tokens,
                    full_every: row.full_every.unwrap_or(0),
                }),
                max_positions: row.max_positions.unwrap_or(0),
            },
            family: row.family,
            target: yes(&row.target),
            parameters: row.parameters,
            active: row.active,
            source: row.source,
        }
    }
}

/// Every model that is known by name.
#[must_use]
pub fn models() -> &'static [KnownModel] {
    static MODELS: OnceLock<Vec<KnownModel>> = OnceLock::new();
    MODELS.get_or_init(|| {
        csv::Reader::from_reader(include_str!("../catalog/models.csv").as_bytes())
            .deserialize::<ModelRow>()
            .map(|row| {
                row.expect("the compiled-in table of models is well formed")
                    .into()
            })
            .collect()
    })
}

/// Every GPU type that is known by name.
#[must_use]
pub fn accelerators() -> &'static [Accelerator] {
    static ACCELERATORS: OnceLock<Vec<Accelerator>> = OnceLock::new();
    ACCELERATORS.get_or_init(|| {
        csv::Reader::from_reader(include_str!("../catalog/accelerators.csv").as_bytes())
            .deserialize()
            .map(|row| row.expect("the compiled-in table of accelerators is well formed"))
            .collect()
    })
}

/// A model by its name on the hub, with or without its owner; what stands in parentheses does not count.
///
/// # Errors
/// The nearest names, where none is meant.
pub fn model(name: &str) -> Result<&'static KnownModel, Vec<&'static str>> {
    let wanted = plain(name);
    let tail = |name: &str| plain(name.rsplit('/').next().unwrap_or(name));
    models()
        .iter()
        .find(|known| plain(&known.shape.name) == wanted)
        .or_else(|| {
            models()
                .iter()
                .find(|known| tail(&known.shape.name) == wanted)
        })
        .or_else(|| {
            // Owners re-upload, and instruct models share the base's shape.
            let base = stem(&tail(name));
            models()
                .iter()
                .find(|known| stem(&tail(&known.shape.name)) == base)
        })
        .or_else(|| {
            // Without its version, where only one is known.
            let versions = format!("{}-v", stem(&tail(name)));
            let mut known = models()
                .iter()
                .filter(|known| stem(&tail(&known.shape.name)).starts_with(&versions));
            known.next().filter(|_| known.next().is_none())
        })
        .ok_or_else(|| {
            nearest(
                &wanted,
                models().iter().map(|known| known.shape.name.as_str()),
            )
        })
}

/// A GPU type by its name; `H100`, `h100-sxm`, `NVIDIA H100 80GB HBM3` find the usual part.
///
/// # Errors
/// The nearest names, where none is meant.
pub fn accelerator(name: &str) -> Result<&'static Accelerator, Vec<&'static str>> {
    let all = accelerators();
    let named = gpu_types(name)
        .iter()
        .find_map(|part| all.iter().find(|known| known.name == *part));
    let wanted = plain(name).replace([' ', '_'], "-");
    let wanted = wanted
        .trim_start_matches("nvidia-")
        .trim_start_matches("amd-");
    named
        .or_else(|| {
            // A driver's name has the words of ours and more between them.
            all.iter()
                .filter(|known| {
                    plain(&known.name)
                        .split('-')
                        .all(|word| wanted.split('-').any(|other| other.starts_with(word)))
                })
                .max_by_key(|known| known.name.len())
        })
        .ok_or_else(|| nearest(wanted, all.iter().map(|known| known.name.as_str())))
}

/// Parameters of models whose names don't say them, in 10^9: total and active.
pub(crate) fn sizes() -> &'static [(String, f64, f64)] {
    static SIZES: OnceLock<Vec<(String, f64, f64)>> = OnceLock::new();
    SIZES.get_or_init(|| {
        csv::Reader::from_reader(include_str!("../catalog/sizes.csv").as_bytes())
            .deserialize::<(String, f64, f64, String)>()
            .map(|row| {
                let (stem, total, active, _) =
                    row.expect("the compiled-in table of sizes is well formed");
                (stem, total, active)
            })
            .collect()
    })
}

/// Lower case, without what stands in parentheses.
fn plain(name: &str) -> String {
    name.split('(')
        .next()
        .unwrap_or(name)
        .trim()
        .to_ascii_lowercase()
}

/// A model's name without the words that do not change its shape.
fn stem(tail: &str) -> String {
    let mut words: Vec<&str> = tail
        .split(['-', '_'])
        .filter(|word| {
            !matches!(
                *word,
                "hf" | "instruct"
                    | "it"
                    | "chat"
                    | "base"
                    | "pt"
                    | "bnb"
                    | "4bit"
                    | "8bit"
                    | "unsloth"
                    | "meta"
                    | "awq"
                    | "gptq"
            )
        })
        .collect();
    // `v0.1` and `v0.3` may differ in vocabulary: both words stay.
    words.retain(|word| !word.is_empty());
    words.join("-")
}

fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> = names
        .map(|name| {
            let tail = plain(name.rsplit('/').next().unwrap_or(name));
            let score =
                strsim::jaro_winkler(&tail, wanted).max(strsim::jaro_winkler(&plain(name), wanted));
            (score, name)
        })
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_has_the_parameters_that_its_checkpoint_has() {
        assert_eq!(models().iter().filter(|known| known.target).count(), 52);
        for known in models() {
            assert_eq!(
                known.shape.parameters(),
                known.parameters,
                "{}",
                known.shape.name
            );
        }
    }

    #[test]
    fn a_version_may_be_left_out_where_only_one_is_known() {
        let found = |name: &str| model(name).map(|known| known.shape.name.clone()).ok();
        assert_eq!(
            found("Mixtral-8x7B").as_deref(),
            Some("mistralai/Mixtral-8x7B-v0.1")
        );
        // Its versions differ in vocabulary.
        assert_eq!(found("Mistral-7B"), None);
    }

    #[test]
    fn a_token_goes_through_as_many_parameters_as_the_table_says() {
        for known in models() {
            let counted = known.shape.active_parameters();
            // The table counts the biases of experts that a token is not sent to.
            let slack = if known.shape.biases == Biases::All {
                known.active / 100
            } else {
                0
            };
            assert!(
                counted.abs_diff(known.active) <= slack,
                "{}",
                known.shape.name
            );
        }
    }

    #[test]
    fn models_are_found_by_the_names_people_write() {
        for (written, found) in [
            ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
            ("llama-3.1-8b", "meta-llama/Llama-3.1-8B"),
            (
                "unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit",
                "meta-llama/Llama-3.1-8B",
            ),
            ("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B"),
            ("google/gemma-3-27b-it (text)", "google/gemma-3-27b-it"),
        ] {
            assert_eq!(
                model(written).map(|known| known.shape.name.as_str()),
                Ok(found)
            );
        }
        let nearest = model("meta-llama/Llama-3.1-9B").unwrap_err();
        assert!(nearest.contains(&"meta-llama/Llama-3.1-8B"), "{nearest:?}");
    }

    #[test]
    fn accelerators_are_found_by_the_names_people_and_drivers_write() {
        for (written, found) in [
            ("H100-SXM-80GB", "H100-SXM-80GB"),
            ("h100", "H100-SXM-80GB"),
            ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
            ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
            ("B200-SXM-180GB (power limited)", "B200-SXM-180GB"),
            ("MI300X", "MI300X"),
        ] {
            assert_eq!(
                accelerator(written).map(|known| known.name.as_str()),
                Ok(found),
                "{written}"
            );
        }
    }
}
