//! Virtual time around the kernel: jobs come, run, save, end; every one of these is an event of a log, folded by the same
//! `apply` that the live server uses. Decides nothing: that is the kernel's, or a published policy's.

mod arrive;
mod attempt;
mod cycle;
pub(crate) mod draw;
mod fail;
mod fate;
mod forecasts;
mod gang;
mod loss;
mod noise;
mod onlooker;
mod record;
mod run;
mod save;
mod span;
mod strike;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use antiphon_kernel::{State, apply, check};
use antiphon_types::{
    AttemptId, Body, Command, Event, JobSpec, Millis, NodeName, Observation, Policy, Seq, Timestamp,
};

use crate::cluster::Cluster;
use crate::course::{Course, millis, span};
use crate::faults::Faults;
use crate::peer::Peer;
use crate::workload::Workload;
use fail::Why;
use fate::Fate;
use forecasts::Forecasts;
use run::Run;
use strike::{Machine, Strike};

pub use forecasts::{ForecastScore, Intervals};
pub use gang::spec_of;
pub use noise::Noise;
pub use onlooker::Onlooker;
pub use record::{Cause, Lost, Record};
pub(crate) use span::held;
pub use span::{Held, Span, Spans};

/// Where virtual time begins: a Monday, so that weeks and hours begin with it.
const BEGIN: Timestamp = Timestamp::from_millis(1_704_067_200_000);

/// What a policy may know of a job beside its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing.
    None,
    /// The time limit that its user names: the trace's, or a round one of one to ten times the run time.
    Limits,
    /// What its training loop reports while it runs: steps done and to do, time of a step.
    Progress,
    /// Its true run time, from the start.
    Durations,
}

impl Knowledge {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::None, Self::Limits, Self::Progress, Self::Durations];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Limits => "limits",
            Self::Progress => "progress",
            Self::Durations => "durations",
        }
    }
}

/// What a run fixes beside workload and policy.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The cluster, with rounds and costs.
    pub cluster: Cluster,
    /// What the policy may know.
    pub knowledge: Knowledge,
    /// By how much reports are off.
    pub noise: Option<Noise>,
    /// Of everything that is drawn.
    pub seed: u64,
    /// The kernel's settings.
    pub policy: Policy,
    /// What goes wrong.
    pub faults: Faults,
    /// Whether the spans in which GPUs were held are kept.
    pub spans: Spans,
    /// How many forecasts of starts are made and judged.
    pub forecasts: u32,
}

/// Who decides.
pub enum Decider {
    /// antiphon's kernel.
    Kernel,
    /// A published policy; the kernel keeps the books and carries stops out.
    Peer(Box<dyn Peer>),
}

/// Why a job of the workload is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Where it stands in its file.
    pub line: u64,
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What will happen. Numbers are turns of an attempt: what was announced for an earlier one is void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ends(AttemptId, u32),
    Arrives(usize),
    Reports(AttemptId),
    Saves(AttemptId, u32),
    Saved(AttemptId, u32),
    Fails(AttemptId, u32, Why),
    Looked(AttemptId),
    Strikes(Strike),
    Round,
}

/// A simulation as it goes.
pub struct World<'a> {
    workload: &'a Workload,
    setting: &'a Setting,
    decider: Decider,
    gpu_types: Vec<String>,
    /// By node: its GPU type's place in `gpu_types`.
    types_of: BTreeMap<NodeName, usize>,
    /// By node: its place in the cluster; empty unless spans are kept.
    node_places: BTreeMap<NodeName, usize>,
    runs: Vec<Run>,
    /// By node of the cluster: what is wrong with it.
    machines: Vec<Machine>,
    /// By job id: its place in `runs`.
    places: Vec<usize>,
    /// Those that have come and have not ended: places in `runs`.
    here: BTreeSet<usize>,
    state: State,
    now: Timestamp,
    coming: BinaryHeap<Reverse<(Timestamp, u64, Happening)>>,
    announced: u64,
    round_due: bool,
    to_come: usize,
    wake_at: Option<Timestamp>,
    /// Forecasts of starts, where they are to be judged.
    forecasts: Option<Forecasts>,
    digest: blake3::Hasher,
    buffer: Vec<u8>,
    tally: Tally,
    stopwatch: &'a dyn Fn() -> u64,
    /// By job of the workload: what was really submitted; empty where that is formed from the workload.
    specs: &'a [JobSpec],
    /// Whether every invariant is checked after every event.
    checked: bool,
    /// Who looks on, once it runs.
    onlooker: Option<&'a mut (dyn Onlooker + 'a)>,
}

/// What was counted on the way.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Entries of the log.
    pub events: u64,
    /// Calls of `decide`.
    pub cycles: u64,
    /// How long each took, in microseconds.
    pub cycle_us: Vec<u32>,
    /// GPU-milliseconds that were held until the last job came.
    pub held_coming_gpu_ms: f64,
    /// The most jobs that stood in the queue at once.
    pub queue_max: usize,
    /// Jobs that were not simulated.
    pub refused: Vec<Refused>,
}

