//! What is free of every node, and what a job asks for: the books that all placement policies share. Chooses nothing.

use std::collections::BTreeMap;

use antiphon_types::GpuAmount;

use crate::trace::NodeRow;
use crate::workload::Workload;

/// A whole GPU in thousandths.
pub(crate) const WHOLE: u32 = 1_000;

/// GPUs of a node, as bits.
pub(crate) type Gpus = u64;

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// CPUs left, in thousandths.
    pub(crate) cpu_milli: u64,
    /// Memory left in bytes.
    pub(crate) memory: u64,
    /// What is left of each GPU, in thousandths.
    pub(crate) gpus: Vec<u32>,
    /// Its GPU type, as one bit.
    pub(crate) gpu_type: u64,
}

/// What a job asks for, on one node. Jobs that ask for the same are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ask {
    /// CPUs in thousandths.
    pub(crate) cpu_milli: u64,
    /// How many GPUs.
    pub(crate) gpus: u32,
    /// How much of each, in thousandths.
    pub(crate) each: u32,
    /// The GPU types that will do, as bits.
    pub(crate) gpu_types: u64,
    /// Memory in bytes.
    pub(crate) memory: u64,
}

/// All nodes.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// In the order of the list.
    pub(crate) nodes: Vec<Node>,
    /// The bit of each GPU type.
    types: BTreeMap<String, u64>,
    all: u64,
}

impl Cluster {
    /// Everything free.
    pub(super) fn new(rows: &[NodeRow], workload: &Workload) -> Self {
        let named = workload.jobs.iter().flat_map(|job| &job.gpu_types);
        let mut types: BTreeMap<String, u64> = rows
            .iter()
            .map(|row| &row.gpu_type)
            .chain(named)
            .map(|name| (name.clone(), 0))
            .collect();
        for (index, bit) in (0u32..).zip(types.values_mut()) {
            // Beyond 64 types, far more than there are, the rest count as one.
            *bit = 1 << index.min(63);
        }
        let node = |row: &NodeRow| Node {
            cpu_milli: row.cpu_milli,
            memory: row.memory.get(),
            gpus: (0..row.gpus).map(|_| WHOLE).collect(),
            gpu_type: types[&row.gpu_type],
        };
        Self {
            nodes: rows.iter().map(node).collect(),
            all: rows.iter().map(|row| u64::from(row.gpus)).sum::<u64>() * u64::from(WHOLE),
            types,
        }
    }

    /// All GPUs.
    pub(crate) const fn all(&self) -> GpuAmount {
        GpuAmount::from_thousandths(self.all)
    }

    /// GPUs that are allocated.
    pub(crate) fn allocated(&self) -> GpuAmount {
        let idle: u64 = self.nodes.iter().map(|node| u64::from(node.idle())).sum();
        GpuAmount::from_thousandths(self.all - idle)
    }
}

/// What every job of a workload asks for.
pub(super) fn asks(cluster: &Cluster, workload: &Workload) -> Vec<Ask> {
    let ask = |job: &crate::workload::TraceJob| {
        let (gpus, each) = match job.gpus.whole() {
            Some(0) => (0, 0),
            Some(gpus) => (gpus, WHOLE),
            None => (1, u32::try_from(job.gpus.thousandths()).unwrap_or(u32::MAX)),
        };
        let bits = job.gpu_types.iter().map(|name| cluster.types[name]);
        Ask {
            cpu_milli: job.cpu_milli.unwrap_or(0),
            gpus,
            each,
            gpu_types: bits.reduce(|all, bit| all | bit).unwrap_or(u64::MAX),
            memory: job.memory.map_or(0, antiphon_types::Bytes::get),
        }
    };
    workload.jobs.iter().map(ask).collect()
}

impl Ask {
    /// GPUs in thousandths.
    pub(crate) const fn total(&self) -> u64 {
        self.gpus as u64 * self.each as u64
    }

    /// Whether it asks for a part of one GPU.
    pub(crate) const fn is_share(&self) -> bool {
        self.gpus == 1 && self.each < WHOLE
    }
}

impl Node {
    /// Idle GPUs in thousandths.
    pub(crate) fn idle(&self) -> u32 {
        self.gpus.iter().sum()
    }

    /// How many GPUs have so much left.
    pub(crate) fn with(&self, each: u32) -> u32 {
        let enough = self.gpus.iter().filter(|free| **free >= each).count();
        u32::try_from(enough).unwrap_or(u32::MAX)
    }

    /// Whether a job fits.
    pub(crate) fn holds(&self, ask: &Ask) -> bool {
        self.cpu_milli >= ask.cpu_milli
            && self.memory >= ask.memory
            && (ask.gpus == 0
                || self.gpu_type & ask.gpu_types != 0 && self.with(ask.each) >= ask.gpus)
    }

    /// Takes what a job asks for, on GPUs that were chosen.
    pub(crate) fn take(&mut self, ask: &Ask, gpus: Gpus) {
        assert!(self.holds(ask), "{ask:?} does not fit {self:?}");
        assert_eq!(
            gpus.count_ones(),
            ask.gpus,
            "{ask:?} is put on GPUs {gpus:b}"
        );
        self.cpu_milli -= ask.cpu_milli;
        self.memory -= ask.memory;
        for (index, free) in self.gpus.iter_mut().enumerate() {
            if gpus >> index & 1 == 1 {
                *free = free
                    .checked_sub(ask.each)
                    .expect("the GPU has so much left");
            }
        }
    }

    /// The first whole GPUs; for a share the GPU that it fills best.
    pub(crate) fn tightest(&self, ask: &Ask) -> Gpus {
        let fitting = self
            .gpus
            .iter()
            .enumerate()
            .filter(|(_, free)| **free >= ask.each);
        if ask.is_share() {
            let best = fitting.min_by_key(|(index, free)| (**free, *index));
            return best.map_or(0, |(index, _)| 1 << index);
        }
        let count = usize::try_from(ask.gpus).unwrap_or(usize::MAX);
        fitting
            .take(count)
            .fold(0, |chosen, (index, _)| chosen | 1 << index)
    }
}
