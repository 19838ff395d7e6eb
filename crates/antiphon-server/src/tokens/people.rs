//! Tokens of people: made, listed, expired, revoked. Kept in one file that is written whole; see
//! `docs/decisions/0013-tokens-and-roles.md` for why they are not in the log.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use antiphon_kernel::State;
use antiphon_types::{Millis, Timestamp};
use serde::{Deserialize, Serialize};

use super::rate::{Allowance, Bucket};
use super::{random, write_whole};
use crate::api::now;

/// The file in the state directory.
const FILE: &str = "tokens.json";
/// Raised when an older server would misread the file.
const FILE_VERSION: u32 = 1;
/// What a token begins with, so that one that leaked into a repository is found by those who look for such.
const PREFIX: &str = "antiphon-";
/// Tokens that are kept, revoked ones included.
const TOKENS_MAX: usize = 10_000;
/// Teams of one member.
const TEAMS_MAX: usize = 100;
/// Characters of a name.
const NAME_MAX: usize = 64;

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Sees everything, changes nothing.
    Viewer,
    /// Sees and touches the jobs of some teams.
    Member,
    /// Sees and touches all jobs, and the nodes; pauses.
    Operator,
    /// An operator who also makes and revokes tokens.
    Admin,
}

impl Role {
    pub(crate) const ALL: [Self; 4] = [Self::Viewer, Self::Member, Self::Operator, Self::Admin];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Member => "member",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who asks. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// What the log calls them.
    pub(crate) name: Arc<str>,
    pub(crate) role: Role,
    /// Of a member: whose jobs they see and touch, together with those of the teams below.
    pub(crate) teams: Arc<[String]>,
    /// Hash of their token.
    pub(crate) token: [u8; 32],
    bucket: Arc<Bucket>,
}

impl Caller {
    /// Whether they may see a team's jobs.
    pub(crate) fn sees(&self, state: &State, team: &str) -> bool {
        if self.role != Role::Member {
            return true;
        }
        let spec = |name: &str| state.teams().named(name).map(|team| &team.spec);
        let mut next = Some(team);
        while let Some(name) = next {
            if self.teams.iter().any(|own| own == name) {
                return true;
            }
            next = spec(name).and_then(|spec| spec.parent.as_deref());
        }
        false
    }

    /// Takes one request out of the token's allowance, or says how long to wait.
    pub(crate) fn spend(&self) -> Result<(), Duration> {
        self.bucket.take()
    }
}

/// Why a token is not that of anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// This server never made it, or has forgotten it.
    Unknown,
    /// It was good until then.
    Expired { name: String, at: Timestamp },
    /// It was taken back.
    Revoked { name: String, at: Timestamp },
}

/// A token as it is kept. The secret is random and of 256 bits, so its plain hash cannot be turned back by guessing, and a
/// slow hash, made for passwords that people choose, would only cost every request its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) name: String,
    hash: String,
    pub(crate) role: Role,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) teams: Vec<String>,
    pub(crate) made_ms: u64,
    pub(crate) made_by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoked_by: Option<String>,
}

/// Whether a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenState {
    Valid,
    Expired,
    Revoked,
}

impl Record {
    pub(crate) fn state(&self, now: Timestamp) -> TokenState {
        if self.revoked_ms.is_some() {
            TokenState::Revoked
        } else if self.expires_ms.is_some_and(|at| at <= now.as_millis()) {
            TokenState::Expired
        } else {
            TokenState::Valid
        }
    }
}

/// A token to make.
#[derive(Debug, Clone)]
pub(crate) struct NewToken {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) teams: Vec<String>,
    pub(crate) expires_in: Option<Millis>,
}

