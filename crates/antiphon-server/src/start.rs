//! Starts a server: lock, log, state, port, tokens, inventory, then the loop. Every way this can fail says what to do.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use antiphon_backends::BackendError;
use antiphon_kernel::State;
use antiphon_store::{DirLock, Log, SqliteLog, StoreError};
use antiphon_types::{GatePolicy, NodeSpec, Policy, Rejection, TeamSpec};
use axum::http::Uri;
use rustls::pki_types::ServerName;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::api::{Shared, now, router};
use crate::dashboard::{self, Dashboard};
use crate::devices::{Asking, DeviceBook, EVERY, Exporters};
use crate::event_loop::{LoopHandle, Refused};
use crate::executor::chain;
use crate::forecasts::Forecasts;
use crate::notify::{self, NotifyConfig};
use crate::over::{self, Beginning, Begun, Over, Reached, Settings};
use crate::recovery::{LoadError, load};
use crate::serve::{Limits, serve};
use crate::signal_plane::SignalPlane;
use crate::throughput::Throughput;
use crate::tls::{self, Shown, TlsError, TlsFiles};
use crate::tokens::{Allowance, Tokens};
use crate::view::View;

/// Where below the state directory a server keeps what it only observes.
pub(crate) const OBSERVED_DIR: &str = "observed";

/// How often time passes for the signal rules: far below the shortest span that one of them waits for.
const TICK: Duration = Duration::from_secs(5);

/// What a server is started with.
pub struct ServerConfig {
    /// Where it listens. Anything but loopback takes TLS, or an explicit leave to do without.
    pub listen: SocketAddr,
    /// Its certificate; without one it speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Whether it may speak plain HTTP to other machines.
    pub plain_to_others: bool,
    /// The URL by which clients and tasks know it. Default: the address on which it listens, or this machine's name where
    /// that is any address.
    pub advertise: Option<String>,
    /// What others may take of it.
    pub limits: Limits,
    /// Directory of log, outputs and token.
    pub state_dir: PathBuf,
    /// The kernel's settings.
    pub policy: Policy,
    /// Redlines, and whether new best-effort jobs are kept back over them.
    pub gate: GatePolicy,
    /// Whether `/metrics` is read without a token, by whoever reaches the loopback interface.
    pub metrics_open_to_loopback: bool,
    /// Who is told what happens.
    pub notify: NotifyConfig,
    /// Where DCGM exporters answer, if they are to be asked.
    pub exporters: Option<Exporters>,
    /// The teams; without any, every name is one.
    pub teams: Vec<TeamSpec>,
    /// The cluster.
    pub over: Over,
    /// The person on whose behalf it runs.
    pub user: String,
}

