//! The cluster and the jobs of the benchmark: 4 GPU types, 50 nested teams, 60 % of jobs with 1 GPU, 20 % with 8, 15 % with
//! 16 to 64, 5 % with 128 to 1,024, 30 % of those with several nodes bound to a leaf or a spine. Made up from a seed.

use std::collections::BTreeMap;

use antiphon_types::{
    Amounts, Bytes, Class, Estimate, GpuAmount, JobSpec, Location, Millis, NodeName, NodeSpec,
    Role, Shape, Span, TeamSpec,
};

const TYPES: [&str; 4] = [
    "H100-SXM-80GB",
    "A100-SXM-80GB",
    "H200-SXM-141GB",
    "A100-PCIE-40GB",
];
const NODES_PER_LEAF: u32 = 16;
const LEAVES_PER_SPINE: u32 = 16;
const GPUS_PER_NODE: u32 = 8;
const TEAMS: u32 = 50;

/// Makes jobs up.
pub(crate) struct Load {
    random: Random,
    pub(crate) nodes: u32,
    pub(crate) preempt: bool,
    made: u64,
}

/// A small generator whose numbers are the same everywhere (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn among<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = u64::try_from(choices.len()).expect("few choices");
        choices[usize::try_from(self.below(count)).expect("few choices")]
    }
}

impl Load {
    pub(crate) fn new(seed: u64, nodes: u32, preempt: bool) -> Self {
        Self {
            random: Random(seed),
            nodes,
            preempt,
            made: 0,
        }
    }

    pub(crate) fn cluster(&self) -> Vec<NodeSpec> {
        (0..self.nodes).map(|index| self.node(index)).collect()
    }

    fn node(&self, index: u32) -> NodeSpec {
        let leaf = index / NODES_PER_LEAF;
        let quarter = usize::try_from(index * 4 / self.nodes).expect("four types");
        NodeSpec {
            name: NodeName(format!("n{index:05}")),
            gpus: GPUS_PER_NODE,
            gpu_type: TYPES[quarter].into(),
            gpu_memory: Bytes::new(80 << 30),
            gpus_virtual: true,
            cpus: 128,
            memory: Bytes::new(2 << 40),
            location: Location {
                spine: format!("s{}", leaf / LEAVES_PER_SPINE),
                leaf: format!("l{leaf}"),
                nvlink_domain: String::new(),
            },
            ..NodeSpec::default()
        }
    }

    /// Ten departments of five teams; each has a quota, and none may hold more than a third of the cluster.
    pub(crate) fn teams(&self) -> Vec<TeamSpec> {
        let gpus = self.nodes * GPUS_PER_NODE;
        let amounts = |gpus: u32| Amounts {
            all: Some(GpuAmount::from_gpus(gpus)),
            by_type: BTreeMap::new(),
        };
        let departments = TEAMS / 5;
        let department = |index: u32| TeamSpec {
            name: format!("department-{index}"),
            weight: 1 + index % 3,
            quota: amounts(gpus / departments),
            limit: amounts(gpus / 3),
            ..TeamSpec::default()
        };
        let team = |index: u32| TeamSpec {
            name: format!("team-{index}"),
            parent: Some(format!("department-{}", index % departments)),
            weight: 1 + index % 2,
            quota: amounts(gpus / TEAMS),
            limit: amounts(gpus / 4),
            ..TeamSpec::default()
        };
        let departments = (0..departments).map(department);
        departments.chain((0..TEAMS).map(team)).collect()
    }

    /// A job of the mix, and how long it will really run.
    pub(crate) fn job(&mut self) -> (JobSpec, Millis) {
        let percent = self.random.below(100);
        self.job_at(percent)
    }

    /// A job of as many GPUs as one that was started, so that the mix of those that wait stays what it was.
    pub(crate) fn job_like(&mut self, gpus: u64) -> (JobSpec, Millis) {
        let percent = match gpus {
            0..=1 => 0,
            2..=8 => 60,
            9..=64 => 80,
            _ => 99,
        };
        self.job_at(percent)
    }

    fn job_at(&mut self, percent: u64) -> (JobSpec, Millis) {
        self.made += 1;
        let random = &mut self.random;
        let widest = u64::from(self.nodes) * u64::from(GPUS_PER_NODE) / 16;
        let gpus = match percent {
            0..60 => 1,
            60..80 => 8,
            80..95 => random.among(&[16, 24, 32, 48, 64]),
            _ => random.among(&[128, 192, 256, 512, 1_024]),
        };
        let gpus = gpus.min(widest).max(1);
        let span = match (gpus, random.below(100)) {
            (1..=8, _) | (_, 30..) => Span::Cluster,
            (..=128, _) => Span::Leaf,
            _ => Span::Spine,
        };
        let gpu_type = (random.below(100) < 70).then(|| random.among(&TYPES).to_owned());
        // From ten minutes to a day, as many in each octave.
        let octave = random.below(7);
        let minutes = (10 << octave) + random.below(10 << octave);
        let high = Millis::from_secs(minutes * 60);
        let true_time = Millis::from_millis(high.as_millis() / 100 * (40 + random.below(60)));
        let class = match random.below(100) {
            0..5 if self.preempt => Class::Production,
            0..40 => Class::Standard,
            _ => Class::BestEffort,
        };
        let team = random.below(u64::from(TEAMS));
        let role = Role {
            name: "trainer".into(),
            command: vec!["torchrun".into(), "train.py".into()],
            shape: Shape {
                gpus: GpuAmount::from_gpus(u32::try_from(gpus).expect("few GPUs")),
                gpu_type,
                span,
                ..Shape::default()
            },
            ..Role::default()
        };
        let spec = JobSpec {
            name: format!("job-of-load-{}", self.made),
            team: format!("team-{team}"),
            user: "someone".into(),
            class,
            roles: vec![role],
            workdir: "/work".into(),
            // Users have an order of their own: without one the smallest of each team would always come first, and the
            // jobs that start would be none of the mix.
            priority: i32::try_from(random.below(1_000)).expect("a small number"),
            grace: Millis::from_secs(60),
            time_limit: Some(high),
            estimate: Some(Estimate {
                low: Millis::from_millis(high.as_millis() / 3),
                expected: Millis::from_millis(high.as_millis() / 3 * 2),
                high,
            }),
            ..JobSpec::default()
        };
        (spec, true_time)
    }
}
