//! The contract of the log: what is stored and what every store promises. It says nothing of files, tables or connections.

use std::fmt;

use async_trait::async_trait;

use crate::{Digest, StoreError};

/// How many state images a log keeps. One serves a restart; two more stand behind it should the newest be damaged, and
/// they stay few because each may be as large as the whole state.
pub const IMAGES_KEPT: usize = 3;

/// The durable log: events numbered from 1 without a gap, and images of the state at some of them.
///
/// A call whose future is dropped may still take effect: a commit on its way to the disk is not called back.
#[async_trait]
pub trait Log: Send + Sync {
    /// Makes `owner` the one writer and returns its fence. Every earlier fence is stale from here on.
    ///
    /// # Errors
    /// Fails when the new fence cannot be made durable.
    async fn acquire(&self, owner: &str) -> Result<Fence, StoreError>;

    /// Appends all `entries` in one commit, or none. They are durable when it returns.
    ///
    /// An append that *failed*, rather than being refused, may have reached the disk all the same: reopen the log and ask
    /// for [`Log::last_seq`] before writing on.
    ///
    /// # Errors
    /// Refuses with [`StoreError::Stale`] and [`StoreError::Gap`], which leave the log as it was. Any other error is a
    /// failure of the storage, after which the log takes no more writes until it is reopened: after a failed sync nobody
    /// knows what the disk holds, and a second sync that succeeds proves nothing about the first.
    ///
    /// # Panics
    /// Panics when an `at_ms` is 2^63 or more.
    async fn append(&self, fence: Fence, entries: Vec<Entry>) -> Result<(), StoreError>;

    /// Reads at most `limit` entries that follow `after`, in order; none when `after` is the last.
    ///
    /// # Errors
    /// Fails when the entries cannot be read, and with [`StoreError::Corrupt`] when one is missing among them.
    async fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError>;

    /// Returns the seq of the last entry, 0 when the log is empty.
    ///
    /// # Errors
    /// Fails when the log cannot be read.
    async fn last_seq(&self) -> Result<u64, StoreError>;

    /// Stores an image, in place of one at the same seq, and drops all but the newest [`IMAGES_KEPT`].
    ///
    /// # Errors
    /// Refuses with [`StoreError::Stale`], with [`StoreError::ImageAhead`] when the log does not reach the image, and with
    /// [`StoreError::Corrupt`] when the digest is not that of the state. Other errors are failures, as for
    /// [`Log::append`].
    async fn put_image(&self, fence: Fence, image: Image) -> Result<(), StoreError>;

    /// Lists the images, newest first.
    ///
    /// # Errors
    /// Fails when the list cannot be read.
    async fn images(&self) -> Result<Vec<ImageHeader>, StoreError>;

    /// Reads the image at `seq` and verifies its digest.
    ///
    /// # Errors
    /// Fails with [`StoreError::NoImage`] when there is none at `seq`, and with [`StoreError::Corrupt`] when it is
    /// damaged; the next older image may still be whole.
    async fn image(&self, seq: u64) -> Result<Image, StoreError>;
}

/// One event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The position in the log; the first entry has 1.
    pub seq: u64,
    /// When the event happened, in ms since the Unix epoch; below 2^63.
    pub at_ms: u64,
    /// The version of the body's encoding.
    pub version: u32,
    /// The name of the kind of event, for readers of the log.
    pub kind: String,
    /// The event as JSON; the log does not parse it.
    pub body: String,
}

/// The state after the event `seq`, as it is handed to a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The last event folded into the state.
    pub seq: u64,
    /// The version of the state's encoding.
    pub version: u32,
    /// The digest of `state`.
    pub digest: Digest,
    /// The encoded state, before compression.
    pub state: Vec<u8>,
}

/// What is known of a stored image without reading its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// The last event folded into the state.
    pub seq: u64,
    /// The version of the state's encoding.
    pub version: u32,
    /// The digest of the encoded state.
    pub digest: Digest,
    /// The size of the encoded state before compression, in bytes.
    pub bytes: u64,
}

/// The right to write: a number that rises with each [`Log::acquire`]. Only the newest is accepted, so that a writer that
/// slept through the change of leader cannot write when it wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(u64);

impl Fence {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the fencing token as a number, from 1.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Refuses entries that do not continue the log after `last` without a gap.
pub(crate) fn check_continues(last: u64, entries: &[Entry]) -> Result<(), StoreError> {
    for (entry, expected) in entries.iter().zip(last + 1..) {
        if entry.seq != expected {
            return Err(StoreError::Gap {
                expected,
                got: entry.seq,
            });
        }
    }
    Ok(())
}

/// Stops a time that no store can hold before it reaches one: stores have signed 64-bit integers.
pub(crate) fn assert_times_fit(entries: &[Entry]) {
    for Entry { seq, at_ms, .. } in entries {
        assert!(
            i64::try_from(*at_ms).is_ok(),
            "event {seq} has at_ms {at_ms}, which is 2^63 or more"
        );
    }
}
