//! The order of service, and who may start now. Class by class: who holds a reservation, then everybody in order, each on
//! what is left and what is not held back. Jobs that ask for what did not fit are passed over without a look.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use antiphon_types::{
    Action, AttemptId, Class, GpuAmount, GpuTime, JobId, JobSpec, Millis, Slot, Terms, Timestamp,
};

use crate::allowance::{Allowance, UNBOUNDED, least};
use crate::capacity::{Capacity, HeldFields, NodeId};
use crate::deadline::entitlement;
use crate::expect::{ends_in, longest_said};
use crate::index::NEVER;
use crate::jobs::Job;
use crate::place::{Placement, View, fits, place};
use crate::queue::{AskId, Band, Key, Lane, band, longest};
use crate::share::{Rank, Shares};
use crate::state::State;
use crate::teams::{Exceeded, Holdings, TeamId};

/// Looks at a job that one cycle takes: bounds its length whatever the queue holds. The next cycle goes on where starts
/// have changed what is free.
const STEPS_MAX: u32 = 20_000;

/// Blocked jobs of a class that are tried in front of reservations in one cycle, and those that are looked at for it: bounds
/// how deep backfilling looks.
const BACKFILLS_MAX: u32 = 32;
const BACKFILL_LOOKS_MAX: u32 = 128;

/// A cycle as it decides: what is free, what teams hold and what was decided so far.
pub(crate) struct Cycle<'a> {
    pub(crate) state: &'a State,
    /// What is left; what this cycle starts is taken out.
    pub(crate) free: Capacity,
    shares: Shares,
    pub(crate) holdings: Holdings,
    /// By ask: the shortest run time for which it did not fit. Room only shrinks within a cycle.
    unfit: Vec<Option<Band>>,
    /// By ask: whether there is no room for it but in front of reservations.
    full: Vec<bool>,
    /// The held nodes that jobs of a class may use, by how many of the times at which held nodes are needed come too early
    /// for them.
    held: BTreeMap<(Class, usize), HeldFields>,
    /// Those times, ascending.
    needed_at: Vec<Timestamp>,
    /// Jobs that this cycle has started.
    pub(crate) started: BTreeSet<JobId>,
    /// What they hold, by node: when it is gone, and how many GPUs.
    pub(crate) fresh: BTreeMap<NodeId, Vec<(Timestamp, u32)>>,
    /// What is held back, as this cycle leaves it.
    pub(crate) slots: BTreeMap<JobId, Cow<'a, Slot>>,
    /// Nodes of slots that starts of this cycle have ended, and for which class they were held.
    vacated: Vec<(NodeId, Class)>,
    /// Who lost what was held back for him to whom in this cycle.
    pub(crate) displaced: BTreeMap<JobId, Vec<JobId>>,
    /// Attempts that this cycle stops.
    pub(crate) stopped: BTreeSet<JobId>,
    entitlements: BTreeMap<TeamId, GpuAmount>,
    /// By class: GPUs of the runs that may be asked to give way to it.
    pub(crate) may_leave: BTreeMap<Class, GpuAmount>,
    pub(crate) steps: u32,
    /// Whether something was left for the next cycle.
    pub(crate) left_over: bool,
    /// When to look again even if nothing happens before.
    pub(crate) wake_at: Option<Timestamp>,
    pub(crate) actions: Vec<Action>,
}

/// Why a job does not start now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It starts.
    Starts,
    /// It does not fit.
    Unfit,
    /// Its team may not hold more.
    Limit(Exceeded),
    /// Its team's quota does not cover it as what it is.
    OverQuota,
    /// Its team has used up its GPU-time.
    OverBudget,
}

/// The order across teams: lane, the team's rank among the others, cost, arrival.
pub(crate) type Turn = (Lane, Rank, GpuTime, JobId);

/// The jobs of one team that take part as a class, in its order: of each kind of ask the next one.
struct TeamLine {
    heads: BinaryHeap<Reverse<(Key, AskId)>>,
}

