//! The supervisor as a program: which one a server starts with every task, and how it is called.
//!
//! It is a program of its own beside `antiphon`, because there is one for every task. `antiphon` itself can be it as well, at
//! six times the cost of a start: a large binary has many addresses to set, and an allocator made for the kernel takes its
//! memory in pieces of 2 MiB, which the system clears.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use crate::local::supervise;
use crate::slurm::step;

/// The file name of the program that does nothing else.
const PROGRAM: &str = "antiphon-supervise";

/// What stands behind the program's name, whichever it is.
const WORD: &str = "supervise";

/// The start of the command that supervises a task, for a server that is the program `binary`: the small program where it
/// lies beside it, else `binary` itself. Directory and role follow.
#[must_use]
pub fn command(binary: &Path) -> Vec<String> {
    let small = binary.with_file_name(PROGRAM);
    let program = if small.is_file() { &small } else { binary };
    vec![program.to_string_lossy().into_owned(), WORD.to_owned()]
}

/// The same, of a program that nodes find under this path.
#[must_use]
pub fn command_at(program: &str) -> Vec<String> {
    vec![program.to_owned(), WORD.to_owned()]
}

/// Supervises a task where this process was started for that; nothing else where it was not.
///
/// A person who gives more, or options, is left to the command line, which says what is wrong.
#[must_use]
pub fn called() -> Option<ExitCode> {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let (word, rest) = arguments.split_first()?;
    if word != WORD || rest.first()?.to_string_lossy().starts_with('-') {
        return None;
    }
    match rest {
        [dir] => Some(run(Path::new(dir), None)),
        [dir, role] => Some(run(Path::new(dir), Some(role.to_str()?))),
        _ => None,
    }
}

/// Supervises a task: the one in this directory, or the one of this role that Slurm has started here.
#[must_use]
pub fn run(dir: &Path, role: Option<&str>) -> ExitCode {
    match role {
        None => supervise::run(dir),
        Some(role) => step::run(dir, role),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_program_is_taken_where_it_lies_beside_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("antiphon");
        let first = |binary: &Path| command(binary)[0].clone();
        assert_eq!(first(&binary), binary.to_string_lossy());
        let small = dir.path().join(PROGRAM);
        std::fs::write(&small, "").unwrap();
        assert_eq!(first(&binary), small.to_string_lossy());
    }
}
