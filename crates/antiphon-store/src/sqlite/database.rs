//! The statements of the log over one connection, all of them blocking. It knows no thread and no channel.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};

use super::classify::classify;
use crate::lock::DirLock;
use crate::log::check_continues;
use crate::pack::{self, Packed};
use crate::{Digest, Entry, Fence, IMAGES_KEPT, Image, ImageHeader, StoreError};

/// An open log.
pub(super) struct Database {
    // Dropped in this order: the next holder of the lock must find the file closed.
    connection: Connection,
    access: Access,
    dir: PathBuf,
    /// The first write that failed, after which none is tried.
    failed: Option<String>,
}

/// What the log was opened for; who writes holds the lock.
pub(super) enum Access {
    Read,
    Write(#[expect(dead_code, reason = "held for its drop")] DirLock),
}

/// Why a transaction did not come to its end: a refusal changes nothing, a failure leaves the log in doubt.
enum Stop {
    Refused(StoreError),
    Failed(rusqlite::Error),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

impl Database {
    pub(super) fn new(connection: Connection, dir: &Path, access: Access) -> Self {
        Self {
            connection,
            access,
            dir: dir.to_owned(),
            failed: None,
        }
    }

    pub(super) fn place(&self) -> String {
        self.dir.display().to_string()
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    pub(super) fn acquire(&mut self, owner: &str) -> Result<Fence, StoreError> {
        self.write("raise the fence", |transaction| {
            let raise = "UPDATE meta SET fence = fence + 1, owner = ?1 RETURNING fence";
            let number = transaction.query_row(raise, [owner], |row| row.get(0))?;
            Ok(Fence::new(number))
        })
    }

    pub(super) fn append(&mut self, fence: Fence, entries: &[Entry]) -> Result<(), StoreError> {
        self.write("append events", |transaction| {
            check_fence(transaction, fence)?;
            check_continues(last_seq(transaction)?, entries)?;
            let mut insert = transaction.prepare_cached(
                "INSERT INTO events (seq, at_ms, version, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for Entry {
                seq,
                at_ms,
                version,
                kind,
                body,
            } in entries
            {
                insert.execute((seq, at_ms, version, kind, body))?;
            }
            Ok(())
        })
    }

    pub(super) fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let select = "SELECT seq, at_ms, version, kind, body FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let mut select = self.connection.prepare_cached(select)?;
            select
                .query_map((storable(after), storable(limit as u64)), entry)?
                .collect()
        };
        let entries = read().map_err(|error| self.failure("read events", error))?;

        match entries
            .iter()
            .zip(after.saturating_add(1)..)
            .find(|(entry, expected)| entry.seq != *expected)
        {
            Some((entry, expected)) => Err(self.corrupt(format!(
                "event {expected} is missing, and event {} follows",
                entry.seq
            ))),
            None => Ok(entries),
        }
    }

    pub(super) fn last_seq(&self) -> Result<u64, StoreError> {
        last_seq(&self.connection).map_err(|error| self.failure("read the last event", error))
    }

    pub(super) fn put_image(&mut self, fence: Fence, packed: &Packed) -> Result<(), StoreError> {
        let Packed {
            header:
                ImageHeader {
                    seq,
                    version,
                    digest,
                    bytes,
                },
            compressed,
        } = packed;
        self.write("store an image", |transaction| {
            check_fence(transaction, fence)?;
            let last = last_seq(transaction)?;
            if *seq > last {
                return Err(StoreError::ImageAhead { image: *seq, last }.into());
            }
            transaction.execute(
                "INSERT OR REPLACE INTO images (seq, version, digest, bytes, state) VALUES (?1, ?2, ?3, ?4, ?5)",
                (seq, version, digest.to_string(), bytes, compressed),
            )?;
            transaction.execute(
                "DELETE FROM images WHERE seq NOT IN (SELECT seq FROM images ORDER BY seq DESC LIMIT ?1)",
                [IMAGES_KEPT],
            )?;
            Ok(())
        })
    }

    pub(super) fn images(&self) -> Result<Vec<ImageHeader>, StoreError> {
        let read = || -> rusqlite::Result<Vec<ImageHeader>> {
            let mut select = self.connection.prepare_cached(
                "SELECT seq, version, digest, bytes FROM images ORDER BY seq DESC",
            )?;
            select.query_map((), header)?.collect()
        };
        read().map_err(|error| self.failure("list the images", error))
    }

