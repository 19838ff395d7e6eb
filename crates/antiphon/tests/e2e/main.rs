//! End to end: the real binary, a real server on loopback, real processes. What a user types, sees and survives.

#![expect(
    clippy::unwrap_used,
    reason = "a step that fails is the test's failure"
)]
#![expect(
    clippy::print_stderr,
    reason = "tests say their seed, and what they skipped"
)]

mod api;
mod cluster;
#[path = "../../../../tests/backends/cluster.rs"]
mod cluster_of_slurm;
mod crashes;
mod imports;
mod people;
mod plans;
mod refusals;
mod replay;
mod server;
mod slurm;
mod story;
mod telemetry;
mod two_way;
mod why;
