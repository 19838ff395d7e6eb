//! A Hugging Face `config.json` into the sizes of a model: dense, with grouped or latent attention, with experts, with windows, and the
//! text part of models for pictures. Counts what `ModelShape` counts; towers for pictures are left out and said so.

use antiphon_types::model::{Attention, Biases, Experts, ModelShape, Norm, QkNorm, Window};
use serde_json::Value;

use crate::TEXT_MAX;
use crate::error::{ImportError, Problem};
use crate::options::Options;
use crate::place::Place;
use crate::warning::Warning;

#[cfg(test)]
mod counted;
mod family;

use family::{Family, Heads};

/// A model's sizes, and what was read past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelConfig {
    /// The sizes.
    pub shape: ModelShape,
    /// What they do not cover.
    pub warnings: Vec<Warning>,
}

/// Reads a model's `config.json`.
///
/// # Errors
///
/// When it is no JSON, names no decoder-only transformer, lacks a size, or has sizes that do not go together.
pub fn model_config(text: &str, name: &str) -> Result<ModelConfig, ImportError> {
    if text.len() > TEXT_MAX {
        return Err(Problem::TooLong {
            file: name.to_owned(),
            bytes: text.len(),
            limit: TEXT_MAX,
        }
        .into());
    }
    let mut options = Options::parse(text, name)?;
    let label = options
        .text("_name_or_path")?
        .filter(|label| !label.is_empty());
    let mut warnings = Vec::new();
    let outer = options.text("model_type")?;
    let tied = options.flag("tie_word_embeddings")?;
    for part in [
        "text_config",
        "language_config",
        "llm_config",
        "thinker_config.text_config",
    ] {
        if let Some(mut inner) = options.take_table(part) {
            warnings.push(Warning::NotUnderstood {
                place: inner.place("model_type"),
                option: part.to_owned(),
                effect: "the language model alone is planned, without what reads pictures or sound"
                    .into(),
            });
            // Older files say on the outside whether the head is the embedding.
            if let (Some(tied), false) = (tied, inner.has("tie_word_embeddings")) {
                let place = options.place("tie_word_embeddings");
                inner.set("tie_word_embeddings", Value::Bool(tied), place, true);
            }
            if let (Some(outer), false) = (&outer, inner.has("model_type")) {
                let place = options.place("model_type");
                inner.set("model_type", Value::from(outer.as_str()), place, true);
            }
            options = inner;
            break;
        }
    }
    let kind = options.text("model_type")?.unwrap_or_default();
    let family = family::of(&kind).map_err(|why| Problem::UnknownFamily {
        place: options.place("model_type"),
        family: kind.clone(),
        why: why.to_owned(),
    })?;
    let family = family.unwrap_or_else(|| {
        warnings.push(options.not_understood("model_type", "read as of Llama's make"));
        family::LLAMA
    });
    for (key, value) in family.defaults {
        if !options.has(key) {
            let place = Place::new(name, 1);
            options.set(key, Value::from(*value), place, true);
        }
    }
    let mut reader = Reader {
        options,
        kind,
        family,
    };
    let shape = reader.shape(label.unwrap_or_else(|| name.to_owned()))?;
    Ok(ModelConfig { shape, warnings })
}

/// Sizes up to which counts of parameters and bytes are exact; no model comes near.
pub(crate) fn bounded(
    shape: ModelShape,
    bad: impl Fn(&str) -> ImportError,
) -> Result<ModelShape, ImportError> {
    const WIDTH: u64 = 1 << 18;
    const LAYERS: u64 = 1 << 11;
    const EXPERTS: u64 = 1 << 12;
    const ROWS: u64 = 1 << 24;
    let experts = shape.experts.unwrap_or(Experts {
        count: 1,
        top_k: 1,
        ffn: 1,
        shared_ffn: 0,
        dense_layers: 0,
        router_bias: false,
    });
    let heads = match shape.attention {
        Attention::Grouped {
            heads,
            kv_heads,
            head_dim,
            ..
        } => heads.max(kv_heads).saturating_mul(head_dim),
        Attention::Latent {
            heads,
            q_rank,
            kv_rank,
            nope,
            rope,
            value,
        } => heads
            .saturating_mul(nope.max(value).saturating_add(rope))
            .max(q_rank)
            .max(kv_rank),
    };
    let limits = [
        ("hidden_size", shape.hidden, WIDTH),
        (
            "intermediate_size",
            shape.ffn.max(experts.ffn).max(experts.shared_ffn),
            WIDTH,
        ),
        ("num_hidden_layers", shape.layers, LAYERS),
        ("num_attention_heads", heads, WIDTH),
        ("vocab_size", shape.vocab, ROWS),
        ("max_position_embeddings", shape.learned_positions, ROWS),
        ("num_experts", experts.count, EXPERTS),
    ];
    match limits.into_iter().find(|(_, size, limit)| size > limit) {
        Some((name, ..)) => Err(bad(name)),
        None => Ok(shape),
    }
}

