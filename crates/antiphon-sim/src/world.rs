//! Virtual time around the kernel: jobs come, run, save, end; every one of these is an event of a log, folded by the same
//! `apply` that the live server uses. Decides nothing: that is the kernel's, or a published policy's.

mod gang;
mod noise;
mod span;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use antiphon_kernel::{State, admit, apply, check, decide, next_timer};
use antiphon_types::{
    Ack, AckBody, Action, Allocation, AttemptId, Body, Bytes, Checkpoint, Command, Decision,
    DirectiveId, Estimate, Event, Exit, ExitClass, Finding, JobId, JobSpec, Millis, NodeName,
    Observation, Policy, Seq, TaskId, Timestamp,
};

use crate::cluster::Cluster;
use crate::course::{Course, Site, millis, span};
use crate::peer::{Live, Peer, Scene};
use crate::workload::{TraceJob, Workload};

pub use gang::spec_of;
pub use noise::Noise;
pub(crate) use span::held;
pub use span::{Held, Span, Spans};

/// Where virtual time begins: a Monday, so that weeks and hours begin with it.
const BEGIN: Timestamp = Timestamp::from_millis(1_704_067_200_000);

/// What a trainer has seen before its first word on how long it will take: a step time needs some steps.
const REPORTS_AFTER: Millis = Millis::from_secs(120);

/// A step of a simulated training at its best speed.
const STEP_MS: f64 = 1_000.0;

/// What a policy may know of a job beside its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing.
    None,
    /// What its training loop reports while it runs: steps done and to do, time of a step.
    Progress,
    /// Its true run time, from the start.
    Durations,
}

impl Knowledge {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::None, Self::Progress, Self::Durations];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
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
    /// Whether the spans in which GPUs were held are kept.
    pub spans: Spans,
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

/// What became of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// When it came, after the beginning.
    pub submitted: Millis,
    /// When it first started.
    pub started: Option<Millis>,
    /// When it was done.
    pub ended: Option<Millis>,
    /// GPUs that it held last.
    pub gpus: f64,
    /// How long it takes alone, at its best.
    pub best_ms: f64,
    /// GPU-milliseconds that it held.
    pub held_gpu_ms: f64,
    /// Of these, those in which nothing was done: starts and resumes.
    pub idle_gpu_ms: f64,
    /// Of these, those whose results were lost.
    pub lost_gpu_ms: f64,
    /// How often it was stopped for another.
    pub preemptions: u32,
}

/// A job as it goes.
struct Run {
    course: Course,
    record: Record,
    /// When it held what; empty unless that is kept.
    spans: Vec<Span>,
    /// What it has done, in milliseconds at its best, up to `since` where it runs.
    done: f64,
    on: Option<On>,
    /// What its loop says that it will do, as a part of what it really does.
    claims: f64,
    /// The time of a step as it reports it, as a part of the true one.
    step_claims: f64,
    id: Option<JobId>,
}

/// An attempt that runs.
#[derive(Clone)]
struct On {
    attempt: AttemptId,
    site: Site,
    launched: Timestamp,
    /// When work begins.
    since: Timestamp,
    gpus: f64,
}

/// What will happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Ends(AttemptId),
    Arrives(usize),
    Reports(AttemptId),
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
    /// By job id: its place in `runs`.
    places: Vec<usize>,
    state: State,
    now: Timestamp,
    coming: BinaryHeap<Reverse<(Timestamp, u64, Happening)>>,
    announced: u64,
    round_due: bool,
    to_come: usize,
    wake_at: Option<Timestamp>,
    digest: blake3::Hasher,
    buffer: Vec<u8>,
    tally: Tally,
    stopwatch: &'a dyn Fn() -> u64,
    /// By job of the workload: what was really submitted; empty where that is formed from the workload.
    specs: &'a [JobSpec],
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
    /// Jobs that were not simulated.
    pub refused: Vec<Refused>,
}

/// What came of a simulation.
pub struct Finished {
    /// By job of the workload; nothing for those that were refused.
    pub records: Vec<Option<Record>>,
    /// By job of the workload: when it held which GPUs; empty unless the setting keeps that.
    pub spans: Vec<Vec<Span>>,
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
        let mut world = Self {
            workload,
            setting,
            decider,
            gpu_types,
            types_of,
            node_places,
            runs: Vec::with_capacity(workload.jobs.len()),
            places: Vec::new(),
            state: State::default(),
            now: BEGIN,
            coming: BinaryHeap::new(),
            announced: 0,
            round_due: false,
            to_come: 0,
            wake_at: None,
            digest: blake3::Hasher::new(),
            buffer: Vec::new(),
            tally: Tally::default(),
            stopwatch,
            specs: &[],
        };
        for (job, course) in workload.jobs.iter().zip(courses) {
            let place = world.runs.len();
            let (claims, step_claims) = noise.next();
            let course = course.unwrap_or_else(|reason| {
                world.refuse(job, reason);
                Course {
                    stretches: Vec::new(),
                }
            });
            if !course.stretches.is_empty() {
                world.announce(BEGIN.after(job.submitted), Happening::Arrives(place));
                world.to_come += 1;
            }
            world.runs.push(Run {
                record: Record {
                    submitted: job.submitted,
                    started: None,
                    ended: None,
                    gpus: 0.0,
                    best_ms: course.best_ms(),
                    held_gpu_ms: 0.0,
                    idle_gpu_ms: 0.0,
                    lost_gpu_ms: 0.0,
                    preemptions: 0,
                },
                course,
                spans: Vec::new(),
                done: 0.0,
                on: None,
                claims,
                step_claims,
                id: None,
            });
        }
        world.begin();
        world
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

