//! What is promised, checked against what really runs and what people asked, without the kernel's own books.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_kernel::{Job, JobState, Mode, StopPhase};
use antiphon_types::*;

use super::World;
use super::processes::Living;
use crate::fit::{Room, fits};

const HOUR: Millis = Millis::from_secs(3_600);

/// How long a trainer that has saved may take to end by itself.
const LEAVE: Millis = Millis::from_secs(10);

/// What people and trainers were promised so far.
#[derive(Default)]
pub(super) struct Promises {
    /// When SIGTERM was ordered, and the grace that was promised.
    terminated: BTreeMap<AttemptId, (Timestamp, Millis)>,
    /// Jobs that somebody canceled, and jobs that somebody put on hold and nobody has released.
    canceled: BTreeSet<JobId>,
    on_hold: BTreeSet<JobId>,
    ended: BTreeMap<JobId, JobState>,
    /// The last checkpoint that was acknowledged.
    saved: BTreeMap<JobId, (AttemptId, u64)>,
    /// When each job was preempted.
    preempted: BTreeMap<JobId, Vec<Timestamp>>,
    /// Nodes that an operator drains or that were put aside, and the windows that are planned.
    drained: BTreeSet<NodeName>,
    /// Nodes that are to be given back, and when.
    noticed: BTreeMap<NodeName, Timestamp>,
    windows: Vec<Maintenance>,
}

impl Promises {
    pub(super) fn note(&mut self, command: &Command, at: Timestamp) {
        match command {
            Command::Cancel { job } => {
                self.canceled.insert(*job);
            }
            Command::Hold { job } => {
                self.on_hold.insert(*job);
            }
            Command::Ask(Ask {
                attempt,
                body: AskBody::Pause,
                ..
            }) => {
                self.on_hold.insert(attempt.job);
            }
            Command::Release { job } => {
                self.on_hold.remove(job);
            }
            Command::Drain { node, .. } => {
                self.drained.insert(node.clone());
            }
            Command::Undrain { node } => {
                self.drained.remove(node);
                self.noticed.remove(node);
                for window in &mut self.windows {
                    window.nodes.retain(|other| other != node);
                }
            }
            Command::Maintain(window) => self.windows.push(window.clone()),
            Command::Notice(notice) => {
                if notice.gpus.is_none() {
                    let by = at.after(notice.within);
                    self.noticed.insert(notice.node.clone(), by);
                }
            }
            Command::Submit { .. }
            | Command::Preempt { .. }
            | Command::SetClass { .. }
            | Command::Direct(_)
            | Command::Pause { .. }
            | Command::Unpause
            | Command::Approve { .. }
            | Command::Undo { .. }
            | Command::Ask(_)
            | Command::SetPolicy { .. }
            | Command::SetTeams { .. }
            | Command::SetGate { .. } => (),
        }
    }

    pub(super) fn saved(&mut self, checkpoint: &Checkpoint) {
        let saved = (checkpoint.attempt, checkpoint.step);
        self.saved.insert(checkpoint.attempt.job, saved);
    }

    pub(super) fn step_saved(&self, job: JobId) -> u64 {
        self.saved.get(&job).map_or(0, |(_, step)| *step)
    }

    pub(super) fn drained(&self) -> Vec<NodeName> {
        self.drained.iter().cloned().collect()
    }

    /// A node that comes back after it was given back is anybody's again.
    pub(super) fn comes_back(&mut self, name: &NodeName, at: Timestamp) {
        if self.noticed.get(name).is_some_and(|by| *by <= at) {
            self.noticed.remove(name);
        }
    }

    pub(super) fn has_ended(&self, job: JobId) -> bool {
        self.ended.contains_key(&job)
    }
}

