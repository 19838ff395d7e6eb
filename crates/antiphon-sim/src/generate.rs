//! Makes a load of LLM post-training up, as the Acme trace describes it (Hu et al., NSDI 2024): bursts of evaluations after
//! checkpoints, debugging, large gangs, many failures. It places nothing and knows no cluster but its number of GPUs.
//!
//! The distributions are compiled in (`generate/acme.txt`): Acme trace, Shanghai AI Laboratory,
//! github.com/InternLM/AcmeTrace, CC-BY-4.0. From the trace are the shares of the kinds of jobs, their run times, the
//! quartiles of their GPUs, and how jobs ended. Not in it, and therefore assumptions: how jobs come (bursts, hours of the
//! day, weekends, rushes), teams and users, priorities, and the time limits that users name.
//!
//! ```
//! use antiphon_sim::generate::{Load, generate};
//!
//! let load = Load { jobs: 500, ..Load::default() };
//! let workload = generate(&load);
//! assert_eq!(workload.jobs.len(), 500);
//! assert_eq!(workload, generate(&load));
//! ```

mod clock;
mod kinds;

use antiphon_types::{Class, GpuAmount, Millis};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Deserialize;

use crate::trace::{job, rounded};
use crate::workload::{End, TraceJob, Work, Workload};
use clock::Clock;
use kinds::{Kind, between, gang, kinds};

/// One of the two clusters of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cluster {
    /// 2,416 GPUs: few jobs that train, large; 93 of 100 evaluate.
    #[default]
    Kalos,
    /// 2,288 GPUs: fine-tuning and much else beside training.
    Seren,
}

/// What is to be made.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// The same seed makes the same load.
    pub seed: u64,
    /// Whose distributions.
    pub cluster: Cluster,
    /// GPUs of the cluster that the load is for; no job asks for more.
    pub gpus: u32,
    /// GPUs of the largest gang, where that is to be smaller than the cluster.
    pub widest: Option<u32>,
    /// How many jobs.
    pub jobs: usize,
    /// GPU-time of all jobs in thousandths of what the cluster has over the span. 950 is high, 1,200 never drains.
    pub load_permille: u32,
    /// Over which time they come. Where it is named, all run times are scaled by one factor so that the load comes out;
    /// otherwise it follows from load and run times.
    #[serde(deserialize_with = "crate::form::maybe_span")]
    pub span: Option<Millis>,
    /// Teams, of unequal size: the second has half the jobs of the first, the third a third.
    pub teams: u32,
    /// Users of each team.
    pub users_per_team: u32,
    /// Evaluations that come together, on average.
    pub burst: u32,
    /// When jobs come.
    pub rhythm: Rhythm,
    /// Of a thousand jobs that are no evaluations, as many are production.
    pub production_permille: u32,
    /// Of a thousand jobs that are no pretraining, as many are best effort.
    pub best_effort_permille: u32,
    /// Of a thousand jobs, as many name no time limit of their own but a round default of one, three or seven days.
    pub default_limit_permille: u32,
}

/// How the rate at which jobs come changes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rhythm {
    /// How far the hours of a day differ, in thousandths: 600 is 1.6 times the mean at the peak, 0.4 times at night.
    pub day_permille: u32,
    /// The hour with the most submissions.
    pub peak_hour: u32,
    /// The rate on two days of seven, in thousandths of that on the others.
    pub weekend_permille: u32,
    /// Times of rush, spread evenly over the span: a release, the end of a quarter.
    pub rushes: u32,
    /// How long a rush lasts.
    #[serde(deserialize_with = "crate::form::span")]
    pub rush: Millis,
    /// The rate in a rush, in thousandths of the ordinary.
    pub rush_permille: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            seed: 0,
            cluster: Cluster::Kalos,
            gpus: 2_416,
            widest: None,
            jobs: 5_000,
            load_permille: 900,
            span: None,
            teams: 8,
            users_per_team: 6,
            burst: 48,
            rhythm: Rhythm::default(),
            production_permille: 0,
            best_effort_permille: 0,
            default_limit_permille: 300,
        }
    }
}

impl Default for Rhythm {
    fn default() -> Self {
        Self {
            day_permille: 600,
            peak_hour: 15,
            weekend_permille: 500,
            rushes: 0,
            rush: Millis::from_secs(3 * 86_400),
            rush_permille: 2_000,
        }
    }
}

