//! antiphon's own cluster file, in TOML: partitions, groups of like nodes in them, and what belongs to no node.

use std::collections::BTreeMap;

use antiphon_backends::slurm::names::expand;
use antiphon_types::{
    Bytes, GPUS_PER_NODE_MAX, GpuAmount, GpuLayout, Location, Millis, NodeName, NodeSpec,
    PartitionSpec, Slice, UnitError, UsdMicros,
};
use serde::Deserialize;

use super::{Cluster, NODES_MAX};

/// Compute slices of one GPU: what a profile's first number counts.
const COMPUTE_SLICES: u64 = 7;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    partition: Vec<Partition>,
    /// What belongs to no node: file-system bandwidth, licences.
    #[serde(default)]
    shared: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partition {
    name: String,
    /// Dollars, like `2.50`.
    price_per_gpu_hour: Option<String>,
    /// In Gbit/s.
    interconnect_gbps: Option<u32>,
    /// The same as people say it: `400Gb`.
    interconnect: Option<String>,
    /// The longest that an attempt may run here.
    duration_max: Option<String>,
    /// Whether its nodes may be taken away at short notice.
    #[serde(default)]
    preemptible: bool,
    nodes: Vec<Group>,
}

/// Like nodes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// A name, or a range like `n[001-064]`.
    names: String,
    #[serde(default)]
    gpus: u32,
    gpu_type: Option<String>,
    gpu_memory: Option<String>,
    cpus: Option<u32>,
    memory: Option<String>,
    scratch: Option<String>,
    /// A second.
    read_bandwidth: Option<String>,
    /// A name, or `per 16`.
    leaf: Option<String>,
    spine: Option<String>,
    nvlink_domain: Option<String>,
    #[serde(default)]
    gpus_per_switch: u32,
    #[serde(default)]
    gpus_per_numa: u32,
    #[serde(default)]
    slices: Vec<Slices>,
    /// Whether these nodes step in only for others of the partition.
    #[serde(default)]
    spare: bool,
}

/// Like slices of one GPU.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slices {
    gpu: u32,
    /// `1g.10gb`.
    profile: String,
    #[serde(default = "one")]
    count: u32,
    memory: Option<String>,
    /// What `CUDA_VISIBLE_DEVICES` calls them.
    devices: Option<Vec<String>>,
}

const fn one() -> u32 {
    1
}

/// Reads antiphon's own form.
///
/// # Errors
/// The first thing that its writer has to change.
pub(super) fn cluster(text: &str) -> Result<Cluster, String> {
    let file: ClusterFile =
        toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut cluster = Cluster {
        resources: file.shared,
        ..Cluster::default()
    };
    let mut numbering = Numbering::default();
    for partition in &file.partition {
        let named = |known: &PartitionSpec| known.name == partition.name;
        if partition.name.is_empty() || cluster.partitions.iter().any(named) {
            return Err(format!(
                "there are two partitions `{}`: give each a name of its own, with all its nodes",
                partition.name
            ));
        }
        cluster.partitions.push(partition_spec(partition)?);
        for group in &partition.nodes {
            let names = expand(&group.names)?;
            if cluster.nodes.len() + names.len() > NODES_MAX {
                let there = cluster.nodes.len() + names.len();
                return Err(format!(
                    "it names {there} nodes up to `{}`: the limit is {NODES_MAX} in one file",
                    group.names
                ));
            }
            let like = node_like(group, &partition.name)?;
            let mut places = numbering.of(group)?;
            for name in names {
                cluster.nodes.push(NodeSpec {
                    name: NodeName(name),
                    location: places.next(),
                    ..like.clone()
                });
            }
            numbering.after(&places);
        }
    }
    Ok(cluster)
}

fn partition_spec(partition: &Partition) -> Result<PartitionSpec, String> {
    let of =
        |key: &str, error: UnitError| format!("`{key}` of partition `{}`: {error}", partition.name);
    let price = partition.price_per_gpu_hour.as_deref().map(str::parse);
    let longest = partition.duration_max.as_deref().map(str::parse);
    let said = match (&partition.interconnect, partition.interconnect_gbps) {
        (Some(_), Some(_)) => {
            return Err(format!(
                "partition `{}` has both `interconnect` and `interconnect_gbps`: give one of them",
                partition.name
            ));
        }
        (Some(text), None) => gbps(text).ok_or_else(|| {
            format!(
                "`interconnect` of partition `{}`: `{text}` is no speed of a network: give one like `400Gb`",
                partition.name
            )
        })?,
        (None, number) => number.unwrap_or(0),
    };
    Ok(PartitionSpec {
        name: partition.name.clone(),
        price_per_gpu_hour: price
            .transpose()
            .map_err(|error| of("price_per_gpu_hour", error))?
            .unwrap_or(UsdMicros::ZERO),
        interconnect_gbps: said,
        duration_max: longest
            .transpose()
            .map_err(|error| of("duration_max", error))?
            .filter(|longest| *longest > Millis::ZERO),
        preemptible: partition.preemptible,
    })
}

