//! `--batch` and `--validate`: every row of a table answered, or held against what was measured.

use std::path::Path;
use std::process::ExitCode;

use antiphon_planner::answer::Answer;
use antiphon_planner::profile::Frameworks;
use antiphon_planner::row::{self, Cells, Counter};
use antiphon_planner::{PlanError, memory, plan};

use crate::cli::Exit;
use crate::failure::Failure;
use crate::render::print_bytes;

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
    let answer = Answer::from(&plan);
    let allocated = if row.last_stage {
        memory::stage(&plan.run, plan.run.pp - 1).parts.sum()
    } else {
        plan.memory.allocated
    };
    let bytes = match row.counter {
        Counter::Allocated => allocated,
        Counter::Reserved => allocated * plan.run.profile.reserved_ratio,
        Counter::Device => plan.memory.device,
    };
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

/// Compares every row with what was measured.
pub(super) fn validate(
    file: &Path,
    frameworks: &'static Frameworks,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let _ = (read(file)?, frameworks, as_json);
    Err(Failure::new(Exit::Usage, "AP0727", "not yet"))
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
