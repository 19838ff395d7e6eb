//! Which GPUs of a node a task gets: neighbors under one PCIe switch, else in one NUMA node. Does not choose the node.

use antiphon_types::GpuLayout;

/// Chooses `count` of the GPUs in `free`, which has at least so many.
pub(crate) fn choose_gpus(free: u64, count: u32, layout: GpuLayout) -> u64 {
    let mut chosen = 0u64;
    let mut region = free;
    loop {
        let missing = count - chosen.count_ones();
        let left = region & !chosen;
        if missing == 0 || left.count_ones() == missing {
            return chosen | if missing == 0 { 0 } else { left };
        }
        if let Some(switch) = tightest(left, missing, layout.gpus_per_switch) {
            return chosen | lowest_of(switch, missing);
        }
        if let Some(numa) = tightest(left, missing, layout.gpus_per_numa) {
            // Inside the NUMA node whole switches first; without switches any of its GPUs.
            region = numa | chosen;
            match fullest(numa, layout.gpus_per_switch) {
                Some(switch) => chosen |= switch,
                None => return chosen | lowest_of(numa, missing),
            }
            continue;
        }
        // No NUMA node holds it: the fullest whole, so that it touches few. Without NUMA nodes the same with switches.
        let largest = fullest(left, layout.gpus_per_numa);
        match largest.or_else(|| fullest(left, layout.gpus_per_switch)) {
            Some(group) => chosen |= group,
            None => return chosen | lowest_of(left, missing),
        }
    }
}

/// The free GPUs of the group that holds `count` and has the fewest free.
fn tightest(free: u64, count: u32, size: u32) -> Option<u64> {
    groups(free, size)
        .filter(|group| group.count_ones() >= count)
        .min_by_key(|group| group.count_ones())
}

/// The free GPUs of the group that has the most free, the first of several.
fn fullest(free: u64, size: u32) -> Option<u64> {
    groups(free, size)
        .filter(|group| *group != 0)
        .rev()
        .max_by_key(|group| group.count_ones())
}

/// Free GPUs by group of `size` in index order; none where nobody said how they lie.
fn groups(free: u64, size: u32) -> impl DoubleEndedIterator<Item = u64> {
    let count = 64u32.checked_div(size).map_or(0, |_| 64u32.div_ceil(size));
    let group = 1u64.checked_shl(size).map_or(u64::MAX, |bit| bit - 1);
    (0..count).map(move |index| free & group << (index * size))
}

fn lowest_of(mut free: u64, count: u32) -> u64 {
    let all = free;
    for _ in 0..count {
        free &= free - 1;
    }
    all & !free
}

/// The indices of the set bits, ascending.
pub(crate) fn indices(mut bits: u64) -> Vec<u32> {
    let mut indices = Vec::with_capacity(usize::try_from(bits.count_ones()).unwrap_or(64));
    while bits != 0 {
        indices.push(bits.trailing_zeros());
        bits &= bits - 1;
    }
    indices
}
