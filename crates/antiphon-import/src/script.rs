//! Python scripts that train with Unsloth, or with TRL and Transformers alone: the arguments of the calls that load the model, put
//! adapters on it, and hold the trainer's settings. Names and defaults of Unsloth 2025.9.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Method, Model, Place as At, Precision, Quantization,
    Recompute, Rollout, Sharding, Task, TrainingSpec,
};
use serde_json::Value;

use crate::error::ImportError;
use crate::format::Format;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft::{self, LoraNames};
use crate::place::Place;
use crate::python::{self, Argument, Call};
use crate::reading::Reading;
use crate::transformers::{self, Defaults};
use crate::trl;

const MATTERS: &[(&str, &str)] = &[
    (
        "fast_inference",
        "answers are made by vLLM in the same process",
    ),
    ("device_map", "layers are spread over GPUs; planned on one"),
    (
        "use_exact_model_name",
        "which stored weights are taken; planned as named",
    ),
    (
        "layers_to_transform",
        "adapters in some layers; planned in all",
    ),
    (
        "finetune_*",
        "parts of a model for pictures; planned with its language model alone",
    ),
    (
        "float32_mixed_precision",
        "weights in 32 bits; planned in 16",
    ),
    (
        "offload_embedding",
        "the embedding is on the host; planned on the GPU",
    ),
];

const SILENT: &str = "\
    alpha assistant_only_loss beta bias bnb_4bit_* cache_dir chat_template* completion_only_loss \
    config disable_log_stats embedding_learning_rate eos_token epsilon* f_* fix_tokenizer \
    generation_kwargs* importance_sampling_level init_lora_weights label_* layers_pattern \
    load_in_16bit loftq_config* lora_alpha loss_type mask_truncated_completions max_lora_rank \
    max_prompt_length min_p model_init_kwargs* name pad_* padding_* precompute_* qat_scheme \
    quantization_config random_state ref_model resize_model_vocab revision reward_* rope_scaling \
    scale_rewards task_type temperature temporary_location token tokenizer* top_* \
    truncation_mode trust_remote_code unsloth_* use_cache use_rslora vllm_*";

const KNOWN: Known = Known {
    matters: &[MATTERS, transformers::MATTERS],
    silent: &[SILENT, transformers::SILENT],
};

/// Settings of a trainer, by the class that holds them.
const SETTINGS: [(&str, Task); 12] = [
    ("SFTConfig", Task::Sft),
    ("TrainingArguments", Task::Sft),
    ("UnslothTrainingArguments", Task::Sft),
    ("Seq2SeqTrainingArguments", Task::Sft),
    ("DPOConfig", Task::Dpo),
    ("ORPOConfig", Task::Orpo),
    ("CPOConfig", Task::Orpo),
    ("KTOConfig", Task::Kto),
    ("RewardConfig", Task::RewardModel),
    ("PPOConfig", Task::Ppo),
    ("GRPOConfig", Task::Grpo),
    ("RLOOConfig", Task::Grpo),
];

/// Trainers, which old scripts give some of the settings.
const TRAINERS: [(&str, Task); 8] = [
    ("SFTTrainer", Task::Sft),
    ("UnslothTrainer", Task::Sft),
    ("DPOTrainer", Task::Dpo),
    ("ORPOTrainer", Task::Orpo),
    ("KTOTrainer", Task::Kto),
    ("RewardTrainer", Task::RewardModel),
    ("PPOTrainer", Task::Ppo),
    ("GRPOTrainer", Task::Grpo),
];

/// The arguments of a script's calls as options, under the names that TRL's own arguments have.
fn options(calls: &[Call], file: &str) -> (Options, Option<Task>) {
    let mut options = Options::new(file);
    let mut task = None;
    let mut loaded = false;
    for call in calls {
        let (owner, name) = call.name.rsplit_once('.').unwrap_or(("", &call.name));
        let of = |table: &[(&str, Task)]| {
            table
                .iter()
                .find(|(class, _)| *class == name)
                .map(|(_, task)| *task)
        };
        if name == "from_pretrained" && owner.contains("Model") && !loaded {
            loaded = true;
            if let Some(first) = call.positional.first() {
                set(&mut options, "model_name_or_path", first, file);
            }
            for (key, argument) in &call.named {
                let key = match key.as_str() {
                    "model_name" | "pretrained_model_name_or_path" => "model_name_or_path",
                    other => other,
                };
                set(&mut options, key, argument, file);
            }
        } else if name == "BitsAndBytesConfig" {
            for (key, argument) in &call.named {
                set(&mut options, key, argument, file);
            }
        } else if name == "LoraConfig" || name == "get_peft_model" {
            let place = call.named.first().map_or(1, |(_, argument)| argument.line);
            options.set("use_peft", Value::Bool(true), Place::new(file, place), true);
            for (key, argument) in &call.named {
                let key = match key.as_str() {
                    "r" => "lora_r",
                    "target_modules" => "lora_target_modules",
                    "modules_to_save" => "lora_modules_to_save",
                    other => other,
                };
                set(&mut options, key, argument, file);
            }
        } else if let Some(found) = of(&SETTINGS) {
            // A trainer tells the task better than the plain arguments it is given.
            task = task.or((name != "TrainingArguments").then_some(found));
            for (key, argument) in &call.named {
                set(&mut options, key, argument, file);
            }
        } else if let Some(found) = of(&TRAINERS) {
            task = Some(found);
            for (key, argument) in &call.named {
                if matches!(key.as_str(), "max_seq_length" | "packing" | "max_length") {
                    set(&mut options, key, argument, file);
                }
            }
        }
    }
    (options, task)
}

