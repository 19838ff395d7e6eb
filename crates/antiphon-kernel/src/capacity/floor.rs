//! What stays as it is between two offers of nodes: which nodes are alike and how they lie in the network. Knows nothing
//! of what is free.

use std::collections::BTreeMap;
use std::ops::Range;

use antiphon_types::{
    Bytes, GPUS_PER_NODE_MAX, GpuAmount, GpuLayout, Location, NodeName, NodeSpec, PartitionSpec,
    Span,
};

use super::{NodeId, at, id};

/// All nodes and their kinds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Floor {
    /// By [`NodeId`].
    pub(crate) nodes: Vec<Stand>,
    /// Nodes that are alike, by partition, GPU type and GPU memory.
    pub(crate) kinds: Vec<Kind>,
    /// Leaf switches of the whole cluster, unnamed ones included.
    pub(crate) leaves: usize,
}

/// What a node has in all and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stand {
    /// Its place in [`Floor::kinds`].
    pub(crate) kind: usize,
    /// Its place in [`Kind::members`].
    pub(crate) position: u32,
    /// Its rows in the kind's counts: of the whole kind, its spine, its leaf and its NVLink domain.
    pub(super) rows: [u32; 4],
    /// Its leaf switch, counted over the whole cluster.
    pub(super) leaf: u32,
    /// What tasks take parts of.
    pub(crate) size: Size,
    /// GPUs that tasks may hold whole or in shares: neither lost nor cut into slices.
    pub(crate) offered: u64,
    /// Slices that tasks may hold.
    pub(super) slices_offered: u64,
    /// How its GPUs lie to each other.
    pub(crate) layout: GpuLayout,
    /// Fast local storage.
    pub(super) scratch: Bytes,
    /// What it reads from shared storage a second; zero where nobody said, and then it is not counted.
    pub(super) read_bandwidth: Bytes,
    /// Its given name.
    pub(crate) name: NodeName,
    /// Its MIG slices.
    pub(crate) slices: Vec<Cut>,
}

/// What a node has of the things that go with its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    /// GPUs, lost and cut ones included.
    pub(crate) gpus: u32,
    /// CPUs.
    pub(crate) cpus: u32,
    /// Memory.
    pub(crate) memory: Bytes,
}

/// A MIG slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The GPU that it is cut from.
    pub(crate) gpu: u32,
    /// What jobs call it.
    pub(crate) profile: String,
    /// What part of the GPU it is.
    pub(crate) amount: GpuAmount,
    /// Its memory.
    pub(crate) memory: Bytes,
}

/// Nodes that are alike: one partition, one GPU type. A role never mixes kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The partition, with its price and its network.
    pub(crate) partition: PartitionSpec,
    /// The GPU type; empty where the nodes have none.
    pub(crate) gpu_type: String,
    /// Memory of each GPU.
    pub(crate) gpu_memory: Bytes,
    /// Whether the nodes have GPUs at all.
    pub(crate) has_gpus: bool,
    /// The most GPUs that one node hands out whole.
    pub(crate) gpus_max: u32,
    /// The nodes by spine, leaf, NVLink domain and name: neighbors in the network are neighbors here.
    pub(crate) members: Vec<NodeId>,
    /// MIG profiles that some member has.
    pub(crate) profiles: Vec<String>,
    /// Whether some NVLink domain spans nodes. Where none does, the domain is the node and has no row of its own.
    pub(crate) domains_wide: bool,
    /// The whole kind, spines, leaves, NVLink domains.
    levels: [Level; 4],
}

/// One level of the network within a kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Level {
    /// Member positions under each switch.
    pub(crate) ranges: Vec<Range<u32>>,
    /// The names of the switches; empty where they have none.
    pub(crate) names: Vec<String>,
    /// The row of the first range in the counts; the others follow.
    pub(crate) row: u32,
}

impl Kind {
    /// The ranges of one level.
    ///
    /// # Panics
    /// For nodes, which have no rows: their ranges are single positions.
    pub(crate) fn level(&self, span: Span) -> &Level {
        match span {
            Span::Cluster => &self.levels[0],
            Span::Spine => &self.levels[1],
            Span::Leaf => &self.levels[2],
            Span::NvlinkDomain => &self.levels[3],
            Span::Node => panic!("single nodes have no level of their own"),
        }
    }

