//! What keeps a job that stands in the queue: its team, what is held back for others, or that there is not enough free.

use antiphon_types::{
    BestNode, Class, GpuAmount, Holder, JobId, Millis, NodeState, Shape, SlotReason, Span,
    TaskAllocation, Tasks, Timestamp, WaitReason,
};

use super::predicted_end;
use crate::capacity::{Capacity, NodeId};
use crate::index::{NEVER, gone_by, place as index_of};
use crate::jobs::Job;
use crate::order::{Cycle, Verdict};
use crate::place::{best_at, kinds_for, needs, place};
use crate::state::{Node, State};
use crate::teams::total;

/// Holders that a reason names.
const HOLDERS_MAX: usize = 5;

/// What its team's limit, quota or budget says.
pub(super) fn of_team(
    state: &State,
    cycle: &Cycle<'_>,
    job: &Job,
    verdict: &Verdict,
    now: Timestamp,
) -> Option<WaitReason> {
    let teams = &state.teams;
    let asked = job.spec.gpus();
    match verdict {
        Verdict::Starts | Verdict::Unfit => None,
        Verdict::Limit(exceeded) => Some(WaitReason::TeamLimit {
            team: teams.get(exceeded.team).spec.name.clone(),
            gpu_type: exceeded.gpu_type.clone(),
            allocated: exceeded.allocated,
            asked,
            limit: exceeded.limit,
        }),
        Verdict::OverQuota => {
            let owner = teams.quota_owner(job.team).unwrap_or(job.team);
            Some(WaitReason::OverQuota {
                team: teams.get(owner).spec.name.clone(),
                allocated: cycle.holdings.urgent(owner),
                asked,
                quota: total(&teams.get(owner).spec.quota),
            })
        }
        Verdict::OverBudget => {
            let gpu_type = job.spec.roles.first()?.shape.gpu_type.as_deref();
            let over = teams.overspent(job.team, gpu_type, now)?;
            Some(WaitReason::OverBudget {
                team: over.team.to_owned(),
                used: over.used,
                budget: over.budget,
                free_at: over.free_at,
                left: over.free_at.since(now),
            })
        }
    }
}

/// What is missing: the ruling reason, then all others that hold as well.
pub(super) fn by_room(
    state: &State,
    cycle: &Cycle<'_>,
    job: &Job,
    class: Class,
    now: Timestamp,
) -> Vec<WaitReason> {
    let mut reasons = Vec::new();
    reasons.extend(coming(state, job, now));
    for (name, asked) in &job.spec.resources {
        let free = cycle.free.resource_free(name);
        if *asked > free {
            let name = name.clone();
            let asked = *asked;
            reasons.push(WaitReason::Resource { name, asked, free });
        }
    }
    if let Some(held_back) = held_back(state, cycle, job, class, now) {
        reasons.push(held_back);
    } else {
        reasons.extend(too_far_apart(cycle, job, class));
        reasons.extend(too_little(state, cycle, job, class, now));
    }
    reasons
}

/// Attempts that are being stopped for it.
fn coming(state: &State, job: &Job, now: Timestamp) -> Option<WaitReason> {
    let slot = state.slots.get(&job.id)?;
    if slot.why != SlotReason::Preemption {
        return None;
    }
    let jobs: Vec<JobId> = state
        .index
        .stopping
        .iter()
        .filter(|id| {
            let active = state.jobs[id].state.active();
            active.is_some_and(|active| {
                let mut tasks = active.allocation.tasks.iter();
                tasks.any(|task| slot.nodes.contains(&task.node))
            })
        })
        .copied()
        .collect();
    let until = jobs.iter().map(|id| gone_by(&state.jobs[id])).max()?;
    Some(WaitReason::Victims {
        jobs,
        until,
        left: until.since(now),
    })
}

