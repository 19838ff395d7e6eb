//! Scores plans against a table of measurements: `score measurements.csv [kernels.toml] [--rows] [--parts]`; the last tells what
//! each step is spent on.

#![expect(clippy::print_stdout, reason = "a command line prints its answer")]

use antiphon_planner::row::{self, Cells};
use antiphon_planner::speed::speed_with;
use antiphon_planner::{kernels, plan, profile, score};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, rest @ ..] = arguments.as_slice() else {
        return Err("give a table of measurements".into());
    };
    let mut constants = kernels::constants().clone();
    let (mut show_rows, mut show_parts) = (false, false);
    for argument in rest {
        if argument == "--rows" {
            show_rows = true;
        } else if argument == "--parts" {
            show_parts = true;
        } else {
            constants = kernels::parse(&std::fs::read_to_string(argument)?)?;
        }
    }
    let rows: Vec<Cells> = csv::Reader::from_path(table)?
        .deserialize()
        .collect::<Result<_, _>>()?;
    if show_parts {
        for cells in &rows {
            let Ok(row) = row::read(cells) else { continue };
            let Ok(run) = plan(&row.spec, &row.machine, profile::frameworks()).map(|plan| plan.run)
            else {
                continue;
            };
            let speed = speed_with(&run, &row.machine, &constants);
            print!("{}\t{:.1} ms", cells["row_id"], speed.step_ms);
            for (name, ms) in speed.parts.named() {
                if ms > 0.005 * speed.step_ms {
                    print!("\t{name} {ms:.1}");
                }
            }
            println!();
        }
        return Ok(());
    }
    let scored = score::speed(&rows, profile::frameworks(), &constants);
    if show_rows {
        for row in &scored {
            println!(
                "{}\t{}\t{}\t{}\t{:?}\t{}\t{:.4}\t{:.4}\t{:+.3}",
                row.row,
                row.group.source,
                row.group.method,
                row.group.gpu,
                row.quantity,
                if row.experts { "moe" } else { "dense" },
                row.measured,
                row.planned.unwrap_or(0.0),
                row.planned
                    .map_or(-1.0, |planned| planned / row.measured - 1.0),
            );
        }
    }
    let with = |change: fn(&score::Scored) -> Option<f64>| -> Vec<score::Scored> {
        scored
            .iter()
            .map(|row| score::Scored {
                planned: change(row),
                ..row.clone()
            })
            .collect()
    };
    let calibrated = score::calibrated(&scored);
    for (name, experts) in [("dense", false), ("experts", true)] {
        for (who, rows) in [
            ("one set of constants", &scored),
            ("calibrated", &calibrated),
            (
                "6ND at 40 %",
                &with(|row| said(row, "6 N D at 40 % of the data sheet")),
            ),
            (
                "roofline",
                &with(|row| said(row, "a roofline with fixed shares")),
            ),
        ] {
            let summary = score::summarize(rows.iter().filter(|row| row.experts == experts));
            println!(
                "{name}, {who}: median {:.1} % p90 {:.1} % over {} groups",
                100.0 * summary.median,
                100.0 * summary.p90,
                summary.groups.len()
            );
        }
        let summary = score::summarize(scored.iter().filter(|row| row.experts == experts));
        for (group, count, median, signed) in &summary.groups {
            println!(
                "  {:5.1} % {:+6.1} % {count:4} {} | {} | {}",
                100.0 * median,
                100.0 * signed,
                group.source.get(..28).unwrap_or(&group.source),
                group.method,
                group.gpu
            );
        }
    }
    let sweeps = score::sweeps(&scored, 5);
    let coefficients: Vec<f64> = sweeps.iter().map(|sweep| sweep.2).collect();
    println!(
        "rank inside {} sweeps of at least 5 rows: median {:.3}, lowest tenth {:.3}",
        sweeps.len(),
        score::quantile(coefficients.clone(), 0.5),
        score::quantile(coefficients, 0.1)
    );
    for (name, count, coefficient) in sweeps.iter().filter(|sweep| sweep.2 < 0.9) {
        println!("  {coefficient:.3} {count:4} {name}");
    }
    Ok(())
}

fn said(row: &score::Scored, who: &str) -> Option<f64> {
    row.others
        .iter()
        .find(|(name, _)| *name == who)
        .map(|(_, said)| *said)
}