/// Why a server could not be started, or went down.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Others would read tokens and outputs on the wire.
    #[error("{0} is not a loopback address, and there is no certificate")]
    NotLoopback(SocketAddr),
    /// The URL by which clients should know the server cannot be one of it.
    #[error("clients cannot know the server as `{url}`: {why}")]
    Advertise {
        /// The URL.
        url: String,
        /// Why not.
        why: String,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Somebody listens there already.
    #[error("port {port} of {ip} is taken", ip = .listen.ip(), port = .listen.port())]
    PortTaken {
        /// Where.
        listen: SocketAddr,
    },
    /// The port cannot be had for another reason.
    #[error("cannot listen on {listen}")]
    Listen {
        /// Where.
        listen: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The log cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An event of the log cannot be applied: the state it stands for is not known.
    #[error("{0}")]
    Replay(LoadError),
    /// A file in the state directory cannot be used.
    #[error("cannot use the state directory `{}`", dir.display())]
    StateDir {
        /// The directory.
        dir: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The settings cannot be used.
    #[error("the settings are refused: {0}")]
    Policy(Refused),
    /// The backend cannot say what nodes it has.
    #[error("the {backend} backend cannot list its nodes")]
    Nodes {
        /// The backend.
        backend: &'static str,
        /// Why not.
        #[source]
        source: BackendError,
    },
    /// The log could not be written: a failed write is not retried over.
    #[error("the log could not be written, so nothing more is decided; jobs run on")]
    LogFailed(#[source] StoreError),
    /// The HTTP server failed.
    #[error("the HTTP server failed")]
    Http(#[source] io::Error),
}

impl From<LoadError> for StartError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Store(error) => Self::Store(error),
            LoadError::Event { .. } | LoadError::TooFar { .. } => Self::Replay(error),
        }
    }
}

impl StartError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::PortTaken { .. } | Self::Listen { .. } => "AP0401",
            Self::Store(StoreError::Locked { .. }) => "AP0402",
            Self::Store(StoreError::DiskFull { .. }) => "AP0403",
            Self::Store(StoreError::Corrupt { .. } | StoreError::Undecodable { .. }) => "AP0404",
            Self::Store(StoreError::Newer { .. }) => "AP0407",
            Self::Store(_) | Self::StateDir { .. } => "AP0412",
            Self::NotLoopback(_) => "AP0409",
            Self::Advertise { .. } => "AP0852",
            Self::Tls(TlsError::NotBelieved { .. }) => "AP0851",
            Self::Tls(_) => "AP0850",
            Self::LogFailed(StoreError::DiskFull { .. }) => "AP0403",
            Self::LogFailed(_) => "AP0411",
            Self::Nodes {
                source: BackendError::Slurm(error),
                ..
            } => error.code(),
            Self::Nodes { .. } => "AP0413",
            Self::Replay(_) => "AP0415",
            Self::Policy(Refused::Rejection(rejection @ Rejection::BadTeam { .. })) => {
                rejection.code()
            }
            Self::Policy(_) => "AP0206",
            Self::Http(_) => "AP0414",
        }
    }

    /// What to do.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NotLoopback(_) => {
                "give `--certificate FILE --key FILE`, or listen on 127.0.0.1; `--insecure` lets everybody on the way read tokens and outputs"
                    .into()
            }
            Self::Advertise { .. } => {
                "give `--advertise` a URL by which other machines reach this server, like `https://sched.example:7440`".into()
            }
            Self::Tls(TlsError::NotBelieved { host, .. }) => format!(
                "use a certificate for `{host}`, or give the name it is for with `--advertise https://NAME:PORT`; `--ca FILE` names its authority"
            ),
            Self::Tls(_) => {
                "give a certificate and its key in PEM with `--certificate FILE --key FILE`".into()
            }
            Self::PortTaken { listen } => format!(
                "`antiphon jobs` shows whether it is an antiphon server; choose another port with `--listen {}:{}`",
                listen.ip(),
                listen.port().wrapping_add(1).max(1024)
            ),
            Self::Listen { .. } => "choose another address with `--listen`".into(),
            Self::Store(error) => error.help(),
            Self::StateDir { .. } => {
                "give this user write permission, or choose another with `--state-dir`".into()
            }
            Self::Nodes {
                source: BackendError::Slurm(error),
                ..
            } => error.help(),
            Self::Nodes { .. } => "see the cause above; nothing was changed".into(),
            Self::Policy(Refused::Rejection(rejection @ Rejection::BadTeam { .. })) => {
                format!("{}; jobs run on", rejection.help())
            }
            Self::Policy(_) => {
                "correct `[policy]` or `[gate]` in `antiphon.toml`; jobs run on".into()
            }
            Self::Replay(_) => "run the antiphon that wrote the log, and report this with the event's text \
                                (`sqlite3 log.db 'select body from events where seq = ..'`); jobs run on"
                .into(),
            Self::LogFailed(error) => format!(
                "{}; then `antiphon up` again takes up what runs",
                error.help()
            ),
            Self::Http(_) => "`antiphon up` again takes up what runs".into(),
        }
    }
}

/// A server that runs.
pub struct Started {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The URL by which clients and tasks know it.
    pub url: String,
    /// Attempts that an earlier server left running and this one has taken up.
    pub adopted: usize,
    /// Jobs that have not ended.
    pub jobs_living: usize,
    /// How the earlier server was known, if jobs that are under way know it by another address.
    pub moved_from: Option<String>,
    /// Nodes that take tasks.
    pub nodes: Vec<NodeSpec>,
    view: Arc<View>,
    inputs: LoopHandle,
    running: JoinHandle<Result<(), StoreError>>,
    serving: JoinHandle<io::Result<()>>,
    /// Ended with the server, whatever they are at.
    beside: Vec<JoinHandle<()>>,
    /// Of the state directory, where the log does not hold it.
    _lock: Option<DirLock>,
}

impl Started {
    /// Runs until the server fails, or `stop` completes; then takes no more requests, closes the log and returns how many
    /// jobs run on.
    ///
    /// # Errors
    /// Where the log could not be written or the HTTP server failed.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<usize, StartError> {
        let Self {
            mut running,
            mut serving,
            beside,
            inputs,
            view,
            ..
        } = self;
        tokio::select! {
            ended = &mut running => return Err(StartError::LogFailed(ended_with(ended))),
            ended = &mut serving => return Err(StartError::Http(ended.map_or_else(io::Error::other, |ended| ended.err().unwrap_or_else(|| io::Error::other("it ended"))))),
            () = stop => (),
        }
        // Requests that wait for an answer are cut off; clients repeat them under their idempotency key.
        serving.abort();
        beside.iter().for_each(JoinHandle::abort);
        let _ = serving.await;
        for ended in beside {
            let _ = ended.await;
        }
        inputs.finish().await;
        let ended = running.await;
        let running_on = view.state().active_jobs().count();
        match ended {
            Ok(Ok(())) => Ok(running_on),
            other => Err(StartError::LogFailed(ended_with(other))),
        }
    }
}

