//! verl: Hydra overrides on a command line, and the YAML that they override. Names and defaults as in its trainer configs of 0.5.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Method, Model, Module, Optimizer, Place as At,
    Precision, Recompute, Rollout, Sharding, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft::{self, LoraNames};
use crate::reading::Reading;

const ACTOR: &str = "actor_rollout_ref.actor";

const MATTERS: &[(&str, &str)] = &[
    (
        "actor_rollout_ref.actor.megatron.grad_offload",
        "gradients are on the host while answers are made; planned staying",
    ),
    (
        "actor_rollout_ref.actor.megatron.override_transformer_config.*",
        "a setting of Megatron; planned as usual",
    ),
    (
        "actor_rollout_ref.rollout.multi_turn.enable",
        "answers in several turns; planned in one",
    ),
    (
        "actor_rollout_ref.rollout.quantization",
        "answers are made in 8 bits; planned in 16",
    ),
    (
        "actor_rollout_ref.model.path_lora",
        "adapters that are there already",
    ),
    (
        "algorithm.filter_groups.enable",
        "more answers are made than trained on; planned as stated",
    ),
    (
        "critic.model.path",
        "a critic of another model; planned of the actor's size",
    ),
    (
        "trainer.critic_warmup",
        "only the critic is trained at first; planned with both",
    ),
];

