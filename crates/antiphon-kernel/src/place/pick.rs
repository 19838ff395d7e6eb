//! Picks the node that the next tasks break up the least. Does not choose the switch that it stands under.

use std::ops::Range;

use antiphon_types::{GpuAmount, Shape};

use super::demand::Waste;
use super::needs::{needs, needs_of_idle};
use super::role::Spot;
use crate::capacity::{Capacity, Field, NodeId, at, words};

/// Nodes of one level that are compared before the best of them is taken.
const CANDIDATES_MAX: u32 = 8;

/// What a role asks for in one split of one shape.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) shape: &'a Shape,
    pub(super) tasks: u32,
    pub(super) each: GpuAmount,
    /// The same in whole GPUs; for a share the one GPU that it is put on.
    pub(super) gpus: u32,
    /// How many tasks in a row have to share an NVLink domain.
    pub(super) joined: u32,
}

/// What a node takes at once: a task, or tasks that have to share the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) tasks: u32,
    pub(super) gpus: u32,
}

/// What a search looks at and what for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search<'a> {
    pub(super) capacity: &'a Capacity,
    pub(super) field: &'a Field<'a>,
    pub(super) ask: &'a Ask<'a>,
    pub(super) waste: &'a Waste,
}

/// The node in `range`, outside of `taken`, that should take the next of `left` units, and how many tasks it takes: at least
/// `least` units.
pub(super) fn pick(
    search: &Search<'_>,
    range: &Range<u32>,
    taken: &[u64],
    unit: Unit,
    left: u32,
    least: u32,
) -> Option<Spot> {
    let gpus_max = search.field.kind.gpus_max;
    let mut tried = 0;
    // Levels in order of preference, without sorting them: the first is nearly always the last that is looked at.
    while let Some(level) = next_level(search.waste, gpus_max, unit.gpus, left, tried) {
        tried |= 1 << (level.free - 1);
        if level.units >= least
            && let Some(spot) = pick_at(search, range, taken, unit, &level, least)
        {
            return Some(spot);
        }
    }
    None
}

/// Nodes with so many free GPUs, how many units one of them takes, and by how much that raises its waste.
#[derive(Debug, Clone, Copy)]
struct Level {
    free: u32,
    units: u32,
    growth: i64,
}

/// The best level that is not tried yet: the least growth of waste a unit, then the most units, then the fewest free GPUs.
fn next_level(waste: &Waste, gpus_max: u32, gpus: u32, left: u32, tried: u64) -> Option<Level> {
    let mut best: Option<Level> = None;
    for free in (gpus..=gpus_max).filter(|free| tried >> (free - 1) & 1 == 0) {
        let units = left.min(free / gpus);
        let growth = waste[at(free - units * gpus)] - waste[at(free)];
        let level = Level {
            free,
            units,
            growth,
        };
        if best.is_none_or(|best| is_better(level, best)) {
            best = Some(level);
        }
    }
    best
}

/// Whether a level breaks up less than one with fewer free GPUs.
fn is_better(level: Level, other: Level) -> bool {
    let growth = level.growth * i64::from(other.units);
    let other_growth = other.growth * i64::from(level.units);
    growth < other_growth || growth == other_growth && level.units > other.units
}

/// The best of the first few nodes of a level that have the CPUs, memory and storage.
fn pick_at(
    search: &Search<'_>,
    range: &Range<u32>,
    taken: &[u64],
    unit: Unit,
    level: &Level,
    least: u32,
) -> Option<Spot> {
    let field = search.field;
    let wanted = level.units * unit.tasks;
    let mut best: Option<(u32, u32, u32)> = None;
    let mut looked_at = 0;
    for word in words(range) {
        let mut bits = field.exactly(level.free, word, range) & !taken.get(word).unwrap_or(&0);
        while bits != 0 {
            let position = super::id(word) * 64 + bits.trailing_zeros();
            bits &= bits - 1;
            let node = field.kind.members[at(position)];
            let units = search.tasks_beside(node, wanted) / unit.tasks;
            if units < least {
                continue;
            }
            let stranded =
                search.stranded(node, level.free - units * unit.gpus, units * unit.tasks);
            let key = (level.units - units, stranded, position);
            if best.is_none_or(|best| key < best) {
                best = Some(key);
            }
            looked_at += 1;
            if key.0 == 0 && stranded == 0 || looked_at == CANDIDATES_MAX {
                return best.map(|best| spot(level, unit, best));
            }
        }
    }
    best.map(|best| spot(level, unit, best))
}

const fn spot(level: &Level, unit: Unit, (missing, _, position): (u32, u32, u32)) -> Spot {
    Spot {
        position,
        tasks: (level.units - missing) * unit.tasks,
    }
}

impl Search<'_> {
    /// How many of `wanted` tasks the node has CPUs, memory and storage for, whatever its GPUs.
    pub(super) fn tasks_beside(&self, node: NodeId, wanted: u32) -> u32 {
        let room = self.capacity.room(node);
        let stand = self.capacity.stand(node);
        let shape = self.ask.shape;
        let (cpus, memory) = needs(shape, self.ask.each, &stand.size);
        let limited = |free: u64, each: u64, tasks: u32| {
            if each.saturating_mul(tasks.into()) <= free {
                return tasks;
            }
            let fitting = free.checked_div(each).unwrap_or(u64::MAX);
            u32::try_from(fitting).map_or(tasks, |fitting| fitting.min(tasks))
        };
        let tasks = limited(room.cpus.into(), cpus.into(), wanted);
        let tasks = limited(room.memory.get(), memory.get(), tasks);
        let tasks = limited(room.scratch.get(), shape.scratch.get(), tasks);
        if stand.counts_reads() {
            return limited(room.read_bandwidth.get(), shape.read_bandwidth.get(), tasks);
        }
        tasks
    }

    /// How many of the node's GPUs that stay free could not be used for want of CPUs or memory, with so many tasks more.
    pub(super) fn stranded(&self, node: NodeId, idle: u32, tasks: u32) -> u32 {
        if idle == 0 {
            return 0;
        }
        let room = self.capacity.room(node);
        let size = &self.capacity.stand(node).size;
        let (cpus, memory) = needs(self.ask.shape, self.ask.each, size);
        let (cpus_kept, memory_kept) = needs_of_idle(size);
        let cpus_left = u64::from(room.cpus) - u64::from(cpus) * u64::from(tasks);
        let memory_left = room.memory.get() - memory.get() * u64::from(tasks);
        let served = |left: u64, each: u64| match left.checked_div(each) {
            Some(gpus) => u32::try_from(gpus).map_or(idle, |gpus| gpus.min(idle)),
            None => idle,
        };
        idle - served(cpus_left, cpus_kept.into()).min(served(memory_left, memory_kept.get()))
    }
}