/// Whether it would fit if nothing were held back, and for whom it is.
fn held_back(
    state: &State,
    cycle: &Cycle<'_>,
    job: &Job,
    class: Class,
    now: Timestamp,
) -> Option<WaitReason> {
    let allowance = cycle.barred(job, class).ok()?;
    let view = cycle.view(job, class, &allowance);
    let mut trial = cycle.free.clone();
    let holds = cycle.free.holds();
    holds.iter().for_each(|(node, _)| trial.unhold(*node));
    let placed = place(&mut trial, &job.spec, &view)?;
    let longest = job.expect.high;
    let hold = placed.nodes.iter().find_map(|node| {
        let hold = cycle.free.hold_on(*node)?;
        (!view.may_use(hold)).then_some(*hold)
    })?;
    let closes = hold
        .closes
        .filter(|_| !view.is_over_before_it_closes(&hold));
    if let Some(from) = closes {
        return Some(WaitReason::Maintenance {
            from,
            left: from.since(now),
            longest,
        });
    }
    let front = hold.job?;
    Some(WaitReason::Behind {
        job: front,
        class: state.jobs.get(&front)?.spec.class,
        starts_in: hold.at.map(|at| at.since(now)),
        longest,
    })
}

/// Whether there is enough, but not close enough.
fn too_far_apart(cycle: &Cycle<'_>, job: &Job, class: Class) -> Option<WaitReason> {
    let allowance = cycle.barred(job, class).ok()?;
    let view = cycle.view(job, class, &allowance);
    job.spec.roles.iter().find_map(|role| {
        let shape = &role.shape;
        if shape.span == Span::Cluster || shape.gpus.is_zero() {
            return None;
        }
        let anywhere = free_gpus(&cycle.free, job, shape, &view);
        let (best, free) = best_at(&cycle.free, &job.spec, shape, shape.span, &view)?;
        (anywhere >= shape.gpus && free < shape.gpus).then_some(WaitReason::Span {
            asked: shape.gpus,
            span: shape.span,
            best,
            free,
            free_anywhere: anywhere,
        })
    })
}

fn free_gpus(
    free: &Capacity,
    job: &Job,
    shape: &Shape,
    view: &crate::place::View<'_>,
) -> GpuAmount {
    kinds_for(free, &job.spec, shape, view)
        .into_iter()
        .map(|kind| GpuAmount::from_thousandths(free.free_of_kind(kind) * 1_000))
        .sum()
}

/// What is free, and who holds the rest.
fn too_little(
    state: &State,
    cycle: &Cycle<'_>,
    job: &Job,
    class: Class,
    now: Timestamp,
) -> Option<WaitReason> {
    let allowance = cycle.barred(job, class).ok()?;
    let view = cycle.view(job, class, &allowance);
    // A gang of several roles is told by the first that misses something: one sentence cannot weigh them all.
    let free = &cycle.free;
    let role = job
        .spec
        .roles
        .iter()
        .find(|role| {
            let mut alone = job.spec.clone();
            alone.roles = vec![(*role).clone()];
            place(&mut free.clone(), &alone, &view).is_none()
        })
        .or(job.spec.roles.first())?;
    let shape = &role.shape;
    let kinds = kinds_for(free, &job.spec, shape, &view);
    let members = || {
        kinds
            .iter()
            .flat_map(|kind| &free.kinds()[*kind].members)
            .copied()
    };
    let usable = |node: NodeId| usable(free, node, shape);
    let open = || members().filter(|node| free.is_open(*node));
    let all: GpuAmount = open().map(usable).sum();
    let best = open().max_by_key(|node| {
        let name = &state.index.node_names[index_of(*node)];
        (usable(*node), std::cmp::Reverse(name))
    });
    let enough_gpus = if shape.gpus.whole().is_some() {
        all >= shape.gpus && best.is_some_and(|node| usable(node) >= per_task(shape))
    } else {
        best.is_some_and(|node| usable(node) >= shape.gpus)
    };
    if enough_gpus {
        let cpus = best.map_or(0, |node| {
            let each = match shape.tasks {
                Tasks::Exactly(_) => per_task(shape),
                // As one task, where a node holds all of it.
                Tasks::Fewest => usable(node).min(shape.gpus),
            };
            needs(shape, each, &free.stand(node).size).0
        });
        let cpus_free = open().map(|node| free.room(node).cpus).max().unwrap_or(0);
        return Some(WaitReason::CpusOrMemory { cpus, cpus_free });
    }
    // Maintenance closes nodes that are ready; a spare that waits is not missing.
    let out_of_service = members()
        .filter(|node| !free.is_open(*node))
        .map(|node| state.node_at(node))
        .filter(|node| !node.spec.spare || node.stepped_in || node.state != NodeState::Ready);
    Some(WaitReason::Gpus {
        asked: shape.gpus,
        gpu_type: shape.gpu_type.clone(),
        free: all,
        best: best.map(|node| BestNode {
            node: state.index.node_names[index_of(node)].clone(),
            free: usable(node),
            total: state.node_at(node).spec.gpus,
        }),
        holders: holders(state, &members().collect::<Vec<_>>(), now),
        out_of_service: out_of_service.map(|node| node.spec.gpus).sum(),
    })
}

