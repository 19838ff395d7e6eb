//! `[rules]`, `[data]` and `[augment]` of a job file: how far rules may go, where the data came from, how more of it is made.
//! Reads shard files too; what becomes of all this is the kernel's.

use std::collections::BTreeMap;

use antiphon_types::{AugmentSpec, DataSpec, Millis, Rule, RuleMode, ShardOrigin};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::read::{Format, JobFileError, value_of};
use super::time::span;

/// Temperatures above this give noise, whatever the model.
const TEMPERATURE_MAX: f64 = 100.0;
/// Longest text of a shard's origin that enters the log.
const TEXT_MAX: usize = 1_000;
/// No loss that is meant is above this.
const LOSS_MAX: f64 = 1_000.0;
/// The largest weight: keeps parts per million within 32 bits.
const WEIGHT_MAX: f64 = 1_000.0;

/// How far each rule of the two-way loop may go.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RulesFile {
    /// For every rule that is not named. Default: what the team says, else `auto` where training itself does not change, else `observe`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<ModeName>,
    /// Shards that cannot be learned, are repeated, or starve; the mix of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<ModeName>,
    /// Where a bad shard came from, and what else came from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<ModeName>,
    /// Tasks that are slower than the others of their gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub straggler: Option<ModeName>,
    /// How far a run still has to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence: Option<ModeName>,
    /// The micro-batch that fits into memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<ModeName>,
    /// How often to save, and what to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<ModeName>,
    /// What a step's time goes into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<ModeName>,
    /// No step for too long while the sender lives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<ModeName>,
    /// No step for so long is a hang, or for ten steps' time where that is longer. Default: `10min`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang_after: Option<String>,
    /// Held-out loss in nats above which a category starves, by category. Default: none does for its loss alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub category_loss_max: BTreeMap<String, f64>,
}

/// What becomes of a rule's findings.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ModeName {
    /// They are logged and shown.
    Observe,
    /// Each waits for `antiphon approve`.
    Approve,
    /// They are acted on.
    Auto,
}

/// Where the data came from.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// A file that lists the shards, in YAML or TOML; `antiphon submit` reads it into `origins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<String>,
    /// Where each shard came from, by its id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub origins: BTreeMap<String, OriginFile>,
}

/// Where a shard came from.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OriginFile {
    /// What it serves; probes of the same category judge it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// The corpus, book, site or model it was taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which part of that source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<String>,
    /// What made it, if it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generator: Option<String>,
    /// The temperature it was sampled at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Shards that it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<String>,
    /// The code that made it: a commit, a digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Distinct samples in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Its weight when training begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// How more data of a kind is made: a job of its own, without GPUs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AugmentFile {
    /// Program and arguments. It reads `ANTIPHON_AUGMENT_*` and writes JSON lines to `ANTIPHON_AUGMENT_OUT`.
    pub command: Vec<String>,
    /// Only for these categories. Default: for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Sampling temperature. Default: 0.8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Samples to make each time. Default: 200.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// CPUs of the data job. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// How often it may run for one job. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<u32>,
}

/// How far each rule may go; those of which the file says nothing are left out.
pub(super) fn rules(file: Option<&RulesFile>) -> BTreeMap<Rule, RuleMode> {
    let Some(file) = file else {
        return BTreeMap::new();
    };
    let said = |rule| match rule {
        Rule::Shard => file.shard,
        Rule::Provenance => file.provenance,
        Rule::Straggler => file.straggler,
        Rule::Convergence => file.convergence,
        Rule::Batch => file.batch,
        Rule::Checkpoint => file.checkpoint,
        Rule::Bottleneck => file.bottleneck,
        Rule::Hang => file.hang,
    };
    let mode = |name| match name {
        ModeName::Observe => RuleMode::Observe,
        ModeName::Approve => RuleMode::Approve,
        ModeName::Auto => RuleMode::Auto,
    };
    let named = |rule| Some((rule, mode(said(rule).or(file.default)?)));
    Rule::ALL.into_iter().filter_map(named).collect()
}

