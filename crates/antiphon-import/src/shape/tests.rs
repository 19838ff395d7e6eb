//! Files of many architectures, and the counts that they come to.

use super::counted::COUNTED;
use super::*;

fn shape(text: &str) -> ModelShape {
    model_config(text, "config.json").unwrap().shape
}

fn error(text: &str) -> String {
    let error = model_config(text, "config.json").unwrap_err();
    format!("{} {error}", error.code())
}

#[test]
fn every_model_has_the_parameters_that_it_is_known_to_have() {
    let mut wrong = Vec::new();
    for (name, parameters, text) in COUNTED {
        let found = shape(text).parameters();
        if found != *parameters {
            wrong.push(format!("{name}: {found} and not {parameters}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(COUNTED.len(), 80);
}

#[test]
fn windows_are_told_by_layer_or_by_architecture() {
    let window = |text: &str| shape(text).attending();
    let sizes = "\"hidden_size\":64,\"num_hidden_layers\":26,\"num_attention_heads\":4,\"intermediate_size\":128,\"vocab_size\":100,\"max_position_embeddings\":8192";
    let of = |rest: &str| {
        let attending = window(&format!("{{{sizes},{rest}}}"));
        (attending.full, attending.windowed, attending.window)
    };
    assert_eq!(
        of("\"model_type\":\"mistral\",\"sliding_window\":4096"),
        (0, 26, 4096)
    );
    assert_eq!(
        of("\"model_type\":\"mistral\",\"sliding_window\":null"),
        (26, 0, 0)
    );
    assert_eq!(
        of("\"model_type\":\"mistral\",\"sliding_window\":8192"),
        (26, 0, 0),
        "as long as the model"
    );
    assert_eq!(of("\"model_type\":\"gemma2\""), (13, 13, 4096));
    assert_eq!(
        of("\"model_type\":\"gemma3_text\",\"sliding_window\":512"),
        (4, 22, 512)
    );
    let off = "\"model_type\":\"qwen2\",\"sliding_window\":4096,\"use_sliding_window\":false";
    assert_eq!(of(off), (26, 0, 0));
    let kinds = |full: u64| {
        let kind = |layer: u64| match layer % full {
            0 => "\"full_attention\"",
            _ => "\"sliding_attention\"",
        };
        (1..=26).map(kind).collect::<Vec<_>>().join(",")
    };
    let listed = |full| {
        format!(
            "\"model_type\":\"olmo3\",\"sliding_window\":1024,\"layer_types\":[{}]",
            kinds(full)
        )
    };
    assert_eq!(of(&listed(4)), (6, 20, 1024));
    assert_eq!(of(&listed(2)), (13, 13, 1024));
}

#[test]
fn what_lies_around_the_language_model_is_left_out_and_said_so() {
    let text = "{\"model_type\":\"gemma3\",\"tie_word_embeddings\":true,\n\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,\n\"model_type\":\"gemma3_text\",\"num_hidden_layers\":34,\"sliding_window\":1024},\"vision_config\":{}}";
    let config = model_config(text, "config.json").unwrap();
    assert_eq!(config.shape.parameters(), 3_880_263_168);
    assert_eq!(config.warnings.len(), 1);
    assert_eq!(config.warnings[0].place().unwrap().line, 3);
}

#[test]
fn an_unknown_architecture_is_read_as_llama_with_a_warning() {
    let text = "{\"model_type\":\"newest\",\"hidden_size\":4096,\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,\"intermediate_size\":14336,\"vocab_size\":128256,\"max_position_embeddings\":8192}";
    let config = model_config(text, "config.json").unwrap();
    assert_eq!(config.shape.parameters(), 8_030_261_248);
    let named: Vec<_> = config.warnings.iter().map(Warning::name).collect();
    assert_eq!(named, ["not-understood"]);
}

#[test]
fn biases_follow_what_a_file_asks_for() {
    let with = |rest: &str| {
        let text = format!(
            "{{\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"intermediate_size\":128,\"vocab_size\":100,{rest}}}"
        );
        shape(&text).biases
    };
    assert_eq!(with("\"model_type\":\"llama\""), Biases::None);
    assert_eq!(
        with("\"model_type\":\"llama\",\"attention_bias\":true"),
        Biases::Attention
    );
    assert_eq!(with("\"model_type\":\"qwen2\""), Biases::Qkv);
    assert_eq!(
        with("\"model_type\":\"qwen3\",\"attention_bias\":false"),
        Biases::None
    );
    assert_eq!(
        with("\"model_type\":\"starcoder2\",\"use_bias\":false"),
        Biases::None
    );
    assert_eq!(
        with("\"model_type\":\"starcoder2\",\"use_bias\":true"),
        Biases::All
    );
}

#[test]
fn files_that_are_no_model_are_refused() {
    let cases = [
        (
            "{\"model_type\":\"llama\",\"hidden_size\":64,\"vocab_size\":9}",
            "AP0707 `config.json` has no `num_hidden_layers`, without which a `llama` model has no size",
        ),
        (
            "{\n\"model_type\":\"mamba2\"}",
            "AP0708 `config.json`, line 2: `mamba2` models cannot be planned",
        ),
        (
            "{\"model_type\":\"t5\"}",
            "AP0708 `config.json`, line 1: `t5` models cannot be planned",
        ),
        (
            "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":5}",
            "AP0705 `config.json`, line 1: `num_attention_heads` is `5`: expected a divisor of the width 64, or `head_dim` beside it",
        ),
        (
            "{\"model_type\":\"llama\",\"hidden_size\":\"wide\"}",
            "AP0705 `config.json`, line 1: `hidden_size` is `wide`: expected a whole number of at least 1",
        ),
        (
            "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":999999,\"num_attention_heads\":4,\"intermediate_size\":1,\"vocab_size\":1}",
            "AP0705 `config.json`, line 1: `num_hidden_layers` is `999999`: expected a size of a model that can be trained",
        ),
        (
            "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":1,\"vocab_size\":1,\"num_experts\":4,\"num_experts_per_tok\":5}",
            "AP0705 `config.json`, line 1: `num_experts_per_tok` is `5`: expected at most 4, the number of experts",
        ),
        (
            "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":1,\"vocab_size\":1,\"num_experts\":4,\"decoder_sparse_step\":2}",
            "AP0708 `config.json`, line 1: `qwen3_moe` models cannot be planned",
        ),
        (
            "[]",
            "AP0703 `config.json`, line 1: the file cannot be parsed: it holds no options: expected `name: value` lines",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected);
    }
}
