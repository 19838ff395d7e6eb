//! What a trainer sends: read from JSON, plain or gzip, into values whose texts are bounded. Decides nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read as _;

use antiphon_signals::Signal;
use antiphon_types::{Ack, AckBody, AttemptId, Bytes, Checkpoint, DirectiveId, Millis, Timestamp};
use axum::http::{HeaderMap, StatusCode, header};
use flate2::read::GzDecoder;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::api::BODY_BYTES_MAX;
use crate::api::asks::AskIn;
use crate::api::origins::OriginIn;
use crate::api::problem::Fault;

/// Signals of one batch.
const SIGNALS_MAX: usize = 8_192;
/// Checkpoints, acknowledgements, asks and shards of one batch: each may be an event.
const ENTRIES_MAX: usize = 4_096;
/// Longest path that Linux takes.
const PATH_MAX: usize = 4_096;
/// Longest text that a trainer may put into the log.
const TEXT_MAX: usize = 1_000;

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
            manifest: cut(self.manifest.unwrap_or_default()),
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
                reason: cut(reason),
            }
        } else if let Some(Failed { error }) = self.failed {
            AckBody::Failed { error: cut(error) }
        } else {
            self.expired.map(|_| AckBody::Expired)?
        };
        Some(Ack {
            directive: DirectiveId(self.directive),
            body,
        })
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
        return Err(refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            detail,
            "send smaller batches",
        ));
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
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}