/// How long a job may go without a step, where its file says so.
pub(super) fn hang_after(file: Option<&RulesFile>) -> Result<Option<Millis>, JobFileError> {
    let Some(text) = file.and_then(|rules| rules.hang_after.as_deref()) else {
        return Ok(None);
    };
    let at = "rules.hang_after";
    let after = span(at, Some(text), Millis::ZERO)?;
    if after == Millis::ZERO {
        let why = "every run goes without a step for that long";
        return Err(JobFileError::value(at, why, "give a time like `10min`"));
    }
    Ok(Some(after))
}

/// What is known of a job's data, and how more is made.
pub(super) fn data(
    file: Option<&DataFile>,
    augment: &BTreeMap<String, AugmentFile>,
    rules: Option<&RulesFile>,
) -> Result<DataSpec, JobFileError> {
    if let Some(path) = file.and_then(|data| data.shards.as_deref()) {
        let why = format!("`{path}` is a file that only `antiphon submit` reads");
        let help = "over the API send what stands in it as `data.origins`";
        return Err(JobFileError::value("data.shards", why, help));
    }
    let origins = file.into_iter().flat_map(|data| &data.origins);
    let shards = origins.map(|(id, origin)| Ok((id.clone(), origin.spec(id)?)));
    let methods = augment.iter().map(|(name, method)| {
        let at = format!("augment.{name}.temperature");
        let spec = AugmentSpec {
            command: method.command.clone(),
            categories: method.categories.clone(),
            temperature_milli: temperature(&at, method.temperature.unwrap_or(0.8))?,
            count: method.count.unwrap_or(200),
            cpus: method.cpus.unwrap_or(1),
            runs_max: method.runs.unwrap_or(3),
        };
        Ok((name.clone(), spec))
    });
    let losses = rules.into_iter().flat_map(|rules| &rules.category_loss_max);
    let losses = losses.map(|(category, nats)| {
        let at = format!("rules.category_loss_max.{category}");
        let milli = within(&at, *nats, ("a loss in nats", LOSS_MAX), 1_000.0)?;
        Ok((category.clone(), milli))
    });
    Ok(DataSpec {
        shards: shards.collect::<Result<_, JobFileError>>()?,
        augment: methods.collect::<Result<_, JobFileError>>()?,
        category_loss_max_milli: losses.collect::<Result<_, JobFileError>>()?,
    })
}

