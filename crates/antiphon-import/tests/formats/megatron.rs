//! Megatron-LM's options.

use expect_test::expect;

use crate::changes;

const BASE: &str = "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \\\n --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 \\\n --vocab-size 50257 --hidden-dropout 0 --attention-dropout 0 --micro-batch-size 2 --global-batch-size 64 --bf16 \\\n @";

#[test]
fn options_become_what_they_mean() {
    expect![[r#"
        --tensor-model-parallel-size 4 --sequence-parallel
            layout.sequence_parallel: true
            layout.tp: 4
            model.shape.vocab: 50688
        --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3
            layout.chunks: 4
            layout.pp: 2
            layout.schedule: "one-forward-one-backward"
        --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4
            layout.chunks: 4
            layout.pp: 2
            layout.schedule: "one-forward-one-backward"
        --context-parallel-size 2
            layout.cp: 2
        --use-distributed-optimizer
            layout.sharding: "zero1"
        --use-distributed-optimizer --num-distributed-optimizer-instances 2
            layout.shard_group: 8
            layout.sharding: "zero1"
        --use-torch-fsdp2
            layout.sharding: "zero3"
        --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params
            layout.sharding: "zero3"
        --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
            recompute: "full"
        --recompute-granularity full --recompute-method uniform --recompute-num-layers 4
            recompute: "full"
            warning[not-understood]: `run.sh`, line 4: `recompute_num_layers: 4` is not understood: checkpoints every so many layers; planned at each
        --recompute-granularity full --recompute-method block --recompute-num-layers 6
            recompute.layers.count: 6
            recompute: not stated
        --recompute-granularity selective
            recompute.modules: ["core_attn"]
            recompute: not stated
        --recompute-granularity selective --recompute-modules mlp layernorm
            recompute.modules: ["mlp","layernorm"]
            recompute: not stated
        --recompute-activations
            recompute.modules: ["core_attn"]
            recompute: not stated
        --fp8-format hybrid
            matmul: "fp8-tensor"
        --fp8-format e4m3 --fp8-recipe mxfp8
            matmul: "mxfp8"
        --fp4-format e2m1
            matmul: "nvfp4"
        --optimizer muon --optimizer-cpu-offload
            offload.optimizer: "cpu"
            optimizer: "muon"
        --attention-backend unfused
            attention: "eager"
        --transformer-impl local
            attention: "eager"
        --train-iters 1000
            length.steps: 1000
        --sft
            task: "sft"
        --moe-token-drop-policy probs
            warning[not-understood]: `run.sh`, line 4: `moe_token_drop_policy: probs` is not understood: tokens beyond an expert's capacity are dropped; planned with all
        --use-precision-aware-optimizer
            warning[not-understood]: `run.sh`, line 4: `use_precision_aware_optimizer: true` is not understood: states in fewer bits; planned in 32
        --overlap-grad-reduce --log-throughput --save x --load y
        --tensor-model-paralel-size 2
            warning[unknown-options]: `run.sh`: `tensor_model_paralel_size` is not known here; is `tensor_model_parallel_size` meant by `tensor_model_paralel_size` (line 4)?
        --train-iters $STEPS
            warning[not-literal]: `run.sh`, line 4: `train_iters` is `${STEPS}`, which only running it would tell: taken as not stated
    "#]].assert_eq(&changes(
        "run.sh",
        BASE,
        &[
            "--tensor-model-parallel-size 4 --sequence-parallel",
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
            "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 4",
            "--context-parallel-size 2",
            "--use-distributed-optimizer",
            "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
            "--use-torch-fsdp2",
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
            "--recompute-granularity full --recompute-method block --recompute-num-layers 6",
            "--recompute-granularity selective",
            "--recompute-granularity selective --recompute-modules mlp layernorm",
            "--recompute-activations",
            "--fp8-format hybrid",
            "--fp8-format e4m3 --fp8-recipe mxfp8",
            "--fp4-format e2m1",
            "--optimizer muon --optimizer-cpu-offload",
            "--attention-backend unfused",
            "--transformer-impl local",
            "--train-iters 1000",
            "--sft",
            "--moe-token-drop-policy probs",
            "--use-precision-aware-optimizer",
            "--overlap-grad-reduce --log-throughput --save x --load y",
            "--tensor-model-paralel-size 2",
            "--train-iters $STEPS",
        ],
    ));
}

