//! Lucid (Hu et al., ASPLOS 2023): nothing of a job is touched. Jobs first run for a short time on a few nodes of their own, where
//! those that end soon end soon; the others wait in the order of how long they are expected to run times their GPUs, and once started
//! run to their end. How long that is a model learns from jobs that have ended: here the mean run time of those of the same user, name
//! and GPUs, where true run times are not known.
//!
//! Lucid also lets two jobs share GPUs where their utilization, as the profiler measured it, is low enough. No trace here has
//! that measurement beside run times and arrivals, and a GPU of the kernel's books belongs to one whole-GPU job, so nothing is
//! packed. No figure was published on a trace that is public, so what is re-made is the rule.

mod history;

use std::collections::BTreeSet;

use antiphon_types::{Action, JobId, Millis, Timestamp};

use self::history::History;
use super::arrange::{Hold, held, resize};
use super::{Live, Peer, Scene};

/// How long a job may run where it is profiled.
const PROFILED_FOR: Millis = Millis::from_secs(200);

/// One node in so many is for profiling, one at least.
const PROFILERS: usize = 64;

/// A smaller cluster has no nodes for profiling to spare.
const NODES_MIN: usize = 8;

/// Lucid.
#[derive(Default)]
pub(super) struct Lucid {
    history: History,
    /// Those that were profiled, or need not be.
    profiled: BTreeSet<JobId>,
}

impl Peer for Lucid {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        self.history.look(scene);
        let nodes = scene.cluster.nodes.len();
        let profilers = if nodes < NODES_MIN {
            0
        } else {
            nodes.div_ceil(PROFILERS)
        };
        let first = nodes - profilers;
        let mut free: Vec<u32> = scene.cluster.nodes.iter().map(|node| node.gpus).collect();
        let mut holds = Vec::new();
        for (job, live) in scene.jobs.iter().enumerate() {
            if live.gpus() > room_for(scene, live, first) {
                self.profiled.insert(live.id);
            }
            let on = held(scene, live);
            let is_profiled = on.iter().any(|(node, _)| *node >= first);
            let over = ends_profiling(scene, live).is_some_and(|at| at <= scene.now);
            // Once started a job keeps what it has, but where it is profiled.
            if is_profiled && over {
                self.profiled.insert(live.id);
            } else if !on.is_empty() {
                give(&mut free, &on);
                let gpus = live.gpus();
                holds.push(Hold { job, gpus, on });
            }
        }
        for job in self.order(scene) {
            let live = &scene.jobs[job];
            let (from, until) = if self.profiled.contains(&live.id) {
                (0, first)
            } else {
                (first, nodes)
            };
            if let Some(on) = fewest(scene, live, &free, from..until) {
                give(&mut free, &on);
                let gpus = live.gpus();
                holds.push(Hold { job, gpus, on });
            }
        }
        resize(scene, &holds)
    }

    /// When the first of those that are profiled has to leave.
    fn wake_at(&mut self, scene: &Scene<'_>) -> Option<Timestamp> {
        let profiled = scene
            .jobs
            .iter()
            .filter(|live| !self.profiled.contains(&live.id));
        profiled
            .filter_map(|live| ends_profiling(scene, live))
            .min()
    }
}

impl Lucid {
    /// Those that wait, the least expected run time x GPUs first.
    fn order(&self, scene: &Scene<'_>) -> Vec<usize> {
        let jobs = scene.jobs.iter().enumerate();
        let waits = jobs.filter(|(_, live)| live.site.is_none());
        let expected = |live: &Live<'_>| match live.best_ms {
            Some(best_ms) => best_ms,
            None => self.history.expected_ms(live),
        };
        let key = |(job, live): (usize, &Live<'_>)| (expected(live) * f64::from(live.gpus()), job);
        let mut order: Vec<(f64, usize)> = waits.map(key).collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        order.into_iter().map(|(_, job)| job).collect()
    }
}

/// GPUs of the nodes from the first of those for profiling on that a job can use.
fn room_for(scene: &Scene<'_>, live: &Live<'_>, first: usize) -> u32 {
    let runs_on = |name: &String| {
        let gpu_type = scene.gpu_types.iter().position(|other| other == name);
        gpu_type.is_some_and(|gpu_type| live.rate_on(gpu_type) > 0.0)
    };
    let nodes = scene.cluster.nodes[first..].iter();
    let suiting = nodes.filter(|node| runs_on(&node.gpu_type));
    suiting.map(|node| node.gpus).sum()
}

/// When a job that runs has run for as long as it may where it is profiled, were it there.
fn ends_profiling(scene: &Scene<'_>, live: &Live<'_>) -> Option<Timestamp> {
    let site = live.site?;
    let ran_ms = live.attained_gpu_ms / f64::from(site.gpus.max(1));
    let left = crate::course::millis(PROFILED_FOR) - ran_ms;
    Some(scene.now.after(crate::course::span(left.max(0.0).ceil())))
}

fn give(free: &mut [u32], on: &[(usize, u32)]) {
    for (node, gpus) in on {
        free[*node] -= gpus;
    }
}

/// On the fullest node that has enough, else on the emptiest, of one GPU type; on the fastest that there is room on.
fn fewest(
    scene: &Scene<'_>,
    live: &Live<'_>,
    free: &[u32],
    nodes: std::ops::Range<usize>,
) -> Option<Vec<(usize, u32)>> {
    let mut types: Vec<usize> = (0..scene.gpu_types.len())
        .filter(|i| live.rate_on(*i) > 0.0)
        .collect();
    types.sort_by(|a, b| live.rate_on(*b).total_cmp(&live.rate_on(*a)));
    types.into_iter().find_map(|gpu_type| {
        let name = &scene.gpu_types[gpu_type];
        let of_type =
            |node: &usize| scene.cluster.nodes[*node].gpu_type == *name && free[*node] > 0;
        let mut found: Vec<usize> = nodes.clone().filter(of_type).collect();
        let fits = found.iter().filter(|node| free[**node] >= live.gpus());
        if let Some(node) = fits.min_by_key(|node| free[**node]) {
            return Some(vec![(*node, live.gpus())]);
        }
        found.sort_by_key(|node| std::cmp::Reverse(free[*node]));
        let mut left = live.gpus();
        let mut on = Vec::new();
        for node in found {
            let gpus = left.min(free[node]);
            if gpus > 0 {
                on.push((node, gpus));
                left -= gpus;
            }
        }
        on.sort_unstable();
        (left == 0).then_some(on)
    })
}
