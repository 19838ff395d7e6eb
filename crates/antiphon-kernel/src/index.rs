//! What follows from the stored state, kept so that a cycle need not look at everything: who waits, whose clock runs, what
//! is free. Rebuilt when a state is read, and compared with a rebuild in tests.

use std::collections::{BTreeMap, BTreeSet};

use antiphon_types::{
    Allocation, Class, GpuAmount, JobId, Maintenance, Millis, NodeName, NodeSpec, Slot, Timestamp,
};

use crate::capacity::{Capacity, Hold, NodeId};
use crate::jobs::{Active, DeadlineRecord, Job, JobState, StopPhase};
use crate::queue::{Key, Queue};
use crate::share::Used;
use crate::stake::Stake;
use crate::state::{Known, Mode, Node};
use crate::stop::waits_until;
use crate::table::Table;
use crate::teams::{Holdings, TeamId};

/// What follows from the stored state.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    pub(crate) node_ids: BTreeMap<NodeName, NodeId>,
    /// By node.
    pub(crate) node_names: Vec<NodeName>,
    pub(crate) capacity: Capacity,
    /// By node, in order of job and task.
    tenants: Vec<Vec<Tenant>>,
    /// By node: when the last of its tenants is gone.
    empty_by: Vec<Timestamp>,
    /// Nodes with failures that count against them.
    pub(crate) suspects: BTreeSet<NodeId>,
    /// Nodes of which something is to be given back.
    pub(crate) noticed: BTreeSet<NodeId>,
    /// What teams hold, their parts included.
    pub(crate) holdings: Holdings,
    /// What they have used, older hours counting less.
    pub(crate) used: Used,
    /// What running attempts have at stake.
    pub(crate) stakes: Table<Stake>,
    /// Those that may be left alone for a while.
    guarded: BTreeSet<JobId>,
    /// Those that take turns with waiting jobs, by class and team.
    turns: BTreeMap<(Class, TeamId), BTreeSet<JobId>>,
    /// Those that run slower than they could, by class.
    slow: BTreeMap<Class, BTreeSet<JobId>>,
    /// Running attempts by the class that they run as.
    pub(crate) running_by_class: [u32; 4],
    /// Pending jobs that could start.
    pub(crate) queue: Queue,
    /// Pending jobs that wait for a time, by that time.
    pub(crate) backoff: BTreeSet<(Timestamp, JobId)>,
    /// Jobs in the queue by the time at which they have waited past their class's bound.
    pub(crate) promotions: BTreeSet<(Timestamp, JobId)>,
    /// Jobs that have, and wait for another of their team and class to start.
    pub(crate) overdue: BTreeMap<(Class, TeamId), BTreeSet<(Timestamp, JobId)>>,
    /// The job of a team and class that stands in front, if one does.
    pub(crate) promoted: BTreeMap<(Class, TeamId), JobId>,
    /// Pending and held jobs that the gate keeps back.
    pub(crate) gated: BTreeSet<JobId>,
    /// Pending jobs with a dependency that never will succeed.
    pub(crate) dead: BTreeSet<JobId>,
    /// Jobs that hold an allocation.
    pub(crate) active: BTreeSet<JobId>,
    /// Attempts that have something to be decided about: ended, broken, or asked to stop.
    pub(crate) stirred: BTreeSet<JobId>,
    /// Attempts by the time at which a clock of theirs runs out.
    pub(crate) clocks: BTreeSet<(Timestamp, JobId)>,
    /// Running attempts by the time at which nine of ten like them have ended.
    pub(crate) ends: BTreeSet<(Timestamp, JobId)>,
    /// Attempts on their way out.
    pub(crate) stopping: BTreeSet<JobId>,
    /// Running jobs by the time from which something is to be done about a finding or a data job of theirs.
    pub(crate) findings: BTreeSet<(Timestamp, JobId)>,
    /// Names of jobs that have not ended, by team.
    names: BTreeMap<TeamId, BTreeMap<String, JobId>>,
    /// Jobs with a deadline that counts, by team and deadline.
    pub(crate) deadlines: BTreeSet<(TeamId, Timestamp, JobId)>,
    /// Members of arrays that wait until another has ended, by array.
    pub(crate) throttled: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Members of arrays that are neither ended nor throttled, by array.
    pub(crate) unthrottled: BTreeMap<JobId, u32>,
}

