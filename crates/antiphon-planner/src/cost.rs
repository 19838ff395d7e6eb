//! What a whole run costs: GPU-hours and US dollars, at the prices of the catalog or one's own.

use antiphon_types::training::Length;

use crate::checkpoint::{self, Checkpoint, Hazards};
use crate::plan;
use crate::roles;
use crate::rollout;
use crate::run::{Machine, Run};
use crate::speed::Speed;

/// Seconds of all GPUs before the first step: processes, collectives, loading, compiling.
const START_S: f64 = 300.0;
/// A reserved GPU's price over the on-demand one, where no price is given: a rule of thumb of one-year commitments.
pub const RESERVED: f64 = 0.65;
/// Times an hour that a spot node is taken away, where nothing is known: a rule of thumb.
pub const SPOT_NOTICES_PER_NODE_HOUR: f64 = 0.05;

/// What a whole run costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Optimizer steps; rounds of generating and training, where a task has them.
    pub steps: f64,
    /// Tokens of all steps.
    pub tokens: f64,
    /// Hours from start to end, lost time included.
    pub hours: f64,
    /// GPU-hours of it.
    pub gpu_hours: f64,
    /// US dollars at the machine's price.
    pub on_demand_usd: f64,
    /// US dollars at a reserved price.
    pub reserved_usd: f64,
    /// US dollars on spot, with the time that notices lose; none where no price is known.
    pub spot_usd: Option<f64>,
    /// US dollars for each million tokens, at the machine's price.
    pub usd_per_million_tokens: f64,
}

/// What a run of a length costs. None where the length is not known.
#[must_use]
pub fn cost(
    run: &Run,
    machine: &Machine,
    speed: &Speed,
    length: &Length,
    saved: &Checkpoint,
) -> Option<Cost> {
    let steps = steps(length, run, speed)?;
    let gpus = (run.gpus + roles::apart(run)) as f64;
    let seconds = |waste: f64| START_S + steps * speed.step_ms / 1e3 / (1.0 - waste);
    let hours = seconds(saved.waste) / 3_600.0;
    let gpu_hours = gpus * hours;
    let on_demand_usd = gpu_hours * machine.usd_h;
    let spot_usd = (machine.gpu.spot_usd_h > 0.0).then(|| {
        let hazards = Hazards {
            notices_per_node_hour: SPOT_NOTICES_PER_NODE_HOUR,
            ..Hazards::default()
        };
        let spot = checkpoint::checkpoint(run, machine, &hazards);
        gpus * seconds(spot.waste) / 3_600.0 * machine.gpu.spot_usd_h
    });
    let tokens = steps * speed.tokens;
    Some(Cost {
        steps,
        tokens,
        hours,
        gpu_hours,
        on_demand_usd,
        reserved_usd: on_demand_usd * RESERVED,
        spot_usd,
        usd_per_million_tokens: on_demand_usd / (tokens / 1e6),
    })
}

/// Steps of a run, each as long as the planner's step: as stated, or as its tokens or its examples fill them.
#[must_use]
pub fn steps(length: &Length, run: &Run, speed: &Speed) -> Option<f64> {
    if let Some(steps) = length.steps {
        return Some(steps as f64);
    }
    if let Some(tokens) = length.tokens {
        return Some((tokens as f64 / speed.tokens).ceil());
    }
    let examples = length.examples? as f64 * length.epochs_permille.unwrap_or(1_000) as f64 / 1e3;
    Some((examples / examples_a_step(run)).ceil())
}

/// Examples that a step uses up: prompts where answers are generated, else what its sequences hold.
fn examples_a_step(run: &Run) -> f64 {
    if plan::generates(run) {
        return rollout::prompts(run);
    }
    // Joined to full length, several examples make a sequence.
    let joined = if run.packing {
        (run.sequence as f64 / run.example as f64).max(1.0)
    } else {
        1.0
    };
    run.global() as f64 * joined
}

#[cfg(test)]
mod tests {
    use antiphon_types::training::{Batch, Framework, Model, Rollout, Task, TrainingSpec};

    use super::*;
    use crate::{catalog, profile, resolve, speed};

