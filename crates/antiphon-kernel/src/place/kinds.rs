//! Which kinds of node would do for a shape, and which of them is tried first. Does not look at what is free.

use antiphon_types::{GpuAmount, JobSpec, Shape};

use super::View;
use crate::capacity::{Capacity, Kind};

/// Kinds of node that would do for a shape, by place in [`Capacity::kinds`], the preferred one first.
pub(crate) fn kinds_for(
    capacity: &Capacity,
    spec: &JobSpec,
    shape: &Shape,
    view: &View<'_>,
) -> Vec<usize> {
    let kinds = capacity.kinds();
    let mut fitting: Vec<usize> = (0..kinds.len())
        .filter(|&kind| would_do(&kinds[kind], shape, view))
        .collect();
    if fitting.len() > 1 {
        fitting.sort_by_cached_key(|&kind| (reluctance(&kinds[kind], spec, shape), kind));
    }
    fitting
}

/// Kinds in order of preference, those together of which none is preferred.
pub(super) fn as_good<'a>(
    capacity: &'a Capacity,
    spec: &'a JobSpec,
    shape: &'a Shape,
    kinds: &'a [usize],
) -> impl Iterator<Item = &'a [usize]> {
    let reluctance = move |kind: usize| reluctance(&capacity.kinds()[kind], spec, shape);
    kinds.chunk_by(move |&one, &other| reluctance(one) == reluctance(other))
}

/// Whether the shape asks for slices of this kind's GPUs.
pub(crate) fn is_sliced(kind: &Kind, shape: &Shape) -> bool {
    let wanted = shape.gpu_type.as_ref();
    wanted.is_some_and(|wanted| *wanted != kind.gpu_type && kind.profiles.contains(wanted))
}

fn would_do(kind: &Kind, shape: &Shape, view: &View<'_>) -> bool {
    let here = shape
        .partition
        .as_ref()
        .is_none_or(|wanted| *wanted == kind.partition.name);
    here && in_time(kind, view) && (shape.gpus.is_zero() || has_the_gpus(kind, shape, view))
}

/// Whether the attempt would end before the partition ends it; unknown is taken for yes.
fn in_time(kind: &Kind, view: &View<'_>) -> bool {
    match (view.ends_by, kind.partition.duration_max) {
        (Some(end), Some(longest)) => end.since(view.now) <= longest,
        (None, _) | (_, None) => true,
    }
}

fn has_the_gpus(kind: &Kind, shape: &Shape, view: &View<'_>) -> bool {
    if !kind.has_gpus || !view.allowance.lets(&kind.gpu_type, shape.gpus) {
        return false;
    }
    if is_sliced(kind, shape) {
        return shape.gpus == GpuAmount::from_gpus(1);
    }
    let typed = shape
        .gpu_type
        .as_ref()
        .is_none_or(|wanted| *wanted == kind.gpu_type);
    typed && shape.gpu_memory <= kind.gpu_memory
}

/// What speaks against a kind, the gravest first; the kind with the least goes first.
///
/// Jobs without GPUs leave GPU nodes alone. What has no checkpoint is not put where nodes are taken away. A gang that needs
/// several nodes is bound by its network, and looks for the fastest; others look for the lowest price, which with a checkpoint is where
/// nodes may be taken away, and leave the larger GPUs to those who need them.
fn reluctance(kind: &Kind, spec: &JobSpec, shape: &Shape) -> impl Ord + use<> {
    let partition = &kind.partition;
    let wide = shape.gpus > GpuAmount::from_gpus(kind.gpus_max) && !is_sliced(kind, shape);
    let checkpointed = spec.checkpoint.is_some();
    (
        shape.gpus.is_zero() && kind.has_gpus,
        partition.preemptible && !checkpointed,
        wide,
        if wide {
            u32::MAX - partition.interconnect_gbps
        } else {
            0
        },
        !wide && checkpointed && !partition.preemptible,
        partition.price_per_gpu_hour,
        kind.gpu_memory,
    )
}
