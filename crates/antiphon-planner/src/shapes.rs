//! What a search found, as the shapes of a job: the recommended choice, and what is about as good on other GPUs, each with its
//! speed, and with the plan that the trainer is told and that is held against what is measured.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::training::{Place, Recompute, Schedule, Sharding};
use antiphon_types::{Bytes, GpuAmount, Learned, Millis, Shape, ShapePlan, Span, Tasks, UsdMicros};

use crate::roles::{self, Part, Role};
use crate::search::{Choice, Found, Limits, Offer};

/// Shapes that a job file may have.
const MOST: usize = 16;
/// How much dearer a token may be in a shape than in the recommended one: nobody is to pay three times as much because the
/// cheap GPUs are taken for an hour.
const DEARER: f64 = 1.5;
/// How fast a shape has to be, as a share of the recommended one. The scheduler takes the free shape with the best speed for its
/// cost, which of one GPU type is always the smallest: what is several times slower would win although nobody wants it.
const AS_FAST: f64 = 0.7;

/// The shapes: the recommended one, then the cheapest of each other GPU type and partition that is about as fast, by what a token
/// costs. Each with the index of its choice.
#[must_use]
pub fn shapes(found: &Found, offers: &[Offer], limits: &Limits) -> Vec<(Shape, usize)> {
    let Some(recommended) = found.recommended else {
        return Vec::new();
    };
    let price = |index: usize| {
        let choice = &found.choices[index];
        choice.usd_m_tokens.unwrap_or(f64::INFINITY)
    };
    let keeps_to_limits = |choice: &Choice| {
        let within = |most: Option<f64>, is: Option<f64>| {
            most.is_none_or(|most| is.is_none_or(|is| is <= most))
        };
        within(limits.hours, choice.hours) && within(limits.usd, choice.usd)
    };
    let pace = found.choices[recommended].tokens_per_s();
    let will_do = |index: usize| {
        let choice = &found.choices[index];
        let affordable = price(index) <= DEARER * price(recommended) || price(index).is_infinite();
        affordable && keeps_to_limits(choice) && choice.tokens_per_s() >= AS_FAST * pace
    };
    let mut order: Vec<usize> = (0..found.choices.len())
        .filter(|&index| index == recommended || will_do(index))
        .collect();
    order.sort_by(|&a, &b| {
        (b == recommended)
            .cmp(&(a == recommended))
            .then(price(a).total_cmp(&price(b)))
    });
    let mut taken = BTreeSet::new();
    order.retain(|&index| taken.insert(found.choices[index].offer));
    order.truncate(MOST);
    let fastest = order
        .iter()
        .map(|&index| found.choices[index].tokens_per_s())
        .fold(0.0, f64::max);
    order
        .into_iter()
        .map(|index| {
            let choice = &found.choices[index];
            let speed = (1_000.0 * choice.tokens_per_s() / fastest).round() as u32;
            let shape = Shape {
                speed: speed.clamp(1, 1_000),
                ..of_command(choice, &offers[choice.offer])
            };
            (shape, index)
        })
        .collect()
}

/// The shape of what the command needs that trains: of all roles where it starts them all.
#[must_use]
pub fn of_command(choice: &Choice, offer: &Offer) -> Shape {
    let run = &choice.run;
    let gpus = roles::of_command(run);
    // Groups of other roles are of other sizes.
    let tp = if gpus == run.gpus { run.tp } else { 1 };
    let shape = shape(offer, gpus, tp);
    if gpus == run.gpus || gpus <= offer.machine.node {
        return shape;
    }
    // Over several nodes, parts of which each role has whole ones: Ray places a role on GPUs that lie together.
    let sizes = choice.roles.iter().map(|role| role.gpus);
    let part = sizes.fold(common(run.gpus, offer.machine.node), common);
    Shape {
        tasks: Tasks::Exactly(u32::try_from(gpus / part).unwrap_or(u32::MAX)),
        ..shape
    }
}

