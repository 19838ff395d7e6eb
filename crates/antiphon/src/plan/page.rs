//! `--html`: a plan as a page (memory over the step, what a step's time goes into, all that the terminal says), and measured
//! rows against plans as one (how many rows are off by how much).

use std::path::Path;

use antiphon_chart::{Axis, Bar, Bars, Curve, Lines, Spacing, Unit, download, figure, page, text};
use antiphon_planner::memory::{self, Stage};
use antiphon_planner::score::Scored;
use antiphon_planner::{Assumption, Plan};

use crate::failure::Failure;
use crate::simulate::files;

const GIB: f64 = 1_073_741_824.0;

/// Writes the page of a validation; `told` is what the terminal says.
pub(super) fn write_errors(
    path: &Path,
    title: &str,
    memory: &[Scored],
    speed: &[Scored],
    told: &str,
) -> Result<(), Failure> {
    let charts = [
        (
            "memory",
            "Memory: rows that are off by at most so much, %",
            curves(memory.iter()),
        ),
        (
            "speed-dense",
            "Speed, dense: rows that are off by at most so much, %",
            curves(speed.iter().filter(|row| !row.experts)),
        ),
        (
            "speed-experts",
            "Speed, experts: rows that are off by at most so much, %",
            curves(speed.iter().filter(|row| row.experts)),
        ),
    ];
    let mut body = String::from("<h2>Planned against measured</h2>\n<div class=\"pair\">\n");
    for (file, title, curves) in charts {
        let lines = Lines {
            title,
            x: Axis {
                label: "off by, %",
                unit: Unit::Count,
                spacing: Spacing::Log,
            },
            y: Axis {
                label: "%",
                unit: Unit::Count,
                spacing: Spacing::Linear,
            },
            y_max: Some(100.0),
            curves,
        };
        body += &figure(
            &lines.svg(),
            file,
            &lines.csv("off_percent", "rows_percent"),
        );
    }
    body += "</div>\n<h2>By source, method and GPU type</h2>\n<div class=\"scroll\"><pre>";
    body += &text(told);
    body += "</pre></div>\n";
    files::write(path, &page(title, &[], &body))
}

/// One curve for this planner and for each other of which something is known, on the rows of which it says anything.
fn curves<'a>(rows: impl Iterator<Item = &'a Scored> + Clone) -> Vec<Curve> {
    let mut curves = vec![curve(
        "antiphon",
        rows.clone().map(|row| 100.0 * row.error()),
    )];
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in rows.clone().flat_map(|row| &row.others) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    for name in names {
        let errors = rows.clone().filter_map(|row| {
            let (_, said) = row.others.iter().find(|(other, _)| *other == name)?;
            Some(100.0 * (said / row.measured - 1.0).abs())
        });
        curves.push(curve(name, errors));
    }
    curves
}

/// How many rows are off by at most so much; below a thousandth all are right.
fn curve(name: &str, errors: impl Iterator<Item = f64>) -> Curve {
    let mut errors: Vec<f64> = errors.map(|error| error.max(0.1)).collect();
    errors.sort_by(f64::total_cmp);
    let all = errors.len() as f64;
    let point = |(place, error): (usize, f64)| (error, 100.0 * (place + 1) as f64 / all);
    Curve {
        name: name.to_owned(),
        points: errors.into_iter().enumerate().map(point).collect(),
    }
}

/// Writes the page of a plan; `told` is what the terminal says.
pub(super) fn write(path: &Path, plan: &Plan, told: &str) -> Result<(), Failure> {
    files::write(path, &html(plan, told))
}

