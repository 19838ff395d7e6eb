//! `antiphon plan` as a user calls it: on the configs of `examples/plans`, on options, on tables, and with what is wrong.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use serde_json::Value;

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_antiphon"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plans"))
        .arg("plan")
        .args(arguments)
        .output()
        .unwrap()
}

fn answer(arguments: &[&str]) -> Value {
    let output = plan(&[arguments, &["--json"]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}; {stderr}"))
}

fn refused(arguments: &[&str]) -> String {
    let output = plan(arguments);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).unwrap()
}

/// One line for each config: how it is split, what it needs, how fast it is.
fn check(plans: &[(&str, &str)], expected: &Expect) {
    let mut lines = String::new();
    for (file, options) in plans {
        let arguments: Vec<&str> = std::iter::once(*file)
            .chain(options.split_whitespace())
            .collect();
        let answer = answer(&arguments);
        let split = &answer["parallelism"];
        let gib = |value: &Value| value.as_f64().unwrap() / 1_073_741_824.0;
        writeln!(
            lines,
            "{file} {options}: {} on {} x {}; dp {} tp {} pp {} ep {} zero {} recompute {}; {} x {} x {} tokens; {:.1} GiB at {}, fits {}; step {:.0} ms, {:.0} tokens/s a GPU",
            answer["model"].as_str().unwrap(),
            answer["gpus"],
            answer["gpu_type"].as_str().unwrap(),
            split["dp"],
            split["tp"],
            split["pp"],
            split["ep"],
            split["zero"],
            split["recompute"].as_str().unwrap(),
            split["accumulation"],
            split["micro_batch"],
            split["sequence_length"],
            gib(&answer["memory"]["peak_bytes"]),
            answer["memory"]["phase"].as_str().unwrap(),
            answer["fits"],
            answer["step_ms"].as_f64().unwrap(),
            answer["tokens_per_s_per_gpu"].as_f64().unwrap(),
        )
        .unwrap();
    }
    expected.assert_eq(&lines);
}

