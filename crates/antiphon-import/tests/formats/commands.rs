//! Launchers around a trainer's options.

use expect_test::expect;

use crate::changes;

#[test]
fn launchers_say_how_many_gpus_and_who_shards() {
    let base = "@ train.py --model_name_or_path a/b-7b --per_device_train_batch_size 2 --bf16 --output_dir x";
    expect![[r#"
        python
        torchrun --nproc_per_node 8
            layout.gpus: 8
        torchrun --nproc_per_node=4 --nnodes=2
            layout.gpus: 8
        accelerate launch --num_processes 8 --mixed_precision bf16
            layout.gpus: 8
        accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu
            layout.sharding: "zero3"
            offload.parameters: "cpu"
            precision: "mixed16"
        accelerate launch --use_deepspeed --deepspeed_config_file zero1.json
            layout.sharding: "zero1"
            precision: "mixed16"
        accelerate launch --use_fsdp --fsdp_offload_params true --num_processes 4
            layout.gpus: 4
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
        accelerate launch --config_file fsdp.yaml
            layout.gpus: 8
            layout.sharding: "zero2"
        accelerate launch --config_file accelerate-zero.yaml
            layout.gpus: 16
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            precision: "mixed16"
        accelerate launch --config_file configs/fsdp2.yaml
            layout.sharding: "zero3"
            warning[file-not-read]: `run.sh`, line 1: `config_file` names `configs/fsdp2.yaml`, which was not found: sharding is taken from its name
        accelerate launch --config_file mine.yaml
            warning[file-not-read]: `run.sh`, line 1: `config_file` names `mine.yaml`, which was not found: sharding and GPUs are left to the plan
        accelerate launch --mixed_precision fp8
            matmul: "fp8-tensor"
        accelerate launch --mixed_precision bf15
            error[AP0705]: `run.sh`, line 1: `mixed_precision` is `bf15`: expected one of `no`, `fp16`, `bf16`, `fp8` | help: is `bf16` meant?
        accelerate launch --use_deepspeed --zero_stage 2 --offload_param_device cpu
            error[AP0706]: `run.sh`, line 1: `offload_param_device: cpu` does not go together with `zero_stage: 2` (line 1) | why: weights move to the host in ZeRO stage 3 only | help: take out `offload_param_device: cpu` or `zero_stage: 2`
        torchrun --nproc_per_node eight
            error[AP0705]: `run.sh`, line 1: `nproc_per_node` is `eight`: expected a whole number of at least 1 | help: correct `nproc_per_node`, or leave it out to have the tool's default
        deepspeed --num_gpus 2 --num_nodes 4
            layout.gpus: 8
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "python",
            "torchrun --nproc_per_node 8",
            "torchrun --nproc_per_node=4 --nnodes=2",
            "accelerate launch --num_processes 8 --mixed_precision bf16",
            "accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu",
            "accelerate launch --use_deepspeed --deepspeed_config_file zero1.json",
            "accelerate launch --use_fsdp --fsdp_offload_params true --num_processes 4",
            "accelerate launch --config_file fsdp.yaml",
            "accelerate launch --config_file accelerate-zero.yaml",
            "accelerate launch --config_file configs/fsdp2.yaml",
            "accelerate launch --config_file mine.yaml",
            "accelerate launch --mixed_precision fp8",
            "accelerate launch --mixed_precision bf15",
            "accelerate launch --use_deepspeed --zero_stage 2 --offload_param_device cpu",
            "torchrun --nproc_per_node eight",
            "deepspeed --num_gpus 2 --num_nodes 4",
        ],
    ));
}

#[test]
fn commands_read_the_config_that_they_name() {
    expect![[r#"
        llamafactory-cli train sft.yaml
            batch.sequence_length: 2048
            framework: "llama-factory"
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            model.named: "a/b-7b"
            recompute: "full"
            method: not stated
        trl sft --config sft.yaml
            batch.sequence_length: 1024
            framework: "trl"
            model.named: "a/b-7b"
            precision: "autocast"
            recompute: "full"
            loss: not stated
        python train.py sft.yaml
            model.named: "a/b-7b"
        llamafactory-cli train gone.yaml
            batch.sequence_length: 2048
            framework: "llama-factory"
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            recompute: "full"
            method: not stated
            warning[file-not-read]: `run.sh`, line 1: `config` names `gone.yaml`, which was not found: planned with what stands on the command line
    "#]].assert_eq(&changes(
        "run.sh",
        "@ --per_device_train_batch_size 16",
        &[
            "llamafactory-cli train sft.yaml",
            "trl sft --config sft.yaml",
            "python train.py sft.yaml",
            "llamafactory-cli train gone.yaml",
        ],
    ));
}
