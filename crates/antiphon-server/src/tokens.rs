//! Who may speak: the user's token in a file that only the user can read, and a token for each attempt that is derived,
//! not stored. Makes no decisions about what a speaker may ask.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use antiphon_types::AttemptId;

/// The file in the state directory that holds the user's token.
pub const TOKEN_FILE: &str = "token";

/// The server's secrets.
pub(crate) struct Tokens {
    user: String,
    attempts: [u8; 32],
}

impl Tokens {
    /// Reads the secrets, and makes them where there are none.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        let user = secret(&state_dir.join(TOKEN_FILE))?;
        let attempts = secret(&state_dir.join("attempt-key"))?;
        Ok(Self {
            user,
            attempts: *blake3::hash(attempts.as_bytes()).as_bytes(),
        })
    }

    /// Whether this is the user's token.
    pub(crate) fn is_user(&self, token: &str) -> bool {
        same(token, &self.user)
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
}

/// Compares hashes, whose comparison takes the same time wherever they differ.
fn same(given: &str, expected: &str) -> bool {
    blake3::hash(given.as_bytes()) == blake3::hash(expected.as_bytes())
}

/// Reads the user's token as a client does.
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
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    // Written beside and renamed: a crash leaves a whole secret or none.
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(text)
}
