//! How formats are told apart.

use antiphon_import::Format;
use expect_test::expect;

use crate::{import, refusal};

#[test]
fn formats_are_told_by_what_stands_in_them() {
    let cases = [
        ("x", "base_model: a\nadapter: lora\n", Format::Axolotl),
        (
            "x",
            "stage: sft\nmodel_name_or_path: a\nper_device_train_batch_size: 1\n",
            Format::LlamaFactory,
        ),
        (
            "x",
            "model_name_or_path: a\nper_device_train_batch_size: 1\n",
            Format::Transformers,
        ),
        (
            "x",
            "model_name_or_path: a\nper_device_train_batch_size: 1\nuse_peft: true\n",
            Format::Trl,
        ),
        (
            "x",
            "{\"zero_optimization\": {\"stage\": 1}}",
            Format::Deepspeed,
        ),
        ("x", "model:\n  _component_: a.b\n", Format::Torchtune),
        (
            "x",
            "actor_rollout_ref:\n  model:\n    path: a\n",
            Format::Verl,
        ),
        (
            "x",
            "python -m verl.trainer.main_ppo data.train_batch_size=1024",
            Format::Verl,
        ),
        (
            "x",
            "python -m openrlhf.cli.train_dpo --pretrain a",
            Format::OpenRlhf,
        ),
        (
            "x",
            "torchrun train_it.py --num-layers 2 --hidden-size 8 --num-attention-heads 2 --vocab-size 10 --seq-length 8",
            Format::Megatron,
        ),
        (
            "x",
            "tune run full_finetune_single_device --config a batch_size=1",
            Format::Torchtune,
        ),
        (
            "x",
            "llamafactory-cli train --stage sft --model_name_or_path a",
            Format::LlamaFactory,
        ),
        ("x", "trl dpo --model_name_or_path a", Format::Trl),
        ("x", "import unsloth\n", Format::Unsloth),
        ("x.py", "from trl import SFTConfig\n", Format::Trl),
    ];
    for (name, text, format) in cases {
        assert_eq!(import(name, text).unwrap().format, format, "{text}");
    }
}

#[test]
fn a_named_format_is_believed() {
    let text = "learning_rate: 1e-5\n";
    let named = antiphon_import::training(text, "x.yml", Some(Format::Axolotl), &mut |_| None);
    assert_eq!(named.unwrap().format, Format::Axolotl);
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
}

#[test]
fn ends_of_lines_of_other_systems_change_nothing() {
    for name in [
        "axolotl-qlora.yml",
        "megatron-70b.sh",
        "unsloth-qlora.py",
        "transformers-zero3.json",
    ] {
        let path = format!("{}/../../examples/plans/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let other = format!("\u{feff}{}", text.replace('\n', "\r\n"));
        assert_eq!(
            import(name, &other).unwrap(),
            import(name, &text).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn what_is_no_config_is_refused() {
    let long = format!("a: {}\n", "x".repeat(2 << 20));
    let cases = [
        ("notes.yml", "title: ideas\n"),
        ("notes.txt", "just words\n"),
        ("notes.yml", "- a\n- b\n"),
        ("run.sh", "echo hello\n"),
        ("a.yml", "base_model: a\n  adapter: lora\n"),
        ("a.json", "{\"stage\": }"),
        ("long.yml", long.as_str()),
        ("", ""),
    ];
    let mut text = String::new();
    for (name, config) in cases {
        let error = refusal(&import(name, config).unwrap_err());
        text.push_str(error.split("\n").next().unwrap());
        text.push('\n');
    }
    text.push_str(&refusal(&"axolot".parse::<Format>().unwrap_err()));
    expect![[r#"
        error[AP0701]: `notes.yml` is in no known training config format: it begins with `title: ideas` | help: name it with `--format`; by itself antiphon tells
        error[AP0701]: `notes.txt` is in no known training config format: it begins with `just words` | help: name it with `--format`; by itself antiphon tells
        error[AP0703]: `notes.yml`, line 1: the file cannot be parsed: it holds no options: expected `name: value` lines | help: correct the file; the tool that it is written for cannot read it either
        error[AP0701]: `run.sh` is in no known training config format: it begins with `echo hello` | help: name it with `--format`; by itself antiphon tells
        error[AP0703]: `a.yml`, line 2: the file cannot be parsed: mapping values are not allowed in this context | help: correct the file; the tool that it is written for cannot read it either
        error[AP0703]: `a.json`, line 1: the file cannot be parsed: expected value | help: correct the file; the tool that it is written for cannot read it either
        error[AP0704]: `long.yml` has 2097156 bytes: a training config has at most 1048576 | help: name the config itself, not the data or a log
        error[AP0703]: ``, line 1: the file cannot be parsed: it holds no options: expected `name: value` lines | help: correct the file; the tool that it is written for cannot read it either
        error[AP0702]: there is no training config format `axolot` | help: is `axolotl` meant? There are `axolotl`, `llama-factory`, `torchtune`, `verl`, `openrlhf`, `megatron`, `unsloth`, `trl`, `transformers`, `deepspeed`"#]].assert_eq(&text);
}

#[test]
fn every_error_has_its_page() {
    let pages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
    for number in 701..=708 {
        let page = format!("{pages}/AP0{number}.md");
        assert!(std::fs::read_to_string(&page).is_ok(), "{page}");
    }
}
