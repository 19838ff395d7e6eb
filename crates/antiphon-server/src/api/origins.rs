//! Where shards came from, as trainers say it when they attach and as people read it.

use std::collections::BTreeMap;

use antiphon_kernel::Job;
use antiphon_types::{AttemptId, Observation, ShardOrigin};
use serde::Deserialize;

use super::given::weight_ppm;
use super::model::OriginView;
use super::signals::cut;

/// Shards of one report, and parents of one shard.
const SHARDS_MAX: usize = 4_096;
const PARENTS_MAX: usize = 64;
/// Temperatures above this say nothing.
const TEMPERATURE_MAX: f64 = 100.0;

/// Where a shard came from.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OriginIn {
    category: String,
    source: String,
    chunk: String,
    generator: String,
    temperature: Option<f64>,
    parents: Vec<String>,
    code: String,
    samples: Option<u64>,
    /// Its weight when the stream began.
    weight: Option<f64>,
}

/// What a trainer says of its shards that is not known yet, cut to what may enter the log; nothing where it says nothing new.
pub(super) fn told_of_shards(
    attempt: AttemptId,
    told: &BTreeMap<String, OriginIn>,
    known: Option<&BTreeMap<String, ShardOrigin>>,
) -> Option<Observation> {
    let is_new = |(name, origin): &(String, ShardOrigin)| {
        let known = known.and_then(|known| known.get(name));
        known.is_none_or(|known| known.with(origin) != *known)
    };
    let named = told.iter().filter(|(name, _)| !name.is_empty());
    let shards: BTreeMap<String, ShardOrigin> = named
        .take(SHARDS_MAX)
        .map(|(name, origin)| (cut(name.clone()), origin.spec()))
        .filter(is_new)
        .collect();
    (!shards.is_empty()).then_some(Observation::Shards { attempt, shards })
}

impl OriginIn {
    fn spec(&self) -> ShardOrigin {
        let text = |text: &String| cut(text.clone());
        let parents = self.parents.iter().take(PARENTS_MAX);
        let milli = |degrees: f64| (degrees.clamp(0.0, TEMPERATURE_MAX) * 1_000.0).round() as u32;
        ShardOrigin {
            category: text(&self.category),
            source: text(&self.source),
            chunk: text(&self.chunk),
            generator: text(&self.generator),
            temperature_milli: self.temperature.map(milli),
            parents: parents.map(text).collect(),
            code: text(&self.code),
            made_by: None,
            samples: self.samples,
            weight_ppm: self.weight.and_then(weight_ppm),
        }
    }
}

/// Every shard of a job whose origin is known, with what rules say of it now.
pub(super) fn shown(job: &Job) -> Vec<OriginView> {
    let said = |name: &String| {
        let findings = job
            .steering
            .all()
            .filter(|record| record.diagnosis.subject == *name);
        findings
            .map(|record| record.diagnosis.verdict.to_string())
            .collect()
    };
    let view = |(name, origin): (&String, &ShardOrigin)| OriginView {
        id: name.clone(),
        category: origin.category.clone(),
        source: origin.source.clone(),
        chunk: origin.chunk.clone(),
        generator: origin.generator.clone(),
        temperature: origin
            .temperature_milli
            .map(|milli| f64::from(milli) / 1_000.0),
        parents: origin.parents.clone(),
        code: origin.code.clone(),
        made_by: origin.made_by.map(|attempt| attempt.to_string()),
        samples: origin.samples,
        weight: origin.weight_ppm.map(|ppm| f64::from(ppm) / 1_000_000.0),
        findings: said(name),
    };
    job.spec.data.shards.iter().map(view).collect()
}
