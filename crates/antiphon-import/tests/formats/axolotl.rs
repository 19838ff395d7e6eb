//! Axolotl's options.

use expect_test::expect;

use crate::changes;

const BASE: &str = "base_model: a/b-7b\nsequence_len: 2048\nmicro_batch_size: 2\n@\n";

#[test]
fn options_become_what_they_mean() {
    expect![[r#"
        gradient_accumulation_steps: 4
            batch.accumulation: 4
        batch_size: 8
            batch.accumulation: 4
        sample_packing: true
            batch.packing: true
        num_epochs: 0.5; max_steps: 100
            length.epochs_permille: 500
            length.steps: 100
        adapter: lora
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            method: not stated
        adapter: lora; lora_r: 64; lora_target_modules: [q_proj, gate_up_proj]; lora_dropout: 0.1; lora_modules_to_save: [embed_tokens, lm_head]; peft_use_dora: true
            method.lora.dora: true
            method.lora.dropout: true
            method.lora.rank: 64
            method.lora.targets: ["q_proj","gate_proj","up_proj"]
            method.lora.whole: ["lm_head","embed_tokens"]
            method: not stated
        adapter: lora; load_in_8bit: true; lora_target_linear: true
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]
            method.lora.whole: []
            quantization: "int8"
            method: not stated
        adapter: qlora; load_in_4bit: true; bnb_config_kwargs:;   bnb_4bit_use_double_quant: false
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            quantization: "nf4"
            method: not stated
        adapter: lora; lora_target_modules: 'model.layers.[0-9]+.mlp'
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            method: not stated
            warning[not-understood]: `a.yml`, line 5: `lora_target_modules: model.layers.[0-9]+.mlp` is not understood: `model.layers.[0-9]+.mlp` name no layer that is known; left out
        rl: dpo
            task: "dpo"
        rl: simpo
            task: "orpo"
        rl: grpo; trl:;   num_generations: 16;   max_completion_length: 1024;   beta: 0.01; vllm:;   tensor_parallel_size: 2;   gpu_memory_utilization: 0.4
            rollout.answer_tokens_max: 1024
            rollout.answers: 16
            rollout.asynchronous: false
            rollout.memory_permille: 400
            rollout.passes: 1
            rollout.prompt_tokens: 512
            rollout.reference: true
            rollout.tp: 2
            task: "grpo"
        reward_model: true
            task: "reward-model"
        pretraining_dataset:;   - path: x; max_steps: 10
            batch.packing: true
            length.steps: 10
            task: "pretrain"
        optimizer: lion_pytorch
            optimizer: "lion"
        optimizer: galore_adamw; optim_args:;   rank: 64
            optimizer.galore.rank: 64
            optimizer: not stated
        optimizer: ademamix
            optimizer: "prodigy"
            warning[not-understood]: `a.yml`, line 4: `optimizer: ademamix` is not understood: its states; planned as `Prodigy`
        optimizer: made_up_by_us
            warning[not-understood]: `a.yml`, line 4: `optimizer: made_up_by_us` is not understood: its states; planned as AdamW, with two moments
        gradient_checkpointing: true
            recompute: "full"
        gradient_checkpointing: offload
            offload.activations: "cpu"
            recompute: "full"
        activation_offloading: true
            offload.activations: "cpu"
        eager_attention: true
            attention: "eager"
        liger_fused_linear_cross_entropy: true
            loss: "fused-linear"
        plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]
            loss: "fused-linear"
        chunked_cross_entropy: true; chunked_cross_entropy_num_chunks: 4
            loss.chunked.chunks: 4
            loss: not stated
        torch_compile: true
            compile: true
        bf16: false
            precision: "full32"
        bf16: true; fp8: true
            matmul: "fp8-tensor"
        bfloat16: true
        float32: true
            precision: "full32"
        deepspeed: zero3.json
            layout.sharding: "zero3"
            precision: "mixed16"
        deepspeed: deepspeed_configs/zero2_offload.json
            layout.sharding: "zero2"
            offload.optimizer: "cpu"
            precision: "mixed16"
            warning[file-not-read]: `a.yml`, line 4: `deepspeed` names `deepspeed_configs/zero2_offload.json`, which was not found: its stage is taken from its name, its offload too
        deepspeed: deepspeed_configs/mine.json
            precision: "mixed16"
            layout.sharding: not stated
            warning[file-not-read]: `a.yml`, line 4: `deepspeed` names `deepspeed_configs/mine.json`, which was not found: ZeRO is left to the plan
        deepspeed:;   zero_optimization:;     stage: 2
            layout.sharding: "zero2"
            precision: "mixed16"
        fsdp: [full_shard, auto_wrap]; fsdp_config:;   fsdp_offload_params: true
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
            precision: "autocast"
        fsdp_config:;   reshard_after_forward: false;   activation_checkpointing: true
            layout.sharding: "zero2"
            precision: "autocast"
            recompute: "full"
        fsdp: hybrid_shard
            layout.sharding: "zero3"
            precision: "autocast"
            warning[not-understood]: `a.yml`, line 4: `fsdp: hybrid_shard` is not understood: shards within a node, copies across nodes; the size of a node is left to the plan
        context_parallel_size: 4; tensor_parallel_size: 2
            layout.cp: 4
            layout.tp: 2
        relora: true
            warning[not-understood]: `a.yml`, line 4: `relora: true` is not understood: adapters are merged and begun anew; planned as one adapter
        wandb_project: x; val_set_size: 0.1; learning_rate: 1e-4
        sampel_packing: true; foo_bar_baz: 1
            warning[unknown-options]: `a.yml`: `sampel_packing`, `foo_bar_baz` are not known here; is `sample_packing` meant by `sampel_packing` (line 4)?
    "#]].assert_eq(&changes(
        "a.yml",
        BASE,
        &[
            "gradient_accumulation_steps: 4",
            "batch_size: 8",
            "sample_packing: true",
            "num_epochs: 0.5\nmax_steps: 100",
            "adapter: lora",
            "adapter: lora\nlora_r: 64\nlora_target_modules: [q_proj, gate_up_proj]\nlora_dropout: 0.1\nlora_modules_to_save: [embed_tokens, lm_head]\npeft_use_dora: true",
            "adapter: lora\nload_in_8bit: true\nlora_target_linear: true",
            "adapter: qlora\nload_in_4bit: true\nbnb_config_kwargs:\n  bnb_4bit_use_double_quant: false",
            "adapter: lora\nlora_target_modules: 'model.layers.[0-9]+.mlp'",
            "rl: dpo",
            "rl: simpo",
            "rl: grpo\ntrl:\n  num_generations: 16\n  max_completion_length: 1024\n  beta: 0.01\nvllm:\n  tensor_parallel_size: 2\n  gpu_memory_utilization: 0.4",
            "reward_model: true",
            "pretraining_dataset:\n  - path: x\nmax_steps: 10",
            "optimizer: lion_pytorch",
            "optimizer: galore_adamw\noptim_args:\n  rank: 64",
            "optimizer: ademamix",
            "optimizer: made_up_by_us",
            "gradient_checkpointing: true",
            "gradient_checkpointing: offload",
            "activation_offloading: true",
            "eager_attention: true",
            "liger_fused_linear_cross_entropy: true",
            "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]",
            "chunked_cross_entropy: true\nchunked_cross_entropy_num_chunks: 4",
            "torch_compile: true",
            "bf16: false",
            "bf16: true\nfp8: true",
            "bfloat16: true",
            "float32: true",
            "deepspeed: zero3.json",
            "deepspeed: deepspeed_configs/zero2_offload.json",
            "deepspeed: deepspeed_configs/mine.json",
            "deepspeed:\n  zero_optimization:\n    stage: 2",
            "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n  fsdp_offload_params: true",
            "fsdp_config:\n  reshard_after_forward: false\n  activation_checkpointing: true",
            "fsdp: hybrid_shard",
            "context_parallel_size: 4\ntensor_parallel_size: 2",
            "relora: true",
            "wandb_project: x\nval_set_size: 0.1\nlearning_rate: 1e-4",
            "sampel_packing: true\nfoo_bar_baz: 1",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        gradient_accumulation_steps: four
            error[AP0705]: `a.yml`, line 4: `gradient_accumulation_steps` is `four`: expected a whole number of at least 1 | help: correct `gradient_accumulation_steps`, or leave it out to have the tool's default
        gradient_accumulation_steps: -1
            error[AP0705]: `a.yml`, line 4: `gradient_accumulation_steps` is `-1`: expected a whole number of at least 1 | help: correct `gradient_accumulation_steps`, or leave it out to have the tool's default
        gradient_accumulation_steps: 2.5
            error[AP0705]: `a.yml`, line 4: `gradient_accumulation_steps` is `2.5`: expected a whole number of at least 1 | help: correct `gradient_accumulation_steps`, or leave it out to have the tool's default
        sample_packing: perhaps
            error[AP0705]: `a.yml`, line 4: `sample_packing` is `perhaps`: expected true or false | help: correct `sample_packing`, or leave it out to have the tool's default
        load_in_8bit: true; load_in_4bit: true; adapter: lora
            error[AP0706]: `a.yml`, line 4: `load_in_8bit: true` does not go together with `load_in_4bit: true` (line 5) | why: frozen weights are stored in one way | help: take out `load_in_8bit: true` or `load_in_4bit: true`
        load_in_4bit: true
            error[AP0705]: `a.yml`, line 4: `load_in_4bit` is `true`: expected false: quantized weights are not trained, only an `adapter:` on them | help: correct `load_in_4bit`, or leave it out to have the tool's default
        adapter: qlora; load_in_8bit: true
            error[AP0706]: `a.yml`, line 4: `adapter: qlora` does not go together with `load_in_8bit: true` (line 5) | why: QLoRA stores frozen weights in 4 bits | help: take out `adapter: qlora` or `load_in_8bit: true`
        adapter: lorra
            error[AP0705]: `a.yml`, line 4: `adapter` is `lorra`: expected `lora` or `qlora`, or nothing | help: is `lora` meant?
        batch_size: 7
            error[AP0706]: `a.yml`, line 4: `batch_size: 7` does not go together with `micro_batch_size: 2` (line 3) | why: 7 is no multiple of 2 | help: take out `batch_size: 7` or `micro_batch_size: 2`
        batch_size: 8; gradient_accumulation_steps: 2
            error[AP0706]: `a.yml`, line 4: `batch_size: 8` does not go together with `gradient_accumulation_steps: 2` (line 5) | why: one follows from the other | help: take out `batch_size: 8` or `gradient_accumulation_steps: 2`
        rl: dop
            error[AP0705]: `a.yml`, line 4: `rl` is `dop`: expected one of `dpo`, `ipo`, `simpo`, `cpo`, `orpo`, `kto`, `grpo`, `gdpo` | help: is `dpo` meant?
        rl: dpo; sample_packing: true
            error[AP0706]: `a.yml`, line 5: `sample_packing: true` does not go together with `rl: dpo` (line 4) | why: pairs and rollouts are not packed | help: take out `sample_packing: true` or `rl: dpo`
        optimizer: adamw_tourch
            error[AP0705]: `a.yml`, line 4: `optimizer` is `adamw_tourch`: expected the name of an optimizer | help: is `adamw_torch` meant?
        flash_attention: true; eager_attention: true
            error[AP0706]: `a.yml`, line 5: `eager_attention: true` does not go together with `flash_attention: true` (line 4) | why: attention is computed in one way | help: take out `eager_attention: true` or `flash_attention: true`
        bf16: true; fp16: true
            error[AP0706]: `a.yml`, line 4: `bf16: true` does not go together with `fp16: true` (line 5) | why: numbers are kept in one of the two formats | help: take out `bf16: true` or `fp16: true`
        deepspeed: zero3.json; fsdp: full_shard
            error[AP0706]: `a.yml`, line 5: `fsdp: full_shard` does not go together with `deepspeed: zero3.json` (line 4) | why: both shard the same weights | help: take out `fsdp: full_shard` or `deepspeed: zero3.json`
        lora_dropout: 1.5; adapter: lora
            error[AP0705]: `a.yml`, line 4: `lora_dropout` is `1.5`: expected a share from 0 to less than 1 | help: correct `lora_dropout`, or leave it out to have the tool's default
        fsdp_config:;   fsdp_version: 3
            error[AP0705]: `a.yml`, line 5: `fsdp_config.fsdp_version` is `3`: expected 1 or 2 | help: correct `fsdp_config.fsdp_version`, or leave it out to have the tool's default
        sequence_len: 9; sequence_len: 10
            error[AP0703]: `a.yml`, line 4: the file cannot be parsed: duplicate entry with key "sequence_len" | help: correct the file; the tool that it is written for cannot read it either
    "#]].assert_eq(&changes(
        "a.yml",
        BASE,
        &[
            "gradient_accumulation_steps: four",
            "gradient_accumulation_steps: -1",
            "gradient_accumulation_steps: 2.5",
            "sample_packing: perhaps",
            "load_in_8bit: true\nload_in_4bit: true\nadapter: lora",
            "load_in_4bit: true",
            "adapter: qlora\nload_in_8bit: true",
            "adapter: lorra",
            "batch_size: 7",
            "batch_size: 8\ngradient_accumulation_steps: 2",
            "rl: dop",
            "rl: dpo\nsample_packing: true",
            "optimizer: adamw_tourch",
            "flash_attention: true\neager_attention: true",
            "bf16: true\nfp16: true",
            "deepspeed: zero3.json\nfsdp: full_shard",
            "lora_dropout: 1.5\nadapter: lora",
            "fsdp_config:\n  fsdp_version: 3",
            "sequence_len: 9\nsequence_len: 10",
        ],
    ));
}
