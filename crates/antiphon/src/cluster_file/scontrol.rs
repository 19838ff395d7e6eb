//! Nodes as `scontrol show node` prints them, on many lines or, with `-o`, on one a node. What Slurm has out of service is
//! left out and said.

use antiphon_types::{Bytes, NodeName, NodeSpec, PartitionSpec};

use super::Cluster;
use super::names::outside_brackets;

/// The keys that are read.
const KEYS: [&str; 10] = [
    "NodeName",
    "CPUEfctv",
    "CPUTot",
    "Gres",
    "RealMemory",
    "MemSpecLimit",
    "State",
    "TmpDisk",
    "Partitions",
    "Reason",
];

/// States in which a node takes no tasks, as parts of `IDLE+DRAIN`.
const OUT_OF_SERVICE: [&str; 13] = [
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "ERROR",
    "FAIL",
    "FAILING",
    "FUTURE",
    "INVAL",
    "INVALID_REG",
    "MAINT",
    "NOT_RESPONDING",
    "UNKNOWN",
];

/// Nodes out of service that are named: more would fill the screen.
const SHOWN_MAX: usize = 5;

/// Whether a text is Slurm's and not TOML.
pub(super) fn is_meant(text: &str) -> bool {
    let said = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first = text.lines().map(str::trim).find(said).unwrap_or("");
    // `slurm.conf` begins so: it is refused in Slurm's words, not in TOML's.
    first.starts_with("NodeName=") || first.starts_with("ClusterName=")
}

/// Reads Slurm's nodes.
///
/// # Errors
/// The first thing that makes it none.
pub(super) fn cluster(text: &str) -> Result<Cluster, String> {
    if !text.contains("RealMemory=") || !text.contains("State=") {
        return Err(
            "it looks like `slurm.conf`, which does not say what the nodes have and whether they are up"
                .into(),
        );
    }
    let mut cluster = Cluster::default();
    let mut left_out: Vec<String> = Vec::new();
    let mut in_several: Option<String> = None;
    for record in records(text) {
        let name = record.get("NodeName").unwrap_or_default();
        let state = record.get("State").unwrap_or_default();
        if is_out_of_service(state) {
            let reason = record.get("Reason").map(|reason| format!(": {reason}"));
            left_out.push(format!("{name} ({state}{})", reason.unwrap_or_default()));
            continue;
        }
        let (node, partitions) = node(name, &record)?;
        if let ([first, _, ..], None) = (partitions.as_slice(), &in_several) {
            in_several = Some(format!(
                "`{name}` is in {} partitions: nodes count to the first that Slurm names, here `{first}`",
                partitions.len()
            ));
        }
        let known = |spec: &PartitionSpec| spec.name == node.partition;
        if !node.partition.is_empty() && !cluster.partitions.iter().any(known) {
            cluster.partitions.push(PartitionSpec {
                name: node.partition.clone(),
                ..PartitionSpec::default()
            });
        }
        cluster.nodes.push(node);
    }
    if cluster.nodes.is_empty() && !left_out.is_empty() {
        return Err(format!(
            "all of its {} nodes are out of service",
            left_out.len()
        ));
    }
    if !left_out.is_empty() {
        let shown = &left_out[..left_out.len().min(SHOWN_MAX)];
        let more = match left_out.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let names = shown.join(", ");
        let left_out = format!("left out, being out of service: {names}{more}");
        cluster.warnings.push(left_out);
    }
    cluster.warnings.extend(in_several);
    Ok(cluster)
}

/// The keys of one node.
struct Record<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Record<'a> {
    /// A value, where there is one: Slurm writes `(null)` and `N/A` where there is none.
    fn get(&self, key: &str) -> Option<&'a str> {
        let pair = self.0.iter().find(|(known, _)| *known == key);
        pair.map(|(_, value)| *value)
            .filter(|value| !value.is_empty() && *value != "(null)" && *value != "N/A")
    }
}

