//! TRL's and Transformers' arguments, as YAML, JSON, a command line, or calls in a Python script. Names and defaults of TRL 1.x
//! (`SFTConfig`, `DPOConfig`, `GRPOConfig`, `ModelConfig`).

use antiphon_types::training::{
    Framework, LossKernel, Method, Model, Quantization, Rollout, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft::{self, LoraNames};
use crate::reading::Reading;
use crate::transformers::{self, Defaults};

const MATTERS: &[(&str, &str)] = &[
    (
        "lora_target_parameters",
        "adapters at experts; planned without",
    ),
    (
        "steps_per_generation>1",
        "answers are made for several steps at once",
    ),
    (
        "generation_batch_size",
        "how many answers are made at once; planned as one step's",
    ),
    ("teacher_model*", "a teacher model; planned without"),
    ("judge", "a judge model; planned without"),
    ("config_name", "a model made from a config of its own"),
    (
        "config_overrides",
        "sizes of the model are changed; planned as named",
    ),
    (
        "padding_free",
        "a batch is one row without padding; planned padded",
    ),
    ("cast_lm_head_to_fp32", "the head in 32 bits; planned in 16"),
];

const SILENT: &str = "\
    alpha assistant_only_loss bnb_4bit_* chat_template* clip_range* cliprange* \
    completion_only_loss config delta desirable_weight disable_dropout ds3_gather_for_generation \
    eos_token epsilon* f_* force_use_ref_model gamma generation_kwargs* ignore_bias_buffers \
    importance_sampling_level is_* kl_* lam ld_alpha length_* llm_int8_* lora_alpha lora_bias \
    lora_task_type loss_type loss_weights low_cpu_mem_usage mask_truncated_completions \
    max_new_tokens min_p missing_* model_adapter_name model_init_kwargs* model_type name \
    num_completions_to_print num_mini_batches num_sample_generations packing_strategy pad_* \
    preprocessing_* ref_* reference_free repetition_penalty response_length reward_* rpo_alpha \
    scale_rewards shuffle_dataset simpo_gamma stop_token* streaming subset sync_ref_model \
    temperature token tokenizer_* tools top_* train_file truncation_mode undesirable_weight \
    use_auth_token use_fast_tokenizer use_logits_to_keep use_rslora validation_* vf_coef vllm_* \
    whiten_rewards";

const KNOWN: Known = Known {
    matters: &[MATTERS, transformers::MATTERS],
    silent: &[SILENT, transformers::SILENT],
};

/// Names of adapters' options in TRL's `ModelConfig`.
const LORA: LoraNames = LoraNames {
    rank: "lora_r",
    dropout: "lora_dropout",
    targets: "lora_target_modules",
    whole: "lora_modules_to_save",
    dora: "use_dora",
};

/// A config of TRL (`framework`) or of a script on Transformers alone.
pub(crate) fn training(
    mut options: Options,
    mut launch: Launch,
    framework: Framework,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let trl = framework == Framework::Trl;
    let mut spec = TrainingSpec {
        framework: Some(framework),
        ..TrainingSpec::default()
    };
    options.alias(&["model_name", "model", "base_model"], "model_name_or_path");
    spec.model = Model::Named(options.text("model_name_or_path")?.unwrap_or_default());
    spec.task = task(&mut options, &launch, trl, reading)?;
    method(&mut options, &mut spec, trl, reading)?;
    let defaults = Defaults {
        checkpointing: trl,
        bf16: trl,
        // Non-quantized weights are cast to 32 bits before adapters are put beside quantized ones.
        weights16: false,
    };
    transformers::arguments(&mut options, &mut launch, &mut spec, &defaults, reading)?;
    lengths(&mut options, &mut spec, trl)?;
    if matches!(spec.task, Task::Grpo | Task::Ppo) {
        let rollout = rollout(&mut options, &spec, reading)?;
        spec.batch.sequence_length = spec.batch.sequence_length.or(longest(&rollout));
        // Its steps are updates, of which each batch of answers has as many as it is trained on.
        let passes = rollout.passes.unwrap_or(1).max(1);
        spec.length.steps = spec.length.steps.map(|steps| steps.div_ceil(passes));
        spec.rollout = Some(rollout);
    }
    // TRL's own loss has changed between versions: stated, or left to the plan.
    let stated = options.text("loss_type")?.as_deref() == Some("nll");
    if stated || !trl {
        spec.loss.get_or_insert(LossKernel::Plain);
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

/// What it is trained for: the command, the script's name, or an option that only one trainer has.
fn task(
    options: &mut Options,
    launch: &Launch,
    trl: bool,
    reading: &mut Reading<'_>,
) -> Result<Task, ImportError> {
    const WORDS: [(&str, Task); 12] = [
        ("grpo", Task::Grpo),
        ("rloo", Task::Grpo),
        ("gspo", Task::Grpo),
        ("dpo", Task::Dpo),
        ("orpo", Task::Orpo),
        ("cpo", Task::Orpo),
        ("kto", Task::Kto),
        ("ppo", Task::Ppo),
        ("reward", Task::RewardModel),
        ("pretrain", Task::Pretrain),
        ("continued", Task::Pretrain),
        ("sft", Task::Sft),
    ];
    for text in [launch.program.as_str(), options.file()] {
        let text = text.rsplit('/').next().unwrap_or(text).to_ascii_lowercase();
        if text.contains("run_clm") {
            return Ok(Task::Pretrain);
        }
        let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let named = words.find_map(|word| WORDS.iter().find(|(name, _)| *name == word));
        if let Some((_, task)) = named {
            return Ok(*task);
        }
    }
    if options.under("num_generations") || options.under("reward_funcs") {
        return Ok(Task::Grpo);
    }
    if trl && options.has("beta") {
        let warning = options.not_understood("beta", "which trainer it is for; planned as DPO");
        reading.warnings.push(warning);
        return Ok(Task::Dpo);
    }
    let plain = !trl && options.has("block_size");
    Ok(if plain { Task::Pretrain } else { Task::Sft })
}

fn method(
    options: &mut Options,
    spec: &mut TrainingSpec,
    trl: bool,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    options.alias(&["use_lora", "use_peft_lora"], "use_peft");
    options.alias(&["lora_rank"], "lora_r");
    options.alias(&["lora_target", "target_modules"], "lora_target_modules");
    options.alias(
        &["q_lora", "use_4bit", "use_4bit_quantization"],
        "load_in_4bit",
    );
    options.alias(
        &["use_nested_quant", "bnb_4bit_use_double_quant"],
        "use_bnb_nested_quant",
    );
    spec.quantization = transformers::quantization(options, "use_bnb_nested_quant", false)?;
    // TRL wants `use_peft`; scripts on Transformers often only name a rank.
    let stated = options.flag("use_peft")?;
    if stated.unwrap_or(!trl && options.has("lora_r")) {
        let dropout = options.has("lora_dropout");
        let mut lora = peft::lora(options, 16, &LORA, reading)?;
        if lora.targets.is_empty() {
            lora.targets.extend(peft::DEFAULT_TARGETS);
        }
        // `ModelConfig` drops out 5 % where nothing is stated.
        lora.dropout |= trl && !dropout;
        spec.method = Method::Lora(lora);
        return Ok(());
    }
    if spec.quantization.is_some() {
        let name = match spec.quantization {
            Some(Quantization::Int8) => "load_in_8bit",
            _ => "load_in_4bit",
        };
        let expected =
            "false: quantized weights are not trained, only an adapter on them (`use_peft`)";
        return Err(options.bad(name, expected));
    }
    for name in ["lora_r", "lora_target_modules"] {
        if trl && options.has(name) {
            reading.warnings.push(crate::warning::Warning::Overruled {
                place: options.place(name),
                option: options.written(name),
                by: "`use_peft` is not set, so all weights are trained".into(),
            });
        }
        options.value(name);
    }
    for name in ["lora_dropout", "lora_modules_to_save", "use_dora"] {
        options.value(name);
    }
    Ok(())
}

fn lengths(options: &mut Options, spec: &mut TrainingSpec, trl: bool) -> Result<(), ImportError> {
    let names = [
        "max_seq_length",
        "model_max_length",
        "block_size",
        "max_seq_len",
        "cutoff_len",
    ];
    options.alias(&names, "max_length");
    let default = match spec.task {
        // Both parts are cut on their own.
        Task::Grpo | Task::Ppo => None,
        _ if trl => Some(1024),
        _ => None,
    };
    spec.batch.sequence_length = options.count_if_positive("max_length")?.or(default);
    spec.batch.packing = match options.flag("packing")? {
        Some(packing) => Some(packing),
        None if trl => Some(false),
        // `run_clm` cuts all text into blocks.
        None => Some(spec.task == Task::Pretrain),
    };
    Ok(())
}

/// A prompt with its longest answer.
pub(crate) fn longest(rollout: &Rollout) -> Option<u64> {
    Some(
        rollout
            .prompt_tokens?
            .saturating_add(rollout.answer_tokens_max?),
    )
}

fn rollout(
    options: &mut Options,
    spec: &TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<Rollout, ImportError> {
    let grpo = spec.task == Task::Grpo;
    let beta = options.number("beta")?;
    let answers = options.count("num_generations")?;
    options.alias(
        &["response_length", "max_new_tokens"],
        "max_completion_length",
    );
    let longest = options.count("max_completion_length")?;
    let prompt = options.count("max_prompt_length")?;
    let vllm = options.on("use_vllm")?;
    let server = options.text("vllm_mode")?.as_deref() == Some("server");
    let memory = options.permille("vllm_gpu_memory_utilization")?;
    let tp = options.count("vllm_tensor_parallel_size")?;
    // How many GPUs the server has stands in its own command.
    let served = (vllm && server).then(|| tp.unwrap_or(1));
    if served.is_some() {
        let effect = "answers are made by a server, which is started apart; planned with as many GPUs for it as its tensor parallelism";
        let warning = options.not_understood("vllm_mode", effect);
        reading.warnings.push(warning);
    }
    Ok(Rollout {
        gpus: served,
        answers: answers.or(grpo.then_some(8)),
        prompt_tokens: prompt,
        answer_tokens_max: longest.or(Some(if grpo { 256 } else { 53 })),
        tp,
        // At beta 0, which is GRPO's default, no reference model is held.
        reference: Some(!grpo || beta.unwrap_or(0.0) > 0.0),
        memory_permille: if vllm && !server {
            Some(memory.unwrap_or(300))
        } else {
            None
        },
        gives_back: Some(options.on("vllm_enable_sleep_mode")?).filter(|_| vllm && !server),
        passes: Some(if grpo {
            options.count("num_iterations")?.unwrap_or(1)
        } else {
            options.count("num_ppo_epochs")?.unwrap_or(4)
        }),
        ..Rollout::default()
    })
}
