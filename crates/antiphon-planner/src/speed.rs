//! Time of one optimizer step with its parts, what rules it, and what follows: tokens a second, MFU and HFU.

use antiphon_types::model::LayerKind;
use antiphon_types::training::{Matmul, Place, Schedule, Sharding, Task};

use crate::bottleneck::{Bottleneck, Dimension};
use crate::communication::{Network, exposed};
use crate::compute::{Computer, Passes, Times};
use crate::flops::{self, Convention};
use crate::kernels::{self, Constants, Kernels, Silicon};
use crate::offload::{self, Offloaded};
use crate::parts::Parts;
use crate::pipeline::{self, Stage};
use crate::roles;
use crate::rollout;
use crate::run::{Machine, Run};
use crate::traffic::Traffic;
use crate::update;

/// One optimizer step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Milliseconds of a step.
    pub step_ms: f64,
    /// What they are spent on: the parts sum to the whole.
    pub parts: Parts,
    /// Of the parts, what recomputation takes.
    pub recompute_ms: f64,
    /// Milliseconds that nothing could be faster than: operations over the data sheet's rate.
    pub floor_ms: f64,
    /// Tokens of a step, over all GPUs.
    pub tokens: f64,
    /// Tokens a second for each GPU.
    pub tokens_per_s_per_gpu: f64,
    /// Model operations a second for each GPU in 10^12, attention counted causal.
    pub tflops: f64,
    /// Those over the data sheet's bf16 rate.
    pub mfu: f64,
    /// The same with recomputation, and attention over all pairs.
    pub hfu: f64,
    /// Idle over all time of a pipeline stage.
    pub bubble_fraction: f64,
    /// What rules the step.
    pub bottleneck: Bottleneck,
}

/// The time of one step of a run on a machine.
#[must_use]
pub fn speed(run: &Run, machine: &Machine) -> Speed {
    speed_with(run, machine, kernels::constants())
}

/// The same with other constants than those that are compiled in.
#[must_use]
pub fn speed_with(run: &Run, machine: &Machine, constants: &Constants) -> Speed {
    Step::new(run, machine, constants).speed(machine)
}

/// Milliseconds of one block, forward and backward, for a micro-batch.
#[must_use]
pub fn block_ms(run: &Run, machine: &Machine, constants: &Constants) -> f64 {
    let step = Step::new(run, machine, constants);
    let micro = step.micro(step.blocks(), 1.0);
    1e3 * (micro.forward + micro.backward)
}

struct Step<'a> {
    run: &'a Run,
    kernels: &'a Kernels,
    silicon: &'a Silicon,
    computer: Computer<'a>,
    traffic: Traffic<'a>,
    offloaded: Offloaded,
}

/// Seconds of one micro-batch on one stage.
#[derive(Default, Clone, Copy)]
struct Micro {
    parts: Parts,
    again: f64,
    /// A forward pass of which nothing is kept.
    unkept: f64,
    forward: f64,
    backward: f64,
    weights: f64,
    /// The two passes without gathers and scatters of weights and gradients.
    ungathered: (f64, f64),
}

impl<'a> Step<'a> {
    fn new(run: &'a Run, machine: &Machine, constants: &'a Constants) -> Self {
        let kernels = constants.framework(run.profile.framework);
        let silicon = constants.architecture(&machine.gpu.architecture);
        let computer = Computer::new(run, machine, kernels, silicon);
        // Answers of a step are joined to full length: fewer micro-batches, not shorter ones.
        let each = run.accumulation as f64;
        let micro_batches = if computer.packed {
            (each * run.mean_sequence as f64 / run.sequence as f64).max(1.0)
        } else {
            each
        };
        Self {
            run,
            kernels,
            silicon,
            traffic: Traffic {
                run,
                kernels,
                network: Network::new(machine, kernels),
                tokens: computer.tokens,
                micro_batches,
            },
            offloaded: offload::offloaded(run, machine, kernels, computer.tokens),
            computer,
        }
    }

