//! Placement alone: pods of FGD's traces offered to its nodes, where none ever leaves.

use std::path::Path;
use std::time::Duration;

use antiphon_sim::outcome::Outcome;
use antiphon_sim::placement::{self, Offered, Placer};
use antiphon_sim::trace;
use antiphon_sim::workload::Workload;
use antiphon_sim::world::Knowledge;

use super::Compared;
use super::page::{self, Page};
use super::policies;
use super::watch::{Stop, peak_rss_bytes, stopwatch};
use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;
use crate::render::say;

/// The name of the cluster whose nodes lie beside its traces.
pub(super) const FGD: &str = "fgd";

/// The list of nodes that belongs to FGD's traces.
const FGD_NODES: &str = "openb_node_list_gpu_node.csv.gz";

/// Places under one policy after the other.
pub(super) fn side_by_side<'a>(
    args: &'a SimulateArgs,
    workload: &Workload,
    stop: &Stop,
) -> Result<Compared<'a>, Failure> {
    let names = policies::names(args);
    let placers: Vec<Placer> = names
        .iter()
        .map(|name| placer(name))
        .collect::<Result<_, _>>()?;
    let title = format!("{}: placement alone", workload.name);
    let about = vec![
        ("trace", workload.name.clone()),
        ("offered", format!("{} %", args.offered / 10)),
        ("shuffles", args.shuffles.to_string()),
        ("seed", args.seed().to_string()),
        ("antiphon", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let mut compared = Compared {
        runs: Vec::new(),
        page: Page::begin(page::wanted(args), title, about)?,
        failure: None,
        stage: None,
    };
    for placer in placers {
        let outcome = place(args, placer, workload)?;
        if let Some(page) = &mut compared.page {
            page.add_figures(&outcome);
        }
        compared.runs.push(outcome);
        if stop.is_wished() {
            let done = compared.runs.len();
            say(&format!(
                "stopped: what is done so far follows, {done} of {} policies",
                names.len()
            ));
            break;
        }
    }
    Ok(compared)
}

fn placer(name: &str) -> Result<Placer, Failure> {
    let placer = Placer::ALL.into_iter().find(|placer| placer.name() == name);
    placer.ok_or_else(|| {
        let names: Vec<&str> = Placer::ALL.iter().map(|placer| placer.name()).collect();
        let what = format!("there is no placement policy `{name}`");
        Failure::new(Exit::Usage, "AP0607", what).help(format!("give one of: {}", names.join(", ")))
    })
}

/// Places jobs that never leave.
fn place(args: &SimulateArgs, placer: Placer, workload: &Workload) -> Result<Outcome, Failure> {
    let stopwatch = stopwatch();
    let beside = args.trace.parent().unwrap_or(Path::new("."));
    let nodes = trace::fgd_nodes(&beside.join(FGD_NODES))?;
    let offered = Offered {
        permille: args.offered,
        shuffles: args.shuffles,
        seed: args.seed(),
    };
    let result = placement::run(&nodes, workload, placer, &offered);
    let idle = 100.0 - result.mean();
    let nanos = stopwatch();
    Ok(Outcome {
        policy: placer.name().to_owned(),
        trace: workload.name.clone(),
        knowledge: Knowledge::None.name().to_owned(),
        jobs: usize::try_from(result.jobs).unwrap_or(usize::MAX),
        completed: usize::try_from(result.started).unwrap_or(usize::MAX),
        allocation: Some(result.mean()),
        allocation_sd: Some(result.deviation()),
        fragmented: Some(result.mean_fragmented()),
        fragmentation: (idle > 0.0).then(|| result.mean_fragmented() / idle),
        events: result.events,
        cycles: result.cycles,
        wall_s: Some(Duration::from_nanos(nanos).as_secs_f64()),
        peak_rss_bytes: peak_rss_bytes(),
        digest: format!("{:016x}", result.digest),
        ..Outcome::default()
    })
}
