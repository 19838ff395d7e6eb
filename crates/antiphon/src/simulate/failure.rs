//! The simulator's errors in the form that every command has.

use antiphon_sim::simulate::SimulateError;
use antiphon_sim::trace::TraceError;

use crate::cli::Exit;
use crate::failure::{Failure, causes};

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Self {
        let why = match error.why() {
            empty if empty.is_empty() => causes(&error),
            why => why,
        };
        Self::new(Exit::Refused, error.code(), error.to_string())
            .why(why)
            .help(error.help())
    }
}

impl From<SimulateError> for Failure {
    fn from(error: SimulateError) -> Self {
        match error {
            SimulateError::Table(error) => error.into(),
            error => Self::new(Exit::Refused, error.code(), error.to_string()).help(error.help()),
        }
    }
}