fn set(options: &mut Options, name: &str, argument: &Argument, file: &str) {
    let place = Place::new(file, argument.line);
    // `bf16 = is_bfloat16_supported()`: so on every GPU of the catalog.
    let text = argument.value.as_str().unwrap_or_default();
    let asks = ["bfloat16_supported", "bf16_supported", "is_bf16"]
        .iter()
        .any(|word| text.contains(word));
    if !argument.literal && asks {
        options.set(name, Value::Bool(!text.starts_with("not ")), place, true);
        return;
    }
    options.set(name, argument.value.clone(), place, argument.literal);
}

/// A script of Unsloth, or of TRL and Transformers alone.
pub(crate) fn training_of(
    text: &str,
    file: &str,
    format: Format,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let calls = python::calls(text);
    let (options, task) = options(&calls, file);
    if format == Format::Unsloth {
        return unsloth(options, task, reading);
    }
    // The class of the settings names the task as a command would.
    let launch = Launch {
        program: task.map_or_else(String::new, |task| format!("{task:?}").to_ascii_lowercase()),
        ..Launch::default()
    };
    trl::training(options, launch, Framework::Trl, reading)
}

fn unsloth(
    mut options: Options,
    task: Option<Task>,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let mut launch = Launch::default();
    let mut spec = TrainingSpec {
        framework: Some(Framework::Unsloth),
        task: task.unwrap_or(Task::Sft),
        ..TrainingSpec::default()
    };
    let name = options.text("model_name_or_path")?.unwrap_or_default();
    spec.model = Model::Named(name);
    method(&mut options, &mut spec, reading)?;
    let checkpointing = options.value("use_gradient_checkpointing");
    let defaults = Defaults {
        checkpointing: true,
        bf16: true,
        weights16: true,
    };
    transformers::arguments(&mut options, &mut launch, &mut spec, &defaults, reading)?;
    // One GPU, in 16 bits, with its own kernels for attention and loss.
    spec.layout.gpus = Some(1);
    spec.layout.sharding = Some(Sharding::None);
    spec.precision = Some(Precision::Pure16);
    spec.attention = Some(AttentionKernel::Flash);
    spec.loss = Some(LossKernel::FusedLinear);
    match checkpointing {
        Some(Value::Bool(false)) => spec.recompute = Some(Recompute::None),
        Some(Value::Bool(true)) => spec.recompute = Some(Recompute::Full),
        // `"unsloth"`, the default, also moves what blocks hand on to the host.
        _ => {
            spec.recompute = Some(Recompute::Full);
            spec.offload.activations = At::Cpu;
        }
    }
    options.alias(&["max_length"], "max_seq_length");
    spec.batch.sequence_length = Some(options.count("max_seq_length")?.unwrap_or(2048));
    spec.batch.packing = Some(options.on("packing")?);
    if spec.task == Task::Grpo {
        spec.rollout = Some(rollout(&mut options)?);
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn method(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let full = options.on("full_finetuning")?;
    let eight = options.on("load_in_8bit")?;
    let four = options.flag("load_in_4bit")?;
    if eight && four == Some(true) {
        let why = "frozen weights are stored in one way";
        return Err(options.clash("load_in_8bit", "load_in_4bit", why));
    }
    let adapter = options.on("use_peft")?;
    if full || !adapter {
        for name in ["load_in_4bit", "load_in_8bit"] {
            if options.on(name)? {
                let expected = "False: quantized weights are not trained, only adapters on them (`get_peft_model`)";
                return Err(options.bad(name, expected));
            }
        }
        return Ok(());
    }
    let names = LoraNames {
        rank: "lora_r",
        dropout: "lora_dropout",
        targets: "lora_target_modules",
        whole: "lora_modules_to_save",
        dora: "use_dora",
    };
    let mut lora = peft::lora(options, 16, &names, reading)?;
    if lora.targets.is_empty() {
        lora.targets.extend(Linear::BLOCK);
    }
    // Embedding and head among the targets are trained whole.
    let (whole, targets) = lora
        .targets
        .into_iter()
        .partition(|target| matches!(target, Linear::LmHead | Linear::EmbedTokens));
    lora.targets = targets;
    lora.whole.extend::<Vec<Linear>>(whole);
    spec.method = Method::Lora(lora);
    spec.quantization = if eight {
        Some(Quantization::Int8)
    } else {
        // Loaded in 4 bits unless told otherwise.
        four.unwrap_or(true).then_some(Quantization::Nf4Double)
    };
    Ok(())
}

fn rollout(options: &mut Options) -> Result<Rollout, ImportError> {
    let memory = options.permille("gpu_memory_utilization")?;
    let fast = options.on("fast_inference")?;
    let beta = options.number("beta")?;
    Ok(Rollout {
        answers: Some(options.count("num_generations")?.unwrap_or(8)),
        prompt_tokens: options.count("max_prompt_length")?,
        answer_tokens_max: Some(options.count("max_completion_length")?.unwrap_or(256)),
        // With adapters the reference is the base itself.
        reference: Some(beta.unwrap_or(0.001) > 0.0),
        memory_permille: memory.or(fast.then_some(500)),
        passes: Some(options.count("num_iterations")?.unwrap_or(1)),
        ..Rollout::default()
    })
}
