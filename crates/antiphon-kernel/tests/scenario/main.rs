//! Scenarios: cluster and inputs as text, decisions as text. What the kernel does, rule by rule.

#![expect(
    clippy::unwrap_used,
    reason = "a scenario that does not parse is a broken test"
)]

mod failures;
mod order;
mod preemption;
mod refusals;
mod steering;
mod world;
