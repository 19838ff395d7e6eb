//! Several backends as one: a queue over this machine and a cluster. Each attempt is one backend's, by the nodes that it
//! holds; decides nothing, and starts nothing itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use antiphon_types::{AttemptId, JobSpec, NodeName, NodeSpec, TaskId};
use async_trait::async_trait;
use futures_util::future::select_all;

use crate::{Backend, BackendError, DeviceReading, Launch, Preflight, Seen};

/// Several backends as one. Nodes have different names in all of them, and each backend a directory of its own.
pub struct SeveralBackends {
    backends: Vec<Arc<dyn Backend>>,
    known: Mutex<Known>,
}

/// What was learned; all of it is learned again after a restart.
#[derive(Debug, Default)]
struct Known {
    /// What each backend offered last.
    nodes: BTreeMap<usize, Vec<NodeSpec>>,
    /// Whose an attempt is.
    owners: BTreeMap<AttemptId, usize>,
}

impl SeveralBackends {
    /// These backends, in this order: a node that two of them offer is the first one's.
    #[must_use]
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        Self {
            backends,
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The backend that has an attempt; `None` where none of them does.
    async fn owner(&self, attempt: AttemptId) -> Result<Option<&dyn Backend>, BackendError> {
        let known = self.known().owners.get(&attempt).copied();
        if let Some(index) = known {
            return Ok(self.backends.get(index).map(|backend| &**backend));
        }
        let mut failed = None;
        for (index, backend) in self.backends.iter().enumerate() {
            match backend.seen(attempt).await {
                Ok(Some(_)) => {
                    self.known().owners.insert(attempt, index);
                    return Ok(Some(&**backend));
                }
                Ok(None) => (),
                Err(error) => failed = Some(error),
            }
        }
        // One that could not be asked may have it.
        failed.map_or(Ok(None), Err)
    }

    /// The backend that offers a node.
    fn of_node(&self, node: &NodeName) -> Option<usize> {
        let known = self.known();
        let offers = |nodes: &Vec<NodeSpec>| nodes.iter().any(|one| one.name == *node);
        let found = known.nodes.iter().find(|(_, nodes)| offers(nodes));
        found.map(|(index, _)| *index)
    }
}

#[async_trait]
impl Backend for SeveralBackends {
    fn name(&self) -> &'static str {
        "several"
    }

    /// All nodes of all backends. One that cannot be asked keeps those that it offered last.
    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError> {
        for (index, backend) in self.backends.iter().enumerate() {
            match backend.nodes().await {
                Ok(nodes) => drop(self.known().nodes.insert(index, nodes)),
                Err(error) if self.known().nodes.contains_key(&index) => {
                    let backend = backend.name();
                    tracing::warn!(backend, %error, "the nodes could not be listed; they stay as they were");
                }
                Err(error) => return Err(error),
            }
        }
        let known = self.known();
        let mut by_name: BTreeMap<&NodeName, &NodeSpec> = BTreeMap::new();
        for node in known.nodes.values().flatten() {
            by_name.entry(&node.name).or_insert(node);
        }
        Ok(by_name.into_values().cloned().collect())
    }

    async fn devices(&self) -> Vec<DeviceReading> {
        let mut readings = Vec::new();
        for backend in &self.backends {
            readings.append(&mut backend.devices().await);
        }
        readings
    }

    /// A job that any of them can run is fine.
    async fn preflight(&self, spec: &JobSpec) -> Result<(), Preflight> {
        let mut first = Ok(());
        for backend in &self.backends {
            let found = backend.preflight(spec).await;
            if found.is_ok() {
                return Ok(());
            }
            first = first.and(found);
        }
        first
    }

    async fn launch(&self, launch: &Launch) -> Result<(), BackendError> {
        let task = launch.allocation.tasks.first();
        let Some(task) = task else { return Ok(()) };
        let unknown = || BackendError::UnknownNode(task.node.to_string());
        let index = match self.of_node(&task.node) {
            Some(index) => index,
            None => {
                self.nodes().await?;
                self.of_node(&task.node).ok_or_else(unknown)?
            }
        };
        self.known().owners.insert(launch.attempt, index);
        self.backends[index].launch(launch).await
    }

    async fn terminate(&self, attempt: AttemptId) -> Result<(), BackendError> {
        match self.owner(attempt).await? {
            Some(backend) => backend.terminate(attempt).await,
            None => Ok(()),
        }
    }

    async fn kill(&self, attempt: AttemptId) -> Result<(), BackendError> {
        match self.owner(attempt).await? {
            Some(backend) => backend.kill(attempt).await,
            None => Ok(()),
        }
    }

