//! A storm: a world that misbehaves around the kernel and a server that crashes, drawn from a seed. What must always hold
//! is checked after every event; then the faults stop, and every job has to end. Prints nothing.

mod calm;
mod draw;
mod fault;
mod hands;
mod nodes;
mod people;
mod processes;
mod promises;
mod server;
mod steps;
mod stops;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use antiphon_kernel::{State, apply, decide};
use antiphon_types::{AttemptId, Decision, Event, JobId, Observation, Timestamp};

use self::draw::Draw;
use self::fault::Weights;
use self::hands::Order;
use self::nodes::Machines;
use self::processes::Living;
use self::promises::Promises;
use self::server::{Input, Server};

pub use self::fault::Fault;

/// Events of one seed, where nobody says.
pub const EVENTS_PER_SEED: u64 = 5_000;

/// What folds and what decides. The kernel's own, unless a test wants to see a broken one caught.
#[derive(Clone, Copy)]
pub struct Kernel {
    /// Folds an event in.
    pub apply: fn(&mut State, &Event),
    /// Chooses what to do.
    pub decide: fn(&State) -> Decision,
}

impl Default for Kernel {
    fn default() -> Self {
        Self { apply, decide }
    }
}

/// What came of one seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Events in its log, with those after the faults had stopped.
    pub events: u64,
    /// Decisions among them.
    pub decisions: u64,
    /// Jobs submitted.
    pub jobs: u64,
    /// Attempts that really ran.
    pub attempts: u64,
    /// Faults that were on, and how often each struck.
    pub faults: BTreeMap<Fault, u64>,
    /// Digest of the last state.
    pub digest: String,
    /// What broke, if anything.
    pub violation: Option<Violation>,
}

/// Something that must always hold and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The last event of the log as it was in the server's memory.
    pub event: u64,
    /// What.
    pub what: String,
}

/// Something that must hold does not.
#[derive(Debug)]
struct Broken(String);

type Checked = Result<(), Broken>;

/// Breaks unless it holds.
fn must(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

/// Runs one seed until its log has so many events, then lets everything end.
#[must_use]
pub fn run(seed: u64, events: u64) -> Report {
    run_kernel(seed, events, Kernel::default())
}

/// The same with another kernel.
#[must_use]
pub fn run_kernel(seed: u64, events: u64, kernel: Kernel) -> Report {
    let mut storm = Storm::new(seed, kernel);
    let outcome = catch_unwind(AssertUnwindSafe(|| storm.blow(events)));
    let what = match outcome {
        Ok(Ok(())) => None,
        Ok(Err(Broken(what))) => Some(what),
        // An assertion of the kernel.
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Some(text.unwrap_or_else(|| "a panic without a text".into()))
        }
    };
    let event = storm.server.state.seq().0;
    Report {
        seed,
        events: event,
        decisions: storm.decisions,
        jobs: storm.server.state.newest_job().map_or(0, |job| job.0),
        attempts: storm.attempts,
        digest: storm.server.digest(),
        faults: std::mem::take(&mut storm.struck),
        violation: what.map(|what| Violation { event, what }),
    }
}

/// The world as it really is, and the server in it.
struct Storm {
    seed: u64,
    draw: Draw,
    weights: Weights,
    struck: BTreeMap<Fault, u64>,
    kernel: Kernel,
    now: Timestamp,
    server: Server,
    promises: Promises,
    machines: Machines,
    /// What runs, by attempt, until the backend is told to forget it.
    processes: BTreeMap<AttemptId, Living>,
    /// Orders that the server has given and not yet carried out; in its memory alone.
    hands: BTreeMap<AttemptId, Vec<Order>>,
    /// Reports on their way, by when they arrive.
    wire: BTreeMap<(Timestamp, u64), Observation>,
    /// Reports that have arrived, the newest last: they may arrive again.
    arrived: Vec<Observation>,
    /// What was sent and not answered when the server crashed: sent again.
    unanswered: Vec<Input>,
    /// While nobody reaches the backend.
    outage: bool,
    /// Whether faults still strike.
    calm: bool,
    sent: u64,
    keys: u64,
    decisions: u64,
    attempts: u64,
    /// The kernel's whole books are rebuilt and compared after one event of so many.
    rebuild_every: u64,
    /// Jobs living at once, at most, before fewer come.
    crowd: usize,
}

impl Storm {
    fn new(seed: u64, kernel: Kernel) -> Self {
        let mut draw = Draw::of(seed);
        let weights = Weights::draw(&mut draw);
        let struck = weights.on().map(|fault| (fault, 0)).collect();
        let machines = Machines::draw(&mut draw);
        let crowd = 6 + usize::try_from(draw.below(20)).expect("few");
        Self {
            seed,
            draw,
            weights,
            struck,
            kernel,
            now: Timestamp::from_millis(1_764_547_200_000),
            server: Server::new(),
            promises: Promises::default(),
            machines,
            processes: BTreeMap::new(),
            hands: BTreeMap::new(),
            wire: BTreeMap::new(),
            arrived: Vec::new(),
            unanswered: Vec::new(),
            outage: false,
            calm: false,
            sent: 0,
            keys: 0,
            decisions: 0,
            attempts: 0,
            rebuild_every: if seed.is_multiple_of(10) { 1 } else { 16 },
            crowd,
        }
    }

    fn blow(&mut self, events: u64) -> Checked {
        self.set_up()?;
        while self.server.state.seq().0 < events {
            self.step()?;
        }
        self.calm_down()?;
        self.replay_is_equal()
    }

    /// Counts a fault that strikes.
    fn strike(&mut self, fault: Fault) {
        *self.struck.entry(fault).or_default() += 1;
    }

    /// Jobs whose state is so.
    fn jobs_where(&self, holds: impl Fn(&antiphon_kernel::JobState) -> bool) -> Vec<JobId> {
        let jobs = self.server.state.jobs().values();
        jobs.filter(|job| holds(&job.state))
            .map(|job| job.id)
            .collect()
    }
}
