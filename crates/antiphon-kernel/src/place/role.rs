//! Finds room for one role in one shape: kind by kind, split by split. Takes nothing.

use antiphon_types::{Class, GpuAmount, JobSpec, Processes, Shape, Span, Tasks};

use super::View;
use super::fill::gather;
use super::kinds::{as_good, is_sliced, kinds_for};
use super::needs::splits;
use super::pick::{Ask, Search, Unit, pick};
use super::spread::spread;
use super::width::is_too_wide_with_held;
use crate::capacity::{Capacity, Field};

/// Which nodes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    /// Those that nobody is to get.
    Unheld,
    /// Those as well that are held, where the hold lets the job in.
    Held,
}

/// Room for a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The kind of its nodes.
    pub(super) kind: usize,
    /// The smallest span that holds it.
    pub(super) span: Span,
    /// GPUs of each task.
    pub(super) each: GpuAmount,
    /// The nodes, in rank order.
    pub(super) spots: Vec<Spot>,
    /// The GPU that a share goes to, or the slice.
    pub(super) single: Option<u32>,
    /// Whether it is a slice.
    pub(super) sliced: bool,
    /// By how much it makes its node worse for those who come after it; zero where that was not weighed.
    pub(super) growth: i64,
}

/// Tasks on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    /// The member of the kind.
    pub(super) position: u32,
    /// How many tasks.
    pub(super) tasks: u32,
}

/// Room for a role in this shape.
pub(super) fn find(
    capacity: &Capacity,
    spec: &JobSpec,
    shape: &Shape,
    view: &View<'_>,
    on: On,
) -> Option<Found> {
    let kinds = kinds_for(capacity, spec, shape, view);
    let Some(gradient) = view.demand.gradient() else {
        return find_in(capacity, spec, shape, view, on, &kinds);
    };
    as_good(capacity, spec, shape, &kinds).find_map(|kinds| {
        super::alone::find(capacity, gradient, shape, view, on, kinds)
            .or_else(|| find_in(capacity, spec, shape, view, on, kinds))
    })
}

/// The same in some kinds, the preferred one first.
fn find_in(
    capacity: &Capacity,
    spec: &JobSpec,
    shape: &Shape,
    view: &View<'_>,
    on: On,
    kinds: &[usize],
) -> Option<Found> {
    if shape.gpus.is_zero() {
        return super::cpu_only::find(capacity, spec, shape, view, on, kinds);
    }
    kinds.iter().find_map(|&kind| {
        if is_too_wide_with_held(capacity, kind, shape, view, on) {
            return None;
        }
        let field = field(capacity, kind, view, on)?;
        if is_sliced(field.kind, shape) {
            find_slice(capacity, kind, &field, shape, view)
        } else if shape.gpus.whole().is_some() {
            find_whole(capacity, kind, &field, spec, shape, view)
        } else {
            find_share(capacity, kind, &field, shape, view)
        }
    })
}

/// The members of a kind that are looked at.
pub(super) fn field<'a>(
    capacity: &'a Capacity,
    kind: usize,
    view: &View<'a>,
    on: On,
) -> Option<Field<'a>> {
    match on {
        On::Unheld => Some(capacity.field(kind)),
        On::Held => match view.held {
            Some(fields) => capacity.field_of(fields, kind),
            None => capacity.field_with_held(kind, |hold| view.may_use(hold)),
        },
    }
}

/// Whole GPUs: the fewest tasks first, and for each split the smallest span.
fn find_whole(
    capacity: &Capacity,
    kind: usize,
    field: &Field<'_>,
    spec: &JobSpec,
    shape: &Shape,
    view: &View<'_>,
) -> Option<Found> {
    if u64::from(field.free_in(0)) * 1_000 < shape.gpus.thousandths() {
        return None;
    }
    let mut waste = None;
    splits(shape, field.kind.gpus_max).find_map(|(tasks, each)| {
        let gpus = each.whole()?;
        let joined = tasks_joined(shape.tensor_parallel, tasks, gpus)?;
        if field.tasks_in(0, gpus) < tasks {
            return None;
        }
        let waste = waste.get_or_insert_with(|| view.demand.waste(field.kind.gpus_max));
        let ask = Ask {
            shape,
            tasks,
            each,
            gpus,
            joined,
        };
        let spread_out = spec.class == Class::Service && tasks > 1 && joined == 1;
        let (span, spots) = if spread_out {
            spread(capacity, field, &ask, waste)?
        } else {
            gather(capacity, field, &ask, waste)?
        };
        // Where one node holds all of a job, it holds it as one task: CPUs rounded down must not cut it up.
        if shape.tasks == Tasks::Fewest
            && shape.processes == Processes::PerNode
            && (tasks > 1 && spots.len() == 1)
        {
            return None;
        }
        Some(Found {
            kind,
            span,
            each,
            spots,
            single: None,
            sliced: false,
            growth: 0,
        })
    })
}

