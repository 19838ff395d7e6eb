//! For each way to split the work: what fits, with the mildest recomputation, and how fast that is. Prunes by the bytes of states
//! alone, then by the time that computing needs at least.

use antiphon_types::training::{Offload, Place, Recompute, Schedule};

use super::splits::{Split, splits};
use super::{Counts, Limits, Offer};
use crate::memory;
use crate::profile::Ability;
use crate::run::{Machine, Run};
use crate::speed;
use crate::states;

/// A layout with the same GPUs that needs more than so many times the time of the fastest is not worth its memory.
const SLOWEST: f64 = 1.25;
/// A micro-batch of so many tokens fills a GPU: larger ones gain nothing.
const FULL: u64 = 32_768;
const GIB: f64 = 1_073_741_824.0;

/// One layout, in few bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) offer: usize,
    pub(super) split: Split,
    level: usize,
    micro: u64,
    offload: Offload,
    pub(super) step_ms: f64,
    /// Share of the usable memory that is left.
    pub(super) margin: f64,
}

/// What of a spec stays the same, and what was found so far.
pub(super) struct Search {
    /// The run with each strength of recomputation that the framework has, the mildest first.
    levels: Vec<Run>,
    /// Sequences of a step.
    global: u64,
    pub(super) kept: Vec<Candidate>,
    pub(super) counts: Counts,
    /// The layout that is the least too large: usable bytes over needed ones, and which.
    nearest: Option<(f64, Candidate)>,
}

impl Search {
    pub(super) fn new(base: &Run) -> Self {
        let profile = base.profile;
        let stronger = crate::plan::milder_first(&base.model)
            .into_iter()
            .filter(|recompute| match recompute {
                Recompute::Modules(_) => profile.can(Ability::Modules),
                Recompute::PerOperation => profile.can(Ability::PerOperation),
                Recompute::None | Recompute::Full | Recompute::Layers { .. } => true,
            });
        Self {
            levels: std::iter::once(Recompute::None)
                .chain(stronger)
                .map(|recompute| base.recomputing(recompute))
                .collect(),
            global: base.global(),
            kept: Vec::new(),
            counts: Counts::default(),
            nearest: None,
        }
    }

    /// The run of a candidate.
    pub(super) fn run(&self, candidate: &Candidate) -> Run {
        let mut run = self.levels[candidate.level].clone();
        candidate.put(self.global, &mut run);
        run
    }

    /// Looks at every layout on so many GPUs of an offer. Offloads only where nothing else fits.
    pub(super) fn count(&mut self, index: usize, offer: &Offer, gpus: u64) {
        let base = Run {
            micro: 1,
            accumulation: self.global,
            dp: 1,
            ..self.levels[0].clone()
        };
        let can = |ability: Ability| base.profile.can(ability);
        let before = self.kept.len();
        let optimizer = Offload {
            optimizer: Place::Cpu,
            ..Offload::default()
        };
        let parameters = Offload {
            parameters: Place::Cpu,
            ..optimizer
        };
        for (offload, known) in [
            (Offload::default(), true),
            (optimizer, can(Ability::OffloadOptimizer)),
            (parameters, can(Ability::OffloadParameters)),
        ] {
            if known && self.kept.len() == before {
                let mut within = Within {
                    search: self,
                    machine: &offer.machine,
                    index,
                    offload,
                    fastest: f64::INFINITY,
                    floor: 0.0,
                };
                splits(&base, &offer.machine, gpus, |split| within.look(split));
                let slowest = within.fastest * SLOWEST;
                let mut seen = 0;
                self.kept.retain(|candidate| {
                    seen += 1;
                    seen <= before || candidate.step_ms <= slowest
                });
            }
        }
    }

