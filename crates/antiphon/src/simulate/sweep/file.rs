//! The file of a sweep: rows are appended one by one, each whole and on the disk before the next, under a lock. However the
//! program ends, at most the last line is torn, and the next sweep cuts that off.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use antiphon_sim::sweep::{Key, Row, header, parse, sorted};

use super::super::files;
use crate::cli::Exit;
use crate::failure::Failure;
use crate::render::say;

/// The file, held by this sweep alone.
pub(super) struct SweepFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    appended: usize,
}

impl SweepFile {
    /// Opens the file, makes it where it is not there, mends its end; says which runs it holds.
    pub(super) fn open(path: &Path) -> Result<(Self, BTreeSet<Key>), Failure> {
        let failed = |error: std::io::Error| files::unwritten(path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        // A device may have no end, and nothing can be found again in a pipe.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(foreign(path, "it is no regular file"));
        }
        lock(&file, path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)
            .map_err(|error| foreign(path, &error.to_string()))?;
        let header = header();
        let whole = if header.starts_with(&text) {
            // New, or killed in its first line.
            0
        } else {
            text.rfind('\n').map_or(0, |end| end + 1)
        };
        let rows = match whole {
            0 if !header.starts_with(&text) => {
                return Err(foreign(path, "it has no line of a sweep"));
            }
            0 => Vec::new(),
            whole => parse(&text[..whole]).map_err(|error| foreign(path, &error.to_string()))?,
        };
        if whole < text.len() {
            say(&format!(
                "the last line of `{}` is torn: its run is done again",
                path.display()
            ));
        }
        let bytes = u64::try_from(whole).unwrap_or(u64::MAX);
        file.set_len(bytes).map_err(failed)?;
        let mut file = Self {
            path: path.to_owned(),
            file,
            bytes,
            appended: 0,
        };
        if whole == 0 {
            file.write(&header)?;
        }
        Ok((file, rows.iter().map(Row::key).collect()))
    }

    /// Appends a row.
    pub(super) fn append(&mut self, row: &Row) -> Result<(), Failure> {
        self.write(&row.line())?;
        self.appended += 1;
        Ok(())
    }

    /// Rows that were appended.
    pub(super) const fn appended(&self) -> usize {
        self.appended
    }

    /// Puts the rows of a sweep that is complete in order, so that the file follows from the runs alone.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let unread = |error| files::unread(&self.path, &error);
        let text = fs::read_to_string(&self.path).map_err(unread)?;
        let rows = parse(&text).map_err(|error| foreign(&self.path, &error.to_string()))?;
        let table = sorted(rows);
        if table == text {
            return Ok(());
        }
        files::write(&self.path, &table)
    }

    /// Writes a line at the end; where that fails, takes back what part of it was written.
    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes());
        match written.and_then(|()| self.file.sync_data()) {
            Ok(()) => {
                self.bytes += u64::try_from(line.len()).unwrap_or(u64::MAX);
                Ok(())
            }
            Err(error) => {
                // If this fails too, the next sweep does it.
                let _ = self.file.set_len(self.bytes);
                Err(files::unwritten(&self.path, &error))
            }
        }
    }
}

/// Keeps a second sweep from writing to the same file.
fn lock(file: &File, path: &Path) -> Result<(), Failure> {
    match file.try_lock() {
        Ok(()) => (),
        Err(TryLockError::WouldBlock) => return Err(taken(path)),
        Err(TryLockError::Error(error)) => return Err(files::unwritten(path, &error)),
    }
    // A sweep that ended between opening and locking has put a new file in the place of this one.
    let place = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let (here, there) = (file.metadata().map(place), fs::metadata(path).map(place));
    match (here, there) {
        (Ok(here), Ok(there)) if here == there => Ok(()),
        _ => Err(taken(path)),
    }
}

fn taken(path: &Path) -> Failure {
    let what = format!("`{}` is being written by another sweep", path.display());
    Failure::new(Exit::Refused, "AP0613", what)
        .help("wait for it to end, or give another file; their rows can be put together later")
}

fn foreign(path: &Path, why: &str) -> Failure {
    let what = format!(
        "`{}` is no table of a sweep of this version",
        path.display()
    );
    Failure::new(Exit::Refused, "AP0614", what)
        .why(why)
        .help("give another file; what is in this one stays as it is")
}
