//! torchtune's options.

use expect_test::expect;

use crate::changes;

const BASE: &str =
    "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nbatch_size: 2\ndtype: bf16\n@\n";

fn of(options: &[&str]) -> String {
    changes("a.yaml", BASE, options)
}

#[test]
fn options_become_what_they_mean() {
    expect![[r#"
        gradient_accumulation_steps: 8
            batch.accumulation: 8
        tokenizer:;   max_seq_len: 4096; dataset:;   packed: true
            batch.packing: true
            batch.sequence_length: 4096
        checkpointer:;   checkpoint_dir: /m/Meta-Llama-3.1-8B-Instruct/
            model.named: "Meta-Llama-3.1-8B-Instruct"
        checkpointer:;   checkpoint_dir: /m/base
        dtype_: x
            warning[unknown-options]: `a.yaml`: `dtype_` is not known here; is `dtype` meant by `dtype_` (line 5)?
        enable_activation_checkpointing: true; enable_activation_offloading: true
            offload.activations: "cpu"
            recompute: "full"
        optimizer:;   _component_: torch.optim.AdamW;   fused: true
            optimizer: "adam-w-fused"
            optimizer_in_backward: false
        optimizer:;   _component_: bitsandbytes.optim.PagedAdamW8bit
            optimizer: "paged-adam-w8bit"
            optimizer_in_backward: false
        optimizer:;   _component_: torchao.optim.CPUOffloadOptimizer
            offload.optimizer: "cpu"
            optimizer: "adam-w-fused"
            optimizer_in_backward: false
        optimizer:;   _component_: mine.Shampoo
            optimizer: "adam-w"
            optimizer_in_backward: false
            warning[not-understood]: `a.yaml`, line 6: `optimizer._component_: mine.Shampoo` is not understood: its states; planned as AdamW, with two moments
        optimizer:;   _component_: torch.optim.SGD; optimizer_in_bwd: true
            optimizer: "sgd"
            optimizer_in_backward: true
        loss:;   _component_: torchtune.modules.loss.CEWithChunkedOutputLoss;   num_output_chunks: 16
            loss.chunked.chunks: 16
        loss:;   _component_: torchtune.rlhf.loss.DPOLoss
            task: "dpo"
        loss:;   _component_: torchtune.dev.grpo.loss.GRPOSimpleLoss; grpo_samples: 4; max_generated_tokens: 256
            rollout.answer_tokens_max: 256
            rollout.answers: 4
            rollout.asynchronous: false
            rollout.reference: true
            task: "grpo"
        compile: true
            compile: true
        tensor_parallel_dim: 2; context_parallel_dim: 4
            layout.cp: 4
            layout.tp: 2
        fsdp_cpu_offload: true
            layout.sharding: "zero3"
            offload.optimizer: "cpu"
            offload.parameters: "cpu"
        epochs: 2; max_steps_per_epoch: 100
            length.epochs_permille: 2000
            length.steps: 200
        enable_fp8_training: true
            warning[not-understood]: `a.yaml`, line 5: `enable_fp8_training: true` is not understood: matrices in 8 bits; planned in 16
    "#]].assert_eq(&of(&[
        "gradient_accumulation_steps: 8",
        "tokenizer:\n  max_seq_len: 4096\ndataset:\n  packed: true",
        "checkpointer:\n  checkpoint_dir: /m/Meta-Llama-3.1-8B-Instruct/",
        "checkpointer:\n  checkpoint_dir: /m/base",
        "dtype_: x",
        "enable_activation_checkpointing: true\nenable_activation_offloading: true",
        "optimizer:\n  _component_: torch.optim.AdamW\n  fused: true",
        "optimizer:\n  _component_: bitsandbytes.optim.PagedAdamW8bit",
        "optimizer:\n  _component_: torchao.optim.CPUOffloadOptimizer",
        "optimizer:\n  _component_: mine.Shampoo",
        "optimizer:\n  _component_: torch.optim.SGD\noptimizer_in_bwd: true",
        "loss:\n  _component_: torchtune.modules.loss.CEWithChunkedOutputLoss\n  num_output_chunks: 16",
        "loss:\n  _component_: torchtune.rlhf.loss.DPOLoss",
        "loss:\n  _component_: torchtune.dev.grpo.loss.GRPOSimpleLoss\ngrpo_samples: 4\nmax_generated_tokens: 256",
        "compile: true",
        "tensor_parallel_dim: 2\ncontext_parallel_dim: 4",
        "fsdp_cpu_offload: true",
        "epochs: 2\nmax_steps_per_epoch: 100",
        "enable_fp8_training: true",
    ]));
}

