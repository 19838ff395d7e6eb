//! Nodes as `scontrol show node` prints them, counted as nodes of this machine. What Slurm has out of service is left out and
//! said.

use antiphon_backends::slurm::nodes::{SlurmNode, parse};
use antiphon_types::PartitionSpec;

use super::Cluster;

/// Nodes out of service that are named: more would fill the screen.
const SHOWN_MAX: usize = 5;

/// Reads Slurm's nodes.
///
/// # Errors
/// The first thing that makes it none.
pub(super) fn cluster(text: &str) -> Result<Cluster, String> {
    let mut cluster = Cluster::default();
    let mut left_out: Vec<String> = Vec::new();
    let mut in_several: Option<String> = None;
    for node in parse(text)? {
        let SlurmNode {
            mut spec,
            partitions,
            state,
            reason,
            in_service,
            ..
        } = node;
        let name = &spec.name;
        if !in_service {
            let reason = match reason.as_str() {
                "" => String::new(),
                reason => format!(": {reason}"),
            };
            left_out.push(format!("{name} ({state}{reason})"));
            continue;
        }
        if let ([first, _, ..], None) = (partitions.as_slice(), &in_several) {
            in_several = Some(format!(
                "`{name}` is in {} partitions: nodes count to the first that Slurm names, here `{first}`",
                partitions.len()
            ));
        }
        spec.gpus_virtual = spec.gpus > 0;
        let known = |other: &PartitionSpec| other.name == spec.partition;
        if !spec.partition.is_empty() && !cluster.partitions.iter().any(known) {
            cluster.partitions.push(PartitionSpec {
                name: spec.partition.clone(),
                ..PartitionSpec::default()
            });
        }
        cluster.nodes.push(spec);
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
