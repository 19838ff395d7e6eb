//! What is asked: a config file with options over it, and the hardware to plan for. Reads files; plans nothing.

use std::path::Path;

use antiphon_planner::search::{self, Offer};
use antiphon_planner::{Assumption, Machine, catalog, words};
use antiphon_types::model::Linear;
use antiphon_types::training::{
    Framework, Method, Optimizer, Quantization, Recompute, Sharding, Task, TrainingSpec,
};
use serde::Deserialize;

use super::failure;
use crate::cli::{Exit, PlanArgs};
use crate::failure::Failure;
use crate::render::say;
use crate::training;

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
        Some(file) => training::config(file, args.format)?,
        None if args.model.is_some() => TrainingSpec::default(),
        None => {
            return Err(Failure::new(Exit::Usage, "AP0727", "there is nothing to plan")
                .why("neither a training config nor `--model` is given")
                .help("try `antiphon plan axolotl.yml`, or `antiphon plan --model Llama-3.1-8B --method lora --gpu h100`"));
        }
    };
    override_with(&mut spec, args)?;
    let mut assumptions = Vec::new();
    if args.file.is_none() && spec.method == Method::Full && args.method.is_none() {
        assumptions.push(Assumption {
            what: "method",
            taken: "full".into(),
            why: "none is named; give `--method lora` or another".into(),
        });
    }
    let machine = machine(args, &mut assumptions)?;
    Ok(Asked {
        spec,
        machine,
        assumptions,
    })
}

/// Options win over the file.
fn override_with(spec: &mut TrainingSpec, args: &PlanArgs) -> Result<(), Failure> {
    if let Some(model) = &args.model {
        spec.model = training::model(model)?;
    }
    if let Some(task) = &args.task {
        spec.task = word::<Task>("--task", task, words::TASKS)?;
    }
    match args
        .method
        .as_deref()
        .map(|name| (name, words::word::<Task>(name)))
    {
        None => {}
        // People say "the method is GRPO", too; no word is both.
        Some((name, Some(task))) if args.task.as_deref().is_none_or(|other| other == name) => {
            spec.task = task;
        }
        Some((name, _)) => (spec.method, spec.quantization) = method_of(name, args)?,
    }
    if let Some(optimizer) = &args.optimizer {
        spec.optimizer = Some(word::<Optimizer>(
            "--optimizer",
            optimizer,
            words::OPTIMIZERS,
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
        spec.layout.sharding = Some(word::<Sharding>("--sharding", sharding, words::SHARDINGS)?);
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

fn method_of(name: &str, args: &PlanArgs) -> Result<(Method, Option<Quantization>), Failure> {
    const TARGETS: &str =
        "all, q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head";
    let targets = match args.targets.as_deref() {
        None => Vec::new(),
        Some("all") => Linear::BLOCK.to_vec(),
        Some(names) => names
            .split(',')
            .map(|name| word::<Linear>("--targets", name.trim(), TARGETS))
            .collect::<Result<_, _>>()?,
    };
    words::method(name, args.rank, targets)
        .ok_or_else(|| unknown_word("--method", name, words::METHODS))
}

/// Reads one of a closed set of words.
fn word<'a, T: Deserialize<'a>>(option: &str, text: &'a str, known: &str) -> Result<T, Failure> {
    words::word(text).ok_or_else(|| unknown_word(option, text, known))
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
    words::count(text).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "AP0729",
            format!("`{option} {text}` is not a count"),
        )
        .help("give a whole number of at least 1, as 8, 4096, 200M or 1.5B")
    })
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
    if let Some(price) = price(args)? {
        machine.usd_h = price;
    }
    Ok(machine)
}

/// US dollars for a GPU an hour, where they are stated.
fn price(args: &PlanArgs) -> Result<Option<f64>, Failure> {
    let legal = |usd: &f64| usd.is_finite() && *usd >= 0.0;
    match args.price {
        Some(usd) if !legal(&usd) => {
            let what = format!("`--price {usd}` is no price");
            let help = "give US dollars for a GPU an hour, like 2.50; 0 where it costs nothing";
            Err(Failure::new(Exit::Usage, "AP0729", what).help(help))
        }
        other => Ok(other),
    }
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
    if let Some(price) = price(args)? {
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
    let (mut offers, unknown) = search::offers(&cluster.nodes, &cluster.partitions);
    offers.retain(|offer| wanted.is_none_or(|wanted| wanted == offer.machine.gpu.name));
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