/// GPUs of the smallest task that would do.
fn per_task(shape: &Shape) -> GpuAmount {
    match shape.tasks {
        Tasks::Exactly(tasks) => {
            GpuAmount::from_thousandths(shape.gpus.thousandths() / u64::from(tasks.max(1)))
        }
        Tasks::Fewest => GpuAmount::from_gpus(1).min(shape.gpus),
    }
}

/// What a job of this shape could use of a node: a share fits beside others on a GPU, whole GPUs have to be free whole.
fn usable(free: &Capacity, node: NodeId, shape: &Shape) -> GpuAmount {
    let slices = &free.stand(node).slices;
    let wanted = shape.gpu_type.as_ref();
    if slices.iter().any(|slice| Some(&slice.profile) == wanted) {
        let left = (0u32..).zip(slices).filter(|(index, slice)| {
            Some(&slice.profile) == wanted && free.room(node).slices >> index & 1 == 1
        });
        return left.map(|_| GpuAmount::from_gpus(1)).sum();
    }
    let whole = GpuAmount::from_gpus(free.whole_gpus(node).count_ones());
    if shape.gpus.whole().is_some() || !whole.is_zero() {
        return whole;
    }
    let parts = free.parts().iter().filter(|part| part.node == node);
    parts.map(|part| part.free).max().unwrap_or_default()
}

/// Who holds GPUs on nodes that could serve, largest first.
fn holders(state: &State, nodes: &[NodeId], now: Timestamp) -> Vec<Holder> {
    let mut amounts: std::collections::BTreeMap<JobId, GpuAmount> =
        std::collections::BTreeMap::new();
    for node in nodes {
        for tenant in state.index.tenants_of(*node) {
            let active = state.jobs[&tenant.job].state.active();
            let task = active.and_then(|active| active.allocation.tasks.get(index_of(tenant.task)));
            let held = task.map(TaskAllocation::gpu_amount).unwrap_or_default();
            if !held.is_zero() {
                let sum = amounts.entry(tenant.job).or_default();
                *sum = *sum + held;
            }
        }
    }
    let mut largest: Vec<(JobId, GpuAmount)> = amounts.into_iter().collect();
    largest.sort_by_key(|(job, gpus)| (std::cmp::Reverse(*gpus), *job));
    largest.truncate(HOLDERS_MAX);
    largest
        .into_iter()
        .map(|(id, gpus)| {
            let job = &state.jobs[&id];
            Holder {
                job: id,
                class: job.spec.class,
                gpus,
                ends_in: ends_in(job, now),
            }
        })
        .collect()
}

fn ends_in(job: &Job, now: Timestamp) -> Option<Millis> {
    let stopping = gone_by(job);
    predicted_end(job, now).or_else(|| (stopping != NEVER).then(|| stopping.since(now)))
}

/// Whether a node takes tasks: for messages.
pub(super) fn is_drained(node: &Node) -> bool {
    matches!(node.state, NodeState::Draining { .. })
}