    /// Why nothing fits.
    pub(super) fn nearest(&self, offers: &[Offer], limits: &Limits) -> String {
        let Some((share, candidate)) = &self.nearest else {
            return format!(
                "no layout was looked at: {} to {} GPUs are asked for, and a step of {} sequences can't be split evenly over any count of them that is on offer",
                limits.gpus_min, limits.gpus_max, self.global
            );
        };
        let machine = &offers[candidate.offer].machine;
        let run = self.run(candidate);
        format!(
            "nothing fits: the nearest is {} on {} {}, which needs {:.1} GiB of {:.1} on each; more GPUs, shorter sequences, LoRA or a quantized base would",
            described(&run),
            run.gpus,
            machine.gpu.name,
            machine.gpu.usable_gib / share,
            machine.gpu.usable_gib,
        )
    }
}

/// A layout in words.
pub(super) fn described(run: &Run) -> String {
    use antiphon_types::training::Sharding;
    use std::fmt::Write as _;
    let mut text = match (run.sharding, run.dp * run.cp) {
        (_, 1) => String::from("one replica"),
        (Sharding::None, _) => format!("data parallel {}", run.dp),
        (Sharding::Zero1, _) => format!("ZeRO-1 over {}", run.shards),
        (Sharding::Zero2, _) => format!("ZeRO-2 over {}", run.shards),
        (Sharding::Zero3, _) => format!("ZeRO-3 over {}", run.shards),
    };
    for (name, ranks) in [
        ("tensor", run.tp),
        ("pipeline", run.pp),
        ("context", run.cp),
        ("expert", run.ep),
    ] {
        if ranks > 1 {
            write!(text, ", {name} {ranks}").expect("a text takes text");
        }
        if name == "pipeline" && ranks > 1 {
            text.push_str(&ordered(run));
        }
    }
    let again = match run.recompute {
        Recompute::None => "no recomputation",
        Recompute::Modules(_) => "some modules recomputed",
        Recompute::PerOperation => "cheap operations recomputed",
        Recompute::Layers { .. } => "some layers recomputed",
        Recompute::Full => "full recomputation",
    };
    write!(text, ", micro-batch {}, {again}", run.micro).expect("a text takes text");
    if run.offload.optimizer != Place::Gpu {
        text.push_str(", optimizer on the host");
    }
    if run.offload.parameters != Place::Gpu {
        text.push_str(", weights on the host");
    }
    text
}

/// The order of passes through a pipeline, where it is not the plain one.
fn ordered(run: &Run) -> String {
    match schedule_name(run.schedule) {
        Some(name) => format!(" ({name})"),
        None if run.chunks > 1 => format!(" (interleaved, {} chunks a stage)", run.chunks),
        None => String::new(),
    }
}

/// What papers call an order of passes; none for one forward and one backward in turn.
pub(crate) const fn schedule_name(schedule: Schedule) -> Option<&'static str> {
    match schedule {
        Schedule::OneForwardOneBackward => None,
        Schedule::Gpipe => Some("GPipe"),
        Schedule::ZeroBubbleH1 => Some("zero bubble H1"),
        Schedule::ZeroBubbleH2 => Some("zero bubble H2"),
        Schedule::ZeroBubbleV => Some("zero bubble V"),
        Schedule::DualPipe => Some("DualPipe"),
        Schedule::DualPipeV => Some("DualPipeV"),
    }
}

impl Candidate {
    fn put(&self, global: u64, run: &mut Run) {
        self.split.put(run);
        run.micro = self.micro;
        run.accumulation = global / self.split.dp / self.micro;
        run.offload.optimizer = self.offload.optimizer;
        run.offload.parameters = self.offload.parameters;
    }
}

/// All layouts on so many GPUs of one offer.
struct Within<'a> {
    search: &'a mut Search,
    machine: &'a Machine,
    index: usize,
    offload: Offload,
    /// Milliseconds of the fastest layout so far.
    fastest: f64,
    /// Milliseconds that computing alone needs in any layout: operations over the data sheet's rate.
    floor: f64,
}