impl TeamLine {
    /// The next job, and what it asks for, of those that ask for something that is not full.
    fn head(&mut self, full: &[bool]) -> Option<(Key, AskId)> {
        let Reverse((_, ask)) = self.heads.peek()?;
        if full[place_of(*ask)] {
            // Where one is full others mostly are: all go at once.
            self.heads.retain(|Reverse((_, ask))| !full[place_of(*ask)]);
        }
        self.heads.peek().map(|Reverse(head)| *head)
    }
}

impl<'a> Cycle<'a> {
    pub(crate) fn new(state: &'a State, stopped: BTreeSet<JobId>) -> Self {
        Self {
            state,
            free: state.index.capacity.clone(),
            shares: Shares::new(state),
            holdings: state.index.holdings.clone(),
            unfit: vec![None; state.index.queue.names()],
            full: vec![false; state.index.queue.names()],
            held: BTreeMap::new(),
            needed_at: needed_at(state, state.slots.values()),
            started: BTreeSet::new(),
            fresh: BTreeMap::new(),
            slots: state
                .slots
                .iter()
                .map(|(id, slot)| (*id, Cow::Borrowed(slot)))
                .collect(),
            vacated: Vec::new(),
            displaced: BTreeMap::new(),
            stopped,
            entitlements: BTreeMap::new(),
            may_leave: BTreeMap::new(),
            steps: 0,
            left_over: false,
            wake_at: None,
            actions: Vec::new(),
        }
    }

    /// Whether it stopped before it had looked at all, or has given back what others could use.
    pub(crate) fn is_spent(&self) -> bool {
        self.left_over || self.steps > STEPS_MAX || self.has_vacated() || self.has_needless()
    }

    /// Starts the jobs of a class for which nodes are held back, in order.
    pub(crate) fn start_reserved(&mut self, class: Class) {
        let state = self.state;
        let waiting: Vec<&Job> = self
            .slots
            .keys()
            .filter(|id| state.index.queue.holds(**id))
            .map(|id| &state.jobs[id])
            .filter(|job| job.spec.class == class)
            .collect();
        let mut reserved: Vec<(Turn, JobId)> = waiting
            .into_iter()
            .map(|job| (self.turn(job.team, &Key::of(job)), job.id))
            .collect();
        reserved.sort_unstable();
        for (_, id) in reserved {
            let job = &self.state.jobs[&id];
            if !self.started.contains(&id) && self.may_fit(job, class) {
                self.try_start(job, class);
            }
        }
    }

    /// Starts what fits of a class in front of reservations: jobs that are gone before their nodes are needed.
    pub(crate) fn backfill(&mut self, class: Class) {
        let now = self.state.now;
        if self.needed_at.last().is_none_or(|last| *last <= now) {
            return;
        }
        let mut blocked = self.blocked(class);
        let mut tries = BACKFILLS_MAX;
        for _ in 0..BACKFILL_LOOKS_MAX {
            let Some((id, band)) = blocked.next_key(self) else {
                return;
            };
            let gone_by = longest(band).map(|longest| now.after(longest));
            let last = self.needed_at.last().copied();
            if gone_by
                .zip(last)
                .is_none_or(|(gone_by, last)| gone_by > last)
            {
                continue;
            }
            let ask = self.state.index.queue.ask(id);
            if ask.is_none_or(|ask| self.is_unfit(ask, band)) {
                continue;
            }
            if tries == 0 {
                return;
            }
            tries -= 1;
            self.try_start(&self.state.jobs[&id], class);
        }
    }

