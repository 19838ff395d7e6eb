//! What Prometheus scrapes: counted as facts become durable, and read from the view when somebody asks. Names and units are
//! stable; labels are bounded, so no job, node or user is ever one. `/v1/jobs` and the log know those.

mod described;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use antiphon_kernel::{JobState, Mode, State};
use antiphon_types::{Class, GpuAmount, NodeState, Number, Reading, Timestamp};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::described as d;
pub use self::described::reference;
use crate::devices::{DeviceBook, TypeReading};
use crate::facts::Fact;
use crate::throughput::ThroughputNow;

/// Teams that have a line of their own; all others together are `other`.
const TEAMS_MAX: usize = 200;
/// GPU types of the same kind.
const GPU_TYPES_MAX: usize = 50;

const DELAYS: [f64; 14] = [
    0.01, 0.1, 1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 43_200.0, 86_400.0,
    604_800.0,
];
const CYCLES: [f64; 12] = [
    1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0,
];

/// Signals taken in, and those that their senders dropped, as of the last scrape.
type Signals = (u64, u64);

type Labels = Vec<(&'static str, String)>;
type Counters<N = u64, A = AtomicU64> = Family<Labels, Counter<N, A>>;
type Gauges<N = i64, A = std::sync::atomic::AtomicI64> = Family<Labels, Gauge<N, A>>;

/// All metrics of a server.
pub(crate) struct Metrics {
    registry: Registry,
    /// One scrape at a time: gauges are cleared and set anew.
    scraping: Mutex<Signals>,
    cycle: Histogram,
    commit: Histogram,
    queue_delay: Family<Labels, Histogram, fn() -> Histogram>,
    preemptions: Counters,
    attempts: Counters,
    jobs_ended: Counters,
    directives: Counters,
    held: Counter<f64, AtomicU64>,
    lost: Counters<f64>,
    cost: Counter<f64, AtomicU64>,
    gate_changes: Counters,
    signals: Counter,
    signals_dropped: Counter,
    jobs: Gauges,
    gpus: Gauges<f64, AtomicU64>,
    nodes: Gauges,
    team_gpus: Gauges<f64, AtomicU64>,
    device_utilization: Gauges<f64, AtomicU64>,
    devices_throttled: Gauges,
    device_ecc_errors: Gauges,
    numbers: Gauges<f64, AtomicU64>,
    redlines: Gauges<f64, AtomicU64>,
    samples: Gauges,
    over: Gauges,
    gate_shut: Gauge,
    kept_back: Gauge,
    deciding: Gauge,
    log_events: Gauge,
    log_bytes: Gauge,
}

/// The same in Prometheus' own form, in which a counter is described under the name of its sample.
pub(crate) fn in_prometheus_text(open_metrics: &str) -> String {
    let lines = open_metrics.lines().filter(|line| *line != "# EOF");
    let lines = lines.map(|line| {
        let mut words = line.splitn(4, ' ');
        let (Some("#"), Some(what), Some(name)) = (words.next(), words.next(), words.next()) else {
            return format!("{line}\n");
        };
        let rest = words.next().unwrap_or_default();
        let is = |described: &&d::Described| name.strip_prefix("antiphon_") == Some(described.name);
        let counter = d::ALL
            .iter()
            .find(is)
            .is_some_and(|one| one.kind == "counter");
        let total = if counter { "_total" } else { "" };
        format!("# {what} {name}{total} {rest}\n")
    });
    lines.collect()
}

fn delays() -> Histogram {
    Histogram::new(DELAYS)
}

impl Default for Metrics {
    fn default() -> Self {
        let mut this = Self {
            registry: Registry::with_prefix("antiphon"),
            scraping: Mutex::default(),
            cycle: Histogram::new(CYCLES),
            commit: Histogram::new(CYCLES),
            queue_delay: Family::new_with_constructor(delays),
            preemptions: Family::default(),
            attempts: Family::default(),
            jobs_ended: Family::default(),
            directives: Family::default(),
            held: Counter::default(),
            lost: Family::default(),
            cost: Counter::default(),
            gate_changes: Family::default(),
            signals: Counter::default(),
            signals_dropped: Counter::default(),
            jobs: Family::default(),
            gpus: Family::default(),
            nodes: Family::default(),
            team_gpus: Family::default(),
            device_utilization: Family::default(),
            devices_throttled: Family::default(),
            device_ecc_errors: Family::default(),
            numbers: Family::default(),
            redlines: Family::default(),
            samples: Family::default(),
            over: Family::default(),
            gate_shut: Gauge::default(),
            kept_back: Gauge::default(),
            deciding: Gauge::default(),
            log_events: Gauge::default(),
            log_bytes: Gauge::default(),
        };
        this.register();
        this
    }
}

impl Metrics {
    fn register(&mut self) {
        macro_rules! register {
            ($($described:ident: $metric:ident),* $(,)?) => {
                $(self.registry.register(d::$described.name, d::$described.help, self.$metric.clone());)*
            };
        }
        register! {
            JOBS: jobs,
            GPUS: gpus,
            NODES: nodes,
            TEAM_GPUS: team_gpus,
            DEVICE_UTILIZATION: device_utilization,
            DEVICES_THROTTLED: devices_throttled,
            DEVICE_ECC_ERRORS: device_ecc_errors,
            QUEUE_DELAY: queue_delay,
            CYCLE: cycle,
            COMMIT: commit,
            LOG_EVENTS: log_events,
            LOG_BYTES: log_bytes,
            DECIDING: deciding,
            SIGNALS: signals,
            SIGNALS_DROPPED: signals_dropped,
            DIRECTIVES: directives,
            PREEMPTIONS: preemptions,
            ATTEMPTS: attempts,
            JOBS_ENDED: jobs_ended,
            HELD: held,
            LOST: lost,
            COST: cost,
            NUMBERS: numbers,
            REDLINES: redlines,
            SAMPLES: samples,
            OVER: over,
            GATE_SHUT: gate_shut,
            KEPT_BACK: kept_back,
            GATE_CHANGES: gate_changes,
        }
    }

    /// Notes how long a call of `decide` took, its check included.
    pub(crate) fn cycle(&self, took: Duration) {
        self.cycle.observe(took.as_secs_f64());
    }

    /// Notes how long a commit took.
    pub(crate) fn commit(&self, took: Duration) {
        self.commit.observe(took.as_secs_f64());
    }

    /// Counts what happened.
    pub(crate) fn note(&self, fact: &Fact) {
        let one = |counters: &Counters, labels: Labels| {
            counters.get_or_create(&labels).inc();
        };
        match fact {
            Fact::Launched { class, queued, .. } => {
                let labels = vec![("class", class.name().into())];
                let delays = self.queue_delay.get_or_create(&labels);
                delays.observe(queued.as_millis() as f64 / 1_000.0);
            }
            Fact::Preempted { cause, .. } => {
                one(&self.preemptions, vec![("cause", cause.name().into())]);
            }
            Fact::Settled(spent) => {
                one(&self.attempts, vec![("outcome", spent.outcome.into())]);
                let seconds = |gpu_ms: u64| gpu_ms as f64 / 1_000.0;
                self.held.inc_by(seconds(spent.held.gpu_millis()));
                self.cost.inc_by(spent.usd);
                for (cause, time) in &spent.lost {
                    let labels = vec![("cause", cause.name().into())];
                    let lost = self.lost.get_or_create(&labels);
                    lost.inc_by(seconds(time.gpu_millis()));
                }
            }
            Fact::Ended { class, how, .. } => one(
                &self.jobs_ended,
                vec![
                    ("class", class.name().into()),
                    ("outcome", how.name().into()),
                ],
            ),
            Fact::Directed { name } => one(&self.directives, directive(name, "issued")),
            Fact::Answered { name, answer } => one(&self.directives, directive(name, answer)),
            Fact::Redline { .. } => (),
            Fact::Gate(change) => {
                let to = match change {
                    antiphon_types::GateChange::Shut(_) => "shut",
                    antiphon_types::GateChange::Open { .. } => "open",
                };
                one(&self.gate_changes, vec![("to", to.into())]);
            }
        }
    }

    /// What a scrape gets.
    pub(crate) fn scrape(
        &self,
        state: &State,
        throughput: &ThroughputNow,
        devices: &DeviceBook,
        signals: Signals,
        state_dir: &Path,
        now: Timestamp,
    ) -> String {
        let mut counted = self
            .scraping
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        self.signals.inc_by(signals.0 - counted.0);
        self.signals_dropped.inc_by(signals.1 - counted.1);
        *counted = signals;
        self.set_jobs(state);
        self.set_nodes(state);
        self.set_devices(devices.by_type(state));
        self.set_teams(state);
        self.set_numbers(state, throughput, now.max(state.now()));
        self.deciding
            .set(i64::from(matches!(state.mode(), Mode::Deciding)));
        self.log_events.set(signed(state.seq().0));
        let files = ["log.db", "log.db-wal"].map(|name| state_dir.join(name));
        let bytes = files.iter().filter_map(|file| file.metadata().ok());
        self.log_bytes
            .set(signed(bytes.map(|file| file.len()).sum()));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes everything");
        text
    }

    fn set_jobs(&self, state: &State) {
        self.jobs.clear();
        for (class, name) in Class::ALL
            .into_iter()
            .flat_map(|class| JobState::NAMES.map(|name| (class, name)))
        {
            drop(self.jobs.get_or_create(&job(class, name)));
        }
        for known in state.jobs().values() {
            let labels = job(known.spec.class, known.state.name());
            self.jobs.get_or_create(&labels).inc();
        }
    }

    fn set_nodes(&self, state: &State) {
        self.gpus.clear();
        self.nodes.clear();
        let mut types = Vec::new();
        for node in state.nodes() {
            let is = match &node.state {
                NodeState::Ready => "ready",
                NodeState::Draining { .. } => "draining",
                NodeState::Down { .. } => "down",
            };
            self.nodes.get_or_create(&vec![("state", is.into())]).inc();
            let gpu_type = bounded(&mut types, &node.spec.gpu_type, GPU_TYPES_MAX);
            let all = GpuAmount::from_gpus(node.spec.gpus);
            let free = state.free_on(&node.spec.name).map_or(all, |free| {
                GpuAmount::from_gpus(free.gpus_whole) + free.gpus_shared
            });
            let busy = all.saturating_sub(free);
            let held = state.held_for(&node.spec.name).is_some();
            let rest = match &node.state {
                NodeState::Ready if held => "held",
                NodeState::Ready => "idle",
                NodeState::Draining { .. } | NodeState::Down { .. } => "out_of_service",
            };
            let add = |is: &str, amount: GpuAmount| {
                let labels = vec![("state", is.to_owned()), ("gpu_type", gpu_type.clone())];
                self.gpus.get_or_create(&labels).inc_by(gpus(amount));
            };
            if node.spec.gpus > 0 {
                add("busy", busy);
                add(rest, all.saturating_sub(busy));
            }
        }
    }

    fn set_devices(&self, types: BTreeMap<String, TypeReading>) {
        self.device_utilization.clear();
        self.devices_throttled.clear();
        self.device_ecc_errors.clear();
        for (name, of) in types.into_iter().take(GPU_TYPES_MAX) {
            let labels = vec![("gpu_type", name)];
            if of.measured > 0 {
                let mean = f64::from(of.percent) / f64::from(of.measured) / 100.0;
                self.device_utilization.get_or_create(&labels).set(mean);
            }
            let throttled = self.devices_throttled.get_or_create(&labels);
            throttled.set(of.throttled.into());
            let errors = self.device_ecc_errors.get_or_create(&labels);
            errors.set(signed(of.ecc_errors));
        }
    }

    fn set_teams(&self, state: &State) {
        self.team_gpus.clear();
        let mut names = Vec::new();
        for team in state.teams().all() {
            let name = bounded(&mut names, &team.spec.name, TEAMS_MAX);
            let labels = vec![("team", name)];
            let held = gpus(team.allocated());
            self.team_gpus.get_or_create(&labels).inc_by(held);
        }
    }

    fn set_numbers(&self, state: &State, throughput: &ThroughputNow, now: Timestamp) {
        self.numbers.clear();
        let named = |name: &str| vec![("number", name.to_owned())];
        if let Some(rate) = throughput.rate {
            let labels = named("effective_throughput");
            self.numbers.get_or_create(&labels).set(rate);
        }
        let kept = state.numbers().at(now);
        let policy = state.gate().policy().cloned().unwrap_or_default();
        for number in Number::ALL {
            let labels = named(number.name());
            let samples = kept.samples(number);
            let reading = samples.reading(number);
            if let Some(reading) = reading {
                self.numbers.get_or_create(&labels).set(base(reading));
            }
            let redline = base(policy.redline(number));
            self.redlines.get_or_create(&labels).set(redline);
            self.samples
                .get_or_create(&labels)
                .set(samples.count().into());
            let over = reading.is_some_and(|reading| policy.is_over(number, reading));
            self.over.get_or_create(&labels).set(over.into());
        }
        self.gate_shut.set(i64::from(state.gate().shut().is_some()));
        self.kept_back.set(signed(state.kept_back()));
    }
}

/// A reading in base units: seconds, or a ratio.
fn base(reading: Reading) -> f64 {
    match reading {
        Reading::Permille(share) => f64::from(share) / 1_000.0,
        Reading::Span(span) => span.as_millis() as f64 / 1_000.0,
    }
}

fn gpus(amount: GpuAmount) -> f64 {
    amount.thousandths() as f64 / 1_000.0
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn job(class: Class, state: &str) -> Labels {
    vec![("class", class.name().into()), ("state", state.into())]
}

fn directive(name: &str, outcome: &str) -> Labels {
    vec![("directive", name.into()), ("outcome", outcome.into())]
}

/// A name, as long as there are few of them.
fn bounded(known: &mut Vec<String>, name: &str, max: usize) -> String {
    if known.iter().any(|other| other == name) {
        return name.to_owned();
    }
    if known.len() >= max {
        return "other".to_owned();
    }
    known.push(name.to_owned());
    name.to_owned()
}

#[cfg(test)]
mod tests;
