#!/bin/bash
# A model of 128 experts in the shape of Qwen3-30B-A3B on four nodes: EP 8, in FP8.
OPTIONS=" \
    --num-layers 48 \
    --hidden-size 2048 \
    --ffn-hidden-size 6144 \
    --num-attention-heads 32 \
    --kv-channels 128 \
    --group-query-attention \
    --num-query-groups 4 \
    --qk-layernorm \
    --num-experts 128 \
    --moe-router-topk 8 \
    --moe-ffn-hidden-size 768 \
    --moe-grouped-gemm \
    --moe-token-dispatcher-type alltoall \
    --seq-length 4096 \
    --max-position-embeddings 40960 \
    --position-embedding-type rope \
    --normalization RMSNorm \
    --swiglu \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --vocab-size 151936 \
    --make-vocab-size-divisible-by 1 \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 2 \
    --expert-model-parallel-size 8 \
    --use-distributed-optimizer \
    --micro-batch-size 2 \
    --global-batch-size 512 \
    --train-iters 20000 \
    --bf16 \
    --fp8-format hybrid \
    --fp8-recipe blockwise \
    --recompute-granularity selective \
    --recompute-modules moe_act layernorm \
    --hidden-dropout 0 \
    --attention-dropout 0 \
"
torchrun --nproc_per_node 8 --nnodes 4 pretrain_gpt.py $OPTIONS
