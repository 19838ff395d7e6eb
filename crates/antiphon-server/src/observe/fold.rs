//! From what a look found to events, so that the state that they make is what was seen: the same events, folded by the same
//! `apply`, as if the other scheduler's decisions had been antiphon's. Decides nothing.

mod held;
mod news;

use std::collections::{BTreeMap, BTreeSet};

use antiphon_backends::observe::{Picture, SeenJob, SeenPhase, Service};
use antiphon_kernel::{Job, JobState, Source, State, admit, apply, is_news};
use antiphon_types::{
    Action, Allocation, AttemptId, Body, Command, Decision, Event, Exit, GatePolicy, GpuAmount,
    JobId, JobSpec, NodeName, NodeSpec, Observation, Outcome, Policy, Rejection, Seq,
    TaskAllocation, TaskId, TeamSpec, Terms, Timestamp,
};

use self::held::OnNode;
use self::news::What;

/// What an operator sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) policy: Policy,
    pub(crate) teams: Vec<TeamSpec>,
}

/// What a fold has made.
pub(crate) struct Folded {
    pub(crate) state: State,
    pub(crate) events: Vec<Event>,
    /// The jobs of the picture, by their place in it.
    pub(crate) jobs: BTreeMap<usize, JobId>,
    /// Why antiphon would not take a job, where it would not.
    pub(crate) refused: BTreeMap<JobId, String>,
    /// Jobs that cannot be shown, in sentences.
    pub(crate) left_out: Vec<String>,
}

/// Folds a picture, taken at `now` of a scheduler of that name, into the state.
pub(crate) fn fold(
    state: State,
    picture: &Picture,
    scheduler: &str,
    settings: &Settings,
    now: Timestamp,
) -> Folded {
    let first = state.seq() == Seq(0);
    let mut fold = Fold {
        now,
        held: BTreeMap::new(),
        scheduler,
        done: Folded {
            state,
            events: Vec::new(),
            jobs: BTreeMap::new(),
            refused: BTreeMap::new(),
            left_out: Vec::new(),
        },
    };
    let began = picture.jobs.iter().map(|job| job.submitted).min();
    let began = began.filter(|_| first).unwrap_or(now);
    fold.settings(settings, began);
    fold.nodes(picture, began);
    fold.teams(picture, &settings.teams, began);
    fold.jobs(picture, first);
    fold.refusals(picture);
    fold.done
}

/// The name of a job: its id there first, for that is how people there know it. No name of antiphon's own holds a colon.
pub(crate) fn name(scheduler: &str, key: &str, given: &str) -> String {
    format!("{scheduler}-{key}:{given}")
}

/// The id there of a job, from its name here.
pub(crate) fn key<'a>(scheduler: &str, name: &'a str) -> Option<&'a str> {
    let rest = name.strip_prefix(scheduler)?.strip_prefix('-')?;
    rest.split_once(':').map(|(key, _)| key)
}

struct Fold<'a> {
    now: Timestamp,
    scheduler: &'a str,
    /// What is held of each node.
    held: BTreeMap<NodeName, OnNode>,
    done: Folded,
}

