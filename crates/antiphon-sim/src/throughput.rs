//! How many steps a second a training makes, by GPU type and number of GPUs, as tables that come with traces say. What a job
//! makes alone is one table, what two jobs make that share their GPUs another: it is much larger and rarely asked for.
//!
//! Two layouts:
//!
//! - Gavel's and Shockwave's JSON: `{"v100": {"('ResNet-18 (batch size 32)', 2)": {"null": 66.7, ..}}}`, GPU type, then job
//!   type with the number of GPUs, then `null` for a job alone: steps a second of the whole job; or the job type of another
//!   job of as many GPUs that shares them: steps a second of the one and of the other. A GPU type that ends in
//!   `_unconsolidated` holds when the job's tasks lie on several nodes. 0 means that the job does not fit into memory.
//! - ElasticFlow's folder of CSV files, `resnet50.csv.gz`: `global_batch_size`, then a column for each number of GPUs with
//!   steps a second at that batch size. An empty cell, 0 and `nan` mean that it does not run so. A folder holds for one GPU
//!   type, which its name may tell (`throughputs_T4`).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::trace::{Source, TraceError};

/// Where a job's tasks lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// On as few nodes as can hold them.
    Consolidated,
    /// On more.
    Spread,
}

/// A table of throughputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Throughputs {
    tables: Tables,
}

#[derive(Debug, Clone, PartialEq)]
enum Tables {
    /// By GPU type.
    ByType(BTreeMap<String, Table>),
    /// Of one GPU type, whatever it is called.
    One(Table),
}

/// Steps a second by job type and number of GPUs.
type Table = BTreeMap<String, BTreeMap<u32, f64>>;

const SPREAD: &str = "_unconsolidated";

impl Throughputs {
    /// Reads a JSON file of Gavel's, compressed or not, or a folder of ElasticFlow's.
    ///
    /// # Errors
    /// Where it cannot be read or is neither.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let tables = if path.is_dir() {
            Tables::One(folder(path)?)
        } else {
            let source = Source::open(path)?;
            let mut json = serde_json::Deserializer::from_str(&source.text);
            let types = json.deserialize_map(Types);
            Tables::ByType(types.map_err(|error| syntax(path, error.to_string()))?)
        };
        let empty = match &tables {
            Tables::ByType(types) => types.values().all(BTreeMap::is_empty),
            Tables::One(table) => table.is_empty(),
        };
        if empty {
            return Err(syntax(path, "it holds no throughputs".into()));
        }
        Ok(Self { tables })
    }

    /// Steps a second of a whole job of this kind; nothing where it was not measured or does not fit.
    ///
    /// A kind is spelled as in the table and in [`Phase::kind`](crate::workload::Phase::kind): the number of GPUs in it is
    /// the one that the job asked for, `gpus` the one that it holds.
    #[must_use]
    pub fn steps_per_s(
        &self,
        kind: &str,
        gpus: u32,
        gpu_type: &str,
        placed: Placed,
    ) -> Option<f64> {
        let table = match &self.tables {
            Tables::One(table) => table,
            Tables::ByType(types) => match placed {
                Placed::Spread if gpus > 1 => {
                    let spread = types.iter().find(|(name, _)| {
                        name.strip_suffix(SPREAD)
                            .is_some_and(|name| name == gpu_type)
                    });
                    spread.map_or_else(|| types.get(gpu_type), |(_, table)| Some(table))?
                }
                Placed::Spread | Placed::Consolidated => types.get(gpu_type)?,
            },
        };
        let rate = *table.get(split(kind).0)?.get(&gpus)?;
        (rate > 0.0).then_some(rate)
    }

    /// The GPU types that are told apart; none where the table holds for one that is not named.
    pub fn gpu_types(&self) -> impl Iterator<Item = &str> {
        let types = match &self.tables {
            Tables::ByType(types) => Some(types),
            Tables::One(_) => None,
        };
        let names = types.into_iter().flat_map(BTreeMap::keys);
        names
            .map(String::as_str)
            .filter(|name| !name.ends_with(SPREAD))
    }

    /// The numbers of GPUs that a kind was measured with and that it fits, with steps a second, consolidated.
    #[must_use]
    pub fn scaling(&self, kind: &str, gpu_type: &str) -> Vec<(u32, f64)> {
        let table = match &self.tables {
            Tables::One(table) => Some(table),
            Tables::ByType(types) => types.get(gpu_type),
        };
        let rates = table.and_then(|table| table.get(split(kind).0));
        let rates = rates.into_iter().flatten();
        rates
            .filter(|(_, rate)| **rate > 0.0)
            .map(|(gpus, rate)| (*gpus, *rate))
            .collect()
    }
}

