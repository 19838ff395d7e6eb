//! A job's `accept` line, and how close the job has come to it, as the API tells it.

use antiphon_kernel::{Job, ReachedRecord};
use antiphon_types::{Accept, Decimal};

use super::model::{AcceptState, AcceptView};

/// What the job has to reach and has reached; nothing where nothing was asked.
pub(crate) fn view(job: &Job) -> Option<AcceptView> {
    let accept = job.spec.accept.as_ref()?;
    let known = job.reached.as_ref();
    let state = match (job.accepted(), job.state.is_ended()) {
        (Some(_), _) => AcceptState::Met,
        (None, false) => AcceptState::NotYet,
        (None, true) => AcceptState::NotMet,
    };
    let decimal = |micro: i64| micro as f64 / 1e6;
    Some(AcceptView {
        line: accept.to_string(),
        from: accept.from.to_string(),
        state,
        sentence: sentence(accept, state, known),
        asked: decimal(accept.value_micro),
        value: known.map(|known| decimal(known.reached.value_micro)),
        step: known.map(|known| known.reached.step),
        at_ms: known.map(|known| known.at.as_millis()),
    })
}

fn sentence(accept: &Accept, state: AcceptState, known: Option<&ReachedRecord>) -> String {
    let Accept { metric, from, .. } = accept;
    let asked = format!("asked is {accept} on {from}");
    let Some(known) = known.map(|known| known.reached) else {
        return match state {
            AcceptState::NotMet => {
                format!("whether its result is acceptable was never measured: {asked}")
            }
            AcceptState::Met | AcceptState::NotYet => {
                format!("whether its result is acceptable is not measured yet: {asked}")
            }
        };
    };
    let verdict = match state {
        AcceptState::Met => "acceptable:",
        AcceptState::NotYet => "not acceptable yet: best",
        AcceptState::NotMet => "not acceptable: best",
    };
    let (value, step) = (Decimal(known.value_micro), known.step);
    format!("its result is {verdict} {metric} {value} at step {step}, {asked}")
}
