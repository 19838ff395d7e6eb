//! The mix: what part of the stream each healthy shard gets. Three quarters of the stream go evenly over categories, one by how
//! much their probes improved of late for what they got of it; inside a category by distinct samples. As long as nothing is
//! known of improvement, from the first step on, all of it is even. Training loss never enters: a bandit on it feeds noise.

use std::collections::BTreeMap;

use antiphon_types::{DirectiveBody, Remedy, Rule, Verdict};

use crate::conclusion::Conclusion;
use crate::robust::median;
use crate::shard::{Standing, TRIAL_SHARE, WARM_UP_STEPS, Watched};
use crate::starving::Starved;
use crate::stream::{Category, IMPROVED_TICKS, Shard, Stream};

/// The least part of the stream of a shard that is trusted, so that it stays known; less where there are many.
pub(crate) const FLOOR: f64 = 0.02;
/// All floors together leave this part of the stream to be given by merit.
const FLOORS_SHARE_MAX: f64 = 0.5;
/// A weight at most doubles or halves in a tick.
const MOVE_MAX: f64 = 2.0;
/// Part of the stream that is spread evenly over categories: even was hard to beat. What improves fastest is often what few
/// samples are enough for.
const EVEN_SHARE: f64 = 0.75;
/// Nats added to each improvement: where nothing improves by more than probes waver, the mix goes back to even.
const IMPROVEMENT_BASE: f64 = 0.05;
/// What a category got is held against an even part up to so many times more or less: a small part says little.
const PART_MAX: f64 = 4.0;
/// The mix is told when some weight moved by more than this since it was told last: a smaller move changes little, and whoever
/// is told looks at the probes more often.
const TOLD_MOVE_MIN: f64 = 0.2;
/// The last twentieth of a run keeps its mix: a change would have no time to pay.
const FROZEN_PERMILLE: u64 = 950;
/// Parts per million of a weight of 1.
const PPM: f64 = 1e6;
/// The sum of all weights that is kept as the trainer has it; a larger one would not fit into parts per million.
const WHOLE_MAX: f64 = 4_000.0;

/// The mix as it was told last.
#[derive(Debug, Default)]
pub(crate) struct Mix {
    told: Vec<f64>,
}

/// Says, at the end of a tick, which weights should move: as the remedy of a category that has begun to starve, else as a
/// finding of its own where they moved far enough.
pub(crate) fn tell(
    mix: &mut Mix,
    stream: &Stream,
    watched: &[Watched],
    starved: Starved,
) -> Vec<Conclusion> {
    let mut said = starved.cleared;
    let frozen = stream
        .done_permille()
        .is_some_and(|done| done >= FROZEN_PERMILLE);
    let touched = watched.iter().any(|watched| !watched.trusted());
    let drawn = || {
        let pairs = stream.shards.iter().zip(watched);
        pairs.filter(|(shard, watched)| shard.heard && watched.trusted())
    };
    let all_suspicious = drawn().all(|(_, watched)| watched.suspicious);
    if frozen || all_suspicious || !(informed(stream) || touched) {
        return said;
    }
    let Some(Held { shares: old, whole }) = mix.shares(stream, watched) else {
        return said;
    };
    let new = propose(stream, watched, &old, &starved.categories);
    // What is new has moved nowhere yet.
    let known = mix.told.len();
    mix.told.extend(&old[known..]);
    let moved = |index: &usize| {
        let (new, told) = (new[*index], mix.told[*index]);
        (new - told).abs() > TOLD_MOVE_MIN * told.max(FLOOR * FLOOR)
    };
    let moved: Vec<usize> = (0..new.len()).filter(moved).collect();
    let weights = table(stream, watched, &new, whole);
    for begun in &starved.begun {
        let name = stream.category_names.name(begun.category);
        let raised = stream.shards.iter().enumerate().any(|(index, shard)| {
            shard.category == begun.category && new[index] > old[index] && watched[index].trusted()
        });
        let raise = raised.then(|| Remedy::Direct(weights.clone()));
        let augment = Remedy::Augment {
            of: name.to_owned(),
        };
        // More weight costs nothing, so it goes first; what does not help is not tried in place of more data again.
        let mut remedies: Vec<Remedy> = raise.into_iter().chain([augment]).collect();
        if begun.still {
            remedies.reverse();
        }
        said.push(Conclusion {
            rule: Rule::Shard,
            subject: name.to_owned(),
            verdict: Verdict::Starving,
            evidence: begun.evidence.clone(),
            step: stream.step(),
            remedies,
        });
    }
    if moved.is_empty() {
        return said;
    }
    // Told with the weights of a category that has just begun to starve, else by itself.
    if starved.begun.iter().all(|begun| begun.still) {
        said.push(Conclusion {
            rule: Rule::Shard,
            subject: String::new(),
            verdict: Verdict::Mix,
            evidence: evidence(stream, watched, &old, &new, &moved),
            step: stream.step(),
            remedies: vec![Remedy::Direct(weights)],
        });
    }
    mix.told = new;
    said
}

