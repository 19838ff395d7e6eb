//! `--serve`: a simulation in the dashboard. Hands what the simulator logs to the server's pages, and lets virtual time pass
//! as fast as a person wants to see it. Decides nothing.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use antiphon_server::{Pace, ShowConfig, Showing, StartError, VirtualTime, show};
use antiphon_sim::cluster::Cluster;
use antiphon_sim::workload::Workload;
use antiphon_sim::world::{Onlooker, World};
use antiphon_types::{Event, Millis, Timestamp};
use tokio::runtime::Runtime;

use super::watch::Stop;
use crate::cli::{Exit, SimulateArgs, Speed};
use crate::failure::Failure;
use crate::render::say;
use crate::up::{login_url, user};

/// How fast virtual time goes where nobody says: a minute in a second.
const USUAL: Speed = Speed::Times(60);
/// Between two looks at the clock, and two commits while time goes at a pace.
const EVERY: Duration = Duration::from_millis(50);
/// Events of one commit while a simulation runs ahead: large, since nobody waits for one.
const COMMIT: usize = 4_096;
/// Before the time that was asked for, pages get samples of so long: what their charts of a day show.
const SAMPLED: Millis = Millis::from_secs(86_400);
/// Virtual time between two samples.
const SAMPLE: Millis = Millis::from_secs(60);

/// A simulation that is shown.
pub(super) struct Stage {
    runtime: Runtime,
    showing: Showing,
    dir: Dir,
    until: Option<Timestamp>,
    speed: Option<Speed>,
    /// Logged and not yet shown.
    events: Vec<Event>,
    /// The newest time up to which everything has happened.
    at: Timestamp,
    /// The time that is shown.
    shown: Timestamp,
    /// When this machine's clock and virtual time were the same, once time goes at a pace.
    together: Option<(Instant, Timestamp)>,
    committed: Instant,
    failed: Option<StartError>,
}

impl Stage {
    /// Opens the dashboard over a simulation in which nothing has happened yet.
    pub(super) fn open(
        args: &SimulateArgs,
        title: &str,
        workload: &Workload,
        cluster: &Cluster,
    ) -> Result<Self, Failure> {
        if args.policy.len() > 1 {
            let what = format!("`--serve` shows one policy, not {}", args.policy.len());
            return Err(Failure::new(Exit::Usage, "AP0615", what)
                .help("give one `--policy`, or leave `--serve` away to compare them in a table"));
        }
        let runtime = Runtime::new().map_err(|error| {
            Failure::new(Exit::Server, "AP0414", "threads cannot be started").why(error.to_string())
        })?;
        let dir = Dir::make()?;
        let begins = World::begins();
        let showing = runtime.block_on(show(ShowConfig {
            listen: args.listen,
            state_dir: dir.0.clone(),
            user: user(),
            title: title.to_owned(),
            begins,
        }))?;
        let stage = Self {
            runtime,
            showing,
            dir,
            until: args.until.map(|until| begins.after(until)),
            // Who wants to see one moment wants it to stay.
            speed: args.speed.or(args.until.is_none().then_some(USUAL)),
            events: Vec::new(),
            at: begins,
            shown: begins,
            together: None,
            committed: Instant::now(),
            failed: None,
        };
        stage.greet(title, workload, cluster, args.until);
        Ok(stage)
    }

    fn greet(&self, title: &str, workload: &Workload, cluster: &Cluster, until: Option<Millis>) {
        let gpus: u64 = cluster.nodes.iter().map(|node| u64::from(node.gpus)).sum();
        let (jobs, nodes) = (workload.jobs.len(), cluster.nodes.len());
        say(&format!(
            "simulating {title} on {}: {jobs} jobs, {nodes} nodes, {gpus} GPUs",
            cluster.name
        ));
        let url = format!("http://{}", self.showing.listen);
        say(&format!("  dashboard: {}", login_url(&url, &self.dir.0)));
        let goes_on = match self.speed {
            None => "and stands still there".to_owned(),
            Some(Speed::Max) => "and goes on as fast as it can".to_owned(),
            Some(Speed::Times(times)) => format!("and goes on {times} times as fast as a clock"),
        };
        say(&match (until, self.speed) {
            (Some(until), _) => format!("  runs ahead to {until} after its beginning, {goes_on}"),
            (None, Some(Speed::Times(times))) => {
                format!("  {times} times as fast as a clock; `--until 2d` runs ahead first")
            }
            (None, _) => "  as fast as it can".to_owned(),
        });
        say(&format!(
            "  nothing can be changed in it; `antiphon --state-dir {} why JOB` looks at it, too",
            self.dir.0.display()
        ));
    }

