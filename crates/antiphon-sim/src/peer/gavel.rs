//! Gavel (Narayanan et al., OSDI 2020): a policy works out which part of its time each job should spend on each GPU type;
//! rounds then go to whoever is furthest behind that. The policies here: max-min fairness over normalized throughput (LAS),
//! with and without the table of throughputs; first in, first out on the fastest type; smallest makespan; finish-time
//! fairness. All know the table; makespan and finish-time fairness know the steps that remain as well.
//!
//! What the published figures depend on and the paper does not say, as the peer's simulator has it: time parts are worked out
//! anew at the first round after a job has come or ended, but not within 1,920 s; until then a job that came waits and what an
//! ended one leaves goes to the others. Each job starts the count of its time on a type with half a round. The GPU types are
//! filled one after the other, so that a job which has almost no part of the fastest type still gets it where some is left.
//! What a job got less than its part, over its life, decides between jobs that are equally far behind.
//!
//! The published runs do not slow a job down that lies on several servers, so neither do ours where they are compared. Published
//! / re-made, mean completion times unless said otherwise. Testbed, continuous: LAS 14,623 / 14,642 s, without the table 19,989
//! / 19,610 (other draws: 19,144 to 19,658), FIFO 19,527 / 19,523. Static: makespan policy, makespan 64,721 / 64,787, mean
//! 63,775 / 63,885; LAS 68,522 / 67,997 and 35,659 / 35,703. Generated 400 jobs: LAS 51,469 / 51,489, without the table 71,098 /
//! 70,562, finish-time fairness 52,941 / 51,953. Shockwave's 120 jobs, LAS without the table: makespan 33,208 / 33,340, mean
//! 11,274 / 11,466. What remains: our rounds are all of 360 s, the peer's end with their longest piece; the points that two
//! interior-point solvers stop at; the draws.

mod allocate;

use std::collections::BTreeMap;

use antiphon_types::{Action, JobId, Millis, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub(super) use self::allocate::{Claim, Isolated};
use super::arrange::{Overtake, Wish, arrange};
use super::{Live, Peer, Scene};
use crate::course::millis;

/// Time parts are not worked out anew within this time.
const SETTLED: Millis = Millis::from_secs(1_920);

/// What each job's count of time starts with: half a round.
const HEAD_START_MS: f64 = 180_000.0;

/// What the time parts are worked out for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// The smallest normalized throughput is as large as can be.
    Las,
    /// The same, as if all types were alike; types are filled in an order that is drawn anew each round.
    LasBlind,
    /// The first to come get the fastest types, all of the time.
    Fifo,
    /// The last job ends as early as can be.
    Makespan,
    /// The largest ratio of completion time to that in a cluster of its own is as small as can be.
    FinishTime,
}

/// One of Gavel's policies.
pub(super) struct Gavel {
    aim: Aim,
    jobs: BTreeMap<JobId, Account>,
    /// Whose parts were worked out.
    settled: Vec<JobId>,
    /// When the parts were worked out.
    settled_at: Option<Timestamp>,
    first: Option<Timestamp>,
    looked: Option<Timestamp>,
    /// What runs in this round.
    chosen: Vec<(JobId, usize)>,
    isolated: Isolated,
    random: ChaCha8Rng,
}

/// What a job should get and what it got since that was worked out, by GPU type.
struct Account {
    parts: Vec<f64>,
    ran_ms: Vec<f64>,
    /// What it should have got and did not, over all its life: decides between jobs that are equally far behind.
    owed_ms: Vec<f64>,
}

impl Gavel {
    pub(super) fn new(aim: Aim) -> Self {
        Self {
            aim,
            jobs: BTreeMap::new(),
            settled: Vec::new(),
            settled_at: None,
            first: None,
            looked: None,
            chosen: Vec::new(),
            isolated: Isolated::default(),
            random: ChaCha8Rng::seed_from_u64(0),
        }
    }

    /// Chooses what runs in the round that begins now.
    fn begin_round(&mut self, scene: &Scene<'_>) {
        let elapsed = self.looked.map_or(0.0, |at| millis(scene.now.since(at)));
        self.looked = Some(scene.now);
        let first = *self.first.get_or_insert(scene.now);
        for live in &scene.jobs {
            if let (Some(site), Some(account)) = (live.site, self.jobs.get_mut(&live.id)) {
                account.ran_ms[site.gpu_type] += elapsed;
            }
        }
        let live: Vec<JobId> = scene.jobs.iter().map(|live| live.id).collect();
        let due = self.settled_at.is_none_or(|at| {
            at == first
                || scene.now.since(at) >= SETTLED
                || scene.jobs.iter().all(|live| live.site.is_none())
        });
        if due && live != self.settled {
            self.settle(scene);
            self.settled = live;
            self.settled_at = Some(scene.now);
        }
        self.choose(scene);
    }

