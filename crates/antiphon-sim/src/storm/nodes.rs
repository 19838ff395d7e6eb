//! The nodes as they really are: which are offered, which GPUs are broken, and whether what runs fits on them.

use std::collections::BTreeMap;

use antiphon_types::{
    Bytes, Command, GpuAmount, GpuLayout, Location, Millis, NodeName, NodeSpec, Observation,
    PartitionSpec, Slice, TaskAllocation, UsdMicros,
};

use super::draw::Draw;
use super::processes::Living;
use super::server::Input;
use super::{AttemptId, Checked, Fault, Storm, must};

/// GPU types, with the memory of each GPU in GB.
const KINDS: [(&str, u64); 3] = [("H100", 80), ("A100", 40), ("L4", 24)];

/// What jobs call a slice.
pub(super) const PROFILE: &str = "1g.10gb";

/// Spine, leaf and NVLink domain.
const PLACES: [(&str, &str, &str); 4] = [
    ("s0", "l0", ""),
    ("s0", "l1", ""),
    ("s1", "l2", "d0"),
    ("", "", ""),
];

pub(super) const PARTITIONS: [&str; 2] = ["train", "spot"];

/// What belongs to no node.
pub(super) const LICENSE: &str = "license";

/// All nodes.
pub(super) struct Machines {
    /// As they are when nothing is wrong with them.
    pub(super) specs: Vec<NodeSpec>,
    partitions: Vec<PartitionSpec>,
    resources: BTreeMap<String, u64>,
    /// By node: whether it is down, and its broken GPUs.
    wrong: BTreeMap<NodeName, (bool, Vec<u32>)>,
}

/// The name of a GPU type, or of a slice.
pub(super) fn type_name(number: u64) -> String {
    let kind = usize::try_from(number).ok();
    let kind = kind.and_then(|kind| KINDS.get(kind));
    kind.map_or(PROFILE, |(name, _)| *name).to_owned()
}

impl Machines {
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let count = draw.between(2, 10);
        let specs = (0..count).map(|index| node(draw, index)).collect();
        let longest = draw.one_in(3).then(|| draw.between(600, 7_200));
        let partition = |name: &str, preemptible, duration_max| PartitionSpec {
            name: name.into(),
            price_per_gpu_hour: UsdMicros::from_micros(2_000_000),
            interconnect_gbps: if preemptible { 100 } else { 400 },
            duration_max,
            preemptible,
        };
        Self {
            specs,
            partitions: vec![
                partition(PARTITIONS[0], false, None),
                partition(PARTITIONS[1], true, longest.map(Millis::from_secs)),
            ],
            resources: BTreeMap::from([(LICENSE.to_owned(), draw.below(4))]),
            wrong: BTreeMap::new(),
        }
    }

    /// Whether nothing is wrong with any node.
    pub(super) fn is_whole(&self) -> bool {
        self.wrong.is_empty()
    }

    /// What the backend offers now.
    fn inventory(&self) -> Observation {
        let offered = |spec: &NodeSpec| {
            let mut spec = spec.clone();
            if let Some((down, lost)) = self.wrong.get(&spec.name) {
                if *down {
                    return None;
                }
                spec.gpus_lost.clone_from(lost);
            }
            Some(spec)
        };
        Observation::Inventory {
            nodes: self.specs.iter().filter_map(offered).collect(),
            partitions: self.partitions.clone(),
            resources: self.resources.clone(),
        }
    }
}

fn node(draw: &mut Draw, index: u64) -> NodeSpec {
    let (gpu_type, gpu_memory) = draw.pick(&KINDS).expect("three kinds");
    let (spine, leaf, domain) = draw.pick(&PLACES).expect("four places");
    let gpus = if draw.one_in(8) { draw.count(0, 7) } else { 8 };
    let cut = draw.one_in(8) && gpus > 0;
    let slice = |_| Slice {
        gpu: 0,
        profile: PROFILE.into(),
        amount: GpuAmount::from_thousandths(142),
        memory: Bytes::new(10 << 30),
        device: String::new(),
    };
    let partition = usize::from(draw.one_in(4));
    NodeSpec {
        name: NodeName(format!("n{index}")),
        gpus,
        gpu_type: gpu_type.into(),
        gpu_memory: Bytes::new(gpu_memory << 30),
        gpus_virtual: true,
        cpus: draw.count(16, 64),
        memory: Bytes::new(draw.between(64, 1_024) << 30),
        scratch: Bytes::new(100 << 30),
        read_bandwidth: Bytes::new(draw.below(2) << 32),
        partition: PARTITIONS[partition].into(),
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
        spare: draw.one_in(12),
    }
}

impl Storm {
    /// The backend says what it offers.
    pub(super) fn offer(&mut self) -> Checked {
        let inventory = self.machines.inventory();
        self.turn(vec![Input::Observation(inventory)])
    }

