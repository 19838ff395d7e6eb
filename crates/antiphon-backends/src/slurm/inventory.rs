//! Which nodes and partitions there are, put together from three of Slurm's commands. In guest mode what others hold is
//! taken off.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use antiphon_types::{Bytes, NodeSpec, PartitionSpec};

use super::attempt_dir::AttemptDir;
use super::nodes::SlurmNode;
use super::read::{Question, Reader};
use super::{GpuType, Inner, Mode, SlurmError, blocking, nodes, partitions, topology};

/// What Slurm offers.
#[derive(Debug)]
pub(super) struct Inventory {
    /// Every node of the partitions in use, whether in service or not: tasks may run on either.
    pub(super) nodes: BTreeMap<String, SlurmNode>,
    pub(super) partitions: Vec<PartitionSpec>,
}

/// What attempts of antiphon's hold of a node.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Ours {
    /// Indices as the kernel booked them.
    gpus: Vec<u32>,
    tasks: u32,
}

impl Inventory {
    /// The nodes that take tasks.
    pub(super) fn offered(&self) -> Vec<NodeSpec> {
        self.nodes
            .values()
            .filter(|node| node.in_service)
            .map(|node| node.spec.clone())
            .collect()
    }
}

impl Inner {
    /// What Slurm offered when it was asked last; asks if it never was.
    pub(super) async fn inventory(&self) -> Result<Arc<Inventory>, SlurmError> {
        let known = self
            .inventory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match known {
            Some(known) => Ok(known),
            None => self.ask_inventory().await,
        }
    }

    pub(super) async fn ask_inventory(&self) -> Result<Arc<Inventory>, SlurmError> {
        let reader = Reader {
            conf: self.config.conf.clone(),
            limit: self.config.command_timeout,
        };
        let (nodes, partitions) = tokio::try_join!(
            reader.ask(Question::Nodes),
            reader.ask(Question::Partitions)
        )?;
        let places = reader.topology().await?;
        let mut inventory = put_together(&self.config, &nodes, &partitions, &places)?;
        if self.config.mode == Mode::Guest {
            let ours = self.ours().await;
            for node in inventory.nodes.values_mut() {
                let none = Ours::default();
                leave_to_others(node, ours.get(&node.spec.name.0).unwrap_or(&none));
            }
        }
        let inventory = Arc::new(inventory);
        *self
            .inventory
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&inventory));
        Ok(inventory)
    }

    /// What attempts that Slurm has hold, by node. One that Slurm still starts counts: what others hold may be taken for
    /// less than it is, which a wait shows, but never our own for theirs.
    async fn ours(&self) -> BTreeMap<String, Ours> {
        let attempts: Vec<_> = self.watch().attempts().collect();
        let root = self.attempts.clone();
        blocking(move || {
            let mut ours: BTreeMap<String, Ours> = BTreeMap::new();
            for attempt in attempts {
                let file = AttemptDir::of(&root, attempt).attempt_file();
                for task in file.ok().flatten().map_or_else(Vec::new, |file| file.tasks) {
                    let held = ours.entry(task.node).or_default();
                    held.gpus.extend(task.gpus);
                    held.tasks += 1;
                }
            }
            ours
        })
        .await
    }
}

/// Takes off what jobs of others hold. Which GPUs those are does not matter, only how many: Slurm chooses the devices.
fn leave_to_others(node: &mut SlurmNode, ours: &Ours) {
    let used = node.gpus_used.len();
    let others = used.saturating_sub(ours.gpus.len());
    let free_of_ours = (0..node.spec.gpus)
        .rev()
        .filter(|gpu| !ours.gpus.contains(gpu));
    node.spec.gpus_lost = free_of_ours.take(others).collect();
    node.spec.gpus_lost.sort_unstable();
    if ours.tasks == 0 {
        // CPUs of ours cannot be told from those of others by their count.
        node.spec.cpus = node.spec.cpus.saturating_sub(node.cpus_used);
    }
}

/// What antiphon calls a GPU type of Slurm's: as it is configured, else as the catalog knows it, else the same.
pub(super) fn gpu_type(
    configured: &BTreeMap<String, String>,
    catalog: fn(&str) -> Option<GpuType>,
    gres: &str,
) -> GpuType {
    let name = configured.get(gres).map_or(gres, String::as_str);
    catalog(name).unwrap_or_else(|| GpuType {
        name: name.to_owned(),
        memory: Bytes::ZERO,
    })
}

