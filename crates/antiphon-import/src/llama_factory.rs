//! LLaMA-Factory's YAML, JSON and command line. Names and defaults as in its arguments of 0.9.4.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Matmul, Method, Model, Optimizer, Place as At,
    Precision, Quantization, Rollout, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft::{self, LoraNames};
use crate::reading::Reading;
use crate::transformers::{self, Defaults};

const MATTERS: &[(&str, &str)] = &[
    (
        "use_llama_pro",
        "only blocks that were added are trained; planned as LoRA or full",
    ),
    (
        "use_badam",
        "a block at a time is updated; planned with all states",
    ),
    ("use_adam_mini", "fewer second moments; planned with all"),
    (
        "mixture_of_depths",
        "tokens skip layers; planned through all",
    ),
    ("shift_attn", "attention in shifted groups; planned whole"),
    (
        "galore_layerwise",
        "gradients are applied layer by layer; planned all at once",
    ),
    (
        "apollo_layerwise",
        "gradients are applied layer by layer; planned all at once",
    ),
    ("resize_vocab", "a larger vocabulary; planned as it is"),
    ("add_tokens", "a larger vocabulary; planned as it is"),
    (
        "use_asft_loss",
        "a reference model beside SFT; planned without",
    ),
    (
        "ref_model_quantization_bit",
        "the reference model is quantized; planned in 16 bits",
    ),
    (
        "reward_model_quantization_bit",
        "the reward model is quantized; planned in 16 bits",
    ),
    (
        "upcast_lmhead_output",
        "logits in 32 bits; planned in 16 with a copy",
    ),
    ("upcast_layernorm", "norms in 32 bits; planned in 16"),
    (
        "freeze_vision_tower",
        "parts of a model for pictures; planned with its language model alone",
    ),
    ("use_megatron", "Megatron trains; planned as Transformers"),
    ("use_mca", "Megatron trains; planned as Transformers"),
    (
        "use_hyper_parallel",
        "another layout; planned as data parallel",
    ),
    ("use_ray", "Ray starts the processes; planned as one job"),
];

const SILENT: &str = "\
    adapter_folder adapter_name_or_path additional_target add_special_tokens apollo_* audio_* \
    badam_* buffer_size compute_accuracy create_new_adapter crop_to_patches dataset_dir \
    default_system dft_alpha disable_shuffling do_sample dpo_label_smoothing \
    early_stopping_steps enable_thinking eval_dataset export_* fp8_* freeze_* galore_* \
    hf_hub_token ignore_pad_token_for_loss image_* infer_* init_special_tokens interleave_probs \
    kto_* ld_alpha length_penalty lora_alpha loraplus_* low_cpu_mem_usage mask_history master_* \
    max_new_tokens max_samples media_dir mix_strategy moe_aux_loss_coef ms_hub_token \
    neat_packing new_special_tokens_config offload_folder om_hub_token overwrite_cache pissa_* \
    placement_strategy plot_loss ppo_* pref_bco_weight pref_beta pref_ftx preprocessing_* \
    print_param_status quantization_device_map ray_* ref_model ref_model_adapters \
    repetition_penalty resources_per_worker* reward_model* rope_scaling sglang_* simpo_gamma \
    skip_special_tokens split_special_tokens streaming swanlab_* temperature template \
    tokenized_path tool_format top_* train_on_prompt use_dft_loss use_fast_tokenizer \
    use_kv_cache use_reentrant_gc use_rslora use_swanlab use_v1_kernels val_size video_* vllm_*";

const KNOWN: Known = Known {
    matters: &[MATTERS, transformers::MATTERS],
    silent: &[SILENT, transformers::SILENT],
};

