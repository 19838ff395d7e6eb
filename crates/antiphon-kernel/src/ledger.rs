//! The GPU-time that a team has used, hour by hour, and what that says about its share and its week. Books only: who may
//! hold how much is `quota`, who goes first is `share`.

use std::collections::{BTreeMap, VecDeque};

use antiphon_types::{GpuAmount, GpuTime, Millis, Timestamp};
use serde::{Deserialize, Serialize};

pub(crate) const HOUR_MS: u64 = 3_600_000;

/// Hours that are kept: the week of the budget.
pub(crate) const HOURS: u64 = 168;

/// Weight of the newest hour; older ones weigh less.
const WHOLE: u64 = 1 << 20;

/// GPU-time by hour, the newest last.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The hour since the Unix epoch that the last entry stands for.
    newest: u64,
    /// GPU-milliseconds.
    hours: VecDeque<u64>,
}

impl Usage {
    /// Adds what holding `amount` from `from` until `until` used, to each hour its part.
    pub(crate) fn charge(&mut self, amount: GpuAmount, from: Timestamp, until: Timestamp) {
        let until_ms = until.as_millis();
        let oldest = (until_ms / HOUR_MS).saturating_sub(HOURS) * HOUR_MS;
        let mut at = from.as_millis().max(oldest);
        while at < until_ms && !amount.is_zero() {
            let hour = at / HOUR_MS;
            let end = until_ms.min((hour + 1) * HOUR_MS);
            let used = amount.over(Millis::from_millis(end - at)).gpu_millis();
            if let Some(entry) = self.entry(hour) {
                *entry += used;
            }
            at = end;
        }
    }

    /// Takes back GPU-time that the team is not to pay for, from the newest hours first.
    pub(crate) fn refund(&mut self, time: GpuTime) {
        let mut left = time.gpu_millis();
        for entry in self.hours.iter_mut().rev() {
            let back = left.min(*entry);
            *entry -= back;
            left -= back;
            if left == 0 {
                return;
            }
        }
    }

    /// The entry of an hour; none where it lies before all that are kept.
    fn entry(&mut self, hour: u64) -> Option<&mut u64> {
        if self.hours.is_empty() {
            self.newest = hour;
            self.hours.push_back(0);
        }
        while self.newest < hour {
            self.newest += 1;
            self.hours.push_back(0);
            if count(self.hours.len()) > HOURS {
                self.hours.pop_front();
            }
        }
        let back = usize::try_from(self.newest - hour).ok()?;
        let index = self.hours.len().checked_sub(back + 1)?;
        self.hours.get_mut(index)
    }

    /// Hours with their age at `now`, the newest first.
    fn aged(&self, now: Timestamp) -> impl Iterator<Item = (u64, u64)> {
        let age = (now.as_millis() / HOUR_MS).saturating_sub(self.newest);
        (age..).zip(self.hours.iter().rev().copied())
    }

    /// Adds the GPU-time of each hour of the last seven days to `hours`, the newest first.
    pub(crate) fn add_hours(&self, now: Timestamp, hours: &mut [GpuTime]) {
        for (age, used) in self.aged(now) {
            if let Some(hour) = usize::try_from(age).ok().and_then(|age| hours.get_mut(age)) {
                *hour = *hour + GpuTime::from_gpu_millis(used);
            }
        }
    }

    /// GPU-time of the last seven days.
    pub(crate) fn week(&self, now: Timestamp) -> GpuTime {
        let kept = self.aged(now).take_while(|(age, _)| *age < HOURS);
        GpuTime::from_gpu_millis(kept.map(|(_, used)| used).sum())
    }

    /// GPU-time in which older hours count less: it is the same for a whole hour, unless something is booked.
    pub(crate) fn decayed(&self, now: Timestamp, decay: &Decay) -> GpuTime {
        let age = (now.as_millis() / HOUR_MS).saturating_sub(self.newest);
        let weights = usize::try_from(age).ok().and_then(|age| decay.0.get(age..));
        let used = self.hours.iter().rev();
        let weighted = used.zip(weights.unwrap_or_default());
        // An hour holds at most 40,000 GPUs x 3.6e6 ms: with 20 bits of weight that fits 64 bits with room to spare.
        let weighted = weighted.map(|(used, weight)| used * weight / WHOLE);
        GpuTime::from_gpu_millis(weighted.sum())
    }
}

/// What an hour of each age weighs: half after one half-life. A table, so that all machines weigh alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decay(Vec<u64>);

impl Decay {
    pub(crate) fn new(half_life: Millis) -> Self {
        let hours = (half_life.as_millis() / HOUR_MS).max(1);
        // Linear between the halvings: within 6 % of the exponential, and exact in integers.
        let weight = |age: u64| {
            let halvings = u32::try_from(age / hours).unwrap_or(u32::MAX);
            let from = WHOLE.checked_shr(halvings).unwrap_or(0);
            from - from / 2 * (age % hours) / hours
        };
        Self((0..HOURS).map(weight).collect())
    }
}

/// What a team holds of one GPU type, and has used of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// What its attempts hold now.
    pub allocated: GpuAmount,
    /// Until when `usage` counts.
    since: Timestamp,
    /// What they have used.
    pub usage: Usage,
}

impl Account {
    /// Brings the books up to `now`.
    pub(crate) fn settle(&mut self, now: Timestamp) {
        self.usage.charge(self.allocated, self.since, now);
        self.since = now;
    }

