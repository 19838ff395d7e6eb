//! The lines that describe the cluster, the teams and the settings, and what happens to nodes later.
//!
//! ```text
//! nodes: n[0-3] 8 H100 leaf=l0 spine=s0 nvlink=d0 partition=fast gpu-memory=80GiB cpus=64 memory=1TiB scratch=1TB
//!        read=10GB numa=4 switch=2 lost=3+4 cut=0:1g.10gb*7 spare
//! teams: lab quota=16, rlhf parent=lab quota=8 quota=4xA100 limit=12 weight=2 budget=100 budget=50xH100 shard=auto
//! ```

use std::collections::BTreeMap;

use antiphon_types::*;

use super::World;

/// What the backend offers.
#[derive(Default)]
pub(super) struct Cluster {
    nodes: Vec<NodeSpec>,
    partitions: Vec<PartitionSpec>,
    resources: BTreeMap<String, u64>,
    /// Nodes that it does not offer for a while.
    gone: Vec<NodeName>,
}

impl World {
    /// A line without a time.
    pub(super) fn set_up(&mut self, what: &str, text: &str) -> bool {
        match what {
            "nodes:" => {
                self.cluster.nodes = items(text).flat_map(nodes).collect();
                self.offer();
            }
            // Both are told with the nodes that follow.
            "partitions:" => self.cluster.partitions = items(text).map(partition).collect(),
            "shared:" => self.cluster.resources = items(text).map(resource).collect(),
            "teams:" => self.set_teams(text),
            "policy:" => self.set_policy(text),
            "gate:" => self.set_gate(text),
            _ => return false,
        }
        true
    }

    /// What happens to nodes, teams and settings later.
    pub(super) fn changes_cluster(&mut self, text: &str, words: &[&str]) -> bool {
        match *words {
            ["nodes", ..] => {
                let list = text.trim_start_matches("nodes");
                self.cluster.nodes = items(list).flat_map(nodes).collect();
                self.offer();
            }
            [node, "goes"] => {
                self.cluster.gone.push(node.into());
                self.offer();
            }
            [node, "comes"] => {
                self.cluster.gone.retain(|gone| gone.0 != node);
                self.offer();
            }
            [node, "loses", "GPU", gpu] => {
                let mut nodes = self.cluster.nodes.iter_mut();
                let node = nodes.find(|spec| spec.name.0 == node).unwrap();
                node.gpus_lost.push(gpu.parse().unwrap());
                self.offer();
            }
            ["shared:", ..] => {
                let list = text.trim_start_matches("shared:");
                self.cluster.resources = items(list).map(resource).collect();
                self.offer();
            }
            ["teams:", ..] => self.set_teams(text.trim_start_matches("teams:")),
            ["policy:", ..] => self.set_policy(text.trim_start_matches("policy:")),
            ["gate:", ..] => self.set_gate(text.trim_start_matches("gate:")),
            _ => return false,
        }
        true
    }

    fn offer(&mut self) {
        let cluster = &self.cluster;
        let there = |node: &&NodeSpec| !cluster.gone.contains(&node.name);
        let nodes = cluster.nodes.iter().filter(there).cloned().collect();
        let partitions = cluster.partitions.clone();
        let resources = cluster.resources.clone();
        self.input(Body::Observation(Observation::Inventory {
            nodes,
            partitions,
            resources,
        }));
    }

    fn set_teams(&mut self, text: &str) {
        let teams = items(text).map(team).collect();
        self.command(Command::SetTeams { teams });
    }

    /// Settings by the names that they have in `antiphon.toml`.
    fn set_policy(&mut self, text: &str) {
        let mut policy = serde_json::to_value(self.state.policy()).unwrap();
        set(&mut policy, text);
        let policy = Box::new(serde_json::from_value(policy).unwrap());
        self.command(Command::SetPolicy { policy });
    }

    /// The same of the gate; `on` is all it takes.
    fn set_gate(&mut self, text: &str) {
        let gate = self.state.gate().policy().cloned().unwrap_or_default();
        let mut gate = serde_json::to_value(gate).unwrap();
        gate["enabled"] = (!text.split_whitespace().any(|word| word == "off")).into();
        set(&mut gate, text);
        let gate = serde_json::from_value(gate).unwrap();
        self.command(Command::SetGate { gate });
    }
}

