//! LLaMA-Factory's options.

use expect_test::expect;

use crate::changes;

const BASE: &str = "model_name_or_path: a/b-7b\nstage: sft\nfinetuning_type: lora\ncutoff_len: 1024\ntemplate: x\nbf16: true\n@\n";

#[test]
fn options_become_what_they_mean() {
    expect![[r#"
        per_device_train_batch_size: 1; gradient_accumulation_steps: 8
            batch.accumulation: 8
            batch.micro: 1
        lora_rank: 32; lora_target: q_proj,v_proj; additional_target: embed_tokens; use_dora: true
            method.lora.dora: true
            method.lora.rank: 32
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: ["embed_tokens"]
        quantization_bit: 4
            quantization: "nf4-double"
        quantization_bit: 4; double_quantization: false
            quantization: "nf4"
        quantization_bit: 4; quantization_method: hqq
            quantization: "hqq4"
        quantization_bit: 8
            quantization: "int8"
        packing: true
            batch.packing: true
        neat_packing: true
            batch.packing: true
        disable_gradient_checkpointing: true
            recompute: "none"
        gradient_checkpointing: false
        flash_attn: disabled
            attention: "eager"
        enable_liger_kernel: true
            loss: "fused-linear"
        use_unsloth: true
            framework: "unsloth"
            loss: "fused-linear"
            offload.activations: "cpu"
        use_unsloth_gc: true
            offload.activations: "cpu"
        pure_bf16: true
        use_galore: true; galore_rank: 128
            optimizer.galore.rank: 128
            optimizer: not stated
        use_apollo: true
            optimizer.apollo.rank: 16
            optimizer: not stated
        use_badam: true
            warning[not-understood]: `a.yaml`, line 7: `use_badam: true` is not understood: a block at a time is updated; planned with all states
        optim: adamw_torch
            optimizer: "adam-w"
        deepspeed: zero3.json
            layout.sharding: "zero3"
            precision: "mixed16"
        max_steps: 500
            length.steps: 500
            length.epochs_permille: not stated
        upcast_layernorm: true
            warning[not-understood]: `a.yaml`, line 7: `upcast_layernorm: true` is not understood: norms in 32 bits; planned in 16
        cutof_len: 1
            warning[unknown-options]: `a.yaml`: `cutof_len` is not known here; is `cutoff_len` meant by `cutof_len` (line 7)?
    "#]].assert_eq(&changes(
        "a.yaml",
        BASE,
        &[
            "per_device_train_batch_size: 1\ngradient_accumulation_steps: 8",
            "lora_rank: 32\nlora_target: q_proj,v_proj\nadditional_target: embed_tokens\nuse_dora: true",
            "quantization_bit: 4",
            "quantization_bit: 4\ndouble_quantization: false",
            "quantization_bit: 4\nquantization_method: hqq",
            "quantization_bit: 8",
            "packing: true",
            "neat_packing: true",
            "disable_gradient_checkpointing: true",
            "gradient_checkpointing: false",
            "flash_attn: disabled",
            "enable_liger_kernel: true",
            "use_unsloth: true",
            "use_unsloth_gc: true",
            "pure_bf16: true",
            "use_galore: true\ngalore_rank: 128",
            "use_apollo: true",
            "use_badam: true",
            "optim: adamw_torch",
            "deepspeed: zero3.json",
            "max_steps: 500",
            "upcast_layernorm: true",
            "cutof_len: 1",
        ],
    ));
}

