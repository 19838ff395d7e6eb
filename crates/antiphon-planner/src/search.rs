//! The best layouts for a spec: every way its framework can split the work over the GPUs on offer, what fits of them, and of that
//! what nothing else beats in time, cost, GPUs and memory left over. Frees what a spec says of layout, micro-batch, recomputation
//! and offloading; keeps the sequences of a step, so that the same model comes out.

mod candidate;
mod gang;
mod offers;
mod pareto;
mod splits;
mod stated;

use antiphon_types::training::{Batch, Layout, Length, Offload, Recompute, TrainingSpec};

use crate::calibrate::Calibration;
use crate::cost;
use crate::error::PlanError;
use crate::memory::{self, Memory};
use crate::profile::Frameworks;
use crate::roles::{self, Role};
use crate::run::{Assumption, Machine, Run, resolve};
use crate::speed::{self, Speed};
use candidate::Search;

pub use gang::{Gang, gang};
pub use offers::offers;
pub use stated::{stated, stated_on};

/// GPUs of one type that can be had.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The partition; none for a GPU type of the catalog.
    pub partition: Option<String>,
    /// What the cluster calls them, which need not be the catalog's name.
    pub gpu_type: String,
    /// What they are.
    pub machine: Machine,
    /// How many there are.
    pub gpus: u64,
}

/// What is searched within.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Fewest GPUs.
    pub gpus_min: u64,
    /// Most GPUs.
    pub gpus_max: u64,
    /// Hours in which it has to end.
    pub hours: Option<f64>,
    /// US dollars that it may cost.
    pub usd: Option<f64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            gpus_min: 1,
            gpus_max: u64::MAX,
            hours: None,
            usd: None,
        }
    }
}

/// One layout on one offer.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Which offer.
    pub offer: usize,
    /// What runs.
    pub run: Run,
    /// What it needs.
    pub memory: Memory,
    /// How fast it is.
    pub speed: Speed,
    /// What has GPUs of its own beside.
    pub roles: Vec<Role>,
    /// Hours of the whole run, where its length is known.
    pub hours: Option<f64>,
    /// US dollars of the whole run, where its length and the price are known.
    pub usd: Option<f64>,
    /// US dollars for 10^6 tokens, where the price is known.
    pub usd_m_tokens: Option<f64>,
}

impl Choice {
    /// A run on a machine, for so long where that is known.
    fn new(
        offer: usize,
        machine: &Machine,
        (run, memory, speed): (Run, Memory, Speed),
        length: &Length,
    ) -> Self {
        let usd_h = machine.usd_h * held(&run);
        let priced = usd_h > 0.0;
        let steps = cost::steps(length, &run, &speed);
        let hours = steps.map(|steps| steps * speed.step_ms / 3.6e6);
        Self {
            offer,
            hours,
            usd: hours.filter(|_| priced).map(|hours| hours * usd_h),
            usd_m_tokens: priced.then(|| usd_h * speed.step_ms / 3.6e6 / speed.tokens * 1e6),
            roles: roles::roles(&run, machine),
            memory,
            speed,
            run,
        }
    }

    /// The same with what was measured: times and memory by these factors.
    #[must_use]
    pub fn learned(mut self, factors: &Calibration) -> Self {
        let speed = factors.apply(&self.speed);
        let slower = speed.step_ms / self.speed.step_ms;
        for number in [&mut self.hours, &mut self.usd, &mut self.usd_m_tokens] {
            *number = number.map(|number| number * slower);
        }
        self.speed = speed;
        self.memory = self.memory.scaled(factors.memory);
        self
    }

    /// Tokens a second of all its GPUs.
    #[must_use]
    pub fn tokens_per_s(&self) -> f64 {
        self.speed.tokens / self.speed.step_ms * 1e3
    }

    /// GPUs of all of it: those that train, and those of roles beside.
    #[must_use]
    pub fn gpus(&self) -> u64 {
        self.run.gpus + roles::apart(&self.run)
    }

    /// Whether the GPUs that train do, and those of every role beside.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.memory.fits && self.roles.iter().all(|role| role.fits)
    }

    /// Its layout in words, with the roles beside.
    #[must_use]
    pub fn described(&self) -> String {
        let mut text = candidate::described(&self.run);
        if !self.roles.is_empty() {
            text = format!("trainer on {}: {text}", self.run.gpus);
        }
        for role in &self.roles {
            text += "; ";
            text += &role.described();
        }
        text
    }

    /// What of it is too large.
    #[must_use]
    pub fn too_large(&self, offer: &Offer) -> String {
        let gpu = &offer.gpu_type;
        match self.roles.iter().find(|role| !role.fits) {
            Some(role) if self.memory.fits => {
                format!("nothing fits: on {gpu}, {}", role.described())
            }
            _ => format!(
                "nothing fits as it stands: the nearest, {} {gpu}, needs {}",
                self.run.gpus,
                self.memory_in_words()
            ),
        }
    }

    /// What it needs of what a GPU has.
    #[must_use]
    pub fn memory_in_words(&self) -> String {
        const GIB: f64 = 1_073_741_824.0;
        let memory = &self.memory;
        format!(
            "{:.1} GiB of {:.1} on each",
            memory.device / GIB,
            memory.usable / GIB
        )
    }

    /// Share of the usable memory that is left.
    #[must_use]
    pub fn margin(&self) -> f64 {
        1.0 - self.memory.device / self.memory.usable
    }
}

