//! The commands that need no server, as a user calls them: what they print, write and leave behind.

#![expect(
    clippy::unwrap_used,
    reason = "a step that fails is the test's failure"
)]

mod bench;
mod plan;
mod simulate;
mod sweep;