impl Load {
    /// A million jobs over half a year: load 0.95, daily peaks, six rushes, 50 teams, three classes.
    #[must_use]
    pub fn million(seed: u64) -> Self {
        Self {
            seed,
            cluster: Cluster::Seren,
            gpus: 2_288,
            jobs: 1_000_000,
            load_permille: 950,
            span: Some(Millis::from_secs(182 * 86_400)),
            teams: 50,
            users_per_team: 12,
            rhythm: Rhythm {
                rushes: 6,
                ..Rhythm::default()
            },
            production_permille: 50,
            best_effort_permille: 200,
            ..Self::default()
        }
    }
}

/// Makes the load up.
#[must_use]
pub fn generate(load: &Load) -> Workload {
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(load.seed));
    let kinds = kinds(load.cluster);
    let mut drafts = drafts(load, &kinds, &mut dice);
    let gpu_s: f64 = drafts.iter().map(Draft::gpu_s).sum();
    let capacity = f64::from(load.gpus.max(1)) * f64::from(load.load_permille.max(1)) / 1e3;
    let span_s = match load.span {
        None => gpu_s / capacity,
        Some(span) => {
            let span_s = milliseconds(span) / 1e3;
            let factor = capacity * span_s / gpu_s.max(1.0);
            for draft in &mut drafts {
                draft.run_s = (draft.run_s * factor).max(1.0);
            }
            span_s
        }
    };
    let clock = Clock::new(&load.rhythm, span_s);
    let teams = Teams::new(load.teams.max(1));
    let mut jobs = Vec::with_capacity(drafts.len());
    let mut left = drafts.as_slice();
    while let Some(first) = left.first() {
        // What comes together comes from one user.
        let together = left
            .iter()
            .take_while(|draft| draft.group == first.group)
            .count();
        let (now, rest) = left.split_at(together);
        left = rest;
        let team = teams.draw(&mut dice);
        let user = dice.below(load.users_per_team.max(1));
        let mut at_s = clock.draw(&mut dice);
        for draft in now {
            jobs.push(made(load, draft, at_s, team, user, &mut dice));
            at_s += dice.unit() * 2.0;
        }
    }
    jobs.sort_by_key(|job| job.submitted);
    let first = jobs.first().map_or(Millis::ZERO, |job| job.submitted);
    for (index, job) in jobs.iter_mut().enumerate() {
        job.name = format!("{}-{index}", job.name);
        job.submitted = job.submitted.saturating_sub(first);
    }
    let cluster = match load.cluster {
        Cluster::Kalos => "kalos",
        Cluster::Seren => "seren",
    };
    Workload {
        name: format!("acme-{cluster}-{}-seed-{}", load.jobs, load.seed),
        jobs,
    }
}

/// A job of which is known what it is, but not yet when it comes and whose it is.
struct Draft {
    kind: &'static str,
    /// Jobs of one group come together.
    group: u32,
    gpus: u32,
    run_s: f64,
    end: End,
}

impl Draft {
    fn gpu_s(&self) -> f64 {
        f64::from(self.gpus) * self.run_s
    }
}

fn drafts(load: &Load, kinds: &[Kind], dice: &mut Dice) -> Vec<Draft> {
    let mut drafts = Vec::with_capacity(load.jobs);
    let mut group = 0;
    let mut in_burst = 0;
    let (mut shares, mut count) = (0.0, 0);
    let widest = load.widest.unwrap_or(load.gpus).clamp(1, load.gpus.max(1));
    for (index, kind) in kinds.iter().enumerate() {
        shares += kind.share;
        // Shares are exact, not drawn: two loads of one size differ less. The last kind takes what rounding leaves.
        let until = if index + 1 == kinds.len() {
            load.jobs
        } else {
            part(load.jobs, shares)
        };
        while count < until {
            if in_burst == 0 {
                group += 1;
                in_burst = if kind.name == "evaluation" {
                    dice.burst(load.burst)
                } else {
                    1
                };
            }
            in_burst -= 1;
            count += 1;
            let ended = dice.unit();
            drafts.push(Draft {
                kind: kind.name,
                group,
                gpus: gang(kind.gpus, dice.unit()).min(widest),
                run_s: between(&kind.run_s, dice.unit()),
                end: if ended < kind.canceled {
                    End::Canceled
                } else if ended < kind.canceled + kind.failed {
                    End::Failed
                } else {
                    End::Completed
                },
            });
        }
        in_burst = 0;
    }
    drafts
}

