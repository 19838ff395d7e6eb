//! How well starts were foretold, and what follows for the next forecast: an interval that held for eight of ten starts like
//! it. Plays nothing forward itself, and is no part of the state: what is shown changes with it, never what is decided.
//!
//! A forecast knows who is there and not who will come. How far that makes it wrong is measured: each wait that was foretold
//! is compared with the wait that followed, and the tenth and the ninetieth percentile of those ratios make the next
//! interval. Jobs that still wait count as well, as waits that are at least so long (Kaplan and Meier, "Nonparametric
//! estimation from incomplete observations", JASA 1958); else short waits, which end first, would make all seem short.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use antiphon_types::{JobId, Millis, Timestamp};

use super::{Forecast, Start, forecast};
use crate::jobs::{Job, JobState};
use crate::state::State;

/// Parts of an octave that ratios are told apart by.
const PARTS: i32 = 4;

/// Octaves that ratios may lie below or above one.
const OCTAVES: i32 = 12;

/// Ratios that are told apart.
const BUCKETS: usize = (2 * OCTAVES * PARTS + 1) as usize;

/// By how long the wait was foretold to be, in octaves of minutes: the longer, the more comes between.
const GROUPS: usize = 16;

/// Waits that say something together: so many that were foretold alike, or fewer of any kind before there are.
const WAITS_MIN: u64 = 40;
const WAITS_MIN_OF_ANY: u64 = 10;

/// What is taken for granted beside what was measured, as one wait for each ratio: anything from a quarter of what was foretold
/// to eight times as much. It widens what few waits say.
const PRIOR: RangeInclusive<i32> = -2 * PARTS..=3 * PARTS;

/// Waits after which the counts of a group are halved, so that what was long ago weighs less.
const WAITS_MAX: u64 = 1_024;

/// Added to both waits of a ratio: nobody minds whether it was ten seconds or twenty.
const MINUTE: Millis = Millis::from_secs(60);

/// What was foretold, and what came of it.
#[derive(Debug, Clone, Default)]
pub struct Foresight {
    /// Waits that have ended, by what was foretold of them.
    groups: Vec<Ratios>,
    /// The first forecast of each wait that goes on.
    open: BTreeMap<JobId, Foretold>,
}

/// One forecast that is to be judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foretold {
    /// When it was made.
    pub at: Timestamp,
    /// What came of playing the queue forward.
    pub played: Start,
    /// What was shown.
    pub shown: Start,
}

impl Foretold {
    /// How long the job was to wait, as far as could be seen.
    fn wait(&self) -> Millis {
        self.played.expected.since(self.at)
    }
}

/// How waits were, as parts of what was foretold: a logarithmic histogram.
#[derive(Debug, Clone)]
struct Ratios([u64; BUCKETS]);

impl Default for Ratios {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Foresight {
    /// Plays the queue forward, and corrects what comes of it by how such forecasts turned out. Returns with it the forecasts
    /// that came to be judged: what was shown, and when the job started.
    pub fn look(&mut self, state: &State) -> (Forecast, Vec<(Foretold, Timestamp)>) {
        let judged = self.judge(state);
        let mut forecast = forecast(state);
        let pending = self.pending(state.now());
        for (job, start) in &mut forecast.starts {
            let foretold = Foretold {
                at: state.now(),
                played: *start,
                shown: self.corrected(*start, state.now(), &pending),
            };
            *start = foretold.shown;
            if state.job(*job).is_some_and(waits) {
                self.open.entry(*job).or_insert(foretold);
            }
        }
        (forecast, judged)
    }

    /// The same for one start that was worked out elsewhere.
    #[must_use]
    pub fn correct(&self, start: Start, now: Timestamp) -> Start {
        self.corrected(start, now, &self.pending(now))
    }

    /// Compares what was foretold with what came, and forgets whoever waits no longer.
    fn judge(&mut self, state: &State) -> Vec<(Foretold, Timestamp)> {
        self.groups.resize_with(GROUPS, Ratios::default);
        let mut judged = Vec::new();
        let open = std::mem::take(&mut self.open);
        for (id, foretold) in open {
            let Some(job) = state.job(id) else {
                continue;
            };
            match started(job, foretold.at) {
                Some(at) => {
                    let ratio = bucket(foretold.wait(), at.since(foretold.at));
                    self.groups[group(foretold.wait())].add(ratio);
                    judged.push((foretold, at));
                }
                None if waits(job) => {
                    self.open.insert(id, foretold);
                }
                None => (),
            }
        }
        judged
    }

