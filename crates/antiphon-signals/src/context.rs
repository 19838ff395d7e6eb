//! What the rules have to know of a job that its signals do not say. Filled by the caller from the job and its history.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{Accept, Millis, ShardOrigin};

/// What is known of a job besides its signals.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Context {
    /// GPUs of the gang.
    pub gpus: u32,
    /// Attempts that failed.
    pub failures: u32,
    /// How long earlier attempts ran together.
    pub ran: Millis,
    /// Rows of the smallest micro-batch that an attempt ran out of memory with.
    pub rows_out_of_memory: Option<u32>,
    /// No step for so long is a hang, in place of ten minutes.
    pub hang_after: Option<Millis>,
    /// Size of a checkpoint, as planned or as last seen.
    pub checkpoint_bytes: Option<u64>,
    /// How often the job saves now, if it said so.
    pub checkpoint_interval: Option<Millis>,
    /// Where its shards came from, by shard.
    pub shards: BTreeMap<String, ShardOrigin>,
    /// Shards that findings already in the log have taken out of the mix.
    pub quarantined: BTreeSet<String>,
    /// Held-out loss in nats above which a category starves, by category.
    pub category_loss_max: BTreeMap<String, f64>,
    /// Whether what it needs is to be measured: there is a plan or a request to hold it against.
    pub measured: bool,
    /// What makes its result an acceptable model, if its job says so.
    pub accept: Option<Accept>,
}
