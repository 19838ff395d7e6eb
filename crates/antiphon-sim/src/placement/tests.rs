//! What each placement policy does on a cluster small enough to follow.

use antiphon_types::{Bytes, Class, GpuAmount, Millis};

use super::*;
use crate::workload::{End, TraceJob, Work};

fn row(name: &str, cpus: u64, gpus: u32, gpu_type: &str) -> NodeRow {
    NodeRow {
        name: name.to_owned(),
        cpu_milli: cpus * 1_000,
        memory: Bytes::new(64 << 30),
        gpus,
        gpu_type: gpu_type.to_owned(),
    }
}

/// Jobs of so many thousandths of a GPU, with so many CPUs each.
fn workload(jobs: &[(u64, u64)]) -> Workload {
    let job = |(line, &(gpus, cpus)): (u64, &(u64, u64))| TraceJob {
        line,
        name: format!("job-{line}"),
        team: "team".to_owned(),
        user: String::new(),
        submitted: Millis::ZERO,
        gpus: GpuAmount::from_thousandths(gpus),
        gpu_types: Vec::new(),
        cpu_milli: Some(cpus * 1_000),
        memory: Some(Bytes::new(1 << 30)),
        class: Class::Standard,
        work: Work::Endless,
        deadline: None,
        weight_permille: 1_000,
        limit: None,
        estimate: None,
        end: End::Running,
    };
    Workload {
        name: "made-up".to_owned(),
        jobs: (1..).zip(jobs).map(job).collect(),
    }
}

/// Where a policy puts the last of some jobs, with what is taken before by hand.
fn choice(
    peer: PeerPlacer,
    taken: &[(usize, Gpus)],
    jobs: &[(u64, u64)],
    seed: u64,
) -> (usize, Gpus) {
    let nodes = [row("small", 8, 2, "T4"), row("large", 64, 8, "A10")];
    let workload = workload(jobs);
    let mut cluster = Cluster::new(&nodes, &workload);
    let asks = cluster::asks(&cluster, &workload);
    for (job, &(node, gpus)) in taken.iter().enumerate() {
        cluster.nodes[node].take(&asks[job], gpus);
    }
    let popular = Popular::of(&asks);
    let mut found = None;
    let order = [asks.len() - 1];
    peer.place(&mut cluster, &popular, &asks, &order, seed, &mut |place| {
        found = place
    });
    found.expect("there is room")
}

#[test]
fn best_fit_takes_the_node_with_the_least_left() {
    assert_eq!(choice(PeerPlacer::BestFit, &[], &[(1_000, 2)], 1), (0, 0b1));
}

#[test]
fn packing_takes_a_shared_gpu_before_a_free_one() {
    let jobs = [(400, 1), (500, 1)];
    let put = choice(PeerPlacer::Packing, &[(1, 0b100)], &jobs, 1);
    assert_eq!(put, (1, 0b100));
    // What does not fit beside it opens a free GPU of the node in use, not of the empty one.
    let put = choice(PeerPlacer::Packing, &[(1, 0b100)], &[(400, 1), (700, 1)], 1);
    assert_eq!(put, (1, 0b1));
}

#[test]
fn fgd_leaves_a_pair_whole_where_pairs_are_asked_for() {
    let jobs = [(2_000, 4), (2_000, 4), (2_000, 4), (2_000, 4), (1_000, 4)];
    assert_eq!(choice(PeerPlacer::BestFit, &[], &jobs, 1).0, 0);
    assert_eq!(choice(PeerPlacer::Fgd, &[], &jobs, 1).0, 1);
}

#[test]
fn random_takes_every_node_and_every_gpu() {
    let put: std::collections::BTreeSet<_> = (0..200)
        .map(|seed| choice(PeerPlacer::Random, &[], &[(300, 1)], seed))
        .collect();
    assert_eq!(put.len(), 10);
}

#[test]
fn shares_and_cpus_are_never_taken_twice_and_one_seed_gives_one_digest() {
    let nodes = [
        row("a", 8, 2, "T4"),
        row("b", 64, 8, "A10"),
        row("c", 32, 4, "A10"),
    ];
    let jobs: Vec<(u64, u64)> = (0..40)
        .map(|n| ([300, 1_000, 0, 700, 2_000][n % 5], 1 + n as u64 % 7))
        .collect();
    let workload = workload(&jobs);
    for placer in Placer::ALL {
        let offered = |seed| Offered {
            permille: 1_300,
            shuffles: 2,
            seed,
        };
        let first = run(&nodes, &workload, placer, &offered(5));
        assert_eq!(first, run(&nodes, &workload, placer, &offered(5)));
        assert_ne!(
            first.digest,
            run(&nodes, &workload, placer, &offered(6)).digest
        );
        assert!(first.mean() > 60.0, "{placer:?}: {first:?}");
        assert!(
            first.mean() + first.mean_fragmented() <= 100.001,
            "{first:?}"
        );
        assert_eq!(first.cycles > 0, placer == Placer::Antiphon);
    }
}

#[test]
fn the_trace_comes_once_before_any_of_its_jobs_comes_again() {
    let nodes = [row("a", 64, 8, "T4")];
    let workload = workload(&[(1_000, 1), (2_000, 1), (500, 1)]);
    let cluster = Cluster::new(&nodes, &workload);
    let asks = cluster::asks(&cluster, &workload);
    let order = offer::draw(&cluster, &asks, 1_300, 7);
    let mut first = order[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
    let requested: u64 = order.iter().map(|job| asks[*job].total()).sum();
    assert!((8_401..=10_400).contains(&requested), "{requested}");
    let fewer = offer::draw(&cluster, &asks, 200, 7);
    let requested: u64 = fewer.iter().map(|job| asks[*job].total()).sum();
    assert!(requested <= 1_600, "{requested}");
}
