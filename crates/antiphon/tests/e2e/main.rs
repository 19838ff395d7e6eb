//! End to end: the real binary, a real server on loopback, real processes. What a user types, sees and survives.

#![expect(
    clippy::unwrap_used,
    reason = "a step that fails is the test's failure"
)]

mod api;
mod crashes;
mod refusals;
mod server;
mod story;
