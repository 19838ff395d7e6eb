//! What is asked: a config file with options over it, and the hardware to plan for. Reads files; plans nothing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use antiphon_planner::search::Offer;
use antiphon_planner::{Assumption, Machine, catalog};
use antiphon_types::model::Linear;
use antiphon_types::training::{
    Framework, Lora, Method, Model, Optimizer, Quantization, Recompute, Sharding, Task,
    TrainingSpec,
};
use serde::de::DeserializeOwned;

use super::failure;
use crate::cli::{Exit, PlanArgs};
use crate::failure::Failure;
use crate::render::say;

/// What is to be planned, and on what.
pub(super) struct Asked {
    pub(super) spec: TrainingSpec,
    pub(super) machine: Machine,
    /// What the command line left open.
    pub(super) assumptions: Vec<Assumption>,
}

/// Reads what is asked.
pub(super) fn asked(args: &PlanArgs) -> Result<Asked, Failure> {
    let mut spec = match &args.file {
        Some(file) => imported(file, args)?,
        None if args.model.is_some() => TrainingSpec::default(),
        None => {
            return Err(Failure::new(Exit::Usage, "AP0727", "there is nothing to plan")
                .why("neither a training config nor `--model` is given")
                .help("try `antiphon plan axolotl.yml`, or `antiphon plan --model Llama-3.1-8B --method lora --gpu h100`"));
        }
    };
    override_with(&mut spec, args)?;
    let mut assumptions = Vec::new();
    let machine = machine(args, &mut assumptions)?;
    Ok(Asked {
        spec,
        machine,
        assumptions,
    })
}

fn imported(file: &Path, args: &PlanArgs) -> Result<TrainingSpec, Failure> {
    let text = read(file)?;
    let name = file
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into());
    let folder = file.parent().unwrap_or(Path::new(".")).to_owned();
    // A config names others by a path from its own folder, or from where its tool is started.
    let mut beside = |path: &str| {
        fs::read_to_string(folder.join(path))
            .or_else(|_| fs::read_to_string(path))
            .ok()
    };
    let imported =
        antiphon_import::training(&text, &name, args.format, &mut beside).map_err(|error| {
            Failure::new(Exit::Refused, error.code(), error.to_string())
                .why(error.why())
                .help(error.help())
        })?;
    for warning in &imported.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(imported.spec)
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| {
        Failure::new(
            Exit::Usage,
            "AP0728",
            format!("`{}` can't be read", file.display()),
        )
        .why(error.to_string())
        .help("give a file that is there and that you may read")
    })
}

/// Options win over the file.
fn override_with(spec: &mut TrainingSpec, args: &PlanArgs) -> Result<(), Failure> {
    if let Some(model) = &args.model {
        spec.model = model_of(model)?;
    }
    if let Some(task) = &args.task {
        spec.task = word::<Task>(
            "--task",
            task,
            "pretrain, sft, dpo, orpo, kto, reward-model, ppo, grpo",
        )?;
    }
    if let Some(method) = &args.method {
        (spec.method, spec.quantization) = method_of(method, args)?;
    }
    if let Some(optimizer) = &args.optimizer {
        spec.optimizer = Some(word::<Optimizer>(
            "--optimizer",
            optimizer,
            "adam-w, adam-w-fused, adam-w8bit, adam-w4bit, paged-adam-w, paged-adam-w8bit, adafactor, lion, lion8bit, sophia, prodigy, muon, sgd, sgd-momentum, lomo",
        )?);
    }
    if let Some(name) = &args.framework {
        let names: Vec<&str> = Framework::ALL
            .iter()
            .map(|framework| framework.name())
            .collect();
        spec.framework = Some(word::<Framework>("--framework", name, &names.join(", "))?);
    }
    if let Some(sharding) = &args.sharding {
        spec.layout.sharding = Some(word::<Sharding>(
            "--sharding",
            sharding,
            "none, zero1, zero2, zero3",
        )?);
    }
    if let Some(recompute) = &args.recompute {
        spec.recompute = Some(word::<Recompute>(
            "--recompute",
            recompute,
            "none, full, per-operation",
        )?);
    }
    if let Some(gpus) = args.gpus.as_ref().filter(|_| !args.search) {
        spec.layout.gpus = Some(count("--gpus", gpus)?);
    }
    if let Some(tokens) = &args.tokens {
        spec.length.tokens = Some(count("--tokens", tokens)?);
    }
    let batch = &mut spec.batch;
    let layout = &mut spec.layout;
    let length = &mut spec.length;
    for (given, field) in [
        (args.sequence_length, &mut batch.sequence_length),
        (args.micro_batch, &mut batch.micro),
        (args.accumulation, &mut batch.accumulation),
        (args.global_batch, &mut batch.global),
        (args.tp, &mut layout.tp),
        (args.pp, &mut layout.pp),
        (args.cp, &mut layout.cp),
        (args.ep, &mut layout.ep),
        (args.steps, &mut length.steps),
        (args.examples, &mut length.examples),
    ] {
        if given.is_some() {
            *field = given;
        }
    }
    // Two of the three say the third.
    if args.global_batch.is_some() && args.micro_batch.is_some() && args.accumulation.is_none() {
        batch.accumulation = None;
    }
    Ok(())
}