impl World {
    /// An end is for good, a cancel that was accepted ends in nothing else, what was acknowledged is kept, and a node that
    /// is held is held for a job that waits.
    pub(super) fn check_state(&mut self) {
        for job in self.state.jobs().values() {
            if let Some(end) = self.promises.ended.get(&job.id) {
                assert_eq!(job.state, *end, "{} had ended", job.id);
            } else if job.state.is_ended() {
                let canceled = matches!(job.state, JobState::Canceled { .. });
                let asked = self.promises.canceled.contains(&job.id);
                // A data job is canceled with the job that it makes data for, or once that one needs no more.
                let with_parent = job.makes_data_for.is_some_and(|parent| {
                    let ended = |parent: &Job| parent.state.is_ended();
                    self.promises.canceled.contains(&parent)
                        || self.state.job(parent).is_none_or(ended)
                });
                assert!(
                    canceled == asked || (canceled && with_parent),
                    "{} is {}",
                    job.id,
                    job.state.name()
                );
                self.promises.ended.insert(job.id, job.state.clone());
            }
            let kept = job
                .checkpoint
                .as_ref()
                .map(|kept| (kept.attempt, kept.step));
            let saved = self.promises.saved.get(&job.id).copied();
            assert_eq!(kept, saved, "{} goes on from its last checkpoint", job.id);
        }
        let newest = self.state.newest_job().map_or(0, |id| id.0);
        for id in (1..=newest).map(JobId) {
            if self.state.job(id).is_none() {
                // Forgotten within the event that ended it; its end was not seen.
                let at = self.at;
                let unseen = JobState::Canceled { at };
                self.promises.ended.entry(id).or_insert(unseen);
            }
        }
    }

    /// Once nothing more is decided the gate has been shut for no longer than it may, and over nothing that has recovered.
    pub(super) fn check_gate(&self) {
        let gate = self.state.gate();
        if *self.state.mode() != Mode::Deciding {
            return;
        }
        if let (Some(shut), Some(policy)) = (gate.shut(), gate.policy()) {
            assert!(policy.enabled && self.at < shut.until, "{gate:?}");
            let samples = self.state.numbers().samples(shut.number);
            let reading = samples.reading(shut.number).unwrap();
            assert!(samples.count() >= policy.samples_min, "{gate:?}");
            assert!(policy.is_over(shut.number, reading), "{gate:?}: {reading}");
        }
    }

    /// What is promised about actions, in their order.
    pub(super) fn check_decision(&mut self, decision: &Decision) {
        let deciding = *self.state.mode() == Mode::Deciding;
        let mut slots = self.state.slots().clone();
        let mut launched: Vec<(AttemptId, &Allocation)> = Vec::new();
        for action in &decision.actions {
            match action {
                Action::Launch {
                    attempt,
                    allocation,
                    terms,
                } => {
                    assert!(deciding, "{attempt} starts while nothing is decided");
                    self.check_launch(*attempt, allocation, terms, &launched);
                    self.check_holds(*attempt, allocation, terms, &mut slots);
                    launched.push((*attempt, allocation));
                }
                Action::Kill { attempt, .. } => {
                    let (at, grace) = self.promises.terminated[attempt];
                    assert!(
                        at.after(grace) <= self.at,
                        "{attempt} is killed within its grace"
                    );
                }
                Action::Yield {
                    attempt,
                    cause,
                    until,
                    ..
                } => {
                    let wait = until.since(self.at);
                    assert!(wait <= self.state.policy().checkpoint_wait_ms_max);
                    self.check_stop(*attempt, cause, decision);
                }
                Action::Terminate {
                    attempt,
                    cause,
                    kill_at,
                } => {
                    let grace = self.state.job(attempt.job).unwrap().spec.grace;
                    assert_eq!(*kill_at, self.at.after(grace));
                    self.check_stop(*attempt, cause, decision);
                    self.promises.terminated.insert(*attempt, (self.at, grace));
                }
                Action::Abandon { .. } | Action::Gate(_) => assert!(deciding),
                Action::PutAside { node, .. } => {
                    self.promises.drained.insert(node.clone());
                }
                Action::Reserve { job, slot } => {
                    slots.retain(|_, held| !slot.nodes.iter().any(|n| held.nodes.contains(n)));
                    slots.insert(*job, slot.clone());
                }
                Action::Unreserve { job } => {
                    slots.remove(job);
                }
                Action::Remedy { .. } | Action::Augment { .. } => assert!(deciding),
                Action::Settle { .. } | Action::Direct { .. } => (),
            }
        }
    }

