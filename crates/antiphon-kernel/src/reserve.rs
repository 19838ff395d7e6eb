//! What is held back for the first blocked jobs of a class: the nodes on which each can start soonest, and when. Others may
//! run there in front of it only if they end before.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use antiphon_types::{
    Action, Bytes, Class, GpuAmount, JobId, NodeName, Shape, Slot, SlotReason, TaskAllocation,
    Timestamp,
};

use crate::capacity::{Capacity, Hold, Kind, NodeId, Size};
use crate::index::NEVER;
use crate::jobs::Job;
use crate::order::{Cycle, Turn};
use crate::place::{is_sliced, kinds_for, needs, place, splits, tasks_in_one};
use crate::queue::Key;

/// Blocked jobs that are looked at in one cycle: most have a slot already, so that few are.
const LOOKS_MAX: u32 = 64;

/// Slots that are worked out in one cycle: each looks at every node.
const PLANS_MAX: u32 = 4;

impl<'a> Cycle<'a> {
    /// Holds nodes back for the first blocked jobs of a class that have none.
    pub(crate) fn reserve(&mut self, class: Class) {
        let max = usize::try_from(self.state.policy.reservations_per_class_max);
        let max = max.unwrap_or(usize::MAX);
        let mut plans = PLANS_MAX;
        self.renew(class, &mut plans);
        let mut reserved = self.reserved(class);
        let mut blocked = self.blocked(class);
        let turns = self.all_take_turns(class);
        for _ in 0..LOOKS_MAX {
            if plans == 0 {
                self.left_over |= reserved.len() < max;
                return;
            }
            let Some(job) = blocked.next(self) else {
                return;
            };
            if self.slots.contains_key(&job.id) {
                continue;
            }
            if turns && self.is_patient(job) {
                return;
            }
            // Whose claim is behind gives up what is held for it. A shorter job of equal claim has to fit in front:
            // else a wide gang would never land.
            let turn = self.turn(job.team, &Key::of(job));
            let later = |other: &Turn| (other.0, other.1) > (turn.0, turn.1);
            let behind = reserved.iter().filter(|(other, _)| later(other));
            let behind: BTreeSet<JobId> = behind.map(|(_, id)| *id).collect();
            let full = reserved.len() >= max;
            if full && behind.is_empty() {
                return;
            }
            if self.barred(job, class).is_err() {
                // What its own team holds keeps it, and no node held back would help.
                blocked.skip_team(job.team);
                continue;
            }
            plans -= 1;
            if let Some(slot) = plan(self, job, class, &behind) {
                self.hold_back(job, slot);
                reserved.retain(|(_, id)| self.slots.contains_key(id));
                if reserved.len() >= max
                    && let Some((_, last)) = reserved.pop_last()
                {
                    self.unhold(last);
                    self.actions.push(Action::Unreserve { job: last });
                }
                reserved.insert((turn, job.id));
            }
        }
    }

    /// Blocked jobs of a class that hold nodes back, in order.
    fn reserved(&mut self, class: Class) -> BTreeSet<(Turn, JobId)> {
        let state = self.state;
        let slots = self.slots.iter();
        let blocked = slots.filter(|(_, slot)| slot.why == SlotReason::Blocked);
        let jobs = blocked.filter_map(|(id, _)| state.jobs.get(id));
        let jobs: Vec<&Job> = jobs.filter(|job| job.spec.class == class).collect();
        let jobs = jobs.into_iter();
        jobs.map(|job| (self.turn(job.team, &Key::of(job)), job.id))
            .collect()
    }