    fn counted(change: impl Fn(&mut TrainingSpec)) -> f64 {
        let machine = Machine::usual(catalog::accelerator("h100").unwrap());
        let mut spec = TrainingSpec {
            model: Model::Named("Qwen2.5-1.5B".into()),
            framework: Some(Framework::Trl),
            batch: Batch {
                sequence_length: Some(4_096),
                micro: Some(1),
                accumulation: Some(64),
                packing: Some(false),
                ..Batch::default()
            },
            ..TrainingSpec::default()
        };
        spec.layout.gpus = Some(1);
        change(&mut spec);
        let (run, _) = resolve(&spec, &machine, profile::frameworks()).unwrap();
        let speed = speed::speed(&run, &machine);
        steps(&spec.length, &run, &speed).unwrap()
    }

    /// 512 answers to 64 prompts a step, of 1,024 tokens with their prompts, in batches of 64.
    fn answers(spec: &mut TrainingSpec, task: Task) {
        spec.task = task;
        spec.rollout = Some(Rollout {
            prompts: Some(64),
            answers: Some(8),
            prompt_tokens: Some(256),
            answer_tokens: Some(768),
            ..Rollout::default()
        });
        spec.batch.mean_length = Some(1_024);
    }

    #[test]
    fn what_is_stated_wins_then_tokens_then_examples() {
        let all = |spec: &mut TrainingSpec| {
            spec.length.steps = Some(7);
            spec.length.tokens = Some(4_096 * 64 * 9);
            spec.length.examples = Some(64 * 11);
        };
        assert!((counted(all) - 7.0).abs() < 1e-9);
        let without_steps = |spec: &mut TrainingSpec| {
            all(spec);
            spec.length.steps = None;
        };
        assert!((counted(without_steps) - 9.0).abs() < 1e-9);
        let examples = |spec: &mut TrainingSpec| {
            without_steps(spec);
            spec.length.tokens = None;
            spec.length.epochs_permille = Some(2_500);
        };
        // 27.5 steps: the last one is not full.
        assert!((counted(examples) - 28.0).abs() < 1e-9);
    }

    /// Counted by mean length and batch, a step of PPO or GRPO took one batch of the eight that its answers make.
    #[test]
    fn a_step_that_generates_holds_all_its_answers() {
        for task in [Task::Ppo, Task::Grpo] {
            let tokens = counted(|spec| {
                answers(spec, task);
                spec.length.tokens = Some(512 * 1_024 * 10);
            });
            assert!((tokens - 10.0).abs() < 1e-9, "{task:?}: {tokens}");
            // Examples are prompts: eight answers each.
            let examples = counted(|spec| {
                answers(spec, task);
                spec.length.examples = Some(64 * 10);
            });
            assert!((examples - 10.0).abs() < 1e-9, "{task:?}: {examples}");
        }
    }

    #[test]
    fn answers_that_are_joined_or_trained_on_twice_are_the_same_answers() {
        let joined = counted(|spec| {
            answers(spec, Task::Grpo);
            spec.batch.packing = Some(true);
            spec.length.tokens = Some(512 * 1_024 * 10);
        });
        assert!((joined - 10.0).abs() < 1e-9, "{joined}");
        let twice = counted(|spec| {
            answers(spec, Task::Grpo);
            spec.rollout.as_mut().unwrap().passes = Some(2);
            spec.length.tokens = Some(512 * 1_024 * 10);
        });
        assert!((twice - 10.0).abs() < 1e-9, "{twice}");
    }

    /// Counted by mean length, a packed step held a quarter of its tokens; counted by sequences, one example in each.
    #[test]
    fn a_packed_step_is_full_and_holds_several_examples() {
        let packed = |spec: &mut TrainingSpec| {
            spec.batch.packing = Some(true);
            spec.batch.mean_length = Some(1_024);
        };
        let tokens = counted(|spec| {
            packed(spec);
            spec.length.tokens = Some(4_096 * 64 * 10);
        });
        assert!((tokens - 10.0).abs() < 1e-9, "{tokens}");
        let examples = counted(|spec| {
            packed(spec);
            spec.length.examples = Some(4 * 64 * 10);
        });
        assert!((examples - 10.0).abs() < 1e-9, "{examples}");
    }

    #[test]
    fn a_pair_is_one_example_of_two_sequences() {
        let pair = |spec: &mut TrainingSpec| spec.task = Task::Dpo;
        let examples = counted(|spec| {
            pair(spec);
            spec.length.examples = Some(64 * 10);
        });
        assert!((examples - 10.0).abs() < 1e-9, "{examples}");
        let tokens = counted(|spec| {
            pair(spec);
            spec.length.tokens = Some(2 * 4_096 * 64 * 10);
        });
        assert!((tokens - 10.0).abs() < 1e-9, "{tokens}");
    }
}
