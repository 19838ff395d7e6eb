//! `--search`: every layout on the GPUs on offer, and what nothing else beats. The search stands in `antiphon-planner`.

use std::process::ExitCode;

use antiphon_planner::answer::zero_stage;
use antiphon_planner::profile::Frameworks;
use antiphon_planner::search::{Found, Limits, Offer, search};
use antiphon_planner::{Machine, catalog, words};
use antiphon_server::api::model::LessonList;
use serde::Serialize;

use super::{failure, learned, spec};
use crate::cli::{Exit, PlanArgs};
use crate::failure::Failure;
use crate::render::{json, print, table};

/// Runs the search and prints what it found.
pub(super) fn run(
    args: &PlanArgs,
    frameworks: &'static Frameworks,
    lessons: Option<&LessonList>,
) -> Result<ExitCode, Failure> {
    let asked = spec::asked(args)?;
    let offers = offers(args)?;
    let limits = limits(args)?;
    let mut found = search(&asked.spec, &offers, &limits, frameworks).map_err(failure)?;
    if let Some(lessons) = lessons {
        found = found.learned(&offers, &limits, |offer, run| {
            let framework = run.profile.framework.name();
            learned::factors(lessons, &offer.machine.gpu.name, framework)
        });
    }
    if args.json {
        json(&Answer::of(&found, &offers));
    } else {
        show(&found, &offers);
    }
    Ok(if found.recommended.is_some() {
        ExitCode::SUCCESS
    } else {
        Exit::Refused.into()
    })
}

/// The GPUs on offer: the cluster's, the type that is named, or every type of the catalog that has a price.
pub(super) fn offers(args: &PlanArgs) -> Result<Vec<Offer>, Failure> {
    if let Some(file) = &args.cluster {
        return spec::offers(file, args.gpu.as_deref());
    }
    let most = limits(args).map_or(u64::MAX, |limits| limits.gpus_max);
    let of = |machine: Machine| Offer {
        partition: None,
        gpu_type: machine.gpu.name.clone(),
        machine,
        gpus: most.min(1 << 14),
    };
    if args.gpu.is_some() {
        return Ok(vec![of(spec::named(args)?)]);
    }
    Ok(catalog::accelerators()
        .iter()
        .filter(|gpu| gpu.on_demand_usd_h > 0.0)
        .map(|gpu| of(Machine::usual(gpu)))
        .collect())
}

fn limits(args: &PlanArgs) -> Result<Limits, Failure> {
    let (gpus_min, gpus_max) = match args.gpus.as_deref() {
        None => (1, 64),
        Some(text) => words::range(text).ok_or_else(|| {
            let what = format!("`--gpus {text}` is no number of GPUs");
            Failure::new(Exit::Usage, "AP0729", what)
                .help("give one like `8`, or the fewest and the most like `8..64`")
        })?,
    };
    Ok(Limits {
        gpus_min,
        gpus_max,
        hours: args.within.map(|span| span.as_millis() as f64 / 3.6e6),
        usd: args.budget,
    })
}

/// What `--json` prints.
#[derive(Serialize)]
struct Answer {
    recommended: Option<usize>,
    reason: String,
    choices: Vec<ChoiceAnswer>,
    reasons: Vec<String>,
}

/// One choice.
#[derive(Serialize)]
struct ChoiceAnswer {
    partition: Option<String>,
    gpu_type: String,
    gpus: u64,
    dp: u64,
    tp: u64,
    pp: u64,
    cp: u64,
    ep: u64,
    zero: u8,
    micro_batch: u64,
    accumulation: u64,
    layout: String,
    step_ms: f64,
    tokens_per_s: f64,
    mfu: f64,
    peak_bytes: f64,
    margin: f64,
    hours: Option<f64>,
    cost_usd: Option<f64>,
    usd_per_million_tokens: Option<f64>,
}

impl Answer {
    fn of(found: &Found, offers: &[Offer]) -> Self {
        let choices = found.choices.iter().map(|choice| {
            let offer = &offers[choice.offer];
            let run = &choice.run;
            ChoiceAnswer {
                partition: offer.partition.clone(),
                gpu_type: offer.machine.gpu.name.clone(),
                gpus: choice.gpus(),
                dp: run.dp,
                tp: run.tp,
                pp: run.pp,
                cp: run.cp,
                ep: run.ep,
                zero: zero_stage(run.sharding),
                micro_batch: run.micro,
                accumulation: run.accumulation,
                layout: choice.described(),
                step_ms: choice.speed.step_ms,
                tokens_per_s: choice.tokens_per_s(),
                mfu: choice.speed.mfu,
                peak_bytes: choice.memory.device,
                margin: choice.margin(),
                hours: choice.hours,
                cost_usd: choice.usd,
                usd_per_million_tokens: choice.usd_m_tokens,
            }
        });
        Self {
            recommended: found.recommended,
            reason: found.reason.clone(),
            choices: choices.collect(),
            reasons: found
                .assumptions
                .iter()
                .map(|assumption| {
                    format!(
                        "{}: {} ({})",
                        assumption.what, assumption.taken, assumption.why
                    )
                })
                .collect(),
        }
    }
}

fn show(found: &Found, offers: &[Offer]) {
    let or_blank = |value: Option<f64>, decimals: usize| {
        value.map_or_else(String::new, |value| format!("{value:.decimals$}"))
    };
    let rows = found
        .choices
        .iter()
        .enumerate()
        .map(|(index, choice)| {
            let offer = &offers[choice.offer];
            vec![
                if found.recommended == Some(index) {
                    "*".into()
                } else {
                    String::new()
                },
                format!("{} x {}", choice.gpus(), offer.machine.gpu.name),
                format!("{:.1}", choice.speed.step_ms / 1e3),
                format!("{:.0}", choice.tokens_per_s()),
                or_blank(choice.hours, 1),
                or_blank(choice.usd, 0),
                or_blank(choice.usd_m_tokens, 3),
                format!("{:.0}", 100.0 * choice.margin()),
                choice.described(),
            ]
        })
        .collect::<Vec<_>>();
    if !rows.is_empty() {
        let header = [
            "BEST",
            "GPUS",
            "STEP S",
            "TOKENS/S",
            "HOURS",
            "USD",
            "USD/M TOKENS",
            "FREE %",
            "LAYOUT",
        ];
        table(&header, rows, &["USD/M TOKENS", "FREE %"]);
    }
    print(&format!("{}\n", found.reason));
    for assumption in &found.assumptions {
        print(&format!(
            "assumed {}: {} ({})\n",
            assumption.what, assumption.taken, assumption.why
        ));
    }
}