    /// Works slots out anew whose time has come without a start: somebody did not keep to what was expected. Gives up what
    /// helps nobody: what its own team holds keeps a job whatever is held back for it.
    fn renew(&mut self, class: Class, plans: &mut u32) {
        let state = self.state;
        let turns = self.all_take_turns(class);
        let of_class = |id: &JobId| state.jobs.get(id).filter(|job| job.spec.class == class);
        let stale: Vec<&Job> = self
            .slots
            .iter()
            .filter_map(|(id, slot)| Some((of_class(id)?, slot)))
            .filter(|(job, _)| state.index.queue.holds(job.id))
            .filter(|(job, slot)| {
                self.is_needless(job, slot, turns)
                    || self.is_stale(job, slot)
                    || self.barred(job, class).is_err()
            })
            .map(|(job, _)| job)
            .collect();
        for job in stale {
            let Some(before) = self.slots.get(&job.id).cloned().filter(|_| *plans > 0) else {
                continue;
            };
            *plans -= 1;
            self.unhold(job.id);
            if self.is_needless(job, &before, turns) {
                self.actions.push(Action::Unreserve { job: job.id });
                continue;
            }
            let kept = job.is_put_off().then(|| self.kept(job, class, &before));
            let slot = kept
                .flatten()
                .or_else(|| plan(self, job, class, &BTreeSet::new()));
            match slot {
                Some(slot) if slot != *before => self.hold_back(job, slot),
                Some(slot) => self.keep(job, slot),
                None => self.actions.push(Action::Unreserve { job: job.id }),
            }
        }
    }

    fn is_stale(&self, job: &Job, slot: &Slot) -> bool {
        let due = slot.at.is_some_and(|at| at <= self.state.now);
        due && (slot.why != SlotReason::Preemption || !self.is_coming(job, slot))
    }

    /// Whether somebody is still on the way out of a slot, or holds a resource that its job waits for.
    fn is_coming(&self, job: &Job, slot: &Slot) -> bool {
        let mut stopping = self.state.index.stopping.iter();
        stopping.any(|id| {
            let other = &self.state.jobs[id];
            let tasks = other
                .state
                .active()
                .map(|active| active.allocation.tasks.iter());
            let mut tasks = tasks.into_iter().flatten();
            let mut resources = other.spec.resources.keys();
            tasks.any(|task| slot.nodes.contains(&task.node))
                || resources.any(|name| job.spec.resources.contains_key(name))
        })
    }

    /// The slot of a job that was put off: where it was, so that it comes nearer while those who are there leave.
    fn kept(&self, job: &Job, class: Class, before: &Slot) -> Option<Slot> {
        let ids = &self.state.index.node_ids;
        let mut nodes = before.nodes.iter();
        if nodes.any(|node| self.state.index.empty_by(ids[node]) == NEVER) {
            return None;
        }
        let seeker = Seeker {
            job,
            class,
            behind: &BTreeSet::new(),
        };
        Some(Slot {
            nodes: emptied(self, &seeker, &before.nodes)?,
            at: None,
            why: SlotReason::Blocked,
        })
    }

    /// Holds a slot back, and says so.
    pub(crate) fn hold_back(&mut self, job: &Job, slot: Slot) {
        // What room is made for in this cycle needs no slot of the time before; who lost his for that one has lost it.
        let before = self.actions.len();
        self.actions.retain(
            |action| !matches!(action, Action::Reserve { job: other, .. } if *other == job.id),
        );
        if self.actions.len() < before {
            let lost = self.displaced.remove(&job.id).unwrap_or_default();
            let lost = lost
                .into_iter()
                .filter(|other| !self.slots.contains_key(other));
            let given_up = lost.map(|job| Action::Unreserve { job });
            self.actions.extend(given_up);
        }
        self.actions.push(Action::Reserve {
            job: job.id,
            slot: slot.clone(),
        });
        self.keep(job, slot);
    }

    fn keep(&mut self, job: &Job, slot: Slot) {
        self.unhold(job.id);
        for node in &slot.nodes {
            let id = self.state.index.node_ids[node];
            // Half a slot starts nobody: who loses a node loses all.
            if let Some(other) = self.free.hold_on(id).and_then(|hold| hold.job) {
                self.unhold(other);
                self.displaced.entry(job.id).or_default().push(other);
            }
            let hold = Hold {
                job: Some(job.id),
                class: job.spec.class,
                at: slot.at,
                closes: self.free.hold_on(id).and_then(|hold| hold.closes),
            };
            self.free.hold(id, hold);
        }
        self.slots.insert(job.id, Cow::Owned(slot));
        self.look_again();
    }
}

