//! From `[train]` to shapes, an estimate and an out-of-memory ladder: the planner's answer on the cluster that there is, with what
//! attempts on it have taught.

use antiphon_planner::search::{self, Choice, Found, Limits, Offer};
use antiphon_planner::{Assumption, PlanError, ladder, profile, shapes};
use antiphon_types::{Estimate, Millis, Rung, Shape, ShapePlan};

use super::read::JobFileError;
use super::train::TrainFile;
use crate::lessons::Site;

/// By how much a run takes less and longer than planned, in percent: the medians of nine tenths of the groups of measured dense
/// runs lie within the first pair, of those with experts within the second (`docs/reference/plan.md`).
const DENSE_PERCENT: (u64, u64) = (81, 131);
const EXPERTS_PERCENT: (u64, u64) = (58, 171);

const GIB: f64 = 1_073_741_824.0;

/// What the planner makes of a job.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// The plan of each shape.
    pub(super) plans: Vec<ShapePlan>,
    /// How long it runs in its fastest shape.
    pub(super) estimate: Option<Estimate>,
    /// What to try when it is out of memory.
    pub(super) ladder: Vec<Rung>,
    /// What its sender should know.
    pub(super) warnings: Vec<String>,
    /// What was chosen, and why.
    pub(super) notes: Vec<String>,
}

/// The shapes of a job that says what it trains and not what it needs.
pub(super) fn made(
    train: &TrainFile,
    site: &Site,
) -> Result<(Shape, Vec<Shape>, Planned), JobFileError> {
    let spec = train.spec()?;
    let limits = train.limits()?;
    let nothing = |what: String, help: &str| JobFileError {
        code: "AP0209",
        at: "train".into(),
        what,
        help: help.into(),
    };
    if site.offers.is_empty() {
        let names: Vec<&str> = site.unknown.iter().map(String::as_str).collect();
        let what = if names.is_empty() {
            "the cluster has no GPUs to plan for".to_owned()
        } else {
            format!(
                "no GPU type of this cluster can be planned for: the planner does not know `{}`",
                names.join("`, `")
            )
        };
        let help = "give `[resources]` with `gpus = 8`, or name the GPU types in the cluster file as `antiphon plan --gpu` knows them";
        return Err(nothing(what, help));
    }
    let planned = train.layout_is_planned();
    let look = |limits: &Limits| -> Result<Found, PlanError> {
        let found = if planned {
            search::search(&spec, &site.offers, limits, profile::frameworks())
        } else {
            search::stated(&spec, &site.offers, limits, profile::frameworks())
        };
        Ok(found?.learned(&site.offers, limits, |offer, run| {
            let gpu = &offer.machine.gpu.name;
            site.lessons.factors(gpu, run.profile.framework)
        }))
    };
    let mut tried = limits.iter();
    let (mut limits, mut found) = (
        limits[0],
        look(&limits[0]).map_err(|error| of_plan(&error))?,
    );
    for more in tried.by_ref().skip(1) {
        if found.recommended.is_some() {
            break;
        }
        (limits, found) = (*more, look(more).map_err(|error| of_plan(&error))?);
    }
    let shapes = shapes::shapes(&found, &site.offers, &limits);
    let Some((first, others)) = shapes.split_first() else {
        let what = format!("no shape on this cluster will do: {}", found.reason);
        let help = "allow more with `train.gpus`, `within` or `budget`, ask `antiphon plan --search` for what would do, or give `[resources]`";
        return Err(nothing(what, help));
    };
    let plan = |index: usize| {
        let choice = &found.choices[index];
        plan_of(choice, &site.offers[choice.offer], site, planned)
    };
    let result = Planned {
        plans: shapes.iter().map(|&(_, index)| plan(index)).collect(),
        estimate: estimate(shapes.iter().map(|&(_, index)| &found.choices[index])),
        ladder: if planned {
            let choice = &found.choices[first.1];
            let offer = &site.offers[choice.offer];
            ladder::ladder(&choice.run, &offer.machine, limits.gpus_max.min(offer.gpus))
        } else {
            Vec::new()
        },
        warnings: guessed(&found.assumptions).collect(),
        notes: std::iter::once(format!("planned: {}", found.reason))
            .chain(assumed(&found.assumptions))
            .collect(),
    };
    let others = others.iter().map(|(shape, _)| shape.clone()).collect();
    Ok((first.0.clone(), others, result))
}

/// What was left open and taken as usual, in a line.
fn assumed(assumptions: &[Assumption]) -> Option<String> {
    let taken = assumptions
        .iter()
        .filter(|assumption| !is_guess(assumption))
        .map(|assumption| format!("{} {}", assumption.what, assumption.taken));
    let taken: Vec<String> = taken.collect();
    (!taken.is_empty()).then(|| format!("assumed: {}", taken.join("; ")))
}

/// Whether an assumption may well be wrong: a model that nobody knows, taken for one of the size that its name tells.
fn is_guess(assumption: &Assumption) -> bool {
    assumption.what == "model"
}