/// What one task holds of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tenant {
    pub(crate) job: JobId,
    /// Its place in the attempt's allocation.
    pub(crate) task: u32,
    /// GPUs that are not free whole because of it.
    pub(crate) gpus: u32,
    /// When it will be gone, as far as anybody may build on that; the end of time where nothing says so.
    pub(crate) gone_by: Timestamp,
}

/// When nobody knows.
pub(crate) const NEVER: Timestamp = Timestamp::from_millis(u64::MAX);

/// Where a job stands in the indexes: what follows from the job and the settings alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Membership {
    named: bool,
    deadline: Option<Timestamp>,
    array: Option<(JobId, bool)>,
    queue: Option<(Class, TeamId, Key)>,
    age: Option<Age>,
    backoff: Option<Timestamp>,
    dead: bool,
    gated: bool,
    active: bool,
    stopping: bool,
    stirred: bool,
    findings: Option<Timestamp>,
    runs_as: Option<Class>,
    ends: Option<Timestamp>,
    clocks: [Option<Timestamp>; 2],
}

/// How a job in the queue ages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Age {
    /// It has not waited past its class's bound.
    Young { due: Timestamp },
    /// It has, and another of its team and class stands in front.
    Overdue { of: (Class, TeamId), due: Timestamp },
    /// It stands in front.
    Promoted { of: (Class, TeamId) },
}

impl Membership {
    pub(crate) fn of(known: &Known, job: &Job) -> Self {
        let mut here = Self::default();
        if !job.state.is_ended() {
            here.named = true;
            let counts = job.deadline == Some(DeadlineRecord::Admitted);
            here.deadline = job.spec.deadline.filter(|_| counts);
            here.array = job.array.map(|member| (member.first, job.throttled));
            here.gated = job.is_gated();
        }
        match &job.state {
            JobState::Pending { since } => here.waits(known, job, *since),
            JobState::Starting { active } | JobState::Running { active } => {
                here.active = true;
                here.runs_as = Some(active.class);
                here.stirred = is_stirred(job, active);
                here.findings = job.steering.due(known, job);
                here.ends = active.terms.ends_by;
                here.clocks = [ends_by_limit(job, active), idle_until(known, job)];
            }
            JobState::Stopping { active, phase, .. } => {
                here.active = true;
                here.stopping = true;
                here.stirred = is_stirred(job, active);
                here.clocks[0] = match phase {
                    StopPhase::CheckpointWait { .. } | StopPhase::Grace { .. } => {
                        Some(waits_until(phase))
                    }
                    StopPhase::Killed => None,
                };
            }
            JobState::Held { .. }
            | JobState::Succeeded { .. }
            | JobState::Failed { .. }
            | JobState::Canceled { .. } => (),
        }
        here
    }

    /// Whether it runs and is not on its way out.
    pub(crate) const fn runs(&self) -> bool {
        self.runs_as.is_some()
    }

    /// Whether it could start.
    pub(crate) const fn stands_in_queue(&self) -> bool {
        self.queue.is_some()
    }

    fn waits(&mut self, known: &Known, job: &Job, since: Timestamp) {
        if job.dead_dependency.is_some() {
            self.dead = true;
        } else if job.is_ready() && !job.throttled && !job.is_gated() {
            self.backoff = job.not_before;
            if self.backoff.is_some() {
                return;
            }
            let of = (job.spec.class, job.team);
            self.queue = Some((of.0, of.1, Key::of(job)));
            let due = since.after(known.policy.promote_after_ms.of(job.spec.class));
            self.age = Some(match (job.promoted, job.overdue) {
                (Some(_), _) => Age::Promoted { of },
                (None, true) => Age::Overdue { of, due },
                (None, false) => Age::Young { due },
            });
        }
    }
}

