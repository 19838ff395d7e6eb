# SFT with LoRA from TRL's command line, on four GPUs.
trl sft \
  --model_name_or_path google/gemma-2-9b-it \
  --dtype bfloat16 \
  --attn_implementation eager \
  --dataset_name acme/recipes \
  --use_peft \
  --lora_r 64 \
  --lora_alpha 128 \
  --lora_target_modules all-linear \
  --max_length 2048 \
  --packing \
  --per_device_train_batch_size 4 \
  --gradient_accumulation_steps 2 \
  --learning_rate 2e-4 \
  --num_train_epochs 1 \
  --output_dir out/recipes \
  --num_processes 4
