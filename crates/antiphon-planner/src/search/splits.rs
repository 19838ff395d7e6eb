//! Ways to split the work: counts of GPUs on an offer, and for each the degrees of every kind of parallelism that framework,
//! model and machine allow. Judges none of them.

use antiphon_types::training::{Schedule, Sharding};

use super::{Limits, Offer};
use crate::profile::Ability;
use crate::run::{Machine, Run};

/// Tokens that attention works on at once: context parallelism gives each rank two blocks or more.
const BLOCK: u64 = 128;

/// One way to split the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) gpus: u64,
    pub(super) dp: u64,
    pub(super) tp: u64,
    pub(super) pp: u64,
    pub(super) chunks: u64,
    pub(super) schedule: Schedule,
    pub(super) cp: u64,
    pub(super) ep: u64,
    pub(super) sharding: Sharding,
    pub(super) shards: u64,
}

impl Split {
    /// Puts it into a run.
    pub(super) fn put(&self, run: &mut Run) {
        run.gpus = self.gpus;
        run.dp = self.dp;
        run.tp = self.tp;
        run.sequence_parallel = self.tp > 1;
        run.pp = self.pp;
        run.chunks = self.chunks;
        run.schedule = self.schedule;
        run.cp = self.cp;
        run.ep = self.ep;
        run.expert_tp = if self.ep > 1 { 1 } else { self.tp };
        run.sharding = self.sharding;
        run.shards = self.shards;
    }
}

impl Split {
    /// Whether so many micro-batches keep its pipeline going as its schedule wants it.
    pub(super) const fn filled_by(&self, micro_batches: u64) -> bool {
        match self.schedule {
            Schedule::Gpipe => true,
            // Interleaved, they go through in groups of as many as there are stages.
            Schedule::OneForwardOneBackward => {
                self.chunks == 1 || micro_batches.is_multiple_of(self.pp)
            }
            Schedule::ZeroBubbleH1 => micro_batches >= self.pp,
            // Fewer leave gaps that the closed forms do not know.
            Schedule::ZeroBubbleH2
            | Schedule::ZeroBubbleV
            | Schedule::DualPipe
            | Schedule::DualPipeV => micro_batches >= 2 * self.pp,
        }
    }
}

/// Counts of GPUs to train on that are worth a look, with so many for other roles beside: divisors of a node, then one or three
/// times a power of two nodes, and the most that is asked for.
pub(super) fn counts(
    offer: &Offer,
    limits: &Limits,
    apart: u64,
) -> impl Iterator<Item = u64> + use<> {
    let node = offer.machine.node.max(1);
    let most = limits.gpus_max.min(offer.gpus).saturating_sub(apart);
    let least = limits.gpus_min.saturating_sub(apart).max(1);
    let exactly = limits.gpus_min == limits.gpus_max;
    let all_asked = limits.gpus_max == most + apart;
    let round = move |count: u64| {
        let nodes = count / node;
        count.is_multiple_of(node) && matches!(nodes >> nodes.trailing_zeros(), 1 | 3)
    };
    let inside = (1..=node).filter(move |count| node.is_multiple_of(*count));
    let nodes = (2..=most / node)
        .map(move |nodes| nodes * node)
        .filter(move |&count| round(count));
    let odd = if most > node {
        !round(most)
    } else {
        exactly && most > 0 && !node.is_multiple_of(most)
    };
    let asked = (all_asked && odd).then_some(most);
    inside
        .chain(nodes)
        .chain(asked)
        .filter(move |&count| count >= least && count <= most)
}

