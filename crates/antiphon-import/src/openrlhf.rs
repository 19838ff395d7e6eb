//! OpenRLHF's command lines. Names and defaults as in its commands of 0.8.

use antiphon_types::model::Linear;
use antiphon_types::training::{
    AttentionKernel, Framework, LossKernel, Method, Model, Optimizer, Place as At, Precision,
    Quantization, Recompute, Rollout, Sharding, Task, TrainingSpec,
};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::peft::{self, LoraNames};
use crate::reading::Reading;
use crate::trl;

const MATTERS: &[(&str, &str)] = &[
    (
        "use_dynamic_batch",
        "batches are made by tokens; planned with `micro_train_batch_size` sequences",
    ),
    (
        "zpg>1",
        "a second copy of the weights in each node; planned without",
    ),
    (
        "enable_ema",
        "a moving average of the weights; planned without",
    ),
    ("deepcompile", "DeepCompile; planned without"),
    (
        "freezing_actor_steps",
        "only the critic is trained at first; planned with both",
    ),
    (
        "grad_accum_dtype",
        "gradients are added up in other numbers; planned in 32 bits",
    ),
    (
        "critic_pretrain",
        "a critic of another model; planned of the actor's size",
    ),
    (
        "agent_func_path",
        "answers in several turns; planned in one",
    ),
    (
        "dynamic_filtering",
        "more answers are made than trained on; planned as stated",
    ),
];

const SILENT: &str = "\
    actor_init_on_gpu actor_learning_rate actor_lr adam_betas address advantage_* \
    apply_chat_template async_queue_size aux_loss_coef beta chosen_key ckpt_path \
    compute_fp32_loss critic_learning_rate dataset* desirable_loss_weight disable_* dual_clip \
    dynamic_filtering_reward_range ema_beta enable_prefix_caching enable_vllm_is_correction \
    enforce_eager entropy_loss_coef eps_clip* eval_* full_determinism gamma \
    gradient_checkpointing_use_reentrant init_kl_coef input_* ipo kl_* l2 label_* lambd \
    learning_rate load_checkpoint local_rank logging_steps lora_alpha loss lr_* margin_loss \
    max_ckpt_* max_norm max_samples micro_rollout_batch_size multiturn nll_loss_coef no_* \
    normalize_reward output_key overlap_comm overlong_* packing_method perf policy_loss_type \
    pretrain_data pretrain_mode prompt_data* prompt_key prompt_split ptx_coef rejected_key \
    remote_rm_url reward_clip_range reward_num_* ring_head_stride rollout_max_tokens_per_gpu \
    rollout_tasks_per_gpu runtime_env* save_* seed temperature tokenizer_* top_p \
    train_max_tokens_per_gpu train_split undesirable_loss_weight unpaired_preference \
    use_ds_universal_ckpt use_kl_loss use_ms use_tensorboard use_wandb value_clip \
    value_head_prefix vanilla_loss vllm_generate_batch_size vllm_is_truncated_threshold \
    vllm_sync_* wandb_* working_dir";

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
        framework: Some(Framework::OpenRlhf),
        // DeepSpeed's own Adam.
        optimizer: Some(Optimizer::AdamWFused),
        loss: Some(LossKernel::Plain),
        compile: Some(false),
        ..TrainingSpec::default()
    };
    spec.model = Model::Named(options.text("pretrain")?.unwrap_or_default());
    spec.task = task(&mut options, &launch)?;
    method(&mut options, &mut spec, reading)?;
    numbers(&mut options, &mut spec)?;
    batch(&mut options, &mut spec)?;
    if matches!(spec.task, Task::Ppo | Task::Grpo) {
        rollout(&mut options, &mut spec, reading)?;
        let longest = spec.rollout.as_ref().and_then(trl::longest);
        spec.batch.sequence_length = spec.batch.sequence_length.or(longest);
    } else {
        spec.layout.gpus = launch.gpus;
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(spec)
}

