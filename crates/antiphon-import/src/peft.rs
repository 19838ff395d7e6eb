//! Words of PEFT and of the libraries beside it: which layers an adapter stands at, and what optimizers are called.

use antiphon_types::model::Linear;
use antiphon_types::training::{Lora, Optimizer};

use crate::error::ImportError;
use crate::options::{Options, nearest_of};
use crate::reading::Reading;

/// PEFT's own targets for Llama, Mistral, Qwen and Gemma, where none are named.
pub(crate) const DEFAULT_TARGETS: [Linear; 2] = [Linear::QProj, Linear::VProj];

/// What a name stands for, in PEFT's names and those of older architectures with fused layers.
fn linears(name: &str) -> Option<&'static [Linear]> {
    use Linear::{DownProj, EmbedTokens, GateProj, KProj, LmHead, OProj, QProj, UpProj, VProj};
    let last = name.rsplit('.').next().unwrap_or(name);
    Some(match last {
        "q_proj" | "wq" | "q_a_proj" | "q_b_proj" | "q" | "query" => &[QProj],
        "k_proj" | "wk" | "k" | "key" => &[KProj],
        "v_proj" | "wv" | "v" | "value" => &[VProj],
        "kv_a_proj_with_mqa" | "kv_b_proj" => &[KProj, VProj],
        "qkv_proj" | "query_key_value" | "c_attn" | "W_pack" | "Wqkv" | "linear_qkv" | "qkv" => {
            &[QProj, KProj, VProj]
        }
        "o_proj" | "wo" | "out_proj" | "dense" | "linear_proj" | "output_proj" => &[OProj],
        "gate_proj" | "w1" => &[GateProj],
        "up_proj" | "w3" | "fc1" | "dense_h_to_4h" | "c_fc" => &[UpProj],
        "gate_up_proj" | "linear_fc1" => &[GateProj, UpProj],
        "down_proj" | "w2" | "fc2" | "dense_4h_to_h" | "linear_fc2" => &[DownProj],
        "c_proj" => &[OProj, DownProj],
        "lm_head" | "output" | "embed_out" => &[LmHead],
        "embed_tokens" | "wte" | "tok_embeddings" | "word_embeddings" => &[EmbedTokens],
        "all" | "all-linear" | "all_linear" | "linear" => &Linear::BLOCK,
        _ => return None,
    })
}

/// The layers that an option names, in their order in a block; none where it is not set.
pub(crate) fn targets(
    options: &mut Options,
    name: &str,
    reading: &mut Reading<'_>,
) -> Option<Vec<Linear>> {
    let words = options.words(name)?;
    let mut targets = Vec::new();
    let mut unknown = Vec::new();
    for word in &words {
        match linears(word) {
            Some(found) => targets.extend(found),
            None => unknown.push(word.clone()),
        }
    }
    if !unknown.is_empty() {
        let effect = format!(
            "{} name no layer that is known; left out",
            crate::error::quoted(&unknown)
        );
        reading.warnings.push(options.not_understood(name, &effect));
    }
    targets.sort_unstable();
    targets.dedup();
    Some(targets)
}

/// An adapter by the names that PEFT's options have with a prefix, such as `lora_r` and `lora_dropout`.
pub(crate) fn lora(
    options: &mut Options,
    rank_default: u64,
    names: &LoraNames,
    reading: &mut Reading<'_>,
) -> Result<Lora, ImportError> {
    let rank = options.count(names.rank)?.unwrap_or(rank_default);
    let dropout = options.number(names.dropout)?.unwrap_or(0.0);
    if !(0.0..1.0).contains(&dropout) {
        return Err(options.bad(names.dropout, "a share from 0 to less than 1"));
    }
    let targets = targets(options, names.targets, reading);
    let whole = self::targets(options, names.whole, reading).unwrap_or_default();
    Ok(Lora {
        rank,
        targets: targets.unwrap_or_default(),
        dora: options.on(names.dora)?,
        dropout: dropout > 0.0,
        whole,
    })
}

/// What a tool calls the options of an adapter.
pub(crate) struct LoraNames {
    pub(crate) rank: &'static str,
    pub(crate) dropout: &'static str,
    pub(crate) targets: &'static str,
    pub(crate) whole: &'static str,
    pub(crate) dora: &'static str,
}