/// Splits a text at every `NodeName=`.
fn records(text: &str) -> Vec<Record<'_>> {
    let starts: Vec<usize> = text
        .match_indices("NodeName=")
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || text.as_bytes()[at - 1].is_ascii_whitespace())
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let texts = starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| &text[start..end]);
    texts.map(record).collect()
}

/// Values end at a space, but for a reason, which ends where its line does.
fn record(text: &str) -> Record<'_> {
    let mut pairs = Vec::new();
    for line in text.lines().map(str::trim) {
        let mut rest = line;
        while let Some((key, behind)) = rest.split_once('=') {
            // A key is the last word in front of its sign: what stands before belongs to a text with spaces.
            let key = key.rsplit(char::is_whitespace).next().unwrap_or(key);
            let value = match key {
                "Reason" => behind,
                _ => behind.split_whitespace().next().unwrap_or(""),
            };
            // An empty value (`AllocTRES=`) is followed by a space and the next key.
            let empty = behind.starts_with(char::is_whitespace);
            let value = if empty { "" } else { value };
            if KEYS.contains(&key) {
                pairs.push((key, value.trim()));
            }
            rest = &behind[value.len()..];
        }
    }
    Record(pairs)
}

fn is_out_of_service(state: &str) -> bool {
    // A star is Slurm's mark of a node that does not answer.
    let starred = state.ends_with('*');
    starred
        || state.split('+').any(|part| {
            OUT_OF_SERVICE
                .contains(&part.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-']))
        })
}

fn node<'a>(name: &str, record: &Record<'a>) -> Result<(NodeSpec, Vec<&'a str>), String> {
    let number = |key: &str| match record.get(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<u64>()
            .map(Some)
            .map_err(|_| format!("`{key}={text}` of node `{name}` is no number")),
    };
    let missing = |key: &str| format!("node `{name}` has no `{key}`");
    // What jobs can have of it, where Slurm keeps some for itself.
    let cpus = match number("CPUEfctv")? {
        Some(cpus) => cpus,
        None => number("CPUTot")?.ok_or_else(|| missing("CPUTot"))?,
    };
    let memory = number("RealMemory")?.ok_or_else(|| missing("RealMemory"))?;
    let memory = memory.saturating_sub(number("MemSpecLimit")?.unwrap_or(0));
    // Slurm's megabytes are powers of 1024.
    let mebibytes = |count: u64| Bytes::new(count.saturating_mul(1 << 20));
    let gpus = gpus(record.get("Gres").unwrap_or_default())
        .ok_or_else(|| format!("`Gres` of node `{name}` cannot be read"))?;
    let partitions: Vec<&str> = record
        .get("Partitions")
        .map(|list| list.split(',').collect())
        .unwrap_or_default();
    let node = NodeSpec {
        name: NodeName(name.to_owned()),
        gpus: gpus.count,
        gpu_type: gpus.kind,
        gpus_virtual: gpus.count > 0,
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory: mebibytes(memory),
        scratch: mebibytes(number("TmpDisk")?.unwrap_or(0)),
        partition: partitions.first().copied().unwrap_or_default().to_owned(),
        ..NodeSpec::default()
    };
    Ok((node, partitions))
}

struct Gpus {
    kind: String,
    count: u32,
}

/// `gpu:h100:8(S:0-1),scratch:2000`. Of several types the one with the most GPUs counts: a node has one type here.
fn gpus(gres: &str) -> Option<Gpus> {
    let mut most = Gpus {
        kind: "gpu".into(),
        count: 0,
    };
    for one in outside_brackets(gres) {
        let one = one.split('(').next().unwrap_or(one);
        let mut parts = one.split(':');
        if parts.next() != Some("gpu") {
            continue;
        }
        let parts: Vec<&str> = parts.collect();
        let (count, kind) = match parts.as_slice() {
            [] => (1, "gpu"),
            [only] => match only.parse() {
                Ok(count) => (count, "gpu"),
                // A type alone is one GPU.
                Err(_) => (1, *only),
            },
            [kind, .., count] => (count.parse().ok()?, *kind),
        };
        if count > most.count {
            most = Gpus {
                kind: kind.to_owned(),
                count,
            };
        }
    }
    Some(most)
}