pub(crate) fn training(
    mut options: Options,
    mut launch: Launch,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let mut spec = TrainingSpec {
        framework: Some(Framework::LlamaFactory),
        ..TrainingSpec::default()
    };
    spec.model = Model::Named(options.text("model_name_or_path")?.unwrap_or_default());
    spec.task = task(&mut options)?;
    method(&mut options, &mut spec, reading)?;
    // It computes activations again unless told not to, and the trainer's own flag does not change that.
    let off = options.on("disable_gradient_checkpointing")?;
    options.value("gradient_checkpointing");
    let defaults = Defaults {
        checkpointing: !off,
        bf16: false,
        weights16: false,
    };
    options.forget_name("gradient_checkpointing");
    transformers::arguments(&mut options, &mut launch, &mut spec, &defaults, reading)?;
    spec.precision = Some(precision(&mut options, &spec)?);
    kernels(&mut options, &mut spec)?;
    optimizer(&mut options, &mut spec)?;
    spec.batch.sequence_length = Some(options.count("cutoff_len")?.unwrap_or(2048));
    // Plain text is packed unless told not to.
    let packing = options.flag("packing")?;
    let neat = options.on("neat_packing")?;
    spec.batch.packing = Some(packing.unwrap_or(neat || spec.task == Task::Pretrain));
    if spec.task == Task::Ppo {
        spec.rollout = Some(Rollout {
            answers: Some(1),
            answer_tokens_max: Some(options.count("max_new_tokens")?.unwrap_or(1024)),
            reference: Some(true),
            passes: Some(options.count("ppo_epochs")?.unwrap_or(4)),
            ..Rollout::default()
        });
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn task(options: &mut Options) -> Result<Task, ImportError> {
    const STAGES: [(&str, Task); 6] = [
        ("pt", Task::Pretrain),
        ("sft", Task::Sft),
        ("rm", Task::RewardModel),
        ("ppo", Task::Ppo),
        ("dpo", Task::Dpo),
        ("kto", Task::Kto),
    ];
    const LOSSES: [(&str, Task); 6] = [
        ("sigmoid", Task::Dpo),
        ("hinge", Task::Dpo),
        ("ipo", Task::Dpo),
        ("kto_pair", Task::Dpo),
        ("orpo", Task::Orpo),
        ("simpo", Task::Orpo),
    ];
    let stage = options.choice("stage", &STAGES)?.unwrap_or(Task::Sft);
    let loss = options.choice("pref_loss", &LOSSES)?.unwrap_or(Task::Dpo);
    Ok(if stage == Task::Dpo { loss } else { stage })
}

fn method(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    const TYPES: [(&str, u8); 4] = [("full", 0), ("lora", 1), ("freeze", 2), ("oft", 3)];
    let kind = options.choice("finetuning_type", &TYPES)?.unwrap_or(1);
    let bits = options.count("quantization_bit")?;
    spec.quantization = match bits {
        None => None,
        Some(4) => quantized(options)?,
        Some(8) => Some(Quantization::Int8),
        Some(_) => return Err(options.bad("quantization_bit", "4 or 8")),
    };
    if spec.quantization.is_some() && kind != 1 && kind != 3 {
        let why = "quantized weights are not trained, only an adapter on them";
        return Err(options.clash("quantization_bit", "finetuning_type", why));
    }
    options.alias(&["lora_rank", "oft_rank"], "lora_rank");
    let names = LoraNames {
        rank: "lora_rank",
        dropout: "lora_dropout",
        targets: "lora_target",
        whole: "additional_target",
        dora: "use_dora",
    };
    let mut lora = peft::lora(options, 8, &names, reading)?;
    if lora.targets.is_empty() {
        lora.targets.extend(Linear::BLOCK);
    }
    match kind {
        0 => (),
        1 => spec.method = Method::Lora(lora),
        2 => {
            let effect = "only some layers are trained; planned with all";
            reading
                .warnings
                .push(options.not_understood("finetuning_type", effect));
        }
        _ => {
            let effect = "orthogonal adapters; planned as LoRA of rank 8";
            reading
                .warnings
                .push(options.not_understood("finetuning_type", effect));
            spec.method = Method::Lora(lora);
        }
    }
    Ok(())
}

fn quantized(options: &mut Options) -> Result<Option<Quantization>, ImportError> {
    const METHODS: [(&str, bool); 8] = [
        ("bnb", false),
        ("bitsandbytes", false),
        ("hqq", true),
        ("eetq", false),
        ("gptq", false),
        ("awq", false),
        ("aqlm", false),
        ("quanto", false),
    ];
    options.choice("quantization_type", &[("nf4", ()), ("fp4", ())])?;
    if options.choice("quantization_method", &METHODS)? == Some(true) {
        return Ok(Some(Quantization::Hqq4));
    }
    Ok(Some(match options.flag("double_quantization")? {
        Some(false) => Quantization::Nf4,
        _ => Quantization::Nf4Double,
    }))
}

/// Weights are loaded in the format that is computed in; what is trained is cast to 32 bits, unless DeepSpeed or FSDP does that or
/// `pure_bf16` forbids it.
fn precision(options: &mut Options, spec: &TrainingSpec) -> Result<Precision, ImportError> {
    let pure = options.on("pure_bf16")?;
    let computed = spec.precision.unwrap_or(Precision::Full32);
    let lora = spec.method != Method::Full;
    Ok(match computed {
        _ if pure => Precision::Pure16,
        Precision::Autocast if lora => Precision::Pure16,
        other => other,
    })
}

fn kernels(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    const ATTENTION: [(&str, AttentionKernel); 5] = [
        ("auto", AttentionKernel::Flash),
        ("fa2", AttentionKernel::Flash),
        ("fa3", AttentionKernel::Flash),
        ("sdpa", AttentionKernel::Flash),
        ("disabled", AttentionKernel::Eager),
    ];
    if let Some(kernel) = options.choice("flash_attn", &ATTENTION)? {
        spec.attention = Some(kernel);
    }
    if options.on("enable_liger_kernel")? {
        spec.loss = Some(LossKernel::FusedLinear);
    }
    spec.loss.get_or_insert(LossKernel::Plain);
    if options.on("use_unsloth")? {
        spec.framework = Some(Framework::Unsloth);
        spec.offload.activations = At::Cpu;
        spec.loss = Some(LossKernel::FusedLinear);
    }
    if options.on("use_unsloth_gc")? {
        spec.offload.activations = At::Cpu;
    }
    if options.on("fp8")? {
        spec.matmul = Some(Matmul::Fp8Tensor);
    }
    Ok(())
}

fn optimizer(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let galore = options.on("use_galore")?;
    let apollo = options.on("use_apollo")?;
    if galore && apollo {
        return Err(options.clash(
            "use_galore",
            "use_apollo",
            "one optimizer updates the weights",
        ));
    }
    let rank = |found: Option<u64>| found.unwrap_or(16);
    if galore {
        let rank = rank(options.count("galore_rank")?);
        spec.optimizer = Some(Optimizer::Galore { rank });
    } else if apollo {
        let rank = rank(options.count("apollo_rank")?);
        spec.optimizer = Some(Optimizer::Apollo { rank });
    } else if options.on("use_muon")? {
        spec.optimizer = Some(Optimizer::Muon);
    }
    Ok(())
}