fn guessed(assumptions: &[Assumption]) -> impl Iterator<Item = String> {
    assumptions.iter().filter(|it| is_guess(it)).map(|it| {
        format!(
            "planned with a guess: {} {} ({})",
            it.what, it.taken, it.why
        )
    })
}

/// What a plan says of the shapes that a job file asks for; the file decides, so that what cannot be planned is no error.
pub(super) fn held_against(train: &TrainFile, shapes: &[&Shape], site: &Site) -> Planned {
    let mut result = Planned::default();
    let spec = match train.spec() {
        Ok(spec) => spec,
        Err(error) => {
            result.warnings.push(format!("not planned: {error}"));
            return result;
        }
    };
    let mut choices = Vec::new();
    for shape in shapes {
        let Some((offer, gpus)) = offer_of(shape, site).zip(shape.gpus.whole()) else {
            continue;
        };
        if gpus == 0 {
            continue;
        }
        let on = search::stated_on(&spec, u64::from(gpus), (0, offer), profile::frameworks());
        let choice = match on {
            Err(error) => {
                let why = of_plan(&error).what;
                result.warnings.push(format!("not planned: {why}"));
                continue;
            }
            Ok((choice, assumptions)) => {
                result.warnings.extend(guessed(&assumptions));
                let gpu = &offer.machine.gpu.name;
                let framework = choice.run.profile.framework;
                choice.learned(&site.lessons.factors(gpu, framework))
            }
        };
        if !choice.memory.fits {
            result.warnings.push(format!(
                "planned to run out of memory: it needs {} of {gpus} {}; `antiphon plan --search` says what would do",
                choice.memory_in_words(),
                offer.gpu_type
            ));
        }
        let plan = plan_of(&choice, offer, site, false);
        result.notes.push(format!("planned: {}", sentence(&plan)));
        result.plans.push(ShapePlan {
            partition: shape.partition.clone(),
            ..plan
        });
        choices.push(choice);
    }
    result.estimate = estimate(choices.iter());
    result
}

/// The plan of a choice as it is stored with a job.
fn plan_of(choice: &Choice, offer: &Offer, site: &Site, tells: bool) -> ShapePlan {
    let mut plan = shapes::plan_of(choice, offer);
    let framework = choice.run.profile.framework;
    plan.learned = site.lessons.learned(&offer.machine.gpu.name, framework);
    if !tells {
        // Its command follows its own config: variables would only say what it may not do.
        plan.environment.clear();
    }
    plan
}

/// The offer that a shape would run on: the one of its type and partition, or of the only type there is.
fn offer_of<'a>(shape: &Shape, site: &'a Site) -> Option<&'a Offer> {
    let wanted = |offer: &&Offer| {
        let of_type = shape.gpu_type.as_ref();
        let of_partition = shape.partition.as_ref();
        of_type.is_none_or(|name| *name == offer.gpu_type)
            && of_partition.is_none_or(|name| Some(name) == offer.partition.as_ref())
    };
    let mut wanted = site.offers.iter().filter(wanted);
    let first = wanted.next()?;
    let only = site.unknown.is_empty() && wanted.all(|other| other.gpu_type == first.gpu_type);
    (shape.gpu_type.is_some() || only).then_some(first)
}

/// How long the run takes in the fastest of these choices, where its length is known.
fn estimate<'a>(choices: impl Iterator<Item = &'a Choice>) -> Option<Estimate> {
    let fastest = choices.max_by(|a, b| a.tokens_per_s().total_cmp(&b.tokens_per_s()))?;
    let expected = (fastest.hours? * 3.6e6).round().clamp(1.0, 3e14) as u64;
    let (low, high) = if fastest.run.model.experts.is_some() {
        EXPERTS_PERCENT
    } else {
        DENSE_PERCENT
    };
    let part = |percent: u64| Millis::from_millis(expected * percent / 100);
    Some(Estimate {
        low: part(low),
        expected: Millis::from_millis(expected),
        high: part(high),
    })
}

fn of_plan(error: &PlanError) -> JobFileError {
    let at = match error {
        PlanError::UnknownModel { .. } => "train.model",
        _ => "train",
    };
    JobFileError {
        code: error.code(),
        at: at.into(),
        what: format!("`{at}`: {error}"),
        help: error.help(),
    }
}

/// A plan in a sentence.
#[must_use]
pub fn sentence(plan: &ShapePlan) -> String {
    let mut text = format!(
        "{} {}: {}; a step of {} tokens in {:.3} s, {:.1} GiB of {:.1} a GPU",
        plan.gpus,
        plan.gpu_type,
        plan.layout,
        plan.tokens_per_step,
        plan.step_us as f64 / 1e6,
        plan.peak.get() as f64 / GIB,
        plan.usable.get() as f64 / GIB,
    );
    if let Some(duration) = plan.duration {
        text += &format!("; {duration}");
    }
    if let Some(cost) = plan.cost {
        text += &format!(", ${:.2}", cost.micros() as f64 / 1e6);
    }
    text
}

#[cfg(test)]
mod tests;