#[test]
fn stages_and_types_are_told_apart() {
    let base = "model_name_or_path: a/b-7b\ncutoff_len: 1024\ntemplate: x\nbf16: true\n@\n";
    expect![[r#"
        stage: pt
            batch.packing: true
            task: "pretrain"
        stage: rm
            task: "reward-model"
        stage: ppo; reward_model: x
            rollout.answer_tokens_max: 1024
            rollout.answers: 1
            rollout.asynchronous: false
            rollout.passes: 4
            rollout.reference: true
            task: "ppo"
        stage: dpo
            task: "dpo"
        stage: dpo; pref_loss: orpo
            task: "orpo"
        stage: kto
            task: "kto"
        finetuning_type: full
            method: "full"
            precision: "autocast"
            method.lora.dora: not stated
            method.lora.dropout: not stated
            method.lora.rank: not stated
            method.lora.targets: not stated
            method.lora.whole: not stated
        finetuning_type: full; deepspeed: zero3.json
            layout.sharding: "zero3"
            method: "full"
            precision: "mixed16"
            method.lora.dora: not stated
            method.lora.dropout: not stated
            method.lora.rank: not stated
            method.lora.targets: not stated
            method.lora.whole: not stated
        finetuning_type: full; pure_bf16: true
            method: "full"
            method.lora.dora: not stated
            method.lora.dropout: not stated
            method.lora.rank: not stated
            method.lora.targets: not stated
            method.lora.whole: not stated
        finetuning_type: freeze
            method: "full"
            precision: "autocast"
            method.lora.dora: not stated
            method.lora.dropout: not stated
            method.lora.rank: not stated
            method.lora.targets: not stated
            method.lora.whole: not stated
            warning[not-understood]: `a.yaml`, line 5: `finetuning_type: freeze` is not understood: only some layers are trained; planned with all
        finetuning_type: oft
            warning[not-understood]: `a.yaml`, line 5: `finetuning_type: oft` is not understood: orthogonal adapters; planned as LoRA of rank 8
    "#]].assert_eq(&changes(
        "a.yaml",
        base,
        &[
            "stage: pt",
            "stage: rm",
            "stage: ppo\nreward_model: x",
            "stage: dpo",
            "stage: dpo\npref_loss: orpo",
            "stage: kto",
            "finetuning_type: full",
            "finetuning_type: full\ndeepspeed: zero3.json",
            "finetuning_type: full\npure_bf16: true",
            "finetuning_type: freeze",
            "finetuning_type: oft",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        quantization_bit: 3
            error[AP0705]: `a.yaml`, line 7: `quantization_bit` is `3`: expected 4 or 8 | help: correct `quantization_bit`, or leave it out to have the tool's default
        quantization_type: nf5; quantization_bit: 4
            error[AP0705]: `a.yaml`, line 7: `quantization_type` is `nf5`: expected one of `nf4`, `fp4` | help: is `nf4` meant?
        per_device_train_batch_size: 0
            error[AP0705]: `a.yaml`, line 7: `per_device_train_batch_size` is `0`: expected a whole number of at least 1 | help: correct `per_device_train_batch_size`, or leave it out to have the tool's default
        fp16: true
            error[AP0706]: `a.yaml`, line 6: `bf16: true` does not go together with `fp16: true` (line 7) | why: numbers are computed with in one of the two formats | help: take out `bf16: true` or `fp16: true`
        use_galore: true; use_apollo: true
            error[AP0706]: `a.yaml`, line 7: `use_galore: true` does not go together with `use_apollo: true` (line 8) | why: one optimizer updates the weights | help: take out `use_galore: true` or `use_apollo: true`
        pref_loss: dop
            error[AP0705]: `a.yaml`, line 7: `pref_loss` is `dop`: expected one of `sigmoid`, `hinge`, `ipo`, `kto_pair`, `orpo`, `simpo` | help: correct `pref_loss`, or leave it out to have the tool's default
        lora_rank: many
            error[AP0705]: `a.yaml`, line 7: `lora_rank` is `many`: expected a whole number of at least 1 | help: correct `lora_rank`, or leave it out to have the tool's default
        flash_attn: fa9
            error[AP0705]: `a.yaml`, line 7: `flash_attn` is `fa9`: expected one of `auto`, `fa2`, `fa3`, `sdpa`, `disabled` | help: is `fa2` meant?
    "#]].assert_eq(&changes(
        "a.yaml",
        BASE,
        &[
            "quantization_bit: 3",
            "quantization_type: nf5\nquantization_bit: 4",
            "per_device_train_batch_size: 0",
            "fp16: true",
            "use_galore: true\nuse_apollo: true",
            "pref_loss: dop",
            "lora_rank: many",
            "flash_attn: fa9",
        ],
    ));
    let full = "finetuning_type: full\nstage: sft\n@\n";
    expect![[r#"
        quantization_bit: 4
            error[AP0706]: `a.yaml`, line 3: `quantization_bit: 4` does not go together with `finetuning_type: full` (line 1) | why: quantized weights are not trained, only an adapter on them | help: take out `quantization_bit: 4` or `finetuning_type: full`
    "#]].assert_eq(&changes("a.yaml", full, &["quantization_bit: 4"]));
}
