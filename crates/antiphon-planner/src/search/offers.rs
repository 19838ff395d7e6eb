//! What a cluster offers: one machine for each GPU type and partition, at its price and network.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{NodeSpec, PartitionSpec};

use super::Offer;
use crate::catalog;
use crate::run::Machine;

/// The offers of a cluster's nodes, and the GPU types of it that the catalog does not know.
#[must_use]
pub fn offers<'a>(
    nodes: impl IntoIterator<Item = &'a NodeSpec>,
    partitions: impl IntoIterator<Item = &'a PartitionSpec>,
) -> (Vec<Offer>, BTreeSet<String>) {
    let partitions: BTreeMap<&str, &PartitionSpec> = partitions
        .into_iter()
        .map(|partition| (partition.name.as_str(), partition))
        .collect();
    let mut offers: Vec<Offer> = Vec::new();
    let mut unknown = BTreeSet::new();
    for node in nodes {
        let healthy = u64::from(node.gpus).saturating_sub(node.gpus_lost.len() as u64);
        if healthy == 0 || node.spare {
            continue;
        }
        let partition = (!node.partition.is_empty()).then(|| node.partition.clone());
        let same =
            |offer: &&mut Offer| offer.gpu_type == node.gpu_type && offer.partition == partition;
        if let Some(offer) = offers.iter_mut().find(same) {
            offer.gpus += healthy;
            continue;
        }
        let Ok(gpu) = catalog::accelerator(&node.gpu_type) else {
            unknown.insert(node.gpu_type.clone());
            continue;
        };
        let mut machine = Machine::usual(gpu);
        machine.node = u64::from(node.gpus);
        machine.domain = machine.domain.max(machine.node);
        machine.host_gib = node.memory.get() as f64 / 1_073_741_824.0;
        if let Some(partition) = partitions.get(node.partition.as_str()) {
            if partition.interconnect_gbps > 0 {
                machine.inter_gb_s =
                    f64::from(partition.interconnect_gbps) / 8.0 / f64::from(node.gpus);
            }
            if partition.price_per_gpu_hour.micros() > 0 {
                machine.usd_h = partition.price_per_gpu_hour.micros() as f64 / 1e6;
            }
        }
        offers.push(Offer {
            partition,
            gpu_type: node.gpu_type.clone(),
            machine,
            gpus: healthy,
        });
    }
    (offers, unknown)
}
