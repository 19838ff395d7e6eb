//! `antiphon serve`: a server over a cluster, whose engine starts the processes, and over this machine where that is wanted.
//! Decides nothing.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use antiphon_backends::slurm::{GpuType, ObserverConfig, SlurmBackend, SlurmConfig, SlurmObserver};
use antiphon_backends::{Backend, BackendError, SeveralBackends, supervisor};
use antiphon_planner::catalog::accelerator;
use antiphon_server::Over;
use antiphon_types::Bytes;

use crate::cli::{Exit, ServeArgs, Target};
use crate::cluster_file;
use crate::failure::{Failure, causes};
use crate::settings::Settings;
use crate::up::{Offer, local, not_as_root, stay};

/// Starts a server over Slurm and stays until it is told to stop.
pub(crate) fn run(target: &Target, args: ServeArgs) -> Result<ExitCode, Failure> {
    // Who only looks starts nothing as anybody.
    not_as_root("serve", args.allow_root || args.observe)?;
    let settings = Settings::read()?;
    let configured = settings.slurm();
    if !args.slurm && configured.is_none() {
        let what = "`antiphon serve` is not told which engine starts the processes";
        return Err(Failure::new(Exit::Usage, "AP0806", what)
            .why("neither `--slurm` is given nor `[backend.slurm]` in `antiphon.toml`")
            .help("add `--slurm`; for this machine alone there is `antiphon up`"));
    }
    if args.observe {
        return observe(&settings, target, args);
    }
    let state_dir = settings.state_dir(target)?;
    let binary = std::env::current_exe().map_err(|error| {
        Failure::new(
            Exit::Server,
            "AP0412",
            "the antiphon binary cannot find itself",
        )
        .why(error.to_string())
    })?;
    let supervisor = supervisor::command(&binary);
    let mut config = SlurmConfig {
        catalog,
        // Not where tasks of this machine lie: each backend knows its own by their directory.
        ..SlurmConfig::new(state_dir.join("slurm"), supervisor)
    };
    if let Some(configured) = configured {
        configured.apply(&mut config)?;
    }
    if !args.partitions.is_empty() {
        config.partitions = args.partitions;
    }
    if let Some(mode) = args.mode {
        config.mode = mode.into();
    }
    // The configuration's cluster file is for `up`: whoever wants its nodes beside those of Slurm says so.
    let beside = match args.cluster {
        Some(path) => Some(cluster_file::read(&path, None)?),
        None => None,
    };
    stay(&settings, target, args.reach, async {
        let slurm = SlurmBackend::new(config).map_err(failed)?;
        let mut nodes = slurm.nodes().await.map_err(failed)?;
        let mut partitions = slurm.partitions().await.map_err(failed)?;
        let mut backend: Arc<dyn Backend> = Arc::new(slurm);
        let mut resources = BTreeMap::new();
        if let Some(cluster) = beside {
            let of_it = Some(cluster.nodes.clone());
            let local = local(&state_dir, of_it, 0, settings.secrets())?;
            backend = Arc::new(SeveralBackends::new(vec![Arc::new(local), backend]));
            nodes.extend(cluster.nodes);
            partitions.extend(cluster.partitions);
            resources = cluster.resources;
        }
        let over = Over::Drives {
            backend,
            partitions,
            resources,
        };
        Ok(Offer { over, nodes })
    })
}

/// Starts a server that looks at Slurm and commands nothing. No backend is made: there is nothing to command with.
fn observe(settings: &Settings, target: &Target, args: ServeArgs) -> Result<ExitCode, Failure> {
    let mut config = ObserverConfig {
        catalog,
        ..ObserverConfig::default()
    };
    if let Some(configured) = settings.slurm() {
        configured.observe(&mut config)?;
    }
    if !args.partitions.is_empty() {
        config.partitions = args.partitions;
    }
    stay(settings, target, args.reach, async {
        let over = Over::Observes(Arc::new(SlurmObserver::new(config)));
        let nodes = Vec::new();
        Ok(Offer { over, nodes })
    })
}

/// What the planner knows of a GPU type by any of its names.
fn catalog(name: &str) -> Option<GpuType> {
    let known = accelerator(name).ok()?;
    // Sizes of the catalog are whole and positive.
    let memory = Bytes::new((known.memory_gb * 1e9) as u64);
    Some(GpuType {
        name: known.name.clone(),
        memory,
    })
}

fn failed(error: BackendError) -> Failure {
    match error {
        BackendError::Slurm(error) => {
            Failure::new(Exit::Server, error.code(), "Slurm cannot be driven")
                .why(format!("{error}{}", after_colon(&causes(&error))))
                .help(error.help())
        }
        error => Failure::new(Exit::Server, "AP0412", error.to_string())
            .why(causes(&error))
            .help("give this user write permission, or choose another with `--state-dir DIR`"),
    }
}

fn after_colon(causes: &str) -> String {
    match causes {
        "" => String::new(),
        causes => format!(": {causes}"),
    }
}