    fn check_launch(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        terms: &Terms,
        launched: &[(AttemptId, &Allocation)],
    ) {
        let job = self.state.job(attempt.job).unwrap();
        assert!(
            !self.promises.on_hold.contains(&job.id),
            "{attempt} starts while its job is on hold"
        );
        assert!(
            !self.promises.canceled.contains(&job.id),
            "{attempt} starts after its job was canceled"
        );
        let due = |at: Option<Timestamp>| at.is_none_or(|at| at <= self.at);
        assert!(
            due(job.not_before) && due(job.spec.not_before),
            "{attempt} starts before it is due"
        );
        self.check_dependencies(attempt, &job.spec);
        self.check_whole(attempt, &job.spec, allocation, terms);
        for task in allocation.tasks.iter() {
            self.check_node(attempt, &task.node);
            let node = self.state.node(&task.node).unwrap();
            let promised = node
                .notices
                .iter()
                .filter_map(|notice| notice.gpus.as_ref());
            let promised: BTreeSet<&u32> = promised.flatten().collect();
            let free = |gpu: &u32| task.sliced || !promised.contains(gpu);
            assert!(
                task.gpus.iter().all(free),
                "{attempt} on a GPU that is to be given back"
            );
        }
        for (other, living) in &self.processes {
            assert!(
                other.job != attempt.job || living.is_gone(),
                "{attempt} starts while {other} lives"
            );
        }
        self.check_room(attempt, allocation, launched);
        self.check_limits(attempt, allocation, launched);
        self.check_throttle(attempt, launched);
    }

    fn check_dependencies(&self, attempt: AttemptId, spec: &JobSpec) {
        let job = |id: &JobId| self.state.job(*id);
        for first in spec.after.iter().filter_map(job) {
            let met = matches!(first.state, JobState::Succeeded { .. });
            assert!(met, "{attempt} before {} has succeeded", first.id);
        }
        for first in spec.after_any.iter().filter_map(job) {
            assert!(
                first.state.is_ended(),
                "{attempt} before {} ended",
                first.id
            );
        }
        for first in spec.after_start.iter().filter_map(job) {
            assert!(first.launches > 0, "{attempt} before {} started", first.id);
        }
    }

    /// Every role has exactly the GPUs that one of its shapes asks for, in equal tasks.
    fn check_whole(
        &self,
        attempt: AttemptId,
        spec: &JobSpec,
        allocation: &Allocation,
        terms: &Terms,
    ) {
        for (index, role) in spec.roles.iter().enumerate() {
            let chosen = terms.shapes.get(index).copied().unwrap_or(0);
            let shape = role.shapes().nth(chosen as usize).unwrap();
            let tasks = || {
                allocation
                    .tasks
                    .iter()
                    .filter(|task| task.role == role.name)
            };
            if tasks().any(|task| task.sliced) {
                // One slice stands for one GPU.
                assert!(tasks().map(|task| task.gpus.len()).eq([1]));
                continue;
            }
            let held: GpuAmount = tasks().map(TaskAllocation::gpu_amount).sum();
            assert_eq!(held, shape.gpus, "{attempt} is not whole");
            let first = tasks().next().unwrap().gpu_amount();
            assert!(tasks().all(|task| task.gpu_amount() == first));
            assert!(tasks().map(|task| task.index).eq(0..tasks().count() as u32));
            if let Tasks::Exactly(count) = shape.tasks {
                assert_eq!(tasks().count(), count as usize);
            }
            let nodes: BTreeSet<&NodeName> = tasks().map(|task| &task.node).collect();
            assert!(
                self.spans(&nodes) <= shape.span,
                "{attempt} is wider than {:?}: {nodes:?}",
                shape.span
            );
        }
    }

