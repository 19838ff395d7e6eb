//! What a job is in for, drawn before it comes: how it saves, what is wrong with it, when the software around it fails.

use antiphon_types::ExitClass;

use super::draw::{Lot, Stream};
use super::loss::Curve;
use crate::course::millis;
use crate::faults::Faults;

/// What a job is in for.
#[derive(Debug, Clone)]
pub(super) struct Fate {
    /// Whether it saves at all.
    pub(super) saves: bool,
    /// Whether its code is attached.
    pub(super) attached: bool,
    /// The part of the GPUs that it asks for which it uses.
    pub(super) used: f64,
    pub(super) flaw: Option<FlawAt>,
    pub(super) curve: Option<Curve>,
    /// GPU-milliseconds that it runs until the software around it fails next.
    pub(super) glitch_in: f64,
    glitches: Lot,
}

/// A point that a job does not get past.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FlawAt {
    /// After so many milliseconds at its best.
    pub(super) at: f64,
    pub(super) class: ExitClass,
    /// Steps of a ladder that get it past.
    pub(super) rungs: Option<u32>,
}

impl Fate {
    pub(super) fn draw(faults: &Faults, seed: u64, place: usize, best_ms: f64) -> Self {
        let mut lot = Lot::of(seed, Stream::Fate, place);
        let saves = lot.permille(faults.checkpoints.saving_permille);
        let attached = lot.permille(faults.checkpoints.attached_permille) && saves;
        let flaw = flaw(faults, best_ms, &mut lot);
        let curve = faults
            .loss
            .as_ref()
            .and_then(|loss| Curve::draw(loss, best_ms, &mut lot));
        let mut fate = Self {
            saves,
            attached,
            used: 1.0,
            flaw,
            curve,
            glitch_in: f64::INFINITY,
            glitches: Lot::of(seed, Stream::Glitch, place),
        };
        fate.glitch_again(faults);
        fate
    }

    /// Draws when the software around it fails next.
    pub(super) fn glitch_again(&mut self, faults: &Faults) {
        if let Some(software) = faults.software {
            self.glitch_in = self.glitches.wait(millis(software.mtbf));
        }
    }
}

/// At most one flaw a job; which one is one draw, so that shares add up.
fn flaw(faults: &Faults, best_ms: f64, lot: &mut Lot) -> Option<FlawAt> {
    let (mut which, place) = (lot.unit() * 1_000.0, lot.unit());
    let of = |flaw: Option<crate::faults::Flaw>, class| {
        flaw.map(|it| (it.share_permille, it.within_permille, class, None))
    };
    let memory = faults.memory.map(|it| {
        let class = ExitClass::OutOfMemory;
        (it.share_permille, it.within_permille, class, Some(it.rungs))
    });
    let flaws = [
        of(faults.bug, ExitClass::Software),
        of(faults.data, ExitClass::DataError),
        memory,
    ];
    for (share, within, class, rungs) in flaws.into_iter().flatten() {
        if which < f64::from(share) {
            let at = best_ms * place * f64::from(within) / 1_000.0;
            return Some(FlawAt { at, class, rungs });
        }
        which -= f64::from(share);
    }
    None
}
