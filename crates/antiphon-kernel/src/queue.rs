//! The pending jobs in service order, kept as they come and go: by team and class in one line each, and by what they ask
//! for, so that a cycle need not look at jobs like one that does not fit. Orders nothing across teams: `order` does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use antiphon_types::{Class, GpuTime, JobId, JobSpec, Millis, Shape, Timestamp};

use crate::expect::cost;
use crate::jobs::{DeadlineRecord, Job};
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
    let ms = high.as_millis().max(4);
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

/// Jobs of one class that ask for the same, by team.
pub(crate) type Like = BTreeMap<TeamId, BTreeSet<Key>>;

/// A short name for what jobs ask for, as long as one of them waits.
pub(crate) type AskId = u32;

/// Short names of what jobs ask for: comparing what they ask for itself is too slow to do in each step.
#[derive(Debug, Clone, Default)]
struct AskBook {
    ids: BTreeMap<Arc<Ask>, AskId>,
    /// By id: what it stands for, and how many jobs ask for that.
    asks: Vec<Option<(Arc<Ask>, u32)>>,
    unused: Vec<AskId>,
}

impl AskBook {
    fn enter(&mut self, ask: Ask) -> AskId {
        if let Some(id) = self.ids.get(&ask) {
            let entry = self.asks[place(*id)].as_mut();
            entry.expect("an id in use stands for something").1 += 1;
            return *id;
        }
        let ask = Arc::new(ask);
        let id = self.unused.pop().unwrap_or_else(|| {
            self.asks.push(None);
            u32::try_from(self.asks.len() - 1).expect("few asks")
        });
        self.asks[place(id)] = Some((Arc::clone(&ask), 1));
        self.ids.insert(ask, id);
        id
    }

    fn leave(&mut self, id: AskId) {
        let entry = &mut self.asks[place(id)];
        let (ask, count) = entry.as_mut().expect("an id in use stands for something");
        *count -= 1;
        if *count == 0 {
            self.ids.remove(ask);
            *entry = None;
            self.unused.push(id);
        }
    }

    fn of(&self, id: AskId) -> &Ask {
        let entry = self.asks[place(id)].as_ref();
        &entry.expect("an id in use stands for something").0
    }
}

fn place(id: AskId) -> usize {
    usize::try_from(id).expect("few asks")
}

/// The pending jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    entries: BTreeMap<JobId, Entry>,
    asks: BTreeMap<(Class, AskId), Like>,
    book: AskBook,
    lines: BTreeMap<(Class, TeamId), BTreeSet<Key>>,
}

impl Queue {
    pub(crate) fn enter(&mut self, job: &Job) {
        let ask = self.book.enter(Ask::of(&job.spec));
        let class = job.spec.class;
        let key = Key::of(job);
        let like = self.asks.entry((class, ask)).or_default();
        like.entry(job.team).or_default().insert(key);
        self.lines.entry((class, job.team)).or_default().insert(key);
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
        let Some(entry) = self.entries.remove(&id) else {
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
        self.entries.contains_key(&id)
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

    /// How many short names there are, unused ones included.
    pub(crate) const fn names(&self) -> usize {
        self.book.asks.len()
    }

    /// The jobs of a class by team, in the order inside each.
    pub(crate) fn lines(&self, class: Class) -> impl Iterator<Item = (TeamId, &BTreeSet<Key>)> {
        self.lines
            .range((class, 0)..=(class, TeamId::MAX))
            .map(|((_, team), line)| (*team, line))
    }

    /// What a job asks for.
    pub(crate) fn ask(&self, id: JobId) -> Option<AskId> {
        self.entries.get(&id).map(|entry| entry.ask)
    }
}

impl PartialEq for Queue {
    /// Short names depend on who came first: what they stand for counts.
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, two): ((&JobId, &Entry), (&JobId, &Entry))| {
            let (id, entry) = one;
            let (other_id, other_entry) = two;
            id == other_id
                && entry.class == other_entry.class
                && entry.team == other_entry.team
                && entry.key == other_entry.key
                && self.book.of(entry.ask) == other.book.of(other_entry.ask)
        };
        let like = |queue: &Self| {
            let of = |((class, ask), like): (&(Class, AskId), &Like)| {
                ((*class, queue.book.of(*ask).clone()), like.clone())
            };
            queue.asks.iter().map(of).collect::<BTreeMap<_, _>>()
        };
        self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(same)
            && self.lines == other.lines
            && like(self) == like(other)
    }
}

impl Eq for Queue {}

fn remove<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<Key>>, of: &K, key: &Key) {
    let set = sets.get_mut(of).expect("it stands there");
    set.remove(key);
    if set.is_empty() {
        sets.remove(of);
    }
}
