//! `antiphon up` and `antiphon audit`: what a person sees when a server starts, stops or is looked through.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use antiphon_backends::local::{LocalBackend, LocalConfig};
use antiphon_backends::supervisor;
use antiphon_server::{Limits, Over, ServerConfig, Started, audit as audit_log, start};
use antiphon_store::SqliteLog;
use antiphon_types::NodeSpec;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Exit, ReachArgs, ReadArgs, Target, UpArgs};
use crate::cluster_file;
use crate::failure::{Failure, causes};
use crate::render::{print, say};
use crate::settings::{self, Settings};
use crate::telemetry;

/// Starts a server over this machine and stays until it is told to stop.
pub(crate) fn run(target: &Target, args: UpArgs) -> Result<ExitCode, Failure> {
    not_as_root("up", args.allow_root)?;
    let settings = Settings::read()?;
    let state_dir = settings.state_dir(target)?;
    let topology = settings.topology(args.topology);
    let cluster = match settings.cluster(args.cluster) {
        Some(path) => Some(cluster_file::read(&path, topology.as_deref())?),
        None => None,
    };
    // This machine as it is has one partition without a name, and nothing that belongs to no node.
    let (nodes, partitions, resources) = match cluster {
        Some(cluster) => (Some(cluster.nodes), cluster.partitions, cluster.resources),
        None => (None, Vec::new(), BTreeMap::new()),
    };
    stay(&settings, target, args.reach, async {
        let virtual_gpus = settings.virtual_gpus(args.virtual_gpus);
        let known = nodes.clone().unwrap_or_default();
        let backend = local(&state_dir, nodes, virtual_gpus, settings.secrets())?;
        let over = Over::Drives {
            backend: Arc::new(backend),
            partitions,
            resources,
        };
        Ok(Offer { over, nodes: known })
    })
}

/// Refuses to start as root, unless that is said to be meant.
pub(crate) fn not_as_root(command: &str, allowed: bool) -> Result<(), Failure> {
    if allowed || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let what = format!("`antiphon {command}` does not run as root");
    let why = "jobs run as the user who runs the server, and would run as root";
    let help = "run it as another user, or add `--allow-root` if this machine is yours alone";
    Err(Failure::new(Exit::Server, "AP0406", what)
        .why(why)
        .help(help))
}

/// What a server has to run jobs on.
pub(crate) struct Offer {
    pub(crate) over: Over,
    /// Its nodes, where they are known before it is asked: their words for GPU types are those of teams too.
    pub(crate) nodes: Vec<NodeSpec>,
}

/// What a server says of itself when it starts and stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It starts processes of this machine.
    Up,
    /// It drives a cluster.
    Drives,
    /// It only looks at one.
    Observes,
}

impl Kind {
    fn of(over: &Over) -> Self {
        match over {
            Over::Observes(_) => Self::Observes,
            Over::Drives { backend, .. } if backend.name() == "local" => Self::Up,
            Over::Drives { .. } => Self::Drives,
        }
    }
}

