//! Slurm's `topology.conf`: switches with nodes are leaves, switches with switches are spines, blocks are NVLink domains.
//! Levels above the spines say nothing here.

use std::collections::BTreeMap;

use antiphon_types::Location;

use super::Cluster;
use super::names::expand;

/// Where nodes stand, by name.
///
/// # Errors
/// The first thing that makes it none.
pub(super) fn places(text: &str) -> Result<BTreeMap<String, Location>, String> {
    let mut places: BTreeMap<String, Location> = BTreeMap::new();
    let mut spine_of: BTreeMap<String, String> = BTreeMap::new();
    for line in lines(text) {
        let keys = keys(&line)?;
        let get = |wanted: &str| keys.get(wanted).map(String::as_str);
        let nodes = expand_all(get("nodes"))?;
        if let Some(block) = get("blockname") {
            for node in nodes {
                places.entry(node).or_default().nvlink_domain = block.to_owned();
            }
        } else if let Some(switch) = get("switchname") {
            for node in nodes {
                let leaf = &mut places.entry(node.clone()).or_default().leaf;
                if !leaf.is_empty() && leaf != switch {
                    return Err(format!(
                        "node `{node}` hangs on two switches, `{leaf}` and `{switch}`"
                    ));
                }
                switch.clone_into(leaf);
            }
            for below in expand_all(get("switches"))? {
                let first = spine_of.entry(below.clone()).or_insert(switch.to_owned());
                if first != switch {
                    return Err(format!(
                        "switch `{below}` hangs on two others, `{first}` and `{switch}`"
                    ));
                }
            }
        } else if get("blocksizes").is_none() {
            return Err(format!(
                "`{line}` is no line of a topology: give `SwitchName=leaf0 Nodes=n[0-15]`, `SwitchName=spine0 Switches=leaf[0-1]`"
            ));
        }
    }
    for place in places.values_mut() {
        place.spine = spine_of.get(&place.leaf).cloned().unwrap_or_default();
    }
    Ok(places)
}

/// Puts nodes where they stand. One that no switch names keeps its place, and is said.
pub(super) fn apply(places: &BTreeMap<String, Location>, cluster: &mut Cluster) {
    let mut unknown: Vec<&str> = Vec::new();
    let there = cluster.nodes.len();
    for node in &mut cluster.nodes {
        match places.get(&node.name.0) {
            Some(place) => {
                let Location {
                    spine,
                    leaf,
                    nvlink_domain,
                } = &mut node.location;
                let levels = [
                    (spine, &place.spine),
                    (leaf, &place.leaf),
                    (nvlink_domain, &place.nvlink_domain),
                ];
                for (known, named) in levels.into_iter().filter(|(_, named)| !named.is_empty()) {
                    named.clone_into(known);
                }
            }
            None => unknown.push(&node.name.0),
        }
    }
    if let Some(first) = unknown.first() {
        cluster.warnings.push(format!(
            "the topology does not name {} of {there} nodes, the first of them `{first}`",
            unknown.len()
        ));
    }
}

/// Lines without comments; a backslash at the end joins the next.
fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = String::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        match line.strip_suffix('\\') {
            Some(part) => open += part,
            None => {
                lines.push((std::mem::take(&mut open) + line).trim().to_owned());
            }
        }
    }
    lines.push(open.trim().to_owned());
    lines.retain(|line| !line.is_empty());
    lines
}

/// The keys of a line, in small letters: Slurm does not tell them apart by case.
fn keys(line: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |word: &str| {
        let (key, value) = word.split_once('=')?;
        Some((key.to_ascii_lowercase(), value.to_owned()))
    };
    line.split_whitespace()
        .map(|word| pair(word).ok_or_else(|| format!("`{word}` in `{line}` has no `=`")))
        .collect()
}

fn expand_all(names: Option<&str>) -> Result<Vec<String>, String> {
    names.map_or(Ok(Vec::new()), expand)
}
