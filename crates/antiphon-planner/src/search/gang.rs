//! Roles with GPUs of their own in one gang: how many GPUs each gets of those on offer. What is stated stays; what is open is
//! tried: the engines in powers of two, the critic as many as the actor, models that only score as few as hold them and keep up.

use antiphon_types::training::{Rollout, TrainingSpec};

use super::{
    Choice, Counts, Found, Limits, Offer, nothing, pareto, search, splits, stated, stated_on,
};
use crate::error::PlanError;
use crate::profile::Frameworks;
use crate::roles::Part;
use crate::rollout;
use crate::run::{Assumption, Machine, resolve};

/// A model that only scores makes one forward pass where the trainer makes one, and trains, which is about four: a quarter of
/// the GPUs keeps up.
const SCORES: u64 = 4;
const GIB: f64 = 1_073_741_824.0;
/// Share of a GPU's memory that weights of a model that only scores may take.
const WEIGHTS: f64 = 0.75;

/// How many GPUs each role has; none where the planner says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gang {
    /// Those that train.
    pub trainer: Option<u64>,
    /// The parts with GPUs of their own.
    pub own: Vec<(Part, Option<u64>)>,
}

/// What of the offers runs a spec as a gang of these roles; with a layout that is `planned`, in the best layout of the trainer,
/// else as the spec states it.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn gang(
    spec: &TrainingSpec,
    gang: &Gang,
    planned: bool,
    (offers, limits): (&[Offer], &Limits),
    frameworks: &'static Frameworks,
) -> Result<Found, PlanError> {
    let mut found = nothing("no GPUs are on offer".into(), Vec::new());
    let mut refused = None;
    let mut smallest = u64::MAX;
    for (index, offer) in offers.iter().enumerate() {
        let least = least(spec, &offer.machine, frameworks)?;
        let trainers: Vec<u64> = match gang.trainer {
            Some(gpus) => vec![gpus],
            None => splits::counts(
                offer,
                &Limits {
                    gpus_min: 1,
                    ..*limits
                },
                0,
            )
            .collect(),
        };
        for trainer in trainers {
            for shared in ways(spec, gang, trainer, (offer.gpus, least)) {
                let beside: u64 = Part::ALL
                    .iter()
                    .filter_map(|part| part.stated(&shared))
                    .sum();
                let total = trainer + beside;
                smallest = smallest.min(total);
                // Where every role says how many it has, no limit is asked for.
                let held = total.clamp(limits.gpus_min, limits.gpus_max) == total;
                if !(held || all_stated(gang)) || total > offer.gpus {
                    continue;
                }
                let with = TrainingSpec {
                    rollout: Some(shared),
                    ..spec.clone()
                };
                let one = one(&with, (trainer, total), planned, (index, offer), frameworks);
                match one {
                    Ok(more) => take(&mut found, more),
                    Err(error @ PlanError::Layout { .. }) => refused = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
    }
    if found.choices.is_empty() {
        return match (found.counts.splits, refused) {
            (0, Some(error)) => Err(error),
            (0, None) if smallest < u64::MAX => {
                let most = offers.iter().map(|offer| offer.gpus).max().unwrap_or(0);
                found.reason = format!(
                    "the roles need at least {smallest} GPUs, one that trains and what holds each of the other models: {} are allowed and {most} of a type are there",
                    limits.gpus_max
                );
                Ok(found)
            }
            _ => Ok(found),
        };
    }
    found
        .choices
        .sort_by(|a, b| b.tokens_per_s().total_cmp(&a.tokens_per_s()));
    (found.recommended, found.reason) = pareto::recommend(&found.choices, offers, limits);
    Ok(found)
}

fn all_stated(gang: &Gang) -> bool {
    gang.trainer.is_some() && gang.own.iter().all(|(_, gpus)| gpus.is_some())
}

/// GPUs of one engine, and the fewest that hold a model as large as the trained one.
fn least(
    spec: &TrainingSpec,
    machine: &Machine,
    frameworks: &'static Frameworks,
) -> Result<(u64, u64), PlanError> {
    let (run, _) = resolve(&stated::alone(spec), machine, frameworks)?;
    let weights = 2.0 * run.model.parameters() as f64;
    let each = WEIGHTS * machine.gpu.usable_gib * GIB;
    let scorer = ((weights / each).ceil() as u64).max(1).next_power_of_two();
    Ok((rollout::engine_tp(&run, machine, u64::MAX), scorer))
}

/// Every way to give the open roles GPUs beside so many that train.
fn ways(
    spec: &TrainingSpec,
    gang: &Gang,
    trainer: u64,
    (most, (engine, scorer)): (u64, (u64, u64)),
) -> Vec<Rollout> {
    let mut base = spec.rollout.unwrap_or_default();
    let mut engines = vec![None];
    for &(part, gpus) in &gang.own {
        match (part, gpus) {
            (_, Some(gpus)) => part.state(&mut base, Some(gpus)),
            (Part::Rollout, None) => {
                let sizes = std::iter::successors(Some(engine), |gpus| gpus.checked_mul(2));
                engines = sizes.take_while(|gpus| *gpus <= most).map(Some).collect();
            }
            (Part::Reference | Part::Reward, None) => {
                part.state(&mut base, Some(scorer.max(trainer.div_ceil(SCORES))));
            }
            (Part::Critic | Part::Trainer, None) => part.state(&mut base, Some(trainer)),
        }
    }
    engines
        .into_iter()
        .map(|gpus| Rollout {
            gpus: gpus.or(base.gpus),
            ..base
        })
        .collect()
}

/// One way on one offer.
fn one(
    spec: &TrainingSpec,
    (trainer, total): (u64, u64),
    planned: bool,
    (index, offer): (usize, &Offer),
    frameworks: &'static Frameworks,
) -> Result<Found, PlanError> {
    if !planned {
        let (choice, assumptions) = stated_on(spec, trainer, (index, offer), frameworks)?;
        return Ok(stated_found(choice, assumptions, offer));
    }
    let limits = Limits {
        gpus_min: total,
        gpus_max: total,
        hours: None,
        usd: None,
    };
    let mut found = search(spec, std::slice::from_ref(offer), &limits, frameworks)?;
    for choice in &mut found.choices {
        choice.offer = index;
    }
    Ok(found)
}

fn stated_found(choice: Choice, assumptions: Vec<Assumption>, offer: &Offer) -> Found {
    let fits = choice.fits();
    let reason = if fits {
        String::new()
    } else {
        choice.too_large(offer)
    };
    Found {
        choices: if fits { vec![choice] } else { Vec::new() },
        recommended: None,
        reason,
        assumptions,
        counts: Counts {
            splits: 1,
            computed: 1,
            ..Counts::default()
        },
    }
}

/// Adds what was found on one count; of the reasons why nothing fits the last is told, that of the most GPUs.
fn take(found: &mut Found, more: Found) {
    if found.choices.is_empty() {
        found.reason = more.reason;
    }
    if !more.choices.is_empty() || found.assumptions.is_empty() {
        found.assumptions = more.assumptions;
    }
    found.choices.extend(more.choices);
    let (all, own) = (&mut found.counts, more.counts);
    all.splits += own.splits;
    all.states_too_large += own.states_too_large;
    all.too_large += own.too_large;
    all.too_slow += own.too_slow;
    all.computed += own.computed;
}
