//! Nodes as `scontrol show node` prints them, from 22.05 on. Says of each whether it is in service, and leaves none out.

use antiphon_types::{Bytes, NodeName, NodeSpec};

use super::names::outside_brackets;
use super::record::{Record, records};

/// The keys that are read.
const KEYS: [&str; 13] = [
    "NodeName",
    "NodeAddr",
    "CPUAlloc",
    "CPUEfctv",
    "CPUTot",
    "Gres",
    "GresUsed",
    "RealMemory",
    "MemSpecLimit",
    "State",
    "TmpDisk",
    "Partitions",
    "Reason",
];

/// States in which a node takes no tasks, as parts of `IDLE+DRAIN`.
const OUT_OF_SERVICE: [&str; 14] = [
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
    "REBOOT_ISSUED",
    "UNKNOWN",
];

/// A node as Slurm has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlurmNode {
    /// What antiphon counts of it; its partition is the first that Slurm names, its GPU type Slurm's own word.
    pub spec: NodeSpec,
    /// Every partition that it is in.
    pub partitions: Vec<String>,
    /// Where other nodes reach it.
    pub address: String,
    /// The type of its GPUs as `--gres` names it; empty where Slurm has none.
    pub gres_type: String,
    /// GPUs that jobs hold, which only `scontrol show node -d` says.
    pub gpus_used: Vec<u32>,
    /// CPUs that jobs hold.
    pub cpus_used: u32,
    /// Slurm's word, as `IDLE+DRAIN`.
    pub state: String,
    /// Why it is not in service; empty where nobody said.
    pub reason: String,
    /// Whether it takes tasks.
    pub in_service: bool,
}

/// Whether a text is Slurm's and not TOML.
#[must_use]
pub fn is_meant(text: &str) -> bool {
    let said = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first = text.lines().map(str::trim).find(said).unwrap_or("");
    // `slurm.conf` begins so: it is refused in Slurm's words, not in TOML's.
    first.starts_with("NodeName=") || first.starts_with("ClusterName=")
}

