//! Sorts the errors of SQLite by what the caller should do next. It retries nothing.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::StoreError;

pub(super) fn classify(dir: &Path, doing: &'static str, error: Error) -> StoreError {
    let place = || dir.display().to_string();
    match error {
        // What was written had the right types, so a value of another type was not written by us.
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..)
        | Error::QueryReturnedNoRows => StoreError::Corrupt {
            place: place(),
            what: format!("could not {doing}: {error}"),
        },
        error => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt {
                place: place(),
                what: format!("could not {doing}: {error}"),
            },
            Some(ErrorCode::DiskFull) => StoreError::DiskFull {
                dir: dir.to_owned(),
                doing,
                source: error.into(),
            },
            Some(ErrorCode::SystemIoFailure) if is_full(dir) => StoreError::DiskFull {
                dir: dir.to_owned(),
                doing,
                source: error.into(),
            },
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                StoreError::Permission {
                    dir: dir.to_owned(),
                    doing,
                    source: error.into(),
                }
            }
            Some(_) | None => StoreError::Io {
                place: place(),
                doing,
                source: error.into(),
            },
        },
    }
}

/// Tells a full disk or quota from a broken one. SQLite reports a full disk as such only where a write meets it; a full
/// quota, or a disk that is found full at the sync, comes as a plain I/O error without its errno. A small write of our own
/// meets the same limit and keeps the errno.
fn is_full(dir: &Path) -> bool {
    let path = dir.join("probe");
    let probe = || -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        file.write_all(&[0x5a; 64 << 10])?;
        file.sync_all()
    };
    let met = probe().map_err(|error| error.kind());
    // What cannot be removed holds 64 KiB and is written over by the next probe.
    let _ = std::fs::remove_file(&path);
    matches!(
        met,
        Err(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    )
}