/// What came of a simulation.
pub struct Finished {
    /// By job of the workload; nothing for those that were refused.
    pub records: Vec<Option<Record>>,
    /// By job of the workload: when it held which GPUs; empty unless the setting keeps that.
    pub spans: Vec<Vec<Span>>,
    /// How well starts were foretold, where that was asked for.
    pub forecasts: Option<ForecastScore>,
    /// What was counted.
    pub tally: Tally,
    /// Digest of the whole log.
    pub digest: String,
}

impl<'a> World<'a> {
    /// A world in which nothing has happened yet.
    pub fn new(
        workload: &'a Workload,
        setting: &'a Setting,
        decider: Decider,
        courses: Vec<Result<Course, String>>,
        stopwatch: &'a dyn Fn() -> u64,
    ) -> Self {
        let gpu_types = gpu_types(&setting.cluster);
        let types_of = setting.cluster.nodes.iter().map(|node| {
            let place = gpu_types.iter().position(|name| *name == node.gpu_type);
            (node.name.clone(), place.expect("every type was listed"))
        });
        let types_of = types_of.collect();
        let nodes = match setting.spans {
            Spans::Dropped => &[],
            Spans::Kept => &setting.cluster.nodes[..],
        };
        let named = nodes.iter().enumerate();
        let node_places = named
            .map(|(place, node)| (node.name.clone(), place))
            .collect();
        let mut noise = noise::Draws::new(setting.noise, setting.seed);
        // A forecast plays antiphon's own decisions forward: it says nothing of another's.
        let forecasts = match decider {
            Decider::Kernel => Forecasts::new(setting.forecasts, workload.jobs.len()),
            Decider::Peer(_) => None,
        };
        let mut world = Self {
            workload,
            setting,
            decider,
            gpu_types,
            types_of,
            node_places,
            runs: Vec::with_capacity(workload.jobs.len()),
            machines: vec![Machine::default(); setting.cluster.nodes.len()],
            places: Vec::new(),
            here: BTreeSet::new(),
            state: State::default(),
            now: BEGIN,
            coming: BinaryHeap::new(),
            announced: 0,
            round_due: false,
            to_come: 0,
            wake_at: None,
            forecasts,
            digest: blake3::Hasher::new(),
            buffer: Vec::new(),
            tally: Tally::default(),
            stopwatch,
            specs: &[],
            checked: false,
            onlooker: None,
        };
        for (job, course) in workload.jobs.iter().zip(courses) {
            let place = world.runs.len();
            let claims = noise.next();
            let course = course.unwrap_or_else(|reason| {
                world.refuse(job, reason);
                Course::default()
            });
            if !course.stretches.is_empty() {
                world.announce(BEGIN.after(job.submitted), Happening::Arrives(place));
                world.to_come += 1;
            }
            let record = Record::new(job.submitted, course.best_ms());
            let fate = Fate::draw(&setting.faults, setting.seed, place, course.best_ms());
            world.runs.push(Run::new(course, record, claims, fate));
        }
        world
    }

    /// Of the GPUs that each job asks for it uses this part.
    #[must_use]
    pub fn with_used(mut self, parts: &[f64]) -> Self {
        for (run, part) in self.runs.iter_mut().zip(parts) {
            run.fate.used = *part;
        }
        self
    }

