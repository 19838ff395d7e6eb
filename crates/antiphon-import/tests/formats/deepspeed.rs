//! DeepSpeed's options, alone and beside a trainer's.

use expect_test::expect;

use crate::changes;

#[test]
fn options_become_what_they_mean() {
    let base = "{\n\"train_micro_batch_size_per_gpu\": 2,\n@ \"steps_per_print\": 10}";
    expect![[r#"
        "zero_optimization": {"stage": 1},
            layout.sharding: "zero1"
        "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}, "offload_optimizer": {"device": "cpu"}},
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            offload.parameters: "disk"
        "zero_optimization": {"stage": 3, "mics_shard_size": 8},
            layout.shard_group: 8
            layout.sharding: "zero3"
        "zero_optimization": {"stage": 3, "zero_quantized_weights": true},
            layout.sharding: "zero3"
            warning[not-understood]: `ds.json`, line 3: `zero_optimization.zero_quantized_weights: true` is not understood: weights are gathered in 8 bits; planned with 16
        "bf16": {"enabled": true},
            precision: "mixed16"
        "fp16": {"enabled": "auto"},
        "gradient_accumulation_steps": 4, "train_batch_size": 64,
            batch.accumulation: 4
            batch.global: 64
        "optimizer": {"type": "Lion"},
            optimizer: "lion"
        "optimizer": {"type": "AdamW", "params": {"torch_adam": true}},
            optimizer: "adam-w"
        "optimizer": {"type": "OneBitAdam"},
            optimizer: "adam-w-fused"
            warning[not-understood]: `ds.json`, line 3: `optimizer.type: OneBitAdam` is not understood: its states; planned as AdamW, with two moments
        "tensor_parallel": {"autotp_size": 4}, "sequence_parallel_size": 2,
            layout.cp: 2
            layout.tp: 4
        "activation_checkpointing": {"cpu_checkpointing": true},
            offload.activations: "cpu"
        "zero_optimisation": {"stage": 2},
            warning[unknown-options]: `ds.json`: `zero_optimisation.stage` is not known here; is `zero_optimization.stage` meant by `zero_optimisation.stage` (line 3)?
    "#]].assert_eq(&changes(
        "ds.json",
        base,
        &[
            "\"zero_optimization\": {\"stage\": 1},",
            "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}, \"offload_optimizer\": {\"device\": \"cpu\"}},",
            "\"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 8},",
            "\"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true},",
            "\"bf16\": {\"enabled\": true},",
            "\"fp16\": {\"enabled\": \"auto\"},",
            "\"gradient_accumulation_steps\": 4, \"train_batch_size\": 64,",
            "\"optimizer\": {\"type\": \"Lion\"},",
            "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}},",
            "\"optimizer\": {\"type\": \"OneBitAdam\"},",
            "\"tensor_parallel\": {\"autotp_size\": 4}, \"sequence_parallel_size\": 2,",
            "\"activation_checkpointing\": {\"cpu_checkpointing\": true},",
            "\"zero_optimisation\": {\"stage\": 2},",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    let base = "{\n\"train_micro_batch_size_per_gpu\": 2,\n@ \"steps_per_print\": 10}";
    expect![[r#"
        "zero_optimization": {"stage": 4},
            error[AP0705]: `ds.json`, line 3: `zero_optimization.stage` is `4`: expected a ZeRO stage from 0 to 3 | help: correct `zero_optimization.stage`, or leave it out to have the tool's default
        "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}},
            error[AP0706]: `ds.json`, line 3: `zero_optimization.offload_param.device: cpu` does not go together with `zero_optimization.stage: 2` (line 3) | why: weights move to the host in ZeRO stage 3 only | help: take out `zero_optimization.offload_param.device: cpu` or `zero_optimization.stage: 2`
        "zero_optimization": {"offload_optimizer": {"device": "cpu"}},
            error[AP0705]: `ds.json`, line 3: `zero_optimization.offload_optimizer.device` is `cpu`: expected another value while `zero_optimization.stage` is not set: optimizer states move to the host from ZeRO stage 1 on | help: correct `zero_optimization.offload_optimizer.device`, or leave it out to have the tool's default
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "disk"}},
            error[AP0705]: `ds.json`, line 3: `zero_optimization.offload_optimizer.device` is `disk`: expected one of `none`, `cpu`, `nvme` | help: correct `zero_optimization.offload_optimizer.device`, or leave it out to have the tool's default
        "bf16": {"enabled": true}, "fp16": {"enabled": true},
            error[AP0706]: `ds.json`, line 3: `bf16.enabled: true` does not go together with `fp16.enabled: true` (line 3) | why: weights are kept in one of the two formats | help: take out `bf16.enabled: true` or `fp16.enabled: true`
        "train_batch_size": 63,
            error[AP0706]: `ds.json`, line 3: `train_batch_size: 63` does not go together with `train_micro_batch_size_per_gpu: 2` (line 2) | why: 63 is no multiple of 2 sequences a GPU and step | help: take out `train_batch_size: 63` or `train_micro_batch_size_per_gpu: 2`
        "bf16": {"enabled": true,
            error[AP0703]: `ds.json`, line 3: the file cannot be parsed: EOF while parsing an object | help: correct the file; the tool that it is written for cannot read it either
    "#]].assert_eq(&changes(
        "ds.json",
        base,
        &[
            "\"zero_optimization\": {\"stage\": 4},",
            "\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}},",
            "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}},",
            "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"disk\"}},",
            "\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true},",
            "\"train_batch_size\": 63,",
            "\"bf16\": {\"enabled\": true,",
        ],
    ));
}

#[test]
fn a_trainer_and_its_deepspeed_config_have_to_agree() {
    let base = "per_device_train_batch_size: 4\nnum_train_epochs: 1\ndeepspeed:\n  zero_optimization:\n    stage: 2\n  @\n";
    expect![[r#"
        train_micro_batch_size_per_gpu: auto
        train_micro_batch_size_per_gpu: 8
            error[AP0705]: `a.yaml`, line 6: `deepspeed.train_micro_batch_size_per_gpu` is `8`: expected `auto`, or 4 as the trainer's arguments have it | help: correct `deepspeed.train_micro_batch_size_per_gpu`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "a.yaml",
        base,
        &[
            "train_micro_batch_size_per_gpu: auto",
            "train_micro_batch_size_per_gpu: 8",
        ],
    ));
}
