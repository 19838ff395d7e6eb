//! The pending jobs in service order, kept as they come and go: by team and class in one line each, and by what they ask
//! for, so that a cycle need not look at jobs like one that does not fit. Orders nothing across teams: `order` does.

use std::cmp::Reverse;
use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use antiphon_types::{Class, GpuTime, JobId, JobSpec, Millis, Shape, Timestamp};

use crate::expect::{cost, slower, slowest};
use crate::jobs::{DeadlineRecord, Job};
use crate::table::Table;
use crate::teams::TeamId;

/// What a job asks for: jobs that ask for the same fit or do not fit together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ask {
    /// Shapes by role.
    roles: Vec<Vec<Shape>>,
    resources: Vec<(String, u64)>,
    /// Spread over nodes, or kept together.
    service: bool,
    /// Whether losing its nodes costs it little.
    checkpointed: bool,
}

impl Ask {
    pub(crate) fn of(spec: &JobSpec) -> Self {
        let shapes = |role: &antiphon_types::Role| role.shapes().cloned().collect();
        let resources = spec.resources.iter();
        Self {
            roles: spec.roles.iter().map(shapes).collect(),
            resources: resources.map(|(name, n)| (name.clone(), *n)).collect(),
            service: spec.class == Class::Service,
            checkpointed: spec.checkpoint.is_some(),
        }
    }
}

/// The quarter octave of a job's longest run time: those in one may run in front of the same reservations. Unknown ones are
/// the longest.
pub(crate) type Band = u8;

const UNKNOWN: Band = u8::MAX;

pub(crate) fn band(job: &Job) -> Band {
    let Some(high) = job.expect.high else {
        return UNKNOWN;
    };
    let ms = slower(high, slowest(&job.spec)).as_millis().max(4);
    let octave = ms.ilog2();
    let quarter = (ms >> (octave - 2)) & 3;
    u8::try_from(u64::from(octave) * 4 + quarter).expect("at most 256 quarters")
}

/// The longest run time of a band: what all in it are taken to need.
pub(crate) fn longest(band: Band) -> Option<Millis> {
    if band == UNKNOWN {
        return None;
    }
    let (octave, quarter) = (u32::from(band / 4), u64::from(band % 4));
    let end = u128::from(5 + quarter) << octave.saturating_sub(2);
    Some(Millis::from_millis(u64::try_from(end).unwrap_or(u64::MAX)))
}

/// Where a job stands in its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// In front of all: it has waited past its class's bound, since then.
    Promoted(Timestamp),
    /// By the latest time at which it has to start to meet its deadline.
    Deadline(Timestamp),
    /// By its team's share.
    Share,
}

/// The order inside one team and class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) lane: Lane,
    priority: Reverse<i32>,
    pub(crate) cost: GpuTime,
    pub(crate) job: JobId,
    /// Rides along: no two keys have the same job.
    pub(crate) band: Band,
}

impl Key {
    pub(crate) fn of(job: &Job) -> Self {
        let latest_start = || {
            let deadline = job.spec.deadline?;
            let ms = deadline.as_millis();
            let left = ms.saturating_sub(job.expect.expected.as_millis());
            (job.deadline == Some(DeadlineRecord::Admitted)).then(|| Timestamp::from_millis(left))
        };
        let lane = match job.promoted {
            Some(since) => Lane::Promoted(since),
            None => latest_start().map_or(Lane::Share, Lane::Deadline),
        };
        Self {
            lane,
            priority: Reverse(job.spec.priority),
            cost: cost(job),
            job: job.id,
            band: band(job),
        }
    }
}

/// Where a job was put, to take it out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    class: Class,
    team: TeamId,
    key: Key,
    ask: AskId,
}

/// Jobs in the order inside one team and class. The first lies here itself: most looks go no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) first: Key,
    rest: BTreeSet<Key>,
}

impl Line {
    const fn new(first: Key) -> Self {
        Self {
            first,
            rest: BTreeSet::new(),
        }
    }

