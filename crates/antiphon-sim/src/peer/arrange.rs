//! From an order of jobs to what begins and ends: who comes first gets GPUs, the others give way, gangs go onto as few
//! nodes as will do.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Action, AttemptId, Bytes, Millis, NodeName, NodeSpec, Shape, StopCause, TaskAllocation, Terms,
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

/// A job that should hold so many GPUs, where it may hold several numbers of them.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    /// Its place in the scene.
    pub(super) job: usize,
    /// All of them.
    pub(super) gpus: u32,
    /// On these nodes of the cluster so many each; where that is empty, on as few as will do.
    pub(super) on: Vec<(usize, u32)>,
}

/// Lets jobs hold these GPUs; whoever else runs, or holds others, gives way. A job runs on where what it holds stays the same.
pub(super) fn resize(scene: &Scene<'_>, holds: &[Hold]) -> Vec<Action> {
    let chosen: BTreeMap<usize, &Hold> = holds.iter().map(|hold| (hold.job, hold)).collect();
    let stays = |place: usize, live: &Live<'_>| match (live.site, chosen.get(&place)) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(site), Some(hold)) if hold.on.is_empty() => site.gpus == hold.gpus,
        (Some(_), Some(hold)) => held(scene, live) == hold.on,
    };
    let jobs = scene.jobs.iter().enumerate();
    let gone: Vec<Action> = jobs
        .filter(|(place, live)| !stays(*place, live))
        .filter_map(|(_, live)| stop(scene, live))
        .collect();
    if !gone.is_empty() {
        return gone;
    }
    let mut free = Free::of(scene);
    let begins = |hold: &&Hold| scene.jobs[hold.job].site.is_none();
    // The largest find the fewest nodes that hold them.
    let mut begin: Vec<&Hold> = holds.iter().filter(begins).collect();
    begin.sort_by_key(|hold| std::cmp::Reverse(hold.gpus));
    let start = |hold: &Hold| {
        let live = &scene.jobs[hold.job];
        let role = &scene.state.job(live.id)?.spec.roles[0];
        let gpu_type = match hold.on.first() {
            Some((node, _)) => &scene.cluster.nodes[*node].gpu_type,
            None => &scene.gpu_types[0],
        };
        let suits = |shape: &Shape| {
            let of_type = shape
                .gpu_type
                .as_ref()
                .is_none_or(|asked| asked == gpu_type);
            shape.gpus == gpus(hold.gpus) && of_type
        };
        let shape = role.shapes().position(suits)?;
        let tasks = if hold.on.is_empty() {
            free.take(gpu_type, hold.gpus, &role.name)?
        } else {
            free.take_on(&hold.on, &role.name)?
        };
        launch(scene, live, shape, tasks)
    };
    begin.into_iter().filter_map(start).collect()
}

/// What a job holds: nodes of the cluster, rising, and how many GPUs of each.
pub(super) fn held(scene: &Scene<'_>, live: &Live<'_>) -> Vec<(usize, u32)> {
    let job = scene.state.job(live.id);
    let active = job.and_then(|job| job.state.active());
    let tasks = active
        .into_iter()
        .flat_map(|active| active.allocation.tasks.iter());
    let mut on: BTreeMap<usize, u32> = BTreeMap::new();
    for task in tasks {
        let node = scene
            .cluster
            .nodes
            .iter()
            .position(|node| node.name == task.node);
        let count = u32::try_from(task.gpus.len()).expect("few GPUs");
        *on.entry(node.expect("a node of the cluster")).or_default() += count;
    }
    on.into_iter().collect()
}

fn start(scene: &Scene<'_>, free: &mut Free, live: &Live<'_>, gpu_type: usize) -> Option<Action> {
    let job = scene.state.job(live.id)?;
    let name = &scene.gpu_types[gpu_type];
    let shape = job.spec.roles[0]
        .shapes()
        .position(|shape| shape.gpu_type.as_ref().is_none_or(|asked| asked == name))?;
    let tasks = free.take(name, live.gpus(), &job.spec.roles[0].name)?;
    launch(scene, live, shape, tasks)
}

fn launch(
    scene: &Scene<'_>,
    live: &Live<'_>,
    shape: usize,
    tasks: Vec<TaskAllocation>,
) -> Option<Action> {
    let job = scene.state.job(live.id)?;
    let attempt = AttemptId {
        job: live.id,
        number: job.launches + 1,
    };
    Some(Action::Launch {
        attempt,
        allocation: tasks.into(),
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
            for task in active.allocation.tasks.iter() {
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
            let held = lowest(mask, left);
            if held.is_empty() {
                break;
            }
            left -= u32::try_from(held.len()).expect("few GPUs");
            tasks.push(task(role, tasks.len(), name, held));
        }
        Some(tasks)
    }

    /// Takes so many GPUs of each of these nodes.
    fn take_on(&mut self, on: &[(usize, u32)], role: &str) -> Option<Vec<TaskAllocation>> {
        let has = |(node, count): &(usize, u32)| self.nodes[*node].2.count_ones() >= *count;
        if !on.iter().all(has) {
            return None;
        }
        let mut tasks = Vec::with_capacity(on.len());
        for (node, count) in on {
            let (name, _, mask) = &mut self.nodes[*node];
            tasks.push(task(role, tasks.len(), name, lowest(mask, *count)));
        }
        Some(tasks)
    }
}

/// Takes up to so many GPUs, the lowest first.
fn lowest(mask: &mut u64, count: u32) -> Vec<u32> {
    let mut held = Vec::new();
    for _ in 0..count.min(mask.count_ones()) {
        held.push(mask.trailing_zeros());
        *mask &= *mask - 1;
    }
    held
}

fn task(role: &str, index: usize, node: &NodeName, held: Vec<u32>) -> TaskAllocation {
    TaskAllocation {
        role: role.into(),
        index: u32::try_from(index).expect("few tasks"),
        node: node.clone(),
        gpus: held,
        gpu_share: gpus(1),
        cpus: 0,
        memory: Bytes::ZERO,
        scratch: Bytes::ZERO,
        read_bandwidth: Bytes::ZERO,
        sliced: false,
    }
}
