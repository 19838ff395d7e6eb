//! What went wrong, why and what to do, in one form everywhere. Goes to standard error; the exit code tells scripts.

use std::io::Write as _;
use std::process::ExitCode;

use antiphon_server::StartError;
use antiphon_server::api::model::Problem;
use antiphon_server::jobfile::JobFileError;

use crate::cli::Exit;
use crate::render::plain;

/// Something that ends the program.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The stable code; empty for failures that need no page.
    pub(crate) code: String,
    /// What happened, subject first.
    pub(crate) what: String,
    /// Why, with numbers; may be empty.
    pub(crate) why: String,
    /// What to do; may be empty.
    pub(crate) help: String,
    /// How the program ends.
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &str, what: impl Into<String>) -> Self {
        let (code, what) = (code.to_owned(), what.into());
        Self {
            code,
            what,
            why: String::new(),
            help: String::new(),
            exit,
        }
    }

    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Prints it.
    pub(crate) fn report(&self) -> ExitCode {
        let code = if self.code.is_empty() {
            String::new()
        } else {
            format!("[{}]", self.code)
        };
        let mut text = format!("error{code}: {}\n", plain(&self.what));
        for (label, line) in [("why: ", &self.why), ("help:", &self.help)] {
            if !line.is_empty() {
                let lines: Vec<String> = line.lines().map(plain).collect();
                text += &format!("  {label} {}\n", lines.join("\n        "));
            }
        }
        // Where standard error is gone there is nobody to tell.
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.exit.into()
    }
}

/// The text of an error's causes, outermost first.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    causes.join(": ")
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        Self::new(Exit::Server, error.code(), error.to_string())
            .why(causes(&error))
            .help(error.help())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        let exit = if problem.status >= 500 {
            Exit::Failed
        } else {
            Exit::Refused
        };
        // `job x is refused: it asks for ..`: the subject and the reason are two lines here.
        let (what, why) = match problem.detail.split_once(" is refused: ") {
            Some((subject, why)) => (format!("{subject} is refused"), why.to_owned()),
            None => (problem.detail, String::new()),
        };
        Self::new(exit, &problem.code, what)
            .why(why)
            .help(problem.help)
    }
}

impl From<JobFileError> for Failure {
    fn from(error: JobFileError) -> Self {
        Self::new(Exit::Refused, error.code, error.what).help(error.help)
    }
}