    /// Works out the time parts.
    fn settle(&mut self, scene: &Scene<'_>) {
        let types = scene.gpu_types.len();
        let gpus: Vec<f64> = (0..types).map(|i| f64::from(scene.gpus_of(i))).collect();
        let rates = |live: &Live<'_>| match self.aim {
            Aim::LasBlind => vec![1.0; types],
            Aim::Las | Aim::Fifo | Aim::Makespan | Aim::FinishTime => {
                (0..types).map(|i| live.rate_on(i)).collect()
            }
        };
        let knows_steps = matches!(self.aim, Aim::Makespan | Aim::FinishTime);
        let claims: Vec<Claim> = scene
            .jobs
            .iter()
            .map(|live| Claim {
                job: live.id,
                rates: rates(live),
                gpus: f64::from(live.gpus()),
                weight: f64::from(live.job.weight_permille) / 1_000.0,
                left_s: if knows_steps {
                    (live.left_ms() / 1_000.0).max(1e-3)
                } else {
                    0.0
                },
                waited_s: millis(scene.now.since(live.submitted)) / 1_000.0,
            })
            .collect();
        let parts = match self.aim {
            Aim::Las | Aim::LasBlind => allocate::fairest(&claims, &gpus),
            Aim::Fifo => allocate::first_come(&claims, &gpus),
            Aim::Makespan => allocate::shortest_makespan(&claims, &gpus),
            Aim::FinishTime => allocate::fairest_finish(&claims, &gpus, &mut self.isolated),
        };
        let since = self
            .settled_at
            .map_or(0.0, |at| millis(scene.now.since(at)));
        let before = std::mem::take(&mut self.jobs);
        let owed = |account: &Account| {
            let got = account
                .ran_ms
                .iter()
                .zip(&account.parts)
                .zip(&account.owed_ms);
            got.map(|((ran, part), owed)| owed + part * since - (ran - HEAD_START_MS))
                .collect()
        };
        let accounts = claims.iter().zip(parts).map(|(claim, parts)| {
            let account = Account {
                parts,
                ran_ms: vec![HEAD_START_MS; types],
                owed_ms: before
                    .get(&claim.job)
                    .map_or_else(|| vec![0.0; types], owed),
            };
            (claim.job, account)
        });
        self.jobs = accounts.collect();
    }

    /// Fills one GPU type after the other with those that are furthest behind their part of it.
    fn choose(&mut self, scene: &Scene<'_>) {
        let mut types: Vec<usize> = (0..scene.gpu_types.len()).collect();
        if self.aim == Aim::LasBlind {
            for last in (1..types.len()).rev() {
                types.swap(last, crate::placement::below(&mut self.random, last + 1));
            }
        }
        self.chosen.clear();
        let mut taken = vec![false; scene.jobs.len()];
        for gpu_type in types {
            let mut behind: Vec<(f64, f64, usize)> = Vec::new();
            for (place, live) in scene.jobs.iter().enumerate() {
                let Some(account) = self.jobs.get(&live.id) else {
                    continue;
                };
                let part = account.parts[gpu_type];
                let due = self.aim != Aim::Fifo || part > 0.0;
                if due && !taken[place] && live.rate_on(gpu_type) > 0.0 {
                    let owed = account.owed_ms[gpu_type];
                    behind.push((part / account.ran_ms[gpu_type], owed, place));
                }
            }
            behind.sort_by(|a, b| {
                let most = b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1));
                most.then(a.2.cmp(&b.2))
            });
            let mut left = scene.gpus_of(gpu_type);
            for (_, _, place) in behind {
                let live = &scene.jobs[place];
                if live.gpus() <= left {
                    left -= live.gpus();
                    taken[place] = true;
                    self.chosen.push((live.id, gpu_type));
                }
            }
        }
    }
}

impl Peer for Gavel {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        if self.looked != Some(scene.now) {
            self.begin_round(scene);
        }
        let wish = |(id, gpu_type): &(JobId, usize)| {
            let found = scene.jobs.binary_search_by_key(id, |live| live.id);
            found.ok().map(|job| Wish {
                job,
                gpu_type: *gpu_type,
            })
        };
        let mut wishes: Vec<Wish> = self.chosen.iter().filter_map(wish).collect();
        // The largest find the fewest nodes that hold them.
        wishes.sort_by_key(|wish| std::cmp::Reverse(scene.jobs[wish.job].gpus()));
        arrange(scene, &wishes, Overtake::Allowed)
    }
}
