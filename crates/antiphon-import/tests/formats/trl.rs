//! TRL's options.

use expect_test::expect;

use crate::changes;

#[test]
fn options_become_what_they_mean() {
    let base = "trl sft --model_name_or_path a/b-7b --per_device_train_batch_size 2 @";
    expect![[r#"
        --max_length 4096 --packing
            batch.packing: true
            batch.sequence_length: 4096
        --use_peft
            method.lora.dora: false
            method.lora.dropout: true
            method.lora.rank: 16
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            method: not stated
        --use_peft --lora_r 8 --lora_dropout 0 --lora_target_modules q_proj k_proj --dtype bfloat16
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","k_proj"]
            method.lora.whole: []
            precision: "pure16"
            method: not stated
        --lora_r 8
            warning[overruled]: `run.sh`, line 1: `lora_r: 8` has no effect: `use_peft` is not set, so all weights are trained
        --use_peft --load_in_4bit --use_bnb_nested_quant
            method.lora.dora: false
            method.lora.dropout: true
            method.lora.rank: 16
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            quantization: "nf4-double"
            method: not stated
        --gradient_checkpointing false
            recompute: "none"
        --bf16 false
            precision: "full32"
        --activation_offloading
            offload.activations: "cpu"
        --loss_type nll
            loss: "plain"
        --accelerate_config zero3
            layout.gpus: 8
            layout.sharding: "zero3"
            precision: "mixed16"
        --accelerate_config fsdp.yaml
            layout.gpus: 8
            layout.sharding: "zero2"
        --accelerate_config accelerate-zero.yaml
            layout.gpus: 16
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            precision: "mixed16"
        --accelerate_config my/zero2.yaml
            layout.sharding: "zero2"
            precision: "mixed16"
            warning[file-not-read]: `run.sh`, line 1: `config_file` names `my/zero2.yaml`, which was not found: sharding is taken from its name
        --num_processes 2
            layout.gpus: 2
        --config sft.yaml
        --config gone.yaml
            warning[file-not-read]: `run.sh`, line 1: `config` names `gone.yaml`, which was not found: planned with what stands on the command line
        --padding_free
            warning[not-understood]: `run.sh`, line 1: `padding_free: true` is not understood: a batch is one row without padding; planned padded
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "--max_length 4096 --packing",
            "--use_peft",
            "--use_peft --lora_r 8 --lora_dropout 0 --lora_target_modules q_proj k_proj --dtype bfloat16",
            "--lora_r 8",
            "--use_peft --load_in_4bit --use_bnb_nested_quant",
            "--gradient_checkpointing false",
            "--bf16 false",
            "--activation_offloading",
            "--loss_type nll",
            "--accelerate_config zero3",
            "--accelerate_config fsdp.yaml",
            "--accelerate_config accelerate-zero.yaml",
            "--accelerate_config my/zero2.yaml",
            "--num_processes 2",
            "--config sft.yaml",
            "--config gone.yaml",
            "--padding_free",
        ],
    ));
}

