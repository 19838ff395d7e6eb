//! How a log is opened and created, and what is checked then. All of it takes the same time for any length of log.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access as Permission, access};
use rustix::io::Errno;

use super::classify::classify;
use super::database::{Access, Database};
use crate::StoreError;
use crate::lock::DirLock;

/// The format that this code writes; it reads every format from 1 to this.
pub(super) const FORMAT: u32 = 1;

const FILE: &str = "log.db";

/// How long a call waits for another connection's lock. Readers never block the writer in WAL mode; what remains is
/// recovery after a crash and the last reader closing, both short.
const BUSY: Duration = Duration::from_secs(5);

const SCHEMA: &str = "
    CREATE TABLE meta (format INTEGER NOT NULL, fence INTEGER NOT NULL, owner TEXT NOT NULL) STRICT;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
    CREATE TABLE images (
        seq INTEGER PRIMARY KEY,
        version INTEGER NOT NULL,
        digest TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        state BLOB NOT NULL
    ) STRICT;
";

pub(super) fn for_writing(dir: &Path) -> Result<Database, StoreError> {
    let failed = |error| StoreError::from_io(dir, "create the log", error);
    create_dir(dir).map_err(failed)?;
    let lock = DirLock::take(dir)?;
    create_file(dir).map_err(failed)?;
    check_access(dir, Permission::READ_OK | Permission::WRITE_OK)?;

    let failed = |error| classify(dir, "open the log", error);
    let mut connection = connect(dir, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(failed)?;
    let empty = is_empty(&connection).map_err(failed)?;
    if !empty {
        // Before anything is set: a log of a newer format, or another program's database, stays as it was.
        check(&connection, dir)?;
    }
    let mode = configure(&connection).map_err(failed)?;
    if mode != "wal" {
        let source =
            format!("the file system allows journal mode `{mode}` alone, and `wal` is needed")
                .into();
        return Err(StoreError::Io {
            place: dir.display().to_string(),
            doing: "open the log",
            source,
        });
    }
    if empty {
        create_tables(&mut connection).map_err(failed)?;
    }
    Ok(Database::new(connection, dir, Access::Write(lock)))
}

pub(super) fn for_reading(dir: &Path) -> Result<Database, StoreError> {
    check_access(dir, Permission::READ_OK)?;

    let failed = |error| classify(dir, "open the log", error);
    let connection = connect(dir, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    if is_empty(&connection).map_err(failed)? {
        return Err(StoreError::Missing {
            dir: dir.to_owned(),
        });
    }
    check(&connection, dir)?;
    Ok(Database::new(connection, dir, Access::Read))
}

/// Creates the directory for its owner alone. One that exists keeps its mode, which is its owner's choice.
fn create_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    match dir.parent() {
        Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all(),
        Some(_) | None => File::open(".")?.sync_all(),
    }
}

/// Creates the file before SQLite does, for SQLite asks for no mode; its other files take over the mode of this one.
///
/// A file that exists is not opened here: closing it would drop the locks that a reader in this process has on it.
fn create_file(dir: &Path) -> io::Result<()> {
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(FILE))
    {
        Ok(_) => File::open(dir)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Asks the system before SQLite does: SQLite says "unable to open" to whatever is wrong, and opens a file that it may not
/// write for reading, to fail at the first write.
fn check_access(dir: &Path, permission: Permission) -> Result<(), StoreError> {
    match access(dir.join(FILE), permission) {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) => Err(StoreError::Missing {
            dir: dir.to_owned(),
        }),
        Err(errno) => Err(StoreError::from_io(dir, "open the log", errno.into())),
    }
}

fn connect(dir: &Path, mode: OpenFlags) -> rusqlite::Result<Connection> {
    // One thread has the connection, so SQLite need not lock it.
    let connection =
        Connection::open_with_flags(dir.join(FILE), mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Sets what durability needs, and returns the journal mode that came of it.
fn configure(connection: &Connection) -> rusqlite::Result<String> {
    let mode = connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
    // In WAL mode every level below this one may lose commits that were acknowledged.
    connection.pragma_update(None, "synchronous", "full")?;
    // On macOS fsync stops at the drive's cache; elsewhere this changes nothing.
    connection.pragma_update(None, "fullfsync", true)?;
    // The WAL is copied into the file once it has 1,000 pages (4 MB). That bounds both the disk it takes and the recovery
    // at the next open. A failed copy loses nothing: the WAL stays until one has succeeded. A commit larger than that, as
    // of an image, grows it for once; the limit cuts it back afterwards.
    connection.pragma_update(None, "wal_autocheckpoint", 1_000)?;
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    Ok(mode)
}

fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("SELECT count(*) = 0 FROM sqlite_schema", (), |row| {
        row.get(0)
    })
}

fn create_tables(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute(
        "INSERT INTO meta (format, fence, owner) VALUES (?1, 0, '')",
        [FORMAT],
    )?;
    transaction.commit()
}

/// Checks the format, and that the log starts at 1; reading its ends also reads the root of every table.
fn check(connection: &Connection, dir: &Path) -> Result<(), StoreError> {
    let failed = |error| classify(dir, "check the log", error);
    let place = || dir.display().to_string();
    let corrupt = |what| {
        Err(StoreError::Corrupt {
            place: place(),
            what,
        })
    };

    let tables: i64 = connection
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name IN ('meta', 'events', 'images')",
            (),
            |row| row.get(0),
        )
        .map_err(failed)?;
    if tables != 3 {
        return corrupt(format!("it has {tables} of the 3 tables of a log"));
    }
    let found: u32 = connection
        .query_row("SELECT format FROM meta", (), |row| row.get(0))
        .map_err(failed)?;
    if found > FORMAT {
        return Err(StoreError::Newer {
            place: place(),
            found,
            known: FORMAT,
        });
    }
    if found == 0 {
        return corrupt("its format is 0, and the first was 1".into());
    }
    let ends = "SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events), (SELECT max(seq) FROM images)";
    let first: Option<i64> = connection
        .query_row(ends, (), |row| row.get(0))
        .map_err(failed)?;
    match first {
        None | Some(1) => Ok(()),
        Some(first) => corrupt(format!("it starts at event {first} and not at 1")),
    }
}
