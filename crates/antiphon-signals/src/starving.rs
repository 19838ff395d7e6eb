//! Which categories starve: their held-out loss stays above what was asked, or stands still while the others' falls. Judged
//! by probes alone: a high training loss is no hunger.

use antiphon_types::{Rule, Verdict};

use crate::conclusion::Conclusion;
use crate::context::Context;
use crate::shard::Watched;
use crate::sorted::Sorted;
use crate::stream::{Stream, TREND_TICKS};

/// Ticks with a probe before a category is judged.
const TICKS_MIN: usize = 4;
/// Ticks in a row that have to agree, either way.
const TICKS_IN_ROW: u32 = 2;
/// Nats from the older to the newer half of the ticks below which a probe stands still.
const STILL_MAX: f64 = 0.02;
/// One that improves by less than this share of what the others do stands still too.
const STILL_SHARE: f64 = 0.1;
/// Nats by which the others have to have improved meanwhile.
const OTHERS_IMPROVED_MIN: f64 = 0.05;
/// One that has fallen by at least this share of what the others have is not behind: it has arrived.
const FELL_SHARE_MAX: f64 = 0.5;
/// Ticks in which more weight has to help; if it does not, more data is asked for.
const WEIGHT_TICKS: u64 = 4;
/// Ticks until more data is asked for again.
const COOL_DOWN_TICKS: u64 = 20;

#[derive(Debug, Default)]
pub(crate) struct StarvingRule {
    categories: Vec<Hunger>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Hunger {
    ticks: u32,
    fed_ticks: u32,
    starves: bool,
    /// How often it was told since it began, and at which tick last.
    times: u32,
    told: u64,
}

/// What the rule says of a tick.
#[derive(Debug, Default)]
pub(crate) struct Starved {
    /// Whether it starves, by category.
    pub(crate) categories: Vec<bool>,
    /// Those that are worth a finding now.
    pub(crate) begun: Vec<Begun>,
    /// Those that no longer starve.
    pub(crate) cleared: Vec<Conclusion>,
}

/// A category that starves.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) category: usize,
    /// The numbers.
    pub(crate) evidence: String,
    /// Whether it has had more weight for a while, in vain.
    pub(crate) still: bool,
}

impl StarvingRule {
    pub(crate) fn judge(
        &mut self,
        stream: &Stream,
        watched: &[Watched],
        context: &Context,
    ) -> Starved {
        let known = &stream.categories;
        self.categories.resize(known.len(), Hunger::default());
        let mut drawn_from = vec![false; known.len()];
        for (shard, watched) in stream.shards.iter().zip(watched) {
            drawn_from[shard.category] |= shard.heard || !watched.trusted();
        }
        let probed = || {
            known
                .iter()
                .filter(|category| category.probes.len() >= TICKS_MIN)
        };
        let improved = Sorted::new(
            probed()
                .filter_map(|category| category.improved(TREND_TICKS))
                .collect(),
        );
        let fell = |category: &crate::stream::Category| Some(category.first? - category.probe()?);
        let fells = Sorted::new(probed().filter_map(fell).collect());
        let mut starved = Starved::default();
        for (index, category) in known.iter().enumerate() {
            let name = stream.category_names.name(index);
            let judged = category.probes.len() >= TICKS_MIN && drawn_from[index];
            let hungry = if let (true, Some(probe), Some(step), Some(sank)) = (
                judged,
                category.probe(),
                category.improved(TREND_TICKS),
                fell(category),
            ) {
                let limit = context
                    .category_loss_max
                    .get(name)
                    .filter(|max| probe > **max);
                let others = improved
                    .median_without(step)
                    .zip(fells.median_without(sank));
                match (limit, others) {
                    (Some(limit), _) => Some(format!(
                        "probe loss {probe:.2} nat, over the {limit:.2} asked for"
                    )),
                    (None, Some((others_step, others_sank)))
                        if step < STILL_MAX.max(STILL_SHARE * others_step)
                            && others_step > OTHERS_IMPROVED_MIN
                            && sank < FELL_SHARE_MAX * others_sank =>
                    {
                        Some(format!(
                            "probe loss {probe:.2} nat improved {step:.3} while the others' median improved {others_step:.3}; it \
                             fell {sank:.2} since its first probe, the others {others_sank:.2}"
                        ))
                    }
                    _ => None,
                }
            } else {
                None
            };
            let hunger = &mut self.categories[index];
            match hungry {
                Some(evidence) => {
                    (hunger.ticks, hunger.fed_ticks) = (hunger.ticks + 1, 0);
                    let pause = match hunger.times {
                        0 => 0,
                        1 => WEIGHT_TICKS,
                        _ => COOL_DOWN_TICKS,
                    };
                    hunger.starves |= hunger.ticks >= TICKS_IN_ROW;
                    if hunger.starves && stream.ticks >= hunger.told + pause {
                        starved.begun.push(Begun {
                            category: index,
                            evidence: format!("{evidence}; {} ticks in a row", hunger.ticks),
                            still: hunger.times > 0,
                        });
                        hunger.times += 1;
                        hunger.told = stream.ticks;
                    }
                }
                None if judged => {
                    (hunger.ticks, hunger.fed_ticks) = (0, hunger.fed_ticks + 1);
                    if hunger.starves && hunger.fed_ticks >= TICKS_IN_ROW {
                        (hunger.starves, hunger.times) = (false, 0);
                        starved.cleared.push(Conclusion {
                            rule: Rule::Shard,
                            subject: name.to_owned(),
                            verdict: Verdict::Cleared,
                            evidence: format!(
                                "probe loss {:.2} nat; no longer behind for {TICKS_IN_ROW} ticks",
                                category.probe().unwrap_or_default()
                            ),
                            step: stream.step(),
                            remedies: Vec::new(),
                        });
                    }
                }
                None => (),
            }
            starved.categories.push(hunger.starves);
        }
        starved
    }
}
