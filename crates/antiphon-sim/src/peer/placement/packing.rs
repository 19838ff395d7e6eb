//! GPU packing: shared GPUs first, then free GPUs of nodes in use, then those of empty nodes.

use crate::placement::{Ask, Node, WHOLE};

/// From 0 to 100.
pub(super) fn score(node: &Node, ask: &Ask) -> i64 {
    if ask.gpus == 0 {
        return 0;
    }
    let free = i64::from(node.with(WHOLE));
    if node.with(WHOLE) == u32::try_from(node.gpus.len()).unwrap_or(u32::MAX) {
        return (100 / 3 - free).max(free);
    }
    let mut left: Vec<u32> = node
        .gpus
        .iter()
        .copied()
        .filter(|free| *free >= ask.each)
        .collect();
    left.sort_unstable();
    left.truncate(usize::try_from(ask.gpus).unwrap_or(usize::MAX));
    let opened = left.iter().filter(|free| **free == WHOLE).count();
    if opened > 0 {
        return (50 - i64::try_from(opened).unwrap_or(i64::MAX)).max(100 / 3);
    }
    let percent: i64 = left.iter().map(|free| i64::from(*free) / 10).sum();
    (100 - percent / 10).max(50)
}
