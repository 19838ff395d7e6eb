//! Counts of one kind: which members have how many GPUs free, and how many such members lie under each switch. Says where
//! a gang would fit without looking at nodes; does not know what else a node has.

use std::borrow::Cow;
use std::ops::Range;

use super::at;
use super::floor::{Kind, Stand};

const OPEN: usize = 0;
const USABLE: usize = 1;

/// The counts of one kind.
///
/// `bits` has one row of member positions for the open nodes, one for the usable ones (open and not held), and one for each
/// number of GPUs k from 1: members with at least k GPUs wholly free. `counts` has one row for each range of the network
/// with the sum of free GPUs on its usable members, followed by how many of them have at least k.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stock {
    words: usize,
    stride: usize,
    depth: usize,
    bits: Vec<u64>,
    counts: Vec<u32>,
    /// Wholly free GPUs on open nodes, held nodes included.
    pub(crate) free: u64,
}

impl Stock {
    /// Of a kind that has no open node yet, and whose nodes have nothing free.
    pub(super) fn empty(kind: &Kind) -> Self {
        let words = kind.members.len().div_ceil(64);
        let stride = at(kind.gpus_max) + 1;
        Self {
            words,
            stride,
            depth: kind.depth(),
            bits: vec![0; words * (USABLE + stride)],
            counts: vec![0; kind.rows() * stride],
            free: 0,
        }
    }

    pub(super) fn is_open(&self, position: u32) -> bool {
        self.is_set(OPEN, position)
    }

    pub(super) fn is_usable(&self, position: u32) -> bool {
        self.is_set(USABLE, position)
    }

    fn is_set(&self, row: usize, position: u32) -> bool {
        self.bits[row * self.words + at(position) / 64] >> (position % 64) & 1 == 1
    }

    fn flip(&mut self, row: usize, position: u32) {
        self.bits[row * self.words + at(position) / 64] ^= 1 << (position % 64);
    }

    /// Notes that a member has another number of GPUs wholly free than before.
    pub(super) fn shift(&mut self, stand: &Stand, before: u32, after: u32) {
        for least in before.min(after) + 1..=before.max(after) {
            self.flip(USABLE + at(least), stand.position);
        }
        if self.is_open(stand.position) {
            self.free = self.free - u64::from(before) + u64::from(after);
        }
        if self.is_usable(stand.position) {
            let rows = &stand.rows[..self.depth];
            recount(&mut self.counts, self.stride, rows, before, after);
        }
    }

    /// Notes whether a member with so many free GPUs is open, and whether it is usable.
    pub(super) fn mark(&mut self, stand: &Stand, free: u32, open: bool, usable: bool) {
        if self.is_open(stand.position) != open {
            self.flip(OPEN, stand.position);
            let free = u64::from(free);
            self.free = if open {
                self.free + free
            } else {
                self.free - free
            };
        }
        if self.is_usable(stand.position) != usable {
            self.flip(USABLE, stand.position);
            let (before, after) = if usable { (0, free) } else { (free, 0) };
            let rows = &stand.rows[..self.depth];
            recount(&mut self.counts, self.stride, rows, before, after);
        }
    }

    /// The usable members.
    pub(super) const fn field<'a>(&'a self, kind: &'a Kind) -> Field<'a> {
        Field {
            kind,
            stock: self,
            held: None,
        }
    }

    /// Held members, none yet.
    pub(super) fn no_held(&self) -> HeldField {
        HeldField {
            usable: vec![0; self.words],
            counts: vec![0; self.counts.len()],
            free: vec![0; self.words * 64],
        }
    }
}

/// Held members that one job may be placed on beside the usable ones, counted like those.
#[derive(Debug, Clone)]
pub(crate) struct HeldField {
    usable: Vec<u64>,
    counts: Vec<u32>,
    /// Whole GPUs by position, as counted.
    free: Vec<u8>,
}

impl HeldField {
    /// Lets a held member in, with so many GPUs free.
    pub(super) fn let_in(&mut self, stock: &Stock, stand: &Stand, free: u32) {
        self.usable[at(stand.position) / 64] |= 1 << (stand.position % 64);
        let rows = &stand.rows[..stock.depth];
        recount(&mut self.counts, stock.stride, rows, 0, free);
        self.free[at(stand.position)] = u8::try_from(free).expect("few GPUs");
    }

