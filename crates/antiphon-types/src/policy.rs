//! Settings and limits of the kernel, each with its reason. Data: changed by a logged command, never read from the environment.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Class, Millis};

/// The kernel's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// How long a job of each class waits before it is promoted in front of its class: at most one of each team at a time.
    pub promote_after_ms: PromoteAfter,
    /// Blocked jobs of each class that hold GPUs back until they start: each costs idle GPUs, and lets a big gang land.
    pub reservations_per_class_max: u32,
    /// How long the owner of a quota waits before protections of those who borrow from it fall.
    pub reclaim_wait_ms_max: Millis,
    /// How often an hour one job may be preempted: a job that is moved more often gets nowhere.
    pub preemptions_per_hour_max: u32,
    /// Preemptions an hour in the whole cluster: bounds what a wrong setting can do.
    pub preemptions_per_hour_cluster_max: u32,
    /// A job that ends within this is left alone: preempting it gains less than it costs.
    pub near_end_ms: Millis,
    /// GPUs that victims may hold beyond what is asked for, in percent of it; one victim more is always allowed.
    pub collateral_percent_max: u32,
    /// Time to start a job again, where it has not been measured: part of what a preemption costs.
    pub restart_cost_ms: Millis,
    /// How many times as much GPU-time a run must still need as a waiting job of its team to give way to it, in thousandths;
    /// 0 lets nobody give way inside a team. Any gain keeps two jobs from taking turns more than a few times.
    pub turn_gain_permille: u32,
    /// Half-life of usage for fair share.
    pub usage_half_life_ms: Millis,
    /// What a GPU-hour of a type weighs in fair share, in thousandths; types not named weigh 1,000.
    pub gpu_weight_permille: BTreeMap<String, u32>,
    /// How long a node is watched for failures of jobs of different teams.
    pub suspicion_ms: Millis,
    /// A program and its arguments, run on each node before a gang of several nodes starts there and after a hardware
    /// failure; a status other than 0 puts the node aside. None by default.
    pub node_check: Vec<String>,
    /// Directives of rules to one job within an hour: bounds what a rule that goes back and forth can do.
    pub rule_directives_per_hour_max: u32,
    /// How long a rule leaves a subject alone that it has just acted on: what it did has to show first.
    pub rule_cool_down_ms: Millis,
    /// Asks of one job's trainer within an hour that are listened to: each may cost a search for room.
    pub asks_per_hour_max: u32,
    /// How long within an hour a trainer may have itself protected from preemption.
    pub protection_per_hour_ms_max: Millis,
    /// How long an attempt's GPUs may do next to nothing before it is taken back; none by default: it is only said.
    pub idle_reclaim_after_ms: Option<Millis>,
}

/// How long a job of each class waits before it is promoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PromoteAfter {
    /// Of class `service`.
    pub service: Millis,
    /// Of class `production`.
    pub production: Millis,
    /// Of class `standard`.
    pub standard: Millis,
    /// Of class `best-effort`.
    pub best_effort: Millis,
}

impl Default for PromoteAfter {
    fn default() -> Self {
        Self {
            service: Millis::from_secs(600),
            production: Millis::from_secs(3_600),
            standard: Millis::from_secs(6 * 3_600),
            best_effort: Millis::from_secs(24 * 3_600),
        }
    }
}

impl PromoteAfter {
    /// The bound of one class.
    #[must_use]
    pub const fn of(&self, class: Class) -> Millis {
        match class {
            Class::Service => self.service,
            Class::Production => self.production,
            Class::Standard => self.standard,
            Class::BestEffort => self.best_effort,
        }
    }
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
            promote_after_ms: PromoteAfter::default(),
            reservations_per_class_max: 4,
            reclaim_wait_ms_max: Millis::from_secs(1_800),
            preemptions_per_hour_max: 2,
            preemptions_per_hour_cluster_max: 1_000,
            near_end_ms: Millis::from_secs(300),
            collateral_percent_max: 50,
            restart_cost_ms: Millis::from_secs(120),
            turn_gain_permille: 1_300,
            usage_half_life_ms: Millis::from_secs(24 * 3_600),
            gpu_weight_permille: BTreeMap::new(),
            suspicion_ms: Millis::from_secs(3_600),
            rule_directives_per_hour_max: 60,
            rule_cool_down_ms: Millis::from_secs(60),
            asks_per_hour_max: 12,
            protection_per_hour_ms_max: Millis::from_secs(1_800),
            node_check: Vec::new(),
            idle_reclaim_after_ms: None,
        }
    }
}
