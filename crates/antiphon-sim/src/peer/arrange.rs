//! From an order of jobs to what begins and ends: who comes first gets GPUs, the others give way, gangs go onto as few
//! nodes as will do.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Action, Allocation, AttemptId, Bytes, Millis, NodeName, NodeSpec, StopCause, TaskAllocation,
    Terms,
};

use super::{Live, Scene, gpus};

/// A job that should run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Its place in the scene.
    pub(super) job: usize,
    /// On which GPU type.
    pub(super) gpu_type: usize,
}

/// What happens to those that come after one that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overtake {
    /// They may have what it cannot use.
    Allowed,
    /// They wait as well.
    Forbidden,
}

/// Gives each job of an order a GPU type: the one that it runs on, if enough of that is left, else the fastest of which enough is left.
/// Who finds none has no wish.
pub(super) fn on_fastest(scene: &Scene<'_>, order: &[usize], overtake: Overtake) -> Vec<Wish> {
    let types = 0..scene.gpu_types.len();
    let mut left: Vec<u32> = types.map(|gpu_type| scene.gpus_of(gpu_type)).collect();
    let mut wishes = Vec::with_capacity(order.len());
    for &job in order {
        let live = &scene.jobs[job];
        let fits = |gpu_type: usize| live.gpus() <= left[gpu_type] && live.rate_on(gpu_type) > 0.0;
        let held = live.site.map(|site| site.gpu_type);
        let held = held.filter(|gpu_type| fits(*gpu_type));
        let fastest = || {
            let types = (0..left.len()).filter(|gpu_type| fits(*gpu_type));
            // The first of several: `max_by` would take the last.
            types
                .rev()
                .max_by(|a, b| live.rate_on(*a).total_cmp(&live.rate_on(*b)))
        };
        let found = held.or_else(fastest);
        if let Some(gpu_type) = found {
            left[gpu_type] -= live.gpus();
            wishes.push(Wish { job, gpu_type });
        } else if overtake == Overtake::Forbidden {
            break;
        }
    }
    wishes
}

/// Lets those run that come first in `wishes` as far as there are GPUs; whoever else runs gives way.
pub(super) fn arrange(scene: &Scene<'_>, wishes: &[Wish], overtake: Overtake) -> Vec<Action> {
    let types = 0..scene.gpu_types.len();
    let mut left: Vec<u32> = types.map(|gpu_type| scene.gpus_of(gpu_type)).collect();
    let mut chosen = BTreeMap::new();
    for wish in wishes {
        let asked = scene.jobs[wish.job].gpus();
        if asked <= left[wish.gpu_type] && !chosen.contains_key(&wish.job) {
            left[wish.gpu_type] -= asked;
            chosen.insert(wish.job, wish.gpu_type);
        } else if overtake == Overtake::Forbidden {
            break;
        }
    }
    let stays = |place: usize, live: &Live<'_>| {
        live.site
            .is_none_or(|site| chosen.get(&place) == Some(&site.gpu_type))
    };
    let jobs = scene.jobs.iter().enumerate();
    let gone: Vec<Action> = jobs
        .filter(|(place, live)| !stays(*place, live))
        .filter_map(|(_, live)| stop(scene, live))
        .collect();
    // What they hold is free once they have ended: this is asked again then.
    if !gone.is_empty() {
        return gone;
    }
    let mut free = Free::of(scene);
    // In the order of the wishes: the first get the best places.
    let mut begun = BTreeSet::new();
    let mut actions = Vec::new();
    for wish in wishes {
        let live = &scene.jobs[wish.job];
        let begins = chosen.get(&wish.job) == Some(&wish.gpu_type) && live.site.is_none();
        if begins && begun.insert(wish.job) {
            let started = start(scene, &mut free, live, wish.gpu_type);
            // Some of what is not in use takes no tasks: a node is down, or being emptied.
            if started.is_none() && overtake == Overtake::Forbidden {
                break;
            }
            actions.extend(started);
        }
    }
    actions
}

