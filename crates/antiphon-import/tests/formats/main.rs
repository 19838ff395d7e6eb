//! What each option of each format becomes, and what is refused.

#![expect(
    clippy::unwrap_used,
    reason = "a field that is not there fails the test"
)]

mod axolotl;
mod commands;
mod deepspeed;
mod detection;
mod documented;
mod llama_factory;
mod megatron;
mod mutations;
mod openrlhf;
mod scripts;
mod torchtune;
mod transformers;
mod trl;
mod verl;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use antiphon_import::{ImportError, Imported};
use serde_json::Value;

/// Files that configs of these tests name.
fn file(path: &str) -> Option<String> {
    let text = match path {
        "zero1.json" => "{\"zero_optimization\": {\"stage\": 1}, \"bf16\": {\"enabled\": true}}",
        "zero3.json" => {
            "{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": \"auto\"}}"
        }
        "fsdp.yaml" => {
            "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
        }
        "accelerate-zero.yaml" => {
            "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\ndeepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
        }
        "sft.yaml" => {
            "model_name_or_path: a/b-7b\nper_device_train_batch_size: 2\nlearning_rate: 1e-5\n"
        }
        "self.yaml" => "fsdp_config: self.yaml\n",
        _ => return None,
    };
    Some(text.to_owned())
}

fn import(name: &str, text: &str) -> Result<Imported, ImportError> {
    antiphon_import::training(text, name, None, &mut file)
}

/// An error as a user sees it, on one line.
fn refusal(error: &ImportError) -> String {
    let mut text = format!("error[{}]: {error}", error.code());
    if !error.why().is_empty() {
        write!(text, " | why: {}", error.why()).unwrap();
    }
    write!(text, " | help: {}", error.help()).unwrap();
    text
}

/// All that is stated of a run, by path.
fn stated(imported: &Imported) -> BTreeMap<String, String> {
    fn leaves(path: &str, value: &Value, found: &mut BTreeMap<String, String>) {
        match value {
            Value::Null => (),
            Value::Object(map) => {
                for (key, value) in map {
                    let dot = if path.is_empty() { "" } else { "." };
                    leaves(&format!("{path}{dot}{key}"), value, found);
                }
            }
            value => {
                found.insert(path.to_owned(), value.to_string());
            }
        }
    }
    let mut found = BTreeMap::new();
    leaves(
        "",
        &serde_json::to_value(&imported.spec).unwrap(),
        &mut found,
    );
    found
}

/// Each option put where a base config has `@`, and what it changes there.
fn changes(name: &str, base: &str, options: &[&str]) -> String {
    let plain = import(name, &base.replace('@', "")).unwrap_or_else(|error| panic!("{error}"));
    let before = stated(&plain);
    let mut text = String::new();
    for option in options {
        let shown = option.replace('\n', "; ");
        match import(name, &base.replace('@', option)) {
            Err(error) => writeln!(text, "{shown}\n    {}", refusal(&error)).unwrap(),
            Ok(imported) => {
                writeln!(text, "{shown}").unwrap();
                let after = stated(&imported);
                for (path, value) in &after {
                    if before.get(path) != Some(value) {
                        writeln!(text, "    {path}: {value}").unwrap();
                    }
                }
                for path in before.keys().filter(|path| !after.contains_key(*path)) {
                    writeln!(text, "    {path}: not stated").unwrap();
                }
                for warning in imported
                    .warnings
                    .iter()
                    .filter(|w| !plain.warnings.contains(w))
                {
                    writeln!(text, "    warning[{}]: {warning}", warning.name()).unwrap();
                }
            }
        }
    }
    text
}
