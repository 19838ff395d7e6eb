//! Checkpoints of a run: their bytes, how long the run stands still for one, how often one is worth it, and what failures cost
//! all the same (Young 1974, Daly 2006).

use antiphon_types::training::{Framework, Optimizer, Precision, Sharding};

use crate::run::{Machine, Run};

/// Hours that one GPU runs between stops that nobody expected: 419 of them in 54 days on 16,384 GPUs (Llama 3 report).
pub const GPU_HOURS_A_FAILURE: f64 = 51_000.0;
/// Seconds from a stop to the first step, beside reading the checkpoint: placement, processes, collectives, the first batch.
const RESTART_S: f64 = 180.0;
/// Seconds.
const MINUTE: f64 = 60.0;

/// How often a run is stopped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hazards {
    /// Failures an hour of one GPU, with its share of host and network.
    pub failures_per_gpu_hour: f64,
    /// Times an hour that others preempt the run.
    pub preemptions_per_hour: f64,
    /// Times an hour that a node of it is taken away on spot notice; 0 where it is not spot.
    pub notices_per_node_hour: f64,
}

impl Default for Hazards {
    fn default() -> Self {
        Self {
            failures_per_gpu_hour: 1.0 / GPU_HOURS_A_FAILURE,
            preemptions_per_hour: 0.0,
            notices_per_node_hour: 0.0,
        }
    }
}

/// Checkpoints of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checkpoint {
    /// Bytes of one, over all GPUs.
    pub bytes: f64,
    /// Bytes that the rank with the most writes.
    pub rank_bytes: f64,
    /// Seconds that training stands still for one.
    pub save_s: f64,
    /// Seconds until it is durable.
    pub write_s: f64,
    /// Seconds between two that lose the least time.
    pub optimum_s: f64,
    /// Seconds between two: the optimum within its limits.
    pub interval_s: f64,
    /// What the interval was limited by.
    pub limit: Limit,
    /// Seconds between two stops.
    pub between_stops_s: f64,
    /// Seconds from a stop to the first step after it.
    pub restart_s: f64,
    /// Share of all time that is lost to saving, to steps done again, and to restarts.
    pub waste: f64,
}

/// What the interval between checkpoints is limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Nothing: it is the optimum.
    None,
    /// So many minutes at most, for a run of this size.
    AtMost {
        /// The minutes.
        minutes: u64,
    },
    /// One has to be written before the next starts.
    Writing,
}

/// Checkpoints of a run on a machine.
#[must_use]
pub fn checkpoint(run: &Run, machine: &Machine, hazards: &Hazards) -> Checkpoint {
    let bytes = bytes(run);
    let gpus = run.gpus as f64;
    let nodes = (gpus / machine.node.max(1) as f64).ceil();
    let storage = machine.storage_gb_s * 1e9;
    // Without shards one rank of each replica writes, through one node for each tensor and pipeline part.
    let writers = match run.sharding {
        Sharding::None => (run.tp * run.pp * run.ep) as f64,
        Sharding::Zero1 | Sharding::Zero2 | Sharding::Zero3 => gpus,
    }
    .clamp(1.0, gpus);
    let rank_bytes = bytes / writers;
    let writing_nodes = (writers / machine.node.max(1) as f64)
        .ceil()
        .clamp(1.0, nodes);
    let write_s = bytes / (writing_nodes * storage);
    let snapshot_s = rank_bytes / (machine.gpu.pcie_gb_s.max(1.0) * 1e9);
    let save_s = if asynchronous(run.profile.framework) {
        snapshot_s
    } else {
        write_s
    };
    let between_stops_s = between_stops(gpus, nodes, hazards);
    let optimum_s = daly(save_s, between_stops_s);
    let most_minutes = at_most_minutes(run.gpus);
    let most = most_minutes as f64 * MINUTE;
    let (interval_s, limit) = if optimum_s > most {
        (
            most,
            Limit::AtMost {
                minutes: most_minutes,
            },
        )
    } else {
        (optimum_s, Limit::None)
    };
    let least = write_s.max(save_s);
    let (interval_s, limit) = if interval_s < least {
        (least, Limit::Writing)
    } else {
        (interval_s, limit)
    };
    let restart_s = RESTART_S + bytes / (nodes * storage);
    Checkpoint {
        bytes,
        rank_bytes,
        save_s,
        write_s,
        optimum_s,
        interval_s,
        limit,
        between_stops_s,
        restart_s,
        waste: waste(save_s, interval_s, restart_s, between_stops_s),
    }
}

