//! Which GPUs a task really has, where its backend chooses them: the books follow. Their number on a node never changes, so
//! nothing that was decided by numbers is undone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_types::{GpuAmount, JobId, TaskAllocation, TaskId};

use crate::capacity::NodeId;
use crate::index::place;
use crate::state::State;

const WHOLE: GpuAmount = GpuAmount::from_gpus(1);

/// Whose GPUs change: job and place in its allocation, with what each holds then.
type Changes = BTreeMap<(JobId, usize), Vec<u32>>;

/// Books the GPUs that a backend reports. Whoever was believed to hold one of them gets one that this task was believed to
/// hold: only one of two beliefs was right.
pub(super) fn fold(state: &mut State, task: &TaskId, gpus: &[u32]) {
    let Some((node, changes)) = changes(state, task, gpus) else {
        return;
    };
    let State { known, index } = state;
    let mut held: Vec<TaskAllocation> = Vec::new();
    for (&(id, position), gpus) in &changes {
        let active = known
            .jobs
            .get_mut(&id)
            .and_then(|job| job.state.active_mut());
        let active = active.expect("it was found among those that hold GPUs");
        let booked = &mut Arc::make_mut(&mut active.allocation.tasks)[position];
        index.capacity.give_back(node, booked);
        booked.gpus.clone_from(gpus);
        held.push(booked.clone());
    }
    // All are given back before any is taken: they change places.
    for booked in &held {
        index.capacity.take(node, booked);
    }
}

/// Whether a report of a task's GPUs changes the books.
pub(crate) fn holds_other(state: &State, task: &TaskId, gpus: &[u32]) -> bool {
    changes(state, task, gpus).is_some()
}

/// What a report changes. Nothing where it is late, says what is booked already, or cannot be so: another number of GPUs, one
/// that the node does not have, or one that is held in parts.
fn changes(state: &State, task: &TaskId, gpus: &[u32]) -> Option<(NodeId, Changes)> {
    let active = state.job(task.attempt.job)?.state.active()?;
    let position = active.position(task)?;
    let (booked, node) = (&active.allocation.tasks[position], active.nodes[position]);
    let reported: BTreeSet<u32> = gpus.iter().copied().collect();
    let there = state.known.nodes[place(node)].spec.gpus;
    let whole = |held: &TaskAllocation| !held.sliced && held.gpu_share == WHOLE;
    let can_be = whole(booked)
        && reported.len() == gpus.len()
        && reported.len() == booked.gpus.len()
        && reported.iter().all(|gpu| *gpu < there);
    let before: BTreeSet<u32> = booked.gpus.iter().copied().collect();
    if !can_be || reported == before {
        return None;
    }
    let mut changes = Changes::new();
    let left = before.difference(&reported).copied();
    for (new, old) in reported.difference(&before).zip(left) {
        let holder = state.index.tenants_of(node).iter().find_map(|tenant| {
            let at = (tenant.job, place(tenant.task));
            let holder = state.job(tenant.job)?.state.active()?;
            let held = &holder.allocation.tasks[at.1];
            (!held.sliced && held.gpus.contains(new)).then_some((at, held))
        });
        match holder {
            Some((_, held)) if !whole(held) => return None,
            Some((at, held)) => {
                let gpus = changes.entry(at).or_insert_with(|| held.gpus.clone());
                gpus.retain(|gpu| gpu != new);
                gpus.push(old);
                gpus.sort_unstable();
            }
            None => (),
        }
    }
    changes.insert((task.attempt.job, position), reported.into_iter().collect());
    Some((node, changes))
}
