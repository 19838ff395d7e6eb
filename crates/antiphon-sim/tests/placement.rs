//! Placement alone on FGD's trace: the peers come out as published, and antiphon above them.

use std::path::PathBuf;

use antiphon_sim::peer::placement::PeerPlacer;
use antiphon_sim::placement::{Offered, Placer, run};
use antiphon_sim::trace::{Strict, fgd_nodes, read};

/// The mean of two orders lies so near to the published mean of ten, in percentage points.
const NEAR: f64 = 0.5;

#[test]
fn peers_allocate_what_was_published_and_antiphon_more() {
    let Some(folder) = std::env::var_os("TRACES").filter(|folder| !folder.is_empty()) else {
        println!("skipped: TRACES is not set");
        return;
    };
    let folder = PathBuf::from(folder).join("alibaba-gpu-v2023-fgd");
    let nodes = fgd_nodes(&folder.join("openb_node_list_gpu_node.csv.gz")).unwrap();
    let pods = folder.join("openb_pod_list_default.csv.gz");
    let workload = read(&pods, None, Strict::On).unwrap().workload;
    let offered = Offered {
        permille: 1_300,
        shuffles: 2,
        seed: 1,
    };
    let mean = |placer| run(&nodes, &workload, placer, &offered).mean();
    let published = [
        (PeerPlacer::Random, 87.47),
        (PeerPlacer::BestFit, 93.08),
        (PeerPlacer::Packing, 92.00),
        (PeerPlacer::Fgd, 95.39),
    ];
    for (peer, expected) in published {
        let allocated = mean(Placer::Peer(peer));
        let off = (allocated - expected).abs();
        assert!(
            off <= NEAR,
            "{peer:?} allocates {allocated}, published is {expected}"
        );
    }
    let (ours, fgd) = (mean(Placer::Antiphon), mean(Placer::Peer(PeerPlacer::Fgd)));
    assert!(ours >= fgd + 0.2, "antiphon allocates {ours}, FGD {fgd}");
}
