//! A world that is honest but unreliable: processes that really run and end, and reports of that which come late, twice,
//! out of order or never. Checks after every event what must always hold.

mod calm;
mod checks;
mod people;
mod plain;
mod processes;
mod steps;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{JobState, State, admit, apply, check, decide, is_news, next_timer};
use antiphon_types::*;

use self::checks::Promises;
pub(crate) use self::plain::{honest, spec, team};
use self::processes::Living;
use crate::plan::{ClusterPlan, teams};

/// Cycles that may follow one input; more, and the live server takes it for running in circles.
const CYCLES_MAX: usize = 10;

/// How closely a world is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    /// Everything after every event.
    Everything,
    /// Decisions alone: for long simulations.
    Decisions,
}

/// How a job's processes behave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behavior {
    /// Whether its trainer says hello and obeys directives.
    pub(crate) attaches: bool,
    /// Whether it ignores SIGTERM.
    pub(crate) stubborn: bool,
    /// How long it runs.
    pub(crate) runs: Millis,
    /// Whether it keeps what it has done when it is asked to stop.
    pub(crate) saves: bool,
}

pub(crate) struct World {
    pub(crate) state: State,
    pub(crate) at: Timestamp,
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) events: Vec<Event>,
    /// When each attempt was launched.
    pub(crate) launches: Vec<(Timestamp, AttemptId)>,
    watch: Watch,
    nodes: Vec<NodeSpec>,
    partitions: Vec<PartitionSpec>,
    resources: BTreeMap<String, u64>,
    teams: Vec<TeamSpec>,
    /// What the backend said last.
    offered: Vec<NodeSpec>,
    behaviors: BTreeMap<JobId, Behavior>,
    processes: BTreeMap<AttemptId, Living>,
    /// Reports on their way.
    outbox: Vec<Observation>,
    /// Reports that have arrived.
    arrived: Vec<Observation>,
    promises: Promises,
    submitted: u64,
    /// Whether inputs share a commit, so that nothing is decided between them.
    together: bool,
}

pub(crate) fn pick<T>(items: impl IntoIterator<Item = T>, number: usize) -> Option<T> {
    let mut items: Vec<T> = items.into_iter().collect();
    let len = items.len();
    (len > 0).then(|| items.swap_remove(number % len))
}

impl World {
    pub(crate) fn new(
        nodes: Vec<NodeSpec>,
        partitions: Vec<PartitionSpec>,
        resources: BTreeMap<String, u64>,
        teams: Vec<TeamSpec>,
        watch: Watch,
    ) -> Self {
        let mut world = Self {
            state: State::default(),
            at: Timestamp::from_millis(1_764_430_000_000),
            wake_at: None,
            events: Vec::new(),
            launches: Vec::new(),
            watch,
            nodes: nodes.clone(),
            partitions,
            resources,
            teams: teams.clone(),
            offered: Vec::new(),
            behaviors: BTreeMap::new(),
            processes: BTreeMap::new(),
            outbox: Vec::new(),
            arrived: Vec::new(),
            promises: Promises::default(),
            submitted: 0,
            together: false,
        };
        world.offer(nodes);
        if !teams.is_empty() {
            world.command(Command::SetTeams { teams }).unwrap();
        }
        world
    }

    /// The world of a plan.
    pub(crate) fn of(plan: &ClusterPlan) -> Self {
        let nodes = plan.nodes.iter().enumerate();
        let partition = |name: &str, preemptible, duration_max| PartitionSpec {
            name: name.into(),
            price_per_gpu_hour: UsdMicros::from_micros(2_000_000),
            interconnect_gbps: if preemptible { 100 } else { 400 },
            duration_max,
            preemptible,
        };
        let longest = plan.longest_s.map(Millis::from_secs);
        let partitions = vec![
            partition("train", false, None),
            partition("spot", true, longest),
        ];
        let resources = BTreeMap::from([("license".to_owned(), plan.licenses)]);
        Self::new(
            nodes.map(|(index, node)| node.spec(index)).collect(),
            partitions,
            resources,
            teams(&plan.teams),
            Watch::Everything,
        )
    }

    fn offer(&mut self, nodes: Vec<NodeSpec>) {
        for node in &nodes {
            let known = self.state.node(&node.name);
            if known.is_some_and(|known| matches!(known.state, NodeState::Down { .. })) {
                self.promises.comes_back(&node.name, self.at);
            }
        }
        self.offered = nodes.clone();
        self.input(Body::Observation(Observation::Inventory {
            nodes,
            partitions: self.partitions.clone(),
            resources: self.resources.clone(),
        }));
    }

    /// Logs one input and decides until there is nothing more to do, unless another is to share its commit.
    pub(crate) fn input(&mut self, body: Body) {
        let holds = matches!(body, Body::Observation(Observation::Holds { .. }));
        self.log(body);
        if holds {
            self.agree();
        }
        if !self.together {
            self.decide();
        }
    }

