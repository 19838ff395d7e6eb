//! A directive as a person sends it: checked, and turned into the kernel's own form.

use antiphon_types::{DirectiveBody, Millis};
use axum::http::StatusCode;

use super::model::DirectiveBodyIn;
use super::problem::Fault;
use super::signals::cut;

/// Every directive that a person may send.
const NAMES: &str = "set_weights, pause_shard, resume_shard, add_samples, set_micro_batch, \
    set_checkpoint_interval, set_recompute, set_offload, checkpoint, snapshot, resize, drain, rollback, \
    gather_hard_examples, stop";

/// The largest weight: keeps parts per million within 32 bits.
const WEIGHT_MAX: f64 = 1_000.0;

/// The directive that is meant.
pub(super) fn directive(given: DirectiveBodyIn) -> Result<DirectiveBody, Fault> {
    let what = given.what.clone();
    let text = |value: &Option<String>, key: &str| match value {
        Some(value) if !value.is_empty() => Ok(cut(value.clone())),
        _ => Err(missing(&what, key)),
    };
    let number = |value: Option<u64>, key: &str| -> Result<u32, Fault> {
        let value = value.ok_or_else(|| missing(&what, key))?;
        u32::try_from(value).map_err(|_| {
            let detail = format!("`{what}`: `{key}` is {value}");
            wrong(detail, &format!("give at most {}", u32::MAX))
        })
    };
    let on = || given.on.ok_or_else(|| missing(&what, "on"));
    match what.as_str() {
        "checkpoint" => Ok(DirectiveBody::Checkpoint),
        "snapshot" => Ok(DirectiveBody::Snapshot),
        "stop" => Ok(DirectiveBody::Stop),
        "pause_shard" => Ok(DirectiveBody::PauseShard {
            shard: text(&given.shard, "shard")?,
        }),
        "resume_shard" => Ok(DirectiveBody::ResumeShard {
            shard: text(&given.shard, "shard")?,
        }),
        "set_weights" => weights(&given),
        "add_samples" => {
            let shard = text(&given.shard, "shard")?;
            Ok(DirectiveBody::AddSamples {
                weight: ppm(&shard, given.weight.unwrap_or(1.0))?,
                category: text(&given.category, "category")?,
                path: text(&given.path, "path")?,
                shard,
            })
        }
        "set_micro_batch" => Ok(DirectiveBody::SetMicroBatch {
            rows: number(given.rows, "rows")?,
        }),
        "set_checkpoint_interval" => Ok(DirectiveBody::SetCheckpointInterval {
            interval: Millis::from_millis(number(given.interval_ms, "interval_ms")?.into()),
        }),
        "set_recompute" => Ok(DirectiveBody::SetRecompute { on: on()? }),
        "set_offload" => Ok(DirectiveBody::SetOffload { on: on()? }),
        "resize" => Ok(DirectiveBody::Resize {
            ranks: number(given.ranks, "ranks")?,
        }),
        "drain" => {
            let share = given.share.ok_or_else(|| missing(&what, "share"))?;
            if !(0.0..=1.0).contains(&share) {
                let detail = format!("`drain`: share {share} lies outside 0 to 1");
                return Err(wrong(
                    detail,
                    "1 is an equal part, 0 gives the task nothing",
                ));
            }
            Ok(DirectiveBody::Drain {
                task: number(given.task, "task")?,
                share_permille: (share * 1_000.0).round() as u32,
                steps: number(Some(given.steps.unwrap_or(0)), "steps")?,
            })
        }
        "rollback" => Ok(DirectiveBody::Rollback {
            step: given.step.ok_or_else(|| missing(&what, "step"))?,
        }),
        "gather_hard_examples" => Ok(DirectiveBody::GatherHardExamples {
            category: text(&given.category, "category")?,
            count: number(given.count, "count")?,
        }),
        other => Err(wrong(
            format!("there is no directive `{other}`"),
            &format!("there are: {NAMES}; `POST ../preempt` sends a yield"),
        )),
    }
}

fn weights(given: &DirectiveBodyIn) -> Result<DirectiveBody, Fault> {
    if given.weights.is_empty() {
        return Err(wrong(
            "`set_weights` names no shard".into(),
            "give `weights`, like {\"neuro_002\": 0}",
        ));
    }
    let weights = given.weights.iter();
    let weights = weights.map(|(shard, weight)| Ok((shard.clone(), ppm(shard, *weight)?)));
    Ok(DirectiveBody::SetWeights {
        weights: weights.collect::<Result<_, Fault>>()?,
    })
}

fn ppm(shard: &str, weight: f64) -> Result<u32, Fault> {
    weight_ppm(weight).ok_or_else(|| {
        wrong(
            format!("weight {weight} of shard `{shard}` lies outside 0 to {WEIGHT_MAX}"),
            "only the ratios of all shards' weights count; 0 takes a shard out",
        )
    })
}

/// A weight in parts per million; nothing where it is none.
pub(super) fn weight_ppm(weight: f64) -> Option<u32> {
    let is_one = (0.0..=WEIGHT_MAX).contains(&weight);
    // In range by the check.
    is_one.then(|| (weight * 1_000_000.0).round() as u32)
}

fn missing(what: &str, key: &str) -> Fault {
    wrong(format!("`{what}` names no {key}"), &format!("give `{key}`"))
}

fn wrong(detail: String, help: &str) -> Fault {
    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, "AP0501", detail, help)
}
