//! From log to state and back: reads the newest usable image and replays what follows, writes images, audits a log.
//! Replay applies events and never decides.

use std::sync::Arc;

use antiphon_kernel::{State, apply};
use antiphon_store::{
    Digest, Entry, Fence, Image, Log, StoreError, decode_state, digest, encode_state,
};
use antiphon_types::{Body, EVENT_VERSION, Event, Seq, Timestamp};
use tokio::task::JoinHandle;

use crate::event_loop::caught;

/// The version of the encoded state: raised with every change of its form. An image of another version is passed over
/// and the log replayed instead, so this never has to be migrated.
pub(crate) const STATE_VERSION: u32 = 13;
/// Events between two images: a restart replays at most about twice as many, in well under a second.
const IMAGE_EVERY: u64 = 20_000;
/// Events read at once.
const PAGE: usize = 10_000;

/// Events that are replayed at most to see one state of the past: seconds of one core.
const REPLAYED_MAX: u64 = 200_000;

/// Why a log could not be turned into a state.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The log could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event that was logged trips an assertion of this version.
    #[error("event {seq} ({kind}) of the log cannot be applied: {bug}")]
    Event {
        /// Its place.
        seq: u64,
        /// Its kind.
        kind: &'static str,
        /// The assertion's text.
        bug: String,
    },
    /// A state of the past lies too far behind any image that is kept.
    #[error("{events} events would have to be replayed")]
    TooFar {
        /// How many.
        events: u64,
    },
}

/// Reads the state that a log stands for.
///
/// # Errors
/// Where the log cannot be read, or holds an event that this version does not know or cannot apply.
pub(crate) async fn load(log: &dyn Log) -> Result<State, LoadError> {
    let mut state = State::default();
    for header in log.images().await? {
        if header.version != STATE_VERSION {
            continue;
        }
        let decoded = match log.image(header.seq).await {
            Ok(image) => decode_state(&image.state),
            Err(error) => Err(error),
        };
        match decoded {
            Ok(image) => {
                state = image;
                break;
            }
            Err(error) => tracing::warn!(seq = header.seq, %error, "a state image is passed over"),
        }
    }
    replay(log, &mut state, u64::MAX).await?;
    Ok(state)
}

/// Reads an event and the state it was made in.
///
/// # Errors
/// Where the log cannot be read, or the event lies too far behind every image that is kept.
pub(crate) async fn load_before(log: &dyn Log, seq: u64) -> Result<(State, Event), LoadError> {
    let images = log.images().await?;
    let known = |version: u32, at: u64| version == STATE_VERSION && at < seq;
    let image = images
        .iter()
        .find(|header| known(header.version, header.seq));
    let events = seq - image.map_or(0, |header| header.seq);
    if events > REPLAYED_MAX {
        return Err(LoadError::TooFar { events });
    }
    let mut state = match image {
        Some(header) => decode_state(&log.image(header.seq).await?.state)?,
        None => State::default(),
    };
    replay(log, &mut state, seq - 1).await?;
    let entries = log.read(seq - 1, 1).await?;
    let entry = entries.first().ok_or(StoreError::NoImage { seq })?;
    Ok((state, decode(entry)?))
}

/// Applies the events after `state` up to and including `until`.
async fn replay(log: &dyn Log, state: &mut State, until: u64) -> Result<(), LoadError> {
    loop {
        let entries = log.read(state.seq().0, PAGE).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in &entries {
            if entry.seq > until {
                return Ok(());
            }
            let event = decode(entry)?;
            caught(|| apply(state, &event)).map_err(|bug| LoadError::Event {
                seq: entry.seq,
                kind: event.body.kind(),
                bug,
            })?;
        }
    }
}

