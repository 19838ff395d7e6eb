//! Jobs with several roles, each with GPUs of its own: which models of the training a role holds, and how many GPUs that takes.
//! A model without a role shares the trainer's GPUs.

use antiphon_planner::roles::{self, Part};
use antiphon_planner::search::{self, Choice, Found, Gang, Limits, Offer};
use antiphon_planner::{PlanError, ladder, profile, shapes};
use antiphon_types::training::{Rollout, Task, TrainingSpec};
use antiphon_types::{Role, Shape};

use super::{Planned, assumed, estimate, guessed, impossible, offer_of, plan_of, sentence};
use crate::jobfile::read::JobFileError;
use crate::jobfile::train::TrainFile;
use crate::lessons::Site;

/// Plans the roles of a job, the trainer first: those that are `open` get their shapes from the plan, the others keep theirs.
pub(in super::super) fn gang(
    train: &TrainFile,
    roles: &mut [Role],
    open: &dyn Fn(&str) -> bool,
    site: &Site,
) -> Result<Planned, JobFileError> {
    let part = |role: &Role| Part::of_name(&role.name);
    let Some(trainer) = roles
        .iter()
        .position(|role| part(role) == Some(Part::Trainer))
    else {
        let named: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        return Ok(Planned {
            warnings: vec![format!(
                "`[train]` is not planned: none of the roles {} is called `trainer`, so their `resources` alone decide what they get",
                quoted(&named)
            )],
            ..Planned::default()
        });
    };
    // What is planned, measured and laddered is the trainer: the first role.
    roles[..=trainer].rotate_right(1);
    let wish = match Wish::of(train, roles, open) {
        Ok(wish) => wish,
        Err(error) if roles.iter().any(|role| open(&role.name)) => return Err(error),
        Err(error) => return Ok(not_planned(&error.to_string())),
    };
    let result = planned(train, roles, open, site, &wish);
    match result {
        Err(error) if !wish.open => Ok(not_planned(&error.to_string())),
        other => other,
    }
}

fn not_planned(why: &str) -> Planned {
    Planned {
        warnings: vec![format!("not planned: {why}")],
        ..Planned::default()
    }
}

/// `a`, `b`.
fn quoted(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}

/// What is to be planned.
struct Wish {
    spec: TrainingSpec,
    gang: Gang,
    /// Whether some role is to get its shape from the plan.
    open: bool,
    warnings: Vec<String>,
}

impl Wish {
    fn of(
        train: &TrainFile,
        roles: &[Role],
        open: &dyn Fn(&str) -> bool,
    ) -> Result<Self, JobFileError> {
        let mut spec = train.spec()?;
        let mut shared = spec.rollout.unwrap_or_default();
        let mut gang = Gang::default();
        let mut warnings = Vec::new();
        let mut any_open = false;
        for role in roles {
            let Some(part) = Part::of_name(&role.name) else {
                continue;
            };
            let is_open = open(&role.name);
            let gpus = if is_open { None } else { Some(whole(role)?) };
            // A program that judges answers, or a server of prompts, is no model.
            if gpus == Some(0) && part != Part::Trainer {
                continue;
            }
            if matches!(part, Part::Reference | Part::Reward) {
                claim(part, &mut shared, is_open, &mut warnings);
            }
            if !roles::has(spec.task, &shared, part) {
                if !is_open {
                    continue;
                }
                let at = format!("roles.{}.resources", role.name);
                let why = format!(
                    "{} has no {}, so that no plan says what the role needs",
                    word(spec.task),
                    part.name()
                );
                let help = "give the role `resources = { gpus = 1 }`, or say in `train.task` what is trained";
                return Err(JobFileError::value(&at, why, help));
            }
            any_open |= is_open;
            if part == Part::Trainer {
                gang.trainer = gpus;
            } else {
                gang.own.push((part, gpus));
            }
        }
        for part in Part::ALL {
            let has_role = gang.own.iter().any(|(own, _)| *own == part);
            let Some(gpus) = part.stated(&shared).filter(|_| !has_role) else {
                continue;
            };
            if roles::has(spec.task, &shared, part) {
                warnings.push(format!(
                    "the config gives {} {gpus} GPUs of its own and the job has no role `{0}`: planned on the trainer's",
                    part.name()
                ));
            }
            part.state(&mut shared, None);
        }
        spec.rollout = Some(shared);
        Ok(Self {
            spec,
            gang,
            open: any_open,
            warnings,
        })
    }
}

/// A task as it is written in a job file.
fn word(task: Task) -> String {
    let word = serde_json::to_value(task).ok();
    let word = word.as_ref().and_then(|word| word.as_str());
    format!("a task `{}`", word.unwrap_or("?"))
}