    fn insert(&mut self, key: Key) {
        let later = if key < self.first {
            std::mem::replace(&mut self.first, key)
        } else {
            key
        };
        self.rest.insert(later);
    }

    /// Takes a job out; says whether somebody is left.
    fn remove(&mut self, key: &Key) -> bool {
        if *key != self.first {
            self.rest.remove(key);
            return true;
        }
        let next = self.rest.pop_first();
        next.map(|next| self.first = next).is_some()
    }

    /// Who stands behind somebody.
    fn behind(&self, key: &Key) -> Option<Key> {
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        self.rest.range::<Key, _>(behind).next().copied()
    }

    /// Whether anybody but some stands in it.
    fn holds_beyond(&self, some: &BTreeSet<JobId>) -> bool {
        let mut all = std::iter::once(&self.first).chain(&self.rest);
        all.any(|key| !some.contains(&key.job))
    }

    /// Those behind the first.
    pub(crate) fn rest(&self) -> std::collections::btree_set::Iter<'_, Key> {
        self.rest.iter()
    }
}

/// Jobs of one class that ask for the same, by team.
pub(crate) type Like = BTreeMap<TeamId, Line>;

/// A short name for what jobs ask for, as long as one of them waits.
pub(crate) type AskId = u32;

/// What a short name stands for.
#[derive(Debug, Clone)]
struct Asked {
    ask: Arc<Ask>,
    /// The spec of one of those who ask for it. Whoever looks for room for all of them need not go to any of their jobs.
    example: Arc<JobSpec>,
    /// How many do.
    count: u32,
}

/// Short names of what jobs ask for: comparing what they ask for itself is too slow to do in each step.
#[derive(Debug, Clone, Default)]
struct AskBook {
    ids: BTreeMap<Arc<Ask>, AskId>,
    /// By id.
    asks: Vec<Option<Asked>>,
    unused: Vec<AskId>,
}

impl AskBook {
    fn enter(&mut self, spec: &JobSpec) -> AskId {
        let ask = Ask::of(spec);
        if let Some(id) = self.ids.get(&ask) {
            let asked = self.asks[place(*id)].as_mut();
            asked.expect("an id in use stands for something").count += 1;
            return *id;
        }
        let ask = Arc::new(ask);
        let id = self.unused.pop().unwrap_or_else(|| {
            self.asks.push(None);
            u32::try_from(self.asks.len() - 1).expect("few asks")
        });
        self.asks[place(id)] = Some(Asked {
            ask: Arc::clone(&ask),
            example: Arc::new(spec.clone()),
            count: 1,
        });
        self.ids.insert(ask, id);
        id
    }

    fn leave(&mut self, id: AskId) {
        let entry = &mut self.asks[place(id)];
        let asked = entry.as_mut().expect("an id in use stands for something");
        asked.count -= 1;
        if asked.count == 0 {
            self.ids.remove(&asked.ask);
            *entry = None;
            self.unused.push(id);
        }
    }

    fn of(&self, id: AskId) -> &Asked {
        let asked = self.asks[place(id)].as_ref();
        asked.expect("an id in use stands for something")
    }
}

fn place(id: AskId) -> usize {
    usize::try_from(id).expect("few asks")
}

/// The pending jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    entries: Table<Entry>,
    asks: BTreeMap<(Class, AskId), Like>,
    book: AskBook,
    lines: BTreeMap<(Class, TeamId), Line>,
}

impl Queue {
    pub(crate) fn enter(&mut self, job: &Job) {
        let ask = self.book.enter(&job.spec);
        let class = job.spec.class;
        let key = Key::of(job);
        enter(self.asks.entry((class, ask)).or_default(), job.team, key);
        enter(&mut self.lines, (class, job.team), key);
        let entry = Entry {
            class,
            team: job.team,
            key,
            ask,
        };
        let before = self.entries.insert(job.id, entry);
        assert!(before.is_none(), "{} stands in the queue twice", job.id);
    }

