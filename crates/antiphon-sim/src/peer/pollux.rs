//! Goodput (Pollux; Qiao et al., OSDI 2021): how fast a job gets on is its throughput times the statistical efficiency of the batch
//! size that is best on its GPUs. Every 60 s the GPUs of all jobs are chosen anew, so that the harmonic mean of their speed-ups is as
//! large as can be: the paper's power mean with p = -1, each speed-up against an equal part of the cluster. A job that would have to
//! be moved counts less, by the time that it has lost and would lose to restarts of 30 s; it grows to twice the GPUs that it has run
//! on at most; and a node holds one job at most that lies on several nodes.
//!
//! The paper searches with a genetic algorithm over placements. Here numbers of GPUs are searched first, by the best single steps
//! (grow on what is free, or on what another job gives up), and then put onto nodes. The paper fits a model of throughput to what each
//! job has measured so far; here the profile itself is known.
//!
//! Published mean completion times over eight workloads at load 0.5 / 1 / 1.5 / 2, where every start costs 30 s: 1,534 / 2,751 /
//! 3,685 / 5,289 s; re-made 1,540 / 2,700 / 3,628 / 5,190, which is 0.4 % more and 1.9, 1.5 and 1.9 % less.

mod place;
mod search;

use std::collections::BTreeMap;

use antiphon_types::{Action, JobId, Millis, Timestamp};

use self::search::Choice;
use super::arrange::{Hold, held, resize};
use super::{Live, Peer, Scene};
use crate::course::{Site, millis};

/// GPUs are chosen anew this often.
const INTERVAL: Millis = Millis::from_secs(60);

/// What a restart costs in the eyes of the policy.
const RESTART_S: f64 = 30.0;

/// What is added to a speed-up, so that a job which runs nowhere weighs much and not without end.
const LEAST: f64 = 1e-3;

/// Goodput.
#[derive(Default)]
pub(super) struct Pollux {
    /// By job: the most GPUs that it has run on.
    most: BTreeMap<JobId, u32>,
    looked: Option<Timestamp>,
    /// By job: nodes, and GPUs of each.
    chosen: BTreeMap<JobId, Vec<(usize, u32)>>,
}

impl Pollux {
    fn choose(&mut self, scene: &Scene<'_>) {
        let came = std::mem::take(&mut self.most);
        for live in &scene.jobs {
            let now = live.site.map_or(0, |site| site.gpus);
            let before = came.get(&live.id).copied().unwrap_or(0);
            self.most.insert(live.id, before.max(now));
        }
        let all: u32 = scene.cluster.nodes.iter().map(|node| node.gpus).sum();
        let holds: Vec<Vec<(usize, u32)>> =
            scene.jobs.iter().map(|live| held(scene, live)).collect();
        let most = |live: &Live<'_>| self.most.get(&live.id).copied().unwrap_or(0);
        let choices = scene.jobs.iter().zip(&holds);
        let choices = choices.map(|(live, on)| choice(scene, live, on, most(live), all));
        let counts = search::counts(&choices.collect::<Vec<_>>(), all);
        let places = place::onto_nodes(scene, &holds, &counts);
        let ids = scene.jobs.iter().map(|live| live.id);
        let held = ids.zip(places).filter(|(_, on)| !on.is_empty());
        self.chosen = held.collect();
    }
}

/// What a job makes of each number of GPUs that it may have now, as the power mean counts it.
fn choice(scene: &Scene<'_>, live: &Live<'_>, on: &[(usize, u32)], most: u32, all: u32) -> Choice {
    let widest = scene.cluster.nodes.iter().map(|node| node.gpus).max();
    let width = widest.unwrap_or(1).max(1);
    let count = u32::try_from(scene.jobs.len()).expect("few jobs");
    let sizes: Vec<u32> = match &live.course.elastic {
        Some(elastic) => elastic.sizes().to_vec(),
        None => vec![live.gpus()],
    };
    let rate = |gpus: u32, nodes: u32| {
        let site = Site {
            gpus,
            nodes,
            ..Site::close(0)
        };
        live.course.rate(live.done, site)
    };
    let largest = sizes.last().copied().unwrap_or(1);
    let fair = all.div_ceil(count.max(1));
    let equal = if most == 0 {
        // Nothing is known of it yet: it is taken to scale without loss.
        rate(1, 1) * f64::from(fair)
    } else {
        let fair = fair.min(largest);
        rate(fair, fair.div_ceil(width))
    };
    let age_s = millis(scene.now.since(live.submitted)) / 1_000.0;
    let launches = scene.state.job(live.id).map_or(0, |job| job.launches);
    let restarts = f64::from(launches.saturating_sub(1));
    let moved = (age_s - restarts * RESTART_S).max(0.0) / (age_s + RESTART_S);
    let unit =
        f64::from(u32::try_from(scene.cluster.nodes.len()).expect("few nodes")) / f64::from(all);
    let now: u32 = on.iter().map(|(_, gpus)| gpus).sum();
    let cost = |gpus: u32| {
        let (nodes, counts) = if gpus == now {
            (u32::try_from(on.len()).expect("few nodes"), 1.0)
        } else {
            (gpus.div_ceil(width), moved)
        };
        let speed_up = rate(gpus, nodes) / equal;
        1.0 / (counts * speed_up * unit + LEAST)
    };
    let cap = (2 * most).max(1);
    // Above a node only whole ones are tried, and what lies between one and two.
    let tried = |gpus: &u32| *gpus <= 2 * width || gpus.is_multiple_of(width);
    let may = sizes.into_iter().filter(|gpus| *gpus <= cap && tried(gpus));
    let mut costs = vec![(0, 1.0 / LEAST)];
    costs.extend(may.map(|gpus| (gpus, cost(gpus))));
    if now > 0 && !costs.iter().any(|(gpus, _)| *gpus == now) {
        costs.push((now, cost(now)));
        costs.sort_by_key(|(gpus, _)| *gpus);
    }
    Choice { now, costs }
}

impl Peer for Pollux {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        let due = |at: Timestamp| at != scene.now && scene.now.since(at) >= INTERVAL;
        if self.looked.is_none_or(due) {
            self.looked = Some(scene.now);
            self.choose(scene);
        }
        let hold = |(id, on): (&JobId, &Vec<(usize, u32)>)| {
            let job = scene.jobs.binary_search_by_key(id, |live| live.id).ok()?;
            let gpus = on.iter().map(|(_, gpus)| gpus).sum();
            let on = on.clone();
            Some(Hold { job, gpus, on })
        };
        let holds: Vec<Hold> = self.chosen.iter().filter_map(hold).collect();
        resize(scene, &holds)
    }

    fn wake_at(&mut self, scene: &Scene<'_>) -> Option<Timestamp> {
        let waits = !scene.jobs.is_empty();
        self.looked.filter(|_| waits).map(|at| at.after(INTERVAL))
    }
}