const SILENT: &str = "\
    _* actor_rollout_ref.* algorithm.* async_training.* checkpoint.* config_name config_path \
    critic.* custom_reward_function.* data.* defaults engine* global_profiler.* hydra* model.* \
    optim.* profiler.* ray_* reward_manager* reward_model.* rollout.* trainer.* transfer_queue* \
    ulysses_* use_remove_padding";

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
        framework: Some(Framework::Verl),
        attention: Some(AttentionKernel::Flash),
        optimizer: Some(Optimizer::AdamW),
        ..TrainingSpec::default()
    };
    let nodes = options.count("trainer.nnodes")?;
    let per_node = options.count("trainer.n_gpus_per_node")?;
    let sft = !options.under("actor_rollout_ref.") && options.under("model.partial_pretrain")
        || launch.program.contains("sft");
    if sft {
        spec.layout.gpus = launch.gpus;
        supervised(&mut options, &mut spec, reading)?;
    } else {
        let gpus = nodes.unwrap_or(1).saturating_mul(per_node.unwrap_or(8));
        spec.layout.gpus = Some(gpus);
        reinforced(&mut options, &mut spec, reading)?;
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn reinforced(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    const ESTIMATORS: [(&str, Task); 11] = [
        ("gae", Task::Ppo),
        ("grpo", Task::Grpo),
        ("grpo_passk", Task::Grpo),
        ("gdpo", Task::Grpo),
        ("reinforce_plus_plus", Task::Grpo),
        ("reinforce_plus_plus_baseline", Task::Grpo),
        ("remax", Task::Grpo),
        ("rloo", Task::Grpo),
        ("opo", Task::Grpo),
        ("gpg", Task::Grpo),
        ("optimal_token_baseline", Task::Grpo),
    ];
    let path = options.text("actor_rollout_ref.model.path")?;
    spec.model = Model::Named(path.unwrap_or_default());
    let estimator = options.choice("algorithm.adv_estimator", &ESTIMATORS)?;
    spec.task = estimator.unwrap_or(Task::Ppo);
    lora(options, "actor_rollout_ref.model", spec, reading)?;
    let answers = options.count("actor_rollout_ref.rollout.n")?.unwrap_or(1);
    batch(options, spec, answers)?;
    let checkpointing = options.flag("actor_rollout_ref.model.enable_gradient_checkpointing")?;
    spec.recompute = Some(match checkpointing {
        Some(false) => Recompute::None,
        _ => Recompute::Full,
    });
    if options.on("actor_rollout_ref.model.enable_activation_offload")? {
        spec.offload.activations = At::Cpu;
    }
    spec.loss = Some(
        if options.on("actor_rollout_ref.model.use_fused_kernels")? {
            LossKernel::FusedLinear
        } else {
            LossKernel::Plain
        },
    );
    let strategy = options.choice(
        &format!("{ACTOR}.strategy"),
        &[
            ("fsdp", false),
            ("fsdp2", false),
            ("megatron", true),
            ("veomni", false),
        ],
    )?;
    let megatron = strategy.unwrap_or_else(|| options.under(&format!("{ACTOR}.megatron.")));
    if megatron {
        of_megatron(options, spec)?;
    } else {
        of_fsdp(options, spec)?;
    }
    let engine = if megatron { "megatron" } else { "fsdp_config" };
    rollout(options, spec, answers, engine, reading)
}

fn lora(
    options: &mut Options,
    table: &str,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let rank = options.count_if_positive(&format!("{table}.lora_rank"))?;
    let targets = format!("{table}.target_modules");
    if rank.is_none() {
        options.value(&targets);
        return Ok(());
    }
    // The option's names are long ones; the adapter's reader takes short ones.
    let mut inner = options.only(&format!("{table}."));
    let prefix = format!("{table}.");
    inner.rename(|name| name.strip_prefix(&prefix).unwrap_or(name).to_owned());
    let names = LoraNames {
        rank: "lora_rank",
        dropout: "lora_dropout",
        targets: "target_modules",
        whole: "modules_to_save",
        dora: "use_dora",
    };
    let mut lora = peft::lora(&mut inner, 8, &names, reading)?;
    if lora.targets.is_empty() {
        lora.targets.extend(Linear::BLOCK);
    }
    spec.method = Method::Lora(lora);
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec, answers: u64) -> Result<(), ImportError> {
    let prompts = options.count("data.train_batch_size")?.unwrap_or(1024);
    let mini = options
        .count(&format!("{ACTOR}.ppo_mini_batch_size"))?
        .unwrap_or(256);
    if mini > prompts {
        let why = format!("{mini} prompts of {prompts} cannot be trained on at once");
        let name = format!("{ACTOR}.ppo_mini_batch_size");
        return Err(options.clash(&name, "data.train_batch_size", &why));
    }
    // Counted in prompts; each has all its answers in one update.
    spec.batch.global = Some(mini.saturating_mul(answers));
    let prompt = options.count("data.max_prompt_length")?.unwrap_or(512);
    let answer = options.count("data.max_response_length")?.unwrap_or(512);
    let longest = prompt.saturating_add(answer);
    spec.batch.sequence_length = Some(longest);
    spec.batch.packing = Some(options.on("actor_rollout_ref.model.use_remove_padding")?);
    let micro = options.count(&format!("{ACTOR}.ppo_micro_batch_size_per_gpu"))?;
    let tokens = options.count(&format!("{ACTOR}.ppo_max_token_len_per_gpu"))?;
    let dynamic = options.on(&format!("{ACTOR}.use_dynamic_bsz"))?;
    spec.batch.micro = if dynamic {
        // Rows are filled up to so many tokens: that many of the longest sequences at once.
        Some((tokens.unwrap_or(16_384) / longest).max(1))
    } else if let Some(all) = options.count(&format!("{ACTOR}.ppo_micro_batch_size"))? {
        // The old option counts over all GPUs.
        Some((all / spec.layout.gpus.unwrap_or(1)).max(1))
    } else {
        micro
    };
    spec.length.steps = options.count("trainer.total_training_steps")?;
    spec.length.epochs_permille = Some(options.permille("trainer.total_epochs")?.unwrap_or(30_000));
    Ok(())
}

fn of_fsdp(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let table = format!("{ACTOR}.fsdp_config");
    spec.layout.sharding = Some(
        match options.flag(&format!("{table}.reshard_after_forward"))? {
            Some(false) => Sharding::Zero2,
            _ => Sharding::Zero3,
        },
    );
    spec.layout.shard_group = options.count_if_positive(&format!("{table}.fsdp_size"))?;
    if options.on(&format!("{table}.offload_policy"))? {
        spec.offload.parameters = At::Cpu;
        spec.offload.optimizer = At::Cpu;
    }
    let typed = numbers(options, &format!("{table}.model_dtype"))?;
    // The actor's weights are kept in 32 bits and computed with in 16.
    spec.precision = Some(match (&spec.method, typed) {
        (_, Some(precision)) => precision,
        (Method::Full, None) => Precision::Autocast,
        (_, None) => Precision::Pure16,
    });
    spec.layout.cp = options.count(&format!("{ACTOR}.ulysses_sequence_parallel_size"))?;
    Ok(())
}

fn numbers(options: &mut Options, name: &str) -> Result<Option<Precision>, ImportError> {
    let names = [
        ("fp32", Precision::Autocast),
        ("float32", Precision::Autocast),
        ("bf16", Precision::Pure16),
        ("bfloat16", Precision::Pure16),
        ("fp16", Precision::Pure16),
    ];
    options.choice(name, &names)
}

fn of_megatron(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let table = format!("{ACTOR}.megatron");
    let mut size = |name: &str| options.count(&format!("{table}.{name}"));
    spec.layout.tp = Some(size("tensor_model_parallel_size")?.unwrap_or(1));
    spec.layout.pp = Some(size("pipeline_model_parallel_size")?.unwrap_or(1));
    spec.layout.chunks = size("virtual_pipeline_model_parallel_size")?;
    spec.layout.cp = Some(size("context_parallel_size")?.unwrap_or(1));
    spec.layout.ep = Some(size("expert_model_parallel_size")?.unwrap_or(1));
    spec.layout.expert_tp = size("expert_tensor_parallel_size")?;
    let parallel = options.flag(&format!("{table}.sequence_parallel"))?;
    spec.layout.sequence_parallel = Some(parallel.unwrap_or(true));
    let distributed = options.flag(&format!("{table}.use_distributed_optimizer"))?;
    spec.layout.sharding = Some(match distributed {
        Some(false) => Sharding::None,
        _ => Sharding::Zero1,
    });
    spec.precision = Some(Precision::Mixed16);
    spec.optimizer = Some(Optimizer::AdamWFused);
    // Megatron's own settings say what is computed again; the flag of the model does not reach it.
    let settings = format!("{table}.override_transformer_config");
    let granularity = options.choice(
        &format!("{settings}.recompute_granularity"),
        &[
            ("full", Recompute::Full),
            ("selective", Recompute::Modules(vec![Module::CoreAttn])),
        ],
    )?;
    spec.recompute = Some(granularity.unwrap_or(Recompute::None));
    Ok(())
}

fn rollout(
    options: &mut Options,
    spec: &mut TrainingSpec,
    answers: u64,
    engine: &str,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let weights = options.on(&format!("{ACTOR}.{engine}.param_offload"))?;
    let states = options.on(&format!("{ACTOR}.{engine}.optimizer_offload"))?;
    if weights != states {
        let part = if weights { "param" } else { "optimizer" };
        let effect =
            "only a part of what is trained is on the host while answers are made; planned staying";
        let name = format!("{ACTOR}.{engine}.{part}_offload");
        let warning = options.not_understood(&name, effect);
        reading.warnings.push(warning);
    }
    let scoring = options.on(&format!("actor_rollout_ref.ref.{engine}.param_offload"))?;
    let table = "actor_rollout_ref.rollout";
    let in_loss = options.on(&format!("{ACTOR}.use_kl_loss"))?;
    let in_reward = options.on("algorithm.use_kl_in_reward")?;
    let memory = options.permille(&format!("{table}.gpu_memory_utilization"))?;
    if memory.is_some_and(|share| share > 1000) {
        let name = format!("{table}.gpu_memory_utilization");
        return Err(options.bad(&name, "a share of the GPU's memory, at most 1"));
    }
    // A recipe that generates one step ahead has GPUs for that alone.
    let hybrid = options
        .flag("actor_rollout_ref.hybrid_engine")?
        .unwrap_or(true);
    let pool = |options: &mut Options, table: &str| -> Result<Option<u64>, ImportError> {
        let nodes = options.count_if_positive(&format!("{table}.nnodes"))?;
        let each = options.count_if_positive(&format!("{table}.n_gpus_per_node"))?;
        Ok(each.map(|each| each.saturating_mul(nodes.unwrap_or(1))))
    };
    let generators = pool(options, "rollout")?.filter(|_| !hybrid);
    let judged = options.on("reward_model.enable")?;
    let own = options.on("reward_model.enable_resource_pool")?;
    let reward = pool(options, "reward_model")?.filter(|_| judged && own);
    spec.rollout = Some(Rollout {
        prompts: Some(options.count("data.train_batch_size")?.unwrap_or(1024)),
        answers: Some(answers),
        prompt_tokens: Some(options.count("data.max_prompt_length")?.unwrap_or(512)),
        answer_tokens: None,
        answer_tokens_max: Some(options.count("data.max_response_length")?.unwrap_or(512)),
        tp: Some(
            options
                .count(&format!("{table}.tensor_model_parallel_size"))?
                .unwrap_or(2),
        ),
        gpus: generators,
        asynchronous: generators.is_some(),
        reference: Some(in_loss || in_reward),
        reward: Some(judged),
        critic_gpus: None,
        reference_gpus: None,
        reward_gpus: reward,
        memory_permille: Some(memory.unwrap_or(500)),
        gives_back: Some(
            options
                .flag(&format!("{table}.free_cache_engine"))?
                .unwrap_or(true),
        ),
        trained_offload: Some(weights && states),
        scoring_offload: Some(scoring),
        passes: Some(options.count(&format!("{ACTOR}.ppo_epochs"))?.unwrap_or(1)),
    });
    Ok(())
}

/// The trainer for supervised fine-tuning, which has options of its own.
fn supervised(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    options.alias(&["model.path"], "model.partial_pretrain");
    let path = options.text("model.partial_pretrain")?;
    spec.model = Model::Named(path.unwrap_or_default());
    spec.task = Task::Sft;
    lora(options, "model", spec, reading)?;
    let micro = options.count("data.micro_batch_size_per_gpu")?;
    spec.batch.micro = Some(micro.unwrap_or(4));
    spec.batch.global = Some(options.count("data.train_batch_size")?.unwrap_or(256));
    spec.batch.sequence_length = Some(options.count("data.max_length")?.unwrap_or(1024));
    spec.batch.packing = Some(options.on("use_remove_padding")?);
    spec.layout.sharding = Some(Sharding::Zero3);
    spec.layout.cp = options.count("ulysses_sequence_parallel_size")?;
    let offload = options.on("model.fsdp_config.cpu_offload")?;
    if options.on("model.fsdp_config.offload_params")? || offload {
        spec.offload.parameters = At::Cpu;
        spec.offload.optimizer = At::Cpu;
    }
    let typed = numbers(options, "model.fsdp_config.model_dtype")?;
    spec.precision = Some(typed.unwrap_or(Precision::Autocast));
    let checkpointing = options.on("model.enable_gradient_checkpointing")?;
    spec.recompute = Some(if checkpointing {
        Recompute::Full
    } else {
        Recompute::None
    });
    spec.loss = Some(LossKernel::Plain);
    spec.length.steps = options.count("trainer.total_training_steps")?;
    spec.length.epochs_permille = Some(options.permille("trainer.total_epochs")?.unwrap_or(4000));
    Ok(())
}
