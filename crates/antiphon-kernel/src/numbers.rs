//! How the platform does: the numbers that have redlines, folded from the log. A day of samples in slots of five minutes, in
//! histograms, so that memory does not grow with the cluster. Decides nothing: `gate` does.

use std::collections::{BTreeMap, VecDeque};

use antiphon_types::{GatePolicy, Millis, Number, Reading, Timestamp};
use serde::{Deserialize, Serialize};

/// Samples of so long lie together: as fine as history is drawn.
const SLOT: Millis = Millis::from_secs(300);
/// Slots of the last hour, by which a number is read and judged: long enough for twenty jobs of a small cluster.
const WINDOW: u64 = 12;
/// Slots of the last day, which are kept.
const DAY: u64 = 288;
/// Of a hundred samples, those that may be larger than what a span reads: one slow job is no trouble, one in twenty is.
const LARGER_PERCENT: u64 = 5;
/// Parts of an octave: spans within 1.6 % of each other read as the longest of them.
const PARTS: u64 = 64;

/// The numbers as of the last event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// The slot of the last event.
    slot: u64,
    /// In the order of [`Number::ALL`].
    kept: [Kept; Number::ALL.len()],
}

/// What is kept of one number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Kept {
    samples: Samples,
    /// The same with what is left out of the number.
    raw: Samples,
    /// Since when it is over its redline.
    over_since: Option<Timestamp>,
    /// Whether the gate has been shut over it for as long as it may, and it has not recovered since.
    spent: bool,
}

/// A day of samples of one number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Samples {
    /// Those with samples, the oldest first.
    slots: VecDeque<SampleSlot>,
    /// The last hour's, by bin.
    window: BTreeMap<u16, Bin>,
}

/// The samples of five minutes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct SampleSlot {
    /// Which, counted from the epoch.
    number: u64,
    /// Whether its samples are part of the window.
    in_window: bool,
    /// Ascending by bin.
    bins: Vec<(u16, Bin)>,
}

/// Samples that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Bin {
    count: u32,
    /// The longest of them: what they read as.
    longest: Millis,
}

impl Bin {
    fn add(&mut self, span: Millis) {
        self.count += 1;
        self.longest = self.longest.max(span);
    }
}

/// The bin of a job that was not completed, and of one that was.
const LOST: u16 = 0;
const COMPLETED: u16 = 1;

impl Samples {
    fn add(&mut self, slot: u64, bin: u16, span: Millis) {
        if self.slots.back().is_none_or(|last| last.number < slot) {
            self.slots.push_back(SampleSlot {
                number: slot,
                in_window: true,
                bins: Vec::new(),
            });
        }
        let last = self.slots.back_mut().expect("it was added just now");
        let place = last.bins.binary_search_by_key(&bin, |(bin, _)| *bin);
        let place = place.unwrap_or_else(|place| {
            last.bins.insert(place, (bin, Bin::default()));
            place
        });
        last.bins[place].1.add(span);
        self.window.entry(bin).or_default().add(span);
    }

    /// Forgets what is too old by then.
    fn pass(&mut self, slot: u64) {
        let old = |of: &&mut SampleSlot| of.number + WINDOW <= slot;
        let mut gone = self.slots.iter_mut().rev().skip_while(|of| !old(of));
        while let Some(leaves) = gone.next().filter(|of| of.in_window) {
            leaves.in_window = false;
            for (bin, gone) in &leaves.bins {
                let left = self.window.entry(*bin).or_default();
                left.count -= gone.count;
                if left.count == 0 {
                    self.window.remove(bin);
                }
            }
        }
        while self
            .slots
            .front()
            .is_some_and(|first| first.number + DAY <= slot)
        {
            self.slots.pop_front();
        }
    }

    /// How many there are in the last hour.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.window.values().map(|bin| bin.count).sum()
    }

    /// What they say of a number together.
    #[must_use]
    pub fn reading(&self, number: Number) -> Option<Reading> {
        let bins = self.window.iter().map(|(bin, of)| (*bin, *of));
        read(number, bins)
    }

    /// When the oldest of the window leave it.
    fn leaves_at(&self) -> Option<Timestamp> {
        let oldest = self.slots.iter().find(|slot| slot.in_window)?;
        Some(begin(oldest.number + WINDOW))
    }
}