fn made(load: &Load, draft: &Draft, at_s: f64, team: u32, user: u32, dice: &mut Dice) -> TraceJob {
    let at = Millis::from_millis(rounded(at_s * 1e3));
    let run = Millis::from_millis(rounded(draft.run_s * 1e3));
    let gpus = GpuAmount::from_gpus(draft.gpus);
    let mut job = job(0, draft.kind, at, gpus, Work::Time(run));
    job.team = format!("team-{team:02}");
    job.user = format!("user-{team:02}-{user}");
    job.end = draft.end;
    let lot = dice.below(1_000);
    job.class = if draft.kind != "evaluation" && lot < load.production_permille {
        Class::Production
    } else if draft.kind != "pretrain" && lot >= 1_000_u32.saturating_sub(load.best_effort_permille)
    {
        Class::BestEffort
    } else {
        Class::Standard
    };
    let by_default = dice.below(1_000) < load.default_limit_permille;
    job.limit = Some(limit(draft.run_s, by_default, dice.unit()));
    job
}

/// The limit that a user names: a round number, one to ten times the run time (estimates are as loose and as round in
/// Tsafrir, Etsion and Feitelson, "Modeling user runtime estimates", JSSPP 2005). Never below the run time.
pub(crate) fn limit(run_s: f64, by_default: bool, lot: f64) -> Millis {
    const ROUND_MIN: [u64; 14] = [
        15, 30, 60, 120, 240, 480, 720, 1_440, 2_880, 4_320, 7_200, 10_080, 20_160, 43_200,
    ];
    const DEFAULTS_MIN: [u64; 3] = [1_440, 4_320, 10_080];
    let wanted_s = if by_default {
        run_s
    } else {
        run_s * 10_f64.powf(lot)
    };
    let rounds: &[u64] = if by_default {
        &DEFAULTS_MIN
    } else {
        &ROUND_MIN
    };
    let fits = |limit: &&u64| rounded(wanted_s / 60.0) < **limit;
    let minutes = rounds.iter().find(fits).copied();
    // Longer than any: whole weeks.
    let minutes = minutes.unwrap_or_else(|| (rounded(wanted_s / 604_800.0) + 1) * 10_080);
    Millis::from_secs(minutes * 60)
}

/// Teams, and how often each is drawn.
struct Teams {
    upto: Vec<f64>,
}

impl Teams {
    fn new(count: u32) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        });
        let upto: Vec<f64> = sums.collect();
        let all = upto.last().copied().unwrap_or(1.0);
        Self {
            upto: upto.into_iter().map(|part| part / all).collect(),
        }
    }

    fn draw(&self, dice: &mut Dice) -> u32 {
        let lot = dice.unit();
        let team = self.upto.partition_point(|upto| *upto <= lot);
        u32::try_from(team.min(self.upto.len().saturating_sub(1))).unwrap_or(0)
    }
}

/// Chance from a seed.
struct Dice(ChaCha8Rng);

impl Dice {
    /// At least 0, below 1.
    fn unit(&mut self) -> f64 {
        f64::from(self.0.next_u32()) / 4_294_967_296.0
    }

    fn below(&mut self, count: u32) -> u32 {
        let scaled = u64::from(self.0.next_u32()) * u64::from(count.max(1));
        u32::try_from(scaled >> 32).unwrap_or(0)
    }

    /// The size of a burst: at least 1, on average `mean`, often less and sometimes much more.
    fn burst(&mut self, mean: u32) -> u64 {
        let drawn = -(1.0 - self.unit()).ln() * f64::from(mean.max(1));
        rounded(drawn.ceil()).max(1)
    }
}

/// A number of hours or the like, exact.
fn small(number: u64) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

fn milliseconds(span: Millis) -> f64 {
    // Exact up to 2^53 ms, which is longer than any span.
    let ms = span.as_millis();
    small(ms >> 32) * 4_294_967_296.0 + small(ms & 0xffff_ffff)
}

fn part(count: usize, share: f64) -> usize {
    let part = rounded(small(count as u64) * share);
    usize::try_from(part).unwrap_or(count).min(count)
}

#[cfg(test)]
mod tests;
