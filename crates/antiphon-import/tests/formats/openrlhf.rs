//! OpenRLHF's options.

use expect_test::expect;

use crate::changes;

#[test]
fn options_become_what_they_mean() {
    let base = "python3 -m openrlhf.cli.train_ppo_ray --pretrain a/b-7b @";
    expect![[r#"
        --bf16 --zero_stage 3
            layout.sharding: "zero3"
            precision: "mixed16"
        --train_batch_size 64 --micro_train_batch_size 1
            batch.global: 64
            batch.micro: 1
        --advantage_estimator group_norm --n_samples_per_prompt 8 --init_kl_coef 0
            rollout.answers: 8
            rollout.reference: false
            task: "grpo"
            rollout.critic_gpus: not stated
            rollout.reference_gpus: not stated
        --colocate_all_models --vllm_num_engines 4 --vllm_tensor_parallel_size 2
            rollout.memory_permille: 950
            rollout.tp: 2
            rollout.critic_gpus: not stated
            rollout.reference_gpus: not stated
        --colocate_actor_ref --actor_num_gpus_per_node 4 --critic_num_gpus_per_node 4 --vllm_num_engines 2
            layout.gpus: 4
            rollout.critic_gpus: 4
            rollout.gpus: 2
            rollout.memory_permille: 950
            rollout.tp: 1
            rollout.reference_gpus: not stated
        --async_train --vllm_num_engines 8
            rollout.asynchronous: true
            rollout.gpus: 8
            rollout.memory_permille: 950
            rollout.tp: 1
        --reward_pretrain a/rm --reward_num_gpus_per_node 2
            rollout.reward: true
            rollout.reward_gpus: 2
        --adam_offload --gradient_checkpointing
            offload.optimizer: "cpu"
            recompute: "full"
        --packing_samples
            batch.packing: true
        --ring_attn_size 4 --ds_tensor_parallel_size 2
            batch.packing: true
            layout.cp: 4
            layout.tp: 2
        --lora_rank 16 --load_in_4bit
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 16
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            quantization: "nf4"
            method: not stated
        --max_epochs 2
            rollout.passes: 2
        --enable_ema
            warning[not-understood]: `run.sh`, line 1: `enable_ema: true` is not understood: a moving average of the weights; planned without
        --prompt_max_len 512 --generate_max_len 4096
            batch.sequence_length: 4608
            rollout.answer_tokens_max: 4096
            rollout.prompt_tokens: 512
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "--bf16 --zero_stage 3",
            "--train_batch_size 64 --micro_train_batch_size 1",
            "--advantage_estimator group_norm --n_samples_per_prompt 8 --init_kl_coef 0",
            "--colocate_all_models --vllm_num_engines 4 --vllm_tensor_parallel_size 2",
            "--colocate_actor_ref --actor_num_gpus_per_node 4 --critic_num_gpus_per_node 4 --vllm_num_engines 2",
            "--async_train --vllm_num_engines 8",
            "--reward_pretrain a/rm --reward_num_gpus_per_node 2",
            "--adam_offload --gradient_checkpointing",
            "--packing_samples",
            "--ring_attn_size 4 --ds_tensor_parallel_size 2",
            "--lora_rank 16 --load_in_4bit",
            "--max_epochs 2",
            "--enable_ema",
            "--prompt_max_len 512 --generate_max_len 4096",
        ],
    ));
}

