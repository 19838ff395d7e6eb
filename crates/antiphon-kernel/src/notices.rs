//! Nodes and GPUs that are to be given back soon: which GPUs that takes, who has to leave for it, and how long that one may
//! still save. Later ends are planned as maintenance, where jobs run on until it begins.

use std::collections::BTreeSet;

use antiphon_types::{Millis, StopCause, Timestamp};

use crate::capacity::NodeId;
use crate::jobs::{Active, Job, JobState, StopPhase};
use crate::state::{Node, NoticeRecord, State};

/// GPUs of a node that are there and not promised to anybody else.
pub(crate) fn left(node: &Node) -> impl Iterator<Item = u32> {
    let gone = |gpu: &u32| node.spec.gpus_lost.contains(gpu) || node.gives_back(*gpu);
    (0..node.spec.gpus).filter(move |gpu| !gone(gpu))
}

/// So many GPUs of a node: those that nobody holds, the highest first, then those of whoever stops anyway, then of whoever
/// would be asked first to give way.
pub(crate) fn choose(state: &State, id: NodeId, gpus: u32) -> Vec<u32> {
    let node = state.node_at(id);
    let holders = |gpu: u32| {
        let tenants = state.index.tenants_of(id).iter();
        let jobs: BTreeSet<_> = tenants
            .filter(|tenant| {
                let active = state.jobs[&tenant.job].state.active();
                let task = usize::try_from(tenant.task).expect("few tasks");
                active.is_some_and(|active| active.allocation.tasks[task].gpus.contains(&gpu))
            })
            .map(|tenant| tenant.job)
            .collect();
        let stakes = jobs.iter().map(|job| {
            let stake = state.index.stakes.get(*job)?;
            Some((stake.is_left_alone(state.now), stake.rank(state)))
        });
        let mut stakes: Vec<_> = stakes.collect();
        stakes.sort_unstable_by(|one, other| other.cmp(one));
        stakes
    };
    let mut chosen: Vec<u32> = left(node).collect();
    chosen.reverse();
    chosen.sort_by_cached_key(|gpu| holders(*gpu));
    chosen.truncate(usize::try_from(gpus).expect("few GPUs"));
    chosen.sort_unstable();
    chosen
}

/// Running jobs on what is to be given back, and why each is stopped. What has ended just then is settled, not stopped.
pub(crate) fn leaving(state: &State) -> impl Iterator<Item = (&Job, StopCause)> {
    state.index.noticed.iter().flat_map(move |id| {
        let node = state.node_at(*id);
        let jobs: BTreeSet<_> = state.index.tenants_of(*id).iter().map(|t| t.job).collect();
        let jobs = jobs.into_iter().map(|job| &state.jobs[&job]);
        jobs.filter_map(move |job| {
            let (JobState::Starting { active } | JobState::Running { active }) = &job.state else {
                return None;
            };
            let notice = first(node, active).filter(|_| !active.is_over())?;
            let gpus = notice.gpus.as_ref().map(Vec::len);
            let cause = StopCause::Notice {
                node: node.spec.name.clone(),
                gpus: gpus.map(|gpus| u32::try_from(gpus).expect("few GPUs")),
                cause: notice.cause,
                within: notice.by.since(state.now),
            };
            Some((job, cause))
        })
    })
}

/// The notice of a node that an attempt has to leave first, if it holds anything that is to be given back.
fn first<'a>(node: &'a Node, active: &Active) -> Option<&'a NoticeRecord> {
    let here = |task: &&antiphon_types::TaskAllocation| task.node == node.spec.name;
    let hit = |notice: &&NoticeRecord| {
        let mut tasks = active.allocation.tasks.iter().filter(here);
        let gives = |gpu: &u32| notice.takes(*gpu);
        tasks.any(|task| notice.gpus.is_none() || !task.sliced && task.gpus.iter().any(gives))
    };
    node.notices
        .iter()
        .filter(hit)
        .min_by_key(|notice| notice.by)
}

/// Jobs that stop already and have been given longer to save than a node's notices leave them, and until when they may.
pub(crate) fn waits_cut(state: &State, id: NodeId) -> Vec<(antiphon_types::JobId, Timestamp)> {
    let node = state.node_at(id);
    let jobs: BTreeSet<_> = state.index.tenants_of(id).iter().map(|t| t.job).collect();
    let cut = |job| {
        let job: &Job = &state.jobs[&job];
        let JobState::Stopping {
            active,
            phase: StopPhase::CheckpointWait { until, .. },
            ..
        } = &job.state
        else {
            return None;
        };
        let left = first(node, active)?.by.since(state.now);
        let by = state.now.after(time_to_save(left, job.spec.grace));
        (by < *until).then_some((job.id, by))
    };
    jobs.into_iter().filter_map(cut).collect()
}

/// How long a job may save before what it holds is given back: its grace has to come after that. Where all is shorter than
/// twice the grace, half of it: a signal with no time to save before it would make the notice worthless.
pub(crate) fn time_to_save(within: Millis, grace: Millis) -> Millis {
    let half = Millis::from_millis(within.as_millis() / 2);
    within.saturating_sub(grace).max(half)
}