/// Nodes that would serve, with the time from which each does.
type Ready = Vec<(Timestamp, u32)>;

/// For whom a slot is looked for, and what of it does not stand in the state.
struct Seeker<'a> {
    job: &'a Job,
    class: Class,
    /// Jobs behind it in the order: what is held for them gives way.
    behind: &'a BTreeSet<JobId>,
}

impl Seeker<'_> {
    /// Whether a held node may be held for it instead. What is planned for a node is held against the time from which it would
    /// be free.
    fn may_take(&self, hold: &Hold) -> bool {
        let own = |id| id == self.job.id || self.behind.contains(&id);
        let gives_way = hold.class > self.class || hold.job.is_some_and(own);
        hold.closes.is_none() && hold.job.is_some() && gives_way
    }
}

/// The slot in which a job can start soonest.
fn plan(cycle: &Cycle<'_>, job: &Job, class: Class, behind: &BTreeSet<JobId>) -> Option<Slot> {
    let seeker = Seeker { job, class, behind };
    let found = if counts_tell_all(job) {
        // Counting takes the nodes of a kind for alike: where they are, it is as good as a trial.
        let by_trial = || {
            (!are_alike(&cycle.free))
                .then(|| by_trial(cycle, &seeker))
                .flatten()
        };
        by_counts(cycle, &seeker).or_else(by_trial)
    } else {
        proven(cycle, &seeker)
    };
    let (at, nodes) = found?;
    // Where the nodes are ready and the job does not start, it waits for what no node has.
    let enough = |(name, &asked): (&String, &u64)| asked <= cycle.free.resource_free(name);
    if at == cycle.state.now && !job.spec.resources.iter().all(enough) {
        return None;
    }
    // Whoever was put off by promises that were not kept waits for no more of them.
    let known = at != NEVER && at > cycle.state.now && !job.is_put_off();
    Some(Slot {
        nodes,
        at: known.then_some(at),
        why: SlotReason::Blocked,
    })
}

/// Whether the nodes of each kind are of one size, with no GPU lost or cut.
fn are_alike(capacity: &Capacity) -> bool {
    capacity.kinds().iter().all(|kind| {
        let usual = kind.members.first().map(|node| capacity.stand(*node).size);
        let mut stands = kind.members.iter().map(|node| capacity.stand(*node));
        stands.all(|stand| Some(stand.size) == usual && stand.offered.count_ones() == kind.gpus_max)
    })
}

/// Whether counting GPUs, CPUs and memory is all there is to it, as for most jobs: a proof looks at every attempt.
fn counts_tell_all(job: &Job) -> bool {
    let plain = |shape: &Shape| {
        let whole = shape.gpus.whole().is_some_and(|gpus| gpus > 0);
        whole
            && shape.scratch.is_zero()
            && shape.read_bandwidth.is_zero()
            && shape.tensor_parallel == 0
    };
    let [role] = job.spec.roles.as_slice() else {
        return false;
    };
    job.spec.resources.is_empty() && role.shapes().all(plain)
}

/// What was counted leaves scratch, shares and the spans of several roles out: then the place is proven on a copy.
fn proven(cycle: &Cycle<'_>, seeker: &Seeker<'_>) -> Option<(Timestamp, Vec<NodeName>)> {
    let counted = by_counts(cycle, seeker).and_then(|(at, nodes)| {
        let nodes = emptied(cycle, seeker, &nodes)?;
        Some((at, nodes))
    });
    counted.or_else(|| by_trial(cycle, seeker))
}

/// What is out of the ordinary about nodes, by node: looking at each of them is most of what a plan costs.
struct Marks {
    /// Held for somebody in front.
    kept: Vec<bool>,
    /// How many of them there are, by kind.
    kept_of: Vec<usize>,
    /// Something was started there in this cycle.
    fresh: Vec<bool>,
}