/// What samples, ascending by bin, say of a number.
fn read(
    number: Number,
    bins: impl DoubleEndedIterator<Item = (u16, Bin)> + Clone,
) -> Option<Reading> {
    let all: u64 = bins.clone().map(|(_, of)| u64::from(of.count)).sum();
    if all == 0 {
        return None;
    }
    match number {
        Number::CompletionRate => {
            let mut completed = bins.filter(|(bin, _)| *bin == COMPLETED);
            let completed = completed.next().map_or(0, |(_, of)| of.count);
            let share = u32::try_from(u64::from(completed) * 1_000 / all);
            Some(Reading::Permille(share.expect("a share of a thousand")))
        }
        Number::TimeToCheckpoint | Number::DelayProduction | Number::DelayBestEffort => {
            let mut larger = all * LARGER_PERCENT / 100;
            for (_, of) in bins.rev() {
                if larger < u64::from(of.count) {
                    return Some(Reading::Span(of.longest));
                }
                larger -= u64::from(of.count);
            }
            None
        }
    }
}

impl Numbers {
    /// Lets time pass.
    pub(crate) fn pass(&mut self, now: Timestamp, policy: Option<&GatePolicy>) {
        let slot = slot(now);
        if slot <= self.slot {
            return;
        }
        self.slot = slot;
        for kept in &mut self.kept {
            kept.samples.pass(slot);
            kept.raw.pass(slot);
        }
        self.judge_all(now, policy);
    }

    /// Takes the span of something that the platform did: what it is answered for, and all that passed.
    pub(crate) fn took(
        &mut self,
        number: Number,
        span: Millis,
        raw: Option<Millis>,
        now: Timestamp,
        policy: Option<&GatePolicy>,
    ) {
        let slot = slot(now);
        let kept = &mut self.kept[place(number)];
        kept.samples.add(slot, bin(span), span);
        if let Some(raw) = raw {
            kept.raw.add(slot, bin(raw), raw);
        }
        self.judge(number, now, policy);
    }

    /// Takes the end of a job, with whether it was completed; `counts` where the platform is answered for it.
    pub(crate) fn ended(
        &mut self,
        completed: bool,
        counts: bool,
        now: Timestamp,
        policy: Option<&GatePolicy>,
    ) {
        let slot = slot(now);
        let bin = if completed { COMPLETED } else { LOST };
        let kept = &mut self.kept[place(Number::CompletionRate)];
        kept.raw.add(slot, bin, Millis::ZERO);
        if counts {
            kept.samples.add(slot, bin, Millis::ZERO);
            self.judge(Number::CompletionRate, now, policy);
        }
    }

    /// Judges every number anew.
    pub(crate) fn judge_all(&mut self, now: Timestamp, policy: Option<&GatePolicy>) {
        for number in Number::ALL {
            self.judge(number, now, policy);
        }
    }

    /// Notes since when a number is over its redline, if it is and enough is known to say so.
    fn judge(&mut self, number: Number, now: Timestamp, policy: Option<&GatePolicy>) {
        let kept = &mut self.kept[place(number)];
        let over = policy.is_some_and(|policy| {
            let reading = kept.samples.reading(number);
            let enough = kept.samples.count() >= policy.samples_min;
            enough && reading.is_some_and(|reading| policy.is_over(number, reading))
        });
        if over {
            kept.over_since.get_or_insert(now);
        } else {
            kept.over_since = None;
            kept.spent = false;
        }
    }

    /// The gate was shut for as long as it may be: what is over did not recover by that.
    pub(crate) fn spend(&mut self) {
        for kept in &mut self.kept {
            kept.spent = kept.over_since.is_some();
        }
    }

    /// Since when a number is over its redline, if it is and the gate may still help.
    pub(crate) fn troubled_since(&self, number: Number) -> Option<Timestamp> {
        let kept = &self.kept[place(number)];
        kept.over_since.filter(|_| !kept.spent)
    }

    /// Since when a number is over its redline, if it is.
    #[must_use]
    pub fn over_since(&self, number: Number) -> Option<Timestamp> {
        self.kept[place(number)].over_since
    }

    /// When the oldest samples of a number no longer count.
    pub(crate) fn leaves_at(&self, number: Number) -> Option<Timestamp> {
        self.kept[place(number)].samples.leaves_at()
    }