    /// The job of a place as it was really submitted.
    fn submitted(&self, place: usize) -> Option<JobSpec> {
        let mut spec = self.specs.get(place)?.clone();
        for list in [&mut spec.after, &mut spec.after_any, &mut spec.after_start] {
            let place = |id: &JobId| usize::try_from(id.0 - 1).ok();
            let known = list.iter().filter_map(|id| self.runs.get(place(id)?)?.id);
            *list = known.collect();
        }
        // A name that was free again when it was used may not be free here.
        if self.state.job_named(&spec.team, &spec.name).is_some() {
            spec.name = format!("{}-{place}", spec.name);
        }
        Some(spec)
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
    }

    /// Runs until every job has ended or nothing more can happen. `on_progress` is told the number of jobs done, and says
    /// whether to go on.
    pub fn run(mut self, on_progress: &mut dyn FnMut(usize) -> bool) -> Finished {
        let mut done = 0;
        while let Some(at) = self.next_time() {
            self.now = self.now.max(at);
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
            if self.to_come == 0 || !on_progress(done) {
                break;
            }
        }
        self.finish()
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
            Happening::Ends(attempt) => return self.end(attempt),
            Happening::Reports(attempt) => self.report(attempt),
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
        self.state.queue_length() == 0 && self.runs.iter().all(|run| run.on.is_none())
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

    fn arrive(&mut self, place: usize) {
        let job = &self.workload.jobs[place];
        let run = &self.runs[place];
        let mut spec = self
            .submitted(place)
            .unwrap_or_else(|| spec_of(job, &run.course, &self.gpu_types));
        if self.setting.knowledge == Knowledge::Durations {
            let expected =
                span(run.course.best_ms() / run.claims.max(1e-6)).max(Millis::from_millis(1));
            // What starts take comes on top, and nobody is blamed for that.
            let more = Millis::from_millis(expected.as_millis() / 20 + 120_000);
            spec.estimate = Some(Estimate {
                low: expected,
                expected,
                high: expected + more,
            });
        }
        let command = Command::Submit {
            spec: Box::new(spec),
        };
        if let Err(rejection) = admit(&self.state, &command) {
            self.to_come -= 1;
            let reason = rejection.to_string();
            self.refuse(job, reason);
            self.runs[place].course.stretches.clear();
            return;
        }
        self.command(command);
        let id = self.state.newest_job().expect("it was submitted just now");
        assert_eq!(id.0, number(self.places.len()) + 1, "job ids count up");
        self.places.push(place);
        self.runs[place].id = Some(id);
    }

    fn refuse(&mut self, job: &TraceJob, reason: String) {
        self.tally.refused.push(Refused {
            line: job.line,
            name: job.name.clone(),
            reason,
        });
    }

    fn place_of(&self, job: JobId) -> usize {
        self.places[usize::try_from(job.0 - 1).expect("few jobs")]
    }

    /// An attempt has done all there was to do, unless it was stopped meanwhile.
    fn end(&mut self, attempt: AttemptId) -> bool {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on.as_ref().is_none_or(|on| on.attempt != attempt) {
            return false;
        }
        run.done = run.course.best_ms();
        run.record.ended = Some(self.now.since(BEGIN));
        run.leave(self.now);
        self.to_come -= 1;
        let exit = Exit::Code {
            code: 0,
            class: None,
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
        true
    }

    fn end_tasks(&mut self, attempt: AttemptId, exit: &Exit) {
        let active = self
            .state
            .job(attempt.job)
            .and_then(|job| job.state.active());
        let tasks: Vec<TaskId> = active
            .filter(|active| active.attempt == attempt)
            .map(|active| active.tasks().map(|(task, _)| task).collect())
            .unwrap_or_default();
        for task in tasks {
            let exit = exit.clone();
            self.event(Body::Observation(Observation::TaskEnded { task, exit }));
        }
    }

    /// A training loop says how far it is.
    fn report(&mut self, attempt: AttemptId) {
        let place = self.place_of(attempt.job);
        let run = &self.runs[place];
        let Some(on) = run.on.as_ref().filter(|on| on.attempt == attempt) else {
            return;
        };
        let done = run.done_at(self.now);
        let step = whole(done / STEP_MS);
        let total = whole(run.course.best_ms() / run.claims / STEP_MS).max(step + 1);
        let step_ms = STEP_MS / run.course.rate(done, on.site) * run.step_claims;
        self.event(Body::Finding(Finding::Progress {
            attempt,
            step,
            steps_total: total,
            step_time: span(step_ms).max(Millis::from_millis(1)),
        }));
    }

    /// Decides until nothing more follows at this time.
    fn settle(&mut self) {
        let in_rounds = self.setting.cluster.rounds.is_some();
        let round = std::mem::take(&mut self.round_due) || !in_rounds;
        let kernel = matches!(self.decider, Decider::Kernel);
        if in_rounds && round && kernel {
            self.command(Command::Unpause);
        }
        loop {
            let began = (self.stopwatch)();
            let mut decision = decide(&self.state);
            if !kernel && round && !settles(&decision) {
                self.ask_peer(&mut decision);
            }
            self.tally.cycles += 1;
            if let Err(wrong) = check::decision(&self.state, &decision) {
                panic!("a decision that does not fit at {:?}: {wrong}", self.now);
            }
            if decision.actions.is_empty() {
                self.time_cycle(began);
                break;
            }
            let again = decision.again || !kernel;
            let actions = decision.actions.clone();
            self.event(Body::Decision(decision));
            self.time_cycle(began);
            let mut followed = false;
            for action in &actions {
                followed |= self.carry_out(action);
            }
            if !again && !followed {
                break;
            }
        }
        if in_rounds && round && kernel {
            let reason = "until the next round".into();
            self.command(Command::Pause { reason });
        }
        // In rounds nothing is decided between them, and whoever is asked to stop does so at once.
        self.wake_at = if self.to_come == 0 || in_rounds {
            None
        } else {
            next_timer(&self.state)
                .into_iter()
                .chain(self.peer_wakes_at())
                .min()
        };
    }

    fn time_cycle(&mut self, began: u64) {
        let us = (self.stopwatch)().saturating_sub(began) / 1_000;
        let us = u32::try_from(us).unwrap_or(u32::MAX);
        self.tally.cycle_us.push(us);
    }

    fn peer_wakes_at(&mut self) -> Option<Timestamp> {
        if self.setting.cluster.rounds.is_some() {
            return None;
        }
        let Decider::Peer(mut peer) = std::mem::replace(&mut self.decider, Decider::Kernel) else {
            return None;
        };
        let at = peer.wake_at(&self.scene());
        self.decider = Decider::Peer(peer);
        at.map(|at| at.max(self.now.after(Millis::from_millis(1))))
    }

    fn ask_peer(&mut self, decision: &mut Decision) {
        let Decider::Peer(mut peer) = std::mem::replace(&mut self.decider, Decider::Kernel) else {
            return;
        };
        let actions = peer.decide(&self.scene());
        self.decider = Decider::Peer(peer);
        decision.actions.extend(actions);
    }

    /// What a published policy sees.
    fn scene(&self) -> Scene<'_> {
        let known = self.setting.knowledge == Knowledge::Durations;
        let jobs = self.runs.iter().enumerate().filter_map(|(place, run)| {
            let id = run.id?;
            if run.record.ended.is_some() {
                return None;
            }
            let held = run
                .on
                .as_ref()
                .map(|on| on.gpus * since(on.launched, self.now));
            Some(Live {
                place,
                id,
                job: &self.workload.jobs[place],
                submitted: BEGIN.after(run.record.submitted),
                attained_gpu_ms: run.record.held_gpu_ms + held.unwrap_or(0.0),
                done: run.done_at(self.now),
                best_ms: (known || self.setting.cluster.table.is_some())
                    .then_some(run.record.best_ms),
                course: &run.course,
                site: run.on.as_ref().map(|on| on.site),
            })
        });
        Scene {
            state: &self.state,
            now: self.now,
            cluster: &self.setting.cluster,
            gpu_types: &self.gpu_types,
            jobs: jobs.collect(),
        }
    }

    /// Carries an action out; says whether something followed at once.
    fn carry_out(&mut self, action: &Action) -> bool {
        match action {
            Action::Launch {
                attempt,
                allocation,
                ..
            } => {
                self.launch(*attempt, allocation);
                false
            }
            Action::Yield {
                attempt, directive, ..
            } => {
                self.give_way(*attempt, Some(*directive));
                true
            }
            Action::Terminate { attempt, .. } => {
                self.give_way(*attempt, None);
                true
            }
            Action::Settle { .. } => true,
            Action::Kill { .. }
            | Action::Direct { .. }
            | Action::Reserve { .. }
            | Action::Unreserve { .. }
            | Action::PutAside { .. }
            | Action::Abandon { .. } => false,
        }
    }

    fn launch(&mut self, attempt: AttemptId, allocation: &Allocation) {
        let place = self.place_of(attempt.job);
        let site = self.site(allocation);
        let gpus = thousandths(allocation.gpu_amount().thousandths());
        let cluster = &self.setting.cluster;
        let run = &mut self.runs[place];
        let first = run.record.started.is_none();
        let cost = match cluster.wide {
            Some((above, cost)) if gpus > f64::from(above) => cost,
            _ if first => cluster.start_cost,
            _ => cluster.resize_cost,
        };
        let begins = self.now.after(cost);
        run.record.started.get_or_insert(self.now.since(BEGIN));
        run.record.gpus = gpus;
        if self.setting.spans == Spans::Kept {
            run.spans.push(Span {
                from: self.now.since(BEGIN),
                works_from: begins.since(BEGIN),
                until: None,
                held: held(allocation, &self.node_places),
            });
        }
        let rest = run.course.rest_ms(run.done, site);
        assert!(rest.is_finite(), "{attempt} was placed where it cannot run");
        run.on = Some(On {
            attempt,
            site,
            launched: self.now,
            since: begins,
            gpus,
        });
        self.announce(begins.after(span(rest.ceil())), Happening::Ends(attempt));
        if self.setting.knowledge == Knowledge::Progress {
            let at = begins.after(REPORTS_AFTER);
            self.announce(at, Happening::Reports(attempt));
        }
        for task in &allocation.tasks {
            let task = TaskId {
                attempt,
                role: task.role.clone(),
                index: task.index,
            };
            self.event(Body::Observation(Observation::TaskStarted { task }));
        }
        let step = whole(self.runs[place].done / STEP_MS);
        self.event(Body::Observation(Observation::Attached { attempt, step }));
    }

    /// On which GPU type an allocation lies, and whether on more nodes than it needs.
    fn site(&self, allocation: &Allocation) -> Site {
        let mut nodes: Vec<&NodeName> = allocation.tasks.iter().map(|task| &task.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let first = nodes.first().expect("an allocation has tasks");
        Site {
            gpu_type: self.types_of[*first],
            spread: nodes.len() > 1,
        }
    }

    /// A training loop saves and ends, as it was asked to.
    fn give_way(&mut self, attempt: AttemptId, directive: Option<DirectiveId>) {
        let place = self.place_of(attempt.job);
        let run = &mut self.runs[place];
        if run.on.as_ref().is_none_or(|on| on.attempt != attempt) {
            return;
        }
        run.done = run.done_at(self.now);
        run.record.preemptions += 1;
        run.leave(self.now);
        let step = whole(run.done / STEP_MS);
        let checkpoint = Checkpoint {
            attempt,
            step,
            path: format!("step-{step}"),
            bytes: Bytes::ZERO,
            save: Millis::ZERO,
            manifest: String::new(),
            at: self.now,
        };
        self.event(Body::Observation(Observation::Checkpointed { checkpoint }));
        if let Some(directive) = directive {
            let body = AckBody::Applied { slot: step };
            let ack = Ack { directive, body };
            self.event(Body::Observation(Observation::Acknowledged {
                attempt,
                ack,
            }));
        }
        let exit = Exit::Code {
            code: 0,
            class: Some(ExitClass::Preempted),
            evidence: String::new(),
        };
        self.end_tasks(attempt, &exit);
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
        self.tally.events += 1;
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
            tally: self.tally,
            digest: self.digest.finalize().to_hex().to_string(),
        }
    }
}

impl Run {
    /// What it has done by now.
    fn done_at(&self, now: Timestamp) -> f64 {
        match &self.on {
            Some(on) if on.since < now => {
                let elapsed = since(on.since, now);
                self.course.advance(self.done, elapsed, on.site)
            }
            Some(_) | None => self.done,
        }
    }

    /// Writes down what the attempt that ends now has held.
    fn leave(&mut self, now: Timestamp) {
        let Some(on) = self.on.take() else {
            return;
        };
        self.record.held_gpu_ms += on.gpus * since(on.launched, now);
        self.record.idle_gpu_ms += on.gpus * since(on.launched, on.since.min(now));
        if let Some(span) = self.spans.last_mut() {
            span.until = Some(now.since(BEGIN));
        }
    }
}

/// Whether a decision settles attempts: what they held is free only after it.
fn settles(decision: &Decision) -> bool {
    let settles = |action: &Action| matches!(action, Action::Settle { .. });
    decision.actions.iter().any(settles)
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

fn thousandths(count: u64) -> f64 {
    f64::from(u32::try_from(count).expect("few GPUs")) / 1_000.0
}
