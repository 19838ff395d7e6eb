# A reward model with OpenRLHF and LoRA on four GPUs.
deepspeed --num_gpus 4 --module openrlhf.cli.train_rm \
   --pretrain Qwen/Qwen2.5-1.5B-Instruct \
   --dataset data/preferred.jsonl \
   --chosen_key chosen \
   --rejected_key rejected \
   --max_len 4096 \
   --micro_train_batch_size 4 \
   --train_batch_size 256 \
   --max_epochs 1 \
   --zero_stage 2 \
   --bf16 \
   --lora_rank 32 \
   --gradient_checkpointing \
   --attn_implementation flash_attention_2 \
   --learning_rate 9e-6 \
   --save_path out/reward