    fn speed(&self, machine: &Machine) -> Speed {
        let run = self.run;
        let (layers, head_layers) = stage_layers(run);
        let blocks = self.blocks();
        let head = self.computer.head();

        // The fullest stage sets the pace; where both are one, it has everything.
        let (pace, average) = if run.pp == 1 {
            let all = self.micro(
                blocks.times(run.model.layers as f64).and(head),
                run.model.layers as f64,
            );
            (all, all)
        } else {
            let middle = self.micro(blocks.times(layers), layers);
            let last = self.micro(blocks.times(head_layers).and(head), head_layers);
            let stages = run.pp as f64;
            let each = run.model.layers as f64 / stages;
            let average = self.micro(blocks.times(each).and(head.times(1.0 / stages)), each);
            let pace = if last.forward + last.backward > middle.forward + middle.backward {
                last
            } else {
                middle
            };
            (pace, average)
        };

        let count = self.traffic.micro_batches;
        let mut parts = pace.parts.times(count * 1e3);
        parts.bubble += 1e3
            * pipeline::bubble(
                run.schedule,
                run.pp as f64,
                run.chunks as f64,
                // All stages gather their weights at once, and once a step: no stage waits for another's.
                Stage {
                    forward: average.ungathered.0,
                    backward: average.ungathered.1,
                    weights: average.weights,
                },
            );
        parts.data += 1e3 * self.traffic.once_a_step(pace.forward, pace.backward);
        let updated = update::updated(run);
        parts.optimizer = 1e3 * self.computer.update(updated);
        parts.offload += 1e3 * self.offloaded.update;
        parts.scoring = 1e3 * count * self.reference(&pace);
        parts.rest = self.kernels.step_ms;
        let mut again = 1e3 * count * pace.again;
        let mut tokens = self.computer.tokens * run.cp as f64 * count * run.dp as f64;
        let mut gpus = run.gpus as f64;
        // Times that a token is trained on, in a step.
        let mut passes = 1.0;
        if matches!(run.task, Task::Ppo | Task::Grpo) {
            let batches = rollout::batches(run);
            passes = rollout::passes(run);
            let updates = batches * passes * rollout::trainings(run);
            parts = parts.times(updates);
            again *= updates;
            tokens *= batches;
            self.roll(&mut parts, machine, &pace, count * batches);
            gpus += roles::apart(run) as f64;
        }
        parts.jitter = parts.sum() * self.kernels.jitter * gpus.log2();

        let step_ms = parts.sum();
        let per_gpu = tokens / gpus;
        let operations = passes * flops::training(run, Convention::Causal);
        let peak = self.computer.rates.peak;
        let tflops = operations * per_gpu / step_ms / 1e9;
        let hardware = passes * flops::training(run, Convention::Hardware);
        Speed {
            step_ms,
            parts,
            recompute_ms: again,
            floor_ms: operations * per_gpu / self.fastest(machine) * 1e3,
            tokens,
            tokens_per_s_per_gpu: per_gpu / step_ms * 1e3,
            tflops,
            mfu: tflops * 1e12 / peak,
            hfu: hardware * per_gpu / step_ms * 1e3 / peak,
            bubble_fraction: parts.bubble / step_ms,
            bottleneck: self.bottleneck(&parts, tflops * 1e12 / peak * step_ms),
        }
    }

    /// Adds what a step has beside training where answers are generated.
    fn roll(&self, parts: &mut Parts, machine: &Machine, pace: &Micro, count: f64) {
        let run = self.run;
        let stages = run.pp as f64 - 1.0;
        parts.scoring = 1e3 * rollout::scoring_passes(run) * (count + stages) * pace.unkept;
        let rolled = rollout::rolled(
            run,
            machine,
            self.kernels,
            &self.traffic.network,
            self.silicon,
            self.computer.rates.product,
        );
        parts.generation = 1e3 * rolled.generation;
        if run.rollout.asynchronous {
            // Both run at once: only what the longer has more is waited for.
            let training = parts.sum() - parts.generation;
            parts.generation = (parts.generation - training).max(0.0);
        }
        parts.refit = 1e3 * rolled.refit;
    }

    /// The data sheet's rate in the run's own numbers.
    fn fastest(&self, machine: &Machine) -> f64 {
        let gpu = &machine.gpu;
        let low = match self.run.matmul {
            None => 0.0,
            Some(Matmul::Nvfp4) => gpu.fp4_tflops.max(gpu.fp8_tflops),
            Some(_) => gpu.fp8_tflops,
        };
        (low * 1e12).max(self.computer.rates.peak)
    }

    /// The average block.
    fn blocks(&self) -> Passes {
        let model = &self.run.model;
        let (dense, experts) = (model.dense_layers() as f64, model.expert_layers() as f64);
        let mut passes = Passes::default();
        if dense > 0.0 {
            passes = passes.and(self.computer.block(LayerKind::Dense).times(dense));
        }
        if experts > 0.0 {
            passes = passes.and(self.computer.block(LayerKind::Experts).times(experts));
        }
        passes.times(1.0 / model.layers as f64)
    }

