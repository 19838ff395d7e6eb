//! How much of a node's idle GPUs the tasks that are really asked for could not use, and by how much that grows with what is
//! put on it. Tables made from counted classes; knows no cluster.
//!
//! Two parts are added up over the classes, by how often each is asked for. *Fragments* (Weng et al., "Beware of
//! Fragmentation", ATC 2023): all idle GPUs where the task does not fit, else those that are too small for it one by one.
//! *Stranded* GPUs: if tasks of the class alone filled the node, the idle GPUs that no CPUs or no memory would be left for. The
//! first sees the edge, the second the way to it: without it nodes run out of CPUs before anything is said.

use antiphon_types::GpuAmount;

use super::demand::Class;
use crate::capacity::at;

/// The weights of all classes together: parts of this.
const ONE: u64 = 1 << 16;

/// What a stranded GPU counts against one of a fragment. From 1 to 4 it changes little.
const STRANDED: i64 = 2;

/// Binary places behind the point of needs a GPU.
const PLACES: u32 = 16;

const WHOLE: u32 = 1_000;

/// Binary digits by which numbers are told apart before values are compared one by one.
const RANK_BITS: u32 = 9;

/// What is idle of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle<'a> {
    /// Whole GPUs.
    pub(super) whole: u32,
    /// What is free of each shared GPU, in thousandths.
    pub(super) parts: &'a [u32],
    /// CPUs.
    pub(super) cpus: u32,
    /// Memory in MiB.
    pub(super) memory: u64,
}

/// How much worse a node gets by what is put on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Gradient {
    /// GPU types that some class names, ascending.
    gpu_types: Vec<String>,
    /// One table for each, and a last one for all other types.
    tables: Vec<Table>,
}

/// The demand as nodes of one GPU type see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Table {
    /// CPUs of the classes.
    cpus: Ranks,
    /// Whole GPUs of the largest class.
    sizes: usize,
    /// How many shares the classes ask for.
    shares: usize,
    /// By thousandths of a GPU: how many of those shares are no more.
    up_to: Vec<u16>,
    /// By how many of `cpus` a node has, then by whole GPUs: how often it is so many at most that are asked for.
    whole: Vec<i64>,
    /// The same, then by how many of `shares`.
    share: Vec<i64>,
    by_cpus: Stranded,
    by_memory: Stranded,
}

/// What would be stranded for want of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Stranded {
    /// Needs of the classes a thousandth of a GPU.
    needs: Ranks,
    /// The weights of the first classes, and their weights by need.
    sums: Vec<(i64, i64)>,
}

/// Values, and how many of them are no more than a number: asked for every node that is looked at, where a search by halves
/// costs most of what is decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Ranks {
    /// Ascending.
    values: Vec<u64>,
    /// What a number is shifted by to find its place in `starts`.
    shift: u32,
    /// By place: how many values stand in places before it.
    starts: Vec<u16>,
}

impl Gradient {
    /// For classes and how often they are asked for.
    pub(super) fn of<'a>(classes: impl Iterator<Item = (&'a Class, u64)>) -> Self {
        let counted: Vec<(&Class, u64)> = classes.collect();
        let total: u64 = counted.iter().map(|(_, count)| count).sum();
        let weight = |count: u64| i64::try_from(count * ONE / total.max(1)).unwrap_or(0);
        let weighted: Vec<(&Class, i64)> = counted
            .into_iter()
            .map(|(class, count)| (class, weight(count)))
            .collect();
        let named = weighted.iter().flat_map(|(class, _)| &class.gpu_types);
        let mut gpu_types: Vec<String> = named.cloned().collect();
        gpu_types.sort_unstable();
        gpu_types.dedup();
        let all = weighted.iter().map(|(_, weight)| weight).sum();
        let table = |gpu_type: Option<&String>| {
            let suits = |class: &Class| {
                class.gpu_types.is_empty()
                    || gpu_type.is_some_and(|gpu_type| class.gpu_types.contains(gpu_type))
            };
            let suited = weighted.iter().filter(|(class, _)| suits(class));
            Table::of(&suited.copied().collect::<Vec<_>>(), all)
        };
        let tables = gpu_types.iter().map(Some).chain([None]).map(table);
        Self {
            tables: tables.collect(),
            gpu_types,
        }
    }

    /// The table for nodes of a GPU type.
    pub(super) fn table(&self, gpu_type: &str) -> Option<&Table> {
        let found = self
            .gpu_types
            .binary_search_by(|name| name.as_str().cmp(gpu_type));
        self.tables.get(found.unwrap_or(self.gpu_types.len()))
    }
}

