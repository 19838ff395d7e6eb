//! Megatron-LM's arguments, in a shell script or a line of them. Names and defaults as in `arguments.py` of core 0.14. The model stands
//! there as sizes, so it becomes a shape.

use antiphon_types::model::ModelShape;
use antiphon_types::training::{
    AttentionKernel, Framework, Matmul, Model, Module, Optimizer, Place as At, Precision,
    Recompute, Schedule, Sharding, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::reading::Reading;

mod shape;

const MATTERS: &[(&str, &str)] = &[
    (
        "rampup_batch_size",
        "a smaller batch at first; planned at full size",
    ),
    (
        "distribute_saved_activations",
        "checkpoints are split over tensor-parallel ranks; planned whole",
    ),
    (
        "use_precision_aware_optimizer",
        "states in fewer bits; planned in 32",
    ),
    (
        "main_grads_dtype",
        "gradients in other numbers; planned in 32 bits",
    ),
    (
        "main_params_dtype",
        "master weights in other numbers; planned in 32 bits",
    ),
    (
        "exp_avg_dtype",
        "moments in other numbers; planned in 32 bits",
    ),
    (
        "exp_avg_sq_dtype",
        "moments in other numbers; planned in 32 bits",
    ),
    (
        "grad_reduce_in_bf16",
        "gradients are summed in 16 bits; planned in 32",
    ),
    (
        "fp8_param_gather",
        "weights are gathered in 8 bits; planned in 16",
    ),
    (
        "cpu_offloading",
        "activations move to the host; planned staying",
    ),
    (
        "fine_grained_activation_offloading",
        "activations of some modules move to the host; planned staying",
    ),
    (
        "mtp_num_layers",
        "layers that predict further tokens; planned without",
    ),
    (
        "num_layers_in_first_pipeline_stage",
        "uneven stages; planned even",
    ),
    (
        "num_layers_in_last_pipeline_stage",
        "uneven stages; planned even",
    ),
    (
        "decoder_first_pipeline_num_layers",
        "uneven stages; planned even",
    ),
    (
        "decoder_last_pipeline_num_layers",
        "uneven stages; planned even",
    ),
    (
        "account_for_embedding_in_pipeline_split",
        "uneven stages; planned even",
    ),
    (
        "account_for_loss_in_pipeline_split",
        "uneven stages; planned even",
    ),
    (
        "pipeline_model_parallel_layout",
        "uneven stages; planned even",
    ),
    ("encoder_num_layers", "an encoder; planned as decoder only"),
    ("cuda_graph_impl", "CUDA graphs; planned without"),
    ("enable_cuda_graph", "CUDA graphs; planned without"),
    ("external_cuda_graph", "CUDA graphs; planned without"),
    (
        "moe_token_drop_policy",
        "tokens beyond an expert's capacity are dropped; planned with all",
    ),
    (
        "moe_expert_capacity_factor",
        "tokens beyond an expert's capacity are dropped; planned with all",
    ),
    (
        "moe_pad_expert_input_to_capacity",
        "experts are padded; planned with the tokens they get",
    ),
    (
        "hierarchical_context_parallel_sizes",
        "how sequences are split; planned over one ring",
    ),
    ("hybrid_*", "state-space layers; planned as attention"),
    ("mamba_*", "state-space layers; planned as attention"),
    (
        "is_hybrid_model",
        "state-space layers; planned as attention",
    ),
    (
        "overlap_moe_expert_parallel_comm",
        "two batches of experts at once; planned one after the other",
    ),
    (
        "delay_wgrad_compute",
        "the order of the backward pass; planned as usual",
    ),
    ("hidden_dropout", "dropout keeps masks; planned without"),
    ("attention_dropout", "dropout keeps masks; planned without"),
    (
        "heterogeneous_layers_config_path",
        "layers of different sizes; planned alike",
    ),
];

const SILENT: &str = "\
    accumulate_allreduce_grads_in_fp32 adam_* add_* adlr_* align_* apply_* async_* \
    attention_softmax_in_fp32 auto_detect_ckpt_format bert_* beta_* bias_* \
    calculate_per_token_loss check_* ckpt_* clip_grad clone_* config_logger_dir cp_comm_type \
    create_attention_mask_in_dataloader cross_entropy_* data_* dataloader_type ddp_* \
    defer_embedding_wgrad_compute deterministic_mode disable_* dist_ckpt* distributed_* \
    empty_unused_memory_level enable_* end_weight_decay eod_* eval_* exit_* finetune \
    first_last_layers_bf16 force_load_balancing fp8_* full_validation \
    gradient_accumulation_fusion grad_reduce_in_fp32 high_priority_stream_groups hysteresis \
    inference_* init_* initial_loss_scale keep_fp8_transpose_cache* kv_channels lazy_mpu_init \
    legacy_tokenizer load local_rank log_* loss_scale* lr lr_* make_vocab_size_divisible_by \
    manual_gc* masked_softmax_fusion max_position_embeddings merge_file min_* mmap_bin_files \
    mock_data moe_* mscale* mtp_* nccl_* no_* non_persistent_* norm_epsilon \
    num_dataset_builder_threads num_workers one_logger_* onnx_safe optimizer_* \
    original_max_position_embeddings overlap_* override_opt_param_scheduler overwrite* \
    perform_initialization per_split_data_args_path pretrained_checkpoint profile* \
    query_key_layer_scaling rampup_* replication* rerun_* reset_* rope_* rotary_* save save_* \
    seed special_tokens* split standalone_embedding_stage start_weight_decay straggler_* \
    suggested_communication_unit_size swin_* tensorboard_* te_rng_tracker test_data_path \
    tiktoken_* timing_* tokenizer_* tp_comm_* train_data_path train_sync_interval \
    transformer_impl use_checkpoint_* use_dist_ckpt use_legacy_models use_mcore_models \
    use_one_sent_docs use_persistent_ckpt_worker use_pytorch_profiler use_ring_exchange_p2p \
    use_rope_scaling use_tp_pp_dp_mapping valid_data_path variable_seq_lengths vocab_file \
    wandb_* warmup weight_decay*";

const KNOWN: Known = Known {
    matters: &[MATTERS],
    silent: &[SILENT],
};

pub(crate) fn training(
    mut options: Options,
    launch: Launch,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let mut spec = TrainingSpec {
        framework: Some(Framework::Megatron),
        task: Task::Pretrain,
        ..TrainingSpec::default()
    };
    if options.on("sft")? {
        spec.task = Task::Sft;
    }
    let shape = shape::shape(&mut options, reading)?;
    numbers(&mut options, &mut spec)?;
    batch(&mut options, &mut spec)?;
    spec.layout.gpus = launch.gpus;
    layout(&mut options, &mut spec, shape.as_ref())?;
    spec.recompute = Some(recompute(&mut options, reading)?);
    divisions(&mut options, &spec, shape.as_ref())?;
    if let Some(shape) = shape {
        spec.model = Model::Shape(Box::new(shape));
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn numbers(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let (bf16, fp16) = (options.on("bf16")?, options.on("fp16")?);
    if bf16 && fp16 {
        return Err(options.clash("bf16", "fp16", "weights are kept in one of the two formats"));
    }
    spec.precision = Some(if bf16 || fp16 {
        Precision::Mixed16
    } else {
        Precision::Full32
    });
    options.alias(&["fp8"], "fp8_format");
    let recipes = [
        ("tensorwise", Matmul::Fp8Tensor),
        ("delayed", Matmul::Fp8Tensor),
        ("blockwise", Matmul::Fp8Row),
        ("mxfp8", Matmul::Mxfp8),
    ];
    let recipe = options.choice("fp8_recipe", &recipes)?;
    let four = options.text("fp4_format")?.is_some();
    if four {
        spec.matmul = Some(Matmul::Nvfp4);
    } else if options.text("fp8_format")?.is_some() {
        spec.matmul = Some(recipe.unwrap_or(Matmul::Fp8Tensor));
    }
    let optimizers = [
        ("adam", Optimizer::AdamWFused),
        ("sgd", Optimizer::SgdMomentum),
        ("muon", Optimizer::Muon),
        ("dist_muon", Optimizer::Muon),
        ("lion", Optimizer::Lion),
    ];
    let optimizer = options.choice("optimizer", &optimizers)?;
    spec.optimizer = Some(optimizer.unwrap_or(Optimizer::AdamWFused));
    if options.on("optimizer_cpu_offload")? {
        spec.offload.optimizer = At::Cpu;
    }
    let backends = [
        ("flash", AttentionKernel::Flash),
        ("fused", AttentionKernel::Flash),
        ("auto", AttentionKernel::Flash),
        ("unfused", AttentionKernel::Eager),
        ("local", AttentionKernel::Eager),
    ];
    let backend = options.choice("attention_backend", &backends)?;
    let flash = options.on("use_flash_attn")?;
    let local = options.text("transformer_impl")?.as_deref() == Some("local");
    // Transformer Engine picks a kernel without scores; Megatron's own layers keep them unless told otherwise.
    let by_default = if local && !flash {
        AttentionKernel::Eager
    } else {
        AttentionKernel::Flash
    };
    spec.attention = Some(backend.unwrap_or(by_default));
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    spec.batch.micro = options.count("micro_batch_size")?;
    spec.batch.global = options.count("global_batch_size")?;
    options.alias(&["encoder_seq_length"], "seq_length");
    spec.batch.sequence_length = options.count("seq_length")?;
    // Documents are joined to full length.
    spec.batch.packing = Some(true);
    spec.length.steps = options.count("train_iters")?;
    spec.length.examples = options.count("train_samples")?;
    Ok(())
}

fn layout(
    options: &mut Options,
    spec: &mut TrainingSpec,
    shape: Option<&ModelShape>,
) -> Result<(), ImportError> {
    let layout = &mut spec.layout;
    layout.tp = Some(options.count("tensor_model_parallel_size")?.unwrap_or(1));
    let pp = options.count("pipeline_model_parallel_size")?.unwrap_or(1);
    layout.pp = Some(pp);
    layout.cp = Some(options.count("context_parallel_size")?.unwrap_or(1));
    layout.ep = Some(options.count("expert_model_parallel_size")?.unwrap_or(1));
    layout.expert_tp = options.count("expert_tensor_parallel_size")?;
    layout.sequence_parallel = Some(options.on("sequence_parallel")?);
    if pp > 1 {
        layout.schedule = Some(Schedule::OneForwardOneBackward);
        let chunks = options.count("num_virtual_stages_per_pipeline_rank")?;
        let per_chunk = options.count("num_layers_per_virtual_pipeline_stage")?;
        layout.chunks = match (chunks, per_chunk, shape) {
            (Some(chunks), ..) => Some(chunks),
            (None, Some(layers), Some(shape)) => {
                let all = layers.saturating_mul(pp);
                if shape.layers % all != 0 {
                    let expected = format!(
                        "a divisor of {}: {} layers over {pp} stages",
                        shape.layers / pp,
                        shape.layers
                    );
                    return Err(options.bad("num_layers_per_virtual_pipeline_stage", &expected));
                }
                Some(shape.layers / all)
            }
            _ => Some(1),
        };
    }
    layout.sharding = Some(sharding(options)?);
    if let Some(instances) = options.count("num_distributed_optimizer_instances")? {
        let ranks = layout.gpus.map(|gpus| {
            let of_model = [layout.tp, layout.pp, layout.cp].into_iter().flatten();
            gpus / of_model.product::<u64>().max(1)
        });
        if instances > 1 {
            layout.shard_group = ranks.map(|ranks| (ranks / instances).max(1));
        }
    }
    Ok(())
}

fn sharding(options: &mut Options) -> Result<Sharding, ImportError> {
    const STRATEGIES: [(&str, Sharding); 4] = [
        ("no_shard", Sharding::None),
        ("optim", Sharding::Zero1),
        ("optim_grads", Sharding::Zero2),
        ("optim_grads_params", Sharding::Zero3),
    ];
    options.alias(&["use_custom_fsdp"], "use_megatron_fsdp");
    let strategy = options.choice("data_parallel_sharding_strategy", &STRATEGIES)?;
    let distributed = options.on("use_distributed_optimizer")?;
    if options.on("use_torch_fsdp2")? {
        return Ok(Sharding::Zero3);
    }
    Ok(if options.on("use_megatron_fsdp")? {
        strategy.unwrap_or(Sharding::None)
    } else if distributed {
        Sharding::Zero1
    } else {
        Sharding::None
    })
}

fn recompute(options: &mut Options, reading: &mut Reading<'_>) -> Result<Recompute, ImportError> {
    const MODULES: [(&str, Module); 7] = [
        ("core_attn", Module::CoreAttn),
        ("mlp", Module::Mlp),
        ("moe", Module::Moe),
        ("shared_experts", Module::Moe),
        ("moe_act", Module::MoeAct),
        ("layernorm", Module::Layernorm),
        ("mla_up_proj", Module::MlaUpProj),
    ];
    let kinds = [("full", true), ("selective", false)];
    let granularity = options.choice("recompute_granularity", &kinds)?;
    let short = options.on("recompute_activations")?;
    let names = options.words("recompute_modules");
    let block = options.choice("recompute_method", &[("uniform", false), ("block", true)])?;
    let layers = options.count("recompute_num_layers")?;
    match granularity {
        Some(true) => match (block, layers) {
            (Some(true), Some(count)) => Ok(Recompute::Layers { count }),
            (Some(true), None) => Err(options.bad(
                "recompute_method",
                "`uniform`, or `--recompute-num-layers` beside it",
            )),
            (_, layers) => {
                if layers.is_some_and(|layers| layers > 1) {
                    let effect = "checkpoints every so many layers; planned at each";
                    let warning = options.not_understood("recompute_num_layers", effect);
                    reading.warnings.push(warning);
                }
                Ok(Recompute::Full)
            }
        },
        _ if granularity.is_some() || short => {
            let mut modules = Vec::new();
            for name in names.unwrap_or_else(|| vec!["core_attn".into()]) {
                let Some((_, module)) = MODULES.iter().find(|(word, _)| *word == name) else {
                    let words: Vec<String> =
                        MODULES.iter().map(|(word, _)| (*word).to_owned()).collect();
                    let expected = crate::error::quoted(&words);
                    return Err(options.bad("recompute_modules", &format!("some of {expected}")));
                };
                modules.push(*module);
            }
            Ok(Recompute::Modules(modules))
        }
        _ => Ok(Recompute::None),
    }
}

/// What Megatron asserts before it starts: everything divides.
fn divisions(
    options: &mut Options,
    spec: &TrainingSpec,
    shape: Option<&ModelShape>,
) -> Result<(), ImportError> {
    let layout = &spec.layout;
    let one = |size: Option<u64>| size.unwrap_or(1);
    let (tp, pp, cp, ep) = (
        one(layout.tp),
        one(layout.pp),
        one(layout.cp),
        one(layout.ep),
    );
    let replica = tp.saturating_mul(pp).saturating_mul(cp);
    if let Some(gpus) = layout.gpus {
        if gpus % replica != 0 {
            let name = [
                ("tensor_model_parallel_size", tp),
                ("pipeline_model_parallel_size", pp),
                ("context_parallel_size", cp),
            ]
            .into_iter()
            .find(|(name, _)| options.has(name))
            .map_or("tensor_model_parallel_size", |(name, _)| name);
            let expected = format!(
                "a size so that tensor x pipeline x context parallelism, {tp} x {pp} x {cp}, divides {gpus} GPUs"
            );
            return Err(options.bad(name, &expected));
        }
        let replicas = gpus / replica;
        if let (Some(micro), Some(global)) = (spec.batch.micro, spec.batch.global) {
            let step = micro.saturating_mul(replicas);
            if global % step != 0 {
                let expected =
                    format!("a multiple of {step}: {micro} sequences on {replicas} replicas");
                return Err(options.bad("global_batch_size", &expected));
            }
        }
    }
    let Some(shape) = shape else { return Ok(()) };
    if ep > 1 && shape.experts.is_none() {
        let expected = "1: the model has no experts (`--num-experts`)";
        return Err(options.bad("expert_model_parallel_size", expected));
    }
    let experts = shape.experts.map(|experts| experts.count);
    if let Some(count) = experts.filter(|count| !count.is_multiple_of(ep)) {
        let expected = format!("a divisor of {count} experts");
        return Err(options.bad("expert_model_parallel_size", &expected));
    }
    if shape.heads() % tp != 0 {
        let expected = format!("a divisor of {} attention heads", shape.heads());
        return Err(options.bad("tensor_model_parallel_size", &expected));
    }
    let uneven = MATTERS
        .iter()
        .filter(|(_, effect)| effect.starts_with("uneven"));
    if shape.layers % pp != 0 && !uneven.into_iter().any(|(name, _)| options.has(name)) {
        let expected = format!("a divisor of {} layers", shape.layers);
        return Err(options.bad("pipeline_model_parallel_size", &expected));
    }
    Ok(())
}