    /// The ranges of member positions that a span may cover, single nodes included.
    pub(crate) fn ranges(&self, span: Span) -> impl Iterator<Item = Range<u32>> + '_ {
        let (level, nodes) = match span {
            Span::Node => (None, 0..id(self.members.len())),
            Span::NvlinkDomain | Span::Leaf | Span::Spine | Span::Cluster => {
                (Some(self.level(span)), 0..0)
            }
        };
        let ranges = level.into_iter().flat_map(|level| level.ranges.iter());
        ranges.cloned().chain(nodes.map(|node| node..node + 1))
    }

    /// Rows of counts that a member is in: its own NVLink domain only where domains span nodes.
    pub(super) const fn depth(&self) -> usize {
        if self.domains_wide { 4 } else { 3 }
    }

    /// Rows of counts in all.
    pub(super) fn rows(&self) -> usize {
        let levels = &self.levels[..self.depth()];
        levels.iter().map(|level| level.ranges.len()).sum()
    }
}

impl Size {
    /// What a node has.
    pub(crate) const fn of(spec: &NodeSpec) -> Self {
        Self {
            gpus: gpus_of(spec),
            cpus: spec.cpus,
            memory: spec.memory,
        }
    }
}

const fn gpus_of(spec: &NodeSpec) -> u32 {
    if spec.gpus < GPUS_PER_NODE_MAX {
        spec.gpus
    } else {
        GPUS_PER_NODE_MAX
    }
}

/// The lowest `count` bits.
pub(super) const fn lowest(count: u32) -> u64 {
    match 1u64.checked_shl(count) {
        Some(bit) => bit - 1,
        None => u64::MAX,
    }
}

const fn bit(index: u32) -> u64 {
    match 1u64.checked_shl(index) {
        Some(bit) => bit,
        None => 0,
    }
}

impl Floor {
    /// Sorts nodes into kinds and finds their neighbors.
    pub(super) fn build(nodes: &[NodeSpec], partitions: &BTreeMap<String, PartitionSpec>) -> Self {
        let mut alike: BTreeMap<_, Vec<NodeId>> = BTreeMap::new();
        let mut leaves: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for (node, spec) in nodes.iter().enumerate() {
            alike.entry(likeness(spec)).or_default().push(id(node));
            let next = id(leaves.len());
            let Location { spine, leaf, .. } = &spec.location;
            leaves.entry((spine, leaf)).or_insert(next);
        }
        let mut floor = Self {
            nodes: nodes.iter().map(Stand::of).collect(),
            kinds: Vec::new(),
            leaves: leaves.len(),
        };
        for (stand, spec) in floor.nodes.iter_mut().zip(nodes) {
            stand.leaf = leaves[&(&*spec.location.spine, &*spec.location.leaf)];
        }
        for members in alike.into_values() {
            floor.add_kind(nodes, members, partitions);
        }
        floor
    }

    fn add_kind(
        &mut self,
        nodes: &[NodeSpec],
        mut members: Vec<NodeId>,
        partitions: &BTreeMap<String, PartitionSpec>,
    ) {
        members.sort_by_key(|&node| (&nodes[at(node)].location, &nodes[at(node)].name));
        let specs: Vec<&NodeSpec> = members.iter().map(|&node| &nodes[at(node)]).collect();
        let first = specs[0];
        let levels = levels(&specs);
        let domains_wide = levels[3].ranges.iter().any(|range| range.len() > 1);
        let mut profiles: Vec<String> = specs
            .iter()
            .flat_map(|spec| spec.slices.iter().map(|slice| slice.profile.clone()))
            .collect();
        profiles.sort_unstable();
        profiles.dedup();
        for (position, &node) in members.iter().enumerate() {
            let stand = &mut self.nodes[at(node)];
            stand.kind = self.kinds.len();
            stand.position = id(position);
            for (row, level) in stand.rows.iter_mut().zip(&levels) {
                let place = level
                    .ranges
                    .partition_point(|range| range.end <= stand.position);
                *row = level.row + id(place);
            }
        }
        let offered = |&node: &NodeId| self.nodes[at(node)].offered.count_ones();
        self.kinds.push(Kind {
            partition: partitions
                .get(&first.partition)
                .cloned()
                .unwrap_or_else(|| PartitionSpec {
                    name: first.partition.clone(),
                    ..PartitionSpec::default()
                }),
            gpu_type: likeness(first).2.to_owned(),
            gpu_memory: first.gpu_memory,
            has_gpus: first.gpus > 0,
            gpus_max: members.iter().map(offered).max().unwrap_or(0),
            members,
            profiles,
            domains_wide,
            levels,
        });
    }
}

