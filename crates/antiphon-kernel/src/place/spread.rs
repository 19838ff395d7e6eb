//! Spreads the tasks of a service over nodes and leaves, so that one failure takes down few. Other gangs gather.

use std::collections::BTreeMap;
use std::ops::Range;

use antiphon_types::Span;

use super::demand::Waste;
use super::pick::{Ask, Search};
use super::role::Spot;
use crate::capacity::{Capacity, Field, at, id, words};

/// Room for all tasks, at most one a node as long as there are nodes, within the widest span that the shape allows.
pub(super) fn spread(
    capacity: &Capacity,
    field: &Field<'_>,
    ask: &Ask<'_>,
    waste: &Waste,
) -> Option<(Span, Vec<Spot>)> {
    let search = Search {
        capacity,
        field,
        ask,
        waste,
    };
    let span = match ask.shape.span {
        Span::NvlinkDomain if !field.kind.domains_wide => Span::Node,
        span @ (Span::Node | Span::NvlinkDomain | Span::Leaf | Span::Spine | Span::Cluster) => span,
    };
    if span == Span::Node {
        return super::fill::gather(capacity, field, ask, waste);
    }
    let level = field.kind.level(span);
    let holds = |range: &u32| field.tasks_in(level.row + range, ask.gpus) >= ask.tasks;
    let mut ranges: Vec<u32> = (0..id(level.ranges.len())).filter(holds).collect();
    ranges.sort_by_key(|range| {
        (
            u32::MAX - field.nodes_in(level.row + range, ask.gpus),
            *range,
        )
    });
    ranges.into_iter().find_map(|range| {
        let spots = over(&search, &level.ranges[at(range)])?;
        Some((span, spots))
    })
}

/// A node that would take tasks of the service.
struct Candidate {
    position: u32,
    leaf: u32,
    tasks: u32,
}

/// One task a node in turn from every leaf, then a second one, until all are placed.
fn over(search: &Search<'_>, range: &Range<u32>) -> Option<Vec<Spot>> {
    let nodes = candidates(search, range);
    let mut spots: BTreeMap<u32, u32> = BTreeMap::new();
    let mut left = search.ask.tasks;
    let mut round = 0;
    while left > 0 {
        round += 1;
        let mut in_leaf: BTreeMap<u32, u32> = BTreeMap::new();
        let mut turns: Vec<(u32, u32, u32)> = Vec::new();
        for node in nodes.iter().filter(|node| node.tasks >= round) {
            let turn = in_leaf.entry(node.leaf).or_default();
            turns.push((*turn, node.leaf, node.position));
            *turn += 1;
        }
        if turns.is_empty() {
            return None;
        }
        turns.sort_unstable();
        for (_, _, position) in turns {
            if left > 0 {
                *spots.entry(position).or_default() += 1;
                left -= 1;
            }
        }
    }
    Some(
        spots
            .into_iter()
            .map(|(position, tasks)| Spot { position, tasks })
            .collect(),
    )
}

/// Nodes of the range with room for a task; in each leaf those first that one task breaks up the least.
fn candidates(search: &Search<'_>, range: &Range<u32>) -> Vec<Candidate> {
    let field = search.field;
    let leaves = &field.kind.level(Span::Leaf).ranges;
    let gpus = search.ask.gpus;
    let mut nodes = Vec::new();
    for free in gpus..=field.kind.gpus_max {
        let growth = search.waste[at(free - gpus)] - search.waste[at(free)];
        for word in words(range) {
            let mut bits = field.exactly(free, word, range);
            while bits != 0 {
                let position = id(word) * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let node = field.kind.members[at(position)];
                let tasks = search.tasks_beside(node, free / gpus);
                let leaf = id(leaves.partition_point(|leaf| leaf.end <= position));
                if tasks > 0 {
                    let stranded = search.stranded(node, free - gpus, 1);
                    nodes.push((
                        (growth, free, stranded, position),
                        Candidate {
                            position,
                            leaf,
                            tasks,
                        },
                    ));
                }
            }
        }
    }
    nodes.sort_unstable_by_key(|(key, _)| *key);
    nodes.into_iter().map(|(_, candidate)| candidate).collect()
}
