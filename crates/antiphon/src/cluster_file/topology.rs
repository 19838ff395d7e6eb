//! Slurm's topology put on the nodes of a cluster file.

use std::collections::BTreeMap;

use antiphon_types::Location;

use super::Cluster;

/// Puts nodes where they stand. One that no switch names keeps its place, and is said.
pub(super) fn apply(places: &BTreeMap<String, Location>, cluster: &mut Cluster) {
    let mut unknown: Vec<&str> = Vec::new();
    let there = cluster.nodes.len();
    for node in &mut cluster.nodes {
        match places.get(&node.name.0) {
            Some(place) => {
                let Location {
                    spine,
                    leaf,
                    nvlink_domain,
                } = &mut node.location;
                let levels = [
                    (spine, &place.spine),
                    (leaf, &place.leaf),
                    (nvlink_domain, &place.nvlink_domain),
                ];
                for (known, named) in levels.into_iter().filter(|(_, named)| !named.is_empty()) {
                    named.clone_into(known);
                }
            }
            None => unknown.push(&node.name.0),
        }
    }
    if let Some(first) = unknown.first() {
        cluster.warnings.push(format!(
            "the topology does not name {} of {there} nodes, the first of them `{first}`",
            unknown.len()
        ));
    }
}