    /// Checks every invariant of the kernel after every event: for tests, as it takes long.
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.checked = true;
        self
    }

    /// Submits these jobs, one for each of the workload. Jobs that they wait for are counted in the workload, from 1.
    #[must_use]
    pub const fn with_specs(mut self, specs: &'a [JobSpec]) -> Self {
        self.specs = specs;
        self
    }

    /// Where virtual time begins.
    #[must_use]
    pub const fn begins() -> Timestamp {
        BEGIN
    }

    /// Nodes, settings; a published policy decides in the kernel's place.
    fn begin(&mut self) {
        self.event(Body::Observation(Observation::Inventory {
            nodes: self.setting.cluster.nodes.clone(),
            partitions: self.setting.cluster.partitions.clone(),
            resources: self.setting.cluster.resources.clone(),
        }));
        let policy = Box::new(self.setting.policy.clone());
        self.command(Command::SetPolicy { policy });
        if matches!(self.decider, Decider::Peer(_)) || self.setting.cluster.rounds.is_some() {
            let reason = "decided elsewhere, or in rounds".into();
            self.command(Command::Pause { reason });
        }
        if self.setting.cluster.rounds.is_some() {
            self.announce(BEGIN, Happening::Round);
        }
        self.begin_strikes();
    }

    /// Runs until every job has ended, nothing more can happen, or whoever looks on does not want to go on.
    pub fn run(mut self, onlooker: &'a mut (dyn Onlooker + 'a)) -> Finished {
        self.onlooker = Some(onlooker);
        self.begin();
        let mut done = 0;
        while let Some(at) = self.next_time() {
            let at = self.now.max(at);
            if !self.looks_on(|onlooker| onlooker.before(at)) {
                break;
            }
            self.now = at;
            let mut ticked = self.wake_at.is_some_and(|wake| wake <= self.now);
            while let Some(Reverse((at, _, _))) = self.coming.peek() {
                if *at > self.now {
                    break;
                }
                let Some(Reverse((_, _, happening))) = self.coming.pop() else {
                    break;
                };
                let before = self.tally.events;
                if self.happen(happening) {
                    done += 1;
                }
                ticked &= self.tally.events == before;
            }
            if ticked {
                self.event(Body::Tick);
            }
            self.settle();
            self.tally.queue_max = self.tally.queue_max.max(self.state.queue_length());
            if let Some(forecasts) = &mut self.forecasts {
                forecasts.look_if_due(&self.state);
            }
            if self.to_come == 0 || !self.looks_on(|onlooker| onlooker.progress(done)) {
                break;
            }
        }
        self.finish()
    }

    /// Asks whoever looks on.
    fn looks_on(&mut self, ask: impl FnOnce(&mut dyn Onlooker) -> bool) -> bool {
        match &mut self.onlooker {
            Some(onlooker) => ask(&mut **onlooker),
            None => true,
        }
    }

    fn next_time(&self) -> Option<Timestamp> {
        let happening = self.coming.peek().map(|Reverse((at, _, _))| *at);
        // Rounds go on by themselves; without anything else to come, waiting is all that is left.
        happening.into_iter().chain(self.wake_at).min()
    }

    fn announce(&mut self, at: Timestamp, happening: Happening) {
        self.announced += 1;
        self.coming.push(Reverse((at, self.announced, happening)));
    }

    /// Lets a thing happen; says whether a job is done with it.
    fn happen(&mut self, happening: Happening) -> bool {
        match happening {
            Happening::Arrives(place) => self.arrive(place),
            Happening::Ends(attempt, turn) => return self.end(attempt, turn),
            Happening::Reports(attempt) => self.report(attempt),
            Happening::Saves(attempt, turn) => self.saves(attempt, turn),
            Happening::Saved(attempt, turn) => self.saved(attempt, turn),
            Happening::Fails(attempt, turn, why) => self.fails(attempt, turn, why),
            Happening::Looked(attempt) => self.looked(attempt),
            Happening::Strikes(strike) => self.strike(strike),
            Happening::Round => {
                self.round_due = true;
                if self.to_come > 0 {
                    let length = self
                        .setting
                        .cluster
                        .rounds
                        .expect("only where there are rounds");
                    let next = if self.is_idle() {
                        self.next_arrival_round(length)
                    } else {
                        self.now.after(length)
                    };
                    self.announce(next, Happening::Round);
                }
            }
        }
        false
    }

    fn is_idle(&self) -> bool {
        self.state.queue_length() == 0
            && self.here.iter().all(|place| self.runs[*place].on.is_none())
    }

    /// The first round after something comes: idle rounds need no event.
    fn next_arrival_round(&self, length: Millis) -> Timestamp {
        let next = self
            .coming
            .peek()
            .map_or(self.now, |Reverse((at, _, _))| *at);
        let ahead = next.since(self.now).as_millis();
        let rounds = ahead.div_ceil(length.as_millis()).max(1);
        self.now
            .after(Millis::from_millis(rounds * length.as_millis()))
    }

    fn command(&mut self, command: Command) {
        self.event(Body::Command {
            by: "simulation".into(),
            id: None,
            command,
        });
    }

    fn event(&mut self, body: Body) {
        let event = Event {
            seq: Seq(self.state.seq().0 + 1),
            at: self.now,
            body,
        };
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, &event).expect("an event is plain data");
        self.digest.update(&self.buffer);
        apply(&mut self.state, &event);
        if self.checked
            && let Err(wrong) = check::invariants(&self.state)
        {
            panic!("after event {} at {:?}: {wrong}", event.seq, self.now);
        }
        self.tally.events += 1;
        if let Some(onlooker) = self.onlooker.as_deref_mut() {
            onlooker.logged(event);
        }
    }

    fn finish(mut self) -> Finished {
        let spans = match self.setting.spans {
            Spans::Dropped => Vec::new(),
            Spans::Kept => {
                let runs = self.runs.iter_mut();
                runs.map(|run| std::mem::take(&mut run.spans)).collect()
            }
        };
        let known = |run: Run| run.id.map(|_| run.record);
        Finished {
            records: self.runs.into_iter().map(known).collect(),
            spans,
            forecasts: self.forecasts.map(|forecasts| forecasts.score()),
            tally: self.tally,
            digest: self.digest.finalize().to_hex().to_string(),
        }
    }
}

/// The GPU types of a cluster, in the order of its nodes.
#[must_use]
pub fn gpu_types(cluster: &Cluster) -> Vec<String> {
    let mut types: Vec<String> = Vec::new();
    for node in &cluster.nodes {
        if !types.contains(&node.gpu_type) {
            types.push(node.gpu_type.clone());
        }
    }
    types
}

fn since(from: Timestamp, now: Timestamp) -> f64 {
    millis(now.since(from))
}

fn whole(value: f64) -> u64 {
    span(value.floor()).as_millis()
}

fn number(count: usize) -> u64 {
    u64::try_from(count).expect("few jobs")
}