    /// The numbers as they will be at a later time if nothing happens until then.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        let mut later = self.clone();
        later.pass(now, None);
        later
    }

    /// The samples of a number.
    #[must_use]
    pub fn samples(&self, number: Number) -> &Samples {
        &self.kept[place(number)].samples
    }

    /// What it reads with everything that is left out of it.
    #[must_use]
    pub fn raw(&self, number: Number) -> Option<Reading> {
        self.kept[place(number)].raw.reading(number)
    }

    /// What it read within the last day: of every five minutes with samples when they began, the reading, and how many
    /// samples there were.
    pub fn history(&self, number: Number) -> impl Iterator<Item = (Timestamp, Reading, u32)> {
        let slots = self.kept[place(number)].samples.slots.iter();
        slots.filter_map(move |slot| {
            let reading = read(number, slot.bins.iter().copied())?;
            let count = slot.bins.iter().map(|(_, of)| of.count).sum();
            Some((begin(slot.number), reading, count))
        })
    }
}

const fn place(number: Number) -> usize {
    match number {
        Number::CompletionRate => 0,
        Number::TimeToCheckpoint => 1,
        Number::DelayProduction => 2,
        Number::DelayBestEffort => 3,
    }
}

const fn slot(at: Timestamp) -> u64 {
    at.as_millis() / SLOT.as_millis()
}

const fn begin(slot: u64) -> Timestamp {
    Timestamp::from_millis(slot.saturating_mul(SLOT.as_millis()))
}

/// The bin of a span: exact below [`PARTS`] milliseconds, then so many to an octave.
fn bin(span: Millis) -> u16 {
    let ms = span.as_millis();
    let Some(above) = ms
        .checked_ilog2()
        .and_then(|octave| octave.checked_sub(PARTS.ilog2()))
    else {
        return u16::try_from(ms).expect("it is below an octave's parts");
    };
    let part = (ms >> above) & (PARTS - 1);
    let bin = u64::from(above + 1) * PARTS + part;
    u16::try_from(bin).expect("64 octaves of 64 parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shortest span of a bin.
    fn least(bin: u16) -> Millis {
        let (octave, part) = (u64::from(bin) / PARTS, u64::from(bin) % PARTS);
        Millis::from_millis(match octave.checked_sub(1) {
            None => part,
            Some(above) => (PARTS + part) << above,
        })
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_millis(s * 1_000)
    }

    #[test]
    fn a_bin_holds_what_is_within_a_sixtieth_of_it() {
        for ms in (0..2_000).chain([29_999, 30_000, 180_000, 7_200_000, u64::MAX / 2, u64::MAX]) {
            let least = least(bin(Millis::from_millis(ms))).as_millis();
            assert!(least <= ms, "{ms}: {least}");
            assert!(ms - least <= ms / 60, "{ms}: {least}");
        }
    }

    #[test]
    fn one_slow_sample_in_twenty_is_not_read_and_two_are() {
        let mut numbers = Numbers::default();
        let number = Number::DelayProduction;
        let mut take = |s| {
            let span = Millis::from_secs(s);
            numbers.took(number, span, Some(span), at(10), None);
            numbers.samples(number).reading(number).unwrap()
        };
        for _ in 0..18 {
            take(1);
        }
        let read = |reading| match reading {
            Reading::Span(span) => span.as_millis(),
            Reading::Permille(_) => unreachable!("a span"),
        };
        assert!(read(take(99)) > 90_000, "of 19 the largest is read");
        assert!(read(take(1)) <= 1_000);
        assert!(read(take(99)) > 90_000);
        assert_eq!(numbers.samples(number).count(), 21);
    }

    #[test]
    fn samples_count_for_an_hour_and_are_kept_for_a_day() {
        let mut numbers = Numbers::default();
        let policy = GatePolicy {
            samples_min: 1,
            ..GatePolicy::default()
        };
        numbers.pass(at(0), Some(&policy));
        numbers.ended(false, true, at(0), Some(&policy));
        numbers.ended(true, false, at(0), Some(&policy));
        assert_eq!(numbers.troubled_since(Number::CompletionRate), Some(at(0)));
        assert_eq!(
            numbers.raw(Number::CompletionRate),
            Some(Reading::Permille(500))
        );
        assert_eq!(numbers.leaves_at(Number::CompletionRate), Some(at(3_600)));
        numbers.pass(at(3_599), Some(&policy));
        assert_eq!(numbers.samples(Number::CompletionRate).count(), 1);
        numbers.pass(at(3_600), Some(&policy));
        assert_eq!(numbers.samples(Number::CompletionRate).count(), 0);
        assert_eq!(numbers.troubled_since(Number::CompletionRate), None);
        assert_eq!(numbers.history(Number::CompletionRate).count(), 1);
        numbers.pass(at(86_400), Some(&policy));
        assert_eq!(numbers.history(Number::CompletionRate).count(), 0);
        assert_eq!(numbers.kept[0].samples, Samples::default());
    }
}
