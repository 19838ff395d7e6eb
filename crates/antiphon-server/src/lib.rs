//! The live server: one event loop, one log, an executor that drives backends, and the HTTP API. What is decided, the
//! kernel decides; this crate reads the clock, stamps, stores and carries out.

pub mod api;
mod dashboard;
mod event_loop;
mod executor;
#[cfg(test)]
mod fixture;
mod forecasts;
pub mod jobfile;
mod lessons;
mod recovery;
mod serve;
mod signal_plane;
mod start;
mod tls;
mod tokens;
mod view;

pub use event_loop::{Accepted, LoopHandle, Refused};
pub use lessons::{Lesson, Lessons, Site};
pub use recovery::{AuditReport, LoadError, audit};
pub use serve::Limits;
pub use start::{ServerConfig, StartError, Started, start};
pub use tls::{TlsError, TlsFiles};
pub use tokens::{TOKEN_FILE, read_token};
