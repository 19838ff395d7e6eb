//! Numbers as a hostile job file may hold them, at the edges more often than between.

use antiphon_types::*;
use proptest::option;
use proptest::prelude::*;

#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    spans: [u64; 8],
    limited: bool,
    retries: u32,
    gpus: u64,
    tasks: Option<u32>,
    cpus: u32,
    sizes: [u64; 4],
    priority: i32,
    speed: u32,
    tensor_parallel: u32,
    license: u64,
}

impl Numbers {
    /// Puts them into a job.
    pub(crate) fn fill(&self, spec: &mut JobSpec, now: Timestamp) {
        let spans = self.spans.map(Millis::from_millis);
        let [
            grace,
            limit,
            backoff_first,
            backoff_max,
            low,
            expected,
            high,
            ahead,
        ] = spans;
        spec.grace = grace;
        spec.time_limit = self.limited.then_some(limit);
        spec.retry = RetrySpec {
            retries_max: self.retries,
            backoff_first,
            backoff_max,
        };
        spec.estimate = Some(Estimate {
            low,
            expected,
            high,
        });
        let ahead = Timestamp::from_millis(now.as_millis().saturating_add(ahead.as_millis()));
        spec.deadline = Some(ahead);
        spec.not_before = self.limited.then_some(ahead);
        spec.priority = self.priority;
        spec.resources.insert("license".into(), self.license);
        let [memory, scratch, read_bandwidth, gpu_memory] = self.sizes.map(Bytes::new);
        let shape = &mut spec.roles[0].shape;
        shape.gpus = GpuAmount::from_thousandths(self.gpus);
        shape.tasks = self.tasks.map_or(Tasks::Fewest, Tasks::Exactly);
        shape.cpus = Some(self.cpus);
        shape.memory = Some(memory);
        shape.scratch = scratch;
        shape.read_bandwidth = read_bandwidth;
        shape.gpu_memory = gpu_memory;
        shape.speed = self.speed;
        shape.tensor_parallel = self.tensor_parallel;
    }
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
    // The longest span that is admitted, and the longest there is.
    let longest = 10 * 365 * 86_400_000;
    let span = move || prop_oneof![wide(longest), wide(u64::MAX)];
    let narrow = || wide(u32::MAX.into()).prop_map(|number| number as u32);
    let usual = |usual: u64| prop_oneof![2 => Just(usual), 1 => wide(u64::MAX)];
    (
        proptest::array::uniform8(span()),
        any::<bool>(),
        narrow(),
        wide(u64::MAX),
        option::of(narrow()),
        narrow(),
        proptest::array::uniform4(usual(0)),
        (any::<i32>(), narrow(), narrow(), usual(0)),
    )
        .prop_map(
            |(spans, limited, retries, gpus, tasks, cpus, sizes, more)| {
                let (priority, speed, tensor_parallel, license) = more;
                Numbers {
                    spans,
                    limited,
                    retries,
                    gpus,
                    tasks,
                    cpus,
                    sizes,
                    priority,
                    speed,
                    tensor_parallel,
                    license,
                }
            },
        )
}