/// Runs a server until it is told to stop.
pub(crate) fn stay(
    settings: &Settings,
    target: &Target,
    reach: ReachArgs,
    offer: impl Future<Output = Result<Offer, Failure>>,
) -> Result<ExitCode, Failure> {
    let state_dir = settings.state_dir(target)?;
    let _telemetry = telemetry::start(settings.traces_to())?;
    std::panic::set_hook(Box::new(|panic| {
        // A bug that the server catches is told by it; the place is what it cannot know.
        tracing::error!("{panic}");
    }));
    let files = take_all_files();
    let runtime = tokio::runtime::Runtime::new().map_err(|error| {
        Failure::new(
            Exit::Server,
            "AP0414",
            "the server's threads cannot be started",
        )
        .why(error.to_string())
    })?;
    runtime.block_on(async {
        let mut stop = std::pin::pin!(stop()?);
        let starting = async {
            let Offer { over, nodes } = offer.await?;
            let mut teams = settings.teams();
            settings::in_words_of(&nodes, &mut teams);
            let kind = Kind::of(&over);
            let config = ServerConfig {
                listen: settings.listen(reach.listen),
                tls: settings.tls(target, reach.certificate, reach.key)?,
                plain_to_others: reach.insecure,
                advertise: settings.advertise(reach.advertise),
                limits: within(settings.limits(), files),
                over,
                state_dir: state_dir.clone(),
                policy: settings.policy(),
                gate: settings.gate(),
                metrics_open_to_loopback: settings.metrics_open(),
                notify: settings.notify()?,
                exporters: settings.exporters()?,
                teams,
                user: user(),
            };
            Ok::<_, Failure>((start(config).await?, kind))
        };
        let (started, kind) = tokio::select! {
            started = starting => started?,
            () = &mut stop => {
                say("antiphon was stopped before it had started; jobs run on");
                return Ok(ExitCode::SUCCESS);
            }
        };
        greet(&started, kind, &state_dir);
        let running_on = started.run_until(stop).await?;
        let again = match kind {
            Kind::Up => "antiphon up",
            Kind::Drives | Kind::Observes => "antiphon serve",
        };
        say(&match running_on {
            _ if kind == Kind::Observes => {
                "antiphon looks no longer; it has touched no job".to_owned()
            }
            0 => "antiphon has stopped; no job is running".to_owned(),
            1 => format!("antiphon has stopped; 1 job runs on: `{again}` takes it up again"),
            n => format!("antiphon has stopped; {n} jobs run on: `{again}` takes them up again"),
        });
        Ok(ExitCode::SUCCESS)
    })
}

/// Every trainer keeps a connection: the usual soft limit of 1,024 files is too low. Tasks inherit the higher one, which
/// training wants as well.
fn take_all_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Where it may not be raised the server runs with what there is.
    match setrlimit(Resource::Nofile, all) {
        Ok(()) => all.current,
        Err(_) => limit.current,
    }
}

/// Connections never take the last files: log, outputs and new tasks need some.
fn within(limits: Limits, files: Option<u64>) -> Limits {
    const KEPT: u64 = 256;
    let left = files.map_or(u64::MAX, |files| files.saturating_sub(KEPT).max(KEPT));
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    Limits {
        connections: limits.connections.min(left),
        ..limits
    }
}

/// Processes of this machine as a backend.
pub(crate) fn local(
    state_dir: &Path,
    nodes: Option<Vec<NodeSpec>>,
    virtual_gpus: u32,
    offered: BTreeSet<String>,
) -> Result<LocalBackend, Failure> {
    let failed = |what: &str, why: String| Failure::new(Exit::Server, "AP0412", what).why(why);
    let binary = std::env::current_exe()
        .map_err(|error| failed("the antiphon binary cannot find itself", error.to_string()))?;
    let supervisor = supervisor::command(&binary);
    let config = LocalConfig {
        nodes,
        virtual_gpus,
        offered,
        ..LocalConfig::new(state_dir.to_owned(), supervisor)
    };
    LocalBackend::new(config).map_err(|error| {
        let what = format!(
            "the state directory `{}` cannot be used",
            state_dir.display()
        );
        failed(&what, format!("{error}: {}", causes(&error)))
            .help("give this user write permission, or choose another with `--state-dir DIR`")
    })
}

/// The person who runs this, by name where there is one.
pub(crate) fn user() -> String {
    let uid = rustix::process::getuid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.to_string()).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| uid.to_string())
}

