//! A supervisor as its own program, for the tests of the backends. The product has it as a hidden subcommand.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [task_dir] => antiphon_backends::local::supervise::run(Path::new(task_dir)),
        [attempt_dir, role] => {
            let role = role.to_str().expect("roles are text");
            antiphon_backends::slurm::step::run(Path::new(attempt_dir), role)
        }
        _ => ExitCode::FAILURE,
    }
}
