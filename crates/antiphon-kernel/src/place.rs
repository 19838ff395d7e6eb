//! Places a gang: every role whole, close together, where it breaks up the least; or nothing. Chooses nodes and GPUs, never
//! which job comes first.

mod alone;
mod best;
mod cpu_only;
mod demand;
mod fill;
mod gpus;
mod gradient;
mod kinds;
mod needs;
mod pick;
mod role;
mod spread;
mod width;

use antiphon_types::{
    Allocation, Class, GpuAmount, JobId, JobSpec, NodeName, Role, Score, Shape, Span,
    TaskAllocation, Timestamp,
};

use crate::allowance::{Allowance, UNBOUNDED, least};
use crate::capacity::{Capacity, HeldFields, Hold, NodeId, at, id};
use crate::state::Known;

pub(crate) use best::best_at;
pub use demand::Demand;
pub(crate) use kinds::{is_sliced, kinds_for};
pub(crate) use needs::{needs, splits, tasks_in_one};
use role::{Found, On, find};
pub(crate) use width::is_too_wide;

/// For whom room is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// The job, if it is one that nodes may be held for.
    pub(crate) job: Option<JobId>,
    /// Its class: it may use what is held for a lower one.
    pub(crate) class: Class,
    /// Now.
    pub(crate) now: Timestamp,
    /// When the attempt ends at the latest, if it starts now and says so: for partitions that let nobody run longer.
    pub(crate) ends_by: Option<Timestamp>,
    /// The same, rounded up so that all jobs that are compared with each other count alike: for what is held back.
    pub(crate) gone_by: Option<Timestamp>,
    /// What its team may still take.
    pub(crate) allowance: &'a Allowance,
    /// What others ask for.
    pub(crate) demand: &'a Demand,
    /// The held nodes that it may use, if somebody has looked already.
    pub(crate) held: Option<&'a HeldFields>,
}

impl<'a> View<'a> {
    /// For whomever of a class: held nodes count where he is gone in time.
    pub(crate) fn of_anybody(known: &'a Known, class: Class, gone_by: Option<Timestamp>) -> Self {
        Self {
            job: None,
            class,
            now: known.now,
            ends_by: None,
            gone_by,
            allowance: &UNBOUNDED,
            demand: &known.demand,
            held: None,
        }
    }
}

impl View<'_> {
    /// Whether the job may use a node in spite of its hold.
    pub(crate) fn may_use(&self, hold: &Hold) -> bool {
        self.is_over_before_it_closes(hold)
            && match hold.job {
                Some(job) => {
                    self.job == Some(job) || hold.class > self.class || self.is_over_by(hold.at)
                }
                None => self.is_over_by(hold.at),
            }
    }

    /// Whether the job ends before the node goes out of service.
    pub(crate) fn is_over_before_it_closes(&self, hold: &Hold) -> bool {
        hold.closes.is_none() || self.is_over_by(hold.closes)
    }

    fn is_over_by(&self, needed: Option<Timestamp>) -> bool {
        match (needed, self.gone_by) {
            (Some(needed), Some(end)) => end <= needed,
            (None, _) | (_, None) => false,
        }
    }
}

/// Where a gang runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// What it holds.
    pub(crate) allocation: Allocation,
    /// The nodes of the tasks, one for each.
    pub(crate) nodes: Vec<NodeId>,
    /// By role: which of [`Role::shapes`] was chosen.
    pub(crate) shapes: Vec<u32>,
    /// What spoke for it.
    pub(crate) score: Vec<Score>,
}