impl Within<'_> {
    fn look(&mut self, split: Split) {
        let counts = &mut self.search.counts;
        counts.splits += 1;
        let offload = self.offload;
        let global = self.search.global;
        let each = global / split.dp;
        let mut candidate = Candidate {
            offer: self.index,
            split,
            level: 0,
            micro: 1,
            offload,
            step_ms: 0.0,
            margin: 0.0,
        };
        let usable = self.machine.gpu.usable_gib * GIB;
        let strongest = self.search.levels.len() - 1;
        let run = &mut self.search.levels[strongest];
        candidate.put(global, run);
        let least = least(run);
        if least > usable {
            self.search.counts.states_too_large += 1;
            candidate.level = strongest;
            self.too_large(least / usable, candidate);
            return;
        }
        let tokens = (run.sequence * run.sequences_a_sample()).div_ceil(split.cp);
        let micro_max = (FULL / tokens.max(1)).clamp(1, each);
        let mut found = false;
        let mut level = 0;
        // Memory grows with the micro-batch, so a larger one never fits with milder recomputation than a smaller one.
        let whole = |micro: &u64| each.is_multiple_of(*micro) && split.filled_by(each / *micro);
        for micro in (1..=micro_max).filter(whole) {
            candidate.micro = micro;
            if self.fastest_possible(&candidate) > self.fastest * SLOWEST {
                self.search.counts.too_slow += 1;
                found = true;
                break;
            }
            let Some((fitting, margin)) = self.mildest(candidate, level) else {
                break;
            };
            level = fitting;
            found = true;
            candidate.level = level;
            candidate.margin = margin;
            self.time(candidate);
        }
        if !found {
            self.search.counts.too_large += 1;
        }
    }

    /// The mildest recomputation from `level` on that fits, and the memory that is left.
    fn mildest(&mut self, mut candidate: Candidate, level: usize) -> Option<(usize, f64)> {
        let mut left = 0.0;
        for level in level..self.search.levels.len() {
            candidate.level = level;
            let run = &mut self.search.levels[level];
            candidate.put(self.search.global, run);
            let needs = memory::memory(run, self.machine);
            left = 1.0 - needs.device / needs.usable;
            if needs.fits {
                return Some((level, left));
            }
        }
        self.too_large(1.0 - left, candidate);
        None
    }

    /// Milliseconds that no layout like this is below: computing at the data sheet's rate, and stages that wait to be filled.
    fn fastest_possible(&self, candidate: &Candidate) -> f64 {
        let split = &candidate.split;
        if split.schedule != Schedule::OneForwardOneBackward {
            return self.floor;
        }
        let passes = self.search.global / split.dp / candidate.micro * split.chunks;
        self.floor * (1.0 + (split.pp - 1) as f64 / passes as f64)
    }

    fn too_large(&mut self, needed: f64, candidate: Candidate) {
        let share = 1.0 / needed;
        let nearest = &mut self.search.nearest;
        if nearest.is_none_or(|(best, _)| share > best) {
            *nearest = Some((share, candidate));
        }
    }

    fn time(&mut self, mut candidate: Candidate) {
        let run = &mut self.search.levels[candidate.level];
        candidate.put(self.search.global, run);
        self.search.counts.computed += 1;
        let speed = speed::speed(run, self.machine);
        candidate.step_ms = speed.step_ms;
        self.floor = speed.floor_ms;
        if candidate.step_ms <= self.fastest * SLOWEST {
            self.fastest = self.fastest.min(candidate.step_ms);
            self.search.kept.push(candidate);
        }
    }
}

/// Bytes that the fullest end of the pipeline needs whatever is recomputed.
fn least(run: &Run) -> f64 {
    let of = |stage: u64| {
        let states = states::states(run, stage);
        let gradients = if run.in_backward {
            0.0
        } else {
            states.gradients
        };
        states.weights + gradients + states.optimizer
    };
    if run.pp == 1 {
        of(0)
    } else {
        of(0).max(of(run.pp - 1))
    }
}
