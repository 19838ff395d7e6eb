//! Random things that happen.

use std::collections::BTreeMap;

use antiphon_types::{
    AckBody, AskBody, DirectiveBody, ExitClass, GatePolicy, Millis, Remedy, Rule, Verdict,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::cluster::{TeamPlan, some_teams};
use super::job::{JobPlan, job};

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Submit(Box<JobPlan>),
    Cancel(usize),
    Hold(usize),
    Release(usize),
    Preempt(usize),
    SetClass(usize, u8),
    Direct(usize),
    Drain(usize),
    Undrain(usize),
    /// Plans a time in which two nodes take no tasks.
    Maintain {
        nodes: [usize; 2],
        ahead_s: u64,
        long_s: u64,
    },
    /// A node, or some of its GPUs, are to be given back.
    Notice {
        node: usize,
        gpus: Option<u32>,
        within_s: u64,
    },
    Pause,
    Unpause,
    SafeMode,
    Policy(PolicyPlan),
    Gate(GatePolicy),
    Teams(Vec<TeamPlan>),
    /// What each node has now; nothing where it is not offered.
    Inventory(Vec<Option<NodeChange>>),
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
    Found {
        job: usize,
        rule: Rule,
        subject: u8,
        verdict: Verdict,
        remedies: Vec<Remedy>,
    },
    Shards {
        job: usize,
        shard: u8,
    },
    Approve {
        job: usize,
        rule: Rule,
        subject: u8,
    },
    Undo {
        job: usize,
        directive: u64,
    },
    Ask {
        job: usize,
        body: AskBody,
    },
    Idle {
        job: usize,
        since_s: u64,
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
pub(crate) struct PolicyPlan {
    pub(crate) wait_s: u64,
    pub(crate) kept: u32,
    pub(crate) promote_s: u64,
    pub(crate) reservations: u32,
    pub(crate) preemptions: u32,
    pub(crate) preemptions_cluster: u32,
    pub(crate) collateral: u32,
    pub(crate) idle_s: Option<u64>,
    pub(crate) checks: bool,
    pub(crate) half_life_s: u64,
}

/// What became of a node: GPUs and memory in sixteenths of its first, and broken GPUs.
#[derive(Debug, Clone)]
pub(crate) struct NodeChange {
    pub(crate) gpus: u32,
    pub(crate) memory: u64,
    pub(crate) lost: Vec<u32>,
}

#[derive(Debug, Clone)]
pub(crate) enum ExitPlan {
    Done,
    Code(Option<ExitClass>),
    Lost,
    Unfit,
    NotLaunched,
    Unstartable,
    Unreachable,
}

fn exit() -> impl Strategy<Value = ExitPlan> {
    let class = prop_oneof![
        Just(ExitClass::OutOfMemory),
        Just(ExitClass::DataError),
        Just(ExitClass::Hardware),
        Just(ExitClass::Software),
        Just(ExitClass::Preempted),
    ];
    prop_oneof![
        8 => Just(ExitPlan::Done),
        8 => option::weighted(0.8, class).prop_map(ExitPlan::Code),
        2 => Just(ExitPlan::Lost),
        1 => Just(ExitPlan::Unfit),
        1 => Just(ExitPlan::NotLaunched),
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

fn policy() -> impl Strategy<Value = PolicyPlan> {
    let waits = (0..=120_u64, 0..=4_u32, 1..=3_600_u64, 0..=4_u32);
    let bounds = (
        0..=3_u32,
        prop_oneof![Just(1_000_u32), 0..=3_u32],
        prop_oneof![Just(50_u32), 0..=200_u32],
        option::weighted(0.5, 0..=600_u64),
        any::<bool>(),
        0..=100_000_u64,
    );
    (waits, bounds).prop_map(|(waits, bounds)| {
        let (wait_s, kept, promote_s, reservations) = waits;
        let (preemptions, preemptions_cluster, collateral, idle_s, checks, half_life_s) = bounds;
        PolicyPlan {
            wait_s,
            kept,
            promote_s,
            reservations,
            preemptions,
            preemptions_cluster,
            collateral,
            idle_s,
            checks,
            half_life_s,
        }
    })
}

/// Redlines so near that the gate is shut and opened within a plan.
fn gate() -> impl Strategy<Value = GatePolicy> {
    let redlines = (0..=100_u32, 0..=100_000_u64, 0..=100_000_u64);
    (redlines, 0..=600_u64, 0..=3_u32, 0..=3_600_u64).prop_map(
        |((percent, checkpoint, delay), over_s, samples_min, shut_s)| GatePolicy {
            enabled: samples_min > 0,
            completion_percent_min: percent,
            checkpoint_ms_max: Millis::from_millis(checkpoint),
            delay_production_ms_max: Millis::from_millis(delay),
            delay_best_effort_ms_max: Millis::from_millis(delay),
            over_ms: Millis::from_secs(over_s),
            samples_min,
            shut_ms_max: Millis::from_secs(shut_s),
        },
    )
}

fn node_change() -> impl Strategy<Value = NodeChange> {
    let lost = prop_oneof![2 => Just(Vec::new()), 1 => vec(0..8_u32, 1..=2)];
    (
        prop_oneof![2 => Just(16_u32), 1 => 0..=16_u32],
        prop_oneof![3 => Just(16_u64), 1 => 0..=16_u64],
        lost,
    )
        .prop_map(|(gpus, memory, lost)| NodeChange { gpus, memory, lost })
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        3 => Just(Rule::Shard),
        2 => Just(Rule::Straggler),
        2 => Just(Rule::Convergence),
        1 => Just(Rule::Hang),
        1 => (0..Rule::ALL.len()).prop_map(|at| Rule::ALL[at]),
    ]
}

fn remedy() -> impl Strategy<Value = Remedy> {
    let weights = |(shard, weight): (u8, u32)| DirectiveBody::SetWeights {
        weights: BTreeMap::from([(format!("shard-{}", shard % 4), weight)]),
    };
    let pause = |shard: u8| DirectiveBody::PauseShard {
        shard: format!("shard-{}", shard % 4),
    };
    prop_oneof![
        3 => (any::<u8>(), any::<u32>()).prop_map(weights).prop_map(Remedy::Direct),
        1 => any::<u8>().prop_map(pause).prop_map(Remedy::Direct),
        1 => any::<u32>().prop_map(|rows| Remedy::Direct(DirectiveBody::SetMicroBatch { rows })),
        1 => Just(Remedy::Direct(DirectiveBody::Checkpoint)),
        2 => any::<u32>().prop_map(|permille| Remedy::Weigh { permille }),
        3 => (0..16_u32).prop_map(|task| Remedy::Replace { task }),
        1 => Just(Remedy::Restart),
        2 => any::<u8>().prop_map(|of| Remedy::Augment { of: format!("shard-{}", of % 4) }),
    ]
}

fn found() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![
        3 => Just(Verdict::Slow),
        1 => Just(Verdict::Noise),
        1 => Just(Verdict::Cleared),
    ];
    (
        any::<usize>(),
        rule(),
        any::<u8>(),
        verdict,
        vec(remedy(), 0..=3),
    )
        .prop_map(|(job, rule, subject, verdict, remedies)| Step::Found {
            job,
            rule,
            subject,
            verdict,
            remedies,
        })
}

fn ask() -> impl Strategy<Value = AskBody> {
    prop_oneof![
        3 => (0..=12_u32).prop_map(|gpus| AskBody::Gpus { gpus }),
        2 => (0..=4_000_u64).prop_map(|s| AskBody::Time { more: Millis::from_secs(s) }),
        2 => (0..4_u8).prop_map(|of| AskBody::Samples { category: format!("shard-{of}") }),
        1 => Just(AskBody::Pause),
        2 => (0..=2_000_u64)
            .prop_map(|s| AskBody::Protection { during: Millis::from_secs(s) }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let people = prop_oneof![
        16 => job().prop_map(|job| Step::Submit(Box::new(job))),
        3 => any::<usize>().prop_map(Step::Cancel),
        3 => any::<usize>().prop_map(Step::Hold),
        3 => any::<usize>().prop_map(Step::Release),
        3 => any::<usize>().prop_map(Step::Preempt),
        2 => any::<(usize, u8)>().prop_map(|(job, class)| Step::SetClass(job, class)),
        1 => any::<usize>().prop_map(Step::Direct),
        1 => (any::<usize>(), rule(), 0..4_u8)
            .prop_map(|(job, rule, subject)| Step::Approve { job, rule, subject }),
        1 => (any::<usize>(), 0..6_u64)
            .prop_map(|(job, directive)| Step::Undo { job, directive }),
    ];
    let operators = prop_oneof![
        2 => any::<usize>().prop_map(Step::Drain),
        3 => any::<usize>().prop_map(Step::Undrain),
        2 => (any::<[usize; 2]>(), 0..=1_000_u64, 1..=1_000_u64)
            .prop_map(|(nodes, ahead_s, long_s)| Step::Maintain { nodes, ahead_s, long_s }),
        2 => notice(),
        1 => Just(Step::Pause),
        3 => Just(Step::Unpause),
        1 => Just(Step::SafeMode),
        1 => policy().prop_map(Step::Policy),
        2 => gate().prop_map(Step::Gate),
        1 => some_teams().prop_map(Step::Teams),
        3 => vec(option::weighted(0.85, node_change()), 6).prop_map(Step::Inventory),
    ];
    let processes = prop_oneof![
        8 => any::<usize>().prop_map(Step::Start),
        3 => (any::<usize>(), exit()).prop_map(|(task, exit)| Step::End(task, exit)),
        3 => any::<usize>().prop_map(Step::Attach),
        2 => (any::<usize>(), 0..=100_u64, 0..=1_000_000_000_000_u64)
            .prop_map(|(job, step, save_ms)| Step::Save { job, step, save_ms }),
        3 => (any::<usize>(), answer()).prop_map(|(job, answer)| Step::Answer(job, answer)),
        2 => (any::<usize>(), 0..=100_u64, prop_oneof![0..=10_000_u64, 0..=1_000_000_000_000_u64])
            .prop_map(|(job, step, step_ms)| Step::Progress { job, step, step_ms }),
        4 => found(),
        1 => (any::<usize>(), any::<u8>()).prop_map(|(job, shard)| Step::Shards { job, shard }),
        2 => (any::<usize>(), ask()).prop_map(|(job, body)| Step::Ask { job, body }),
        1 => (any::<usize>(), 0..=1_000_u64).prop_map(|(job, since_s)| Step::Idle { job, since_s }),
    ];
    let network = prop_oneof![
        12 => any::<usize>().prop_map(Step::Deliver),
        2 => any::<usize>().prop_map(Step::Double),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<usize>().prop_map(Step::Again),
        4 => prop_oneof![4 => 0..=100_000_u64, 1 => 0..=10_000_000_u64].prop_map(Step::Wait),
    ];
    prop_oneof![4 => people, 1 => operators, 4 => processes, 5 => network]
}

fn notice() -> impl Strategy<Value = Step> {
    (any::<usize>(), option::of(0..=8_u32), 0..=300_u64).prop_map(|(node, gpus, within_s)| {
        Step::Notice {
            node,
            gpus,
            within_s,
        }
    })
}

/// The same, with nodes and GPUs that are given back on the way.
pub(crate) fn steps_and_notices(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let steps = prop_oneof![
        12 => step(),
        2 => notice(),
        1 => vec(prop_oneof![step(), notice()], 2..=5).prop_map(Step::Together),
    ];
    vec(steps, 1..=count)
}

pub(crate) fn steps(count: usize) -> impl Strategy<Value = Vec<Step>> {
    let steps = prop_oneof![
        8 => step(),
        1 => vec(step(), 2..=5).prop_map(Step::Together),
    ];
    vec(steps, 1..=count)
}
