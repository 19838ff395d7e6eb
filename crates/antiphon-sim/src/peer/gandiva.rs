//! Gandiva-fair (Chaudhary et al., EuroSys 2020): every user has the same number of tickets, and GPUs go to users by stride: whoever
//! has had the least for its tickets chooses first, in quanta of time. Gangs are chosen whole from the empty cluster, so a gang
//! that did not fit comes first in the next quantum, and smaller jobs use what it left. Inside a user whoever has had the least
//! GPU-time comes first. A trace that names no users has one for each job.
//!
//! Where GPU types differ each user's tickets are worth its part of every type, and users trade: whoever gains least from the faster
//! type lends its part of it to whoever gains most, for as many slower GPUs as the second highest gain says, so that both are
//! better off. What a job gains stands in the table of throughputs.
//!
//! The paper's jobs stay in memory and are switched within a second, in quanta of a minute. Here a switch costs what the cluster says,
//! and a quantum is so long that a switch takes a twentieth of it at most. No figure was published on a trace that is public.

mod trade;

use std::collections::BTreeMap;

use antiphon_types::{Action, JobId, Millis, Timestamp};

use self::trade::trade;
use super::arrange::{Overtake, Wish, arrange};
use super::{Peer, Scene};
use crate::course::millis;

/// The shortest quantum.
const QUANTUM: Millis = Millis::from_secs(60);

/// A quantum is so many switches long at least.
const SWITCHES: u64 = 20;

/// Who has lent all that it had of a type counts as if it had kept so many GPUs: what nobody else uses it still may.
const CLAIM_MIN: f64 = 1e-6;

/// Gandiva-fair.
#[derive(Default)]
pub(super) struct GandivaFair {
    /// By user, then by GPU type: milliseconds for which it has held all that it has a claim to.
    passes: BTreeMap<User, Vec<f64>>,
    began: Option<Timestamp>,
    looked: Option<Timestamp>,
    chosen: Vec<(JobId, usize)>,
}

/// Whose tickets a job uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum User {
    Named(String),
    /// The job's own.
    Own(JobId),
}

/// The users of the jobs that are there.
struct Users {
    all: Vec<User>,
    /// By place of a job in the scene: whose it is.
    of: Vec<usize>,
    /// By user, then by GPU type: how many GPUs it has a claim to, after trading.
    claims: Vec<Vec<f64>>,
}

fn quantum(scene: &Scene<'_>) -> Millis {
    let switches = scene.cluster.resize_cost.as_millis() * SWITCHES;
    QUANTUM.max(Millis::from_millis(switches))
}

impl GandivaFair {
    /// Writes down what was used since the last look; what each user has had by now.
    fn account(&mut self, scene: &Scene<'_>, users: &Users) -> Vec<Vec<f64>> {
        let types = scene.gpu_types.len();
        let elapsed = self.looked.map_or(0.0, |at| millis(scene.now.since(at)));
        self.looked = Some(scene.now);
        let mut before = std::mem::take(&mut self.passes);
        let known: Vec<Option<Vec<f64>>> =
            users.all.iter().map(|user| before.remove(user)).collect();
        // Who comes stands beside those that have had the least: nothing is owed for the time before.
        let least = |i: usize| {
            known
                .iter()
                .flatten()
                .map(|pass| pass[i])
                .min_by(f64::total_cmp)
        };
        let least: Vec<f64> = (0..types).map(|i| least(i).unwrap_or(0.0)).collect();
        let mut passes: Vec<Vec<f64>> = known
            .into_iter()
            .map(|pass| pass.unwrap_or_else(|| least.clone()))
            .collect();
        for (live, user) in scene.jobs.iter().zip(&users.of) {
            if let Some(site) = live.site {
                let claim = users.claims[*user][site.gpu_type].max(CLAIM_MIN);
                passes[*user][site.gpu_type] += f64::from(live.gpus()) * elapsed / claim;
            }
        }
        self.passes = users.all.iter().cloned().zip(passes.clone()).collect();
        passes
    }