#[test]
fn every_example_has_its_answer() {
    check(
        &[
            ("accelerate-fsdp.sh", "--gpu h100"),
            ("axolotl-dpo-zero3.yml", "--gpu h100 --gpus 8"),
            ("axolotl-full-fsdp.yml", "--gpu h100 --gpus 8"),
            ("axolotl-qlora.yml", "--gpu 4090"),
            (
                "deepspeed-alone.json",
                "--model Qwen2.5-7B --gpu a100 --gpus 8",
            ),
            ("llama-factory-dpo.yaml", "--gpu h100 --gpus 8"),
            ("llama-factory-full.sh", "--gpu h100"),
            ("llama-factory-lora-sft.yaml", "--gpu l40s --gpus 1"),
            ("megatron-70b.sh", "--gpu h100"),
            ("megatron-moe.sh", "--gpu h100"),
            ("openrlhf-ppo.sh", "--gpu h100"),
            ("openrlhf-rm.sh", "--gpu h100"),
            ("torchtune-full.sh", "--gpu a100"),
            ("torchtune-lora.yaml", "--gpu a100 --gpus 1"),
            ("transformers-zero3.json", "--gpu h100 --gpus 8"),
            ("trl-grpo.yaml", "--gpu h100 --gpus 8"),
            ("trl-sft.sh", "--gpu h100"),
            ("unsloth-qlora.py", "--gpu 4090"),
            ("verl-grpo.sh", "--gpu h100"),
            ("verl-ppo-megatron.yaml", "--gpu h100"),
        ],
        &expect![[r#"
            accelerate-fsdp.sh --gpu h100: mistralai/Mixtral-8x7B-v0.1 on 16 x H100-SXM-80GB; dp 16 tp 1 pp 1 ep 1 zero 3 recompute full; 4 x 2 x 4096 tokens; 17.5 GiB at backward, fits true; step 6387 ms, 5130 tokens/s a GPU
            axolotl-dpo-zero3.yml --gpu h100 --gpus 8: Qwen/Qwen3-14B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 3 recompute full; 4 x 1 x 4096 tokens; 52.8 GiB at loss, fits true; step 9591 ms, 3416 tokens/s a GPU
            axolotl-full-fsdp.yml --gpu h100 --gpus 8: meta-llama/Llama-3.1-8B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 3 recompute full; 4 x 1 x 8192 tokens; 22.6 GiB at backward, fits true; step 5041 ms, 6501 tokens/s a GPU
            axolotl-qlora.yml --gpu 4090: Qwen/Qwen2.5-7B on 1 x RTX4090; dp 1 tp 1 pp 1 ep 1 zero 0 recompute full; 8 x 2 x 4096 tokens; 23.4 GiB at loss, fits false; step 35094 ms, 1867 tokens/s a GPU
            deepspeed-alone.json --model Qwen2.5-7B --gpu a100 --gpus 8: Qwen/Qwen2.5-7B on 8 x A100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 1 recompute full; 4 x 4 x 4096 tokens; 77.6 GiB at loss, fits false; step 20116 ms, 3258 tokens/s a GPU
            llama-factory-dpo.yaml --gpu h100 --gpus 8: Qwen/Qwen2.5-32B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 0 recompute full; 8 x 1 x 2048 tokens; 30.1 GiB at loss, fits true; step 21530 ms, 1522 tokens/s a GPU
            llama-factory-full.sh --gpu h100: mistralai/Mistral-7B-v0.3 on 16 x H100-SXM-80GB; dp 16 tp 1 pp 1 ep 1 zero 2 recompute full; 2 x 1 x 8192 tokens; 20.3 GiB at loss, fits true; step 3350 ms, 4891 tokens/s a GPU
            llama-factory-lora-sft.yaml --gpu l40s --gpus 1: Qwen/Qwen3-8B on 1 x L40S; dp 1 tp 1 pp 1 ep 1 zero 0 recompute full; 4 x 4 x 4096 tokens; 26.6 GiB at backward, fits true; step 37869 ms, 1731 tokens/s a GPU
            megatron-70b.sh --gpu h100: megatron, 80 layers of 8192 on 128 x H100-SXM-80GB; dp 4 tp 8 pp 4 ep 1 zero 1 recompute modules; 32 x 1 x 8192 tokens; 41.8 GiB at backward, fits true; step 7509 ms, 1091 tokens/s a GPU
            megatron-moe.sh --gpu h100: megatron, 48 layers of 2048 on 32 x H100-SXM-80GB; dp 16 tp 1 pp 2 ep 8 zero 1 recompute modules; 16 x 2 x 4096 tokens; 118.2 GiB at backward, fits false; step 5898 ms, 11111 tokens/s a GPU
            openrlhf-ppo.sh --gpu h100: meta-llama/Llama-3.1-8B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 3 recompute full; 8 x 2 x 2048 tokens; 49.8 GiB at generate, fits true; step 99743 ms, 1314 tokens/s a GPU
            openrlhf-rm.sh --gpu h100: Qwen/Qwen2.5-1.5B on 4 x H100-SXM-80GB; dp 4 tp 1 pp 1 ep 1 zero 2 recompute full; 16 x 4 x 4096 tokens; 55.4 GiB at loss, fits true; step 19720 ms, 26586 tokens/s a GPU
            torchtune-full.sh --gpu a100: meta-llama/Llama-3.2-3B on 2 x A100-SXM-80GB; dp 2 tp 1 pp 1 ep 1 zero 3 recompute full; 1 x 4 x 2048 tokens; 13.4 GiB at loss, fits true; step 1128 ms, 7265 tokens/s a GPU
            torchtune-lora.yaml --gpu a100 --gpus 1: meta-llama/Llama-3.1-8B on 1 x A100-SXM-80GB; dp 1 tp 1 pp 1 ep 1 zero 0 recompute full; 8 x 2 x 4096 tokens; 22.2 GiB at loss, fits true; step 18532 ms, 3536 tokens/s a GPU
            transformers-zero3.json --gpu h100 --gpus 8: meta-llama/Llama-3.1-70B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 3 recompute full; 8 x 1 x 8192 tokens; 44.4 GiB at loss, fits true; step 92577 ms, 708 tokens/s a GPU
            trl-grpo.yaml --gpu h100 --gpus 8: Qwen/Qwen2.5-3B on 8 x H100-SXM-80GB; dp 8 tp 1 pp 1 ep 1 zero 0 recompute full; 4 x 8 x 2560 tokens; 99.6 GiB at loss, fits false; step 36309 ms, 2256 tokens/s a GPU
            trl-sft.sh --gpu h100: google/gemma-2-9b on 4 x H100-SXM-80GB; dp 4 tp 1 pp 1 ep 1 zero 0 recompute full; 2 x 4 x 2048 tokens; 49.5 GiB at loss, fits true; step 2934 ms, 5584 tokens/s a GPU
            unsloth-qlora.py --gpu 4090: meta-llama/Llama-3.1-8B on 1 x RTX4090; dp 1 tp 1 pp 1 ep 1 zero 0 recompute full; 4 x 2 x 8192 tokens; 9.8 GiB at backward, fits true; step 39860 ms, 1644 tokens/s a GPU
            verl-grpo.sh --gpu h100: Qwen/Qwen2.5-7B on 16 x H100-SXM-80GB; dp 16 tp 1 pp 1 ep 1 zero 3 recompute full; 16 x 4 x 4096 tokens; 56.7 GiB at generate, fits true; step 254201 ms, 4125 tokens/s a GPU
            verl-ppo-megatron.yaml --gpu h100: Qwen/Qwen3-30B-A3B on 32 x H100-SXM-80GB; dp 8 tp 2 pp 2 ep 8 zero 1 recompute none; 8 x 1 x 4096 tokens; 77.8 GiB at generate, fits false; step 70262 ms, 466 tokens/s a GPU
        "#]],
    );
}

#[test]
fn parts_of_memory_sum_to_the_peak() {
    let answer = answer(&["--model", "Llama-3.1-8B", "--method", "full", "--gpus", "8"]);
    let memory = &answer["memory"];
    let part = |name: &str| memory[name].as_u64().unwrap();
    let sum: u64 = [
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "logits",
        "buffers",
        "overhead",
    ]
    .iter()
    .map(|name| part(&format!("{name}_bytes")))
    .sum();
    assert_eq!(sum, part("peak_bytes"));
    assert!(
        part("peak_bytes") > 16 * 8_030_261_248 / 8,
        "weights, gradients and states alone"
    );
}

#[test]
fn options_win_over_the_config() {
    let one = answer(&["axolotl-qlora.yml", "--gpu", "h100", "--micro-batch", "1"]);
    let two = answer(&["axolotl-qlora.yml", "--gpu", "h100", "--micro-batch", "2"]);
    assert_eq!(one["parallelism"]["micro_batch"], 1);
    assert_eq!(two["parallelism"]["micro_batch"], 2);
    let peak = |answer: &Value| answer["memory"]["peak_bytes"].as_u64().unwrap();
    assert!(peak(&two) > peak(&one));
}

#[test]
fn a_plan_that_does_not_fit_ends_with_three_and_says_how_much_is_missing() {
    let output = plan(&[
        "--model",
        "Llama-3.1-70B",
        "--method",
        "full",
        "--gpu",
        "4090",
        "--gpus",
        "1",
    ]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("does not fit: "), "{text}");
    assert!(
        text.contains("to be left free, 23.6 GiB are there"),
        "{text}"
    );
}

#[test]
fn a_search_recommends_a_layout_that_fits() {
    let found = answer(&[
        "--model",
        "Llama-3.1-8B",
        "--method",
        "full",
        "--gpu",
        "h100",
        "--search",
        "--gpus",
        "1..16",
        "--global-batch",
        "64",
        "--sequence-length",
        "4096",
    ]);
    let best = usize::try_from(found["recommended"].as_u64().unwrap()).unwrap();
    let choice = &found["choices"][best];
    assert!(choice["margin"].as_f64().unwrap() > 0.0, "{choice}");
    assert!(
        (1..=16).contains(&choice["gpus"].as_u64().unwrap()),
        "{choice}"
    );
}

#[test]
fn every_row_of_a_table_is_answered_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("rows.csv");
    std::fs::write(
        &rows,
        "name,model_key,gpu,n_gpus,method,seq_len,micro_batch\na,Qwen/Qwen2.5-7B,H100-SXM-80GB,8,full,4096,1\nb,no-such-model,H100-SXM-80GB,8,full,4096,1\n",
    )
    .unwrap();
    let output = plan(&["--batch", rows.to_str().unwrap()]);
    assert!(output.status.success());
    let mut reader = csv::Reader::from_reader(&output.stdout[..]);
    let headers = reader.headers().unwrap().clone();
    let at = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let answers: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(&answers[0][at("name")], "a");
    assert!(answers[0][at("plan_peak_bytes")].parse::<f64>().unwrap() > 1e9);
    assert_eq!(&answers[0][at("plan_fits")], "yes");
    assert_eq!(&answers[1][at("plan_peak_bytes")], "");
    assert!(
        answers[1][at("plan_reasons")].starts_with("no answer: no model is called `no-such-model`")
    );
}

#[test]
fn what_is_wrong_is_said_with_its_code_and_what_to_do() {
    for (arguments, code, words) in [
        (&["--model", "Llama-3.1-9B", "--method", "full"][..], "", ""),
        (&["--model", "my-model"][..], "AP0720", "the nearest are"),
        (
            &["--model", "Llama-3.1-8B", "--gpu", "h1000"][..],
            "AP0721",
            "H100-SXM-80GB",
        ),
        (
            &["--model", "Llama-3.1-8B", "--gpus", "12", "--tp", "8"][..],
            "AP0722",
            "multiple of 8",
        ),
        (
            &["--model", "Llama-3.1-8B", "--gpus", "64", "--pp", "64"][..],
            "AP0723",
            "at most 32",
        ),
        (
            &["--model", "Qwen3-30B-A3B", "--gpus", "24", "--ep", "12"][..],
            "AP0724",
            "divisor of 128",
        ),
        (
            &["--model", "Llama-3.1-8B", "--micro-batch", "0"][..],
            "AP0725",
            "at least 1",
        ),
        (&[][..], "AP0727", "antiphon plan axolotl.yml"),
        (&["not-there.yml"][..], "AP0728", "`not-there.yml`"),
        (
            &["--model", "Llama-3.1-8B", "--method", "lorra"][..],
            "AP0729",
            "qlora",
        ),
        (
            &["--model", "Llama-3.1-8B", "--gpus", "many"][..],
            "AP0729",
            "whole number",
        ),
    ] {
        if code.is_empty() {
            // A size that the name says is planned, and told.
            let reasons = answer(arguments)["reasons"].to_string();
            assert!(reasons.contains("is not in the catalog"), "{reasons}");
            continue;
        }
        let said = refused(arguments);
        assert!(
            said.contains(code) && said.contains(words),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn a_job_that_runs_a_training_is_planned_by_it() {
    let dir = "../import/";
    for (file, model, gpus) in [
        (
            "sbatch/torchrun-one-node.sbatch",
            "meta-llama/Llama-3.1-8B",
            8,
        ),
        ("sbatch/axolotl.sbatch", "Qwen/Qwen2.5-7B", 2),
        ("kubernetes/trainjob.yaml", "Qwen/Qwen2.5-7B", 8),
        ("skypilot/sft.sky.yaml", "meta-llama/Llama-3.1-8B", 16),
    ] {
        let answer = answer(&[&format!("{dir}{file}")]);
        assert_eq!(
            (&answer["model"], &answer["gpus"]),
            (&model.into(), &gpus.into()),
            "{file}"
        );
    }
    let told = plan(&["../import/kubernetes/trainjob.yaml"]);
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(
        told.starts_with(
            "warning: `trainjob.yaml` is a job: the training is looked for in its commands"
        ),
        "{told}"
    );
}
