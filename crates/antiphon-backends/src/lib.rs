//! One trait and its carriers: the systems that start processes. Backends report what they see and do what they are
//! told; they decide nothing and know neither kernel, store nor server.

mod backend;
pub mod fake;
pub mod local;

pub use backend::{Backend, BackendError, Launch, Preflight, Seen, TaskSeen};
