//! torchtune's YAML, whose parts name the Python function that builds them (`_component_`), and `tune run` with overrides. Names as
//! in its recipes of 0.6.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, Lora, LossKernel, Method, Model, Optimizer, Place as At, Precision,
    Quantization, Recompute, Rollout, Sharding, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft;
use crate::reading::Reading;

const MATTERS: &[(&str, &str)] = &[
    ("enable_fp8_training", "matrices in 8 bits; planned in 16"),
    ("fp8_recipe_name", "matrices in 8 bits; planned in 16"),
    (
        "fsdp_reshard_after_forward",
        "weights are kept between passes; planned freed",
    ),
    (
        "quantizer.*",
        "quantization-aware training; planned without",
    ),
    (
        "model.quantize_base_in_*",
        "how frozen weights are stored; planned in 4 bits",
    ),
    ("teacher_model.*", "a teacher model; planned without"),
    (
        "model.use_clip_*",
        "parts of a model for pictures; planned with its language model alone",
    ),
    (
        "ac_mode",
        "which activations are computed again; planned as all",
    ),
    (
        "ac_option",
        "which activations are computed again; planned as all",
    ),
];

const SILENT: &str = "\
    base_model_path checkpointer.* clip_grad_norm collate_fn compile.* _component_ config \
    cudnn_deterministic_mode custom_sharded_layers data_parallel_* dataset.* dataset_val.* \
    device enable_async_checkpointing epochs epsilon experiment_name filename gamma inference.* \
    is_* keep_last_n_checkpoints kl_* lmbda log_* loss.* lr lr_scheduler.* metric_logger.* \
    min_response_length model.* models_dir model_type name nccl* num_warmup_steps optimizer.* \
    orchestration.* output_dir penalise_no_eos policy_* process_group_backend profiler.* prompt* \
    ref_* resume_from_checkpoint reward_and_value_model.* reward_functions* reward_penalty \
    run_val_every_n_steps save_* seed should_load_recipe_state shuffle steps_to_run \
    stop_token_ids temperature tensor_parallel_plan.* tokenizer.* tokenizer_max_seq_len top_k \
    val_* value_* weight_decay whiten_rewards";

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
        framework: Some(Framework::Torchtune),
        attention: Some(AttentionKernel::Flash),
        ..TrainingSpec::default()
    };
    let builder = options.text("model._component_")?.unwrap_or_default();
    let builder = builder.rsplit('.').next().unwrap_or_default().to_owned();
    spec.model = model(&mut options, &builder)?;
    spec.task = task(&mut options, &launch)?;
    method(&mut options, &builder, &mut spec, reading)?;
    batch(&mut options, &mut spec)?;
    let dtype = options.choice(
        "dtype",
        &[
            ("bf16", Precision::Pure16),
            ("fp16", Precision::Pure16),
            ("fp32", Precision::Full32),
        ],
    )?;
    spec.precision = Some(dtype.unwrap_or(Precision::Full32));
    let checkpointing = options.on("enable_activation_checkpointing")?;
    spec.recompute = Some(if checkpointing {
        Recompute::Full
    } else {
        Recompute::None
    });
    if options.on("enable_activation_offloading")? {
        if !checkpointing {
            let other = "enable_activation_checkpointing";
            let why = "what is moved to the host are the inputs of blocks that are computed again";
            return Err(options.clash("enable_activation_offloading", other, why));
        }
        spec.offload.activations = At::Cpu;
    }
    spec.loss = loss(&mut options)?;
    optimizer(&mut options, &mut spec, reading)?;
    spec.compile = Some(match options.value("compile") {
        Some(_) => options.on("compile")?,
        None => options.on("compile.model")?,
    });
    layout(&mut options, &launch, &mut spec)?;
    if matches!(spec.task, Task::Ppo | Task::Grpo) {
        spec.rollout = Some(rollout(&mut options)?);
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

/// The builder names family and size: `lora_llama3_1_8b`, `qwen2_5_7b_base`. The folder of the weights often names the model whole.
fn model(options: &mut Options, builder: &str) -> Result<Model, ImportError> {
    let folder = options
        .text("checkpointer.checkpoint_dir")?
        .unwrap_or_default();
    let folder = folder
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .to_owned();
    let plain = builder
        .trim_start_matches("qlora_")
        .trim_start_matches("lora_");
    if plain.is_empty() {
        return Ok(Model::Named(folder));
    }
    // Only a folder that speaks of the same size is the model's name.
    let folder_agrees = |size| folder.to_ascii_lowercase().contains(size);
    let agrees = plain
        .split('_')
        .find(|part| is_size(part))
        .is_some_and(folder_agrees);
    Ok(Model::Named(if agrees { folder } else { hub_name(plain) }))
}

/// `8b`, `0` of `0_5b`.
fn is_size(part: &str) -> bool {
    part.ends_with('b') && part.starts_with(|c: char| c.is_ascii_digit())
}

/// A builder's name as the hub spells it: `llama3_1_8b` is `llama-3.1-8b`, `qwen2_5_7b_base` is `qwen2.5-7b`.
fn hub_name(builder: &str) -> String {
    let mut parts = builder.split('_');
    let first = parts.next().unwrap_or_default();
    let digits = first
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(first.len());
    let (family, version) = first.split_at(digits);
    let mut numbers: Vec<&str> = Some(version)
        .into_iter()
        .filter(|v| !v.is_empty())
        .collect();
    let mut size = Vec::new();
    for part in parts {
        match part {
            "base" | "instruct" => (),
            part if is_size(part) => size.push(part),
            part if part.chars().all(|c| c.is_ascii_digit()) => numbers.push(part),
            part => size.push(part),
        }
    }
    // `qwen2_5_0_5b`: what stands before half a billion is part of the size.
    let small =
        size.first().filter(|size| **size == "5b").is_some() && numbers.last() == Some(&"0");
    if small {
        numbers.pop();
        size = vec!["0.5b"];
    }
    let between = if family == "qwen" || numbers.is_empty() {
        ""
    } else {
        "-"
    };
    format!("{family}{between}{}-{}", numbers.join("."), size.join("-"))
        .trim_end_matches('-')
        .to_owned()
}

fn task(options: &mut Options, launch: &Launch) -> Result<Task, ImportError> {
    let loss = options.text("loss._component_")?.unwrap_or_default();
    let loss = loss.rsplit('.').next().unwrap_or_default();
    let program = launch.program.as_str();
    let dataset = options.text("dataset._component_")?.unwrap_or_default();
    Ok(match loss {
        "DPOLoss" | "RSOLoss" => Task::Dpo,
        "SimPOLoss" => Task::Orpo,
        "PPOLoss" => Task::Ppo,
        "GRPOLoss" | "GRPOSimpleLoss" | "GRPOCompletionLoss" => Task::Grpo,
        _ if program.contains("dpo") => Task::Dpo,
        _ if program.contains("ppo") => Task::Ppo,
        _ if program.contains("grpo") => Task::Grpo,
        _ if dataset.contains("text_completion") => Task::Pretrain,
        _ => Task::Sft,
    })
}

fn method(
    options: &mut Options,
    builder: &str,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let quantized = builder.starts_with("qlora_") || options.on("model.quantize_base")?;
    let adapter = quantized || builder.starts_with("lora_") || options.has("model.lora_rank");
    if !adapter {
        return Ok(());
    }
    let rank = options.count("model.lora_rank")?.unwrap_or(8);
    let dropout = options.number("model.lora_dropout")?.unwrap_or(0.0);
    let attention = peft::targets(options, "model.lora_attn_modules", reading);
    let mut targets = attention.unwrap_or_else(|| peft::DEFAULT_TARGETS.to_vec());
    if options.on("model.apply_lora_to_mlp")? {
        targets.extend([Linear::GateProj, Linear::UpProj, Linear::DownProj]);
    }
    if options.on("model.apply_lora_to_output")? {
        targets.push(Linear::LmHead);
    }
    spec.method = Method::Lora(Lora {
        rank,
        targets,
        dora: options.on("model.use_dora")?,
        dropout: dropout > 0.0,
        whole: Vec::new(),
    });
    // torchao's NF4 quantizes its scales again.
    spec.quantization = quantized.then_some(Quantization::Nf4Double);
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    spec.batch.micro = options.count("batch_size")?;
    spec.batch.accumulation = Some(options.count("gradient_accumulation_steps")?.unwrap_or(1));
    options.alias(&["dataset.max_seq_len"], "tokenizer.max_seq_len");
    spec.batch.sequence_length = options.count("tokenizer.max_seq_len")?;
    let packed = options.on("dataset.packed")?;
    if packed && spec.batch.sequence_length.is_none() {
        let expected = "false, or `tokenizer.max_seq_len` set: packs have a length";
        return Err(options.bad("dataset.packed", expected));
    }
    spec.batch.packing = Some(packed);
    let per_epoch = options.count("max_steps_per_epoch")?;
    let epochs = options.permille("epochs")?;
    spec.length.epochs_permille = epochs;
    spec.length.steps = per_epoch.map(|steps| steps.saturating_mul(epochs.unwrap_or(1000)) / 1000);
    Ok(())
}

fn loss(options: &mut Options) -> Result<Option<LossKernel>, ImportError> {
    let component = options.text("loss._component_")?.unwrap_or_default();
    let chunks = options.count("loss.num_output_chunks")?.unwrap_or(8);
    Ok(match component.rsplit('.').next().unwrap_or_default() {
        "CEWithChunkedOutputLoss" | "LinearCrossEntropyLoss" => {
            Some(LossKernel::Chunked { chunks })
        }
        "LigerLinearCrossEntropy" => Some(LossKernel::FusedLinear),
        "CrossEntropyLoss" => Some(LossKernel::Plain),
        _ => None,
    })
}

fn optimizer(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let Some(component) = options.text("optimizer._component_")? else {
        return Ok(());
    };
    let fused = options.on("optimizer.fused")?;
    let momentum = options.number("optimizer.momentum")?.unwrap_or(0.0) > 0.0;
    let name = component.rsplit('.').next().unwrap_or_default();
    spec.optimizer = Some(match name {
        "AdamW" | "Adam" if fused => Optimizer::AdamWFused,
        "AdamW" | "Adam" => Optimizer::AdamW,
        "PagedAdamW" | "PagedAdam" | "PagedAdamW32bit" => Optimizer::PagedAdamW,
        "PagedAdamW8bit" => Optimizer::PagedAdamW8bit,
        "AdamW8bit" | "Adam8bit" | "AdamWFp8" => Optimizer::AdamW8bit,
        "AdamW4bit" | "Adam4bit" => Optimizer::AdamW4bit,
        "Adafactor" => Optimizer::Adafactor,
        "Lion" => Optimizer::Lion,
        "Lion8bit" | "PagedLion8bit" => Optimizer::Lion8bit,
        "SGD" if momentum => Optimizer::SgdMomentum,
        "SGD" => Optimizer::Sgd,
        "CPUOffloadOptimizer" => {
            spec.offload.optimizer = At::Cpu;
            Optimizer::AdamWFused
        }
        _ => {
            let effect = "its states; planned as AdamW, with two moments";
            reading
                .warnings
                .push(options.not_understood("optimizer._component_", effect));
            Optimizer::AdamW
        }
    });
    let in_backward = options.on("optimizer_in_bwd")?;
    if in_backward && spec.batch.accumulation.is_some_and(|steps| steps > 1) {
        let why = "gradients are gone after each pass";
        return Err(options.clash("optimizer_in_bwd", "gradient_accumulation_steps", why));
    }
    spec.optimizer_in_backward = Some(in_backward);
    Ok(())
}

/// Distributed recipes shard everything with FSDP2; the others run on one GPU.
fn layout(
    options: &mut Options,
    launch: &Launch,
    spec: &mut TrainingSpec,
) -> Result<(), ImportError> {
    let single = launch.program.contains("single_device")
        || options.file().contains("single_device")
        || options.file().contains("single-device");
    spec.layout.gpus = if single { Some(1) } else { launch.gpus };
    let distributed = launch.program.contains("distributed") || launch.gpus.is_some_and(|n| n > 1);
    if single || distributed {
        spec.layout.sharding = Some(if single {
            Sharding::None
        } else {
            Sharding::Zero3
        });
    }
    if options.on("fsdp_cpu_offload")? {
        spec.layout.sharding = Some(Sharding::Zero3);
        spec.offload.parameters = At::Cpu;
        spec.offload.optimizer = At::Cpu;
    }
    spec.layout.tp = options.count("tensor_parallel_dim")?;
    spec.layout.cp = options.count("context_parallel_dim")?;
    let copies = options.count("data_parallel_replicate_dim")?.unwrap_or(1);
    let shards = options.count_if_positive("data_parallel_shard_dim")?;
    if copies > 1 {
        spec.layout.shard_group = shards.or(launch.gpus.map(|gpus| (gpus / copies).max(1)));
    }
    Ok(())
}

fn rollout(options: &mut Options) -> Result<Rollout, ImportError> {
    options.alias(&["grpo_samples", "grpo_size"], "grpo_samples");
    Ok(Rollout {
        prompts: options.count("forward_batch_size")?,
        answers: options.count("grpo_samples")?,
        answer_tokens_max: options.count("max_generated_tokens")?,
        reference: Some(true),
        passes: options.count("ppo_epochs")?,
        ..Rollout::default()
    })
}

#[cfg(test)]
mod tests {
    use super::hub_name;

    #[test]
    fn builders_are_named_as_on_the_hub() {
        let cases = [
            ("llama3_1_8b", "llama-3.1-8b"),
            ("llama2_70b", "llama-2-70b"),
            ("qwen2_5_7b_base", "qwen2.5-7b"),
            ("qwen2_5_0_5b", "qwen2.5-0.5b"),
            ("qwen3_8b_instruct", "qwen3-8b"),
            ("gemma2_9b", "gemma-2-9b"),
            ("phi3_mini", "phi-3-mini"),
            ("mistral_7b", "mistral-7b"),
        ];
        for (builder, name) in cases {
            assert_eq!(hub_name(builder), name);
        }
    }
}