fn model_of(name: &str) -> Result<Model, Failure> {
    if !name.ends_with(".json") {
        return Ok(Model::Named(name.into()));
    }
    let config = antiphon_import::model_config(&read(Path::new(name))?, name).map_err(|error| {
        Failure::new(Exit::Refused, error.code(), error.to_string())
            .why(error.why())
            .help(error.help())
    })?;
    for warning in &config.warnings {
        say(&format!("warning: {warning}"));
    }
    Ok(Model::Shape(Box::new(config.shape)))
}

fn method_of(name: &str, args: &PlanArgs) -> Result<(Method, Option<Quantization>), Failure> {
    let targets = match args.targets.as_deref() {
        None => Vec::new(),
        Some("all") => Linear::BLOCK.to_vec(),
        Some(names) => names
            .split(',')
            .map(|name| {
                word::<Linear>(
                    "--targets",
                    name.trim(),
                    "all, q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head",
                )
            })
            .collect::<Result<_, _>>()?,
    };
    let lora = |dora| {
        Method::Lora(Lora {
            rank: args.rank.unwrap_or(16),
            targets: targets.clone(),
            dora,
            ..Lora::default()
        })
    };
    Ok(match name {
        "full" => (Method::Full, None),
        "lora" => (lora(false), None),
        "dora" => (lora(true), None),
        "qlora" => (lora(false), Some(Quantization::Nf4)),
        "prefix-tuning" => (Method::PrefixTuning { tokens: 20 }, None),
        "prompt-tuning" => (Method::PromptTuning { tokens: 20 }, None),
        "p-tuning" => (
            Method::PTuning {
                tokens: 20,
                hidden: 128,
            },
            None,
        ),
        other => {
            return Err(unknown_word(
                "--method",
                other,
                "full, lora, qlora, dora, prefix-tuning, prompt-tuning, p-tuning",
            ));
        }
    })
}

/// Reads one of a closed set of words.
fn word<T: DeserializeOwned>(option: &str, text: &str, known: &str) -> Result<T, Failure> {
    serde_json::from_value(serde_json::Value::String(text.into()))
        .map_err(|_| unknown_word(option, text, known))
}

pub(super) fn unknown_word(option: &str, text: &str, known: &str) -> Failure {
    Failure::new(
        Exit::Usage,
        "AP0729",
        format!("`{option}` doesn't know `{text}`"),
    )
    .help(format!("give one of: {known}"))
}

/// Reads `8`, `200M`, `1.5B`.
pub(super) fn count(option: &str, text: &str) -> Result<u64, Failure> {
    let (digits, scale) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 1e3),
        Some('m' | 'M') => (&text[..text.len() - 1], 1e6),
        Some('b' | 'B' | 'g' | 'G') => (&text[..text.len() - 1], 1e9),
        Some('t' | 'T') => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    let number = digits
        .parse::<f64>()
        .ok()
        .map(|value| (value * scale).round());
    match number {
        Some(number) if (1.0..1e18).contains(&number) =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "in range, as just checked"
            )]
            Ok(number as u64)
        }
        _ => Err(Failure::new(
            Exit::Usage,
            "AP0729",
            format!("`{option} {text}` is not a count"),
        )
        .help("give a whole number of at least 1, as 8, 4096, 200M or 1.5B")),
    }
}

