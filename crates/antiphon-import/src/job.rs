//! Jobs that people have written for other systems, read into antiphon's job file. Text in, data out: submits nothing, touches no file.
//!
//! What a file asks for is followed, or named in a warning with its line, or an error: each format has a table of its keys that says
//! which, and a key that is in none is a warning too. `docs/reference/imports.md` is made from those tables.

mod command;
mod error;
mod form;
mod keys;
mod kubernetes;
mod print;
mod quantity;
mod sbatch;
mod skypilot;
mod yaml;

use std::fmt;
use std::str::FromStr;

pub use error::{JobError, JobProblem};
pub use form::{Gpus, Job, Resources, Retry, Role, Run};
pub use keys::{Entry, entries};

use crate::place::short;
use crate::warning::Warning;

/// The longest job file that is read, in bytes.
const TEXT_MAX: usize = 1 << 20;

/// What a job was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobFormat {
    /// A Slurm batch script.
    Sbatch,
    /// A Kubernetes manifest: Job, JobSet, PyTorchJob, TrainJob and what stands beside them.
    Kubernetes,
    /// A SkyPilot task.
    SkyPilot,
    /// A command line: torchrun, accelerate or deepspeed.
    Command,
}

impl JobFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Sbatch,
        Self::Kubernetes,
        Self::SkyPilot,
        Self::Command,
    ];

    /// The name that `--format` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sbatch => "sbatch",
            Self::Kubernetes => "kubernetes",
            Self::SkyPilot => "skypilot",
            Self::Command => "command",
        }
    }

    /// What it is told by.
    #[must_use]
    pub const fn recognized_by(self) -> &'static str {
        match self {
            Self::Sbatch => "`#!` or `#SBATCH`",
            Self::Kubernetes => "`apiVersion` and `kind`",
            Self::SkyPilot => {
                "`run` or `setup` with a text, `num_nodes`, `file_mounts` or `accelerators`"
            }
            Self::Command => "`submit -- torchrun ..`",
        }
    }
}

impl fmt::Display for JobFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for JobFormat {
    type Err = JobError;

    fn from_str(text: &str) -> Result<Self, JobError> {
        let plain = text.to_ascii_lowercase();
        let aliases = [
            ("slurm", Self::Sbatch),
            ("k8s", Self::Kubernetes),
            ("sky", Self::SkyPilot),
        ];
        let named = Self::ALL.into_iter().find(|format| format.name() == plain);
        let alias = aliases.iter().find(|(name, _)| *name == plain);
        named.or(alias.map(|(_, format)| *format)).ok_or_else(|| {
            let distance = |format: &Self| strsim::damerau_levenshtein(format.name(), &plain);
            JobProblem::UnknownFormat {
                text: short(text),
                nearest: Self::ALL
                    .into_iter()
                    .min_by_key(distance)
                    .unwrap_or(Self::Sbatch),
            }
            .into()
        })
    }
}

/// What a job file does not say about itself.
pub struct Origin<'a> {
    /// The file's name, for messages and for a job without a name.
    pub name: &'a str,
    /// Where the file is, for a script that is to be run; without it the script's text becomes part of the job.
    pub path: Option<&'a str>,
    /// What a script is called with.
    pub arguments: &'a [String],
    /// The GPU types that a name may mean, the usual one first; none where it means none.
    pub gpu_types: &'a dyn Fn(&str) -> Vec<String>,
}

/// What a file of another system becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedJobs {
    /// The jobs, in the file's order.
    pub jobs: Vec<Job>,
    /// What it was read as.
    pub format: JobFormat,
    /// What is not followed, or works differently.
    pub warnings: Vec<Warning>,
}

/// The format of a text, if it is of another system. antiphon's own job files are none.
#[must_use]
pub fn job_format(text: &str) -> Option<JobFormat> {
    let text = text.trim_start_matches('\u{feff}');
    if text.starts_with("#!") || sbatch::is_batch_script(text) {
        return Some(JobFormat::Sbatch);
    }
    if kubernetes::is_manifest(text) {
        return Some(JobFormat::Kubernetes);
    }
    skypilot::is_task(text).then_some(JobFormat::SkyPilot)
}

/// Reads the jobs of a file of another system.
///
/// # Errors
///
/// When the format is not known, the text is not in its syntax, a value is impossible, or the job would do something else than what the
/// file asks for.
pub fn jobs(
    text: &str,
    format: Option<JobFormat>,
    origin: &Origin<'_>,
) -> Result<ImportedJobs, JobError> {
    if text.len() > TEXT_MAX {
        return Err(JobProblem::TooLong {
            file: origin.name.to_owned(),
            bytes: text.len(),
            limit: TEXT_MAX,
        }
        .into());
    }
    // Editors of other systems leave a mark in front and two characters at each end of a line.
    let text = &text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Some(format) = format.or_else(|| job_format(text)) else {
        let first = text.lines().find(|line| !line.trim().is_empty());
        return Err(JobProblem::Unrecognized {
            file: origin.name.to_owned(),
            begins: short(first.unwrap_or_default()),
        }
        .into());
    };
    let (jobs, warnings) = match format {
        JobFormat::Sbatch => sbatch::jobs(text, origin)?,
        JobFormat::Kubernetes => kubernetes::jobs(text, origin)?,
        JobFormat::SkyPilot => skypilot::jobs(text, origin)?,
        JobFormat::Command => command::jobs_of_text(text, origin)?,
    };
    Ok(ImportedJobs {
        jobs,
        format,
        warnings,
    })
}

/// Reads a command line: `torchrun --nproc-per-node 8 train.py`.
///
/// # Errors
///
/// When it does not say how many GPUs it needs, or what to run.
pub fn job_of_command(words: &[String], origin: &Origin<'_>) -> Result<ImportedJobs, JobError> {
    let (jobs, warnings) = command::jobs(words, origin)?;
    Ok(ImportedJobs {
        jobs,
        format: JobFormat::Command,
        warnings,
    })
}

/// The text in which `plan` may find a training: the commands that the jobs of a file would run. A batch script is one by itself.
#[must_use]
pub fn training_text(text: &str, origin: &Origin<'_>) -> Option<String> {
    match job_format(text)? {
        JobFormat::Sbatch | JobFormat::Command => None,
        JobFormat::Kubernetes | JobFormat::SkyPilot => {
            let imported = jobs(text, None, origin).ok()?;
            Some(imported.jobs.iter().map(print::as_script).collect())
        }
    }
}

/// The profile of a MIG device as Slurm, Kubernetes and people write it: `a100_3g.20gb`, `mig-1g.10gb`, `1g.10gb.me`.
fn mig_profile(kind: &str) -> Option<String> {
    let at = kind.find("g.")?;
    let before = kind.get(..at)?;
    let slices = before.chars().next_back().filter(char::is_ascii_digit)?;
    // A digit of a longer number or word is no number of slices.
    let edge = before.get(..before.len() - 1)?.chars().next_back();
    if edge.is_some_and(|c| c.is_ascii_alphanumeric()) {
        return None;
    }
    let rest = kind.get(at + 2..)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    let unit = rest.get(digits.len()..)?;
    (!digits.is_empty() && unit.to_ascii_lowercase().starts_with("gb"))
        .then(|| format!("{slices}g.{digits}gb"))
}

#[cfg(test)]
mod tests;
