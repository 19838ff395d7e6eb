//! The numbers by which the platform is judged, against their redlines and with a day's history, and the gate over them.

use std::sync::Arc;

use antiphon_kernel::State as KernelState;
use antiphon_types::{GateChange, GatePolicy, Number, Reading, Timestamp};
use axum::Json;
use axum::extract::State;

use super::Shared;
use super::model::{GateView, NumberView, NumbersView};
use crate::throughput::ThroughputNow;

/// How the platform does, and whether new best-effort jobs are kept back over it.
#[utoipa::path(get, path = "/v1/numbers", responses((status = 200, body = NumbersView)))]
pub(crate) async fn numbers(State(shared): State<Arc<Shared>>) -> Json<NumbersView> {
    let now = shared.view.now();
    let throughput = shared.throughput.read(now);
    Json(view(&shared.view.state(), throughput, now))
}

/// All numbers as they stand.
pub(crate) fn view(state: &KernelState, throughput: ThroughputNow, now: Timestamp) -> NumbersView {
    let now = now.max(state.now());
    let kept = state.numbers().at(now);
    let policy = state.gate().policy().cloned().unwrap_or_default();
    let mut numbers = vec![effective_throughput(throughput)];
    numbers.extend(Number::ALL.into_iter().map(|number| {
        let samples = kept.samples(number);
        let reading = samples.reading(number);
        let history = kept.history(number);
        NumberView {
            name: number.name().into(),
            title: number.to_string(),
            value: reading.map(plain),
            unit: unit(number).into(),
            redline: Some(plain(policy.redline(number))),
            over: reading.is_some_and(|reading| policy.is_over(number, reading)),
            samples: samples.count().into(),
            raw: kept.raw(number).map(plain),
            history: history
                .map(|(at, reading, _)| (at.as_millis(), plain(reading)))
                .collect(),
        }
    }));
    NumbersView {
        numbers,
        gate: gate(state, &policy),
    }
}

fn effective_throughput(read: ThroughputNow) -> NumberView {
    let history = read.history.into_iter();
    NumberView {
        name: "effective_throughput".into(),
        title: "effective throughput".into(),
        value: read.rate,
        unit: "tokens/s per $/h".into(),
        redline: None,
        over: false,
        samples: read.samples,
        raw: None,
        history: history.map(|(at, rate)| (at.as_millis(), rate)).collect(),
    }
}

fn gate(state: &KernelState, policy: &GatePolicy) -> GateView {
    let shut = state.gate().shut();
    GateView {
        open: shut.is_none(),
        enabled: state.gate().policy().is_some() && policy.enabled,
        since_ms: shut.map(|shut| shut.since.as_millis()),
        until_ms: shut.map(|shut| shut.until.as_millis()),
        why: why(state),
        kept_back: state.kept_back(),
    }
}

/// Why new best-effort jobs are kept back, if they are, in one sentence.
pub(super) fn why(state: &KernelState) -> Option<String> {
    let shut = state.gate().shut()?;
    Some(format!("the gate is {}", GateChange::Shut(*shut)))
}

const fn unit(number: Number) -> &'static str {
    match number {
        Number::CompletionRate => "share",
        Number::TimeToCheckpoint | Number::DelayProduction | Number::DelayBestEffort => "ms",
    }
}

fn plain(reading: Reading) -> f64 {
    match reading {
        Reading::Permille(share) => f64::from(share) / 1_000.0,
        Reading::Span(span) => span.as_millis() as f64,
    }
}