fn ended_with(ended: Result<Result<(), StoreError>, tokio::task::JoinError>) -> StoreError {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(())) => StoreError::Failed {
            place: "the log".into(),
            cause: "the loop ended".into(),
        },
        Err(error) => StoreError::Failed {
            place: "the log".into(),
            cause: error.to_string(),
        },
    }
}

/// Starts a server.
///
/// # Errors
/// Where anything that it needs cannot be had; nothing is left half-started.
pub async fn start(config: ServerConfig) -> Result<Started, StartError> {
    if !config.listen.ip().is_loopback() && config.tls.is_none() && !config.plain_to_others {
        return Err(StartError::NotLoopback(config.listen));
    }
    // Before the state directory tells who the process is: a SIGHUP that nobody listens to would end it.
    let hangups = config.tls.as_ref().and_then(|_| tls::hangups());
    let log_dir = match &config.over {
        Over::Drives { .. } => config.state_dir.clone(),
        // What is seen is no history of antiphon's own, and no server that drives a cluster may take it for one.
        Over::Observes(_) => config.state_dir.join(OBSERVED_DIR),
    };
    let log: Arc<dyn Log> = Arc::new(SqliteLog::open(&log_dir)?);
    // Address and token lie in the state directory all the same: it has one server, of whichever kind.
    let lock = match &config.over {
        Over::Drives { .. } => None,
        Over::Observes(_) => Some(DirLock::take(&config.state_dir)?),
    };
    let listener = listen(config.listen).await?;
    let address = listener.local_addr().map_err(StartError::Http)?;
    let known = Known::of(&config, address)?;
    let certificate = match config.tls.clone() {
        Some(files) => Some(Arc::new(Shown::open(files, known.host.clone())?)),
        None => None,
    };
    let allowance = Allowance {
        per_second: config.limits.requests_per_second,
        burst: config.limits.requests_burst,
    };
    let tokens = Tokens::open(&config.state_dir, &config.user, allowance);
    let tokens = tokens.map_err(|source| StartError::StateDir {
        dir: config.state_dir.clone(),
        source,
    })?;
    let tokens = Arc::new(tokens);
    // First the fence: what is read afterwards nobody else adds to.
    let fence = log.acquire(&format!("pid {}", std::process::id())).await?;
    let state = load(&*log).await?;
    let (adopted, living) = match &config.over {
        Over::Drives { .. } => (state.active_jobs().count(), living(&state)),
        Over::Observes(_) => (0, 0),
    };
    let observes = matches!(config.over, Over::Observes(_));
    let (notifier, notifying) = notify::begin(config.notify);
    let view = Arc::new(View::new(state.clone()).with_notifier(notifier));
    let forecasts = Arc::new(Forecasts::default());
    let beginning = Beginning {
        state,
        view: view.clone(),
        log: log.clone(),
        fence,
        settings: Settings {
            policy: config.policy,
            gate: config.gate,
            teams: config.teams,
        },
        user: config.user,
    };
    let begun = match config.over {
        Over::Observes(observer) => over::observe(beginning, observer, forecasts.clone()).await?,
        Over::Drives {
            backend,
            partitions,
            resources,
        } => {
            let reached = Reached {
                tokens: tokens.clone(),
                url: known.url.clone(),
                ca: config.tls.as_ref().and_then(|tls| tls.ca.clone()),
            };
            over::drive(beginning, reached, backend, partitions, resources).await?
        }
    };
    leave_address(&config.state_dir, "address", &known.left);
    // Jobs of a server that drives a cluster know it by its own.
    let moved_from = (!observes)
        .then(|| address_of_jobs(&config.state_dir, &known.left, adopted > 0))
        .flatten();
    let Begun {
        source,
        nodes,
        inputs,
        running,
        mut beside,
    } = begun;
    let forecasting = {
        let (forecasts, view) = (forecasts.clone(), view.clone());
        tokio::spawn(async move { forecasts.run(view).await })
    };
    let shared = Arc::new(Shared {
        view: view.clone(),
        inputs: inputs.clone(),
        log,
        source,
        tokens,
        signals: SignalPlane::default(),
        forecasts: forecasts.clone(),
        dashboard: Dashboard::default(),
        state_dir: config.state_dir.display().to_string(),
        gpus_virtual: nodes.iter().any(|node| node.gpus_virtual),
        tls: certificate.is_some(),
        throughput: Throughput::default(),
        devices: DeviceBook::default(),
        metrics_open: config.metrics_open_to_loopback && address.ip().is_loopback(),
    });
    let ticking = tokio::spawn(tick(shared.clone()));
    let watching = tokio::spawn(dashboard::run(shared.clone()));
    if let Some(exporters) = config.exporters {
        beside.push(tokio::spawn(measure(shared.clone(), exporters)));
    }
    beside.extend([notifying, forecasting, ticking, watching]);
    let app = router(shared);
    let tls = certificate.as_ref().map(|shown| Arc::new(shown.config()));
    let limits = config.limits;
    let serving = tokio::spawn(async move {
        let watched = async {
            match certificate {
                Some(shown) => shown.watch(hangups).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = serve(listener, app, tls, limits) => ended,
            () = watched => Ok(()),
        }
    });
    Ok(Started {
        listen: address,
        url: known.url,
        adopted,
        jobs_living: living,
        moved_from,
        nodes,
        view,
        inputs,
        running,
        serving,
        beside,
        _lock: lock,
    })
}

/// How clients and tasks know the server.
struct Known {
    url: String,
    host: ServerName<'static>,
    /// What is left in the state directory: an address, and a URL where that says more.
    left: String,
}

impl Known {
    fn of(config: &ServerConfig, listen: SocketAddr) -> Result<Self, StartError> {
        let scheme = if config.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let url = match &config.advertise {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if listen.ip().is_unspecified() => {
                format!("{scheme}://{}:{}", machine_name(), listen.port())
            }
            None => format!("{scheme}://{listen}"),
        };
        let wrong = |why: String| StartError::Advertise {
            url: url.clone(),
            why,
        };
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let given = uri.scheme_str();
        if given != Some(scheme) {
            return Err(wrong(format!("it has to begin with `{scheme}://`")));
        }
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host =
            ServerName::try_from(host.to_owned()).map_err(|error| wrong(error.to_string()))?;
        let plain = url.strip_prefix("http://");
        let plain = plain.filter(|address| address.parse::<SocketAddr>().is_ok());
        let left = plain.unwrap_or(&url).to_owned();
        Ok(Self { url, host, left })
    }
}

fn machine_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

/// Lets rules conclude from what does not come: a run that makes no step, though its sender lives. Counts what was trained.
async fn tick(shared: Arc<Shared>) {
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        for finding in shared.signals.tick(now()) {
            shared.inputs.find(finding).await;
        }
        let (view, signals) = (&shared.view, &shared.signals);
        shared.throughput.look(view, signals, now());
        if let Some(backend) = shared.source.driven() {
            shared.devices.look(&**backend).await;
        }
    }
}