    /// Fills one GPU type after the other, the fastest first. In the midst of a quantum whoever runs stays.
    fn choose(&mut self, scene: &Scene<'_>, users: &Users, mut passes: Vec<Vec<f64>>, stay: bool) {
        let types = scene.gpu_types.len();
        let mut left: Vec<u32> = (0..types).map(|i| scene.gpus_of(i)).collect();
        let mut waits: Vec<usize> = Vec::new();
        self.chosen.clear();
        for (place, live) in scene.jobs.iter().enumerate() {
            match live.site.filter(|_| stay) {
                Some(site) => {
                    left[site.gpu_type] -= live.gpus();
                    self.chosen.push((live.id, site.gpu_type));
                }
                None => waits.push(place),
            }
        }
        let had = |place: usize| scene.jobs[place].attained_gpu_ms;
        waits.sort_by(|a, b| had(*a).total_cmp(&had(*b)).then(a.cmp(b)));
        let speed = |i: usize| scene.jobs.iter().map(|live| live.rate_on(i)).sum::<f64>();
        let mut order: Vec<usize> = (0..types).collect();
        order.sort_by(|a, b| speed(*b).total_cmp(&speed(*a)));
        let length = millis(quantum(scene));
        for gpu_type in order {
            let fits = |place: usize, left: u32| {
                let live = &scene.jobs[place];
                live.gpus() <= left && live.rate_on(gpu_type) > 0.0
            };
            loop {
                let pass = |at: &usize| passes[users.of[waits[*at]]][gpu_type];
                let fitting = (0..waits.len()).filter(|at| fits(waits[*at], left[gpu_type]));
                let Some(at) = fitting.min_by(|a, b| pass(a).total_cmp(&pass(b))) else {
                    break;
                };
                let place = waits.remove(at);
                let live = &scene.jobs[place];
                left[gpu_type] -= live.gpus();
                self.chosen.push((live.id, gpu_type));
                // What it will have had after this quantum decides whether its user comes first once more.
                let user = users.of[place];
                let claim = users.claims[user][gpu_type].max(CLAIM_MIN);
                passes[user][gpu_type] += f64::from(live.gpus()) * length / claim;
            }
        }
    }
}

impl Peer for GandivaFair {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        if self.looked != Some(scene.now) {
            let users = users(scene);
            let passes = self.account(scene, &users);
            let over = |at: Timestamp| scene.now.since(at) >= quantum(scene);
            let begins = scene.cluster.rounds.is_some() || self.began.is_none_or(over);
            if begins {
                self.began = Some(scene.now);
            }
            self.choose(scene, &users, passes, !begins);
        }
        let wish = |(id, gpu_type): &(JobId, usize)| {
            let found = scene.jobs.binary_search_by_key(id, |live| live.id);
            found.ok().map(|job| Wish {
                job,
                gpu_type: *gpu_type,
            })
        };
        let wishes: Vec<Wish> = self.chosen.iter().filter_map(wish).collect();
        arrange(scene, &wishes, Overtake::Allowed)
    }

    fn wake_at(&mut self, scene: &Scene<'_>) -> Option<Timestamp> {
        let waits = scene.jobs.iter().any(|live| live.site.is_none());
        self.began
            .filter(|_| waits)
            .map(|at| at.after(quantum(scene)))
    }
}

fn users(scene: &Scene<'_>) -> Users {
    let types = scene.gpu_types.len();
    let mut jobs: BTreeMap<User, Vec<usize>> = BTreeMap::new();
    for (place, live) in scene.jobs.iter().enumerate() {
        let named = !live.job.user.is_empty();
        let own = User::Own(live.id);
        let user = if named {
            User::Named(live.job.user.clone())
        } else {
            own
        };
        jobs.entry(user).or_default().push(place);
    }
    let count = f64::from(u32::try_from(jobs.len()).expect("few users"));
    let equal: Vec<f64> = (0..types)
        .map(|i| f64::from(scene.gpus_of(i)) / count)
        .collect();
    let mut claims = vec![equal; jobs.len()];
    if types > 1 {
        let mean = |places: &Vec<usize>| {
            let jobs = || places.iter().map(|place| &scene.jobs[*place]);
            let gpus: f64 = jobs().map(|live| f64::from(live.gpus())).sum();
            let sum = |i| {
                jobs()
                    .map(|live| live.rate_on(i) * f64::from(live.gpus()))
                    .sum::<f64>()
            };
            (0..types).map(|i| sum(i) / gpus.max(1.0)).collect()
        };
        let rates: Vec<Vec<f64>> = jobs.values().map(mean).collect();
        trade(&mut claims, &rates);
    }
    let mut of = vec![0; scene.jobs.len()];
    for (user, places) in jobs.values().enumerate() {
        for place in places {
            of[*place] = user;
        }
    }
    let all = jobs.into_keys().collect();
    Users { all, of, claims }
}
