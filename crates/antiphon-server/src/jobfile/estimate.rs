//! How long a job will run, as its user says: one span, or an interval. What the kernel makes of it is its own business.

use std::borrow::Cow;
use std::fmt;

use antiphon_types::{Estimate, Millis};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::read::JobFileError;
use super::time::span;

/// How long a job will run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EstimateFile {
    /// One span: it is taken to end within half and one and a half times of it.
    Span(String),
    /// An interval.
    Interval(IntervalFile),
}

/// An interval of how long a job will run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IntervalFile {
    /// Nine of ten such jobs end later. Default: half of `expected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<String>,
    /// Half end earlier.
    pub expected: String,
    /// Nine of ten end earlier. Default: one and a half times `expected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<String>,
}

/// The estimate, with both ends of its interval.
pub(super) fn estimate(file: Option<&EstimateFile>) -> Result<Option<Estimate>, JobFileError> {
    let (at, expected, low, high) = match file {
        None => return Ok(None),
        Some(EstimateFile::Span(expected)) => ("estimate", expected, None, None),
        Some(EstimateFile::Interval(interval)) => (
            "estimate.expected",
            &interval.expected,
            interval.low.as_deref(),
            interval.high.as_deref(),
        ),
    };
    let expected = span(at, Some(expected), Millis::ZERO)?;
    if expected.is_zero() {
        let help = "give how long it runs from its start to its end, like `6h`";
        return Err(JobFileError::value(at, "a job takes longer than 0s", help));
    }
    let half = Millis::from_millis(expected.as_millis() / 2);
    let low = span("estimate.low", low, half)?;
    let high = span("estimate.high", high, expected + half)?;
    if low > expected || expected > high {
        let why = format!("its ends are not in order: {low}, {expected}, {high}");
        let help = "give `low` at most as long as `expected`, and that at most as long as `high`";
        return Err(JobFileError::value("estimate", why, help));
    }
    Ok(Some(Estimate {
        low,
        expected,
        high,
    }))
}

impl Serialize for EstimateFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Span(span) => span.serialize(serializer),
            Self::Interval(interval) => interval.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for EstimateFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = EstimateFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a span like `6h`, or a table with `low`, `expected` and `high`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<EstimateFile, E> {
                Ok(EstimateFile::Span(text.to_owned()))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<EstimateFile, A::Error> {
                let interval = IntervalFile::deserialize(MapAccessDeserializer::new(map))?;
                Ok(EstimateFile::Interval(interval))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for EstimateFile {
    fn schema_name() -> Cow<'static, str> {
        "EstimateFile".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How long a job will run: a span, or an interval.",
            "anyOf": [{ "type": "string" }, generator.subschema_for::<IntervalFile>()]
        })
    }
}
