//! Arguments of Transformers' `Trainer` and of what stands on it: batch, precision, optimizer, sharding. Names and defaults as in
//! `TrainingArguments` of Transformers 4.57; TRL's own are in `trl.rs`, LLaMA-Factory's in `llama_factory.rs`.

use antiphon_types::training::{
    AttentionKernel, LossKernel, Method, Optimizer, Place as At, Precision, Quantization,
    Recompute, Sharding, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::Options;
use crate::peft;
use crate::reading::Reading;
use crate::{accelerate, deepspeed, fsdp};

/// What a library on top of Transformers does where nothing is stated.
pub(crate) struct Defaults {
    /// Whether activations are computed again.
    pub(crate) checkpointing: bool,
    /// Whether it computes in bf16.
    pub(crate) bf16: bool,
    /// Whether weights are loaded in 16 bits.
    pub(crate) weights16: bool,
}

/// Who shards weights and states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharder {
    Nobody,
    Deepspeed,
    Fsdp,
}

/// Everything that `TrainingArguments` says. The method has to be known before: precision follows from it.
pub(crate) fn arguments(
    options: &mut Options,
    launch: &mut Launch,
    spec: &mut TrainingSpec,
    defaults: &Defaults,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    batch(options, spec)?;
    spec.recompute = Some(recompute(options, defaults)?);
    if options.on("activation_offloading")? {
        spec.offload.activations = At::Cpu;
    }
    spec.optimizer = Some(peft::optimizer(
        options,
        "optim",
        "optim_args",
        Optimizer::AdamWFused,
        reading,
    )?);
    spec.compile = Some(options.on("torch_compile")?);
    spec.attention = Some(attention(options)?);
    options.alias(&["use_liger"], "use_liger_kernel");
    // Liger's patch of a model fuses head and cross entropy.
    if options.on("use_liger_kernel")? {
        spec.loss = Some(LossKernel::FusedLinear);
    }
    let sharder = sharder(options, launch, spec, reading)?;
    let numbers = precision(options, launch, spec, defaults, sharder)?;
    // DeepSpeed's own section has said it already where it says more than `auto`.
    spec.precision.get_or_insert(numbers);
    spec.layout.gpus = spec.layout.gpus.or(launch.gpus);
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    options.alias(&["per_gpu_train_batch_size"], "per_device_train_batch_size");
    let micro = options.count("per_device_train_batch_size")?;
    spec.batch.micro = Some(micro.unwrap_or(8));
    let accumulation = options.count("gradient_accumulation_steps")?;
    spec.batch.accumulation = Some(accumulation.unwrap_or(1));
    let steps = options.count_if_positive("max_steps")?;
    let epochs = options.permille("num_train_epochs")?;
    spec.length.steps = steps;
    spec.length.epochs_permille = match (steps, epochs) {
        // Steps win in the trainer too.
        (Some(_), epochs) => epochs,
        (None, epochs) => Some(epochs.unwrap_or(3000)),
    };
    spec.length.examples = options.count_if_positive("max_train_samples")?;
    Ok(())
}

fn recompute(options: &mut Options, defaults: &Defaults) -> Result<Recompute, ImportError> {
    let on = options.flag("gradient_checkpointing")?;
    Ok(if on.unwrap_or(defaults.checkpointing) {
        Recompute::Full
    } else {
        Recompute::None
    })
}

fn attention(options: &mut Options) -> Result<AttentionKernel, ImportError> {
    let flash = options.on("use_flash_attention_2")? || options.on("use_flash_attn")?;
    let named = options.text("attn_implementation")?;
    Ok(match named.as_deref() {
        Some("eager") if !flash => AttentionKernel::Eager,
        // SDPA where nothing is asked for.
        _ => AttentionKernel::Flash,
    })
}