#[test]
fn sizes_become_a_shape() {
    expect![[r#"
        --swiglu --disable-bias-linear --normalization RMSNorm
            model.shape.biases: "none"
            model.shape.ffn: 5440
            model.shape.mlp: "gated"
            model.shape.norm: "rms"
        --group-query-attention --num-query-groups 4 --kv-channels 64 --qk-layernorm
            model.shape.attention.grouped.head_dim: 64
            model.shape.attention.grouped.kv_heads: 4
            model.shape.attention.grouped.qk_norm: "head"
        --position-embedding-type rope --untie-embeddings-and-output-weights
            model.shape.learned_positions: 0
            model.shape.tied: false
        --disable-bias-linear --add-qkv-bias --ffn-hidden-size 5632
            model.shape.biases: "qkv"
            model.shape.ffn: 5632
        --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
            model.shape.attention.latent.heads: 16
            model.shape.attention.latent.kv_rank: 512
            model.shape.attention.latent.nope: 128
            model.shape.attention.latent.q_rank: 1536
            model.shape.attention.latent.rope: 64
            model.shape.attention.latent.value: 128
            model.shape.attention.grouped.head_dim: not stated
            model.shape.attention.grouped.heads: not stated
            model.shape.attention.grouped.kv_heads: not stated
            model.shape.attention.grouped.qk_norm: not stated
            model.shape.attention.grouped.sinks: not stated
        --num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 1024 --moe-layer-freq '([0]*1+[1]*23)' --moe-shared-expert-intermediate-size 2048 --expert-model-parallel-size 8
            layout.ep: 8
            model.shape.experts.count: 16
            model.shape.experts.dense_layers: 1
            model.shape.experts.ffn: 1024
            model.shape.experts.router_bias: true
            model.shape.experts.shared_ffn: 2048
            model.shape.experts.top_k: 4
        --window-size 127,0 --window-attn-skip-freq 2
            model.shape.window.full_every: 2
            model.shape.window.tokens: 128
        --make-vocab-size-divisible-by 1 --tensor-model-parallel-size 2
            layout.tp: 2
            model.shape.vocab: 50258
    "#]].assert_eq(&changes(
        "run.sh",
        BASE,
        &[
            "--swiglu --disable-bias-linear --normalization RMSNorm",
            "--group-query-attention --num-query-groups 4 --kv-channels 64 --qk-layernorm",
            "--position-embedding-type rope --untie-embeddings-and-output-weights",
            "--disable-bias-linear --add-qkv-bias --ffn-hidden-size 5632",
            "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128",
            "--num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 1024 --moe-layer-freq '([0]*1+[1]*23)' --moe-shared-expert-intermediate-size 2048 --expert-model-parallel-size 8",
            "--window-size 127,0 --window-attn-skip-freq 2",
            "--make-vocab-size-divisible-by 1 --tensor-model-parallel-size 2",
        ],
    ));
}

