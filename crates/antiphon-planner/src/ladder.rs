//! What to try, in this order, each time a run is out of memory: cheaper steps first, and each on top of those before it. Keeps
//! the sequences of a step, so that the same model comes out.

use std::collections::BTreeMap;

use antiphon_types::training::{LossKernel, Offload, Place, Recompute, Sharding};
use antiphon_types::{GpuAmount, Rung};

use crate::memory;
use crate::plan::milder_first;
use crate::profile::Ability;
use crate::run::{Machine, Run};

/// A step that frees less than this share of what was needed is not worth a restart.
const WORTH: f64 = 0.01;
/// Steps that a job file may have.
const STEPS: usize = 16;

/// The steps for a run; more GPUs up to so many.
///
/// The trainer learns of them by `MICRO_BATCH` and `GRADIENT_ACCUMULATION`, `RECOMPUTE` (`modules`, `per-operation`, `full`),
/// `LOSS_CHUNKS` and `OFFLOAD` (`optimizer`).
#[must_use]
pub fn ladder(run: &Run, machine: &Machine, gpus_max: u64) -> Vec<Rung> {
    let mut ladder = Ladder {
        machine,
        needed: memory::memory(run, machine).device,
        run: run.clone(),
        rungs: Vec::new(),
    };
    ladder.smaller_micro();
    ladder.stronger_recompute();
    ladder.leaner_loss();
    ladder.offload();
    ladder.more_gpus(gpus_max);
    ladder.rungs.truncate(STEPS);
    ladder.rungs
}

struct Ladder<'a> {
    machine: &'a Machine,
    /// The run as the steps so far have made it.
    run: Run,
    /// Bytes of a GPU that it needs.
    needed: f64,
    rungs: Vec<Rung>,
}

impl Ladder<'_> {
    /// Takes a step where it frees enough.
    fn step(&mut self, run: Run, rung: Rung) {
        let needs = memory::memory(&run, self.machine);
        let host = self.machine.host_gib * 1_073_741_824.0;
        let held = host == 0.0 || needs.host <= host;
        if held && needs.device <= self.needed * (1.0 - WORTH) {
            self.run = run;
            self.needed = needs.device;
            self.rungs.push(rung);
        }
    }

    fn smaller_micro(&mut self) {
        let each = self.run.micro * self.run.accumulation;
        let smaller = (1..self.run.micro).rev();
        let mut micro = self.run.micro;
        for next in smaller.filter(|next| each.is_multiple_of(*next)) {
            // By half or more each time: a restart costs minutes.
            if next * 2 > micro && next > 1 {
                continue;
            }
            micro = next;
            self.step(
                Run {
                    micro,
                    accumulation: each / micro,
                    ..self.run.clone()
                },
                rung(
                    format!("micro-batch {micro}"),
                    &[
                        ("MICRO_BATCH", micro.to_string()),
                        ("GRADIENT_ACCUMULATION", (each / micro).to_string()),
                    ],
                ),
            );
        }
    }

    fn stronger_recompute(&mut self) {
        for recompute in milder_first(&self.run.model) {
            let profile = self.run.profile;
            let (known, name) = match &recompute {
                Recompute::Modules(_) => (profile.can(Ability::Modules), "modules"),
                Recompute::PerOperation => (profile.can(Ability::PerOperation), "per-operation"),
                Recompute::Full => (true, "full"),
                Recompute::None | Recompute::Layers { .. } => (false, "none"),
            };
            if known && memory::strength(&recompute) > memory::strength(&self.run.recompute) {
                self.step(
                    self.run.recomputing(recompute),
                    rung(
                        format!("recompute {name}"),
                        &[("RECOMPUTE", name.to_owned())],
                    ),
                );
            }
        }
    }

    fn leaner_loss(&mut self) {
        if self.run.loss == LossKernel::Plain && self.run.profile.can(Ability::LeanLoss) {
            let chunks = 8;
            self.step(
                Run {
                    loss: LossKernel::Chunked { chunks },
                    ..self.run.clone()
                },
                rung(
                    format!("loss in {chunks} chunks"),
                    &[("LOSS_CHUNKS", chunks.to_string())],
                ),
            );
        }
    }

    fn offload(&mut self) {
        let here = self.run.offload.optimizer == Place::Gpu;
        if here && self.run.profile.can(Ability::OffloadOptimizer) {
            self.step(
                Run {
                    offload: Offload {
                        optimizer: Place::Cpu,
                        ..self.run.offload
                    },
                    ..self.run.clone()
                },
                rung(
                    "offload optimizer".into(),
                    &[("OFFLOAD", "optimizer".to_owned())],
                ),
            );
        }
    }

    /// Twice as many each time, as far as the sequences of a step divide; only what is shared out gets smaller.
    fn more_gpus(&mut self, most: u64) {
        let mut gpus = self.run.gpus * 2;
        while gpus <= most
            && self.run.accumulation.is_multiple_of(2)
            && self.run.sharding != Sharding::None
        {
            let run = &self.run;
            let shared_by_all = run.shards == run.dp * run.cp;
            let larger = Run {
                gpus,
                dp: run.dp * 2,
                shards: if shared_by_all {
                    run.shards * 2
                } else {
                    run.shards
                },
                accumulation: run.accumulation / 2,
                ..run.clone()
            };
            let accumulation = larger.accumulation.to_string();
            self.step(
                larger,
                Rung {
                    gpus: u32::try_from(gpus).ok().map(GpuAmount::from_gpus),
                    ..rung(
                        format!("{gpus} GPUs"),
                        &[("GRADIENT_ACCUMULATION", accumulation)],
                    )
                },
            );
            if self.run.gpus != gpus {
                break;
            }
            gpus *= 2;
        }
    }
}

fn rung(name: String, variables: &[(&str, String)]) -> Rung {
    Rung {
        name,
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<BTreeMap<_, _>>(),
        gpus: None,
    }
}
