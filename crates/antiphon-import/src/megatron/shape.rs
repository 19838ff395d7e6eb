//! A model's sizes from Megatron-LM's arguments.

use antiphon_types::model::{Attention, Biases, Experts, Mlp, ModelShape, Norm, QkNorm, Window};

use crate::error::ImportError;
use crate::options::Options;
use crate::reading::Reading;
use crate::shape::bounded;

/// The sizes, if any are there; a script that loads them with a checkpoint (`--use-checkpoint-args`) has none.
pub(super) fn shape(
    options: &mut Options,
    reading: &mut Reading<'_>,
) -> Result<Option<ModelShape>, ImportError> {
    options.alias(&["decoder_num_layers"], "num_layers");
    let sizes = (
        options.count("num_layers")?,
        options.count("hidden_size")?,
        options.count("num_attention_heads")?,
    );
    let (Some(layers), Some(hidden), Some(heads)) = sizes else {
        return Ok(None);
    };
    let swiglu = options.on("swiglu")?;
    let ffn = options.count("ffn_hidden_size")?;
    let ffn = ffn.unwrap_or_else(|| default_ffn(hidden, swiglu));
    let norm = options.choice(
        "normalization",
        &[("LayerNorm", Norm::Layer), ("RMSNorm", Norm::Rms)],
    )?;
    let bare = options.on("disable_bias_linear")?;
    let qkv_bias = options.on("add_qkv_bias")?;
    let positions = options.text("position_embedding_type")?;
    let rotary = options.on("use_rotary_position_embeddings")?
        || !matches!(positions.as_deref(), None | Some("learned_absolute"));
    let longest = options.count("max_position_embeddings")?.unwrap_or(0);
    let tp = options.count("tensor_model_parallel_size")?.unwrap_or(1);
    let shape = ModelShape {
        name: format!("megatron, {layers} layers of {hidden}"),
        hidden,
        layers,
        attention: attention(options, hidden, heads)?,
        ffn,
        mlp: if swiglu { Mlp::Gated } else { Mlp::Plain },
        vocab: vocabulary(options, tp, reading)?,
        tied: !options.on("untie_embeddings_and_output_weights")?,
        biases: match (bare, qkv_bias) {
            (false, _) => Biases::All,
            (true, true) => Biases::Qkv,
            (true, false) => Biases::None,
        },
        head_bias: false,
        norm: norm.unwrap_or(Norm::Layer),
        norms_per_layer: 2,
        learned_positions: if rotary { 0 } else { longest },
        experts: experts(options, layers, ffn)?,
        window: window(options)?,
        max_positions: longest,
    };
    let named = |name: &str| match name {
        "num_hidden_layers" => "num_layers",
        "intermediate_size" => "ffn_hidden_size",
        "num_experts" => "num_experts",
        "vocab_size" => "vocab_size",
        "max_position_embeddings" => "max_position_embeddings",
        "num_attention_heads" => "num_attention_heads",
        _ => "hidden_size",
    };
    let bad = |name: &str| options.bad(named(name), "a size of a model that can be trained");
    bounded(shape, bad).map(Some)
}

/// Four times the width; with a gate two thirds of that, in steps of 64.
const fn default_ffn(hidden: u64, swiglu: bool) -> u64 {
    let four = hidden.saturating_mul(4);
    if swiglu {
        (four / 3 * 2 + four % 3 * 2 / 3) / 64 * 64
    } else {
        four
    }
}

fn attention(options: &mut Options, hidden: u64, heads: u64) -> Result<Attention, ImportError> {
    let qk_norm = options.on("qk_layernorm")?;
    if options.on("multi_latent_attention")? {
        return Ok(Attention::Latent {
            heads,
            q_rank: options.count("q_lora_rank")?.unwrap_or(0),
            kv_rank: options.count("kv_lora_rank")?.unwrap_or(32),
            nope: options.count("qk_head_dim")?.unwrap_or(128),
            rope: options.count("qk_pos_emb_head_dim")?.unwrap_or(64),
            value: options.count("v_head_dim")?.unwrap_or(128),
        });
    }
    let head_dim = options.count("kv_channels")?;
    if head_dim.is_none() && !hidden.is_multiple_of(heads) {
        let expected = format!("a divisor of the width {hidden}, or `--kv-channels` beside it");
        return Err(options.bad("num_attention_heads", &expected));
    }
    let grouped = options.on("group_query_attention")?;
    let groups = options.count("num_query_groups")?;
    let kv_heads = if grouped { groups.unwrap_or(1) } else { heads };
    if !heads.is_multiple_of(kv_heads) {
        let expected = format!("a divisor of {heads} heads");
        return Err(options.bad("num_query_groups", &expected));
    }
    Ok(Attention::Grouped {
        heads,
        kv_heads,
        head_dim: head_dim.unwrap_or(hidden / heads),
        qk_norm: if qk_norm { QkNorm::Head } else { QkNorm::None },
        sinks: options.text("softmax_type")?.as_deref() == Some("learnable"),
    })
}