    /// Waits that go on, by group: how long they have lasted, as a part of what was foretold.
    fn pending(&self, now: Timestamp) -> Vec<Ratios> {
        let mut pending = vec![Ratios::default(); GROUPS];
        for foretold in self.open.values() {
            let ratio = bucket(foretold.wait(), now.since(foretold.at));
            pending[group(foretold.wait())].0[ratio] += 1;
        }
        pending
    }

    /// The interval that held for eight of ten waits that were foretold alike; as it was where there are too few of them.
    fn corrected(&self, start: Start, now: Timestamp, pending: &[Ratios]) -> Start {
        let wait = start.expected.since(now);
        let Some((ended, pending)) = self.like(group(wait), pending) else {
            return start;
        };
        let at = |wait: Millis| now.after(wait);
        let low = quantile(&ended, &pending, 100).map(|ratio| at(stretched(wait, ratio - 1)));
        let high = quantile(&ended, &pending, 900).map(|ratio| at(stretched(wait, ratio)));
        let half = quantile(&ended, &pending, 500).map(|ratio| at(stretched(wait, ratio)));
        let earliest = low.unwrap_or(start.expected);
        Start {
            earliest,
            expected: half.unwrap_or(start.expected).max(earliest),
            latest: high.map(|high| high.max(earliest)),
            learned: true,
        }
    }

