//! Random nodes, partitions and teams.

use std::collections::BTreeMap;

use antiphon_types::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// GPU types, with the memory of each GPU in GB.
const KINDS: [(&str, u64); 3] = [("H100", 80), ("A100", 40), ("L4", 24)];

/// What jobs call a slice.
pub(crate) const PROFILE: &str = "1g.10gb";

/// Two nodes in three places: leaf and spine of each.
const PLACES: [(&str, &str, &str); 4] = [
    ("s0", "l0", ""),
    ("s0", "l1", ""),
    ("s1", "l2", "d0"),
    ("", "", ""),
];

pub(crate) const PARTITIONS: [&str; 2] = ["train", "spot"];

/// The team of a number.
pub(crate) fn team_name(number: usize) -> String {
    format!("team{}", number % 4)
}

/// The GPU type or slice profile of a number.
pub(crate) fn type_name(number: usize) -> String {
    KINDS
        .get(number % 4)
        .map_or(PROFILE, |(name, _)| *name)
        .to_owned()
}

#[derive(Debug, Clone)]
pub(crate) struct ClusterPlan {
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) teams: Vec<TeamPlan>,
    pub(crate) licenses: u64,
    /// The longest that an attempt may run in the second partition.
    pub(crate) longest_s: Option<u64>,
}

/// A node: how many GPUs of which type, where it stands, and what else it has.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) gpus: u32,
    kind: usize,
    place: usize,
    partition: usize,
    memory_gib: u64,
    reads: u64,
    cut: bool,
    spare: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct TeamPlan {
    parent: Option<usize>,
    weight: u32,
    quota: Option<u32>,
    limit: Option<u32>,
    limit_of_type: Option<(usize, u32)>,
    budget_gpu_s: Option<u64>,
}

impl NodePlan {
    pub(crate) fn spec(&self, index: usize) -> NodeSpec {
        let (gpu_type, gpu_memory) = KINDS[self.kind];
        let (spine, leaf, domain) = PLACES[self.place];
        let cut = self.cut && self.gpus > 0;
        let slice = |_| Slice {
            gpu: 0,
            profile: PROFILE.into(),
            amount: GpuAmount::from_thousandths(142),
            memory: Bytes::new(10 << 30),
            device: String::new(),
        };
        NodeSpec {
            name: NodeName(format!("n{index}")),
            gpus: self.gpus,
            gpu_type: gpu_type.into(),
            gpu_memory: Bytes::new(gpu_memory << 30),
            gpus_virtual: true,
            cpus: 16,
            memory: Bytes::new(self.memory_gib << 30),
            scratch: Bytes::new(100 << 30),
            read_bandwidth: Bytes::new(self.reads << 30),
            partition: PARTITIONS[self.partition].into(),
            location: Location {
                spine: spine.into(),
                leaf: leaf.into(),
                nvlink_domain: domain.into(),
            },
            layout: GpuLayout {
                gpus_per_switch: 2,
                gpus_per_numa: 4,
            },
            slices: (0..if cut { 3 } else { 0 }).map(slice).collect(),
            gpus_lost: Vec::new(),
            spare: self.spare,
        }
    }
}

impl TeamPlan {
    fn spec(&self, index: usize) -> TeamSpec {
        let gpus = |gpus: Option<u32>| gpus.map(GpuAmount::from_gpus);
        let by_type = self.limit_of_type.iter();
        TeamSpec {
            name: team_name(index),
            parent: self
                .parent
                .filter(|_| index > 0)
                .map(|n| team_name(n % index)),
            weight: self.weight,
            quota: Amounts {
                all: gpus(self.quota),
                by_type: BTreeMap::new(),
            },
            limit: Amounts {
                all: gpus(self.limit),
                by_type: by_type
                    .map(|(kind, gpus)| (type_name(*kind), GpuAmount::from_gpus(*gpus)))
                    .collect(),
            },
            budget: self
                .budget_gpu_s
                .iter()
                .map(|s| ("*".to_owned(), GpuTime::from_gpu_millis(s * 1_000)))
                .collect(),
            rules: BTreeMap::new(),
        }
    }
}

/// The teams of a plan; what admission would refuse (a quota above its parent's) is left out.
pub(crate) fn teams(plans: &[TeamPlan]) -> Vec<TeamSpec> {
    let specs = plans
        .iter()
        .enumerate()
        .map(|(index, plan)| plan.spec(index));
    let mut specs: Vec<TeamSpec> = specs.collect();
    for index in (0..specs.len()).rev() {
        if let (Some(quota), Some(limit)) = (specs[index].quota.all, specs[index].limit.all) {
            specs[index].quota.all = Some(quota.min(limit));
        }
        let Some(parent) = specs[index].parent.clone() else {
            continue;
        };
        // What a parent promises to its parts it has itself.
        let parts = specs
            .iter()
            .filter(|part| part.parent.as_ref() == Some(&parent));
        let promised: GpuAmount = parts.filter_map(|part| part.quota.all).sum();
        let above = specs.iter_mut().find(|team| team.name == parent).unwrap();
        if let Some(quota) = above.quota.all {
            above.quota.all = Some(quota.max(promised));
            above.limit.all = above.limit.all.map(|limit| limit.max(promised));
        }
    }
    specs
}

fn node() -> impl Strategy<Value = NodePlan> {
    (
        0..=8_u32,
        0..3_usize,
        0..4_usize,
        0..2_usize,
        prop_oneof![Just(16_u64), Just(1 << 10)],
        prop_oneof![Just(0_u64), Just(4)],
        prop::bool::weighted(0.15),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(gpus, kind, place, partition, memory_gib, reads, cut, spare)| NodePlan {
                gpus,
                kind,
                place,
                partition,
                memory_gib,
                reads,
                cut,
                spare,
            },
        )
}

fn team() -> impl Strategy<Value = TeamPlan> {
    (
        option::weighted(0.5, 0..4_usize),
        1..=4_u32,
        option::weighted(0.5, 0..=12_u32),
        option::weighted(0.4, 1..=16_u32),
        option::weighted(0.2, (0..3_usize, 1..=8_u32)),
        option::weighted(0.2, 0..=20_000_u64),
    )
        .prop_map(
            |(parent, weight, quota, limit, limit_of_type, budget_gpu_s)| TeamPlan {
                parent,
                weight,
                quota,
                limit,
                limit_of_type,
                budget_gpu_s,
            },
        )
}

pub(crate) fn some_teams() -> impl Strategy<Value = Vec<TeamPlan>> {
    prop_oneof![1 => Just(Vec::new()), 2 => vec(team(), 4)]
}

pub(crate) fn cluster() -> impl Strategy<Value = ClusterPlan> {
    (
        vec(node(), 1..=6),
        some_teams(),
        0..=3_u64,
        option::weighted(0.3, 60..=7_200_u64),
    )
        .prop_map(|(nodes, teams, licenses, longest_s)| ClusterPlan {
            nodes,
            teams,
            licenses,
            longest_s,
        })
}
