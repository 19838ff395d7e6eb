//! Files that a command writes: whole or not at all, and tried before the work that they are for.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use crate::cli::Exit;
use crate::failure::Failure;

/// Says now rather than after an hour's work that a file cannot be written.
pub(crate) fn try_out(path: &Path) -> Result<(), Failure> {
    let tried = if is_replaced(path) {
        let beside = beside(path);
        fs::write(&beside, "").and_then(|()| fs::remove_file(&beside))
    } else {
        OpenOptions::new().write(true).open(path).map(drop)
    };
    tried.map_err(|error| unwritten(path, &error))
}

/// Writes a file. What stood there before stays until all of it is written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = if is_replaced(path) {
        let beside = beside(path);
        let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            // Part of a file on a full disk is of use to nobody.
            let _ = fs::remove_file(&beside);
        }
        written
    } else {
        fs::write(path, text)
    };
    written.map_err(|error| unwritten(path, &error))
}

/// A pipe, a device or a link is written through; everything else gets a new file in its place.
fn is_replaced(path: &Path) -> bool {
    fs::symlink_metadata(path).map_or(true, |meta| meta.is_file())
}

/// Where a file is written before it takes its place.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", std::process::id()))
}

pub(super) fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let what = format!("`{}` cannot be written", path.display());
    Failure::new(Exit::Failed, "AP0612", what)
        .why(error.to_string())
        .help("give a file in a folder that is there, that you may write to and that has room")
}

pub(super) fn unread(path: &Path, error: &io::Error) -> Failure {
    let what = format!("`{}` cannot be read", path.display());
    Failure::new(Exit::Failed, "AP0601", what)
        .why(error.to_string())
        .help("give a file that is there and that you may read")
}
