//! The disk of the checkpoints: whether the next save still fits, before it fails.
//!
//! What saves and everything else take is read off the free bytes just before each save: their median fall from save to
//! save, deletions by retention included. The next save fits where free bytes less that fall hold a checkpoint and a
//! tenth more.

use std::collections::VecDeque;

use antiphon_types::{Bytes, Rule, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::median;

/// Saves remembered.
const SAVES: usize = 8;
/// A checkpoint needs this many times its size: manifests and temporary files lie beside it.
const ROOM: f64 = 1.1;
/// With this many times its size to come, the disk is no longer about to be full.
const ROOM_CLEARED: f64 = 1.5;

/// The disk part of the checkpoint rule of one attempt.
#[derive(Debug, Default)]
pub(crate) struct DiskRule {
    free: Option<f64>,
    /// The largest of the last checkpoints.
    bytes: f64,
    /// Free bytes before each of the last saves.
    before: VecDeque<f64>,
    told: bool,
}

impl DiskRule {
    /// A rule for checkpoints of about this size, where it is known before the first save.
    #[must_use]
    pub(crate) fn new(bytes: Option<Bytes>) -> Self {
        Self {
            bytes: bytes.map_or(0.0, |bytes| bytes.get() as f64),
            ..Self::default()
        }
    }

    /// Takes the free bytes of the disk in, as of `step`.
    pub(crate) fn observe(&mut self, free_bytes: f64, step: u64) -> Option<Conclusion> {
        if !(free_bytes.is_finite() && free_bytes >= 0.0) {
            return None;
        }
        self.free = Some(free_bytes);
        self.judge(step)
    }

    /// Takes a save in that is complete.
    pub(crate) fn saved(&mut self, bytes: Bytes) {
        self.bytes = bytes.get() as f64;
        if let Some(free) = self.free {
            if self.before.len() == SAVES {
                self.before.pop_front();
            }
            self.before.push_back(free);
        }
    }

    fn judge(&mut self, step: u64) -> Option<Conclusion> {
        let free = self.free?;
        if self.bytes <= 0.0 {
            return None;
        }
        // What was free before the last save, rather than what is free now: from there one whole period takes its fall.
        let last = self.before.back().copied().unwrap_or(free);
        let pairs = self.before.iter().zip(self.before.iter().skip(1));
        let mut falls: Vec<f64> = pairs.map(|(earlier, later)| earlier - later).collect();
        let fall = median(&mut falls).unwrap_or(0.0).max(0.0);
        let next = (last - fall).min(free);
        let room = if self.told { ROOM_CLEARED } else { ROOM };
        let full = next < room * self.bytes;
        if full == self.told {
            return None;
        }
        self.told = full;
        let gib = |bytes: f64| bytes / f64::from(1 << 30);
        Some(Conclusion {
            rule: Rule::Checkpoint,
            subject: "disk".to_owned(),
            verdict: if full {
                Verdict::DiskFull
            } else {
                Verdict::Cleared
            },
            evidence: format!(
                "{:.1} GiB free, {:.1} GiB foreseen at the next save, which takes {:.1} GiB; free space falls by {:.1} GiB \
                 from save to save in the median of {}",
                gib(free),
                gib(next.max(0.0)),
                gib(self.bytes),
                gib(fall),
                falls.len()
            ),
            step,
            remedies: Vec::new(),
        })
    }
}