/// Whether anything is known of what the shards are for. If not, their owner's mix is as good as any.
fn informed(stream: &Stream) -> bool {
    let mut categories = stream.categories.iter().enumerate();
    categories.any(|(index, category)| {
        category.probe().is_some() || !stream.category_names.name(index).is_empty()
    })
}

/// What part of the stream each shard should have next.
fn propose(stream: &Stream, watched: &[Watched], old: &[f64], starving: &[bool]) -> Vec<f64> {
    let fixed: Vec<Option<f64>> = watched
        .iter()
        .zip(&stream.shards)
        .zip(old)
        .map(|((watched, shard), old)| match watched.standing {
            Standing::Out { share, .. } => Some(share),
            Standing::Trial => Some(TRIAL_SHARE),
            // Nothing was heard of it: paused by its owner, or its loss is not a number. It keeps what it has.
            Standing::Trusted => (!shard.heard).then_some(*old),
        })
        .collect();
    let free: Vec<usize> = (0..old.len())
        .filter(|index| fixed[*index].is_none())
        .collect();
    let mass = (1.0 - fixed.iter().flatten().sum::<f64>()).max(0.0);
    let held: f64 = free.iter().map(|index| old[*index]).sum();
    let target = target(stream, watched, old, &free, starving, mass);
    let bounds: Vec<Bounds> = free
        .iter()
        .map(|index| {
            let share = if held > 0.0 {
                old[*index] * mass / held
            } else {
                0.0
            };
            let floor = FLOOR.min(FLOORS_SHARE_MAX * mass / free.len() as f64);
            // Before it is sure what is wrong with a shard, it makes way step by step: that is soon undone.
            let ceiling = watched[*index].suspicious.then_some(old[*index] / MOVE_MAX);
            Bounds::new(share, floor, ceiling)
        })
        .collect();
    // Improvements waver, so what they ask for is met half way each time; there is nothing to waver before the first.
    let improved = |category: &Category| category.improved(IMPROVED_TICKS);
    let measured = stream.categories.iter().any(|it| improved(it).is_some());
    let wanted = bounds.iter().zip(&target).map(|(bounds, target)| {
        if measured {
            f64::midpoint(bounds.old, *target)
        } else {
            *target
        }
    });
    let fitted = fit(wanted.collect(), &bounds, mass);
    let mut new: Vec<f64> = fixed.iter().map(|share| share.unwrap_or(0.0)).collect();
    for (index, share) in free.iter().zip(fitted) {
        new[*index] = share;
    }
    new
}

/// Where the free shards would be without bounds; in the order of `free`, together `mass`.
fn target(
    stream: &Stream,
    watched: &[Watched],
    old: &[f64],
    free: &[usize],
    starving: &[bool],
    mass: f64,
) -> Vec<f64> {
    let count = stream.categories.len();
    let mut members = vec![Vec::new(); count];
    for (place, index) in free.iter().enumerate() {
        members[stream.shards[*index].category].push(place);
    }
    let mut shares = vec![0.0; free.len()];
    if !informed(stream) {
        for (share, index) in shares.iter_mut().zip(free) {
            *share = old[*index];
        }
        return shares;
    }
    let merits = merits(stream, free, &members, starving);
    for (members, merit) in members.iter().zip(merits) {
        let parts = parts(stream, watched, free, members);
        let whole: f64 = parts.iter().sum();
        for (place, part) in members.iter().zip(parts) {
            shares[*place] = mass * merit * part / whole;
        }
    }
    shares
}

