//! `antiphon plan`: what a training run needs, how fast it is and what it costs, from a config, from options, or for every
//! row of a table. What is computed stands in `antiphon-planner`, what is read in `antiphon-import`; here are files and words.

mod choices;
mod learned;
mod page;
mod spec;
mod table;
mod text;

use std::fs;
use std::process::ExitCode;

use antiphon_planner::advice::{Asked, Breadth, advise};
use antiphon_planner::answer::Answer;
use antiphon_planner::profile::{self, Frameworks};
use antiphon_planner::{PlanError, plan};

use crate::cli::{Exit, PlanArgs, Target};
use crate::failure::Failure;
use crate::render::{json, print, say};

/// Runs `antiphon plan`.
pub(crate) fn run(target: &Target, args: &PlanArgs) -> Result<ExitCode, Failure> {
    let frameworks = frameworks(args)?;
    if let Some(file) = &args.batch {
        return table::batch(file, frameworks);
    }
    if let Some(file) = &args.validate {
        return table::validate(file, frameworks, args.json, args.html.as_deref());
    }
    let lessons = args.learned.then(|| learned::lessons(target)).transpose()?;
    if let Some(lessons) = lessons
        .as_ref()
        .filter(|_| args.file.is_none() && args.model.is_none())
    {
        learned::show(lessons, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    if args.search {
        return choices::run(args, frameworks, lessons.as_ref());
    }
    let asked = spec::asked(args)?;
    let mut plan = plan(&asked.spec, &asked.machine, frameworks).map_err(failure)?;
    if let Some(lessons) = &lessons {
        let (with, told) = learned::applied(plan, lessons);
        say(&told);
        plan = with;
    }
    let advice = advise(&Asked {
        spec: &asked.spec,
        plan: &plan,
        breadth: breadth(args)?,
        offers: &choices::offers(args)?,
        frameworks,
    });
    plan.assumptions.splice(0..0, asked.assumptions);
    let answer = Answer::of(&plan, &asked.spec.length, &advice);
    let told = text::answer(&plan, &answer);
    if let Some(path) = &args.html {
        page::write(path, &plan, &told)?;
    }
    if args.json {
        json(&answer);
    } else {
        print(&told);
    }
    Ok(if plan.fits() {
        ExitCode::SUCCESS
    } else {
        Exit::Refused.into()
    })
}

fn breadth(args: &PlanArgs) -> Result<Option<Breadth>, Failure> {
    Ok(match args.breadth.as_deref() {
        None => None,
        Some("narrow") => Some(Breadth::Narrow),
        Some("reasoning") => Some(Breadth::Reasoning),
        Some("open") => Some(Breadth::Open),
        Some(other) => {
            return Err(spec::unknown_word(
                "--breadth",
                other,
                "narrow, reasoning, open",
            ));
        }
    })
}

/// What frameworks do: what is compiled in, unless a file says otherwise.
fn frameworks(args: &PlanArgs) -> Result<&'static Frameworks, Failure> {
    let Some(file) = &args.frameworks else {
        return Ok(profile::frameworks());
    };
    let unreadable = |why: String| {
        let what = format!(
            "`{}` can't be read as a table of frameworks",
            file.display()
        );
        Failure::new(Exit::Usage, "AP0726", what)
            .why(why)
            .help("give a table in the form of the planner's own `catalog/frameworks.toml`")
    };
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    let frameworks = profile::parse(&text).map_err(|error| unreadable(error.to_string()))?;
    // One table for the whole life of the program.
    Ok(Box::leak(Box::new(frameworks)))
}

/// A plan that can't be made, in the form that every command has.
pub(crate) fn failure(error: PlanError) -> Failure {
    Failure::new(Exit::Refused, error.code(), error.to_string()).help(error.help())
}
