//! Axolotl's YAML. Names and defaults as in its schemas of 0.12.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Matmul, Method, Model, Optimizer, Place as At,
    Precision, Quantization, Recompute, Rollout, Sharding, Task, TrainingSpec,
};
use serde_json::Value;

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options, plain};
use crate::peft::{self, LoraNames};
use crate::reading::Reading;
use crate::{deepspeed, fsdp};

const SILENT: &str = "\
    accelerator_config* adam_* added_tokens_overrides auto_resume_from_checkpoints \
    axolotl_config_path base_model_config base_model_ignore_patterns bench_* bnb_config_kwargs* \
    chat_template* cls_model_config comet_* cosine_* cpo_alpha curriculum_sampling dataloader_* \
    dataset_* datasets ddp* debug default_system_message device* dion_* do_bench_eval \
    do_causal_lm_eval dpo_* early_stopping_patience embedding_lr* embeddings_skip_upcast \
    eot_tokens eval_* evals_per_epoch evaluation_strategy excess_length_strategy \
    experimental_skip_move_to_device fix_untrained_tokens flash_attn_fuse_* flash_attn_rms_norm \
    flex_attn_compile_kwargs* fp32_norms fsdp_final_state_dict_type gc_steps \
    gradient_checkpointing_kwargs* gradio_* greater_is_better group_by_length heads_k_stride \
    hf_use_auth_token hub_* image_* include_tokens_per_second is_* kto_* learning_rate \
    liger_glu_activation liger_layer_norm liger_rms_norm* liger_rope liger_swiglu \
    load_best_model_at_end local_rank logging_steps lora_alpha lora_fan_in_fan_out \
    lora_model_dir lora_on_cpu loraplus_* \
    loss_watchdog_* low_cpu_mem_usage lr_* max_grad_norm mean_resizing_embeddings merge_* \
    metric_for_best_model min_sample_len mlflow_* model_config_type model_kwargs* muon_* \
    neftune_noise_alpha noisy_embedding_alpha num_labels optim_args* optim_target_modules \
    orpo_alpha output_dir overrides_of_model_config* pad_to_sequence_len peft* plugins pose_* \
    preprocess_* pretraining_sample_concatenation pretrain_multipack_* processor_type \
    profiler_steps push_dataset_to_hub qlora_sharded_model_loading ray_* remove_unused_columns \
    resume_from_checkpoint revision_of_model reward_model_* ring_attn_func rl_beta \
    roles_to_train rpo_alpha sample_packing_* save_* saves_per_epoch seed shuffle_* simpo_gamma \
    skip_prepare_dataset special_tokens* streaming* strict test_datasets tf32 tokenizer_* tokens \
    torch_compile_* torchdistx_path total_* train_on_eos train_on_inputs trl.* trust_remote_code \
    unsloth_lora_* unsloth_rms_norm unsloth_rope use_comet use_mlflow use_pose use_ray \
    use_tensorboard use_wandb val_set_size vllm.* wandb_* warmup_* weight_decay world_size";

const KNOWN: Known = Known {
    matters: &[&[
        (
            "auto_find_batch_size",
            "the batch is halved until it fits; planned as stated",
        ),
        (
            "lora_mlp_kernel",
            "fused adapters keep less; planned with PEFT's own",
        ),
        (
            "lora_qkv_kernel",
            "fused adapters keep less; planned with PEFT's own",
        ),
        (
            "lora_o_kernel",
            "fused adapters keep less; planned with PEFT's own",
        ),
        (
            "relora",
            "adapters are merged and begun anew; planned as one adapter",
        ),
        (
            "relora_steps",
            "adapters are merged and begun anew; planned as one adapter",
        ),
        (
            "lisa_*",
            "a few layers are trained at a time; planned with all",
        ),
        (
            "unfrozen_parameters",
            "only some weights are trained; planned with all",
        ),
        (
            "peft_layers_to_transform",
            "adapters in some layers; planned in all",
        ),
        (
            "peft_layer_replication",
            "layers are repeated; planned once each",
        ),
        (
            "lora_target_parameters",
            "adapters at experts; planned without",
        ),
        (
            "loraplus_lr_embedding",
            "adapters at the embedding; planned without",
        ),
        ("s2_attention", "attention in shifted groups; planned whole"),
        (
            "quantize_moe_experts",
            "experts in 4 bits; planned as the rest",
        ),
        (
            "qat.*",
            "quantization-aware training; planned in full precision",
        ),
        (
            "gptq",
            "weights quantized with GPTQ; planned with 4 bits in blocks",
        ),
        (
            "peft.weight_dtype",
            "weights quantized by another library; planned in 16 bits",
        ),
        (
            "max_memory",
            "weights that do not fit move to the host; planned on the GPU",
        ),
        (
            "gpu_memory_limit",
            "weights that do not fit move to the host; planned on the GPU",
        ),
        (
            "resize_token_embeddings_to_32x",
            "a larger vocabulary; planned as it is",
        ),
        (
            "shrink_embeddings",
            "a smaller vocabulary; planned as it is",
        ),
        (
            "multipack_real_batches",
            "batches of several rows when packing; planned as stated",
        ),
        (
            "dynamic_checkpoint*",
            "checkpoints on request; planned at intervals",
        ),
        ("kd_*", "a teacher model; planned without"),
        ("diffusion*", "training by diffusion; planned as next token"),
    ]],
    silent: &[SILENT],
};

