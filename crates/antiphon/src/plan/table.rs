//! `--batch` and `--validate`: every row of a table answered, or held against what was measured.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use antiphon_planner::answer::Answer;
use antiphon_planner::profile::Frameworks;
use antiphon_planner::row::{self, Cells};
use antiphon_planner::score::{self, Fits, Scored};
use antiphon_planner::{PlanError, kernels, plan};
use serde::Serialize;

use super::page;
use crate::cli::Exit;
use crate::failure::Failure;
use crate::render::{json, print, print_bytes};

/// The columns that we add, in their order.
const COLUMNS: [&str; 7] = [
    "plan_peak_bytes",
    "plan_tokens_per_s_per_gpu",
    "plan_step_ms",
    "plan_mfu",
    "plan_fits",
    "plan_max_seq_len",
    "plan_reasons",
];

/// Answers every row: the row as it came, with our columns after its own.
pub(super) fn batch(file: &Path, frameworks: &'static Frameworks) -> Result<ExitCode, Failure> {
    let (header, rows) = read(file)?;
    let mut out = csv::Writer::from_writer(Vec::new());
    let written = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Failed, "AP0728", "the answers can't be written").why(error.to_string())
    };
    out.write_record(header.iter().chain(COLUMNS.map(String::from).iter()))
        .map_err(|error| written(&error))?;
    for (record, cells) in rows {
        let answer = columns(&cells, frameworks);
        out.write_record(record.iter().chain(answer.iter().map(String::as_str)))
            .map_err(|error| written(&error))?;
    }
    print_bytes(&out.into_inner().map_err(|error| written(&error))?);
    Ok(ExitCode::SUCCESS)
}

/// Our columns for one row; all but the reason are empty where there is no answer.
fn columns(cells: &Cells, frameworks: &'static Frameworks) -> [String; 7] {
    match answered(cells, frameworks) {
        Ok(columns) => columns,
        Err(error) => {
            let mut columns: [String; 7] = std::array::from_fn(|_| String::new());
            columns[6] = format!("no answer: {error}; {}", error.help());
            columns
        }
    }
}

fn answered(cells: &Cells, frameworks: &'static Frameworks) -> Result<[String; 7], PlanError> {
    let row = row::read(cells)?;
    let plan = plan(&row.spec, &row.machine, frameworks)?;
    let answer = Answer::of(&plan, &row.spec.length, &[]);
    let bytes = score::counted(&row, &plan);
    Ok([
        format!("{bytes:.0}"),
        format!("{:.1}", answer.tokens_per_s_per_gpu),
        format!("{:.1}", answer.step_ms),
        format!("{:.4}", answer.mfu),
        if answer.fits { "yes" } else { "no" }.into(),
        antiphon_planner::plan::longest_sequence(&plan.run, &plan.machine).to_string(),
        answer.reasons.join("; "),
    ])
}

/// Compares every row with what was measured: medians for each source, method and GPU type, then over those.
pub(super) fn validate(
    file: &Path,
    frameworks: &'static Frameworks,
    as_json: bool,
    html: Option<&Path>,
) -> Result<ExitCode, Failure> {
    let (_, rows) = read(file)?;
    let rows: Vec<Cells> = rows.into_iter().map(|(_, cells)| cells).collect();
    let memory = score::memory(&rows, frameworks);
    let speed = score::speed(&rows, frameworks, kernels::constants());
    let calibrated = score::calibrated(&speed);
    let fits = score::fits(&rows, frameworks);
    let ranks = Ranks::of(&speed);
    let told = told(&memory, &speed, &calibrated, (&ranks, &fits));
    if let Some(path) = html {
        let title = format!("Plans held against {}", file.display());
        page::write_errors(path, &title, &memory, &speed, &told)?;
    }
    if as_json {
        json(&Validated {
            memory: Errors::of(memory.iter()),
            memory_stated: Errors::of(memory.iter().filter(|row| row.stated)),
            speed_dense: Errors::of(speed.iter().filter(|row| !row.experts)),
            speed_experts: Errors::of(speed.iter().filter(|row| row.experts)),
            speed_dense_calibrated: Errors::of(calibrated.iter().filter(|row| !row.experts)),
            speed_experts_calibrated: Errors::of(calibrated.iter().filter(|row| row.experts)),
            ranks,
            fits,
        });
    } else {
        print(&told);
    }
    Ok(ExitCode::SUCCESS)
}

fn told(
    memory: &[Scored],
    speed: &[Scored],
    calibrated: &[Scored],
    (ranks, fits): (&Ranks, &Fits),
) -> String {
    let mut text = String::new();
    for (name, rows) in [
        ("memory", Errors::of(memory.iter())),
        (
            "memory, layout fully stated",
            Errors::of(memory.iter().filter(|row| row.stated)),
        ),
        (
            "speed, dense",
            Errors::of(speed.iter().filter(|row| !row.experts)),
        ),
        (
            "speed, dense, calibrated",
            Errors::of(calibrated.iter().filter(|row| !row.experts)),
        ),
        (
            "speed, experts",
            Errors::of(speed.iter().filter(|row| row.experts)),
        ),
        (
            "speed, experts, calibrated",
            Errors::of(calibrated.iter().filter(|row| row.experts)),
        ),
    ] {
        let _ = writeln!(
            text,
            "{name}: median {:.1} %, nine tenths below {:.1} %, over {} groups of {} rows",
            rows.median_percent,
            rows.p90_percent,
            rows.groups.len(),
            rows.rows
        );
        for other in &rows.others {
            let _ = writeln!(
                text,
                "  {} is off by {:.1} % on {} rows, this by {:.1} % there",
                other.name, other.median_percent, other.rows, other.ours_percent
            );
        }
        for group in &rows.groups {
            let _ = writeln!(
                text,
                "  {:>7.1} % {:>+8.1} % {:>4}  {}, {}, {}",
                group.median_percent,
                group.signed_percent,
                group.rows,
                group.source,
                group.method,
                group.gpu
            );
        }
    }
    let _ = writeln!(
        text,
        "speed, order inside {} sweeps of at least {SWEEP} rows: Spearman's coefficient {:.2} in the median, {:.2} in the lowest, at least {RANKED_WELL} in {}",
        ranks.sweeps, ranks.median, ranks.lowest, ranks.well
    );
    for (name, rows, coefficient) in &ranks.below {
        let _ = writeln!(text, "  {coefficient:>7.2} {rows:>4}  {name}");
    }
    let _ = writeln!(
        text,
        "fits: {} of {} that ran, {} of {} that were out of memory, longest sequence right in {} of {}",
        fits.ran_fit, fits.ran, fits.failed_fit, fits.failed, fits.longest_right, fits.longest
    );
    text
}