fn flag(set: &mut BTreeSet<JobId>, id: JobId, before: bool, after: bool) {
    match (before, after) {
        (true, false) => {
            set.remove(&id);
        }
        (false, true) => {
            set.insert(id);
        }
        (true, true) | (false, false) => (),
    }
}

fn timer(
    set: &mut BTreeSet<(Timestamp, JobId)>,
    id: JobId,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
) {
    if before != after {
        before.map(|at| set.remove(&(at, id)));
        after.map(|at| set.insert((at, id)));
    }
}

impl Index {
    /// Builds it from what is stored.
    pub(crate) fn of(known: &Known) -> Self {
        let mut index = Self {
            used: Used::of(known),
            ..Self::default()
        };
        let active = known.jobs.values();
        let active: Vec<&Job> = active.filter(|job| job.state.active().is_some()).collect();
        index.place_nodes(known, &active);
        for job in known.jobs.values() {
            index.enter(known, job);
            index.stake(known, job);
        }
        index
    }

    /// Takes in that nodes, partitions or shared resources have changed. Who waits and whose clock runs follows from none
    /// of them: a node that comes and goes costs nothing by the depth of the queue.
    pub(crate) fn renew_nodes(&mut self, known: &Known) {
        let active: Vec<&Job> = self.active.iter().map(|id| &known.jobs[id]).collect();
        self.place_nodes(known, &active);
    }

    /// Takes in that settings or teams have changed: all but the queue may follow from those, and the queue is the dearest
    /// to build.
    pub(crate) fn renew_settings(&mut self, known: &Known) {
        let mut index = Self {
            queue: std::mem::take(&mut self.queue),
            used: Used::of(known),
            ..Self::default()
        };
        let active: Vec<&Job> = self.active.iter().map(|id| &known.jobs[id]).collect();
        index.place_nodes(known, &active);
        for job in known.jobs.values() {
            let after = Membership::of(known, job);
            let before = Membership {
                queue: after.queue,
                ..Membership::default()
            };
            index.move_job(job, &before, &after);
            index.stake(known, job);
        }
        *self = index;
    }

    /// Places every node, what attempts hold of it and for whom it is kept, whatever was placed before.
    fn place_nodes(&mut self, known: &Known, active: &[&Job]) {
        let specs: Vec<_> = known.nodes.iter().map(to_offer).collect();
        self.capacity = Capacity::build(&specs, &known.partitions, &resources(known, active));
        self.node_names = specs.into_iter().map(|spec| spec.name).collect();
        let ids = (0..).zip(&self.node_names);
        self.node_ids = ids.map(|(id, name)| (name.clone(), id)).collect();
        self.tenants = vec![Vec::new(); self.node_names.len()];
        self.empty_by = vec![Timestamp::ZERO; self.node_names.len()];
        self.suspects.clear();
        self.noticed.clear();
        self.holdings = Holdings::default();
        for (id, node) in (0..).zip(&known.nodes) {
            if !node.failures.is_empty() {
                self.suspects.insert(id);
            }
            if !node.notices.is_empty() {
                self.noticed.insert(id);
            }
            if !node.is_in_service() {
                self.capacity.close(id);
            }
        }
        for job in active {
            let active = job.state.active().expect("it holds an allocation");
            self.occupy(known, job, active);
        }
        self.hold_all(known);
    }

    /// Holds back what slots and maintenance need.
    fn hold_all(&mut self, known: &Known) {
        for (job, slot) in &known.slots {
            self.hold_slot(known, *job, slot);
        }
        for window in &known.maintenance {
            for node in &window.nodes {
                self.plan_maintenance(known, *node_id(&self.node_ids, node));
            }
        }
    }

