//! The job file: what a user writes, in TOML, YAML or JSON, and how it becomes a job. Whether the job fits the cluster is
//! the kernel's question.

mod accept;
mod array;
mod data;
mod estimate;
mod form;
mod plan;
mod read;
mod roles;
mod secrets;
mod shape;
mod spec;
mod time;
mod train;

pub use data::{AugmentFile, DataFile, ModeName, OriginFile, RulesFile, read_shards};
pub use estimate::{EstimateFile, IntervalFile};
pub use form::{
    CheckpointFile, ClassName, JobFile, ProcessesName, Resources, RetryFile, RoleFile, Run,
    RungFile, SpanName,
};
pub use plan::sentence;
pub use read::{Format, JobFileError, from_value, read, schema};
pub use spec::{Context, Made, absolute, to_spec};
pub use train::{GpusFile, LayoutName, TrainFile};

#[cfg(test)]
mod tests;
