//! The order of service, and who may start now: class first, then first come first served. A blocked job keeps what it
//! waits for: nobody behind it may take that, so wide gangs land.

use antiphon_types::{Allocation, JobId};

use crate::capacity::Capacity;
use crate::jobs::Job;
use crate::place::place;
use crate::state::State;

/// What the walk through the queue found for one job.
pub(crate) enum Verdict {
    /// It starts now, there.
    Starts(Allocation),
    /// Its retry is not due.
    BackOff,
    /// It does not fit; it holds its place.
    Blocked,
    /// It would take what a blocked job in front of it waits for.
    Behind(JobId),
}

/// Walks the queue in service order and hands each job's verdict to `visit`, with what is free at that point.
pub(crate) fn walk<'a>(state: &'a State, mut visit: impl FnMut(&'a Job, Verdict, &Capacity<'a>)) {
    let mut free = Capacity::free(state);
    let mut blocked: Vec<&Job> = Vec::new();
    for job in state.queued_jobs() {
        let verdict = if job.not_before.is_some_and(|due| due > state.now) {
            Verdict::BackOff
        } else if let Some(front) = blocked.iter().find(|front| competes(front, job)) {
            Verdict::Behind(front.id)
        } else if let Some(allocation) = place(&free, &job.spec) {
            free.take(&allocation);
            Verdict::Starts(allocation)
        } else {
            blocked.push(job);
            Verdict::Blocked
        };
        visit(job, verdict, &free);
    }
}

/// Whether starting `job` could take something that `front` waits for.
fn competes(front: &Job, job: &Job) -> bool {
    let pairs = || {
        front
            .spec
            .roles
            .iter()
            .flat_map(|f| job.spec.roles.iter().map(move |j| (&f.shape, &j.shape)))
    };
    let same_gpus = pairs().any(|(f, j)| {
        let types_meet = match (&f.gpu_type, &j.gpu_type) {
            (Some(first), Some(second)) => first == second,
            (None, _) | (_, None) => true,
        };
        !f.gpus.is_zero() && !j.gpus.is_zero() && types_meet
    });
    let same_cpus = pairs().any(|(f, j)| f.cpus > 0 && j.cpus > 0);
    let same_memory = pairs().any(|(f, j)| !f.memory.is_zero() && !j.memory.is_zero());
    same_gpus || same_cpus || same_memory
}
