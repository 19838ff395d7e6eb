//! What there is of each job, by id. Ids are given in sequence, so that finding one is counting, not searching: a hundred
//! thousand jobs are looked up dozens of times for every one that starts.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Index;

use antiphon_types::JobId;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::jobs::Job;

/// Places of one page. A page is given up once nothing is left on it, so that an old job among many that have ended costs
/// one page and no more.
const PAGE: usize = 64;

/// Something by job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table<T> {
    /// The number of the first page: neither it nor the last is empty.
    first: u64,
    pages: VecDeque<Option<Box<Page<T>>>>,
    len: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Page<T> {
    used: usize,
    places: [Option<T>; PAGE],
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            first: 0,
            pages: VecDeque::new(),
            len: 0,
        }
    }
}

/// The page of a job and its place there.
fn page_of(id: JobId) -> (u64, usize) {
    let size = PAGE as u64;
    let place = usize::try_from(id.0 % size).expect("a place on a page");
    (id.0 / size, place)
}

impl<T> Table<T> {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Where a page lies, if it is not in front of the first.
    fn position(&self, page: u64) -> Option<usize> {
        usize::try_from(page.checked_sub(self.first)?).ok()
    }

    pub(crate) fn get(&self, id: JobId) -> Option<&T> {
        let (page, place) = page_of(id);
        let page = self.pages.get(self.position(page)?)?.as_ref()?;
        page.places[place].as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: JobId) -> Option<&mut T> {
        let (page, place) = page_of(id);
        let position = self.position(page)?;
        let page = self.pages.get_mut(position)?.as_mut()?;
        page.places[place].as_mut()
    }

    /// Puts something in a place, and says what was there.
    pub(crate) fn insert(&mut self, id: JobId, value: T) -> Option<T> {
        let (page, place) = page_of(id);
        if self.pages.is_empty() {
            self.first = page;
        }
        while page < self.first {
            self.pages.push_front(None);
            self.first -= 1;
        }
        let position = self
            .position(page)
            .expect("the first page is not behind it");
        while self.pages.len() <= position {
            self.pages.push_back(None);
        }
        let page = self.pages[position].get_or_insert_with(|| {
            Box::new(Page {
                used: 0,
                places: std::array::from_fn(|_| None),
            })
        });
        let before = page.places[place].replace(value);
        if before.is_none() {
            page.used += 1;
            self.len += 1;
        }
        before
    }

    pub(crate) fn remove(&mut self, id: JobId) -> Option<T> {
        let (page, place) = page_of(id);
        let position = self.position(page)?;
        let there = self.pages.get_mut(position)?;
        let page = there.as_mut()?;
        let value = page.places[place].take()?;
        self.len -= 1;
        page.used -= 1;
        if page.used == 0 {
            *there = None;
            while let Some(None) = self.pages.front() {
                self.pages.pop_front();
                self.first += 1;
            }
            while let Some(None) = self.pages.back() {
                self.pages.pop_back();
            }
            if self.pages.is_empty() {
                self.first = 0;
            }
        }
        Some(value)
    }

    /// All of it, the oldest first.
    pub(crate) fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        let pages = self.pages.iter().flatten();
        pages.flat_map(|page| page.places.iter().flatten())
    }

    /// What is in the places from the page of a job on, the oldest first.
    fn onward(&self, id: JobId) -> impl DoubleEndedIterator<Item = &T> {
        let position = self.position(page_of(id).0).unwrap_or(0);
        let pages = self.pages.range(position.min(self.pages.len())..).flatten();
        pages.flat_map(|page| page.places.iter().flatten())
    }
}

/// All jobs by id. Each lies in a place of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(from = "BTreeMap<JobId, Box<Job>>")]
pub struct Jobs(Table<Box<Job>>);

impl Jobs {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: &JobId) -> Option<&Job> {
        self.0.get(*id).map(AsRef::as_ref)
    }

    /// Whether there is one of this id.
    #[must_use]
    pub fn contains_key(&self, id: &JobId) -> bool {
        self.0.get(*id).is_some()
    }

    /// Their ids, the oldest first.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &JobId> {
        self.values().map(|job| &job.id)
    }

    /// All of them, the oldest first.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.0.values().map(AsRef::as_ref)
    }

    /// Those that were submitted after one, the oldest first.
    pub fn after(&self, id: JobId) -> impl DoubleEndedIterator<Item = &Job> {
        let jobs = self.0.onward(id).map(AsRef::as_ref);
        jobs.filter(move |job: &&Job| job.id > id)
    }

    pub(crate) fn get_mut(&mut self, id: &JobId) -> Option<&mut Job> {
        self.0.get_mut(*id).map(AsMut::as_mut)
    }

    pub(crate) fn insert(&mut self, id: JobId, job: Job) {
        self.0.insert(id, Box::new(job));
    }

    pub(crate) fn remove(&mut self, id: &JobId) {
        self.0.remove(*id);
    }
}

impl Index<&JobId> for Jobs {
    type Output = Job;
    fn index(&self, id: &JobId) -> &Job {
        self.get(id).unwrap_or_else(|| panic!("there is no {id}"))
    }
}

impl From<BTreeMap<JobId, Box<Job>>> for Jobs {
    fn from(jobs: BTreeMap<JobId, Box<Job>>) -> Self {
        let mut table = Table::default();
        for (id, job) in jobs {
            table.insert(id, job);
        }
        Self(table)
    }
}

impl Serialize for Jobs {
    /// As a map, whatever it lies in.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for job in self.values() {
            map.serialize_entry(&job.id, job)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An old job, many that came and went, and some that are there now: what is left lies where it would have been put at
    /// once.
    #[test]
    fn what_was_removed_leaves_no_trace() {
        let mut table = Table::default();
        for id in 1..=1_000 {
            assert_eq!(table.insert(JobId(id), id), None);
        }
        for id in (1..=900).filter(|id| *id != 200) {
            assert_eq!(table.remove(JobId(id)), Some(id));
            assert_eq!(table.remove(JobId(id)), None);
        }
        let mut fresh = Table::default();
        for id in (901..=1_000).rev().chain([200]) {
            fresh.insert(JobId(id), id);
        }
        assert_eq!(table, fresh);
        assert_eq!(table.len(), 101);
        assert_eq!(table.get(JobId(200)), Some(&200));
        assert_eq!(table.get(JobId(201)), None);
        assert_eq!(table.get(JobId(1_001)), None);
        assert_eq!(table.get(JobId(1)), None);
        let ids: Vec<u64> = table.values().rev().take(2).copied().collect();
        assert_eq!(ids, [1_000, 999]);
        assert_eq!(table.onward(JobId(990)).count(), 1_000 - 959);
        for id in (901..=1_000).chain([200]) {
            table.remove(JobId(id));
        }
        assert_eq!(table, Table::default());
    }
}