    pub(crate) fn leave(&mut self, id: JobId) {
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        let line = (entry.class, entry.team);
        remove(&mut self.lines, &line, &entry.key);
        let of = (entry.class, entry.ask);
        let like = self.asks.get_mut(&of).expect("it stands there");
        remove(like, &entry.team, &entry.key);
        if like.is_empty() {
            self.asks.remove(&of);
        }
        self.book.leave(entry.ask);
    }

    pub(crate) fn holds(&self, id: JobId) -> bool {
        self.entries.get(id).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the jobs of a class ask for, and who asks.
    pub(crate) fn asks(&self, class: Class) -> impl Iterator<Item = (AskId, &Like)> {
        self.asks
            .range((class, 0)..=(class, AskId::MAX))
            .map(|((_, ask), like)| (*ask, like))
    }

    /// Whether all jobs of a class but some are of one team and save checkpoints.
    pub(crate) fn are_one_team_that_saves(&self, class: Class, but: &BTreeSet<JobId>) -> bool {
        let mut teams = self.lines(class).filter(|(_, line)| line.holds_beyond(but));
        let one_team = teams.nth(1).is_none();
        let cannot_save = |(ask, _): &(AskId, &Like)| !self.book.of(*ask).ask.checkpointed;
        let mut cannot_save = self.asks(class).filter(cannot_save);
        one_team && cannot_save.all(|(_, like)| !like.values().any(|line| line.holds_beyond(but)))
    }

    /// How many short names there are, unused ones included.
    pub(crate) const fn names(&self) -> usize {
        self.book.asks.len()
    }

    /// The jobs of a class by team, in the order inside each.
    pub(crate) fn lines(&self, class: Class) -> impl Iterator<Item = (TeamId, &Line)> {
        self.lines
            .range((class, 0)..=(class, TeamId::MAX))
            .map(|((_, team), line)| (*team, line))
    }

    /// The next in the order of its team who asks for the same as a job in the queue.
    pub(crate) fn next_like(&self, key: &Key) -> Option<Key> {
        let entry = self.entries.get(key.job)?;
        let like = self.asks.get(&(entry.class, entry.ask))?;
        like.get(&entry.team)?.behind(key)
    }

    /// What a job asks for.
    pub(crate) fn ask(&self, id: JobId) -> Option<AskId> {
        self.entries.get(id).map(|entry| entry.ask)
    }

    /// Whether anybody would do without a GPU.
    pub(crate) fn asks_for_no_gpus(&self) -> bool {
        let mut shapes = self
            .book
            .ids
            .keys()
            .flat_map(|ask| ask.roles.iter().flatten());
        shapes.any(|shape| shape.gpus.is_zero())
    }

    /// The spec of a job that asks for this: for those who look at nothing of it but what it asks for.
    pub(crate) fn example(&self, ask: AskId) -> &JobSpec {
        &self.book.of(ask).example
    }
}

impl PartialEq for Queue {
    /// Short names depend on who came first: what they stand for counts.
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, two): (&Entry, &Entry)| {
            one.class == two.class
                && one.team == two.team
                && one.key == two.key
                && self.book.of(one.ask).ask == other.book.of(two.ask).ask
        };
        let like = |queue: &Self| {
            let of = |((class, ask), like): (&(Class, AskId), &Like)| {
                ((*class, Arc::clone(&queue.book.of(*ask).ask)), like.clone())
            };
            queue.asks.iter().map(of).collect::<BTreeMap<_, _>>()
        };
        self.entries.len() == other.entries.len()
            && self.entries.values().zip(other.entries.values()).all(same)
            && self.lines == other.lines
            && like(self) == like(other)
    }
}

impl Eq for Queue {}

fn enter<K: Ord>(lines: &mut BTreeMap<K, Line>, of: K, key: Key) {
    match lines.entry(of) {
        MapEntry::Occupied(mut line) => line.get_mut().insert(key),
        MapEntry::Vacant(vacant) => {
            vacant.insert(Line::new(key));
        }
    }
}

fn remove<K: Ord>(lines: &mut BTreeMap<K, Line>, of: &K, key: &Key) {
    let line = lines.get_mut(of).expect("it stands there");
    if !line.remove(key) {
        lines.remove(of);
    }
}
