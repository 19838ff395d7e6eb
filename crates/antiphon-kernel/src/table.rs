//! All jobs by id. Each lies in a place of its own, so that looking one up among a hundred thousand touches little memory.

use std::collections::BTreeMap;
use std::ops::Index;

use antiphon_types::JobId;
use serde::{Deserialize, Serialize};

use crate::jobs::Job;

/// All jobs by id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Jobs(BTreeMap<JobId, Box<Job>>);

impl Jobs {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        self.0.get(id).map(AsRef::as_ref)
    }

    /// Whether there is one of this id.
    #[must_use]
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.0.contains_key(id)
    }

    /// Their ids, the oldest first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &JobId> {
        self.0.keys()
    }

    /// All of them, the oldest first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.0.values().map(AsRef::as_ref)
    }

    /// Those that were submitted after one, the oldest first.
    pub fn after(&self, id: JobId) -> impl DoubleEndedIterator<Item = &Job> {
        self.0.range(JobId(id.0 + 1)..).map(|(_, job)| job.as_ref())
    }

    pub(crate) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.0.get_mut(id).map(AsMut::as_mut)
    }

    pub(crate) fn insert(&mut self, id: JobId, job: Job) {
        self.0.insert(id, Box::new(job));
    }

    pub(crate) fn remove(&mut self, id: &JobId) {
        self.0.remove(id);
    }
}

impl Index<&JobId> for Jobs {
    type Output = Job;
    fn index(&self, id: &JobId) -> &Job {
        &self.0[id]
    }
}
