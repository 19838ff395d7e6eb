//! Teams: who is charged, what each may hold, and what it gets back when it asks. Usage is the kernel's; here are only claims.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{GpuAmount, GpuTime, Rule, RuleMode};

/// A team as its operator sets it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TeamSpec {
    /// Its name.
    pub name: String,
    /// The team that it is part of, if any.
    pub parent: Option<String>,
    /// Its claim on idle GPUs, beside the teams with the same parent.
    pub weight: u32,
    /// GPUs that it gets back when it asks. A team without any counts on its parent's.
    pub quota: Amounts,
    /// GPUs that it can never exceed, its parts included.
    pub limit: Amounts,
    /// GPU-time a week by GPU type; `*` stands for all types together.
    pub budget: BTreeMap<String, GpuTime>,
    /// How far the rules of the two-way loop may go in its jobs, where a job does not say it.
    pub rules: BTreeMap<Rule, RuleMode>,
}

impl Default for TeamSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            parent: None,
            weight: 1,
            quota: Amounts::default(),
            limit: Amounts::default(),
            budget: BTreeMap::new(),
            rules: BTreeMap::new(),
        }
    }
}

/// GPUs, in all and by type. What is not named is not bounded by it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Of all types together.
    pub all: Option<GpuAmount>,
    /// Of one type.
    pub by_type: BTreeMap<String, GpuAmount>,
}

impl Amounts {
    /// Whether nothing is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.by_type.is_empty()
    }
}