    /// Lets a node's plans count: closed within one, held until the next.
    pub(crate) fn plan_maintenance(&mut self, known: &Known, node: NodeId) {
        if is_closed(known, &self.node_names[place(node)]) {
            self.capacity.close(node);
        } else if known.nodes[place(node)].is_in_service() {
            self.capacity.open(node);
        }
        let holder = self.holder(node).map(|job| (job, &known.slots[&job]));
        self.hold_anew(known, node, holder);
    }

    /// The job whose slot a node is part of.
    pub(crate) fn holder(&self, node: NodeId) -> Option<JobId> {
        self.capacity.hold_on(node)?.job
    }

    /// Holds a node for whom its slot is, and until it goes out of service.
    fn hold_anew(&mut self, known: &Known, node: NodeId, holder: Option<(JobId, &Slot)>) {
        let name = &self.node_names[place(node)];
        let closes = windows(known, name).map(|window| window.from).min();
        let closes = closes.filter(|_| !is_closed(known, name));
        let slot = holder.map(|(job, slot)| Hold {
            job: Some(job),
            class: known.jobs[&job].spec.class,
            at: slot.at,
            closes,
        });
        match slot.or(closes.map(Hold::until)) {
            Some(hold) => self.capacity.hold(node, hold),
            None => self.capacity.unhold(node),
        }
    }

    /// Holds the nodes of a slot, which is nobody else's.
    pub(crate) fn hold_slot(&mut self, known: &Known, job: JobId, slot: &Slot) {
        for node in &slot.nodes {
            let id = *node_id(&self.node_ids, node);
            self.hold_anew(known, id, Some((job, slot)));
        }
    }

    /// Holds the nodes of a slot that has ended for nobody.
    pub(crate) fn release_slot(&mut self, known: &Known, slot: &Slot) {
        for node in &slot.nodes {
            let id = *node_id(&self.node_ids, node);
            self.hold_anew(known, id, None);
        }
    }

    /// Takes what an attempt holds.
    pub(crate) fn occupy(&mut self, known: &Known, job: &Job, active: &Active) {
        self.capacity.take_gang(&active.nodes, &active.allocation);
        self.capacity.take_resources(&job.spec.resources);
        let gone_by = gone_by(job);
        for (task, node) in (0..).zip(&active.nodes) {
            let tenants = &mut self.tenants[place(*node)];
            let held = &active.allocation.tasks[place(task)];
            let tenant = Tenant {
                job: job.id,
                task,
                gpus: u32::try_from(held.gpus.len()).expect("few GPUs"),
                gone_by,
            };
            // In order, so that a rebuilt index is the same.
            let position = tenants.partition_point(|other| *other < tenant);
            tenants.insert(position, tenant);
            let empty_by = &mut self.empty_by[place(*node)];
            *empty_by = (*empty_by).max(gone_by);
        }
        for (gpu_type, amount) in by_type(known, active) {
            let urgent = active.class <= Class::Production;
            self.holdings
                .add(&known.teams, job.team, gpu_type, amount, urgent);
        }
    }

    /// Gives back what an attempt held.
    pub(crate) fn vacate(&mut self, known: &Known, job: &Job, active: &Active) {
        self.capacity
            .give_back_gang(&active.nodes, &active.allocation);
        self.capacity.give_back_resources(&job.spec.resources);
        for node in &active.nodes {
            self.tenants[place(*node)].retain(|tenant| tenant.job != job.id);
            self.sum_up(*node);
        }
        for (gpu_type, amount) in by_type(known, active) {
            let urgent = active.class <= Class::Production;
            self.holdings
                .remove(&known.teams, job.team, gpu_type, amount, urgent);
        }
    }

    /// Notes when an attempt will be gone, after its word on that has changed.
    pub(crate) fn retime(&mut self, job: &Job) {
        let Some(active) = job.state.active() else {
            return;
        };
        let gone_by = gone_by(job);
        for node in &active.nodes {
            for tenant in &mut self.tenants[place(*node)] {
                if tenant.job == job.id {
                    tenant.gone_by = gone_by;
                }
            }
            self.sum_up(*node);
        }
    }

