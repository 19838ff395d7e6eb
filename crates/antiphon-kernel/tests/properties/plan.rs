//! Random clusters, jobs and things that happen, as plain data that shrinks well. Knows no state: what a step is about is
//! a number that the world takes modulo what there is.

use antiphon_types::{AckBody, Class, ExitClass};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// A node: how many GPUs, and which of three types.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) gpus: u32,
    pub(crate) kind: usize,
}

#[derive(Debug, Clone)]
pub(crate) enum ShapePlan {
    Whole(u32),
    Thousandths(u64),
    PerGpu(u32),
    Tasks { tasks: u32, gpus_each: u32 },
    Cpus,
}

#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    pub(crate) class: Class,
    pub(crate) shape: ShapePlan,
    pub(crate) second_role: Option<ShapePlan>,
    pub(crate) kind: Option<usize>,
    pub(crate) cpus: u32,
    pub(crate) grace_s: u64,
    pub(crate) retries: u32,
    pub(crate) limit_s: Option<u64>,
    pub(crate) after: Option<usize>,
    pub(crate) attaches: bool,
    pub(crate) stubborn: bool,
    pub(crate) auto: bool,
}

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Submit(JobPlan),
    Cancel(usize),
    Hold(usize),
    Release(usize),
    Preempt(usize),
    Direct(usize),
    Drain(usize),
    Undrain(usize),
    Pause,
    Unpause,
    SafeMode,
    Policy {
        wait_s: u64,
        kept: u32,
    },
    /// What each node has now, in sixteenths of its first size; nothing where it is not offered.
    Inventory(Vec<Option<u32>>),
    /// A task's command starts, and a report of that is on its way.
    Start(usize),
    /// A task ends by itself, and a report of that is on its way.
    End(usize, ExitPlan),
    Attach(usize),
    Save {
        job: usize,
        step: u64,
        save_ms: u64,
    },
    Answer(usize, AckBody),
    Progress {
        job: usize,
        step: u64,
        step_ms: u64,
    },
    Noise {
        job: usize,
        shard: u8,
    },
    /// A report arrives, whatever was sent before it.
    Deliver(usize),
    /// A report arrives and arrives again later.
    Double(usize),
    /// A report is lost; it is sent again when faults stop.
    Lose(usize),
    /// A report that arrived long ago arrives again.
    Again(usize),
    Wait(u64),
    /// Inputs that share a commit: nothing is decided between them.
    Together(Vec<Self>),
}

#[derive(Debug, Clone)]
pub(crate) enum ExitPlan {
    Done,
    Code(Option<ExitClass>),
    Lost,
    Unstartable,
    Unreachable,
}

