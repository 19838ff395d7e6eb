//! Which cluster a simulation runs on: a preset, a cluster file, or the preset of the trace's format; with what flags say
//! about it. Builds none itself.

use std::path::Path;

use antiphon_sim::cluster::{self, Cluster};
use antiphon_sim::trace::Format;
use antiphon_types::Millis;

use super::policies::is_file;
use crate::cli::{Exit, SimulateArgs};
use crate::failure::Failure;

/// What a first and what every later start costs on a cluster of one's own.
pub(crate) const START_COST: Millis = Millis::from_secs(60);

/// The name of the cluster: given, or that of the comparison which the format belongs to.
pub(super) fn name(args: &SimulateArgs, format: Format) -> Result<String, Failure> {
    let given = args.cluster.clone();
    given
        .or_else(|| usual(format).map(str::to_owned))
        .ok_or_else(|| none(format))
}

/// The cluster of a preset or of a file, with what flags say about it.
pub(super) fn with_flags(name: &str, args: &SimulateArgs, jobs: usize) -> Result<Cluster, Failure> {
    let mut cluster = named_cluster(name, jobs)?;
    if let Some(rounds) = args.rounds {
        cluster.rounds = Some(rounds).filter(|rounds| !rounds.is_zero());
    }
    if let Some(cost) = args.start_cost {
        cluster.start_cost = cost;
        cluster.wide = None;
    }
    if let Some(cost) = args.resize_cost {
        cluster.resize_cost = cost;
        cluster.wide = None;
    }
    Ok(cluster)
}

/// The cluster of a preset or of a file.
pub(crate) fn named_cluster(name: &str, jobs: usize) -> Result<Cluster, Failure> {
    Ok(match cluster::preset(name, jobs) {
        Some(preset) => preset,
        None if is_file(name) => {
            let read = crate::cluster_file::read(Path::new(name), None)?;
            Cluster {
                name: name.to_owned(),
                nodes: read.nodes,
                partitions: read.partitions,
                resources: read.resources,
                rounds: None,
                start_cost: START_COST,
                resize_cost: START_COST,
                wide: None,
                table: None,
            }
        }
        None => {
            let presets = cluster::PRESETS.join(", ");
            let what = format!("there is no cluster `{name}`: neither a preset nor a file");
            return Err(Failure::new(Exit::Usage, "AP0610", what)
                .help(format!("give a cluster file or one of: {presets}")));
        }
    })
}

/// The preset that published comparisons on traces of a format use.
const fn usual(format: Format) -> Option<&'static str> {
    match format {
        Format::Fgd => Some("fgd"),
        Format::Muri => Some("muri"),
        Format::Gavel => Some("gavel-testbed"),
        Format::Shockwave => Some("shockwave"),
        Format::Pollux => Some("pollux"),
        Format::ElasticFlow => Some("elasticflow"),
        Format::Acme | Format::Load => Some("kalos"),
        Format::Philly
        | Format::Chronus
        | Format::Tiresias
        | Format::Sacct
        | Format::Kubernetes => None,
    }
}

fn none(format: Format) -> Failure {
    let what = format!("a trace of format `{format}` names no cluster");
    let presets = cluster::PRESETS.join(", ");
    Failure::new(Exit::Usage, "AP0610", what)
        .help(format!("give `--cluster FILE` or one of: {presets}"))
}