/// Changes settings: `name=value`, with a dot before the name of one that is part of another.
fn set(settings: &mut serde_json::Value, text: &str) {
    for (name, value) in text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
    {
        let mut place = &mut *settings;
        for part in name.split('.') {
            place = &mut place[part];
        }
        let span = value.parse().map(Millis::as_millis);
        *place = match span.ok().or_else(|| value.parse().ok()) {
            Some(number) => number.into(),
            None => value.split('+').collect::<Vec<_>>().into(),
        };
    }
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// A node, or as many as its name has numbers: `n[0-3]`.
fn nodes(text: &str) -> Vec<NodeSpec> {
    let words: Vec<_> = text.split_whitespace().collect();
    let typed = words.get(2).filter(|word| !word.contains('='));
    let mut spec = NodeSpec {
        gpus: words[1].parse().unwrap(),
        gpu_type: typed.copied().unwrap_or("none").into(),
        gpus_virtual: true,
        cpus: 64,
        memory: Bytes::new(1 << 40),
        ..NodeSpec::default()
    };
    for word in &words[2 + usize::from(typed.is_some())..] {
        match word.split_once('=') {
            None if *word == "spare" => spec.spare = true,
            Some(("leaf", name)) => spec.location.leaf = name.into(),
            Some(("spine", name)) => spec.location.spine = name.into(),
            Some(("nvlink", name)) => spec.location.nvlink_domain = name.into(),
            Some(("partition", name)) => spec.partition = name.into(),
            Some(("gpu-memory", size)) => spec.gpu_memory = size.parse().unwrap(),
            Some(("cpus", n)) => spec.cpus = n.parse().unwrap(),
            Some(("memory", size)) => spec.memory = size.parse().unwrap(),
            Some(("scratch", size)) => spec.scratch = size.parse().unwrap(),
            Some(("read", size)) => spec.read_bandwidth = size.parse().unwrap(),
            Some(("numa", n)) => spec.layout.gpus_per_numa = n.parse().unwrap(),
            Some(("switch", n)) => spec.layout.gpus_per_switch = n.parse().unwrap(),
            Some(("lost", gpus)) => {
                spec.gpus_lost = gpus.split('+').map(|gpu| gpu.parse().unwrap()).collect();
            }
            Some(("cut", text)) => spec.slices.extend(slices(text)),
            _ => panic!("unknown word of a node: {word}"),
        }
    }
    let name = words[0];
    let Some((stem, range)) = name.split_once('[') else {
        spec.name = name.into();
        return vec![spec];
    };
    let (first, last) = range.trim_end_matches(']').split_once('-').unwrap();
    let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
    let named = |number| NodeSpec {
        name: format!("{stem}{number}").as_str().into(),
        ..spec.clone()
    };
    (first..=last).map(named).collect()
}

/// Slices of one GPU: `0:1g.10gb*7`.
fn slices(text: &str) -> impl Iterator<Item = Slice> {
    let (gpu, cut) = text.split_once(':').unwrap();
    let (profile, count) = cut.split_once('*').unwrap();
    let count: u64 = count.parse().unwrap();
    let gpu = gpu.parse().unwrap();
    (0..count).map(move |number| Slice {
        gpu,
        profile: profile.into(),
        amount: GpuAmount::from_thousandths(1_000 / count),
        memory: Bytes::ZERO,
        device: format!("MIG-{gpu}-{number}"),
    })
}

fn partition(text: &str) -> PartitionSpec {
    let mut words = text.split_whitespace();
    let mut partition = PartitionSpec {
        name: words.next().unwrap().into(),
        ..PartitionSpec::default()
    };
    for word in words {
        if let Some(speed) = word.strip_suffix("Gbps") {
            partition.interconnect_gbps = speed.parse().unwrap();
        } else if word.starts_with('$') {
            partition.price_per_gpu_hour = word.parse().unwrap();
        } else if let Some(longest) = word.strip_prefix("max=") {
            partition.duration_max = Some(longest.parse().unwrap());
        } else {
            assert_eq!(word, "preemptible", "a word of a partition");
            partition.preemptible = true;
        }
    }
    partition
}

fn resource(text: &str) -> (String, u64) {
    let (name, amount) = text.split_once('=').unwrap();
    (name.into(), amount.parse().unwrap())
}

fn team(text: &str) -> TeamSpec {
    let mut words = text.split_whitespace();
    let mut team = TeamSpec {
        name: words.next().unwrap_or_default().into(),
        ..TeamSpec::default()
    };
    for word in words {
        match word.split_once('=').unwrap() {
            ("parent", name) => team.parent = Some(name.into()),
            ("weight", weight) => team.weight = weight.parse().unwrap(),
            ("quota", amount) => amounts(&mut team.quota, amount),
            ("limit", amount) => amounts(&mut team.limit, amount),
            ("budget", hours) => {
                let (hours, of) = hours.split_once('x').unwrap_or((hours, "*"));
                let hour = Millis::from_secs(3_600);
                let hours: GpuAmount = hours.parse().unwrap();
                team.budget.insert(of.into(), hours.over(hour));
            }
            (rule, mode) => {
                let named = |name: &str| serde_json::Value::from(name);
                let rule = serde_json::from_value(named(rule)).expect("a word of a team");
                let mode = serde_json::from_value(named(mode)).unwrap();
                team.rules.insert(rule, mode);
            }
        }
    }
    team
}

/// `8`, or `8xH100` for one type.
fn amounts(amounts: &mut Amounts, text: &str) {
    match text.split_once('x') {
        Some((amount, of)) => {
            let amount = amount.parse().unwrap();
            amounts.by_type.insert(of.into(), amount);
        }
        None => amounts.all = Some(text.parse().unwrap()),
    }
}
