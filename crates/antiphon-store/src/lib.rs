//! Keeps the event log and the state images durable. It carries encoded events: it never reads what they mean, decides
//! nothing and does not know the kernel.
//!
//! A [`Log`] has one writer, named by its [`Fence`], and any number of readers. [`SqliteLog`] is the log of one server on
//! a local disk, [`MemoryLog`] the same contract without a disk.
//!
//! ```
//! use antiphon_store::{Entry, Log, SqliteLog};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let dir = tempfile::tempdir()?;
//! let log = SqliteLog::open(dir.path())?;
//! let fence = log.acquire("server-a").await?;
//!
//! let entry = Entry { seq: 1, at_ms: 1_764_430_000_000, version: 1, kind: "tick".into(), body: "{}".into() };
//! log.append(fence, vec![entry.clone()]).await?;
//!
//! assert_eq!(log.read(0, 100).await?, [entry]);
//! # Ok(())
//! # }
//! ```

mod digest;
mod error;
#[cfg(feature = "test-support")]
mod faulty;
mod lock;
mod log;
mod memory;
mod pack;
mod sqlite;

pub use digest::{Digest, ParseDigestError, decode_state, digest, encode_state};
pub use error::StoreError;
#[cfg(feature = "test-support")]
pub use faulty::{Fault, FaultyLog};
pub use lock::DirLock;
pub use log::{Entry, Fence, IMAGES_KEPT, Image, ImageHeader, Log};
pub use memory::MemoryLog;
pub use sqlite::SqliteLog;
