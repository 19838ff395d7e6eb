//! The planner's whole answer: a run with nothing left open, its memory, its speed, and which defaults were taken. Where the
//! spec leaves recomputation or the micro-batch open, the mildest choice that fits is taken.

use antiphon_types::model::ModelShape;
use antiphon_types::training::{Module, Recompute, Task, TrainingSpec};

use crate::calibrate::Calibration;
use crate::error::PlanError;
use crate::memory::{self, Memory};
use crate::profile::Frameworks;
use crate::roles::{self, Role};
use crate::run::{Assumption, Machine, Run, resolve};
use crate::speed::{self, Speed};

/// The planner's whole answer.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What runs.
    pub run: Run,
    /// On what.
    pub machine: Machine,
    /// What it needs.
    pub memory: Memory,
    /// How fast it is.
    pub speed: Speed,
    /// What has GPUs of its own, and whether they do.
    pub roles: Vec<Role>,
    /// What was left open, and what was taken.
    pub assumptions: Vec<Assumption>,
}

impl Plan {
    /// Whether the GPUs that train do, and those of every role beside.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.memory.fits && self.roles.iter().all(|role| role.fits)
    }

    /// The same with what was measured: time and memory by these factors.
    #[must_use]
    pub fn learned(self, factors: &Calibration) -> Self {
        Self {
            speed: factors.apply(&self.speed),
            memory: self.memory.scaled(factors.memory),
            ..self
        }
    }
}

/// Answers a spec.
///
/// # Errors
/// What contradicts itself, or what cannot be known.
pub fn plan(
    spec: &TrainingSpec,
    machine: &Machine,
    frameworks: &'static Frameworks,
) -> Result<Plan, PlanError> {
    let (mut run, mut assumptions) = resolve(spec, machine, frameworks)?;
    let mut memory = memory::memory(&run, machine);
    if spec.recompute.is_none() && !memory.fits {
        // Stronger recomputation costs time: the first that fits is the cheapest.
        for stronger in milder_first(&run.model) {
            if memory::strength(&stronger) <= memory::strength(&run.recompute) {
                continue;
            }
            let tried = run.recomputing(stronger);
            let needs = memory::memory(&tried, machine);
            if needs.fits || memory::strength(&tried.recompute) == 4 {
                note_recompute(
                    &mut assumptions,
                    &tried.recompute,
                    memory.device,
                    memory.usable,
                );
                run = tried;
                memory = needs;
                break;
            }
        }
    }
    if spec.batch.micro.is_none() && spec.batch.accumulation.is_none() {
        (run, memory) = larger_micro(run, memory, machine, &mut assumptions);
    }
    let speed = speed::speed(&run, machine);
    Ok(Plan {
        roles: roles::roles(&run, machine),
        run,
        machine: machine.clone(),
        memory,
        speed,
        assumptions,
    })
}

/// Recomputation in the order of what it costs.
#[must_use]
pub fn milder_first(model: &ModelShape) -> [Recompute; 3] {
    let modules = if model.experts.is_some() {
        vec![
            Module::CoreAttn,
            Module::MoeAct,
            Module::Layernorm,
            Module::MlaUpProj,
        ]
    } else {
        vec![Module::CoreAttn, Module::Layernorm, Module::Mlp]
    };
    [
        Recompute::Modules(modules),
        Recompute::PerOperation,
        Recompute::Full,
    ]
}

const GIB: f64 = 1_073_741_824.0;

fn note_recompute(assumptions: &mut Vec<Assumption>, taken: &Recompute, device: f64, usable: f64) {
    let name = match taken {
        Recompute::None => "none",
        Recompute::Full => "full",
        Recompute::Layers { .. } => "full in some layers",
        Recompute::PerOperation => "all but costly operations",
        Recompute::Modules(_) => "core attention, norms and feed-forward",
    };
    assumptions.retain(|assumption| assumption.what != "recompute");
    assumptions.push(Assumption {
        what: "recompute",
        taken: name.into(),
        why: format!(
            "without it {:.1} GiB of {:.1} are needed",
            device / GIB,
            usable / GIB
        ),
    });
}

/// Doubles the micro-batch while it fits and divides what the step has.
fn larger_micro(
    mut run: Run,
    mut memory: Memory,
    machine: &Machine,
    assumptions: &mut Vec<Assumption>,
) -> (Run, Memory) {
    let mut grown = false;
    // A micro-batch of about 16,384 tokens fills a GPU: larger ones gain little.
    while run.accumulation.is_multiple_of(2)
        && run.micro * run.sequence < 16_384
        && memory.fits
        && run.accumulation / 2 >= run.pp
    {
        let tried = Run {
            micro: run.micro * 2,
            accumulation: run.accumulation / 2,
            ..run.clone()
        };
        let needs = memory::memory(&tried, machine);
        if !needs.fits {
            break;
        }
        run = tried;
        memory = needs;
        grown = true;
    }
    if grown {
        assumptions.retain(|assumption| assumption.what != "micro-batch");
        assumptions.push(Assumption {
            what: "micro-batch",
            taken: run.micro.to_string(),
            why: "the largest that fits and divides the step".into(),
        });
    }
    (run, memory)
}

/// The longest sequence that fits with all else equal, to 256 tokens; 0 where none does.
#[must_use]
pub fn longest_sequence(run: &Run, machine: &Machine) -> u64 {
    let fits = |sequence: u64| {
        let tried = Run {
            sequence,
            mean_sequence: run.mean_sequence.min(sequence),
            ..run.clone()
        };
        memory::memory(&tried, machine).fits
    };
    if !fits(256) {
        return 0;
    }
    let (mut fitting, mut failing) = (256, 512);
    while fits(failing) {
        fitting = failing;
        failing *= 2;
        if failing > 1 << 26 {
            return fitting;
        }
    }
    while failing - fitting > 256 {
        let middle = fitting.midpoint(failing) / 256 * 256;
        if fits(middle) {
            fitting = middle;
        } else {
            failing = middle;
        }
    }
    fitting
}

/// Whether a step has a generation in it.
#[must_use]
pub const fn generates(run: &Run) -> bool {
    matches!(run.task, Task::Ppo | Task::Grpo)
}