    /// Notes what an attempt has at stake, after anything of that has changed.
    pub(crate) fn stake(&mut self, known: &Known, job: &Job) {
        let after = Stake::of(known, job);
        let before = match after {
            Some(stake) => self.stakes.insert(job.id, stake),
            None => self.stakes.remove(job.id),
        };
        let guarded = |stake: Option<Stake>| stake.is_some_and(|stake| stake.is_guarded());
        flag(&mut self.guarded, job.id, guarded(before), guarded(after));
        let turns = |stake: Option<Stake>| stake.and_then(|stake| stake.takes_turns());
        regroup(&mut self.turns, job.id, turns(before), turns(after));
        let slow = |stake: Option<Stake>| stake.and_then(|stake| stake.is_slow());
        regroup(&mut self.slow, job.id, slow(before), slow(after));
    }

    /// What all runs have at stake, the oldest job first. Their table has places for all jobs between the oldest and the newest:
    /// whoever wants all of them goes by the jobs that run.
    pub(crate) fn all_stakes(&self) -> impl Iterator<Item = &Stake> {
        self.active.iter().filter_map(|id| self.stakes.get(*id))
    }

    /// What those have at stake that may be left alone for a while.
    pub(crate) fn guarded_stakes(&self) -> impl Iterator<Item = &Stake> {
        self.guarded.iter().filter_map(|id| self.stakes.get(*id))
    }

    /// What the runs of a class and team have at stake that take turns with waiting jobs.
    pub(crate) fn turns(&self, class: Class, team: TeamId) -> impl Iterator<Item = &Stake> {
        let runs = self.turns.get(&(class, team)).into_iter().flatten();
        runs.filter_map(|id| self.stakes.get(*id))
    }

    /// What the runs of a class have at stake that are slower than they could be.
    pub(crate) fn slow(&self, class: Class) -> impl Iterator<Item = &Stake> {
        let runs = self.slow.get(&class).into_iter().flatten();
        runs.filter_map(|id| self.stakes.get(*id))
    }

    /// Whether any run is slower than it could be.
    pub(crate) fn any_is_slow(&self) -> bool {
        !self.slow.is_empty()
    }

    fn sum_up(&mut self, node: NodeId) {
        let last = self.tenants[place(node)].iter().map(|t| t.gone_by).max();
        self.empty_by[place(node)] = last.unwrap_or(Timestamp::ZERO);
    }

    /// The nodes of an allocation, by task; nothing where one is in no inventory. Gangs take neighbors, so the next node is
    /// most often the one after the last.
    pub(crate) fn nodes_of(&self, allocation: &Allocation) -> Option<Vec<NodeId>> {
        let mut nodes: Vec<NodeId> = Vec::with_capacity(allocation.tasks.len());
        for task in allocation.tasks.iter() {
            let is_named = |id: &NodeId| self.node_names.get(place(*id)) == Some(&task.node);
            let last = nodes.last().copied();
            let near = last.into_iter().flat_map(|last| [last, last + 1]);
            let found = near.into_iter().find(is_named);
            nodes.push(match found {
                Some(id) => id,
                None => *self.node_ids.get(&task.node)?,
            });
        }
        Some(nodes)
    }

    pub(crate) fn tenants_of(&self, node: NodeId) -> &[Tenant] {
        &self.tenants[place(node)]
    }

    /// When the last tenant of a node is gone.
    pub(crate) fn empty_by(&self, node: NodeId) -> Timestamp {
        self.empty_by[place(node)]
    }

    /// Puts a job wherever it belongs.
    pub(crate) fn enter(&mut self, known: &Known, job: &Job) {
        self.move_job(job, &Membership::default(), &Membership::of(known, job));
    }

    /// Takes a job out of wherever it stands.
    pub(crate) fn leave(&mut self, known: &Known, job: &Job) {
        self.move_job(job, &Membership::of(known, job), &Membership::default());
    }