impl Table {
    fn of(classes: &[(&Class, i64)], all: i64) -> Self {
        let distinct = |of: &dyn Fn(&Class) -> Option<u32>| {
            let mut values: Vec<u32> = classes.iter().filter_map(|(class, _)| of(class)).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let cpus = Ranks::of(
            distinct(&|class| Some(class.cpus))
                .into_iter()
                .map(u64::from),
        );
        let shares = distinct(&share_of);
        let sizes = distinct(&|class| class.gpus.whole());
        let sizes = at(sizes.last().copied().unwrap_or(0));
        let mut table = Self {
            whole: vec![0; (cpus.values.len() + 1) * (sizes + 1)],
            share: vec![0; (cpus.values.len() + 1) * (shares.len() + 1)],
            up_to: (0..=WHOLE)
                .map(|part| shares.partition_point(|share| *share <= part))
                .map(|count| u16::try_from(count).unwrap_or(u16::MAX))
                .collect(),
            shares: shares.len(),
            by_cpus: Stranded::of(classes, all, |class| u64::from(class.cpus)),
            by_memory: Stranded::of(classes, all, |class| class.memory.get() >> 20),
            cpus,
            sizes,
        };
        for (class, weight) in classes {
            let enough = table.cpus.up_to(class.cpus.into());
            for row in enough..=table.cpus.values.len() {
                match class.gpus.whole() {
                    Some(gpus) => {
                        let row = row * (table.sizes + 1);
                        let counts = &mut table.whole[row + at(gpus)..=row + table.sizes];
                        counts.iter_mut().for_each(|count| *count += weight);
                    }
                    None => {
                        let share = share_of(class).unwrap_or(0);
                        let row = row * (table.shares + 1);
                        let place = table.place_of(share);
                        let counts = &mut table.share[row + place..=row + table.shares];
                        counts.iter_mut().for_each(|count| *count += weight);
                    }
                }
            }
        }
        table
    }

    /// How many of the shares asked for are no more than this one.
    fn place_of(&self, part: u32) -> usize {
        let part = at(part).min(self.up_to.len() - 1);
        usize::from(self.up_to[part])
    }

    /// The idle GPUs that could not be used.
    pub(super) fn lost(&self, idle: &Idle<'_>) -> i64 {
        let shared: u32 = idle.parts.iter().sum();
        let all = idle.whole * WHOLE + shared;
        if all == 0 {
            return 0;
        }
        let row = self.cpus.up_to(idle.cpus.into());
        let size = at(idle.whole).min(self.sizes);
        let whole = self.whole[row * (self.sizes + 1) + size];
        let row = row * (self.shares + 1);
        let up_to = |part: u32| self.share[row + self.place_of(part)];
        let shares = if idle.whole > 0 {
            self.share[row + self.shares]
        } else {
            up_to(idle.parts.iter().copied().max().unwrap_or(0))
        };
        let one = i64::try_from(ONE).unwrap_or(i64::MAX);
        let mut lost = i64::from(all) * (one - whole - shares) + i64::from(shared) * whole;
        for part in idle.parts {
            lost += i64::from(*part) * (shares - up_to(*part));
        }
        let by_cpus = self.by_cpus.lost(all, u64::from(idle.cpus));
        let by_memory = self.by_memory.lost(all, idle.memory);
        lost + STRANDED * by_cpus.max(by_memory)
    }
}

/// The share that a class asks for, in thousandths.
fn share_of(class: &Class) -> Option<u32> {
    let whole = class.gpus.whole().is_some();
    (!whole).then(|| u32::try_from(class.gpus.thousandths()).unwrap_or(WHOLE))
}

impl Stranded {
    fn of(classes: &[(&Class, i64)], all: i64, need: impl Fn(&Class) -> u64) -> Self {
        let mut needs: Vec<(u64, i64, i64)> = classes
            .iter()
            .filter(|(class, _)| need(class) > 0)
            .map(|(class, weight)| {
                let gpus = class.gpus.max(GpuAmount::from_thousandths(1)).thousandths();
                let need = ((need(class) << PLACES) / gpus).max(1);
                let by_need = (i128::from(*weight) << (2 * PLACES)) / i128::from(need);
                (need, *weight, i64::try_from(by_need).unwrap_or(i64::MAX))
            })
            .collect();
        needs.sort_unstable_by_key(|(need, ..)| std::cmp::Reverse(*need));
        // Whom these nodes do not suit all their idle GPUs are lost.
        let suited: i64 = classes.iter().map(|(_, weight)| weight).sum();
        let mut sum = (all - suited, 0i64);
        let mut sums = vec![sum];
        for (_, weight, by_need) in &needs {
            sum = (sum.0 + weight, sum.1.saturating_add(*by_need));
            sums.push(sum);
        }
        Self {
            needs: Ranks::of(needs.into_iter().rev().map(|(need, ..)| need)),
            sums,
        }
    }