impl Marks {
    fn of(cycle: &Cycle<'_>, seeker: &Seeker<'_>) -> Self {
        let nodes = cycle.state.index.node_names.len();
        let mut marks = Self {
            kept: vec![false; nodes],
            kept_of: vec![0; cycle.free.kinds().len()],
            fresh: vec![false; nodes],
        };
        for (node, hold) in cycle.free.holds() {
            if !seeker.may_take(hold) {
                marks.kept[crate::capacity::at(*node)] = true;
                marks.kept_of[cycle.free.stand(*node).kind] += 1;
            }
        }
        for node in cycle.fresh.keys() {
            marks.fresh[crate::capacity::at(*node)] = true;
        }
        marks
    }
}

fn by_counts(cycle: &Cycle<'_>, seeker: &Seeker<'_>) -> Option<(Timestamp, Vec<NodeName>)> {
    let marks = Marks::of(cycle, seeker);
    let mut nodes: Vec<NodeName> = Vec::new();
    let mut at = cycle.state.now;
    for role in &seeker.job.spec.roles {
        let soonest = role
            .shapes()
            .filter_map(|shape| soonest(cycle, seeker, &marks, shape, &nodes))
            .min_by_key(|(ready, chosen)| (*ready, chosen.len()));
        let (ready, chosen) = soonest?;
        at = at.max(ready);
        nodes.extend(chosen);
    }
    nodes.sort_unstable();
    nodes.dedup();
    Some((at, nodes))
}

/// Where a job would go on an empty cluster: for gangs whose roles share nodes, and what counting leaves out.
fn by_trial(cycle: &Cycle<'_>, seeker: &Seeker<'_>) -> Option<(Timestamp, Vec<NodeName>)> {
    let state = cycle.state;
    let mut trial = later(cycle, seeker);
    for active in state.active_jobs().filter_map(|other| other.state.active()) {
        trial.give_back_gang(&active.nodes, &active.allocation);
    }
    for (id, task) in started_now(cycle) {
        trial.give_back(id, task);
    }
    let nodes = placed(cycle, &mut trial, seeker)?;
    let free_by = |node: &NodeName| {
        let id = state.index.node_ids[node];
        let fresh = cycle.fresh.get(&id).into_iter().flatten();
        let fresh = fresh.map(|(at, _)| *at);
        fresh.fold(state.index.empty_by(id), Timestamp::max)
    };
    let at = nodes.iter().map(free_by).max();
    Some((at.unwrap_or_default().max(state.now), nodes))
}

/// Which of some nodes a job would take once everybody has left them, if they are enough.
fn emptied(cycle: &Cycle<'_>, seeker: &Seeker<'_>, nodes: &[NodeName]) -> Option<Vec<NodeName>> {
    let state = cycle.state;
    let mut trial = later(cycle, seeker);
    let ids: BTreeSet<NodeId> = nodes
        .iter()
        .map(|node| state.index.node_ids[node])
        .collect();
    for kind in cycle.free.kinds() {
        let others = kind.members.iter().filter(|node| !ids.contains(node));
        others.for_each(|node| trial.close(*node));
    }
    for (id, task) in started_now(cycle).filter(|(id, _)| ids.contains(id)) {
        trial.give_back(id, task);
    }
    for id in ids {
        for tenant in state.index.tenants_of(id) {
            let active = state.jobs[&tenant.job].state.active();
            let tasks = active.map(|active| &active.allocation.tasks);
            let task = tasks.and_then(|tasks| tasks.get(crate::capacity::at(tenant.task)));
            if let Some(task) = task {
                trial.give_back(id, task);
            }
        }
    }
    placed(cycle, &mut trial, seeker)
}

/// The tasks that this cycle has started, which are not among the tenants yet.
fn started_now<'c>(cycle: &'c Cycle<'_>) -> impl Iterator<Item = (NodeId, &'c TaskAllocation)> {
    let allocations = cycle.actions.iter().filter_map(|action| match action {
        Action::Launch { allocation, .. } => Some(allocation),
        Action::Yield { .. }
        | Action::Terminate { .. }
        | Action::Kill { .. }
        | Action::Settle { .. }
        | Action::Direct { .. }
        | Action::Reserve { .. }
        | Action::Unreserve { .. }
        | Action::PutAside { .. }
        | Action::Remedy { .. }
        | Action::Augment { .. }
        | Action::Abandon { .. }
        | Action::Gate(_) => None,
    });
    let tasks = allocations.flat_map(|allocation| allocation.tasks.iter());
    tasks.map(|task| (cycle.state.index.node_ids[&task.node], task))
}