fn html(plan: &Plan, told: &str) -> String {
    let run = &plan.run;
    let about = [
        ("GPUs", format!("{} {}", run.gpus, plan.machine.gpu.name)),
        ("framework", run.profile.framework.name().to_owned()),
        ("fits", if plan.fits() { "yes" } else { "no" }.to_owned()),
        ("step", format!("{:.0} ms", plan.speed.step_ms)),
        (
            "tokens/s/GPU",
            format!("{:.0}", plan.speed.tokens_per_s_per_gpu),
        ),
        ("antiphon", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let mut body = String::from("<div class=\"pair\">\n<section><h2>Memory over the step</h2>\n");
    body += &of_memory(plan);
    body += "</section>\n<section><h2>Where a step's time goes</h2>\n";
    body += &of_time(plan);
    body += "</section>\n</div>\n<h2>In words</h2>\n<div class=\"scroll\"><pre>";
    body += &text(told);
    body += "</pre></div>\n";
    body += &assumed(&plan.assumptions);
    page(&title(plan), &about, &body)
}

fn title(plan: &Plan) -> String {
    let run = &plan.run;
    format!(
        "{} on {} {}",
        run.model.name, run.gpus, plan.machine.gpu.name
    )
}

/// One bar for each moment of each stage that differs, and what a GPU has as a line.
fn of_memory(plan: &Plan) -> String {
    let run = &plan.run;
    // Between the second and the last stage nothing grows.
    let mut stages = vec![0, 1, run.pp - 1, plan.memory.stage];
    stages.retain(|stage| *stage < run.pp);
    stages.sort_unstable();
    stages.dedup();
    let mut out = String::new();
    for stage in stages {
        let bars = Bars {
            title: "GiB that tensors take, moment by moment",
            unit: Unit::Count,
            parts: PARTS.to_vec(),
            bars: memory::moments(run, stage).iter().map(moment).collect(),
            line: Some((plan.memory.usable / GIB, "what a GPU has")),
        };
        let file = format!("memory-stage-{stage}");
        if run.pp > 1 {
            out += &format!("<div><p>Pipeline stage {} of {}</p>", stage + 1, run.pp);
        }
        out += &figure(&bars.svg(), &file, &bars.csv("moment", "gib"));
        if run.pp > 1 {
            out += "</div>\n";
        }
    }
    out
}

const PARTS: [&str; 6] = [
    "weights",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "buffers",
];

fn moment(moment: &Stage) -> Bar {
    let parts = &moment.parts;
    let values = [
        parts.weights,
        parts.gradients,
        parts.optimizer,
        parts.activations,
        parts.logits,
        parts.buffers,
    ];
    Bar {
        name: moment.phase.name().to_owned(),
        values: values.map(|bytes| bytes / GIB).to_vec(),
    }
}

/// One bar for each part that takes any time, the longest first.
fn of_time(plan: &Plan) -> String {
    let mut parts = plan.speed.parts.named().to_vec();
    parts.retain(|(_, ms)| *ms > 0.0005 * plan.speed.step_ms);
    parts.sort_by(|a, b| b.1.total_cmp(&a.1));
    let share = |(name, ms): &(&str, f64)| Bar {
        name: format!("{name}, {:.0} %", 100.0 * ms / plan.speed.step_ms),
        values: vec![*ms],
    };
    let bars = Bars {
        title: "Milliseconds of a step that nothing else hides",
        unit: Unit::Count,
        parts: vec![""],
        bars: parts.iter().map(share).collect(),
        line: None,
    };
    figure(&bars.svg(), "step", &bars.csv("part", "ms"))
}

fn assumed(assumptions: &[Assumption]) -> String {
    if assumptions.is_empty() {
        return String::new();
    }
    let mut csv = String::from("what,taken,why\n");
    for assumption in assumptions {
        let cells = [assumption.what, &assumption.taken, &assumption.why].map(antiphon_chart::cell);
        csv += &(cells.join(",") + "\n");
    }
    format!(
        "<p>{}</p>\n",
        download("What was left open, as CSV", "assumed.csv", &csv)
    )
}

#[cfg(test)]
mod tests {
    use antiphon_planner::profile::frameworks;
    use antiphon_planner::{Machine, catalog, plan};
    use antiphon_types::training::{Batch, Layout, Model, TrainingSpec};

    use super::*;

    #[test]
    fn every_stage_that_differs_has_its_bars_and_markup_stays_text() {
        let spec = TrainingSpec {
            model: Model::Named("Llama-3.1-70B".into()),
            layout: Layout {
                gpus: Some(64),
                tp: Some(8),
                pp: Some(4),
                ..Layout::default()
            },
            batch: Batch {
                global: Some(256),
                ..Batch::default()
            },
            ..TrainingSpec::default()
        };
        let machine = Machine::usual(catalog::accelerator("H100-SXM-80GB").unwrap());
        let plan = plan(&spec, &machine, frameworks()).unwrap();
        let html = html(&plan, "<b>told</b>");
        assert!(html.contains("&lt;b&gt;told&lt;/b&gt;"));
        for stage in [
            "Pipeline stage 1 of 4",
            "Pipeline stage 2 of 4",
            "Pipeline stage 4 of 4",
        ] {
            assert!(html.contains(stage), "{stage}");
        }
        // The bars of a stage sum to what the plan says of its worst moment.
        let worst = memory::moments(&plan.run, plan.memory.stage)
            .iter()
            .map(|moment| moment.parts.sum())
            .fold(0.0, f64::max);
        assert!((worst / plan.memory.allocated - 1.0).abs() < 1e-9);
        assert!(html.contains("matmul, "));
    }
}