struct Reader {
    options: Options,
    kind: String,
    family: Family,
}

impl Reader {
    fn shape(&mut self, name: String) -> Result<ModelShape, ImportError> {
        let hidden = self.size(&["hidden_size", "n_embd", "d_model", "model_dim"])?;
        let layers = self.size(&["num_hidden_layers", "n_layer", "n_layers", "num_layers"])?;
        let attention = self.attention(hidden)?;
        let ffn = self.ffn(hidden)?;
        let longest = self.any(&[
            "max_position_embeddings",
            "n_positions",
            "max_sequence_length",
            "max_seq_len",
            "seq_length",
            "n_ctx",
        ])?;
        let longest = longest.unwrap_or(0);
        let tied = self
            .options
            .flag("tie_word_embeddings")?
            .unwrap_or(self.family.tied);
        let shape = ModelShape {
            name,
            hidden,
            layers,
            attention,
            ffn,
            mlp: self.family.mlp,
            vocab: self.size(&["vocab_size", "padded_vocab_size"])?,
            tied,
            biases: self.biases()?,
            head_bias: self.family.head_bias,
            norm: self.norm()?,
            norms_per_layer: self.norms()?,
            learned_positions: self.learned(longest)?,
            experts: self.experts(layers, ffn)?,
            window: self.window(layers, longest)?,
            max_positions: longest,
        };
        let options = &self.options;
        bounded(shape, |name| {
            options.bad(name, "a size of a model that can be trained")
        })
    }

    /// The first of several names that is there.
    fn any(&mut self, names: &[&str]) -> Result<Option<u64>, ImportError> {
        for name in names {
            if let Some(size) = self.options.count(name)? {
                return Ok(Some(size));
            }
        }
        Ok(None)
    }

    fn size(&mut self, names: &[&str]) -> Result<u64, ImportError> {
        if let Some(size) = self.any(names)? {
            return Ok(size);
        }
        let all = [
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
            "n_embd",
            "n_layer",
            "n_head",
            "d_model",
        ];
        let there = all.iter().filter(|name| self.options.has(name));
        Err(Problem::MissingSize {
            file: self.options.file().to_owned(),
            key: names.first().copied().unwrap_or_default().to_owned(),
            family: self.kind.clone(),
            there: there.map(|name| (*name).to_owned()).collect(),
        }
        .into())
    }

    fn attention(&mut self, hidden: u64) -> Result<Attention, ImportError> {
        let heads = self.size(&["num_attention_heads", "n_head", "n_heads", "num_heads"])?;
        if self.options.has("kv_lora_rank") {
            return Ok(Attention::Latent {
                heads,
                q_rank: self.options.count_if_positive("q_lora_rank")?.unwrap_or(0),
                kv_rank: self.size(&["kv_lora_rank"])?,
                nope: self.size(&["qk_nope_head_dim"])?,
                rope: self.size(&["qk_rope_head_dim"])?,
                value: self.size(&["v_head_dim"])?,
            });
        }
        let kv_heads = self.kv_heads(heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of {heads} heads");
            return Err(self.options.bad("num_key_value_heads", &expected));
        }
        let head_dim = self.any(&["head_dim", "attention_head_dim", "kv_channels"])?;
        if head_dim.is_none() && !hidden.is_multiple_of(heads) {
            let expected = format!("a divisor of the width {hidden}, or `head_dim` beside it");
            return Err(self.options.bad("num_attention_heads", &expected));
        }
        let qk_norm = match self.options.flag("use_qk_norm")? {
            Some(true) => QkNorm::Head,
            Some(false) => QkNorm::None,
            None => self.family.qk_norm,
        };
        Ok(Attention::Grouped {
            heads,
            kv_heads,
            head_dim: head_dim.unwrap_or(hidden / heads),
            qk_norm,
            sinks: self.family.sinks,
        })
    }

