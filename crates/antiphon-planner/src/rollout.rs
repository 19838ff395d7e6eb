//! The parts of a reinforcement-learning step beside training: answers are generated, scored by models that are not trained,
//! and the new weights travel to what generates.

use antiphon_types::model::ModelShape;
use antiphon_types::training::Matmul;

use crate::communication::Network;
use crate::flops;
use crate::kernels::{Kernels, Silicon};
use crate::roles::{self, Part};
use crate::run::{Machine, Run};

/// Parts of the lengths of answers that one decode step is computed for.
const SLICES: u32 = 24;
/// Tokens of an answer where nothing is said: the length that tables of published steps have on average.
const ANSWER: u64 = 1_024;

/// Answers of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answers {
    /// How many.
    pub count: f64,
    /// Tokens of a prompt.
    pub prompt: f64,
    /// Tokens of an answer on average.
    pub mean: f64,
    /// Tokens of the longest.
    pub longest: f64,
}

/// Seconds of a step beside training.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Rolled {
    /// Prompts are read and answers generated.
    pub generation: f64,
    /// New weights reach what generates, and it wakes up.
    pub refit: f64,
}

/// The answers of a run's step.
#[must_use]
pub fn answers(run: &Run) -> Answers {
    let rollout = &run.rollout;
    let prompt = rollout
        .prompt_tokens
        .unwrap_or_else(|| (run.sequence / 8).clamp(1, 512));
    let room = run.sequence.saturating_sub(prompt).max(1);
    let mean = rollout
        .answer_tokens
        .unwrap_or_else(|| {
            if run.mean_sequence < run.sequence {
                run.mean_sequence.saturating_sub(prompt)
            } else {
                ANSWER
            }
        })
        .clamp(1, room);
    let count = match (rollout.prompts, rollout.answers) {
        (Some(prompts), answers) => prompts * answers.unwrap_or(1),
        (None, _) => run.global(),
    };
    Answers {
        count: count.max(1) as f64,
        prompt: prompt as f64,
        mean: mean as f64,
        longest: rollout.answer_tokens_max.unwrap_or(room).max(mean) as f64,
    }
}

/// Prompts of a run's step.
#[must_use]
pub fn prompts(run: &Run) -> f64 {
    let rollout = &run.rollout;
    let each = rollout.answers.unwrap_or(1).max(1) as f64;
    rollout
        .prompts
        .map_or_else(|| (answers(run).count / each).max(1.0), |some| some as f64)
}

/// Batches that a step's answers make.
#[must_use]
pub fn batches(run: &Run) -> f64 {
    (answers(run).count / run.global() as f64).max(1.0)
}

/// Times that each answer is trained on.
#[must_use]
pub fn passes(run: &Run) -> f64 {
    run.rollout.passes.unwrap_or(1).max(1) as f64
}

/// GPUs that generate: their own, or those that train.
#[must_use]
pub fn generators(run: &Run) -> f64 {
    roles::own(run, Part::Rollout).unwrap_or(run.gpus) as f64
}

/// Passes over all answers without a gradient that a step waits for, in forward passes on the GPUs that train: the old policy,
/// and where they are there the critic's values, the reference and the reward. Models on GPUs of their own work at once.
#[must_use]
pub fn scoring_passes(run: &Run) -> f64 {
    let mut here: f64 = 1.0;
    let mut longest: f64 = 0.0;
    for part in [Part::Critic, Part::Reference, Part::Reward] {
        if !roles::has(run.task, &run.rollout, part) {
            continue;
        }
        match roles::own(run, part) {
            None => here += 1.0,
            Some(gpus) => longest = longest.max(run.gpus as f64 / gpus as f64),
        }
    }
    here.max(longest)
}

/// Trainings in one update, in those of the policy: a critic of its size doubles them, unless it trains on GPUs of its own.
#[must_use]
pub fn trainings(run: &Run) -> f64 {
    if !roles::has(run.task, &run.rollout, Part::Critic) {
        return 1.0;
    }
    match roles::own(run, Part::Critic) {
        None => 2.0,
        Some(gpus) => (run.gpus as f64 / gpus as f64).max(1.0),
    }
}

/// Tensor parallelism of generation on so many GPUs.
#[must_use]
pub fn engine_tp(run: &Run, machine: &Machine, gpus: u64) -> u64 {
    let asked = run
        .rollout
        .tp
        .unwrap_or_else(|| enough(&run.model, machine));
    asked.clamp(1, gpus.max(1))
}

