//! The formats, and how each is told from the others by what stands in it.

use std::fmt;
use std::str::FromStr;

use crate::error::{ImportError, Problem};
use crate::options::Options;

/// What a training config is written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Axolotl's YAML.
    Axolotl,
    /// LLaMA-Factory's YAML, JSON or command line.
    LlamaFactory,
    /// torchtune's YAML, or `tune run`.
    Torchtune,
    /// verl's YAML or Hydra overrides.
    Verl,
    /// OpenRLHF's command line.
    OpenRlhf,
    /// Megatron-LM's arguments.
    Megatron,
    /// A Python script with Unsloth.
    Unsloth,
    /// TRL's YAML, JSON, command line, or a Python script.
    Trl,
    /// Transformers' arguments as YAML, JSON or command line.
    Transformers,
    /// DeepSpeed's JSON.
    Deepspeed,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Axolotl,
        Self::LlamaFactory,
        Self::Torchtune,
        Self::Verl,
        Self::OpenRlhf,
        Self::Megatron,
        Self::Unsloth,
        Self::Trl,
        Self::Transformers,
        Self::Deepspeed,
    ];

    /// The name that `--format` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Axolotl => "axolotl",
            Self::LlamaFactory => "llama-factory",
            Self::Torchtune => "torchtune",
            Self::Verl => "verl",
            Self::OpenRlhf => "openrlhf",
            Self::Megatron => "megatron",
            Self::Unsloth => "unsloth",
            Self::Trl => "trl",
            Self::Transformers => "transformers",
            Self::Deepspeed => "deepspeed",
        }
    }

    /// What it is told by.
    #[must_use]
    pub const fn recognized_by(self) -> &'static str {
        match self {
            Self::Axolotl => "`base_model` beside `micro_batch_size`, `sequence_len` or `adapter`",
            Self::LlamaFactory => {
                "`finetuning_type`, `stage` or `cutoff_len`, or `llamafactory-cli`"
            }
            Self::Torchtune => "`_component_`, or `tune run`",
            Self::Verl => "`actor_rollout_ref`, or `verl.trainer`",
            Self::OpenRlhf => "`openrlhf.cli`",
            Self::Megatron => {
                "`--tensor-model-parallel-size` or `--num-layers` with `--hidden-size`"
            }
            Self::Unsloth => "a Python script that imports `unsloth`",
            Self::Trl => {
                "`trl`, its scripts and settings, or a Python script with `SFTConfig` or the like"
            }
            Self::Transformers => "`per_device_train_batch_size`",
            Self::Deepspeed => "`zero_optimization` or `train_micro_batch_size_per_gpu`",
        }
    }

    /// Names that only this format has among its options; a table counts by the names in it.
    const fn own(self) -> &'static [&'static str] {
        match self {
            Self::Axolotl => &[
                "base_model",
                "micro_batch_size",
                "sequence_len",
                "adapter",
                "sample_packing",
                "num_epochs",
                "lora_target_linear",
            ],
            Self::LlamaFactory => &[
                "finetuning_type",
                "stage",
                "cutoff_len",
                "template",
                "dataset_dir",
                "lora_target",
                "quantization_bit",
                "pref_loss",
                "flash_attn",
            ],
            Self::Torchtune => &[
                "model._component_",
                "optimizer._component_",
                "tokenizer._component_",
                "loss._component_",
                "checkpointer._component_",
                "dataset._component_",
            ],
            Self::Verl => &[
                "actor_rollout_ref.model.path",
                "actor_rollout_ref.actor.strategy",
                "actor_rollout_ref.actor.ppo_mini_batch_size",
                "actor_rollout_ref.rollout.n",
                "algorithm.adv_estimator",
                "trainer.n_gpus_per_node",
                "model.partial_pretrain",
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
            ],
            Self::OpenRlhf => &[
                "pretrain",
                "micro_train_batch_size",
                "actor_num_gpus_per_node",
                "rollout_batch_size",
                "vllm_num_engines",
                "zero_stage",
                "max_epochs",
                "micro_rollout_batch_size",
            ],
            Self::Megatron => &[
                "tensor_model_parallel_size",
                "num_layers",
                "hidden_size",
                "num_attention_heads",
                "seq_length",
                "global_batch_size",
                "train_iters",
                "pipeline_model_parallel_size",
            ],
            Self::Unsloth => &[],
            Self::Trl => &[
                "use_peft",
                "num_generations",
                "max_completion_length",
                "assistant_only_loss",
                "packing",
                "max_length",
                "dataset_name",
                "use_vllm",
            ],
            Self::Transformers => &[
                "per_device_train_batch_size",
                "num_train_epochs",
                "gradient_accumulation_steps",
                "learning_rate",
                "model_name_or_path",
                "output_dir",
                "optim",
                "gradient_checkpointing",
            ],
            Self::Deepspeed => &[
                "zero_optimization.stage",
                "train_micro_batch_size_per_gpu",
                "train_batch_size",
                "bf16.enabled",
                "fp16.enabled",
                "zero_allow_untested_optimizer",
                "gradient_clipping",
                "optimizer.type",
            ],
        }
    }

    /// Names of programs that read this format.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Axolotl => &["axolotl"],
            Self::LlamaFactory => &["llamafactory", "llmtuner"],
            Self::Torchtune => &["tune "],
            Self::Verl => &["verl."],
            Self::OpenRlhf => &["openrlhf"],
            Self::Megatron => &["pretrain_gpt", "pretrain_llama", "pretrain_mamba"],
            Self::Trl => &["trl ", "trl/"],
            Self::Unsloth | Self::Transformers | Self::Deepspeed => &[],
        }
    }
}

/// The format of a Python script by what it imports.
pub(crate) fn of_script(text: &str) -> Option<Format> {
    let imports = |module: &str| {
        text.lines().map(str::trim_start).any(|line| {
            let rest = line
                .strip_prefix("from ")
                .or_else(|| line.strip_prefix("import "));
            rest.is_some_and(|rest| rest.starts_with(module))
        })
    };
    if imports("unsloth") {
        return Some(Format::Unsloth);
    }
    (imports("trl") || imports("transformers")).then_some(Format::Trl)
}

/// The format that a program reads.
pub(crate) fn of_program(program: &str) -> Option<Format> {
    let reads = |format: &Format| format.programs().iter().any(|word| program.contains(word));
    Format::ALL.into_iter().find(reads)
}

/// The format with the most names of its own among the options.
pub(crate) fn of_options(options: &Options) -> Option<Format> {
    let score = |format: Format| format.own().iter().filter(|name| options.has(name)).count();
    // TRL's and LLaMA-Factory's configs hold Transformers' names as well.
    let on_top = score(Format::Transformers);
    let mut best = (0, None);
    for format in Format::ALL {
        let own = score(format);
        let all = match format {
            Format::Trl | Format::LlamaFactory if own > 0 => own + on_top,
            _ => own,
        };
        if all > best.0 {
            best = (all, Some(format));
        }
    }
    best.1
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = ImportError;

    fn from_str(text: &str) -> Result<Self, ImportError> {
        let plain = text.to_ascii_lowercase().replace(['-', '_', ' '], "");
        let named = |format: &Self| format.name().replace('-', "") == plain;
        if let Some(format) = Self::ALL.into_iter().find(named) {
            return Ok(format);
        }
        let distance = |format: &Self| strsim::damerau_levenshtein(format.name(), &plain);
        let nearest = Self::ALL.into_iter().min_by_key(distance);
        Err(Problem::UnknownFormat {
            text: text.to_owned(),
            nearest: nearest.unwrap_or(Self::Axolotl),
        }
        .into())
    }
}