fn task(options: &mut Options, launch: &Launch) -> Result<Task, ImportError> {
    const ESTIMATORS: [(&str, Task); 6] = [
        ("gae", Task::Ppo),
        ("reinforce", Task::Grpo),
        ("rloo", Task::Grpo),
        ("reinforce_baseline", Task::Grpo),
        ("group_norm", Task::Grpo),
        ("dr_grpo", Task::Grpo),
    ];
    let program = launch
        .program
        .rsplit(['.', '/'])
        .find(|part| *part != "py")
        .unwrap_or_default();
    Ok(match program {
        "train_dpo" => Task::Dpo,
        "train_kto" => Task::Kto,
        "train_rm" => Task::RewardModel,
        "train_sft" if options.on("pretrain_mode")? => Task::Pretrain,
        "train_sft" => Task::Sft,
        // Only PPO itself has a critic.
        _ => options
            .choice("advantage_estimator", &ESTIMATORS)?
            .unwrap_or(Task::Ppo),
    })
}

fn method(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let rank = options.count_if_positive("lora_rank")?;
    let four = options.on("load_in_4bit")?;
    if rank.is_none() && four {
        let expected =
            "unset: quantized weights are not trained, only an adapter on them (`--lora_rank`)";
        return Err(options.bad("load_in_4bit", expected));
    }
    let names = LoraNames {
        rank: "lora_rank",
        dropout: "lora_dropout",
        targets: "target_modules",
        whole: "lora_modules_to_save",
        dora: "use_dora",
    };
    if rank.is_some() {
        let mut lora = peft::lora(options, 8, &names, reading)?;
        if lora.targets.is_empty() {
            lora.targets.extend(Linear::BLOCK);
        }
        spec.method = Method::Lora(lora);
        spec.quantization = four.then_some(Quantization::Nf4);
    } else {
        for name in [names.dropout, names.targets] {
            options.value(name);
        }
    }
    Ok(())
}

fn numbers(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    const STAGES: [(&str, Sharding); 4] = [
        ("0", Sharding::None),
        ("1", Sharding::Zero1),
        ("2", Sharding::Zero2),
        ("3", Sharding::Zero3),
    ];
    let stage = options.choice("zero_stage", &STAGES)?;
    spec.layout.sharding = Some(stage.unwrap_or(Sharding::Zero2));
    let mixed = options.on("bf16")?;
    let typed = options.choice(
        "param_dtype",
        &[("bf16", true), ("fp16", true), ("fp32", false)],
    )?;
    spec.precision = Some(if typed.unwrap_or(mixed) {
        Precision::Mixed16
    } else {
        Precision::Full32
    });
    if options.on("adam_offload")? {
        spec.offload.optimizer = At::Cpu;
    }
    spec.recompute = Some(if options.on("gradient_checkpointing")? {
        Recompute::Full
    } else {
        Recompute::None
    });
    let kernel = options.text("attn_implementation")?;
    options.value("flash_attn");
    spec.attention = Some(match kernel.as_deref() {
        Some("eager") => AttentionKernel::Eager,
        _ => AttentionKernel::Flash,
    });
    if options.on("use_liger_kernel")? {
        spec.loss = Some(LossKernel::FusedLinear);
    }
    spec.layout.tp = options.count("ds_tensor_parallel_size")?;
    spec.layout.cp = options.count("ring_attn_size")?;
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let rl = matches!(spec.task, Task::Ppo | Task::Grpo);
    let micro = options.count("micro_train_batch_size")?;
    spec.batch.micro = Some(micro.unwrap_or(4));
    let global = options.count("train_batch_size")?;
    spec.batch.global = Some(global.unwrap_or(128));
    // Rings of attention need packed rows.
    let ring = spec.layout.cp.is_some_and(|size| size > 1);
    spec.batch.packing = Some(options.on("packing_samples")? || ring);
    let longest = options.count("max_len")?;
    spec.batch.sequence_length = match (rl, longest) {
        (_, Some(longest)) => Some(longest),
        (true, None) => None,
        (false, None) => Some(if spec.task == Task::Sft { 2048 } else { 512 }),
    };
    let epochs = options.permille(if rl { "num_episodes" } else { "max_epochs" })?;
    spec.length.epochs_permille = Some(epochs.unwrap_or(1000));
    Ok(())
}

