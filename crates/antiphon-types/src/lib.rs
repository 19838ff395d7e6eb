//! The words of antiphon as plain data: what the log, the API and the backends exchange. Decides nothing.
//!
//! ```
//! use antiphon_types::{AttemptId, Class, GpuAmount};
//!
//! let attempt: AttemptId = "job-42.3".parse()?;
//! assert_eq!(attempt.job.to_string(), "job-42");
//! assert!(Class::Production < Class::BestEffort, "the more urgent class sorts first");
//! assert_eq!("1.5".parse::<GpuAmount>()?, GpuAmount::from_thousandths(1_500));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accept;
mod action;
mod checkpoint;
mod cluster;
mod command;
mod directive;
mod event;
mod exit;
mod finding;
mod gate;
mod ids;
mod job;
pub mod model;
mod observation;
mod planned;
mod policy;
mod reason;
mod rejection;
mod rule;
mod secret;
mod team;
pub mod training;
mod units;

pub use accept::{Accept, AcceptFrom, AcceptOp, Decimal, Reached};
pub use action::{Action, Decision, Outcome, Score, Slot, SlotReason, StopCause, Terms};
pub use checkpoint::Checkpoint;
pub use cluster::{
    Allocation, GPUS_PER_NODE_MAX, GpuLayout, Location, Maintenance, NodeSlice, NodeSpec,
    NodeState, Notice, NoticeCause, PartitionSpec, Slice, Span, TaskAllocation,
};
pub use command::{Ask, AskBody, Command, CommandId, Direct};
pub use directive::{Ack, AckBody, Directive, DirectiveBody, DirectiveCause, DirectiveScope};
pub use event::{Body, EVENT_VERSION, Event};
pub use exit::{Exit, ExitClass};
pub use finding::{Diagnosis, Finding, Verdict};
pub use gate::{GateChange, GateOpened, GatePolicy, GateShut, Number, Reading};
pub use ids::{ActionId, AttemptId, DirectiveId, IdError, JobId, NodeName, Seq, TaskId};
pub use job::{
    ArraySpec, AugmentSpec, CheckpointSpec, Class, DataSpec, Estimate, JobSpec, KeepSpec,
    Processes, RetrySpec, Role, Rung, Shape, ShardOrigin, Tasks,
};
pub use model::ModelShape;
pub use observation::Observation;
pub use planned::{Learned, Measured, ShapePlan};
pub use policy::{Policy, PromoteAfter};
pub use reason::{BestNode, Holder, WaitReason};
pub use rejection::Rejection;
pub use rule::{Remedy, Rule, RuleMode};
pub use secret::SecretRef;
pub use team::{Amounts, TeamSpec};
pub use training::TrainingSpec;
pub use units::{Bytes, GpuAmount, GpuTime, Millis, Timestamp, UnitError, UsdMicros};