/// What nodes of one kind have in common: partition, whether there are GPUs, their type, their memory.
fn likeness(spec: &NodeSpec) -> (&str, bool, &str, Bytes) {
    if spec.gpus > 0 {
        (&spec.partition, true, &spec.gpu_type, spec.gpu_memory)
    } else {
        (&spec.partition, false, "", Bytes::ZERO)
    }
}

impl Stand {
    /// Whether somebody said how much it reads a second.
    pub(crate) const fn counts_reads(&self) -> bool {
        !self.read_bandwidth.is_zero()
    }

    fn of(spec: &NodeSpec) -> Self {
        let gpus = gpus_of(spec);
        let lost = spec.gpus_lost.iter().fold(0, |lost, &gpu| lost | bit(gpu));
        let cut = spec
            .slices
            .iter()
            .fold(0, |cut, slice| cut | bit(slice.gpu));
        let slices: Vec<Cut> = spec
            .slices
            .iter()
            .take(64)
            .map(|slice| Cut {
                gpu: slice.gpu,
                profile: slice.profile.clone(),
                amount: slice.amount,
                memory: slice.memory,
            })
            .collect();
        let whole = (0u32..)
            .zip(&slices)
            .filter(|(_, slice)| lost & bit(slice.gpu) == 0);
        Self {
            kind: 0,
            position: 0,
            rows: [0; 4],
            leaf: 0,
            size: Size::of(spec),
            offered: lowest(gpus) & !lost & !cut,
            slices_offered: whole.fold(0, |offered, (index, _)| offered | bit(index)),
            layout: spec.layout,
            scratch: spec.scratch,
            read_bandwidth: spec.read_bandwidth,
            name: spec.name.clone(),
            slices,
        }
    }
}

/// The levels of a kind whose members are sorted by location.
fn levels(members: &[&NodeSpec]) -> [Level; 4] {
    let place = |spec: &NodeSpec| spec.location.clone();
    let spine = |location: &Location| Location {
        spine: location.spine.clone(),
        ..Location::default()
    };
    let leaf = |location: &Location| Location {
        nvlink_domain: String::new(),
        ..location.clone()
    };
    let locations: Vec<Location> = members.iter().map(|spec| place(spec)).collect();
    let partition = members[0].partition.clone();
    let whole = |_: &Location, _: &Location| true;
    let mut levels = [
        level(&locations, whole, |_| partition.clone()),
        level(&locations, |a, b| spine(a) == spine(b), |a| a.spine.clone()),
        level(&locations, |a, b| leaf(a) == leaf(b), |a| a.leaf.clone()),
        // Without a name the node's own GPUs are its domain.
        level(
            &locations,
            |a, b| !a.nvlink_domain.is_empty() && a == b,
            |a| a.nvlink_domain.clone(),
        ),
    ];
    let mut row = 0;
    for level in &mut levels {
        level.row = row;
        row += id(level.ranges.len());
    }
    levels
}

fn level(
    locations: &[Location],
    together: impl Fn(&Location, &Location) -> bool,
    name: impl Fn(&Location) -> String,
) -> Level {
    let mut level = Level::default();
    let mut start = 0;
    for run in locations.chunk_by(|a, b| together(a, b)) {
        let end = start + id(run.len());
        level.ranges.push(start..end);
        level.names.push(name(&run[0]));
        start = end;
    }
    level
}