#[test]
fn commands_name_the_task() {
    expect![[r#"
        sft
            layout.gpus: 4
            task: "sft"
            rollout.answer_tokens_max: not stated
            rollout.answers: not stated
            rollout.asynchronous: not stated
            rollout.critic_gpus: not stated
            rollout.gives_back: not stated
            rollout.passes: not stated
            rollout.prompt_tokens: not stated
            rollout.prompts: not stated
            rollout.reference: not stated
            rollout.reference_gpus: not stated
            rollout.reward: not stated
            rollout.scoring_offload: not stated
            rollout.trained_offload: not stated
        sft --pretrain_mode
            batch.sequence_length: 512
            layout.gpus: 4
            task: "pretrain"
            rollout.answer_tokens_max: not stated
            rollout.answers: not stated
            rollout.asynchronous: not stated
            rollout.critic_gpus: not stated
            rollout.gives_back: not stated
            rollout.passes: not stated
            rollout.prompt_tokens: not stated
            rollout.prompts: not stated
            rollout.reference: not stated
            rollout.reference_gpus: not stated
            rollout.reward: not stated
            rollout.scoring_offload: not stated
            rollout.trained_offload: not stated
        dpo --max_len 2048
            layout.gpus: 4
            task: "dpo"
            rollout.answer_tokens_max: not stated
            rollout.answers: not stated
            rollout.asynchronous: not stated
            rollout.critic_gpus: not stated
            rollout.gives_back: not stated
            rollout.passes: not stated
            rollout.prompt_tokens: not stated
            rollout.prompts: not stated
            rollout.reference: not stated
            rollout.reference_gpus: not stated
            rollout.reward: not stated
            rollout.scoring_offload: not stated
            rollout.trained_offload: not stated
        kto
            batch.sequence_length: 512
            layout.gpus: 4
            task: "kto"
            rollout.answer_tokens_max: not stated
            rollout.answers: not stated
            rollout.asynchronous: not stated
            rollout.critic_gpus: not stated
            rollout.gives_back: not stated
            rollout.passes: not stated
            rollout.prompt_tokens: not stated
            rollout.prompts: not stated
            rollout.reference: not stated
            rollout.reference_gpus: not stated
            rollout.reward: not stated
            rollout.scoring_offload: not stated
            rollout.trained_offload: not stated
        rm
            batch.sequence_length: 512
            layout.gpus: 4
            task: "reward-model"
            rollout.answer_tokens_max: not stated
            rollout.answers: not stated
            rollout.asynchronous: not stated
            rollout.critic_gpus: not stated
            rollout.gives_back: not stated
            rollout.passes: not stated
            rollout.prompt_tokens: not stated
            rollout.prompts: not stated
            rollout.reference: not stated
            rollout.reference_gpus: not stated
            rollout.reward: not stated
            rollout.scoring_offload: not stated
            rollout.trained_offload: not stated
    "#]]
    .assert_eq(&changes(
        "run.sh",
        "deepspeed --num_gpus 4 --module openrlhf.cli.train_@ --pretrain a/b-7b --bf16",
        &[
            "sft",
            "sft --pretrain_mode",
            "dpo --max_len 2048",
            "kto",
            "rm",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    let base = "python3 -m openrlhf.cli.train_ppo_ray --pretrain a/b-7b \\\n @";
    expect![[r#"
        --zero_stage 5
            error[AP0705]: `run.sh`, line 2: `zero_stage` is `5`: expected one of `0`, `1`, `2`, `3` | help: correct `zero_stage`, or leave it out to have the tool's default
        --load_in_4bit
            error[AP0705]: `run.sh`, line 2: `load_in_4bit` is `true`: expected unset: quantized weights are not trained, only an adapter on them (`--lora_rank`) | help: correct `load_in_4bit`, or leave it out to have the tool's default
        --advantage_estimator gea
            error[AP0705]: `run.sh`, line 2: `advantage_estimator` is `gea`: expected one of `gae`, `reinforce`, `rloo`, `reinforce_baseline`, `group_norm`, `dr_grpo` | help: is `gae` meant?
        --n_samples_per_prompt none-at-all
            error[AP0705]: `run.sh`, line 2: `n_samples_per_prompt` is `none-at-all`: expected a whole number of at least 1 | help: correct `n_samples_per_prompt`, or leave it out to have the tool's default
        --micro_train_batch_size -2
            error[AP0705]: `run.sh`, line 2: `micro_train_batch_size` is `-2`: expected a whole number of at least 1 | help: correct `micro_train_batch_size`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "--zero_stage 5",
            "--load_in_4bit",
            "--advantage_estimator gea",
            "--n_samples_per_prompt none-at-all",
            "--micro_train_batch_size -2",
        ],
    ));
}
