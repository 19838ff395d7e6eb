//! What a trainer sends: read from JSON, plain or gzip, into values whose texts are bounded. Decides nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;

use antiphon_signals::Signal;
use antiphon_types::{
    Ack, AckBody, AskBody, AttemptId, Bytes, Checkpoint, DirectiveId, Millis, ShardOrigin,
    Timestamp,
};
use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::GzDecoder;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::BODY_BYTES_MAX;
use crate::api::problem::Fault;

/// Signals of one batch.
const SIGNALS_MAX: usize = 8_192;
/// Checkpoints, acknowledgements, asks and shards of one batch: each may be an event.
const ENTRIES_MAX: usize = 4_096;
/// Longest path that Linux takes.
const PATH_MAX: usize = 4_096;
/// Longest text that a trainer may put into the log.
const TEXT_MAX: usize = 1_000;
/// Longest name of a shard, category or source.
pub(crate) const NAME_MAX: usize = 200;
/// Shards that one shard may have been made from.
const PARENTS_MAX: usize = 64;

/// What a trainer sends.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct Batch<'a> {
    /// Number of the attempt.
    pub(crate) attempt: u32,
    /// Names one process of the trainer, so that its numbering starts anew after a restart.
    #[serde(borrow)]
    #[schema(value_type = String)]
    pub(crate) boot: Cow<'a, str>,
    /// Number of the batch; sent twice, it counts once.
    pub(crate) seq: u64,
    /// The highest directive up to which all are handled.
    #[serde(default)]
    pub(crate) cursor: u64,
    /// In batches until the first is answered, and where shards are new.
    #[serde(default)]
    pub(crate) attach: Option<Attach>,
    /// Signals dropped since the last batch because the buffer was full.
    #[serde(default)]
    pub(crate) dropped: u64,
    #[serde(default, borrow)]
    #[schema(value_type = Vec<Object>)]
    pub(crate) signals: Vec<Signal<'a>>,
    #[serde(default)]
    pub(crate) checkpoints: Vec<CheckpointIn>,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub(crate) acks: Vec<AckIn>,
    #[serde(default)]
    #[schema(value_type = Vec<Object>)]
    pub(crate) asks: Vec<AskIn>,
}

/// A trainer's hello.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(crate) struct Attach {
    /// The step it starts from.
    pub(crate) step: u64,
    /// Directives handled above the cursor.
    pub(crate) done: Vec<u64>,
    /// Where shards came from.
    #[schema(value_type = Object)]
    pub(crate) shards: BTreeMap<String, OriginIn>,
}

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
}

impl OriginIn {
    fn read(self) -> ShardOrigin {
        let milli = |temperature: f64| (temperature * 1_000.0).round() as u32;
        let usable = |temperature: &f64| (0.0..=1_000.0).contains(temperature);
        ShardOrigin {
            category: cut(self.category, NAME_MAX),
            source: cut(self.source, NAME_MAX),
            chunk: cut(self.chunk, NAME_MAX),
            generator: cut(self.generator, NAME_MAX),
            temperature_milli: self.temperature.filter(usable).map(milli),
            parents: self
                .parents
                .into_iter()
                .take(PARENTS_MAX)
                .map(|parent| cut(parent, NAME_MAX))
                .collect(),
            code: cut(self.code, NAME_MAX),
            made_by: None,
            samples: self.samples,
        }
    }
}

impl Attach {
    /// The origins of the shards that it names.
    pub(crate) fn origins(&mut self) -> BTreeMap<String, ShardOrigin> {
        std::mem::take(&mut self.shards)
            .into_iter()
            .take(ENTRIES_MAX)
            .map(|(shard, origin)| (cut(shard, NAME_MAX), origin.read()))
            .collect()
    }
}

/// A checkpoint that is durable.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct CheckpointIn {
    step: u64,
    path: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    save_ms: f64,
    #[serde(default)]
    manifest: Option<String>,
}

