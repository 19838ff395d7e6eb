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
mod allowance;
mod apply;
mod ask;
mod augment;
mod capacity;
pub mod check;
mod deadline;
mod decide;
mod direct;
mod exist;
mod expect;
pub mod explain;
pub mod forecast;
mod gate;
mod history;
mod index;
mod jobs;
mod ledger;
mod news;
mod nodes;
mod notices;
mod numbers;
mod order;
mod place;
mod preempt;
mod queue;
mod relocate;
mod remedy;
mod reserve;
mod settle;
mod share;
mod stake;
mod state;
mod steering;
mod stop;
mod table;
mod teams;
mod turns;
mod undo;

pub use admit::{admit, repeated};
pub use apply::apply;
pub use decide::{decide, next_timer};
pub use direct::{pending_directives, replay_slot};
pub use expect::{Expectation, Source};
pub use gate::Gate;
pub use jobs::{
    Active, ArrayMember, AttemptRecord, DeadlineRecord, IdleRecord, Job, JobState, MeasuredRecord,
    Progress, ReachedRecord, StopPhase, TaskPhase,
};
pub use ledger::{Account, Accounts, Usage};
pub use news::{is_current, is_news};
pub use numbers::{Numbers, Samples};
pub use place::Demand;
pub use share::{Standing, standing};
pub use stake::{AtStake, at_stake};
pub use state::{CommandRecord, Known, Mode, Node, NodeFailure, NodeFree, NoticeRecord, State};
pub use steering::{
    AugmentRun, Avoided, FindingRecord, FindingStage, RunStage, Steering, mode, waits_for_approval,
};
pub use table::Jobs;
pub use teams::{Team, Teams};