/// How much was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Ways to split the work.
    pub splits: u64,
    /// Of them, those whose weights, gradients and states alone are too large.
    pub states_too_large: u64,
    /// Of them, those that no batch and no recomputation makes fit.
    pub too_large: u64,
    /// Layouts that cannot be as fast as others that were seen.
    pub too_slow: u64,
    /// Layouts that were computed to the end.
    pub computed: u64,
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What nothing else beats in time, cost, GPUs and margin, the fastest first.
    pub choices: Vec<Choice>,
    /// Which of them is recommended; none where nothing fits or keeps to the limits.
    pub recommended: Option<usize>,
    /// Why, or why not.
    pub reason: String,
    /// Defaults that were taken.
    pub assumptions: Vec<Assumption>,
    /// How much was looked at.
    pub counts: Counts,
}

impl Found {
    /// The same with what was measured: times and memory of each choice by the factors of its offer. What no longer fits is
    /// left out.
    #[must_use]
    pub fn learned(
        mut self,
        offers: &[Offer],
        limits: &Limits,
        of: impl Fn(&Offer, &Run) -> Calibration,
    ) -> Self {
        let told = |choice: Choice| {
            let factors = of(&offers[choice.offer], &choice.run);
            choice.learned(&factors)
        };
        self.choices = self.choices.into_iter().map(told).collect();
        self.choices.retain(Choice::fits);
        self.choices
            .sort_by(|a, b| b.tokens_per_s().total_cmp(&a.tokens_per_s()));
        if !self.choices.is_empty() {
            (self.recommended, self.reason) = pareto::recommend(&self.choices, offers, limits);
        } else if self.recommended.take().is_some() {
            self.reason =
                "by the formulas some would fit; by what was measured here none does".into();
        }
        self
    }
}

/// Searches all layouts on all offers.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn search(
    spec: &TrainingSpec,
    offers: &[Offer],
    limits: &Limits,
    frameworks: &'static Frameworks,
) -> Result<Found, PlanError> {
    let Some(first) = offers.first() else {
        return Ok(nothing("no GPUs are on offer".into(), Vec::new()));
    };
    let (base, assumptions) = base(spec, &first.machine, limits, frameworks)?;
    let apart = roles::apart(&base);
    let mut search = Search::new(&base);
    for (index, offer) in offers.iter().enumerate() {
        for gpus in splits::counts(offer, limits, apart) {
            search.count(index, offer, gpus);
        }
    }
    if search.kept.is_empty() {
        let reason = search.nearest(offers, limits);
        return Ok(Found {
            counts: search.counts,
            ..nothing(reason, assumptions)
        });
    }
    let best = pareto::front(&search.kept, offers, apart as f64);
    let mut choices: Vec<Choice> = best
        .iter()
        .map(|candidate| {
            let machine = &offers[candidate.offer].machine;
            let run = search.run(candidate);
            let memory = memory::memory(&run, machine);
            let speed = speed::speed(&run, machine);
            Choice::new(candidate.offer, machine, (run, memory, speed), &spec.length)
        })
        .collect();
    choices.sort_by(|a, b| a.speed.step_ms.total_cmp(&b.speed.step_ms));
    let too_large = choices
        .first()
        .map(|choice| choice.too_large(&offers[choice.offer]));
    choices.retain(Choice::fits);
    if let (Some(reason), true) = (too_large, choices.is_empty()) {
        return Ok(Found {
            counts: search.counts,
            ..nothing(reason, assumptions)
        });
    }
    let (recommended, reason) = pareto::recommend(&choices, offers, limits);
    Ok(Found {
        choices,
        recommended,
        reason,
        assumptions,
        counts: search.counts,
    })
}

/// GPUs that a run pays for: those of roles that share none with training count, too.
pub(crate) fn held(run: &Run) -> f64 {
    (run.gpus + roles::apart(run)) as f64
}

/// Nothing, as yet or at all, and why.
fn nothing(reason: String, assumptions: Vec<Assumption>) -> Found {
    Found {
        choices: Vec::new(),
        recommended: None,
        reason,
        assumptions,
        counts: Counts::default(),
    }
}

/// Tokens of a step where a spec says nothing of its batch: a usual one of fine-tuning.
const TOKENS_A_STEP: u64 = 262_144;

/// The spec on one GPU with the whole step as accumulation: what every candidate is made from.
fn base(
    spec: &TrainingSpec,
    machine: &Machine,
    limits: &Limits,
    frameworks: &'static Frameworks,
) -> Result<(Run, Vec<Assumption>), PlanError> {
    let batch = &spec.batch;
    let global = match batch.global {
        Some(global) => Some(global),
        None if batch.micro.is_none() && batch.accumulation.is_none() => None,
        None => Some(resolve(spec, machine, frameworks)?.0.global()),
    };
    let one = TrainingSpec {
        layout: Layout {
            gpus: Some(1),
            ..Layout::default()
        },
        batch: Batch {
            micro: Some(1),
            accumulation: Some(1),
            global: None,
            ..*batch
        },
        recompute: Some(Recompute::None),
        offload: Offload::default(),
        ..spec.clone()
    };
    let (mut run, mut assumptions) = resolve(&one, machine, frameworks)?;
    run.accumulation = global.unwrap_or_else(|| {
        let taken = (TOKENS_A_STEP / (run.sequence * run.sequences_a_sample()))
            .max(limits.gpus_min)
            .max(8)
            .next_power_of_two();
        // Every replica of the only count that is asked for gets as many.
        let taken = if limits.gpus_min == limits.gpus_max {
            taken.next_multiple_of(limits.gpus_min.max(1))
        } else {
            taken
        };
        assumptions.push(Assumption {
            what: "global batch",
            taken: format!("{taken} sequences"),
            why: format!("nothing is said; about {TOKENS_A_STEP} tokens a step are usual"),
        });
        taken
    });
    Ok((run, assumptions))
}
