//! A workload that comes faster or slower, and a cluster with more nodes or fewer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use antiphon_types::{Millis, NodeName, NodeSpec};

use crate::cluster::Cluster;
use crate::workload::Workload;

/// The same jobs, coming so many thousandths as fast. What they do stays as long, and each deadline as far from its job.
#[must_use]
pub fn at_load(workload: &Workload, permille: u32) -> Cow<'_, Workload> {
    if permille == 1_000 {
        return Cow::Borrowed(workload);
    }
    let mut workload = workload.clone();
    for job in &mut workload.jobs {
        let submitted = u128::from(job.submitted.as_millis()) * 1_000 / u128::from(permille);
        let submitted = Millis::from_millis(u64::try_from(submitted).unwrap_or(u64::MAX));
        job.deadline = job
            .deadline
            .map(|deadline| submitted + deadline.saturating_sub(job.submitted));
        job.submitted = submitted;
    }
    Cow::Owned(workload)
}

/// The same cluster with so many thousandths of the nodes of each kind, at least one; nodes that are alike in GPUs and
/// partition are of one kind. Further nodes stand where those stand that they are copies of.
#[must_use]
pub fn at_size(cluster: &Cluster, permille: u32) -> Cow<'_, Cluster> {
    if permille == 1_000 {
        return Cow::Borrowed(cluster);
    }
    let mut kinds: BTreeMap<(&str, u32, &str), Vec<&NodeSpec>> = BTreeMap::new();
    for node in &cluster.nodes {
        let kind = (&node.gpu_type[..], node.gpus, &node.partition[..]);
        kinds.entry(kind).or_default().push(node);
    }
    let mut nodes = Vec::new();
    for same in kinds.values() {
        let share = u128::from(permille);
        let wanted = (same.len() as u128 * share + 500) / 1_000;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).max(1);
        for (place, node) in same.iter().cycle().take(wanted).enumerate() {
            let mut node = (*node).clone();
            let copy = place / same.len();
            if copy > 0 {
                node.name = NodeName(format!("{}-x{}", node.name, copy + 1));
            }
            nodes.push(node);
        }
    }
    Cow::Owned(Cluster {
        nodes,
        ..cluster.clone()
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::at_size;
    use crate::cluster::preset;

    #[test]
    fn each_kind_of_node_grows_and_shrinks_alike() {
        let cluster = preset("gavel-testbed", 0).unwrap();
        let count = |permille: u32| {
            let nodes = at_size(&cluster, permille).into_owned().nodes;
            let names: BTreeSet<_> = nodes.iter().map(|node| node.name.clone()).collect();
            assert_eq!(names.len(), nodes.len());
            let of = |kind: &str| nodes.iter().filter(|node| node.gpu_type == kind).count();
            [of("v100"), of("p100"), of("k80")]
        };
        assert_eq!(count(1_000), [2, 4, 6]);
        assert_eq!(count(500), [1, 2, 3]);
        assert_eq!(count(2_500), [5, 10, 15]);
        assert_eq!(count(1), [1, 1, 1]);
    }
}