    /// One micro-batch through so many layers.
    fn micro(&self, passes: Passes, layers: f64) -> Micro {
        let run = self.run;
        let expert_layers = layers * run.model.expert_layers() as f64 / run.model.layers as f64;
        let again = flops::recomputed(run);
        let (forward, backward) = (passes.forward, passes.back());

        let tensor = self.traffic.tensor() * layers;
        let mut expert = self.traffic.expert() * expert_layers;
        if matches!(run.schedule, Schedule::DualPipe | Schedule::DualPipeV) {
            // One chunk's tokens travel while the other chunk computes: what the schedule was made for (DeepSeek-V3).
            let computing = forward.gpu().min(backward.gpu());
            expert = exposed(expert, computing, self.kernels.contention);
        }
        let (around_f, around_b) =
            self.traffic
                .context(layers, passes.forward.attention, passes.backward.attention);
        let (gather_f, gather_b) = self.traffic.sharded(layers, &forward, &backward);
        let moved = if run.pp > 1 {
            self.traffic.hand_over()
        } else {
            0.0
        };

        // A gather of weights has to be started by the host, too.
        let starts = if run.sharding == Sharding::Zero3 && run.shards > 1 {
            layers * self.kernels.collective_us * 1e-6
        } else {
            0.0
        };
        let quiet = |times: &Times| times.gpu();
        let busy_f = quiet(&forward) + tensor + expert + around_f + gather_f;
        let busy_b = quiet(&backward)
            + tensor * (1.0 + again)
            + expert * (1.0 + again)
            + around_b
            + gather_b;
        let host_f = (forward.host + starts - busy_f).max(0.0);
        let host_b = (backward.host + 2.0 * starts - busy_b).max(0.0);

        // What is sent to the host hides behind the work of both passes, and behind waiting for the host to start it.
        let passing = busy_f + host_f + busy_b + host_b;
        let away = exposed(self.offloaded.activations, passing, self.kernels.contention)
            + if run.offload.parameters == Place::Gpu {
                0.0
            } else {
                exposed(self.offloaded.weights, passing, self.kernels.contention)
            };
        let parts = Parts {
            matmul: forward.product + backward.product,
            attention: forward.attention + backward.attention,
            bandwidth: forward.bandwidth + backward.bandwidth,
            host: host_f + host_b,
            tensor: tensor * (2.0 + again),
            expert: expert * (2.0 + again),
            context: around_f + around_b,
            data: gather_f + gather_b,
            pipeline: 2.0 * moved,
            offload: away,
            ..Parts::default()
        };
        Micro {
            parts,
            again: passes.again.gpu(),
            ungathered: (
                (busy_f - gather_f).max(forward.host + starts) + moved + away / 2.0,
                (busy_b - gather_b).max(backward.host + 2.0 * starts) + moved + away / 2.0,
            ),
            unkept: busy_f + host_f + moved,
            forward: busy_f + host_f + moved + away / 2.0,
            backward: busy_b + host_b + moved + away / 2.0,
            weights: (busy_b - gather_b).max(backward.host + 2.0 * starts)
                * flops::weight_share(run),
        }
    }

    /// A forward pass of the reference model for one micro-batch.
    fn reference(&self, pace: &Micro) -> f64 {
        match self.run.task {
            // Nothing of it is kept, on the host neither.
            Task::Dpo | Task::Kto => pace.unkept,
            Task::Pretrain
            | Task::Sft
            | Task::Orpo
            | Task::RewardModel
            | Task::Ppo
            | Task::Grpo => 0.0,
        }
    }

    fn bottleneck(&self, parts: &Parts, useful_ms: f64) -> Bottleneck {
        let run = self.run;
        let inside = |ranks: u64, stride: u64| {
            self.traffic
                .network
                .group(ranks as f64, stride as f64)
                .inside as u64
        };
        let across =
            |ms: f64, dimension: Dimension, ranks: u64, stride: u64| Bottleneck::Communication {
                ms,
                dimension,
                ranks,
                inside: inside(ranks, stride),
            };
        let candidates = [
            Bottleneck::Matmul {
                ms: parts.matmul,
                reached: (useful_ms / parts.matmul).min(1.0),
            },
            Bottleneck::Attention {
                ms: parts.attention,
            },
            Bottleneck::Bandwidth {
                ms: parts.bandwidth,
                compiled: run.compile,
            },
            Bottleneck::Host { ms: parts.host },
            across(parts.tensor, Dimension::Tensor, run.tp, 1),
            across(parts.data, Dimension::Data, run.dp * run.cp, run.tp),
            across(parts.context, Dimension::Context, run.cp, run.tp),
            across(parts.expert, Dimension::Expert, run.ep, 1),
            across(
                parts.pipeline,
                Dimension::Pipeline,
                run.pp,
                run.gpus / run.pp,
            ),
            Bottleneck::Bubble {
                ms: parts.bubble,
                stages: run.pp,
                micro_batches: run.accumulation,
            },
            Bottleneck::Optimizer {
                ms: parts.optimizer,
            },
            Bottleneck::Offload { ms: parts.offload },
            Bottleneck::Generation {
                ms: parts.generation,
            },
            Bottleneck::Overhead { ms: parts.rest },
        ];
        candidates
            .into_iter()
            .max_by(|a, b| a.ms().total_cmp(&b.ms()))
            .expect("there are candidates")
    }
}

/// Layers of the fullest stage without the head, and of the stage with it.
fn stage_layers(run: &Run) -> (f64, f64) {
    let (layers, stages) = (run.model.layers, run.pp);
    let slots = stages * run.chunks;
    // Where two more would divide, embedding and head stand for a layer each.
    if layers % slots != 0 && (layers + 2) % slots == 0 {
        let each = ((layers + 2) / stages) as f64;
        return (each, each - 1.0);
    }
    let most = layers.div_ceil(stages);
    (most as f64, (layers / stages) as f64)
}