/// The largest number that divides both.
const fn common(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The shape of those that train alone.
#[must_use]
pub fn of_trainer(choice: &Choice, offer: &Offer) -> Shape {
    shape(offer, choice.run.gpus, choice.run.tp)
}

/// The shape of a role beside.
#[must_use]
pub fn of_role(role: &Role, offer: &Offer) -> Shape {
    shape(offer, role.gpus, role.tp)
}

fn shape(offer: &Offer, gpus: u64, tp: u64) -> Shape {
    let machine = &offer.machine;
    // What a job is planned to have inside a node or a fast link, it has to get there.
    let span = if gpus <= machine.node {
        Span::Node
    } else if gpus <= machine.domain {
        Span::NvlinkDomain
    } else {
        Span::Cluster
    };
    Shape {
        gpus: amount(gpus),
        gpu_type: Some(offer.gpu_type.clone()),
        partition: offer.partition.clone(),
        span,
        tensor_parallel: if tp > 1 && gpus.is_multiple_of(tp) {
            tp as u32
        } else {
            0
        },
        ..Shape::default()
    }
}

fn amount(gpus: u64) -> GpuAmount {
    GpuAmount::from_gpus(u32::try_from(gpus).unwrap_or(u32::MAX))
}

/// The plan of a choice, in integers.
#[must_use]
pub fn plan_of(choice: &Choice, offer: &Offer) -> ShapePlan {
    let (run, speed, memory) = (&choice.run, &choice.speed, &choice.memory);
    let whole = |value: f64| value.round().clamp(0.0, 1e18) as u64;
    let bytes = |value: f64| Bytes::new(whole(value));
    ShapePlan {
        gpus: amount(roles::of_command(run)),
        gpu_type: offer.gpu_type.clone(),
        partition: offer.partition.clone(),
        framework: run.profile.framework.name().to_owned(),
        layout: choice.described(),
        environment: variables(choice),
        learned: Learned::default(),
        step_us: whole(speed.step_ms * 1e3),
        communication_us: whole(speed.parts.communication() * 1e3),
        tokens_per_step: whole(speed.tokens),
        allocated: bytes(memory.allocated),
        peak: bytes(memory.device),
        usable: bytes(memory.usable),
        duration: choice
            .hours
            .map(|hours| Millis::from_millis(whole(hours * 3.6e6))),
        cost: choice
            .usd
            .map(|usd| UsdMicros::from_micros(whole(usd * 1e6))),
    }
}

/// The layout as variables, under the names that the steps of a ladder use, too.
fn variables(choice: &Choice) -> BTreeMap<String, String> {
    let run = &choice.run;
    let sharding = match run.sharding {
        Sharding::None => "none",
        Sharding::Zero1 => "zero1",
        Sharding::Zero2 => "zero2",
        Sharding::Zero3 => "zero3",
    };
    let recompute = match run.recompute {
        Recompute::None => "none",
        Recompute::Modules(_) => "modules",
        Recompute::PerOperation => "per-operation",
        Recompute::Layers { .. } => "layers",
        Recompute::Full => "full",
    };
    let mut variables = BTreeMap::from([
        ("MICRO_BATCH", run.micro.to_string()),
        ("GRADIENT_ACCUMULATION", run.accumulation.to_string()),
        ("SHARDING", sharding.to_owned()),
        ("RECOMPUTE", recompute.to_owned()),
    ]);
    for (name, ranks) in [
        ("TENSOR_PARALLEL", run.tp),
        ("PIPELINE_PARALLEL", run.pp),
        ("CONTEXT_PARALLEL", run.cp),
        ("EXPERT_PARALLEL", run.ep),
    ] {
        if ranks > 1 {
            variables.insert(name, ranks.to_string());
        }
    }
    if run.pp > 1 {
        let schedule = match run.schedule {
            Schedule::Gpipe => "gpipe",
            Schedule::OneForwardOneBackward => "1f1b",
            Schedule::ZeroBubbleH1 => "zero-bubble-h1",
            Schedule::ZeroBubbleH2 => "zero-bubble-h2",
            Schedule::ZeroBubbleV => "zero-bubble-v",
            Schedule::DualPipe => "dual-pipe",
            Schedule::DualPipeV => "dual-pipe-v",
        };
        variables.insert("PIPELINE_SCHEDULE", schedule.to_owned());
        variables.insert("PIPELINE_CHUNKS", run.chunks.to_string());
    }
    if let Some(engines) = choice.roles.iter().find(|role| role.part == Part::Rollout) {
        variables.insert("ROLLOUT_GPUS", engines.gpus.to_string());
        variables.insert("ROLLOUT_TENSOR_PARALLEL", engines.tp.to_string());
    }
    let away: Vec<&str> = [
        ("optimizer", run.offload.optimizer),
        ("parameters", run.offload.parameters),
    ]
    .into_iter()
    .filter_map(|(name, place)| (place != Place::Gpu).then_some(name))
    .collect();
    if !away.is_empty() {
        variables.insert("OFFLOAD", away.join(","));
    }
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
