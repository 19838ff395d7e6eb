#!/bin/bash
#SBATCH --job-name=letters
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
# A script on Transformers' trainer with LoRA, sharded by accelerate's FSDP.
srun accelerate launch --config_file files/fsdp.yaml \
  train.py \
  --model_name_or_path mistralai/Mixtral-8x7B-v0.1 \
  --torch_dtype bfloat16 \
  --train_file data/letters.jsonl \
  --max_seq_length 4096 \
  --lora_r 16 \
  --lora_target_modules q_proj v_proj \
  --per_device_train_batch_size 2 \
  --gradient_accumulation_steps 4 \
  --gradient_checkpointing \
  --bf16 \
  --learning_rate 1e-4 \
  --num_train_epochs 2 \
  --output_dir out/letters
