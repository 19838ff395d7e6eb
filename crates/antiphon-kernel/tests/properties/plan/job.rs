//! Random jobs: what they ask for, what they claim, and how their processes behave.

use antiphon_types::{Class, Span};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) enum ShapePlan {
    Whole(u32),
    Thousandths(u64),
    PerGpu(u32),
    Tasks { tasks: u32, gpus_each: u32 },
    Cpus,
}

/// How a job waits for another.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    Success,
    End,
    Start,
}

#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    pub(crate) asks: AskPlan,
    pub(crate) claims: ClaimPlan,
    pub(crate) behaves: BehaviorPlan,
}

#[derive(Debug, Clone)]
pub(crate) struct AskPlan {
    pub(crate) class: Class,
    pub(crate) team: usize,
    pub(crate) roles: Vec<ShapePlan>,
    pub(crate) other_shape: Option<ShapePlan>,
    pub(crate) kind: Option<usize>,
    pub(crate) span: Span,
    pub(crate) partition: Option<usize>,
    pub(crate) cpus: Option<u32>,
    pub(crate) gib: Option<u64>,
    pub(crate) scratch_gib: u64,
    pub(crate) reads: u64,
    pub(crate) licenses: u64,
    pub(crate) array: Option<(u32, u32)>,
    pub(crate) rungs: Vec<Option<u32>>,
}

#[derive(Debug, Clone)]
pub(crate) struct ClaimPlan {
    pub(crate) name: u8,
    pub(crate) priority: i32,
    pub(crate) not_before_s: Option<u64>,
    pub(crate) deadline_s: Option<u64>,
    pub(crate) estimate_s: Option<u64>,
    pub(crate) limit_s: Option<u64>,
    pub(crate) after: Vec<(Wait, usize)>,
    pub(crate) held: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct BehaviorPlan {
    pub(crate) grace_s: u64,
    pub(crate) retries: u32,
    pub(crate) runs_s: u64,
    pub(crate) attaches: bool,
    pub(crate) stubborn: bool,
    pub(crate) auto: bool,
    pub(crate) saves: bool,
}

fn shape() -> impl Strategy<Value = ShapePlan> {
    prop_oneof![
        4 => (1..=12_u32).prop_map(ShapePlan::Whole),
        2 => (1..=999_u64).prop_map(ShapePlan::Thousandths),
        1 => (1..=8_u32).prop_map(ShapePlan::PerGpu),
        2 => (1..=4_u32, 0..=4_u32)
            .prop_map(|(tasks, gpus_each)| ShapePlan::Tasks { tasks, gpus_each }),
        1 => Just(ShapePlan::Cpus),
    ]
}

fn asks() -> impl Strategy<Value = AskPlan> {
    let what = (
        (0..4_usize).prop_map(|class| Class::ALL[class]),
        0..4_usize,
        prop_oneof![8 => vec(shape(), 1), 1 => vec(shape(), 2..=3)],
        option::weighted(0.2, shape()),
        option::weighted(0.3, 0..4_usize),
        prop_oneof![3 => Just(Span::Cluster), 1 => (0..5_usize).prop_map(|at| Span::ALL[at])],
        option::weighted(0.15, 0..2_usize),
    );
    let beside = (
        option::weighted(0.4, 0..=6_u32),
        option::weighted(0.3, 0..=24_u64),
        prop_oneof![4 => Just(0_u64), 1 => 1..=100_u64],
        prop_oneof![4 => Just(0_u64), 1 => 1..=4_u64],
        prop_oneof![4 => Just(0_u64), 1 => 1..=2_u64],
        option::weighted(0.1, (1..=4_u32, 0..=2_u32)),
        prop_oneof![4 => Just(Vec::new()), 1 => vec(option::of(1..=8_u32), 1..=2)],
    );
    (what, beside).prop_map(|(what, beside)| {
        let (class, team, roles, other_shape, kind, span, partition) = what;
        let (cpus, gib, scratch_gib, reads, licenses, array, rungs) = beside;
        AskPlan {
            class,
            team,
            roles,
            other_shape,
            kind,
            span,
            partition,
            cpus,
            gib,
            scratch_gib,
            reads,
            licenses,
            array,
            rungs,
        }
    })
}

fn claims() -> impl Strategy<Value = ClaimPlan> {
    let wait = prop_oneof![Just(Wait::Success), Just(Wait::End), Just(Wait::Start)];
    (
        any::<u8>(),
        -2..=2_i32,
        option::weighted(0.1, 0..=600_u64),
        option::weighted(0.2, 0..=20_000_u64),
        option::weighted(0.4, 1..=10_000_u64),
        option::weighted(0.3, 1..=3_600_u64),
        prop_oneof![3 => Just(Vec::new()), 1 => vec((wait, any::<usize>()), 1..=2)],
        prop::bool::weighted(0.05),
    )
        .prop_map(
            |(name, priority, not_before_s, deadline_s, estimate_s, limit_s, after, held)| {
                ClaimPlan {
                    name,
                    priority,
                    not_before_s,
                    deadline_s,
                    estimate_s,
                    limit_s,
                    after,
                    held,
                }
            },
        )
}

fn behaves() -> impl Strategy<Value = BehaviorPlan> {
    (
        0..=90_u64,
        0..=2_u32,
        1..=1_800_u64,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(grace_s, retries, runs_s, attaches, stubborn, auto, saves)| BehaviorPlan {
                grace_s,
                retries,
                runs_s,
                attaches,
                stubborn,
                auto,
                saves,
            },
        )
}

pub(crate) fn job() -> impl Strategy<Value = JobPlan> {
    (asks(), claims(), behaves()).prop_map(|(asks, claims, behaves)| JobPlan {
        asks,
        claims,
        behaves,
    })
}

/// A job that has a choice of shapes and reads from shared storage, and waits for nobody: what of it fits where is all that
/// may keep it.
pub(crate) fn choosy_job() -> impl Strategy<Value = JobPlan> {
    (job(), shape(), 0..=4_u64).prop_map(|(mut plan, other, reads)| {
        plan.asks.other_shape = Some(other);
        plan.asks.reads = reads;
        plan.asks.array = None;
        plan.claims.after.clear();
        plan
    })
}
