//! Idle time of pipeline stages: closed forms to search with, and in [`grid`] every pass played for the plan that is shown.

pub mod grid;

pub use grid::simulate;

use antiphon_types::training::Schedule;

/// Seconds of one micro-batch on one stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Forward pass.
    pub forward: f64,
    /// Backward pass to inputs, and to weights too where a schedule does not split it.
    pub backward: f64,
    /// Of the backward pass, what goes to weights.
    pub weights: f64,
}

/// Seconds that a stage is idle in a step, by the closed form of its schedule: fill and drain. The update waits for all stages,
/// since gradients are clipped by the norm of all: a schedule is never better than the wait of its last stage for the first pass
/// (Qi 2023 takes even that away, by updating before the norm is known and mending it afterwards).
#[must_use]
pub fn bubble(schedule: Schedule, stages: f64, chunks: f64, average: Stage) -> f64 {
    if stages <= 1.0 {
        return 0.0;
    }
    let Stage {
        forward: f,
        backward: b,
        weights: w,
    } = average;
    let gaps = stages - 1.0;
    // Where a stage has two chunks, the last one waits for passes of half a stage.
    let first = gaps * f;
    match schedule {
        Schedule::Gpipe => gaps * (f + b),
        Schedule::OneForwardOneBackward => gaps * (f + b) / chunks.max(1.0),
        // Weight gradients are put off into the gaps. `b` holds both parts.
        Schedule::ZeroBubbleH1 => (gaps * (f + b - 2.0 * w)).max(first),
        Schedule::ZeroBubbleH2 => (gaps * (f + b - 3.0 * w)).max(first),
        Schedule::ZeroBubbleV => first / 2.0,
        // One forward and one backward chunk overlap, and a backward chunk follows. Both ends feed at once, so that the stage in
        // the middle waits longest.
        Schedule::DualPipe => (stages / 2.0 - 1.0).max(0.0) * (f + 2.0 * b - 3.0 * w).max(f),
        Schedule::DualPipeV => gaps / 2.0 * (f + 2.0 * b - 3.0 * w).max(f),
    }
}