impl Fold<'_> {
    /// Stamps an event and folds it in. What happened before the last event is told as if it had happened with it.
    fn log(&mut self, at: Timestamp, body: Body) {
        let state = &mut self.done.state;
        let event = Event {
            seq: Seq(state.seq().0 + 1),
            at: at.min(self.now).max(state.now()),
            body,
        };
        apply(state, &event);
        self.done.events.push(event);
    }

    fn command(&mut self, at: Timestamp, by: &str, command: Command) {
        let by = by.to_owned();
        self.log(
            at,
            Body::Command {
                by,
                id: None,
                command,
            },
        );
    }

    /// The settings where they differ. The gate keeps nothing back here, where nobody asks it.
    fn settings(&mut self, settings: &Settings, at: Timestamp) {
        let state = &self.done.state;
        let open = GatePolicy {
            enabled: false,
            ..GatePolicy::default()
        };
        let gate =
            (state.gate().policy() != Some(&open)).then_some(Command::SetGate { gate: open });
        let policy = (*state.policy() != settings.policy).then(|| Command::SetPolicy {
            policy: Box::new(settings.policy.clone()),
        });
        for command in gate.into_iter().chain(policy) {
            if admit(&self.done.state, &command).is_ok() {
                self.command(at, self.scheduler, command);
            }
        }
    }

    fn nodes(&mut self, picture: &Picture, at: Timestamp) {
        let offer = |nodes: Vec<NodeSpec>| Observation::Inventory {
            nodes,
            partitions: picture.partitions.clone(),
            resources: BTreeMap::new(),
        };
        let specs = |there: &dyn Fn(&Service) -> bool| -> Vec<NodeSpec> {
            let nodes = picture.nodes.iter().filter(|node| there(&node.service));
            nodes.map(|node| node.spec.clone()).collect()
        };
        let state = &self.done.state;
        let unknown = picture.nodes.iter().any(|node| {
            matches!(node.service, Service::Down(_)) && state.node(&node.spec.name).is_none()
        });
        let there = specs(&|service| !matches!(service, Service::Down(_)));
        // A node that was never offered is not shown, and one that is down has to be.
        let all = unknown.then(|| specs(&|_| true));
        for nodes in all.into_iter().chain([there]) {
            let offer = offer(nodes);
            if is_news(&self.done.state, &offer) {
                self.log(at, Body::Observation(offer));
            }
        }
        for node in &picture.nodes {
            let known = self.done.state.node(&node.spec.name);
            let drained = known.and_then(|node| node.drained.clone());
            let name = node.spec.name.clone();
            match (&node.service, drained) {
                (Service::Drained(reason), known) if known.as_ref() != Some(reason) => {
                    let reason = reason.clone();
                    let command = Command::Drain { node: name, reason };
                    self.command(at, self.scheduler, command);
                }
                (Service::In, Some(_)) => {
                    self.command(at, self.scheduler, Command::Undrain { node: name });
                }
                (Service::In, None) | (Service::Drained(_) | Service::Down(_), _) => (),
            }
        }
    }

    /// Where teams are set up, accounts that are none of them get a team each: their jobs are there whatever antiphon's
    /// settings say.
    fn teams(&mut self, picture: &Picture, teams: &[TeamSpec], at: Timestamp) {
        let mut teams = teams.to_vec();
        if !teams.is_empty() {
            let before = self.done.state.teams().specs().to_vec();
            let accounts = picture.jobs.iter().map(|job| job.spec.team.clone());
            let accounts = accounts.chain(before.into_iter().map(|team| team.name));
            for name in accounts.collect::<BTreeSet<_>>() {
                if !teams.iter().any(|team| team.name == name) {
                    let team = TeamSpec::default();
                    teams.push(TeamSpec { name, ..team });
                }
            }
        }
        let command = Command::SetTeams { teams };
        let Command::SetTeams { teams } = &command else {
            return;
        };
        if self.done.state.teams().specs() != teams && admit(&self.done.state, &command).is_ok() {
            self.command(at, self.scheduler, command);
        }
    }

    fn jobs(&mut self, picture: &Picture, first: bool) {
        for job in self.done.state.active_jobs() {
            let active = job.state.active().expect("it is active");
            for task in active.allocation.tasks.iter() {
                self.held.entry(task.node.clone()).or_default().take(task);
            }
        }
        let known = self.known();
        let mut happened: Vec<(Timestamp, What, usize)> = Vec::new();
        let mut there = BTreeSet::new();
        for (place, seen) in picture.jobs.iter().enumerate() {
            let job = known.get(&seen.key).map(|id| &self.done.state.jobs()[id]);
            if let Some(job) = job {
                there.insert(job.id);
                self.done.jobs.insert(place, job.id);
            }
            happened.extend(
                self.news(job, seen, first)
                    .into_iter()
                    .map(|(at, what)| (at, what, place)),
            );
        }
        let unclear = |key: &String| picture.unclear.contains(key);
        let listed = known.iter().filter(|(key, _)| !unclear(key));
        let gone = listed.map(|(_, id)| *id).filter(|id| !there.contains(id));
        for id in gone.collect::<Vec<_>>() {
            self.gone(id);
        }
        happened.sort();
        for (at, what, place) in happened {
            let seen = &picture.jobs[place];
            match what {
                What::End => self.end_of(place, seen, at),
                What::Submit => self.submit(place, seen, at),
                What::Start => self.start(place, seen, at),
            }
        }
    }

    /// Jobs by their id there: the newest where one was used twice.
    fn known(&self) -> BTreeMap<String, JobId> {
        let jobs = self.done.state.jobs().values();
        let keyed = jobs.filter_map(|job| {
            let key = key(self.scheduler, &job.spec.name)?;
            Some((key.to_owned(), job.id))
        });
        keyed.collect()
    }

    /// A job as it would be submitted.
    fn spec(&self, seen: &SeenJob) -> JobSpec {
        JobSpec {
            name: name(self.scheduler, &seen.key, &seen.spec.name),
            ..seen.spec.clone()
        }
    }

    /// Whether a waiting job still asks for what it did.
    fn is_of(&self, job: &Job, seen: &SeenJob) -> bool {
        let spec = self.spec(seen);
        let held = job.spec.held;
        JobSpec { held, ..spec } == job.spec
    }

    /// Submits a job, or brings what is known of a waiting one up to what is seen.
    fn submit(&mut self, place: usize, seen: &SeenJob, at: Timestamp) {
        let kept_back = seen.phase == SeenPhase::KeptBack;
        let known = self.done.jobs.get(&place).copied();
        let living = known.and_then(|id| self.done.state.job(id));
        let living = living.filter(|job| !job.state.is_ended());
        let by = seen.spec.user.clone();
        if let Some(job) = living {
            let id = job.id;
            let held = matches!(job.state, JobState::Held { .. });
            if self.is_of(job, seen) {
                let command = match (held, kept_back) {
                    (true, false) => Command::Release { job: id },
                    (false, true) => Command::Hold { job: id },
                    (true, true) | (false, false) => return,
                };
                return self.command(at, self.scheduler, command);
            }
            // It asks for something else now: antiphon's jobs never do.
            self.command(at, &by, Command::Cancel { job: id });
        }
        let mut spec = self.spec(seen);
        let refused = match admission(&self.done.state, &spec) {
            Some(Rejection::OverLimit { .. }) => {
                let told = format!("{} asks for more than antiphon counts with", spec.name);
                self.done.left_out.push(told);
                return;
            }
            refused => refused,
        };
        let runs = matches!(seen.phase, SeenPhase::Running(_) | SeenPhase::Ended { .. });
        spec.held = kept_back || (refused.is_some() && !runs);
        let spec = Box::new(spec);
        self.command(at, &by, Command::Submit { spec });
        let Some(id) = self.done.state.newest_job() else {
            return;
        };
        self.done.jobs.insert(place, id);
    }

    /// Why those are held that wait there for room alone.
    fn refusals(&mut self, picture: &Picture) {
        let state = &self.done.state;
        for (place, id) in &self.done.jobs {
            let waits = picture.jobs[*place].phase == SeenPhase::Waiting;
            let job = state
                .job(*id)
                .filter(|job| waits && matches!(job.state, JobState::Held { .. }));
            if let Some(refused) = job.and_then(|job| admission(state, &job.spec)) {
                self.done.refused.insert(*id, refused.to_string());
            }
        }
    }

    /// Starts a job where it was started.
    fn start(&mut self, place: usize, seen: &SeenJob, at: Timestamp) {
        let (SeenPhase::Running(run) | SeenPhase::Ended { run: Some(run), .. }) = &seen.phase
        else {
            return;
        };
        let Some(id) = self.done.jobs.get(&place).copied() else {
            return;
        };
        let gpus: u32 = run.held.iter().map(|held| held.gpus).sum();
        let job = &self.done.state.jobs()[&id];
        if job.spec.gpus() != GpuAmount::from_gpus(gpus)
            && self.spec(seen).gpus() != job.spec.gpus()
        {
            // It was given another number than it had asked for.
            self.command(at, &seen.spec.user, Command::Cancel { job: id });
            self.submit(place, seen, at);
        }
        let Some(id) = self.done.jobs.get(&place).copied() else {
            return;
        };
        if matches!(self.done.state.jobs()[&id].state, JobState::Held { .. }) {
            self.command(at, self.scheduler, Command::Release { job: id });
        }
        let allocation = self.allocation(run);
        if allocation.tasks.is_empty() {
            return;
        }
        let job = &self.done.state.jobs()[&id];
        let attempt = AttemptId {
            job: id,
            number: job.launches + 1,
        };
        let since = at.min(self.now).max(self.done.state.now());
        let known = job.expect.source != Source::Nothing;
        let terms = Terms {
            ends_at: known.then(|| since.after(job.expect.expected)),
            ends_by: job.expect.high.map(|high| since.after(high)),
            ..Terms::default()
        };
        let tasks = task_ids(attempt, &allocation);
        for task in allocation.tasks.iter() {
            self.held.entry(task.node.clone()).or_default().take(task);
        }
        self.decide(
            at,
            Action::Launch {
                attempt,
                allocation,
                terms,
            },
        );
        for task in tasks {
            self.log(at, Body::Observation(Observation::TaskStarted { task }));
        }
    }

    fn end_of(&mut self, place: usize, seen: &SeenJob, at: Timestamp) {
        let Some(id) = self.done.jobs.get(&place).copied() else {
            return;
        };
        let (exit, outcome) = match &seen.phase {
            SeenPhase::Ended { exit, outcome, .. } => (exit.clone(), outcome.clone()),
            SeenPhase::Waiting | SeenPhase::KeptBack | SeenPhase::Running(_) => {
                let evidence = format!("{} put it back into its queue", self.scheduler);
                (Exit::Lost { evidence }, Outcome::Requeued)
            }
        };
        self.end(id, at, &exit, &outcome);
        if seen.phase == SeenPhase::KeptBack
            && matches!(self.done.state.jobs()[&id].state, JobState::Pending { .. })
        {
            self.command(at, self.scheduler, Command::Hold { job: id });
        }
    }

    /// A job that the scheduler no longer lists: how it ended nobody says.
    fn gone(&mut self, id: JobId) {
        if self.done.state.jobs()[&id].state.is_ended() {
            return;
        }
        let evidence = format!("{} no longer lists it", self.scheduler);
        let now = self.now;
        self.end(id, now, &Exit::Lost { evidence }, &Outcome::Canceled);
    }

    fn end(&mut self, id: JobId, at: Timestamp, exit: &Exit, outcome: &Outcome) {
        let job = &self.done.state.jobs()[&id];
        let Some(active) = job.state.active() else {
            if !job.state.is_ended() {
                self.command(at, self.scheduler, Command::Cancel { job: id });
            }
            return;
        };
        let (attempt, allocation) = (active.attempt, active.allocation.clone());
        for task in task_ids(attempt, &allocation) {
            let exit = exit.clone();
            self.log(at, Body::Observation(Observation::TaskEnded { task, exit }));
        }
        for task in allocation.tasks.iter() {
            self.held
                .entry(task.node.clone())
                .or_default()
                .give_back(task);
        }
        let outcome = outcome.clone();
        self.decide(at, Action::Settle { attempt, outcome });
    }

    fn decide(&mut self, at: Timestamp, action: Action) {
        let decision = Decision {
            actions: vec![action],
            wake_at: None,
            again: false,
        };
        self.log(at, Body::Decision(decision));
    }
}

fn task_ids(attempt: AttemptId, allocation: &Allocation) -> Vec<TaskId> {
    let id = |task: &TaskAllocation| TaskId {
        attempt,
        role: task.role.clone(),
        index: task.index,
    };
    allocation.tasks.iter().map(id).collect()
}

/// Why antiphon would refuse a job, were it submitted now.
fn admission(state: &State, spec: &JobSpec) -> Option<Rejection> {
    // Under a name that it does not have itself already.
    let spec = JobSpec {
        name: format!("{}?", spec.name),
        ..spec.clone()
    };
    let spec = Box::new(spec);
    admit(state, &Command::Submit { spec }).err()
}

#[cfg(test)]
mod tests;