/// How many tasks in a row have to share an NVLink domain; nothing where the split cuts a tensor-parallel group apart.
fn tasks_joined(tensor_parallel: u32, tasks: u32, gpus: u32) -> Option<u32> {
    if tensor_parallel <= gpus {
        return (tensor_parallel == 0 || gpus.is_multiple_of(tensor_parallel)).then_some(1);
    }
    let joined = tensor_parallel / gpus;
    (joined * gpus == tensor_parallel && tasks.is_multiple_of(joined)).then_some(joined)
}

/// A share goes to the GPU that it fills best, so that whole ones stay whole.
fn find_share(
    capacity: &Capacity,
    kind: usize,
    field: &Field<'_>,
    shape: &Shape,
    view: &View<'_>,
) -> Option<Found> {
    let each = shape.gpus;
    let waste = view.demand.waste(field.kind.gpus_max);
    let ask = Ask {
        shape,
        tasks: 1,
        each,
        gpus: 1,
        joined: 1,
    };
    let search = Search {
        capacity,
        field,
        ask: &ask,
        waste: &waste,
    };
    let started = capacity.parts().iter().filter(|part| {
        let stand = capacity.stand(part.node);
        stand.kind == kind
            && part.free >= each
            && stand.offered >> part.gpu & 1 == 1
            && field.is_usable(stand.position)
            && search.tasks_beside(part.node, 1) == 1
    });
    let position = |node| capacity.stand(node).position;
    let found = |position, single| Found {
        kind,
        span: Span::Node,
        each,
        spots: vec![Spot { position, tasks: 1 }],
        single,
        sliced: false,
        growth: 0,
    };
    if let Some(part) = started.min_by_key(|part| (part.free, position(part.node), part.gpu)) {
        return Some(found(position(part.node), Some(part.gpu)));
    }
    let whole = 0..crate::capacity::id(field.kind.members.len());
    let unit = Unit { tasks: 1, gpus: 1 };
    pick(&search, &whole, &[], unit, 1, 1).map(|spot| found(spot.position, None))
}

/// One slice, on the GPU and the node that are cut up the most already.
fn find_slice(
    capacity: &Capacity,
    kind: usize,
    field: &Field<'_>,
    shape: &Shape,
    view: &View<'_>,
) -> Option<Found> {
    let profile = shape.gpu_type.as_ref()?;
    let mut best = None;
    for (position, &node) in (0u32..).zip(&field.kind.members) {
        let stand = capacity.stand(node);
        let free = capacity.room(node).slices;
        // Whoever waits for whole GPUs of a node has no use for its slices.
        let held = capacity.is_open(node)
            && capacity
                .hold_on(node)
                .is_some_and(|hold| hold.job.is_some() && view.is_over_before_it_closes(hold));
        if free == 0 || !held && !field.is_usable(position) {
            continue;
        }
        let is_free = |index: u32| free >> index & 1 == 1;
        let of_gpu = |gpu| {
            let slices = (0u32..).zip(&stand.slices);
            slices
                .filter(|(index, slice)| is_free(*index) && slice.gpu == gpu)
                .count()
        };
        for (index, slice) in (0u32..).zip(&stand.slices) {
            let fits = slice.profile == *profile && shape.gpu_memory <= slice.memory;
            if !fits || !is_free(index) {
                continue;
            }
            let ask = Ask {
                shape,
                tasks: 1,
                each: slice.amount,
                gpus: 0,
                joined: 1,
            };
            let waste = [0; 65];
            let search = Search {
                capacity,
                field,
                ask: &ask,
                waste: &waste,
            };
            let key = (of_gpu(slice.gpu), free.count_ones(), position, index);
            let better = best.as_ref().is_none_or(|(best, _)| key < *best);
            if better && search.tasks_beside(node, 1) == 1 {
                best = Some((key, slice.amount));
            }
        }
    }
    best.map(|((_, _, position, index), each)| Found {
        kind,
        span: Span::Node,
        each,
        spots: vec![Spot { position, tasks: 1 }],
        single: Some(index),
        sliced: true,
        growth: 0,
    })
}
