//! Finds room for tasks without GPUs, which stay out of the way of those with. Takes nothing.

use std::ops::Range;

use antiphon_types::{Class, GpuAmount, JobSpec, Shape, Span};

use super::View;
use super::needs::splits;
use super::pick::{Ask, Search};
use super::role::{Found, On, Spot, field};
use crate::capacity::{Capacity, id, words};

/// Whether GPUs may lose the CPUs that they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// The CPUs that are left still serve every free GPU.
    Served,
    /// Nothing else fits.
    Stranded,
}

/// Room for tasks without GPUs: on nodes without GPUs, else on those with the fewest free.
pub(super) fn find(
    capacity: &Capacity,
    spec: &JobSpec,
    shape: &Shape,
    view: &View<'_>,
    on: On,
    kinds: &[usize],
) -> Option<Found> {
    let (tasks, each) = splits(shape, 0).next()?;
    let ask = Ask {
        shape,
        tasks,
        each,
        gpus: 0,
        joined: 1,
    };
    let apart = spec.class == Class::Service && tasks > 1;
    [Idle::Served, Idle::Stranded].into_iter().find_map(|idle| {
        kinds.iter().find_map(|&kind| {
            let field = field(capacity, kind, view, on)?;
            let waste = [0; 65];
            let search = Search {
                capacity,
                field: &field,
                ask: &ask,
                waste: &waste,
            };
            let (span, spots) = if apart {
                apart_in_kind(&search, idle)?
            } else {
                close_in_kind(&search, idle)?
            };
            Some(Found {
                kind,
                span,
                each: GpuAmount::ZERO,
                spots,
                single: None,
                sliced: false,
                growth: 0,
            })
        })
    })
}

/// All tasks on few nodes, within the smallest span.
fn close_in_kind(search: &Search<'_>, idle: Idle) -> Option<(Span, Vec<Spot>)> {
    let kind = search.field.kind;
    let tasks = search.ask.tasks;
    let whole = 0..id(kind.members.len());
    let one = first_nodes(search, &whole, idle, tasks, |room| {
        (room == tasks).then_some(tasks)
    });
    if let Some(spots) = one {
        return Some((Span::Node, spots));
    }
    if tasks == 1 {
        return None;
    }
    let wider = Span::ALL
        .into_iter()
        .filter(|span| (Span::NvlinkDomain..=search.ask.shape.span).contains(span));
    wider.into_iter().find_map(|span| {
        let mut ranges = kind.ranges(span);
        let spots = ranges.find_map(|range| first_nodes(search, &range, idle, tasks, Some))?;
        Some((span, spots))
    })
}

/// One task a node, within the widest span that is allowed; several where there are not enough nodes.
fn apart_in_kind(search: &Search<'_>, idle: Idle) -> Option<(Span, Vec<Spot>)> {
    let span = search.ask.shape.span;
    let mut ranges = search.field.kind.ranges(span);
    let spots = ranges.find_map(|range| {
        first_nodes(search, &range, idle, search.ask.tasks, |room| {
            Some(room.min(1))
        })
    });
    spots
        .map(|spots| (span, spots))
        .or_else(|| close_in_kind(search, idle))
}

/// The first nodes that hold all tasks, those with the fewest free GPUs first. `share` says how many tasks a node gets that
/// has room for so many of those left.
fn first_nodes(
    search: &Search<'_>,
    range: &Range<u32>,
    idle: Idle,
    tasks: u32,
    share: impl Fn(u32) -> Option<u32>,
) -> Option<Vec<Spot>> {
    let field = search.field;
    let mut spots = Vec::new();
    let mut left = tasks;
    for free in 0..=field.kind.gpus_max {
        for word in words(range) {
            let mut bits = field.exactly(free, word, range);
            while bits != 0 {
                let position = id(word) * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let Some(tasks) =
                    share(room(search, position, idle, free, left)).filter(|tasks| *tasks > 0)
                else {
                    continue;
                };
                spots.push(Spot { position, tasks });
                left -= tasks;
                if left == 0 {
                    spots.sort_unstable_by_key(|spot| spot.position);
                    return Some(spots);
                }
            }
        }
    }
    None
}

fn room(search: &Search<'_>, position: u32, idle: Idle, free: u32, wanted: u32) -> u32 {
    let node = search.field.kind.members[crate::capacity::at(position)];
    let fits = search.tasks_beside(node, wanted);
    match idle {
        Idle::Stranded => fits,
        // One task more strands more, never less: the most tasks that strand nothing are found from above.
        Idle::Served => (0..=fits)
            .rev()
            .find(|&tasks| search.stranded(node, free, tasks) == 0)
            .unwrap_or(0),
    }
}
