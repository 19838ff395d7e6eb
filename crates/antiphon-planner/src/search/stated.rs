//! A spec as it stands, on more or fewer GPUs: for a job whose command follows its own config, so that only the GPU type and how
//! many may vary. The sequences of a step then grow with the GPUs, unless the spec states them.

use antiphon_types::training::{Layout, TrainingSpec};

use super::{Choice, Found, Limits, Offer, nothing, pareto, splits};
use crate::error::PlanError;
use crate::plan::plan;
use crate::profile::Frameworks;
use crate::roles;
use crate::run::{Assumption, Machine, resolve};

/// What of the offers runs a spec as it stands.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn stated(
    spec: &TrainingSpec,
    offers: &[Offer],
    limits: &Limits,
    frameworks: &'static Frameworks,
) -> Result<Found, PlanError> {
    let mut found = nothing("no GPUs are on offer".into(), Vec::new());
    let mut refused = None;
    let mut nearest: Option<Choice> = None;
    let lack = |choice: &Choice| choice.memory.device / choice.memory.usable;
    for (index, offer) in offers.iter().enumerate() {
        let apart = apart(spec, &offer.machine, frameworks)?;
        for gpus in splits::counts(offer, limits, apart) {
            found.counts.splits += 1;
            let (choice, assumptions) = match stated_on(spec, gpus, (index, offer), frameworks) {
                Ok(planned) => planned,
                // A layout that these many GPUs cannot have: others may.
                Err(error @ PlanError::Layout { .. }) => {
                    refused = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            found.counts.computed += 1;
            if choice.fits() {
                found.assumptions = assumptions;
                found.choices.push(choice);
            } else {
                found.counts.too_large += 1;
                if nearest
                    .as_ref()
                    .is_none_or(|other| lack(&choice) < lack(other))
                {
                    nearest = Some(choice);
                }
            }
        }
    }
    if found.choices.is_empty() {
        return match (nearest, refused) {
            (Some(choice), _) => {
                found.reason = choice.too_large(&offers[choice.offer]);
                Ok(found)
            }
            (None, Some(error)) => Err(error),
            (None, None) => {
                found.reason = not_there(offers, limits);
                Ok(found)
            }
        };
    }
    // By what a token takes, since a step is another one on other counts.
    found
        .choices
        .sort_by(|a, b| b.tokens_per_s().total_cmp(&a.tokens_per_s()));
    (found.recommended, found.reason) = pareto::recommend(&found.choices, offers, limits);
    Ok(found)
}

/// Why no count was looked at.
fn not_there(offers: &[Offer], limits: &Limits) -> String {
    let Some(most) = offers.iter().map(|offer| offer.gpus).max() else {
        return "no GPUs are on offer".into();
    };
    let (least, all) = (limits.gpus_min, limits.gpus_max);
    let asked = if least == all {
        least.to_string()
    } else {
        format!("{least} to {all}")
    };
    format!("it is for {asked} GPUs, and the most of one type that are there is {most}")
}

/// GPUs of roles beside those that train.
fn apart(
    spec: &TrainingSpec,
    machine: &Machine,
    frameworks: &'static Frameworks,
) -> Result<u64, PlanError> {
    let (run, _) = resolve(&alone(spec), machine, frameworks)?;
    Ok(roles::apart(&run))
}

/// A spec on one GPU without a layout: what of it does not depend on how the work is split.
pub(super) fn alone(spec: &TrainingSpec) -> TrainingSpec {
    TrainingSpec {
        layout: Layout {
            gpus: Some(1),
            ..Layout::default()
        },
        ..spec.clone()
    }
}

/// A spec as it stands on so many GPUs of an offer, whether it fits or not, and what was left open.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn stated_on(
    spec: &TrainingSpec,
    gpus: u64,
    (index, offer): (usize, &Offer),
    frameworks: &'static Frameworks,
) -> Result<(Choice, Vec<Assumption>), PlanError> {
    let spec = TrainingSpec {
        layout: Layout {
            gpus: Some(gpus),
            ..spec.layout
        },
        ..spec.clone()
    };
    let plan = plan(&spec, &offer.machine, frameworks)?;
    let parts = (plan.run, plan.memory, plan.speed);
    let choice = Choice::new(index, &offer.machine, parts, &spec.length);
    Ok((choice, plan.assumptions))
}