impl OriginFile {
    fn spec(&self, id: &str) -> Result<ShardOrigin, JobFileError> {
        let texts = [
            ("category", &self.category),
            ("source", &self.source),
            ("chunk", &self.chunk),
            ("generator", &self.generator),
            ("code", &self.code),
        ];
        for (key, text) in texts {
            let length = text.as_ref().map_or(0, String::len);
            if length > TEXT_MAX {
                let at = format!("data.origins.{id}.{key}");
                return Err(JobFileError::over_limit(&at, "bytes", length, TEXT_MAX));
            }
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let at = format!("data.origins.{id}.temperature");
        let milli = self.temperature.map(|degrees| temperature(&at, degrees));
        let at = format!("data.origins.{id}.weight");
        let weight = |weight| within(&at, weight, ("a weight", WEIGHT_MAX), 1_000_000.0);
        Ok(ShardOrigin {
            category: text(&self.category),
            source: text(&self.source),
            chunk: text(&self.chunk),
            generator: text(&self.generator),
            temperature_milli: milli.transpose()?,
            parents: self.parents.clone(),
            code: text(&self.code),
            made_by: None,
            samples: self.samples,
            weight_ppm: self.weight.map(weight).transpose()?,
        })
    }
}

fn temperature(at: &str, degrees: f64) -> Result<u32, JobFileError> {
    within(at, degrees, ("a temperature", TEMPERATURE_MAX), 1_000.0)
}

/// A number from 0 to the largest that is meant, in parts of one.
fn within(
    at: &str,
    number: f64,
    (what, max): (&str, f64),
    parts: f64,
) -> Result<u32, JobFileError> {
    if !(0.0..=max).contains(&number) {
        let why = format!("{number} is not {what}");
        let help = format!("give a number from 0 to {max}");
        return Err(JobFileError::value(at, why, help));
    }
    // In range by the check above.
    Ok((number * parts).round() as u32)
}

/// Reads a shard file: a list under `shards`, each with an `id`. `type` is another name of `category`; `size_mb` and
/// `hardness_score` describe the file to people and say nothing of where it came from. Says which keys it passed over.
///
/// # Errors
/// The first thing that its writer has to change.
pub fn read_shards(
    text: &str,
    format: Format,
) -> Result<(BTreeMap<String, OriginFile>, Vec<String>), JobFileError> {
    let value = value_of(text, format)?;
    let Some(list) = value.get("shards").and_then(Value::as_array) else {
        return Err(JobFileError::value(
            "shards",
            "there is no such list",
            "write `shards:` and under it one `- id: ..` for each shard",
        ));
    };
    let mut shards = BTreeMap::new();
    let mut warnings = Vec::new();
    for (index, entry) in list.iter().enumerate() {
        let at = format!("shards[{index}]");
        let (id, origin) = shard(&at, entry, &mut warnings)?;
        if shards.insert(id.clone(), origin).is_some() {
            let why = format!("the id `{id}` stands there twice");
            return Err(JobFileError::value(&at, why, "give each shard its own"));
        }
    }
    Ok((shards, warnings))
}

fn shard(
    at: &str,
    entry: &Value,
    warnings: &mut Vec<String>,
) -> Result<(String, OriginFile), JobFileError> {
    let Some(id) = entry.get("id").and_then(Value::as_str) else {
        let help = "give `id`, as the trainer reports it";
        return Err(JobFileError::value(at, "it has no id", help));
    };
    let mut known = serde_json::Map::new();
    for (key, value) in entry.as_object().into_iter().flatten() {
        match key.as_str() {
            "id" | "size_mb" | "hardness_score" => (),
            "type" | "category" => {
                known.insert("category".into(), value.clone());
            }
            "source" | "chunk" | "generator" | "temperature" | "parents" | "code" | "samples"
            | "weight" => {
                known.insert(key.clone(), value.clone());
            }
            other => warnings.push(format!(
                "shard `{id}`: `{other}` is not known and passed over"
            )),
        }
    }
    let origin = serde_json::from_value(Value::Object(known));
    let origin = origin.map_err(|error| {
        JobFileError::value(at, format!("shard `{id}`: {error}"), "correct its entry")
    })?;
    Ok((id.to_owned(), origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobfile::{from_value, read};

    #[test]
    fn rules_not_named_follow_the_default_or_are_left_out() {
        let file = read(
            "name = \"a\"\n[rules]\ndefault = \"approve\"\nshard = \"auto\"",
            Format::Toml,
        );
        let of = rules(file.unwrap().rules.as_ref());
        assert_eq!(of[&Rule::Shard], RuleMode::Auto);
        assert_eq!(of[&Rule::Hang], RuleMode::Approve);
        assert_eq!(of.len(), Rule::ALL.len());
        let file = read("name = \"a\"\n[rules]\nshard = \"observe\"", Format::Toml);
        let of = rules(file.unwrap().rules.as_ref());
        assert_eq!(of, BTreeMap::from([(Rule::Shard, RuleMode::Observe)]));
    }

    #[test]
    fn a_hang_may_be_told_sooner_but_not_at_once() {
        let after = |text: &str| {
            let file = format!("name = \"a\"\n[rules]\nhang_after = \"{text}\"");
            hang_after(read(&file, Format::Toml).unwrap().rules.as_ref())
        };
        assert_eq!(after("20s").unwrap(), Some(Millis::from_secs(20)));
        assert_eq!(hang_after(None).unwrap(), None);
        let error = after("0s").unwrap_err();
        assert_eq!(
            error.what,
            "`rules.hang_after`: every run goes without a step for that long"
        );
    }

    #[test]
    fn a_rule_that_does_not_exist_names_the_nearest() {
        let error = read("name = \"a\"\n[rules]\nshards = \"auto\"", Format::Toml).unwrap_err();
        assert_eq!((error.code, error.at.as_str()), ("AP0201", "rules.shards"));
        assert_eq!(error.help, "did you mean `shard`?");
    }

    #[test]
    fn a_shard_file_is_read_in_the_words_that_people_use() {
        let text = "shards:\n- id: cardio_001\n  source: books\n  type: factual\n  size_mb: 45\n  hardness_score: 0.7\n\
                    - id: neuro_002\n  category: reasoning\n  temperature: 0.8\n  parents: [neuro_001]\n  colour: red\n";
        let (shards, warnings) = read_shards(text, Format::Yaml).unwrap();
        let cardio = shards["cardio_001"].spec("cardio_001").unwrap();
        assert_eq!(
            (cardio.category.as_str(), cardio.source.as_str()),
            ("factual", "books")
        );
        let neuro = shards["neuro_002"].spec("neuro_002").unwrap();
        assert_eq!(neuro.temperature_milli, Some(800));
        assert_eq!(neuro.parents, ["neuro_001"]);
        assert_eq!(
            warnings,
            ["shard `neuro_002`: `colour` is not known and passed over"]
        );
    }

    #[test]
    fn a_shard_file_with_one_id_twice_is_refused() {
        let error = read_shards("shards: [{id: a}, {id: a}]", Format::Yaml).unwrap_err();
        assert_eq!(error.what, "`shards[1]`: the id `a` stands there twice");
        let error = read_shards("shards: [{source: a}]", Format::Yaml).unwrap_err();
        assert_eq!(error.what, "`shards[0]`: it has no id");
        let error = read_shards("shard: a", Format::Yaml).unwrap_err();
        assert_eq!(error.what, "`shards`: there is no such list");
    }

    #[test]
    fn methods_have_defaults_and_a_temperature_that_can_be() {
        let file = |temperature: f64| {
            from_value(serde_json::json!({
                "name": "a",
                "augment": { "paraphrase": { "command": ["p"], "temperature": temperature } },
            }))
            .unwrap()
        };
        let spec = data(None, &file(0.7).augment, None).unwrap();
        let method = &spec.augment["paraphrase"];
        assert_eq!((method.temperature_milli, method.count), (700, 200));
        assert_eq!((method.cpus, method.runs_max), (1, 3));
        let error = data(None, &file(-1.0).augment, None).unwrap_err();
        assert_eq!(
            error.what,
            "`augment.paraphrase.temperature`: -1 is not a temperature"
        );
    }

    #[test]
    fn a_loss_above_which_a_category_starves_is_a_number_of_nats() {
        let of = |nats: f64| {
            let file = from_value(serde_json::json!({
                "name": "a",
                "rules": { "category_loss_max": { "law": nats } },
            }));
            data(None, &BTreeMap::new(), file.unwrap().rules.as_ref())
        };
        let law = BTreeMap::from([("law".to_owned(), 2_100)]);
        assert_eq!(of(2.1).unwrap().category_loss_max_milli, law);
        assert_eq!(
            of(-1.0).unwrap_err().what,
            "`rules.category_loss_max.law`: -1 is not a loss in nats"
        );
    }

    #[test]
    fn a_shard_file_is_nothing_that_a_server_reads() {
        let file = read("name = \"a\"\n[data]\nshards = \"s.yaml\"", Format::Toml).unwrap();
        let error = data(file.data.as_ref(), &BTreeMap::new(), None).unwrap_err();
        assert_eq!((error.code, error.at.as_str()), ("AP0202", "data.shards"));
    }
}
