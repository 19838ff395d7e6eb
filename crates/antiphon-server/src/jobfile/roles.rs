//! From `[resources]`, `[roles]` and `[train]` to the roles of a job with their shapes, and what the planner says of them.

use antiphon_types::{Rejection, Role, Shape};

use super::form::{JobFile, Run};
use super::plan::{self, Planned};
use super::read::JobFileError;
use super::shape::shapes;
use super::spec::name;
use crate::lessons::Site;

/// Name of the role of a job that has only one.
const ROLE: &str = "trainer";

/// The roles of a job file, and what was planned.
pub(super) fn roles(
    file: &JobFile,
    run: &Run,
    site: &dyn Fn() -> Site,
) -> Result<(Vec<Role>, Planned), JobFileError> {
    if file.roles.is_empty() {
        return only_one(file, run, site);
    }
    if file.resources.is_some() || !run.command.is_empty() {
        return Err(JobFileError {
            code: "AP0202",
            at: "roles".into(),
            what: "`roles` stands beside `resources` or `run.command`".into(),
            help: "give each role its own `command` and `resources`".into(),
        });
    }
    let mut roles = Vec::new();
    for (role, spec) in &file.roles {
        name("roles", role)?;
        if spec.command.is_empty() {
            let rejection = Rejection::NoCommand { role: role.clone() };
            return Err(JobFileError {
                code: rejection.code(),
                at: format!("roles.{role}.command"),
                what: rejection.to_string(),
                help: rejection.help(),
            });
        }
        let at = format!("roles.{role}.resources");
        let (shape, alternatives) = shapes(&at, &spec.resources.clone().unwrap_or_default())?;
        roles.push(Role {
            name: role.clone(),
            command: spec.command.clone(),
            shape,
            alternatives,
        });
    }
    let planned = match &file.train {
        None => Planned::default(),
        Some(train) => {
            let open = |role: &str| {
                file.roles
                    .get(role)
                    .is_some_and(|it| it.resources.is_none())
            };
            plan::gang(train, &mut roles, &open, &site())?
        }
    };
    Ok((roles, planned))
}

fn only_one(
    file: &JobFile,
    run: &Run,
    site: &dyn Fn() -> Site,
) -> Result<(Vec<Role>, Planned), JobFileError> {
    let missing = |what: &str, help: &str| JobFileError {
        code: "AP0203",
        at: String::new(),
        what: what.into(),
        help: help.into(),
    };
    if run.command.is_empty() {
        return Err(missing(
            "there is nothing to run: `run.command` is missing",
            "add `[run]` with `command = [\"python\", \"train.py\"]`",
        ));
    }
    let (shape, alternatives, planned) = match (&file.resources, &file.train) {
        (None, None) => {
            return Err(missing(
                "`[resources]` is missing",
                "add `[resources]` with `gpus = 8`, or `gpus = 0` for a job on CPUs; or `[train]` with what it trains, and the planner says what it needs",
            ));
        }
        (None, Some(train)) => plan::made(train, &site())?,
        (Some(resources), train) => {
            let (shape, alternatives) = shapes("resources", resources)?;
            let all: Vec<&Shape> = std::iter::once(&shape).chain(&alternatives).collect();
            let planned = train.as_ref().map_or_else(Planned::default, |train| {
                plan::held_against(train, &all, &site())
            });
            (shape, alternatives, planned)
        }
    };
    let role = Role {
        name: ROLE.into(),
        command: run.command.clone(),
        shape,
        alternatives,
    };
    Ok((vec![role], planned))
}