/// Bytes of keys and values of so many tokens, over all GPUs of an engine.
#[must_use]
pub fn cache_bytes(model: &ModelShape, tokens: f64) -> f64 {
    2.0 * (model.cache_width() * model.layers) as f64 * tokens
}

/// Generation and new weights of one step.
#[must_use]
pub fn rolled(
    run: &Run,
    machine: &Machine,
    kernels: &Kernels,
    network: &Network,
    silicon: &Silicon,
    product: f64,
) -> Rolled {
    let answers = answers(run);
    let model = &run.model;
    let gpus = generators(run);
    let tp = engine_tp(run, machine, gpus as u64) as f64;
    let engines = (gpus / tp).max(1.0);
    let engine = Engine {
        model,
        tp,
        bytes: if run.matmul.is_some_and(|numbers| numbers != Matmul::Nvfp4) {
            1.0
        } else {
            2.0
        },
        memory: machine.gpu.memory_gb_s * 1e9 * kernels.decode_memory * silicon.decode,
        product,
        fixed: kernels.decode_ms * 1e-3 + 2.0 * model.layers as f64 * hop(network, tp, model),
        room: room(model, machine, tp),
    };
    let generation = engine.read(answers.count * answers.prompt / engines)
        + engine.write(answers, answers.count / engines);
    let weights = 2.0 * model.parameters() as f64;
    // Every rank sees all weights pass by and keeps its own.
    let refit = network.gather(network.group((run.gpus as f64).max(gpus), 1.0), weights)
        * kernels.refit_passes;
    Rolled {
        generation,
        refit: refit + kernels.rollout_s,
    }
}

/// The smallest tensor parallelism that leaves half of the memory to the cache.
#[must_use]
pub fn enough(model: &ModelShape, machine: &Machine) -> u64 {
    let weights = 2.0 * model.parameters() as f64;
    let half = machine.gpu.memory_gb * 0.5e9;
    ((weights / half).ceil() as u64).next_power_of_two()
}

/// Bytes of an engine's memory that its cache may take.
fn room(model: &ModelShape, machine: &Machine, tp: f64) -> f64 {
    let all = machine.gpu.memory_gb * 0.85e9 * tp;
    (all - 2.0 * model.parameters() as f64).max(all / 10.0)
}

/// One sum over the ranks of an engine in a decode step: small, so that its latency rules.
fn hop(network: &Network, tp: f64, model: &ModelShape) -> f64 {
    network.reduce(network.group(tp, 1.0), 2.0 * model.hidden as f64 * 64.0)
}

struct Engine<'a> {
    model: &'a ModelShape,
    tp: f64,
    bytes: f64,
    memory: f64,
    product: f64,
    fixed: f64,
    room: f64,
}

impl Engine<'_> {
    /// Reads prompts: bound by products.
    fn read(&self, tokens: f64) -> f64 {
        2.0 * self.model.active_parameters() as f64 * tokens / (self.tp * self.product)
    }

    /// Writes so many answers at once. Answers end one after the other: of each 1, (1 - t/T)^k are longer than t, where T is the
    /// longest and k makes the mean right.
    fn write(&self, answers: Answers, at_once: f64) -> f64 {
        let shape = (answers.longest / answers.mean - 1.0).max(1e-6);
        let mut time = 0.0;
        for slice in 0..SLICES {
            let at = (f64::from(slice) + 0.5) / f64::from(SLICES);
            let alive = at_once * (1.0 - at).powf(shape);
            let context = answers.prompt + at * answers.longest;
            // What finds no room in the cache waits, and is written later at the same rate.
            let cache = cache_bytes(self.model, context);
            let fits = (self.room / cache).max(1.0);
            let rounds = (alive / fits).max(1.0);
            time += rounds * self.decode(alive.max(1.0).min(fits), cache);
        }
        time * answers.longest / f64::from(SLICES)
    }

    /// One token for so many answers.
    fn decode(&self, batch: f64, cache: f64) -> f64 {
        let model = self.model;
        let all = model.parameters() as f64;
        let active = model.active_parameters() as f64;
        // Experts that no answer goes to are not read.
        let touched = model.experts.map_or(all, |experts| {
            let routed = (model.expert_layers() * model.routed_experts()) as f64;
            let missed = (1.0 - experts.top_k as f64 / experts.count as f64).powf(batch);
            all - routed * missed
        });
        let moved = (touched * self.bytes + batch * cache) / (self.tp * self.memory);
        let attention = flops::attention(model, cache / (2 * model.cache_width().max(1)) as f64);
        let computed = batch * (2.0 * active + attention) / (self.tp * self.product);
        moved.max(computed) + self.fixed
    }
}
