//! The job file: what a user writes, in TOML, YAML or JSON, and how it becomes a job. Whether the job fits the cluster is
//! the kernel's question.

mod form;
mod read;
mod spec;

pub use form::{
    CheckpointFile, ClassName, DataFile, JobFile, ProcessesName, Resources, RetryFile, RoleFile,
    RulesName, Run, TrainFile,
};
pub use read::{Format, JobFileError, from_value, read, schema};
pub use spec::{Context, absolute, to_spec, warnings};

#[cfg(test)]
mod tests;