    /// Starts what fits of a class on what nobody waits for, in order.
    pub(crate) fn start_queue(&mut self, class: Class) {
        let mut lines = self.lines(class);
        let mut turns: BTreeSet<(Turn, TeamId)> = BTreeSet::new();
        for (team, line) in &mut lines {
            if let Some((key, _)) = line.head(&self.full) {
                turns.insert((self.turn(*team, &key), *team));
            }
        }
        while let Some((turn, team)) = turns.pop_first() {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return;
            }
            let line = lines.get_mut(&team).expect("a team with a turn has a line");
            let Some((key, ask)) = line.head(&self.full) else {
                continue;
            };
            // What starts have changed since this turn was written down: usage moves a team back, and what is full is
            // passed over.
            let now = self.turn(team, &key);
            if now != turn {
                turns.insert((now, team));
                continue;
            }
            // Those with a slot were tried before the others, but only as what they are.
            let reserved =
                self.slots.contains_key(&key.job) && self.state.jobs[&key.job].spec.class == class;
            let passed = reserved || self.started.contains(&key.job);
            let others_may = passed || self.starts_or_is_alone(&key, ask, class);
            line.heads.pop();
            if others_may && let Some(next) = self.state.index.queue.next_like(&key) {
                line.heads.push(Reverse((next, ask)));
            }
            if let Some((key, _)) = line.head(&self.full) {
                turns.insert((self.turn(team, &key), team));
            }
        }
    }

    /// Tries to start a job, and says whether others of its team that ask for the same may still: what its team's limit
    /// forbids it forbids all of them, and what is full is full for all.
    fn starts_or_is_alone(&mut self, key: &Key, ask: AskId, class: Class) -> bool {
        let job = &self.state.jobs[&key.job];
        match self.try_start(job, class) {
            Verdict::Starts => true,
            Verdict::Unfit => {
                // It may run too long for a partition that shorter ones may use.
                let full = !self.may_fit_unheld(&job.spec, class);
                self.full[place_of(ask)] = full;
                !full
            }
            Verdict::Limit(_) | Verdict::OverQuota | Verdict::OverBudget => false,
        }
    }

    /// Those who take part as a class: its own jobs, and those whose team's quota or budget does not cover more.
    fn lines(&mut self, class: Class) -> BTreeMap<TeamId, TeamLine> {
        let state = self.state;
        let mut lines: BTreeMap<TeamId, Vec<Reverse<(Key, AskId)>>> = BTreeMap::new();
        for own in Class::ALL.into_iter().filter(|own| *own <= class) {
            let teams = self.teams_that_count_as(class, own);
            if own < class && teams.is_empty() {
                continue;
            }
            for (ask, like) in state.index.queue.asks(own) {
                // What does not fit for one fits for none, whoever asks.
                let spec = state.index.queue.example(ask);
                if self.full[place_of(ask)] || !self.may_fit_unheld(spec, class) {
                    self.full[place_of(ask)] = true;
                    continue;
                }
                for (team, line) in like {
                    if own == class || teams.contains(team) {
                        let heads = lines.entry(*team).or_default();
                        heads.push(Reverse((line.first, ask)));
                    }
                }
            }
        }
        let lines = lines.into_iter();
        lines
            .map(|(team, heads)| {
                (
                    team,
                    TeamLine {
                        heads: heads.into(),
                    },
                )
            })
            .collect()
    }

    /// The teams whose jobs of a class take part as a lower one as well.
    fn teams_that_count_as(&self, class: Class, own: Class) -> BTreeSet<TeamId> {
        if own == class || self.state.teams.specs().is_empty() {
            return BTreeSet::new();
        }
        let lines = self.state.index.queue.lines(own).map(|(team, _)| team);
        lines
            .filter(|team| self.counts_as(*team, own) == class)
            .collect()
    }

    /// The lowest class as which a team's jobs of `class` may be started beside their own.
    fn counts_as(&self, team: TeamId, class: Class) -> Class {
        if self.is_over_budget(team) {
            return Class::BestEffort;
        }
        let nothing = GpuAmount::from_thousandths(1);
        let covered = self
            .holdings
            .urgent_covered(&self.state.teams, team, nothing);
        match covered {
            Some(_) if class < Class::Standard => Class::Standard,
            Some(_) | None => class,
        }
    }

    fn is_over_budget(&self, team: TeamId) -> bool {
        let now = self.state.now;
        self.state.teams.overspent(team, None, now).is_some()
    }

    /// Where a job stands among those of all teams.
    pub(crate) fn turn(&mut self, team: TeamId, key: &Key) -> Turn {
        let lane = match key.lane {
            // A deadline counts inside the team's own share alone.
            Lane::Deadline(_) if !self.is_within_share(team, key.job) => Lane::Share,
            lane @ (Lane::Promoted(_) | Lane::Deadline(_) | Lane::Share) => lane,
        };
        let rank = match lane {
            Lane::Share => self.shares.rank(team),
            Lane::Promoted(_) | Lane::Deadline(_) => Rank::default(),
        };
        (lane, rank, key.cost, key.job)
    }

    fn is_within_share(&mut self, team: TeamId, job: JobId) -> bool {
        let state = self.state;
        let share = *self
            .entitlements
            .entry(team)
            .or_insert_with(|| entitlement(state, team));
        self.holdings.all(team) + state.jobs[&job].spec.gpus() <= share
    }

    fn is_unfit(&self, ask: AskId, band: Band) -> bool {
        self.unfit[place_of(ask)].is_some_and(|unfit| unfit <= band)
    }

    fn note_unfit(&mut self, ask: AskId, band: Band) {
        let unfit = self.unfit[place_of(ask)].get_or_insert(band);
        *unfit = (*unfit).min(band);
    }

    /// The held nodes that a job of a class may use if it is gone by then: its own are not among them.
    fn held_for(&mut self, class: Class, gone_by: Option<Timestamp>) -> (Class, usize) {
        let too_early = gone_by.map_or(self.needed_at.len(), |gone_by| {
            self.needed_at.partition_point(|needed| *needed < gone_by)
        });
        let of = (class, too_early);
        if !self.held.contains_key(&of) {
            let view = View::of_anybody(self.state, class, gone_by);
            let fields = self.free.held(|hold| view.may_use(hold));
            self.held.insert(of, fields);
        }
        of
    }

    /// Notes that held nodes have less room than before.
    fn note_on_held(&mut self, placement: &Placement) {
        let tasks = placement.allocation.tasks.iter().zip(&placement.nodes);
        for (task, node) in tasks {
            if self.free.is_unheld(*node) {
                continue;
            }
            // A share may or may not break a whole GPU: then it is looked at anew.
            if task.gpus.is_empty() || task.sliced || task.gpu_share < GpuAmount::from_gpus(1) {
                return self.held.clear();
            }
            let gpus = u32::try_from(task.gpus.len()).expect("few GPUs");
            for fields in self.held.values_mut() {
                self.free.taken_of(fields, *node, gpus);
            }
        }
    }

    /// Forgets which held nodes have room, after one of them was taken or is held no longer.
    pub(crate) fn look_again(&mut self) {
        self.held.clear();
        self.needed_at = needed_at(self.state, self.slots.values().map(AsRef::as_ref));
    }

    /// Whether there might be room on nodes that nobody waits for, or only lower classes do.
    fn may_fit_unheld(&mut self, spec: &JobSpec, class: Class) -> bool {
        let held = self.held_for(class, None);
        let view = View {
            held: self.held.get(&held),
            ..View::of_anybody(self.state, class, None)
        };
        fits(&self.free, spec, &view)
    }

    /// Whether there might be room: says no only where there is none.
    pub(crate) fn may_fit(&self, job: &Job, class: Class) -> bool {
        let view = self.view(job, class, &UNBOUNDED);
        fits(&self.free, &job.spec, &view)
    }

    pub(crate) fn view<'v>(
        &'v self,
        job: &Job,
        class: Class,
        allowance: &'v Allowance,
    ) -> View<'v> {
        let longest = self.longest(job);
        View {
            job: Some(job.id),
            ends_by: longest.map(|longest| self.state.now.after(longest)),
            allowance,
            ..View::of_anybody(self.state, class, self.gone_by(job))
        }
    }

    /// How long an attempt of a job that starts now runs, as far as its own word bounds that.
    fn longest(&self, job: &Job) -> Option<Millis> {
        let said = longest_said(&job.spec)?;
        Some(job.expect.high.map_or(said, |high| high.min(said)))
    }

    /// Whether some partition is closed to a job for how long it runs: one that is shorter may use it.
    fn is_too_long(&self, job: &Job) -> bool {
        let maxima = self.free.kinds().iter();
        let mut maxima = maxima.filter_map(|kind| kind.partition.duration_max);
        let longest = self.longest(job);
        longest.is_some_and(|longest| maxima.any(|max| max < longest))
    }

    /// When nine of ten like it would have ended if it started now, rounded up to its band, so that all in it fit or do not
    /// fit together.
    fn gone_by(&self, job: &Job) -> Option<Timestamp> {
        longest(band(job)).map(|longest| self.state.now.after(longest))
    }

    /// Starts a job if it fits.
    pub(crate) fn try_start(&mut self, job: &'a Job, class: Class) -> Verdict {
        let allowance = match self.barred(job, class) {
            Ok(allowance) => allowance,
            Err(verdict) => return verdict,
        };
        if self.free.lacks(least(&job.spec)) {
            return self.unfit(job, &allowance);
        }
        // Away from the nodes that were slow for it where there is room, else where there is any.
        if let Some(placement) = self.place_elsewhere(job, class, &allowance) {
            self.note_on_held(&placement);
            self.launch(job, class, placement);
            return Verdict::Starts;
        }
        let gone_by = self.gone_by(job);
        // Nodes that are held for the job itself are nobody else's: those are looked for anew.
        let held = (!self.slots.contains_key(&job.id)).then(|| self.held_for(class, gone_by));
        let longest = self.longest(job);
        let view = View {
            job: Some(job.id),
            ends_by: longest.map(|longest| self.state.now.after(longest)),
            allowance: &allowance,
            held: held.and_then(|held| self.held.get(&held)),
            ..View::of_anybody(self.state, class, gone_by)
        };
        let placement = place(&mut self.free, &job.spec, &view);
        let placement = placement.or_else(|| self.place_in_slot(job, class, &allowance));
        let Some(placement) = placement else {
            return self.unfit(job, &allowance);
        };
        self.note_on_held(&placement);
        self.launch(job, class, placement);
        Verdict::Starts
    }

    /// Notes that a job does not fit, for those that ask for the same. Where its team bounds it, that says nothing about other
    /// teams' jobs, nor with partitions about shorter ones.
    fn unfit(&mut self, job: &Job, allowance: &Allowance) -> Verdict {
        if allowance.is_unbounded()
            && !self.is_too_long(job)
            && let Some(ask) = self.state.index.queue.ask(job.id)
        {
            self.note_unfit(ask, band(job));
        }
        Verdict::Unfit
    }

    /// Room on the nodes alone that are held back for a job of several roles. Role by role the best place is taken, so that
    /// with more to choose from the last may find none; it was proven that all fit on these.
    fn place_in_slot(
        &mut self,
        job: &Job,
        class: Class,
        allowance: &Allowance,
    ) -> Option<Placement> {
        let slot = self.slots.get(&job.id)?;
        if job.spec.roles.len() < 2 {
            return None;
        }
        let ids = &self.state.index.node_ids;
        let own: BTreeSet<NodeId> = slot.nodes.iter().map(|node| ids[node]).collect();
        let mut there = self.free.clone();
        for node in ids.values().filter(|node| !own.contains(node)) {
            there.close(*node);
        }
        own.iter().for_each(|node| there.release(*node));
        let placement = place(&mut there, &job.spec, &self.view(job, class, allowance))?;
        self.free.take_gang(&placement.nodes, &placement.allocation);
        self.free.take_resources(&job.spec.resources);
        Some(placement)
    }

    /// Room away from the nodes that were slow for a job. Once nodes are held back for it, it takes those: others may have
    /// given way.
    fn place_elsewhere(
        &mut self,
        job: &Job,
        class: Class,
        allowance: &Allowance,
    ) -> Option<Placement> {
        if self.slots.contains_key(&job.id) {
            return None;
        }
        let mut avoided = job.steering.avoided(self.state.now).peekable();
        avoided.peek()?;
        let mut free = self.free.clone();
        for node in avoided {
            if let Some(id) = self.state.index.node_ids.get(node) {
                free.close(*id);
            }
        }
        let placement = place(&mut free, &job.spec, &self.view(job, class, allowance))?;
        self.free.take_gang(&placement.nodes, &placement.allocation);
        self.free.take_resources(&job.spec.resources);
        Some(placement)
    }

    fn launch(&mut self, job: &'a Job, class: Class, placement: Placement) {
        let urgent = class <= Class::Production;
        let teams = &self.state.teams;
        for (task, node) in placement.allocation.tasks.iter().zip(&placement.nodes) {
            let amount = task.gpu_amount();
            if !amount.is_zero() {
                let gpu_type = &self.state.node_at(*node).spec.gpu_type;
                self.holdings.add(teams, job.team, gpu_type, amount, urgent);
                self.shares.started(self.state, job.team, gpu_type, amount);
            }
        }
        let (ends_at, ends_by) = ends_in(job, &placement.shapes, self.state.now);
        self.free_slots(job, &placement, ends_by);
        for (task, node) in placement.allocation.tasks.iter().zip(&placement.nodes) {
            let gpus = u32::try_from(task.gpus.len()).expect("few GPUs");
            let gone_by = ends_by.unwrap_or(NEVER);
            self.fresh.entry(*node).or_default().push((gone_by, gpus));
        }
        let several = placement
            .nodes
            .iter()
            .any(|node| *node != placement.nodes[0]);
        let check = !self.state.policy.node_check.is_empty() && (several || job.suspicious);
        let preferred = placement.shapes.iter().all(|shape| *shape == 0);
        let terms = Terms {
            shapes: if preferred {
                Vec::new()
            } else {
                placement.shapes
            },
            ends_at,
            ends_by,
            class: (class != job.spec.class).then_some(class),
            check,
            score: placement.score,
        };
        self.started.insert(job.id);
        self.actions.push(Action::Launch {
            attempt: AttemptId {
                job: job.id,
                number: job.launches + 1,
            },
            allocation: placement.allocation,
            terms,
        });
    }

    /// Drops what was held back for a job that starts, and what it takes from lower classes: as `apply` will.
    fn free_slots(&mut self, job: &Job, placement: &Placement, ends_by: Option<Timestamp>) {
        self.vacate(job.id);
        if self.slots.is_empty() {
            return;
        }
        let tasks = placement
            .nodes
            .iter()
            .zip(placement.allocation.tasks.iter());
        let taken: BTreeSet<JobId> = tasks
            .filter(|(_, task)| !task.sliced)
            .filter_map(|(node, _)| {
                let hold = self.free.hold_on(*node)?;
                let in_time = matches!((ends_by, hold.at), (Some(end), Some(at)) if end <= at);
                hold.job.filter(|_| !in_time)
            })
            .collect();
        taken.into_iter().for_each(|other| self.vacate(other));
    }

    /// Gives up the slot of a job of which somebody takes something, most often all: only what is left of it is worth
    /// another look.
    fn vacate(&mut self, job: JobId) {
        if let Some(slot) = self.end_slot(job) {
            let class = self.state.jobs[&job].spec.class;
            let nodes = slot
                .nodes
                .iter()
                .map(|node| self.state.index.node_ids[node]);
            self.vacated.extend(nodes.map(|node| (node, class)));
        }
    }

    /// Whether a node of a slot that a start has ended has something left that could not be had before.
    fn has_vacated(&self) -> bool {
        if self.vacated.is_empty() {
            return false;
        }
        let without_gpus = self.state.index.queue.asks_for_no_gpus();
        self.vacated.iter().any(|(node, class)| {
            let hold = self.free.hold_on(*node).filter(|hold| hold.job.is_some());
            let shared = || self.free.parts().iter().any(|part| part.node == *node);
            hold.is_none_or(|hold| hold.class > *class)
                && (without_gpus || self.free.whole_gpus(*node) > 0 || shared())
        })
    }

    /// Holds nothing back for a job any more.
    pub(crate) fn unhold(&mut self, job: JobId) {
        // Who was tried before may fit there.
        self.left_over |= self.end_slot(job).is_some();
    }

    fn end_slot(&mut self, job: JobId) -> Option<Cow<'a, Slot>> {
        let slot = self.slots.remove(&job)?;
        for node in &slot.nodes {
            let id = self.state.index.node_ids[node];
            if self
                .free
                .hold_on(id)
                .is_some_and(|hold| hold.job == Some(job))
            {
                self.free.release(id);
            }
        }
        self.look_again();
        Some(slot)
    }

    /// The jobs of a class that did not start, in order, each team's in its own.
    pub(crate) fn blocked(&mut self, class: Class) -> Blocked<'a> {
        let state = self.state;
        let mut lines = Vec::new();
        let mut turns = Vec::new();
        for (index, (team, line)) in state.index.queue.lines(class).enumerate() {
            let first = &line.first;
            turns.push(Reverse((self.turn(team, first), index, first.band)));
            lines.push(Some((team, line.rest())));
        }
        Blocked {
            lines,
            turns: BinaryHeap::from(turns),
        }
    }
}