/// What `--validate --json` prints.
#[derive(Serialize)]
struct Validated {
    memory: Errors,
    memory_stated: Errors,
    speed_dense: Errors,
    speed_dense_calibrated: Errors,
    speed_experts: Errors,
    speed_experts_calibrated: Errors,
    ranks: Ranks,
    fits: Fits,
}

/// A sweep of fewer rows says little of an order.
const SWEEP: usize = 5;
/// Spearman's coefficient from which on an order is about right.
const RANKED_WELL: f64 = 0.9;

/// How well rows of one model with one library on one GPU type are ordered by their speed.
#[derive(Serialize)]
struct Ranks {
    sweeps: usize,
    median: f64,
    lowest: f64,
    /// Sweeps whose coefficient is at least 0.9.
    well: usize,
    /// The others: name, rows, coefficient.
    below: Vec<(String, usize, f64)>,
}

impl Ranks {
    fn of(speed: &[Scored]) -> Self {
        let mut sweeps = score::sweeps(speed, SWEEP);
        let coefficients: Vec<f64> = sweeps.iter().map(|sweep| sweep.2).collect();
        let all = sweeps.len();
        sweeps.retain(|sweep| sweep.2 < RANKED_WELL);
        sweeps.sort_by(|a, b| a.2.total_cmp(&b.2));
        Self {
            sweeps: all,
            median: score::quantile(coefficients.clone(), 0.5),
            lowest: score::quantile(coefficients, 0.0),
            well: all - sweeps.len(),
            below: sweeps,
        }
    }
}

/// Errors of one answer over groups.
#[derive(Serialize)]
struct Errors {
    rows: usize,
    median_percent: f64,
    p90_percent: f64,
    /// The same for what others would say.
    others: Vec<OtherErrors>,
    groups: Vec<GroupErrors>,
}

/// Errors of another estimator over the groups of which it says anything, and this one's there.
#[derive(Serialize)]
struct OtherErrors {
    name: &'static str,
    rows: usize,
    median_percent: f64,
    ours_percent: f64,
}

/// Errors of one group.
#[derive(Serialize)]
struct GroupErrors {
    source: String,
    method: String,
    gpu: String,
    rows: usize,
    median_percent: f64,
    signed_percent: f64,
}

impl Errors {
    fn of<'a>(rows: impl Iterator<Item = &'a Scored> + Clone) -> Self {
        let others = others(rows.clone());
        let summary = score::summarize(rows);
        Self {
            rows: summary.groups.iter().map(|group| group.1).sum(),
            median_percent: 100.0 * summary.median,
            p90_percent: 100.0 * summary.p90,
            others,
            groups: summary
                .groups
                .into_iter()
                .map(|(group, rows, median, signed)| GroupErrors {
                    source: group.source,
                    method: group.method,
                    gpu: group.gpu,
                    rows,
                    median_percent: 100.0 * median,
                    signed_percent: 100.0 * signed,
                })
                .collect(),
        }
    }
}

/// The medians of groups for what others would say, where they say anything.
fn others<'a>(rows: impl Iterator<Item = &'a Scored>) -> Vec<OtherErrors> {
    let rows: Vec<&Scored> = rows.collect();
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.others) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let of = |name: &'static str| {
        let told = rows.iter().filter_map(|row| {
            let (_, said) = row.others.iter().find(|(other, _)| *other == name)?;
            let planned = Some(*said);
            Some((
                *row,
                Scored {
                    planned,
                    ..(*row).clone()
                },
            ))
        });
        let (ours, theirs): (Vec<&Scored>, Vec<Scored>) = told.unzip();
        OtherErrors {
            name,
            rows: ours.len(),
            median_percent: 100.0 * score::summarize(theirs.iter()).median,
            ours_percent: 100.0 * score::summarize(ours.into_iter()).median,
        }
    };
    names.into_iter().map(of).collect()
}

type Table = (Vec<String>, Vec<(csv::StringRecord, Cells)>);

fn read(file: &Path) -> Result<Table, Failure> {
    let unreadable = |error: csv::Error| {
        Failure::new(
            Exit::Usage,
            "AP0728",
            format!("`{}` can't be read as a table", file.display()),
        )
        .why(error.to_string())
        .help("give a CSV file whose first line names its columns")
    };
    let mut reader = csv::Reader::from_path(file).map_err(unreadable)?;
    let header: Vec<String> = reader
        .headers()
        .map_err(unreadable)?
        .iter()
        .map(String::from)
        .collect();
    let rows = reader
        .records()
        .map(|record| {
            let record = record.map_err(unreadable)?;
            let cells = header
                .iter()
                .cloned()
                .zip(record.iter().map(String::from))
                .collect();
            Ok((record, cells))
        })
        .collect::<Result<_, Failure>>()?;
    Ok((header, rows))
}