impl Placement {
    /// Its nodes, by name.
    pub(crate) fn into_node_names(self) -> Vec<NodeName> {
        let tasks = self.allocation.tasks.iter();
        let mut nodes: Vec<NodeName> = tasks.map(|task| task.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Places a job and takes what it will hold; without room for the whole gang nothing is taken.
pub(crate) fn place(capacity: &mut Capacity, spec: &JobSpec, view: &View<'_>) -> Option<Placement> {
    let enough = |(name, &amount): (&String, &u64)| amount <= capacity.resource_free(name);
    if !spec.resources.iter().all(enough) || capacity.lacks(least(spec)) {
        return None;
    }
    let mut order: Vec<usize> = (0..spec.roles.len()).collect();
    let mut placement = place_in_order(capacity, spec, &order, view);
    if placement.is_none() && order.len() > 1 {
        // A small role may have taken the only place of a large one: the large ones first.
        order.sort_by_key(|index| std::cmp::Reverse(spec.roles[*index].shape.gpus));
        placement = place_in_order(capacity, spec, &order, view);
    }
    let placement = placement?;
    capacity.take_resources(&spec.resources);
    capacity.note_crossing(&placement.nodes, &placement.allocation);
    Some(placement)
}

/// The nodes on which a job fits; nothing of it stays taken.
pub(crate) fn place_for_trial(
    capacity: &mut Capacity,
    spec: &JobSpec,
    view: &View<'_>,
) -> Option<Vec<NodeName>> {
    let placement = place(capacity, spec, view)?;
    capacity.give_back_gang(&placement.nodes, &placement.allocation);
    capacity.give_back_resources(&spec.resources);
    Some(placement.into_node_names())
}

/// What one role was given.
struct Part {
    shape: u32,
    tasks: Vec<TaskAllocation>,
    nodes: Vec<NodeId>,
}

fn place_in_order(
    capacity: &mut Capacity,
    spec: &JobSpec,
    order: &[usize],
    view: &View<'_>,
) -> Option<Placement> {
    let mut parts: Vec<(usize, Part)> = Vec::with_capacity(order.len());
    let mut sum = Summary::default();
    let mut left = view.allowance.clone();
    for place in order {
        let role = &spec.roles[*place];
        let view = View {
            allowance: &left,
            ..*view
        };
        let Some((index, found)) = find_best(capacity, spec, role, &view) else {
            for (_, part) in &parts {
                for (&node, task) in part.nodes.iter().zip(&part.tasks) {
                    capacity.give_back(node, task);
                }
            }
            return None;
        };
        sum.add(capacity, &found);
        let shape = role.shapes().nth(at(index)).expect("it was found there");
        let (nodes, tasks) = commit(capacity, &role.name, shape, &found);
        left.take(&capacity.kinds()[found.kind].gpu_type, shape.gpus);
        let part = Part {
            shape: index,
            tasks,
            nodes,
        };
        parts.push((*place, part));
    }
    let mut placement = Placement {
        allocation: Allocation::default(),
        nodes: Vec::new(),
        shapes: Vec::new(),
        score: Vec::new(),
    };
    parts.sort_unstable_by_key(|(place, _)| *place);
    let mut tasks = Vec::new();
    for (_, mut part) in parts {
        placement.shapes.push(part.shape);
        placement.nodes.append(&mut part.nodes);
        tasks.append(&mut part.tasks);
    }
    placement.allocation = tasks.into();
    placement.score = sum.score(capacity, &placement.nodes);
    Some(placement)
}

/// Whether every role would find room by itself: where it says no, the job cannot be placed.
pub(crate) fn fits(capacity: &Capacity, spec: &JobSpec, view: &View<'_>) -> bool {
    let enough = |(name, &amount): (&String, &u64)| amount <= capacity.resource_free(name);
    // Counting is cheaper than looking, and most who ask in vain ask for more than there is.
    if capacity.lacks(least(spec)) {
        return false;
    }
    // Which node would be the best does not matter.
    let indifferent = view.demand.gradient().map(|_| Demand::indifferent());
    let view = &View {
        demand: indifferent.as_ref().unwrap_or(view.demand),
        ..*view
    };
    let finds = |role: &Role| find_best(capacity, spec, role, view).is_some();
    spec.resources.iter().all(enough) && spec.roles.iter().all(finds)
}

/// Room for a role in the shape that is worth the most for its price, held nodes only where there is no other room.
fn find_best(
    capacity: &Capacity,
    spec: &JobSpec,
    role: &Role,
    view: &View<'_>,
) -> Option<(u32, Found)> {
    // Where whole GPUs are asked for, a held node without one adds nothing.
    let in_part = |shape: &Shape| shape.gpus.whole().is_none_or(|gpus| gpus == 0);
    let in_part = capacity.is_cut() || role.shapes().any(in_part);
    let on_held = || {
        let helps = |node: NodeId| in_part || capacity.whole_gpus(node) > 0;
        let mut holds = capacity.holds().iter();
        let any = || holds.any(|(node, hold)| helps(*node) && view.may_use(hold));
        let may_use = view.held.map_or_else(any, |held| !held.is_empty());
        may_use
            .then(|| find_best_on(capacity, spec, role, view, On::Held))
            .flatten()
    };
    find_best_on(capacity, spec, role, view, On::Unheld).or_else(on_held)
}

fn find_best_on(
    capacity: &Capacity,
    spec: &JobSpec,
    role: &Role,
    view: &View<'_>,
    on: On,
) -> Option<(u32, Found)> {
    let mut best: Option<(u32, Found, (u128, u128))> = None;
    for (index, shape) in (0u32..).zip(role.shapes()) {
        let Some(found) = find(capacity, spec, shape, view, on) else {
            continue;
        };
        let value = value(capacity, shape, &found);
        // Speed for cost, by cross-multiplication; a tie goes to the shape that makes its node the least worse, then to the
        // one that was declared first.
        let better = best.as_ref().is_none_or(|(_, other, best)| {
            let (this, other_value) = (value.0 * best.1, best.0 * value.1);
            this > other_value || this == other_value && found.growth < other.growth
        });
        if better {
            best = Some((index, found, value));
        }
    }
    best.map(|(index, found, _)| (index, found))
}

/// The speed of a shape and what it costs. Where nobody set a price, GPUs count alone.
fn value(capacity: &Capacity, shape: &Shape, found: &Found) -> (u128, u128) {
    let price = capacity.kinds()[found.kind].partition.price_per_gpu_hour;
    let gpus = shape.gpus.thousandths().max(1);
    (
        u128::from(shape.speed),
        u128::from(price.micros().max(1)) * u128::from(gpus),
    )
}

/// Takes the room that was found, task by task in rank order: along the network.
fn commit(
    capacity: &mut Capacity,
    role: &str,
    shape: &Shape,
    found: &Found,
) -> (Vec<NodeId>, Vec<TaskAllocation>) {
    let count: u32 = found.spots.iter().map(|spot| spot.tasks).sum();
    let mut nodes = Vec::with_capacity(at(count));
    let mut tasks = Vec::with_capacity(at(count));
    let mut index = 0;
    for spot in &found.spots {
        let node = capacity.kinds()[found.kind].members[at(spot.position)];
        for _ in 0..spot.tasks {
            let task = cut(capacity, node, role, index, shape, found);
            capacity.take(node, &task);
            tasks.push(task);
            nodes.push(node);
            index += 1;
        }
    }
    (nodes, tasks)
}

/// What one task is to hold of a node.
fn cut(
    capacity: &Capacity,
    node: NodeId,
    role: &str,
    index: u32,
    shape: &Shape,
    found: &Found,
) -> TaskAllocation {
    let stand = capacity.stand(node);
    let (cpus, memory) = needs(shape, found.each, &stand.size);
    let whole = found.each.whole();
    let gpus = match found.single {
        Some(gpu) => vec![gpu],
        None => {
            let count = whole.unwrap_or(1);
            gpus::indices(gpus::choose_gpus(
                capacity.whole_gpus(node),
                count,
                stand.layout,
            ))
        }
    };
    TaskAllocation {
        role: role.to_owned(),
        index,
        node: NodeName::clone(&stand.name),
        gpus,
        gpu_share: if whole.is_some() {
            GpuAmount::from_gpus(1)
        } else {
            found.each
        },
        cpus,
        memory,
        scratch: shape.scratch,
        read_bandwidth: shape.read_bandwidth,
        sliced: found.sliced,
    }
}

/// What a placement is like, summed up over its roles.
#[derive(Debug, Default)]
struct Summary {
    span: Span,
    seen: bool,
    micros_per_hour: u64,
    interconnect_gbps: u32,
}

impl Summary {
    fn add(&mut self, capacity: &Capacity, found: &Found) {
        let partition = &capacity.kinds()[found.kind].partition;
        let tasks: u64 = found.spots.iter().map(|spot| u64::from(spot.tasks)).sum();
        let gpus = found.each.thousandths().saturating_mul(tasks);
        let price = partition.price_per_gpu_hour.micros();
        self.micros_per_hour = self
            .micros_per_hour
            .saturating_add(price.saturating_mul(gpus) / 1_000);
        self.span = if self.seen {
            self.span.max(found.span)
        } else {
            found.span
        };
        let slower = partition.interconnect_gbps < self.interconnect_gbps;
        if !self.seen || slower {
            self.interconnect_gbps = partition.interconnect_gbps;
        }
        self.seen = true;
    }

    fn score(&self, capacity: &Capacity, nodes: &[NodeId]) -> Vec<Score> {
        let line = |name: &'static str, points| Score {
            name: name.into(),
            points,
        };
        let mut distinct = nodes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let free = |&node: &NodeId| capacity.room(node).free(capacity.stand(node));
        let left: u32 = distinct.iter().map(free).sum();
        let mut score = Vec::with_capacity(4);
        score.push(line(nodes_in(self.span), id(distinct.len()).into()));
        score.push(line("GPUs left free on its nodes", left.into()));
        if self.micros_per_hour > 0 {
            let points = i64::try_from(self.micros_per_hour).unwrap_or(i64::MAX);
            score.push(line("price an hour in micro-dollars", points));
        }
        if self.interconnect_gbps > 0 {
            score.push(line(
                "interconnect in Gbit/s",
                self.interconnect_gbps.into(),
            ));
        }
        score
    }
}

/// What the first line of a score counts.
const fn nodes_in(span: Span) -> &'static str {
    match span {
        Span::Node => "span node, nodes",
        Span::NvlinkDomain => "span nvlink-domain, nodes",
        Span::Leaf => "span leaf, nodes",
        Span::Spine => "span spine, nodes",
        Span::Cluster => "span cluster, nodes",
    }
}

#[cfg(test)]
mod tests;
