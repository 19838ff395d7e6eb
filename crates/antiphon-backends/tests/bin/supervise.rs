//! A supervisor as its own program, for the tests of the local backend. The product has it as a hidden subcommand.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let task_dir = std::env::args_os()
        .next_back()
        .expect("a program has at least its name");
    antiphon_backends::local::supervise::run(Path::new(&task_dir))
}
