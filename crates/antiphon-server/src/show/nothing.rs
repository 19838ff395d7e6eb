//! The backend of what is only shown: it has no nodes of its own, starts nothing, and says so where a job's output would be.

use antiphon_backends::{Backend, BackendError, Launch, Preflight, Seen};
use antiphon_types::{AttemptId, JobSpec, NodeSpec, TaskId};
use async_trait::async_trait;

/// What stands where the output of a job would.
const OUTPUT: &[u8] = b"A simulated job prints nothing.\n";

pub(super) struct Nothing;

#[async_trait]
impl Backend for Nothing {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn nodes(&self) -> Result<Vec<NodeSpec>, BackendError> {
        Ok(Vec::new())
    }

    async fn preflight(&self, _: &JobSpec) -> Result<(), Preflight> {
        Ok(())
    }

    async fn launch(&self, _: &Launch) -> Result<(), BackendError> {
        Ok(())
    }

    async fn terminate(&self, _: AttemptId) -> Result<(), BackendError> {
        Ok(())
    }

    async fn kill(&self, _: AttemptId) -> Result<(), BackendError> {
        Ok(())
    }

    async fn seen(&self, _: AttemptId) -> Result<Option<Seen>, BackendError> {
        Ok(None)
    }

    async fn changed(&self) -> Vec<AttemptId> {
        std::future::pending().await
    }

    fn hint(&self, _: AttemptId) {}

    async fn output(
        &self,
        _: &TaskId,
        offset: u64,
        bytes_max: u64,
    ) -> Result<Vec<u8>, BackendError> {
        let place = |place: u64| usize::try_from(place).unwrap_or(usize::MAX);
        let rest = OUTPUT.get(place(offset)..).unwrap_or_default();
        Ok(rest[..place(bytes_max).min(rest.len())].to_vec())
    }

    async fn forget(&self, _: AttemptId) {}
}