/// The times at which held nodes are needed, ascending.
fn needed_at<'s>(state: &State, slots: impl Iterator<Item = &'s Slot>) -> Vec<Timestamp> {
    let planned = state.maintenance.iter().map(|window| window.from);
    let at: BTreeSet<Timestamp> = slots.filter_map(|slot| slot.at).chain(planned).collect();
    at.into_iter().collect()
}

fn place_of(ask: AskId) -> usize {
    usize::try_from(ask).expect("few asks")
}

/// The jobs of a class in order.
pub(crate) struct Blocked<'a> {
    /// By team; nothing where the rest of them is left out.
    lines: Vec<Option<(TeamId, std::collections::btree_set::Iter<'a, Key>)>>,
    turns: BinaryHeap<Reverse<(Turn, usize, Band)>>,
}

impl<'a> Blocked<'a> {
    /// The next job that has not started.
    pub(crate) fn next(&mut self, cycle: &mut Cycle<'a>) -> Option<&'a Job> {
        let (id, _) = self.next_key(cycle)?;
        Some(&cycle.state.jobs[&id])
    }

    /// The same by its id, with its run time.
    fn next_key(&mut self, cycle: &mut Cycle<'a>) -> Option<(JobId, Band)> {
        while let Some(Reverse(((_, _, _, id), index, band))) = self.turns.pop() {
            let Some((team, rest)) = &mut self.lines[index] else {
                continue;
            };
            if let Some(key) = rest.next() {
                let turn = cycle.turn(*team, key);
                self.turns.push(Reverse((turn, index, key.band)));
            }
            cycle.steps += 1;
            if !cycle.started.contains(&id) {
                return Some((id, band));
            }
        }
        None
    }

    /// Leaves out the rest of a team's jobs.
    pub(crate) fn skip_team(&mut self, team: TeamId) {
        let mut lines = self.lines.iter_mut();
        let line = lines.find(|line| line.as_ref().is_some_and(|(of, _)| *of == team));
        if let Some(line) = line {
            *line = None;
        }
    }
}
