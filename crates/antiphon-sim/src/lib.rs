//! The decision kernel under virtual time: recorded or made-up workloads, policies of published schedulers beside
//! antiphon's own, faults, and reports on what came of them. The kernel is the one that the live server drives.
//!
//! It reads no wall clock: a stopwatch is handed in by whoever wants to know how long a run took.

pub mod bound;
pub mod cluster;
pub mod course;
pub mod delay;
pub mod faults;
mod figure;
mod form;
pub mod generate;
pub mod outcome;
pub mod peer;
pub mod placement;
pub mod profile;
pub mod replay;
pub mod report;
pub mod simulate;
pub mod storm;
pub mod sweep;
pub mod throughput;
pub mod trace;
pub mod workload;
pub mod world;

/// The digest of some bytes, as hexadecimal digits.
#[must_use]
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