#[test]
fn commands_and_scripts_name_the_task() {
    expect![[r#"
        trl dpo
            task: "dpo"
        trl kto
            task: "kto"
        trl reward
            task: "reward-model"
        trl grpo --num_generations 4 --beta 0.1 --max_prompt_length 256
            batch.sequence_length: 512
            rollout.answer_tokens_max: 256
            rollout.answers: 4
            rollout.asynchronous: false
            rollout.passes: 1
            rollout.prompt_tokens: 256
            rollout.reference: true
            task: "grpo"
        trl grpo --use_vllm --vllm_mode colocate
            rollout.answer_tokens_max: 256
            rollout.answers: 8
            rollout.asynchronous: false
            rollout.gives_back: false
            rollout.memory_permille: 300
            rollout.passes: 1
            rollout.reference: false
            task: "grpo"
            batch.sequence_length: not stated
        trl grpo --use_vllm --vllm_mode server --num_iterations 2
            rollout.answer_tokens_max: 256
            rollout.answers: 8
            rollout.asynchronous: false
            rollout.gpus: 1
            rollout.passes: 2
            rollout.reference: false
            task: "grpo"
            batch.sequence_length: not stated
            warning[not-understood]: `run.sh`, line 1: `vllm_mode: server` is not understood: answers are made by a server, which is started apart; planned with as many GPUs for it as its tensor parallelism
        trl rloo
            rollout.answer_tokens_max: 256
            rollout.answers: 8
            rollout.asynchronous: false
            rollout.passes: 1
            rollout.reference: false
            task: "grpo"
            batch.sequence_length: not stated
        accelerate launch --num_processes 4 trl/examples/scripts/orpo.py
            layout.gpus: 4
            task: "orpo"
        python ppo.py --response_length 100
            rollout.answer_tokens_max: 100
            rollout.asynchronous: false
            rollout.passes: 4
            rollout.reference: true
            task: "ppo"
            batch.sequence_length: not stated
    "#]]
    .assert_eq(&changes(
        "run.sh",
        "@ --model_name_or_path a/b-7b --per_device_train_batch_size 2 --use_peft",
        &[
            "trl dpo",
            "trl kto",
            "trl reward",
            "trl grpo --num_generations 4 --beta 0.1 --max_prompt_length 256",
            "trl grpo --use_vllm --vllm_mode colocate",
            "trl grpo --use_vllm --vllm_mode server --num_iterations 2",
            "trl rloo",
            "accelerate launch --num_processes 4 trl/examples/scripts/orpo.py",
            "python ppo.py --response_length 100",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        --per_device_train_batch_size four
            error[AP0705]: `run.sh`, line 2: `per_device_train_batch_size` is `four`: expected a whole number of at least 1 | help: correct `per_device_train_batch_size`, or leave it out to have the tool's default
        --per_device_train_batch_size -4
            error[AP0705]: `run.sh`, line 2: `per_device_train_batch_size` is `-4`: expected a whole number of at least 1 | help: correct `per_device_train_batch_size`, or leave it out to have the tool's default
        --load_in_4bit
            error[AP0705]: `run.sh`, line 2: `load_in_4bit` is `true`: expected false: quantized weights are not trained, only an adapter on them (`use_peft`) | help: correct `load_in_4bit`, or leave it out to have the tool's default
        --load_in_4bit --load_in_8bit
            error[AP0706]: `run.sh`, line 2: `load_in_8bit: true` does not go together with `load_in_4bit: true` (line 2) | why: frozen weights are stored in one way | help: take out `load_in_8bit: true` or `load_in_4bit: true`
        --dtype fp5
            error[AP0705]: `run.sh`, line 2: `dtype` is `fp5`: expected one of `auto`, `bfloat16`, `float16`, `float32` | help: correct `dtype`, or leave it out to have the tool's default
        --bf16 --fp16
            error[AP0706]: `run.sh`, line 2: `bf16: true` does not go together with `fp16: true` (line 2) | why: numbers are computed with in one of the two formats | help: take out `bf16: true` or `fp16: true`
        --use_peft --lora_dropout 2
            error[AP0705]: `run.sh`, line 2: `lora_dropout` is `2`: expected a share from 0 to less than 1 | help: correct `lora_dropout`, or leave it out to have the tool's default
        --num_processes zero
            error[AP0705]: `run.sh`, line 2: `num_processes` is `zero`: expected a whole number of at least 1 | help: correct `num_processes`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "run.sh",
        "trl sft --model_name_or_path a/b-7b \\\n  @ \\\n --packing",
        &[
            "--per_device_train_batch_size four",
            "--per_device_train_batch_size -4",
            "--load_in_4bit",
            "--load_in_4bit --load_in_8bit",
            "--dtype fp5",
            "--bf16 --fp16",
            "--use_peft --lora_dropout 2",
            "--num_processes zero",
        ],
    ));
}
