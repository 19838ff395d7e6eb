//! Whether counting whole GPUs alone rules out that a gang fits, before anybody looks for its place: most who ask in vain ask
//! for more than there is. Says yes only where there is no place; never finds one.

use antiphon_types::{JobSpec, Shape};

use super::View;
use super::kinds::{is_sliced, kinds_for};
use super::needs::splits;
use super::role::On;
use crate::capacity::{ByFree, Capacity, NodeId};

/// Whether a job of one role is too wide for every kind of node, with `gone` GPUs more on each of them than are free. Not said
/// of shares, slices and data jobs, nor of several roles.
pub(crate) fn is_too_wide(
    capacity: &Capacity,
    spec: &JobSpec,
    view: &View<'_>,
    gone: impl Fn(NodeId) -> u32,
) -> bool {
    let [role] = spec.roles.as_slice() else {
        return false;
    };
    let mut counted: Vec<Option<ByFree>> = vec![None; capacity.kinds().len()];
    role.shapes().all(|shape| {
        is_whole(shape)
            && kinds_for(capacity, spec, shape, view)
                .into_iter()
                .all(|kind| {
                    !is_sliced(&capacity.kinds()[kind], shape)
                        && !counted[kind]
                            .get_or_insert_with(|| capacity.by_free(kind, &gone))
                            .holds(shape, capacity.kinds()[kind].gpus_max)
                })
    })
}

/// Whether a shape is too wide for a kind with its held members, where nobody has looked for those yet: counting them is cheaper
/// than making a field of them.
pub(super) fn is_too_wide_with_held(
    capacity: &Capacity,
    kind: usize,
    shape: &Shape,
    view: &View<'_>,
    on: On,
) -> bool {
    let field = capacity.field(kind);
    let looked = on == On::Unheld || view.held.is_some();
    if looked || !is_whole(shape) || is_sliced(field.kind, shape) {
        return false;
    }
    let Some(held) = capacity.held_by_free(kind, |hold| view.may_use(hold)) else {
        return true;
    };
    !fits(shape, field.kind.gpus_max, |gpus| {
        field.tasks_in(0, gpus) + held.tasks(gpus)
    })
}

fn is_whole(shape: &Shape) -> bool {
    shape.gpus.whole().is_some_and(|gpus| gpus > 0)
}

/// Whether some equal split of a shape finds as many tasks as it has, where `tasks` says how many of so many GPUs there is room
/// for.
fn fits(shape: &Shape, gpus_max: u32, tasks: impl Fn(u32) -> u32) -> bool {
    splits(shape, gpus_max).any(|(count, each)| {
        let gpus = each.whole().filter(|gpus| *gpus > 0);
        gpus.is_some_and(|gpus| tasks(gpus) >= count)
    })
}

impl ByFree {
    fn holds(&self, shape: &Shape, gpus_max: u32) -> bool {
        fits(shape, gpus_max, |gpus| self.tasks(gpus))
    }
}