/// A role says that there is such a model, where the task leaves that open.
fn claim(part: Part, shared: &mut Rollout, is_open: bool, warnings: &mut Vec<String>) {
    if part == Part::Reference {
        shared.reference.get_or_insert(true);
        return;
    }
    if shared.reward.is_none() && is_open {
        warnings.push(
            "role `reward` is planned as a model as large as the trained one; where it is a program, give it `resources = { gpus = 0 }`".into(),
        );
    }
    shared.reward.get_or_insert(true);
}

/// GPUs of a role that says how many it has.
fn whole(role: &Role) -> Result<u64, JobFileError> {
    role.shape.gpus.whole().map(u64::from).ok_or_else(|| {
        let at = format!("roles.{}.resources.gpus", role.name);
        let why = format!("a plan is for whole GPUs, not for {}", role.shape.gpus);
        JobFileError::value(&at, why, "give a whole number, or leave out `[train]`")
    })
}

fn planned(
    train: &TrainFile,
    roles: &mut [Role],
    open: &dyn Fn(&str) -> bool,
    site: &Site,
    wish: &Wish,
) -> Result<Planned, JobFileError> {
    let layout_is_planned = train.layout_is_planned() && open(&roles[0].name);
    let offers = on_offer(&roles[0], open, site)?;
    let look = |limits: &Limits| -> Result<Found, PlanError> {
        let hardware = (&offers[..], limits);
        let found = search::gang(
            &wish.spec,
            &wish.gang,
            layout_is_planned,
            hardware,
            profile::frameworks(),
        );
        Ok(found?.learned(&offers, limits, |offer, run| {
            let gpu = &offer.machine.gpu.name;
            site.lessons.factors(gpu, run.profile.framework)
        }))
    };
    let limits = train.limits(None)?;
    let (limits, found) = super::first_that_will_do(&limits, look)?;
    let Some(index) = found.recommended else {
        return Err(impossible(
            format!("no roles on this cluster will do: {}", found.reason),
            "allow more with `train.gpus`, `within` or `budget`, let models share the trainer's GPUs by taking out their roles, or give each role `resources`",
        ));
    };
    let choice = &found.choices[index];
    let offer = &offers[choice.offer];
    for role in roles.iter_mut().filter(|role| open(&role.name)) {
        if let Some(shape) = shape_of(&role.name, choice, offer) {
            role.shape = Shape {
                processes: role.shape.processes,
                ..shape
            };
        }
    }
    let mut plan = plan_of(choice, offer, site, layout_is_planned);
    // It is the plan of the first role's shape.
    plan.gpus = roles[0].shape.gpus;
    plan.partition.clone_from(&roles[0].shape.partition);
    let beside = choice.gpus() - choice.run.gpus;
    let shared: Vec<&str> = roles::shared(&choice.run)
        .into_iter()
        .map(Part::name)
        .collect();
    let mut notes = vec![format!(
        "planned: {}",
        if wish.open {
            found.reason.clone()
        } else {
            sentence(&plan)
        }
    )];
    if shared.len() > 1 {
        notes.push(format!("{} share the trainer's GPUs", quoted(&shared)));
    }
    notes.extend(assumed(&found.assumptions));
    Ok(Planned {
        estimate: estimate(std::iter::once(choice)),
        ladder: if layout_is_planned {
            let most = limits.gpus_max.min(offer.gpus).saturating_sub(beside);
            ladder::ladder(&choice.run, &offer.machine, most)
        } else {
            Vec::new()
        },
        plans: vec![plan],
        warnings: guessed(&found.assumptions)
            .chain(wish.warnings.iter().cloned())
            .collect(),
        notes,
    })
}

/// The offers that the trainer's own resources leave: all of them where the planner chooses.
fn on_offer(
    trainer: &Role,
    open: &dyn Fn(&str) -> bool,
    site: &Site,
) -> Result<Vec<Offer>, JobFileError> {
    if site.offers.is_empty() {
        return Err(super::nothing_on_offer(site));
    }
    if open(&trainer.name) {
        return Ok(site.offers.clone());
    }
    let only = offer_of(&trainer.shape, site).ok_or_else(|| {
        let at = format!("roles.{}.resources.gpu_type", trainer.name);
        let why = "the cluster has several GPU types, and which one it will be is not known";
        JobFileError::value(
            &at,
            why,
            "name the GPU type, or leave out `resources`, and the planner chooses",
        )
    })?;
    Ok(vec![only.clone()])
}

/// The shape of a role in a choice; none where the role holds no model of the training.
fn shape_of(name: &str, choice: &Choice, offer: &Offer) -> Option<Shape> {
    match Part::of_name(name)? {
        Part::Trainer => Some(shapes::of_trainer(choice, offer)),
        part => {
            let role = choice.roles.iter().find(|role| role.part == part)?;
            Some(shapes::of_role(role, offer))
        }
    }
}
