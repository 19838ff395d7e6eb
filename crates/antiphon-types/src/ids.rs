//! Names of jobs, attempts, tasks, nodes, directives and log positions. Assigns none of them: the kernel does, in sequence.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is not the id it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what}: expected a form like `{example}`")]
pub struct IdError {
    /// The kind of id that was expected.
    pub what: &'static str,
    /// A correct example.
    pub example: &'static str,
    /// What stood there instead.
    pub text: String,
}

/// Serializes an id as its printed form where people read it (JSON), and as numbers where machines do (state images).
macro_rules! readable_serde {
    ($name:ident, $compact:ty, $to:expr, $from:expr) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    let to: fn(&Self) -> $compact = $to;
                    to(self).serialize(serializer)
                }
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(de::Error::custom)
                } else {
                    let from: fn($compact) -> Self = $from;
                    <$compact>::deserialize(deserializer).map(from)
                }
            }
        }
    };
}

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal, $example:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                text.strip_prefix($prefix)
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
                    .and_then(|digits| digits.parse().ok())
                    .map(Self)
                    .ok_or_else(|| IdError { what: $what, example: $example, text: text.to_owned() })
            }
        }
        readable_serde!($name, u64, |id| id.0, $name);
    };
}

numbered!(
    /// A job: what is submitted, admitted, charged and ended as a whole. Prints as `job-42`.
    JobId, "job-", "job id", "job-42"
);

/// A position in the event log; the first event has 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Seq(pub u64);

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A directive of one job; the first has 1.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct DirectiveId(pub u64);

impl fmt::Display for DirectiveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One launch of a job. Its number is the fencing token: a word from a lower number changes nothing. Prints as `job-42.3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The job that was launched.
    pub job: JobId,
    /// Which launch of it; the first is 1.
    pub number: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.number)
    }
}

impl FromStr for AttemptId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            what: "attempt id",
            example: "job-42.3",
            text: text.to_owned(),
        };
        let (job, number) = text.split_once('.').ok_or_else(wrong)?;
        Ok(Self {
            job: job.parse().map_err(|_| wrong())?,
            number: number.parse().map_err(|_| wrong())?,
        })
    }
}

readable_serde!(AttemptId, (u64, u32), |id| (id.job.0, id.number), |(
    job,
    number,
)| {
    AttemptId {
        job: JobId(job),
        number,
    }
});

/// One process of a role, on one node. Prints as `job-42.3/trainer.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The attempt that the task belongs to.
    pub attempt: AttemptId,
    /// The role's name.
    pub role: String,
    /// Which task of the role; the first is 0.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}.{}", self.attempt, self.role, self.index)
    }
}

impl FromStr for TaskId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            what: "task id",
            example: "job-42.3/trainer.0",
            text: text.to_owned(),
        };
        let (attempt, task) = text.split_once('/').ok_or_else(wrong)?;
        let (role, index) = task.rsplit_once('.').ok_or_else(wrong)?;
        Ok(Self {
            attempt: attempt.parse().map_err(|_| wrong())?,
            role: role.to_owned(),
            index: index.parse().map_err(|_| wrong())?,
        })
    }
}

readable_serde!(
    TaskId,
    (u64, u32, String, u32),
    |id| (
        id.attempt.job.0,
        id.attempt.number,
        id.role.clone(),
        id.index
    ),
    |(job, number, role, index)| TaskId {
        attempt: AttemptId {
            job: JobId(job),
            number
        },
        role,
        index
    }
);

/// The given name of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeName(pub String);

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

/// Which action of which decision. Carrying an action out twice under one id must do nothing the second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActionId {
    /// The decision's place in the log.
    pub seq: Seq,
    /// The action's place in the decision.
    pub index: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_and_parse_with_their_prefix() {
        for text in ["job-1", "job-42"] {
            assert_eq!(text.parse::<JobId>().unwrap().to_string(), text);
        }
        assert_eq!(
            "job-42.3".parse::<AttemptId>().unwrap().to_string(),
            "job-42.3"
        );
        assert_eq!(
            "job-42.3/trainer.0".parse::<TaskId>().unwrap().to_string(),
            "job-42.3/trainer.0"
        );
        for wrong in ["42", "job-", "job--1", "job-+1", "job-1.2"] {
            assert!(wrong.parse::<JobId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_are_text_in_json_and_numbers_in_images() {
        let attempt = AttemptId {
            job: JobId(42),
            number: 3,
        };
        assert_eq!(serde_json::to_string(&attempt).unwrap(), r#""job-42.3""#);
        let image = postcard::to_stdvec(&attempt).unwrap();
        assert_eq!(image, [42, 3]);
        assert_eq!(postcard::from_bytes::<AttemptId>(&image).unwrap(), attempt);
    }
}