/// Why a token cannot be made or revoked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeopleError {
    #[error("`{name}` is no name for a token: {why}")]
    BadName { name: String, why: &'static str },
    #[error("a {role} token {what}")]
    BadTeams { role: Role, what: &'static str },
    #[error("there is a token `{name}` that is good")]
    NameTaken { name: String },
    #[error("there is no token `{name}`")]
    Unknown { name: String },
    #[error("there are {TOKENS_MAX} tokens, as many as are kept")]
    TooMany,
    #[error("the tokens cannot be written: {0}")]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    tokens: Vec<Record>,
}

struct Known {
    record: Record,
    caller: Caller,
}

/// Everybody who has a token.
pub(crate) struct People {
    path: PathBuf,
    owner: Caller,
    rate: Allowance,
    /// By hash. An attacker cannot choose what a token hashes to, so how long a look-up takes tells nothing.
    known: RwLock<BTreeMap<[u8; 32], Known>>,
    /// One change at a time, from reading over the disk to what requests see.
    changing: Mutex<()>,
}

impl People {
    pub(super) fn open(
        state_dir: &Path,
        owner: &str,
        own_token: &str,
        rate: Allowance,
    ) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        let records = read(&path)?;
        let caller = |record: &Record, token| Caller {
            name: record.name.as_str().into(),
            role: record.role,
            teams: record.teams.clone().into(),
            token,
            bucket: Arc::new(Bucket::new(rate)),
        };
        let mut known = BTreeMap::new();
        for record in records {
            let hash = blake3::Hash::from_hex(&record.hash)
                .map_err(|error| bad(&path, &format!("hash of `{}`: {error}", record.name)))?;
            let caller = caller(&record, *hash.as_bytes());
            known.insert(*hash.as_bytes(), Known { record, caller });
        }
        Ok(Self {
            path,
            owner: Caller {
                name: owner.into(),
                role: Role::Admin,
                teams: Arc::new([]),
                token: hash(own_token),
                bucket: Arc::new(Bucket::new(rate)),
            },
            rate,
            known: RwLock::new(known),
            changing: Mutex::default(),
        })
    }

    /// Whose token this is.
    pub(crate) fn by_token(&self, token: &str) -> Result<Caller, Stranger> {
        self.by_hash(&hash(token))
    }

    pub(crate) fn by_hash(&self, hash: &[u8; 32]) -> Result<Caller, Stranger> {
        if *hash == self.owner.token {
            return Ok(self.owner.clone());
        }
        let known = self.known();
        let Known { record, caller } = known.get(hash).ok_or(Stranger::Unknown)?;
        let at = |ms: Option<u64>| Timestamp::from_millis(ms.unwrap_or(0));
        match record.state(now()) {
            TokenState::Valid => Ok(caller.clone()),
            TokenState::Expired => Err(Stranger::Expired {
                name: record.name.clone(),
                at: at(record.expires_ms),
            }),
            TokenState::Revoked => Err(Stranger::Revoked {
                name: record.name.clone(),
                at: at(record.revoked_ms),
            }),
        }
    }

    /// All tokens by name; not the owner's, which is a file of its own.
    pub(crate) fn list(&self) -> Vec<Record> {
        let known = self.known();
        let mut records: Vec<Record> = known.values().map(|known| known.record.clone()).collect();
        records.sort_by(|a, b| (&a.name, a.made_ms).cmp(&(&b.name, b.made_ms)));
        records
    }

    /// Makes a token and returns its secret, which is kept nowhere. One of the same name that is expired or revoked is
    /// forgotten.
    pub(crate) fn create(&self, new: NewToken, by: &str) -> Result<(String, Record), PeopleError> {
        let new = checked(new, &self.owner.name)?;
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let at = now();
        let mut records = self.list();
        let good =
            |record: &Record| record.name == new.name && record.state(at) == TokenState::Valid;
        if records.iter().any(good) {
            return Err(PeopleError::NameTaken { name: new.name });
        }
        records.retain(|record| record.name != new.name);
        if records.len() >= TOKENS_MAX {
            return Err(PeopleError::TooMany);
        }
        let secret = format!("{PREFIX}{}", random()?);
        let token = hash(&secret);
        let record = Record {
            name: new.name,
            hash: blake3::Hash::from_bytes(token).to_hex().to_string(),
            role: new.role,
            teams: new.teams,
            made_ms: at.as_millis(),
            made_by: by.to_owned(),
            expires_ms: new.expires_in.map(|span| at.after(span).as_millis()),
            revoked_ms: None,
            revoked_by: None,
        };
        records.push(record.clone());
        self.write(records)?;
        let caller = Caller {
            name: record.name.as_str().into(),
            role: record.role,
            teams: record.teams.clone().into(),
            token,
            bucket: Arc::new(Bucket::new(self.rate)),
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, known| known.record.name != record.name);
        let of = record.clone();
        known.insert(token, Known { record: of, caller });
        Ok((secret, record))
    }

    /// Takes a token back. The next request that carries it is refused.
    pub(crate) fn revoke(&self, name: &str, by: &str) -> Result<Record, PeopleError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut records = self.list();
        let named = |record: &&mut Record| record.name == name;
        let Some(record) = records.iter_mut().find(named) else {
            let name = name.to_owned();
            return Err(PeopleError::Unknown { name });
        };
        if record.revoked_ms.is_none() {
            record.revoked_ms = Some(now().as_millis());
            record.revoked_by = Some(by.to_owned());
        }
        let record = record.clone();
        self.write(records)?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for known in known.values_mut() {
            if known.record.name == name {
                known.record = record.clone();
            }
        }
        Ok(record)
    }

    fn write(&self, tokens: Vec<Record>) -> io::Result<()> {
        let version = FILE_VERSION;
        let text = serde_json::to_vec_pretty(&File { version, tokens })?;
        write_whole(&self.path, &text)
    }

    fn known(&self) -> RwLockReadGuard<'_, BTreeMap<[u8; 32], Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hash(token: &str) -> [u8; 32] {
    *blake3::hash(token.as_bytes()).as_bytes()
}

fn read(path: &Path) -> io::Result<Vec<Record>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    // A file that is half understood would let in whom it shuts out.
    let file: File =
        serde_json::from_slice(&text).map_err(|error| bad(path, &error.to_string()))?;
    if file.version != FILE_VERSION {
        let why = format!(
            "it is of version {}, this server reads {FILE_VERSION}",
            file.version
        );
        return Err(bad(path, &why));
    }
    Ok(file.tokens)
}

fn bad(path: &Path, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("`{}` cannot be read: {why}", path.display()),
    )
}

