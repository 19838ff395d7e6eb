//! The clusters of published comparisons, with what each fixes: rounds, costs of a start, and where its table of
//! throughputs lies. Reads no file.

use std::collections::BTreeMap;

use antiphon_types::{Bytes, Millis, NodeName, NodeSpec, PartitionSpec};

/// A cluster to simulate, and what its comparison fixes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// What it is called in reports.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<NodeSpec>,
    /// The partitions that they name.
    pub partitions: Vec<PartitionSpec>,
    /// What belongs to no node.
    pub resources: BTreeMap<String, u64>,
    /// Decisions come in rounds of this length; whenever something happens where there are none.
    pub rounds: Option<Millis>,
    /// What the first start of a job costs: its GPUs are held, nothing is done.
    pub start_cost: Millis,
    /// What every later start of a job costs.
    pub resize_cost: Millis,
    /// The same for gangs above so many GPUs.
    pub wide: Option<(u32, Millis)>,
    /// The file name, without endings, of the table of throughputs that belongs to it.
    pub table: Option<&'static str>,
}

/// The names of all presets.
pub const PRESETS: [&str; 8] = [
    "muri",
    "gavel-testbed",
    "gavel-108",
    "shockwave",
    "pollux",
    "elasticflow",
    "kalos",
    "fgd",
];

/// The preset of this name, for a workload of so many jobs: the one of Shockwave grows with them. The nodes of `fgd` lie
/// beside its trace, so it has none here.
#[must_use]
pub fn preset(name: &str, jobs: usize) -> Option<Cluster> {
    let seconds = Millis::from_secs;
    let plain = |nodes: Vec<NodeSpec>| Cluster {
        name: name.to_owned(),
        nodes,
        partitions: Vec::new(),
        resources: BTreeMap::new(),
        rounds: None,
        start_cost: Millis::ZERO,
        resize_cost: Millis::ZERO,
        wide: None,
        table: None,
    };
    let cluster = match name {
        "muri" => Cluster {
            start_cost: seconds(15),
            resize_cost: seconds(30),
            ..plain(nodes("n", 8, 8, "gpu"))
        },
        "gavel-testbed" => Cluster {
            rounds: Some(seconds(360)),
            table: Some("simulation_throughputs"),
            ..plain(three_types([2, 4, 6], 4))
        },
        "gavel-108" => Cluster {
            rounds: Some(seconds(360)),
            table: Some("simulation_throughputs"),
            ..plain(three_types([36, 36, 36], 1))
        },
        "shockwave" => {
            let (gpus, table) = match jobs {
                0..=120 => (32, "tacc_throughputs"),
                121..=220 => (64, "wisr_throughputs"),
                221..=460 => (128, "wisr_throughputs"),
                _ => (256, "wisr_throughputs"),
            };
            Cluster {
                rounds: Some(seconds(120)),
                start_cost: seconds(20),
                resize_cost: seconds(20),
                table: Some(table),
                ..plain(nodes("n", gpus / 4, 4, "v100"))
            }
        }
        "pollux" => Cluster {
            rounds: Some(seconds(60)),
            // The published simulator charges a first start as it charges every other.
            start_cost: seconds(30),
            resize_cost: seconds(30),
            ..plain(nodes("n", 16, 4, "t4"))
        },
        "elasticflow" => Cluster {
            rounds: Some(seconds(60)),
            start_cost: seconds(2),
            resize_cost: seconds(37),
            ..plain(nodes("n", 16, 4, "t4"))
        },
        "kalos" => Cluster {
            start_cost: seconds(60),
            resize_cost: seconds(60),
            wide: Some((64, seconds(120))),
            ..plain(nodes("n", 302, 8, "A100-SXM4-80GB"))
        },
        "fgd" => plain(Vec::new()),
        _ => return None,
    };
    Some(cluster)
}

fn three_types(counts: [u32; 3], gpus: u32) -> Vec<NodeSpec> {
    let types = ["v100", "p100", "k80"];
    let of_type = |(count, gpu_type): (u32, &'static str)| nodes(gpu_type, count, gpus, gpu_type);
    counts.into_iter().zip(types).flat_map(of_type).collect()
}

/// Nodes that nothing but their GPUs limits.
#[must_use]
pub fn nodes(prefix: &str, count: u32, gpus: u32, gpu_type: &str) -> Vec<NodeSpec> {
    let node = |index: u32| NodeSpec {
        name: NodeName(format!("{prefix}-{index:04}")),
        gpus,
        gpu_type: gpu_type.to_owned(),
        gpu_memory: Bytes::new(80 << 30),
        gpus_virtual: true,
        cpus: gpus * 16,
        memory: Bytes::new(u64::from(gpus) << 38),
        ..NodeSpec::default()
    };
    (0..count).map(node).collect()
}
