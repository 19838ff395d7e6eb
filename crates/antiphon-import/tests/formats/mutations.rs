//! Whatever a config is turned into, reading it ends in an answer or an error.

use std::fs;
use std::sync::OnceLock;

use proptest::prelude::*;

fn examples() -> Vec<(String, String)> {
    let plans = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/plans");
    let mut files: Vec<_> = fs::read_dir(plans)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    let named = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    files.into_iter().map(named).collect()
}

#[derive(Debug, Clone)]
enum Change {
    Cut(usize, usize),
    Insert(usize, String),
    Double(usize, usize),
    Swap(usize, usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..4000_usize;
    let pieces = prop_oneof![
        Just(String::from(" -1 ")),
        Just(String::from("18446744073709551616")),
        Just(String::from("999999999999999")),
        Just(String::from("0")),
        Just(String::from("null")),
        Just(String::from("${X}$((")),
        Just(String::from("\n  - {")),
        Just(String::from("\"\"\"")),
        Just(String::from("[[[[[[[[")),
        Just(String::from("\u{e9}\u{1f600}")),
        "[ -~\n]{0,12}",
    ];
    prop_oneof![
        (at.clone(), 0..200_usize).prop_map(|(at, length)| Change::Cut(at, length)),
        (at.clone(), pieces).prop_map(|(at, text)| Change::Insert(at, text)),
        (at.clone(), 0..200_usize).prop_map(|(at, length)| Change::Double(at, length)),
        (at.clone(), at).prop_map(|(one, other)| Change::Swap(one, other)),
    ]
}

fn changed(text: &str, changes: &[Change]) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for change in changes {
        let length = chars.len();
        let within = |at: usize| at % (length + 1);
        match change {
            Change::Cut(at, count) => {
                let at = within(*at);
                chars.drain(at..(at + count).min(length));
            }
            Change::Insert(at, text) => {
                let at = within(*at);
                chars.splice(at..at, text.chars());
            }
            Change::Double(at, count) => {
                let at = within(*at);
                let copy = chars[at..(at + count).min(length)].to_vec();
                chars.splice(at..at, copy);
            }
            Change::Swap(one, other) if length > 0 => chars.swap(one % length, other % length),
            Change::Swap(..) => (),
        }
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_config_panics(
        which in 0..1000_usize,
        named in any::<bool>(),
        changes in prop::collection::vec(change(), 1..8),
    ) {
        static EXAMPLES: OnceLock<Vec<(String, String)>> = OnceLock::new();
        let examples = EXAMPLES.get_or_init(examples);
        let (name, text) = &examples[which % examples.len()];
        let text = changed(text, &changes);
        let name = if named { name.as_str() } else { "config" };
        // What a config names is itself: files that refer to themselves have to end as well.
        let mut read = |_: &str| Some(text.clone());
        if let Ok(imported) = antiphon_import::training(&text, name, None, &mut read) {
            if let antiphon_types::training::Model::Shape(shape) = &imported.spec.model {
                prop_assert!(shape.parameters() >= shape.active_parameters());
            }
            for warning in &imported.warnings {
                prop_assert!(!warning.to_string().is_empty());
            }
        }
        let format = antiphon_import::Format::ALL[which % antiphon_import::Format::ALL.len()];
        let _ = antiphon_import::training(&text, name, Some(format), &mut |_| None);
    }

    #[test]
    fn no_model_config_panics(
        text in "\\{(\"(hidden_size|num_hidden_layers|num_attention_heads|num_key_value_heads|vocab_size|num_experts|n_shared_experts|kv_lora_rank|sliding_window|intermediate_size)\": ?[0-9]{1,16},){0,9}\"model_type\": ?\"(llama|gemma3|mpt|falcon|qwen3_moe|deepseek_v3)\"\\}",
    ) {
        if let Ok(config) = antiphon_import::model_config(&text, "config.json") {
            prop_assert!(config.shape.parameters() >= config.shape.active_parameters());
        }
    }
}
