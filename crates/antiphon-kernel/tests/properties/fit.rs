//! What is held of a node and whether a gang might fit, counted without the kernel's own ledger and placement: a second
//! opinion. Leaves spans out, so its yes means little and its no is certain.

use std::collections::BTreeMap;

use antiphon_kernel::State;
use antiphon_types::*;

/// What is held of a node.
#[derive(Debug, Clone)]
pub(crate) struct Room<'a> {
    spec: &'a NodeSpec,
    /// Thousandths held of each GPU.
    gpus: BTreeMap<u32, u64>,
    slices: BTreeMap<u32, u32>,
    cpus: u32,
    memory: Bytes,
    scratch: Bytes,
    reads: Bytes,
}

impl<'a> Room<'a> {
    pub(crate) fn of(spec: &'a NodeSpec) -> Self {
        Self {
            spec,
            gpus: BTreeMap::new(),
            slices: BTreeMap::new(),
            cpus: 0,
            memory: Bytes::ZERO,
            scratch: Bytes::ZERO,
            reads: Bytes::ZERO,
        }
    }

    pub(crate) fn is_lost_or_cut(&self, gpu: u32) -> bool {
        let cut = self.spec.slices.iter().any(|slice| slice.gpu == gpu);
        cut || self.spec.gpus_lost.contains(&gpu)
    }

    pub(crate) fn take(&mut self, task: &TaskAllocation) {
        for gpu in &task.gpus {
            if task.sliced {
                *self.slices.entry(*gpu).or_default() += 1;
            } else {
                *self.gpus.entry(*gpu).or_default() += task.gpu_share.thousandths();
            }
        }
        self.cpus += task.cpus;
        self.memory = self.memory + task.memory;
        self.scratch = self.scratch + task.scratch;
        // Where a node says nothing of it, nothing bounds what its tasks ask for.
        if !self.spec.read_bandwidth.is_zero() {
            self.reads = self.reads + task.read_bandwidth;
        }
    }

    /// What is held beyond what there is.
    pub(crate) fn over(&self) -> Option<&'static str> {
        let spec = self.spec;
        let slices = u32::try_from(spec.slices.len()).unwrap();
        let more = [
            (
                "GPUs",
                self.gpus
                    .iter()
                    .any(|(gpu, held)| *held > 1_000 || *gpu >= spec.gpus),
            ),
            (
                "slices",
                self.slices
                    .iter()
                    .any(|(slice, held)| *held > 1 || *slice >= slices),
            ),
            ("CPUs", self.cpus > spec.cpus),
            ("memory", self.memory > spec.memory),
            ("scratch", self.scratch > spec.scratch),
            (
                "reads",
                !spec.read_bandwidth.is_zero() && self.reads > spec.read_bandwidth,
            ),
        ];
        more.into_iter()
            .find(|(_, over)| *over)
            .map(|(what, _)| what)
    }

    /// Tasks of a shape with so many GPUs each that might still fit, at most `most`.
    fn tasks(&self, shape: &Shape, each: GpuAmount, most: u32) -> u32 {
        let spec = self.spec;
        let held = |gpu: u32| self.gpus.get(&gpu).copied().unwrap_or(0);
        let usable = || (0..spec.gpus).filter(|gpu| !self.is_lost_or_cut(*gpu));
        let typed = |name: &String| *name == spec.gpu_type;
        let of_type = shape.gpu_type.as_ref().is_none_or(typed);
        let slices = (0u32..).zip(&spec.slices).filter(|(index, slice)| {
            let wanted = shape.gpu_type.as_ref() == Some(&slice.profile);
            wanted && !self.slices.contains_key(index)
        });
        let slices = u32::try_from(slices.count()).unwrap();
        let whole = u32::try_from(usable().filter(|gpu| held(*gpu) == 0).count()).unwrap();
        let by_gpus = match each.whole() {
            Some(0) => most,
            Some(1) if !of_type => slices,
            _ if !of_type => 0,
            Some(each) => whole / each,
            None => {
                let part = each.thousandths();
                u32::from(usable().any(|gpu| held(gpu) + part <= 1_000))
            }
        };
        let cpus = shape.cpus.unwrap_or(0);
        let by_cpus = (spec.cpus - self.cpus).checked_div(cpus).unwrap_or(most);
        let memory = shape.memory.unwrap_or_default().get();
        let left = spec.memory.get().saturating_sub(self.memory.get());
        let by_memory = left.checked_div(memory).unwrap_or(most.into());
        let by_memory = u32::try_from(by_memory).unwrap_or(most);
        by_gpus.min(by_cpus).min(by_memory).min(most)
    }
}

/// Whether the job might fit on the nodes that take tasks, once `freed` has been given back and `taken` has been taken.
/// Always where it has several roles, whose order matters.
pub(crate) fn fits(
    state: &State,
    spec: &JobSpec,
    freed: &[&Allocation],
    taken: &[&Allocation],
) -> bool {
    let [role] = &spec.roles[..] else {
        return true;
    };
    let ready = |node: &&antiphon_kernel::Node| node.state == NodeState::Ready;
    let mut rooms: BTreeMap<&NodeName, Room<'_>> = state
        .nodes()
        .filter(ready)
        .map(|node| (&node.spec.name, Room::of(&node.spec)))
        .collect();
    let active = state.active_jobs().filter_map(|job| job.state.active());
    let stays = |held: &&Allocation| !freed.contains(held);
    let held = active.map(|active| &active.allocation).filter(stays);
    for task in held
        .chain(taken.iter().copied())
        .flat_map(|held| held.tasks.iter())
    {
        if let Some(room) = rooms.get_mut(&task.node) {
            room.take(task);
        }
    }
    role.shapes().any(|shape| {
        splits(shape).into_iter().any(|(tasks, each)| {
            let room = |room: &Room<'_>| room.tasks(shape, each, tasks);
            rooms.values().map(room).sum::<u32>() >= tasks
        })
    })
}

fn splits(shape: &Shape) -> Vec<(u32, GpuAmount)> {
    match (shape.gpus.whole(), shape.tasks) {
        (None, _) => vec![(1, shape.gpus)],
        (Some(gpus), Tasks::Exactly(tasks)) => vec![(tasks, GpuAmount::from_gpus(gpus / tasks))],
        (Some(0), Tasks::Fewest) => vec![(1, GpuAmount::ZERO)],
        (Some(gpus), Tasks::Fewest) if shape.processes == Processes::PerGpu => {
            vec![(gpus, GpuAmount::from_gpus(1))]
        }
        (Some(gpus), Tasks::Fewest) => (1..=gpus)
            .filter(|tasks| gpus % tasks == 0)
            .map(|tasks| (tasks, GpuAmount::from_gpus(gpus / tasks)))
            .collect(),
    }
}
