//! Whether a deadline counts: only where the team's own share can meet it, so that a deadline never costs another team
//! anything. Judged once, at submission.

use antiphon_types::{GpuAmount, GpuTime, JobId, Timestamp};

use crate::jobs::{DeadlineRecord, Job};
use crate::state::{Known, State};
use crate::teams::{TeamId, total};

/// Judges a new job's deadline, if it has one.
pub(crate) fn judge(state: &State, job: &Job) -> Option<DeadlineRecord> {
    let deadline = job.spec.deadline?;
    let share = entitlement(state, job.team);
    let given = share.over(deadline.since(state.now));
    let earlier: GpuTime = admitted(state, job.team, deadline)
        .map(|other| remaining(other, state.now))
        .sum();
    let needed = earlier + remaining(job, state.now);
    // Its own length has to fit as well, however wide the share is.
    let fits = job.expect.expected <= deadline.since(state.now);
    Some(if needed <= given && fits {
        DeadlineRecord::Admitted
    } else {
        DeadlineRecord::Ignored { needed, given }
    })
}

/// The team's jobs that have not ended, with a deadline that counts and is not later.
fn admitted(state: &State, team: TeamId, until: Timestamp) -> impl Iterator<Item = &Job> {
    let first = (team, Timestamp::ZERO, JobId(0));
    let last = (team, until, JobId(u64::MAX));
    let deadlines = state.index.deadlines.range(first..=last);
    deadlines.map(|(_, _, id)| &state.jobs[id])
}

fn remaining(job: &Job, now: Timestamp) -> GpuTime {
    let left = match job.state.active().and_then(|active| active.terms.ends_at) {
        Some(end) => end.since(now),
        None => job.expect.expected,
    };
    job.spec.gpus().over(left)
}

/// GPUs that are the team's own: its quota, or its part of the cluster by weight, level by level.
pub(crate) fn entitlement(known: &Known, team: TeamId) -> GpuAmount {
    let teams = &known.teams;
    if let Some(owner) = teams.quota_owner(team) {
        return total(&teams.get(owner).spec.quota);
    }
    let cluster: GpuAmount = known
        .nodes
        .iter()
        .map(|node| GpuAmount::from_gpus(node.spec.gpus))
        .sum();
    let chain: Vec<TeamId> = teams.chain(team).collect();
    chain.into_iter().rev().fold(cluster, |share, id| {
        let parent = teams.get(id).parent;
        let siblings = teams.all().filter(|other| other.parent == parent);
        let weights: u64 = siblings
            .map(|other| u64::from(other.spec.weight.max(1)))
            .sum();
        let own = u64::from(teams.get(id).spec.weight.max(1));
        GpuAmount::from_thousandths(share.thousandths() * own / weights.max(1))
    })
}