    fn any_node(&mut self) -> NodeName {
        let specs = &self.machines.specs;
        self.draw.pick(specs).expect("a cluster has nodes").name
    }

    /// A node goes away. Half of the time what runs there dies with it, at the latest when it comes back.
    pub(super) fn lose_node(&mut self) -> Checked {
        let node = self.any_node();
        self.machines.wrong.entry(node.clone()).or_default().0 = true;
        self.strike(Fault::NodeDown);
        if self.draw.one_in(2) {
            self.die_with(&node);
        }
        self.offer()
    }

    /// A GPU breaks; what holds it runs on until it finds out.
    pub(super) fn lose_gpu(&mut self) -> Checked {
        let node = self.any_node();
        let gpu = self.draw.count(0, 7);
        let gpus = self.machines.specs.iter().find(|spec| spec.name == node);
        if gpus.is_none_or(|spec| gpu >= spec.gpus) {
            return Ok(());
        }
        let lost = &mut self.machines.wrong.entry(node).or_default().1;
        if !lost.contains(&gpu) {
            lost.push(gpu);
            lost.sort_unstable();
        }
        self.strike(Fault::GpuLost);
        self.offer()
    }

    /// Some of what is wrong is repaired.
    pub(super) fn repair_node(&mut self) -> Checked {
        let wrong: Vec<NodeName> = self.machines.wrong.keys().cloned().collect();
        let Some(node) = self.draw.pick(&wrong) else {
            return Ok(());
        };
        self.machines.wrong.remove(&node);
        self.offer()
    }

    /// Somebody has looked at a node that takes nothing, and gives it back.
    pub(super) fn clear_node(&mut self) -> Checked {
        let drained: Vec<NodeName> = self.promises.drained.iter().cloned().collect();
        match self.draw.pick(&drained) {
            Some(node) => self.ask(Command::Undrain { node }),
            None => Ok(()),
        }
    }

    /// All of it is.
    pub(super) fn repair_all(&mut self) -> Checked {
        self.machines.wrong.clear();
        self.offer()
    }

    /// All that really lives, and what is about to start, is no more than there is.
    pub(super) fn fits_what_runs(&self, attempt: AttemptId, starts: &Living) -> Checked {
        let living = self.processes.values().filter(|living| !living.is_gone());
        let all: Vec<&Living> = living.chain([starts]).collect();
        for spec in &self.machines.specs {
            let here = |task: &&TaskAllocation| task.node == spec.name;
            if !starts.allocation.tasks.iter().any(|task| here(&task)) {
                continue;
            }
            let tasks = all.iter().flat_map(|living| living.allocation.tasks.iter());
            let over = over(spec, tasks.filter(here));
            must(over.is_none(), || {
                let over = over.unwrap_or_default();
                format!(
                    "{attempt} starts on {}: {over} held twice by what runs",
                    spec.name
                )
            })?;
        }
        let license = |living: &Living| living.resources.get(LICENSE).copied().unwrap_or(0);
        let there = self.machines.resources[LICENSE];
        let taken: u64 = all.iter().map(|living| license(living)).sum();
        must(license(starts) == 0 || taken <= there, || {
            format!("{attempt} takes `{LICENSE}` beyond {there}")
        })
    }
}

/// What tasks hold of a node beyond what it has.
fn over<'a>(spec: &NodeSpec, tasks: impl Iterator<Item = &'a TaskAllocation>) -> Option<String> {
    let mut gpus: BTreeMap<u32, u64> = BTreeMap::new();
    let mut slices: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut cpus, mut memory, mut scratch, mut reads) = (0, 0, 0, 0);
    for task in tasks {
        for gpu in &task.gpus {
            if task.sliced {
                *slices.entry(*gpu).or_default() += 1;
            } else {
                *gpus.entry(*gpu).or_default() += task.gpu_share.thousandths();
            }
        }
        cpus += task.cpus;
        memory += task.memory.get();
        scratch += task.scratch.get();
        reads += task.read_bandwidth.get();
    }
    let gpu = gpus
        .iter()
        .find(|(gpu, held)| **held > 1_000 || **gpu >= spec.gpus);
    if let Some((gpu, _)) = gpu {
        return Some(format!("GPU {gpu}"));
    }
    if let Some((slice, _)) = slices.iter().find(|(_, held)| **held > 1) {
        return Some(format!("slice {slice}"));
    }
    let most = spec.read_bandwidth.get();
    let more = [
        ("CPUs", cpus > spec.cpus),
        ("memory", memory > spec.memory.get()),
        ("scratch", scratch > spec.scratch.get()),
        ("read bandwidth", most > 0 && reads > most),
    ];
    let over = more.into_iter().find(|(_, over)| *over);
    over.map(|(what, _)| what.to_owned())
}
