//! Nodes and partitions as they are observed. In Slurm partitions may share nodes, in antiphon a node has one: those that
//! share any are taken for one here, and which of them a job may really use is kept beside it.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::PartitionSpec;

use super::ObserverConfig;
use crate::observe::{SeenNode, Service};
use crate::slurm::inventory::gpu_type;
use crate::slurm::nodes::SlurmNode;
use crate::slurm::partitions::SlurmPartition;
use crate::slurm::{SlurmError, nodes, partitions, topology};

/// Names of partitions that are put together into one at most; more are counted.
const NAMES_MAX: usize = 3;

/// Words of a node's state that say that it is not there.
const AWAY: [&str; 7] = [
    "DOWN",
    "ERROR",
    "FAIL",
    "FUTURE",
    "INVAL",
    "NOT_RESPONDING",
    "UNKNOWN",
];

/// What there is to run on.
pub(super) struct Cluster<'a> {
    pub(super) config: &'a ObserverConfig,
    pub(super) nodes: BTreeMap<String, SeenNode>,
    /// The partitions as antiphon counts them.
    pub(super) groups: Vec<PartitionSpec>,
    /// Slurm's own that are looked at, each with the one that it counts to.
    pub(super) partitions: BTreeMap<String, (SlurmPartition, String)>,
}

impl<'a> Cluster<'a> {
    pub(super) fn read(
        config: &'a ObserverConfig,
        nodes: &str,
        partitions: &str,
        places: &str,
    ) -> Result<Self, SlurmError> {
        let unreadable = |error: String| SlurmError::Unreadable {
            program: "scontrol",
            error,
        };
        let mut known = partitions::parse(partitions).map_err(unreadable)?;
        let names = |known: &[SlurmPartition]| -> Vec<String> {
            known.iter().map(|one| one.spec.name.clone()).collect()
        };
        let there = names(&known);
        if let Some(name) = config.partitions.iter().find(|name| !there.contains(name)) {
            return Err(SlurmError::NoPartition {
                name: name.clone(),
                there: there.join(", "),
            });
        }
        if !config.partitions.is_empty() {
            known.retain(|one| config.partitions.contains(&one.spec.name));
        }
        let looked_at = names(&known);
        let places = topology::places(places).map_err(unreadable)?;
        let mut all = nodes::parse(nodes).map_err(unreadable)?;
        for node in &mut all {
            node.partitions.retain(|name| looked_at.contains(name));
        }
        all.retain(|node| !node.partitions.is_empty());
        let group_of = groups(&looked_at, &all);
        let up = |name: &String| known.iter().any(|one| one.up && one.spec.name == *name);
        let nodes = all.iter().map(|node| {
            let mut seen = seen(config, node, node.partitions.iter().any(up));
            seen.spec
                .partition
                .clone_from(&group_of[&node.partitions[0]]);
            if let Some(place) = places.get(&node.spec.name.0) {
                seen.spec.location = place.clone();
            }
            (node.spec.name.0.clone(), seen)
        });
        Ok(Self {
            config,
            nodes: nodes.collect(),
            groups: put_together(&known, &group_of),
            partitions: known
                .into_iter()
                .map(|one| {
                    let name = one.spec.name.clone();
                    let group = group_of[&name].clone();
                    (name, (one, group))
                })
                .collect(),
        })
    }
}

fn seen(config: &ObserverConfig, node: &SlurmNode, any_up: bool) -> SeenNode {
    let kind = gpu_type(&config.gpu_types, config.catalog, &node.spec.gpu_type);
    let mut spec = node.spec.clone();
    spec.gpu_type = kind.name;
    spec.gpu_memory = kind.memory;
    let mut said = node.state.to_lowercase();
    if !node.reason.is_empty() {
        said = format!("{said}: {}", node.reason);
    }
    let starred = node.state.ends_with('*');
    let away = starred || AWAY.iter().any(|word| node.state.contains(word));
    let service = match (node.in_service, away) {
        (true, _) if any_up => Service::In,
        (true, _) => Service::Drained("its partition starts no jobs".into()),
        (false, true) => Service::Down(said),
        (false, false) => Service::Drained(said),
    };
    SeenNode {
        spec,
        partitions: node.partitions.clone(),
        service,
    }
}

/// The name of the group that each partition is in: partitions that share a node are in one.
fn groups(names: &[String], nodes: &[SlurmNode]) -> BTreeMap<String, String> {
    let mut group: BTreeMap<&str, usize> = (0..)
        .zip(names)
        .map(|(place, name)| (name.as_str(), place))
        .collect();
    for node in nodes {
        let of_node = || node.partitions.iter().map(|name| group[name.as_str()]);
        let together: BTreeSet<usize> = of_node().collect();
        let Some(first) = together.first().copied() else {
            continue;
        };
        if together.len() > 1 {
            for place in group.values_mut() {
                if together.contains(place) {
                    *place = first;
                }
            }
        }
    }
    let named = |place: usize| {
        let members: Vec<&str> = names
            .iter()
            .map(String::as_str)
            .filter(|name| group[name] == place)
            .collect();
        match members.as_slice() {
            [first, others @ ..] if others.len() >= NAMES_MAX => {
                format!("{first}+{}", others.len())
            }
            few => few.join("+"),
        }
    };
    names
        .iter()
        .map(|name| (name.clone(), named(group[name.as_str()])))
        .collect()
}

/// What antiphon keeps of each group: the longest limit, and nodes that may be taken away only where all say so.
fn put_together(
    known: &[SlurmPartition],
    group_of: &BTreeMap<String, String>,
) -> Vec<PartitionSpec> {
    let mut groups: BTreeMap<&str, PartitionSpec> = BTreeMap::new();
    for one in known {
        let name = group_of[&one.spec.name].as_str();
        match groups.get_mut(name) {
            None => {
                let mut spec = one.spec.clone();
                name.clone_into(&mut spec.name);
                groups.insert(name, spec);
            }
            Some(group) => {
                let limits = (group.duration_max, one.spec.duration_max);
                group.duration_max = match limits {
                    (Some(one), Some(other)) => Some(one.max(other)),
                    (None, _) | (_, None) => None,
                };
                group.preemptible &= one.spec.preemptible;
            }
        }
    }
    groups.into_values().collect()
}