/// Calls `each` with every way to split the work of `run` over so many GPUs.
pub(super) fn splits(run: &Run, machine: &Machine, gpus: u64, mut each: impl FnMut(Split)) {
    let model = &run.model;
    let profile = run.profile;
    let can = |ability: Ability| profile.can(ability);
    let most = |ability: Ability, most: u64| if can(ability) { most.max(1) } else { 1 };
    let global = run.global();
    let experts = model.experts.map_or(1, |experts| experts.count);
    let tp_max = most(Ability::Tensor, machine.domain.min(model.heads()));
    let pp_max = most(Ability::Pipeline, model.layers);
    let cp_max = most(Ability::Context, run.sequence / (2 * BLOCK));
    let ep_max = most(Ability::Expert, experts);

    for tp in divisors(gpus, tp_max).filter(|tp| model.heads().is_multiple_of(*tp)) {
        for pp in divisors(gpus / tp, pp_max) {
            // A rank gets a block from the front and one from the back, so that all have as much to do.
            let even = |cp: &u64| *cp == 1 || run.sequence.is_multiple_of(2 * cp);
            for cp in divisors(gpus / tp / pp, cp_max).filter(even) {
                let dp = gpus / (tp * pp * cp);
                // Every replica has the same number of sequences.
                if !global.is_multiple_of(dp) {
                    continue;
                }
                let peers = dp * cp * tp;
                for ep in divisors(peers, ep_max).filter(|ep| experts.is_multiple_of(*ep)) {
                    for (schedule, chunks) in schedules(run, pp) {
                        let split = Split {
                            gpus,
                            dp,
                            tp,
                            pp,
                            chunks,
                            schedule,
                            cp,
                            ep,
                            sharding: Sharding::None,
                            shards: 1,
                        };
                        if split.filled_by(global / dp) {
                            shardings(&split, run, machine, &mut each);
                        }
                    }
                }
            }
        }
    }
}

/// Orders of passes that the framework has, each with the chunks of a stage: one, and where interleaving is known two, four or
/// eight. Without stages there is nothing to order.
fn schedules(run: &Run, pp: u64) -> impl Iterator<Item = (Schedule, u64)> {
    let known: &[Schedule] = if pp > 1 {
        &run.profile.schedules
    } else {
        &[Schedule::OneForwardOneBackward]
    };
    let layers = run.model.layers;
    let even = move |chunks: u64| layers.is_multiple_of(pp * chunks);
    let interleaves = pp > 1 && run.profile.can(Ability::Interleaved);
    known.iter().flat_map(move |&schedule| {
        let one = match schedule {
            // In a V each stage has two chunks.
            Schedule::ZeroBubbleV | Schedule::DualPipeV => even(2),
            Schedule::DualPipe => pp.is_multiple_of(2),
            Schedule::Gpipe
            | Schedule::OneForwardOneBackward
            | Schedule::ZeroBubbleH1
            | Schedule::ZeroBubbleH2 => true,
        };
        let more = interleaves && schedule == Schedule::OneForwardOneBackward;
        let fits = move |chunks: &u64| match chunks {
            1 => one,
            _ => more && even(*chunks) && layers > pp * chunks,
        };
        let chunks = [1, 2, 4, 8].into_iter().filter(fits);
        chunks.map(move |chunks| (schedule, chunks))
    })
}

fn shardings(split: &Split, run: &Run, machine: &Machine, each: &mut impl FnMut(Split)) {
    let ranks = split.dp * split.cp;
    if ranks == 1 {
        each(*split);
        return;
    }
    for &sharding in &run.profile.shardings {
        let shards = if sharding == Sharding::None { 1 } else { ranks };
        each(Split {
            sharding,
            shards,
            ..*split
        });
        // Within a domain the traffic is on fast links.
        let inside = machine.domain / split.tp;
        if shards > inside
            && inside > 1
            && shards.is_multiple_of(inside)
            && run.profile.can(Ability::Groups)
        {
            each(Split {
                sharding,
                shards: inside,
                ..*split
            });
        }
    }
}

fn divisors(of: u64, most: u64) -> impl Iterator<Item = u64> {
    (1..=of.min(most)).filter(move |divisor| of.is_multiple_of(*divisor))
}