/// Minutes between checkpoints that a run of so many GPUs may have at most: what one stop loses grows with it.
#[must_use]
pub const fn at_most_minutes(gpus: u64) -> u64 {
    match gpus {
        0..=8 => 30,
        9..=64 => 10,
        _ => 5,
    }
}

/// Bytes of a checkpoint to resume from: weights that move, their copy, and states; adapters alone where only they move.
#[must_use]
pub fn bytes(run: &Run) -> f64 {
    let parameters = run.trained.parameters as f64;
    if !run.trained.full {
        return parameters * (run.profile.adapter_bytes + state_bytes(run.optimizer, 4.0));
    }
    let (weight, copy, wide) = match run.precision {
        Precision::Pure16 => (2.0, 0.0, 2.0),
        Precision::Mixed16 => (2.0, 4.0, 4.0),
        Precision::Autocast | Precision::Full32 => (4.0, 0.0, 4.0),
    };
    parameters * (weight + copy + state_bytes(run.optimizer, wide))
}

/// Bytes that an optimizer keeps for each weight, with states of a width.
#[must_use]
pub const fn state_bytes(optimizer: Optimizer, wide: f64) -> f64 {
    match optimizer {
        Optimizer::AdamW | Optimizer::AdamWFused | Optimizer::PagedAdamW | Optimizer::Sophia => {
            2.0 * wide
        }
        // A scale for each block of 256, or of 128.
        Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit => 2.0 + 8.0 / 256.0,
        Optimizer::AdamW4bit => 1.0 + 8.0 / 128.0,
        Optimizer::Lion8bit => 1.0 + 4.0 / 256.0,
        Optimizer::Lion | Optimizer::SgdMomentum | Optimizer::Muon => wide,
        Optimizer::Prodigy => 4.0 * wide,
        // A row and a column of each matrix, or a few ranks of it: small beside its weights.
        Optimizer::Adafactor | Optimizer::Galore { .. } | Optimizer::Apollo { .. } => 0.1,
        Optimizer::Sgd | Optimizer::Lomo => 0.0,
    }
}

/// Whether a framework copies its state to the host and writes beside training.
const fn asynchronous(framework: Framework) -> bool {
    matches!(
        framework,
        Framework::Megatron
            | Framework::MegatronBridge
            | Framework::NemoRl
            | Framework::Automodel
            | Framework::Torchtitan
            | Framework::Torchtune
            | Framework::Internevo
    )
}

/// Seconds between two stops of a run.
fn between_stops(gpus: f64, nodes: f64, hazards: &Hazards) -> f64 {
    let per_hour = gpus * hazards.failures_per_gpu_hour
        + hazards.preemptions_per_hour
        + nodes * hazards.notices_per_node_hour;
    if per_hour > 0.0 {
        3_600.0 / per_hour
    } else {
        f64::INFINITY
    }
}

/// The interval that loses the least time where a checkpoint costs so much and stops come so often (Daly 2006, equation 37).
#[must_use]
pub fn daly(save_s: f64, between_stops_s: f64) -> f64 {
    let (c, m) = (save_s, between_stops_s);
    if m.is_infinite() {
        return f64::INFINITY;
    }
    if c >= 2.0 * m {
        return m;
    }
    let ratio = c / (2.0 * m);
    (2.0 * c * m).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - c
}

/// Share of time that is lost: saving, half an interval done again at each stop, and restarts.
#[must_use]
pub fn waste(save_s: f64, interval_s: f64, restart_s: f64, between_stops_s: f64) -> f64 {
    (save_s / interval_s + (interval_s / 2.0 + restart_s) / between_stops_s).min(0.99)
}
