# All weights of a 3B model on two GPUs; the optimizer works inside the backward pass.
tune run --nproc_per_node 2 full_finetune_distributed --config files/torchtune-full.yaml \
  batch_size=4 \
  optimizer_in_bwd=True \
  gradient_accumulation_steps=1
