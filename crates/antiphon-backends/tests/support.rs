//! Jobs to launch, and bounded waiting. Knows no backend.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use antiphon_backends::{Backend, Launch, TaskSeen};
use antiphon_types::{
    Allocation, AttemptId, Bytes, GpuAmount, JobId, JobSpec, Millis, NodeSpec, Role, Shape,
    TaskAllocation, TaskId, Timestamp,
};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until the answer is `Some`.
pub(crate) async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < give_up, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The attempts that the backend names next.
pub(crate) async fn announced(backend: &dyn Backend) -> Vec<AttemptId> {
    tokio::time::timeout(PATIENCE, backend.changed())
        .await
        .expect("waited in vain for a change")
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId {
        job: JobId(42),
        number: 3,
    }
}

pub(crate) fn task(index: u32) -> TaskId {
    TaskId {
        attempt: attempt(),
        role: "trainer".into(),
        index,
    }
}

/// Two nodes with four virtual GPUs each.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    ["n0", "n1"]
        .map(|name| NodeSpec {
            name: name.into(),
            gpus: 4,
            gpu_type: "virtual".into(),
            gpu_memory: Bytes::ZERO,
            gpus_virtual: true,
            cpus: 8,
            memory: Bytes::new(1 << 30),
            ..NodeSpec::default()
        })
        .to_vec()
}

/// A gang of one task a node, each on these GPUs.
pub(crate) fn launch(command: &[&str], nodes: &[&str], gpus: &[u32]) -> Launch {
    let tasks = (0..).zip(nodes).map(|(index, node)| TaskAllocation {
        role: "trainer".into(),
        index,
        node: (*node).into(),
        gpus: gpus.to_vec(),
        gpu_share: GpuAmount::from_gpus(1),
        cpus: 1,
        memory: Bytes::ZERO,
        scratch: Bytes::ZERO,
        read_bandwidth: Bytes::ZERO,
        sliced: false,
    });
    let allocation = Allocation::from(tasks.collect::<Vec<_>>());
    Launch {
        attempt: attempt(),
        launched: Timestamp::from_millis(1_000),
        spec: JobSpec {
            name: "test".into(),
            team: "t".into(),
            user: "u".into(),
            roles: vec![Role {
                name: "trainer".into(),
                command: command.iter().map(|word| (*word).to_owned()).collect(),
                shape: Shape {
                    gpus: allocation.gpu_amount(),
                    cpus: Some(1),
                    ..Shape::default()
                },
                ..Role::default()
            }],
            workdir: "/".into(),
            grace: Millis::from_secs(60),
            ..JobSpec::default()
        },
        allocation,
        environment: BTreeMap::new(),
        check: Vec::new(),
    }
}

/// What is seen of one task now; `None` where it is absent.
pub(crate) async fn look(backend: &dyn Backend, task: &TaskId) -> Option<TaskSeen> {
    let seen = backend.seen(task.attempt).await.unwrap();
    seen.and_then(|mut seen| seen.tasks.remove(task))
}