    /// What is stranded of so many thousandths of GPUs with so much left.
    fn lost(&self, gpus: u32, left: u64) -> i64 {
        let Some(first) = self.sums.first() else {
            return 0;
        };
        // Those are short of which all idle GPUs need more than is left.
        let enough = (left << PLACES) / u64::from(gpus.max(1));
        let short = self.needs.values.len() - self.needs.up_to(enough);
        if short == 0 {
            return first.0 * i64::from(gpus);
        }
        let (weight, by_need) = self.sums[short];
        let served = (i128::from(left) * i128::from(by_need)) >> PLACES;
        weight * i64::from(gpus) - i64::try_from(served).unwrap_or(i64::MAX)
    }
}

impl Ranks {
    /// Of values that rise.
    fn of(values: impl Iterator<Item = u64>) -> Self {
        let values: Vec<u64> = values.collect();
        let largest = values.last().copied().unwrap_or(0);
        let bits = u64::BITS - largest.leading_zeros();
        let shift = bits.saturating_sub(RANK_BITS);
        let places = (largest >> shift) + 1;
        let start = |place: u64| values.partition_point(|value| value >> shift < place);
        let starts = (0..places).map(|place| u16::try_from(start(place)).unwrap_or(u16::MAX));
        Self {
            shift,
            starts: starts.collect(),
            values,
        }
    }

    /// How many values are no more than this one.
    fn up_to(&self, number: u64) -> usize {
        let place = usize::try_from(number >> self.shift).unwrap_or(usize::MAX);
        let Some(start) = self.starts.get(place) else {
            return self.values.len();
        };
        let start = usize::from(*start);
        let rest = self.values[start..].iter();
        start + rest.take_while(|value| **value <= number).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_a_search_by_halves() {
        let values = [0, 1, 1, 3, 200, 201, 4_095, 70_000, 70_001, 1 << 40];
        let ranks = Ranks::of(values.into_iter());
        for number in (0..5_000).chain([69_999, 70_000, 70_001, 1 << 39, 1 << 40, u64::MAX]) {
            let found = values.partition_point(|value| *value <= number);
            assert_eq!(ranks.up_to(number), found, "{number}");
        }
        assert_eq!(Ranks::default().up_to(7), 0);
    }
}
