//! One job: what was decided for it and what its training loop told, on one axis of time.

use antiphon_kernel::Job;
use antiphon_types::{JobId, Timestamp};
use serde::Serialize;
use serde_json::{Value, json as object};

use super::page::{Look, json};
use super::queue::steady;
use super::sheet::Rows;
use crate::api::render::{self, Sight};
use crate::signal_plane::{AttemptCurves, SignalPlane};

/// Points of a curve in one row: only the last row of a curve changes as it grows.
const POINTS: usize = 32;
/// Happenings of one job, at most.
const HAPPENINGS_MAX: usize = 400;

/// The attempt that is under way.
#[derive(Serialize)]
struct Current {
    id: String,
    allocation: String,
    gpus_thousandths: u64,
    class: &'static str,
    launched_ms: u64,
    started_ms: Option<u64>,
    ends_ms: Option<u64>,
    ends_by_ms: Option<u64>,
}

pub(super) fn rows(look: &Look<'_>, id: JobId) -> Rows {
    let shared = look.shared;
    let mut rows = Rows::new();
    {
        let state = shared.view.state();
        let Some(job) = state.job(id) else {
            rows.insert("forgotten".into(), "true".into());
            return rows;
        };
        let sight = Sight::of(shared, &state);
        let detail = render::detail(&sight, job);
        let summary = steady(&detail.summary, sight.now.as_millis());
        rows.insert("summary".into(), summary.to_string());
        rows.insert("current".into(), json(&current(job)));
        rows.insert("price".into(), json(&price(&state, job, sight.now)));
        let mut rest = serde_json::to_value(&detail).expect("what is shown is plain data");
        spread(&mut rest, &mut rows);
        rows.insert("detail".into(), rest.to_string());
    }
    for told in shared.dashboard.story.of(id, HAPPENINGS_MAX) {
        rows.insert(told.key(), json(&told));
    }
    curves(&shared.signals, id, &mut rows);
    rows
}

/// Takes the lists that grow out of a job's detail, an entry a row.
fn spread(detail: &mut Value, rows: &mut Rows) {
    let Some(detail) = detail.as_object_mut() else {
        return;
    };
    detail.remove("summary");
    let signals = detail.get_mut("signals").and_then(Value::as_object_mut);
    // A gang may have a thousand, and they change once a window, not with every signal.
    if let Some(times) = signals.and_then(|signals| signals.remove("tasks")) {
        rows.insert("task_times".into(), times.to_string());
    }
    for (list, kind) in [
        ("attempts", "attempt"),
        ("directives", "directive"),
        ("findings", "finding"),
        ("shards", "shard"),
    ] {
        let Some(Value::Array(entries)) = detail.remove(list) else {
            continue;
        };
        for (place, entry) in entries.into_iter().enumerate() {
            rows.insert(format!("{kind}/{place:06}"), entry.to_string());
        }
    }
}

fn current(job: &Job) -> Option<Current> {
    let active = job.state.active()?;
    Some(Current {
        id: active.attempt.to_string(),
        allocation: active.allocation.to_string(),
        gpus_thousandths: active.allocation.gpu_amount().thousandths(),
        class: active.class.name(),
        launched_ms: active.launched.as_millis(),
        started_ms: active.started.map(|at| at.as_millis()),
        ends_ms: active.terms.ends_at.map(|at| at.as_millis()),
        ends_by_ms: active.terms.ends_by.map(|at| at.as_millis()),
    })
}

/// What a GPU-hour costs where the job runs or ran last, in millionths of a dollar, and the GPU-time it has had.
fn price(state: &antiphon_kernel::State, job: &Job, now: Timestamp) -> Value {
    let active = job.state.active();
    let last = job.attempts.last().map(|record| &record.allocation);
    let allocation = active.map(|active| &active.allocation).or(last);
    let node = allocation.and_then(|held| state.node(&held.tasks.first()?.node));
    let partition = node.and_then(|node| state.partitions().get(&node.spec.partition));
    let spent = |held: &antiphon_types::Allocation, from, until: Timestamp| {
        held.gpu_amount().over(until.since(from)).gpu_millis()
    };
    let past = job.attempts.iter();
    let past = past.map(|record| spent(&record.allocation, record.launched, record.ended));
    let running = active.map_or(0, |active| spent(&active.allocation, active.launched, now));
    object!({
        "usd_micros_per_gpu_hour": partition.map(|partition| partition.price_per_gpu_hour.micros()).filter(|price| *price > 0),
        "spent_gpu_ms": past.sum::<u64>(),
        // In whole seconds: the page adds what passes meanwhile.
        "running_gpu_ms": running / 1_000 * 1_000,
        "at_ms": now.as_millis() / 1_000 * 1_000,
    })
}

fn curves(signals: &SignalPlane, id: JobId, rows: &mut Rows) {
    for AttemptCurves {
        attempt,
        clock,
        curves,
    } in signals.curves(id)
    {
        let number = attempt.number;
        for (chunk, pairs) in clock.chunks(POINTS).enumerate() {
            let pairs: Vec<(u64, u64)> = pairs
                .iter()
                .map(|(at, step)| (at.as_millis(), *step))
                .collect();
            rows.insert(format!("clock/{number:04}/{chunk:03}"), json(&pairs));
        }
        for (name, points) in curves {
            for (chunk, points) in points.chunks(POINTS).enumerate() {
                let points: Vec<(u64, f32, f32, f32)> = points
                    .iter()
                    .map(|point| (point.step, point.min, point.mean, point.max))
                    .collect();
                rows.insert(
                    format!("curve/{number:04}/{chunk:03}/{name}"),
                    json(&points),
                );
            }
        }
    }
}
