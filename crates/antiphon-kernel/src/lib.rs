//! The decision kernel: pure, synchronous, deterministic, integers only. It reads no clock, draws no random number and
//! touches no file; the live server and the simulator drive the same one.
//!
//! Three functions carry everything: [`admit`] answers a command before it is logged, [`apply`] folds a logged event into
//! the [`State`], [`decide`] chooses what to do now. Replay calls `apply` alone and never decides again.
//!
//! ```
//! use antiphon_kernel::{State, apply, decide};
//! use antiphon_types::{Body, Event, Seq, Timestamp};
//!
//! let mut state = State::default();
//! apply(&mut state, &Event { seq: Seq(1), at: Timestamp::from_millis(5), body: Body::Tick });
//! assert_eq!(state.now(), Timestamp::from_millis(5));
//! assert!(decide(&state).actions.is_empty(), "nothing to do in an empty cluster");
//! ```
#![deny(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::wildcard_enum_match_arm
)]

mod admit;
mod apply;
mod capacity;
pub mod check;
mod decide;
mod direct;
pub mod explain;
mod jobs;
mod news;
mod order;
mod place;
mod preempt;
mod settle;
mod state;
mod stop;

pub use admit::{admit, repeated};
pub use apply::apply;
pub use capacity::{Capacity, Free};
pub use decide::decide;
pub use direct::pending_directives;
pub use jobs::{Active, AttemptRecord, Job, JobState, Progress, ShardRecord, StopPhase, TaskPhase};
pub use news::{is_current, is_news};
pub use place::place;
pub use state::{CommandRecord, Mode, Node, State};
