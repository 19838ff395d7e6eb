//! GPU types under the names that a job uses for them: `h100` finds what the cluster calls `H100-SXM-80GB`. Which names mean the same is
//! the planner's catalog; whether there is such a GPU at all is the kernel's question.

use antiphon_kernel::State;
use antiphon_planner::catalog;
use antiphon_types::{JobSpec, Role, Shape};

/// Other shapes that a role may have.
const ALTERNATIVES_MAX: usize = 16;

/// Puts the cluster's own names in place of a job's. Where a name may be several types on offer, each becomes a shape, the usual first;
/// where it is none, it stays, and the kernel says what there is.
pub(crate) fn resolve(state: &State, spec: &mut JobSpec) {
    let asked = spec.roles.iter().flat_map(shapes);
    if asked
        .filter_map(|shape| shape.gpu_type.as_ref())
        .next()
        .is_none()
    {
        return;
    }
    let nodes = state.nodes().map(|node| &node.spec);
    let names = nodes.flat_map(|node| {
        let whole = (node.gpus > 0).then_some(node.gpu_type.as_str());
        let slices = node.slices.iter().map(|slice| slice.profile.as_str());
        whole.into_iter().chain(slices)
    });
    let offer: std::collections::BTreeSet<&str> = names.collect();
    for role in &mut spec.roles {
        in_words_of(&offer, role);
    }
}

fn shapes(role: &Role) -> impl Iterator<Item = &Shape> {
    std::iter::once(&role.shape).chain(&role.alternatives)
}

fn in_words_of(offer: &std::collections::BTreeSet<&str>, role: &mut Role) {
    let mut all: Vec<Shape> = Vec::new();
    for shape in shapes(role) {
        let found = match &shape.gpu_type {
            Some(name) => catalog::offered(name, offer.iter().copied()),
            None => Vec::new(),
        };
        if found.is_empty() {
            all.push(shape.clone());
        }
        for name in found {
            all.push(Shape {
                gpu_type: Some(name.to_owned()),
                ..shape.clone()
            });
        }
    }
    role.shape = all.remove(0);
    let given = role.alternatives.len();
    all.truncate(given.max(ALTERNATIVES_MAX));
    role.alternatives = all;
}
