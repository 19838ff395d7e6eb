//! What makes a job file of another system unusable: each with its code, why, and what to do.

use std::fmt::Write as _;

use super::JobFormat;
use crate::error::quoted;
use crate::place::Place;

/// A file that cannot be read into jobs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct JobError(Box<JobProblem>);

/// What is wrong with a job file of another system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobProblem {
    /// It is of no format that is known.
    #[error("`{file}` holds no job in a known format: it begins with `{begins}`")]
    Unrecognized {
        /// The file.
        file: String,
        /// Its first line.
        begins: String,
    },
    /// A format was named that does not exist.
    #[error("there is no job format `{text}`")]
    UnknownFormat {
        /// The name.
        text: String,
        /// The format whose name is most like it.
        nearest: JobFormat,
    },
    /// It is not in the syntax of its format.
    #[error("{place}: the file cannot be parsed: {reason}")]
    Syntax {
        /// Where reading ended.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// It is longer than any job file.
    #[error("`{file}` has {bytes} bytes: a job file has at most {limit}")]
    TooLong {
        /// The file.
        file: String,
        /// Its length.
        bytes: usize,
        /// The most that is read.
        limit: usize,
    },
    /// A value that cannot be.
    #[error("{place}: `{option}` is `{found}`: expected {expected}")]
    Value {
        /// Where.
        place: Place,
        /// The option.
        option: String,
        /// What stands there.
        found: String,
        /// What may stand there.
        expected: String,
    },
    /// It asks for something without which the job would do something else than what is meant.
    #[error("{place}: `{option}` cannot be honored")]
    CannotHonor {
        /// Where.
        place: Place,
        /// The option, with its value.
        option: String,
        /// Why not.
        why: String,
        /// What to do instead.
        help: String,
    },
    /// Numbers that do not go together.
    #[error("{place}: `{option}` does not go together with {other}")]
    Contradiction {
        /// Where.
        place: Place,
        /// The option, with its value.
        option: String,
        /// With what.
        other: String,
        /// Why not, with numbers.
        why: String,
    },
    /// It holds no job.
    #[error("`{file}` holds no job: {there}")]
    NoJob {
        /// The file.
        file: String,
        /// What it holds.
        there: String,
    },
    /// A job without anything to run.
    #[error("{place}: there is nothing to run: {why}")]
    NothingToRun {
        /// Where.
        place: Place,
        /// Why.
        why: String,
        /// What to do.
        help: String,
    },
}

impl From<JobProblem> for JobError {
    fn from(problem: JobProblem) -> Self {
        Self(Box::new(problem))
    }
}

impl JobError {
    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> &JobProblem {
        &self.0
    }

    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match *self.0 {
            JobProblem::Unrecognized { .. } => "AP0740",
            JobProblem::UnknownFormat { .. } => "AP0741",
            JobProblem::Syntax { .. } => "AP0742",
            JobProblem::TooLong { .. } => "AP0743",
            JobProblem::Value { .. } => "AP0744",
            JobProblem::CannotHonor { .. } => "AP0745",
            JobProblem::Contradiction { .. } => "AP0746",
            JobProblem::NoJob { .. } => "AP0747",
            JobProblem::NothingToRun { .. } => "AP0748",
        }
    }

    /// Why, with numbers; empty where the text says it all.
    #[must_use]
    pub fn why(&self) -> String {
        match &*self.0 {
            JobProblem::CannotHonor { why, .. } | JobProblem::Contradiction { why, .. } => {
                why.clone()
            }
            JobProblem::Unrecognized { .. }
            | JobProblem::UnknownFormat { .. }
            | JobProblem::Syntax { .. }
            | JobProblem::TooLong { .. }
            | JobProblem::Value { .. }
            | JobProblem::NoJob { .. }
            | JobProblem::NothingToRun { .. } => String::new(),
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match &*self.0 {
            JobProblem::Unrecognized { .. } => {
                let mut text = String::from("name it with `--format`; by itself antiphon tells");
                for format in JobFormat::ALL {
                    let _ = write!(text, "\n- {format} by {}", format.recognized_by());
                }
                text
            }
            JobProblem::UnknownFormat { nearest, .. } => {
                let names: Vec<_> = JobFormat::ALL.into_iter().map(|f| f.name().into()).collect();
                format!("is `{nearest}` meant? There are {}", quoted(&names))
            }
            JobProblem::Syntax { .. } => "correct the file; the system that it is written for cannot read it either".into(),
            JobProblem::TooLong { .. } => "name the job file itself, not data or an output".into(),
            JobProblem::Value { option, .. } => format!("correct `{option}`, or leave it out"),
            JobProblem::CannotHonor { help, .. } | JobProblem::NothingToRun { help, .. } => help.clone(),
            JobProblem::Contradiction { option, .. } => format!("correct `{option}` or what it does not go together with"),
            JobProblem::NoJob { .. } => {
                "antiphon reads Job, JobSet, PyTorchJob, TrainJob and Volcano's Job, and PodGroup beside them".into()
            }
        }
    }
}
