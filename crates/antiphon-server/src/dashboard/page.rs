//! Which pages there are, and what each is asked with.

use std::sync::Arc;
use std::time::Duration;

use antiphon_types::JobId;
use serde::Serialize;

use super::sheet::Rows;
use super::{cluster, job, now, queue, teams};
use crate::api::Shared;
use crate::api::auth::{Caller, Role};

/// A page with what it is asked with: who asks the same shares one sheet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Page {
    Now,
    Cluster,
    Queue(queue::Window),
    Job(JobId),
    Teams,
}

/// What a page is made from, and for whom.
pub(super) struct Look<'a> {
    pub(super) shared: &'a Arc<Shared>,
    /// One of those who see the same.
    pub(super) caller: &'a Caller,
}

/// Whose jobs somebody sees: those of some teams, or all.
pub(super) type Scope = Option<Vec<String>>;

pub(super) fn scope(caller: &Caller) -> Scope {
    (caller.role == Role::Member).then(|| caller.teams.to_vec())
}

impl Page {
    /// The page's rows as things stand.
    pub(super) fn rows(&self, look: &Look<'_>) -> Rows {
        let mut rows = match self {
            Self::Now => now::rows(look),
            Self::Cluster => cluster::rows(look),
            Self::Queue(window) => queue::rows(look, window),
            Self::Job(job) => job::rows(look, *job),
            Self::Teams => teams::rows(look),
        };
        let shared = look.shared;
        let time = shared.view.virtual_time();
        if let (Some(subject), Some(time)) = (shared.source.shown(), time) {
            rows.insert("simulation".into(), json(&subject.at(time)));
        }
        rows
    }

    /// After how long it is made again though nothing was committed: trainers report, and time passes.
    pub(super) const fn stale_after(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Job(_) => 1,
            Self::Now | Self::Queue(_) => 5,
            Self::Cluster | Self::Teams => 15,
        })
    }
}

/// A row's value.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("what is shown is plain data")
}
