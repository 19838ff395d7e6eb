//! The live server: one event loop, one log, an executor that drives backends, and the HTTP API. What is decided, the
//! kernel decides; this crate reads the clock, stamps, stores and carries out.

pub mod api;
mod dashboard;
mod devices;
mod event_loop;
mod executor;
pub mod facts;
#[cfg(test)]
mod fixture;
mod forecasts;
pub mod jobfile;
mod lessons;
mod metrics;
mod notify;
mod observe;
mod over;
mod recovery;
mod serve;
mod show;
mod signal_plane;
mod spans;
mod start;
mod throughput;
mod tls;
mod tokens;
mod view;

pub use devices::Exporters;
pub use event_loop::{Accepted, LoopHandle, Refused};
pub use lessons::{Lesson, Lessons, Site};
pub use metrics::reference as metrics_reference;
pub use notify::{Mail, Mailbox, NotifyConfig, Occasion, Webhook};
pub use over::Over;
pub use recovery::{AuditReport, LoadError, audit};
pub use serve::Limits;
pub use show::{Pace, ShowConfig, Showing, VirtualTime, show};
pub use spans::SPANS;
pub use start::{ServerConfig, StartError, Started, start};
pub use throughput::usd_per_hour;
pub use tls::{TlsError, TlsFiles};
pub use tokens::{TOKEN_FILE, read_token};
