//! The gate: new best-effort jobs are taken in but kept back while a number of the platform is over its redline. Shut and opened
//! by decisions, which are in the log; never touches a job that is not best-effort, and none that came before.

use antiphon_types::{
    Action, Class, GateChange, GateOpened, GatePolicy, GateShut, Millis, Number, Timestamp,
    WaitReason,
};
use serde::{Deserialize, Serialize};

use crate::jobs::Job;
use crate::state::{Known, Mode, State};

/// Whether new best-effort jobs are kept back, and over what.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Gate {
    /// What was set. Nobody sets anything in a simulation: there the gate is never shut.
    pub(crate) policy: Option<GatePolicy>,
    pub(crate) shut: Option<GateShut>,
}

impl Gate {
    /// The settings, if there are any.
    #[must_use]
    pub const fn policy(&self) -> Option<&GatePolicy> {
        self.policy.as_ref()
    }

    /// Why it is shut, if it is.
    #[must_use]
    pub const fn shut(&self) -> Option<&GateShut> {
        self.shut.as_ref()
    }

    /// Whether a job of a class that comes now is kept back.
    pub(crate) const fn keeps_back(&self, class: Class) -> bool {
        self.shut.is_some() && matches!(class, Class::BestEffort)
    }
}

/// Shuts the gate over a number that has been over its redline for long enough, and opens it once that has recovered or the
/// time is up. Says whether jobs may start for it that could not before.
pub(crate) fn advance(state: &State, actions: &mut Vec<Action>) -> bool {
    let Some(policy) = &state.gate.policy else {
        return false;
    };
    let Some(shut) = &state.gate.shut else {
        let worst = troubled(state, policy).filter(|_| policy.enabled);
        actions.extend(worst.map(|shut| Action::Gate(GateChange::Shut(shut))));
        return false;
    };
    let why = if !policy.enabled {
        GateOpened::SwitchedOff
    } else if state.numbers.troubled_since(shut.number).is_none() {
        GateOpened::Recovered
    } else if shut.until <= state.now {
        GateOpened::TooLong
    } else {
        return false;
    };
    actions.push(Action::Gate(GateChange::Open { why }));
    true
}

/// The first number that has been over its redline for long enough.
fn troubled(state: &State, policy: &GatePolicy) -> Option<GateShut> {
    let now = state.now;
    Number::ALL.into_iter().find_map(|number| {
        let over_since = state.numbers.troubled_since(number)?;
        let samples = state.numbers.samples(number);
        let value = samples.reading(number)?;
        (over_since.after(policy.over_ms) <= now).then(|| GateShut {
            number,
            value,
            redline: policy.redline(number),
            samples: samples.count(),
            over_since,
            since: now,
            until: now.after(policy.shut_ms_max),
        })
    })
}

/// When time alone next changes something about the gate.
pub(crate) fn next_timer(known: &Known) -> Option<Timestamp> {
    let policy = known.gate.policy.as_ref()?;
    if !policy.enabled || known.mode != Mode::Deciding {
        return None;
    }
    let shut = known.gate.shut.as_ref();
    let of_number = |number| {
        let over_since = known.numbers.troubled_since(number)?;
        let shuts = over_since.after(policy.over_ms);
        let shuts = Some(shuts).filter(|_| shut.is_none());
        // A number may recover by nothing but the age of its samples.
        shuts
            .into_iter()
            .chain(known.numbers.leaves_at(number))
            .min()
    };
    let numbers = Number::ALL.into_iter().filter_map(of_number);
    numbers.chain(shut.map(|shut| shut.until)).min()
}

/// Why a job is kept back, if the gate does.
pub(crate) fn reason(state: &State, job: &Job, now: Timestamp) -> Option<WaitReason> {
    let shut = state.gate.shut.filter(|_| job.is_gated())?;
    Some(WaitReason::Gate {
        number: shut.number,
        value: shut.value,
        redline: shut.redline,
        samples: shut.samples,
        over: whole(now.since(shut.over_since)),
        left: whole(shut.until.since(now)),
    })
}

/// In whole seconds: a sentence that is asked for twice within one is the same.
const fn whole(span: Millis) -> Millis {
    Millis::from_secs(span.as_millis() / 1_000)
}
