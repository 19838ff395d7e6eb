//! A supervisor as its own program, for the tests of the backends.

use std::process::ExitCode;

fn main() -> ExitCode {
    antiphon_backends::supervisor::called().unwrap_or(ExitCode::FAILURE)
}
