//! Transformers' arguments.

use expect_test::expect;

use crate::changes;

const BASE: &str = "model_name_or_path: a/b-7b\nper_device_train_batch_size: 4\noutput_dir: x\n@\n";

#[test]
fn options_become_what_they_mean() {
    expect![[r#"
        gradient_accumulation_steps: 2
            batch.accumulation: 2
        num_train_epochs: 1.5
            length.epochs_permille: 1500
        max_steps: -1
        max_steps: 100
            length.steps: 100
            length.epochs_permille: not stated
        block_size: 1024
            batch.packing: true
            batch.sequence_length: 1024
            task: "pretrain"
        bf16: true
            precision: "autocast"
        bf16: true; torch_dtype: bfloat16
            precision: "pure16"
        torch_dtype: auto
            precision: "pure16"
        gradient_checkpointing: true
            recompute: "full"
        optim: paged_adamw_8bit
            optimizer: "paged-adam-w8bit"
        optim: apollo_adamw; optim_args: rank=64,scale=1
            optimizer.apollo.rank: 64
            optimizer: not stated
        torch_compile: true
            compile: true
        use_liger_kernel: true
            loss: "fused-linear"
        attn_implementation: eager
            attention: "eager"
        lora_rank: 8
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            method: not stated
        use_lora: true; load_in_4bit: true; bf16: true
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 16
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            precision: "autocast"
            quantization: "nf4"
            method: not stated
        deepspeed: zero1.json
            layout.sharding: "zero1"
            precision: "mixed16"
        bf16: true; deepspeed: zero3.json
            layout.sharding: "zero3"
            precision: "mixed16"
        bf16: true; fsdp: full_shard auto_wrap offload; fsdp_config:;   activation_checkpointing: true
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
            precision: "autocast"
            recompute: "full"
        fsdp: shard_grad_op
            layout.sharding: "zero2"
        fsdp: ful_shard
            error[AP0705]: `a.yaml`, line 4: `fsdp` is `ful_shard`: expected words among `full_shard`, `shard_grad_op`, `no_shard`, `hybrid_shard`, `hybrid_shard_zero2`, `offload`, `auto_wrap` | help: correct `fsdp`, or leave it out to have the tool's default
        fsdp: full_shard; fsdp_config: self.yaml
            layout.sharding: "zero3"
            warning[unknown-options]: `self.yaml`: `fsdp_config` is not known here
        fsdp: ''; fsdp_config:;   min_num_params: 0
        auto_find_batch_size: true
            warning[not-understood]: `a.yaml`, line 4: `auto_find_batch_size: true` is not understood: the batch is halved until it fits; planned as stated
        neftune_noise_alpha: 5
            warning[not-understood]: `a.yaml`, line 4: `neftune_noise_alpha: 5` is not understood: noise on embeddings keeps a copy of them; planned without
        seed: 3; report_to: none; save_steps: 10; learning_rate: 1e-5
    "#]].assert_eq(&changes(
        "a.yaml",
        BASE,
        &[
            "gradient_accumulation_steps: 2",
            "num_train_epochs: 1.5",
            "max_steps: -1",
            "max_steps: 100",
            "block_size: 1024",
            "bf16: true",
            "bf16: true\ntorch_dtype: bfloat16",
            "torch_dtype: auto",
            "gradient_checkpointing: true",
            "optim: paged_adamw_8bit",
            "optim: apollo_adamw\noptim_args: rank=64,scale=1",
            "torch_compile: true",
            "use_liger_kernel: true",
            "attn_implementation: eager",
            "lora_rank: 8",
            "use_lora: true\nload_in_4bit: true\nbf16: true",
            "deepspeed: zero1.json",
            "bf16: true\ndeepspeed: zero3.json",
            "bf16: true\nfsdp: full_shard auto_wrap offload\nfsdp_config:\n  activation_checkpointing: true",
            "fsdp: shard_grad_op",
            "fsdp: ful_shard",
            "fsdp: full_shard\nfsdp_config: self.yaml",
            "fsdp: ''\nfsdp_config:\n  min_num_params: 0",
            "auto_find_batch_size: true",
            "neftune_noise_alpha: 5",
            "seed: 3\nreport_to: none\nsave_steps: 10\nlearning_rate: 1e-5",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        gradient_accumulation_steps: 0
            error[AP0705]: `a.yaml`, line 4: `gradient_accumulation_steps` is `0`: expected a whole number of at least 1 | help: correct `gradient_accumulation_steps`, or leave it out to have the tool's default
        bf16: true; fp16: true
            error[AP0706]: `a.yaml`, line 4: `bf16: true` does not go together with `fp16: true` (line 5) | why: numbers are computed with in one of the two formats | help: take out `bf16: true` or `fp16: true`
        torch_dtype: int4
            error[AP0705]: `a.yaml`, line 4: `torch_dtype` is `int4`: expected one of `auto`, `bfloat16`, `float16`, `float32` | help: correct `torch_dtype`, or leave it out to have the tool's default
        optim: adamw_trch
            error[AP0705]: `a.yaml`, line 4: `optim` is `adamw_trch`: expected the name of an optimizer | help: is `adamw_torch` meant?
        optim: galore_adamw; optim_args: rank=lots
            error[AP0705]: `a.yaml`, line 5: `optim_args` is `rank=lots`: expected `rank=` a whole number | help: correct `optim_args`, or leave it out to have the tool's default
        load_in_4bit: true
            error[AP0705]: `a.yaml`, line 4: `load_in_4bit` is `true`: expected false: quantized weights are not trained, only an adapter on them (`use_peft`) | help: correct `load_in_4bit`, or leave it out to have the tool's default
        load_in_8bit: true; load_in_4bit: true; use_lora: true
            error[AP0706]: `a.yaml`, line 4: `load_in_8bit: true` does not go together with `load_in_4bit: true` (line 5) | why: frozen weights are stored in one way | help: take out `load_in_8bit: true` or `load_in_4bit: true`
        deepspeed: zero1.json; fsdp: full_shard
            error[AP0706]: `a.yaml`, line 5: `fsdp: full_shard` does not go together with `deepspeed: zero1.json` (line 4) | why: both shard the same weights | help: take out `fsdp: full_shard` or `deepspeed: zero1.json`
        num_train_epochs: -2
            error[AP0705]: `a.yaml`, line 4: `num_train_epochs` is `-2`: expected a number of at least 0 | help: correct `num_train_epochs`, or leave it out to have the tool's default
        max_steps: soon
            error[AP0705]: `a.yaml`, line 4: `max_steps` is `soon`: expected a whole number | help: correct `max_steps`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "a.yaml",
        BASE,
        &[
            "gradient_accumulation_steps: 0",
            "bf16: true\nfp16: true",
            "torch_dtype: int4",
            "optim: adamw_trch",
            "optim: galore_adamw\noptim_args: rank=lots",
            "load_in_4bit: true",
            "load_in_8bit: true\nload_in_4bit: true\nuse_lora: true",
            "deepspeed: zero1.json\nfsdp: full_shard",
            "num_train_epochs: -2",
            "max_steps: soon",
        ],
    ));
}
