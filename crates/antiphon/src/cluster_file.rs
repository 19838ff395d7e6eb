//! The cluster file: which nodes there are, and where they stand in the network. Read for the local backend, whose nodes all
//! lie on this machine; in antiphon's own form, or as Slurm prints its nodes.

mod form;
mod scontrol;
mod topology;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use antiphon_backends::slurm::names::NAMES_MAX as NODES_MAX;
use antiphon_backends::slurm::{nodes as slurm_nodes, topology as slurm_topology};
use antiphon_types::{GPUS_PER_NODE_MAX, NodeSpec, PartitionSpec};

use crate::cli::Exit;
use crate::failure::Failure;
use crate::render::say;

/// Slurm's own name for the file beside its nodes.
const TOPOLOGY: &str = "topology.conf";

/// What a cluster file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) partitions: Vec<PartitionSpec>,
    /// What belongs to no node, and how much of it there is.
    pub(crate) resources: BTreeMap<String, u64>,
    /// What was read past, for the person at the terminal.
    warnings: Vec<String>,
}

/// Reads a cluster file, and the topology that belongs to it: the one that is given, or Slurm's beside Slurm's nodes.
pub(crate) fn read(path: &Path, topology: Option<&Path>) -> Result<Cluster, Failure> {
    let text = text(path)?;
    let slurm = slurm_nodes::is_meant(&text);
    let mut cluster = if slurm {
        scontrol::cluster(&text)
    } else {
        form::cluster(&text)
    }
    .map_err(|why| wrong(path, why, slurm))?;
    let beside = || path.parent().map(|dir| dir.join(TOPOLOGY));
    let topology = match topology {
        Some(given) => Some(given.to_owned()),
        None => beside().filter(|beside| slurm && beside.exists()),
    };
    if let Some(file) = &topology {
        let places = slurm_topology::places(&self::text(file)?);
        let places = places.map_err(|why| wrong(file, why, true))?;
        topology::apply(&places, &mut cluster);
    }
    check(&cluster).map_err(|why| wrong(path, why, slurm))?;
    for warning in &cluster.warnings {
        say(&format!("warning: {}: {warning}", path.display()));
    }
    Ok(cluster)
}

fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| wrong(path, error.to_string(), false))
}

fn wrong(path: &Path, why: String, slurm: bool) -> Failure {
    let what = format!("the cluster file `{}` cannot be used", path.display());
    let help = if slurm {
        "give what `scontrol show node` prints, and Slurm's `topology.conf` with `--topology`"
    } else {
        "give `[[partition]]` with a `name` and `nodes = [{ names = \"n[0-3]\", gpus = 8 }]`"
    };
    Failure::new(Exit::Usage, "AP0207", what)
        .why(why)
        .help(help)
}

/// What holds of every cluster, whoever described it.
fn check(cluster: &Cluster) -> Result<(), String> {
    let nodes = &cluster.nodes;
    if nodes.is_empty() {
        return Err("it names no nodes".into());
    }
    if nodes.len() > NODES_MAX {
        let there = nodes.len();
        return Err(format!(
            "it names {there} nodes: the limit is {NODES_MAX} in one file"
        ));
    }
    let mut seen = BTreeSet::new();
    for node in nodes {
        if !seen.insert(&node.name) {
            return Err(format!(
                "node `{}` stands in it twice (partition `{}`)",
                node.name, node.partition
            ));
        }
        if node.gpus > GPUS_PER_NODE_MAX {
            return Err(format!(
                "node `{}` has {} GPUs: the limit is {GPUS_PER_NODE_MAX} in one node",
                node.name, node.gpus
            ));
        }
    }
    nested(nodes)
}

/// Each NVLink domain lies under one leaf and each leaf under one spine: a span that holds a placement has one way up.
fn nested(nodes: &[NodeSpec]) -> Result<(), String> {
    let mut leaf_of: BTreeMap<&str, &str> = BTreeMap::new();
    let mut spine_of: BTreeMap<&str, &str> = BTreeMap::new();
    for node in nodes {
        let place = &node.location;
        let steps = [
            (
                &mut leaf_of,
                "NVLink domain",
                &place.nvlink_domain,
                "leaf",
                &place.leaf,
            ),
            (&mut spine_of, "leaf", &place.leaf, "spine", &place.spine),
        ];
        for (known, low, name, high, above) in steps {
            if name.is_empty() {
                continue;
            }
            let first = *known.entry(name).or_insert(above);
            if first != above {
                let shown = |name: &str| match name {
                    "" => format!("no {high}"),
                    name => format!("{high} `{name}`"),
                };
                return Err(format!(
                    "{low} `{name}` lies under {} and, by node `{}`, under {}",
                    shown(first),
                    node.name,
                    shown(above)
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
