//! From `[train]` to shapes, an estimate and an out-of-memory ladder: the planner's answer on the cluster that there is, with what
//! attempts on it have taught.

use antiphon_planner::roles::{self, Part};
use antiphon_planner::search::{self, Choice, Found, Limits, Offer};
use antiphon_planner::{Assumption, PlanError, ladder, profile, shapes};
use antiphon_types::training::TrainingSpec;
use antiphon_types::{Estimate, Millis, Rung, Shape, ShapePlan};

use super::read::JobFileError;
use super::train::TrainFile;
use crate::lessons::Site;

mod gang;

pub(super) use gang::gang;

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
    if site.offers.is_empty() {
        return Err(nothing_on_offer(site));
    }
    let planned = train.layout_is_planned();
    let stated = if planned { None } else { gpus_of(&spec) };
    let limits = train.limits(stated)?;
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
    let (limits, found) = first_that_will_do(&limits, look)?;
    let shapes = shapes::shapes(&found, &site.offers, &limits);
    let Some((first, others)) = shapes.split_first() else {
        let what = format!("no shape on this cluster will do: {}", found.reason);
        let help = "allow more with `train.gpus`, `within` or `budget`, ask `antiphon plan --search` for what would do, or give `[resources]`";
        return Err(impossible(what, help));
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
        warnings: guessed(&found.assumptions)
            .chain(started_elsewhere(&found.choices[first.1]))
            .collect(),
        notes: std::iter::once(format!("planned: {}", found.reason))
            .chain(sharing(&found.choices[first.1]))
            .chain(assumed(&found.assumptions))
            .collect(),
    };
    let others = others.iter().map(|(shape, _)| shape.clone()).collect();
    Ok((first.0.clone(), others, result))
}

/// GPUs that a config states for the job, those of roles beside included.
fn gpus_of(spec: &TrainingSpec) -> Option<u64> {
    let shared = spec.rollout.unwrap_or_default();
    let beside = Part::ALL.iter().filter_map(|part| {
        let gpus = part.stated(&shared)?;
        roles::has(spec.task, &shared, *part).then_some(gpus)
    });
    Some(spec.layout.gpus? + beside.sum::<u64>())
}

/// The first of some limits within which something will do; the last where nothing does.
fn first_that_will_do(
    limits: &[Limits],
    look: impl Fn(&Limits) -> Result<Found, PlanError>,
) -> Result<(Limits, Found), JobFileError> {
    let look = |limits: &Limits| look(limits).map_err(|error| of_plan(&error));
    let mut taken = (limits[0], look(&limits[0])?);
    for more in &limits[1..] {
        if taken.1.recommended.is_some() {
            break;
        }
        taken = (*more, look(more)?);
    }
    Ok(taken)
}

fn impossible(what: String, help: &str) -> JobFileError {
    JobFileError {
        code: "AP0209",
        at: "train".into(),
        what,
        help: help.into(),
    }
}

fn nothing_on_offer(site: &Site) -> JobFileError {
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
    impossible(what, help)
}

/// Which models share the GPUs of a job of one role, where there are several.
fn sharing(choice: &Choice) -> Option<String> {
    let shared: Vec<&str> = roles::shared(&choice.run)
        .into_iter()
        .map(Part::name)
        .collect();
    (shared.len() > 1).then(|| {
        format!(
            "`{}` share {}; a model gets its own as a role of the job",
            shared.join("`, `"),
            match choice.run.gpus {
                1 => "one GPU".to_owned(),
                gpus => format!("{gpus} GPUs"),
            }
        )
    })
}

/// Roles that the config gives GPUs of their own and that this job's command does not start.
fn started_elsewhere(choice: &Choice) -> Option<String> {
    let beside = choice.gpus() - roles::of_command(&choice.run);
    let names: Vec<&str> = choice.roles.iter().map(|role| role.part.name()).collect();
    (beside > 0).then(|| {
        format!(
            "the config gives `{}` {beside} GPUs of its own, and the job has no role for it: its command has to be started apart; or write `[roles.trainer]` and `[roles.{}]`, each with its `command`, and both start together",
            names.join("`, `"),
            names.first().unwrap_or(&"rollout")
        )
    })
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
        let Some(training) = left_to_train(&spec, u64::from(gpus), &mut result.warnings) else {
            continue;
        };
        let on = search::stated_on(&spec, training, (0, offer), profile::frameworks());
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
        for role in choice.roles.iter().filter(|role| !role.fits) {
            result.warnings.push(format!(
                "planned to run out of memory: {}; give it more GPUs in the config",
                role.described()
            ));
        }
        result.warnings.extend(started_elsewhere(&choice));
        result.notes.extend(sharing(&choice));
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

/// Of the GPUs that a job asks for, those that train; none, with a warning, where the config gives all of them to roles beside.
fn left_to_train(spec: &TrainingSpec, gpus: u64, warnings: &mut Vec<String>) -> Option<u64> {
    let together = spec.framework.is_some_and(roles::start_together);
    let (Some(all), true) = (gpus_of(spec), together) else {
        return Some(gpus);
    };
    let beside = all - spec.layout.gpus.unwrap_or(0);
    if all != gpus {
        warnings.push(format!(
            "the config is for {all} GPUs, {beside} of them for roles beside the trainer, and `resources` asks for {gpus}"
        ));
    }
    gpus.checked_sub(beside).filter(|left| *left > 0)
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