    fn kv_heads(&mut self, heads: u64) -> Result<u64, ImportError> {
        let stated = self.any(&[
            "num_key_value_heads",
            "num_kv_heads",
            "n_head_kv",
            "attn_config.kv_n_heads",
            "multi_query_group_num",
        ]);
        match self.family.heads {
            // Falcon's first models have one head of keys, and say so by a flag.
            Heads::Falcon => {
                let new = self.options.on("new_decoder_architecture")?;
                let one = self.options.flag("multi_query")?.unwrap_or(true);
                Ok(match (new, one) {
                    (true, _) => stated?.unwrap_or(heads),
                    (false, true) => 1,
                    (false, false) => heads,
                })
            }
            Heads::OneIfMultiQuery => {
                let one = self.options.flag("multi_query")?.unwrap_or(true);
                Ok(if one { 1 } else { heads })
            }
            Heads::Stated => Ok(stated?.unwrap_or(heads)),
        }
    }

    fn ffn(&mut self, hidden: u64) -> Result<u64, ImportError> {
        let names = [
            "intermediate_size",
            "ffn_dim",
            "n_inner",
            "ffn_hidden_size",
            "inner_hidden_size",
            "ffn_config.ffn_hidden_size",
        ];
        if let Some(size) = self.any(&names)? {
            return Ok(size);
        }
        if let Some(ratio) = self.options.count("expansion_ratio")? {
            return Ok(ratio.saturating_mul(hidden));
        }
        if self.family.four_times {
            return Ok(hidden.saturating_mul(4));
        }
        // Models of experts alone may have no dense block.
        if let Some(size) = self.any(&["moe_intermediate_size"])? {
            return Ok(size);
        }
        self.size(&["intermediate_size"])
    }

    fn biases(&mut self) -> Result<Biases, ImportError> {
        let asked = match self.family.biases_by {
            "" => None,
            name => self
                .options
                .flag(name)?
                .map(|on| on != name.starts_with("no_")),
        };
        let mut attention = None;
        for name in [
            "attention_bias",
            "qkv_bias",
            "add_qkv_bias",
            "use_qkv_bias",
            "bias",
        ] {
            attention = attention.or(self.options.flag(name)?);
        }
        Ok(match (asked, attention, self.family.biases) {
            (Some(true), ..) => Biases::All,
            (Some(false), ..) => Biases::None,
            (None, _, Biases::All) => Biases::All,
            (None, Some(true), _) => self.family.asked,
            (None, Some(false), _) => Biases::None,
            (None, None, biases) => biases,
        })
    }

    fn norm(&mut self) -> Result<Norm, ImportError> {
        // MPT leaves out the biases of norms with all others.
        if self.kind == "mpt" && self.options.flag("no_bias")?.unwrap_or(true) {
            return Ok(Norm::Rms);
        }
        Ok(self.family.norm)
    }

    fn norms(&mut self) -> Result<u64, ImportError> {
        if self.family.heads == Heads::Falcon {
            let new = self.options.on("new_decoder_architecture")?;
            let parallel = self.options.flag("parallel_attn")?.unwrap_or(true);
            let both = self.options.count("num_ln_in_parallel_attn")?.unwrap_or(2);
            return Ok(match (new, parallel) {
                (true, _) => both,
                (false, true) => 1,
                (false, false) => 2,
            });
        }
        Ok(self.family.norms)
    }