    /// The books as they would stand at `now`.
    fn at(&self, now: Timestamp) -> std::borrow::Cow<'_, Usage> {
        if self.allocated.is_zero() || self.since >= now {
            return std::borrow::Cow::Borrowed(&self.usage);
        }
        let mut usage = self.usage.clone();
        usage.charge(self.allocated, self.since, now);
        std::borrow::Cow::Owned(usage)
    }

    /// GPU-time of the last seven days.
    #[must_use]
    pub fn week(&self, now: Timestamp) -> GpuTime {
        self.usage.week(now) + self.pending(now)
    }

    /// Adds the GPU-time of each hour of the last seven days to `hours`, the newest first, what runs now included.
    pub(crate) fn add_hours(&self, now: Timestamp, hours: &mut [GpuTime]) {
        self.at(now).add_hours(now, hours);
    }

    /// What runs now has used and is not yet booked: it is recent and weighs whole.
    pub(crate) fn pending(&self, now: Timestamp) -> GpuTime {
        self.allocated.over(now.since(self.since))
    }
}

/// A team's books, by GPU type.
pub type Accounts = BTreeMap<String, Account>;

/// When the last seven days of several books together hold less than `budget`, if nothing is used meanwhile.
pub(crate) fn falls_below<'a>(
    accounts: impl Iterator<Item = &'a Account>,
    budget: GpuTime,
    now: Timestamp,
) -> Timestamp {
    let hour = now.as_millis() / HOUR_MS;
    let mut hours: BTreeMap<u64, u64> = BTreeMap::new();
    for account in accounts {
        for (age, used) in account
            .at(now)
            .aged(now)
            .take_while(|(age, _)| *age < HOURS)
        {
            *hours.entry(hour + HOURS - age).or_default() += used;
        }
    }
    let mut left: u64 = hours.values().sum();
    let mut free_at = now;
    for (hour, used) in hours {
        if left < budget.gpu_millis() {
            break;
        }
        left -= used;
        free_at = Timestamp::from_millis(hour * HOUR_MS);
    }
    free_at
}

fn count(number: usize) -> u64 {
    u64::try_from(number).expect("a count fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn hours(hours: u64) -> Timestamp {
        Timestamp::from_millis(hours * HOUR_MS)
    }

    fn used(amount: u32, from: u64, until: u64) -> Usage {
        let mut usage = Usage::default();
        usage.charge(GpuAmount::from_gpus(amount), hours(from), hours(until));
        usage
    }

    #[test]
    fn each_hour_gets_its_part() {
        let mut usage = Usage::default();
        let half_past = Timestamp::from_millis(HOUR_MS / 2);
        usage.charge(GpuAmount::from_gpus(2), half_past, hours(3));
        assert_eq!(usage.hours, [HOUR_MS, 2 * HOUR_MS, 2 * HOUR_MS]);
        assert_eq!(usage.week(hours(3)).gpu_millis(), 5 * HOUR_MS);
    }

    #[test]
    fn hours_are_told_with_the_newest_first_and_what_runs_now() {
        let account = Account {
            allocated: GpuAmount::from_gpus(4),
            since: hours(3),
            usage: used(2, 1, 3),
        };
        let mut told = [GpuTime::ZERO; 4];
        account.add_hours(hours(4), &mut told);
        let told = told.map(|hour| hour.gpu_millis() / HOUR_MS);
        assert_eq!(told, [0, 4, 2, 2], "hour 4 has just begun");
    }

    #[test]
    fn a_week_later_nothing_counts_any_more() {
        let usage = used(8, 0, 10);
        assert_eq!(usage.week(hours(100)).gpu_millis(), 80 * HOUR_MS);
        assert_eq!(usage.week(hours(172)).gpu_millis(), 40 * HOUR_MS);
        assert_eq!(usage.week(hours(400)), GpuTime::ZERO);
    }

    #[test]
    fn usage_halves_with_every_half_life() {
        let decay = Decay::new(Millis::from_secs(24 * 3_600));
        let usage = used(8, 0, 1);
        for (age, part) in [(0, 1), (24, 2), (48, 4)] {
            let left = usage.decayed(hours(age), &decay).gpu_millis();
            assert_eq!(left, 8 * HOUR_MS / part, "after {age} h");
        }
    }

    #[test]
    fn a_refund_comes_out_of_the_newest_hours() {
        let mut usage = used(1, 0, 3);
        usage.refund(GpuTime::from_gpu_millis(HOUR_MS + HOUR_MS / 2));
        assert_eq!(usage.hours, [HOUR_MS, HOUR_MS / 2, 0]);
        usage.refund(GpuTime::from_gpu_millis(100 * HOUR_MS));
        assert_eq!(usage.week(hours(3)), GpuTime::ZERO);
    }

    #[test]
    fn the_next_free_date_is_when_enough_hours_are_a_week_old() {
        let usage = used(10, 0, 4);
        let budget = GpuTime::from_gpu_millis(25 * HOUR_MS);
        // 40 GPU-hours: the first hour's ten and the second's have to go.
        let account = Account {
            usage: usage.clone(),
            ..Account::default()
        };
        let free_at = falls_below(std::iter::once(&account), budget, hours(4));
        assert_eq!(free_at, hours(HOURS + 1));
        assert_eq!(usage.week(hours(HOURS + 1)).gpu_millis(), 20 * HOUR_MS);
    }

    #[test]
    fn a_span_longer_than_the_books_keeps_the_week() {
        let usage = used(1, 0, 1_000);
        assert_eq!(usage.week(hours(999)).gpu_millis(), HOURS * HOUR_MS);
    }
}
