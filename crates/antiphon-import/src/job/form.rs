//! The job file, as far as files of other systems fill it. The keys are those of `docs/reference/job-file.md`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

/// A job, in the form of antiphon's job file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Job {
    /// What it is called.
    pub name: String,
    /// Who is charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// How urgent it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<&'static str>,
    /// Its place among the team's jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// When it should have ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// When it may start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// Whether it waits to be released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<bool>,
    /// Jobs that have to succeed first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<String>,
    /// Jobs that have to end first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<String>,
    /// Jobs that have to start first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_start: Vec<String>,
    /// One job for each index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// What it needs, if it has one role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// What it runs.
    pub run: Run,
    /// Several roles.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<String, Role>,
    /// What happens after a failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// What it takes of resources that belong to no node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, u64>,
}

/// What a role needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// GPUs of the whole role.
    pub gpus: Gpus,
    /// Their type, or a MIG profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Into how many tasks they are split.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// `per-gpu`, where each GPU has a process of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<&'static str>,
    /// CPUs of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    /// Memory of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Local storage of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    /// Least memory of a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory: Option<String>,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// How far apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<&'static str>,
    /// What else would do.
    #[serde(skip_serializing_if = "Vec::is_empty", rename = "or")]
    pub alternatives: Vec<Self>,
}

/// A number of GPUs, in thousandths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpus(pub u64);

impl Gpus {
    /// So many whole GPUs.
    #[must_use]
    pub const fn whole(count: u64) -> Self {
        Self(count.saturating_mul(1_000))
    }
}

impl Serialize for Gpus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_multiple_of(1_000) {
            (self.0 / 1_000).serialize(serializer)
        } else {
            #[expect(clippy::cast_precision_loss, reason = "a share of one GPU")]
            (self.0 as f64 / 1_000.0).serialize(serializer)
        }
    }
}

/// What a job runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Run {
    /// Program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Where it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Between SIGTERM and SIGKILL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
    /// Longest run of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
    /// Variables for every task.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Variables whose values are secret: where each is read.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
}

/// One of several roles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Role {
    /// Program and arguments.
    pub command: Vec<String>,
    /// What it needs.
    pub resources: Resources,
}

/// What happens after a failed attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Failed attempts that are followed by another.
    pub retries: u64,
}

/// A name that a job may have, made from one that another system takes: letters, digits, `-`, `_` and `.`, first a letter or digit.
pub(super) fn job_name(text: &str) -> String {
    const LENGTH_MAX: usize = 100;
    let legal = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            c
        } else {
            '-'
        }
    };
    let name: String = text.chars().map(legal).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let name: String = name.chars().take(LENGTH_MAX).collect();
    let id = name
        .strip_prefix("job-")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    match (name.is_empty(), id) {
        (true, _) => "imported".into(),
        (false, true) => format!("imported-{}", name.get(4..).unwrap_or_default()),
        (false, false) => name,
    }
}

/// One shape for each of several values, the first in front: `change` puts a value into a copy.
pub(super) fn one_for_each<T>(
    resources: Resources,
    values: &[T],
    change: impl Fn(&mut Resources, &T),
) -> Resources {
    let shapes = std::iter::once(Resources {
        alternatives: Vec::new(),
        ..resources.clone()
    })
    .chain(resources.alternatives.clone());
    let mut all = Vec::new();
    for shape in shapes {
        for value in values {
            let mut shape = shape.clone();
            change(&mut shape, value);
            all.push(shape);
        }
    }
    if all.is_empty() {
        return resources;
    }
    /// Other shapes that a job may have.
    const ALTERNATIVES_MAX: usize = 15;
    let mut first = all.remove(0);
    all.truncate(ALTERNATIVES_MAX);
    first.alternatives = all;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_a_name() {
        for (text, name) in [
            ("llama sft/v2", "llama-sft-v2"),
            ("--x", "x"),
            ("", "imported"),
            ("\u{e9}", "imported"),
            ("job-7", "imported-7"),
            ("job-sft", "job-sft"),
        ] {
            assert_eq!(job_name(text), name);
        }
        assert_eq!(job_name(&"a".repeat(500)).len(), 100);
    }
}
