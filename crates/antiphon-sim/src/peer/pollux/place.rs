//! Onto which nodes numbers of GPUs go. Changes a number only where it does not fit.

use super::super::Scene;

/// By job: nodes and GPUs of each. Whoever keeps its number stays; the others go onto as few nodes as will do, and a node holds one
/// job at most that lies on several.
pub(super) fn onto_nodes(
    scene: &Scene<'_>,
    holds: &[Vec<(usize, u32)>],
    counts: &[u32],
) -> Vec<Vec<(usize, u32)>> {
    let nodes = scene.cluster.nodes.iter();
    let mut free: Vec<u32> = nodes.map(|node| node.gpus).collect();
    let mut shared = vec![false; free.len()];
    let mut places = vec![Vec::new(); counts.len()];
    for (job, on) in holds.iter().enumerate() {
        if on.iter().map(|(_, gpus)| gpus).sum::<u32>() == counts[job] {
            take(&mut free, &mut shared, on);
            places[job].clone_from(on);
        }
    }
    let mut left: Vec<usize> = (0..counts.len())
        .filter(|job| counts[*job] > 0 && places[*job].is_empty())
        .collect();
    left.sort_by_key(|job| std::cmp::Reverse(counts[*job]));
    for job in left {
        let on = fewest(&free, &shared, counts[job]);
        take(&mut free, &mut shared, &on);
        places[job] = on;
    }
    places
}

fn take(free: &mut [u32], shared: &mut [bool], on: &[(usize, u32)]) {
    for (node, gpus) in on {
        free[*node] -= gpus;
        shared[*node] |= on.len() > 1;
    }
}

/// The fullest node that has enough, else the emptiest that hold no other part of a job; of fewer GPUs where these are too few.
fn fewest(free: &[u32], shared: &[bool], count: u32) -> Vec<(usize, u32)> {
    let fits = (0..free.len()).filter(|node| free[*node] >= count);
    if let Some(node) = fits.min_by_key(|node| free[*node]) {
        return vec![(node, count)];
    }
    let mut nodes: Vec<usize> = (0..free.len())
        .filter(|node| free[*node] > 0 && !shared[*node])
        .collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(free[*node]));
    let mut left = count;
    let mut on = Vec::new();
    for node in nodes {
        let gpus = left.min(free[node]);
        if gpus > 0 {
            on.push((node, gpus));
            left -= gpus;
        }
    }
    on.sort_unstable();
    if on.is_empty() {
        // Nothing is left but next to parts of other jobs.
        let emptiest = (0..free.len()).max_by_key(|node| free[*node]);
        on.extend(
            emptiest
                .filter(|node| free[*node] > 0)
                .map(|node| (node, free[node])),
        );
    }
    on
}