/// Names of optimizers in Transformers (`optim`), and those that Axolotl and torchao add.
const OPTIMIZERS: [(&str, Optimizer); 31] = [
    ("adamw_torch", Optimizer::AdamW),
    ("adamw_hf", Optimizer::AdamW),
    ("adamw_torch_fused", Optimizer::AdamWFused),
    ("adamw_apex_fused", Optimizer::AdamWFused),
    ("adamw_torch_8bit", Optimizer::AdamW8bit),
    ("adamw_torch_4bit", Optimizer::AdamW4bit),
    ("ao_adamw_8bit", Optimizer::AdamW8bit),
    ("ao_adamw_4bit", Optimizer::AdamW4bit),
    ("ao_adamw_fp8", Optimizer::AdamW8bit),
    ("adamw_bnb_8bit", Optimizer::AdamW8bit),
    ("adamw_8bit", Optimizer::AdamW8bit),
    ("paged_adamw", Optimizer::PagedAdamW),
    ("paged_adamw_32bit", Optimizer::PagedAdamW),
    ("paged_adamw_8bit", Optimizer::PagedAdamW8bit),
    ("optimi_adamw", Optimizer::AdamWFused),
    ("adopt_adamw", Optimizer::AdamW),
    ("stable_adamw", Optimizer::AdamW),
    ("schedule_free_adamw", Optimizer::AdamW),
    ("adafactor", Optimizer::Adafactor),
    ("came_pytorch", Optimizer::Adafactor),
    ("lion", Optimizer::Lion),
    ("lion_pytorch", Optimizer::Lion),
    ("lion_32bit", Optimizer::Lion),
    ("lion_8bit", Optimizer::Lion8bit),
    ("sophia", Optimizer::Sophia),
    ("prodigy", Optimizer::Prodigy),
    ("muon", Optimizer::Muon),
    ("sgd", Optimizer::Sgd),
    ("lomo", Optimizer::Lomo),
    ("adalomo", Optimizer::Lomo),
    ("q_galore_adamw8bit", Optimizer::Galore { rank: 128 }),
];

/// Names that libraries know whose states the planner has no form for, with the nearest that it has.
const NEAR: [(&str, Optimizer); 14] = [
    ("adamw_anyprecision", Optimizer::AdamW),
    ("adagrad", Optimizer::SgdMomentum),
    ("rmsprop", Optimizer::SgdMomentum),
    ("rmsprop_bnb", Optimizer::SgdMomentum),
    ("rmsprop_bnb_8bit", Optimizer::Lion8bit),
    ("ademamix", Optimizer::Prodigy),
    ("ademamix_8bit", Optimizer::AdamW8bit),
    ("paged_ademamix_32bit", Optimizer::PagedAdamW),
    ("paged_ademamix_8bit", Optimizer::PagedAdamW8bit),
    ("paged_lion_32bit", Optimizer::Lion),
    ("paged_lion_8bit", Optimizer::Lion8bit),
    ("grokadamw", Optimizer::Prodigy),
    ("schedule_free_radam", Optimizer::AdamW),
    ("dion", Optimizer::Muon),
];

/// What updates the weights, by the name that Transformers has for it.
pub(crate) fn optimizer(
    options: &mut Options,
    name: &str,
    arguments: &str,
    default: Optimizer,
    reading: &mut Reading<'_>,
) -> Result<Optimizer, ImportError> {
    let Some(text) = options.text(name)? else {
        return Ok(default);
    };
    let text = text.to_ascii_lowercase();
    if let Some((_, optimizer)) = OPTIMIZERS.iter().find(|(word, _)| *word == text) {
        return Ok(*optimizer);
    }
    if text.starts_with("galore") || text.starts_with("apollo") {
        return projected(options, name, arguments, &text, reading);
    }
    if let Some((_, optimizer)) = NEAR.iter().find(|(word, _)| *word == text) {
        let effect = format!("its states; planned as `{optimizer:?}`");
        reading.warnings.push(options.not_understood(name, &effect));
        return Ok(*optimizer);
    }
    let words = OPTIMIZERS.iter().map(|(word, _)| *word);
    if let Some(near) = nearest_of(&text, words) {
        return Err(options
            .bad(name, "the name of an optimizer")
            .suggest(Some(near)));
    }
    let effect = "its states; planned as AdamW, with two moments";
    reading.warnings.push(options.not_understood(name, effect));
    Ok(default)
}

/// GaLore and APOLLO: their rank stands in `optim_args`, as `rank=64, scale=..` or as a table.
fn projected(
    options: &mut Options,
    name: &str,
    arguments: &str,
    text: &str,
    reading: &mut Reading<'_>,
) -> Result<Optimizer, ImportError> {
    let inner = format!("{arguments}.rank");
    let mut rank = options.count(&inner)?;
    for word in options.words(arguments).unwrap_or_default() {
        if let Some(value) = word.strip_prefix("rank=") {
            let parsed = value
                .parse()
                .ok()
                .filter(|rank| (1..1 << 20).contains(rank));
            rank = Some(parsed.ok_or_else(|| options.bad(arguments, "`rank=` a whole number"))?);
        }
    }
    if text.contains("8bit") || text.contains("adafactor") || text.contains("layerwise") {
        let effect = "a variant of it; planned with two moments in 32 bits, all gradients at once";
        reading.warnings.push(options.not_understood(name, effect));
    }
    Ok(if text.starts_with("galore") {
        Optimizer::Galore {
            rank: rank.unwrap_or(128),
        }
    } else {
        Optimizer::Apollo {
            rank: rank.unwrap_or(1),
        }
    })
}