#[test]
fn builders_name_the_method() {
    expect![[r#"
        model:;   _component_: torchtune.models.qwen2_5.lora_qwen2_5_7b_base;   lora_rank: 16;   lora_attn_modules: [q_proj, v_proj];   apply_lora_to_mlp: true;   apply_lora_to_output: true
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 16
            method.lora.targets: ["q_proj","v_proj","gate_proj","up_proj","down_proj","lm_head"]
            method.lora.whole: []
            model.named: "qwen2.5-7b"
            method: not stated
        model:;   _component_: torchtune.models.llama3_3.qlora_llama3_3_70b
            method.lora.dora: false
            method.lora.dropout: false
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            model.named: "llama-3.3-70b"
            quantization: "nf4-double"
            method: not stated
        model:;   _component_: torchtune.models.llama3_1.lora_llama3_1_8b;   use_dora: true;   quantize_base: true;   lora_dropout: 0.1
            method.lora.dora: true
            method.lora.dropout: true
            method.lora.rank: 8
            method.lora.targets: ["q_proj","v_proj"]
            method.lora.whole: []
            model.named: "llama-3.1-8b"
            quantization: "nf4-double"
            method: not stated
    "#]].assert_eq(&changes(
        "a.yaml",
        "batch_size: 2\ndtype: bf16\noptimizer:\n  _component_: torch.optim.AdamW\n@\n",
        &[
            "model:\n  _component_: torchtune.models.qwen2_5.lora_qwen2_5_7b_base\n  lora_rank: 16\n  lora_attn_modules: [q_proj, v_proj]\n  apply_lora_to_mlp: true\n  apply_lora_to_output: true",
            "model:\n  _component_: torchtune.models.llama3_3.qlora_llama3_3_70b",
            "model:\n  _component_: torchtune.models.llama3_1.lora_llama3_1_8b\n  use_dora: true\n  quantize_base: true\n  lora_dropout: 0.1",
        ],
    ));
}

#[test]
fn recipes_name_the_layout() {
    expect![[r#"
        full_finetune_single_device
            layout.gpus: 1
            layout.sharding: "none"
        --nproc_per_node 4 full_finetune_distributed
            layout.gpus: 4
            layout.sharding: "zero3"
        --nnodes 2 --nproc_per_node 8 lora_dpo_distributed
            layout.gpus: 16
            layout.sharding: "zero3"
            task: "dpo"
    "#]].assert_eq(&changes(
        "run.sh",
        "tune run @ --config gone.yaml batch_size=2 model._component_=torchtune.models.gemma2.gemma2_9b",
        &[
            "full_finetune_single_device",
            "--nproc_per_node 4 full_finetune_distributed",
            "--nnodes 2 --nproc_per_node 8 lora_dpo_distributed",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        dataset:;   packed: true
            error[AP0705]: `a.yaml`, line 6: `dataset.packed` is `true`: expected false, or `tokenizer.max_seq_len` set: packs have a length | help: correct `dataset.packed`, or leave it out to have the tool's default
        enable_activation_offloading: true
            error[AP0705]: `a.yaml`, line 5: `enable_activation_offloading` is `true`: expected another value while `enable_activation_checkpointing` is not set: what is moved to the host are the inputs of blocks that are computed again | help: correct `enable_activation_offloading`, or leave it out to have the tool's default
        optimizer:;   _component_: torch.optim.AdamW; optimizer_in_bwd: true; gradient_accumulation_steps: 4
            error[AP0706]: `a.yaml`, line 7: `optimizer_in_bwd: true` does not go together with `gradient_accumulation_steps: 4` (line 8) | why: gradients are gone after each pass | help: take out `optimizer_in_bwd: true` or `gradient_accumulation_steps: 4`
        tensor_parallel_dim: 0
            error[AP0705]: `a.yaml`, line 5: `tensor_parallel_dim` is `0`: expected a whole number of at least 1 | help: correct `tensor_parallel_dim`, or leave it out to have the tool's default
        compile: maybe
            error[AP0705]: `a.yaml`, line 5: `compile` is `maybe`: expected true or false | help: correct `compile`, or leave it out to have the tool's default
    "#]].assert_eq(&of(&[
        "dataset:\n  packed: true",
        "enable_activation_offloading: true",
        "optimizer:\n  _component_: torch.optim.AdamW\noptimizer_in_bwd: true\ngradient_accumulation_steps: 4",
        "tensor_parallel_dim: 0",
        "compile: maybe",
    ]));
    expect![[r#"
        dtype: fp8
            error[AP0705]: `a.yaml`, line 4: `dtype` is `fp8`: expected one of `bf16`, `fp16`, `fp32` | help: correct `dtype`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "a.yaml",
        "model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\nbatch_size: 1\n@\n",
        &["dtype: fp8"],
    ));
}
