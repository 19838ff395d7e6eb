//! Memory, speed, cost and layout of a training run, before a GPU is touched.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts of bytes and tokens are far below 2^53"
)]

pub mod activations;
pub mod adapter;
pub mod advice;
pub mod answer;
pub mod catalog;
pub mod error;
pub mod ladder;
pub mod memory;
pub mod plan;
pub mod profile;
pub mod row;
pub mod run;
pub mod search;
pub mod shapes;
pub mod states;
pub mod words;

// The time of a step, and what follows from it.
pub mod baseline;
pub mod bottleneck;
pub mod calibrate;
pub mod checkpoint;
pub mod communication;
pub mod compute;
pub mod cost;
pub mod flops;
pub mod kernels;
pub mod offload;
pub mod parts;
pub mod pipeline;
pub mod rates;
pub mod roles;
pub mod rollout;
pub mod score;
pub mod speed;
pub mod traffic;
pub mod typical;
pub mod update;

pub use error::PlanError;
pub use plan::{Plan, plan};
pub use run::{Assumption, Machine, Run, resolve};