    fn learned(&mut self, longest: u64) -> Result<u64, ImportError> {
        if self.kind == "mpt" {
            let alibi = self.options.on("attn_config.alibi")? || self.options.on("alibi")?;
            let learned = self.options.flag("learned_pos_emb")?.unwrap_or(true);
            return Ok(if learned && !alibi { longest } else { 0 });
        }
        Ok(match self.family.learned {
            None => 0,
            Some(more) => longest.saturating_add(more),
        })
    }

    fn experts(&mut self, layers: u64, ffn: u64) -> Result<Option<Experts>, ImportError> {
        let names = [
            "num_local_experts",
            "n_routed_experts",
            "num_experts",
            "ffn_config.moe_num_experts",
            "moe_num_experts",
        ];
        let Some(count) = self.any(&names)? else {
            return Ok(None);
        };
        if count == 1 {
            return Ok(None);
        }
        let top_k = self
            .any(&[
                "num_experts_per_tok",
                "num_experts_per_token",
                "moe_topk",
                "moe_top_k",
                "ffn_config.moe_top_k",
                "moe_k",
            ])?
            .unwrap_or(2);
        if top_k > count {
            let expected = format!("at most {count}, the number of experts");
            return Err(self.options.bad("num_experts_per_tok", &expected));
        }
        for (name, one) in [
            ("decoder_sparse_step", 1),
            ("moe_layer_freq", 1),
            ("interleave_moe_layer_step", 1),
        ] {
            if self.options.count(name)?.is_some_and(|step| step != one) {
                return Err(Problem::UnknownFamily {
                    place: self.options.place(name),
                    family: self.kind.clone(),
                    why: format!(
                        "experts stand in some layers only (`{}`)",
                        self.options.written(name)
                    ),
                }
                .into());
            }
        }
        let width = self.any(&["moe_intermediate_size"])?.unwrap_or(ffn);
        let shared = self.any(&[
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
        ])?;
        let shared = match (
            shared,
            self.any(&[
                "n_shared_experts",
                "num_shared_experts",
                "moe_num_shared_experts",
            ])?,
        ) {
            (Some(size), _) => size,
            (None, Some(number)) => number.saturating_mul(width),
            (None, None) => 0,
        };
        let dense = self.any(&["first_k_dense_replace", "moe_layer_start_index"])?;
        let dense = match (dense, self.options.words("mlp_only_layers")) {
            (Some(dense), _) => dense,
            (None, Some(list)) => list.len() as u64,
            (None, None) => 0,
        };
        Ok(Some(Experts {
            count,
            top_k,
            ffn: width,
            shared_ffn: shared,
            dense_layers: dense.min(layers),
            router_bias: self.family.router_bias,
        }))
    }

    fn window(&mut self, layers: u64, longest: u64) -> Result<Option<Window>, ImportError> {
        let kinds = self.options.words("layer_types");
        let tokens = self.any(&["sliding_window", "attention_window_size"])?;
        if let Some(kinds) = &kinds {
            let other = kinds.iter().find(|kind| {
                !matches!(
                    kind.as_str(),
                    "full_attention" | "sliding_attention" | "chunked_attention"
                )
            });
            if other.is_some() {
                return Err(Problem::UnknownFamily {
                    place: self.options.place("layer_types"),
                    family: self.kind.clone(),
                    why:
                        "some of its layers are no attention, and their memory follows other rules"
                            .into(),
                }
                .into());
            }
        }
        let asked = self.options.flag("use_sliding_window")?;
        let Some(tokens) = tokens.filter(|_| asked != Some(false)) else {
            return Ok(None);
        };
        if longest > 0 && tokens >= longest {
            return Ok(None);
        }
        let full_every = match kinds {
            Some(kinds) => {
                let full = kinds
                    .iter()
                    .filter(|kind| *kind == "full_attention")
                    .count() as u64;
                match full {
                    0 => 0,
                    full if full >= layers => return Ok(None),
                    full => layers / full,
                }
            }
            None => {
                let stated = self.any(&["sliding_window_pattern", "_sliding_window_pattern"])?;
                match stated.or(self.family.full_every) {
                    Some(every) => every,
                    None if asked == Some(true) => 0,
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Window { tokens, full_every }))
    }
}

#[cfg(test)]
mod tests;
