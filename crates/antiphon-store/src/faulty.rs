//! A log that fails once, on purpose, for storm tests. It damages nothing: what it committed stays whole.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::{Entry, Fence, Image, ImageHeader, Log, StoreError};

/// What the failing append leaves behind. Its caller sees the same error in both cases, as with a real disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was committed.
    Lost,
    /// Everything was committed, and the caller never learned it.
    Unreported,
}

/// Wraps a log so that one append fails. From then on it takes no writes, as [`SqliteLog`](crate::SqliteLog) does.
pub struct FaultyLog<L> {
    log: L,
    fails_at: u64,
    fault: Fault,
    appends: AtomicU64,
}

impl<L: Log> FaultyLog<L> {
    /// Lets append number `fails_at` fail, counted from 1.
    pub fn new(log: L, fails_at: u64, fault: Fault) -> Self {
        Self {
            log,
            fails_at,
            fault,
            appends: AtomicU64::new(0),
        }
    }

    /// Returns the log below, as a restart would find it.
    pub fn into_inner(self) -> L {
        self.log
    }

    fn check_not_failed(&self, appends: u64) -> Result<(), StoreError> {
        if appends < self.fails_at {
            return Ok(());
        }
        let cause = format!("append {} failed on purpose", self.fails_at);
        Err(StoreError::Failed {
            place: "faulty".into(),
            cause,
        })
    }
}

#[async_trait]
impl<L: Log> Log for FaultyLog<L> {
    async fn acquire(&self, owner: &str) -> Result<Fence, StoreError> {
        self.check_not_failed(self.appends.load(Ordering::SeqCst))?;
        self.log.acquire(owner).await
    }

    async fn append(&self, fence: Fence, entries: Vec<Entry>) -> Result<(), StoreError> {
        let before = self.appends.fetch_add(1, Ordering::SeqCst);
        self.check_not_failed(before)?;
        if before + 1 < self.fails_at {
            return self.log.append(fence, entries).await;
        }
        match self.fault {
            Fault::Lost => (),
            Fault::Unreported => self.log.append(fence, entries).await?,
        }
        let source = format!("append {} fails on purpose", self.fails_at).into();
        Err(StoreError::Io {
            place: "faulty".into(),
            doing: "append events",
            source,
        })
    }

    async fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.log.read(after, limit).await
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        self.log.last_seq().await
    }

    async fn put_image(&self, fence: Fence, image: Image) -> Result<(), StoreError> {
        self.check_not_failed(self.appends.load(Ordering::SeqCst))?;
        self.log.put_image(fence, image).await
    }

    async fn images(&self) -> Result<Vec<ImageHeader>, StoreError> {
        self.log.images().await
    }

    async fn image(&self, seq: u64) -> Result<Image, StoreError> {
        self.log.image(seq).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryLog;

    fn entry(seq: u64) -> Entry {
        Entry {
            seq,
            at_ms: seq,
            version: 1,
            kind: "tick".into(),
            body: "{}".into(),
        }
    }

    async fn last_seq_after(fault: Fault) -> u64 {
        let log = FaultyLog::new(MemoryLog::new(), 2, fault);
        let fence = log.acquire("a").await.unwrap();
        log.append(fence, vec![entry(1)]).await.unwrap();
        assert!(matches!(
            log.append(fence, vec![entry(2)]).await,
            Err(StoreError::Io { .. })
        ));
        assert!(matches!(
            log.append(fence, vec![entry(3)]).await,
            Err(StoreError::Failed { .. })
        ));
        assert!(matches!(
            log.acquire("b").await,
            Err(StoreError::Failed { .. })
        ));
        log.into_inner().last_seq().await.unwrap()
    }

    #[tokio::test]
    async fn lost_append_leaves_the_log_as_it_was() {
        assert_eq!(last_seq_after(Fault::Lost).await, 1);
    }

    #[tokio::test]
    async fn unreported_append_is_found_after_the_restart() {
        assert_eq!(last_seq_after(Fault::Unreported).await, 2);
    }
}