/// Reads one event.
pub(crate) fn decode(entry: &Entry) -> Result<Event, StoreError> {
    let place = || format!("event {}", entry.seq);
    if entry.version > EVENT_VERSION {
        return Err(StoreError::Newer {
            place: place(),
            found: entry.version,
            known: EVENT_VERSION,
        });
    }
    let body: Body = serde_json::from_str(&entry.body).map_err(|error| StoreError::Corrupt {
        place: place(),
        what: error.to_string(),
    })?;
    Ok(Event {
        seq: Seq(entry.seq),
        at: Timestamp::from_millis(entry.at_ms),
        body,
    })
}

/// Writes an image every so many events, beside the loop.
pub(crate) struct ImageKeeper {
    log: Arc<dyn Log>,
    fence: Fence,
    last: u64,
    writing: Option<JoinHandle<()>>,
}

impl ImageKeeper {
    pub(crate) fn new(log: Arc<dyn Log>, fence: Fence, last: Seq) -> Self {
        Self {
            log,
            fence,
            last: last.0,
            writing: None,
        }
    }

    /// Starts an image where one is due and none is being written.
    pub(crate) fn after_commit(&mut self, state: &State) {
        let busy = self
            .writing
            .as_ref()
            .is_some_and(|writing| !writing.is_finished());
        if busy || state.seq().0 < self.last + IMAGE_EVERY {
            return;
        }
        self.last = state.seq().0;
        let (log, fence, state) = (self.log.clone(), self.fence, state.clone());
        self.writing = Some(tokio::spawn(async move {
            if let Err(error) = write(&*log, fence, &state).await {
                tracing::warn!(%error, "a state image could not be written; the log stands for itself");
            }
        }));
    }

    /// Writes a last image, so that the next start is quick.
    pub(crate) async fn finish(self, state: State) -> Result<(), StoreError> {
        if let Some(writing) = self.writing {
            let _ = writing.await;
        }
        if state.seq().0 == 0 {
            return Ok(());
        }
        write(&*self.log, self.fence, &state).await
    }
}

async fn write(log: &dyn Log, fence: Fence, state: &State) -> Result<(), StoreError> {
    let encoded = encode_state(state);
    let digest = digest(&encoded);
    let image = Image {
        seq: state.seq().0,
        version: STATE_VERSION,
        digest,
        state: encoded,
    };
    log.put_image(fence, image).await
}

/// The digest of a state: equal where the states are.
pub(crate) fn state_digest(state: &State) -> Digest {
    digest(&encode_state(state))
}

/// What an audit of a log found.
#[derive(Debug)]
pub struct AuditReport {
    /// Events in the log.
    pub events: u64,
    /// Images compared with the replay, and those of another version that could not be.
    pub images_compared: usize,
    /// Images of another version.
    pub images_passed_over: usize,
    /// Places where an image does not equal the replay of the log up to it.
    pub differences: Vec<Seq>,
    /// Digest of the state that the whole log stands for.
    pub digest: Digest,
    /// Jobs that have not ended.
    pub jobs_living: usize,
    /// The first invariant that does not hold at the end of the log.
    pub broken: Option<String>,
}

/// Replays a log from its first event and compares every state image on the way.
///
/// # Errors
/// Where the log cannot be read, or an event in it cannot be applied.
pub async fn audit(log: &dyn Log) -> Result<AuditReport, LoadError> {
    let mut headers = log.images().await?;
    headers.sort_by_key(|header| header.seq);
    let mut state = State::default();
    let (mut compared, mut passed_over, mut differences) = (0, 0, Vec::new());
    for header in headers {
        replay(log, &mut state, header.seq).await?;
        if header.version != STATE_VERSION {
            passed_over += 1;
            continue;
        }
        compared += 1;
        if state_digest(&state) != header.digest {
            differences.push(Seq(header.seq));
        }
    }
    replay(log, &mut state, u64::MAX).await?;
    Ok(AuditReport {
        events: state.seq().0,
        images_compared: compared,
        images_passed_over: passed_over,
        differences,
        digest: state_digest(&state),
        jobs_living: state
            .jobs()
            .values()
            .filter(|job| !job.state.is_ended())
            .count(),
        broken: antiphon_kernel::check::invariants(&state).err(),
    })
}

#[cfg(test)]
mod tests;
