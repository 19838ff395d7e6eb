//! DeepSpeed's JSON: alone, inside another config, or in a file that another config names.

use antiphon_types::training::{
    Framework, Optimizer, Place as At, Precision, Sharding, TrainingSpec,
};
use serde_json::Value;

use crate::error::ImportError;
use crate::options::{Known, Options, plain};
use crate::reading::Reading;
use crate::warning::Warning;

const SILENT: &str = "\
    activation_checkpointing.* aio.* amp.* autotuning.* bf16.* checkpoint.* comms_logger.* \
    communication_data_type compile.* csv_monitor.* data_types.* disable_allgather dump_state \
    elasticity.* flops_profiler.* fp16.* fp32_allreduce gradient_clipping \
    gradient_predivide_factor memory_breakdown optimizer.* prescale_gradients scheduler.* \
    seq_parallel_communication_data_type sparse_gradients steps_per_print tensorboard.* \
    tensor_parallel.* timers.* wall_clock_breakdown wandb.* zero_allow_untested_optimizer \
    zero_optimization.*";

const KNOWN: Known = Known {
    matters: &[&[
        (
            "zero_optimization.zero_quantized_weights",
            "weights are gathered in 8 bits; planned with 16",
        ),
        (
            "zero_optimization.zero_quantized_gradients",
            "gradients are sent in 4 bits; planned with 16",
        ),
        (
            "zero_optimization.zero_hpz_partition_size",
            "a second copy of the weights in each node; planned without",
        ),
        (
            "bf16.bf16_master_weights_and_grads",
            "master weights in 16 bits; planned with 32",
        ),
        (
            "bf16.bf16_optimizer_states",
            "optimizer states in 16 bits; planned with 32",
        ),
        (
            "fp16.fp16_master_weights_and_grads",
            "master weights in 16 bits; planned with 32",
        ),
        (
            "activation_checkpointing.partition_activations",
            "checkpoints are split over tensor-parallel ranks; planned whole",
        ),
        ("pipeline.*", "pipeline stages; planned without"),
        ("compile.deepcompile", "DeepCompile; planned without"),
        ("sparse_attention.*", "sparse attention; planned dense"),
        (
            "compression_training.*",
            "compressed training; planned without",
        ),
        ("data_efficiency.*", "data routing; planned without"),
        (
            "curriculum_learning.*",
            "shorter sequences at first; planned at full length",
        ),
        (
            "zero_force_ds_cpu_optimizer",
            "which optimizer runs on the host; planned with DeepSpeed's",
        ),
    ]],
    silent: &[SILENT],
};

/// DeepSpeed's JSON as the whole config: the model is named elsewhere.
pub(crate) fn training(
    options: Options,
    reading: &mut Reading<'_>,
) -> Result<TrainingSpec, ImportError> {
    let mut spec = TrainingSpec {
        framework: Some(Framework::Deepspeed),
        ..TrainingSpec::default()
    };
    apply(options, &mut spec, reading)?;
    // Without a section for 16 bits DeepSpeed trains in 32.
    spec.precision.get_or_insert(Precision::Full32);
    Ok(spec)
}