/// Rows of the embedding: padded so that tensor-parallel ranks have equal parts of 128 rows.
fn vocabulary(
    options: &mut Options,
    tp: u64,
    reading: &mut Reading<'_>,
) -> Result<u64, ImportError> {
    const TOKENIZERS: [(&str, u64); 5] = [
        ("GPT2BPETokenizer", 50_257),
        ("Llama2Tokenizer", 32_000),
        ("Llama3Tokenizer", 128_256),
        ("BertWordPieceLowerCase", 30_522),
        ("TikTokenizer", 131_072),
    ];
    let step = options
        .count("make_vocab_size_divisible_by")?
        .unwrap_or(128);
    let tokenizer = options.text("tokenizer_type")?;
    let named = tokenizer.as_deref().and_then(|text| {
        TOKENIZERS
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, rows)| *rows)
    });
    let rows = match (
        options.count("padded_vocab_size")?,
        options.count("vocab_size")?,
        named,
    ) {
        (Some(rows), ..) => return Ok(rows),
        // A tokenizer that is none has one more for the end of a document.
        (None, Some(rows), _) => rows + u64::from(tokenizer.as_deref() == Some("NullTokenizer")),
        (None, None, Some(rows)) => rows,
        (None, None, None) => {
            let effect = "the vocabulary follows from it; planned with that of Llama 3, 128256";
            let warning = options.not_understood("tokenizer_type", effect);
            reading.warnings.push(warning);
            128_256
        }
    };
    Ok(rows.next_multiple_of(step.saturating_mul(tp).max(1)))
}

fn experts(options: &mut Options, layers: u64, ffn: u64) -> Result<Option<Experts>, ImportError> {
    let Some(count) = options.count("num_experts")? else {
        return Ok(None);
    };
    let top_k = options.count("moe_router_topk")?.unwrap_or(2);
    if top_k > count {
        let expected = format!("at most {count}, the number of experts");
        return Err(options.bad("moe_router_topk", &expected));
    }
    let dense_layers = match options.text("moe_layer_freq")? {
        None => 0,
        Some(text) => dense(&text, layers).ok_or_else(|| {
            options.bad(
                "moe_layer_freq",
                "1, or a list that begins with the dense layers, such as `([0]*3+[1]*58)`",
            )
        })?,
    };
    Ok(Some(Experts {
        count,
        top_k,
        ffn: options.count("moe_ffn_hidden_size")?.unwrap_or(ffn),
        shared_ffn: options
            .count("moe_shared_expert_intermediate_size")?
            .unwrap_or(0),
        dense_layers,
        router_bias: options.on("moe_router_enable_expert_bias")?
            || !options.on("disable_bias_linear")?,
    }))
}

/// Leading dense layers of `([0]*3+[1]*58)`, `[0]*1+[1]*26` or `[0,1,1]`.
fn dense(text: &str, layers: u64) -> Option<u64> {
    let text = text.replace([' ', '(', ')'], "");
    if text == "1" {
        return Some(0);
    }
    let (mut dense, mut rest) = (0_u64, 0_u64);
    for part in text.split('+') {
        let (list, times) = match part.split_once('*') {
            Some((list, times)) => (list, times.parse::<u64>().ok()?),
            None => (part, 1),
        };
        let list = list.strip_prefix('[')?.strip_suffix(']')?;
        let zeros = list.split(',').filter(|item| *item == "0").count() as u64;
        let ones = list.split(',').filter(|item| *item == "1").count() as u64;
        // Only leading layers may be dense.
        if (zeros > 0 && (ones > 0 && !list.starts_with('0') || rest > 0))
            || zeros + ones != list.split(',').count() as u64
        {
            return None;
        }
        dense = dense.checked_add(zeros.checked_mul(times)?)?;
        rest = rest.checked_add(ones.checked_mul(times)?)?;
    }
    (dense.checked_add(rest)? == layers).then_some(dense)
}

/// `--window-size 127,0` with `--window-attn-skip-freq N`: every Nth layer attends to everything.
fn window(options: &mut Options) -> Result<Option<Window>, ImportError> {
    let Some(sides) = options.words("window_size") else {
        return Ok(None);
    };
    let back = sides.first().map(|side| side.trim_matches(['(', ')']));
    let back: Option<u64> = back.and_then(|side| side.parse().ok());
    let Some(back) = back.filter(|back| *back <= 1 << 32) else {
        return Err(options.bad("window_size", "two numbers, such as `127,0`"));
    };
    let full_every = options.count("window_attn_skip_freq")?.unwrap_or(0);
    Ok(Some(Window {
        tokens: back + 1,
        full_every,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_layers_come_first_or_not_at_all() {
        assert_eq!(dense("([0]*3+[1]*58)", 61), Some(3));
        assert_eq!(dense("[0]*1+[1]*26", 27), Some(1));
        assert_eq!(dense("[0,1,1]", 3), Some(1));
        assert_eq!(dense("1", 12), Some(0));
        assert_eq!(dense("[1]*3+[0]*1", 4), None, "a dense layer at the end");
        assert_eq!(dense("[0]*3+[1]*5", 61), None, "not all layers");
        assert_eq!(dense("2", 12), None);
    }

    #[test]
    fn a_gated_block_is_two_thirds_of_four_times_the_width() {
        assert_eq!(default_ffn(4096, false), 16384);
        assert_eq!(default_ffn(4096, true), 10880);
    }
}
