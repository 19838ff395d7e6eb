//! `[train]`: what a job trains, in the words of the planner. Plans nothing.

use std::collections::BTreeMap;
use std::fmt;

use antiphon_planner::search::Limits;
use antiphon_planner::words;
use antiphon_types::training::{Framework, Method, Model, Task, TrainingSpec};
use antiphon_types::{Millis, training};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use std::borrow::Cow;

use super::read::JobFileError;
use super::time::span;

/// Most GPUs that a job is planned for where its file does not say: a node's; where that is too few, and only then, more.
const GPUS_MAX: [u64; 3] = [8, 64, 512];

/// What is trained. Where `resources` is left out, the planner makes the job's shapes of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainFile {
    /// A training config that is there already: of Axolotl, LLaMA-Factory, TRL, torchtune, `DeepSpeed`, Megatron, Unsloth, verl,
    /// `OpenRLHF`. `antiphon submit` reads it; the keys beside it win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// What `antiphon submit` has read there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Value>,
    /// The model: a name of the catalog or of the hub, or the path of its `config.json`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `pretrain`, `sft`, `dpo`, `orpo`, `kto`, `reward-model`, `ppo` or `grpo`. Default: `sft`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// `full`, `lora`, `qlora`, `dora`, `prefix-tuning`, `prompt-tuning` or `p-tuning`. Default: `full`. A task stands here as
    /// well as in `task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Width of a low-rank adapter. Default: 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// The optimizer, as `antiphon plan --optimizer` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer: Option<String>,
    /// The library that trains, as `antiphon plan --framework` takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub framework: Option<String>,
    /// Tokens of one sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u64>,
    /// Sequences of one forward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_batch: Option<u64>,
    /// Forward passes before weights move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulation: Option<u64>,
    /// Sequences of a step, over all GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Answers to each prompt, of `grpo` and `ppo`. Default: the framework's, else 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<u64>,
    /// Tokens of the longest answer. Default: what a sequence has left beside the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_tokens: Option<u64>,
    /// Tokens to train on, like `200M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<String>,
    /// Examples in the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<u64>,
    /// Optimizer steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// How many GPUs it may be planned for: `8`, or `"8..64"`. Default: up to 8, and more only where 8 will not do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpusFile>,
    /// In how much time it has to end, like `4h`: the cheapest that does is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<String>,
    /// What it may cost in US dollars: the fastest that does not cost more is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// `planned`: the command reads `MICRO_BATCH` and the other variables of a plan, so the planner chooses the layout.
    /// `stated`: it follows its own config, so only the GPU type and how many may vary. Default: `stated` with `config`, else
    /// `planned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutName>,
}

/// Who chooses how the work is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LayoutName {
    /// The planner.
    Planned,
    /// The config that the command follows.
    Stated,
}

impl TrainFile {
    /// What is to be planned.
    pub(super) fn spec(&self) -> Result<TrainingSpec, JobFileError> {
        let mut spec = match &self.spec {
            None if self.config.is_some() => {
                let why = "the server reads no files of the person who submits";
                let help = "use `antiphon submit`, which reads it, or give `train.model` and what goes with it";
                return Err(JobFileError::value("train.config", why, help));
            }
            None => TrainingSpec::default(),
            Some(read) => TrainingSpec::deserialize(read).map_err(|error| {
                let help = "submit with an `antiphon` of the server's version";
                JobFileError::value("train.spec", error, help)
            })?,
        };
        if let Some(model) = &self.model {
            spec.model = Model::Named(model.clone());
        }
        if let Some(task) = &self.task {
            spec.task = word("train.task", task, words::TASKS)?;
        }
        // People say "the method is GRPO", too; no word is both.
        let as_task = self.method.as_deref().and_then(words::word::<Task>);
        if let Some(task) = as_task {
            if self.task.is_some() && spec.task != task {
                let why = "it names another task than `train.task`";
                let help =
                    "give the task in `task`, and in `method` which weights move: `full`, `lora`";
                return Err(JobFileError::value("train.method", why, help));
            }
            spec.task = task;
        } else if let Some(method) = &self.method {
            let read = words::method(method, self.rank, Vec::new());
            let unknown = || unknown("train.method", method, words::METHODS);
            (spec.method, spec.quantization) = read.ok_or_else(unknown)?;
        } else if let (Method::Lora(lora), Some(rank)) = (&mut spec.method, self.rank) {
            lora.rank = rank;
        }
        if self.rank.is_some() && !matches!(spec.method, Method::Lora(_)) {
            let why = "only a low-rank adapter has a rank";
            let help = "give `method = \"lora\"` (and the task in `task`), or take it out";
            return Err(JobFileError::value("train.rank", why, help));
        }
        if let Some(optimizer) = &self.optimizer {
            spec.optimizer = Some(word("train.optimizer", optimizer, words::OPTIMIZERS)?);
        }
        if let Some(framework) = &self.framework {
            let names: Vec<&str> = Framework::ALL.map(Framework::name).to_vec();
            spec.framework = Some(word("train.framework", framework, &names.join(", "))?);
        }
        if let Some(tokens) = &self.tokens {
            let read = words::count(tokens);
            let why = format!("`{tokens}` is no number of tokens");
            let wrong = || JobFileError::value("train.tokens", why, "give one like `200M`");
            spec.length = training::Length {
                tokens: Some(read.ok_or_else(wrong)?),
                ..training::Length::default()
            };
        }
        for (key, given, field) in [
            (
                "sequence_length",
                self.sequence_length,
                &mut spec.batch.sequence_length,
            ),
            ("micro_batch", self.micro_batch, &mut spec.batch.micro),
            (
                "accumulation",
                self.accumulation,
                &mut spec.batch.accumulation,
            ),
            ("global_batch", self.global_batch, &mut spec.batch.global),
            ("examples", self.examples, &mut spec.length.examples),
            ("steps", self.steps, &mut spec.length.steps),
        ] {
            if given == Some(0) {
                let at = format!("train.{key}");
                let help = "give a whole number of at least 1, or leave it out";
                return Err(JobFileError::value(&at, "it is 0", help));
            }
            if given.is_some() {
                *field = given;
            }
        }
        self.answers_into(&mut spec)?;
        Ok(spec)
    }