    /// Reads an image without looking into it.
    pub(super) fn image(&self, seq: u64) -> Result<Packed, StoreError> {
        let select = "SELECT seq, version, digest, bytes, state FROM images WHERE seq = ?1";
        self.connection
            .query_row(select, [storable(seq)], |row| {
                Ok(Packed {
                    header: header(row)?,
                    compressed: row.get(4)?,
                })
            })
            .optional()
            .map_err(|error| self.failure("read an image", error))?
            .ok_or(StoreError::NoImage { seq })
    }

    pub(super) fn verify(&self) -> Result<(), StoreError> {
        let failed = |error| self.failure("verify the log", error);

        // Damage may stop the check itself, and then its error says so; else the first line is `ok` or the first damage.
        let found: String = self
            .connection
            .query_row("PRAGMA quick_check(1)", (), |row| row.get(0))
            .map_err(failed)?;
        if found != "ok" {
            return Err(self.corrupt(found));
        }

        // Seq is the key, so as many events as the last one's seq, from 1 on, leave no room for a gap. Both come from one
        // statement, and so from one moment, while a server goes on appending.
        let (count, first, last): (u64, u64, u64) = self
            .connection
            .query_row(
                "SELECT count(*), ifnull(min(seq), 1), ifnull(max(seq), 0) FROM events",
                (),
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
            .map_err(failed)?;
        if (first, count) != (1, last) {
            return Err(self.corrupt(format!(
                "it has {count} events from event {first} to event {last}"
            )));
        }

        for ImageHeader { seq, .. } in self.images()? {
            match self.image(seq) {
                Ok(packed) => drop::<Image>(pack::unpack(&packed, &self.place())?),
                // A server that writes on has dropped it meanwhile.
                Err(StoreError::NoImage { .. }) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs `work` as one durable commit, or leaves the log as it was.
    fn write<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Stop>,
    ) -> Result<T, StoreError> {
        match self.access {
            Access::Read => {
                return Err(StoreError::ReadOnly {
                    dir: self.dir.clone(),
                });
            }
            Access::Write(_) => (),
        }
        if let Some(cause) = &self.failed {
            return Err(StoreError::Failed {
                place: self.place(),
                cause: cause.clone(),
            });
        }

        match commit(&mut self.connection, work) {
            Ok(done) => Ok(done),
            Err(Stop::Refused(refusal)) => Err(refusal),
            Err(Stop::Failed(error)) => {
                let text = error.to_string();
                let failure = self.failure(doing, error);
                self.failed = Some(format!("{failure}: {text}"));
                // Closing would copy pages whose sync failed out of a cache that may not be what the disk holds. Left
                // alone, the WAL is read back from the disk by the next open, which trusts only what it can verify.
                let _ = self
                    .connection
                    .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
                Err(failure)
            }
        }
    }

    fn failure(&self, doing: &'static str, error: rusqlite::Error) -> StoreError {
        classify(&self.dir, doing, error)
    }

    fn corrupt(&self, what: String) -> StoreError {
        StoreError::Corrupt {
            place: self.place(),
            what,
        }
    }
}

fn commit<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, Stop>,
) -> Result<T, Stop> {
    // Immediate: the fence and the last seq that are read must still hold at the commit.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

fn check_fence(connection: &Connection, held: Fence) -> Result<(), Stop> {
    let mut select = connection.prepare_cached("SELECT fence, owner FROM meta")?;
    let (current, owner) =
        select.query_row((), |row| Ok((Fence::new(row.get(0)?), row.get(1)?)))?;
    if held == current {
        return Ok(());
    }
    Err(StoreError::Stale {
        held,
        current,
        owner,
    }
    .into())
}

fn last_seq(connection: &Connection) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached("SELECT ifnull(max(seq), 0) FROM events")?;
    select.query_row((), |row| row.get(0))
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        seq: row.get(0)?,
        at_ms: row.get(1)?,
        version: row.get(2)?,
        kind: row.get(3)?,
        body: row.get(4)?,
    })
}

fn header(row: &Row<'_>) -> rusqlite::Result<ImageHeader> {
    let digest = row
        .get_ref(2)?
        .as_str()?
        .parse::<Digest>()
        .map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Text, error.into())
        })?;
    Ok(ImageHeader {
        seq: row.get(0)?,
        version: row.get(1)?,
        digest,
        bytes: row.get(3)?,
    })
}

/// Turns a number to search by into the nearest one that SQLite knows; nothing is stored beyond it.
fn storable(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
