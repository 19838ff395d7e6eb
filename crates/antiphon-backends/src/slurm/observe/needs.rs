//! What a Slurm job asks for, as a shape of antiphon's: GPUs in all, their type, into how many tasks they are split.

use antiphon_types::{Bytes, GpuAmount, Shape, Tasks};

use super::cluster::Cluster;
use crate::slurm::inventory::gpu_type;
use crate::slurm::jobs::{OnNode, Record, gpus_of, memory};

/// What it asks for while it waits.
pub(super) fn asked(cluster: &Cluster<'_>, record: &Record<'_>, group: &str) -> Shape {
    let nodes = record.number::<u32>("NumNodes").unwrap_or(1).max(1);
    let (gpus, kind) = gpus(record, nodes);
    // With a number for the whole job alone, Slurm spreads it over as many nodes as it takes.
    let anyhow = nodes == 1 && record.get("TresPerJob").is_some();
    let cpus = record.number::<u32>("NumCPUs");
    let mut cpus = cpus.map(|cpus| cpus.div_ceil(nodes));
    if is_exclusive(record) {
        // A node of which somebody holds anything has fewer.
        let of_group = cluster
            .nodes
            .values()
            .filter(|node| node.spec.partition == group);
        cpus = of_group.map(|node| node.spec.cpus).max();
    }
    shape(
        cluster,
        group,
        kind,
        gpus,
        (!anyhow).then_some(nodes),
        cpus,
        per_node(record, cpus),
    )
}

/// What it has, where it runs.
pub(super) fn held(
    cluster: &Cluster<'_>,
    record: &Record<'_>,
    on: &[OnNode],
    group: &str,
) -> Shape {
    let gpus = on.iter().map(|node| node.gpus).sum();
    let (_, kind) = self::gpus(record, 1);
    let nodes = u32::try_from(on.len()).unwrap_or(u32::MAX);
    let cpus = on.iter().map(|node| node.cpus).max();
    let memory = on.iter().map(|node| node.memory).max();
    shape(cluster, group, kind, gpus, Some(nodes), cpus, memory)
}

/// Whether it wants its nodes for itself.
fn is_exclusive(record: &Record<'_>) -> bool {
    record.get("OverSubscribe") == Some("NO")
}

fn shape(
    cluster: &Cluster<'_>,
    group: &str,
    kind: &str,
    gpus: u32,
    nodes: Option<u32>,
    cpus: Option<u32>,
    memory: Option<Bytes>,
) -> Shape {
    // antiphon splits into equal parts alone.
    let tasks = match nodes {
        Some(nodes) if gpus.is_multiple_of(nodes.max(1)) => Tasks::Exactly(nodes.max(1)),
        Some(_) | None => Tasks::Fewest,
    };
    let config = cluster.config;
    let kind = (!kind.is_empty()).then(|| gpu_type(&config.gpu_types, config.catalog, kind).name);
    Shape {
        gpus: GpuAmount::from_gpus(gpus),
        gpu_type: kind,
        tasks,
        cpus: cpus.filter(|_| tasks != Tasks::Fewest),
        memory: Some(memory.unwrap_or(Bytes::ZERO)),
        partition: Some(group.to_owned()),
        ..Shape::default()
    }
}

/// How many GPUs it asks for in all, and of which type: from the totals where Slurm counts GPUs in them, else from what was asked
/// for by node, task or job.
fn gpus<'a>(record: &Record<'a>, nodes: u32) -> (u32, &'a str) {
    let sum = |key: &str| -> Option<(u32, &'a str)> {
        let entries = record.get(key)?.split(',').filter_map(gpus_of);
        // `gres/gpu=8,gres/gpu:h100=8` says the same twice.
        let entries: Vec<(&str, u32)> = entries.collect();
        let typed = entries.iter().filter(|(kind, _)| !kind.is_empty());
        let kind = typed.clone().map(|(kind, _)| *kind).next();
        let count = match entries.iter().find(|(kind, _)| kind.is_empty()) {
            Some((_, all)) => *all,
            None => typed.map(|(_, count)| *count).sum(),
        };
        (!entries.is_empty()).then(|| (count, kind.unwrap_or_default()))
    };
    let tasks = record.number::<u32>("NumTasks").unwrap_or(nodes);
    let by_part = [
        ("TresPerJob", 1),
        ("TresPerNode", nodes),
        ("TresPerTask", tasks),
    ];
    let mut parts = by_part.into_iter().filter_map(|(key, times)| {
        let (count, kind) = sum(key)?;
        Some((count.saturating_mul(times), kind))
    });
    let part = parts.next();
    let total = ["ReqTRES", "TRES", "AllocTRES"].into_iter().find_map(sum);
    let (count, kind) = total.or(part).unwrap_or_default();
    let kind = if kind.is_empty() {
        part.map_or("", |(_, kind)| kind)
    } else {
        kind
    };
    (count, kind)
}

fn per_node(record: &Record<'_>, cpus: Option<u32>) -> Option<Bytes> {
    if let Some(whole) = record.get("MinMemoryNode") {
        return memory(whole);
    }
    let each = memory(record.get("MinMemoryCPU")?)?;
    each.get().checked_mul(u64::from(cpus?)).map(Bytes::new)
}

/// What a job held that says no more by node: its GPUs spread evenly over them.
pub(super) fn spread(record: &Record<'_>) -> Vec<OnNode> {
    let nodes = record.node_list();
    let Ok(count @ 1..) = u32::try_from(nodes.len()) else {
        return Vec::new();
    };
    let (gpus, _) = gpus(record, count);
    let cpus = record.number::<u32>("NumCPUs").unwrap_or(0);
    let of = |all: u32, place: u32| all / count + u32::from(place < all % count);
    (0..)
        .zip(nodes)
        .map(|(place, node)| OnNode {
            node,
            cpus: of(cpus, place),
            memory: Bytes::ZERO,
            gpus: of(gpus, place),
            indices: Vec::new(),
        })
        .collect()
}