    /// Moves a job from where it stood to where it belongs; what stays the same is not touched.
    pub(crate) fn move_job(&mut self, job: &Job, before: &Membership, after: &Membership) {
        let id = job.id;
        if before == after {
            return;
        }
        if before.named != after.named {
            let names = self.names.entry(job.team).or_default();
            if after.named {
                names.insert(job.spec.name.clone(), id);
            } else {
                names.remove(&job.spec.name);
            }
            if names.is_empty() {
                self.names.remove(&job.team);
            }
        }
        if before.deadline != after.deadline {
            if let Some(deadline) = before.deadline {
                self.deadlines.remove(&(job.team, deadline, id));
            }
            if let Some(deadline) = after.deadline {
                self.deadlines.insert((job.team, deadline, id));
            }
        }
        if before.array != after.array {
            self.move_in_array(id, before.array, after.array);
        }
        if before.queue != after.queue {
            if before.queue.is_some() {
                self.queue.leave(id);
            }
            if after.queue.is_some() {
                self.queue.enter(job);
            }
        }
        if before.age != after.age {
            self.leave_age(id, before.age);
            self.enter_age(id, after.age);
        }
        if before.runs_as != after.runs_as {
            if let Some(class) = before.runs_as {
                self.running_by_class[class_index(class)] -= 1;
            }
            if let Some(class) = after.runs_as {
                self.running_by_class[class_index(class)] += 1;
            }
        }
        flag(&mut self.dead, id, before.dead, after.dead);
        flag(&mut self.gated, id, before.gated, after.gated);
        flag(&mut self.active, id, before.active, after.active);
        flag(&mut self.stopping, id, before.stopping, after.stopping);
        flag(&mut self.stirred, id, before.stirred, after.stirred);
        timer(&mut self.backoff, id, before.backoff, after.backoff);
        timer(&mut self.ends, id, before.ends, after.ends);
        timer(&mut self.findings, id, before.findings, after.findings);
        // Two clocks of one attempt may run out at once: both out before either comes in.
        for at in before.clocks.into_iter().flatten() {
            self.clocks.remove(&(at, id));
        }
        self.clocks
            .extend(after.clocks.into_iter().flatten().map(|at| (at, id)));
    }

    fn move_in_array(
        &mut self,
        id: JobId,
        before: Option<(JobId, bool)>,
        after: Option<(JobId, bool)>,
    ) {
        match before {
            Some((first, true)) => remove_from(&mut self.throttled, first, &id),
            Some((first, false)) => {
                let count = self.unthrottled.entry(first).or_default();
                *count -= 1;
                if *count == 0 {
                    self.unthrottled.remove(&first);
                }
            }
            None => (),
        }
        match after {
            Some((first, true)) => {
                self.throttled.entry(first).or_default().insert(id);
            }
            Some((first, false)) => *self.unthrottled.entry(first).or_default() += 1,
            None => (),
        }
    }

    fn leave_age(&mut self, id: JobId, age: Option<Age>) {
        match age {
            Some(Age::Young { due }) => {
                self.promotions.remove(&(due, id));
            }
            Some(Age::Overdue { of, due }) => remove_from(&mut self.overdue, of, &(due, id)),
            Some(Age::Promoted { of }) => {
                self.promoted.remove(&of);
            }
            None => (),
        }
    }

    fn enter_age(&mut self, id: JobId, age: Option<Age>) {
        match age {
            Some(Age::Young { due }) => {
                self.promotions.insert((due, id));
            }
            Some(Age::Overdue { of, due }) => {
                self.overdue.entry(of).or_default().insert((due, id));
            }
            Some(Age::Promoted { of }) => {
                self.promoted.insert(of, id);
            }
            None => (),
        }
    }

    /// The job of a team with this name that has not ended.
    pub(crate) fn named(&self, team: TeamId, name: &str) -> Option<JobId> {
        self.names.get(&team)?.get(name).copied()
    }

