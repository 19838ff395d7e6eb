//! What a server runs over: a cluster that it drives, or somebody else's that it only observes. Begins what each of the two
//! needs: loop and executor for the one, looks for the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use antiphon_backends::Backend;
use antiphon_backends::observe::Observe;
use antiphon_kernel::State;
use antiphon_store::{Fence, Log, StoreError};
use antiphon_types::{Command, GatePolicy, NodeSpec, Observation, PartitionSpec, Policy, TeamSpec};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::api::now;
use crate::api::teams::specs;
use crate::event_loop::{EventLoop, LoopHandle, Refused};
use crate::executor::{Executor, chain};
use crate::forecasts::Forecasts;
use crate::observe::{self, Observed, Observing};
use crate::recovery::ImageKeeper;
use crate::show::Subject;
use crate::start::StartError;
use crate::tokens::Tokens;
use crate::view::View;

/// How often a backend is asked for its nodes: below a minute, so that a node that is down gets no second gang.
const INVENTORY_EVERY: Duration = Duration::from_secs(20);

/// What a server is started over.
pub enum Over {
    /// A cluster whose jobs are antiphon's: it starts, stops and moves them.
    Drives {
        /// The system that starts processes.
        backend: Arc<dyn Backend>,
        /// The partitions that its nodes name.
        partitions: Vec<PartitionSpec>,
        /// Resources that belong to no node, and how much of each there is.
        resources: BTreeMap<String, u64>,
    },
    /// A cluster that somebody else runs: it is looked at, and nothing in it is touched.
    Observes(Arc<dyn Observe>),
}

/// The same, as it is asked while the server runs.
pub(crate) enum Source {
    Drives(Arc<dyn Backend>),
    Observes(Arc<Observed>),
    /// A simulation, whose log somebody else writes: nothing is behind it.
    Shows(Subject),
}

impl Source {
    /// The name of what starts processes.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Drives(backend) => backend.name(),
            Self::Observes(observed) => observed.scheduler(),
            Self::Shows(_) => "simulated",
        }
    }

    /// What starts processes for antiphon; nothing where it only observes.
    pub(crate) const fn driven(&self) -> Option<&Arc<dyn Backend>> {
        match self {
            Self::Drives(backend) => Some(backend),
            Self::Observes(_) | Self::Shows(_) => None,
        }
    }

    /// What is seen of somebody else's cluster; nothing where it is antiphon's.
    pub(crate) const fn observed(&self) -> Option<&Arc<Observed>> {
        match self {
            Self::Drives(_) | Self::Shows(_) => None,
            Self::Observes(observed) => Some(observed),
        }
    }

    /// What is simulated, where that is what is shown.
    pub(crate) const fn shown(&self) -> Option<&Subject> {
        match self {
            Self::Drives(_) | Self::Observes(_) => None,
            Self::Shows(subject) => Some(subject),
        }
    }
}

/// What an operator sets.
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) gate: GatePolicy,
    pub(crate) teams: Vec<TeamSpec>,
}

/// What both begin with: the state that the log stands for, and the log to go on with.
pub(crate) struct Beginning {
    pub(crate) state: State,
    pub(crate) view: Arc<View>,
    pub(crate) log: Arc<dyn Log>,
    pub(crate) fence: Fence,
    pub(crate) settings: Settings,
    pub(crate) user: String,
}

/// How tasks reach the server.
pub(crate) struct Reached {
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) url: String,
    pub(crate) ca: Option<std::path::PathBuf>,
}

/// What runs once it has begun.
pub(crate) struct Begun {
    pub(crate) source: Source,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) inputs: LoopHandle,
    pub(crate) running: JoinHandle<Result<(), StoreError>>,
    /// Ended with the server, whatever they are at.
    pub(crate) beside: Vec<JoinHandle<()>>,
}