/// The part of the stream that each category is due; 0 for one without free shards.
fn merits(stream: &Stream, free: &[usize], members: &[Vec<usize>], starving: &[bool]) -> Vec<f64> {
    let present = || (0..members.len()).filter(|category| !members[*category].is_empty());
    let drawn: Vec<f64> = members
        .iter()
        .map(|members| {
            let shards = members.iter().map(|place| &stream.shards[free[*place]]);
            shards
                .map(|shard| shard.drawn_lately(IMPROVED_TICKS, stream.ticks))
                .sum()
        })
        .collect();
    let even = drawn.iter().sum::<f64>() / present().count().max(1) as f64;
    // What a category improved by is owed to how much it got: held against an even part, it says what one sample is worth.
    let improved: Vec<Option<f64>> = stream
        .categories
        .iter()
        .zip(&drawn)
        .map(|(category, drawn)| {
            let part = (drawn / even.max(1.0)).clamp(PART_MAX.recip(), PART_MAX);
            let nats = category.improved(IMPROVED_TICKS)?;
            Some(nats.max(0.0) / part)
        })
        .collect();
    let usual = median(&mut improved.iter().flatten().copied().collect::<Vec<_>>()).unwrap_or(0.0);
    let best = improved.iter().flatten().copied().fold(usual, f64::max);
    let improvement = |category: usize| {
        let nats = if starving.get(category).is_some_and(|starves| *starves) {
            best
        } else {
            improved[category].unwrap_or(usual)
        };
        IMPROVEMENT_BASE + nats
    };
    let whole: f64 = present().map(improvement).sum();
    let even = EVEN_SHARE / present().count().max(1) as f64;
    (0..members.len())
        .map(|category| {
            if members[category].is_empty() {
                0.0
            } else {
                even + (1.0 - EVEN_SHARE) * improvement(category) / whole
            }
        })
        .collect()
}

/// How the shards of one category share its part: by distinct samples where all are counted, else as their owner first had
/// them, else evenly. One that is doubted leaves its part to the others.
fn parts(stream: &Stream, watched: &[Watched], free: &[usize], members: &[usize]) -> Vec<f64> {
    let shards = || members.iter().map(|place| &stream.shards[free[*place]]);
    let counted: Option<Vec<f64>> = shards().map(|shard| shard.unique).collect();
    let wanted = || {
        let weights: Option<Vec<f64>> = shards().map(|shard| shard.weight_first).collect();
        weights.filter(|weights| weights.iter().all(|weight| *weight > 0.0))
    };
    let mut parts = counted
        .or_else(wanted)
        .unwrap_or_else(|| vec![1.0; members.len()]);
    let early = stream.steps_seen() < WARM_UP_STEPS;
    let doubted = |place: &usize| !early && watched[free[*place]].doubted();
    if !members.iter().all(doubted) {
        for (part, place) in parts.iter_mut().zip(members) {
            if doubted(place) {
                *part = 0.0;
            }
        }
    }
    parts
}

/// Between what a share may become in one tick.
struct Bounds {
    old: f64,
    low: f64,
    high: f64,
}

impl Bounds {
    fn new(old: f64, floor: f64, ceiling: Option<f64>) -> Self {
        let high = if old > 0.0 { MOVE_MAX * old } else { floor };
        let high = ceiling.map_or(high, |ceiling| high.min(ceiling));
        let low = (old / MOVE_MAX).max(floor).min(high);
        Self { old, low, high }
    }
}

/// Brings shares between their bounds and their sum to `mass`, as far as the bounds allow.
fn fit(mut shares: Vec<f64>, bounds: &[Bounds], mass: f64) -> Vec<f64> {
    // Each round settles at least one share at a bound, or ends.
    for _ in 0..=bounds.len().min(32) {
        for (share, bounds) in shares.iter_mut().zip(bounds) {
            *share = share.clamp(bounds.low, bounds.high);
        }
        let missing = mass - shares.iter().sum::<f64>();
        let movable = |share: f64, bounds: &Bounds| {
            if missing > 0.0 {
                share < bounds.high
            } else {
                share > bounds.low
            }
        };
        let pairs = || shares.iter().copied().zip(bounds);
        let room: f64 = pairs()
            .filter(|(share, bounds)| movable(*share, bounds))
            .map(|(share, _)| share)
            .sum();
        if missing.abs() < 1e-9 || room <= 0.0 {
            break;
        }
        let factor = 1.0 + missing / room;
        for (share, bounds) in shares.iter_mut().zip(bounds) {
            if movable(*share, bounds) {
                *share *= factor;
            }
        }
    }
    shares
}

/// What part of the stream each shard has, and the sum of the trainer's weights.
struct Held {
    shares: Vec<f64>,
    whole: f64,
}