fn machine(args: &PlanArgs, assumptions: &mut Vec<Assumption>) -> Result<Machine, Failure> {
    if args.gpu.is_none() && args.cluster.is_none() {
        assumptions.push(Assumption {
            what: "GPU type",
            taken: USUAL_GPU.into(),
            why: "none is named; give `--gpu` or `--cluster`".into(),
        });
    }
    let mut machine = match &args.cluster {
        Some(file) => of_cluster(file, args.gpu.as_deref())?,
        None => named(args)?,
    };
    if let Some(price) = args.price {
        machine.usd_h = price;
    }
    Ok(machine)
}

/// The GPU type that most plans are for.
const USUAL_GPU: &str = "H100-SXM-80GB";

/// The usual nodes of the GPU type that is named.
pub(super) fn named(args: &PlanArgs) -> Result<Machine, Failure> {
    let name = args.gpu.as_deref().unwrap_or(USUAL_GPU);
    let gpu = catalog::accelerator(name).map_err(|nearest| {
        failure(antiphon_planner::PlanError::UnknownGpu {
            name: name.into(),
            nearest: nearest.into_iter().map(String::from).collect(),
        })
    })?;
    let mut machine = Machine::usual(gpu);
    if let Some(price) = args.price {
        machine.usd_h = price;
    }
    Ok(machine)
}

/// The hardware of a cluster file: its only GPU type, or the one that is named.
fn of_cluster(file: &Path, wanted: Option<&str>) -> Result<Machine, Failure> {
    let mut offers = offers(file, wanted)?;
    if offers.len() == 1 {
        return Ok(offers.remove(0).machine);
    }
    let names: Vec<&str> = offers
        .iter()
        .map(|offer| offer.machine.gpu.name.as_str())
        .collect();
    let what = format!(
        "`{}` has {} kinds of GPUs that a plan may be for",
        file.display(),
        names.len()
    );
    Err(Failure::new(Exit::Usage, "AP0730", what)
        .help(format!("name one with `--gpu`: {}", names.join(", "))))
}

/// What a cluster file offers: one machine for each GPU type and partition, at its price and network.
pub(super) fn offers(file: &Path, wanted: Option<&str>) -> Result<Vec<Offer>, Failure> {
    let cluster = crate::cluster_file::read(file, None)?;
    let wanted =
        wanted.map(|name| catalog::accelerator(name).map_or(name, |gpu| gpu.name.as_str()));
    let mut offers: Vec<Offer> = Vec::new();
    let mut unknown = BTreeSet::new();
    for node in cluster.nodes.iter().filter(|node| node.gpus > 0) {
        let Ok(gpu) = catalog::accelerator(&node.gpu_type) else {
            unknown.insert(node.gpu_type.as_str());
            continue;
        };
        if wanted.is_some_and(|wanted| wanted != gpu.name) {
            continue;
        }
        let partition = (!node.partition.is_empty()).then(|| node.partition.clone());
        let same =
            |offer: &&mut Offer| offer.machine.gpu.name == gpu.name && offer.partition == partition;
        if let Some(offer) = offers.iter_mut().find(same) {
            offer.gpus += u64::from(node.gpus);
            continue;
        }
        let mut machine = Machine::usual(gpu);
        machine.node = u64::from(node.gpus);
        machine.domain = machine.domain.max(machine.node);
        machine.host_gib = node.memory.get() as f64 / 1_073_741_824.0;
        if let Some(partition) = cluster
            .partitions
            .iter()
            .find(|other| other.name == node.partition)
        {
            if partition.interconnect_gbps > 0 {
                machine.inter_gb_s =
                    f64::from(partition.interconnect_gbps) / 8.0 / f64::from(node.gpus);
            }
            if partition.price_per_gpu_hour.micros() > 0 {
                machine.usd_h = partition.price_per_gpu_hour.micros() as f64 / 1e6;
            }
        }
        offers.push(Offer {
            partition,
            machine,
            gpus: u64::from(node.gpus),
        });
    }
    for name in unknown {
        say(&format!(
            "warning: the planner doesn't know the GPU type `{name}`; its nodes are left out"
        ));
    }
    if offers.is_empty() {
        let what = format!("`{}` offers no GPU that a plan may be for", file.display());
        return Err(Failure::new(Exit::Refused, "AP0730", what)
            .help("name a GPU type of it, or plan without `--cluster`"));
    }
    Ok(offers)
}