/// Asks DCGM exporters what GPUs measure, apart from all else: they may be slow.
async fn measure(shared: Arc<Shared>, exporters: Exporters) {
    let mut asking = Asking::new(exporters);
    let mut interval = tokio::time::interval(EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let nodes: Vec<_> = {
            let state = shared.view.state();
            let with_gpus = state.nodes().filter(|node| node.spec.gpus > 0);
            with_gpus.map(|node| node.spec.name.clone()).collect()
        };
        let readings = asking.look(&nodes).await;
        shared.devices.exported(readings);
    }
}

fn living(state: &State) -> usize {
    state
        .jobs()
        .values()
        .filter(|job| !job.state.is_ended())
        .count()
}

pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| {
        if source.kind() == io::ErrorKind::AddrInUse {
            StartError::PortTaken { listen: address }
        } else {
            StartError::Listen {
                listen: address,
                source,
            }
        }
    })
}

/// Leaves the address where clients of this state directory find it; without it they take the default port.
pub(crate) fn leave_address(state_dir: &Path, name: &str, address: &str) {
    if let Err(error) = std::fs::write(state_dir.join(name), address) {
        tracing::warn!(
            error = chain(&error),
            "the address could not be left for clients"
        );
    }
}

/// The address by which jobs under way know the server, where that is another. It is the one at which the first of them
/// was started, however often the server has moved since.
fn address_of_jobs(state_dir: &Path, address: &str, under_way: bool) -> Option<String> {
    const NAME: &str = "address-of-jobs";
    let known = std::fs::read_to_string(state_dir.join(NAME)).ok();
    match known.as_deref().map(str::trim) {
        Some(known) if under_way => (known != address).then(|| known.to_owned()),
        _ => {
            leave_address(state_dir, NAME, address);
            None
        }
    }
}
