//! What a whole run costs: GPU-hours and US dollars, at the prices of the catalog or one's own.

use antiphon_types::training::Length;

use crate::checkpoint::{self, Checkpoint, Hazards};
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
    /// Optimizer steps; steps that generate answers, where a task has them.
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
    let gpus = (run.gpus + run.rollout.gpus.unwrap_or(0)) as f64;
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

/// Steps of a run: as stated, or as its tokens or its examples fill them.
#[must_use]
pub fn steps(length: &Length, run: &Run, speed: &Speed) -> Option<f64> {
    if let Some(steps) = length.steps {
        return Some(steps as f64);
    }
    if let Some(tokens) = length.tokens {
        return Some((tokens as f64 / speed.tokens).ceil());
    }
    let examples = length.examples? as f64 * length.epochs_permille.unwrap_or(1_000) as f64 / 1e3;
    // Joined to full length, several examples make a sequence.
    let in_one = if run.packing && run.mean_sequence > 0 {
        run.sequence as f64 / run.mean_sequence as f64
    } else {
        1.0
    };
    Some((examples / (run.global() as f64 * in_one)).ceil())
}
