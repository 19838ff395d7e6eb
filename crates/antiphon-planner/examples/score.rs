//! Scores plans against a table of measurements: `score measurements.csv [kernels.toml] [--rows] [--parts]`; the last tells what
//! each step is spent on.

#![expect(clippy::print_stdout, reason = "a command line prints its answer")]

use antiphon_planner::row::{self, Cells};
use antiphon_planner::speed::speed_with;
use antiphon_planner::{kernels, profile, resolve, score};

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
            let Ok((run, _)) = resolve(&row.spec, &row.machine, profile::frameworks()) else {
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
    for (name, experts) in [("dense", false), ("experts", true)] {
        let summary = score::summarize(scored.iter().filter(|row| row.experts == experts));
        println!(
            "{name}: median {:.1} % p90 {:.1} % over {} groups",
            100.0 * summary.median,
            100.0 * summary.p90,
            summary.groups.len()
        );
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
    Ok(())
}