/// Who shards: the arguments, the launcher, or the launcher's config.
fn sharder(
    options: &mut Options,
    launch: &mut Launch,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<Sharder, ImportError> {
    let launched = accelerate::launched(launch, options, spec, reading)?;
    let asked = |name: &str| options.has(name) || options.under(&format!("{name}."));
    if asked("deepspeed") && options.has("fsdp") {
        let why = "both shard the same weights";
        return Err(options.clash("fsdp", "deepspeed", why));
    }
    let zero = deepspeed::referenced(options, "deepspeed", spec, reading)?;
    let place = options.place("fsdp");
    let full = fsdp::words(options, "fsdp", spec, reading)?;
    let wrapped = options
        .value("fsdp_transformer_layer_cls_to_wrap")
        .is_some();
    let mut table = options.take_table("fsdp_config");
    let path = options.text("fsdp_config")?;
    if let (None, true, Some(path)) = (&table, full, path) {
        let instead = "FSDP with its defaults";
        table = reading.options(&place, "fsdp_config", &path, instead)?;
    }
    match table {
        Some(table) if full => fsdp::table(table, spec, reading)?,
        // Transformers fills the table in even where FSDP is off.
        _ => (),
    }
    let sharder = if zero {
        Sharder::Deepspeed
    } else if full || wrapped {
        Sharder::Fsdp
    } else {
        launched
    };
    // Plain data parallelism: every GPU holds everything.
    spec.layout.sharding.get_or_insert(match sharder {
        Sharder::Fsdp => Sharding::Zero3,
        Sharder::Nobody | Sharder::Deepspeed => Sharding::None,
    });
    Ok(sharder)
}

/// In which numbers: what weights are loaded as, what is computed with, and who keeps a copy.
fn precision(
    options: &mut Options,
    launch: &Launch,
    spec: &TrainingSpec,
    defaults: &Defaults,
    sharder: Sharder,
) -> Result<Precision, ImportError> {
    options.alias(&["torch_dtype"], "dtype");
    let weights16 = match options.text("dtype")?.as_deref() {
        None => defaults.weights16,
        // What the files hold, which is 16 bits for every model of the catalog.
        Some("auto" | "bfloat16" | "bf16" | "torch.bfloat16") => true,
        Some("float16" | "fp16" | "torch.float16" | "half") => true,
        Some("float32" | "fp32" | "torch.float32" | "float") => false,
        Some(_) => {
            let expected = "one of `auto`, `bfloat16`, `float16`, `float32`";
            return Err(options.bad("dtype", expected));
        }
    };
    let fp16 = options.on("fp16")?;
    let bf16 = match options.flag("bf16")? {
        Some(bf16) => bf16,
        // The launcher's word counts where the trainer says nothing.
        None => {
            !fp16
                && (defaults.bf16
                    || matches!(launch.mixed.as_deref(), Some("bf16" | "fp16" | "fp8")))
        }
    };
    if bf16 && fp16 {
        let why = "numbers are computed with in one of the two formats";
        return Err(options.clash("bf16", "fp16", why));
    }
    Ok(kept(weights16, bf16 || fp16, spec, sharder))
}

/// What is kept of each weight that is not quantized.
pub(crate) fn kept(
    weights16: bool,
    mixed: bool,
    spec: &TrainingSpec,
    sharder: Sharder,
) -> Precision {
    let full = spec.method == Method::Full;
    match (sharder, mixed) {
        // DeepSpeed casts the model and keeps a copy of what it trains.
        (Sharder::Deepspeed, true) => Precision::Mixed16,
        // accelerate casts what FSDP trains to 32 bits.
        (Sharder::Fsdp, true) if full => Precision::Autocast,
        (_, _) if weights16 => Precision::Pure16,
        (_, true) => Precision::Autocast,
        (_, false) => Precision::Full32,
    }
}

/// `load_in_8bit` and `load_in_4bit`, which exclude each other and full training.
pub(crate) fn quantization(
    options: &mut Options,
    double: &str,
    double_default: bool,
) -> Result<Option<Quantization>, ImportError> {
    let (eight, four) = (options.on("load_in_8bit")?, options.on("load_in_4bit")?);
    if eight && four {
        let why = "frozen weights are stored in one way";
        return Err(options.clash("load_in_8bit", "load_in_4bit", why));
    }
    let double = options.flag(double)?.unwrap_or(double_default);
    Ok(match (four, eight) {
        (true, _) if double => Some(Quantization::Nf4Double),
        (true, _) => Some(Quantization::Nf4),
        (_, true) => Some(Quantization::Int8),
        (false, false) => None,
    })
}

/// `TrainingArguments` that change what a run needs and are not followed.
pub(crate) const MATTERS: &[(&str, &str)] = &[
    (
        "auto_find_batch_size",
        "the batch is halved until it fits; planned as stated",
    ),
    (
        "neftune_noise_alpha",
        "noise on embeddings keeps a copy of them; planned without",
    ),
    (
        "optim_target_modules",
        "which weights GaLore or APOLLO projects; planned for all matrices of blocks",
    ),
    (
        "parallelism_config",
        "how GPUs are split; planned as data parallel",
    ),
    (
        "parallelism_config.*",
        "how GPUs are split; planned as data parallel",
    ),
    (
        "context_parallel_size>1",
        "sequences are split over GPUs; planned whole",
    ),
    ("tp_size>1", "matrices are split over GPUs; planned whole"),
    (
        "device_map",
        "layers are spread over GPUs; planned as data parallel",
    ),
];

/// `TrainingArguments` that do not.
pub(crate) const SILENT: &str = "\
    accelerator_config* adafactor adam_* average_tokens_across_devices batch_eval_metrics \
    bf16_full_eval cache_dir dataloader_* data_seed dataset dataset_* datasets* ddp_* debug \
    disable_tqdm dispatch_batches do_* eval_* evaluation_strategy fp16_* fsdp_* full_determinism \
    gradient_checkpointing_kwargs* greater_is_better group_by_length half_precision_backend \
    hub_* ignore_data_skip include_* jit_mode_eval label_* learning_rate length_column_name \
    liger_kernel_config* load_best_model_at_end local_rank log_* logging_* lr_scheduler \
    lr_scheduler_* max_eval_samples max_grad_norm metric_for_best_model model_revision \
    mp_parameters _n_gpu no_cuda optim_args* output_dir overwrite_output_dir past_index \
    per_device_eval_batch_size per_gpu_eval_batch_size prediction_loss_only \
    predict_with_generate project push_to_hub* ray_scope remove_unused_columns report_to \
    restore_callback_states_from_checkpoint resume_from_checkpoint run_name save_* seed \
    skip_memory_metrics sortish_sampler split_batches tf32 torch_compile_* torchdynamo \
    torch_empty_cache_steps tpu_* trackio_* trust_remote_code use_*cpu use_cpu \
    use_legacy_prediction_loop warmup_* weight_decay";
