//! verl's options.

use expect_test::expect;

use crate::changes;

#[test]
fn options_become_what_they_mean() {
    let base = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=a/b-7b @";
    expect![[r#"
        data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.n=4
            rollout.answers: 4
            rollout.prompts: 256
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2
            batch.micro: 2
        actor_rollout_ref.actor.ppo_micro_batch_size=32
            batch.micro: 4
        actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192
            batch.micro: 8
        data.max_prompt_length=1024 data.max_response_length=4096
            batch.sequence_length: 5120
            rollout.answer_tokens_max: 4096
            rollout.prompt_tokens: 1024
        actor_rollout_ref.model.use_remove_padding=True
            batch.packing: true
        actor_rollout_ref.model.enable_gradient_checkpointing=False
            recompute: "none"
        actor_rollout_ref.model.enable_activation_offload=True
            offload.activations: "cpu"
        actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.target_modules=[q_proj,v_proj]
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 32
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            precision: "pure16"
            method: not stated
        actor_rollout_ref.model.use_fused_kernels=True
            loss: "fused-linear"
        actor_rollout_ref.actor.ulysses_sequence_parallel_size=2
            layout.cp: 2
        actor_rollout_ref.actor.fsdp_config.fsdp_size=4 +actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16
            layout.shard_group: 4
            precision: "pure16"
        actor_rollout_ref.actor.fsdp_config.offload_policy=True
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
        actor_rollout_ref.actor.fsdp_config.param_offload=True
            warning[not-understood]: `run.sh`, line 1: `actor_rollout_ref.actor.fsdp_config.param_offload: True` is not understood: only a part of what is trained is on the host while answers are made; planned staying
        actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4
            layout.cp: 1
            layout.ep: 1
            layout.pp: 1
            layout.sequence_parallel: true
            layout.sharding: "zero1"
            layout.tp: 4
            optimizer: "adam-w-fused"
            precision: "mixed16"
            recompute: "none"
        actor_rollout_ref.actor.use_kl_loss=True
            rollout.reference: true
        actor_rollout_ref.rollout.tensor_model_parallel_size=4 actor_rollout_ref.rollout.gpu_memory_utilization=0.8
            rollout.memory_permille: 800
            rollout.tp: 4
        trainer.nnodes=4 trainer.n_gpus_per_node=4
            layout.gpus: 16
        trainer.total_training_steps=100
            length.steps: 100
        algorithm.adv_estimator=gae
            task: "ppo"
        actor_rollout_ref.rollout.multi_turn.enable=True
            warning[not-understood]: `run.sh`, line 1: `actor_rollout_ref.rollout.multi_turn.enable: True` is not understood: answers in several turns; planned in one
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.n=4",
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
            "actor_rollout_ref.actor.ppo_micro_batch_size=32",
            "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
            "data.max_prompt_length=1024 data.max_response_length=4096",
            "actor_rollout_ref.model.use_remove_padding=True",
            "actor_rollout_ref.model.enable_gradient_checkpointing=False",
            "actor_rollout_ref.model.enable_activation_offload=True",
            "actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.target_modules=[q_proj,v_proj]",
            "actor_rollout_ref.model.use_fused_kernels=True",
            "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2",
            "actor_rollout_ref.actor.fsdp_config.fsdp_size=4 +actor_rollout_ref.actor.fsdp_config.model_dtype=bfloat16",
            "actor_rollout_ref.actor.fsdp_config.offload_policy=True",
            "actor_rollout_ref.actor.fsdp_config.param_offload=True",
            "actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
            "actor_rollout_ref.actor.use_kl_loss=True",
            "actor_rollout_ref.rollout.tensor_model_parallel_size=4 actor_rollout_ref.rollout.gpu_memory_utilization=0.8",
            "trainer.nnodes=4 trainer.n_gpus_per_node=4",
            "trainer.total_training_steps=100",
            "algorithm.adv_estimator=gae",
            "actor_rollout_ref.rollout.multi_turn.enable=True",
        ],
    ));
}

#[test]
fn supervised_fine_tuning_has_options_of_its_own() {
    let base = "torchrun --nproc_per_node 8 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=a/b-7b @";
    expect![[r#"
        data.micro_batch_size_per_gpu=2 data.train_batch_size=64 data.max_length=2048
            batch.global: 64
            batch.micro: 2
            batch.sequence_length: 2048
        model.fsdp_config.model_dtype=bf16 model.enable_gradient_checkpointing=True
            precision: "pure16"
            recompute: "full"
        model.lora_rank=32 use_remove_padding=True ulysses_sequence_parallel_size=2
            batch.packing: true
            layout.cp: 2
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 32
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            method: not stated
        model.fsdp_config.cpu_offload=True
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "data.micro_batch_size_per_gpu=2 data.train_batch_size=64 data.max_length=2048",
            "model.fsdp_config.model_dtype=bf16 model.enable_gradient_checkpointing=True",
            "model.lora_rank=32 use_remove_padding=True ulysses_sequence_parallel_size=2",
            "model.fsdp_config.cpu_offload=True",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    let base = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b-7b \\\n @";
    expect![[r#"
        algorithm.adv_estimator=gpro
            error[AP0705]: `run.sh`, line 2: `algorithm.adv_estimator` is `gpro`: expected one of `gae`, `grpo`, `grpo_passk`, `gdpo`, `reinforce_plus_plus`, `reinforce_plus_plus_baseline`, `remax`, `rloo`, `opo`, `gpg`, `optimal_token_baseline` | help: is `grpo` meant?
        actor_rollout_ref.actor.ppo_mini_batch_size=512 data.train_batch_size=256
            error[AP0706]: `run.sh`, line 2: `actor_rollout_ref.actor.ppo_mini_batch_size: 512` does not go together with `data.train_batch_size: 256` (line 2) | why: 512 prompts of 256 cannot be trained on at once | help: take out `actor_rollout_ref.actor.ppo_mini_batch_size: 512` or `data.train_batch_size: 256`
        actor_rollout_ref.rollout.n=0
            error[AP0705]: `run.sh`, line 2: `actor_rollout_ref.rollout.n` is `0`: expected a whole number of at least 1 | help: correct `actor_rollout_ref.rollout.n`, or leave it out to have the tool's default
        actor_rollout_ref.rollout.gpu_memory_utilization=60
            error[AP0705]: `run.sh`, line 2: `actor_rollout_ref.rollout.gpu_memory_utilization` is `60`: expected a share of the GPU's memory, at most 1 | help: correct `actor_rollout_ref.rollout.gpu_memory_utilization`, or leave it out to have the tool's default
        actor_rollout_ref.actor.strategy=ddp
            error[AP0705]: `run.sh`, line 2: `actor_rollout_ref.actor.strategy` is `ddp`: expected one of `fsdp`, `fsdp2`, `megatron`, `veomni` | help: correct `actor_rollout_ref.actor.strategy`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "run.sh",
        base,
        &[
            "algorithm.adv_estimator=gpro",
            "actor_rollout_ref.actor.ppo_mini_batch_size=512 data.train_batch_size=256",
            "actor_rollout_ref.rollout.n=0",
            "actor_rollout_ref.rollout.gpu_memory_utilization=60",
            "actor_rollout_ref.actor.strategy=ddp",
        ],
    ));
}
