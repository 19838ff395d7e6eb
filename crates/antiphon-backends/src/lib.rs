//! One trait and its carriers: the systems that start processes. Backends report what they see and do what they are
//! told; they decide nothing and know neither kernel, store nor server.
//!
//! ```
//! use antiphon_backends::Backend;
//! use antiphon_backends::local::{LocalBackend, LocalConfig};
//!
//! # let root = tempfile::tempdir()?;
//! # let runtime = tokio::runtime::Runtime::new()?;
//! # runtime.block_on(async {
//! let supervisor = vec!["/proc/self/exe".to_owned(), "supervise".to_owned()];
//! let backend = LocalBackend::new(LocalConfig {
//!     virtual_gpus: 8,
//!     ..LocalConfig::new(root.path().to_owned(), supervisor)
//! })?;
//! assert_eq!(backend.nodes().await?.len(), 1, "this machine");
//! assert_eq!(backend.seen("job-42.3".parse()?).await?, None, "positively absent");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod backend;
mod devices;
#[cfg(feature = "test-support")]
pub mod fake;
pub mod local;
pub mod observe;
mod several;
pub mod slurm;
pub mod supervisor;
pub mod trust;

pub use backend::{Backend, BackendError, CHECK_LIMIT, Launch, Preflight, Seen, TaskSeen};
pub use devices::{DeviceReading, Devices};
pub use several::SeveralBackends;
