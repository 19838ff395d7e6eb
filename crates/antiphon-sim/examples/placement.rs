//! Prints what each placement policy allocates of FGD's cluster: `placement FOLDER VARIANTS POLICIES SHUFFLES [SEED]`.
#![expect(clippy::print_stdout, reason = "its output is what it is for")]

use std::path::PathBuf;
use std::time::Instant;

use antiphon_sim::placement::{Offered, Placer, run};
use antiphon_sim::trace::{Strict, fgd_nodes, read};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().unwrap_or_default();
    let folder = PathBuf::from(next());
    let (variants, policies) = (next(), next());
    let shuffles = next().parse().unwrap_or(1);
    let seed = next().parse().unwrap_or(1);
    let nodes = fgd_nodes(&folder.join("openb_node_list_gpu_node.csv.gz")).expect("the nodes");
    for variant in variants.split(',') {
        let path = folder.join(format!("openb_pod_list_{variant}.csv.gz"));
        let trace = read(&path, None, Strict::On).expect("the pods");
        for placer in Placer::ALL
            .into_iter()
            .filter(|placer| policies.contains(placer.name()))
        {
            let began = Instant::now();
            let offered = Offered {
                permille: 1_300,
                shuffles,
                seed,
            };
            let result = run(&nodes, &trace.workload, placer, &offered);
            println!(
                "{variant:12} {:9} {:.2} sd {:.2} fragmented {:.2} jobs {} started {} events {} cycles {} digest {:016x} {:.2}s a shuffle",
                placer.name(),
                result.mean(),
                result.deviation(),
                result.mean_fragmented(),
                result.jobs,
                result.started,
                result.events,
                result.cycles,
                result.digest,
                began.elapsed().as_secs_f64() / f64::from(shuffles),
            );
        }
    }
}