    async fn seen(&self, attempt: AttemptId) -> Result<Option<Seen>, BackendError> {
        match self.owner(attempt).await? {
            Some(backend) => backend.seen(attempt).await,
            None => Ok(None),
        }
    }

    async fn changed(&self) -> Vec<AttemptId> {
        select_all(self.backends.iter().map(|backend| backend.changed()))
            .await
            .0
    }

    fn hint(&self, attempt: AttemptId) {
        let owner = self.known().owners.get(&attempt).copied();
        for (index, backend) in self.backends.iter().enumerate() {
            if owner.is_none_or(|owner| owner == index) {
                backend.hint(attempt);
            }
        }
    }

    async fn output(
        &self,
        task: &TaskId,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError> {
        // Output outlives what is known of its attempt.
        for backend in &self.backends {
            let output = backend.output(task, offset, bytes_max).await?;
            if !output.is_empty() {
                return Ok(output);
            }
        }
        Ok(Vec::new())
    }

    async fn forget(&self, attempt: AttemptId) {
        for backend in &self.backends {
            backend.forget(attempt).await;
        }
        self.known().owners.remove(&attempt);
    }

    fn waits(&self, attempt: AttemptId) -> Option<String> {
        self.backends
            .iter()
            .find_map(|backend| backend.waits(attempt))
    }
}

#[cfg(all(test, feature = "test-support"))]
mod tests {
    use antiphon_types::{Bytes, GpuAmount, Role, TaskAllocation, Timestamp};

    use super::*;
    use crate::TaskSeen;
    use crate::fake::{Call, FakeBackend, Manners};

    fn fake(node: &str) -> Arc<FakeBackend> {
        let node = NodeSpec {
            name: node.into(),
            ..NodeSpec::default()
        };
        Arc::new(FakeBackend::new(vec![node], Manners::Obedient))
    }

    fn launch(attempt: &str, node: &str) -> Launch {
        let task = TaskAllocation {
            role: "trainer".into(),
            index: 0,
            node: node.into(),
            gpus: Vec::new(),
            gpu_share: GpuAmount::from_gpus(1),
            cpus: 1,
            memory: Bytes::ZERO,
            scratch: Bytes::ZERO,
            read_bandwidth: Bytes::ZERO,
            sliced: false,
        };
        Launch {
            attempt: attempt.parse().expect("an attempt's id"),
            spec: JobSpec {
                roles: vec![Role::default()],
                ..JobSpec::default()
            },
            launched: Timestamp::from_millis(1),
            allocation: vec![task].into(),
            environment: BTreeMap::new(),
            check: Vec::new(),
        }
    }

    fn both(one: &Arc<FakeBackend>, two: &Arc<FakeBackend>) -> SeveralBackends {
        SeveralBackends::new(vec![one.clone(), two.clone()])
    }

    #[tokio::test]
    async fn an_attempt_is_its_nodes_backends_also_after_a_restart() {
        let (here, there) = (fake("n0"), fake("n1"));
        let several = both(&here, &there);
        assert_eq!(several.nodes().await.unwrap().len(), 2);
        let launch = launch("job-1.1", "n1");
        several.launch(&launch).await.unwrap();
        assert_eq!(here.calls(), []);
        assert_eq!(several.changed().await, [launch.attempt]);

        let several = both(&here, &there);
        several.terminate(launch.attempt).await.unwrap();
        let seen = several.seen(launch.attempt).await.unwrap().unwrap();
        assert!(
            seen.tasks
                .values()
                .all(|seen| matches!(seen, TaskSeen::Ended(_)))
        );
        assert!(there.calls().contains(&Call::Terminate(launch.attempt)));
        assert_eq!(here.calls(), []);
    }

    #[tokio::test]
    async fn one_that_is_away_keeps_its_nodes_and_may_have_every_attempt() {
        let (here, there) = (fake("n0"), fake("n1"));
        let several = both(&here, &there);
        several.nodes().await.unwrap();
        there.fail_lookups(2);
        assert_eq!(several.nodes().await.unwrap().len(), 2);
        // Not absent: the one that could have it did not answer.
        let attempt = "job-7.1".parse().unwrap();
        assert!(several.seen(attempt).await.is_err());
        assert_eq!(several.seen(attempt).await.unwrap(), None);
        let error = several.launch(&launch("job-8.1", "n9")).await.unwrap_err();
        assert_eq!(error.to_string(), "node `n9` is not one of this backend's");
    }
}
