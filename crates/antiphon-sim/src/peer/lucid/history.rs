//! How long jobs ran, by who they were: what the model of Lucid (Hu et al., ASPLOS 2023) learns from. Orders nothing.

use std::collections::BTreeMap;

use antiphon_types::{JobId, Timestamp};

use super::super::{Live, Scene};
use crate::course::millis;

/// User, name without its number, GPUs.
type Kind = (String, String, u32);

/// Run times of jobs that have ended.
#[derive(Default)]
pub(super) struct History {
    /// Jobs as they were at the last look: what they had run, and whether they ran.
    here: BTreeMap<JobId, Seen>,
    looked: Option<Timestamp>,
    by_kind: BTreeMap<Kind, Mean>,
    by_gpus: BTreeMap<u32, Mean>,
    all: Mean,
}

struct Seen {
    kind: Kind,
    ran_ms: f64,
    runs: bool,
}

#[derive(Default, Clone, Copy)]
struct Mean {
    sum: f64,
    count: f64,
}

impl History {
    /// Learns from those that are no longer there.
    pub(super) fn look(&mut self, scene: &Scene<'_>) {
        let elapsed = self.looked.map_or(0.0, |at| millis(scene.now.since(at)));
        self.looked = Some(scene.now);
        let mut before = std::mem::take(&mut self.here);
        for live in &scene.jobs {
            let known = before.remove(&live.id);
            let kind = known.map_or_else(|| kind(live), |seen| seen.kind);
            let ran_ms = live.attained_gpu_ms / f64::from(live.gpus().max(1));
            let runs = live.site.is_some();
            self.here.insert(live.id, Seen { kind, ran_ms, runs });
        }
        for seen in before.into_values() {
            let ran_ms = seen.ran_ms + if seen.runs { elapsed } else { 0.0 };
            let gpus = self.by_gpus.entry(seen.kind.2).or_default();
            gpus.add(ran_ms);
            self.by_kind.entry(seen.kind).or_default().add(ran_ms);
            self.all.add(ran_ms);
        }
    }

    /// The mean run time of those of the same kind, else of as many GPUs, else of all; zero as long as none has ended.
    pub(super) fn expected_ms(&self, live: &Live<'_>) -> f64 {
        let seen = self.here.get(&live.id);
        let kind = seen.and_then(|seen| self.by_kind.get(&seen.kind));
        let gpus = self.by_gpus.get(&live.gpus());
        kind.or(gpus).unwrap_or(&self.all).value()
    }
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(self) -> f64 {
        self.sum / f64::max(self.count, 1.0)
    }
}

/// A training that is run again has a new number at the end of its name.
fn kind(live: &Live<'_>) -> Kind {
    let number = |c: char| c.is_ascii_digit() || c == '-' || c == '_';
    let name = live.job.name.trim_end_matches(number).to_owned();
    (live.job.user.clone(), name, live.gpus())
}
