//! Finds jobs and attempts, and keeps the indexes of the state: every job stands in each exactly where its state says.

use antiphon_types::{AttemptId, Class, JobId, NodeName, TaskAllocation};

use crate::jobs::{Active, Job, JobState};
use crate::state::State;

impl State {
    pub(super) fn job_at(&self, id: JobId) -> &Job {
        self.jobs
            .get(&id)
            .unwrap_or_else(|| panic!("{id} is in no event before this one"))
    }

    pub(super) fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.jobs
            .get_mut(&id)
            .unwrap_or_else(|| panic!("{id} is in no event before this one"))
    }

    /// The launch with this id, if it is the job's current one. A late word about another changes nothing.
    pub(super) fn active_attempt(&mut self, attempt: AttemptId) -> Option<&mut Active> {
        let active = self.jobs.get_mut(&attempt.job)?.state.active_mut()?;
        (active.attempt == attempt).then_some(active)
    }

    pub(super) fn held_on(&self, node: &NodeName) -> Vec<TaskAllocation> {
        self.active_jobs()
            .filter_map(|job| job.state.active())
            .flat_map(|active| &active.allocation.tasks)
            .filter(|task| task.node == *node)
            .cloned()
            .collect()
    }

    pub(super) fn queue_key(&self, id: JobId) -> (Class, JobId) {
        (self.job_at(id).spec.class, id)
    }

    /// Puts a pending job where it belongs: in the queue, if nothing has to happen first.
    pub(super) fn enter_queue(&mut self, id: JobId) {
        let job = self.job_at(id);
        if !matches!(job.state, JobState::Pending { .. }) {
            return;
        }
        if job.dead_dependency.is_some() {
            self.dead.insert(id);
        } else if job.waiting_for.is_empty() {
            if let Some(due) = job.not_before {
                self.backoff.insert((due, id));
            }
            self.queue.insert(self.queue_key(id));
        }
    }

    pub(super) fn leave_queue(&mut self, id: JobId) {
        let key = self.queue_key(id);
        self.queue.remove(&key);
        self.dead.remove(&id);
        if let Some(due) = self.job_at(id).not_before {
            self.backoff.remove(&(due, id));
        }
    }
}
