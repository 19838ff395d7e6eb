//! accelerate: its config file, and the options of `accelerate launch`. Says how many processes there are and who shards.

use antiphon_types::training::{Matmul, Place as At, Sharding, TrainingSpec};

use crate::error::ImportError;
use crate::launch::Launch;
use crate::options::{Known, Options};
use crate::reading::Reading;
use crate::transformers::Sharder;
use crate::{deepspeed, fsdp};

const SILENT: &str = "\
    compute_environment debug deepspeed_config.* downcast_bf16 dynamo_config.* \
    enable_cpu_affinity gpu_ids ipex_config* machine_rank main_* mpirun_config* \
    parallelism_config.* rdzv_* same_network use_cpu";

const KNOWN: Known = Known {
    matters: &[&[
        (
            "megatron_lm_config.*",
            "Megatron-LM below accelerate; planned as data parallel",
        ),
        ("fp8_config.*", "matrices in 8 bits; planned in 16"),
        ("tpu_*", "TPUs; planned for GPUs"),
    ]],
    silent: &[SILENT],
};

/// What the launcher and its config say about sharding and GPUs.
pub(crate) fn launched(
    launch: &mut Launch,
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<Sharder, ImportError> {
    // TRL's own command takes the launcher's options among its own.
    for (from, to) in [
        ("accelerate_config", "config_file"),
        ("num_processes", "num_processes"),
    ] {
        if let Some(value) = options.value(from) {
            launch.options.set(to, value, options.place(from), true);
        }
    }
    if let Some(total) = launch.options.count("num_processes")? {
        launch.gpus = Some(total);
    }
    let mut sharder = Sharder::Nobody;
    if let Some(path) = launch.options.text("config_file")? {
        sharder = named(&path, launch, spec, reading)?;
    }
    let flags = &mut launch.options;
    if flags.on("use_deepspeed")? || flags.has("zero_stage") {
        sharder = Sharder::Deepspeed;
        zero_flags(flags, spec, reading)?;
    } else if flags.on("use_fsdp")? {
        sharder = Sharder::Fsdp;
        fsdp::table(flags.only("fsdp_"), spec, reading)?;
    }
    let mut flags = std::mem::take(&mut launch.options);
    mixed(&mut flags, launch, spec)?;
    launch.options = flags;
    Ok(sharder)
}

/// A config file, or a profile that TRL ships under a name.
fn named(
    path: &str,
    launch: &mut Launch,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<Sharder, ImportError> {
    if let Some(text) = reading.text(path) {
        return config(Options::parse(&text, path)?, launch, spec, reading);
    }
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file);
    let (sharder, sharding) = match stem {
        "fsdp1" | "fsdp2" | "fsdp" | "fsdp_qlora" => (Sharder::Fsdp, Some(Sharding::Zero3)),
        "single_gpu" => (Sharder::Nobody, Some(Sharding::None)),
        "multi_gpu" | "ddp" => (Sharder::Nobody, Some(Sharding::None)),
        _ => match deepspeed::stage_in(path) {
            Some(stage) => (Sharder::Deepspeed, Some(stage)),
            None => (Sharder::Nobody, None),
        },
    };
    let shipped = [
        "fsdp1",
        "fsdp2",
        "single_gpu",
        "multi_gpu",
        "zero1",
        "zero2",
        "zero3",
    ];
    if shipped.contains(&path) {
        // TRL's profiles are made for eight processes, or for one.
        let processes = if path == "single_gpu" { 1 } else { 8 };
        launch.gpus = launch.gpus.or(Some(processes));
    } else {
        let place = launch.options.place("config_file");
        let instead = match sharding {
            Some(_) => "sharding is taken from its name",
            None => "sharding and GPUs are left to the plan",
        };
        let warning = crate::warning::Warning::FileNotRead {
            place,
            option: "config_file".into(),
            path: path.to_owned(),
            instead: instead.to_owned(),
        };
        reading.warnings.push(warning);
    }
    spec.layout.sharding = sharding;
    Ok(sharder)
}

fn config(
    mut options: Options,
    launch: &mut Launch,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<Sharder, ImportError> {
    const TYPES: [(&str, Sharder); 7] = [
        ("NO", Sharder::Nobody),
        ("MULTI_GPU", Sharder::Nobody),
        ("MULTI_CPU", Sharder::Nobody),
        ("FSDP", Sharder::Fsdp),
        ("DEEPSPEED", Sharder::Deepspeed),
        ("MEGATRON_LM", Sharder::Nobody),
        ("TP", Sharder::Nobody),
    ];
    let sharder = options
        .choice("distributed_type", &TYPES)?
        .unwrap_or(Sharder::Nobody);
    let total = options.count("num_processes")?;
    launch.gpus = launch.gpus.or(total);
    if let (Some(total), Some(nodes)) = (total, options.count("num_machines")?) {
        launch.gpus_per_node = launch
            .gpus_per_node
            .or(Some(total / nodes).filter(|n| *n > 0));
    }
    match sharder {
        Sharder::Fsdp => {
            let table = options.take_table("fsdp_config").unwrap_or_default();
            fsdp::table(table, spec, reading)?;
        }
        Sharder::Deepspeed => {
            let mut table = options.take_table("deepspeed_config").unwrap_or_default();
            zero_flags(&mut table, spec, reading)?;
        }
        Sharder::Nobody => {
            spec.layout.sharding = Some(Sharding::None);
        }
    }
    mixed(&mut options, launch, spec)?;
    if let Some(backend) = options.text("dynamo_config.dynamo_backend")? {
        spec.compile = Some(!backend.eq_ignore_ascii_case("no"));
    }
    parallelism(&mut options, spec)?;
    options.finish(&KNOWN, &mut reading.warnings);
    Ok(sharder)
}

fn parallelism(options: &mut Options, spec: &mut TrainingSpec) -> Result<(), ImportError> {
    let prefix = "parallelism_config.parallelism_config";
    if let Some(tp) = options.count(&format!("{prefix}_tp_size"))? {
        spec.layout.tp = Some(tp);
    }
    if let Some(cp) = options.count(&format!("{prefix}_cp_size"))? {
        spec.layout.cp = Some(cp);
    }
    let replicas = options.count(&format!("{prefix}_dp_replicate_size"))?;
    let shards = options.count(&format!("{prefix}_dp_shard_size"))?;
    if replicas.is_some_and(|replicas| replicas > 1) {
        spec.layout.shard_group = shards;
    }
    Ok(())
}

/// DeepSpeed as accelerate's own names have it.
fn zero_flags(
    options: &mut Options,
    spec: &mut TrainingSpec,
    reading: &mut Reading<'_>,
) -> Result<(), ImportError> {
    if deepspeed::referenced(options, "deepspeed_config_file", spec, reading)? {
        return Ok(());
    }
    const STAGES: [(&str, Sharding); 4] = [
        ("0", Sharding::None),
        ("1", Sharding::Zero1),
        ("2", Sharding::Zero2),
        ("3", Sharding::Zero3),
    ];
    const PLACES: [(&str, At); 3] = [("none", At::Gpu), ("cpu", At::Cpu), ("nvme", At::Disk)];
    let stage = options.choice("zero_stage", &STAGES)?;
    // accelerate asks for stage 2 where none is stated.
    spec.layout.sharding = Some(stage.unwrap_or(Sharding::Zero2));
    if let Some(place) = options.choice("offload_optimizer_device", &PLACES)? {
        spec.offload.optimizer = place;
    }
    if let Some(place) = options.choice("offload_param_device", &PLACES)? {
        if place != At::Gpu && spec.layout.sharding != Some(Sharding::Zero3) {
            let why = "weights move to the host in ZeRO stage 3 only";
            return Err(options.clash("offload_param_device", "zero_stage", why));
        }
        spec.offload.parameters = place;
    }
    Ok(())
}

/// What accelerate computes in, where the trainer does not say it itself.
fn mixed(
    options: &mut Options,
    launch: &mut Launch,
    spec: &mut TrainingSpec,
) -> Result<(), ImportError> {
    const WORDS: [(&str, &str); 4] = [
        ("no", "no"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("fp8", "fp8"),
    ];
    if let Some(word) = options.choice("mixed_precision", &WORDS)? {
        launch.mixed = Some(word.to_owned());
        if word == "fp8" {
            spec.matmul = Some(Matmul::Fp8Tensor);
        }
    }
    Ok(())
}
