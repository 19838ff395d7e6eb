//! The supervisor of one task as a small program: a server starts one with every task. It is what `antiphon supervise` is.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    antiphon_backends::supervisor::called().unwrap_or_else(|| {
        let usage = "antiphon-supervise is started by a server of antiphon, never by a person";
        let _ = writeln!(std::io::stderr(), "{usage}");
        ExitCode::from(2)
    })
}