impl CheckpointIn {
    /// The checkpoint, if a later attempt can be given its path.
    pub(crate) fn read(self, attempt: AttemptId, at: Timestamp) -> Option<Checkpoint> {
        if self.path.is_empty() || self.path.len() > PATH_MAX || self.path.contains('\0') {
            tracing::warn!(%attempt, step = self.step, "a checkpoint without a usable path is passed over");
            return None;
        }
        Some(Checkpoint {
            attempt,
            step: self.step,
            path: self.path,
            bytes: Bytes::new(self.bytes),
            save: Millis::from_millis(self.save_ms.clamp(0.0, 1e12) as u64),
            manifest: cut(self.manifest.unwrap_or_default(), TEXT_MAX),
            at,
        })
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct AckIn {
    directive: u64,
    #[serde(default)]
    applied: Option<Applied>,
    #[serde(default)]
    rejected: Option<Rejected>,
    #[serde(default)]
    failed: Option<Failed>,
    #[serde(default)]
    expired: Option<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Applied {
    slot: u64,
}

#[derive(Debug, Deserialize)]
struct Rejected {
    reason: String,
}

#[derive(Debug, Deserialize)]
struct Failed {
    error: String,
}

impl AckIn {
    /// The answer, if it says what became of the directive.
    pub(crate) fn read(self) -> Option<Ack> {
        let body = if let Some(Applied { slot }) = self.applied {
            AckBody::Applied { slot }
        } else if let Some(Rejected { reason }) = self.rejected {
            AckBody::Rejected {
                reason: cut(reason, TEXT_MAX),
            }
        } else if let Some(Failed { error }) = self.failed {
            AckBody::Failed {
                error: cut(error, TEXT_MAX),
            }
        } else {
            self.expired.map(|_| AckBody::Expired)?
        };
        Some(Ack {
            directive: DirectiveId(self.directive),
            body,
        })
    }
}

/// Something that the trainer asks for.
#[derive(Debug, Deserialize)]
pub(crate) struct AskIn {
    /// Its number among the sender's asks: sent twice, it is granted once.
    #[serde(default)]
    pub(crate) id: u64,
    ask: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    gpus: Option<u32>,
    #[serde(default)]
    more_ms: Option<u64>,
    #[serde(default)]
    during_ms: Option<u64>,
    #[serde(default)]
    category: Option<String>,
}

impl AskIn {
    /// What is asked for and why.
    ///
    /// # Errors
    /// What is missing.
    pub(crate) fn read(self) -> Result<(AskBody, String), String> {
        let missing = |field: &str| format!("an ask for `{}` names its `{field}`", self.ask);
        let span = |ms: Option<u64>, field: &str| {
            let ms = ms.ok_or_else(|| missing(field))?;
            Ok::<_, String>(Millis::from_millis(ms))
        };
        let body = match self.ask.as_str() {
            "gpus" => AskBody::Gpus {
                gpus: self.gpus.ok_or_else(|| missing("gpus"))?,
            },
            "time" => AskBody::Time {
                more: span(self.more_ms, "more_ms")?,
            },
            "samples" => AskBody::Samples {
                category: cut(
                    self.category.clone().ok_or_else(|| missing("category"))?,
                    NAME_MAX,
                ),
            },
            "pause" => AskBody::Pause,
            "protection" => AskBody::Protection {
                during: span(self.during_ms, "during_ms")?,
            },
            other => {
                return Err(format!(
                    "there is no ask `{}`: there are gpus, time, samples, pause and protection",
                    cut(other.to_owned(), NAME_MAX)
                ));
            }
        };
        Ok((body, cut(self.reason, TEXT_MAX)))
    }
}

/// The body in plain JSON. A small body may hold a very large one: what comes out is bounded like what comes in.
pub(crate) fn plain<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Fault> {
    let refuse = |status, detail: String, help: &str| Fault::new(status, "AP0501", detail, help);
    match headers.get(header::CONTENT_ENCODING) {
        None => return Ok(Cow::Borrowed(body)),
        Some(encoding) if encoding == "identity" => return Ok(Cow::Borrowed(body)),
        Some(encoding) if encoding == "gzip" => (),
        Some(encoding) => {
            let detail = format!("the encoding {encoding:?} is not known");
            let help = "send plain JSON, or gzip";
            return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail, help));
        }
    }
    let mut inflated = Vec::with_capacity(body.len().saturating_mul(4).min(BODY_BYTES_MAX));
    let read = GzDecoder::new(body)
        .take(BODY_BYTES_MAX as u64 + 1)
        .read_to_end(&mut inflated);
    if let Err(error) = read {
        let detail = format!("the body is no gzip: {error}");
        return Err(refuse(StatusCode::BAD_REQUEST, detail, "send it again"));
    }
    if inflated.len() > BODY_BYTES_MAX {
        let detail = format!("the batch is larger than {BODY_BYTES_MAX} bytes");
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, detail, "send smaller batches"));
    }
    Ok(Cow::Owned(inflated))
}

/// Reads a batch.
pub(crate) fn read(plain: &[u8]) -> Result<Batch<'_>, Fault> {
    let batch: Batch<'_> = serde_json::from_slice(plain).map_err(|error| {
        Fault::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "AP0501",
            format!("the batch cannot be read: {error}"),
            "see `/v1/openapi.json` for its fields",
        )
    })?;
    let entries = [
        ("signals", batch.signals.len(), SIGNALS_MAX),
        ("checkpoints", batch.checkpoints.len(), ENTRIES_MAX),
        ("acks", batch.acks.len(), ENTRIES_MAX),
        ("asks", batch.asks.len(), ENTRIES_MAX),
    ];
    match entries.iter().find(|(_, count, most)| count > most) {
        None => Ok(batch),
        Some((name, count, most)) => Err(Fault::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "AP0501",
            format!("the batch holds {count} {name}: the limit is {most}"),
            "send smaller batches",
        )),
    }
}

/// Bounds a text that is kept.
pub(crate) fn cut(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}