fn greet(started: &Started, server: Kind, state_dir: &Path) {
    let gpus: u32 = started.nodes.iter().map(|node| node.gpus).sum();
    let kind = match started.nodes.iter().find(|node| node.gpus > 0) {
        Some(node) if node.gpus_virtual => "virtual GPUs (counted, not there)".to_owned(),
        Some(node) => format!("GPUs ({})", node.gpu_type),
        None => "GPUs".to_owned(),
    };
    let nodes = match started.nodes.len() {
        1 => format!("node {}", started.nodes[0].name),
        n => format!("{n} nodes"),
    };
    say(&format!(
        "antiphon {} listens on {}",
        env!("CARGO_PKG_VERSION"),
        started.url
    ));
    say(&format!(
        "  dashboard: {}",
        login_url(&started.url, state_dir)
    ));
    if !started.listen.ip().is_loopback() && started.url.starts_with("http://") {
        say("warning: without TLS: whoever is on the way can read tokens and outputs");
    }
    say(&format!("  {nodes}: {gpus} {kind}"));
    say(&format!("  state in {}", state_dir.display()));
    if started.jobs_living > 0 {
        let jobs = if started.jobs_living == 1 {
            "job"
        } else {
            "jobs"
        };
        let (living, adopted) = (started.jobs_living, started.adopted);
        say(&format!(
            "  {living} {jobs} from before, {adopted} under way and taken up again"
        ));
    }
    if let Some(before) = &started.moved_from {
        let option = if before.contains("://") {
            "--advertise"
        } else {
            "--listen"
        };
        say(&format!(
            "warning: jobs under way know the server at {before} and do not reach it here; \
             stop this one and start it with `{option} {before}`"
        ));
    }
    say(match server {
        Kind::Observes => {
            "  it only observes: it looks, says what it would do, and commands nothing\n  next: `antiphon jobs`, `antiphon why JOB`; Ctrl-C stops the server and touches no job"
        }
        Kind::Up | Kind::Drives => {
            "  next: `antiphon submit job.toml`; Ctrl-C stops the server and leaves jobs running"
        }
    });
}

/// Where the dashboard of a server is. To a person at a terminal with the token behind `#`, which browsers send to nobody; never into a
/// file or a journal.
pub(crate) fn login_url(url: &str, state_dir: &Path) -> String {
    let address = format!("{url}/");
    match antiphon_server::read_token(state_dir) {
        Ok(token) if std::io::stderr().is_terminal() => format!("{address}#token={token}"),
        Ok(_) | Err(_) => format!(
            "{address} (asks for the token in `{}`)",
            state_dir.join(antiphon_server::TOKEN_FILE).display()
        ),
    }
}

/// Completes on Ctrl-C or SIGTERM, also on one that came before somebody waits for it.
fn stop() -> Result<impl Future<Output = ()>, Failure> {
    let register = |kind| {
        signal(kind).map_err(|error| {
            Failure::new(Exit::Server, "AP0414", "signals cannot be listened to")
                .why(error.to_string())
        })
    };
    let mut interrupt = register(SignalKind::interrupt())?;
    let mut terminate = register(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => (),
            _ = terminate.recv() => (),
        }
    })
}

/// Replays a log from its first event.
pub(crate) fn audit(target: &Target, args: &ReadArgs) -> Result<ExitCode, Failure> {
    let dir = Settings::read()?.state_dir(target)?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| {
        Failure::new(Exit::Failed, "AP0414", "threads cannot be started").why(error.to_string())
    })?;
    let report = runtime.block_on(async {
        let log = SqliteLog::open_read_only(&dir)?;
        log.verify().await?;
        audit_log(&log).await
    });
    let report = report.map_err(antiphon_server::StartError::from)?;
    let agrees = report.differences.is_empty() && report.broken.is_none();
    if args.json {
        let json = serde_json::json!({
            "events": report.events,
            "images_compared": report.images_compared,
            "images_passed_over": report.images_passed_over,
            "differences": report.differences.iter().map(|seq| seq.0).collect::<Vec<_>>(),
            "digest": report.digest.to_string(),
            "jobs_living": report.jobs_living,
            "broken": report.broken,
        });
        print(&format!("{json}\n"));
    } else {
        let verdict = if agrees {
            "the log agrees with itself"
        } else {
            "THE LOG DOES NOT AGREE WITH ITSELF"
        };
        print(&format!(
            "{verdict}\n  events            {}\n  images compared   {}\n  jobs not ended    {}\n  digest            {}\n",
            report.events, report.images_compared, report.jobs_living, report.digest
        ));
    }
    if agrees {
        return Ok(ExitCode::SUCCESS);
    }
    let why = report
        .broken
        .unwrap_or_else(|| format!("images differ at {:?}", report.differences));
    Err(
        Failure::new(Exit::Audit, "AP0404", "the log does not agree with itself")
            .why(why)
            .help("keep the state directory as it is and report this; jobs are not touched"),
    )
}