/// What two jobs make that share their GPUs, by GPU type, then by one kind and the other.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedThroughputs {
    types: BTreeMap<String, BTreeMap<String, BTreeMap<String, Pair>>>,
}

/// What stands beside a pair of kinds: two rates, or one of a job alone.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(untagged)]
enum Pair {
    Shared([f64; 2]),
    Alone(f64),
}

impl SharedThroughputs {
    /// Reads a JSON file of Gavel's, compressed or not.
    ///
    /// # Errors
    /// Where it cannot be read or is none.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let source = Source::open(path)?;
        let types = serde_json::from_str(&source.text);
        let types = types.map_err(|error| syntax(path, error.to_string()))?;
        Ok(Self { types })
    }

    /// Steps a second of the one and of the other job while they share their GPUs; nothing where that was not measured or
    /// one of them does not fit beside the other. Kinds are spelled as in [`Phase::kind`](crate::workload::Phase::kind).
    #[must_use]
    pub fn steps_per_s(&self, one: &str, other: &str, gpu_type: &str) -> Option<(f64, f64)> {
        match *self.types.get(gpu_type)?.get(one)?.get(other)? {
            Pair::Shared([first, second]) if first > 0.0 && second > 0.0 => Some((first, second)),
            Pair::Shared(_) | Pair::Alone(_) => None,
        }
    }
}

/// Job type and number of GPUs of `('ResNet-18 (batch size 32)', 2)`; 1 of a kind that does not say.
fn split(kind: &str) -> (&str, u32) {
    let inner = kind
        .strip_prefix("('")
        .and_then(|rest| rest.strip_suffix(')'));
    let parts = inner.and_then(|inner| inner.rsplit_once("', "));
    match parts.map(|(name, gpus)| (name, gpus.parse())) {
        Some((name, Ok(gpus))) => (name, gpus),
        _ => (kind, 1),
    }
}

fn syntax(path: &Path, reason: String) -> TraceError {
    TraceError::Syntax {
        path: path.to_owned(),
        reason,
    }
}

fn folder(path: &Path) -> Result<Table, TraceError> {
    let unreadable = |source| TraceError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unreadable)? {
        files.push(entry.map_err(unreadable)?.path());
    }
    files.sort();
    let mut table = Table::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if let Some((model, "csv" | "csv.gz" | "csv.zst")) = name.split_once('.') {
            scaling_file(&file, model, &mut table)?;
        }
    }
    Ok(table)
}

fn scaling_file(path: &Path, model: &str, table: &mut Table) -> Result<(), TraceError> {
    let source = Source::open(path)?;
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_reader(source.text.as_bytes());
    let header = reader.headers().map_err(|e| syntax(path, e.to_string()))?;
    let mut columns = header.iter();
    if columns.next() != Some("global_batch_size") {
        return Err(TraceError::MissingColumn {
            path: path.to_owned(),
            format: "throughputs",
            column: "global_batch_size",
            there: header.iter().map(str::to_owned).collect(),
        });
    }
    let gpus: Vec<u32> = columns
        .map(|text| text.parse())
        .collect::<Result<_, _>>()
        .map_err(|_| syntax(path, "a column is no number of GPUs".into()))?;
    for record in reader.records() {
        let record = record.map_err(|error| syntax(path, error.to_string()))?;
        let batch = record.get(0).unwrap_or_default();
        let rates = gpus.iter().zip(record.iter().skip(1));
        let rates = rates.filter_map(|(gpus, text)| {
            let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite());
            Some((*gpus, rate?))
        });
        table.insert(format!("{model}/{batch}"), rates.collect());
    }
    Ok(())
}

/// Gavel's JSON, read in one pass: what pairs make is three quarters of the text and is not kept.
struct Types;

impl<'de> Visitor<'de> for Types {
    type Value = BTreeMap<String, Table>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of GPU types")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut types = Self::Value::new();
        while let Some(name) = map.next_key::<String>()? {
            types.insert(name, map.next_value_seed(Kinds)?);
        }
        Ok(types)
    }
}

struct Kinds;