    /// The smallest span of some nodes.
    fn spans(&self, nodes: &BTreeSet<&NodeName>) -> Span {
        let places: Vec<&Location> = nodes
            .iter()
            .map(|name| &self.state.node(name).unwrap().spec.location)
            .collect();
        let same = |part: &dyn Fn(&Location) -> String| {
            places.windows(2).all(|two| part(two[0]) == part(two[1]))
        };
        if nodes.len() <= 1 {
            return Span::Node;
        }
        let domain = |place: &Location| place.nvlink_domain.clone();
        if same(&domain) && !places[0].nvlink_domain.is_empty() {
            return Span::NvlinkDomain;
        }
        let leaf = |place: &Location| format!("{}/{}", place.spine, place.leaf);
        if same(&leaf) {
            return Span::Leaf;
        }
        if same(&|place: &Location| place.spine.clone()) {
            return Span::Spine;
        }
        Span::Cluster
    }

    fn check_node(&self, attempt: AttemptId, name: &NodeName) {
        let offered = self.offered.iter().find(|node| node.name == *name);
        let offered = offered.unwrap_or_else(|| panic!("{attempt} on {name}, which is gone"));
        assert!(
            !self.promises.drained.contains(name),
            "{attempt} on drained {name}"
        );
        assert!(
            !self.promises.noticed.contains_key(name),
            "{attempt} on {name}, which is to be given back"
        );
        let window = self.promises.windows.iter().find(|window| {
            window.nodes.contains(name) && window.from <= self.at && self.at < window.until
        });
        assert!(window.is_none(), "{attempt} on {name}: {window:?}");
        if offered.spare {
            let missing = self.state.nodes().any(|node| {
                let here = node.spec.partition == offered.partition && !node.spec.spare;
                here && node.state != NodeState::Ready
            });
            assert!(missing, "{attempt} on the spare {name} with all others up");
        }
    }

    /// All that really runs, what this decision has started before and this together are no more than there is.
    fn check_room(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        launched: &[(AttemptId, &Allocation)],
    ) {
        let living = self.processes.values().filter(|living| !living.is_gone());
        let held = living.map(|living| &living.allocation);
        let held: Vec<&Allocation> = held.chain(launched.iter().map(|(_, held)| *held)).collect();
        let names: BTreeSet<&NodeName> = allocation.tasks.iter().map(|task| &task.node).collect();
        for name in names {
            let offered = self.offered.iter().find(|node| node.name == *name).unwrap();
            let mut room = Room::of(offered);
            let here = |task: &&TaskAllocation| task.node == *name;
            for task in held.iter().flat_map(|held| held.tasks.iter()).filter(here) {
                room.take(task);
            }
            for task in allocation.tasks.iter().filter(here) {
                let usable = |gpu: &u32| task.sliced || !room.is_lost_or_cut(*gpu);
                assert!(task.gpus.iter().all(usable), "{attempt} on a broken GPU");
                room.take(task);
            }
            let over = room.over();
            assert_eq!(over, None, "{attempt} on {name}: held twice");
        }
        let spec = |id: JobId| &self.state.job(id).unwrap().spec.resources;
        for (name, total) in &self.resources {
            let of = |resources: &BTreeMap<String, u64>| resources.get(name).copied().unwrap_or(0);
            let running = self.processes.values().filter(|living| !living.is_gone());
            let running: u64 = running.map(|living| of(&living.resources)).sum();
            let before: u64 = launched.iter().map(|(id, _)| of(spec(id.job))).sum();
            let own = of(spec(attempt.job));
            assert!(
                own == 0 || running + before + own <= *total,
                "{attempt}: `{name}` is held twice"
            );
        }
    }

