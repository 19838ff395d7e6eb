//! Reads recorded workloads: one reader for each format, bad rows named by line. Whether a cluster could run a job is not
//! asked here.
//!
//! Files compressed with gzip or zstd are read as they are. Times count from the first submission; jobs are sorted by
//! submission, those of one moment in the order of the file.

mod acme;
mod chronus;
mod clock;
mod detect;
mod elasticflow;
mod error;
mod fgd;
mod gavel;
mod kubernetes;
mod load;
mod mig;
mod muri;
mod philly;
mod pollux;
mod sacct;
mod shockwave;
mod source;
mod table;
mod tiresias;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

pub use error::{TraceError, UnknownFormat};
pub use fgd::{NodeRow, fgd_nodes};
pub(crate) use source::Source;
pub(crate) use table::{job, rounded};

use crate::workload::Workload;
use table::Rows;

/// Bad rows kept with their reasons; further ones are only counted.
pub const BAD_ROWS_KEPT: usize = 1_000;

/// A workload as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The jobs.
    pub workload: Workload,
    /// What the file turned out to be.
    pub format: Format,
    /// Rows that were left out: the first [`BAD_ROWS_KEPT`].
    pub bad: Vec<BadRow>,
    /// Rows that were left out, all of them.
    pub bad_total: u64,
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Where it stands, from 1.
    pub line: u64,
    /// The column, what stands there, and what was expected.
    pub reason: String,
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// What becomes of a bad row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strict {
    /// It is left out and counted.
    #[default]
    Off,
    /// It ends the reading.
    On,
}

/// The formats that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// Alibaba's GPU pods of 2023, as used for fragmentation.
    Fgd,
    /// Muri.
    Muri,
    /// Gavel, with ten columns or, older, seven.
    Gavel,
    /// Shockwave: Gavel's with twelve columns.
    Shockwave,
    /// Pollux.
    Pollux,
    /// ElasticFlow, measured columns alone or with the generated ones.
    ElasticFlow,
    /// The extract of the Philly trace that Pollux used.
    Philly,
    /// Chronus.
    Chronus,
    /// The sample of the Acme trace.
    Acme,
    /// Tiresias.
    Tiresias,
    /// What `sacct --parsable2` of a Slurm cluster prints.
    Sacct,
    /// What `kubectl get pods,jobs -o json` prints.
    Kubernetes,
    /// A load that is made up as its file says.
    Load,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Fgd,
        Self::Muri,
        Self::Gavel,
        Self::Shockwave,
        Self::Pollux,
        Self::ElasticFlow,
        Self::Philly,
        Self::Chronus,
        Self::Acme,
        Self::Tiresias,
        Self::Sacct,
        Self::Kubernetes,
        Self::Load,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fgd => "fgd",
            Self::Muri => "muri",
            Self::Gavel => "gavel",
            Self::Shockwave => "shockwave",
            Self::Pollux => "pollux",
            Self::ElasticFlow => "elastic-flow",
            Self::Philly => "philly",
            Self::Chronus => "chronus",
            Self::Acme => "acme",
            Self::Tiresias => "tiresias",
            Self::Sacct => "sacct",
            Self::Kubernetes => "kubernetes",
            Self::Load => "load",
        }
    }

    /// By what a file of it is recognized.
    #[must_use]
    pub const fn recognized_by(self) -> &'static str {
        match self {
            Self::Fgd => "a header with `gpu_milli`",
            Self::Muri => "a header with `resource_time_0`",
            Self::Gavel => "ten or seven columns between tabs, no header",
            Self::Shockwave => "twelve columns between tabs, no header",
            Self::Pollux => "a header with `application` and `num_replicas`",
            Self::ElasticFlow => "a header with `submission_time`, `deadline` or `ddl`",
            Self::Philly => "a header with `timestamp` and `num_gpus`",
            Self::Chronus => "a header with `expect_time_list`",
            Self::Acme => "a header with `submit_s`",
            Self::Tiresias => "a header with `job_id`, `interval` and `model_name`",
            Self::Sacct => "a header between `|` with `JobID` or `JobIDRaw`",
            Self::Kubernetes => "a JSON object with `apiVersion` and `kind`",
            Self::Load => "a first line `[load]`",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let wanted = text.to_ascii_lowercase();
        let wanted = if wanted == "elasticflow" {
            "elastic-flow"
        } else {
            &wanted
        };
        let found = Self::ALL.into_iter().find(|format| format.name() == wanted);
        found.ok_or_else(|| UnknownFormat::new(text))
    }
}

/// Reads the trace at `path`; a `format` that is not given is told from the content.
///
/// A file that is cut short counts as one bad row where it ends: what stands before is used.
///
/// # Errors
/// Where the file cannot be read, is of no known format, lacks a column or holds no jobs; under [`Strict::On`] also at the
/// first bad row.
pub fn read(path: &Path, format: Option<Format>, strict: Strict) -> Result<Trace, TraceError> {
    let source = Source::open(path)?;
    let Some(format) = format.or_else(|| detect::format(&source.text)) else {
        return Err(TraceError::unknown(&source));
    };
    let mut rows = Rows::new(&source, strict);
    match format {
        Format::Fgd => fgd::read(&source, &mut rows)?,
        Format::Muri => muri::read(&source, &mut rows)?,
        Format::Gavel => gavel::read(&source, &mut rows)?,
        Format::Shockwave => shockwave::read(&source, &mut rows)?,
        Format::Pollux => pollux::read(&source, &mut rows)?,
        Format::ElasticFlow => elasticflow::read(&source, &mut rows)?,
        Format::Philly => philly::read(&source, &mut rows)?,
        Format::Chronus => chronus::read(&source, &mut rows)?,
        Format::Acme => acme::read(&source, &mut rows)?,
        Format::Tiresias => tiresias::read(&source, &mut rows)?,
        Format::Sacct => sacct::read(&source, &mut rows)?,
        Format::Kubernetes => kubernetes::read(&source, &mut rows)?,
        Format::Load => load::read(&source, &mut rows)?,
    }
    rows.finish(format)
}