    /// What is said of answers that are generated.
    fn answers_into(&self, spec: &mut TrainingSpec) -> Result<(), JobFileError> {
        let said = [
            ("answers", self.answers),
            ("answer_tokens", self.answer_tokens),
        ];
        let Some((key, number)) = said.into_iter().find(|(_, number)| number.is_some()) else {
            return Ok(());
        };
        let at = format!("train.{key}");
        if !matches!(spec.task, Task::Grpo | Task::Ppo) {
            let why = "nothing is generated";
            let help = "give `task = \"grpo\"` or `task = \"ppo\"`, or take it out";
            return Err(JobFileError::value(&at, why, help));
        }
        if number == Some(0) {
            let help = "give a whole number of at least 1, or leave it out";
            return Err(JobFileError::value(&at, "it is 0", help));
        }
        let rollout = spec.rollout.get_or_insert_default();
        rollout.answers = self.answers.or(rollout.answers);
        rollout.answer_tokens_max = self.answer_tokens.or(rollout.answer_tokens_max);
        Ok(())
    }

    /// What a search has to keep to: the first of these within which it finds anything. A config that the command follows may
    /// say how many GPUs it is for.
    pub(super) fn limits(&self, stated: Option<u64>) -> Result<Vec<Limits>, JobFileError> {
        let ranges = match (&self.gpus, stated) {
            (None, Some(gpus)) => vec![(gpus, gpus)],
            (None, None) => GPUS_MAX.map(|most| (1, most)).to_vec(),
            (Some(GpusFile(text)), _) => vec![words::range(text).ok_or_else(|| {
                let why = format!("`{text}` is no number of GPUs");
                JobFileError::value("train.gpus", why, "give one like `8`, or `\"8..64\"`")
            })?],
        };
        let hours = match self.within.as_deref() {
            None => None,
            text => Some(span("train.within", text, Millis::ZERO)?.as_millis() as f64 / 3.6e6),
        };
        if self.budget.is_some_and(|usd| !(usd > 0.0 && usd < 1e12)) {
            let help = "give US dollars, like `500`";
            return Err(JobFileError::value("train.budget", "it buys nothing", help));
        }
        let limits = |(gpus_min, gpus_max)| Limits {
            gpus_min,
            gpus_max,
            hours,
            usd: self.budget,
        };
        Ok(ranges.into_iter().map(limits).collect())
    }

    /// Whether the planner chooses how the work is split.
    pub(super) fn layout_is_planned(&self) -> bool {
        let usual = if self.config.is_some() {
            LayoutName::Stated
        } else {
            LayoutName::Planned
        };
        self.layout.unwrap_or(usual) == LayoutName::Planned
    }

    /// What people are shown.
    pub(super) fn described(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("config", self.config.clone()),
            ("model", self.model.clone()),
            ("task", self.task.clone()),
            ("method", self.method.clone()),
            ("optimizer", self.optimizer.clone()),
            (
                "sequence_length",
                self.sequence_length.map(|tokens| tokens.to_string()),
            ),
            ("tokens", self.tokens.clone()),
        ];
        pairs
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

fn word<'a, T: Deserialize<'a>>(at: &str, text: &'a str, known: &str) -> Result<T, JobFileError> {
    words::word(text).ok_or_else(|| unknown(at, text, known))
}

fn unknown(at: &str, text: &str, known: &str) -> JobFileError {
    let nearest = known
        .split(", ")
        .map(|word| (strsim::damerau_levenshtein(text, word), word))
        .min()
        .filter(|(distance, _)| *distance <= 3);
    let meant = nearest.map_or_else(String::new, |(_, word)| format!("did you mean `{word}`? "));
    let why = format!("`{text}` is not known");
    JobFileError::value(at, why, format!("{meant}give one of: {known}"))
}

/// `8`, or `"8..64"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpusFile(pub String);

impl Serialize for GpusFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GpusFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = GpusFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of GPUs like `8`, or `\"8..64\"`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<GpusFile, E> {
                Ok(GpusFile(text.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<GpusFile, E> {
                Ok(GpusFile(number.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<GpusFile, E> {
                Ok(GpusFile(number.to_string()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for GpusFile {
    fn schema_name() -> Cow<'static, str> {
        "GpusFile".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How many GPUs: `8`, or `\"8..64\"`.",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }]
        })
    }
}