#[test]
fn impossible_values_are_refused_with_their_line() {
    expect![[r#"
        --tensor-model-parallel-size 3
            error[AP0705]: `run.sh`, line 4: `tensor_model_parallel_size` is `3`: expected a size so that tensor x pipeline x context parallelism, 3 x 1 x 1, divides 16 GPUs | help: correct `tensor_model_parallel_size`, or leave it out to have the tool's default
        --tensor-model-parallel-size 32
            error[AP0705]: `run.sh`, line 4: `tensor_model_parallel_size` is `32`: expected a size so that tensor x pipeline x context parallelism, 32 x 1 x 1, divides 16 GPUs | help: correct `tensor_model_parallel_size`, or leave it out to have the tool's default
        --pipeline-model-parallel-size 16 --tensor-model-parallel-size 2
            error[AP0705]: `run.sh`, line 4: `tensor_model_parallel_size` is `2`: expected a size so that tensor x pipeline x context parallelism, 2 x 16 x 1, divides 16 GPUs | help: correct `tensor_model_parallel_size`, or leave it out to have the tool's default
        --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5
            error[AP0705]: `run.sh`, line 4: `num_layers_per_virtual_pipeline_stage` is `5`: expected a divisor of 12: 24 layers over 2 stages | help: correct `num_layers_per_virtual_pipeline_stage`, or leave it out to have the tool's default
        --global-batch-size 60
            error[AP0705]: `run.sh`, line 4: `global_batch_size` is `60`: expected a multiple of 32: 2 sequences on 16 replicas | help: correct `global_batch_size`, or leave it out to have the tool's default
        --expert-model-parallel-size 2
            error[AP0705]: `run.sh`, line 4: `expert_model_parallel_size` is `2`: expected 1: the model has no experts (`--num-experts`) | help: correct `expert_model_parallel_size`, or leave it out to have the tool's default
        --num-experts 6 --expert-model-parallel-size 4
            error[AP0705]: `run.sh`, line 4: `expert_model_parallel_size` is `4`: expected a divisor of 6 experts | help: correct `expert_model_parallel_size`, or leave it out to have the tool's default
        --num-experts 8 --moe-router-topk 9
            error[AP0705]: `run.sh`, line 4: `moe_router_topk` is `9`: expected at most 8, the number of experts | help: correct `moe_router_topk`, or leave it out to have the tool's default
        --fp16
            error[AP0706]: `run.sh`, line 3: `bf16: true` does not go together with `fp16: true` (line 4) | why: weights are kept in one of the two formats | help: take out `bf16: true` or `fp16: true`
        --recompute-granularity some
            error[AP0705]: `run.sh`, line 4: `recompute_granularity` is `some`: expected one of `full`, `selective` | help: correct `recompute_granularity`, or leave it out to have the tool's default
        --recompute-granularity selective --recompute-modules attention
            error[AP0705]: `run.sh`, line 4: `recompute_modules` is `attention`: expected some of `core_attn`, `mlp`, `moe`, `shared_experts`, `moe_act`, `layernorm`, `mla_up_proj` | help: correct `recompute_modules`, or leave it out to have the tool's default
        --num-query-groups 3 --group-query-attention
            error[AP0705]: `run.sh`, line 4: `num_query_groups` is `3`: expected a divisor of 16 heads | help: correct `num_query_groups`, or leave it out to have the tool's default
        --micro-batch-size two
            error[AP0705]: `run.sh`, line 4: `micro_batch_size` is `two`: expected a whole number of at least 1 | help: correct `micro_batch_size`, or leave it out to have the tool's default
        --num-layers 1000000
            error[AP0705]: `run.sh`, line 4: `num_layers` is `1000000`: expected a size of a model that can be trained | help: correct `num_layers`, or leave it out to have the tool's default
        --moe-layer-freq [1]*3 --num-experts 4
            error[AP0705]: `run.sh`, line 4: `moe_layer_freq` is `[1]*3`: expected 1, or a list that begins with the dense layers, such as `([0]*3+[1]*58)` | help: correct `moe_layer_freq`, or leave it out to have the tool's default
    "#]].assert_eq(&changes(
        "run.sh",
        BASE,
        &[
            "--tensor-model-parallel-size 3",
            "--tensor-model-parallel-size 32",
            "--pipeline-model-parallel-size 16 --tensor-model-parallel-size 2",
            "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5",
            "--global-batch-size 60",
            "--expert-model-parallel-size 2",
            "--num-experts 6 --expert-model-parallel-size 4",
            "--num-experts 8 --moe-router-topk 9",
            "--fp16",
            "--recompute-granularity some",
            "--recompute-granularity selective --recompute-modules attention",
            "--num-query-groups 3 --group-query-attention",
            "--micro-batch-size two",
            "--num-layers 1000000",
            "--moe-layer-freq [1]*3 --num-experts 4",
        ],
    ));
}