    /// Decides as the server does: for as long as a cycle says that another has something to decide.
    fn decide(&mut self) {
        for _ in 0..CYCLES_MAX {
            let decision = decide(&self.state);
            check::decision(&self.state, &decision).unwrap();
            if self.watch == Watch::Everything {
                assert_eq!(decision, decide(&self.state), "same state, same answer");
                self.check_decision(&decision);
            }
            self.wake_at = decision.wake_at;
            if decision.actions.is_empty() {
                self.check_gate();
                return self.check_timer();
            }
            self.log(Body::Decision(decision.clone()));
            for action in &decision.actions {
                self.carry_out(action);
            }
            if decision.again {
                continue;
            }
            let timer = next_timer(&self.state);
            self.wake_at = self.wake_at.into_iter().chain(timer).min();
            if self.watch == Watch::Everything {
                // Where room is made and what is held back may be worked out anew at any time.
                let mut left = decide(&self.state).actions;
                left.retain(|action| {
                    matches!(
                        action,
                        Action::Launch { .. } | Action::Kill { .. } | Action::Settle { .. }
                    )
                });
                assert!(left.is_empty(), "{left:?} after {decision:?}");
            }
            self.check_gate();
            return self.check_timer();
        }
        panic!("no end of decisions after {:?}", self.events.last());
    }

    fn log(&mut self, body: Body) {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.at,
            body,
        };
        if self.watch == Watch::Decisions {
            return apply(&mut self.state, &event);
        }
        let text = serde_json::to_string(&event.body).unwrap();
        assert_eq!(serde_json::from_str::<Body>(&text).unwrap(), event.body);
        let before = self.state.clone();
        apply(&mut self.state, &event);
        if let Body::Observation(observation) = &event.body
            && !is_news(&before, observation)
        {
            // What is said to be no news must change nothing: it would be lost, since it is not logged.
            let mut unmoved = before;
            let tick = Body::Tick;
            apply(
                &mut unmoved,
                &Event {
                    body: tick,
                    ..event.clone()
                },
            );
            assert_eq!(unmoved, self.state, "{observation:?} is lost");
        }
        self.events.push(event);
        check::invariants(&self.state).unwrap();
        let image = postcard::to_stdvec(&self.state).unwrap();
        assert_eq!(postcard::from_bytes::<State>(&image).unwrap(), self.state);
        self.check_state();
    }

    /// Carries a command out unless it is refused.
    pub(crate) fn command(&mut self, command: Command) -> Result<(), Rejection> {
        admit(&self.state, &command)?;
        self.promises.note(&command, self.at);
        self.input(Body::Command {
            by: "someone".into(),
            id: Some(CommandId {
                key: format!("key-{}", self.state.seq().0),
                content: String::new(),
            }),
            command,
        });
        Ok(())
    }

    pub(crate) fn submit(&mut self, spec: JobSpec, behavior: Behavior) -> Option<JobId> {
        let members = spec.array.as_ref().map_or(1, |array| array.indices.len());
        let spec = Box::new(spec);
        let first = self.submitted + 1;
        let command = Command::Submit { spec };
        admit(&self.state, &command).ok()?;
        self.submitted += u64::try_from(members).unwrap();
        for id in first..=self.submitted {
            self.behaviors.insert(JobId(id), behavior);
        }
        self.command(command).unwrap();
        Some(JobId(first))
    }

    /// The log alone gives the same state, byte for byte.
    pub(crate) fn replay_is_equal(&self) {
        let mut state = State::default();
        for event in &self.events {
            apply(&mut state, event);
        }
        assert_eq!(state, self.state);
        assert_eq!(
            postcard::to_stdvec(&state).unwrap(),
            postcard::to_stdvec(&self.state).unwrap()
        );
    }

    pub(crate) fn jobs_where(&self, holds: impl Fn(&JobState) -> bool) -> Vec<JobId> {
        let jobs = self.state.jobs().values();
        jobs.filter(|job| holds(&job.state))
            .map(|job| job.id)
            .collect()
    }

    pub(crate) fn wait_until(&mut self, until: Timestamp) {
        let mut ticks = 0;
        while let Some(wake) = self.wake_at.filter(|wake| *wake <= until) {
            self.at = self.at.max(wake);
            self.input(Body::Tick);
            ticks += 1;
            assert!(ticks < 1_000, "timers without end");
        }
        self.at = until;
    }

    fn node(&self, number: usize) -> NodeName {
        self.nodes[number % self.nodes.len()].name.clone()
    }

    /// Teams from one up to the root, as they are set up now.
    fn chain(&self, team: &str) -> BTreeSet<String> {
        let mut chain = BTreeSet::new();
        let mut next = Some(team.to_owned());
        while let Some(name) = next {
            let specs = self.state.teams().specs().iter();
            next = specs
                .filter(|spec| spec.name == name)
                .find_map(|spec| spec.parent.clone());
            chain.insert(name);
        }
        chain
    }
}
