//! The cluster file: which nodes there are. Read for the local backend, whose nodes all lie on this machine.

use std::path::Path;

use antiphon_types::{Bytes, NodeName, NodeSpec};
use serde::Deserialize;

use crate::cli::Exit;
use crate::failure::Failure;

/// Nodes of one file: bounds what a mistyped range can make.
const NODES_MAX: usize = 20_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    partition: Vec<Partition>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Partition {
    /// Shown in messages; there is one partition on one machine.
    name: String,
    nodes: Vec<Nodes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    /// A name, or a range like `n[001-064]`.
    names: String,
    #[serde(default)]
    gpus: u32,
    #[serde(default)]
    gpu_type: Option<String>,
    #[serde(default)]
    gpu_memory: Option<String>,
    #[serde(default)]
    cpus: Option<u32>,
    #[serde(default)]
    memory: Option<String>,
}

/// Reads a cluster file.
pub(crate) fn read(path: &Path) -> Result<Vec<NodeSpec>, Failure> {
    let wrong = |why: String| {
        let what = format!("the cluster file `{}` cannot be used", path.display());
        let help =
            "give `[[partition]]` with a `name` and `nodes = [{ names = \"n[0-3]\", gpus = 8 }]`";
        Failure::new(Exit::Usage, "AP0207", what)
            .why(why)
            .help(help)
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    nodes(&text).map_err(wrong)
}

fn nodes(text: &str) -> Result<Vec<NodeSpec>, String> {
    let file: ClusterFile =
        toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
    let mut specs: Vec<NodeSpec> = Vec::new();
    for partition in &file.partition {
        for group in &partition.nodes {
            for name in expand(&group.names)? {
                if specs.iter().any(|spec| spec.name.0 == name) {
                    return Err(format!(
                        "node `{name}` stands in it twice (partition `{}`)",
                        partition.name
                    ));
                }
                specs.push(spec(group, name)?);
            }
        }
    }
    if specs.is_empty() {
        Err("it names no nodes".into())
    } else {
        Ok(specs)
    }
}

fn spec(group: &Nodes, name: String) -> Result<NodeSpec, String> {
    let size = |text: &Option<String>, default: Bytes| match text {
        Some(text) => text
            .parse()
            .map_err(|error: antiphon_types::UnitError| error.to_string()),
        None => Ok(default),
    };
    Ok(NodeSpec {
        name: NodeName(name),
        gpus: group.gpus,
        gpu_type: group.gpu_type.clone().unwrap_or_else(|| "virtual".into()),
        gpu_memory: size(&group.gpu_memory, Bytes::ZERO)?,
        // Nodes of a file are counted, not looked for: their GPUs need not be there.
        gpus_virtual: true,
        cpus: group.cpus.unwrap_or(64),
        memory: size(&group.memory, Bytes::new(256 << 30))?,
    })
}

/// `n[08-10]` to `n08`, `n09`, `n10`.
fn expand(names: &str) -> Result<Vec<String>, String> {
    let wrong =
        || format!("`{names}` is no node name or range: give a form like `n7` or `n[001-064]`");
    let Some((prefix, rest)) = names.split_once('[') else {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let named = !names.is_empty() && names.chars().all(legal);
        return if named {
            Ok(vec![names.to_owned()])
        } else {
            Err(wrong())
        };
    };
    let (range, suffix) = rest.split_once(']').ok_or_else(wrong)?;
    let (first, last) = range.split_once('-').ok_or_else(wrong)?;
    let width = first.len();
    let (first, last): (usize, usize) = first
        .parse()
        .ok()
        .zip(last.parse().ok())
        .ok_or_else(wrong)?;
    if last < first || last - first >= NODES_MAX {
        return Err(wrong());
    }
    Ok((first..=last)
        .map(|number| format!("{prefix}{number:0width$}{suffix}"))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_become_nodes() {
        let text = r#"
            [[partition]]
            name = "train"
            nodes = [{ names = "n[08-10]", gpus = 8, gpu_type = "H100", memory = "2TiB" }, { names = "cpu" }]
        "#;
        let specs = nodes(text).unwrap();
        let names: Vec<_> = specs.iter().map(|spec| spec.name.0.as_str()).collect();
        assert_eq!(names, ["n08", "n09", "n10", "cpu"]);
        assert_eq!(specs[0].memory, Bytes::new(2 << 40));
    }

    #[test]
    fn wrong_ranges_and_doubled_names_are_refused() {
        for names in ["n[3-1]", "n[1-", "n[a-b]", "", "n 1", "n[0-99999999]"] {
            assert!(expand(names).is_err(), "{names}");
        }
        let twice =
            "[[partition]]\nname = \"a\"\nnodes = [{ names = \"n1\" }, { names = \"n[1-2]\" }]";
        assert_eq!(
            nodes(twice).unwrap_err(),
            "node `n1` stands in it twice (partition `a`)"
        );
    }
}