    /// Notes that whole GPUs of a held member were taken, if it is among these.
    pub(super) fn take(&mut self, stock: &Stock, stand: &Stand, gpus: u32) {
        if self.usable[at(stand.position) / 64] >> (stand.position % 64) & 1 == 0 {
            return;
        }
        let free = &mut self.free[at(stand.position)];
        let (before, after) = (u32::from(*free), u32::from(*free).saturating_sub(gpus));
        *free = u8::try_from(after).expect("few GPUs");
        let rows = &stand.rows[..stock.depth];
        recount(&mut self.counts, stock.stride, rows, before, after);
    }
}

/// Moves one member from `before` to `after` free GPUs in its rows of counts.
fn recount(counts: &mut [u32], stride: usize, rows: &[u32], before: u32, after: u32) {
    for &row in rows {
        let row = &mut counts[at(row) * stride..(at(row) + 1) * stride];
        row[0] = row[0] + after - before;
        let changed = &mut row[at(before.min(after)) + 1..=at(before.max(after))];
        if after > before {
            changed.iter_mut().for_each(|count| *count += 1);
        } else {
            changed.iter_mut().for_each(|count| *count -= 1);
        }
    }
}

/// The members of a kind that one job may be placed on.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    /// The kind.
    pub(crate) kind: &'a Kind,
    stock: &'a Stock,
    held: Option<Cow<'a, HeldField>>,
}

impl<'a> Field<'a> {
    /// With held members as well.
    pub(super) fn with(self, held: Cow<'a, HeldField>) -> Self {
        Self {
            held: Some(held),
            ..self
        }
    }

    fn count(&self, row: u32, column: usize) -> u32 {
        let place = at(row) * self.stock.stride + column;
        let held = self.held.as_ref().map_or(0, |held| held.counts[place]);
        self.stock.counts[place] + held
    }

    /// GPUs wholly free in a row of the network.
    pub(crate) fn free_in(&self, row: u32) -> u32 {
        self.count(row, 0)
    }

    /// Nodes in a row of the network with at least so many GPUs wholly free.
    pub(crate) fn nodes_in(&self, row: u32, gpus: u32) -> u32 {
        self.count(row, at(gpus))
    }

    /// Tasks of so many whole GPUs each that the GPUs of a row would hold.
    pub(crate) fn tasks_in(&self, row: u32, gpus: u32) -> u32 {
        // A node with room for j tasks is counted once at each of gpus, 2 gpus, .. j gpus.
        let columns = (at(gpus)..self.stock.stride).step_by(at(gpus));
        columns.map(|column| self.count(row, column)).sum()
    }

    /// Whether a member may be used.
    pub(crate) fn is_usable(&self, position: u32) -> bool {
        self.usable(at(position) / 64) >> (position % 64) & 1 == 1
    }

    fn usable(&self, word: usize) -> u64 {
        let held = self.held.as_ref().map_or(0, |held| held.usable[word]);
        self.stock.bits[USABLE * self.stock.words + word] | held
    }

    /// 64 positions of the usable members in `range` that have exactly `free` GPUs wholly free.
    pub(crate) fn exactly(&self, free: u32, word: usize, range: &Range<u32>) -> u64 {
        let stock = self.stock;
        let row = |least: u32| stock.bits[(USABLE + at(least)) * stock.words + word];
        let least = if free == 0 { u64::MAX } else { row(free) };
        let more = if at(free) + 1 < stock.stride {
            row(free + 1)
        } else {
            0
        };
        least & !more & self.usable(word) & inside(word, range)
    }
}

/// The words that hold the positions of a range.
pub(crate) fn words(range: &Range<u32>) -> Range<usize> {
    at(range.start) / 64..at(range.end).div_ceil(64)
}

/// Which of the 64 positions of a word lie in the range.
fn inside(word: usize, range: &Range<u32>) -> u64 {
    let start = at(range.start).saturating_sub(word * 64);
    let end = at(range.end).saturating_sub(word * 64).min(64);
    if start >= end {
        return 0;
    }
    (u64::MAX >> (64 - (end - start))) << start
}
