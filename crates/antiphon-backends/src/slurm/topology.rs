//! Slurm's `topology.conf`, and what `scontrol show topology` prints: switches with nodes are leaves, switches with switches are spines, blocks are NVLink domains.
//! Levels above the spines say nothing here.

use std::collections::BTreeMap;

use antiphon_types::Location;

use super::names::expand;

/// Where nodes stand, by name.
///
/// # Errors
/// The first thing that makes it none.
pub fn places(text: &str) -> Result<BTreeMap<String, Location>, String> {
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
            // `scontrol` lists all nodes below a switch, also below one that only joins others.
            let joins = get("switches").is_some() && get("level").is_some();
            for node in nodes.into_iter().filter(|_| !joins) {
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
        } else if get("blocksizes").is_none() && get("aggregatedblock").is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_scontrol_prints_says_the_same_as_the_file() {
        let file = "SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n3\nSwitchName=spine Switches=leaf[0-1]\n";
        // Slurm 22.05.8.
        let printed = "\
SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n3
SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-3] Switches=leaf[0-1]
";
        assert_eq!(places(printed).unwrap(), places(file).unwrap());
        assert_eq!(places(printed).unwrap()["n3"].spine, "spine");
        // Blocks, as the documentation of 23.11 and later shows them.
        let blocks = "BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4]\n";
        assert_eq!(places(blocks).unwrap()["n1"].nvlink_domain, "b0");
    }
}