    /// Whoever looks on while it runs.
    pub(super) fn shows<'a, F: FnMut(usize) -> bool>(
        &'a mut self,
        goes_on: F,
        stop: &'a Stop,
    ) -> Shows<'a, F> {
        Shows {
            stage: self,
            goes_on,
            stop,
        }
    }

    /// Shows the end until somebody has seen enough.
    pub(super) fn stay(mut self, stop: &Stop) -> Result<(), Failure> {
        if !stop.is_wished() {
            self.commit(self.at, Pace::Over);
        }
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        if !stop.is_wished() {
            say("nothing more happens; the dashboard shows the end until Ctrl-C");
        }
        while !stop.is_wished() {
            std::thread::sleep(EVERY);
        }
        let Self {
            runtime, showing, ..
        } = self;
        runtime.block_on(async { showing.end() });
        runtime.shutdown_timeout(Duration::from_secs(1));
        Ok(())
    }

    /// Shows what has happened up to a time.
    fn commit(&mut self, at: Timestamp, pace: Pace) {
        let events = std::mem::take(&mut self.events);
        self.shown = self.shown.max(at);
        let time = VirtualTime {
            at: self.shown,
            pace,
        };
        let taken = self.runtime.block_on(self.showing.take(events, time));
        self.failed = self.failed.take().or(taken.err());
        self.committed = Instant::now();
    }

    /// Runs ahead to the next thing that happens.
    fn ahead(&mut self, next: Timestamp) {
        // What charts show needs samples; before that only the end of it counts.
        let sampled = self.until.is_none_or(|until| until.since(next) <= SAMPLED);
        let due = sampled && next.since(self.shown) >= SAMPLE;
        if due || self.events.len() >= COMMIT {
            self.commit(self.at, Pace::Ahead);
        }
    }

    /// Lets time pass until the next thing happens; whether that is wanted.
    fn pass(&mut self, next: Timestamp, speed: u64, stop: &Stop) -> bool {
        loop {
            let from = self.shown.max(self.at.min(next));
            let (began, base) = *self.together.get_or_insert((Instant::now(), from));
            let passed = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let now = base.after(Millis::from_millis(passed.saturating_mul(speed)));
            if now >= next {
                // Whoever is asleep for a while, or cannot keep up, does not hurry afterwards.
                if now.since(next) > Millis::from_millis(1_000 * speed) {
                    self.together = Some((Instant::now(), next));
                }
                if self.committed.elapsed() >= EVERY || self.events.len() >= COMMIT {
                    self.commit(self.at, Pace::Times { speed });
                }
                return !stop.is_wished();
            }
            self.commit(now, Pace::Times { speed });
            if stop.is_wished() || self.failed.is_some() {
                return false;
            }
            let left = next.since(now).as_millis() / speed.max(1);
            std::thread::sleep(EVERY.min(Duration::from_millis(left + 1)));
        }
    }

    /// Stands still until somebody has seen enough.
    fn still(&mut self, until: Timestamp, stop: &Stop) {
        self.commit(until, Pace::Still);
        reached(until);
        say("  the dashboard shows this moment until Ctrl-C");
        while !stop.is_wished() && self.failed.is_none() {
            std::thread::sleep(EVERY);
        }
    }
}

fn reached(until: Timestamp) {
    let after = until.since(World::begins());
    say(&format!("{after} after its beginning is reached"));
}

/// A stage as the simulator knows it.
pub(super) struct Shows<'a, F> {
    stage: &'a mut Stage,
    goes_on: F,
    stop: &'a Stop,
}

impl<F: FnMut(usize) -> bool> Onlooker for Shows<'_, F> {
    fn progress(&mut self, done: usize) -> bool {
        (self.goes_on)(done)
    }

    fn logged(&mut self, event: Event) {
        self.stage.events.push(event);
    }

    fn before(&mut self, next: Timestamp) -> bool {
        let Self { stage, stop, .. } = self;
        let is_there = stage.until.is_none_or(|until| next > until);
        let goes_on = match (is_there, stage.speed) {
            (false, _) | (true, Some(Speed::Max)) => {
                stage.ahead(next);
                true
            }
            (true, None) => {
                stage.still(stage.until.unwrap_or(next), stop);
                false
            }
            (true, Some(Speed::Times(speed))) => {
                if let Some(until) = stage.until.take() {
                    stage.commit(until, Pace::Times { speed });
                    reached(until);
                }
                stage.pass(next, speed, stop)
            }
        };
        stage.at = next;
        goes_on && stage.failed.is_none()
    }
}

/// A directory of its own, for as long as the simulation is shown.
struct Dir(PathBuf);

impl Dir {
    fn make() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("antiphon-simulate-{}", std::process::id()));
        let made = Self::fresh(&path);
        made.map_err(|error| {
            let what = format!("the directory `{}` cannot be made", path.display());
            Failure::new(Exit::Server, "AP0412", what)
                .why(error.to_string())
                .help("set TMPDIR to a directory that you may write to and that has room")
        })?;
        Ok(Self(path))
    }

    /// The token in it is this user's alone.
    fn fresh(path: &Path) -> io::Result<()> {
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        fs::DirBuilder::new().mode(0o700).create(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // What is left lies in a directory that is emptied anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}
