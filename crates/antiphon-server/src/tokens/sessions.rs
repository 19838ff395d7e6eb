//! Browsers that have logged in. In memory: after a restart of the server people log in again.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antiphon_types::{Millis, Timestamp};

use super::random;
use crate::api::now;

/// How long a browser stays logged in: a working day.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(12 * 3_600);
/// Sessions at once. The one that ends first gives way to a new one.
const SESSIONS_MAX: usize = 10_000;

struct Session {
    /// Hash of the token that was shown at the login.
    token: [u8; 32],
    until: Timestamp,
}

/// Sessions by the hash of their secret.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<BTreeMap<[u8; 32], Session>>);

impl Sessions {
    /// Begins a session for a token, and returns its secret.
    pub(crate) fn begin(&self, token: [u8; 32]) -> io::Result<String> {
        let secret = random()?;
        let life = u64::try_from(SESSION_LIFE.as_millis()).unwrap_or(u64::MAX);
        let mut sessions = self.locked();
        let now = now();
        sessions.retain(|_, session| session.until > now);
        if sessions.len() >= SESSIONS_MAX {
            let first = sessions.iter().min_by_key(|(_, session)| session.until);
            if let Some(key) = first.map(|(key, _)| *key) {
                sessions.remove(&key);
            }
        }
        let until = now.after(Millis::from_millis(life));
        sessions.insert(hash(&secret), Session { token, until });
        Ok(secret)
    }

    /// Ends a session.
    pub(crate) fn end(&self, secret: &str) {
        self.locked().remove(&hash(secret));
    }

    /// The hash of the token under which a session was begun.
    pub(super) fn token(&self, secret: &str) -> Option<[u8; 32]> {
        let sessions = self.locked();
        let session = sessions.get(&hash(secret))?;
        (session.until > now()).then_some(session.token)
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Session>> {
        // Nothing in here panics halfway through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}