/// What a job that starts later may count on: not that it would be over before another's turn.
fn later(cycle: &Cycle<'_>, seeker: &Seeker<'_>) -> Capacity {
    let mut trial = cycle.free.clone();
    let other = |hold: &Hold| hold.job.filter(|other| *other != seeker.job.id);
    for (node, hold) in cycle.free.holds() {
        if other(hold).is_some_and(|other| seeker.behind.contains(&other)) {
            trial.release(*node);
        }
    }
    trial.close_held(|hold| hold.class <= seeker.class && other(hold).is_some());
    let started = cycle.started.iter().map(|id| &cycle.state.jobs[id]);
    for other in cycle.state.active_jobs().chain(started) {
        trial.give_back_resources(&other.spec.resources);
    }
    trial
}

fn placed(cycle: &Cycle<'_>, trial: &mut Capacity, seeker: &Seeker<'_>) -> Option<Vec<NodeName>> {
    let Seeker { job, class, .. } = *seeker;
    let allowance = cycle.barred(job, class).ok()?;
    let placed = place(trial, &job.spec, &cycle.view(job, class, &allowance))?;
    // A slice is taken when it comes free: no wider job can be in front of it.
    if placed.allocation.tasks.iter().any(|task| task.sliced) {
        return None;
    }
    Some(placed.into_node_names())
}

/// When and where a shape could start soonest.
fn soonest(
    cycle: &Cycle<'_>,
    seeker: &Seeker<'_>,
    marks: &Marks,
    shape: &Shape,
    taken: &[NodeName],
) -> Option<(Timestamp, Vec<NodeName>)> {
    let Seeker { job, class, .. } = *seeker;
    let allowance = cycle.barred(job, class).ok()?;
    let view = cycle.view(job, class, &allowance);
    let mut best: Option<(Timestamp, Vec<NodeName>)> = None;
    let mut leaving = Vec::new();
    for index in kinds_for(&cycle.free, &job.spec, shape, &view) {
        let kind = &cycle.free.kinds()[index];
        let Some(need) = need(cycle, shape, kind) else {
            continue;
        };
        // Counting is cheaper than looking at each node.
        if kind.members.len() < need.nodes + marks.kept_of[index] {
            continue;
        }
        let ready: Ready = (0..)
            .zip(&kind.members)
            .filter_map(|(position, node)| {
                let ready = ready_at(cycle, marks, *node, &need, taken, &mut leaving)?;
                Some((ready, position))
            })
            .collect();
        for range in kind.ranges(shape.span) {
            let Some((at, chosen)) = first_ready(&ready, &range, need.nodes) else {
                continue;
            };
            if best.as_ref().is_none_or(|(soonest, _)| at < *soonest) {
                let name = |position: &u32| {
                    let node = kind.members[crate::capacity::at(*position)];
                    cycle.state.index.node_names[crate::capacity::at(node)].clone()
                };
                best = Some((at, chosen.iter().map(name).collect()));
            }
        }
    }
    best
}

/// How many nodes a shape takes, and what of each.
struct Need<'a> {
    nodes: usize,
    gpus: u32,
    /// Whether a share of a GPU, or none, will do.
    part: bool,
    shape: &'a Shape,
    each: GpuAmount,
    /// Tasks on one node.
    tasks: u32,
    /// The size of the kind's first node, and CPUs and memory of one like it.
    usual: Size,
    beside_usual: (u32, Bytes),
}

impl Need<'_> {
    /// CPUs and memory of a node of this size.
    fn beside(&self, size: &Size) -> (u32, Bytes) {
        let (cpus, memory) = needs(self.shape, self.each, size);
        let memory = memory.get().saturating_mul(self.tasks.into());
        (cpus.saturating_mul(self.tasks), Bytes::new(memory))
    }
}

