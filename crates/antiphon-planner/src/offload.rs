//! Time that host memory and drives add to a step: what travels over PCIe, the update on the host, and how much of it hides.

use antiphon_types::training::{Optimizer, Place};

use crate::kernels::Kernels;
use crate::run::{Machine, Run};
use crate::update;

/// Bytes of host memory that the update of a weight moves (Ren 2021: states and copy in 32 bits, gradient and weight in 16).
const HOST_BYTES: f64 = 28.0;
/// 10^9 bytes a second of one GPU's share of a node's local drives.
const DRIVE_GB_S: f64 = 3.0;

/// Seconds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Offloaded {
    /// Gradients down, the update on the host, weights up.
    pub update: f64,
    /// Weights that travel for each micro-batch: hide behind its work.
    pub weights: f64,
    /// Activations that travel for each micro-batch, down in the forward pass and up in the backward pass.
    pub activations: f64,
}

/// What a run's offloading costs before anything hides.
#[must_use]
pub fn offloaded(run: &Run, machine: &Machine, kernels: &Kernels, tokens: f64) -> Offloaded {
    let pcie = machine.gpu.pcie_gb_s * 1e9 * kernels.link;
    let slower = |place: Place| match place {
        Place::Gpu | Place::Cpu => pcie,
        Place::Disk => pcie.min(DRIVE_GB_S * 1e9),
    };
    let mut offloaded = Offloaded::default();
    if run.offload.optimizer != Place::Gpu {
        let updated = update::updated(run);
        let states = match run.optimizer {
            Optimizer::Sgd | Optimizer::Lomo | Optimizer::Adafactor => 0.5,
            _ => 1.0,
        };
        offloaded.update =
            updated * 4.0 / pcie + updated * HOST_BYTES * states / (kernels.host_gb_s * 1e9);
        if run.offload.optimizer == Place::Disk {
            offloaded.update += updated * 24.0 / (DRIVE_GB_S * 1e9);
        }
    }
    if run.offload.parameters != Place::Gpu {
        let (dense, experts) = update::weights(run);
        let stored = update::stored_bytes(run);
        // This rank's part, for the forward and for the backward pass.
        offloaded.weights =
            2.0 * (dense + experts) * stored / run.shards as f64 / slower(run.offload.parameters);
    }
    if run.offload.activations != Place::Gpu {
        let layers = run.model.layers as f64 / run.pp as f64;
        let each = 2.0 * tokens * run.model.hidden as f64 * layers;
        offloaded.activations = 2.0 * each / slower(run.offload.activations);
    }
    offloaded
}
