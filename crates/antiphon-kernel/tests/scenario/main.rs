//! Scenarios: cluster and inputs as text, decisions as text. What the kernel does, rule by rule.

#![expect(
    clippy::unwrap_used,
    reason = "a scenario that does not parse is a broken test"
)]

mod asks;
mod backfill;
mod budgets;
mod deadlines;
mod failures;
mod gate;
mod graphs;
mod keys;
mod known_failures;
mod ladder;
mod maintenance;
mod nodes;
mod notices;
mod order;
mod preemption;
mod protections;
mod refusals;
mod remedies;
mod steering;
mod teams;
mod topology;
mod turns;
mod why;
mod world;