    /// Names the parts that differ from another's: for a check that fails.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let parts = [
            ("node_ids", self.node_ids == other.node_ids),
            ("node_names", self.node_names == other.node_names),
            ("tenants", self.tenants == other.tenants),
            ("empty_by", self.empty_by == other.empty_by),
            ("suspects", self.suspects == other.suspects),
            ("noticed", self.noticed == other.noticed),
            ("holdings", self.holdings == other.holdings),
            ("used", self.used == other.used),
            ("stakes", self.stakes == other.stakes),
            ("guarded", self.guarded == other.guarded),
            ("turns", self.turns == other.turns),
            ("slow", self.slow == other.slow),
            (
                "running_by_class",
                self.running_by_class == other.running_by_class,
            ),
            ("queue", self.queue == other.queue),
            ("backoff", self.backoff == other.backoff),
            ("promotions", self.promotions == other.promotions),
            ("overdue", self.overdue == other.overdue),
            ("promoted", self.promoted == other.promoted),
            ("dead", self.dead == other.dead),
            ("gated", self.gated == other.gated),
            ("active", self.active == other.active),
            ("stirred", self.stirred == other.stirred),
            ("clocks", self.clocks == other.clocks),
            ("ends", self.ends == other.ends),
            ("stopping", self.stopping == other.stopping),
            ("findings", self.findings == other.findings),
            ("names", self.names == other.names),
            ("deadlines", self.deadlines == other.deadlines),
            ("throttled", self.throttled == other.throttled),
            ("unthrottled", self.unthrottled == other.unthrottled),
        ];
        let differ = parts.into_iter().filter(|(_, same)| !same);
        differ.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
    }

    /// Whether any attempt runs as a class below `class`.
    pub(crate) fn runs_below(&self, class: Class) -> bool {
        let below = self.running_by_class.iter().skip(class_index(class) + 1);
        below.sum::<u32>() > 0
    }

    /// Whether anything runs as a class.
    pub(crate) fn runs_as(&self, class: Class) -> bool {
        self.running_by_class[class_index(class)] > 0
    }

    /// The next time at which the clock alone changes something.
    pub(crate) fn next_timer(&self, known: &Known) -> Option<Timestamp> {
        let queue_waits = self.queue.len() > 0 && known.mode == Mode::Deciding;
        let first = |set: &BTreeSet<(Timestamp, JobId)>| set.first().map(|(at, _)| *at);
        let windows = known
            .maintenance
            .iter()
            .flat_map(|window| [window.from, window.until])
            .filter(|at| *at > known.now);
        // What is due already waits for something else to happen.
        let soon = (known.now.after(Millis::from_millis(1)), JobId(0));
        let from_now =
            |set: &BTreeSet<(Timestamp, JobId)>| set.range(soon..).next().map(|(at, _)| *at);
        let findings = self.findings.range(soon..).next().map(|(at, _)| *at);
        [
            findings.filter(|_| known.mode == Mode::Deciding),
            from_now(&self.clocks),
            first(&self.backoff),
            first(&self.promotions).filter(|_| queue_waits),
            // Who runs over matters only to those who wait for it.
            first(&self.ends).filter(|_| queue_waits),
        ]
        .into_iter()
        .flatten()
        .chain(windows)
        .chain(crate::gate::next_timer(known))
        .min()
    }
}

/// A node as jobs may have it: GPUs that are to be given back are handed out no more, like broken ones.
fn to_offer(node: &Node) -> NodeSpec {
    let mut spec = node.spec.clone();
    let given_back = (0..spec.gpus).filter(|gpu| node.gives_back(*gpu));
    let mut lost: BTreeSet<u32> = spec.gpus_lost.iter().copied().collect();
    lost.extend(given_back);
    spec.gpus_lost = lost.into_iter().collect();
    spec
}

/// What is planned for a node.
fn windows<'a>(known: &'a Known, node: &'a NodeName) -> impl Iterator<Item = &'a Maintenance> {
    let planned = known.maintenance.iter();
    planned.filter(move |window| window.nodes.contains(node) && window.until > known.now)
}

