//! A load that is described instead of recorded: a TOML file with a table `[load]`, whose jobs [`crate::generate`] makes up.
//! Its keys are the fields of [`Load`]; spans are text with a unit.

use serde::Deserialize;

use super::table::Rows;
use super::{Source, TraceError};
use crate::generate::{Load, generate};

/// The first line that is no comment.
pub(super) const HEADER: &str = "[load]";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    load: Load,
}

pub(super) fn read(source: &Source, rows: &mut Rows<'_>) -> Result<(), TraceError> {
    let file: File = toml::from_str(&source.text).map_err(|error| TraceError::Syntax {
        path: source.path.clone(),
        reason: error.to_string().trim().to_owned(),
    })?;
    for (line, job) in (1..).zip(generate(&file.load).jobs) {
        rows.take(line, Ok(job))?;
    }
    Ok(())
}
