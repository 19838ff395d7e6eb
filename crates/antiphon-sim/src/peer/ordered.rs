//! Policies that are nothing but an order: first come first served; shortest remaining time (SRTF); shortest remaining
//! service, which is time x GPUs (SRSF; Gu et al., NSDI 2019); earliest deadline first (EDF; see [`super::edf`]). Each job gets the fastest GPU type
//! that is left for it, and keeps it. All but FIFO and EDF know true run times; EDF knows deadlines.
//!
//! On Muri's traces (trace1 / trace3) SRSF was published with 980 / 185 thousand s and comes to 953.5 / 172.9 here, SRTF with
//! 1,371 / 193 and comes to 1,338 / 181: the peer charges starts at every event. Under its accounts the same rules give 980 /
//! 185 and 1,371 / 193 (`tests/peers/charged.rs`).

use antiphon_types::Action;

use super::arrange::{Overtake, arrange, on_fastest};
use super::{Live, Peer, Scene};
use crate::course::millis;

/// An order, and whether those that run may be stopped for it.
pub(super) struct Ordered {
    key: fn(&Live<'_>) -> f64,
    preempts: bool,
    overtake: Overtake,
}

/// First come, first served: nobody is stopped, nobody overtakes.
pub(super) const fn fifo() -> Ordered {
    Ordered {
        key: |_| 0.0,
        preempts: false,
        overtake: Overtake::Forbidden,
    }
}

/// Shortest remaining time first.
pub(super) const fn srtf() -> Ordered {
    Ordered {
        key: |live| live.left_ms(),
        preempts: true,
        overtake: Overtake::Allowed,
    }
}

/// Shortest remaining time x GPUs first.
pub(super) const fn srsf() -> Ordered {
    Ordered {
        key: |live| live.left_ms() * f64::from(live.gpus()),
        ..srtf()
    }
}

/// Earliest deadline first; who has none comes last.
pub(super) const fn edf() -> Ordered {
    Ordered {
        key: |live| live.job.deadline.map_or(f64::INFINITY, millis),
        ..srtf()
    }
}

impl Ordered {
    /// Places in the scene, the first to be served first.
    pub(super) fn order(&self, scene: &Scene<'_>) -> Vec<usize> {
        let mut order: Vec<(bool, f64, usize)> = scene
            .jobs
            .iter()
            .enumerate()
            .map(|(place, live)| {
                (
                    self.preempts || live.site.is_none(),
                    (self.key)(live),
                    place,
                )
            })
            .collect();
        // Who runs is in front where nobody is stopped.
        order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        order.into_iter().map(|(_, _, job)| job).collect()
    }
}

impl Peer for Ordered {
    fn decide(&mut self, scene: &Scene<'_>) -> Vec<Action> {
        let order = self.order(scene);
        let wishes = on_fastest(scene, &order, self.overtake);
        arrange(scene, &wishes, self.overtake)
    }
}