fn is_closed(known: &Known, node: &NodeName) -> bool {
    windows(known, node).any(|window| window.from <= known.now)
}

/// GPUs that an attempt holds, by type.
pub(crate) fn by_type<'a>(
    known: &'a Known,
    active: &'a Active,
) -> impl Iterator<Item = (&'a str, GpuAmount)> {
    let mut amounts: Vec<(&str, GpuAmount)> = Vec::new();
    for (task, node) in active.allocation.tasks.iter().zip(&active.nodes) {
        let amount = task.gpu_amount();
        if amount.is_zero() {
            continue;
        }
        let gpu_type = known.nodes[place(*node)].spec.gpu_type.as_str();
        match amounts.last_mut() {
            Some((last, sum)) if *last == gpu_type => *sum = *sum + amount,
            Some(_) | None => amounts.push((gpu_type, amount)),
        }
    }
    amounts.into_iter()
}

/// Resources that belong to no node: at least what attempts hold of them, should there be less now.
fn resources(known: &Known, active: &[&Job]) -> BTreeMap<String, u64> {
    let mut held: BTreeMap<&String, u64> = BTreeMap::new();
    for job in active {
        for (name, amount) in &job.spec.resources {
            *held.entry(name).or_default() += amount;
        }
    }
    let mut resources = known.resources.clone();
    for (name, held) in held {
        let total = resources.entry(name.clone()).or_default();
        *total = (*total).max(held);
    }
    resources
}

/// When an attempt will be gone, as far as anybody may build on that.
pub(crate) fn gone_by(job: &Job) -> Timestamp {
    match &job.state {
        JobState::Starting { active } | JobState::Running { active } => {
            active.terms.ends_by.unwrap_or(NEVER)
        }
        JobState::Stopping { active, phase, .. } => match phase {
            StopPhase::CheckpointWait { .. } => waits_until(phase).after(job.spec.grace),
            StopPhase::Grace { kill_at } => *kill_at,
            StopPhase::Killed => active.launched,
        },
        JobState::Pending { .. }
        | JobState::Held { .. }
        | JobState::Succeeded { .. }
        | JobState::Failed { .. }
        | JobState::Canceled { .. } => Timestamp::ZERO,
    }
}

/// Whether something has to be decided about an attempt now.
fn is_stirred(job: &Job, active: &Active) -> bool {
    job.requested.is_some() || active.broken.is_some() || active.is_over()
}

fn ends_by_limit(job: &Job, active: &Active) -> Option<Timestamp> {
    Some(active.started?.after(job.spec.time_limit?))
}

/// When an idle attempt is taken back.
pub(crate) fn idle_until(known: &Known, job: &Job) -> Option<Timestamp> {
    let after = known.policy.idle_reclaim_after_ms?;
    Some(job.idle?.since.after(after))
}

fn regroup<K: Ord + Copy>(
    groups: &mut BTreeMap<K, BTreeSet<JobId>>,
    id: JobId,
    before: Option<K>,
    after: Option<K>,
) {
    if before != after {
        if let Some(group) = before {
            remove_from(groups, group, &id);
        }
        if let Some(group) = after {
            groups.entry(group).or_default().insert(id);
        }
    }
}

fn remove_from<K: Ord, V: Ord>(sets: &mut BTreeMap<K, BTreeSet<V>>, of: K, value: &V) {
    if let Some(set) = sets.get_mut(&of) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(&of);
        }
    }
}

fn node_id<'a>(ids: &'a BTreeMap<NodeName, NodeId>, name: &NodeName) -> &'a NodeId {
    ids.get(name)
        .unwrap_or_else(|| panic!("node {name} is in no inventory before"))
}

const fn class_index(class: Class) -> usize {
    match class {
        Class::Service => 0,
        Class::Production => 1,
        Class::Standard => 2,
        Class::BestEffort => 3,
    }
}

pub(crate) fn place(node: NodeId) -> usize {
    usize::try_from(node).expect("few nodes")
}