impl<'de> DeserializeSeed<'de> for Kinds {
    type Value = Table;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Table, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Kinds {
    type Value = Table;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of job types")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Table, A::Error> {
        let mut table = Table::new();
        while let Some(kind) = map.next_key::<&str>()? {
            let (job_type, gpus) = split(kind);
            let rate = map.next_value_seed(Alone)?;
            let rates = match table.get_mut(job_type) {
                Some(rates) => rates,
                None => table.entry(job_type.to_owned()).or_default(),
            };
            rates.extend(rate.map(|rate| (gpus, rate)));
        }
        Ok(table)
    }
}

struct Alone;

impl<'de> DeserializeSeed<'de> for Alone {
    type Value = Option<f64>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<f64>, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Alone {
    type Value = Option<f64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of steps a second, alone under `null`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<f64>, A::Error> {
        let mut alone = None;
        while let Some(other) = map.next_key::<&str>()? {
            if other == "null" {
                let rate = map.next_value::<f64>()?;
                if rate < 0.0 {
                    return Err(A::Error::custom("a throughput is below 0"));
                }
                alone = Some(rate);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Throughputs, TraceError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        Throughputs::read(file.path())
    }

    #[test]
    fn a_job_spread_over_nodes_is_as_slow_as_its_own_column_says() {
        let table = read(
            r#"{"fast": {"('Net (batch size 8)', 1)": {"null": 4.0, "('Net (batch size 8)', 1)": [1.0, 2.0]},
                         "('Net (batch size 8)', 2)": {"null": 7.0}, "('Big', 1)": {"null": 0.0}},
                "fast_unconsolidated": {"('Net (batch size 8)', 2)": {"null": 5.0}}}"#,
        )
        .unwrap();
        let rate = |kind, gpus, placed| table.steps_per_s(kind, gpus, "fast", placed);
        let kind = "('Net (batch size 8)', 2)";
        assert_eq!(rate(kind, 2, Placed::Consolidated), Some(7.0));
        assert_eq!(rate(kind, 2, Placed::Spread), Some(5.0));
        assert_eq!(rate(kind, 1, Placed::Spread), Some(4.0));
        assert_eq!(rate(kind, 4, Placed::Consolidated), None);
        assert_eq!(rate("('Big', 1)", 1, Placed::Consolidated), None);
        assert_eq!(table.gpu_types().collect::<Vec<_>>(), ["fast"]);
        assert_eq!(table.scaling(kind, "fast"), [(1, 4.0), (2, 7.0)]);
    }

    #[test]
    fn a_folder_holds_for_any_type_and_leaves_out_what_does_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let text = "global_batch_size,1,2,4\n64,1.5,2.5,\n128,0,1.25,nan\n";
        fs::write(folder.path().join("net.csv"), text).unwrap();
        let table = Throughputs::read(folder.path()).unwrap();
        let rate = |kind, gpus| table.steps_per_s(kind, gpus, "any", Placed::Consolidated);
        assert_eq!(rate("net/64", 2), Some(2.5));
        assert_eq!(rate("net/64", 4), None);
        assert_eq!(rate("net/128", 1), None);
        assert_eq!(rate("net/128", 4), None);
        assert_eq!(rate("other/64", 1), None);
    }

    #[test]
    fn two_jobs_that_share_have_a_rate_each() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = r#"{"fast": {"('A', 1)": {"null": 4.0, "('B', 1)": [1.5, 2.5], "('A', 1)": [0.0, 0.0]},
                                "('B', 1)": {"null": 3.0, "('A', 1)": [2.5, 1.5]}}}"#;
        fs::write(file.path(), text).unwrap();
        let table = SharedThroughputs::read(file.path()).unwrap();
        let rates = |one, other| table.steps_per_s(one, other, "fast");
        assert_eq!(rates("('A', 1)", "('B', 1)"), Some((1.5, 2.5)));
        assert_eq!(rates("('B', 1)", "('A', 1)"), Some((2.5, 1.5)));
        assert_eq!(rates("('A', 1)", "('A', 1)"), None);
        assert_eq!(rates("('A', 1)", "null"), None);
        assert_eq!(rates("('A', 1)", "('C', 1)"), None);
        fs::write(file.path(), "{\"fast\": 1}").unwrap();
        let error = SharedThroughputs::read(file.path()).unwrap_err();
        assert_eq!(error.code(), "AP0606");
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in [
            "",
            "[]",
            "{}",
            "{\"v100\": 3}",
            "{\"v100\": {\"a\": {\"null\": -1}}}",
        ] {
            assert_eq!(read(text).unwrap_err().code(), "AP0606", "{text}");
        }
        let error = Throughputs::read(Path::new("/nowhere/table.json")).unwrap_err();
        assert_eq!(error.code(), "AP0601");
    }
}