    /// The waits of a group, with those of its neighbors until they are enough.
    fn like(&self, group: usize, pending: &[Ratios]) -> Option<(Ratios, Ratios)> {
        let within = |reach: usize| group.saturating_sub(reach)..=(group + reach).min(GROUPS - 1);
        let measured = |groups: RangeInclusive<usize>, least: u64| {
            let ended = sum(self.groups.get(groups.clone())?);
            (ended.0.iter().sum::<u64>() >= least).then_some((groups, ended))
        };
        let alike = (0..GROUPS).find_map(|reach| measured(within(reach), WAITS_MIN));
        let (groups, mut ended) = alike.or_else(|| measured(0..=GROUPS - 1, WAITS_MIN_OF_ANY))?;
        for ratio in PRIOR {
            ended.add(place_of(ratio));
        }
        Some((ended, sum(&pending[groups])))
    }
}

impl Ratios {
    fn add(&mut self, bucket: usize) {
        self.0[bucket] += 1;
        if self.0.iter().sum::<u64>() > WAITS_MAX {
            self.0.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

fn sum(groups: &[Ratios]) -> Ratios {
    let mut sum = Ratios::default();
    for group in groups {
        let both = sum.0.iter_mut().zip(&group.0);
        both.for_each(|(sum, count)| *sum += count);
    }
    sum
}

/// The ratio that so many of 1,000 waits do not exceed, as a bucket; nothing where too many go on for that to be known.
fn quantile(ended: &Ratios, pending: &Ratios, permille: u64) -> Option<i32> {
    let all = |ratios: &Ratios| ratios.0.iter().sum::<u64>();
    let mut at_risk = all(ended) + all(pending);
    // The part that waits longer still, in millionths.
    let mut longer = 1_000_000;
    for (ratio, (ended, pending)) in (0i32..).zip(ended.0.iter().zip(&pending.0)) {
        longer = (longer * (at_risk - ended))
            .checked_div(at_risk)
            .unwrap_or(longer);
        if longer <= 1_000_000 - permille * 1_000 {
            return Some(ratio - OCTAVES * PARTS);
        }
        at_risk -= ended + pending;
    }
    None
}

/// Which of the ratios a wait is of what was foretold: the bucket's upper end is not exceeded.
fn bucket(foretold: Millis, was: Millis) -> usize {
    let (foretold, was) = (foretold + MINUTE, was + MINUTE);
    let ratio = (-OCTAVES * PARTS..OCTAVES * PARTS).find(|ratio| was <= times(foretold, *ratio));
    place_of(ratio.unwrap_or(OCTAVES * PARTS))
}

fn place_of(ratio: i32) -> usize {
    usize::try_from(ratio + OCTAVES * PARTS).expect("no ratio lies below the least")
}

/// A wait that stands in a ratio to the one foretold.
fn stretched(foretold: Millis, ratio: i32) -> Millis {
    times(foretold + MINUTE, ratio).saturating_sub(MINUTE)
}

/// A time so many quarters of an octave longer.
fn times(time: Millis, quarters: i32) -> Millis {
    /// Powers of the fourth root of two, in thousandths.
    const ROOTS: [u128; 4] = [1_000, 1_189, 1_414, 1_682];
    let place = usize::try_from(quarters.rem_euclid(PARTS)).expect("a remainder is not negative");
    let ms = u128::from(time.as_millis()) * ROOTS[place];
    let octaves = quarters.div_euclid(PARTS);
    let ms = if octaves < 0 {
        ms >> octaves.unsigned_abs()
    } else {
        ms << octaves
    };
    Millis::from_millis(u64::try_from(ms / 1_000).unwrap_or(u64::MAX / 4))
}

fn group(wait: Millis) -> usize {
    let minutes = (wait + MINUTE).as_millis() / MINUTE.as_millis();
    let octave = usize::try_from(minutes.max(1).ilog2()).expect("few octaves");
    octave.min(GROUPS - 1)
}

fn waits(job: &Job) -> bool {
    matches!(job.state, JobState::Pending { .. })
}

/// When a job first started after a time, as far as that is still known.
fn started(job: &Job, after: Timestamp) -> Option<Timestamp> {
    let past = job.attempts.iter().map(|attempt| attempt.launched);
    let now = job.state.active().map(|active| active.launched);
    past.chain(now).filter(|at| *at >= after).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(count: u64) -> Millis {
        Millis::from_secs(count * 60)
    }

    fn at(minute: u64) -> Timestamp {
        Timestamp::from_millis(minute * 60_000)
    }

    /// Of waits that were foretold to take `foretold` minutes and took these.
    fn after(foretold: u64, were: impl Iterator<Item = u64>) -> Foresight {
        let mut groups = vec![Ratios::default(); GROUPS];
        for was in were {
            groups[group(minutes(foretold))].add(bucket(minutes(foretold), minutes(was)));
        }
        Foresight {
            groups,
            open: BTreeMap::new(),
        }
    }

    fn start(minute: u64) -> Start {
        Start {
            earliest: at(minute / 2),
            expected: at(minute),
            latest: None,
            learned: false,
        }
    }

    #[test]
    fn an_interval_is_what_held_for_eight_of_ten() {
        // Foretold 100 minutes, these took 100 to 300.
        let foresight = after(100, (0..200).map(|step| 100 + step));
        let corrected = foresight.correct(start(100), at(0));
        let within = |at: Timestamp, low, high| {
            let minute = at.as_millis() / 60_000;
            assert!((low..=high).contains(&minute), "{minute}");
        };
        within(corrected.earliest, 95, 120);
        within(corrected.expected, 190, 240);
        within(corrected.latest.unwrap(), 280, 340);
    }

    #[test]
    fn few_waits_correct_nothing_and_many_narrow_an_interval() {
        let width = |foresight: &Foresight| {
            let start = foresight.correct(start(100), at(0));
            start.latest.unwrap().since(start.earliest)
        };
        let foresight = after(100, (0..WAITS_MIN_OF_ANY - 1).map(|_| 300));
        assert_eq!(foresight.correct(start(100), at(0)), start(100));
        assert_eq!(Foresight::default().correct(start(100), at(0)), start(100));
        let few = width(&after(100, (0..WAITS_MIN).map(|_| 100)));
        let many = width(&after(100, (0..400).map(|_| 100)));
        assert!(many < few, "{many:?} {few:?}");
        assert!(many < minutes(40), "{many:?}");
    }

    #[test]
    fn waits_that_go_on_count_as_longer_than_they_have_lasted() {
        let mut foresight = after(100, (0..50).map(|_| 100));
        let short = foresight.correct(start(100), at(200)).latest.unwrap();
        // As many as have ended wait for three times as long as foretold.
        for job in 1..=50 {
            let foretold = Foretold {
                at: at(0),
                played: start(100),
                shown: start(100),
            };
            foresight.open.insert(JobId(job), foretold);
        }
        let start = Start {
            earliest: at(300),
            expected: at(400),
            latest: None,
            learned: false,
        };
        assert!(short < at(400), "{short:?}");
        // Half of them take more than three times as long: nine of ten are over after more than that.
        let long = foresight.correct(start, at(300)).latest.unwrap();
        assert!(long > at(600), "{long:?}");
    }

    #[test]
    fn buckets_hold_what_their_upper_end_does_not_exceed() {
        for (foretold, was) in [(0, 0), (1, 0), (10, 10), (10, 11), (10, 4_000), (500, 1)] {
            let (foretold, was) = (minutes(foretold), minutes(was));
            let place = i32::try_from(bucket(foretold, was)).unwrap() - OCTAVES * PARTS;
            assert!(was <= stretched(foretold, place), "{foretold:?} {was:?}");
            assert!(
                place == -OCTAVES * PARTS || was + MINUTE > times(foretold + MINUTE, place - 1),
                "{foretold:?} {was:?}"
            );
        }
    }
}
