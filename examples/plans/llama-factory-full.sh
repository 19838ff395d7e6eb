#!/bin/bash
# All weights of a 7B model with ZeRO-2, started with torchrun on two nodes.
NODES=2
GPUS=8

torchrun --nnodes $NODES --nproc_per_node $GPUS --rdzv_backend c10d \
  src/train.py \
  --stage sft \
  --do_train \
  --model_name_or_path mistralai/Mistral-7B-v0.3 \
  --finetuning_type full \
  --dataset manuals \
  --template mistral \
  --cutoff_len 8192 \
  --packing true \
  --output_dir saves/manuals \
  --deepspeed files/zero2-offload.json \
  --per_device_train_batch_size 1 \
  --gradient_accumulation_steps 2 \
  --learning_rate 1e-5 \
  --num_train_epochs 2 \
  --bf16 \
  --flash_attn fa2
