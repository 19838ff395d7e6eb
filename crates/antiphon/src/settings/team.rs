//! `[[team]]` in the configuration: who is charged, and what each may hold. Whether the teams fit together is the kernel's
//! question.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use antiphon_planner::catalog;
use antiphon_types::{Amounts, GpuAmount, GpuTime, Millis, NodeSpec, Rule, RuleMode, TeamSpec};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// What stands for all GPU types together.
const ALL_TYPES: &str = "*";
/// The same in an amount, where it needs no quotes.
const ALL: &str = "all";

/// One team.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TeamFile {
    name: String,
    parent: Option<String>,
    #[serde(default = "one")]
    weight: u32,
    /// GPUs: `64`, or by type.
    quota: Option<ByType<f64>>,
    limit: Option<ByType<f64>>,
    /// GPU-hours a week: `"1000h"`, or by type.
    budget: Option<ByType<String>>,
    /// How far rules of the two-way loop may go in its jobs, by rule.
    #[serde(default)]
    rules: BTreeMap<Rule, RuleMode>,
}

const fn one() -> u32 {
    1
}

/// One value for all GPU types, or one for each.
#[derive(Debug)]
struct ByType<T>(BTreeMap<String, T>);

impl TeamFile {
    /// The team that it describes.
    ///
    /// # Errors
    /// The first value that cannot be used.
    pub(super) fn spec(&self) -> Result<TeamSpec, String> {
        let of = |key: &str, why: String| format!("`{key}` of team `{}`: {why}", self.name);
        let mut budget = BTreeMap::new();
        for (gpu_type, text) in self.budget.iter().flat_map(|budget| &budget.0) {
            // A GPU-hour is one GPU for one hour, and written as that hour.
            let hours: Millis = text.parse().map_err(|_| {
                of(
                    "budget",
                    format!("`{text}` is no GPU-time: give GPU-hours a week, like `1000h`"),
                )
            })?;
            let time = GpuTime::from_gpu_millis(hours.as_millis());
            budget.insert(gpu_type.clone(), time);
        }
        Ok(TeamSpec {
            name: self.name.clone(),
            parent: self.parent.clone(),
            weight: self.weight,
            quota: amounts(self.quota.as_ref()).map_err(|why| of("quota", why))?,
            limit: amounts(self.limit.as_ref()).map_err(|why| of("limit", why))?,
            budget,
            rules: self.rules.clone(),
        })
    }
}

/// Puts the cluster's own names of GPU types in place of those of the teams, where a name means one type that is there. A name that may
/// be several stays: one number is no limit on each of them.
pub(crate) fn in_words_of(nodes: &[NodeSpec], teams: &mut [TeamSpec]) {
    let offer: BTreeSet<&str> = nodes.iter().map(|node| node.gpu_type.as_str()).collect();
    for team in teams {
        rename(&offer, &mut team.quota.by_type);
        rename(&offer, &mut team.limit.by_type);
        rename(&offer, &mut team.budget);
    }
}

fn rename<T>(offer: &BTreeSet<&str>, by_type: &mut BTreeMap<String, T>) {
    let asked: Vec<String> = by_type.keys().cloned().collect();
    for name in asked {
        if let [found] = catalog::offered(&name, offer.iter().copied()).as_slice()
            && *found != name
            && !by_type.contains_key(*found)
            && let Some(amount) = by_type.remove(&name)
        {
            by_type.insert((*found).to_owned(), amount);
        }
    }
}

fn amounts(given: Option<&ByType<f64>>) -> Result<Amounts, String> {
    let mut amounts = Amounts::default();
    for (gpu_type, gpus) in given.iter().flat_map(|given| &given.0) {
        let thousandths = (gpus * 1_000.0).round();
        if !(0.0..=1e12).contains(&thousandths) || (gpus * 1_000.0 - thousandths).abs() > 1e-6 {
            return Err(format!(
                "{gpus} is no number of GPUs: give one like `64`, in thousandths at the finest"
            ));
        }
        // In range by the check before.
        let amount = GpuAmount::from_thousandths(thousandths as u64);
        match gpu_type.as_str() {
            ALL_TYPES | ALL => amounts.all = Some(amount),
            _ => {
                amounts.by_type.insert(gpu_type.clone(), amount);
            }
        }
    }
    Ok(amounts)
}

impl<'de, T: Deserialize<'de> + One> Deserialize<'de> for ByType<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + One> Visitor<'de> for Either<T> {
            type Value = ByType<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}, or a table of them by GPU type", T::EXPECTED)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<ByType<T>, E> {
                let unexpected = || E::invalid_type(de::Unexpected::Signed(number), &self);
                T::from_number(number as f64)
                    .map(all)
                    .ok_or_else(unexpected)
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<ByType<T>, E> {
                let unexpected = || E::invalid_type(de::Unexpected::Float(number), &self);
                T::from_number(number).map(all).ok_or_else(unexpected)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByType<T>, E> {
                let unexpected = || E::invalid_type(de::Unexpected::Str(text), &self);
                T::from_text(text).map(all).ok_or_else(unexpected)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ByType<T>, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(ByType)
            }
        }
        deserializer.deserialize_any(Either(PhantomData))
    }
}

fn all<T>(value: T) -> ByType<T> {
    ByType(BTreeMap::from([(ALL_TYPES.to_owned(), value)]))
}

/// What may stand alone, for all types.
trait One: Sized {
    const EXPECTED: &'static str;
    fn from_number(_: f64) -> Option<Self> {
        None
    }
    fn from_text(_: &str) -> Option<Self> {
        None
    }
}

impl One for f64 {
    const EXPECTED: &'static str = "a number of GPUs like `64`";
    fn from_number(number: f64) -> Option<Self> {
        Some(number)
    }
}

impl One for String {
    const EXPECTED: &'static str = "GPU-hours a week like `1000h`";
    fn from_text(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_teams_type_goes_by_the_clusters_name_where_it_means_one() {
        let node = |gpu_type: &str| NodeSpec {
            gpu_type: gpu_type.into(),
            ..NodeSpec::default()
        };
        let nodes = ["h100", "A100-SXM-80GB", "A100-SXM-40GB"].map(node);
        let names = ["H100-SXM-80GB", "a100", "A100-40G", "*"];
        let by_type = names.map(|name| (name.to_owned(), GpuAmount::ZERO));
        let mut teams = [TeamSpec {
            limit: Amounts {
                all: None,
                by_type: by_type.into(),
            },
            ..TeamSpec::default()
        }];
        in_words_of(&nodes, &mut teams);
        let names: Vec<&String> = teams[0].limit.by_type.keys().collect();
        assert_eq!(names, ["*", "A100-SXM-40GB", "a100", "h100"]);
    }
}