impl Mix {
    /// The part of the stream that each shard has: as the trainer says, else as it was told, else as it was seen to draw.
    /// Nothing before there is anything to go by.
    fn shares(&self, stream: &Stream, watched: &[Watched]) -> Option<Held> {
        let shards = &stream.shards;
        let stated = shards
            .iter()
            .all(|shard| shard.weight.is_some() || !shard.heard);
        let shares: Vec<f64> = if stated && shards.iter().any(|shard| shard.weight.is_some()) {
            // A shard that is no longer drawn from no longer says that its weight is 0.
            let weight = |shard: &Shard, watched: &Watched| match watched.standing {
                Standing::Out { .. } if !shard.heard => 0.0,
                _ => shard.weight.unwrap_or(0.0),
            };
            let pairs = shards.iter().zip(watched);
            pairs
                .map(|(shard, watched)| weight(shard, watched))
                .collect()
        } else {
            let drawn: f64 = shards.iter().map(|shard| shard.drawn).sum();
            let seen = shards.iter().map(|shard| shard.drawn / drawn.max(1.0));
            let told = self.told.iter().copied();
            told.chain(seen.skip(self.told.len())).collect()
        };
        let whole: f64 = shares.iter().sum();
        (whole > 0.0).then(|| Held {
            shares: shares.iter().map(|share| share / whole).collect(),
            whole: if stated { whole } else { 1.0 },
        })
    }

    /// The mix as it is, but for the shards that are out or on trial.
    pub(crate) fn table_with(&mut self, stream: &Stream, watched: &[Watched]) -> DirectiveBody {
        let mut held = self.shares(stream, watched).unwrap_or_else(|| Held {
            shares: vec![1.0; watched.len()],
            whole: 1.0,
        });
        for (share, watched) in held.shares.iter_mut().zip(watched) {
            match watched.standing {
                Standing::Trusted => (),
                Standing::Out { share: capped, .. } => *share = capped,
                Standing::Trial => *share = TRIAL_SHARE,
            }
        }
        self.told.clone_from(&held.shares);
        table(stream, watched, &held.shares, held.whole)
    }
}

/// A directive for all shards but those of which nothing is heard: paused by their owner, they keep the weight that they come
/// back with. Weights stay on the trainer's scale, so that those fit in.
fn table(stream: &Stream, watched: &[Watched], shares: &[f64], whole: f64) -> DirectiveBody {
    let scale = PPM * whole.min(WHOLE_MAX);
    let named = |index: &usize| stream.shards[*index].heard || !watched[*index].trusted();
    let weights: BTreeMap<String, u32> = (0..shares.len())
        .filter(named)
        .map(|index| {
            let ppm = (shares[index] * scale)
                .round()
                .clamp(0.0, f64::from(u32::MAX)) as u32;
            (stream.shard_names.name(index).to_owned(), ppm)
        })
        .collect();
    DirectiveBody::SetWeights { weights }
}

/// The largest moves, and why.
fn evidence(
    stream: &Stream,
    watched: &[Watched],
    old: &[f64],
    new: &[f64],
    moved: &[usize],
) -> String {
    const NAMED_MAX: usize = 4;
    let mut largest = moved.to_vec();
    let by = |index: &usize| (new[*index] - old[*index]).abs();
    largest.sort_by(|a, b| by(b).total_cmp(&by(a)));
    let moves: Vec<String> = largest
        .iter()
        .take(NAMED_MAX)
        .map(|index| {
            let shard = &stream.shards[*index];
            let why = match watched[*index].standing {
                Standing::Out { verdict, .. } => format!("out as {verdict}"),
                Standing::Trial => "on trial".to_owned(),
                Standing::Trusted if watched[*index].doubted() => {
                    shard.gap(0.0).map_or_else(String::new, |gap| {
                        format!("gap {:+.2}, far above its siblings", gap.value)
                    })
                }
                Standing::Trusted => {
                    let category = stream.category_names.name(shard.category);
                    let improved = stream.categories[shard.category].improved(IMPROVED_TICKS);
                    let probe = stream.categories[shard.category].probe();
                    let told = match (improved, probe) {
                        (Some(nats), _) => format!("{category} improved {nats:.3} nat"),
                        (None, _) if stream.ticks == 0 => "even to begin with".to_owned(),
                        (None, Some(_)) => format!("{category} even until its next probe"),
                        (None, None) => format!("{category} without a probe"),
                    };
                    // The category may have no name.
                    told.trim_start().to_owned()
                }
            };
            let name = stream.shard_names.name(*index);
            format!(
                "{name} {:.1} to {:.1} % ({why})",
                100.0 * old[*index],
                100.0 * new[*index]
            )
        })
        .collect();
    let more = moved.len().saturating_sub(NAMED_MAX);
    let more = if more > 0 {
        format!("; {more} more")
    } else {
        String::new()
    };
    format!("{}{more}", moves.join("; "))
}
