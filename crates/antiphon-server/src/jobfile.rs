//! The job file: what a user writes, in TOML, YAML or JSON, and how it becomes a job. Whether the job fits the cluster is
//! the kernel's question.

mod array;
mod data;
mod estimate;
mod form;
mod read;
mod shape;
mod spec;
mod time;

pub use data::{AugmentFile, DataFile, ModeName, OriginFile, RulesFile, read_shards};
pub use estimate::{EstimateFile, IntervalFile};
pub use form::{
    CheckpointFile, ClassName, JobFile, ProcessesName, Resources, RetryFile, RoleFile, Run,
    RungFile, SpanName, TrainFile,
};
pub use read::{Format, JobFileError, from_value, read, schema};
pub use spec::{Context, absolute, to_spec, warnings};

#[cfg(test)]
mod tests;