    /// No team goes over its limit by a start, nor any that it is part of.
    fn check_limits(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        launched: &[(AttemptId, &Allocation)],
    ) {
        let team = &self.state.job(attempt.job).unwrap().spec.team;
        for name in self.chain(team) {
            let mut specs = self.state.teams().specs().iter();
            let Some(spec) = specs.find(|spec| spec.name == name) else {
                continue;
            };
            let inside = |other: &str| self.chain(other).contains(&name);
            let living = self.processes.values().filter(|living| !living.is_gone());
            let living = living.filter(|living: &&Living| inside(&living.team));
            let before = launched.iter().filter(|(other, _)| {
                let other = &self.state.job(other.job).unwrap().spec.team;
                inside(other)
            });
            let before = before.map(|(_, held)| *held);
            let held = living.map(|living| &living.allocation).chain(before);
            let held: Vec<&Allocation> = held.chain([allocation]).collect();
            let sum = |wanted: Option<&str>| -> GpuAmount {
                let tasks = held.iter().flat_map(|held| held.tasks.iter());
                tasks
                    .filter(|task| {
                        let node = self.state.node(&task.node).unwrap();
                        wanted.is_none_or(|wanted| node.spec.gpu_type == wanted)
                    })
                    .map(TaskAllocation::gpu_amount)
                    .sum()
            };
            let adds = |wanted: Option<&str>| {
                allocation.tasks.iter().any(|task| {
                    let node = self.state.node(&task.node).unwrap();
                    let typed = wanted.is_none_or(|wanted| node.spec.gpu_type == wanted);
                    typed && !task.gpu_amount().is_zero()
                })
            };
            if let Some(limit) = spec.limit.all.filter(|_| adds(None)) {
                assert!(sum(None) <= limit, "{attempt} takes {name} over {limit}");
            }
            for (gpu_type, limit) in &spec.limit.by_type {
                let over = adds(Some(gpu_type)) && sum(Some(gpu_type)) > *limit;
                assert!(!over, "{attempt} takes {name} over {limit} {gpu_type}");
            }
        }
    }

    /// No more jobs of an array run than may: those that were let in stay in.
    fn check_throttle(&self, attempt: AttemptId, launched: &[(AttemptId, &Allocation)]) {
        let job = self.state.job(attempt.job).unwrap();
        assert!(!job.throttled, "{attempt} is throttled");
        let twice = launched.iter().any(|(other, _)| other.job == attempt.job);
        assert!(!twice, "{attempt} starts twice");
    }

    /// Nobody starts on a node that is held for another of its class or above, unless it ends before that one's turn.
    fn check_holds(
        &self,
        attempt: AttemptId,
        allocation: &Allocation,
        terms: &Terms,
        slots: &mut BTreeMap<JobId, Slot>,
    ) {
        slots.remove(&attempt.job);
        let class = terms
            .class
            .unwrap_or(self.state.job(attempt.job).unwrap().spec.class);
        let on = |slot: &Slot| {
            // Nobody waits for whole GPUs on what is cut into slices.
            let mut tasks = allocation.tasks.iter().filter(|task| !task.sliced);
            tasks.any(|task| slot.nodes.contains(&task.node))
        };
        slots.retain(|holder, slot| {
            let in_time = matches!((terms.ends_by, slot.at), (Some(end), Some(at)) if end <= at);
            if !on(slot) || in_time {
                return true;
            }
            let holder_class = self.state.job(*holder).unwrap().spec.class;
            assert!(
                holder_class > class,
                "{attempt} starts on what is held for {holder}: {slot:?}"
            );
            false
        });
        for window in &self.promises.windows {
            let ahead = window.from > self.at;
            let here = allocation
                .tasks
                .iter()
                .any(|t| window.nodes.contains(&t.node));
            let in_time = terms.ends_by.is_some_and(|end| end <= window.from);
            assert!(
                !ahead || !here || in_time,
                "{attempt} runs into {window:?}: {:?}",
                terms.ends_by
            );
        }
    }