/// Roles: the actor's GPUs are those that train; what does not share them comes on top.
fn rollout(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let mut role = |nodes: &str, gpus: &str| -> Result<u64, ImportError> {
        let nodes = options.count(nodes)?.unwrap_or(1);
        Ok(nodes.saturating_mul(options.count(gpus)?.unwrap_or(8)))
    };
    let actor = role("actor_num_nodes", "actor_num_gpus_per_node")?;
    let reference = role("ref_num_nodes", "ref_num_gpus_per_node")?;
    let critic = role("critic_num_nodes", "critic_num_gpus_per_node")?;
    let all = options.on("colocate_all_models")?;
    let with_reference = options.on("colocate_actor_ref")? || all;
    let shared = options.on("colocate_critic_reward")? || all;
    let (judged, reward) = role_of_reward(options)?;
    let engines = options.count_if_positive("vllm_num_engines")?;
    let tp = options.count("vllm_tensor_parallel_size")?.unwrap_or(1);
    let kl = options.number("init_kl_coef")?.unwrap_or(0.01);
    let has_critic = spec.task == Task::Ppo;
    if judged && shared && has_critic && !all {
        let effect =
            "the reward model shares the critic's GPUs; planned as if it shared the actor's";
        let warning = options.not_understood("colocate_critic_reward", effect);
        reading.warnings.push(warning);
    }
    let asynchronous = options.on("async_train")?;
    let apart = engines.map(|engines| engines.saturating_mul(tp));
    let apart = if all && !asynchronous { None } else { apart };
    spec.layout.gpus = Some(actor);
    let memory = options.permille("vllm_gpu_memory_utilization")?;
    let sleeps = options.on("vllm_enable_sleep")?;
    spec.rollout = Some(Rollout {
        prompts: Some(options.count("rollout_batch_size")?.unwrap_or(1024)),
        answers: Some(options.count("n_samples_per_prompt")?.unwrap_or(1)),
        prompt_tokens: Some(options.count("prompt_max_len")?.unwrap_or(1024)),
        answer_tokens: None,
        answer_tokens_max: Some(options.count("generate_max_len")?.unwrap_or(1024)),
        tp: engines.map(|_| tp),
        gpus: apart,
        asynchronous,
        reference: Some(kl > 0.0),
        reward: Some(judged),
        critic_gpus: (has_critic && !all).then_some(critic),
        reference_gpus: (kl > 0.0 && !with_reference).then_some(reference),
        reward_gpus: (judged && !shared).then_some(reward),
        memory_permille: engines.map(|_| memory.unwrap_or(950)),
        // vLLM sleeps only where it shares the others' GPUs.
        gives_back: Some(sleeps && all),
        trained_offload: Some(options.on("deepspeed_enable_sleep")?),
        scoring_offload: Some(options.on("ref_reward_offload")?),
        passes: Some(options.count("max_epochs")?.unwrap_or(1)),
    });
    Ok(())
}

/// Whether a model judges answers, and the GPUs that it is given where it shares none.
fn role_of_reward(options: &mut Options) -> Result<(bool, u64), ImportError> {
    let nodes = options.count("reward_num_nodes")?.unwrap_or(1);
    let gpus = options.count("reward_num_gpus_per_node")?.unwrap_or(8);
    let remote = options.has("remote_rm_url") || options.has("agent_func_path");
    let local = options.text("reward_pretrain")?.is_some() && !remote;
    Ok((local, nodes.saturating_mul(gpus)))
}
