//! Folds what is set and decided about the gate: who is kept back by it is let go when it opens.

use antiphon_types::{GateChange, GateOpened, GatePolicy};

use crate::state::State;

/// Lets time pass for what the gate looks at.
pub(super) fn pass(state: &mut State) {
    let known = &mut state.known;
    known.numbers.pass(known.now, known.gate.policy());
}

/// Replaces the settings.
pub(super) fn set(state: &mut State, policy: &GatePolicy) {
    let known = &mut state.known;
    known.gate.policy = Some(policy.clone());
    known.numbers.judge_all(known.now, Some(policy));
}

/// Folds what was decided.
pub(super) fn fold(state: &mut State, change: &GateChange) {
    match change {
        GateChange::Shut(shut) => state.known.gate.shut = Some(*shut),
        GateChange::Open { why } => {
            state.known.gate.shut = None;
            if *why == GateOpened::TooLong {
                state.known.numbers.spend();
            }
            for job in state.index.gated.clone() {
                state.change(job, |job| job.gated = false);
            }
        }
    }
}