fn need<'a>(cycle: &Cycle<'_>, shape: &'a Shape, kind: &Kind) -> Option<Need<'a>> {
    // A slice is taken when it comes free: no wider job can be in front of it.
    if is_sliced(kind, shape) {
        return None;
    }
    // The first split is the one with the fewest tasks: the one that is placed where it fits.
    let (tasks, each) = splits(shape, kind.gpus_max).next()?;
    let gpus = each.whole().unwrap_or(0);
    if gpus > kind.gpus_max {
        return None;
    }
    let usual = cycle.free.stand(*kind.members.first()?).size;
    let in_one = match gpus {
        0 => 1,
        _ => tasks_in_one(shape, each, kind.gpus_max, &usual).min(tasks),
    };
    let mut need = Need {
        nodes: usize::try_from(tasks.div_ceil(in_one)).expect("few tasks"),
        gpus: gpus * in_one,
        part: each.whole().is_none_or(|gpus| gpus == 0),
        shape,
        each,
        tasks: in_one,
        usual,
        beside_usual: (0, Bytes::ZERO),
    };
    need.beside_usual = need.beside(&usual);
    Some(need)
}

/// From when on a node has what is needed; never where it is held for somebody in front. `leaving` is room to write in.
fn ready_at(
    cycle: &Cycle<'_>,
    marks: &Marks,
    node: NodeId,
    need: &Need<'_>,
    taken: &[NodeName],
    leaving: &mut Vec<(Timestamp, u32)>,
) -> Option<Timestamp> {
    let state = cycle.state;
    if marks.kept[crate::capacity::at(node)] || !cycle.free.is_open(node) {
        return None;
    }
    let stand = cycle.free.stand(node);
    let size = &stand.size;
    // Most nodes are of one size.
    let (cpus, memory) = if *size == need.usual {
        need.beside_usual
    } else {
        need.beside(size)
    };
    if size.cpus < cpus || size.memory < memory {
        return None;
    }
    if !taken.is_empty() && taken.contains(&state.index.node_names[crate::capacity::at(node)]) {
        return None;
    }
    let whole = cycle.free.whole_gpus(node).count_ones();
    let room = cycle.free.room(node);
    let short = room.cpus < cpus || room.memory < memory;
    if !need.part && whole >= need.gpus && !short {
        return Some(state.now);
    }
    let usable = stand.offered.count_ones();
    if need.gpus > usable {
        return None;
    }
    // What this cycle started there is not among the tenants yet.
    let fresh = marks.fresh[crate::capacity::at(node)].then(|| &cycle.fresh[&node]);
    let fresh = fresh.into_iter().flatten();
    let empty_by = state.index.empty_by(node);
    let empty_by = fresh
        .clone()
        .map(|(at, _)| *at)
        .fold(empty_by, Timestamp::max);
    if empty_by > state.now && (need.part || need.gpus == usable || short) {
        return Some(empty_by);
    }
    let tenants = state.index.tenants_of(node).iter();
    leaving.clear();
    leaving.extend(tenants.map(|tenant| (tenant.gone_by, tenant.gpus)));
    leaving.extend(fresh);
    leaving.sort_unstable();
    let mut free = whole;
    let enough = leaving.iter().find(|(_, gpus)| {
        free += gpus;
        free >= need.gpus
    });
    Some(enough.map_or(NEVER, |(gone_by, _)| (*gone_by).max(state.now)))
}

/// The nodes of a range that are ready first, and when the last of them is.
fn first_ready(ready: &Ready, range: &Range<u32>, count: usize) -> Option<(Timestamp, Vec<u32>)> {
    let from = ready.partition_point(|(_, position)| *position < range.start);
    let until = ready.partition_point(|(_, position)| *position < range.end);
    if until - from < count || count == 0 {
        return None;
    }
    let mut inside = ready[from..until].to_vec();
    let (first, last, _) = inside.select_nth_unstable(count - 1);
    let mut chosen: Vec<u32> = first.iter().map(|(_, position)| *position).collect();
    chosen.push(last.1);
    let at = last.0;
    chosen.sort_unstable();
    Some((at, chosen))
}