fn put_together(
    config: &super::SlurmConfig,
    nodes: &str,
    partitions: &str,
    places: &str,
) -> Result<Inventory, SlurmError> {
    let unreadable = |error: String| SlurmError::Unreadable {
        program: "scontrol",
        error,
    };
    let known = partitions::parse(partitions).map_err(unreadable)?;
    let there = || -> String {
        let names: Vec<&str> = known.iter().map(|one| one.spec.name.as_str()).collect();
        names.join(", ")
    };
    let wanted: Vec<String> = match (config.partitions.as_slice(), known.as_slice()) {
        ([], [only]) => vec![only.spec.name.clone()],
        ([], _) => return Err(SlurmError::WhichPartition { there: there() }),
        (named, _) => named.to_vec(),
    };
    let places = topology::places(places).map_err(unreadable)?;
    let mut inventory = Inventory {
        nodes: BTreeMap::new(),
        partitions: Vec::new(),
    };
    let all = nodes::parse(nodes).map_err(unreadable)?;
    for name in &wanted {
        let found = known.iter().find(|one| one.spec.name == *name);
        let of_it = all.iter().filter(|node| node.partitions.contains(name));
        let (Some(partition), true) = (found, of_it.clone().next().is_some()) else {
            let (name, there) = (name.clone(), there());
            return Err(SlurmError::NoPartition { name, there });
        };
        inventory.partitions.push(partition.spec.clone());
        for node in of_it {
            // A node counts to the first partition that was named.
            if inventory.nodes.contains_key(&node.spec.name.0) {
                continue;
            }
            let mut node = node.clone();
            node.in_service &= partition.up;
            node.spec.partition.clone_from(name);
            let kind = gpu_type(&config.gpu_types, config.catalog, &node.spec.gpu_type);
            node.spec.gpu_type = kind.name;
            node.spec.gpu_memory = kind.memory;
            if let Some(place) = places.get(&node.spec.name.0) {
                node.spec.location = place.clone();
            }
            inventory.nodes.insert(node.spec.name.0.clone(), node);
        }
    }
    Ok(inventory)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::SlurmConfig;
    use super::*;

    const PARTITIONS: &str = "PartitionName=train\n   MaxTime=1-00:00:00 PreemptMode=OFF\n   State=UP\n\
        PartitionName=spot\n   MaxTime=UNLIMITED PreemptMode=REQUEUE\n   State=DOWN\n";
    const NODES: &str = "\
NodeName=n1 CPUAlloc=8 CPUTot=64 Gres=gpu:h100:8(S:0-1) GresUsed=gpu:h100:3(IDX:0-2) RealMemory=1000 State=MIXED TmpDisk=0 Partitions=train,spot NodeAddr=10.0.0.1
NodeName=n2 CPUAlloc=0 CPUTot=64 Gres=gpu:h100:8(S:0-1) GresUsed=gpu:h100:0(IDX:N/A) RealMemory=1000 State=IDLE+DRAIN TmpDisk=0 Partitions=train
NodeName=n3 CPUAlloc=0 CPUTot=64 Gres=(null) RealMemory=1000 State=IDLE TmpDisk=0 Partitions=spot
";
    const PLACES: &str = "SwitchName=leaf0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n";

    fn config(partitions: &[&str]) -> SlurmConfig {
        SlurmConfig {
            partitions: partitions.iter().map(|name| (*name).to_owned()).collect(),
            gpu_types: BTreeMap::from([("h100".into(), "H100-SXM-80GB".into())]),
            ..SlurmConfig::new(PathBuf::new(), Vec::new())
        }
    }

    #[test]
    fn nodes_in_service_are_offered_in_the_first_partition_that_is_named() {
        let inventory =
            put_together(&config(&["train", "spot"]), NODES, PARTITIONS, PLACES).unwrap();
        let offered = inventory.offered();
        let [n1] = offered.as_slice() else {
            panic!("n2 drains, n3's partition is down: {offered:?}")
        };
        assert_eq!(n1.partition, "train");
        assert_eq!(n1.gpu_type, "H100-SXM-80GB");
        assert_eq!(n1.location.leaf, "leaf0");
        assert_eq!(inventory.nodes["n1"].address, "10.0.0.1");
        assert_eq!(inventory.nodes["n2"].address, "n2");
        assert_eq!(
            inventory.partitions[0].duration_max,
            Some(antiphon_types::Millis::from_secs(86_400))
        );
    }

    #[test]
    fn which_partition_is_meant_has_to_be_said_where_there_are_several() {
        let refused = |partitions: &[&str]| {
            let config = config(partitions);
            put_together(&config, NODES, PARTITIONS, PLACES)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(&[]),
            "Slurm has several partitions, and none is named: train, spot"
        );
        assert_eq!(
            refused(&["trian"]),
            "Slurm has no partition `trian` with nodes; it has train, spot"
        );
    }

    #[test]
    fn a_guest_leaves_to_others_what_they_hold() {
        let inventory = put_together(&config(&["train"]), NODES, PARTITIONS, "").unwrap();
        let mut node = inventory.nodes["n1"].clone();
        leave_to_others(&mut node, &Ours::default());
        assert_eq!(
            (node.spec.gpus_lost.as_slice(), node.spec.cpus),
            (&[5, 6, 7][..], 56)
        );
        // Two of the three that are used are ours, whatever Slurm calls them.
        let mut node = inventory.nodes["n1"].clone();
        let ours = Ours {
            gpus: vec![6, 7],
            tasks: 1,
        };
        leave_to_others(&mut node, &ours);
        assert_eq!(
            (node.spec.gpus_lost.as_slice(), node.spec.cpus),
            (&[5][..], 64)
        );
    }
}