fn checked(mut new: NewToken, owner: &str) -> Result<NewToken, PeopleError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let why = if new.name.is_empty() || new.name.len() > NAME_MAX {
        Some("give 1 to 64 characters")
    } else if !new.name.chars().all(plain) {
        Some("give letters, digits, `-`, `_`, `.` and `@`")
    } else if new.name == owner {
        Some("the person who runs the server has it, and the log has to tell them apart")
    } else {
        None
    };
    if let Some(why) = why {
        let name = new.name;
        return Err(PeopleError::BadName { name, why });
    }
    new.teams.sort();
    new.teams.dedup();
    let role = new.role;
    let member = role == Role::Member;
    let what = match new.teams.len() {
        0 if member => Some("needs a team"),
        1.. if !member => Some("has no teams: it is for all of them"),
        n if n > TEAMS_MAX => Some("has at most 100 teams"),
        _ => None,
    };
    match what {
        Some(what) => Err(PeopleError::BadTeams { role, what }),
        None => Ok(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(dir: &Path) -> People {
        People::open(dir, "root", "own", Allowance::default()).unwrap()
    }

    fn token(name: &str, role: Role, teams: &[&str]) -> NewToken {
        NewToken {
            name: name.into(),
            role,
            teams: teams.iter().map(|&team| team.to_owned()).collect(),
            expires_in: None,
        }
    }

    #[test]
    fn a_secret_is_kept_nowhere_and_opens_again_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = people(dir.path());
        let (secret, _) = first
            .create(token("ann", Role::Member, &["rlhf"]), "root")
            .unwrap();
        let text = fs::read_to_string(dir.path().join(FILE)).unwrap();
        assert!(!text.contains(secret.trim_start_matches(PREFIX)), "{text}");
        let ann = people(dir.path()).by_token(&secret).unwrap();
        assert_eq!((&*ann.name, ann.role), ("ann", Role::Member));
        assert_eq!(&*ann.teams, ["rlhf".to_owned()]);
        assert_eq!(&*first.by_token("own").unwrap().name, "root");
        assert_eq!(first.by_token("other").unwrap_err(), Stranger::Unknown);
    }

    #[test]
    fn a_revoked_token_is_refused_at_once_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = people(dir.path());
        let (secret, _) = first
            .create(token("ann", Role::Viewer, &[]), "root")
            .unwrap();
        let revoked = first.revoke("ann", "root").unwrap();
        for people in [&first, &people(dir.path())] {
            let refused = people.by_token(&secret).unwrap_err();
            let at = Timestamp::from_millis(revoked.revoked_ms.unwrap());
            let name = "ann".to_owned();
            assert_eq!(refused, Stranger::Revoked { name, at });
        }
        // Its name is free again, and the old secret does not come back with it.
        let (new, _) = first
            .create(token("ann", Role::Viewer, &[]), "root")
            .unwrap();
        assert!(first.by_token(&new).is_ok());
        assert_eq!(first.by_token(&secret).unwrap_err(), Stranger::Unknown);
    }

    #[test]
    fn an_expired_token_is_refused_and_listed_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let people = people(dir.path());
        let new = NewToken {
            expires_in: Some(Millis::ZERO),
            ..token("ann", Role::Operator, &[])
        };
        let (secret, record) = people.create(new, "root").unwrap();
        assert!(matches!(
            people.by_token(&secret),
            Err(Stranger::Expired { .. })
        ));
        assert_eq!(record.state(now()), TokenState::Expired);
        assert_eq!(people.list(), [record]);
    }

    #[test]
    fn what_cannot_be_a_token_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let people = people(dir.path());
        people
            .create(token("ann", Role::Viewer, &[]), "root")
            .unwrap();
        for (new, expected) in [
            (
                token("ann", Role::Admin, &[]),
                "there is a token `ann` that is good",
            ),
            (
                token("root", Role::Admin, &[]),
                "`root` is no name for a token: the person who runs the server has it, and the log has to tell them apart",
            ),
            (
                token("a b", Role::Admin, &[]),
                "`a b` is no name for a token: give letters, digits, `-`, `_`, `.` and `@`",
            ),
            (
                token("", Role::Admin, &[]),
                "`` is no name for a token: give 1 to 64 characters",
            ),
            (
                token("bob", Role::Member, &[]),
                "a member token needs a team",
            ),
            (
                token("bob", Role::Viewer, &["x"]),
                "a viewer token has no teams: it is for all of them",
            ),
        ] {
            let refused = people.create(new, "root").unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
        assert!(matches!(
            people.revoke("bob", "root"),
            Err(PeopleError::Unknown { .. })
        ));
    }

    #[test]
    fn a_file_that_is_not_understood_stops_the_server() {
        let dir = tempfile::tempdir().unwrap();
        for text in [
            "{",
            r#"{"version": 2, "tokens": []}"#,
            r#"{"version": 1, "tokens": [{"name": "a"}]}"#,
        ] {
            fs::write(dir.path().join(FILE), text).unwrap();
            let opened = People::open(dir.path(), "root", "own", Allowance::default());
            let error = opened.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
        }
    }
}