/// Reads what `scontrol show node` printed.
///
/// # Errors
/// The first thing that makes it none.
pub fn parse(text: &str) -> Result<Vec<SlurmNode>, String> {
    if !text.contains("RealMemory=") || !text.contains("State=") {
        return Err(
            "it looks like `slurm.conf`, which does not say what the nodes have and whether they are up"
                .into(),
        );
    }
    records(text, "NodeName", &KEYS)
        .iter()
        .map(|record| node(record.get("NodeName").unwrap_or_default(), record))
        .collect()
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

fn node(name: &str, record: &Record<'_>) -> Result<SlurmNode, String> {
    let number = |key: &str| match record.get(key) {
        None => Ok(None),
        Some(text) => text
            .parse::<u64>()
            .map(Some)
            .map_err(|_| format!("`{key}={text}` of node `{name}` is no number")),
    };
    let state = record.get("State").unwrap_or_default();
    let in_service = !is_out_of_service(state);
    // What a node out of service has is not always known.
    let needed = |key: &str| match (number(key)?, in_service) {
        (Some(number), _) => Ok(number),
        (None, false) => Ok(0),
        (None, true) => Err(format!("node `{name}` has no `{key}`")),
    };
    // What jobs can have of it, where Slurm keeps some for itself.
    let cpus = match number("CPUEfctv")? {
        Some(cpus) => cpus,
        None => needed("CPUTot")?,
    };
    let memory = needed("RealMemory")?;
    let memory = memory.saturating_sub(number("MemSpecLimit")?.unwrap_or(0));
    // Slurm's megabytes are powers of 1024.
    let mebibytes = |count: u64| Bytes::new(count.saturating_mul(1 << 20));
    let gpus = gpus(record.get("Gres").unwrap_or_default())
        .ok_or_else(|| format!("`Gres` of node `{name}` cannot be read"))?;
    let partitions: Vec<String> = record
        .get("Partitions")
        .map(|list| list.split(',').map(str::to_owned).collect())
        .unwrap_or_default();
    let shown = match gpus.kind.as_str() {
        "" => "gpu",
        kind => kind,
    };
    let spec = NodeSpec {
        name: NodeName(name.to_owned()),
        gpus: gpus.count,
        gpu_type: shown.to_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory: mebibytes(memory),
        scratch: mebibytes(number("TmpDisk")?.unwrap_or(0)),
        partition: partitions.first().cloned().unwrap_or_default(),
        ..NodeSpec::default()
    };
    Ok(SlurmNode {
        spec,
        partitions,
        address: record.get("NodeAddr").unwrap_or(name).to_owned(),
        gpus_used: used(record.get("GresUsed").unwrap_or_default(), &gpus.kind),
        gres_type: gpus.kind,
        cpus_used: u32::try_from(number("CPUAlloc")?.unwrap_or(0)).unwrap_or(u32::MAX),
        state: state.to_owned(),
        reason: record.get("Reason").unwrap_or_default().to_owned(),
        in_service,
    })
}

struct Gpus {
    /// Empty where Slurm gives them no type.
    kind: String,
    count: u32,
}

/// `gpu:h100:8(S:0-1),scratch:2000`. Of several types the one with the most GPUs counts: a node has one type here.
fn gpus(gres: &str) -> Option<Gpus> {
    let mut most = Gpus {
        kind: String::new(),
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
            [] => (1, ""),
            [only] => match only.parse() {
                Ok(count) => (count, ""),
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

/// The indices in `gpu:h100:6(IDX:0-5),scratch:0`; none where Slurm does not say them.
fn used(gres: &str, kind: &str) -> Vec<u32> {
    let mut indices = Vec::new();
    for one in outside_brackets(gres) {
        let mut parts = one.splitn(3, ':');
        if parts.next() != Some("gpu") || !kind.is_empty() && parts.next() != Some(kind) {
            continue;
        }
        let list = one.split_once("(IDX:").map(|(_, list)| list);
        for range in list.unwrap_or_default().trim_end_matches(')').split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                indices.extend(first..=last.min(first.saturating_add(1_024)));
            }
        }
    }
    indices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_that_jobs_hold_are_read_by_index() {
        for (gres, kind, expected) in [
            (
                "gpu:h100:6(IDX:0-2,5-7),scratch:0",
                "h100",
                vec![0, 1, 2, 5, 6, 7],
            ),
            ("gpu:h100:0(IDX:N/A),scratch:0", "h100", vec![]),
            ("gpu:2(IDX:1,3)", "", vec![1, 3]),
            ("gpu:v100:1(IDX:0),gpu:a100:1(IDX:4)", "a100", vec![4]),
            ("gpu:h100:2", "h100", vec![]),
            ("", "h100", vec![]),
        ] {
            assert_eq!(used(gres, kind), expected, "{gres}");
        }
    }

    /// As 23.11 and later print it: more keys, `CPUSpecList`, states with `+NOT_RESPONDING` in place of a star.
    #[test]
    fn newer_releases_print_the_same_keys() {
        let text = "\
NodeName=g7 Arch=x86_64 CoresPerSocket=56
   CPUAlloc=0 CPUEfctv=220 CPUTot=224 CPULoad=0.01
   Gres=gpu:nvidia_h100_80gb_hbm3:8(S:0-1)
   NodeAddr=10.0.3.7 NodeHostName=g7 Version=24.11.5
   RealMemory=2063000 AllocMem=0 FreeMem=1990000 Sockets=2 Boards=1
   CoreSpecCount=2 CPUSpecList=108-111,220-223 MemSpecLimit=8192
   State=IDLE+CLOUD+NOT_RESPONDING ThreadsPerCore=2 TmpDisk=0 Weight=1
   Partitions=train
   CfgTRES=cpu=220,mem=2063000M,billing=220,gres/gpu=8
   Comment=rack 3 Extra=none InstanceId=(null)
   Reason=Not responding [slurm@2026-11-30T10:00:00]
";
        let nodes = parse(text).unwrap();
        let [node] = nodes.as_slice() else {
            panic!("one node")
        };
        assert!(!node.in_service);
        assert_eq!(node.gres_type, "nvidia_h100_80gb_hbm3");
        assert_eq!((node.spec.gpus, node.spec.cpus), (8, 220));
        assert_eq!(node.spec.memory, Bytes::new((2_063_000 - 8_192) << 20));
        assert_eq!(node.address, "10.0.3.7");
        assert_eq!(node.reason, "Not responding [slurm@2026-11-30T10:00:00]");
    }
}