    /// A stop for another job's sake takes who has to give way, not too often, and that job then fits.
    fn check_stop(&mut self, attempt: AttemptId, cause: &StopCause, decision: &Decision) {
        let victim = self.state.job(attempt.job).unwrap();
        let (JobState::Starting { active } | JobState::Running { active }) = &victim.state else {
            return;
        };
        let now = self.at;
        let moved = self.promises.preempted.entry(victim.id).or_default();
        moved.retain(|at| at.after(HOUR) > now);
        let often = moved.len() >= self.state.policy().preemptions_per_hour_max as usize;
        match cause {
            StopCause::Priority { .. }
            | StopCause::Reclaim { .. }
            | StopCause::Turn { .. }
            | StopCause::Operator => {
                moved.push(now);
            }
            StopCause::Idle { .. }
            | StopCause::Drain { .. }
            | StopCause::Notice { .. }
            | StopCause::Cancel
            | StopCause::Hold
            | StopCause::Limit
            | StopCause::Straggler { .. }
            | StopCause::Hang
            | StopCause::Asked { .. }
            | StopCause::GangBroken { .. } => return,
        }
        let preemptor = match cause {
            StopCause::Priority { preemptor } => {
                let preemptor = self.state.job(*preemptor).unwrap();
                assert!(active.class > preemptor.spec.class, "{attempt} is no lower");
                assert!(!often, "{attempt} gives way too often");
                preemptor
            }
            StopCause::Reclaim { preemptor } => {
                let preemptor = self.state.job(*preemptor).unwrap();
                let JobState::Pending { since } = preemptor.state else {
                    panic!("{} is not waiting", preemptor.id)
                };
                let waited = now.since(since) >= self.state.policy().reclaim_wait_ms_max;
                assert!(!often || waited, "{attempt} gives way too often");
                assert!(active.class >= Class::Standard);
                preemptor
            }
            StopCause::Turn { preemptor } => {
                let preemptor = self.state.job(*preemptor).unwrap();
                assert_eq!(
                    preemptor.spec.team, victim.spec.team,
                    "{attempt} gives way to another team's turn"
                );
                assert_eq!(active.class, preemptor.spec.class);
                let saves = active.attached && victim.spec.checkpoint.is_some();
                assert!(saves, "{attempt} cannot save");
                assert!(!often, "{attempt} gives way too often");
                preemptor
            }
            _ => return,
        };
        assert_eq!(*self.state.mode(), Mode::Deciding);
        assert!(matches!(preemptor.state, JobState::Pending { .. }));
        let mut coming: Vec<AttemptId> = Vec::new();
        let mut taken = Vec::new();
        for action in &decision.actions {
            match action {
                Action::Yield { attempt, .. } | Action::Terminate { attempt, .. } => {
                    coming.push(*attempt);
                }
                Action::Launch { allocation, .. } => taken.push(allocation),
                _ => (),
            }
        }
        let freed: Vec<&Allocation> = self
            .state
            .active_jobs()
            .filter_map(|job| {
                let active = job.state.active()?;
                let stopping = matches!(job.state, JobState::Stopping { .. });
                (stopping || coming.contains(&active.attempt)).then_some(&active.allocation)
            })
            .collect();
        assert!(
            fits(&self.state, &preemptor.spec, &freed, &taken),
            "{attempt} gives way to {} in vain",
            preemptor.id
        );
    }

    /// The timer wakes for everything that time alone brings about, and never for what is over.
    pub(super) fn check_timer(&self) {
        let wake = self.wake_at.unwrap_or(Timestamp::from_millis(u64::MAX));
        assert!(wake > self.at, "a timer that fires at once, and again");
        for job in self.state.jobs().values() {
            let due = job.not_before.filter(|due| *due > self.at);
            assert!(
                !job.is_ready()
                    || job.throttled
                    || job.is_gated()
                    || !matches!(job.state, JobState::Pending { .. })
                    || due.is_none_or(|due| wake <= due),
                "nobody wakes for the retry of {}",
                job.id
            );
        }
        for job in self.state.active_jobs() {
            if let (JobState::Running { active }, Some(limit)) = (&job.state, job.spec.time_limit) {
                let over = active.started.unwrap().after(limit);
                assert!(wake <= over, "nobody wakes for the limit of {}", job.id);
            }
            let JobState::Stopping { phase, .. } = &job.state else {
                continue;
            };
            let next = match phase {
                // Who has saved may leave by himself, even if he did so at the last moment.
                StopPhase::CheckpointWait {
                    saved_at, until, ..
                } => saved_at.map_or(*until, |at| at.after(LEAVE)),
                StopPhase::Grace { kill_at } => *kill_at,
                StopPhase::Killed => continue,
            };
            assert!(wake <= next, "nobody wakes for the clock of {}", job.id);
        }
        let windows = self.state.maintenance().iter();
        for at in windows.flat_map(|window| [window.from, window.until]) {
            assert!(at <= self.at || wake <= at, "nobody wakes for maintenance");
        }
    }
}