/// Begins to drive a cluster.
pub(crate) async fn drive(
    of: Beginning,
    reached: Reached,
    backend: Arc<dyn Backend>,
    partitions: Vec<PartitionSpec>,
    resources: BTreeMap<String, u64>,
) -> Result<Begun, StartError> {
    let nodes = backend.nodes().await.map_err(|source| StartError::Nodes {
        backend: backend.name(),
        source,
    })?;
    let Beginning {
        state,
        view,
        log,
        fence,
        settings,
        user,
    } = of;
    let images = ImageKeeper::new(log.clone(), fence, state.seq());
    let (actions, orders) = mpsc::unbounded_channel();
    let (event_loop, inputs) = EventLoop::new(state, view.clone(), log, fence, images, actions);
    let running = tokio::spawn(event_loop.run());
    let inventory = Observation::Inventory {
        nodes: nodes.clone(),
        partitions: partitions.clone(),
        resources: resources.clone(),
    };
    let told = tell_what_is_new(&view, &inputs, inventory, settings, &user).await;
    if let Err(refused) = told {
        inputs.finish().await;
        let _ = running.await;
        return Err(refused);
    }
    let executor = Executor {
        backend: backend.clone(),
        view,
        inputs: inputs.clone(),
        tokens: reached.tokens,
        url: reached.url,
        ca: reached.ca,
    };
    let executing = tokio::spawn(executor.run(orders));
    let counting = count_nodes(backend.clone(), inputs.clone(), (partitions, resources));
    Ok(Begun {
        source: Source::Drives(backend),
        nodes,
        inputs,
        running,
        beside: vec![executing, tokio::spawn(counting)],
    })
}

/// Begins to observe a cluster: with the first look taken in.
pub(crate) async fn observe(
    of: Beginning,
    observer: Arc<dyn Observe>,
    forecasts: Arc<Forecasts>,
) -> Result<Begun, StartError> {
    let began = (now(), Instant::now());
    let look = observer.look().await;
    let picture = look.map_err(|source| StartError::Nodes {
        backend: observer.name(),
        source,
    })?;
    let nodes = picture.nodes.iter().map(|node| node.spec.clone()).collect();
    let images = ImageKeeper::new(of.log.clone(), of.fence, of.state.seq());
    let (inputs, taken) = LoopHandle::new();
    let observed = Arc::new(Observed::new(observer.name()));
    let mut observing = Observing {
        observer,
        observed: observed.clone(),
        settings: observe::Settings {
            policy: of.settings.policy,
            teams: of.settings.teams,
        },
        state: of.state,
        view: of.view,
        forecasts,
        log: of.log,
        fence: of.fence,
        images,
        inputs: taken,
    };
    observing.take(picture, began.0, began.1.elapsed()).await?;
    Ok(Begun {
        source: Source::Observes(observed),
        nodes,
        inputs,
        running: tokio::spawn(observing.run()),
        beside: Vec::new(),
    })
}

/// Asks the backend for its nodes again and again. The log takes only what differs; where the backend cannot be asked, what
/// it said last still stands.
async fn count_nodes(
    backend: Arc<dyn Backend>,
    inputs: LoopHandle,
    (partitions, resources): (Vec<PartitionSpec>, BTreeMap<String, u64>),
) {
    let mut interval = tokio::time::interval(INVENTORY_EVERY);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick comes at once, and the nodes were asked for just now.
    interval.tick().await;
    loop {
        interval.tick().await;
        let nodes = match backend.nodes().await {
            Ok(nodes) => nodes,
            Err(error) => {
                let (backend, error) = (backend.name(), chain(&error));
                tracing::warn!(
                    backend,
                    error,
                    "the nodes could not be listed; they stay as they were"
                );
                continue;
            }
        };
        let inventory = Observation::Inventory {
            nodes,
            partitions: partitions.clone(),
            resources: resources.clone(),
        };
        if inputs.observe(inventory).await.is_err() {
            return;
        }
    }
}

/// Logs the inventory and the settings where they differ from what the log says.
async fn tell_what_is_new(
    view: &View,
    inputs: &LoopHandle,
    inventory: Observation,
    settings: Settings,
    user: &str,
) -> Result<(), StartError> {
    let Settings {
        policy,
        gate,
        teams,
    } = settings;
    let new = {
        let state = view.state();
        let policy = (*state.policy() != policy).then(|| Command::SetPolicy {
            policy: Box::new(policy),
        });
        let teams = (specs(&state) != teams).then_some(Command::SetTeams { teams });
        let gate = (state.gate().policy() != Some(&gate)).then_some(Command::SetGate { gate });
        [policy, teams, gate]
    };
    // A loop that has ended is noticed by whoever runs it.
    let _ = inputs.observe(inventory).await;
    for command in new.into_iter().flatten() {
        match inputs.command(user.to_owned(), None, command).await {
            Err(refused @ Refused::Rejection(_)) => return Err(StartError::Policy(refused)),
            Ok(_) | Err(Refused::Bug(_) | Refused::Observes { .. } | Refused::Stopping) => (),
        }
    }
    Ok(())
}