/// `400Gb`, `3.2Tb`, with or without `/s`.
fn gbps(text: &str) -> Option<u32> {
    let text = text.trim();
    let text = text.strip_suffix("/s").unwrap_or(text);
    let text = text.strip_suffix("ps").unwrap_or(text);
    let text = text.strip_suffix("it").unwrap_or(text);
    let (number, factor) = match text.strip_suffix("Tb") {
        Some(number) => (number, 1_000.0),
        None => (text.strip_suffix("Gb")?, 1.0),
    };
    let speed = number.trim().parse::<f64>().ok()? * factor;
    let whole = (1.0..=1e6).contains(&speed) && speed.fract() == 0.0;
    // In range by the check before.
    whole.then_some(speed as u32)
}

/// A node of a group, without its name and place.
fn node_like(group: &Group, partition: &str) -> Result<NodeSpec, String> {
    let names = &group.names;
    if group.gpus > GPUS_PER_NODE_MAX {
        return Err(format!(
            "`{names}` has {} GPUs a node: the limit is {GPUS_PER_NODE_MAX}",
            group.gpus
        ));
    }
    let size = |key: &str, text: &Option<String>, default: Bytes| match text {
        Some(text) => text
            .parse()
            .map_err(|error: UnitError| format!("`{key}` of `{names}`: {error}")),
        None => Ok(default),
    };
    let a_second = group.read_bandwidth.as_ref();
    let a_second = a_second.map(|text| text.strip_suffix("/s").unwrap_or(text).to_owned());
    let layout = [
        ("gpus_per_switch", group.gpus_per_switch),
        ("gpus_per_numa", group.gpus_per_numa),
    ];
    for (key, count) in layout {
        if count > 0 && !(group.gpus > 0 && group.gpus.is_multiple_of(count)) {
            return Err(format!(
                "`{key}` of `{names}` is {count}: it has to divide the {} GPUs of a node",
                group.gpus
            ));
        }
    }
    Ok(NodeSpec {
        gpus: group.gpus,
        gpu_type: group.gpu_type.clone().unwrap_or_else(|| "virtual".into()),
        gpu_memory: size("gpu_memory", &group.gpu_memory, Bytes::ZERO)?,
        // Nodes of a file are counted, not looked for: their GPUs need not be there.
        gpus_virtual: true,
        cpus: group.cpus.unwrap_or(64),
        memory: size("memory", &group.memory, Bytes::new(256 << 30))?,
        scratch: size("scratch", &group.scratch, Bytes::ZERO)?,
        read_bandwidth: size("read_bandwidth", &a_second, Bytes::ZERO)?,
        partition: partition.to_owned(),
        layout: GpuLayout {
            gpus_per_switch: group.gpus_per_switch,
            gpus_per_numa: group.gpus_per_numa,
        },
        slices: slices(group)?,
        spare: group.spare,
        ..NodeSpec::default()
    })
}

