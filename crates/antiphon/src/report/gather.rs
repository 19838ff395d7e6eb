//! Folds a log into the figures of a report. An attempt counts with the part of it that lies in the reported time.

use std::collections::BTreeMap;

use antiphon_kernel::State;
use antiphon_server::facts::{End, Fact, Facts, Loss, Spent};
use antiphon_types::{
    Action, AttemptId, Body, Class, Command, Event, Finding, GpuTime, JobId, Millis, NodeState,
    Observation, Timestamp, Verdict,
};
use serde::Serialize;

/// Jobs that are named.
const JOBS_MAX: usize = 100;

const DAY: Millis = Millis::from_secs(86_400);

/// All that a report says. Hours are GPU-hours.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figures {
    pub(crate) from_ms: u64,
    pub(crate) until_ms: u64,
    pub(crate) team: Option<String>,
    /// Of nodes that took tasks.
    pub(crate) capacity_gpu_hours: f64,
    pub(crate) held_gpu_hours: f64,
    /// Held, of what was in service.
    pub(crate) allocation: Option<f64>,
    /// Held and not lost, of what was in service.
    pub(crate) useful: Option<f64>,
    /// Measured on the device: not in the log.
    pub(crate) device_utilization: Option<f64>,
    pub(crate) cost_usd: f64,
    pub(crate) cost_usd_per_completed_job: Option<f64>,
    /// What the jobs cost that say what an acceptable model is, over those that came to one; nothing where none did.
    pub(crate) cost_usd_per_acceptable_model: Option<f64>,
    pub(crate) acceptable_models: usize,
    /// Median from the first launch of a job until its `accept` line was met, or without one until its run was found flat or
    /// near its end, and what it had cost by then.
    pub(crate) convergence_s: Option<f64>,
    pub(crate) convergence_usd: Option<f64>,
    pub(crate) converged: usize,
    pub(crate) completed: u64,
    pub(crate) failed_attempts_share: Option<f64>,
    pub(crate) failed_jobs_share: Option<f64>,
    pub(crate) lost: Vec<Lost>,
    pub(crate) delays: Vec<Delay>,
    pub(crate) teams: Vec<TeamFigures>,
    pub(crate) jobs: Vec<JobFigures>,
    /// Reserved GPU-time in which devices were found next to idle, the most first.
    pub(crate) idle: Vec<JobFigures>,
    pub(crate) days: Vec<Day>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Lost {
    pub(crate) cause: &'static str,
    /// Nothing where the log does not know.
    pub(crate) gpu_hours: Option<f64>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Delay {
    pub(crate) class: &'static str,
    pub(crate) launches: usize,
    pub(crate) p50_s: f64,
    pub(crate) p95_s: f64,
    pub(crate) max_s: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct TeamFigures {
    pub(crate) team: String,
    pub(crate) gpu_hours: f64,
    pub(crate) lost_gpu_hours: f64,
    pub(crate) cost_usd: f64,
    pub(crate) completed: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct JobFigures {
    pub(crate) job: String,
    pub(crate) name: String,
    pub(crate) team: String,
    pub(crate) gpu_hours: f64,
    pub(crate) lost_gpu_hours: f64,
    pub(crate) cost_usd: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Day {
    pub(crate) at_ms: u64,
    pub(crate) held_gpu_hours: f64,
    /// Free while a job that could start waited: fragments, limits, nodes held back.
    pub(crate) waited_gpu_hours: f64,
    /// Free, and nobody wanted it.
    pub(crate) unwanted_gpu_hours: f64,
}

/// What a job has come to so far.
#[derive(Debug, Clone, Default)]
struct Run {
    first_launch: Option<Timestamp>,
    usd_before: f64,
    figures: JobFigures,
    idle_gpu_hours: f64,
    converged: bool,
    /// Whether the job says what an acceptable model is.
    says_acceptable: bool,
}

pub(crate) struct Gatherer {
    from: Timestamp,
    until: Timestamp,
    team: Option<String>,
    state: State,
    facts: Facts,
    /// GPUs of nodes that take tasks, in thousandths.
    in_service: u64,
    /// GPUs that attempts hold, by attempt, in thousandths.
    busy: BTreeMap<AttemptId, u64>,
    days: Vec<Day>,
    runs: BTreeMap<JobId, Run>,
    teams: BTreeMap<String, TeamFigures>,
    lost: BTreeMap<Loss, f64>,
    delays: BTreeMap<Class, Vec<f64>>,
    attempts: (u64, u64),
    jobs: (u64, u64),
    /// Seconds and dollars.
    convergence: Vec<(f64, f64)>,
    /// Jobs that met their `accept` line.
    acceptable: usize,
}

impl Gatherer {
    pub(crate) fn new(from: Timestamp, until: Timestamp, team: Option<String>) -> Self {
        Self {
            from,
            until,
            team,
            state: State::default(),
            facts: Facts::default(),
            in_service: 0,
            busy: BTreeMap::new(),
            days: Vec::new(),
            runs: BTreeMap::new(),
            teams: BTreeMap::new(),
            lost: BTreeMap::new(),
            delays: BTreeMap::new(),
            attempts: (0, 0),
            jobs: (0, 0),
            convergence: Vec::new(),
            acceptable: 0,
        }
    }

    /// Takes the next event of the log.
    pub(crate) fn take(&mut self, event: &Event) {
        if event.at > self.until {
            return;
        }
        self.pass(event.at);
        self.converged(event);
        let facts = self.facts.fold(&mut self.state, event);
        facts.into_iter().for_each(|fact| self.note(fact, event.at));
        if changes_nodes(&event.body) {
            self.in_service = in_service(&self.state);
        }
    }

    fn is_counted(&self, at: Timestamp, team: &str) -> bool {
        at >= self.from && self.is_wanted(team)
    }

    fn is_wanted(&self, team: &str) -> bool {
        self.team.as_ref().is_none_or(|wanted| wanted == team)
    }

    fn team_of(&self, job: JobId) -> String {
        let job = self.state.job(job);
        job.map_or_else(String::new, |job| job.spec.team.clone())
    }

    /// Adds what was held and what was free until then, by days.
    fn pass(&mut self, until: Timestamp) {
        let mut at = self.state.now().max(self.from);
        let waits = self.state.queue_length() > 0;
        let all: u64 = self.busy.values().sum();
        let busy: u64 = match &self.team {
            None => all,
            Some(_) => {
                let held = self.busy.iter();
                let held = held.filter(|(attempt, _)| self.is_wanted(&self.team_of(attempt.job)));
                held.map(|(_, gpus)| gpus).sum()
            }
        };
        let free = self.in_service.saturating_sub(all);
        while at < until {
            let number = at.as_millis() / DAY.as_millis();
            let begin = number * DAY.as_millis();
            let end = Timestamp::from_millis(begin + DAY.as_millis()).min(until);
            let span = hours(end.since(at)) / 1_000.0;
            if self.days.last().is_none_or(|day| day.at_ms != begin) {
                self.days.push(Day {
                    at_ms: begin,
                    ..Day::default()
                });
            }
            let day = self.days.last_mut().expect("it was added just now");
            day.held_gpu_hours += busy as f64 * span;
            let idle = free as f64 * span;
            if waits {
                day.waited_gpu_hours += idle;
            } else {
                day.unwanted_gpu_hours += idle;
            }
            at = end;
        }
    }

    /// A run has converged when it has met its job's `accept` line; without one, when it is found flat or near its end.
    fn converged(&mut self, event: &Event) {
        let Body::Finding(finding) = &event.body else {
            return;
        };
        let attempt = finding.attempt();
        let Some(job) = self.state.job(attempt.job) else {
            return;
        };
        let accept = job.spec.accept.as_ref();
        let converged = match finding {
            Finding::Reached(reached) => {
                accept.is_some_and(|accept| accept.is_met(reached.value_micro))
            }
            Finding::Diagnosis(found) => {
                accept.is_none() && matches!(found.verdict, Verdict::Flat | Verdict::NearEnd)
            }
            Finding::Progress { .. } | Finding::Idle { .. } | Finding::Measured(_) => false,
        };
        if !converged || !self.is_counted(event.at, &job.spec.team) {
            return;
        }
        let active = job.state.active();
        let active = active.filter(|active| active.attempt == attempt);
        let Some((active, run)) = active.zip(self.runs.get_mut(&attempt.job)) else {
            return;
        };
        let now = event.at.since(active.launched);
        let rate = antiphon_server::usd_per_hour(&self.state, active);
        let usd = run.usd_before + rate * hours(now);
        if let Some(first) = run.first_launch.filter(|_| !run.converged) {
            run.converged = true;
            self.acceptable += usize::from(run.says_acceptable);
            self.convergence
                .push((hours(event.at.since(first)) * 3_600.0, usd));
        }
    }

    fn note(&mut self, fact: Fact, at: Timestamp) {
        match fact {
            Fact::Launched {
                attempt,
                class,
                queued,
            } => {
                let job = self.state.job(attempt.job);
                let active = job.and_then(|job| job.state.active());
                let gpus = active.map_or(0, |active| active.allocation.gpu_amount().thousandths());
                self.busy.insert(attempt, gpus);
                let says = job.is_some_and(|job| job.spec.accept.is_some());
                let run = self.runs.entry(attempt.job).or_default();
                run.first_launch.get_or_insert(at);
                run.says_acceptable = says;
                if self.is_counted(at, &self.team_of(attempt.job)) {
                    let queued = hours(queued) * 3_600.0;
                    self.delays.entry(class).or_default().push(queued);
                }
            }
            Fact::Settled(spent) => {
                self.busy.remove(&spent.attempt);
                self.settled(&spent);
            }
            Fact::Ended { job, how, .. } => {
                let team = self.team_of(job);
                if self.is_counted(at, &team) {
                    self.jobs.0 += u64::from(how == End::Succeeded);
                    self.jobs.1 += u64::from(matches!(how, End::Failed(_)));
                    let figures = self.teams.entry(team).or_default();
                    figures.completed += u64::from(how == End::Succeeded);
                }
            }
            Fact::Preempted { .. }
            | Fact::Directed { .. }
            | Fact::Answered { .. }
            | Fact::Gate(_)
            | Fact::Redline { .. } => (),
        }
    }

    fn settled(&mut self, spent: &Spent) {
        let run = self.runs.entry(spent.attempt.job).or_default();
        run.usd_before += spent.usd;
        if !self.is_counted(spent.ended, &spent.team) {
            return;
        }
        let failed = matches!(spent.outcome, "failed" | "retried");
        self.attempts.0 += u64::from(!failed);
        self.attempts.1 += u64::from(failed);
        // Of an attempt that began before the reported time the part within it counts: it starts first, and loses last.
        let whole = spent.ended.since(spent.launched);
        let within = spent.ended.since(spent.launched.max(self.from));
        let part = if whole.is_zero() {
            1.0
        } else {
            hours(within) / hours(whole)
        };
        let held = gpu_hours(spent.held) * part;
        let mut left = held;
        let mut all_lost = 0.0;
        for (cause, time) in &spent.lost {
            let before = match cause {
                Loss::HandOver => gpu_hours(spent.held) - held,
                Loss::Preemption | Loss::Failure | Loss::Straggler | Loss::User | Loss::Idle => 0.0,
            };
            let lost = (gpu_hours(*time) - before).clamp(0.0, left);
            left -= lost;
            all_lost += lost;
            *self.lost.entry(*cause).or_default() += lost;
        }
        self.charge(
            &spent.team,
            spent.attempt.job,
            &spent.name,
            held,
            spent.usd * part,
            all_lost,
        );
        let run = self.runs.entry(spent.attempt.job).or_default();
        let idle = spent.lost.get(&Loss::Idle);
        run.idle_gpu_hours += idle.map_or(0.0, |time| gpu_hours(*time).min(held));
    }

    fn charge(&mut self, team: &str, job: JobId, name: &str, held: f64, usd: f64, lost: f64) {
        let figures = self.teams.entry(team.to_owned()).or_default();
        figures.team = team.to_owned();
        figures.gpu_hours += held;
        figures.cost_usd += usd;
        figures.lost_gpu_hours += lost;
        let figures = &mut self.runs.entry(job).or_default().figures;
        figures.job = job.to_string();
        figures.name = name.to_owned();
        figures.team = team.to_owned();
        figures.gpu_hours += held;
        figures.cost_usd += usd;
        figures.lost_gpu_hours += lost;
    }

    /// The figures up to the end of the reported time.
    pub(crate) fn finish(mut self) -> Figures {
        self.pass(self.until);
        self.charge_running();
        let held: f64 = self.days.iter().map(|day| day.held_gpu_hours).sum();
        let free = |day: &Day| day.waited_gpu_hours + day.unwanted_gpu_hours;
        let capacity = held + self.days.iter().map(free).sum::<f64>();
        let all_lost: f64 = self.lost.values().sum();
        let of = |part: f64| (capacity > 0.0 && self.team.is_none()).then(|| part / capacity);
        let (allocation, useful) = (of(held), of(held - all_lost));
        let cost_usd = self.teams.values().map(|team| team.cost_usd).sum();
        let share =
            |(good, bad): (u64, u64)| (good + bad > 0).then(|| bad as f64 / (good + bad) as f64);
        let mut lost: Vec<Lost> = Loss::ALL
            .into_iter()
            .map(|cause| Lost {
                cause: cause.name(),
                gpu_hours: Some(self.lost.get(&cause).copied().unwrap_or(0.0)),
            })
            .collect();
        let days = self.days.iter();
        let waited = days.map(|day| day.waited_gpu_hours).sum();
        lost.push(Lost {
            cause: "free while jobs waited",
            gpu_hours: Some(waited).filter(|_| self.team.is_none()),
        });
        // What slow tasks and data cost a run is known from its signals, which are not in the log.
        lost.push(Lost {
            cause: "data wait",
            gpu_hours: None,
        });
        let completed = self.jobs.0;
        let models = self.runs.values().filter(|run| run.says_acceptable);
        let usd_of_models: f64 = models.map(|run| run.figures.cost_usd).sum();
        let (seconds, dollars): (Vec<f64>, Vec<f64>) = self.convergence.iter().copied().unzip();
        let runs = self.runs.values().filter(|run| !run.figures.job.is_empty());
        let jobs = runs.clone().map(|run| run.figures.clone());
        let idle = runs.filter(|run| run.idle_gpu_hours > 0.0).map(|run| {
            let held = run.figures.gpu_hours.max(f64::MIN_POSITIVE);
            JobFigures {
                gpu_hours: run.idle_gpu_hours,
                cost_usd: run.figures.cost_usd * (run.idle_gpu_hours / held).min(1.0),
                ..run.figures.clone()
            }
        });
        let mut teams: Vec<TeamFigures> = self.teams.values().cloned().collect();
        teams.retain(|team| !team.team.is_empty());
        teams.sort_by(|one, two| two.gpu_hours.total_cmp(&one.gpu_hours));
        Figures {
            from_ms: self.from.as_millis(),
            until_ms: self.until.as_millis(),
            team: self.team.clone(),
            capacity_gpu_hours: capacity,
            held_gpu_hours: held,
            allocation,
            useful,
            device_utilization: None,
            cost_usd,
            cost_usd_per_completed_job: (completed > 0).then(|| cost_usd / completed as f64),
            cost_usd_per_acceptable_model: (self.acceptable > 0)
                .then(|| usd_of_models / self.acceptable as f64),
            acceptable_models: self.acceptable,
            convergence_s: quantile(seconds, 0.5),
            convergence_usd: quantile(dollars, 0.5),
            converged: self.convergence.len(),
            completed,
            failed_attempts_share: share(self.attempts),
            failed_jobs_share: share(self.jobs),
            lost,
            delays: self
                .delays
                .iter()
                .map(|(class, delays)| delay(*class, delays))
                .collect(),
            jobs: largest(jobs.collect()),
            idle: largest(idle.collect()),
            teams,
            days: self.days,
        }
    }

    /// What runs at the end has held its GPUs until then.
    fn charge_running(&mut self) {
        let running: Vec<_> = self
            .state
            .active_jobs()
            .filter_map(|job| {
                let active = job.state.active()?;
                let span = self.until.since(active.launched.max(self.from));
                let held = gpu_hours(active.allocation.gpu_amount().over(span));
                let usd = antiphon_server::usd_per_hour(&self.state, active) * hours(span);
                Some((
                    job.spec.team.clone(),
                    job.id,
                    job.spec.name.clone(),
                    held,
                    usd,
                ))
            })
            .filter(|(team, ..)| self.is_wanted(team))
            .collect();
        for (team, job, name, held, usd) in running {
            self.charge(&team, job, &name, held, usd, 0.0);
        }
    }
}

fn hours(span: Millis) -> f64 {
    span.as_millis() as f64 / 3_600_000.0
}

fn gpu_hours(time: GpuTime) -> f64 {
    time.gpu_millis() as f64 / 3_600_000.0
}

/// The dearest first.
fn largest(mut jobs: Vec<JobFigures>) -> Vec<JobFigures> {
    jobs.sort_by(|one, two| two.gpu_hours.total_cmp(&one.gpu_hours));
    jobs.truncate(JOBS_MAX);
    jobs
}

fn delay(class: Class, delays: &[f64]) -> Delay {
    let at = |share| quantile(delays.to_vec(), share).unwrap_or(0.0);
    Delay {
        class: class.name(),
        launches: delays.len(),
        p50_s: at(0.5),
        p95_s: at(0.95),
        max_s: at(1.0),
    }
}

/// The nearest rank.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// Whether an event may change which nodes take tasks.
fn changes_nodes(body: &Body) -> bool {
    match body {
        Body::Observation(Observation::Inventory { .. }) | Body::Tick => true,
        Body::Command { command, .. } => matches!(
            command,
            Command::Drain { .. }
                | Command::Undrain { .. }
                | Command::Maintain(_)
                | Command::Notice(_)
        ),
        Body::Decision(decision) => {
            let mut actions = decision.actions.iter();
            actions.any(|action| matches!(action, Action::PutAside { .. }))
        }
        Body::Observation(_) | Body::Finding(_) | Body::SafeMode { .. } => false,
    }
}

/// GPUs of nodes that take tasks, in thousandths.
fn in_service(state: &State) -> u64 {
    let ready = state.nodes().filter(|node| node.state == NodeState::Ready);
    ready.map(|node| u64::from(node.spec.gpus) * 1_000).sum()
}

#[cfg(test)]
mod tests;
