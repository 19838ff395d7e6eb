//! Where a waiting job comes nearest to its room, for explanations. Places nothing.

use antiphon_types::{GpuAmount, JobSpec, Shape, Span};

use super::View;
use super::kinds::kinds_for;
use super::role::{On, field};
use crate::capacity::{Capacity, Field, at, words};

/// The node or switch of one span that has the most whole GPUs free for the job, and how many.
pub(crate) fn best_at(
    capacity: &Capacity,
    spec: &JobSpec,
    shape: &Shape,
    span: Span,
    view: &View<'_>,
) -> Option<(String, GpuAmount)> {
    let mut best: Option<(u32, String)> = None;
    for kind in kinds_for(capacity, spec, shape, view) {
        let held = field(capacity, kind, view, On::Held);
        let Some(field) = held.or_else(|| field(capacity, kind, view, On::Unheld)) else {
            continue;
        };
        let found = match span {
            Span::Node => best_node(capacity, &field),
            Span::NvlinkDomain if !field.kind.domains_wide => best_node(capacity, &field),
            Span::NvlinkDomain | Span::Leaf | Span::Spine | Span::Cluster => {
                best_range(&field, span)
            }
        };
        if let Some(found) = found
            && best.as_ref().is_none_or(|best| found.0 > best.0)
        {
            best = Some(found);
        }
    }
    best.map(|(free, name)| (name, GpuAmount::from_gpus(free)))
}

fn best_node(capacity: &Capacity, field: &Field<'_>) -> Option<(u32, String)> {
    let whole = 0..super::id(field.kind.members.len());
    (0..=field.kind.gpus_max).rev().find_map(|free| {
        words(&whole).find_map(|word| {
            let bits = field.exactly(free, word, &whole);
            let position = word * 64 + at(bits.trailing_zeros());
            (bits != 0).then(|| {
                (
                    free,
                    capacity.stand(field.kind.members[position]).name.0.clone(),
                )
            })
        })
    })
}

fn best_range(field: &Field<'_>, span: Span) -> Option<(u32, String)> {
    let level = field.kind.level(span);
    let mut best: Option<(u32, &String)> = None;
    for (row, name) in (level.row..).zip(&level.names) {
        let free = field.free_in(row);
        if best.is_none_or(|(most, _)| free > most) {
            best = Some((free, name));
        }
    }
    best.map(|(free, name)| (free, name.clone()))
}