fn slices(group: &Group) -> Result<Vec<Slice>, String> {
    let names = &group.names;
    let mut slices: Vec<Slice> = Vec::new();
    let mut cut: BTreeMap<u32, u64> = BTreeMap::new();
    for like in &group.slices {
        let (gpu, profile, count) = (like.gpu, &like.profile, like.count);
        if gpu >= group.gpus {
            return Err(format!(
                "`slices` of `{names}`: there is no GPU {gpu}, the node has {} and they count from 0",
                group.gpus
            ));
        }
        let Some((compute, gigabytes)) = profile_parts(profile) else {
            return Err(format!(
                "`slices` of `{names}`: `{profile}` is no MIG profile: give one like `1g.10gb`, as `nvidia-smi mig -lgip` lists them"
            ));
        };
        let taken = cut.entry(gpu).or_default();
        *taken += compute * u64::from(count);
        if *taken > COMPUTE_SLICES || count == 0 {
            return Err(format!(
                "`slices` of `{names}`: GPU {gpu} would be cut into {taken} compute slices: it has {COMPUTE_SLICES}, and {count} x `{profile}` take {}",
                compute * u64::from(count)
            ));
        }
        let devices = like.devices.as_deref();
        if let Some(devices) = devices.filter(|devices| devices.len() as u64 != u64::from(count)) {
            return Err(format!(
                "`slices` of `{names}`: there are {} `devices` for {count} x `{profile}` on GPU {gpu}: give one for each",
                devices.len()
            ));
        }
        let memory = match &like.memory {
            Some(text) => text
                .parse()
                .map_err(|error| format!("`slices` of `{names}`: {error}"))?,
            None => Bytes::new(gigabytes * 1_000_000_000),
        };
        for index in 0..count {
            let of_gpu = slices.iter().filter(|slice| slice.gpu == gpu).count();
            let device = devices.and_then(|devices| devices.get(usize::try_from(index).ok()?));
            slices.push(Slice {
                gpu,
                profile: profile.clone(),
                amount: GpuAmount::from_thousandths(compute * 1_000 / COMPUTE_SLICES),
                memory,
                // Says that it is a slice, and no device that CUDA could take for a whole GPU.
                device: device
                    .cloned()
                    .unwrap_or_else(|| format!("MIG-{gpu}/{of_gpu}")),
            });
        }
    }
    Ok(slices)
}

/// `1g.10gb` to 1 compute slice and 10 gigabytes; what follows (`+me`) says nothing about either.
fn profile_parts(profile: &str) -> Option<(u64, u64)> {
    let (compute, rest) = profile.split_once("g.")?;
    let (gigabytes, _) = rest.split_once("gb")?;
    let compute = compute.parse().ok()?;
    let parts = (compute, gigabytes.parse().ok()?);
    (1..=COMPUTE_SLICES).contains(&compute).then_some(parts)
}

/// How many levels of each kind have been numbered so far: numbers go on from group to group of the file.
#[derive(Debug, Clone, Copy, Default)]
struct Numbering {
    leaf: u32,
    spine: u32,
    nvlink: u32,
}

/// The places of a group's nodes, one after the other.
struct Places {
    leaf: Level,
    spine: Level,
    nvlink: Level,
}

/// One level of the network, for the nodes of a group.
enum Level {
    /// All of them have this name; empty where nobody said.
    Named(String),
    /// So many have one each: `leaf-3`.
    Per {
        kind: &'static str,
        nodes: u32,
        number: u32,
        used: u32,
    },
}

impl Numbering {
    fn of(self, group: &Group) -> Result<Places, String> {
        let level = |kind, key: &str, text: &Option<String>, number| {
            Level::read(kind, text.as_deref(), number)
                .map_err(|why| format!("`{key}` of `{}`: {why}", group.names))
        };
        Ok(Places {
            leaf: level("leaf", "leaf", &group.leaf, self.leaf)?,
            spine: level("spine", "spine", &group.spine, self.spine)?,
            nvlink: level("nvlink", "nvlink_domain", &group.nvlink_domain, self.nvlink)?,
        })
    }

    /// Counts what a group has used.
    fn after(&mut self, places: &Places) {
        let next = |number: u32, level: &Level| match level {
            Level::Named(_) => number,
            Level::Per { number, used, .. } => number + u32::from(*used > 0),
        };
        *self = Self {
            leaf: next(self.leaf, &places.leaf),
            spine: next(self.spine, &places.spine),
            nvlink: next(self.nvlink, &places.nvlink),
        };
    }
}

impl Places {
    fn next(&mut self) -> Location {
        Location {
            spine: self.spine.next(),
            leaf: self.leaf.next(),
            nvlink_domain: self.nvlink.next(),
        }
    }
}

impl Level {
    fn read(kind: &'static str, text: Option<&str>, number: u32) -> Result<Self, String> {
        let text = text.unwrap_or_default();
        let Some(nodes) = text.strip_prefix("per ") else {
            return Ok(Self::Named(text.to_owned()));
        };
        match nodes.trim().parse() {
            Ok(0) | Err(_) => Err(format!(
                "`{text}` says for no number of nodes: give a name, or a form like `per 16`"
            )),
            Ok(nodes) => Ok(Self::Per {
                kind,
                nodes,
                number,
                used: 0,
            }),
        }
    }

    fn next(&mut self) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::Per {
                kind,
                nodes,
                number,
                used,
            } => {
                if used == nodes {
                    *number += 1;
                    *used = 0;
                }
                *used += 1;
                format!("{kind}-{number}")
            }
        }
    }
}
