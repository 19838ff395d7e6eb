//! Who may speak: people by tokens of which only hashes are kept, and attempts by tokens that are derived, not stored.
//! Says who somebody is; what they may do stands in `api/auth.rs`.

mod people;
mod rate;
mod sessions;

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use antiphon_types::AttemptId;

pub(crate) use people::{Caller, NewToken, PeopleError, Record, Role, Stranger, TokenState};
pub(crate) use rate::Allowance;
pub(crate) use sessions::SESSION_LIFE;

use people::People;
use sessions::Sessions;

/// The file in the state directory that holds the token of the person who runs the server.
pub const TOKEN_FILE: &str = "token";

/// The server's secrets.
pub(crate) struct Tokens {
    pub(crate) people: People,
    pub(crate) sessions: Sessions,
    attempts: [u8; 32],
}

impl Tokens {
    /// Reads the secrets, and makes them where there are none. `owner` is the person who runs the server.
    pub(crate) fn open(state_dir: &Path, owner: &str, rate: Allowance) -> io::Result<Self> {
        let own = secret(&state_dir.join(TOKEN_FILE))?;
        let attempts = secret(&state_dir.join("attempt-key"))?;
        Ok(Self {
            people: People::open(state_dir, owner, &own, rate)?,
            sessions: Sessions::default(),
            attempts: *blake3::hash(attempts.as_bytes()).as_bytes(),
        })
    }

    /// The token that lets the processes of one attempt speak for it, and nobody else.
    pub(crate) fn of_attempt(&self, attempt: AttemptId) -> String {
        blake3::keyed_hash(&self.attempts, attempt.to_string().as_bytes())
            .to_hex()
            .to_string()
    }

    /// Whether this is the token of that attempt.
    pub(crate) fn is_attempt(&self, token: &str, attempt: AttemptId) -> bool {
        same(token, &self.of_attempt(attempt))
    }

    /// Whose browser this is.
    pub(crate) fn of_session(&self, secret: &str) -> Result<Caller, Stranger> {
        let token = self.sessions.token(secret).ok_or(Stranger::Unknown)?;
        // Asked again with every request: what is revoked or expired ends its sessions with it.
        self.people.by_hash(&token)
    }
}

/// Compares hashes, whose comparison takes the same time wherever they differ.
fn same(given: &str, expected: &str) -> bool {
    blake3::hash(given.as_bytes()) == blake3::hash(expected.as_bytes())
}

/// Reads the token of the person who runs the server, as a client does.
///
/// # Errors
/// Where the file cannot be read.
pub fn read_token(state_dir: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(state_dir.join(TOKEN_FILE))?
        .trim()
        .to_owned())
}

fn secret(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => return Ok(text.trim().to_owned()),
        Ok(_) => (),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (),
        Err(error) => return Err(error),
    }
    let text = random()?;
    write_whole(path, text.as_bytes())?;
    Ok(text)
}

/// A new secret of 256 bits.
fn random() -> io::Result<String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Written beside and renamed, for its owner alone: a crash leaves the old file or the new one, whole.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    // The name has to be as durable as what it names: a revoked token would come back.
    match path.parent() {
        Some(dir) => fs::File::open(dir)?.sync_all(),
        None => Ok(()),
    }
}
