//! The node that has the least left of CPUs and GPUs, both in parts of the largest node.

use crate::placement::{Ask, Node};

/// CPUs of the largest node, in thousandths.
const CPU_MILLI_MAX: u64 = 128_000;

/// GPUs of the largest node, in thousandths.
const GPUS_MAX: u64 = 8_000;

/// From 0 to 100, rounded down.
pub(super) fn score(node: &Node, ask: &Ask) -> i64 {
    let cpus = node.cpu_milli - ask.cpu_milli;
    let gpus = u64::from(node.idle()) - ask.total();
    // 100 - 100 x (cpus / all / 2 + gpus / all / 2), over one denominator: what is taken off is rounded up.
    let left = 50 * (cpus * GPUS_MAX + gpus * CPU_MILLI_MAX);
    let left = left.div_ceil(CPU_MILLI_MAX * GPUS_MAX);
    100 - i64::try_from(left).unwrap_or(i64::MAX)
}