/// What an option holds that names a DeepSpeed config or is one. Answers whether there is any.
pub(crate) fn referenced(
    options: &mut Options,
    name: &str,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<bool, ImportError> {
    let place = options.place(name);
    if let Some(table) = options.take_table(name) {
        apply(table, spec, reading)?;
        return Ok(true);
    }
    let path = match options.value(name) {
        None | Some(Value::Bool(false)) => return Ok(false),
        Some(value) => plain(&value),
    };
    if path.trim_start().starts_with('{') {
        apply(Options::parse(&path, &place.file)?, spec, reading)?;
        return Ok(true);
    }
    let stage = stage_in(&path);
    let instead = match stage {
        Some(_) => "its stage is taken from its name, its offload too",
        None => "ZeRO is left to the plan",
    };
    match reading.options(&place, name, &path, instead)? {
        Some(inner) => apply(inner, spec, reading)?,
        None => {
            spec.layout.sharding = stage;
            if path.to_ascii_lowercase().contains("offload") {
                spec.offload.optimizer = At::Cpu;
                if stage == Some(Sharding::Zero3) {
                    spec.offload.parameters = At::Cpu;
                }
            }
        }
    }
    Ok(true)
}

/// The stage that a file's name speaks of: `zero3_bf16.json`, `ds_z2_config.json`.
pub(crate) fn stage_in(path: &str) -> Option<Sharding> {
    let file = path.rsplit('/').next()?.to_ascii_lowercase();
    let digit = ["zero_stage", "zero-", "zero_", "zero", "stage", "z"]
        .iter()
        .flat_map(|word| file.match_indices(word))
        .find_map(|(at, word)| file.get(at + word.len()..)?.chars().next()?.to_digit(10))?;
    sharding(i64::from(digit))
}

fn sharding(stage: i64) -> Option<Sharding> {
    match stage {
        0 => Some(Sharding::None),
        1 => Some(Sharding::Zero1),
        2 => Some(Sharding::Zero2),
        3 => Some(Sharding::Zero3),
        _ => None,
    }
}

/// What a DeepSpeed config says, into a run that another config may have begun.
pub(crate) fn apply(
    mut options: Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    // `auto` is filled in from the trainer's arguments.
    options.forget("auto");
    zero(&mut options, spec)?;
    batch(&mut options, spec)?;
    let bf16 = options.flag("bf16.enabled")?;
    let bfloat16 = options.flag("bfloat16.enabled")?;
    let fp16 = options.flag("fp16.enabled")?;
    if bf16 == Some(true) && fp16 == Some(true) {
        let why = "weights are kept in one of the two formats";
        return Err(options.clash("bf16.enabled", "fp16.enabled", why));
    }
    if [bf16, bfloat16, fp16].contains(&Some(true)) {
        spec.precision = Some(Precision::Mixed16);
    }
    optimizer(&mut options, spec, reading)?;
    if let Some(tp) = options.count("tensor_parallel.autotp_size")? {
        spec.layout.tp = Some(tp);
    }
    if let Some(cp) = options.count("sequence_parallel_size")? {
        spec.layout.cp = Some(cp);
    }
    if options.on("activation_checkpointing.cpu_checkpointing")? {
        spec.offload.activations = At::Cpu;
    }
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(())
}

fn zero(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let expected = "a ZeRO stage from 0 to 3";
    let stage = options.integer("zero_optimization.stage", expected)?;
    // ZeRO is on only where a section asks for it; then from stage 0.
    let stage = stage.unwrap_or(0);
    let Some(sharding) = sharding(stage) else {
        return Err(options.bad("zero_optimization.stage", expected));
    };
    spec.layout.sharding = Some(sharding);
    let places = [("none", At::Gpu), ("cpu", At::Cpu), ("nvme", At::Disk)];
    let optimizer = "zero_optimization.offload_optimizer.device";
    let parameters = "zero_optimization.offload_param.device";
    if let Some(place) = options.choice(optimizer, &places)? {
        if place != At::Gpu && stage == 0 {
            let why = "optimizer states move to the host from ZeRO stage 1 on";
            return Err(options.clash(optimizer, "zero_optimization.stage", why));
        }
        spec.offload.optimizer = place;
    } else if options.on("zero_optimization.cpu_offload")? {
        spec.offload.optimizer = At::Cpu;
    }
    if let Some(place) = options.choice(parameters, &places)? {
        if place != At::Gpu && stage != 3 {
            let why = "weights move to the host in ZeRO stage 3 only";
            return Err(options.clash(parameters, "zero_optimization.stage", why));
        }
        spec.offload.parameters = place;
    }
    if let Some(size) = options.count_if_positive("zero_optimization.mics_shard_size")? {
        spec.layout.shard_group = Some(size);
    }
    Ok(())
}

fn batch(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let micro = options.count("train_micro_batch_size_per_gpu")?;
    let accumulation = options.count("gradient_accumulation_steps")?;
    let global = options.count("train_batch_size")?;
    let stated = [
        (
            "train_micro_batch_size_per_gpu",
            micro,
            &mut spec.batch.micro,
        ),
        (
            "gradient_accumulation_steps",
            accumulation,
            &mut spec.batch.accumulation,
        ),
        ("train_batch_size", global, &mut spec.batch.global),
    ];
    for (name, here, there) in stated {
        match (here, *there) {
            (Some(here), Some(there)) if here != there => {
                let expected = format!("`auto`, or {there} as the trainer's arguments have it");
                return Err(options.bad(name, &expected));
            }
            _ => *there = here.or(*there),
        }
    }
    let (Some(micro), Some(global)) = (micro, global) else {
        return Ok(());
    };
    // All three at once have to agree for some number of GPUs.
    let step = micro.saturating_mul(accumulation.unwrap_or(1));
    if global % step != 0 {
        let why = format!("{global} is no multiple of {step} sequences a GPU and step");
        return Err(options.clash("train_batch_size", "train_micro_batch_size_per_gpu", &why));
    }
    Ok(())
}

fn optimizer(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    let Some(name) = options.text("optimizer.type")? else {
        return Ok(());
    };
    let momentum = options.number("optimizer.params.momentum")?.unwrap_or(0.0) > 0.0;
    spec.optimizer = Some(match name.to_ascii_lowercase().as_str() {
        "adam" | "adamw" | "fusedadam" | "deepspeedcpuadam" => {
            if options.on("optimizer.params.torch_adam")? {
                Optimizer::AdamW
            } else {
                Optimizer::AdamWFused
            }
        }
        "lion" | "fusedlion" => Optimizer::Lion,
        "muon" => Optimizer::Muon,
        "sgd" if momentum => Optimizer::SgdMomentum,
        "sgd" => Optimizer::Sgd,
        _ => {
            let effect = "its states; planned as AdamW, with two moments";
            let warning: Warning = options.not_understood("optimizer.type", effect);
            reading.warnings.push(warning);
            Optimizer::AdamWFused
        }
    });
    Ok(())
}