fn stop(scene: &Scene<'_>, live: &Live<'_>) -> Option<Action> {
    let active = scene.state.job(live.id)?.state.active()?;
    Some(Action::Terminate {
        attempt: active.attempt,
        cause: StopCause::Operator,
        kill_at: scene.now.after(Millis::from_secs(60)),
    })
}

fn start(scene: &Scene<'_>, free: &mut Free, live: &Live<'_>, gpu_type: usize) -> Option<Action> {
    let job = scene.state.job(live.id)?;
    let name = &scene.gpu_types[gpu_type];
    let shape = job.spec.roles[0]
        .shapes()
        .position(|shape| shape.gpu_type.as_ref().is_none_or(|asked| asked == name))?;
    let tasks = free.take(name, live.gpus(), &job.spec.roles[0].name)?;
    let attempt = AttemptId {
        job: live.id,
        number: job.launches + 1,
    };
    Some(Action::Launch {
        attempt,
        allocation: Allocation { tasks },
        terms: Terms {
            shapes: vec![u32::try_from(shape).expect("few shapes")],
            ..Terms::default()
        },
    })
}

/// The free GPUs of every node, one bit each.
struct Free {
    nodes: Vec<(NodeName, String, u64)>,
}

impl Free {
    fn of(scene: &Scene<'_>) -> Self {
        let whole = |count: u32| u64::MAX >> (64 - count.max(1));
        let open = |node: &NodeSpec| scene.usable(node) & whole(node.gpus);
        let mut nodes: Vec<(NodeName, String, u64)> = scene
            .cluster
            .nodes
            .iter()
            .map(|node| (node.name.clone(), node.gpu_type.clone(), open(node)))
            .collect();
        let places: BTreeMap<NodeName, usize> = nodes
            .iter()
            .enumerate()
            .map(|(place, node)| (node.0.clone(), place))
            .collect();
        for job in scene.state.active_jobs() {
            let Some(active) = job.state.active() else {
                continue;
            };
            for task in &active.allocation.tasks {
                let mask = &mut nodes[places[&task.node]].2;
                for gpu in &task.gpus {
                    *mask &= !(1 << gpu);
                }
            }
        }
        Self { nodes }
    }

    /// Takes GPUs of a type: on the fullest node that has enough, else on the emptiest nodes.
    fn take(&mut self, gpu_type: &str, count: u32, role: &str) -> Option<Vec<TaskAllocation>> {
        let of_type = |(_, name, _): &&mut (NodeName, String, u64)| name == gpu_type;
        let mut nodes: Vec<_> = self.nodes.iter_mut().filter(of_type).collect();
        let all: u32 = nodes.iter().map(|node| node.2.count_ones()).sum();
        if all < count {
            return None;
        }
        let fits = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.2.count_ones() >= count);
        let best = fits.min_by_key(|(place, node)| (node.2.count_ones(), *place));
        if let Some((place, _)) = best {
            let chosen = nodes.swap_remove(place);
            nodes = vec![chosen];
        } else {
            nodes.sort_by_key(|node| std::cmp::Reverse(node.2.count_ones()));
        }
        let mut left = count;
        let mut tasks = Vec::new();
        for (name, _, mask) in nodes {
            let mut held = Vec::new();
            while left > 0 && *mask != 0 {
                let gpu = mask.trailing_zeros();
                *mask &= *mask - 1;
                held.push(gpu);
                left -= 1;
            }
            if held.is_empty() {
                break;
            }
            tasks.push(TaskAllocation {
                role: role.into(),
                index: u32::try_from(tasks.len()).expect("few tasks"),
                node: name.clone(),
                gpus: held,
                gpu_share: gpus(1),
                cpus: 0,
                memory: Bytes::ZERO,
                scratch: Bytes::ZERO,
                read_bandwidth: Bytes::ZERO,
                sliced: false,
            });
        }
        Some(tasks)
    }
}