pub(crate) fn cluster() -> impl Strategy<Value = Vec<NodePlan>> {
    let node = (0..=8_u32, 0..3_usize).prop_map(|(gpus, kind)| NodePlan { gpus, kind });
    vec(node, 1..=6)
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

pub(crate) fn job() -> impl Strategy<Value = JobPlan> {
    let what = (
        (0..4_usize).prop_map(|class| Class::ALL[class]),
        shape(),
        option::weighted(0.1, shape()),
        option::weighted(0.3, 0..3_usize),
        0..=6_u32,
    );
    let how = (
        0..=90_u64,
        0..=2_u32,
        option::weighted(0.2, 1..=300_u64),
        option::weighted(0.25, any::<usize>()),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
    );
    (what, how).prop_map(|(what, how)| {
        let (class, shape, second_role, kind, cpus) = what;
        let (grace_s, retries, limit_s, after, attaches, stubborn, auto) = how;
        JobPlan {
            class,
            shape,
            second_role,
            kind,
            cpus,
            grace_s,
            retries,
            limit_s,
            after,
            attaches,
            stubborn,
            auto,
        }
    })
}

fn exit() -> impl Strategy<Value = ExitPlan> {
    let class = prop_oneof![
        Just(ExitClass::OutOfMemory),
        Just(ExitClass::DataError),
        Just(ExitClass::Hardware),
        Just(ExitClass::Software),
    ];
    prop_oneof![
        4 => Just(ExitPlan::Done),
        3 => option::of(class).prop_map(ExitPlan::Code),
        1 => Just(ExitPlan::Lost),
        1 => Just(ExitPlan::Unstartable),
        1 => Just(ExitPlan::Unreachable),
    ]
}

fn answer() -> impl Strategy<Value = AckBody> {
    prop_oneof![
        Just(AckBody::Applied { slot: 16 }),
        Just(AckBody::Rejected {
            reason: "not now".into()
        }),
        Just(AckBody::Failed {
            error: "disk".into()
        }),
        Just(AckBody::Expired),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let people = prop_oneof![
        12 => job().prop_map(Step::Submit),
        3 => any::<usize>().prop_map(Step::Cancel),
        3 => any::<usize>().prop_map(Step::Hold),
        3 => any::<usize>().prop_map(Step::Release),
        3 => any::<usize>().prop_map(Step::Preempt),
        1 => any::<usize>().prop_map(Step::Direct),
    ];
    let operators = prop_oneof![
        2 => any::<usize>().prop_map(Step::Drain),
        3 => any::<usize>().prop_map(Step::Undrain),
        1 => Just(Step::Pause),
        3 => Just(Step::Unpause),
        1 => Just(Step::SafeMode),
        1 => (0..=120_u64, 0..=4_u32).prop_map(|(wait_s, kept)| Step::Policy { wait_s, kept }),
        2 => vec(option::weighted(0.8, 0..=16_u32), 6).prop_map(Step::Inventory),
    ];
    let processes = prop_oneof![
        6 => any::<usize>().prop_map(Step::Start),
        3 => (any::<usize>(), exit()).prop_map(|(task, exit)| Step::End(task, exit)),
        3 => any::<usize>().prop_map(Step::Attach),
        2 => (any::<usize>(), 0..=100_u64, 0..=1_000_000_000_000_u64)
            .prop_map(|(job, step, save_ms)| Step::Save { job, step, save_ms }),
        3 => (any::<usize>(), answer()).prop_map(|(job, answer)| Step::Answer(job, answer)),
        1 => (any::<usize>(), 0..=100_u64, 0..=1_000_000_000_000_u64)
            .prop_map(|(job, step, step_ms)| Step::Progress { job, step, step_ms }),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(job, shard)| Step::Noise { job, shard }),
    ];
    let network = prop_oneof![
        12 => any::<usize>().prop_map(Step::Deliver),
        2 => any::<usize>().prop_map(Step::Double),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::Again),
        4 => (0..=100_000_u64).prop_map(Step::Wait),
    ];
    prop_oneof![4 => people, 1 => operators, 4 => processes, 5 => network]
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let steps = prop_oneof![
        8 => step(),
        1 => vec(step(), 2..=5).prop_map(Step::Together),
    ];
    vec(steps, 1..=120)
}

/// Numbers as a hostile job file may hold them, at the edges more often than between.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    pub(crate) spans: [u64; 4],
    pub(crate) limited: bool,
    pub(crate) retries: u32,
    pub(crate) gpus: u64,
    pub(crate) tasks: Option<u32>,
    pub(crate) cpus: u32,
    pub(crate) memory: u64,
}

fn wide(max: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..=2_u64,
        1 => (0..=12_u32).prop_map(|gpus| u64::from(gpus) * 1_000),
        1 => (0..64_u32).prop_map(move |bit| (1_u64 << bit).min(max)),
        2 => (0..=1_000_u64).prop_map(move |less| max - less),
        1 => 0..=max,
    ]
}

pub(crate) fn numbers() -> impl Strategy<Value = Numbers> {
    let narrow = || wide(u32::MAX.into()).prop_map(|number| number as u32);
    (
        proptest::array::uniform4(wide(u64::MAX)),
        any::<bool>(),
        narrow(),
        wide(u64::MAX),
        option::of(narrow()),
        narrow(),
        wide(u64::MAX),
    )
        .prop_map(
            |(spans, limited, retries, gpus, tasks, cpus, memory)| Numbers {
                spans,
                limited,
                retries,
                gpus,
                tasks,
                cpus,
                memory,
            },
        )
}