/// Attention, by the option that asks for it.
const ATTENTION: [(&str, AttentionKernel); 6] = [
    ("flash_attention", AttentionKernel::Flash),
    ("sdp_attention", AttentionKernel::Flash),
    ("xformers_attention", AttentionKernel::Flash),
    ("flex_attention", AttentionKernel::Flash),
    ("sage_attention", AttentionKernel::Flash),
    ("eager_attention", AttentionKernel::Eager),
];

pub(crate) fn training(
    mut options: Options,
    launch: Launch,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let mut spec = TrainingSpec {
        framework: Some(Framework::Axolotl),
        ..TrainingSpec::default()
    };
    spec.model = Model::Named(options.text("base_model")?.unwrap_or_default());
    spec.task = task(&mut options)?;
    adapter(&mut options, &mut spec, reading)?;
    batch(&mut options, &mut spec)?;
    recompute(&mut options, &mut spec)?;
    spec.attention = attention(&mut options)?;
    spec.loss = Some(loss(&mut options)?);
    spec.optimizer = Some(peft::optimizer(
        &mut options,
        "optimizer",
        "optim_args",
        Optimizer::AdamWFused,
        reading,
    )?);
    spec.compile = Some(match options.value("torch_compile") {
        None => false,
        // `auto` compiles where the installed PyTorch can.
        Some(Value::String(text)) if text == "auto" => true,
        Some(_) => options.on("torch_compile")?,
    });
    layout(&mut options, &mut spec, reading)?;
    spec.layout.gpus = launch.gpus;
    if matches!(spec.task, Task::Grpo) {
        spec.rollout = Some(rollout(&mut options)?);
    }
    spec.length.steps = options.count("max_steps")?;
    spec.length.epochs_permille = Some(options.permille("num_epochs")?.unwrap_or(1000));
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn task(options: &mut Options) -> Result<Task, ImportError> {
    const TASKS: [(&str, Task); 8] = [
        ("dpo", Task::Dpo),
        ("ipo", Task::Dpo),
        ("simpo", Task::Orpo),
        ("cpo", Task::Orpo),
        ("orpo", Task::Orpo),
        ("kto", Task::Kto),
        ("grpo", Task::Grpo),
        ("gdpo", Task::Grpo),
    ];
    if let Some(task) = options.choice("rl", &TASKS)? {
        return Ok(task);
    }
    if options.on("reward_model")? || options.on("process_reward_model")? {
        return Ok(Task::RewardModel);
    }
    Ok(match options.value("pretraining_dataset") {
        Some(_) => Task::Pretrain,
        None => Task::Sft,
    })
}

fn adapter(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let (eight, four) = (options.on("load_in_8bit")?, options.on("load_in_4bit")?);
    if eight && four {
        let why = "frozen weights are stored in one way";
        return Err(options.clash("load_in_8bit", "load_in_4bit", why));
    }
    let adapter = options.text("adapter")?;
    let Some(adapter) = adapter else {
        for (on, name) in [(eight, "load_in_8bit"), (four, "load_in_4bit")] {
            if on {
                let expected =
                    "false: quantized weights are not trained, only an `adapter:` on them";
                return Err(options.bad(name, expected));
            }
        }
        return Ok(());
    };
    match adapter.as_str() {
        "lora" | "qlora" => (),
        "llama-adapter" => {
            let effect = "its size is not known; planned as LoRA of rank 8";
            reading
                .warnings
                .push(options.not_understood("adapter", effect));
        }
        _ => {
            return Err(options
                .bad("adapter", "`lora` or `qlora`, or nothing")
                .suggest(crate::options::nearest_of(
                    &adapter,
                    ["lora", "qlora"].into_iter(),
                )));
        }
    }
    if adapter == "qlora" && eight {
        let why = "QLoRA stores frozen weights in 4 bits";
        return Err(options.clash("adapter", "load_in_8bit", why));
    }
    if adapter == "qlora" && !four && options.has("load_in_4bit") {
        return Err(options.clash(
            "adapter",
            "load_in_4bit",
            "QLoRA stores frozen weights in 4 bits",
        ));
    }
    let names = LoraNames {
        rank: "lora_r",
        dropout: "lora_dropout",
        targets: "lora_target_modules",
        whole: "lora_modules_to_save",
        dora: "peft_use_dora",
    };
    let mut lora = peft::lora(options, 8, &names, reading)?;
    if options.on("lora_target_linear")? {
        lora.targets.extend(Linear::BLOCK);
        lora.targets.sort_unstable();
        lora.targets.dedup();
    } else if lora.targets.is_empty() {
        lora.targets.extend(peft::DEFAULT_TARGETS);
    }
    spec.method = Method::Lora(lora);
    spec.quantization = if four || adapter == "qlora" {
        // Axolotl asks for double quantization unless told not to.
        let double = options.flag("bnb_config_kwargs.bnb_4bit_use_double_quant")?;
        Some(match double {
            Some(false) => Quantization::Nf4,
            _ => Quantization::Nf4Double,
        })
    } else {
        eight.then_some(Quantization::Int8)
    };
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let accumulation = options.count("gradient_accumulation_steps")?;
    let micro = options.count("micro_batch_size")?;
    if let Some(batch) = options.count("batch_size")? {
        // Of one GPU; an old way to give the accumulation.
        if accumulation.is_some() {
            let why = "one follows from the other";
            return Err(options.clash("batch_size", "gradient_accumulation_steps", why));
        }
        let micro = micro.unwrap_or(1);
        if batch % micro != 0 {
            let why = format!("{batch} is no multiple of {micro}");
            return Err(options.clash("batch_size", "micro_batch_size", &why));
        }
        spec.batch.accumulation = Some(batch / micro);
    } else {
        spec.batch.accumulation = Some(accumulation.unwrap_or(1));
    }
    spec.batch.micro = Some(micro.unwrap_or(1));
    spec.batch.sequence_length = Some(options.count("sequence_len")?.unwrap_or(512));
    let packing = options.on("sample_packing")?;
    if packing && !matches!(spec.task, Task::Sft | Task::Pretrain) {
        let why = "pairs and rollouts are not packed";
        let other = if options.has("rl") {
            "rl"
        } else {
            "reward_model"
        };
        return Err(options.clash("sample_packing", other, why));
    }
    // A stream of plain text is always cut to full length.
    spec.batch.packing = Some(packing || spec.task == Task::Pretrain);
    Ok(())
}

fn recompute(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let name = "gradient_checkpointing";
    let value = options.value(name).map(|value| plain(&value));
    match value.as_deref() {
        Some("offload" | "unsloth") => {
            spec.recompute = Some(Recompute::Full);
            spec.offload.activations = At::Cpu;
        }
        Some("offload_disk") => {
            spec.recompute = Some(Recompute::Full);
            spec.offload.activations = At::Disk;
        }
        _ => {
            let on = options.on(name)?;
            spec.recompute = Some(if on { Recompute::Full } else { Recompute::None });
        }
    }
    let offloading = options
        .value("activation_offloading")
        .map(|value| plain(&value));
    match offloading.as_deref() {
        None | Some("false") => (),
        Some("disk") => spec.offload.activations = At::Disk,
        Some("true" | "legacy" | "hidden_states") => spec.offload.activations = At::Cpu,
        Some(_) => {
            let expected = "true, false, `legacy` or `disk`";
            return Err(options.bad("activation_offloading", expected));
        }
    }
    Ok(())
}

fn attention(options: &mut Options) -> Result<Option<AttentionKernel>, ImportError> {
    let mut chosen: Option<(&str, AttentionKernel)> = None;
    for (name, kernel) in ATTENTION {
        if !options.on(name)? {
            continue;
        }
        if let Some((other, _)) = chosen {
            return Err(options.clash(name, other, "attention is computed in one way"));
        }
        chosen = Some((name, kernel));
    }
    let implementation = options.text("attn_implementation")?;
    let named = implementation.map(|text| match text.as_str() {
        "eager" => AttentionKernel::Eager,
        _ => AttentionKernel::Flash,
    });
    // Transformers takes SDPA where nothing is asked for.
    let kernel = chosen.map(|(_, kernel)| kernel).or(named);
    Ok(Some(kernel.unwrap_or(AttentionKernel::Flash)))
}

fn loss(options: &mut Options) -> Result<LossKernel, ImportError> {
    let fused = [
        "liger_fused_linear_cross_entropy",
        "cut_cross_entropy",
        "unsloth_cross_entropy_loss",
    ];
    let mut on = None;
    for name in fused {
        if options.on(name)? {
            on = Some(name);
        }
    }
    // The plug-in of cut cross entropy is on as soon as it is named.
    let plugins = options.value("plugins").map(|value| plain(&value));
    let plugin = plugins.is_some_and(|text| text.contains("CutCrossEntropy"))
        && options.flag("cut_cross_entropy")? != Some(false);
    let chunked = options.on("chunked_cross_entropy")?;
    let chunks = options
        .count("chunked_cross_entropy_num_chunks")?
        .unwrap_or(8);
    // One kernel over the logits; they are still there.
    let whole = options.on("flash_attn_cross_entropy")? || options.on("liger_cross_entropy")?;
    Ok(match on {
        Some(_) => LossKernel::FusedLinear,
        None if plugin => LossKernel::FusedLinear,
        None if chunked && !whole => LossKernel::Chunked { chunks },
        None => LossKernel::Plain,
    })
}

fn layout(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let sharded = ["fsdp", "fsdp_version", "fsdp_config"];
    let asked = |name: &&str| options.has(name) || options.under(&format!("{name}."));
    if let (true, Some(name)) = (asked(&"deepspeed"), sharded.iter().find(|name| asked(name))) {
        return Err(options.clash(name, "deepspeed", "both shard the same weights"));
    }
    let zero = deepspeed::referenced(options, "deepspeed", spec, reading)?;
    let table = options.take_table("fsdp_config");
    let version = options.integer("fsdp_version", "1 or 2")?;
    let sharded = fsdp::words(options, "fsdp", spec, reading)? || version.is_some();
    let sharded = sharded || table.is_some();
    if let Some(table) = table {
        fsdp::table(table, spec, reading)?;
    }
    if !zero {
        // Plain data parallelism: every GPU holds everything.
        spec.layout.sharding.get_or_insert(if sharded {
            Sharding::Zero3
        } else {
            Sharding::None
        });
    }
    spec.precision = Some(precision(
        options,
        spec,
        Sharded {
            zero,
            fsdp: sharded,
        },
    )?);
    if options.on("fp8")? {
        spec.matmul = Some(Matmul::Fp8Tensor);
    }
    options.alias(&["sequence_parallel_degree"], "context_parallel_size");
    spec.layout.cp = options.count("context_parallel_size")?;
    spec.layout.tp = options.count("tensor_parallel_size")?;
    spec.layout.ep = options.count("expert_parallel_size")?;
    spec.layout.shard_group = options.count("dp_shard_size")?;
    options.value("dp_replicate_size");
    Ok(())
}

/// Who shards.
struct Sharded {
    zero: bool,
    fsdp: bool,
}

/// Axolotl loads weights in 16 bits where `bf16` or `fp16` is on; DeepSpeed then keeps a copy in 32, and FSDP keeps its shards in 32.
fn precision(
    options: &mut Options,
    spec: &TrainingSpec,
    sharded: Sharded,
) -> Result<Precision, ImportError> {
    let bf16 = match options.value("bf16") {
        None => None,
        Some(Value::String(text)) if text == "auto" => None,
        Some(_) => options.flag("bf16")?,
    };
    let fp16 = options.on("fp16")?;
    let pure = options.on("bfloat16")? || options.on("float16")?;
    let full = options.on("float32")?;
    if bf16 == Some(true) && fp16 {
        return Err(options.clash("bf16", "fp16", "numbers are kept in one of the two formats"));
    }
    let mixed = fp16 || bf16.unwrap_or(!pure && !full);
    Ok(match (&spec.method, mixed || pure) {
        (_, false) => Precision::Full32,
        (_, true) if sharded.zero && !pure => Precision::Mixed16,
        (Method::Full, true) if sharded.fsdp && !pure => Precision::Autocast,
        (_, true) => Precision::Pure16,
    })
}

fn rollout(options: &mut Options) -> Result<Rollout, ImportError> {
    let beta = options.number("trl.beta")?;
    let memory = options.permille("vllm.gpu_memory_utilization")?;
    Ok(Rollout {
        answers: Some(options.count("trl.num_generations")?.unwrap_or(8)),
        prompt_tokens: Some(options.count("max_prompt_len")?.unwrap_or(512)),
        answer_tokens_max: Some(options.count("trl.max_completion_length")?.unwrap_or(256)),
        tp: options.count("vllm.tensor_parallel_size")?,
        // TRL holds no reference model at beta 0, which is its default.
        reference: Some(beta.unwrap_or(0.0) > 0.0),
        memory_permille: memory,
        passes: Some(options.count("trl.num_iterations")?.unwrap_or(1)),
        ..Rollout::default()
    })
}
