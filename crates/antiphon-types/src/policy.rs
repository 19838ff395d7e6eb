//! Settings and limits of the kernel, each with its reason. Data: changed by a logged command, never read from the environment.

use serde::{Deserialize, Serialize};

use crate::Millis;

/// The kernel's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Longest wait for a checkpoint before SIGTERM: the largest checkpoints of one node take minutes, none should take more.
    pub checkpoint_wait_ms_max: Millis,
    /// Wait for a checkpoint where neither a step nor a save of the job has been measured.
    pub checkpoint_wait_ms_default: Millis,
    /// Jobs that have not ended: bounds memory and the length of a cycle.
    pub jobs_max: u32,
    /// Tasks of one gang: the widest clusters have 5,000 nodes of 8 GPUs.
    pub tasks_per_gang_max: u32,
    /// GPUs of one job: bounds sums so that arithmetic cannot overflow.
    pub gpus_per_job_max: u32,
    /// Ended jobs kept in memory, newest first; older ones stay in the log.
    pub ended_jobs_max: u32,
    /// Remembered command ids, newest first: a client retries within minutes, not months.
    pub command_ids_max: u32,
    /// Attempts of one job kept in full, newest first.
    pub attempts_kept_max: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            checkpoint_wait_ms_max: Millis::from_secs(600),
            checkpoint_wait_ms_default: Millis::from_secs(60),
            jobs_max: 200_000,
            tasks_per_gang_max: 40_000,
            gpus_per_job_max: 40_000,
            ended_jobs_max: 10_000,
            command_ids_max: 10_000,
            attempts_kept_max: 100,
        }
    }
}
